"""Links that carry what was measured: the recordings of a trace, joined end to end.

What lies between two recordings is unknown, so it is cut out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.checks import check_arguments, unusable
from mudkit.errors import ParameterError, TraceContentError, did_you_mean, listed
from mudkit.units import US_PER_S

_MEASURED = ("down_kbps", "up_kbps", "latency_ms")
_COLUMNS = ("device", "ts", "up", *_MEASURED)


class Capacity(NamedTuple):
    """Capacity of one device's link over time: pieces that begin at ``from_us`` (the first at 0, ascending).

    Latency is one way; NaN means not measured. The numbers of a piece that is down mean nothing.
    """

    from_us: NDArray[np.int64]
    until_us: int
    up: NDArray[np.bool_]
    down_kbps: NDArray[np.float64]
    up_kbps: NDArray[np.float64]
    latency_ms: NDArray[np.float64]


class _Line(NamedTuple):
    """A device's capacity, and how it was put together."""

    capacity: Capacity
    recordings: int
    cut_us: int


@check_arguments(types=False)
class LinkReplay:
    """Links of a trace, replayed.

    Each row lasts until the device's next one; the last row of a recording lasts as long as the device's
    median step. An outage that ends one recording and one that begins the next become one.

    Parameters
    ----------
    links : pyarrow.Table or object with ``.links``
        Columns ``device, ts, up, down_kbps, up_kbps, latency_ms`` (``mudkit.trace.schema.LINKS``), in any
        order of rows: for instance from ``mudkit.trace.load_links``.
    device : str, optional
        A device of the trace that all devices of a fleet replay. By default device ``i`` of the fleet replays
        device ``i`` of the trace.
    gap_s : float
        Rows of a device further apart belong to two recordings; ``math.inf`` cuts nothing out, as links that
        were recorded only when they changed need.
    offset_s : float
        Where in the joined recordings the run starts.

    Attributes
    ----------
    devices : list of str
        The devices of the trace, sorted.

    Raises
    ------
    ParameterError
        An argument is not usable, the trace has no such device, or ``offset_s`` is past a device's end.
    TraceContentError
        The trace holds no rows, two rows of a device at one time, a negative or infinite value, or nothing
        says how long a row lasts.

    Examples
    --------
    >>> import pyarrow as pa
    >>> links = pa.table({"device": ["a", "a"], "ts": [0, 30_000_000], "up": [True, True],
    ...                   "down_kbps": [800.0, 400.0], "up_kbps": [100.0, 50.0], "latency_ms": [40.0, 90.0]})
    >>> replay = LinkReplay(links)
    >>> replay.capacity(0).down_kbps[:2]
    array([800., 400.])
    """

    def __init__(
        self, links: Any, *, device: str | None = None, gap_s: float = 60.0, offset_s: float = 0.0
    ) -> None:
        table = _table(links)
        self._gap_s = _seconds("gap_s", gap_s, least=1 / US_PER_S, most=math.inf)
        self._offset_s = _seconds("offset_s", offset_s, least=0.0, most=1e12)
        self._device = device
        self.devices: list[str] = sorted(table["device"].unique().to_pylist())
        if device is not None and device not in self.devices:
            raise ParameterError(
                f"The trace has no device {device!r}.",
                where="device",
                found=repr(device),
                expected="one of " + listed(self.devices),
                remedy=did_you_mean(device, self.devices),
            )
        replayed = self.devices if device is None else [device]
        self._lines = dict(zip(replayed, self._join(table, replayed), strict=True))

    def capacity(self, index: int) -> Capacity:
        """Return the capacity of a device's link, as read-only arrays that devices share.

        Parameters
        ----------
        index : int
            Number of the device in the fleet, from 0.

        Raises
        ------
        ParameterError
            The trace has not that many devices, or it is no number of a device.
        """
        given: Any = index
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 0:
            raise ParameterError(
                "There is no such device in a fleet.",
                where="index",
                found=repr(index),
                expected="a whole number from 0",
            )
        if self._device is not None:
            return self._lines[self._device].capacity
        if index >= len(self.devices):
            raise ParameterError(
                f"The trace has {len(self.devices):,} devices, too few for this fleet.",
                where="index",
                found=f"device {index} of the fleet, counted from 0",
                expected=f"at most {len(self.devices):,} devices",
                remedy="make the fleet smaller, or let all replay one device: LinkReplay(…, device="
                f"{self.devices[0]!r})",
            )
        return self._lines[self.devices[int(index)]].capacity

    def describe(self) -> dict[str, Any]:
        """Return the parameters that results must state.

        Returns
        -------
        dict
            ``device, gap_s, offset_s`` as given (an infinite ``gap_s`` is None); ``devices``: for each that
            is replayed ``device, seconds, down_share, outages, longest_outage_s, recordings, cut_s`` (the
            last two of all its recordings, the others from the offset on; shares from 0 to 1); and ``seconds,
            down_share, outages`` of all of them together.
        """
        rows = [_described(name, line) for name, line in self._lines.items()]
        seconds = sum(row["seconds"] for row in rows)
        return {
            "source": "link replay",
            "device": self._device,
            "gap_s": self._gap_s if math.isfinite(self._gap_s) else None,
            "offset_s": self._offset_s,
            "devices": rows,
            "seconds": seconds,
            "down_share": sum(row["seconds"] * row["down_share"] for row in rows) / seconds,
            "outages": sum(row["outages"] for row in rows),
        }

    def _join(self, table: pa.Table, names: list[str]) -> list[_Line]:
        """Join the recordings of each named device."""
        table = table.sort_by([("device", "ascending"), ("ts", "ascending")]).combine_chunks()
        encoded = table["device"].combine_chunks().dictionary_encode()
        code = encoded.indices.to_numpy(zero_copy_only=False)
        first_of = dict(
            zip(encoded.dictionary.to_pylist(), np.flatnonzero(np.diff(code, prepend=-1)), strict=True)
        )
        count_of = dict(zip(encoded.dictionary.to_pylist(), np.bincount(code), strict=True))
        return [
            _line(name, table.slice(int(first_of[name]), int(count_of[name])), self._gap_s, self._offset_s)
            for name in names
        ]


