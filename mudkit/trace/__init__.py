"""The one trace format: what a lab records and what a loader reads from a public data set."""

from mudkit.trace._generate import generate
from mudkit.trace._load import load
from mudkit.trace._scan import Scan, scan
from mudkit.trace.folder import TraceWriter, read_manifest, read_table
from mudkit.trace.links import LoadedLinks, load_links
from mudkit.trace.loaded import Loaded
from mudkit.trace.phone_log import UnlockLog, load_unlocks

__all__ = [
    "Loaded",
    "LoadedLinks",
    "Scan",
    "TraceWriter",
    "UnlockLog",
    "generate",
    "load",
    "load_links",
    "load_unlocks",
    "read_manifest",
    "read_table",
    "scan",
]
