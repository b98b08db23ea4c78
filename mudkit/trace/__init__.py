"""The one trace format: what a lab records and what a loader reads from a public data set."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.trace._generate import generate
    from mudkit.trace._load import load
    from mudkit.trace._scan import Scan, scan
    from mudkit.trace.areas import join
    from mudkit.trace.folder import TraceWriter, is_trace, read_manifest, read_table
    from mudkit.trace.links import LoadedLinks, load_links
    from mudkit.trace.loaded import Loaded
    from mudkit.trace.movement import speeds, stops, trips
    from mudkit.trace.options import Options
    from mudkit.trace.phone_log import UnlockLog, load_unlocks
    from mudkit.trace.schema import LINKS, timestamps
    from mudkit.trace.tiles import cells
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "LINKS",
    "Loaded",
    "LoadedLinks",
    "Options",
    "Scan",
    "TraceWriter",
    "UnlockLog",
    "cells",
    "generate",
    "is_trace",
    "join",
    "load",
    "load_links",
    "load_unlocks",
    "read_manifest",
    "read_table",
    "scan",
    "speeds",
    "stops",
    "timestamps",
    "trips",
]
