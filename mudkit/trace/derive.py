"""Reads derived from positions by a rule, for traces that record no reads.

A derived read asks for the points around the device at that moment; its ``origin`` names the rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError, did_you_mean
from mudkit.trace.schema import READS, epoch_us, timestamps, with_read_ids
from mudkit.units import EARTH_RADIUS_KM, KM_PER_DEGREE, US_PER_S, distance_km

_Chosen: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]

STILL_KM = 0.05
"""Nearer than this to where it last moved to, a device stands still: a city block's half, well over the noise
of a GPS fix."""

_PART_ROWS = 1 << 16


KNOWN_S = 600.0
"""Between two positions at most this far apart a device is known to be somewhere."""

MAX_FARE_STEP_S = 1800.0
"""A longer time without a row cuts a fare."""

MAX_PER_DAY, MIN_PER_DAY = 86_400.0, 0.001
_US_PER_DAY = 86_400 * US_PER_S
MAX_PER_SLOT = 64

_PARAMETERS: dict[str, dict[str, Callable[[str], float]]] = {
    "trip_start": {"still_s": float},
    "poisson": {"per_day": float, "seed": int},
    "occupancy": {},
    "none": {},
}
_WRITTEN = "none, occupancy, trip_start, trip_start(still_s=SECONDS) or poisson(per_day=READS, seed=NUMBER)"


@dataclass(frozen=True)
class Rule:
    """Rule with its parameters, for instance ``trip_start(still_s=600)``.

    Parameters
    ----------
    name : {'trip_start', 'occupancy', 'poisson', 'none'}
        ``trip_start``: the first fix of a device, and its first movement after ``still_s`` seconds without
        movement. ``occupancy``: a taxi takes up a fare. ``poisson``: the times of a Poisson process while the
        place of the device is known, that is, between two positions at most :data:`KNOWN_S` apart; the place
        is that of the last position. ``none``: no reads.
    still_s : float
        Time without movement that ends a trip (``trip_start``), in seconds, 0 or more.
    per_day : float
        Mean number of reads in a fully covered day, from 0.001 to 86,400 (``poisson``).
    seed : int
        Seed of the times (``poisson``). They depend only on the seed, the device's name and the rate; other
        devices, the order of rows and the division of a trace do not change them.

    Raises
    ------
    ParameterError
        A parameter is not usable.
    """

    name: str
    still_s: float = 600.0
    per_day: float = 24.0
    seed: int = 0

    def __post_init__(self) -> None:
        fine = (
            self.name in _PARAMETERS,
            0 <= self.still_s < math.inf,
            MIN_PER_DAY <= self.per_day <= MAX_PER_DAY,
        )
        if not all(fine):
            raise _no_such_rule(f"{self.name}(still_s={self.still_s}, per_day={self.per_day})")

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Parse a rule such as ``occupancy``, ``trip_start`` or ``poisson(per_day=24, seed=1)``."""
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
        known = _PARAMETERS.get(match[1]) if match else None
        if match is None or known is None:
            raise _no_such_rule(text)
        given: dict[str, Any] = {}
        for assignment in (match[2] or "").split(",") if (match[2] or "").strip() else ():
            name, _, value = (part.strip() for part in assignment.partition("="))
            if name not in known or name in given or not re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", value):
                raise _no_such_rule(text)
            try:
                given[name] = known[name](value)
            except ValueError as error:
                raise _no_such_rule(text) from error
        if match[1] == "poisson" and "per_day" not in given:
            raise _no_such_rule(text)
        try:
            return cls(match[1], **given)
        except ParameterError as error:
            raise _no_such_rule(text) from error

    def __str__(self) -> str:
        written = ", ".join(f"{name}={_number(getattr(self, name))}" for name in _PARAMETERS[self.name])
        return f"{self.name}({written})" if written else self.name

    def describe(self) -> str:
        """Return in words at which positions and times the rule derives reads, for a page."""
        m = round(1000 * STILL_KM)
        return {
            "trip_start": (
                f"A device moves to its first position, and to each position {m} m or more from the one "
                "before or from the last one that it moved to. It reads at its first position, and at each "
                f"one that it moves to {_number(self.still_s)} s or more after it last moved. A silence "
                "counts as standing still: a device that appears elsewhere after one reads there."
            ),
            "poisson": (
                f"A device reads {_number(self.per_day)} times a day on average, at the times of a Poisson "
                f"process (seed {self.seed}) that lie between two of its positions at most "
                f"{_number(KNOWN_S)} s apart. It reads where the earlier of the two is."
            ),
            "occupancy": "A taxi reads where it takes up a fare: at a position with one after one without.",
            "none": "No reads are derived.",
        }[self.name]


def _number(value: float) -> str:
    """Return the shortest text of a number."""
    short = f"{value:g}"
    return short if float(short) == value and isinstance(value, float) else repr(value)


