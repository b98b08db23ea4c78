"""The tables of a trace as Arrow schemas: one format for what a lab records and what a loader reads.

All times are microseconds in UTC, all places degrees. A field is nullable only where its comment says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.checks import check_arguments

if TYPE_CHECKING:
    import pandas as pd

_TS = pa.timestamp("us", tz="UTC")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    """Return a field that is never null."""
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

FARES = pa.schema(
    [
        _required("device", pa.string()),
        _required("ts", _TS),
        _required("fare_s", pa.float64()),
        _required("fare_km", pa.float64()),
    ]
)
"""Fares of taxis, in memory only: a trace folder does not hold them."""

STOPS = pa.schema(
    [
        _required("device", pa.string()),
        _required("start_ts", _TS),
        _required("end_ts", _TS),
        _required("lat", pa.float64()),
        _required("lon", pa.float64()),
        _required("positions", pa.int64()),
        _required("duration_s", pa.float64()),
    ]
)
"""Stops of devices, computed from positions; like the three below, no table of a trace folder."""

_ENDS = [
    _required("device", pa.string()),
    _required("start_ts", _TS),
    _required("start_lat", pa.float64()),
    _required("start_lon", pa.float64()),
    _required("end_ts", _TS),
    _required("end_lat", pa.float64()),
    _required("end_lon", pa.float64()),
]

TRIPS = pa.schema(
    [
        *_ENDS,
        _required("positions", pa.int64()),
        _required("duration_s", pa.float64()),
        _required("distance_km", pa.float64()),
        pa.field("from_stop", pa.bool_()),  # null here and below: fares, whose ends are no stops
        pa.field("to_stop", pa.bool_()),
    ]
)

SPEEDS = pa.schema(
    [
        *_ENDS,
        _required("duration_s", pa.float64()),
        _required("distance_km", pa.float64()),
        _required("speed_mps", pa.float64()),
    ]
)

CELLS = pa.schema(
    [
        _required("zoom", pa.int32()),
        pa.field("x", pa.int32()),  # null, as lat and lon: rows without a possible place
        pa.field("y", pa.int32()),
        pa.field("bucket_ts", _TS),  # null: rows without a time
        pa.field("lat", pa.float64()),
        pa.field("lon", pa.float64()),
        _required("positions", pa.int64()),
        _required("devices", pa.int64()),
        pa.field("mean_speed_mps", pa.float64()),  # null: no position has a speed
        _required("reads", pa.int64()),
    ]
)

REJECTED = pa.schema(
    [
        _required("source", pa.string()),  # the file's name
        _required("row", pa.int64()),  # 1 is the first row of data
        _required("reason", pa.string()),
        pa.field("raw", pa.string()),  # the row as it came; null: it could not be read at all
        pa.field("device", pa.string()),  # null here and below: the row does not say it
        pa.field("ts", _TS),
        pa.field("lat", pa.float64()),
        pa.field("lon", pa.float64()),
    ]
)

LINKS = pa.schema(
    [
        _required("device", pa.string()),
        _required("ts", _TS),  # from here on, until the device's next row
        _required("up", pa.bool_()),
        pa.field("down_kbps", pa.float64()),  # null: not measured
        pa.field("up_kbps", pa.float64()),  # null: not measured
        pa.field("latency_ms", pa.float64()),  # one way; null: not measured
    ]
)

INCIDENTS = pa.schema(
    [
        _required("device", pa.string()),  # or a server
        _required("ts", _TS),
        _required("incident", pa.string()),  # link down, link up, killed, …, failed, dropped (a message)
        pa.field("detail", pa.string()),  # null: nothing to add
        pa.field("system", pa.string()),  # whose machine it was that failed or dropped; null: of the host
    ]
)

MESSAGES = pa.schema(
    [
        _required("system", pa.string()),
        _required("source", pa.string()),  # the device or server that sent it
        pa.field("target", pa.string()),  # the one that it was for; null: nobody is at the address
        _required("sent", _TS),
        pa.field("ended", _TS),  # when its fate was settled; null: it is under way
        _required("size_bytes", pa.int64()),
        _required("fate", pa.string()),  # one of FATES
        pa.field("kind", pa.string()),  # the message's field of that name; null: it has none
        pa.field("key", pa.string()),  # the same
        _required("content", pa.string()),  # its beginning
    ]
)

FATES = (
    "arrived",
    "cut",
    "no link",
    "nobody there",
    "lost",
    "not let in",
    "queue full",
    "repeated",
    "under way",
)
"""Fates of a message: *cut* in transit when a link broke, *no link* at sending, *lost* by a silent fault,
*not let in* by a device without a connection to the sender, *queue full* at a server with too much to do;
*repeated* is a second arrival."""

TRANSFERS = pa.schema(
    [
        _required("system", pa.string()),
        _required("device", pa.string()),
        _required("direction", pa.string()),  # 'up' or 'down'; of a short-range link 'near up' or 'near down'
        _required("begun", _TS),  # it came to the link
        _required("started", _TS),  # its first byte, after those before it and after the radio was open
        _required("ended", _TS),  # its last byte, or the cut
        _required("size_bytes", pa.int64()),
        _required("carried_bytes", pa.int64()),  # all, unless it was cut
        _required("cut", pa.bool_()),
    ]
)

OPERATIONS = pa.schema(
    [
        _required("client", pa.string()),  # a host; 'host/machine' of its second app of a system, and so on
        _required("session", pa.int64()),  # goes up when the client's machine is restarted
        _required("op_id", pa.int64()),
        _required("op", pa.string()),
        pa.field("table", pa.string()),  # null here and below: the operation has none
        pa.field("key", pa.string()),
        pa.field("type", pa.string()),  # of the read or write
        _required("invoked", _TS),
        pa.field("responded", _TS),  # null: never answered
        _required("status", pa.string()),  # 'ok', 'failed', or 'open'
        pa.field("version", pa.int64()),
        pa.field("value_hash", pa.string()),
    ]
)

DELIVERIES = pa.schema(
    [
        _required("system", pa.string()),
        _required("item", pa.string()),
        _required("receiver", pa.string()),
        _required("created", _TS),
        pa.field("delivered", _TS),
        pa.field("read", _TS),
        pa.field("expired", _TS),  # null: it does not expire
        pa.field("latency_s", pa.float64()),  # from created to delivered
        pa.field("staleness_s", pa.float64()),  # from created to read
        _required("status", pa.string()),  # one of STATUSES
    ]
)

STATUSES = ("read", "unread", "lost", "expired", "refused")
"""Statuses of a delivery: *unread* arrived and was not read, *lost* did not arrive by the end of the run,
*expired* was not read in time, *refused* was rejected deliberately."""

BILL = pa.schema(
    [
        _required("system", pa.string()),
        _required("device", pa.string()),
        _required("direction", pa.string()),  # as seen from the device; of a short-range link 'near up', …
        _required("messages", pa.int64()),
        _required("bytes", pa.int64()),
        _required("radio_mj", pa.float64()),
        _required("wakeups", pa.int64()),
    ]
)

USAGE = pa.schema(
    [
        _required("device", pa.string()),  # of a change the processor
        _required("app", pa.string()),  # of a change empty
        _required("ts", _TS),
        _required("table", pa.string()),
        _required("op", pa.string()),  # 'read', 'write', 'prefetch', 'register' (a continuous read), 'change'
        pa.field("query", pa.string()),  # of a read that was repeated; null: it has an area, or was not
        pa.field("box_km", pa.float64()),  # size of the area of a read; null here and below: it has none
        pa.field("window_s", pa.float64()),  # how far back the read asks
        pa.field("lat", pa.float64()),  # middle of the cell of its area, or of what was written
        pa.field("lon", pa.float64()),
        pa.field("source", pa.string()),  # 'local', 'remote' or 'offline'; null from here on: a write
        pa.field("age_s", pa.float64()),  # of the oldest record of the answer
        pa.field(
            "records", pa.int64()
        ),  # of a change how many records of the query; 0: it is watched from here
        pa.field("waited_s", pa.float64()),
    ]
)
"""Reads and writes that devices have reported, of apps that consent to it, and changes of answers (Mobius 6).

