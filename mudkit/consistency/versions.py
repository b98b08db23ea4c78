"""Models with one view, where all versions are known: the order of writes is given, and one sweep decides.

Every operation that observes or writes has a slot: first the write of a version, then the reads that returned
it. A sequence of all operations is a view of all clients if it is sorted by slot, and it keeps the orders by
time exactly if no two operations ordered by time have slots in the opposite order. So one pass over
invocations and answers is enough, remembering the latest slot of the operations that precede the current one.
This takes linear time except for sorting, and a violation is a pair of operations.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from mudkit.consistency.models import BEFORE, INVOKED, KNOWN, REAL_TIME, VERSION, Edge, Model
from mudkit.consistency.record import INITIAL, Reading

SEEN: Final = "was seen by"
_FOUND: Final = "is the first that can have been found by"
_NOTHING_ELSE: Final = "can have found nothing but what it expected"
OVERWRITTEN: Final = "saw what was overwritten by"


class _Slot(NamedTuple):
    """Position in the order of versions, and the operation that it comes from."""

    version: int
    is_after_write: bool
    place: int

    def is_later(self, than: _Slot) -> bool:
        """Return whether a slot comes after another: by version, then the write before what saw it."""
        return self[:2] > than[:2]


_BEGIN: Final = _Slot(0, True, INITIAL)


def has_known_order(reading: Reading) -> bool:
    """Return whether all writes with an effect have versions."""
    return all(reading.versions[place] is not None for place in reading.writes)


def one_view(reading: Reading, model: Model) -> tuple[list[int] | None, list[Edge]]:
    """Find one sequence of all operations that is a view for every client.

    Returns
    -------
    list of int or None
        Operations in the order of the view; None if there is none.
    list of Edge
        Then a cycle. An edge from a conflict to itself: it can only have found what it expected.
    """
    return _Sweep(reading, model).run()


class _Sweep:
    """Sweep over a reading in the order of invocation; each operation gets its earliest possible slot."""

    def __init__(self, reading: Reading, model: Model) -> None:
        self._reading = reading
        self._model = model
        order = sorted(reading.writes, key=lambda place: reading.versions[place] or 0)
        self._by_version = {reading.versions[place] or 0: place for place in order}
        self._following = dict(zip([INITIAL, *order], order, strict=False))
        self._avoids, self._expects = dict(reading.avoids), dict(reading.expects)
        self._slots: list[_Slot | None] = [self._slot(place) for place in range(len(reading.operations))]

    def _slot(self, place: int) -> _Slot | None:
        """Return the slot of an operation.

        None for a rejected write without found content, which has none of its own.
        """
        reading = self._reading
        if reading.effective[place]:
            return _Slot(reading.versions[place] or 0, False, place)
        seen = reading.saw[place]
        if seen is None:
            return None
        return _Slot(0 if seen == INITIAL else reading.versions[seen] or 0, True, place)

    def run(self) -> tuple[list[int] | None, list[Edge]]:
        """Return the view and no edges, or None and the cycle."""
        reading, wio = self._reading, self._model.invocation_order
        for place in reading.writes:
            seen = reading.saw[place]
            if seen is not None and self._following.get(seen) != place:
                return None, self._not_adjacent(place, seen)
        answered: dict[str, _LatestAnswered] = defaultdict(_LatestAnswered)
        answered_anywhere = _LatestAnswered()
        invoked: dict[tuple[str, bool], _Slot] = {}
        for place, operation in enumerate(reading.operations):
            limit, why = answered[operation.client].before(operation.invoked_us + 1), BEFORE
            if self._model.real_time:
                other = answered_anywhere.before(operation.invoked_us)
                limit, why = (other, REAL_TIME) if other.is_later(limit) else (limit, why)
            if wio:  # all operations follow earlier writes; writes also follow earlier reads
                for is_write in (True, False) if operation.is_write else (True,):
                    other = invoked.get((operation.client, is_write), _BEGIN)
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
            if operation.answered_us is not None:
                answered[operation.client].add(operation.answered_us, slot)
                answered_anywhere.add(operation.answered_us, slot)
            if slot.is_later(invoked.get((operation.client, operation.is_write), _BEGIN)):
                invoked[operation.client, operation.is_write] = slot
        slots = [slot or _BEGIN for slot in self._slots]
        return sorted(range(len(slots)), key=lambda place: (slots[place][:2], place)), []

    def _earliest(self, place: int, limit: _Slot) -> _Slot | None:
        """Return the earliest slot for an operation without one; None if a conflict leaves it no slot."""
        avoided = self._avoids.get(place)
        if avoided is None or limit.version != self._version(avoided):
            return _Slot(limit.version, True, limit.place)
        if avoided not in self._following:
            return None
        return _Slot(self._version(self._following[avoided]), True, place)

    def _version(self, write: int) -> int:
        """Return the version of a write; 0 for the initial content."""
        return 0 if write == INITIAL else self._reading.versions[write] or 0

    def _not_adjacent(self, place: int, seen: int) -> list[Edge]:
        """Return the cycle for a write that does not directly follow the one that it replaced."""
        if self._version(place) < self._version(seen):
            return [Edge(seen, place, SEEN), Edge(place, seen, VERSION)]
        following = self._following[seen]
        return [Edge(following, place, VERSION), Edge(place, following, OVERWRITTEN)]

    def _contradiction(self, limit: _Slot, place: int, why: str) -> list[Edge]:
        """Return the cycle for an operation that follows one with a later slot."""
        first, write = limit.place, self._by_version[limit.version]
        edges = [Edge(first, place, why)]
        if write != place:
            edges.append(Edge(place, write, VERSION if self._reading.effective[place] else OVERWRITTEN))
        if write != first:
            edges.append(Edge(write, first, _FOUND if self._reading.saw[first] is None else SEEN))
        return edges


class _LatestAnswered:
    """Latest slot among operations answered before a time that only increases."""

    def __init__(self) -> None:
        self._latest = _BEGIN
        self._answers: list[tuple[int, int, _Slot]] = []
        self._count = 0

    def add(self, answered_us: int, slot: _Slot) -> None:
        """Add an operation's slot, which counts from its answer on."""
        self._count += 1
        heappush(self._answers, (answered_us, self._count, slot))

    def before(self, t_us: int) -> _Slot:
        """Return the latest slot among operations answered before a time; times must ascend."""
        while self._answers and self._answers[0][0] < t_us:
            slot = heappop(self._answers)[2]
            if slot.is_later(self._latest):
                self._latest = slot
        return self._latest
