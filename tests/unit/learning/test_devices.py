"""Replay by groups of devices: the same result for any grouping, and a sample that depends on no order."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import build_labelled_reads, build_positions, build_reads, label_by_definition

from mudkit.errors import TraceContentError
from mudkit.learning import (
    Always,
    Batch,
    BatchBound,
    BatchTree,
    Bound,
    FixedRule,
    Tree,
    devices,
    evaluate,
    evaluate_batches,
    evaluate_reads,
    evaluate_writes,
)
from mudkit.learning.devices import (
    MAX_LEARNT_PAIRS,
    Fleet,
    count_pairs,
    open_devices,
    pairs_of_rows,
    writes_of_rows,
)
from mudkit.learning.evaluate import READ_MEASURES
from mudkit.learning.pairs import Pairs
from mudkit.trace.schema import read_ids

LABELS, READS = build_labelled_reads(devices=14, days=3, a_day=8)
NAMES = READS["device"].unique().to_pylist()
WRITTEN = build_positions([(name, 60 * hour, 3336) for name in ("car", *NAMES[:5]) for hour in range(72)])
POLICIES = [
    FixedRule(),
    Tree("latency"),
    Tree("freshness", "paper"),
    Tree(features="dense"),
    Tree(match=FixedRule()),
    Always(),
    Bound(),
    Bound(0.1),
]


def join_rows(labels=LABELS, reads=READS):
    """Join labels to reads, as Spark does, sorted by device."""
    read = reads.select(["read_id", "device", "ts", "lat", "lon", "window_s"])
    return labels.join(read, "read_id", join_type="full outer").sort_by("device")


class Groups:
    """Rows of labels in groups of devices, as Spark's tasks have them."""

    def __init__(self, groups):
        self.rows = join_rows()
        self.groups = groups

    def map(self, function):
        number = dict(zip(NAMES, self.groups, strict=True))
        group = np.array([number[name] for name in self.rows["device"].to_pylist()])
        return [function(self.rows.filter(pa.array(group == one))) for one in np.unique(group)[::-1]]

    def collect(self, names):
        if names is None:
            return self.rows
        return self.rows.filter(pa.compute.is_in(self.rows["device"], value_set=names))


def evaluate_groups(groups, policies, **options):
    """Evaluate policies with the rows in groups."""

    @contextmanager
    def open_groups(labels, reads, positions=None):
        yield devices._Spread(Groups(groups), positions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "open_devices", open_groups)
        return evaluate_reads(None, None, policies, positions=WRITTEN, **options)


FEW = [FixedRule(), Tree(), Bound(), Bound(0.1)]


@pytest.fixture(scope="module")
def whole():
    """Return the evaluation of all devices at once, by folds."""
    return {
        folds: evaluate_reads(LABELS, READS, FEW, positions=WRITTEN, folds=folds)
        for folds in ("device", "time")
    }


@pytest.mark.parametrize("folds", ["device", "time"])
@examples(16)
@given(groups=st.lists(st.integers(0, 4), min_size=len(NAMES), max_size=len(NAMES)))
def test_grouping_of_devices_changes_no_bit(whole, folds, groups):
    """Compare trees' shares, costs and intervals of tasks with those of one process (issue 66, 9)."""
    pd.testing.assert_frame_equal(evaluate_groups(groups, FEW, folds=folds), whole[folds], check_exact=True)


def test_sampled_devices_are_the_same_in_groups(monkeypatch):
    monkeypatch.setattr(evaluate, "MAX_LEARNT_PAIRS", 100)
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 4)
    one = evaluate_reads(LABELS, READS, POLICIES, positions=WRITTEN, seed=3)
    pd.testing.assert_frame_equal(evaluate_groups(range(len(NAMES)), POLICIES, seed=3), one, check_exact=True)
    count = one["learnt_devices"][1]
    assert 4 <= count < len(NAMES)
    assert one["learnt_devices"].tolist() == [0, count, count, count, count, 0, 0, 0]
    assert one.attrs["sample"] == {"seed": 3, "devices": count, "of": len(NAMES)}


def test_sample_is_drawn_from_names_and_seed(monkeypatch):
    """Draw the same devices whatever order they come in; each seed draws others."""
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 2)
    count = 200
    names = pa.array([f"car-{number:03d}" for number in range(count)])
    ids = devices.device_ids(names.to_pylist())
    ones = np.ones(count, np.int64)
    fleet = Fleet(names, ids, ones, 10 * ones, np.arange(2))
    drawn = fleet.sample(0, 1000)
    assert np.count_nonzero(drawn) == 100
    order = np.random.default_rng(0).permutation(count)
    assert np.array_equal(replace(fleet, ids=ids[order]).sample(0, 1000), drawn[order])
    assert 30 < np.count_nonzero(drawn & fleet.sample(1, 1000)) < 70  # half of half


def test_few_pairs_are_all_learnt_from():
    with open_devices(LABELS, READS) as opened:
        assert Fleet.of(opened.map(count_pairs)).sample(0, MAX_LEARNT_PAIRS).all()


def test_totals_are_means_of_all_reads():
    """Compare the measures with those of a policy that asks for each read, and count them."""
    row = evaluate_reads(LABELS, READS, [Always()]).iloc[0]
    assert row["reads"] == len(READS)
    assert [row[name] for name in READ_MEASURES[:3]] == [1.0, 0.0, 1.0]
    assert row["messages"] == pytest.approx(3.0)


