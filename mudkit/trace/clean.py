"""Cleaning of parsed rows: implausible rows are set aside, and reads are derived.

If most rows contradict each other, or no device moves, the file was read with wrong options, which is an
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.derive import derive_reads
from mudkit.trace.formats import Source
from mudkit.trace.movement import list_fares
from mudkit.trace.options import LoadPlan
from mudkit.trace.plausible import BESIDE, DUPLICATE, KEPT, NO_FIX, has_no_fix, judge, reason_of
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import FARES, POSITIONS, READS, REJECTED, timestamps, with_read_ids


class CleanTables(NamedTuple):
    """Cleaned tables, with the schemas of the trace; the devices of positions are a dictionary."""

    positions: pa.Table
    reads: pa.Table
    rejected: pa.Table
    fares: pa.Table = FARES.empty_table()


def clean(good: pa.Table, plan: LoadPlan) -> CleanTables:
    """Return the plausible rows of whole devices, with reads derived from positions.

    ``good`` has the columns of :class:`mudkit.trace.parse.Parsed`, in the order of the files.
    """
    if plan.options.table == "reads":
        return CleanTables(POSITIONS.empty_table(), *clean_reads(good, plan))
    positions, occupied, rejected = clean_positions(good)
    requests = {"box_km": plan.box_km, "window_s": plan.window_s}
    reads = derive_reads(positions, plan.rule, **requests, occupied=occupied)
    return CleanTables(positions, reads, rejected, list_fares(positions, occupied))


class Positions(NamedTuple):
    """Plausible positions, ordered by device and time; whether each has a fare; rejected rows."""

    table: pa.Table
    occupied: pa.Array | None
    rejected: pa.Table


def clean_positions(good: pa.Table) -> Positions:
    """Return the rows of whole devices that :func:`mudkit.trace.plausible.judge` keeps.

    Rows of a device are judged in the order of time: the order of rows and files does not matter, and a late
    row is not rejected.
    """
    codes = device_codes(good["device"])
    good, codes, lost = _with_fix(good, codes)
    t_us, lat, lon = (good[name].to_numpy() for name in ("t_us", "lat", "lon"))
    # Of rows with equal time and place the one with more values is kept: infinity sorts last.
    extra = [name for name in ("speed_mps", "occupied") if name in good.column_names]
    judgement = judge(codes, t_us, lat, lon, [_or_infinite(good[name]) for name in extra])
    rejected = pa.concat_tables([lost, _rejected(good, judgement.verdict)])
    rows = judgement.kept
    columns = {name: good[name].take(rows) for name in ("device", "lat", "lon")}
    columns["ts"] = timestamps(t_us[rows])
    columns["speed_mps"] = _or_nulls(good, "speed_mps", pa.float64()).take(rows)
    occupied = good["occupied"].take(rows).combine_chunks() if "occupied" in good.column_names else None
    columns["device"] = columns["device"].combine_chunks().dictionary_encode()
    device = POSITIONS.field("device").with_type(columns["device"].type)
    schema = POSITIONS.set(POSITIONS.get_field_index("device"), device)
    table = pa.table({name: columns[name] for name in POSITIONS.names}).cast(schema)
    return Positions(table, occupied, rejected)


def clean_reads(good: pa.Table, plan: LoadPlan) -> tuple[pa.Table, pa.Table]:
    """Return recorded reads ordered by time; duplicates, and reads without a place, as rejected rows."""
    good, _, lost = _with_fix(good, device_codes(good["device"]))
    if not len(good):
        return READS.empty_table(), lost
    columns = {name: good[name] for name in ("device", "lat", "lon")}
    for name, value in (("box_km", plan.box_km), ("window_s", plan.window_s)):
        given = good[name] if name in good.column_names else pa.nulls(len(good), pa.float64())
        columns[name] = pc.fill_null(given, value)
    columns["ts"] = timestamps(good["t_us"].to_numpy())
    columns["origin"] = pa.array(["recorded"] * len(good), pa.string())
    reads = with_read_ids(pa.table(columns))
    _, first = np.unique(reads["read_id"].to_numpy(), return_index=True)
    verdict = np.full(len(reads), DUPLICATE, dtype=np.int8)
    verdict[first] = KEPT
    kept = reads.take(first).sort_by([(name, "ascending") for name in ("ts", "device", "read_id")])
    return kept, pa.concat_tables([lost, _rejected(good, verdict)])


def _with_fix(good: pa.Table, codes: NDArray[np.int64]) -> tuple[pa.Table, NDArray[np.int64], pa.Table]:
    """Return the rows that have a place, with the numbers of their devices; the others as rejected rows."""
    is_lost = has_no_fix(codes, good["lat"].to_numpy(), good["lon"].to_numpy())
    if not is_lost.any():
        return good, codes, REJECTED.empty_table()
    verdict = np.where(is_lost, NO_FIX, KEPT).astype(np.int8)
    return good.filter(pa.array(~is_lost)), codes[~is_lost], _rejected(good, verdict)


def check_plausible(source: Source, rows: int, rejected: Mapping[str, int]) -> None:
    """Raise TraceContentError if most positions contradict each other.

    ``rejected`` counts the rows that cleaning set aside, by reason, out of ``rows`` parsed rows. A row that
    stands in the file again contradicts nothing, nor does one without a place, or one near by whose time is
    rounded to that of another.
    """
    harmless = {reason_of(verdict) for verdict in (DUPLICATE, BESIDE, NO_FIX)}
    against = {reason: count for reason, count in rejected.items() if reason not in harmless}
    rows -= sum(rejected.values()) - sum(against.values())
    if 2 * sum(against.values()) > rows:
        most = max(against, key=lambda reason: against[reason])
        raise TraceFormatError(
            f"Most positions of {source.path.name} contradict each other.",
            where=str(source.path),
            found=f"{sum(against.values()):,} of {rows:,} rows set aside, {against[most]:,} as {most!r}",
            expected="devices that are at one place at a time, places in degrees",
            remedy="check which column is the device, and the time unit",
        )


def check_moves(source: Source, positions: int, devices: int, rejected: Mapping[str, int]) -> None:
    """Raise TraceContentError if no device has more than one position.

    ``rejected`` counts the rows that parsing and cleaning set aside, by reason.
    """
    if positions == devices:
        column = source.columns.get("device")
        name_it = "name the one device: device='ann' (on the command line --device ann)"
        raise TraceContentError(
            f"No device in {source.path.name} has more than one position.",
            where=str(source.path),
            found=f"{_counted(positions, 'row')} of {_counted(devices, 'device')}"
            + "".join(f"; {_counted(n, 'row')} set aside: {why}" for why, n in rejected.items() if n),
            expected="devices that report again and again",
            remedy="check which column is the device"
            + (f"; if {column!r} numbers the rows of one device, {name_it}" if column else "")
            + "; an access log is loaded with table='reads'",
        )


def _counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _or_infinite(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return numbers or booleans as numbers; null is infinite."""
    number = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(pc.fill_null(number.cast(pa.float64()), np.inf).to_numpy(), dtype=np.float64)


def _or_nulls(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column, or nulls of a type where the table lacks it."""
    return table[name] if name in table.column_names else pa.nulls(len(table), kind)


def _rejected(good: pa.Table, verdict: NDArray[np.int8]) -> pa.Table:
    """Return the rows that are not kept as rejected rows."""
    rows = np.flatnonzero(verdict != KEPT)
    aside = good.take(rows)
    codes, place = np.unique(verdict[rows], return_inverse=True)
    reasons = np.array([reason_of(code) for code in codes.tolist()], dtype=np.str_)[place]
    values = (aside["device"], timestamps(aside["t_us"].to_numpy()), aside["lat"], aside["lon"])
    raw = pc.binary_join_element_wise(*(pc.cast(column, pa.string()) for column in values), ",")
    of_file = [aside["source"].cast(pa.string()), aside["row"], pa.array(reasons, pa.string()), raw]
    return pa.table([*of_file, values[0].cast(pa.string()), *values[1:]], schema=REJECTED)
