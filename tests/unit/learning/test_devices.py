"""Replay by groups of devices: the same result for any grouping, and a sample that depends on no order."""

import pickle
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import ClassVar

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
    read_frontier,
    recommend,
    search,
    tree_nodes,
    write_frontier,
)
from mudkit.learning.costs import CLASSES, CostMatrix, delay_costs
from mudkit.learning.delays import search_delays
from mudkit.learning.devices import (
    MAX_LEARNT_PAIRS,
    Fleet,
    LocalWriters,
    count_pairs,
    open_devices,
    pairs_of_rows,
    writes_of_rows,
)
from mudkit.learning.evaluate import READ_MEASURES
from mudkit.learning.frontier import frontier_of_reads, frontier_of_writes
from mudkit.learning.pairs import Pairs
from mudkit.learning.radio import RadioModel
from mudkit.learning.search import search_policies
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.trace.schema import epoch_us, read_ids

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
    read = reads.select(["read_id", "device", "ts", "lat", "lon", "box_km", "window_s"])
    return labels.join(read, "read_id", join_type="full outer").sort_by("device")


class Groups:
    """Rows of labels in groups of devices, as Spark's tasks have them."""

    def __init__(self, groups, rows=None):
        self.rows = join_rows() if rows is None else rows
        self.groups = groups

    def map(self, function):
        number = dict(zip(NAMES, self.groups, strict=True))
        group = np.array([number[name] for name in self.rows["device"].to_pylist()])
        return [function(self.rows.filter(pa.array(group == one))) for one in np.unique(group)[::-1]]

    def join(self, function, join):
        return reduce(join, self.map(function))

    def collect(self, names):
        if names is None:
            return self.rows
        return self.rows.filter(pa.compute.is_in(self.rows["device"], value_set=names))

    def collect_blocks(self, devices, block):
        rows = self.rows.to_pandas().merge(devices.to_pandas(), on="device")
        reads = rows[rows["cached_read_id"].isna()].sort_values(["device", "ts", "read_id"])
        blocks = reads.groupby("device").cumcount() // block
        kept = self.rows.filter(
            pa.compute.is_in(
                self.rows["read_id"],
                value_set=pa.array(reads.loc[blocks % reads["every"] == reads["first"], "read_id"]),
            )
        )
        cached = pa.compute.is_in(kept["cached_read_id"], value_set=kept["read_id"])
        return kept.filter(pa.compute.or_(cached, kept["cached_read_id"].is_null()))


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
@examples(8)
@given(groups=st.lists(st.integers(0, 4), min_size=len(NAMES), max_size=len(NAMES)))
def test_grouping_of_devices_changes_no_bit(whole, folds, groups):
    """Compare trees' shares, costs and intervals of tasks with those of one process."""
    pd.testing.assert_frame_equal(evaluate_groups(groups, FEW, folds=folds), whole[folds], check_exact=True)


