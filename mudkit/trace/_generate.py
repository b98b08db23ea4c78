"""Generated trace like CarTel's, from a seed: the data set of Mobius 7.3 is not public.

The paper's trace has about 3.7 million positions of 600 cars at regular intervals, and user-initiated queries
for a box of 20 km by 20 km and two hours. Here commuters drive through a town (:mod:`mudkit.sources.city`,
:mod:`mudkit.sources.trips`), and their phones report positions and read (:mod:`mudkit.sources.phones`). Every
rate is a parameter there, chosen from what is known about cars and phones, independent of any policy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa

from mudkit.checks import check_arguments, split_rates, unusable, whole_number
from mudkit.errors import ParameterError
from mudkit.files import PlaceLike
from mudkit.sources.city import MAX_TOWNS, CommuterTown, Residents, residents
from mudkit.sources.phones import PhoneUse, Sightings, check_plausible, fixes, queries
from mudkit.sources.streams import Stream
from mudkit.sources.trips import day_start_s, trips
from mudkit.trace.folder import TraceWriter, read_manifest
from mudkit.trace.loaded import Loaded
from mudkit.trace.schema import POSITIONS, REJECTED, timestamps, with_read_ids
from mudkit.units import US_PER_S

GENERATOR_VERSION = 1
"""Goes up whenever the same parameters and seed give other rows."""

_MAX_CARS = 100_000
_MAX_DAYS = 3_660
_CARS_AT_ONCE = 2_000
_S_PER_DAY = 86_400
_EPOCH = dt.date(1970, 1, 1)
MIN_DATE, MAX_DATE = dt.date(1980, 1, 2), dt.date(2089, 1, 1)


@overload
def generate(
    cars: int = ...,
    days: int = ...,
    seed: int = ...,
    *,
    towns: int = ...,
    start: str | dt.date = ...,
    path: None = ...,
    overwrite: bool = ...,
    progress: bool = ...,
    town: CommuterTown | None = ...,
    phone: PhoneUse | None = ...,
    **rates: Any,
) -> Loaded: ...


@overload
def generate(
    cars: int = ...,
    days: int = ...,
    seed: int = ...,
    *,
    towns: int = ...,
    start: str | dt.date = ...,
    path: PlaceLike,
    overwrite: bool = ...,
    progress: bool = ...,
    town: CommuterTown | None = ...,
    phone: PhoneUse | None = ...,
    **rates: Any,
) -> dict[str, Any]: ...


@check_arguments(types=False)
def generate(
    cars: int = 600,
    days: int = 30,
    seed: int = 7,
    *,
    towns: int = 1,
    start: str | dt.date = "2010-03-01",
    path: PlaceLike | None = None,
    overwrite: bool = False,
    progress: bool = False,
    town: CommuterTown | None = None,
    phone: PhoneUse | None = None,
    **rates: Any,
) -> Loaded | dict[str, Any]:
    """Generate a trace; with the defaults, about 3.7 million positions and 50,000 reads.

    The rows of a car depend on the seed, the car's number, the number of towns and the rates only, and
    those of a day on the date as well: other cars and other days change nothing. A day runs from 4:00 to
    4:00 local time (``utc_offset_h``, without daylight saving), so the trace covers ``days`` such days and
    touches one UTC date more.

    Parameters
    ----------
    cars : int
        Number of cars, from 1 to 100,000; car ``i`` is the device ``car-0000i`` and lives in town ``i %
        towns``.
    days : int
        Length of the trace in days, from 1 to 3,660.
    seed : int
        Any integer. Same seed, same bytes.
    towns : int
        Number of towns, from 1 to 400; all are alike and far apart.
    start : str or date
        Local date of the first day, from 1980-01-02 to 2089-01-01; the default is a Monday.
    path : path-like or UPath, optional
        Folder of the trace to write, in memory independent of days and cars; None: return the trace.
    overwrite : bool
        Whether to replace a trace at ``path``.
    progress : bool
        Whether to show a progress bar.
    town, phone : optional
        Rates, as :class:`~mudkit.sources.city.CommuterTown` and
        :class:`~mudkit.sources.phones.PhoneUse`.
    **rates
        Single fields of either, for instance ``interval_s=30`` or ``commuter_share=0.5``, instead of
        ``town`` and ``phone``.

    Returns
    -------
    Loaded or dict
        The trace; or, with ``path``, the manifest of the folder.

    Raises
    ------
    ParameterError
        A parameter is unknown or out of range.
    OutputExists, OutputProblem
        The folder exists, or cannot be written; nothing is left behind.
    """
    plan = _plan(cars, days, seed, towns, start, town, phone, rates)
    if path is None:
        return _in_memory(plan, progress)
    with TraceWriter.open(path, {**plan.description(), "rejected": {}}, overwrite=overwrite) as writer:
        for positions, reads in _by_utc_date(plan, progress):
            writer.write("positions", _positions(positions))
            writer.write("reads", _reads(reads, plan))
        writer.write("rejected", REJECTED.empty_table())
    return read_manifest(path)


@dataclass(frozen=True)
class _Plan:
    """Checked parameters of a generated trace, which determine all of its rows."""

    cars: int
    seed: int
    towns: int
    days: range
    town: CommuterTown
    phone: PhoneUse

    @property
    def origin(self) -> str:
        """Text for the column ``origin`` of reads."""
        return f"derived: generate(trip start, looked at again during the trip; seed={self.seed})"

    def people(self, first: int, count: int) -> Residents:
        """Return the residents of some cars, from the number ``first`` on; fewer at the end of the fleet."""
        car = np.arange(first, min(first + count, self.cars), dtype=np.int64)
        return residents(self.town, self.seed, car, self.towns)

    def day(self, people: Residents, day: int) -> tuple[Sightings, Sightings]:
        """Return positions and reads of one day, given in days since 1970."""
        driven = trips(self.town, self.seed, people, day)
        return fixes(driven, self.phone, self.seed), queries(driven, self.phone, self.seed)

    def description(self) -> dict[str, Any]:
        """Return everything that shapes the trace, for its manifest."""
        offset_s = round(self.town.utc_offset_h * 3600)
        hours, minutes = divmod(abs(offset_s) // 60, 60)
        zone = f"UTC{'-' if offset_s < 0 else '+'}{hours:02d}:{minutes:02d}"
        return {
            "name": f"generated: {self.cars} cars, {len(self.days)} days, seed {self.seed}",
            "format": "generated",
            "generator": "mudkit.trace.generate",
            "generator_version": GENERATOR_VERSION,
            "options": {
                "cars": self.cars,
                "days": len(self.days),
                "seed": self.seed,
                "towns": self.towns,
                "start": str(_EPOCH + dt.timedelta(days=self.days.start)),
                "town": asdict(self.town),
                "phone": asdict(self.phone),
            },
            "time_zone": f"local time is {zone} all year; a day runs from 4:00 to 4:00 local time",
            "reads": {"rule": self.origin, "box_km": self.phone.box_km, "window_s": self.phone.window_s},
        }


def _plan(
    cars: int,
    days: int,
    seed: int,
    towns: int,
    start: str | dt.date,
    town: CommuterTown | None,
    phone: PhoneUse | None,
    rates: dict[str, Any],
) -> _Plan:
    """Return the checked parameters of a trace; ParameterError for those out of range or given twice."""
    of_town, of_phone = split_rates(rates, CommuterTown, PhoneUse)
    for name, given, single in (("town", town, of_town), ("phone", phone, of_phone)):
        if given is not None and single:
            raise ParameterError(
                f"Rates are given twice: in {name} and one by one.",
                where=name,
                found=", ".join(single),
                expected=f"either {name} or single rates of it",
                remedy=f"dataclasses.replace({name}, {', '.join(f'{key}=…' for key in single)})",
            )
    first = _day_number(start)
    plan = _Plan(
        whole_number("cars", cars, 1, _MAX_CARS),
        Stream(seed, "generate").seed,
        whole_number("towns", towns, 1, MAX_TOWNS),
        range(first, first + whole_number("days", days, 1, _MAX_DAYS)),
        town or CommuterTown(**of_town),
        phone or PhoneUse(**of_phone),
    )
    check_plausible(plan.town, plan.phone)
    return plan


def _day_number(start: str | dt.date) -> int:
    """Return a local date in days since 1970; ParameterError if it is no date, or out of range."""
    try:
        date = dt.date.fromisoformat(start if isinstance(start, str) else start.strftime("%Y-%m-%d"))
    except (AttributeError, TypeError, ValueError):
        date = dt.date.min
    if not MIN_DATE <= date <= MAX_DATE:
        raise unusable("start", start, f"a date like 2010-03-01, from {MIN_DATE} to {MAX_DATE}")
    return (date - _EPOCH).days


def _in_memory(plan: _Plan, progress: bool) -> Loaded:
    """Generate the whole trace in memory, with tables in the trace's orders."""
    people = plan.people(0, plan.cars)
    by_day = [plan.day(people, day) for day in _shown(plan.days, progress)]
    positions, reads = _joined([day[0] for day in by_day]), _joined([day[1] for day in by_day])
    by_day.clear()  # a copy of all rows less
    positions = _taken(positions, np.lexsort((positions.t_s, positions.car)))
    reads = _taken(reads, np.lexsort((reads.car, reads.t_s)))
    return Loaded(
        positions=_positions(positions),
        reads=_reads(reads, plan),
        rejected=REJECTED.empty_table(),
        source=plan.description(),
    )


