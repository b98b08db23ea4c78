"""Readers of text tables, with or without a header."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from mudkit.errors import TraceFormatError
from mudkit.files import Place, size_bytes
from mudkit.trace.formats.batch import (
    FIELDS,
    HEAD_BYTES,
    UNCLOSED,
    Batch,
    Dialect,
    Malformed,
    empty,
    other_format,
)
from mudkit.trace.formats.columns import has_places, is_place, place_name
from mudkit.trace.formats.packed import opened, peek
from mudkit.trace.formats.segments import ASCII_ENCODINGS, Segment, count_rows, split_lines, stream_of

_BLOCK_BYTES = 16 << 20
_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(r'"?sep=(\\t|[^\w"])"?', re.IGNORECASE)
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s*")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")
_LINES_LOOKED_AT = 30
_ASCII_END = 128
_LINE_END = re.compile(rb"\r\n|\r|\n")
_INSIDE = r'[^"\r\n]*+(?:""[^"\r\n]*+)*+'
_CLOSING = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
_MAX_QUOTED_LINES = 1000
_BREAK, _OPEN = "\x1e", "\x1f"
"""Control characters for a line end in a quoted text, and for a row whose quotation mark is not closed."""


def dialect_of(file: Place, mapped: Collection[str] = (), *, head: bytes | None = None) -> Dialect:
    """Return the form of a table, from the beginning of its content (``head``, if it was read already).

    The separator is the one that divides most lines into the same number of fields, outside quotation marks.
    The header is the first line with the names of a latitude and a longitude, or with all ``mapped`` names;
    without one, the first line of several fields. Titles, comments (``#``), and ``sep=;`` may precede it.
    Empty fields at the end of all rows get empty names. If the ``mapped`` names are places
    (:func:`~mudkit.trace.formats.columns.place_name`), the table has no header.

    Raises
    ------
    TraceFormatError
        The content is not text, or a row is in place of the header.
    """
    head = peek(file) if head is None else head
    encoding = encoding_of(head)
    text = head.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    all_lines = text.split("\n")
    if len(head) >= HEAD_BYTES and len(all_lines) > 1:
        all_lines.pop()  # it is cut
    numbered = ((number, line) for number, line in enumerate(all_lines, start=1) if line.strip())
    lines = list(islice(numbered, _LINES_LOOKED_AT))
    if not lines:
        raise empty(file)
    _refuse_binary(file, head, lines[0][1])
    named = _SEPARATOR_LINE.fullmatch(lines[0][1].strip())
    if named:
        lines = lines[1:] or lines
    delimiter = named[1].replace("\\t", "\t") if named else _delimiter([line for _, line in lines])
    rows = [_split(line, delimiter) for _, line in lines]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    is_headerless = bool(mapped) and all(map(is_place, mapped))
    at = _header_place(rows, width, () if is_headerless else mapped)
    if is_headerless and not (at is not None and set(mapped) <= set(_names(rows[at]))):
        names = [place_name(i + 1) for i in range(width)]
        at = next((i for i, row in enumerate(rows) if len(row) == width or not row[0].startswith("#")), 0)
        above = lines[at][0] - 1
    elif at is None:
        raise _no_header(
            file, next(line for (_, line), row in zip(lines, rows, strict=True) if _is_row(row, width))
        )
    else:
        _refuse_binary(file, head, lines[at][1])
        names, above = _fitted(rows[at], rows[at + 1 :]), lines[at][0]
    is_padded = (
        delimiter != " "
        and '"' in text
        and re.search(rf'(^|{re.escape(delimiter)}) +"', text, re.MULTILINE) is not None
    )
    return Dialect(_unique(names), delimiter, above, encoding, padded=is_padded)


def encoding_of(head: bytes) -> str:
    """Return UTF-16 with or without a byte-order mark, Windows-1252 by the first line, or UTF-8."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for name, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if not others.count(0) and 2 * zeros.count(0) > len(zeros):
            return name
    return "cp1252" if _is_windows(head) else "utf-8-sig"


def _is_windows(head: bytes) -> bool:
    """Return whether the first line of a text, its header, is no UTF-8 but may be Windows-1252."""
    if _CONTROL.search(head):
        return False
    line = re.sub(rb"(?i)^sep=.\r?\n", b"", head.lstrip()).split(b"\n", 1)[0]
    try:
        line.decode()
    except UnicodeDecodeError:
        try:
            line.decode("cp1252")
        except UnicodeDecodeError:
            return False
        return True
    return False


def _refuse_binary(file: Place, head: bytes, line: str) -> None:
    """Raise TraceFormatError if a file's first line is no text."""
    if "\0" in line or "\ufffd" in line or not (line.isprintable() or "\t" in line):
        raise other_format(file, "text, for instance CSV", head=head)


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line, without blanks around them."""
    line = line.strip() if delimiter == " " else line
    if '"' not in line and delimiter != " ":
        return list(map(str.strip, line.split(delimiter)))
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


def _delimiter(lines: list[str]) -> str:
    """Return the separator on which most lines agree; a blank only if each line has one and no other fits."""

    def agreement(delimiter: str) -> tuple[int, int, int]:
        """Return the number of lines of the most frequent width, this width, and the number of numbers."""
        rows = [_split(line, delimiter) for line in lines if delimiter in line]
        widths = Counter(len(row) for row in rows if len(row) > 1)
        width, count = max(widths.items(), key=lambda item: item[::-1], default=(0, 0))
        return count, width, sum(bool(_NUMBER.fullmatch(field)) for row in rows for field in row)

    agreements = {delimiter: agreement(delimiter) for delimiter in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda delimiter: agreements[delimiter])
    if agreements[delimiter][0] or not all(" " in line.strip() for line in lines if line.strip()):
        return delimiter
    return " "  # in each line: times and names have blanks, too


def _header_place(rows: list[list[str]], width: int, mapped: Collection[str]) -> int | None:
    """Return the index of the header among the first lines; None if a row is in its place."""
    above = next((i for i, row in enumerate(rows) if _is_row(row, width)), len(rows))
    for i, row in enumerate(rows[: above + 1]):
        if (mapped and set(mapped) <= set(_unique(_names(row)))) or (i < above and has_places(row)):
            return i
    several = (i for i, row in enumerate(rows) if not row[0].startswith("#") and (len(row) > 1 or width == 1))
    first = next(several, 0)
    return None if first == above else first


def _is_row(fields: list[str], width: int) -> bool:
    """Return whether fields are those of a row: two of them are numbers, or all."""
    numbers = sum(bool(_NUMBER.fullmatch(field)) for field in fields)
    return len(fields) == width and numbers >= min(2, width)


def _names(fields: list[str]) -> list[str]:
    """Return the fields of a header, which may begin like a comment."""
    return [fields[0].lstrip("# "), *fields[1:]]


def _fitted(fields: list[str], rows: list[list[str]]) -> list[str]:
    """Return the names of a header, fitted to rows that have more empty fields at the end, or fewer."""
    names = _names(fields)
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else len(names)
    if not any(names[width:]) and not any(any(row[len(names) :]) for row in rows if len(row) == width):
        return [*names[:width], *[""] * (width - len(names))]
    return names


def _unique(names: list[str]) -> list[str]:
    """Return names of which the second and later of equal ones have their place added."""
    return [f"{name} ({i})" if name in names[:i] else name for i, name in enumerate(names)]


def _no_header(file: Place, line: str) -> TraceFormatError:
    """Return the error for a table whose first line is a row."""
    return TraceFormatError(
        f"{file.name} has no header.",
        where=str(file),
        found=f"a row in its place: {line[:100]!r}",
        expected="a first line with the names of the columns",
        remedy="write one; columns of a trace can be named by place: header=False, columns={'device': 1, "
        "'ts': 2, 'lat': 3, 'lon': 4} (on the command line --no-header --column device=1 and so on)",
    )


def read_delimited(file: Place, columns: dict[str, str], part: Segment | None = None) -> Iterator[Batch]:
    """Read a text table, also compressed, or a part; ``columns`` maps mudkit's names to the file's."""
    yield from _read(part or Segment(file), dialect_of(file, columns.values()), columns)


def split_delimited(file: Place, columns: dict[str, str], max_bytes: int) -> list[Segment]:
    """Return segments of a text table: :func:`mudkit.trace.formats.segments.split_lines`."""
    if (size_bytes(file) or 0) <= max_bytes:
        return [Segment(file)]
    return split_lines(file, dialect_of(file, columns.values()), max_bytes)


def count_delimited(part: Segment, columns: dict[str, str]) -> int | None:
    """Return the number of rows of a segment; None as :func:`mudkit.trace.formats.segments.count_rows`."""
    return count_rows(part, dialect_of(part.file, columns.values()))


def read_lines(
    file: Place,
    names: list[str],
    delimiter: str,
    *,
    columns: dict[str, str] | None = None,
    above: int = 0,
    encoding: str = "utf-8-sig",
) -> Iterator[Batch]:
    """Read lines of fields as texts, without quotation marks.

    ``names`` are those of all columns of the file, ``columns`` selects and renames them, ``above`` is the
    number of lines above the first row.
    """
    dialect = Dialect(names, delimiter, above, encoding, quoted=False)
    yield from _read(Segment(file), dialect, columns or {name: name for name in names})


def _read(part: Segment, dialect: Dialect, columns: dict[str, str]) -> Iterator[Batch]:
    """Read a table, or a segment of it, in batches; malformed lines are set aside in the batch."""
    malformed: list[Malformed] = []
    before = part.rows_before or 0
    if part.begin:
        dialect = replace(dialect, above=0)

    def set_aside(row: pa_csv.InvalidRow) -> str:
        text, is_open = _unmarked(row.text)
        reason = UNCLOSED if is_open else FIELDS
        malformed.append(Malformed(int(row.number) - dialect.above + before, text, reason))
        return "skip"

    with _text(part, dialect) as text:
        if dialect.delimiter == " ":
            text = pa.lib.TransformInputStream(text, _SingleBlanks())
        if dialect.quoted and part.begin is None:  # a segment has no quotation marks (count_rows)
            text = pa.lib.TransformInputStream(text, _RowLines(dialect))
        reader = pa_csv.open_csv(
            text,
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES,
                use_threads=False,
                column_names=dialect.names,
                skip_rows=dialect.above,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char='"' if dialect.quoted else False,
                invalid_row_handler=set_aside,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(columns.values())),
                column_types=dict.fromkeys(dialect.names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        in_order = sorted(columns, key=lambda name: dialect.names.index(columns[name]))
        yield from _numbered(reader, part, {name: columns[name] for name in in_order}, dialect, malformed)


@contextmanager
def _text(part: Segment, dialect: Dialect) -> Iterator[pa.NativeFile]:
    """Open a text as UTF-8: other bytes would not come through to the handler of malformed rows."""
    with opened(part.file) as content:
        yield pa.lib.TransformInputStream(stream_of(content, part), _Utf8(dialect.encoding))


class _Utf8:
    """Filter of a stream of text in an encoding: it becomes UTF-8; what is ASCII passes as it is."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._has_ascii = encoding in ASCII_ENCODINGS

    def __call__(self, chunk: pa.Buffer) -> pa.Buffer | bytes:
        """Return the complete characters; an empty chunk is the end of the stream."""
        is_ascii = self._has_ascii and len(chunk) > 0 and np.frombuffer(chunk, np.uint8).max() < _ASCII_END
        if is_ascii and not self._decoder.getstate()[0]:
            self._decoder.setstate((b"", 0))  # no byte-order mark is to be expected any more
            return chunk
        return self._decoder.decode(bytes(chunk), final=not len(chunk)).encode()


class _RowLines:
    """Filter of a stream of UTF-8 text: each row becomes one line.

    Line ends in quoted texts become blanks, and blanks between a separator and a quotation mark are removed.
    A quotation mark is not closed if a line below it has as many fields as a row, if its text has no end, or
    if no separator follows the end. Its row becomes one field (:func:`_unmarked`), which the reader of fields
    sets aside. If ``is_raw``, blanks remain, and line ends become :data:`_BREAK`.
    """

    def __init__(self, dialect: Dialect, *, is_raw: bool = False) -> None:
        self._line_end, self._is_unpadded = _BREAK if is_raw else " ", dialect.padded and not is_raw
        self._above, self._rest = dialect.above, b""
        self._delimiter, self._gaps = dialect.delimiter.encode(), len(dialect.names) - 1
        d, mark = re.escape(dialect.delimiter), r'\x20*+"' if dialect.padded else '"'
        field = rf'(?:{mark}{_INSIDE}"[^{d}\r\n]*+|(?!{mark})[^{d}\r\n]*+)'
        begin = rf"(?:\A|[{d}\r\n]){mark}" if dialect.padded else rf'"(?:(?<=\A")|(?<=[{d}\r\n]"))'
        patterns = {
            "suspect": rf"{begin}{_INSIDE}(?=[\r\n]|\Z)",
            "fields": rf"(?:{field}{d})*+",
            "last_field": rf"{field}(?=[\r\n]|\Z)",
            "mark": mark,
            "padded": rf'(?:\A|(?<=[{d}\r\n]))\x20*("{_INSIDE}"?)',
        }
        self._patterns = {name: re.compile(pattern.encode()) for name, pattern in patterns.items()}

    def __call__(self, chunk: pa.Buffer) -> bytes:
        """Return the complete rows; an empty chunk is the end of the stream."""
        text, is_last = b"".join((self._rest, chunk)), not len(chunk)
        end = len(text) if is_last else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        text, self._rest = text[:end], text[end:]
        if b'"' not in text and not self._above:
            return text
        rows = b"".join(self._rows(text, is_last=is_last))
        return self._patterns["padded"].sub(rb"\1", rows) if self._is_unpadded else rows

    def _rows(self, text: bytes, *, is_last: bool) -> Iterator[bytes]:
        """Yield the text's rows, one a line each; an incomplete last row is kept for the next chunk."""
        done = 0
        while self._above and (line_end := _LINE_END.search(text, done)):
            done = line_end.end()
            self._above -= 1
        yield text[:done]
        while suspect := self._patterns["suspect"].search(text, done):
            place = suspect.end()
            first = max(text.rfind(b"\n", done, place), text.rfind(b"\r", done, place), done - 1) + 1
            yield text[done:first]
            row = self._row(text, first, is_last=is_last)
            if row is None:
                self._rest = text[first:] + self._rest
                return
            line, done = row
            yield line
        yield text[done:]

    def _row(self, text: bytes, first: int, *, is_last: bool) -> tuple[bytes, int] | None:
        """Return the row that begins at ``first`` as a line, and its end; None if more text is needed."""
        line_end, place = self._line_end.encode(), first
        while True:
            place = _end(self._patterns["fields"], text, place)
            if last := self._patterns["last_field"].match(text, place):
                return _LINE_END.sub(line_end, text[first : last.end()]), last.end()
            begin = _end(self._patterns["mark"], text, place)
            closing = _CLOSING.match(text, begin)
            place = closing.end() if closing else len(text)
            follows = text[place : place + 1]
            is_open = self._has_row(text, begin, place) or follows not in (self._delimiter, b"\r", b"\n", b"")
            if not is_open and closing is None and not is_last:
                return None
            if is_open or closing is None:
                match = _LINE_END.search(text, begin)
                end = match.start() if match else len(text)
                row = _LINE_END.sub(line_end, text[first:end])
                return b'"' + _OPEN.encode() + row.replace(b'"', b'""') + b'"', end
            place += follows == self._delimiter

    def _has_row(self, text: bytes, begin: int, end: int) -> bool:
        """Return whether a line below the first has as many fields as a row, or there are too many lines."""
        line_end = _LINE_END.search(text, begin, end)
        for _ in range(_MAX_QUOTED_LINES):
            if line_end is None:
                return False
            first, line_end = line_end.end(), _LINE_END.search(text, line_end.end(), end)
            if text.count(self._delimiter, first, line_end.start() if line_end else end) == self._gaps:
                return True
        return True


class _SingleBlanks:
    """Filter of a stream of text: blanks around a line are removed, those within it become one."""

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, chunk: pa.Buffer) -> bytes:
        """Return the complete lines; an empty chunk is the end of the stream."""
        text = self._rest + bytes(chunk)
        end = text.rfind(b"\n") + 1 if len(chunk) else len(text)
        text, self._rest = text[:end], text[end:]
        if text.startswith(b" ") or any(blank in text for blank in (b"  ", b"\n ", b" \n", b" \r")):
            text = re.sub(rb"(?m)^ +| +(?=\r?$)", b"", re.sub(rb" {2,}", b" ", text))
        return text