def _line(name: str, rows: pa.Table, gap_s: float, offset_s: float) -> _Line:
    """Join the recordings of one device, whose rows are in order of time."""
    t_us = np.asarray(rows["ts"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(), np.int64)
    step_us = np.diff(t_us)
    if (step_us == 0).any():
        raise TraceContentError(
            f"The trace says twice what the link of {name} is like at one time.",
            where=f"links of {name}",
            found=f"{np.count_nonzero(step_us == 0):,} rows at the time of the row before",
            expected="one row of a device at a time",
            remedy="load the file with mudkit.trace.load_links, which sets such rows aside",
        )
    within = step_us <= gap_s * US_PER_S
    if not within.any():
        raise TraceContentError(
            f"Nothing says how long a row of {name} lasts.",
            where=f"links of {name}",
            found=f"{len(t_us):,} rows" + (f", all over {gap_s:g} s apart" if len(t_us) > 1 else ""),
            expected="at least two rows in one recording",
            remedy="raise gap_s" if len(t_us) > 1 else "leave the device out",
        )
    typical_us = int(np.median(step_us[within]))
    lasts_us = np.append(np.where(within, step_us, typical_us), typical_us)
    ends_us = np.cumsum(lasts_us)
    offset_us = round(offset_s * US_PER_S)
    if offset_us >= ends_us[-1]:
        raise ParameterError(
            f"The start is past the end of the recordings of {name}.",
            where="offset_s",
            found=f"{offset_s:g} s",
            expected=f"less than {ends_us[-1] / US_PER_S:g} s",
            remedy="start earlier, or replay a device with longer recordings (device=)",
        )
    values = [_measured(name, rows[column]) for column in _MEASURED]
    up = np.asarray(rows["up"].to_numpy(), dtype=np.bool_)
    first = int(np.searchsorted(ends_us, offset_us, side="right"))
    from_us = np.maximum(ends_us[first:] - lasts_us[first:] - offset_us, 0)
    pieces = [column[first:] for column in (up, *values)]
    same = np.logical_and.reduce([_equal(column[1:], column[:-1]) for column in pieces])
    new = np.append(True, ~same)
    arrays = [np.ascontiguousarray(column[new]) for column in (from_us, *pieces)]
    for array in arrays:
        array.flags.writeable = False
    capacity = Capacity(arrays[0], int(ends_us[-1] - offset_us), *arrays[1:])
    cut_us = int((step_us - lasts_us[:-1])[~within].sum())
    return _Line(capacity, 1 + int(np.count_nonzero(~within)), cut_us)


def _measured(name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return measured numbers, NaN where nothing was measured; TraceContentError for impossible ones."""
    values = np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    if (bad := (values < 0) | np.isinf(values)).any():
        raise TraceContentError(
            f"A link of {name} carries what no link can.",
            where=f"links of {name}",
            found=f"{values[bad][0]:g}",
            expected="numbers that are not negative and finite, or null",
            remedy="load the file with mudkit.trace.load_links, which sets such rows aside",
        )
    return values


def _equal(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where values are equal; NaN is equal to NaN."""
    return np.asarray((a == b) | ((a != a) & (b != b)), dtype=np.bool_)


def _described(name: str, line: _Line) -> dict[str, Any]:
    """Return the parameters of a device that results must state."""
    from_us, until_us, up = line.capacity[:3]
    first = np.flatnonzero(np.append(True, up[1:] != up[:-1]))
    lasts_s = np.diff(np.append(from_us[first], until_us)) / US_PER_S
    down_s = lasts_s[~up[first]]
    return {
        "device": name,
        "seconds": until_us / US_PER_S,
        "down_share": float(down_s.sum()) * US_PER_S / until_us,
        "outages": len(down_s),
        "longest_outage_s": float(down_s.max()) if len(down_s) else 0.0,
        "recordings": line.recordings,
        "cut_s": line.cut_us / US_PER_S,
    }


def _table(links: Any) -> pa.Table:
    """Return links as a table; an error of mudkit if they are none, or lack columns or values."""
    table = getattr(links, "links", links)
    if not isinstance(table, pa.Table):
        raise ParameterError(
            "These are no links.",
            where="links",
            found=type(links).__name__,
            expected="an Arrow table, or what mudkit.trace.load_links gives",
        )
    if missing := [name for name in _COLUMNS if name not in table.column_names]:
        raise ParameterError(
            "The table is not one of links.",
            where="links",
            found=", ".join(table.column_names),
            expected="a column for each of " + ", ".join(missing),
            remedy="use the links of a trace: mudkit.trace.load_links, or read_table(path, 'links')",
        )
    if not len(table):
        raise TraceContentError(
            "The trace holds no links.",
            where="links",
            found="no rows",
            expected="at least two rows",
            remedy="take a trace in which links were recorded",
        )
    for name in ("device", "ts", "up"):
        if table[name].null_count:
            raise TraceContentError(
                f"Links lack their {name}.",
                where=f"links, column {name}",
                found=f"{table[name].null_count:,} nulls",
                expected="a value in each row",
                remedy="load the file with mudkit.trace.load_links, which sets such rows aside",
            )
    return table


def _seconds(name: str, value: Any, *, least: float, most: float) -> float:
    """Return a number of seconds as float; ParameterError for other values, and out of range."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        expected = "seconds over 0" if least else f"seconds from 0 to {most:g}"
        raise unusable(name, value, expected)
    return float(value)