def _no_such_rule(text: str) -> ParameterError:
    """Return the error for a text that is no rule, with a similar rule if there is one."""
    name = text.partition("(")[0].strip()
    near = did_you_mean(name, () if name in _PARAMETERS else _PARAMETERS)
    return ParameterError(
        "There is no such rule for reads.",
        where="rule",
        found=repr(text),
        expected=_WRITTEN
        + f"; SECONDS are not negative, READS a day between {MIN_PER_DAY:g} and {MAX_PER_DAY:,.0f}",
        remedy=near or "choose one of these, or load recorded reads from a log (reads=)",
    )


def derive_reads(
    positions: pa.Table, rule: Rule, *, box_km: float, window_s: float, occupied: pa.Array | None = None
) -> pa.Table:
    """Derive reads from positions that are ordered by device and time.

    ``occupied`` tells whether the taxi has a fare at each position (null: unknown); the rule ``occupancy``
    raises TraceContentError without it.
    """
    if rule.name == "occupancy" and occupied is None:
        raise TraceContentError(
            "The rule 'occupancy' needs a trace that says when a taxi has a fare.",
            found="no occupancy column",
            expected="a Cabspotting file, or a column mapped to 'occupied'",
            remedy="use rule=trip_start",
        )
    device = positions["device"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    same_device = np.zeros(len(device), dtype=np.bool_)
    same_device[1:] = device[1:] == device[:-1]
    rows, t_us = RULES[rule.name](positions, same_device, rule, occupied)
    chosen = positions.select(["device", "lat", "lon"]).take(pa.array(rows))
    chosen = chosen.append_column("ts", timestamps(t_us))
    constant = {
        "box_km": pa.array(np.full(len(chosen), box_km)),
        "window_s": pa.array(np.full(len(chosen), window_s)),
        "origin": pa.array([f"derived: {rule}"] * len(chosen), pa.string()),
    }
    columns = {name: chosen[name] for name in ("device", "ts", "lat", "lon")}
    if not len(chosen):
        return READS.empty_table()
    return with_read_ids(pa.table(columns | constant))


def _trip_start(positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: Any) -> _Chosen:
    """Return rows and times of the reads at first positions, and at each move after a long enough stand."""
    t_us = epoch_us(positions["ts"])
    moves = np.flatnonzero(moved_from(positions["lat"].to_numpy(), positions["lon"].to_numpy(), ~same_device))
    still = np.diff(t_us[moves], prepend=t_us[:1]) >= rule.still_s * US_PER_S
    rows = moves[still | ~same_device[moves]]
    return rows, t_us[rows]


def moved_from(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    is_first: NDArray[np.bool_],
    *,
    radius_km: float = STILL_KM,
    stood_at: tuple[float, float] | None = None,
) -> NDArray[np.bool_]:
    """Return the fixes that differ in place from the last one that did: small steps add up.

    A drive therefore has the same trips with a fix a second as with one a minute. With ``stood_at``, latitude
    and longitude, row 0 is the last fix of an earlier piece, which is measured from there.
    """
    moved = is_first.copy()
    for first in range(1, len(lat), _PART_ROWS):  # parts, here and below: all rows would fill the memory
        later, earlier = slice(first, first + _PART_ROWS), slice(first - 1, first - 1 + _PART_ROWS)
        rows = len(lat[later])
        places = lat[earlier][:rows], lon[earlier][:rows], lat[later], lon[later]
        moved[later] |= _are_apart(*places, radius_km)
    # The rest one by one, by chords of the unit sphere: the fix before says from where it is measured.
    least = (2 * math.sin(radius_km / EARTH_RADIUS_KM / 2)) ** 2
    slow = np.flatnonzero(~moved)
    last, stood = -1, (0.0, 0.0, 0.0)
    if stood_at is not None:
        (stood,), last = _on_sphere(*np.array(stood_at)[:, None]), 0
    for first in range(0, len(slow), _PART_ROWS):
        at = slow[first : first + _PART_ROWS]
        before, here = (_on_sphere(lat[rows], lon[rows]) for rows in (at - 1, at))
        for i, previous, place in zip(at.tolist(), before, here, strict=True):
            if last != i - 1:
                stood = previous  # it is the fix after a long step, or after a device's first
            last = i
            if (
                (place[0] - stood[0]) ** 2 + (place[1] - stood[1]) ** 2 + (place[2] - stood[2]) ** 2
            ) >= least:
                moved[i], stood = True, place
    return moved


def _are_apart(
    lat1: NDArray[np.float64],
    lon1: NDArray[np.float64],
    lat2: NDArray[np.float64],
    lon2: NDArray[np.float64],
    radius_km: float,
) -> NDArray[np.bool_]:
    """Return which places are at least ``radius_km`` apart; the great circle is for what bounds leave open.

    It is no shorter than the difference in latitude, nor, for one in longitude of up to 90°, than 0.9 of the
    way along the parallel farthest from the equator; and no longer than both ways along great circles.
    """
    north_km, east_km = (KM_PER_DEGREE * np.abs(ends[1] - ends[0]) for ends in ((lat1, lat2), (lon1, lon2)))
    farthest = np.radians(max(np.abs(lat1).max(initial=0.0), np.abs(lat2).max(initial=0.0)))
    is_apart = (0.9 * np.cos(farthest) * east_km > 1.01 * radius_km) & (east_km <= 90 * KM_PER_DEGREE)
    is_apart |= north_km > 1.01 * radius_km
    unclear = np.flatnonzero(~is_apart & (north_km + east_km > 0.99 * radius_km))
    way_km = distance_km(lat1[unclear], lon1[unclear], lat2[unclear], lon2[unclear])
    is_apart[unclear] = way_km >= radius_km
    return np.asarray(is_apart, dtype=np.bool_)


def _on_sphere(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> Iterator[tuple[float, float, float]]:
    """Iterate over places on the unit sphere: east, north, up."""
    phi, lambda_ = np.radians(lat), np.radians(lon)
    axes = np.cos(phi) * np.cos(lambda_), np.cos(phi) * np.sin(lambda_), np.sin(phi)
    return zip(*(axis.tolist() for axis in axes), strict=True)


def _occupancy(
    positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: pa.Array
) -> _Chosen:
    """Return rows and times of the reads at the first position with a fare after one without."""
    full = np.asarray(pc.fill_null(occupied, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    empty = np.asarray(pc.invert(pc.fill_null(occupied, True)).to_numpy(zero_copy_only=False), dtype=np.bool_)
    starts = np.zeros(len(full), dtype=np.bool_)
    starts[1:] = full[1:] & empty[:-1] & same_device[1:]
    rows = np.flatnonzero(starts)
    return rows, epoch_us(positions["ts"])[rows]


def _poisson(positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: Any) -> _Chosen:
    """Draw the process by slots of absolute time, one read a slot on average, and keep the known times.

    The number of reads in a slot is drawn by inverting the Poisson distribution, their times are uniform.
    Slots of a Poisson process are independent, so each is drawn from its number alone.
    """
    from mudkit.sources.streams import Stream, device_number  # it loads SciPy

    t_us = epoch_us(positions["ts"])
    rows, drawn_us = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    slot_us = round(_US_PER_DAY / rule.per_day)
    share = _cumulated(slot_us / _US_PER_DAY * rule.per_day)
    counts, times = Stream(rule.seed, "poisson reads"), Stream(rule.seed, "poisson reads: times")
    edges = np.append(np.flatnonzero(~same_device), len(t_us))
    names = positions["device"].combine_chunks()
    for first, last in pairwise(edges.tolist()):  # device by device
        mine = t_us[first:last]
        known = np.flatnonzero(np.diff(mine) <= KNOWN_S * US_PER_S)
        if not len(known):
            continue
        number = device_number(names[first].as_py())
        slots = _slots(mine[known] // slot_us, (mine[known + 1] - 1) // slot_us)
        how_many = np.searchsorted(share, counts.uniform(number, slots), side="right")
        slot = np.repeat(slots, how_many)
        nth = np.arange(len(slot)) - np.repeat(np.cumsum(how_many) - how_many, how_many)
        within_us = (times.uniform(number, slot * MAX_PER_SLOT + nth) * slot_us).astype(np.int64)
        at_us = np.unique(slot * slot_us + within_us)
        before = np.searchsorted(mine, at_us, side="right") - 1
        fine = np.isin(before, known)
        rows.append(first + before[fine])
        drawn_us.append(at_us[fine])
    return np.concatenate(rows), np.concatenate(drawn_us)


def _slots(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all numbers from each first to its last, without duplicates; both are sorted."""
    begin = first.copy()
    begin[1:] = np.maximum(begin[1:], last[:-1] + 1)
    size = np.maximum(last - begin + 1, 0)
    return np.repeat(begin - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))


def _cumulated(mean: float) -> NDArray[np.float64]:
    """Return the probabilities of at most 0, 1, 2, … events of a Poisson distribution."""
    chance = math.exp(-mean) * np.cumprod(np.append(1.0, mean / np.arange(1, MAX_PER_SLOT)))
    return np.cumsum(chance)


def _none(positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: Any) -> _Chosen:
    """Return no reads."""
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


RULES: dict[str, Callable[[pa.Table, NDArray[np.bool_], Rule, Any], _Chosen]] = {
    "trip_start": _trip_start,
    "occupancy": _occupancy,
    "poisson": _poisson,
    "none": _none,
}
"""Rules by name: positions to the reads' rows of them, in order, and times (microseconds)."""
