"""The trace of a report: its tables in memory, the rows that were set aside, and what distorts it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import trace as traces
from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.files import existing
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["TraceSource", "dominant", "open_source"]

MAX_ROWS: Final = 20_000_000
"""Rows, by the size of the file, up to which a trace is read whole; about 4 GB of memory at most."""
_ROW_BYTES: Final = 45
_UNPACKED: Final = {".gz": 6, ".parquet": 3}
_S_PER_DAY: Final = 86_400
_FEW_READS: Final = 200
_FEW_DEVICES: Final = 10
_HALF: Final = 0.5
_FEW_SHARE: Final = 0.125
_CLUSTER_S: Final = 60
_CLUSTER_SHARE: Final = 0.2
_ZONE_DEGREES: Final = 20.0
_ZONE_HOURS: Final = 2.5
_GAP_DAYS: Final = 7


@dataclass(frozen=True)
class TraceSource:
    """Positions and reads in memory.

    Attributes
    ----------
    name : str
        Name of the file.
    positions, reads : pyarrow.Table
        Tables with the schemas of :mod:`mudkit.trace.schema`; reads may be empty.
    rows : pandas.DataFrame
        ``what, rows``: how many rows were kept, and how many set aside by reason.
    tz : str
        Time zone of days and hours.
    devices_read : int
        Devices of the trace, if the tables hold a sample of them; 0: they hold all.
    """

    name: str
    positions: pa.Table
    reads: pa.Table
    rows: pd.DataFrame
    tz: str
    devices_read: int = 0

    def describe(self) -> str:
        """Return what was read in a line: file, devices, span, rows, rows set aside."""
        days = self.days()
        span = words.listing(dict.fromkeys(f"{day:%-d %B %Y}" for day in (days.index[0], days.index[-1])))
        aside = int(self.rows.loc[self.rows["what"].str.startswith("rejected"), "rows"].sum())
        parts = [
            self.name,
            words.count(pc.count_distinct(self.positions["device"]).as_py(), "device"),
            span.replace(", ", " to "),
            words.count(len(self.positions), "position"),
        ]
        if len(self.reads):
            derived = f", derived by {self.derived_by()}" if self.derived_by() else ""
            parts.append(f"{words.count(len(self.reads), 'read')}{derived}")
        if aside:
            parts.append(f"{words.count(aside, 'row')} set aside")
        return " · ".join(parts)

    def days(self) -> pd.DataFrame:
        """Count ``positions, reads, devices`` by day of local time; days without rows are absent."""
        return self._by_time("D")

    def hours(self) -> pd.DataFrame:
        """Count ``positions, reads, devices`` by hour of local time; hours without rows are absent."""
        return self._by_time("h")

    def warnings(self) -> list[str]:
        """Return a sentence for each property of the data that distorts what is measured on it."""
        return [
            *self._sample(),
            *self._dominance(),
            *self._gaps(),
            *self._clusters(),
            *self._zones(),
            *self._sizes(),
        ]

    def derived_by(self) -> str:
        """Return the rules by which reads were derived; empty if they were recorded."""
        origins = pc.unique(self.reads["origin"]).to_pylist()
        rules = [origin.removeprefix("derived: ") for origin in origins if origin.startswith("derived")]
        return words.listing(rules)

    def _by_time(self, unit: str) -> pd.DataFrame:
        import pandas as pd  # loading it takes longer than loading all of mudkit

        counts = {}
        for name, table in (("positions", self.positions), ("reads", self.reads)):
            counts[name] = self._local(table).dt.floor(unit).value_counts()
        start = self._local(self.positions).dt.floor(unit)
        counts["devices"] = self.positions["device"].to_pandas().groupby(start.to_numpy()).nunique()
        return pd.DataFrame(counts).fillna(0).astype(int).sort_index().rename_axis("start")

    def _local(self, table: pa.Table) -> pd.Series:
        local: pd.Series = table["ts"].to_pandas().dt.tz_convert(self.tz).dt.tz_localize(None)
        return local

    def _sample(self) -> Iterable[str]:
        if self.devices_read:
            devices = pc.count_distinct(self.positions["device"]).as_py()
            yield (
                f"The trace is large: this page is about a sample of {devices:,} of {self.devices_read:,} "
                "devices, drawn by a checksum of their names. With fewer devices, answers hold fewer points."
            )

    def _dominance(self) -> Iterable[str]:
        what, table = ("reads", self.reads) if len(self.reads) else ("positions", self.positions)
        days = self.days()[what]
        devices = table["device"].to_pandas().value_counts()
        for noun, counts in (("day", days), ("device", devices)):
            most = counts.sort_values(ascending=False)
            few, share = dominant(most.to_numpy())
            if few:
                named = sorted(most.index[:few]) if noun == "day" else most.index[:few]
                names = [f"{name:%-d %B %Y}" if noun == "day" else str(name) for name in named]
                yield (
                    f"{words.count(few, noun)} of {len(most)} {'holds' if few == 1 else 'hold'} "
                    f"{words.percent(share)} of the {what}: {words.listing(names, 3)}."
                )

    def _gaps(self) -> Iterable[str]:
        days = self.days().index
        if len(days) < 2:
            return
        steps = np.diff(days.to_numpy()).astype("timedelta64[D]").astype(int)
        if steps.max() > _GAP_DAYS:
            at = int(steps.argmax())
            yield (
                f"Rows lie on {words.count(len(days), 'day')} within "
                f"{words.count(int(steps.sum()) + 1, 'day')}; between {days[at]:%-d %B %Y} and "
                f"{days[at + 1]:%-d %B %Y} nothing was recorded."
            )

    def _clusters(self) -> Iterable[str]:
        if not len(self.reads) or not self.derived_by():
            return
        reads = self.reads.sort_by([("device", "ascending"), ("ts", "ascending")])
        device = reads["device"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        is_close = (np.diff(device) == 0) & (np.diff(epoch_us(reads["ts"])) <= _CLUSTER_S * US_PER_S)
        share = is_close.sum() / len(reads)
        if share > _CLUSTER_SHARE:
            yield (
                f"{words.percent(share)} of the derived reads follow another of the same device within a "
                "minute: people may not ask in such bursts."
            )

    def _zones(self) -> Iterable[str]:
        if not len(self.positions):
            return
        lon = self.positions["lon"].to_numpy()
        low, middle, high = np.percentile(lon, [1, 50, 99])
        if high - low > _ZONE_DEGREES:
            yield (
                f"Places span {words.count(max(round((high - low) / 15), 2), 'time zone')}, but all hours "
                f"are {self.tz}."
            )
            return
        import pandas as pd

        first = pd.Timestamp(pc.min(self.positions["ts"]).as_py())
        local = first.tz_convert(self.tz).tz_localize(None) - first.tz_localize(None)
        offset_h = local.total_seconds() / 3600
        if abs((offset_h - middle / 15 + 12) % 24 - 12) > _ZONE_HOURS:
            yield (f"Hours are {self.tz}, but the places lie near UTC{round(middle / 15):+d}: set `tz`.")

    def _sizes(self) -> Iterable[str]:
        if 0 < len(self.reads) < _FEW_READS:
            yield f"There are only {words.count(len(self.reads), 'read')}: shares are coarse."
        devices = pc.count_distinct((self.reads if len(self.reads) else self.positions)["device"]).as_py()
        if devices < _FEW_DEVICES:
            yield f"There {'is' if devices == 1 else 'are'} only {words.count(devices, 'device')}: " + (
                "nothing is known of others." if devices == 1 else "intervals over devices are ranges."
            )


def dominant(counts: NDArray[np.int64]) -> tuple[int, float]:
    """Return how few of some counts make up over half of all, and their share; (0, 0.0) if not few."""
    if len(counts) < 4 or not counts.sum():
        return 0, 0.0
    shares = np.cumsum(np.sort(counts)[::-1]) / counts.sum()
    few = int(np.searchsorted(shares, _HALF, side="right")) + 1
    share = float(shares[few - 1])
    is_few = few <= max(1, len(counts) * _FEW_SHARE) and share > 2.5 * few / len(counts)
    return (few, share) if is_few else (0, 0.0)


def open_source(
    trace: str,
    reads: str = "",
    *,
    format: str = "auto",  # noqa: A002
    columns: Mapping[str, str] | None = None,
    reads_columns: Mapping[str, str] | None = None,
    rule: str = "",
    needs_reads: bool = True,
    tz: str = "UTC",
    **options: Any,
) -> TraceSource:
    """Load the trace of a report; the parameters are those of the reports.

    Raises
    ------
    TraceContentError
        There is no read, or no read asks for the time of a position.
    InputMissing, TraceFormatError, ParameterError
        As :func:`mudkit.trace.load`.
    """
    import pandas as pd

    path = existing(trace, "trace")
    is_folder = path.is_dir() and traces.is_trace(path)
    how = {} if is_folder else {"tz": tz, **options}
    derived = "none" if reads or not needs_reads else rule or None
    how |= {"columns": dict(columns or {}), "rule": None if is_folder else derived}
    parts = -(-_estimated_rows(path) // MAX_ROWS)
    loaded, devices_read = (
        _load_sample(path, parts, format=format, **how)
        if parts > 1
        else (traces.load(path, format, **how), 0)
    )
    counts = [("positions", len(loaded.positions))]
    log = loaded.reads
    if reads:
        file = existing(reads, "file of reads")
        own = {} if file.is_dir() and traces.is_trace(file) else {"tz": tz, **options, "table": "reads"}
        of_reads = traces.load(file, columns=dict(reads_columns or {}), **own)
        log = of_reads.reads
        if devices_read:
            log = log.filter(pc.is_in(log["device"], pc.unique(loaded.positions["device"])))
        counts += [(f"rejected: {why}", n) for why, n in of_reads.rejected_by_reason().items()]
    counts += [(f"rejected: {why}", n) for why, n in loaded.rejected_by_reason().items()]
    if needs_reads:
        counts.insert(1, ("reads", len(log)))
        _check_reads(loaded.positions, log, reads or trace)
    rows = pd.DataFrame(counts, columns=["what", "rows"])
    return TraceSource(path.name, loaded.positions, log, rows, tz, devices_read)


def _estimated_rows(path: Path) -> int:
    """Estimate the rows of a file or folder from its size."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    sizes = (file.stat().st_size * _UNPACKED.get(file.suffix, 1) for file in files)
    return int(sum(sizes) / _ROW_BYTES)


