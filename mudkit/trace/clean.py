"""From parsed rows to the tables of a trace: keep what can be true, set the rest aside, refuse nonsense.

A few implausible rows are set aside; when most rows are wrong in the same way, the file was read the wrong
way, and that is an error which says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.formats import Source
from mudkit.trace.parse import EXCHANGED, LATE, UNTIMED, Options, parse
from mudkit.trace.plausible import DUPLICATE, KEPT, TOO_FAST, judge
from mudkit.trace.schema import POSITIONS, READS, REJECTED, timestamps, with_read_ids
from mudkit.trace.values import TIME_UNITS

__all__ = ["Positions", "check_moves", "check_parsed", "check_plausible", "clean_positions", "clean_reads"]

_REASONS = {DUPLICATE: "duplicate", TOO_FAST: "speed over 70 m/s"}


class Positions(NamedTuple):
    """Positions that can be true, ordered by device and time; whether each has a fare; what was set aside."""

    table: pa.Table
    occupied: pa.Array | None
    rejected: pa.Table


def clean_positions(good: pa.Table) -> Positions:
    """Keep the rows that :func:`mudkit.trace.plausible.judge` keeps.

    The rows of a device are taken in the order of time: neither the order in which they come, nor the files'
    names, nor how rows are spread over files matters. A row that comes late is in its place, and none is set
    aside for it.

    Parameters
    ----------
    good : pyarrow.Table
        Parsed rows (:class:`mudkit.trace.parse.Parsed`) of whole devices, in any order.
    """
    codes = _codes(good["device"])
    t_us, lat, lon = (good[name].to_numpy() for name in ("t_us", "lat", "lon"))
    # Of rows that say the same of time and place one that says more is kept: an infinite value comes last.
    said = [name for name in ("speed_mps", "occupied") if name in good.column_names]
    judgement = judge(codes, t_us, lat, lon, [_or_infinite(good[name]) for name in said])
    kept = good.take(judgement.kept)
    table = pa.table(
        {
            "device": kept["device"],
            "ts": timestamps(kept["t_us"].to_numpy()),
            "lat": kept["lat"],
            "lon": kept["lon"],
            "speed_mps": _or_nulls(kept, "speed_mps", pa.float64()),
        }
    )
    by_device = pc.sort_indices(table, sort_keys=[("device", "ascending"), ("ts", "ascending")])
    occupied = kept["occupied"].combine_chunks().take(by_device) if "occupied" in kept.column_names else None
    aside = np.flatnonzero(judgement.verdict != KEPT)
    reasons = np.array([_REASONS.get(code, "") for code in range(TOO_FAST + 1)])[judgement.verdict[aside]]
    return Positions(table.take(by_device).cast(POSITIONS), occupied, _rejected(good, aside, reasons))


def clean_reads(good: pa.Table, options: Options) -> tuple[pa.Table, pa.Table]:
    """Order recorded reads by time; the same read twice is a duplicate, wherever it stands.

    Parameters
    ----------
    good : pyarrow.Table
        Parsed rows of whole devices.
    options : Options
        What a read asks for whose row does not say.

    Returns
    -------
    reads, rejected : pyarrow.Table
    """
    if not len(good):
        return READS.empty_table(), REJECTED.empty_table()
    columns = {name: good[name] for name in ("device", "lat", "lon")}
    for name, value in (("box_km", options.box_km), ("window_s", options.window_s)):
        given = good[name] if name in good.column_names else pa.nulls(len(good), pa.float64())
        columns[name] = pc.fill_null(given, value)
    columns["ts"] = timestamps(good["t_us"].to_numpy())
    columns["origin"] = pa.array(["recorded"] * len(good), pa.string())
    reads = with_read_ids(pa.table(columns))
    _, first = np.unique(reads["read_id"].to_numpy(), return_index=True)
    again = np.setdiff1d(np.arange(len(reads)), first)
    kept = reads.take(first).sort_by([(name, "ascending") for name in ("ts", "device", "read_id")])
    return kept, _rejected(good, again, np.full(len(again), "duplicate"))


def check_parsed(source: Source, options: Options, rows: int, bad: dict[str, int], sample: str) -> None:
    """Refuse a file most of whose rows could not be read.

    Parameters
    ----------
    source : Source
    options : Options
    rows : int
        Rows in the file.
    bad : dict
        Rows set aside by the parser, by reason.
    sample : str
        The first of them.

    Raises
    ------
    TraceContentError
        The file holds no rows.
    TraceFormatError
        Another time unit, exchanged coordinates, or something else that most rows share.
    """
    where = str(source.path)
    if not rows:
        raise TraceContentError(
            f"{source.path.name} holds no rows.",
            where=where,
            found="a header and nothing below it",
            expected="at least one row",
            remedy="get the file again",
        )
    if 2 * bad.get(UNTIMED, 0) > rows:
        raise TraceFormatError(
            f"Most rows of {source.path.name} have no time.",
            where=where,
            found=f"{bad[UNTIMED]:,} of {rows:,} rows",
            expected="a time for each position",
            remedy="export what was recorded: planned routes and places of interest have no times",
        )
    if 2 * bad.get(LATE, 0) > rows:
        raise _wrong_unit(source, options)
    if 2 * bad.get(EXCHANGED, 0) > rows:
        raise TraceFormatError(
            f"Latitude and longitude look exchanged in {source.path.name}.",
            where=where,
            found=f"{bad[EXCHANGED]:,} of {rows:,} rows are in range only the other way round; "
            f"lat is read from {source.columns.get('lat', 'the first column')!r}",
            expected="latitudes within ±90, longitudes within ±180",
            remedy="exchange the two in the column mapping",
        )
    if 2 * sum(bad.values()) > rows:
        raise TraceFormatError(
            f"Most rows of {source.path.name} cannot be read.",
            where=where,
            found=f"{sum(bad.values()):,} of {rows:,} rows; the first: {sample[:100]!r}",
            expected="in each row a device, a time (UNIX or ISO 8601) and a place in degrees (like 37.77)",
            remedy="check the column mapping and the format",
        )


def check_plausible(source: Source, rows: int, rejected: dict[str, int]) -> None:
    """Refuse a file most of whose positions contradict each other.

    Raises
    ------
    TraceFormatError
    """
    if 2 * sum(rejected.values()) > rows:
        most = max(rejected, key=lambda reason: rejected[reason])
        raise TraceFormatError(
            f"Most positions of {source.path.name} contradict each other.",
            where=str(source.path),
            found=f"{sum(rejected.values()):,} of {rows:,} rows set aside, {rejected[most]:,} as {most!r}",
            expected="devices that are at one place at a time, places in degrees",
            remedy="check which column is the device, and the time unit",
        )


def check_moves(source: Source, positions: int, devices: int, rejected: Mapping[str, int]) -> None:
    """Refuse positions of devices that report only once.

    Parameters
    ----------
    source : Source
    positions, devices : int
        How many were kept.
    rejected : mapping
        How many rows were set aside, by reason.

    Raises
    ------
    TraceContentError
    """
    if positions == devices:
        raise TraceContentError(
            f"No device in {source.path.name} has more than one position.",
            where=str(source.path),
            found=f"{_counted(positions, 'row')} of {_counted(devices, 'device')}"
            + "".join(f"; {_counted(n, 'row')} set aside: {why}" for why, n in rejected.items() if n),
            expected="devices that report again and again",
            remedy="check which column is the device; an access log is loaded with table='reads'",
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    whole = column.combine_chunks()
    coded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _or_infinite(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers or truths as numbers; what is not said is infinite."""
    number = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(pc.fill_null(number.cast(pa.float64()), np.inf).to_numpy(), dtype=np.float64)


