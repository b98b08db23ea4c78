"""Algorithm 3 for very many clients of whom each may get another threshold: what waits is held in arrays.

A function without a declared key looks at each receiver, so it is asked for each: of a message, once for
each receiver, and not again for what waits. That is enough, for it is a function of the two contexts alone:

- all that waits of one sender has one threshold for a receiver, that of the sender's newest message;
- where that is another than before, and where the receiver's own context is, its queue is walked as
  :class:`~mudkit.systems.radiator.engines.pending.Pending` does it, and so it is as long as something of it
  waits for which the function or the join has failed;
- everywhere else the new message joins a queue, and which queues have reached their threshold is counted for
  all receivers at once.

What goes is what :class:`~mudkit.systems.radiator.engines.literal.ClientLists` lets go, at the same moments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.systems.radiator.aggregation.thresholds import Aggregability, Key
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.contexts import Contexts
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Batch, Message, Pending
from mudkit.systems.radiator.problems import Problems
from mudkit.wire import Fields

__all__ = ["ClientArrays", "engine_for_many"]

_Int: TypeAlias = NDArray[np.int64]
_Bool: TypeAlias = NDArray[np.bool_]

_Going: TypeAlias = dict[tuple[int, ...], tuple[Batch, list[int]]]
"""What goes, and to which places, by the numbers of its messages."""

_TIME, _VOLUME, _PEOPLE = 1, 2, 3
_KINDS: Final = {"time": _TIME, "volume": _VOLUME, "people": _PEOPLE}
_NAMES: Final = {code: kind for kind, code in _KINDS.items()}
"""A threshold is ``4 * value + kind``, one number; 0: the message does not wait for this receiver."""
_FAILED: Final = -1
_NOTHING: Final = -2
_NEVER: Final = np.iinfo(np.int64).max
_FIRST: Final = 16


def engine_for_many(
    function: Aggregability, retention_us: int, *, echo: bool = False
) -> Groups | ClientArrays:
    """Return the engine for very many clients: groups where the function declares a key, else arrays.

    Parameters
    ----------
    function : Aggregability
    retention_us : int
        No message waits for longer.
    echo : bool
        Whether a client gets its own messages.
    """
    return (Groups if function.key is not None else ClientArrays)(function, retention_us, echo=echo)


class ClientArrays:
    """The engine for very many clients and a function without a key; it has the methods of ``ClientLists``.

    A message costs one call of the function for each receiver, and memory a number for each receiver and
    message that waits somewhere.

    Parameters
    ----------
    function : Aggregability
        Without a key; one with a key is for :class:`~mudkit.systems.radiator.engines.groups.Groups`.
    retention_us : int
    echo : bool
    """

    def __init__(self, function: Aggregability, retention_us: int, *, echo: bool = False) -> None:
        self.function = function
        self.problems = Problems()
        self.contexts = Contexts(retention_us)
        self.dropped = 0
        self.retention_us, self._echo = retention_us, echo
        self._place: dict[str, int] = {}
        self._clients: list[str] = []  # by place
        self._views: list[Context] = []
        self._free: list[int] = []
        self._entered = 0
        self._order = np.zeros(_FIRST, np.int64)
        self._due = np.full(_FIRST, _NEVER)
        self._is_private = np.zeros(_FIRST, np.bool_)
        self._rows: list[Message] = []  # what waits somewhere, the oldest first
        self._row_of: dict[int, int] = {}
        self._arrived = np.zeros(_FIRST, np.int64)
        self._held = np.zeros((_FIRST, _FIRST), np.int64)
        """The threshold with which each message (row) waits for each receiver (column)."""
        self._apart: dict[int, Pending] = {}
        """What waits for receivers for whom something has failed: it is not in the arrays."""

    @property
    def clients(self) -> Iterable[str]:
        """Those who are registered, in order."""
        return self._place.keys()

    @property
    def due_us(self) -> float:
        """When :meth:`fire` is next to be called, at the latest."""
        due_us = int(self._due.min())
        return math.inf if due_us == _NEVER else due_us

    def waiting(self, client: str) -> list[Message]:
        """Give what waits for a client, the oldest first."""
        place = self._place[client]
        if place in self._apart:
            return self._apart[place].messages()
        return [self._rows[row] for row in self._rows_of(place)]

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """As :meth:`ClientLists.register`."""
        is_new = self.contexts.register(client, attributes)
        if receives and client not in self._place:
            self._enter(client)
        return [] if is_new else self._step(now_us, client, None)

    def unregister(self, now_us: int, client: str) -> None:
        """As :meth:`ClientLists.unregister`."""
        place = self._place.pop(client, None)
        if place is not None:
            self._apart.pop(place, None)
            self._held[:, place], self._due[place], self._is_private[place] = 0, _NEVER, False
            self._free.append(place)
        self.contexts.leave(now_us, client)

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """As :meth:`ClientLists.take`."""
        self.contexts.propagated(message.sender, message.context)
        return self._step(now_us, message.sender, message)

    def fire(self, now_us: int) -> list[Entry]:
        """As :meth:`ClientLists.fire`."""
        return self._step(now_us, None, None)

    def drop(self, count: int) -> None:
        """See :meth:`ClientLists.drop`."""
        self.dropped += count

    def put_back(self, entry: Entry, again_us: int) -> None:
        """As :meth:`ClientLists.put_back`."""
        for place in (self._place[client] for client in entry.recipients):
            pending = self._apart.get(place) or self._taken_out(place)
            pending.put_back(entry.batch, again_us)
            self._set_apart(place, pending)

    # -- what goes

    def _step(self, now_us: int, changed: str | None, new: Message | None) -> list[Entry]:
        """Add a message everywhere, walk where a threshold has changed, and let go what is due."""
        going: _Going = {}
        walked = set(self._apart)
        own = None if changed is None else self._place.get(changed)
        if own is not None and changed is not None:
            self._views[own] = self.contexts[changed]
            if own not in walked and len(self._rows_of(own)):
                walked.add(own)
        if changed is not None:
            codes, others = self._asked(changed, new, walked)
            walked |= others
            codes[list(walked)] = 0
            if new is not None:
                self._add(new, codes, going)
        for place in sorted(walked):
            self._walk(now_us, place, None if place == own and not self._echo else new, going)
        self._expire(now_us, going)
        return [
            Entry(batch, [self._clients[place] for place in sorted(places, key=self._order.__getitem__)])
            for batch, places in going.values()
        ]

    def _asked(self, sender: str, new: Message | None, walked: Collection[int]) -> tuple[_Int, set[int]]:
        """Ask for the thresholds of a sender; give them, and the receivers for whom that changes more.

        Without a new message only those are asked for for whom something of this sender waits.
        """
        held = self._held[: len(self._rows)]
        theirs = held[[row for row, message in enumerate(self._rows) if message.sender == sender]]
        places: Iterable[int] = self._place.values()
        if new is None:
            places = np.flatnonzero(theirs.any(axis=0)).tolist()
        skipped = {*walked, *(() if self._echo else (self._place.get(sender, -1),))}
        codes = np.zeros(held.shape[1], np.int64)
        asked = [place for place in places if place not in skipped]
        context, decide, views, kinds = self.contexts[sender], self.function.decide, self._views, _KINDS
        given: list[int] = []
        for place in asked:
            try:
                kind, value = decide(context, views[place])
            except Exception as error:
                self.problems.add(self.function.problem(error, sender, self._clients[place]))
                given.append(_FAILED)
            else:
                given.append(value << 2 | kinds[kind])
        codes[asked] = given
        is_other = (codes == _FAILED) | ((theirs != 0) & (theirs != codes)).any(axis=0)
        return codes, set(np.flatnonzero(is_other).tolist())

    def _add(self, new: Message, codes: _Int, going: _Going) -> None:
        """Let a message wait with its thresholds, and let go the queues that reach them by it."""
        row = self._row(new)
        held, arrived_us = self._held[:row], self._arrived[:row]
        same = held == np.where(codes == 0, _NOTHING, codes)
        kinds, values = codes & 3, codes >> 2
        counts = np.count_nonzero(same, axis=0) + 1
        has_come = np.where(kinds == _VOLUME, counts, -1)
        if (kinds == _TIME).any():
            oldest_us = arrived_us[same.argmax(axis=0)] if row else new.arrived_us
            span_us = np.where(counts > 1, new.arrived_us - oldest_us, 0)
            has_come = np.where(kinds == _TIME, span_us, has_come)
        is_people = (codes != 0) & (kinds == _PEOPLE)
        if is_people.any():
            self._is_private |= is_people
            places = self._enough(new, same, np.where(is_people, values, _NEVER))
            patterns, which = _patterns(same[:, places])
            people = [len(self._people(new, rows)) for rows in patterns]
            has_come[places] = np.array(people, np.int64)[which]
        reached = np.flatnonzero((codes != 0) & (has_come >= values))
        self._go(same[:, reached], reached, (new,), going)
        left = held[:, reached]
        left[same[:, reached]] = 0
        held[:, reached] = left
        self._held[row] = codes
        self._held[row, reached] = 0
        due_us = np.where(codes == 0, _NEVER, new.arrived_us + self._wait_us(codes))
        np.minimum(self._due, due_us, out=self._due)
        self._set_due(reached)

    def _enough(self, new: Message, same: _Bool, values: _Int) -> _Int:
        """Give the receivers whose queue may be of so many people: names that are told, counted all."""
        named = np.array([len(message.context.people) for message in self._rows[:-1]], np.int64)
        return np.flatnonzero(named @ same + len(new.context.people) >= values)

    def _people(self, new: Message, rows: _Int) -> set[str]:
        return set(new.context.people).union(*(self._rows[row].context.people for row in rows))

    def _expire(self, now_us: int, going: _Going) -> None:
        """Let go, or drop, what nothing new will let go, in time: of each receiver a queue at a time."""
        while len(places := np.flatnonzero(self._due <= now_us)):
            held = self._held[: len(self._rows), places]
            is_due = (held != 0) & (self._arrived[: len(held), None] + self._wait_us(held) <= now_us)
            codes = held[is_due.argmax(axis=0), np.arange(len(places))]
            same = held == codes
            is_people = codes & 3 == _PEOPLE
            dropped = same & is_due & is_people
            self.dropped += int(dropped.sum())
            self._go(same[:, ~is_people], places[~is_people], (), going)
            held[dropped | (same & ~is_people)] = 0
            self._held[: len(held), places] = held
            self._set_due(places)

    def _go(self, same: _Bool, places: _Int, new: Batch, going: _Going) -> None:
        """Let go what each of some receivers waits for: equal batches are one (Radiator 3.1)."""
        if not len(places):
            return
        patterns, which = _patterns(same)
        order = np.argsort(which, kind="stable")
        parts = np.split(places[order], np.cumsum(np.bincount(which))[:-1])
        for rows, part in zip(patterns, parts, strict=True):
            _put(going, (*(self._rows[row] for row in rows), *new), part.tolist())

    def _walk(
        self,
        now_us: int,
        place: int,
        new: Message | None,
        going: _Going,
    ) -> None:
        """Apply the function anew to all that waits for a receiver; of one sender it is the same."""
        pending = self._apart.pop(place, None) or self._taken_out(place)
        before, client, view = pending.dropped, self._clients[place], self._views[place]
        keys: dict[str, Key | None] = {}

        def decide(message: Message) -> Key | None:
            sender = message.sender
            if sender not in keys:
                try:
                    keys[sender] = self.function.decide(self.contexts.of_sender(message), view)
                except Exception as error:
                    self.problems.add(self.function.problem(error, sender, client))
                    keys[sender] = None
            return keys[sender]

        for batch in pending.walk(now_us, decide, new):
            _put(going, batch, [place])
        self.dropped += pending.dropped - before
        waits = pending.keyed()
        if any(key is None or message.number not in self._row_of for message, key in waits):
            self._set_apart(place, pending)
            return
        self._is_private[place] = pending.is_private
        for message, key in waits:
            if key is not None:
                self._held[self._row_of[message.number], place] = key.value << 2 | _KINDS[key.kind]
        self._set_due(np.array([place]))

    def _taken_out(self, place: int) -> Pending:
        """Give what waits for a receiver as it is held for one alone; the arrays have it no more."""
        pending = Pending(self.retention_us)
        pending.is_private = bool(self._is_private[place])
        for row in self._rows_of(place):
            code = int(self._held[row, place])
            pending.add(self._rows[row], Key(_NAMES[code & 3], code >> 2))
        self._held[:, place] = 0
        return pending

    def _set_apart(self, place: int, pending: Pending) -> None:
        self._apart[place] = pending
        self._due[place] = _NEVER if pending.due_us == math.inf else int(pending.due_us)

    def _wait_us(self, codes: _Int) -> _Int:
        """Say how long the oldest of a queue waits, whatever comes."""
        return np.where(codes & 3 == _TIME, np.minimum(codes >> 2, self.retention_us), self.retention_us)

    def _set_due(self, places: _Int) -> None:
        held = self._held[: len(self._rows), places]
        due_us = np.where(held == 0, _NEVER, self._arrived[: len(held), None] + self._wait_us(held))
        self._due[places] = due_us.min(axis=0, initial=_NEVER)

    # -- rows and columns

    def _rows_of(self, place: int) -> _Int:
        return np.flatnonzero(self._held[: len(self._rows), place])

    def _row(self, message: Message) -> int:
        """Make a row for a message; those of messages that wait nowhere are given up when room is short."""
        if len(self._rows) == len(self._held):
            kept = np.flatnonzero(self._held.any(axis=1))
            self._rows = [self._rows[row] for row in kept]
            self._row_of = {each.number: row for row, each in enumerate(self._rows)}
            rows = max(_FIRST, 2 * len(kept))
            held = np.zeros((rows, self._held.shape[1]), np.int64)
            arrived = np.zeros(rows, np.int64)
            held[: len(kept)], arrived[: len(kept)] = self._held[kept], self._arrived[kept]
            self._held, self._arrived = held, arrived
        row = self._row_of[message.number] = len(self._rows)
        self._rows.append(message)
        self._arrived[row] = message.arrived_us
        return row

    def _enter(self, client: str) -> None:
        context = self.contexts[client]
        if self._free:
            place = self._free.pop()
            self._clients[place], self._views[place] = client, context
        else:
            place = len(self._clients)
            self._clients.append(client)
            self._views.append(context)
            if place == len(self._due):
                self._held = np.hstack([self._held, np.zeros_like(self._held)])
                self._order, self._is_private = (
                    np.concatenate([each, np.zeros_like(each)]) for each in (self._order, self._is_private)
                )
                self._due = np.concatenate([self._due, np.full_like(self._due, _NEVER)])
        self._place[client] = place
        self._order[place] = self._entered
        self._entered += 1


def _patterns(same: _Bool) -> tuple[list[_Int], _Int]:
    """Tell apart the columns that are different: give the rows of each, and which each column is."""
    rows, columns = same.shape
    if not rows or not columns:
        return [np.array([], np.int64)] * bool(columns), np.zeros(columns, np.int64)
    packed = np.ascontiguousarray(np.packbits(same, axis=0).T)
    whole = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return [np.flatnonzero(same[:, each]) for each in first], which


def _put(going: _Going, batch: Sequence[Message], places: list[int]) -> None:
    numbers = tuple([message.number for message in batch])
    going.setdefault(numbers, (tuple(batch), []))[1].extend(places)