def assert_equal_recommendations(one, other):
    """Compare what is recommended and all that was chosen, with trees, counts and intervals, to the last bit."""
    for name in ("device", "day", "reads"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    for name in ("rules", "longest_s", "learnt_devices", "problem"):
        assert getattr(one, name) == getattr(other, name)
    assert [of.family for of in one.choices] == [of.family for of in other.choices]
    assert one.chosen.family == other.chosen.family
    for of, its in zip(one.choices, other.choices, strict=True):
        assert np.array_equal(of.fresh, its.fresh)
        assert np.array_equal(of.stale, its.stale)
        assert (one.risk(of), one.share(of.fresh)) == (other.risk(its), other.share(its.fresh))
        if of.family == "tree":
            assert tree_nodes(of.policy).equals(tree_nodes(its.policy))
        else:
            assert of.policy == its.policy


@pytest.fixture(scope="module")
def uneven():
    """Return labels and reads of devices of very different length: one has half of all reads."""
    labels, reads = build_labelled_reads(devices=len(NAMES), days=24, a_day=12)
    reads = reads.sort_by([("device", "ascending"), ("ts", "ascending")])
    most = np.array([288, *np.tile([24, 2, 24, 24, 48, 1, 30], 2)[: len(NAMES) - 1]])
    device = np.unique(reads["device"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    rank = np.arange(len(device)) - np.searchsorted(device, device)
    reads = reads.filter(pa.array(rank < most[device]))
    kept = pa.compute.is_in(labels["read_id"], value_set=reads["read_id"])
    return labels.filter(kept), reads


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("folds", ["device", "time"])
@pytest.mark.parametrize("seed", [0, 5])
def test_grouping_of_devices_changes_nothing_that_is_recommended(uneven, folds, seed, monkeypatch, scaled):
    """Grow the same trees from a sample, choose by the same sums: `recommend` on Spark equals it here."""
    monkeypatch.setattr(search, "MAX_LEARNT_PAIRS", 150)
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 3)
    monkeypatch.setattr(devices, "SAMPLED_BLOCK", 4)
    labels, reads = uneven
    counts = reads["device"].value_counts().to_pylist()
    assert max(of["counts"] for of in counts) >= len(reads) // 2 > 200 * min(of["counts"] for of in counts)
    options = {"completeness": 0.9, "max_stale": 0.2, "folds": folds, "seed": seed}
    whole = recommend(labels, reads, **options)
    assert 3 <= whole.learnt_devices < len(NAMES)
    assert {of.family for of in whole.choices} >= {"age", "time of day"}
    assert (whole.choice("tree") is None) == bool(whole.problem)
    rows = join_rows(labels, reads)
    few, alone = np.random.default_rng(seed).integers(0, 3, len(NAMES)), range(len(NAMES))
    for groups in (few, alone)[: scaled(2, 1)]:
        spread = devices._Spread(Groups(groups, rows), None)
        assert_equal_recommendations(search_policies(spread, **options), whole)


def test_results_of_tasks_do_not_grow_with_reads(monkeypatch):
    """Count the bytes that a task returns: sums, and answers by day (scale.md: the driver holds measures and trees).

    Of eight times as many reads there are about thirty times as many pairs.
    """
    monkeypatch.setattr(search, "MAX_LEARNT_PAIRS", 100)
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 2)
    returned = []
    for a_day in (4, 32):
        labels, reads = build_labelled_reads(devices=len(NAMES), days=2, a_day=a_day)
        groups = Groups([0, 1] * (len(NAMES) // 2), join_rows(labels, reads))
        sizes = []

        def count_bytes(function, groups=groups, sizes=sizes):
            results = Groups.map(groups, function)
            sizes.extend(len(pickle.dumps(of)) for of in results)
            return results

        monkeypatch.setattr(groups, "map", count_bytes)
        result = search_policies(devices._Spread(groups, None), completeness=0.9, max_stale=0.2)
        assert result.count == len(reads)
        returned.append((len(labels), max(sizes)))
    (few, few_bytes), (many, many_bytes) = returned
    assert many > 30 * few
    assert many_bytes < 2 * few_bytes


def test_read_frontier_has_the_shares_of_its_trees_in_any_groups():
    """Compare each price with the tree of that price in `evaluate_reads`, and tasks with one process."""
    prices, options = (0.2, 1.0, 8.0), {"stale": "completeness", "completeness": 0.9, "positions": WRITTEN}
    frontier = read_frontier(LABELS, READS, features="dense", prices=prices, **options)
    trees = [Tree(CostMatrix(price, 1.0), "dense") for price in prices]
    measured = evaluate_reads(LABELS, READS, trees, **options)
    for name in ("sent_share", "stale_share"):
        assert frontier[name].tolist() == measured[name].tolist()
    assert len(set(frontier["sent_share"])) == len(prices)
    spread = devices._Spread(Groups([0, 1, 2, 3] * 3 + [0, 0]), WRITTEN)
    pd.testing.assert_frame_equal(frontier_of_reads(spread, 0.9, "dense", prices), frontier, check_exact=True)


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
        drawn = Fleet.of(opened.map(count_pairs)).sample_pairs(0, MAX_LEARNT_PAIRS)
        assert drawn.chosen.all()
        assert drawn.is_whole


@pytest.mark.parametrize("seed", range(3))
def test_device_with_most_pairs_is_learnt_from_in_part(seed):
    """Draw few devices, of which one has a hundred times as many pairs as wanted: it has a share as the others."""
    names = pa.array([f"car-{number}" for number in range(10)])
    ids, examples = devices.device_ids(names.to_pylist()), np.full(10, 40)
    examples[4] = 100_000
    fleet = Fleet(names, ids, examples // 4, examples, np.arange(2))
    drawn = fleet.sample_pairs(seed, 1000)
    assert drawn.chosen.all()
    assert not drawn.is_whole
    assert np.array_equal(np.flatnonzero(drawn.every > 1), [4])
    assert drawn.every[4] == -(-100_000 // (1000 - 9 * 40))
    many = np.arange(2_000_000)
    part = drawn.has(np.full(len(many), 4), many)
    assert part.mean() == pytest.approx(1 / drawn.every[4], rel=0.05)
    assert np.count_nonzero(np.diff(part)) <= 2 * len(many) / devices.SAMPLED_BLOCK / drawn.every[4] + 2
    assert drawn.has(np.zeros(10, int), np.arange(10)).all()


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


def sum_pieces(points, reads, prepare, count, schema, more):
    """Call a function with some points at a time, and with the reads that may have them; add its counts."""
    by_time, t_us, longest_us = (
        points.sort_by("ts"),
        epoch_us(reads["ts"]),
        int(1e6 * max(reads["window_s"].to_pylist())),
    )
    pieces = [schema.empty_table()]
    for first in range(0, len(by_time), 17):
        piece = by_time.slice(first, 17)
        at_us = epoch_us(piece["ts"])
        asking = np.flatnonzero((t_us >= at_us[0]) & (t_us <= at_us[-1] + longest_us))
        pieces.append(count(prepare(reads.take(pa.array(asking[::-1]))), piece).cast(schema))
    return add_counts(pieces)


def sum_late_pieces(rows, function, reads, prepare, count, schema):
    """Call a function that returns results and late writes, and count these as `sum_pieces` does."""
    results = rows.map(function)
    late = pa.concat_tables([late for _, late in results])
    return [result for result, _ in results], sum_pieces(late, reads, prepare, count, schema, None)


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


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("folds", "least"), [("device", None), ("time", None), ("device", 0.8)])
@examples(8)
@given(groups=st.lists(st.integers(0, 3), min_size=len(CARS), max_size=len(CARS)))
def test_grouping_of_devices_changes_no_bit_of_writes(whole_writes, folds, least, groups):
    @contextmanager
    def open_groups(first_reads, positions):
        yield devices._WritesSpread(WriteGroups(groups), POSITIONS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_batches, "open_writers", open_groups)
        patch.setattr("mudkit.pipeline.slices.sum_by_reads", sum_pieces)
        patch.setattr("mudkit.pipeline.slices.sum_late", sum_late_pieces)
        options = {"folds": folds, "completeness": least, "repeats": 1}
        grouped = evaluate_writes(None, None, QUERIES, BATCHES[: 3 if least else 5], **options)
    pd.testing.assert_frame_equal(grouped, whole_writes[folds, least], check_exact=True)
    assert 0 < grouped["missed_share"][1] < 1


class CountedWriters(LocalWriters):
    """Writes in this process that count the passes over them."""

    passes: ClassVar[list[str]] = []

    def late(self, *args):
        self.passes.append("late")
        return super().late(*args)


def test_turns_are_measured_in_one_pass_as_each_alone(monkeypatch):
    """Measures are those of a turn of its own (Mobius 7.3); the writes are passed over once for all turns."""
    writers = CountedWriters(Writes.of(FIRSTS, POSITIONS))
    fleet = Fleet.of(writers.map(devices.count_writes))
    study = evaluate_batches.WriteStudy(writers, fleet, ReadRequests.of(QUERIES), None, RadioModel())
    turns = evaluate_batches.draw_turns(fleet, "device", 3)
    policies = [study.learn(BATCHES[:4], turn, "device", 0)[0] for turn in turns]
    alone = [study.measure([some], [turn])[0] for some, turn in zip(policies, turns, strict=True)]
    CountedWriters.passes.clear()
    assert study.measure(policies, turns) == alone
    assert CountedWriters.passes == ["late"]
    assert len({str(measured) for measured in alone}) == len(turns)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("folds", ["device", "time"])
def test_write_frontier_has_the_shares_of_its_policies_in_any_groups(folds, monkeypatch):
    """Compare trees and delays with those of `evaluate_writes`, and tasks with one process."""
    monkeypatch.setattr("mudkit.pipeline.slices.sum_by_reads", sum_pieces)
    monkeypatch.setattr("mudkit.pipeline.slices.sum_late", sum_late_pieces)
    prices, shares = (0.01, 0.5), ["message_share", "point_share", "missed_share"]
    result = write_frontier(FIRSTS, POSITIONS, QUERIES, folds=folds, prices=prices)
    assert np.isnan(result["price"]).sum() == len(CLASSES) == len(result) - len(prices)
    spread = devices._WritesSpread(WriteGroups([0, 1, 2] * 3), POSITIONS)
    grouped = frontier_of_writes(spread, ReadRequests.of(QUERIES), folds, prices)
    pd.testing.assert_frame_equal(grouped, result, check_exact=True)
    interval_s = 7 * 60.0
    policies = [BatchTree(delay_costs(price, interval_s=interval_s)) for price in prices]
    policies += [Batch(minutes) for minutes in CLASSES[:-1]]
    measured = evaluate_writes(FIRSTS, POSITIONS, QUERIES, policies, folds=folds, repeats=1)
    assert result[shares].to_numpy()[:-1].tolist() == measured[shares].to_numpy().tolist()
    never = evaluate_writes(FIRSTS, POSITIONS, QUERIES, [Batch(1e6)], folds=folds, repeats=1)
    assert result[shares].to_numpy()[-1].tolist() == [0.0, 0.0, never["missed_share"][0]]
    assert len(result[shares].drop_duplicates()) > 5


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("folds", ["device", "time"])
def test_grouping_of_devices_changes_no_delay(folds, monkeypatch):
    """Search delays of tasks and of one process: the same messages, stale reads and learnt delays."""
    monkeypatch.setattr("mudkit.pipeline.slices.sum_by_reads", sum_pieces)
    monkeypatch.setattr("mudkit.pipeline.slices.sum_late", sum_late_pieces)
    results = []
    for writers in (
        LocalWriters(Writes.of(FIRSTS, POSITIONS)),
        devices._WritesSpread(WriteGroups([0, 1, 2] * 3), POSITIONS),
    ):
        requests, limits = ReadRequests.of(QUERIES), {"completeness": 0.8, "max_stale": 0.6}
        delays = search_delays(writers, requests, folds=folds, **limits)
        replays = [*delays.search(), *delays.learnt()]
        rows = [(one.messages.tolist(), one.points.tolist(), one.is_stale.tolist()) for one in replays]
        results.append((delays.interval_s, [one.minutes for one in replays if one.minutes >= 0], rows))
    assert results[0] == results[1]
    assert len(results[0][2]) > len(results[0][1]) > 6


def test_writes_without_labels_are_refused():
    rows = WriteGroups(range(len(CARS))).rows
    for broken, column in (("lat", pa.float64()), ("labelled", pa.bool_())):
        values = rows[broken].to_pylist()
        some = rows.set_column(rows.column_names.index(broken), broken, pa.array([None, *values[1:]], column))
        with pytest.raises(TraceContentError, match="labels are of other positions"):
            writes_of_rows(some)
