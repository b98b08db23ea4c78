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
from mudkit.trace.formats.segments import Segment, number_rows

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
    "Segment",
    "Source",
    "TableSource",
    "dialect_of",
    "find",
    "lines_of",
    "number_rows",
    "recognise",
    "recognise_table",
    "unreadable",
]