Changes are those of the queries that are read most, as processors have counted them.
"""

SCHEMAS = {
    "positions": POSITIONS,
    "reads": READS,
    "rejected": REJECTED,
    "links": LINKS,
    "incidents": INCIDENTS,
    "messages": MESSAGES,
    "transfers": TRANSFERS,
    "operations": OPERATIONS,
    "deliveries": DELIVERIES,
    "usage": USAGE,
    "bill": BILL,
}
"""Schemas of the tables of a trace folder, by name."""

TIMES = {
    "positions": "ts",
    "reads": "ts",
    "links": "ts",
    "incidents": "ts",
    "messages": "sent",
    "transfers": "begun",
    "operations": "invoked",
    "deliveries": "created",
    "usage": "ts",
}
"""The column that a table is partitioned and sorted by; the others are not partitioned."""


def rejected_rows(
    source: str, rows: Any, reasons: Any, raw: Any, fields: Mapping[str, pa.Array] | None = None
) -> pa.Table:
    """Build rejected rows of one file from their numbers, the reasons, and the original rows.

    ``fields`` has what the rows say of ``device, ts, lat, lon``.
    """
    known = {
        "source": pa.array([source] * len(rows), pa.string()),
        "row": rows,
        "reason": reasons,
        "raw": raw,
    }
    known |= fields or {}
    unknown = {field.name: pa.nulls(len(rows), field.type) for field in REJECTED if field.name not in known}
    return pa.table(known | unknown).select(REJECTED.names).cast(REJECTED)


def rejected_by_reason(rejected: pa.Table) -> dict[str, int]:
    """Return the number of rejected rows by reason, most frequent first."""
    return dict(Counter(rejected["reason"].to_pylist()).most_common())


@check_arguments(types=False)
def timestamps(t_us: NDArray[np.int64]) -> pa.Array:
    """Convert microseconds since 1970 (UTC) to the ``ts`` column.

    Parameters
    ----------
    t_us : ndarray of int64
        Microseconds since 1970 in UTC.
    """
    return pa.array(t_us, pa.int64()).cast(_TS)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table to a DataFrame that keeps integers and booleans.

    With nulls, pandas would convert them to floats, which cannot represent 64-bit ids.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    nullable: dict[pa.DataType, Any] = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = table.to_pandas()
    for field in table.schema:
        if field.nullable and field.type in nullable:
            frame[field.name] = nullable[field.type].__from_arrow__(table[field.name])
    return frame


def epoch_us(ts: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Convert a ``ts`` column to microseconds since 1970 (UTC)."""
    return np.asarray(ts.cast(_TS).cast(pa.int64()).to_numpy(), dtype=np.int64)


