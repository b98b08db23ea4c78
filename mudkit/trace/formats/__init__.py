"""File formats that can be loaded: recognition, and columns batch by batch."""

from mudkit.trace.formats._recognise import FORMATS, GZIP_FACTOR, Source, recognise
from mudkit.trace.formats.batch import (
    FIELDS,
    NOT_POSITIONS,
    UNPARSABLE,
    Batch,
    Dialect,
    Malformed,
    unreadable,
)
from mudkit.trace.formats.delimited import dialect_of, lines_of

__all__ = [
    "FIELDS",
    "FORMATS",
    "GZIP_FACTOR",
    "NOT_POSITIONS",
    "UNPARSABLE",
    "Batch",
    "Dialect",
    "Malformed",
    "Source",
    "dialect_of",
    "lines_of",
    "recognise",
    "unreadable",
]
