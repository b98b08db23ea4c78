"""The tables of a trace as Arrow schemas: one format for what a lab records and what a loader reads.

All times are microseconds in UTC, all places degrees. A field is nullable only where its comment says so.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "POSITIONS",
    "READS",
    "REJECTED",
    "SCHEMAS",
    "device_buckets",
    "epoch_us",
    "read_ids",
    "timestamps",
    "with_read_ids",
]

_TS = pa.timestamp("us", tz="UTC")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


POSITIONS = pa.schema(
    [
        _required("device", pa.string()),
        _required("ts", _TS),
        _required("lat", pa.float64()),
        _required("lon", pa.float64()),
        pa.field("speed_mps", pa.float64()),  # null: the source does not say
    ]
)

READS = pa.schema(
    [
        _required("read_id", pa.int64()),  # stable: a function of what the read asks, see read_ids
        _required("device", pa.string()),
        _required("ts", _TS),
        _required("lat", pa.float64()),
        _required("lon", pa.float64()),
        _required("box_km", pa.float64()),
        _required("window_s", pa.float64()),
        _required("origin", pa.string()),  # 'recorded' or 'derived: <rule>'
    ]
)

REJECTED = pa.schema(
    [
        _required("source", pa.string()),  # the file's name
        _required("row", pa.int64()),  # 1 is the first row of data
        _required("reason", pa.string()),
        pa.field("raw", pa.string()),  # the row as it came; null: it could not be read at all
    ]
)

SCHEMAS = {"positions": POSITIONS, "reads": READS, "rejected": REJECTED}
"""What a trace folder may hold, by the name of the table."""


def timestamps(t_us: NDArray[np.int64]) -> pa.Array:
    """Turn microseconds since 1970 (UTC) into the ``ts`` column."""
    return pa.array(t_us, pa.int64()).cast(_TS)


def epoch_us(ts: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Turn a ``ts`` column into microseconds since 1970 (UTC)."""
    return np.asarray(ts.cast(_TS).cast(pa.int64()).to_numpy(), dtype=np.int64)


def read_ids(reads: pa.Table) -> NDArray[np.int64]:
    """Compute the ``read_id`` of each read.

    The id depends on device, time, place, box and window only, so the same read has the same id in every
    file, order and machine. It has 64 bits: among 10 million reads the chance that any two share one is
    about 3 in a million.

    Parameters
    ----------
    reads : pyarrow.Table
        With ``device, ts, lat, lon, box_km, window_s``.
    """
    device = reads["device"].combine_chunks().dictionary_encode()
    names = np.array([_text_hash(name) for name in device.dictionary.to_pylist()] or [0], dtype=np.uint64)
    state = names[device.indices.to_numpy(zero_copy_only=False)]
    state = _mix(state ^ epoch_us(reads["ts"]).view(np.uint64))
    for name in ("lat", "lon", "box_km", "window_s"):
        values = np.asarray(reads[name].to_numpy(), dtype=np.float64) + 0.0  # -0.0 becomes 0.0
        state = _mix(state ^ values.view(np.uint64))
    return state.view(np.int64)


def device_buckets(device: pa.ChunkedArray, buckets: int) -> NDArray[np.int64]:
    """Assign each device to one of so many buckets, the same everywhere.

    Parameters
    ----------
    device : pyarrow.ChunkedArray of string
    buckets : int

    Returns
    -------
    ndarray of int64
        A number below ``buckets`` for each row.
    """
    names = device.combine_chunks().dictionary_encode()
    of = np.array([_text_hash(name) % buckets for name in names.dictionary.to_pylist()] or [0], np.int64)
    return np.asarray(of[names.indices.to_numpy(zero_copy_only=False)], dtype=np.int64)


def with_read_ids(reads: pa.Table) -> pa.Table:
    """Put ``read_id`` in front of a table that has the other columns of :data:`READS`."""
    columns = {name: reads[name] for name in READS.names if name != "read_id"}
    return pa.table({"read_id": pa.array(read_ids(reads))} | columns).cast(READS)


def _text_hash(text: str) -> int:
    """FNV-1a, 64 bits: short, and the same in every process."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits well: the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
