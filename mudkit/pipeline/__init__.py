"""Everything on Spark: the session, and the jobs from DataFrame to DataFrame."""

from mudkit.pipeline import streaming
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
from mudkit.pipeline.tables import read, write
from mudkit.pipeline.writes import label_writes

__all__ = [
    "IngestReport",
    "JobReport",
    "OpenTrace",
    "cells",
    "column",
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
    "streaming",
    "write",
]
