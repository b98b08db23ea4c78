"""Segments of large files, which tasks read side by side: lines of a text table, row groups of Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mudkit.files import Place, size_bytes
from mudkit.trace.formats.batch import Dialect
from mudkit.trace.formats.packed import is_packed, opened

_LOOK_BYTES = 1 << 16
_COUNT_BYTES = 1 << 20
ASCII_ENCODINGS = ("utf-8-sig", "cp1252")
"""Encodings in which ASCII is itself, and no byte of another character is a line end."""


@dataclass(frozen=True)
class Segment:
    """Rows of a file that one task reads.

    Attributes
    ----------
    file : Path or UPath
    begin, end : int or None
        Bytes of a text, or row groups of Parquet; None: the whole file.
    rows_before : int or None
        Number of rows of the file before these; None: not known yet.
    size_bytes : int
        Size as text, about; 0: that of the file.
    """

    file: Place
    begin: int | None = None
    end: int | None = None
    rows_before: int | None = 0
    size_bytes: int = 0


def split_lines(file: Place, dialect: Dialect, max_bytes: int) -> list[Segment]:
    """Return segments of whole lines of a text table; one, if it is packed, or lines do not end by a newline.

    Only the places where segments meet are read. A newline there may stand in quotation marks, which
    :func:`count_rows` finds.
    """
    size = size_bytes(file) or 0
    if dialect.encoding not in ASCII_ENCODINGS or dialect.delimiter == " " or is_packed(file):
        return [Segment(file)]
    edges = [0]
    with file.open("rb") as content:
        for nominal in range(max_bytes, size, max_bytes):
            at = max(nominal, edges[-1])
            content.seek(at)
            while (line_end := (look := content.read(_LOOK_BYTES)).find(b"\n")) < 0 and look:
                at += len(look)
            if not look or at + line_end + 1 >= size:
                break
            edges.append(at + line_end + 1)
    if len(edges) == 1:
        return [Segment(file)]
    edges.append(size)
    return [Segment(file, begin, end, None, end - begin) for begin, end in pairwise(edges)]


def first_lines(segment: Segment) -> Segment:
    """Return the beginning of a segment of a text table, of whole lines."""
    if segment.begin is None or segment.end is None:
        return segment
    with segment.file.open("rb") as content:
        content.seek(segment.begin)
        length = content.read(min(_LOOK_BYTES, segment.end - segment.begin)).rfind(b"\n") + 1
    return replace(segment, end=segment.begin + length) if length else segment


def split_groups(file: Place, columns: dict[str, str], max_bytes: int) -> list[Segment]:
    """Return segments of whole row groups of a Parquet file; only its metadata are read."""
    if (size_bytes(file) or 0) <= max_bytes or is_packed(file):
        return [Segment(file)]
    with file.open("rb") as content:
        metadata = pq.ParquetFile(content).metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        rows = [0, *accumulate(group.num_rows for group in groups)]
        before = [0, *accumulate(group.total_byte_size for group in groups)]
        of = np.array(before[:-1]) // max_bytes
    edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(groups)]
    return [
        Segment(file, begin, end, rows[begin], before[end] - before[begin]) for begin, end in pairwise(edges)
    ]


def count_rows(segment: Segment, dialect: Dialect) -> int | None:
    """Return the number of rows in a segment of a text table, empty lines being none.

    None if a row has a quotation mark, or a carriage return ends a line alone: it cannot be told what is a
    row without what stands before it.
    """
    rows, rest, above = 0, b"", 0 if segment.begin else dialect.above
    with opened(segment.file) as content:
        stream = stream_of(content, segment)
        while block := stream.read(_COUNT_BYTES):
            text = rest + block
            end = text.rfind(b"\n") + 1
            lines, rest = text[:end], text[end:]
            if b"\r" in lines:
                lines = lines.replace(b"\r\n", b"\n")
                if b"\r" in lines:
                    return None
            while above and lines:
                lines, above = lines[lines.index(b"\n") + 1 :], above - 1
            if b'"' in lines:
                return None
            is_end = np.frombuffer(lines, dtype=np.uint8) == ord("\n")
            rows += int(np.count_nonzero(is_end) - np.count_nonzero(is_end[1:] & is_end[:-1]))
            rows -= lines.startswith(b"\n")
    return None if b'"' in rest else rows + bool(rest.strip(b"\r"))


def stream_of(content: pa.NativeFile, segment: Segment) -> pa.NativeFile:
    """Return the part of an open text that a segment has."""
    if segment.begin is None or segment.end is None:
        return content
    return content.get_stream(segment.begin, segment.end - segment.begin)


def number_rows(segments: Sequence[Segment], counts: Sequence[int | None]) -> list[Segment]:
    """Return segments with the numbers of rows before them; a file one of which has no count is whole."""
    counted = dict(zip(segments, counts, strict=True))
    numbered: list[Segment] = []
    for file, group in groupby(segments, key=lambda segment: segment.file):
        of_file = list(group)
        rows = [counted[segment] for segment in of_file]
        known = [count for count in rows if count is not None]
        if len(known) < len(rows):
            numbered.append(Segment(file))
            continue
        before = accumulate([0, *known[:-1]])
        numbered += [replace(segment, rows_before=n) for segment, n in zip(of_file, before, strict=True)]
    return numbered
