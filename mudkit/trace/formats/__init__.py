"""File formats that can be loaded: recognition, and columns batch by batch."""

from mudkit.trace.formats._recognise import FORMATS, Source, recognise
from mudkit.trace.formats.batch import (
    FIELDS,
    NESTED,
    NOT_POSITIONS,
    UNCLOSED,
    UNPARSABLE,
    Batch,
    Dialect,
    Malformed,
    unreadable,
)
from mudkit.trace.formats.delimited import dialect_of, lines_of
from mudkit.trace.formats.packed import text_bytes

__all__ = [
    "FIELDS",
    "FORMATS",
    "NESTED",
    "NOT_POSITIONS",
    "UNCLOSED",
    "UNPARSABLE",
    "Batch",
    "Dialect",
    "Malformed",
    "Source",
    "dialect_of",
    "lines_of",
    "recognise",
    "text_bytes",
    "unreadable",
]
