"""Parsing of a file of links: when each was up and what it carried; bad rows are set aside."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.sources.parameters import time_zone
from mudkit.trace.formats import Source
from mudkit.trace.options import Options
from mudkit.trace.parse import EARLIEST_US, LATE, LATEST_US, UNPARSABLE
from mudkit.trace.schema import REJECTED
from mudkit.trace.values import NO_TIME, booleans, numbers, raw_text, times_us

__all__ = ["DRIVING", "FORMATS", "MEASURED", "NEEDED", "parse_links", "refuse_mostly_bad", "rejected_rows"]

FORMATS = ("driving-throughput", "csv", "parquet")

NEGATIVE = "negative"

DRIVING = ("network", "test", "time_local", "mbps")
NEEDED = ("device", "ts", "up")
_WITH_OFFSET = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d:\d\d$"
MEASURED = ("down_kbps", "up_kbps", "latency_ms")


def parse_links(source: Source, options: Options) -> tuple[pa.Table, pa.Table]:
    """Parse a file; return the usable rows, in the order of the file, and the others."""
    reader = Source(source.path, "parquet" if source.format == "parquet" else "csv", source.columns)
    goods, bads = [], [REJECTED.empty_table()]
    for batch in reader.batches():
        try:
            parse = _parse_driving if source.format == FORMATS[0] else _parse_states
            columns, reason = parse(batch.columns, options)
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise TraceFormatError(
                f"The columns of {batch.source} are not what they should be.",
                where=str(source.path),
                found=", ".join(f"{f.name}: {f.type}" for f in batch.columns.schema),
                expected="names as text, times, and numbers",
                remedy="check the file",
            ) from error
        keep = reason == ""
        raw = raw_text(batch.columns)
        table = pa.table(columns | {"row": pa.array(batch.rows), "raw": raw})
        goods.append(table.filter(pa.array(keep)))
        bads.append(rejected_rows(source, batch.rows[~keep], reason[~keep], raw.filter(pa.array(~keep))))
        lines = batch.malformed
        reasons = [UNPARSABLE] * len(lines)
        bads.append(rejected_rows(source, [m.row for m in lines], reasons, [m.raw for m in lines]))
    bad = pa.concat_tables(bads)
    count = len(bad) + sum(len(good) for good in goods)
    if not count:
        raise TraceContentError(
            f"{source.path.name} holds no rows.",
            where=str(source.path),
            found="a header and nothing below it",
            expected="at least one row",
            remedy="get the file again",
        )
    refuse_mostly_bad(source, count, bad, "cannot be used", "names, times and numbers that are not negative")
    return pa.concat_tables(goods), bad


def _parse_driving(columns: pa.Table, options: Options) -> tuple[dict[str, pa.Array], NDArray[np.str_]]:
    network, test = (pc.utf8_trim_whitespace(_text(columns[name])) for name in ("network", "test"))
    mbps = numbers(columns["mbps"].combine_chunks())
    t_us = times_us(_with_offsets(_text(columns["time_local"]), options.tz), options.tz)
    unparsable = np.isnan(mbps) | _blank(network) | _blank(test)
    parsed = {
        "device": pc.binary_join_element_wise(network, test, "-"),
        "t_us": pa.array(t_us),
        "up": pa.nulls(len(columns), pa.bool_()),
        "down_kbps": pa.array(1000.0 * mbps, from_pandas=True),
        "up_kbps": pa.nulls(len(columns), pa.float64()),
        "latency_ms": pa.nulls(len(columns), pa.float64()),
    }
    return parsed, _reasons(t_us, unparsable, mbps < 0)


def _parse_states(columns: pa.Table, options: Options) -> tuple[dict[str, pa.Array], NDArray[np.str_]]:
    device = pc.utf8_trim_whitespace(_text(columns["device"]))
    ts = columns["ts"].combine_chunks()
    with_offsets = _with_offsets(ts, options.tz) if pa.types.is_string(ts.type) else ts
    t_us = times_us(with_offsets, options.tz, options.time_unit)
    up = booleans(columns["up"].combine_chunks())
    parsed = {"device": device, "t_us": pa.array(t_us), "up": up}
    unparsable = _blank(device) | np.asarray(up.is_null().to_numpy(zero_copy_only=False))
    negative = np.zeros(len(columns), dtype=np.bool_)
    for name in MEASURED:
        if name not in columns.column_names:
            parsed[name] = pa.nulls(len(columns), pa.float64())
            continue
        values = numbers(columns[name].combine_chunks())
        # An empty field is a value that was not measured; a text there is a mistake.
        unparsable |= np.isnan(values) & ~_blank(_text(columns[name]), also=["nan", "NaN", "null"])
        negative |= values < 0
        parsed[name] = pa.array(values, from_pandas=True)
    return parsed, _reasons(t_us, unparsable, negative)


def _reasons(
    t_us: NDArray[np.int64], unparsable: NDArray[np.bool_], negative: NDArray[np.bool_]
) -> NDArray[np.str_]:
    late = (t_us < EARLIEST_US) | (t_us > LATEST_US)
    choices = [UNPARSABLE, LATE, NEGATIVE]
    return np.select([unparsable | (t_us == NO_TIME), late, negative], choices, default="")


def _text(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())


def _blank(text: pa.Array, also: list[str] | None = None) -> NDArray[np.bool_]:
    empty = pc.is_in(pc.utf8_trim_whitespace(text), value_set=pa.array(["", *(also or [])], pa.string()))
    return np.asarray(pc.or_kleene(empty, text.is_null()).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _with_offsets(text: pa.Array, tz: str) -> pa.Array:
    """Replace abbreviations of a zone at the end of texts by offsets: ``… CDT`` by ``…-05:00``.

    Only abbreviations of ``tz`` itself are known: CST differs between Chicago and Shanghai. Texts with others
    remain unreadable. If all texts have offsets, they are returned as times.
    """
    zone = time_zone("tz", tz)
    for month in (1, 7):  # of this century: winter and summer
        moment = dt.datetime(2020, month, 1, tzinfo=zone)
        name, offset = moment.tzname() or "", moment.utcoffset() or dt.timedelta()
        if name.isalpha():
            minutes = round(offset.total_seconds() / 60)
            sign = "-" if minutes < 0 else "+"
            written = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
            text = pc.replace_substring_regex(text, pattern=rf"\s*\b{name}\s*$", replacement=written)
    if pc.all(pc.match_substring_regex(text, _WITH_OFFSET)).as_py():
        with suppress(pa.ArrowInvalid):  # a day that no month has: the parser finds the row
            return text.cast(pa.timestamp("us", tz="UTC"))  # ten times as fast as the parser
    return text


def rejected_rows(source: Source, rows: Any, reasons: Any, raw: Any) -> pa.Table:
    """Build rows of ``rejected`` from their numbers in the file, the reasons, and the original rows."""
    name = pa.array([source.path.name] * len(rows), pa.string())
    return pa.table([name, rows, reasons, raw], schema=REJECTED)


def refuse_mostly_bad(source: Source, rows: int, bad: pa.Table, what: str, expected: str) -> None:
    """Raise an error if more than half of the rows of a file were set aside."""
    if 2 * len(bad) <= rows:
        return
    reasons = Counter(bad["reason"].to_pylist()).most_common()
    raise TraceFormatError(
        f"Most rows of {source.path.name} {what}.",
        where=str(source.path),
        found=f"{len(bad):,} of {rows:,} rows: "
        + ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        + f"; the first: {str(bad['raw'][0])[:100]!r}",
        expected=expected,
        remedy="check the columns, the time zone and the order of the rows",
    )
