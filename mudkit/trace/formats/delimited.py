"""Readers of text tables, with or without a header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from mudkit.errors import TraceFormatError
from mudkit.trace.formats.batch import HEAD_BYTES, Batch, Dialect, Malformed, empty, other_format
from mudkit.trace.formats.columns import has_places, is_place, place_name
from mudkit.trace.formats.packed import opened, peek

__all__ = ["dialect_of", "encoding_of", "lines_of", "read_delimited", "read_lines"]

_BLOCK_BYTES = 16 << 20
_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(r'"?sep=(\\t|[^\w"])"?', re.IGNORECASE)
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s*")
_LINES_LOOKED_AT = 30


def dialect_of(file: Path, mapped: Collection[str] = (), *, head: bytes | None = None) -> Dialect:
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
    is_padded = '"' in text and re.search(rf'(^|{re.escape(delimiter)}) +"', text, re.MULTILINE) is not None
    return Dialect(_unique(names), delimiter, above, encoding, padded=is_padded)


def encoding_of(head: bytes) -> str:
    """Return UTF-16 with or without a byte-order mark, or UTF-8."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for name, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if not others.count(0) and 2 * zeros.count(0) > len(zeros):
            return name
    return "utf-8-sig"


def _refuse_binary(file: Path, head: bytes, line: str) -> None:
    if "\0" in line or "\ufffd" in line or not (line.isprintable() or "\t" in line):
        raise other_format(file, "text, for instance CSV", head=head)


def _split(line: str, delimiter: str) -> list[str]:
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


def _delimiter(lines: list[str]) -> str:
    def agreement(delimiter: str) -> tuple[int, int, int]:
        """Return the number of lines of the most frequent width, this width, and the number of numbers."""
        rows = [_split(line, delimiter) for line in lines if delimiter in line]
        widths = Counter(len(row) for row in rows if len(row) > 1)
        width, count = max(widths.items(), key=lambda item: item[::-1], default=(0, 0))
        return count, width, sum(bool(_NUMBER.fullmatch(field)) for row in rows for field in row)

    return max(_DELIMITERS, key=agreement)


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
    return [f"{name} ({i})" if name in names[:i] else name for i, name in enumerate(names)]


def _no_header(file: Path, line: str) -> TraceFormatError:
    return TraceFormatError(
        f"{file.name} has no header.",
        where=str(file),
        found=f"a row in its place: {line[:100]!r}",
        expected="a first line with the names of the columns",
        remedy="write one; columns of a trace can be named by place: header=False, columns={'device': 1, "
        "'ts': 2, 'lat': 3, 'lon': 4} (on the command line --no-header --column device=1 and so on)",
    )