def _load_sample(path: Path, parts: int, **how: Any) -> tuple[traces.Loaded, int]:
    """Load one of ``parts`` devices in bounded memory, and count all; the rejected rows are those of all."""
    tables: dict[str, list[pa.Table]] = {"positions": [], "reads": [], "rejected": []}
    with traces.scan(path, **how) as pieces:
        for piece in pieces:
            names = pc.unique(piece.positions["device"])
            is_kept = [zlib.crc32(name.encode()) % parts == 0 for name in names.to_pylist()]
            chosen = names.filter(pa.array(is_kept, pa.bool_()))
            for name in ("positions", "reads"):
                table = getattr(piece, name)
                tables[name].append(table.filter(pc.is_in(table["device"], chosen)))
            tables["rejected"].append(piece.rejected)
        if not sum(map(len, tables["positions"])):
            raise TraceContentError(
                "The trace is too large for the memory of a report, and has too few devices to sample.",
                where=path.name,
                found=words.count(pieces.devices, "device"),
                expected=f"about {MAX_ROWS:,} rows, or many devices",
                remedy="name a file of fewer days",
            )
        joined = {name: pa.concat_tables(parts) for name, parts in tables.items()}
        return traces.Loaded(**joined, source=pieces.source), pieces.devices


def _check_reads(positions: pa.Table, reads: pa.Table, where: str) -> None:
    if not len(reads):
        raise TraceContentError(
            "There is not one read in this trace.",
            where=str(where),
            found=words.count(len(positions), "position"),
            expected="reads: recorded ones, or at least one that the rule derives",
            remedy="give an access log (reads=…), another rule (rule=trip_start(still_s=300)), or more days",
        )
    if not len(positions):
        return
    t_us, of_reads = epoch_us(positions["ts"]), epoch_us(reads["ts"])
    window_us = (reads["window_s"].to_numpy() * US_PER_S).max()
    if of_reads.max() < t_us.min() or of_reads.min() - window_us > t_us.max():
        spans = (
            f"{what} of {np.datetime64(int(ts.min()), 'us').astype('datetime64[m]')} to "
            f"{np.datetime64(int(ts.max()), 'us').astype('datetime64[m]')} UTC"
            for what, ts in (("positions", t_us), ("reads", of_reads))
        )
        raise TraceContentError(
            "The positions and the reads never meet.",
            where=Path(where).name,
            found=" and ".join(spans),
            expected="reads that ask for times within the positions'",
            remedy="name files of the same period; check tz and time_unit",
        )
