"""Files of rows in the formats that tasks write: Parquet, ORC, CSV, and lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mudkit.trace.folder import compact_form
from mudkit.trace.recordings import stable_order
from mudkit.trace.schema import device_buckets

FORMATS: Final = ("parquet", "orc", "csv", "json")
"""Formats of files that tasks write, which are the endings of their names, too."""

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Date of rows without a time, as Hive and Spark name it."""

_DICTIONARY: Final = "dictionary"
_SCRATCH_ENCODINGS: Final = {
    _DICTIONARY: (pa.types.is_string, pa.types.is_dictionary),
    "DELTA_BINARY_PACKED": (pa.types.is_integer, pa.types.is_timestamp),
    "BYTE_STREAM_SPLIT": (pa.types.is_floating,),
}

_DAY_US: Final = 86_400_000_000
_JSON_ROWS: Final = 1 << 14


class RowWriter(Protocol):
    """Writer of a file of rows."""

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""

    def close(self) -> None:
        """Complete the file."""


class _ParquetWriter:
    """Writer of Parquet: each write is a row group."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema, **form: Any) -> None:
        self._writer = pq.ParquetWriter(sink, schema, **(form or compact_form(schema)))

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table as one row group."""
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def close(self) -> None:
        self._writer.close()


class _ScratchWriter(_ParquetWriter):
    """Writer of Parquet that is read soon, and once."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        super().__init__(sink, schema, **_scratch_form(schema))

    def write(self, table: pa.Table) -> None:
        super().write(_with_own_names(table))


class _OrcWriter:
    """Writer of ORC."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        from pyarrow import orc  # not in every build of Arrow

        self._writer = orc.ORCWriter(sink, compression="zstd")
        self._writer.write(schema.empty_table())

    def write(self, table: pa.Table) -> None:
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()


class _CsvWriter:
    """Writer of CSV with a header."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        from pyarrow import csv

        self._writer = csv.CSVWriter(sink, schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _JsonWriter:
    """Writer of JSON, an object a line."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        self._sink, self._encode = sink, msgspec.json.Encoder().encode_lines

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_JSON_ROWS):
            self._sink.write(self._encode(batch.to_pylist()))

    def close(self) -> None:
        """Leave the sink to its owner."""


_WRITERS: Final[Mapping[str, Callable[[pa.NativeFile, pa.Schema], RowWriter]]] = {
    "parquet": _ParquetWriter,
    "orc": _OrcWriter,
    "csv": _CsvWriter,
    "json": _JsonWriter,
}


def open_writer(
    format: str,  # noqa: A002
    sink: pa.NativeFile,
    schema: pa.Schema,
    *,
    is_scratch: bool = False,
) -> RowWriter:
    """Return a writer of a format into a sink, which it does not close.

    A scratch file, always in Parquet, is written fast, in encodings that not every reader of Parquet knows.
    """
    if is_scratch:
        return _ScratchWriter(sink, schema)
    return _WRITERS[format](sink, schema)


def _scratch_form(schema: pa.Schema) -> dict[str, Any]:
    """Return how a scratch file is written: statistics of whole numbers and times tell which rows it has."""
    names = {
        encoding: [field.name for field in schema if any(fits(field.type) for fits in kinds)]
        for encoding, kinds in _SCRATCH_ENCODINGS.items()
    }
    encodings = {name: encoding for encoding in names if encoding != _DICTIONARY for name in names[encoding]}
    return {
        "compression": "lz4",
        "use_dictionary": names[_DICTIONARY],
        "column_encoding": encodings,
        "write_statistics": names["DELTA_BINARY_PACKED"],
    }


def _with_own_names(rows: pa.Table) -> pa.Table:
    """Return rows whose dictionaries have their own names only, not those of other rows."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            column = rows.column(number).combine_chunks()
            used = column.indices.dictionary_encode()
            names = column.dictionary.take(used.dictionary)
            rows = rows.set_column(number, field, pa.DictionaryArray.from_arrays(used.indices, names))
    return rows


def rows_by_date(table: pa.Table, column: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each date (UTC), in their order; those without a time are of :data:`NO_DATE`.

    A column `date` by which the rows are divided is left out, as it is the name of their folder.
    """
    values = table[column]
    missing = values.is_null().to_numpy()
    if pa.types.is_date(values.type):
        days = pc.fill_null(values.cast(pa.date32()).cast(pa.int32()), 0).to_numpy()
    else:
        t_us = pc.fill_null(values.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 0).to_numpy()
        days = np.floor_divide(t_us, _DAY_US)
    numbers = np.where(missing, np.iinfo(np.int64).max, days)
    order = np.argsort(numbers, kind="stable")
    rows = table.drop_columns(["date"]) if column == "date" else table
    rows = rows.take(pa.array(order))
    ordered = numbers[order]
    edges = np.flatnonzero(np.diff(ordered, prepend=-np.inf, append=np.inf))
    for first, past in pairwise(edges.tolist()):
        date = NO_DATE if missing[order[first]] else str(np.datetime64(int(ordered[first]), "D"))
        yield date, rows.slice(first, past - first)


def rows_by_bucket(table: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket of devices, in their order.

    See :func:`mudkit.trace.schema.device_buckets`.
    """
    bucket = device_buckets(table["device"], buckets)
    order = stable_order(bucket)
    rows = table.take(pa.array(order))
    edges = np.flatnonzero(np.diff(bucket[order], prepend=-1, append=-1))
    for first, past in pairwise(edges.tolist()):
        yield int(bucket[order[first]]), rows.slice(first, past - first)
