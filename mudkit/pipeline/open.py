"""Open whatever holds a trace: a file of a public format, a trace folder, and reads from a log beside it."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from mudkit.display import shows_fields
from mudkit.errors import TraceContentError
from mudkit.files import existing
from mudkit.pipeline._ingest import ingest
from mudkit.pipeline.tables import read
from mudkit.trace import read_manifest
from mudkit.trace.folder import is_trace, table_folder
from mudkit.trace.options import refuse_for_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OpenTrace", "check_they_meet", "open_trace"]


@shows_fields
@dataclass(frozen=True)
class OpenTrace:
    """A trace ready for the jobs.

    Attributes
    ----------
    positions, reads : DataFrame
        The tables, with the schemas of :mod:`mudkit.trace.schema`.
    rows : pandas.DataFrame
        ``source, what, rows``: how many rows each source had, how many were kept and how many set aside, by
        reason.
    positions_path, reads_path : Path
        The trace folders that hold them, for :func:`mudkit.pipeline.run_job`; the same one without a log.
    """

    positions: DataFrame
    reads: DataFrame
    rows: pd.DataFrame
    positions_path: Path
    reads_path: Path


def open_trace(
    spark: SparkSession,
    trace: str | os.PathLike[str],
    work: str | os.PathLike[str],
    *,
    reads: str | os.PathLike[str] = "",
    format: str = "auto",  # noqa: A002
    columns: dict[str, str] | None = None,
    reads_columns: dict[str, str] | None = None,
    rule: str | None = None,
    **options: Any,
) -> OpenTrace:
    """Open a trace, ingesting what is not a trace folder yet.

    Parameters
    ----------
    spark : SparkSession
    trace : path-like
        Positions: a file that :func:`mudkit.trace.load` reads, or a trace folder.
    work : path-like
        Folder for what has to be ingested.
    reads : path-like, optional
        Recorded reads: a file or a trace folder. Without it they are those of the trace folder, or derived.
    format, columns, rule
        How ``trace`` is to be understood, as for :func:`mudkit.pipeline.ingest`.
    reads_columns : dict, optional
        Column mapping of ``reads``.
    **options
        ``tz, time_unit, box_km, window_s`` of both, as for :func:`mudkit.pipeline.ingest`.

    Raises
    ------
    TraceContentError
        There is not one read, or no read asks for the time of a position.
    InputMissing, TraceFormatError, ParameterError
        As :func:`mudkit.pipeline.ingest`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    work = Path(work)
    places = {"positions": existing(trace, "trace")}
    if str(reads):
        places["reads"] = existing(reads, "file of reads")
        rule = "none"
    counts: list[tuple[str, str, int]] = []
    for table, place in places.items():
        folder = place
        if is_trace(place):
            if table == "reads" or not str(reads):
                sizes = {name: options.get(name) for name in ("box_km", "window_s")}
                refuse_for_folder(place, rule=None if table == "reads" else rule, **sizes)
        else:
            folder = work / table
            own = {"columns": columns, "rule": rule, "format": format}
            if table == "reads":
                own = {"columns": reads_columns}
            ingest(spark, place, folder, table=table, **own, **options)  # type: ignore[arg-type]
        places[table] = folder
        counts += _counts(folder, table, with_reads=not str(reads))
    rows = pd.DataFrame(counts, columns=["source", "what", "rows"])
    asked = places.get("reads", places["positions"])
    if not read_manifest(asked)["rows"].get("reads"):
        raise TraceContentError(
            "There is not one read in this trace.",
            where=str(reads or trace),
            found=", ".join(f"{n:,} {what}" for _, what, n in counts),
            expected="reads: recorded ones, or at least one that the rule derives",
            remedy="give an access log (reads=…), another rule (rule=trip_start(still_s=300)), or more days",
        )
    at = places["positions"]
    if asked != at:
        check_they_meet(at, asked)
    return OpenTrace(read(spark, at, "positions"), read(spark, asked, "reads"), rows, at, asked)


def check_they_meet(positions_path: Path, reads_path: Path) -> None:
    """Refuse reads of a trace folder none of which asks for the time of another's positions.

    Raises
    ------
    TraceContentError
    """
    positions, reads = _ends(positions_path, "positions"), _ends(reads_path, "reads")
    if positions is None or reads is None:
        return
    if reads[1] < positions[0] or reads[0] > positions[1]:
        spans = (
            f"{what} of {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
            for what, (first, last) in (("positions", positions), ("reads", reads))
        )
        raise TraceContentError(
            "The positions and the reads never meet.",
            where=f"{positions_path.name} and {reads_path.name}",
            found=" and ".join(spans),
            expected="reads that ask for times within the positions'",
            remedy="name files of the same period; check tz and time_unit",
        )


def _ends(trace: Path, table: str) -> tuple[dt.datetime, dt.datetime] | None:
    """Give the first and the last time that rows are about; of a read its window counts. None: no row."""
    folder = table_folder(trace, table)
    if folder is None:
        return None
    dates = sorted(folder.glob("date=*"))
    first, last = (ds.dataset(date, format="parquet") for date in (dates[0], dates[-1]))
    longest_s = 0.0
    if table == "reads":
        windows = ds.dataset(folder, format="parquet").to_table(columns=["window_s"])
        longest_s = pc.max(windows["window_s"]).as_py()
    begin = pc.min(first.to_table(columns=["ts"])["ts"]).as_py() - dt.timedelta(seconds=longest_s)
    return begin, pc.max(last.to_table(columns=["ts"])["ts"]).as_py()


def _counts(folder: Path, table: str, *, with_reads: bool) -> list[tuple[str, str, int]]:
    manifest = read_manifest(folder)
    name, rows = str(manifest.get("name", folder.name)), manifest["rows"]
    counts = [(name, table, int(rows.get(table, 0)))]
    if table == "positions" and with_reads:
        rule = manifest.get("options", {}).get("rule", "")
        counts.append((name, f"reads ({rule})" if rule else "reads", int(rows.get("reads", 0))))
    return counts + [(name, f"rejected: {reason}", n) for reason, n in manifest.get("rejected", {}).items()]
