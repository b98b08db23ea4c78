"""Regimes of rows M4-map and M5-map: how often people look, by how cars write.

Whether a cache can save queries, or a batch messages, depends on how often people look while how much is
written. Rows M4 and M5 are measured on traces in which people look a few times a trip; so nobody looks often
while little changes, where a rule of ten minutes asks in vain. The map has a cell for each way to look and
each way to write. **It was fixed before anything was run on it**, and all its cells are shown.

How people look:

- ``every_min``: 5 minutes to 4 hours, each about twice the one before: from far below the ten minutes of the
  paper's rule and baseline to beyond the two hours for which its queries ask.
- ``when``: *all day*, while they are awake, or *in peaks*, two hours each morning and evening, when drivers
  drive. In peaks they look as often, and not at all between them.

How cars write:

- ``cars``: few are 30, so that a tenth, from which delays are learnt, are three; many are 300, half of those
  of the paper (600 cars).
- ``written``: *by day*, as commuters drive; *at night*, twelve hours later, as night shifts and deliveries
  do, when most people do not look; *all the time*, half of the cars each.
- ``places``: *dense*, all cars and readers in one town; *sparse*, as many readers in each of four towns, and
  in each town a quarter of the cars of the one before (the paper: "in certain geographical regions our data
  is very sparse"). In the last towns one or two cars write.

The same for all cells: 12 readers, who live and drive like the cars' drivers and write nothing, so that each
point is another's; the box of 20 km and window of two hours of the paper; a position of each driving car a
minute (delays are ten minutes at least, so that more positions change no number of messages); a cached answer
is kept for twelve mean gaps between two looks, nights included, so that its age limits no policy below the
paper's factors. A trace has as many days as give a reader about 64 looks, seven at most; the first is a
Monday. The readers of a cell are those of all cells with the same way to look, but for their town.

What is judged was fixed with the grid. A policy has the paper's savings of reads in a cell if it sends at
least 4 times fewer queries than the rule of 1 km and 10 minutes, with at least 3.5 times fewer stale
answers; where the rule gives fewer than :data:`MIN_STALE` stale answers, there is nothing to be 3.5 times
fewer, and the cell says so. The trees are four: for latency and for freshness, by the paper's features and
by the extended ones. A policy has the paper's savings of writes if it sends at least 3 times fewer messages
and 7 times fewer points than a delay of 30 minutes, with no more reads that miss a write; beside it, at
least 6 times fewer messages than 10 minutes. Where more than 95 % of the reads miss a write with 30
minutes, never to send is as good.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.sources.city import CommuterTown, Residents, residents
from mudkit.sources.courses import flat_to_degrees
from mudkit.sources.phones import PhoneUse, Sightings, fixes
from mudkit.sources.trips import trips
from mudkit.sources.workloads import WakingReads
from mudkit.trace.schema import POSITIONS, timestamps, with_read_ids
from mudkit.units import US_PER_S

When: TypeAlias = Literal["all day", "in peaks"]
Written: TypeAlias = Literal["by day", "at night", "all the time"]
Spread: TypeAlias = Literal["dense", "sparse"]

EVERY_MIN: Final = (5, 15, 30, 60, 120, 240)
WHEN: Final[tuple[When, ...]] = ("all day", "in peaks")
CARS: Final = {"few": 30, "many": 300}
WRITTEN: Final[tuple[Written, ...]] = ("by day", "at night", "all the time")
PLACES: Final[tuple[Spread, ...]] = ("dense", "sparse")
READERS: Final = 12
SPARSE_TOWNS: Final = 4
FEWER_BY_TOWN: Final = 4
"""Times fewer cars in a sparse town than in the one before."""
LOOKS: Final = 64
"""Looks of a reader for which a trace is long enough."""
MAX_DAYS: Final = 7
GAPS_KEPT: Final = 12
"""Mean gaps between two looks for which an answer stays in the cache."""
AWAKE_H: Final = (7.0, 16.0)
"""Local hour of waking, and hours awake."""
PEAKS_H: Final = ((7.0, 2.0), (16.5, 2.0))
"""Local hour at which each peak begins, and its hours."""
MIN_STALE: Final = 10
"""Stale answers of the rule below which a cell says nothing about fewer of them."""
_TOWN: Final = CommuterTown()
_PHONE: Final = PhoneUse(interval_s=60)
_NIGHT_S: Final = 12 * 3600
_MONDAY: Final = 14_669
"""Days from 1970 to Monday, 1 March 2010."""
_S_PER_DAY: Final = 86_400
_READERS_FROM: Final = 40_000
"""Number of the first reader among the residents: none of the cars has one so high; divisible by towns."""


class Looks(NamedTuple):
    """Mean time between two looks of a reader, and when people look."""

    every_min: int
    when: When

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Local hours at which they begin to look, and hours for which they do."""
        return (AWAKE_H,) if self.when == "all day" else PEAKS_H

    @property
    def per_day(self) -> float:
        """Mean number of looks of a reader on a day."""
        return sum(hours for _, hours in self.spans) * 60.0 / self.every_min

    @property
    def days(self) -> int:
        """Number of days of a trace."""
        return min(max(round(LOOKS / self.per_day), 1), MAX_DAYS)

    @property
    def horizon_s(self) -> float:
        """Age up to which an answer in the cache is used, seconds."""
        return GAPS_KEPT * _S_PER_DAY / self.per_day

    def __str__(self) -> str:
        return f"{words.duration(60 * self.every_min)} {self.when}"


