"""Window of a continuous read with a limit: the first of its records, kept as they come and go (Mobius 5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from sortedcontainers import SortedList

from mudkit.systems.mud.tables.selection import Place, Selection
from mudkit.wire import Fields


class Window:
    """First ``limit`` of some records in the order of a selection, which has a limit.

    A change takes a time that grows with the logarithm of the number of records.
    """

    def __init__(self, selection: Selection, records: Mapping[str, Fields]) -> None:
        assert selection.limit is not None
        self._selection, self._limit = selection, selection.limit
        self._places = {key: selection.place_of(key, record) for key, record in records.items()}
        self._ordered: SortedList[Place] = SortedList(self._places.values())

    def __contains__(self, key: str) -> bool:
        place = self._places.get(key)
        return place is not None and self._has(place)

    def first_keys(self) -> list[str]:
        """Return the keys of the records in the window, in its order."""
        return [place[-1] for place in islice(self._ordered, self._limit)]

    def put(self, key: str, record: Fields) -> dict[str, bool]:
        """Add or replace a record.

        Return by key whether a record is in the window, of those that have come into it or left it, and of
        this record if it is in the window.
        """
        moved: dict[str, bool] = {}
        self._delete(key, moved)
        place = self._places[key] = self._selection.place_of(key, record)
        self._ordered.add(place)
        if self._has(place):
            moved[key] = True
            self._move(moved, self._limit, is_in=False)
        return moved

    def remove(self, key: str) -> dict[str, bool]:
        """Remove a record, if it is there; return what :meth:`put` returns."""
        moved: dict[str, bool] = {}
        self._delete(key, moved)
        return moved

    def _has(self, place: Place) -> bool:
        """Return whether the window has a place, which has a record."""
        return len(self._ordered) <= self._limit or place <= self._ordered[self._limit - 1]

    def _delete(self, key: str, moved: dict[str, bool]) -> None:
        """Remove a record, and note what comes into the window for it."""
        place = self._places.pop(key, None)
        if place is None:
            return
        if self._has(place):
            moved[key] = False
            self._move(moved, self._limit, is_in=True)
        self._ordered.remove(place)

    def _move(self, moved: dict[str, bool], index: int, *, is_in: bool) -> None:
        """Note that the record at an index of the order, if there is one, comes into the window or leaves."""
        if index >= len(self._ordered):
            return
        key = self._ordered[index][-1]
        if moved.pop(key, is_in) is is_in:
            moved[key] = is_in
