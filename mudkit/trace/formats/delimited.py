"""Reader of text tables: CSV with a header, and lines of fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from mudkit.errors import TraceFormatError
from mudkit.trace.formats.batch import Batch, Malformed, empty, other_format
from mudkit.trace.formats.packed import opened, peek

__all__ = ["header", "header_of", "read_delimited", "read_lines"]

_BLOCK_BYTES = 16 << 20


def header(file: Path) -> tuple[list[str], str, int]:
    """Return the names of the columns, the delimiter, and the number of lines above the rows.

    Duplicate names get a number.
    """
    return header_of(file, peek(file))


def header_of(file: Path, head: bytes) -> tuple[list[str], str, int]:
    """Return the :func:`header` of the beginning of a file's content."""
    lines = head.splitlines()
    above = next((number for number, line in enumerate(lines, start=1) if line.strip()), 0)
    if not above:
        raise empty(file)
    try:
        text = lines[above - 1].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise other_format(file, "text, for instance CSV", head=head) from error
    if "\0" in text or (not text.isprintable() and "\t" not in text):
        raise other_format(file, "text, for instance CSV", head=head)
    delimiter = max(",;\t|", key=text.count)
    try:
        fields = next(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:  # a field of more than 128 KiB
        raise other_format(file, "a header and rows", head=head) from error
    names = [name.strip() for name in fields]
    return [f"{name} ({i})" if name in names[:i] else name for i, name in enumerate(names)], delimiter, above


def read_delimited(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read a CSV file with a header, also compressed; ``columns`` maps mudkit's names to the file's."""
    names, delimiter, above = header(file)
    yield from read_lines(file, names, delimiter, columns=columns, above=above, quoted=True)


def read_lines(
    file: Path,
    names: list[str],
    delimiter: str,
    *,
    columns: dict[str, str] | None = None,
    above: int = 0,
    quoted: bool = False,
    encoding: str = "utf-8-sig",
) -> Iterator[Batch]:
    """Read lines of fields as texts.

    ``names`` are those of all columns of the file, ``columns`` selects and renames them, ``above`` is the
    number of lines above the first row, ``quoted`` tells whether quotation marks enclose fields.
    """
    columns = columns or {name: name for name in names}
    malformed: list[Malformed] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        malformed.append(Malformed(int(row.number) - above, row.text))
        return "skip"

    with opened(file) as stream:
        # Other bytes than UTF-8 would not come through to set_aside; the signature is no part of a row.
        text = pa.transcoding_input_stream(stream, encoding, "utf-8")
        reader = pa_csv.open_csv(
            text,
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, use_threads=False, column_names=names, skip_rows=above
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quoted else False, invalid_row_handler=set_aside
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(columns.values())),
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        yield from _numbered(reader, file, columns, malformed)


def _numbered(
    reader: Iterator[pa.RecordBatch], file: Path, columns: dict[str, str], malformed: list[Malformed]
) -> Iterator[Batch]:
    """Return the number of each row in the file; the reader may be ahead with the lines it set aside."""
    start, passed = 1, 0
    for batch in reader:
        _refuse_open_quote(file, malformed[passed:])
        numbers = np.arange(start, start + len(batch) + len(malformed), dtype=np.int64)
        rows = numbers[~np.isin(numbers, [line.row for line in malformed])][: len(batch)]
        start = int(rows[-1]) + 1 if len(rows) else start
        table = pa.table({name: batch.column(given) for name, given in columns.items()})
        passed, aside = len(malformed), malformed[passed:]
        yield Batch(table, rows, file.name, aside)
    if malformed[passed:]:
        _refuse_open_quote(file, malformed[passed:])
        nothing = pa.table({name: pa.array([], pa.string()) for name in columns})
        yield Batch(nothing, np.zeros(0, dtype=np.int64), file.name, malformed[passed:])


def _refuse_open_quote(file: Path, malformed: list[Malformed]) -> None:
    """Raise an error if a quotation mark swallows the lines after it."""
    for line in malformed:
        if "\n" in line.raw:
            raise TraceFormatError(
                f"A quotation mark in {file.name} opens a text that does not end in its row.",
                where=f"{file}, row {line.row}",
                found=repr(line.raw[:80]),
                expected="quotation marks in pairs",
                remedy="remove the quotation mark, or double it",
            )
