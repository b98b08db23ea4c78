"""Everything on Spark: the session, and the jobs from DataFrame to DataFrame."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.pipeline._ingest import IngestReport, OpenTrace, ingest, open_trace
    from mudkit.pipeline._progress import progress
    from mudkit.pipeline._session import session, stop
    from mudkit.pipeline.counts import cells, intervals, propagation, rows_by_time
    from mudkit.pipeline.derived import join, speeds, stops, trips
    from mudkit.pipeline.executors import spread
    from mudkit.pipeline.jobs import JobReport, run_job
    from mudkit.pipeline.labels import label_reads, label_writes
    from mudkit.pipeline.mining import Mined, mine
    from mudkit.pipeline.outputs import Files, Table, write
    from mudkit.pipeline.patterns import Pattern
    from mudkit.pipeline.streaming import aggregate_stream, event_stream
    from mudkit.pipeline.tables import column, read
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Files",
    "IngestReport",
    "JobReport",
    "Mined",
    "OpenTrace",
    "Pattern",
    "Table",
    "aggregate_stream",
    "cells",
    "column",
    "event_stream",
    "ingest",
    "intervals",
    "join",
    "label_reads",
    "label_writes",
    "mine",
    "open_trace",
    "progress",
    "propagation",
    "read",
    "rows_by_time",
    "run_job",
    "session",
    "speeds",
    "spread",
    "stop",
    "stops",
    "trips",
    "write",
]
