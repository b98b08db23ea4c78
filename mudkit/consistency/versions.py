"""The path for known versions: the write order is given, and one sweep over time decides.

With it every operation that sees or writes has its slot: first the write of a version, then the reads that
returned it. A sequence of all operations is a view of all clients if it is sorted by slots, and it keeps the
orders by time exactly when none of two operations that are ordered by time has the later slot of the two. So
it is enough to go through invocations and answers once, and to remember the latest slot among those that come
before what is invoked now. That takes a time in proportion to the operations, but for sorting them, and what
is found to be wrong is a pair of operations.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from mudkit.consistency.models import Model
from mudkit.consistency.order import BEFORE, INVOKED, KNOWN, REAL_TIME, VERSION, Edge
from mudkit.consistency.reading import INITIAL, Reading

__all__ = ["OVERWRITTEN", "SEEN", "has_known_order", "one_view"]

SEEN: Final = "was seen by"
_FOUND: Final = "is the first that can have been found by"
_NOTHING_ELSE: Final = "can have found nothing but what it expected"
OVERWRITTEN: Final = "saw what was overwritten by"


class _Slot(NamedTuple):
    """A place in the order of versions, and the operation because of which."""

    version: int
    is_after_write: bool
    place: int

    def is_later(self, than: _Slot) -> bool:
        return self[:2] > than[:2]


_BEGIN: Final = _Slot(0, True, INITIAL)


def has_known_order(reading: Reading) -> bool:
    """Say whether all writes with an effect have versions."""
    return all(reading.versions[place] is not None for place in reading.writes)


def one_view(reading: Reading, model: Model) -> tuple[list[int] | None, list[Edge]]:
    """Find one sequence of all operations that is a view for every client.

    Returns
    -------
    list of int or None
        The places of the operations in the order of the view; None: there is none.
    list of Edge
        Then a cycle: each comes before the next. An edge from a conflict to itself: it can have found nothing
        but what it expected.
    """
    return _Sweep(reading, model).run()


class _Sweep:
    def __init__(self, reading: Reading, model: Model) -> None:
        self._reading = reading
        self._model = model
        order = sorted(reading.writes, key=lambda place: reading.versions[place] or 0)
        self._by_version = {reading.versions[place] or 0: place for place in order}
        self._following = dict(zip([INITIAL, *order], order, strict=False))
        self._avoids, self._expects = dict(reading.avoids), dict(reading.expects)
        self._slots: list[_Slot | None] = [self._slot(place) for place in range(len(reading.operations))]

    def _slot(self, place: int) -> _Slot | None:
        """Give what sees or writes its slot; a refused write that says nothing has none of its own."""
        reading = self._reading
        if reading.effective[place]:
            return _Slot(reading.versions[place] or 0, False, place)
        seen = reading.saw[place]
        if seen is None:
            return None
        return _Slot(0 if seen == INITIAL else reading.versions[seen] or 0, True, place)

    def run(self) -> tuple[list[int] | None, list[Edge]]:
        """Go through the operations as they were invoked."""
        reading, wio = self._reading, self._model.invocation_order
        for place in reading.writes:
            seen = reading.saw[place]
            if seen is not None and self._following.get(seen) != place:
                return None, self._not_the_next(place, seen)
        over: dict[str, _Latest] = defaultdict(_Latest)
        anywhere = _Latest()
        invoked: dict[tuple[str, bool], _Slot] = {}
        for place, each in enumerate(reading.operations):
            limit, why = over[each.client].until(each.invoked_us + 1), BEFORE
            if self._model.real_time:
                other = anywhere.until(each.invoked_us)
                limit, why = (other, REAL_TIME) if other.is_later(limit) else (limit, why)
            if wio:  # after writes come all, after reads the writes
                for is_write in (True, False) if each.is_write else (True,):
                    other = invoked.get((each.client, is_write), _BEGIN)
                    limit, why = (other, INVOKED) if other.is_later(limit) else (limit, why)
            known = self._expects.get(place)
            if known is not None:
                other = _Slot(self._version(known), False, known)
                limit, why = (other, KNOWN) if other.is_later(limit) else (limit, why)
            slot = self._slots[place]
            if slot is None:
                slot = self._earliest(place, limit)
                if slot is None:
                    edges = [Edge(place, place, _NOTHING_ELSE)]
                    return None, edges if limit.place == INITIAL else [Edge(limit.place, place, why), *edges]
                self._slots[place] = slot
            elif limit.is_later(slot):
                return None, self._contradiction(limit, place, why)
            if each.answered_us is not None:
                over[each.client].add(each.answered_us, slot)
                anywhere.add(each.answered_us, slot)
            if slot.is_later(invoked.get((each.client, each.is_write), _BEGIN)):
                invoked[each.client, each.is_write] = slot
        slots = [slot or _BEGIN for slot in self._slots]
        return sorted(range(len(slots)), key=lambda place: (slots[place][:2], place)), []

    def _earliest(self, place: int, limit: _Slot) -> _Slot | None:
        """Put what has no slot of its own where it disturbs least; a conflict not after what it expected."""
        avoided = self._avoids.get(place)
        if avoided is None or limit.version != self._version(avoided):
            return _Slot(limit.version, True, limit.place)
        if avoided not in self._following:
            return None
        return _Slot(self._version(self._following[avoided]), True, place)

    def _version(self, write: int) -> int:
        return 0 if write == INITIAL else self._reading.versions[write] or 0

    def _not_the_next(self, place: int, seen: int) -> list[Edge]:
        """Explain that a write did not come right after the one that it replaced."""
        if self._version(place) < self._version(seen):
            return [Edge(seen, place, SEEN), Edge(place, seen, VERSION)]
        following = self._following[seen]
        return [Edge(following, place, VERSION), Edge(place, following, OVERWRITTEN)]

    def _contradiction(self, limit: _Slot, place: int, why: str) -> list[Edge]:
        """Explain that an operation comes after one with a later slot."""
        first, write = limit.place, self._by_version[limit.version]
        edges = [Edge(first, place, why)]
        if write != place:
            edges.append(Edge(place, write, VERSION if self._reading.effective[place] else OVERWRITTEN))
        if write != first:
            edges.append(Edge(write, first, _FOUND if self._reading.saw[first] is None else SEEN))
        return edges


class _Latest:
    """The latest slot of what was answered until a time that only goes on."""

    def __init__(self) -> None:
        self._latest = _BEGIN
        self._answers: list[tuple[int, int, _Slot]] = []
        self._count = 0

    def add(self, answered_us: int, slot: _Slot) -> None:
        self._count += 1
        heappush(self._answers, (answered_us, self._count, slot))

    def until(self, t_us: int) -> _Slot:
        """Give the latest slot of what was answered before a time."""
        while self._answers and self._answers[0][0] < t_us:
            slot = heappop(self._answers)[2]
            if slot.is_later(self._latest):
                self._latest = slot
        return self._latest
