"""File formats that can be loaded: recognition, and columns batch by batch."""

from mudkit.trace.formats._recognise import FORMATS, Source, TableSource, recognise, recognise_table
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
from mudkit.trace.formats.given import Files, find

__all__ = [
    "FIELDS",
    "FORMATS",
    "NESTED",
    "NOT_POSITIONS",
    "UNCLOSED",
    "UNPARSABLE",
    "Batch",
    "Dialect",
    "Files",
    "Malformed",
    "Source",
    "TableSource",
    "dialect_of",
    "find",
    "lines_of",
    "recognise",
    "recognise_table",
    "unreadable",
]