class Writing(NamedTuple):
    """Number of cars (a key of :data:`CARS`), when they write, and how they are spread over places."""

    cars: str
    written: Written
    places: Spread

    def __str__(self) -> str:
        return f"{self.cars} cars {self.written}, {self.places}"


@dataclass(frozen=True)
class Regime:
    """A cell of the map."""

    looks: Looks
    writing: Writing

    def __str__(self) -> str:
        return f"{self.looks}; {self.writing}"

    def trace(self, seed: int) -> tuple[pa.Table, pa.Table]:
        """Generate positions and reads of some days; the positions begin two hours earlier."""
        days = range(_MONDAY, _MONDAY + self.looks.days)
        return _positions(self.writing, days, seed), _reads(self.looks, self.writing.places, days, seed)


ALL_LOOKS: Final = tuple(Looks(every, when) for when, every in product(WHEN, EVERY_MIN))
ALL_WRITING: Final = tuple(Writing(*of) for of in product(CARS, WRITTEN, PLACES))
REGIMES: Final = tuple(Regime(looks, writing) for writing, looks in product(ALL_WRITING, ALL_LOOKS))
"""All cells, in the order of the map's rows: by how is written, then by how people look."""


def cars_of_towns(cars: int, places: Spread) -> tuple[int, ...]:
    """Return the number of cars of each town."""
    if places == "dense":
        return (cars,)
    weights = [FEWER_BY_TOWN ** (SPARSE_TOWNS - 1 - town) for town in range(SPARSE_TOWNS)]
    later = [max(round(cars * weight / sum(weights)), 1) for weight in weights[1:]]
    return cars - sum(later), *later


def _drivers(writing: Writing, seed: int) -> Residents:
    """Return the drivers of the cars: car ``i`` lives in town ``i % towns``."""
    by_town = cars_of_towns(CARS[writing.cars], writing.places)
    numbers = [town + len(by_town) * np.arange(count) for town, count in enumerate(by_town)]
    return residents(_TOWN, seed, np.concatenate(numbers), len(by_town))


