"""Small pieces are put together, none is lost, and their order stays."""

import pyarrow as pa
import pytest

from mudkit.pipeline.batches import tables


@pytest.mark.parametrize(
    ("sizes", "least", "lengths"),
    [
        ([], 3, []),
        ([1, 1], 3, [2]),
        ([2, 2, 2], 3, [4, 2]),
        ([5, 1], 3, [5, 1]),
        ([0, 3], 3, [3]),
        ([3, 3], 1, [3, 3]),
    ],
)
def test_tables_have_so_many_rows_at_least(sizes, least, lengths):
    numbers = iter(range(100))
    batches = [
        pa.record_batch({"n": [next(numbers) for _ in range(size)]}, pa.schema([("n", pa.int64())]))
        for size in sizes
    ]
    result = list(tables(iter(batches), least))
    assert [len(each) for each in result] == lengths
    assert [n for each in result for n in each["n"].to_pylist()] == list(range(sum(sizes)))
