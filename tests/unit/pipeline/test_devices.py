"""Batches of rows that are ordered by device, merged into tables of whole devices."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mudkit.pipeline.devices import whole_devices


@given(
    st.lists(st.integers(0, 7), max_size=8),
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_tables_hold_whole_devices(counts, has_null, batch_rows, least_rows):
    names = [None] * has_null + [f"car-{number}" for number, rows in enumerate(counts) for _ in range(rows)]
    rows = pa.table({"device": pa.array(names, pa.string()), "row": range(len(names))})
    tables = list(whole_devices(rows.to_batches(max_chunksize=batch_rows), least_rows))
    assert [row for table in tables for row in table["row"].to_pylist()] == list(range(len(names)))
    seen = [set(table["device"].to_pylist()) for table in tables]
    assert sum(map(len, seen)) == len(set(names)), "each device is in one table"


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.integers(1, 5), st.integers(1, 12))
def test_tables_are_no_larger_than_they_must(counts, batch_rows, least_rows):
    """Yield the devices before the last one as soon as they have the rows."""
    names = [f"car-{number}" for number, rows in enumerate(counts) for _ in range(rows)]
    rows = pa.table({"device": names})
    for table in whole_devices(rows.to_batches(max_chunksize=batch_rows), least_rows):
        assert len(table) < least_rows + batch_rows + max(counts)
