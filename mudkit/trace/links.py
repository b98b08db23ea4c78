"""Load measurements of links: the times at which each was up, with throughput and latency."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.checks import check_arguments, time_zone, unusable
from mudkit.display import Displayed, View
from mudkit.errors import ParameterError, TraceFormatError
from mudkit.files import Place, PlaceLike, existing, sha256
from mudkit.trace.formats import UNPARSABLE, Source, dialect_of, unreadable
from mudkit.trace.options import Options
from mudkit.trace.parse import (
    EARLIEST_US,
    LATE,
    LATEST_US,
    malformed_rows,
    no_rows,
    refuse_mostly_bad,
)
from mudkit.trace.recordings import device_codes, order_recordings, row_durations, stretches
from mudkit.trace.schema import LINKS, REJECTED, epoch_us, rejected_by_reason, rejected_rows, timestamps
from mudkit.trace.times import NO_TIME, times_us
from mudkit.trace.values import booleans, numbers, raw_text
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

OUTAGE_KBPS = 100.0
"""Throughput below which nothing useful gets through; the data set's own README draws the line there."""

OUTAGE_S = 10.0
"""A shorter stretch below :data:`OUTAGE_KBPS` is a dip: the link stays up."""

RECORDING_GAP_S = 10.0
"""Rows of a device further apart than this belong to two recordings.

The driving measurements have a row each second: of the steps forward, 299,037 are 1 s, six are 2 s and three
are 4 or 5 s (lines that are missing), and all others are 14 s and more (another test).
"""

_FORMATS = ("driving-throughput", "csv", "parquet")

_NEGATIVE = "negative"

