"""The exercise of chapter 04: say which of the messages that wait go to the device now.

A rule runs on the very same spool as all policies (Last hop 4). It must promise what any spool promises, and
come near to the best that a fixed prefetch limit reaches on the same events. The spool of the judge is untidy:
what has expired, and what is below the threshold, lies about for a day among what waits.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.figures import lives as drawing
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Item,
    Outcome,
    Scenario,
    Spool,
    Told,
    lives,
    play,
)
from mudkit.systems.lasthop.policies import FOREVER_US
from mudkit.systems.lasthop.scenario import Drawn

__all__ = ["EXERCISE"]

_DAYS: Final = 14
_LIMITS: Final = (1, 4, 16, 64, 256)
_WITHIN: Final = 0.1
"""Waste and loss together may be so much above those of the best limit."""
_UNTIDY_S: Final = 86_400.0
_WINDOW_US: Final = 36 * 3_600_000_000


class _Case(NamedTuple):
    """A scenario."""

    event_frequency: float
    user_frequency: float
    most: int
    outage: float
    expiration_h: float | None
    threshold: float
    seed: int

    def __str__(self) -> str:
        expire = "none expires" if self.expiration_h is None else f"they expire after {self.expiration_h:g} h"
        link = f"no link {self.outage:.0%} of the time" if self.outage else "always a link"
        return (
            f"{_DAYS} days with {self.event_frequency:g} messages and {self.user_frequency:g} reads a day, "
            f"{self.most} messages a read, {link}, {expire}, threshold {self.threshold:g}, seed {self.seed}."
        )

    def drawn(self) -> Drawn:
        expiration = None if self.expiration_h is None else Expiration(3600 * self.expiration_h)
        outages = Outages(self.outage)
        return Scenario(self.event_frequency, self.user_frequency, outages, expiration, days=_DAYS).draw(
            self.seed
        )


class _Known(NamedTuple):
    """What a rule is told by the judge's spool; see :class:`~mudkit.systems.lasthop.Told`."""

    now_s: float
    threshold: float
    waiting: tuple[Item, ...]
    device: tuple[Item, ...]
    read_at_a_time: float
    between_reads_s: float


class _Judged:
    """A rule on a spool, and what it has promised and not kept.

    Parameters
    ----------
    piece : callable
    case : _Case
    drawn : Drawn
        Of this case.
    """

    def __init__(self, piece: Callable[..., Any], case: _Case, drawn: Drawn) -> None:
        self._piece, self._threshold = piece, case.threshold
        self._items = [
            Item(number, rank, came_us / 1e6, math.inf if expires_us >= FOREVER_US else expires_us / 1e6)
            for number, (rank, came_us, expires_us) in enumerate(
                zip(drawn.ranks.tolist(), drawn.arrivals_us.tolist(), drawn.expires_us.tolist(), strict=True)
            )
        ]
        self._came_s = [each.came_s for each in self._items]
        self._gone: set[Hashable] = set()
        self.problem: str | None = None
        self.at_s = 0.0
        """When it came to the problem."""

    def spool(self, forward: Callable[[Any], object], retract: Callable[[Any], object]) -> Spool:
        """Make the spool."""

        def noted(message: Any) -> None:
            self._gone.add(message.identity)
            forward(message)

        return Spool(self._threshold, Forwarding("rule", rule=self._chosen), noted, retract)

    def _chosen(self, told: Told) -> Sequence[Item]:
        if self.problem is not None:
            return ()
        now_s = told.now_s
        begin, end = bisect_left(self._came_s, now_s - _UNTIDY_S), bisect_right(self._came_s, now_s)
        untidy = [
            each
            for each in self._items[begin:end]
            if (each.rank < self._threshold or each.expires_s <= now_s) and each.identity not in self._gone
        ]
        waiting = tuple(sorted((*told.waiting, *untidy), key=lambda each: -each.rank))
        known = _Known(now_s, told.threshold, waiting, told.device, told.read_at_a_time, told.between_reads_s)
        try:
            answer = self._piece(known)
            self.problem = self._refused(answer, now_s, told.device, waiting)
        except PieceError as error:
            self.problem = str(error)
        if self.problem is not None:
            self.at_s = now_s
            return ()
        return list(answer)

    def _refused(
        self, answer: Any, now_s: float, device: tuple[Item, ...], waiting: tuple[Item, ...]
    ) -> str | None:
        """Say which promise is not kept."""
        if not isinstance(answer, list | tuple):
            return f"it returns {answer!r}, which is no list of messages that wait."
        when, on_device, chosen = f"{now_s / 3600:.1f} h after the beginning", set(device), set()
        for each in answer:
            if each in on_device:
                return f"{when}, message {each.identity} is to go, and lies on the device already."
            if each in chosen:
                return f"{when}, message {each.identity} is to go twice."
            if not isinstance(each, Item) or each not in waiting:
                return f"{when}, {each!r} is to go, and does not wait."
            if each.expires_s <= now_s:
                ago = (now_s - each.expires_s) / 3600
                return f"{when}, message {each.identity} is to go, and has expired {ago:.1f} h before."
            if each.rank < self._threshold:
                below = f"is below the threshold of {self._threshold:g}"
                return f"{when}, message {each.identity} is to go, and its rank of {each.rank:.2f} {below}."
            chosen.add(each)
        return None