def _or_nulls(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    return table[name] if name in table.column_names else pa.nulls(len(table), kind)


def _rejected(good: pa.Table, rows: NDArray[np.int64], reasons: NDArray[np.str_]) -> pa.Table:
    aside = good.take(rows)
    values = (aside["device"], timestamps(aside["t_us"].to_numpy()), aside["lat"], aside["lon"])
    raw = pc.binary_join_element_wise(*(pc.cast(column, pa.string()) for column in values), ",")
    columns = [aside["source"].cast(pa.string()), aside["row"], pa.array(reasons, pa.string()), raw]
    return pa.table(columns, schema=REJECTED)


def _wrong_unit(source: Source, options: Options) -> TraceFormatError:
    """Say in which unit the times would make sense."""
    batch = next(b for b in source.batches() if len(b.columns))
    fitting = [
        unit
        for unit in TIME_UNITS
        if len(parse(batch.columns, "", batch.rows, Options(options.table, options.tz, unit)).good)
    ]
    return TraceFormatError(
        f"The times in {source.path.name} are not in the unit {options.time_unit!r}.",
        where=str(source.path),
        found=f"{batch.columns['ts'][0].as_py()!r} in {source.columns.get('ts', 'the last column')!r}, "
        "before 1980 or after 2100 in that unit",
        expected="times since 1970 in " + (" or ".join(map(repr, fitting)) or ", ".join(TIME_UNITS)),
        remedy=f"say time_unit={fitting[0]!r}" if fitting else "check which column is the time",
    )
