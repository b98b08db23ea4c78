"""The one trace format: what a lab records and what a loader reads from a public data set."""

from mudkit.trace.folder import TraceWriter, read_manifest, read_table
from mudkit.trace.generate import generate
from mudkit.trace.load import load
from mudkit.trace.loaded import Loaded

__all__ = ["Loaded", "TraceWriter", "generate", "load", "read_manifest", "read_table"]