def _by_utc_date(plan: _Plan, progress: bool) -> Iterator[tuple[Sightings, Sightings]]:
    """Yield positions and reads of some cars by UTC date; each date occurs once for these cars."""
    steps = [(first, day) for first in range(0, plan.cars, _CARS_AT_ONCE) for day in plan.days]
    people = plan.people(0, 0)
    pending: tuple[Sightings, Sightings] | None = None
    for first, day in _shown(steps, progress):
        if day == plan.days.start:
            people, pending = plan.people(first, _CARS_AT_ONCE), None
        new = plan.day(people, day)
        ready = new if pending is None else (_joined([pending[0], new[0]]), _joined([pending[1], new[1]]))
        if day == plan.days[-1]:
            yield ready
            continue
        # Everything before the next day is known; yield its complete dates.
        end_s = day_start_s(plan.town, day + 1) // _S_PER_DAY * _S_PER_DAY
        pending = (_taken(ready[0], ready[0].t_s >= end_s), _taken(ready[1], ready[1].t_s >= end_s))
        yield _taken(ready[0], ready[0].t_s < end_s), _taken(ready[1], ready[1].t_s < end_s)


def _positions(seen: Sightings) -> pa.Table:
    """Return sightings as a table of positions."""
    return pa.table(
        {
            "device": _names(seen),
            "ts": timestamps(seen.t_s * US_PER_S),
            "lat": seen.lat,
            "lon": seen.lon,
            "speed_mps": seen.speed_mps,
        },
        schema=POSITIONS,
    )


