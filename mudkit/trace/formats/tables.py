"""Tables in memory as sources: of Arrow, of pandas, or batches of a DataFrame of Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.trace.formats.batch import Batch
from mudkit.trace.values import plain

_BATCH_ROWS = 1 << 18


def flattened(table: pa.Table) -> pa.Table:
    """Return a table with a column for each field of a struct, named with dots: ``position.lat``."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def table_batch(table: pa.Table, columns: Mapping[str, str], name: str, first_row: int = 1) -> Batch:
    """Return the rows of a flat table as a batch.

    Parameters
    ----------
    table : pyarrow.Table
    columns : mapping
        mudkit's names to the table's.
    name : str
        Name of the source.
    first_row : int
        Number of the first row.
    """
    values = {column: _plain(table[given].combine_chunks()) for column, given in columns.items()}
    return Batch(pa.table(values), np.arange(first_row, first_row + len(table), dtype=np.int64), name)


def batches_of_table(table: pa.Table, columns: Mapping[str, str], name: str) -> list[Batch]:
    """Return the rows of a flat table in batches."""
    return [
        table_batch(table.slice(first, _BATCH_ROWS), columns, name, first + 1)
        for first in range(0, len(table), _BATCH_ROWS)
    ]


def checksum(table: pa.Table) -> str:
    """Return the checksum of a table's columns and rows, however they are divided into chunks."""
    digest = hashlib.sha256(table.schema.remove_metadata().serialize())
    for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
        digest.update(batch.replace_schema_metadata().serialize())
    return digest.hexdigest()


def _plain(column: pa.Array) -> pa.Array:
    """Return a column of plain values; a list of numbers is written as ``[8.54, 47.37]``."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_kind(column.type) for is_kind in kinds):
        texts = pc.binary_join(column.cast(pa.list_(pa.string())), ", ")
        return pc.binary_join_element_wise("[", texts, "]", "")
    return plain(column)
