"""Algorithm 3 for many clients with individual thresholds: pending messages are stored in arrays.

A function without a key is called once per message and receiver, and not again for pending messages. That is
exact, because it is a pure function of the two contexts:

- for a receiver, all pending messages of one sender have the same threshold: that of its newest message;
- where that threshold or the receiver's own context has changed, its queues are walked as in
  :class:`~mudkit.systems.radiator.engines.pending.Pending`; so are the queues of a receiver for which the
  function or the join has failed, while any of those messages is pending;
- elsewhere the new message joins a queue, and full queues are found for all receivers at once.

Entries and times equal those of :class:`~mudkit.systems.radiator.engines.literal.ClientLists`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Batch, CurrentContexts, Message, Pending
from mudkit.systems.radiator.functions import Problems
from mudkit.systems.radiator.thresholds import Aggregability, EvaluatedThreshold
from mudkit.wire import Fields

_Int: TypeAlias = NDArray[np.int64]
_Bool: TypeAlias = NDArray[np.bool_]

_Released: TypeAlias = dict[tuple[int, ...], tuple[Batch, list[int]]]
"""Released batches and the places of their recipients, by the numbers of the messages."""

_TIME, _VOLUME, _PEOPLE = 1, 2, 3
_KINDS: Final = {"time": _TIME, "volume": _VOLUME, "people": _PEOPLE}
_NAMES: Final = {code: kind for kind, code in _KINDS.items()}
"""A threshold is encoded as ``4 * value + kind``; 0: the message is not pending for this receiver."""
_FAILED: Final = -1
_NO_CODE: Final = -2
_NEVER: Final = np.iinfo(np.int64).max
_INITIAL_SIZE: Final = 16


@check_arguments
def engine_for_many(
    function: Aggregability, retention_us: int, *, echo: bool = False
) -> Groups | ClientArrays:
    """Return :class:`Groups` for a function with a key, else :class:`ClientArrays`: engines for many clients.

    Parameters
    ----------
    function, retention_us, echo
        As for :class:`ClientLists`.
    """
    return (Groups if function.key is not None else ClientArrays)(function, retention_us, echo=echo)


class ClientArrays:
    """Engine for many clients and a function without a key; same methods as :class:`ClientLists`.

    A message costs one call of the function per receiver; memory is one number per receiver and pending
    message.

    Parameters
    ----------
    function : Aggregability
        Aggregability function without a key; with one, use :class:`Groups`.
    retention_us, echo
        As for :class:`ClientLists`.

    Attributes
    ----------
    dropped : int
        Messages dropped after the retention, counted once per receiver.
    """

    @check_arguments
    def __init__(self, function: Aggregability, retention_us: int, *, echo: bool = False) -> None:
        self.function = function
        self.problems = Problems()
        self.contexts = CurrentContexts(retention_us)
        self.dropped = 0
        self.retention_us, self._echo = retention_us, echo
        self._place: dict[str, int] = {}
        self._clients: list[str] = []  # by place
        self._views: list[Context] = []
        self._free: list[int] = []
        self._entered = 0
        self._order = np.zeros(_INITIAL_SIZE, np.int64)
        self._due = np.full(_INITIAL_SIZE, _NEVER)
        self._is_private = np.zeros(_INITIAL_SIZE, np.bool_)
        self._rows: list[Message] = []  # messages pending anywhere, oldest first
        self._row_of: dict[int, int] = {}
        self._arrived = np.zeros(_INITIAL_SIZE, np.int64)
        self._codes = np.zeros((_INITIAL_SIZE, _INITIAL_SIZE), np.int64)
        """Encoded threshold of each pending message (row) for each receiver (column)."""
        self._apart: dict[int, Pending] = {}
        """Pending messages of receivers for which the function or the join has failed; not in the arrays."""

    @property
    def clients(self) -> Iterable[str]:
        """Registered clients in order."""
        return self._place.keys()

    @property
    def due_us(self) -> float:
        """Latest time of the next :meth:`fire`, µs; infinite: none."""
        due_us = int(self._due.min())
        return math.inf if due_us == _NEVER else due_us

    def waiting(self, receiver: str) -> list[Message]:
        """Return the pending messages for a receiver, oldest first."""
        place = self._place[receiver]
        if place in self._apart:
            return self._apart[place].messages()
        return [self._rows[row] for row in self._rows_of(place)]

    def register(self, now_us: int, client: str, attributes: Fields, *, receives: bool = True) -> list[Entry]:
        """Register a client, or replace its attributes; see :meth:`ClientLists.register`."""
        is_new = self.contexts.register(client, attributes)
        if receives and client not in self._place:
            self._allocate_place(client)
        return [] if is_new else self._step(now_us, client, None)

    def unregister(self, now_us: int, client: str) -> None:
        """Remove a client and its pending messages; see :meth:`ClientLists.unregister`."""
        place = self._place.pop(client, None)
        if place is not None:
            self._apart.pop(place, None)
            self._codes[:, place], self._due[place], self._is_private[place] = 0, _NEVER, False
            self._free.append(place)
        self.contexts.mark_left(now_us, client)

    def take(self, now_us: int, message: Message) -> list[Entry]:
        """Add a message for all clients; return released entries; see :meth:`ClientLists.take`."""
        self.contexts.record_propagation(message.sender, message.context)
        return self._step(now_us, message.sender, message)

    def fire(self, now_us: int) -> list[Entry]:
        """Release what is due by time, and return the entries; see :meth:`ClientLists.fire`."""
        return self._step(now_us, None, None)

    def drop(self, count: int) -> None:
        """Count messages that cannot be joined as dropped; see :meth:`ClientLists.drop`."""
        self.dropped += count

    def put_back(self, entry: Entry, retry_us: int) -> None:
        """Restore an entry that could not be joined; see :meth:`ClientLists.put_back`."""
        for place in (self._place[client] for client in entry.recipients):
            pending = self._apart.get(place) or self._take_out(place)
            pending.put_back(entry.batch, retry_us)
            self._set_apart(place, pending)

    # -- release of messages

    def _step(self, now_us: int, changed: str | None, new: Message | None) -> list[Entry]:
        """Add a message for all receivers, walk those with a changed threshold, and expire what is due."""
        released: _Released = {}
        walked = set(self._apart)
        own = None if changed is None else self._place.get(changed)
        if own is not None and changed is not None:
            self._views[own] = self.contexts[changed]
            if own not in walked and len(self._rows_of(own)):
                walked.add(own)
        if changed is not None:
            codes, others = self._decide_thresholds(changed, new, walked)
            walked |= others
            codes[list(walked)] = 0
            if new is not None:
                self._add_message(new, codes, released)
        for place in sorted(walked):
            self._decide_again(now_us, place, None if place == own and not self._echo else new, released)
        self._expire(now_us, released)
        return [
            Entry(batch, [self._clients[place] for place in sorted(places, key=self._order.__getitem__)])
            for batch, places in released.values()
        ]

    def _decide_thresholds(
        self, sender: str, new: Message | None, walked: Collection[int]
    ) -> tuple[_Int, set[int]]:
        """Return the thresholds by receiver, and the receivers to walk; without ``new`` only pending ones."""
        pending_codes = self._codes[: len(self._rows)]
        theirs = pending_codes[[row for row, message in enumerate(self._rows) if message.sender == sender]]
        places: Iterable[int] = self._place.values()
        if new is None:
            places = np.flatnonzero(theirs.any(axis=0)).tolist()
        skipped = {*walked, *(() if self._echo else (self._place.get(sender, -1),))}
        codes = np.zeros(pending_codes.shape[1], np.int64)
        evaluated = [place for place in places if place not in skipped]
        context, decide, views, kinds = self.contexts[sender], self.function.decide, self._views, _KINDS
        new_codes: list[int] = []
        for place in evaluated:
            try:
                kind, value = decide(context, views[place])
            except Exception as error:
                self.problems.add(self.function.problem(error, sender, self._clients[place]))
                new_codes.append(_FAILED)
            else:
                new_codes.append(value << 2 | kinds[kind])
        codes[evaluated] = new_codes
        is_changed = (codes == _FAILED) | ((theirs != 0) & (theirs != codes)).any(axis=0)
        return codes, set(np.flatnonzero(is_changed).tolist())

    def _add_message(self, new: Message, codes: _Int, released: _Released) -> None:
        """Add a message with its thresholds, and release the queues that reach them."""
        row = self._allocate_row(new)
        older, arrived_us = self._codes[:row], self._arrived[:row]
        same = older == np.where(codes == 0, _NO_CODE, codes)
        kinds, values = codes & 3, codes >> 2
        counts = np.count_nonzero(same, axis=0) + 1
        progress = np.where(kinds == _VOLUME, counts, -1)
        if (kinds == _TIME).any():
            oldest_us = arrived_us[same.argmax(axis=0)] if row else new.arrived_us
            span_us = np.where(counts > 1, new.arrived_us - oldest_us, 0)
            progress = np.where(kinds == _TIME, span_us, progress)
        is_people = (codes != 0) & (kinds == _PEOPLE)
        if is_people.any():
            self._is_private |= is_people
            places = self._candidates(new, same, np.where(is_people, values, _NEVER))
            patterns, which = _distinct_columns(same[:, places])
            people = [len(self._people_in(new, rows)) for rows in patterns]
            progress[places] = np.array(people, np.int64)[which]
        reached = np.flatnonzero((codes != 0) & (progress >= values))
        self._release(same[:, reached], reached, (new,), released)
        left = older[:, reached]
        left[same[:, reached]] = 0
        older[:, reached] = left
        self._codes[row] = codes
        self._codes[row, reached] = 0
        due_us = np.where(codes == 0, _NEVER, new.arrived_us + self._wait_us(codes))
        np.minimum(self._due, due_us, out=self._due)
        self._set_due(reached)

    def _candidates(self, new: Message, same: _Bool, values: _Int) -> _Int:
        """Return the receivers whose queue may reach ``values`` people, counting repeated names."""
        named = np.array([len(message.context.people) for message in self._rows[:-1]], np.int64)
        return np.flatnonzero(named @ same + len(new.context.people) >= values)

    def _people_in(self, new: Message, rows: _Int) -> set[str]:
        """Return the different people in a new message and those in some rows."""
        return set(new.context.people).union(*(self._rows[row].context.people for row in rows))

    def _expire(self, now_us: int, released: _Released) -> None:
        """Release or drop what is due by time, one queue per receiver and iteration."""
        while len(places := np.flatnonzero(self._due <= now_us)):
            codes_due = self._codes[: len(self._rows), places]
            is_due = (codes_due != 0) & (
                self._arrived[: len(codes_due), None] + self._wait_us(codes_due) <= now_us
            )
            first = codes_due[is_due.argmax(axis=0), np.arange(len(places))]
            same = codes_due == first
            is_people = first & 3 == _PEOPLE
            dropped = same & is_due & is_people
            self.dropped += int(dropped.sum())
            self._release(same[:, ~is_people], places[~is_people], (), released)
            codes_due[dropped | (same & ~is_people)] = 0
            self._codes[: len(codes_due), places] = codes_due
            self._set_due(places)

    def _release(self, same: _Bool, places: _Int, new: Batch, released: _Released) -> None:
        """Release the selected messages of each receiver; equal batches share an entry (Radiator 3.1)."""
        if not len(places):
            return
        patterns, which = _distinct_columns(same)
        order = np.argsort(which, kind="stable")
        parts = np.split(places[order], np.cumsum(np.bincount(which))[:-1])
        for rows, part in zip(patterns, parts, strict=True):
            _add_released(released, (*(self._rows[row] for row in rows), *new), part.tolist())

    def _decide_again(self, now_us: int, place: int, new: Message | None, released: _Released) -> None:
        """Apply the function again to a receiver's pending messages, once per sender."""
        pending = self._apart.pop(place, None) or self._take_out(place)
        before, client, view = pending.dropped, self._clients[place], self._views[place]
        keys: dict[str, EvaluatedThreshold | None] = {}

        def decide(message: Message) -> EvaluatedThreshold | None:
            """Return the threshold of a message; it is computed once per sender."""
            sender = message.sender
            if sender not in keys:
                try:
                    keys[sender] = self.function.decide(self.contexts.of_sender(message), view)
                except Exception as error:
                    self.problems.add(self.function.problem(error, sender, client))
                    keys[sender] = None
            return keys[sender]

        for batch in pending.walk(now_us, decide, new):
            _add_released(released, batch, [place])
        self.dropped += pending.dropped - before
        waits = pending.messages_with_thresholds()
        if any(key is None or message.number not in self._row_of for message, key in waits):
            self._set_apart(place, pending)
            return
        self._is_private[place] = pending.is_private
        for message, key in waits:
            if key is not None:
                self._codes[self._row_of[message.number], place] = key.value << 2 | _KINDS[key.kind]
        self._set_due(np.array([place]))

    def _take_out(self, place: int) -> Pending:
        """Return a receiver's pending messages as :class:`Pending`, and remove them from the arrays."""
        pending = Pending(self.retention_us)
        pending.is_private = bool(self._is_private[place])
        for row in self._rows_of(place):
            code = int(self._codes[row, place])
            pending.add(self._rows[row], EvaluatedThreshold(_NAMES[code & 3], code >> 2))
        self._codes[:, place] = 0
        return pending

    def _set_apart(self, place: int, pending: Pending) -> None:
        """Keep a receiver's pending messages outside of the arrays until all have a threshold."""
        self._apart[place] = pending
        self._due[place] = _NEVER if pending.due_us == math.inf else int(pending.due_us)

    def _wait_us(self, codes: _Int) -> _Int:
        """Return the maximum time that the oldest message of a queue waits."""
        return np.where(codes & 3 == _TIME, np.minimum(codes >> 2, self.retention_us), self.retention_us)

    def _set_due(self, places: _Int) -> None:
        """Compute the due times of some receivers from the arrays."""
        codes = self._codes[: len(self._rows), places]
        due_us = np.where(codes == 0, _NEVER, self._arrived[: len(codes), None] + self._wait_us(codes))
        self._due[places] = due_us.min(axis=0, initial=_NEVER)

    # -- rows and columns

    def _rows_of(self, place: int) -> _Int:
        """Return the rows of the messages that are pending for a receiver."""
        return np.flatnonzero(self._codes[: len(self._rows), place])

    def _allocate_row(self, message: Message) -> int:
        """Allocate a row for a message; drop rows without pending messages when the arrays are full."""
        if len(self._rows) == len(self._codes):
            kept = np.flatnonzero(self._codes.any(axis=1))
            self._rows = [self._rows[row] for row in kept]
            self._row_of = {other.number: row for row, other in enumerate(self._rows)}
            rows = max(_INITIAL_SIZE, 2 * len(kept))
            codes = np.zeros((rows, self._codes.shape[1]), np.int64)
            arrived = np.zeros(rows, np.int64)
            codes[: len(kept)], arrived[: len(kept)] = self._codes[kept], self._arrived[kept]
            self._codes, self._arrived = codes, arrived
        row = self._row_of[message.number] = len(self._rows)
        self._rows.append(message)
        self._arrived[row] = message.arrived_us
        return row

    def _allocate_place(self, client: str) -> None:
        """Allocate a column for a new receiver, a free one or one more."""
        context = self.contexts[client]
        if self._free:
            place = self._free.pop()
            self._clients[place], self._views[place] = client, context
        else:
            place = len(self._clients)
            self._clients.append(client)
            self._views.append(context)
            if place == len(self._due):
                self._codes = np.hstack([self._codes, np.zeros_like(self._codes)])
                self._order = np.concatenate([self._order, np.zeros_like(self._order)])
                self._is_private = np.concatenate([self._is_private, np.zeros_like(self._is_private)])
                self._due = np.concatenate([self._due, np.full_like(self._due, _NEVER)])
        self._place[client] = place
        self._order[place] = self._entered
        self._entered += 1


def _distinct_columns(same: _Bool) -> tuple[list[_Int], _Int]:
    """Return the rows set in each distinct column, and for each column the index of its pattern."""
    rows, columns = same.shape
    if not rows or not columns:
        return [np.array([], np.int64)] * bool(columns), np.zeros(columns, np.int64)
    packed = np.ascontiguousarray(np.packbits(same, axis=0).T)
    whole = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return [np.flatnonzero(same[:, column]) for column in first], which


def _add_released(released: _Released, batch: Sequence[Message], places: list[int]) -> None:
    """Add receivers of a batch to the released ones; equal batches share an entry."""
    numbers = tuple([message.number for message in batch])
    released.setdefault(numbers, (tuple(batch), []))[1].extend(places)
