"""The density of writes by place and hour: learnt from what devices wrote, known before a read is asked.

A policy that decides has the table of the days, or the devices, that it was learnt from. While it learns, a
read knows the days before its own only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.systems.mud.policies.artefact import HOURS, Density
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S, solar_time

CELL_DEG: Final = 0.05
"""About 5 km: a fourth of the side of a read's box."""
_DECIMALS: Final = 3
_US_PER_DAY: Final = 86_400 * US_PER_S
_COLUMNS: Final = 1 << 14
"""More than there are of cells around the earth."""


@dataclass(frozen=True)
class WrittenPlaces:
    """Number of writes by device number (-1: never reads), cell and hour of solar time, and day (UTC)."""

    device: NDArray[np.int64]
    place: NDArray[np.int64]
    day: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, positions: Any, numbers: Mapping[str, int]) -> WrittenPlaces:
        """Sort positions into cells: an Arrow table in this process, a DataFrame on Spark.

        ``numbers`` are those of the devices that read, by name.
        """
        if isinstance(positions, pa.Table):
            counts = count_places(positions)
        else:
            from mudkit.pipeline.devices import sum_rows  # loads Spark

            counts = sum_rows(positions.select("device", "ts", "lat", "lon"), count_places, PLACES)
        names = counts["device"].combine_chunks().dictionary_encode()
        known = np.array([numbers.get(name, -1) for name in names.dictionary.to_pylist()], np.int64)
        place, day, count = (counts[name].to_numpy() for name in ("place", "day", "count"))
        return cls(known[names.indices.to_numpy()], place, day, count)

    def take(self, rows: NDArray[np.bool_]) -> WrittenPlaces:
        """Return the entries for which ``rows`` is True."""
        return WrittenPlaces(self.device[rows], self.place[rows], self.day[rows], self.count[rows])

    def table(self) -> Density:
        """Return the mean over the days, in the form that devices receive."""
        cells: dict[tuple[int, int], list[float]] = {}
        places, number = np.unique(self.place, return_inverse=True)
        rates = np.round(np.bincount(number, self.count) / _days(self.day), _DECIMALS)
        for place, rate in zip(places.tolist(), rates.tolist(), strict=True):
            cell, hour = divmod(place, HOURS)
            row, column = divmod(cell, _COLUMNS)
            cells.setdefault((row, column - _COLUMNS // 2), [0.0] * HOURS)[hour] = rate
        return Density(CELL_DEG, {cell: tuple(rates) for cell, rates in cells.items()})

    def before(
        self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the mean over the days before each moment, in points an hour; NaN on the first day."""
        if not len(self.day):
            return np.full(len(t_us), np.nan)
        first = int(self.day.min())
        days = t_us // _US_PER_DAY - first
        span = int(max(self.day.max() - first, days.max(initial=0))) + 1
        key = self.place * span + (self.day - first)
        order = np.argsort(key)
        seen, until = key[order], np.concatenate([[0], np.cumsum(self.count[order])])
        place = _place(t_us, lat, lon) * span
        ends = np.searchsorted(seen, place + np.clip(days, 0, span))
        count = until[ends] - until[np.searchsorted(seen, place)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(days > 0, count / days, np.nan)


PLACES: Final = pa.schema(
    [("device", pa.string()), ("place", pa.int64()), ("day", pa.int64()), ("count", pa.int64())]
)


def count_places(positions: pa.Table) -> pa.Table:
    """Count positions by device, cell and hour, and day."""
    t_us = epoch_us(positions["ts"])
    lat, lon = (np.asarray(positions[name].to_numpy(), np.float64) for name in ("lat", "lon"))
    keys = {"device": positions["device"], "place": _place(t_us, lat, lon), "day": t_us // _US_PER_DAY}
    counted = pa.table(keys).group_by(list(keys)).aggregate([([], "count_all")])
    return counted.rename_columns(PLACES.names).cast(PLACES)


def densities(
    table: Density, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Look up the densities in a device's table."""
    hour = solar_time(t_us, lon)[0]
    rows = zip(lat.tolist(), lon.tolist(), hour.tolist(), strict=True)
    return np.array([table.at(*row) for row in rows], dtype=np.float64)


def _place(t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of the cell and hour of solar time of each place and time."""
    hour = solar_time(t_us, lon)[0].astype(np.int64) % HOURS
    row, column = (np.floor(degrees / CELL_DEG).astype(np.int64) for degrees in (lat, lon))
    return (row * _COLUMNS + column + _COLUMNS // 2) * HOURS + hour


def _days(day: NDArray[np.int64]) -> int:
    """Return the number of days from the first to the last; 1 without any."""
    return int(day.max() - day.min()) + 1 if len(day) else 1
