"""The density of writes by place and hour: learnt from what devices wrote, known before a read is asked.

A policy that decides has the table of the days, or the devices, that it was learnt from. While it learns, a
read knows the days before its own only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
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
    """Writes by device number (-1: never reads), cell and hour of solar time, and day since 1970 (UTC)."""

    device: NDArray[np.int64]
    place: NDArray[np.int64]
    day: NDArray[np.int64]

    @classmethod
    def of(cls, positions: Any, numbers: Mapping[str, int]) -> WrittenPlaces:
        """Sort positions into cells; ``numbers`` are those of the devices that read, by name."""
        t_us = epoch_us(positions["ts"])
        lat, lon = (np.asarray(positions[name].to_numpy(), np.float64) for name in ("lat", "lon"))
        names = positions["device"].combine_chunks().dictionary_encode()
        known = np.array([numbers.get(name, -1) for name in names.dictionary.to_pylist()], np.int64)
        return cls(known[names.indices.to_numpy()], _place(t_us, lat, lon), t_us // _US_PER_DAY)

    def take(self, rows: NDArray[np.bool_]) -> WrittenPlaces:
        """Return the chosen rows."""
        return WrittenPlaces(self.device[rows], self.place[rows], self.day[rows])

    def table(self) -> Density:
        """Return the mean over the days, in the form that devices receive."""
        cells: dict[tuple[int, int], list[float]] = {}
        places, counts = np.unique(self.place, return_counts=True)
        rates = np.round(counts / _days(self.day), _DECIMALS)
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
        seen = np.sort(self.place * span + (self.day - first))
        place = _place(t_us, lat, lon) * span
        count = np.searchsorted(seen, place + np.clip(days, 0, span)) - np.searchsorted(seen, place)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(days > 0, count / days, np.nan)


def densities(
    table: Density, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Look up the densities in a device's table."""
    hour = solar_time(t_us, lon)[0]
    rows = zip(lat.tolist(), lon.tolist(), hour.tolist(), strict=True)
    return np.array([table.at(*row) for row in rows], dtype=np.float64)


def _place(t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    hour = solar_time(t_us, lon)[0].astype(np.int64) % HOURS
    row, column = (np.floor(degrees / CELL_DEG).astype(np.int64) for degrees in (lat, lon))
    return (row * _COLUMNS + column + _COLUMNS // 2) * HOURS + hour


def _days(day: NDArray[np.int64]) -> int:
    return int(day.max() - day.min()) + 1 if len(day) else 1