def test_rows_are_the_pairs_of_labels_and_reads():
    one, other = Pairs.of(LABELS, READS), pairs_of_rows(join_rows())
    for name in ("device", "t_us", "points", "read", "cached", "missing", "completeness", "distance_km"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_labels_of_other_reads_are_refused():
    with pytest.raises(TraceContentError, match="labels are of other reads"):
        pairs_of_rows(join_rows(reads=READS.slice(1)))


def test_reads_without_labels_are_refused():
    is_other = np.arange(len(LABELS)) > 0  # the first row is that of a read
    without = LABELS.filter(pa.array(is_other))
    with pytest.raises(TraceContentError, match="Some reads have no label"):
        pairs_of_rows(join_rows(without))


def test_reads_that_are_there_twice_are_refused():
    twice = pa.concat_tables([READS, READS.slice(0, 1)])
    assert len(np.unique(read_ids(twice))) == len(READS)
    for build in (lambda: Pairs.of(LABELS, twice), lambda: pairs_of_rows(join_rows(reads=twice))):
        with pytest.raises(TraceContentError, match="same read_id"):
            build()


CARS = [f"car-{number}" for number in range(9)]
POSITIONS = build_positions(
    [
        (car, 1440 * day + 7 * step + place, 3.0 * (place % 4) + step / 9)
        for day in range(4)
        for place, car in enumerate(CARS)
        for step in range(12)
    ]
)
QUERIES = build_reads(
    [
        (("q", *CARS)[step % 4], 1440 * day + 9 * step, 2.0 * (step % 6))
        for day in range(4)
        for step in range(12)
    ],
    box_km=8.0,
)
FIRSTS = label_by_definition(POSITIONS, QUERIES)
BATCHES = [Batch(10), Batch(30), BatchTree(), BatchBound(), BatchBound(Batch(30))]


def add_counts(pieces):
    """Add counts by policy and read, as Spark does."""
    sums = pa.concat_tables(pieces).group_by(["policy", "read"]).aggregate([("points", "sum")])
    return sums.rename_columns(devices.COUNTS.names).cast(devices.COUNTS)


def sum_pieces(positions, function, schema):
    """Call a function with some positions at a time, and add its counts."""
    by_time = positions.sort_by("ts")
    return add_counts([function(by_time.slice(first, 17)) for first in range(0, len(by_time), 17)])


class WriteGroups:
    """Rows of writes in groups of devices, as Spark's tasks have them."""

    def __init__(self, groups):
        labels = FIRSTS.select(["device", "ts", "first_read_ts"])
        labels = labels.append_column("labelled", pa.array([True] * len(labels)))
        places = POSITIONS.select(["device", "ts", "lat", "lon"])
        rows = labels.join(places, ["device", "ts"], join_type="full outer").sort_by("device")
        number = dict(zip(CARS, groups, strict=True))
        self.group = np.array([number[name] for name in rows["device"].to_pylist()])
        self.rows = rows

    def map(self, function):
        return [
            function(self.rows.filter(pa.array(self.group == one))) for one in np.unique(self.group)[::-1]
        ]

    def map_rows(self, function, rows, count, counts):
        results = self.map(function)
        late = pa.concat_tables([rows.empty_table(), *(of for _, of in results)]).sort_by("t_us")
        pieces = [count(late.slice(first, 5)).cast(counts) for first in range(0, len(late), 5)]
        return [result for result, _ in results], add_counts([counts.empty_table(), *pieces])

    def collect(self, names):
        is_in = pa.compute.is_in(self.rows["device"], value_set=pa.array(CARS) if names is None else names)
        return self.rows.filter(is_in)


@pytest.fixture(scope="module")
def whole_writes():
    """Return the evaluation of all writes at once, by folds and completeness."""
    return {
        (folds, least): evaluate_writes(
            FIRSTS,
            POSITIONS,
            QUERIES,
            BATCHES[: 3 if least else 5],
            folds=folds,
            completeness=least,
            repeats=1,
        )
        for folds, least in (("device", None), ("time", None), ("device", 0.8))
    }


@pytest.mark.parametrize(("folds", "least"), [("device", None), ("time", None), ("device", 0.8)])
@examples(16)
@given(groups=st.lists(st.integers(0, 3), min_size=len(CARS), max_size=len(CARS)))
def test_grouping_of_devices_changes_no_bit_of_writes(whole_writes, folds, least, groups):
    @contextmanager
    def open_groups(first_reads, positions):
        yield devices._WritesSpread(WriteGroups(groups), POSITIONS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_batches, "open_writers", open_groups)
        patch.setattr("mudkit.pipeline.devices.sum_rows", sum_pieces)
        options = {"folds": folds, "completeness": least, "repeats": 1}
        grouped = evaluate_writes(None, None, QUERIES, BATCHES[: 3 if least else 5], **options)
    pd.testing.assert_frame_equal(grouped, whole_writes[folds, least], check_exact=True)
    assert 0 < grouped["missed_share"][1] < 1


def test_writes_without_labels_are_refused():
    rows = WriteGroups(range(len(CARS))).rows
    for broken, column in (("lat", pa.float64()), ("labelled", pa.bool_())):
        values = rows[broken].to_pylist()
        some = rows.set_column(rows.column_names.index(broken), broken, pa.array([None, *values[1:]], column))
        with pytest.raises(TraceContentError, match="labels are of other positions"):
            writes_of_rows(some)
