"""File formats that can be loaded: recognition, and columns batch by batch."""

from mudkit.trace.formats._recognise import FORMATS, GZIP_FACTOR, Source, recognise
from mudkit.trace.formats.batch import NOT_POSITIONS, UNPARSABLE, Batch, Malformed, unreadable
from mudkit.trace.formats.delimited import header

__all__ = [
    "FORMATS",
    "GZIP_FACTOR",
    "NOT_POSITIONS",
    "UNPARSABLE",
    "Batch",
    "Malformed",
    "Source",
    "header",
    "recognise",
    "unreadable",
]