def _reads(seen: Sightings, plan: _Plan) -> pa.Table:
    """Return sightings as a table of reads with their ids."""
    rows = len(seen.car)
    return with_read_ids(
        pa.table(
            {
                "device": _names(seen),
                "ts": timestamps(seen.t_s * US_PER_S),
                "lat": seen.lat,
                "lon": seen.lon,
                "box_km": np.full(rows, plan.phone.box_km),
                "window_s": np.full(rows, plan.phone.window_s),
                "origin": pa.repeat(pa.scalar(plan.origin), rows),
            }
        )
    )


def _names(seen: Sightings) -> pa.Array:
    """Return the device's name of each sighting."""
    car, row = np.unique(seen.car, return_inverse=True)
    return pa.array([f"car-{number:05d}" for number in car.tolist()], pa.string()).take(pa.array(row))


def _joined(parts: list[Sightings]) -> Sightings:
    """Return several sightings one after the other."""
    return Sightings(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _taken(seen: Sightings, rows: np.ndarray[Any, Any]) -> Sightings:
    """Return the sightings at some rows, in the order of these."""
    return Sightings(*(column[rows] for column in seen))


def _shown(steps: Any, progress: bool) -> Iterator[Any]:
    """Yield steps, and show a progress bar meanwhile if ``progress`` is true."""
    if not progress:
        yield from steps
        return
    from tqdm.auto import tqdm  # only who watches waits for it to load

    yield from tqdm(steps, unit="day", desc="generate")
