"""Batches of rows that are ordered by device, merged into tables of whole devices."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.pipeline.devices import _by_device, whole_devices


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


def test_table_is_complete_with_the_row_that_makes_it_long_enough():
    """Count the rows of the next device so far, as the docstring says."""
    rows = pa.table({"device": ["a", "a", "b", "c"]})
    tables = whole_devices(rows.to_batches(max_chunksize=1), 3)
    assert [table["device"].to_pylist() for table in tables] == [["a", "a"], ["b", "c"]]


def test_rows_are_released_from_the_disks_of_executors_after_an_error_too():
    class Frame:
        is_kept = False

        def repartition(self, *columns):
            return self

        sortWithinPartitions = repartition  # noqa: N815

        def persist(self, level):
            self.is_kept = True
            return self

        def unpersist(self):
            self.is_kept = False

    frame = Frame()
    with pytest.raises(KeyboardInterrupt), _by_device(frame, ["device"], 1) as rows:
        assert rows.frame.is_kept
        raise KeyboardInterrupt
    assert not frame.is_kept