def read_ids(reads: pa.Table) -> NDArray[np.int64]:
    """Compute the ``read_id`` of each read.

    The id depends on device, time, place, box and window only, so the same read has the same id in every
    file, order and machine. It has 64 bits: among 10 million reads the chance that any two share one is
    about 3 in a million.
    """
    device = reads["device"].combine_chunks().dictionary_encode()
    names = device_ids(device.dictionary.to_pylist() or [""]).view(np.uint64)
    state = names[device.indices.to_numpy(zero_copy_only=False)]
    state = mix_bits(state ^ epoch_us(reads["ts"]).view(np.uint64))
    for name in ("lat", "lon", "box_km", "window_s"):
        values = np.asarray(reads[name].to_numpy(), dtype=np.float64) + 0.0  # -0.0 becomes 0.0
        state = mix_bits(state ^ values.view(np.uint64))
    return state.view(np.int64)


def device_ids(names: Sequence[str]) -> NDArray[np.int64]:
    """Compute an id of 64 bits of each device, by its name; the same on every machine."""
    return np.array([_text_hash(name) for name in names], dtype=np.uint64).view(np.int64)


def device_buckets(device: pa.ChunkedArray, buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each row, by the name of its device (null: that of an empty name).

    It is the same on every machine.
    """
    names = device.combine_chunks().dictionary_encode()
    of = device_ids([*names.dictionary.to_pylist(), ""]).view(np.uint64) % np.uint64(buckets)
    return np.asarray(of[names.indices.fill_null(len(names.dictionary)).to_numpy()], dtype=np.int64)


def device_order(names: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Return a random number of each device, by its name and a seed; the same on every machine.

    The devices with the smallest numbers are a sample, which does not depend on what is known of them.
    """
    mixed = device_ids(names).view(np.uint64) ^ mix_bits(np.array([seed % 2**64], dtype=np.uint64))
    return (mix_bits(mixed) >> np.uint64(1)).view(np.int64)


def with_read_ids(reads: pa.Table) -> pa.Table:
    """Prepend ``read_id`` to a table that has the other columns of :data:`READS`."""
    columns = {name: reads[name] for name in READS.names if name != "read_id"}
    return pa.table({"read_id": pa.array(read_ids(reads))} | columns).cast(READS)


def _text_hash(text: str) -> int:
    """Return the FNV-1a hash of a text, 64 bits: short, and the same in every process."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def mix_bits(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits by the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
