"""Stretches of time: late points meet the reads whose answers may have them."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mudkit.pipeline import slices
from mudkit.pipeline.packing import unpacked
from mudkit.trace.schema import epoch_us, timestamps


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40)), min_size=1),
    st.lists(st.integers(-5, 120), min_size=1),
    st.integers(1, 9),
)
def test_points_meet_all_reads_that_may_have_them_in_one_stretch(spans, times, size):
    """An answer has the points of ``(t - window, t]`` (:mod:`mudkit.pipeline.coverage`)."""
    spans = sorted(spans)
    reads = pa.table(
        {
            "number": range(len(spans)),
            "ts": timestamps(np.array([at * 1_000_000 for at, _ in spans], dtype=np.int64)),
            "window_s": [float(window_s) for _, window_s in spans],
        }
    )
    points = pa.table({"ts": timestamps(np.array(times, dtype=np.int64) * 1_000_000)})
    edges_us = np.unique(epoch_us(reads["ts"])[size::size])
    messages = slices._reads_of_stretches(reads, edges_us)
    of_stretch = {
        stretch: set(unpacked(part.as_buffer())["number"].to_pylist())
        for stretch, part in zip(messages["stretch"].to_pylist(), messages["reads"], strict=True)
    }
    assert sorted(of_stretch) == list(range(len(edges_us) + 1))
    placed = []
    for stretch, some in slices._in_stretches(points, edges_us):
        seconds = (epoch_us(some["ts"]) // 1_000_000).tolist()
        assert seconds == sorted(seconds)
        placed += seconds
        for number, (at, window_s) in enumerate(spans):
            if any(at - window_s < second <= at for second in seconds):
                assert number in of_stretch[stretch]
    assert sorted(placed) == sorted(times)


def test_sums_of_stretches_are_added_by_all_columns_but_the_last():
    schema = pa.schema([("policy", pa.int64()), ("read", pa.int64()), ("points", pa.int64())])
    rows = [[(0, 1, 2), (1, 1, 5)], [(0, 1, 3), (0, 2, 1)]]
    tables = [pa.table(list(zip(*of, strict=True)), schema=schema) for of in rows]
    summed = slices._added(tables, schema).sort_by([("policy", "ascending"), ("read", "ascending")])
    assert [tuple(row.values()) for row in summed.to_pylist()] == [(0, 1, 5), (0, 2, 1), (1, 1, 5)]
    assert slices._added([], schema) == schema.empty_table()
