"""Search for the interval, cell and threshold at which messages are joined, by sums that can be merged.

The combinations are those of :mod:`mudkit.report.joined_messages`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

import numpy as np

from mudkit.report.joined_messages import Combination, Limits, Sizes, Sums
from mudkit.report.joined_sums import JoinedSums, Lacking
from mudkit.units import EARTH_RADIUS_KM

AS_GOOD: Final = 1.05
"""A combination is as good as the best if it leaves at most this times its bytes."""
MAX_ZOOM: Final = 22
_COARSER, _FINER = 2, 3
_INTERVALS_S: Final = (
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400,
)  # fmt: skip
_SPAN: Final = (16, 4)
"""Factors by which the shortest and the longest interval that are tried differ from the longest delay."""
_ROUNDS: Final = 8


def cell_km(zoom: int, lat: float) -> float:
    """Return the side of a cell at a latitude."""
    return float(2 * np.pi * EARTH_RADIUS_KM * np.cos(np.radians(lat)) / 2**zoom)


def threshold_grid(largest: int) -> list[int]:
    """Return the thresholds from 2 to one that no queue exceeds: all up to 100, then two digits."""
    grid, step, value = [], 1, 2
    while value < largest:
        grid.append(value)
        value += step
        if value >= 100 * step:
            step *= 10
    return [*grid, value]


@dataclass(frozen=True)
class Choice:
    """Combination of zoom level, interval and threshold, with its sums.

    ``threshold`` is None if queues are sent at the end of their interval only.
    """

    zoom: int
    interval_s: int
    threshold: int | None
    sums: Sums


@dataclass
class Search:
    """Sums of the combinations that were tried, with the limits and the sizes by which they are judged.

    Attributes
    ----------
    tried : dict
        Sums by zoom level and interval, of queues that go at the end of their interval.
    with_threshold : dict
        Sums by zoom level, interval and threshold, of queues that break a limit without a threshold.
    """

    limits: Limits
    sizes: Sizes
    quantity: str
    tried: dict[tuple[int, int], Sums] = field(default_factory=dict)
    with_threshold: dict[tuple[int, int, int], Sums] = field(default_factory=dict)

    def is_allowed(self, zoom: int, interval_s: int) -> bool:
        """Return whether a combination keeps the limits."""
        sums = self.tried[zoom, interval_s]
        return interval_s <= self.limits.max_delay_s and sums.keeps(self.limits, self.quantity)

    def left(self, zoom: int, interval_s: int) -> float:
        """Return the share of bytes that a combination leaves."""
        return self.tried[zoom, interval_s].left_share(self.sizes)

    def allowed(self) -> list[tuple[int, int]]:
        """Return the combinations that keep the limits."""
        return [key for key in self.tried if self.is_allowed(*key)]

    @property
    def least(self) -> float:
        """Least share of bytes that is left within the limits; infinite: nothing keeps them."""
        whole = [self.left(*key) for key in self.allowed()]
        parts = [self.with_threshold[key].left_share(self.sizes) for key in self._parts_allowed()]
        return min([*whole, *parts], default=math.inf)

    def _parts_allowed(self) -> list[tuple[int, int, int]]:
        """Return the keys of early sending whose delay and errors keep the limits."""
        return [
            key
            for key, sums in self.with_threshold.items()
            if key[1] <= self.limits.max_delay_s and sums.keeps(self.limits, self.quantity)
        ]

    def choose(self) -> Choice | None:
        """Return the best combination.

        Among those that leave at most 5 % more bytes than the least, the one with the shortest interval, then
        the smallest cells, then the smallest threshold. None: nothing keeps the limits.
        """
        most = AS_GOOD * self.least
        good = [
            (interval_s, -zoom, 0)
            for zoom, interval_s in self.allowed()
            if self.left(zoom, interval_s) <= most
        ]
        good += [
            (interval_s, -zoom, threshold)
            for zoom, interval_s, threshold in self._parts_allowed()
            if self.with_threshold[zoom, interval_s, threshold].left_share(self.sizes) <= most
        ]
        if not good:
            return None
        interval_s, below, threshold = min(good)
        if threshold:
            sums = self.with_threshold[-below, interval_s, threshold]
            return Choice(-below, interval_s, threshold, sums)
        sums = self.tried[-below, interval_s]
        largest = int(sums.sizes[0].max())
        size = next(size for size in threshold_grid(largest) if sums.left_share(self.sizes, size) <= most)
        return Choice(-below, interval_s, size if size < largest else None, sums)


def search(
    joined: JoinedSums,
    limits: Limits,
    sizes: Sizes,
    quantity: str,
    *,
    zoom: int | None = None,
    known: Search | None = None,
) -> Search:
    """Try intervals and cells, further ones while the best lies at an edge, and finer ones around the best.

    Intervals are refined until none between two of them can save another 5 % of the bytes. Combinations that
    break a limit are tried with thresholds that would leave fewer bytes than the best.

    Parameters
    ----------
    joined : JoinedSums
    limits : Limits
    sizes : Sizes
    quantity : str
        ``speed`` or ``devices``.
    zoom : int, optional
        The only level that is tried.
    known : Search, optional
        What was tried on the same messages, with other limits.
    """
    result = Search(limits, sizes, quantity)
    if known is not None:
        result = replace(result, tried={**known.tried}, with_threshold={**known.with_threshold})
    lengths_s = lengths_of(limits.max_delay_s)

    def try_all(zooms: Sequence[int]) -> None:
        joined.need(Combination("join", *key) for key in product(lengths_s, zooms))
        for level in sorted(zooms, reverse=True):  # small cells keep the limits
            with suppress(Lacking):
                for length_s in lengths_s:
                    if (level, length_s) not in result.tried:
                        result.tried[level, length_s] = joined.sums(Combination("join", length_s, level))
                _refine(result, joined, level)
                _try_thresholds(result, joined, level)
        joined.raise_if_lacking()

    if zoom is not None:
        try_all([zoom])
    else:
        start = _first_zoom(joined.lat, limits.max_error_m)
        try_all(range(max(start - _COARSER, 0), min(start + _FINER, MAX_ZOOM) + 1))
        for level in _further(result):
            try_all([level])
    return result


def lengths_of(max_delay_s: int) -> list[int]:
    """Return the intervals that are tried at first, seconds."""
    shorter, longer = _SPAN
    usual = [s for s in _INTERVALS_S if max_delay_s / shorter <= s <= max_delay_s * longer]
    return sorted({*usual, max_delay_s})


def _first_zoom(lat: float, max_error_m: float) -> int:
    """Return the level whose cells are about twice as wide as the limit of the distance."""
    level = round(math.log2(cell_km(0, lat) / (2 * max_error_m / 1000)))
    return min(max(level, 0), MAX_ZOOM)


def _further(result: Search) -> Iterator[int]:
    """Yield levels beyond those tried while they may be better: finer ones, then larger cells."""
    while (finest := max(zoom for zoom, _ in result.tried)) < MAX_ZOOM:
        choice = result.choose()
        if choice is not None and choice.zoom != finest:
            break
        if choice is not None and _is_same(result, finest, finest - 1):
            break
        yield finest + 1
    while (coarsest := min(zoom for zoom, _ in result.tried)) > 0:
        if not any(zoom == coarsest for zoom, _ in result.allowed()):
            break
        if _is_same(result, coarsest, coarsest + 1):
            break
        yield coarsest - 1


def _is_same(result: Search, one: int, other: int) -> bool:
    """Return whether two levels leave the same bytes at all intervals that both were tried with."""
    return all(
        result.left(one, length_s) == result.left(other, length_s)
        for zoom, length_s in result.tried
        if zoom == one and (other, length_s) in result.tried
    )


def _refine(result: Search, joined: JoinedSums, zoom: int) -> None:
    """Add to what was tried intervals between the best of a level and its neighbours.

    Only those that could save another 5 %; nothing without an interval that is allowed.
    """
    for _ in range(_ROUNDS):
        own = sorted(length_s for level, length_s in result.tried if level == zoom)
        own = [length_s for length_s in own if length_s <= result.limits.max_delay_s]
        allowed = [length_s for length_s in own if result.is_allowed(zoom, length_s)]
        if not allowed:
            return
        best = min(allowed, key=lambda length_s: (result.left(zoom, length_s), length_s))
        aim = min(result.left(zoom, best), result.least) / AS_GOOD
        at = own.index(best)
        between = {
            round(math.sqrt(best * other))
            for other in own[max(at - 1, 0) : at] + own[at + 1 : at + 2]
            if result.left(zoom, other) < aim
        }
        between -= set(own)
        if not between:
            return
        joined.need(Combination("join", length_s, zoom) for length_s in between)
        for length_s in between:
            result.tried[zoom, length_s] = joined.sums(Combination("join", length_s, zoom))


def _try_thresholds(result: Search, joined: JoinedSums, zoom: int) -> None:
    """Add, for combinations of a level that break a limit, the largest threshold that keeps it, if any.

    Smaller aggregates tell more.
    """
    for level, length_s in list(result.tried):
        is_late = length_s > result.limits.max_delay_s
        if level != zoom or is_late or result.is_allowed(zoom, length_s):
            continue
        whole, least = result.tried[zoom, length_s], result.least
        grid = [
            size
            for size in threshold_grid(int(whole.sizes[0].max()))
            if AS_GOOD * whole.left_share(result.sizes, size) < least
        ]
        with suppress(Lacking):
            kept: tuple[int, Sums] | None = None
            low, high = 0, len(grid)
            while low < high:  # find the largest threshold that keeps the limits
                at = (low + high) // 2 if kept else low
                sums = joined.sums(Combination("join", length_s, zoom, grid[at]))
                if sums.keeps(result.limits, result.quantity):
                    kept, low = (grid[at], sums), at + 1
                else:
                    high = at
            if kept is not None:
                result.with_threshold[zoom, length_s, kept[0]] = kept[1]


def best_last(joined: JoinedSums, limits: Limits, quantity: str) -> tuple[int, Sums] | None:
    """Return the best interval at which each device sends its last position alone; None: none is allowed."""
    lengths_s = lengths_of(limits.max_delay_s)
    joined.need(Combination("last", length_s) for length_s in lengths_s)
    tried = {length_s: joined.sums(Combination("last", length_s)) for length_s in lengths_s}
    for _ in range(_ROUNDS):
        own = sorted(length_s for length_s in tried if length_s <= limits.max_delay_s)
        allowed = [length_s for length_s in own if tried[length_s].keeps(limits, quantity)]
        if not allowed:
            return None
        best = max(allowed)
        longer = own[own.index(best) + 1 : own.index(best) + 2]
        if not longer or AS_GOOD * tried[longer[0]].sent >= tried[best].sent:
            break
        if (between := round(math.sqrt(best * longer[0]))) in tried:
            break
        tried[between] = joined.sums(Combination("last", between))
    good = [length_s for length_s in allowed if tried[length_s].sent <= AS_GOOD * tried[best].sent]
    return min(good), tried[min(good)]