def _end(pattern: re.Pattern[bytes], text: bytes, place: int) -> int:
    """Return the end of a pattern that matches at a place; the place itself if it does not."""
    match = pattern.match(text, place)
    return match.end() if match else place


def _unmarked(text: str) -> tuple[str, bool]:
    """Return a line of :class:`_RowLines` as it was, and whether a quotation mark in it is not closed."""
    if text.startswith(f'"{_OPEN}'):
        return text[2:-1].replace('""', '"'), True
    return text, False


def lines_of(file: Place, dialect: Dialect, rows: Collection[int]) -> Iterator[tuple[int, int, str]]:
    """Iterate over rows as they stand in the file: number of the row, number of its first line, and text.

    Empty lines are no rows, as in :class:`Batch`; a quoted text may span lines.
    """
    row, number, left = 0, 1, set(rows)
    with _text(Segment(file), dialect) as text:
        stream = (
            pa.lib.TransformInputStream(text, _RowLines(dialect, is_raw=True)) if dialect.quoted else text
        )
        with io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8") as lines:
            for line in lines:
                if not left:
                    return
                first, number = number, number + 1 + line.count(_BREAK)
                if first <= dialect.above or not line.strip(" \n" if dialect.delimiter == " " else "\n"):
                    continue
                row += 1
                if row in left:
                    left.remove(row)
                    yield row, first, _unmarked(line.rstrip("\n"))[0].replace(_BREAK, "\n")


def _numbered(
    reader: Iterable[pa.RecordBatch],
    part: Segment,
    columns: dict[str, str],
    dialect: Dialect,
    malformed: list[Malformed],
) -> Iterator[Batch]:
    """Yield batches with the number of each row in the file; the reader may be ahead by malformed lines."""
    start, passed = (part.rows_before or 0) + 1, 0
    for batch in reader:
        rows = np.arange(start, start + len(batch) + len(malformed), dtype=np.int64)
        if malformed:
            rows = rows[~np.isin(rows, [line.row for line in malformed])][: len(batch)]
        start = int(rows[-1]) + 1 if len(rows) else start
        table = pa.table({name: batch.column(given) for name, given in columns.items()})
        passed, aside = len(malformed), malformed[passed:]
        yield Batch(table, rows, part.file.name, aside, dialect)
    if malformed[passed:]:
        nothing = pa.table({name: pa.array([], pa.string()) for name in columns})
        yield Batch(nothing, np.zeros(0, dtype=np.int64), part.file.name, malformed[passed:], dialect)
