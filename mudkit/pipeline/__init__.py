"""Everything on Spark: the session, and the jobs from DataFrame to DataFrame."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.pipeline._cells import cells
    from mudkit.pipeline._column import column
    from mudkit.pipeline._ingest import IngestReport, ingest
    from mudkit.pipeline._progress import progress
    from mudkit.pipeline._propagation import propagation
    from mudkit.pipeline._session import session, stop
    from mudkit.pipeline._spread import spread
    from mudkit.pipeline.jobs import JobReport, run_job
    from mudkit.pipeline.labels import label_reads
    from mudkit.pipeline.open import OpenTrace, open_trace
    from mudkit.pipeline.profile import intervals, rows_by_time
    from mudkit.pipeline.streaming import aggregate_stream, event_stream
    from mudkit.pipeline.tables import read, write
    from mudkit.pipeline.writes import label_writes
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "IngestReport",
    "JobReport",
    "OpenTrace",
    "aggregate_stream",
    "cells",
    "column",
    "event_stream",
    "ingest",
    "intervals",
    "label_reads",
    "label_writes",
    "open_trace",
    "progress",
    "propagation",
    "read",
    "rows_by_time",
    "run_job",
    "session",
    "spread",
    "stop",
    "write",
]
