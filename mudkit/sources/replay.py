"""Replay: the devices of a fleet move as those of a recorded trace did."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.checks import check_arguments, unusable
from mudkit.errors import ParameterError
from mudkit.sources.courses import Places, check_moment, device_numbers, normal_longitude
from mudkit.units import US_PER_S, distance_km

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)


@check_arguments(types=False)
class Replay:
    """Moves of a trace.

    Device i of the fleet moves as the i-th device of the trace, by name, among those with two rows or more.
    Between two reports it goes from one to the other at an even speed, in equal shares of latitude and
    longitude, the short way across the date line. In a longer gap, and after its last report, it stays at the
    last report; before the first one it is there already; its speed is then unknown (NaN). Of reports of one
    device and moment the last row counts.

    Parameters
    ----------
    positions : pyarrow.Table or object with ``positions``
        Columns device, ts (timestamp; UTC if it has no zone), lat, lon (degrees), in any order of rows;
        :class:`mudkit.trace.Loaded` has such a table.
    start : str or datetime, optional
        Moment of the trace that is the start of a run (a text: ISO 8601), in UTC if it has no zone; by
        default the trace's first row.
    gap_s : float
        Longest time between reports that a device moves through evenly.

    Raises
    ------
    ParameterError
        A column is missing or holds nulls, no device has two rows, the start is no moment of the trace, or
        the gap is under 0.
    """

    def __init__(self, positions: Any, start: str | dt.datetime | None = None, gap_s: float = 600.0) -> None:
        if not gap_s >= 0:
            raise unusable("gap_s", gap_s, "a number from 0 on")
        self._reports, first_us, last_us = _reports(getattr(positions, "positions", positions))
        self._start_us = first_us if start is None else _start_us(start)
        if not first_us <= self._start_us <= last_us:
            raise _refused(
                "The start is outside the trace.",
                "start",
                _text(self._start_us),
                f"from {_text(first_us)} to {_text(last_us)}",
            )
        self._gap_us = gap_s * US_PER_S
        self._until_us = last_us - self._start_us

    @property
    def devices(self) -> int:
        """Number of devices in the trace."""
        return len(self._reports.first)

    @property
    def until_us(self) -> int:
        """Last moment of the trace, microseconds since the start of a run."""
        return self._until_us

    def course(self, seed: int, devices: Sequence[str], start_us: int) -> _Replayed:
        """Return the course, see :meth:`mudkit.sources.courses.Mobility.course`; nothing is random.

        Raises
        ------
        ParameterError
            The fleet has more devices than the trace, or one is named twice.
        """
        count = len(device_numbers(devices))
        if count > self.devices:
            raise _refused(
                "The trace has too few devices.",
                "devices",
                str(count),
                f"at most {self.devices}, as many as the trace has with two rows or more",
            )
        return _Replayed(self._reports, count, self._start_us, self._gap_us, self._until_us)


class _Reports(NamedTuple):
    """Rows of a trace by device and time; ``first`` is the first row of each device."""

    first: NDArray[np.int64]
    device: NDArray[np.int64]
    ts_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]


class _Replayed:
    """One run of a fleet of ``count`` devices; times inside are those of the trace."""

    def __init__(self, reports: _Reports, count: int, start_us: int, gap_us: float, until_us: int) -> None:
        self.until_us: int | None = until_us
        self._start_us, self._gap_us, self._last_us = start_us, gap_us, 0
        end = int(reports.first[count]) if count < len(reports.first) else len(reports.device)
        self._reports = _Reports(
            reports.first[:count],
            reports.device[:end],
            reports.ts_us[:end],
            reports.lat[:end],
            reports.lon[:end],
        )
        # Reports in the order in which they come true; of two of one moment the later row comes last.
        self._order = np.argsort(self._reports.ts_us, kind="stable")
        self._ts_us = self._reports.ts_us[self._order]
        self._come = 0
        self._latest = self._reports.first.copy()

    def at(self, t_us: int) -> Places:
        """Return the places; see :meth:`mudkit.sources.courses.Course.at`."""
        t_us = self._last_us = check_moment(t_us, self._last_us, self.until_us)
        now_us = self._start_us + t_us
        _, device, ts_us, lat, lon = self._reports
        come = int(np.searchsorted(self._ts_us, now_us, side="right"))
        new = self._order[self._come : come]
        self._latest[device[new]] = new
        self._come = come
        row = self._latest
        following = np.minimum(row + 1, len(device) - 1)
        step_us = ts_us[following] - ts_us[row]
        after_us = now_us - ts_us[row]
        known = (device[following] == device[row]) & (step_us > 0) & (step_us <= self._gap_us)
        known &= after_us >= 0
        step_us = np.where(known, step_us, 1)
        part = np.where(known, after_us / step_us, 0.0)
        length_m = 1000.0 * distance_km(lat[row], lon[row], lat[following], lon[following])
        way = normal_longitude(lon[following] - lon[row])
        return Places(
            lat[row] + part * (lat[following] - lat[row]),
            normal_longitude(lon[row] + part * way),
            np.where(known, length_m / (step_us / US_PER_S), np.nan),
        )


def _reports(positions: Any) -> tuple[_Reports, int, int]:
    """Return the rows of a table by device, and their first and last moments."""
    missing = [name for name in ("device", "ts", "lat", "lon") if name not in _names(positions)]
    if missing:
        raise _refused(
            "The positions to replay are not usable.",
            "positions",
            f"no column {', '.join(missing)}; found {', '.join(_names(positions)) or repr(type(positions))}",
            "a table with the columns device, ts, lat, lon, or an object with one as its positions",
        )
    table = positions.select(["device", "ts", "lat", "lon"])
    if not pa.types.is_timestamp(table["ts"].type):
        raise _refused("The times to replay are not usable.", "ts", str(table["ts"].type), "timestamps")
    lat, lon = (table[axis].to_numpy().astype(np.float64) for axis in ("lat", "lon"))
    holes = [name for name in table.column_names if table[name].null_count]
    if holes or not np.isfinite(lat + lon).all():
        where = ", ".join(holes) or "lat, lon"
        raise _refused("The positions to replay have holes.", where, "null or NaN", "a value in each row")
    name = pc.cast(table["device"], pa.string()).combine_chunks().dictionary_encode()
    names = name.dictionary.to_numpy(zero_copy_only=False)
    device = np.argsort(np.argsort(names))[name.indices.to_numpy()]
    ts_us = pc.cast(table["ts"], pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()).to_numpy()
    rows = np.bincount(device, minlength=len(names))
    if not (rows > 1).any():
        raise _refused(
            "There is nothing to replay.",
            "positions",
            f"{len(device)} rows of {len(names)} devices",
            "a device with two rows or more",
        )
    order = np.lexsort((ts_us, device))
    order = order[rows[device[order]] > 1]
    count = rows[rows > 1]
    first, rank = np.cumsum(count) - count, np.repeat(np.arange(len(count)), count)
    reports = _Reports(first, rank, ts_us[order], lat[order], lon[order])
    return reports, int(ts_us.min()), int(ts_us.max())


def _names(positions: Any) -> list[str]:
    """Return the columns of a table; none for anything else."""
    return list(positions.column_names) if isinstance(positions, pa.Table) else []


def _start_us(start: str | dt.datetime) -> int:
    """Return a start in microseconds since 1970, in UTC if it names no zone; ParameterError if that fails."""
    try:
        moment = dt.datetime.fromisoformat(start) if isinstance(start, str) else start
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // _US
    except (ValueError, TypeError, AttributeError):
        raise _refused(
            "The start is no moment.", "start", repr(start), "a datetime, or text such as 2010-03-01T08:00"
        ) from None


def _text(epoch_us: int) -> str:
    """Return microseconds since 1970 as ISO 8601."""
    return (_EPOCH + epoch_us * _US).isoformat()


def _refused(summary: str, where: str, state: str, expected: str) -> ParameterError:
    """Return the error for a trace or start that cannot be replayed."""
    return ParameterError(summary, where=where, found=state, expected=expected)
