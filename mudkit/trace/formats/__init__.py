"""The file formats that can be loaded, how each is recognised, and its columns batch by batch."""

from mudkit.trace.formats._recognise import recognise
from mudkit.trace.formats.batch import Batch, Malformed
from mudkit.trace.formats.delimited import header
from mudkit.trace.formats.problems import unreadable
from mudkit.trace.formats.source import FORMATS, GZIP_FACTOR, Source

__all__ = ["FORMATS", "GZIP_FACTOR", "Batch", "Malformed", "Source", "header", "recognise", "unreadable"]
