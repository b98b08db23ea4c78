"""The general search: find views by trying, for histories whose write order is not known, and for forks.

Views that agree up to every operation they share are the paths of a tree: they run together, and part for
good. So the search goes along one path with all clients on it, places operations one after the other, and may
send groups of clients apart. Four things keep it small, and none of them loses a solution:

- An operation without an effect that can be placed is placed at once: moved forward to there, it sees the
  same and disturbs nobody.
- A write that nobody looks at, and that disturbs nobody, is placed at once.
- Clients part as soon as none of them will see a write of the others that is still to come: taking the
  operations of others out of a path leaves it legal.
- What is left to place and the last write decide whether it can be done, so a pair that failed is not tried
  again (Lowe, Testing for linearizability, 2017, gives the credit for this to Wing and Gong 1993).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mudkit.consistency.models import Form, Model
from mudkit.consistency.order import must_precede
from mudkit.consistency.reading import INITIAL, Reading

__all__ = ["Budget", "Views", "search"]

Views = dict[str, tuple[int, ...]]
"""Per client the places of the operations in its view."""

Path: TypeAlias = "tuple[Path, int] | None"
"""The operations of a path, the last one first, each with the path before it."""

_STEPS_A_LOOK: Final = 64


@dataclass
class Budget:
    """How long something may take.

    Parameters
    ----------
    seconds : float
        The time that is left from now on, in seconds.
    operations : int
        How many a search may have to place.
    """

    seconds: float
    operations: int

    def __post_init__(self) -> None:
        self._until_s = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Say whether the time is over."""
        return time.monotonic() > self._until_s

    def share(self, part: float) -> Budget:
        """Give a part of what is left."""
        return Budget(max(0.0, self._until_s - time.monotonic()) * part, self.operations)


class OverBudgetError(Exception):
    """The bound was reached."""


def search(reading: Reading, model: Model, budget: Budget) -> Views | None:
    """Find views for each client that meet a model.

    Returns
    -------
    Views or None
        None: there are none.

    Raises
    ------
    OverBudgetError
        It is not known.
    """
    if len(reading.operations) > budget.operations:
        raise OverBudgetError
    views = None
    for settled in _settled(reading):
        views = _Search(settled, model, budget).run()
        if views is not None:
            break
    return views


def _settled(reading: Reading) -> Iterator[Reading]:
    """Say of conflicts what they found, in every way: anything but what they expected."""
    if not reading.avoids:
        yield reading
        return
    (place, avoided), *others = reading.avoids
    for write in (INITIAL, *reading.writes):
        if write != avoided:
            saw = [write if at == place else seen for at, seen in enumerate(reading.saw)]
            yield from _settled(replace(reading, saw=saw, avoids=others))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Search:
    def __init__(self, reading: Reading, model: Model, budget: Budget) -> None:
        self._forks = model.form is Form.FORKING_VIEWS
        self._budget = budget
        self._steps = 0
        self._before = must_precede(reading, model)
        count = len(reading.operations)
        names = list(dict.fromkeys(each.client for each in reading.operations))
        self._names = names
        self._client = [names.index(each.client) for each in reading.operations]
        self._of_client = [0] * len(names)
        for place, client in enumerate(self._client):
            self._of_client[client] |= 1 << place
        self._saw = reading.saw
        self._writes = sum(1 << place for place in reading.writes)
        self._seers = dict.fromkeys(range(INITIAL, count), 0)
        """Of each write: who sees it without an effect of its own."""
        self._heirs = dict(self._seers)
        """Of each write: the writes that replaced exactly it."""
        self._quiet = 0
        """What sees nothing and has no effect."""
        for place, write in enumerate(reading.saw):
            bit = 1 << place
            if write is None:
                self._quiet |= 0 if self._writes & bit else bit
            elif self._writes & bit:
                self._heirs[write] |= bit
            else:
                self._seers[write] |= bit
        self._failed: set[tuple[int, int]] = set()
        self._whole = (1 << count) - 1

    def run(self) -> Views | None:
        views: Views = {}
        return views if self._solve(self._whole, INITIAL, None, views) else None

    def _solve(self, left: int, last: int, path: Path, views: Views) -> bool:
        """Place what is left, after a path; fill in the views of those on it.

        Choices are kept in a list: a search may be deeper than Python's stack.
        """
        choices: list[tuple[int, int, Path, Iterator[int]]] = []
        while True:
            left, path = self._place_at_once(left, last, path)
            following = self._following(left, last, path, views)
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

    def _following(self, left: int, last: int, path: Path, views: Views) -> list[int] | None:
        """Give the writes to go on with; None: it is solved from here."""
        if not left:
            self._note(path, views)
            return None
        if (left, last) in self._failed:
            return []
        self._steps += 1
        if self._steps % _STEPS_A_LOOK == 0 and self._budget.is_over():
            raise OverBudgetError
        if self._forks:
            groups = self._groups(left)
            if len(groups) > 1:
                return None if all(self._solve(group, last, path, views) for group in groups) else []
        if self._seers[last] & left:  # what has to see the last write could not any more
            return []
        return self._next(left, last)

    def _place_at_once(self, left: int, last: int, path: Path) -> tuple[int, Path]:
        grows = True
        while grows:
            grows = False
            for place in _bits((self._seers[last] | self._quiet) & left):
                if not self._before[place] & left:
                    left &= ~(1 << place)
                    path = path, place
                    grows = True
        return left, path

    def _next(self, left: int, last: int) -> list[int]:
        """Give the writes that may come next."""
        heirs = self._heirs[last] & left
        if heirs:  # exactly one may replace it, and must do so now
            return [place for place in _bits(heirs) if heirs == 1 << place and not self._before[place] & left]
        ready = []
        for place in _bits(left & self._writes):
            if self._before[place] & left or self._saw[place] is not None:
                continue
            if not (self._seers[place] | self._heirs[place]) & left:
                return [place]
            ready.append(place)
        return ready

    def _groups(self, left: int) -> list[int]:
        """Part what is left into groups of clients that will see nothing of each other."""
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

    def _note(self, path: Path, views: Views) -> None:
        """Keep a whole path as the view of those on it; with forks, up to each client's last operation."""
        whole: list[int] = []
        while path is not None:
            path, place = path
            whole.append(place)
        whole.reverse()
        for client, name in enumerate(self._names):
            mine = [at for at, place in enumerate(whole) if self._client[place] == client]
            if not self._forks:
                views[name] = tuple(whole)
            elif mine and len(mine) == self._of_client[client].bit_count():
                views[name] = tuple(whole[: mine[-1] + 1])