_DRIVING = ("network", "test", "time_local", "mbps")
_REQUIRED = ("device", "ts", "up")
_WITH_OFFSET = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d:\d\d$"
_MEASURED = ("down_kbps", "up_kbps", "latency_ms")


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class LoadedLinks(Displayed):
    """Links of devices over time, in memory.

    Attributes
    ----------
    links : pyarrow.Table
        Links with the schema :data:`mudkit.trace.schema.LINKS`, ordered by device and time, which are unique
        together.
    rejected : pyarrow.Table
        Rejected rows with the schema :data:`mudkit.trace.schema.REJECTED`.
    source : dict
        Provenance: file and all options of loading.
    """

    links: pa.Table
    rejected: pa.Table
    source: dict[str, Any] = field(default_factory=dict)

    def _view(self) -> View:
        facts = {
            "source": self.source.get("name"),
            "links": len(self.links),
            "rows set aside": len(self.rejected),
        }
        return View("LoadedLinks", facts, notes=["summary() and outages() say more."])

    def rejected_by_reason(self) -> dict[str, int]:
        """Return the number of rejected rows by reason, most frequent first."""
        return rejected_by_reason(self.rejected)

    def outages(self) -> pa.Table:
        """Return the periods in which a link was down.

        Returns
        -------
        pyarrow.Table
            ``device, ts, duration_s``, ordered by device and time. An outage ends with its recording at the
            latest: later times are unknown.
        """
        t_us, lasts_us, begins = self._timeline()
        down = ~np.asarray(self.links["up"].to_numpy(), dtype=np.bool_)
        first, total_us = stretches(down, begins, lasts_us)
        first, total_us = first[down[first]], total_us[down[first]]
        columns = {"device": self.links["device"].take(pa.array(first)), "ts": timestamps(t_us[first])}
        return pa.table(columns | {"duration_s": pa.array(total_us / US_PER_S)})

    def summary(self) -> pd.DataFrame:
        """Return a summary of the links: rows of ``what`` and ``value``, both text."""
        import pandas as pd  # loading it takes longer than loading all of mudkit

        t_us, lasts_us, begins = self._timeline()
        outages = self.outages()
        names = self.links["device"].unique().to_pylist()
        per_device = Counter(outages["device"].to_pylist())
        measured_s = lasts_us.sum() / US_PER_S
        down_s = float(pc.sum(outages["duration_s"]).as_py() or 0.0)
        rows = [("source", str(self.source.get("name", ""))), ("format", str(self.source.get("format", "")))]
        rows += [(name, f"{len(getattr(self, name)):,}") for name in ("links", "rejected")]
        rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in self.rejected_by_reason().items()]
        rows += [
            ("devices", f"{len(names):,}"),
            ("recordings", f"{np.count_nonzero(begins):,}"),
            ("first", str(np.datetime64(int(t_us.min()), "us").astype("datetime64[s]")) + " UTC"),
            ("last", str(np.datetime64(int(t_us.max()), "us").astype("datetime64[s]")) + " UTC"),
            ("time covered", f"{measured_s:,.0f} s"),
            ("share of time down", f"{down_s / measured_s:.3%}" if measured_s else "not known"),
            ("outages", f"{len(outages):,}"),
        ]
        if len(outages):
            rows += [("longest outage", f"{pc.max(outages['duration_s']).as_py():g} s")]
        if len(names) <= 20:  # more lines than that are no summary
            rows += [(f"outages: {name}", f"{per_device[name]:,}") for name in names]
        return pd.DataFrame(rows, columns=["what", "value"])

    def _timeline(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return times, how long each row lasts, and which rows begin a recording."""
        t_us = epoch_us(self.links["ts"])
        # Rows of a recorded state hold until the next one, however late that comes.
        gap_s = float(self.source.get("options", {}).get("recording_gap_s") or math.inf)
        return t_us, *row_durations(device_codes(self.links["device"]), t_us, gap_s)


@check_arguments(types=False)
def load_links(
    path: PlaceLike,
    format: str = "auto",  # noqa: A002
    *,
    tz: str = "America/Chicago",
    outage_kbps: float = OUTAGE_KBPS,
    outage_s: float = OUTAGE_S,
) -> LoadedLinks:
    """Load links into memory.

    Rows that cannot be read, hold negative values, are repeated or contradict the order of time are rejected
    with a reason. A file may hold the recordings of a device in any order. If two recordings of one
    device overlap in time, the first is kept whole and the other from its end on, so that two measurements
    are never mixed.

    Parameters
    ----------
    path : path-like
        A CSV file (also as ``.gz``) or Parquet file.
    format : str
        ``driving-throughput``: rows a second with ``network, test, time_local, mbps``, as made from Hu et
        al., "LEO Satellite vs. Cellular Networks", CoNEXT 2023. The device is network and test, for
        instance ``att-TCP``; ``down_kbps`` is 1000 times ``mbps``; the other two are null (not measured).
        ``csv``, ``parquet``: the columns ``device, ts, up`` and, where they were measured, ``down_kbps,
        up_kbps, latency_ms``. ``auto`` recognises them by their columns.
    tz : str
        Time zone (IANA name) of texts without one, also for abbreviations (CDT, CST). A text with an offset
        or Z needs no zone.
    outage_kbps, outage_s : float
        Only for ``driving-throughput``: the link is down in a stretch of at least ``outage_s`` seconds below
        ``outage_kbps`` kbit/s within one recording (:data:`RECORDING_GAP_S`). This is the definition of the
        data set's README. A very long outage may be a test that was stopped.

    Returns
    -------
    LoadedLinks

    Raises
    ------
    InputMissing
        The file does not exist.
    TraceFormatError
        The file is empty, of another format, lacks columns, or most of its rows cannot be read or
        contradict each other.
    TraceContentError
        The file holds no rows.
    ParameterError
        An option is invalid.
    """
    options = Options(tz=tz)  # checks the zone
    given: dict[str, Any] = {"outage_kbps": outage_kbps, "outage_s": outage_s}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise unusable(name, value, "a number over 0")
    source = _recognise(existing(path, "file of links"), format)
    driving = source.format == _FORMATS[0]
    if not driving and (outage_kbps, outage_s) != (OUTAGE_KBPS, OUTAGE_S):
        raise ParameterError(
            f"{source.path.name} says itself when a link is up.",
            where="outage_kbps, outage_s",
            found=f"{outage_kbps:g} kbit/s, {outage_s:g} s",
            expected="no such options: they are for driving-throughput only",
            remedy="leave them out",
        )
    good, bad = _parse_links(source, options)
    device, t_us = device_codes(good["device"]), np.asarray(good["t_us"].to_numpy(), dtype=np.int64)
    order = order_recordings(device, t_us, RECORDING_GAP_S)
    aside = good.take(pa.array(order.aside))
    again = rejected_rows(source.path.name, aside["row"], order.reasons, aside["raw"])
    expected = "one row at a time for a device"
    refuse_mostly_bad(source.path, len(good), again, expected, problem="contradict each other")
    kept = good.take(pa.array(order.kept))
    columns = {name: kept[name] for name in ("device", *_MEASURED)} | {"ts": timestamps(t_us[order.kept])}
    settings: dict[str, Any] = {"tz": tz}
    if driving:
        kbps = np.asarray(kept["down_kbps"].to_numpy(), dtype=np.float64)
        lasts_us, begins = row_durations(device[order.kept], t_us[order.kept], RECORDING_GAP_S)
        columns["up"] = pa.array(~_outage(kbps, lasts_us, begins, outage_kbps, outage_s))
        settings |= {"outage_kbps": float(outage_kbps), "outage_s": float(outage_s)}
        settings |= {"recording_gap_s": RECORDING_GAP_S}
    else:
        columns["up"] = kept["up"]
    unused = [c for c in source.columns if c not in (_DRIVING if driving else LINKS.names)]
    description: dict[str, Any] = {"name": source.path.name, "format": source.format}
    description |= {"sha256": sha256(source.path), "options": settings, "unused_columns": unused}
    links = pa.table({name: columns[name] for name in LINKS.names}).cast(LINKS)
    return LoadedLinks(links, pa.concat_tables([bad, again]).sort_by("row"), description)


def _recognise(path: Place, format: str) -> Source:  # noqa: A002
    """Return the format of a file; all its columns are read, so that a rejected row is complete."""
    if format not in ("auto", *_FORMATS):
        raise ParameterError(
            "There is no such format.",
            where="format",
            found=repr(format),
            expected="auto, " + ", ".join(_FORMATS),
        )
    if path.is_dir():
        raise TraceFormatError(
            f"{path} is a folder.",
            where=str(path),
            found="a folder",
            expected="one CSV or Parquet file",
            remedy="name the file itself; of a trace of mudkit, mudkit.trace.read_table(path, 'links')",
        )
    try:
        with path.open("rb") as handle:
            is_parquet = handle.read(4) == b"PAR1"
        if format == "parquet" and not is_parquet and path.stat().st_size:
            raise TraceFormatError(
                f"{path.name} is not a Parquet file.",
                where=str(path),
                found="other content",
                expected="parquet",
                remedy="leave format to 'auto'",
            )
        names = pq.read_schema(path).names if is_parquet else dialect_of(path).names
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error
    is_driving = set(_DRIVING) <= set(names)
    if format == "auto":
        format = _FORMATS[0] if is_driving and not is_parquet else "parquet" if is_parquet else "csv"  # noqa: A001
    if missing := [name for name in (_DRIVING if format == _FORMATS[0] else _REQUIRED) if name not in names]:
        raise TraceFormatError(
            f"{path.name} lacks columns.",
            where=str(path),
            found=", ".join(name[:40] for name in names[:20]),
            expected=f"a column for each of {', '.join(missing)}"
            + ("" if format == _FORMATS[0] else f"; or those of {_FORMATS[0]}: {', '.join(_DRIVING)}"),
            remedy="rename the columns, or name the right file",
        )
    return Source(path, format, {name: name for name in names})


def _parse_links(source: Source, options: Options) -> tuple[pa.Table, pa.Table]:
    """Parse a file; return the usable rows, in the order of the file, and the others."""
    reader = Source(source.path, "parquet" if source.format == "parquet" else "csv", source.columns)
    goods, bads = [], [REJECTED.empty_table()]
    for batch in reader.batches():
        try:
            parse = _parse_driving if source.format == _FORMATS[0] else _parse_states
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
        raw = raw_text(batch.columns, batch.delimiter)
        table = pa.table(columns | {"row": pa.array(batch.rows), "raw": raw})
        goods.append(table.filter(pa.array(keep)))
        name = source.path.name
        bads.append(rejected_rows(name, batch.rows[~keep], reason[~keep], raw.filter(pa.array(~keep))))
        bads.append(malformed_rows(batch))
    bad = pa.concat_tables(bads)
    count = len(bad) + sum(len(good) for good in goods)
    if not count:
        raise no_rows(source.path)
    refuse_mostly_bad(source.path, count, bad, "names, times and numbers that are not negative")
    return pa.concat_tables(goods), bad


def _parse_driving(columns: pa.Table, options: Options) -> tuple[dict[str, pa.Array], NDArray[np.str_]]:
    """Parse a file of driving tests; return columns, and for each row why it is rejected, or nothing."""
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
    """Parse a file of links' states; return columns, and for each row why it is rejected, or nothing."""
    device = pc.utf8_trim_whitespace(_text(columns["device"]))
    ts = columns["ts"].combine_chunks()
    with_offsets = _with_offsets(ts, options.tz) if pa.types.is_string(ts.type) else ts
    t_us = times_us(with_offsets, options.tz, options.time_unit)
    up = booleans(columns["up"].combine_chunks())
    parsed = {"device": device, "t_us": pa.array(t_us), "up": up}
    unparsable = _blank(device) | np.asarray(up.is_null().to_numpy(zero_copy_only=False))
    negative = np.zeros(len(columns), dtype=np.bool_)
    for name in _MEASURED:
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
    """Return why each row is rejected; an empty text: it is not."""
    late = (t_us < EARLIEST_US) | (t_us > LATEST_US)
    choices = [UNPARSABLE, LATE, _NEGATIVE]
    return np.select([unparsable | (t_us == NO_TIME), late, negative], choices, default="")


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array of texts."""
    return column.combine_chunks().cast(pa.string())


def _blank(text: pa.Array, also: list[str] | None = None) -> NDArray[np.bool_]:
    """Return a mask, True where a text is null, blank, or one of ``also``."""
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


def _outage(
    down_kbps: NDArray[np.float64],
    lasts_us: NDArray[np.int64],
    begins: NDArray[np.bool_],
    outage_kbps: float,
    outage_s: float,
) -> NDArray[np.bool_]:
    """Return a mask, True for the rows of stretches that are slow for long enough to be an outage."""
    low = down_kbps < outage_kbps
    first, total_us = stretches(low, begins, lasts_us)
    is_outage = low[first] & (total_us >= outage_s * US_PER_S)
    return np.repeat(is_outage, np.diff(np.append(first, len(low))))
