"""File formats that can be loaded: recognition, and columns batch by batch."""

from mudkit.trace.formats._recognise import FORMATS, GZIP_FACTOR, Source, recognise
from mudkit.trace.formats.batch import Batch, Dialect, Malformed, unreadable
from mudkit.trace.formats.delimited import dialect_of, lines_of

__all__ = [
    "FORMATS",
    "GZIP_FACTOR",
    "Batch",
    "Dialect",
    "Malformed",
    "Source",
    "dialect_of",
    "lines_of",
    "recognise",
    "unreadable",
]