def read_delimited(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read a text table, also compressed; ``columns`` maps mudkit's names to the file's."""
    yield from _read(file, dialect_of(file, columns.values()), columns)


def read_lines(
    file: Path,
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
    yield from _read(file, dialect, columns or {name: name for name in names})


def _read(file: Path, dialect: Dialect, columns: dict[str, str]) -> Iterator[Batch]:
    malformed: list[Malformed] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        malformed.append(Malformed(int(row.number) - dialect.above, row.text))
        return "skip"

    with _text(file, dialect) as text:
        reader = pa_csv.open_csv(
            pa.lib.TransformInputStream(text, _Unpadded(dialect.delimiter)) if dialect.padded else text,
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
        yield from _numbered(reader, file, {name: columns[name] for name in in_order}, dialect, malformed)


@contextmanager
def _text(file: Path, dialect: Dialect) -> Iterator[pa.NativeFile]:
    """Open a file as UTF-8: other bytes would not come through to the handler of malformed rows."""
    with opened(file) as stream:
        yield pa.transcoding_input_stream(stream, dialect.encoding, "utf-8")


class _Unpadded:
    """Filter of a stream of UTF-8 text: removes blanks between a separator and a quotation mark."""

    def __init__(self, delimiter: str) -> None:
        before = re.escape(delimiter).encode() + rb"\r\n"
        quoted = rb'"[^"\r\n]*(?:""[^"\r\n]*)*"?'
        self._pattern = re.compile(rb"(?:\A|(?<=[" + before + rb"]))\x20*(" + quoted + rb")")
        self._rest = b""

    def __call__(self, chunk: pa.Buffer) -> bytes:
        """Return the complete lines; an empty chunk is the end of the stream."""
        text = self._rest + bytes(chunk)
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if len(chunk) else len(text)
        self._rest = text[end:]
        return self._pattern.sub(rb"\1", text[:end])


def lines_of(file: Path, dialect: Dialect, rows: Collection[int]) -> Iterator[tuple[int, int, str]]:
    """Iterate over rows as they stand in the file: number of the row, number of its first line, and text.

    Empty lines are no rows, as in :class:`Batch`; a quoted text may span lines.
    """
    quotes = _Quotes(dialect)
    row, pending, left = 0, "", set(rows)
    with _text(file, dialect) as text, io.TextIOWrapper(io.BufferedReader(text), encoding="utf-8") as lines:
        below = islice(enumerate(lines, start=1), dialect.above, None)
        for number, line in chain(below, [(0, "")]):
            if not left:
                return
            if not pending:
                first = number
            pending += line
            if (line and quotes.are_open_after(line)) or pending in ("", "\n"):
                pending = pending.lstrip("\n")
                continue
            row += 1
            if row in left:
                left.remove(row)
                yield row, first, pending.rstrip("\n")
            pending = ""


class _Quotes:
    """Scanner of lines for quoted texts that span several."""

    def __init__(self, dialect: Dialect) -> None:
        begin = rf"(?:^|{re.escape(dialect.delimiter)}){' *' if dialect.padded else ''}"
        self._are_open = False
        self._is_used = dialect.quoted
        self._opened = re.compile(rf'{begin}"')
        self._whole = re.compile(rf'{begin}"[^"]*+(?:""[^"]*+)*+"')
        self._end = re.compile(r'[^"]*+(?:""[^"]*+)*+"')

    def are_open_after(self, line: str) -> bool:
        """Return whether a quoted text continues below this line."""
        if self._is_used and '"' in line:
            if self._are_open:
                end = self._end.match(line)
                line = "" if end is None else "x" + line[end.end() :]
                self._are_open = end is None
            if not self._are_open:
                self._are_open = self._opened.search(self._whole.sub("x", line)) is not None
        return self._are_open


def _numbered(
    reader: Iterable[pa.RecordBatch],
    file: Path,
    columns: dict[str, str],
    dialect: Dialect,
    malformed: list[Malformed],
) -> Iterator[Batch]:
    """Return the number of each row in the file; the reader may be ahead with the lines it set aside."""
    start, passed = 1, 0
    for batch in reader:
        _refuse_open_quote(file, malformed[passed:])
        numbers = np.arange(start, start + len(batch) + len(malformed), dtype=np.int64)
        rows = numbers[~np.isin(numbers, [line.row for line in malformed])][: len(batch)]
        start = int(rows[-1]) + 1 if len(rows) else start
        table = pa.table({name: batch.column(given) for name, given in columns.items()})
        if dialect.quoted:
            _refuse_line_ends(file, table, rows)
        passed, aside = len(malformed), malformed[passed:]
        yield Batch(table, rows, file.name, aside, dialect)
    if malformed[passed:]:
        _refuse_open_quote(file, malformed[passed:])
        nothing = pa.table({name: pa.array([], pa.string()) for name in columns})
        yield Batch(nothing, np.zeros(0, dtype=np.int64), file.name, malformed[passed:], dialect)


def _refuse_line_ends(file: Path, table: pa.Table, rows: NDArray[np.int64]) -> None:
    """Raise an error if a value has a line end: no device, time or place has one."""
    for column in table.columns:
        for buffer in (chunk.buffers()[2] for chunk in column.chunks):
            if buffer is not None and b"\n" in buffer.to_pybytes():  # faster than a look at each value
                place = pc.index(pc.match_substring(column, "\n"), True).as_py()
                raise _open_quote(file, int(rows[place]), column[place].as_py())


def _refuse_open_quote(file: Path, malformed: list[Malformed]) -> None:
    """Raise an error if a quotation mark swallows the lines after it."""
    for line in malformed:
        if "\n" in line.raw:
            raise _open_quote(file, line.row, line.raw)


def _open_quote(file: Path, row: int, text: str) -> TraceFormatError:
    return TraceFormatError(
        f"A quotation mark in {file.name} opens a text that does not end in its row.",
        where=f"{file}, row {row}",
        found=repr(text[:80]),
        expected="quotation marks in pairs",
        remedy="remove the quotation mark, or double it",
    )
