"""General search for views, for histories without a known order of writes, and for forking views.

Views that agree up to every operation they share are the paths of a tree: they run together, and separate
permanently. The search follows one path with all clients, places one operation after the other, and may
separate groups of clients. Four rules prune it without losing a solution:

- An operation without an effect is placed as soon as it can be: moved forward it sees the same and affects no
  other operation.
- A write that no operation observes, and that affects none, is placed at once. - Clients separate as soon as
none of them will see a remaining write of the others: removing the operations of
  others from a path leaves it legal.
- The remaining operations and the last write determine whether a solution exists, so a failed pair is not
tried
  again (Lowe, Testing for linearizability, 2017, credits Wing and Gong 1993).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mudkit.consistency.models import Form, Model, must_precede
from mudkit.consistency.record import INITIAL, Reading

Views = dict[str, tuple[int, ...]]
"""For each client the operations in its view."""

Path: TypeAlias = "tuple[Path, int] | None"
"""Operations of a path, the last one first, each with the path before it."""

_STEPS_PER_TIME_CHECK: Final = 64


@dataclass
class Budget:
    """Limits of a search.

    Parameters
    ----------
    seconds : float
        Remaining time from now on, in seconds.
    operations : int
        Maximum number of operations to place.
    """

    seconds: float
    operations: int

    def __post_init__(self) -> None:
        self._until_s = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Return whether the time has run out."""
        return time.monotonic() > self._until_s

    def share(self, part: float) -> Budget:
        """Return a budget of a part of the remaining time, with the same limit of operations."""
        return Budget(max(0.0, self._until_s - time.monotonic()) * part, self.operations)


class OverBudgetError(Exception):
    """A limit was reached."""


def search(reading: Reading, model: Model, budget: Budget) -> Views | None:
    """Find views for each client that satisfy a model; None if no views exist.

    Raises
    ------
    OverBudgetError
        A limit was reached before the search ended.
    """
    if len(reading.operations) > budget.operations:
        raise OverBudgetError
    views = None
    for resolved in _resolve_conflicts(reading):
        views = _Search(resolved, model, budget).run()
        if views is not None:
            break
    return views


def _resolve_conflicts(reading: Reading) -> Iterator[Reading]:
    """Yield the reading with every possible content found by conflicts: anything but the expected."""
    if not reading.avoids:
        yield reading
        return
    (place, avoided), *others = reading.avoids
    for write in (INITIAL, *reading.writes):
        if write != avoided:
            saw = [write if at == place else seen for at, seen in enumerate(reading.saw)]
            yield from _resolve_conflicts(replace(reading, saw=saw, avoids=others))


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits of a mask that are 1, in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Search:
    """Depth-first search for the views of one reading; sets of operations are bits."""

    def __init__(self, reading: Reading, model: Model, budget: Budget) -> None:
        self._forks = model.form is Form.FORKING_VIEWS
        self._budget = budget
        self._steps = 0
        self._before = must_precede(reading, model)
        count = len(reading.operations)
        names = list(dict.fromkeys(operation.client for operation in reading.operations))
        self._names = names
        self._client = [names.index(operation.client) for operation in reading.operations]
        self._of_client = [0] * len(names)
        for place, client in enumerate(self._client):
            self._of_client[client] |= 1 << place
        self._saw = reading.saw
        self._writes = sum(1 << place for place in reading.writes)
        self._observers = dict.fromkeys(range(INITIAL, count), 0)
        """For each write: the operations without an effect that see it."""
        self._successors = dict(self._observers)
        """For each write: the writes that replaced exactly it."""
        self._independent = 0
        """Operations that see nothing and have no effect."""
        for place, write in enumerate(reading.saw):
            bit = 1 << place
            if write is None:
                self._independent |= 0 if self._writes & bit else bit
            elif self._writes & bit:
                self._successors[write] |= bit
            else:
                self._observers[write] |= bit
        self._failed: set[tuple[int, int]] = set()
        self._whole = (1 << count) - 1

    def run(self) -> Views | None:
        """Return the views of all clients; None if none exist."""
        views: Views = {}
        return views if self._solve(self._whole, INITIAL, None, views) else None

    def _solve(self, left: int, last: int, path: Path, views: Views) -> bool:
        """Place the remaining operations after a path; fill in the views of its clients; False if none do.

        Choices are kept in a list because the search may be deeper than Python's stack.
        """
        choices: list[tuple[int, int, Path, Iterator[int]]] = []
        while True:
            left, path = self._place_forced(left, last, path)
            following = self._next_writes(left, last, path, views)
            if following is None:
                return True
            choices.append((left, last, path, iter(following)))
            while choices:
                left, last, path, untried = choices[-1]
                write = next(untried, None)
                if write is not None:
                    left, last, path = left & ~(1 << write), write, (path, write)
                    break
                self._failed.add((left, last))
                choices.pop()
            else:
                return False

    def _next_writes(self, left: int, last: int, path: Path, views: Views) -> list[int] | None:
        """Return the writes to try next; None if the path is solved."""
        if not left:
            self._record_views(path, views)
            return None
        if (left, last) in self._failed:
            return []
        self._steps += 1
        if self._steps % _STEPS_PER_TIME_CHECK == 0 and self._budget.is_over():
            raise OverBudgetError
        if self._forks:
            groups = self._groups(left)
            if len(groups) > 1:
                return None if all(self._solve(group, last, path, views) for group in groups) else []
        if self._observers[last] & left:  # these must see the last write, and no longer could
            return []
        return self._ready_writes(left, last)

    def _place_forced(self, left: int, last: int, path: Path) -> tuple[int, Path]:
        """Append to the path the operations without effect that may come now; return what is left."""
        has_grown = True
        while has_grown:
            has_grown = False
            for place in _bits((self._observers[last] | self._independent) & left):
                if not self._before[place] & left:
                    left &= ~(1 << place)
                    path = path, place
                    has_grown = True
        return left, path

    def _ready_writes(self, left: int, last: int) -> list[int]:
        """Return the writes that may come next."""
        successors = self._successors[last] & left
        if successors:  # exactly one write may replace it, and it must come next
            return [
                place
                for place in _bits(successors)
                if successors == 1 << place and not self._before[place] & left
            ]
        ready = []
        for place in _bits(left & self._writes):
            if self._before[place] & left or self._saw[place] is not None:
                continue
            if not (self._observers[place] | self._successors[place]) & left:
                return [place]
            ready.append(place)
        return ready

    def _groups(self, left: int) -> list[int]:
        """Partition the remaining operations into groups of clients that will see nothing of each other."""
        group = {client: client for client, whole in enumerate(self._of_client) if whole & left}

        def root(client: int) -> int:
            while group[client] != client:
                client = group[client]
            return client

        for place in _bits(left):
            write = self._saw[place]
            if write is not None and write >= 0 and left >> write & 1:
                group[root(self._client[place])] = root(self._client[write])
        parts: dict[int, int] = {}
        for client in group:
            parts[root(client)] = parts.get(root(client), 0) | self._of_client[client] & left
        return list(parts.values())

    def _record_views(self, path: Path, views: Views) -> None:
        """Record a complete path as view of its clients; with forks, up to each client's last operation."""
        whole: list[int] = []
        while path is not None:
            path, place = path
            whole.append(place)
        whole.reverse()
        for client, name in enumerate(self._names):
            own = [at for at, place in enumerate(whole) if self._client[place] == client]
            if not self._forks:
                views[name] = tuple(whole)
            elif own and len(own) == self._of_client[client].bit_count():
                views[name] = tuple(whole[: own[-1] + 1])
