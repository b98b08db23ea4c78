"""Rows of devices: packed, joined to their labels, and merged into tables of whole devices."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import TraceContentError
from mudkit.learning.devices import writes_of_rows
from mudkit.learning.writes import Writes
from mudkit.pipeline.devices import (
    _joined_writes,
    _kept,
    _of_blocks,
    _pack,
    _pack_buckets,
    unpacked_devices,
    whole_devices,
)
from mudkit.pipeline.packing import unpacked
from mudkit.trace.schema import timestamps


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

        def persist(self, level):
            self.is_kept = True
            return self

        def unpersist(self):
            self.is_kept = False

    frame = Frame()
    with pytest.raises(KeyboardInterrupt), _kept(frame, 1) as rows:
        assert rows.parts.is_kept
        raise KeyboardInterrupt
    assert not frame.is_kept


NAMES = ["ann", "bob", "cat", None]


def build_writes(keys):
    """Return labels and positions, whose values name their rows, of pairs of a device and a second."""
    names = pa.array([NAMES[name] for name, _ in keys], pa.string())
    ts = timestamps(np.array([second * 1_000_000 for _, second in keys], dtype=np.int64))
    labels = pa.table({"device": names, "ts": ts, "first_read_ts": ts})
    places = [float(10 * name + second) for name, second in keys]
    return labels, pa.table({"device": names, "ts": ts, "lat": places, "lon": places})


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, unique=True), st.randoms())
def test_labels_are_joined_to_positions_in_any_order(keys, random):
    """Order rows by device and time: replay takes the writes of a device in the order of their times."""
    labels, _ = build_writes(random.sample(keys, len(keys)))
    _, positions = build_writes(keys)
    rows = _joined_writes(labels, positions)
    assert list(zip(rows["device"].to_pylist(), rows["lat"].to_pylist(), strict=True)) == [
        (NAMES[name], float(10 * name + second)) for name, second in sorted(keys)
    ]
    assert rows["first_read_ts"].equals(rows["ts"])
    assert all(rows["labelled"].to_pylist())


@pytest.mark.parametrize(
    ("labelled", "placed"),
    [
        ([(0, 1), (1, 2)], [(0, 1), (1, 3)]),
        ([(0, 1), (1, 2)], [(0, 1), (2, 2)]),
        ([(0, 1)], [(0, 1), (1, 2)]),
        ([(0, 1), (0, 1)], [(0, 1)]),
        ([(0, 1), (1, 2)], []),
        ([], [(0, 1)]),
        ([(3, 1)], [(0, 1)]),
    ],
)
def test_labels_of_other_positions_are_refused(labelled, placed):
    """Refuse them as of Arrow tables: other times, devices or numbers of rows, on either side."""
    labels, positions = build_writes(labelled)[0], build_writes(placed)[1]
    with pytest.raises(TraceContentError, match="labels are of other positions"):
        writes_of_rows(_joined_writes(labels, positions))


@pytest.mark.parametrize("join", [_joined_writes, None])
def test_positions_of_no_device_are_refused(join):
    """Refuse them in the same words whether rows were joined in tasks or are two Arrow tables."""
    labels, positions = build_writes([(0, 1), (3, 1)])
    with pytest.raises(TraceContentError, match="of no device"):
        Writes.of(labels, positions) if join is None else writes_of_rows(join(labels, positions))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))), st.integers(1, 4), st.integers(1, 7))
def test_packed_buckets_have_each_row_once_and_devices_whole(keys, buckets, batch_rows):
    """A bucket has all rows of its devices; rows without a device are in one, too."""
    _, positions = build_writes(keys)
    packed = pa.Table.from_batches(
        [*_pack_buckets(positions.to_batches(max_chunksize=batch_rows), buckets)],
        pa.schema([("bucket", pa.int32()), ("part", pa.binary())]),
    )
    parts = [unpacked(part.as_buffer()) for part in packed["part"]]
    assert sorted(row for part in parts for row in part["lat"].to_pylist()) == sorted(
        positions["lat"].to_pylist()
    )
    of_device = {}
    for bucket, part in zip(packed["bucket"].to_pylist(), parts, strict=True):
        assert 0 <= bucket < buckets
        for name in part["device"].to_pylist():
            assert of_device.setdefault(name, bucket) == bucket


def test_packed_rows_come_back_in_order():
    rows = pa.table({"device": ["a"] * 3 + ["b"] * 2, "row": range(5)})
    parts = _pack(rows.to_batches(max_chunksize=2))
    assert [table["row"].to_pylist() for table in unpacked_devices(parts, 3)] == [[0, 1, 2], [3, 4]]
    assert not [*_pack(rows.slice(0, 0).to_batches())]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), unique=True),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=2),
    st.integers(1, 3),
)
def test_blocks_of_reads_are_those_of_their_order_with_pairs_within(reads, every_first, block):
    """Keep each ``every``-th block from ``first`` of a device's reads by time, and pairs of two kept reads."""
    reads = sorted(reads)
    kept, rows = set(), []
    for name in range(3):
        own = [number for number, (device, _) in enumerate(reads) if device == name]
        for place, number in enumerate(own):
            if name < 2 and place // block % every_first[name][0] == every_first[name][1]:
                kept.add(number)
            rows += [(number, cached) for cached in [None, *own[max(place - 2, 0) : place]]]
    table = pa.table(
        {
            "read_id": pa.array([read for read, _ in rows], pa.int64()),
            "cached_read_id": pa.array([cached for _, cached in rows], pa.int64()),
            "device": pa.array([NAMES[reads[read][0]] for read, _ in rows], pa.string()),
            "ts": timestamps(np.array([reads[read][1] for read, _ in rows], dtype=np.int64)),
        }
    )
    chosen = pa.table(
        {"device": NAMES[:2], "every": [of for of, _ in every_first], "first": [of for _, of in every_first]}
    )
    some = _of_blocks(table, chosen, block)
    pairs = set(zip(some["read_id"].to_pylist(), some["cached_read_id"].to_pylist(), strict=True))
    assert len(pairs) == len(some)
    assert pairs == {
        (read, cached) for read, cached in rows if read in kept and (cached is None or cached in kept)
    }
