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
from learning_traces import build_labelled_reads, build_positions

from mudkit.errors import TraceContentError
from mudkit.learning import Always, Bound, FixedRule, Tree, devices, evaluate, evaluate_reads
from mudkit.learning.devices import Fleet, open_devices, pairs_of_rows
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
@examples(24)
@given(groups=st.lists(st.integers(0, 4), min_size=len(NAMES), max_size=len(NAMES)))
def test_grouping_of_devices_changes_no_bit(whole, folds, groups):
    """Compare trees' shares, costs and intervals of tasks with those of one process (issue 66, 9)."""
    pd.testing.assert_frame_equal(evaluate_groups(groups, FEW, folds=folds), whole[folds], check_exact=True)


def test_sampled_devices_are_the_same_in_groups(monkeypatch):
    monkeypatch.setattr(devices, "MAX_LEARNT_PAIRS", 100)
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
    fleet = Fleet(names, ids, ones, 10_000 * ones, np.arange(2))
    drawn = fleet.sample(0)
    assert np.count_nonzero(drawn) == devices.MAX_LEARNT_PAIRS // 10_000
    order = np.random.default_rng(0).permutation(count)
    assert np.array_equal(replace(fleet, ids=ids[order]).sample(0), drawn[order])
    assert 30 < np.count_nonzero(drawn & fleet.sample(1)) < 70  # half of half


def test_few_pairs_are_all_learnt_from():
    with open_devices(LABELS, READS) as opened:
        assert Fleet.of(opened).sample(0).all()


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
