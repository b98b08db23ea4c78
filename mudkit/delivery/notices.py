"""Notifications of an application, repeated after a kill that may have prevented them.

A machine may be killed between the commit of an event and its effects: the change is durable, and the
application was not notified of it. So each notification is stored in the same commit, and removed by a timer
that fires at once: it runs only if the effects were carried out. A notification that is still stored at a
start is emitted again, with the same ``id``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from mudkit.events import Effect, Notify, SetTimer, Store
from mudkit.wire import Value

_T = TypeVar("_T")


class FieldsWithId(dict[str, Value]):
    """Mapping for an application, with the ``id`` by which it recognises a repeat."""

    __slots__ = ("id",)

    def __init__(self, fields: dict[str, Value], identifier: str) -> None:
        super().__init__(fields)
        self.id: str = identifier


class Notices(Generic[_T]):
    """Notifications, stored as structs ``kind`` under ``name`` until the application has been notified.

    A machine calls :meth:`repeat` or :meth:`take_former` in its first event after a start, :meth:`add` with
    each notification, and :meth:`clear` when the timer ``TIMER`` fires.
    """

    TIMER: Final = "notified"

    def __init__(self, store: Store, kind: type[_T], name: str = "notice") -> None:
        self._store = store
        self._name = name
        stored = store.items(f"{name} ", kind)
        self._former = [notice for _, notice in stored]
        """Notices of former starts, until they are repeated."""
        self._keys = [key for key, _ in stored]
        self._last = int(self._keys[-1].rpartition(" ")[2]) if stored else 0

    def add(self, notice: _T) -> SetTimer:
        """Store a notification that the caller emits in this event; return a timer that it emits, too.

        The timer fires only if both were emitted: then the caller calls :meth:`clear`.
        """
        self._last += 1
        key = f"{self._name} {self._last:012d}"
        self._keys.append(key)
        self._store.put(key, notice)
        return SetTimer(self.TIMER, 0)

    def repeat(self, notify: Callable[[_T], Notify]) -> Sequence[Effect]:
        """Return the notifications that former starts left, in order, at the first call; later none.

        ``notify`` makes the effect of a stored one.
        """
        if not self._former:
            return ()
        former, self._former = self._former, []
        return [*map(notify, former), SetTimer(self.TIMER, 0)]

    def take_former(self) -> Sequence[_T]:
        """Delete the notifications that former starts left, and return them in order, once.

        A machine that decides itself whether to emit them calls it in place of :meth:`repeat`.
        """
        former, self._former = self._former, []
        for key in self._keys[: len(former)]:
            self._store.delete(key)
        del self._keys[: len(former)]
        return former

    def clear(self) -> None:
        """Remove the stored notifications: the timer has fired, so their effects were carried out."""
        for key in self._keys:
            self._store.delete(key)
        self._keys, self._last = [], 0
