"""Tables packed as bytes, one row of a DataFrame each: for many rows Spark would convert every value."""

from __future__ import annotations

import pyarrow as pa


def packed(table: pa.Table) -> bytes:
    """Return a table as compressed bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(part: pa.Buffer) -> pa.Table:
    """Return the table that :func:`packed` packed."""
    with pa.ipc.open_stream(part) as reader:
        return reader.read_all()
