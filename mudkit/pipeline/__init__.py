"""Everything on Spark: the session, and the jobs from DataFrame to DataFrame."""

from mudkit.pipeline.cells import cells
from mudkit.pipeline.column import column
from mudkit.pipeline.ingest import IngestReport, ingest
from mudkit.pipeline.labels import label_reads
from mudkit.pipeline.open import OpenTrace, open_trace
from mudkit.pipeline.profile import intervals, rows_by_time
from mudkit.pipeline.progress import progress
from mudkit.pipeline.session import session, stop
from mudkit.pipeline.tables import read, write

__all__ = [
    "IngestReport",
    "OpenTrace",
    "cells",
    "column",
    "ingest",
    "intervals",
    "label_reads",
    "open_trace",
    "progress",
    "read",
    "rows_by_time",
    "session",
    "stop",
    "write",
]