def _positions(writing: Writing, days: range, seed: int) -> pa.Table:
    """Drive the cars on some days, and return what they write; it begins as far back as a read asks."""
    people = _drivers(writing, seed)
    by_day = [
        fixes(trips(_TOWN, seed, people, day), _PHONE, seed) for day in range(days.start - 1, days.stop)
    ]
    seen = Sightings(*(np.concatenate(column) for column in zip(*by_day, strict=True)))
    is_night = {
        "by day": np.zeros(len(seen.car), np.bool_),
        "at night": np.ones(len(seen.car), np.bool_),
        "all the time": seen.car // SPARSE_TOWNS % 2 == 1,
    }[writing.written]
    seen = seen._replace(t_s=seen.t_s + _NIGHT_S * is_night)
    begin_s, end_s = _midnight_s(days.start), _midnight_s(days.stop)
    inside = np.flatnonzero((seen.t_s > begin_s - _PHONE.window_s) & (seen.t_s < end_s))
    order = inside[np.lexsort((seen.t_s[inside], seen.car[inside]))]
    return pa.table(
        {
            "device": [f"car-{number:05d}" for number in seen.car[order].tolist()],
            "ts": timestamps(seen.t_s[order] * US_PER_S),
            "lat": seen.lat[order],
            "lon": seen.lon[order],
            "speed_mps": seen.speed_mps[order],
        },
        schema=POSITIONS,
    )


def _reads(looks: Looks, places: Spread, days: range, seed: int) -> pa.Table:
    """Return the reads of all readers on some days."""
    number = _READERS_FROM + np.arange(READERS)
    people = residents(_TOWN, seed, number, 1 if places == "dense" else SPARSE_TOWNS)
    names = [f"reader-{reader:05d}" for reader in number.tolist()]
    begin_s, end_s = _midnight_s(days.start), _midnight_s(days.stop)
    moments = []
    for start_h, hours in looks.spans:
        workload = WakingReads(hours * 60.0 / looks.every_min, wake_h=start_h, awake_h=(hours, hours))
        name = f"looks from {start_h:g}"
        drawn = workload.moments(seed, name, names, begin_s * US_PER_S, (end_s - begin_s) * US_PER_S)
        moments.append(np.column_stack([begin_s + drawn.t_us // US_PER_S, drawn.device]))
    t_s, row = np.unique(np.concatenate(moments), axis=0).T  # two looks within a second are one
    lat, lon = _places(people, row, t_s, days, seed)
    return with_read_ids(
        pa.table(
            {
                "device": [names[reader] for reader in row.tolist()],
                "ts": timestamps(t_s * US_PER_S),
                "lat": lat.round(6),
                "lon": lon.round(6),
                "box_km": np.full(len(row), _PHONE.box_km),
                "window_s": np.full(len(row), _PHONE.window_s),
                "origin": pa.repeat(pa.scalar(f"derived: {looks}; seed={seed}"), len(row)),
            }
        )
    )


def _places(
    people: Residents, row: NDArray[np.int64], t_s: NDArray[np.int64], days: range, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where some residents, by row, are at some times: on their last trip, or where it ended."""
    lat, lon = flat_to_degrees(
        people.lat[row],
        people.lon[row],
        _TOWN.block_km * people.home.east[row],
        _TOWN.block_km * people.home.north[row],
    )
    for day in range(days.start - 1, days.stop):
        driven = trips(_TOWN, seed, people, day)
        for reader, number in enumerate(people.car.tolist()):
            own = np.flatnonzero(driven.car == number)
            own = own[np.argsort(driven.start_s[own])]
            begun = np.searchsorted(driven.start_s[own], t_s, side="right") - 1
            moved = np.flatnonzero((row == reader) & (begun >= 0))
            trip = own[begun[moved]]
            east_km, north_km, _ = driven.at(trip, (t_s[moved] - driven.start_s[trip]).astype(np.float64))
            lat[moved], lon[moved] = driven.degrees(trip, east_km, north_km)
    return lat, lon


def _midnight_s(day: int) -> int:
    """Return the local midnight at which a day begins, in seconds since 1970 (UTC)."""
    return day * _S_PER_DAY - round(_TOWN.utc_offset_h * 3600)
