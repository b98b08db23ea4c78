"""Learnt read policies: what they learn, and separation of training and test data."""

import numpy as np
import pyarrow as pa
import pytest
from learning_traces import build_labelled_reads, build_positions, shuffle_labels

from mudkit.errors import TraceContentError
from mudkit.learning import Always, Bound, FixedRule, Tree, evaluate_reads
from mudkit.learning.features import FEATURE_SETS, read_features
from mudkit.learning.pairs import Pairs
from mudkit.units import solar_time

LABELS, READS = build_labelled_reads()
WRITTEN = build_positions(
    [("car", 60 * hour, 3336 + hour % 7) for hour in range(96)] + [("phone-01", 5, 3336)]
)
"""Hourly writes of a car that never reads, at the western town's latitude, but far to the east."""


def evaluate_by_policy(policies, labels=LABELS, reads=READS, **options):
    return {
        row["policy"]: row for row in evaluate_reads(labels, reads, policies, **options).to_dict("records")
    }


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("folds", ["device", "time"])
def test_tree_learns_the_rule_behind_the_labels(folds):
    rows = evaluate_by_policy([FixedRule(), Always(), Tree(), Tree(match=FixedRule()), Bound()], folds=folds)
    rule, always, tree, matched, bound = rows.values()
    assert tree["cost"] < 0.5 * min(rule["cost"], always["cost"])
    assert tree["sent_share"] < rule["sent_share"] - 0.1
    assert matched["stale_share"] <= rule["stale_share"] + 0.03
    assert bound["sent_share"] <= matched["sent_share"] < rule["sent_share"]
    assert tree["reads"] == (len(READS) if folds == "device" else len(READS) / 4)  # the last of four days


def test_higher_stale_cost_lowers_the_stale_share():
    cheap, costly = evaluate_by_policy([Tree([[0, 1], [0.02, 0]]), Tree("freshness")]).values()
    assert costly["stale_share"] < cheap["stale_share"]
    assert costly["sent_share"] > cheap["sent_share"]


def test_shuffled_labels_teach_the_trivial_policy():
    """Shuffle labels of which most are stale: an uninformed policy always asks."""
    shuffled_labels = shuffle_labels(LABELS)
    pairs = Pairs.of(shuffled_labels, READS)
    stale = pairs.missing >= 1
    price = 3.0 * np.mean(~stale) / np.mean(stale)
    for features in ("paper", "extended"):
        learnt = Tree([[0, 1], [price, 0]], features).learn(pairs, stale)
        assert learnt.local(pairs).mean() < 0.02
        honest = Tree([[0, 1], [price, 0]], features).learn(
            Pairs.of(LABELS, READS), Pairs.of(LABELS, READS).missing >= 1
        )
        leaves = np.count_nonzero(honest.tree.is_leaf)
        assert leaves >= 2  # control: with the true labels the tree is not trivial
        assert 0.1 < honest.local(pairs).mean() < 0.9


class SpyPolicy:
    """Policy that learns nothing and records its inputs."""

    def __init__(self):
        self.trained, self.evaluated = [], []

    def learn(self, pairs, stale, by="device"):
        self.trained.append((set(pairs.device.tolist()), pairs.t_us.max(), by))
        return self

    def local(self, pairs):
        self.evaluated.append((set(pairs.device.tolist()), pairs.t_us.min()))
        return np.zeros(len(pairs.read), np.bool_)


def test_training_and_test_devices_are_disjoint():
    spy = SpyPolicy()
    evaluate_reads(LABELS, READS, [spy])
    assert len(spy.trained) == 10
    for (learnt, _, by), (tested, _) in zip(spy.trained, spy.evaluated, strict=True):
        assert by == "device"
        assert learnt
        assert tested
        assert not learnt & tested
        assert learnt | tested == set(range(12))


def test_training_days_precede_test_days():
    spy = SpyPolicy()
    evaluate_reads(LABELS, READS, [spy], folds="time")
    ((_, last_us, by),), ((_, first_us),) = spy.trained, spy.evaluated
    assert by == "day"
    assert last_us < first_us
    assert last_us // 86_400_000_000 < first_us // 86_400_000_000


def test_features_ignore_answers_of_the_same_and_later_reads():
    """Change the answers of a read and of later ones: its features stay equal."""
    pairs = Pairs.of(LABELS, READS, WRITTEN)
    for names in FEATURE_SETS:
        before = read_features(pairs, names)
        for read in np.random.default_rng(0).choice(np.unique(pairs.read), 5, replace=False):
            points = pairs.points.copy()
            later = pairs.t_us >= pairs.t_us[read]
            points[later] += 1_000
            # Some writes of that day follow the read.
            assert pairs.written is not None
            known = pairs.written.take(pairs.written.day < pairs.t_us[read] // 86_400_000_000)
            changed = {"points": points, "missing": pairs.missing + 7, "written": known}
            other = Pairs(**{**vars(pairs), **changed})
            rows = pairs.read == read
            assert np.array_equal(read_features(other, names)[rows], before[rows], equal_nan=True)
        assert before.shape == (len(pairs.read), len(FEATURE_SETS[names]))


def test_solar_time():
    noon_us = 4 * 86_400_000_000 + 12 * 3_600_000_000  # Monday, 5 January 1970
    hours, days = solar_time(np.array([noon_us] * 3), np.array([0.0, 90.0, 180.0]))
    assert hours.tolist() == [12, 18, 0]
    assert days.tolist() == [0, 0, 1]


def filter_devices(names):
    keep = np.isin(READS["device"].to_pylist(), names)
    reads = READS.filter(pa.array(keep))
    is_kept = np.isin(LABELS["read_id"].to_numpy(), reads["read_id"].to_numpy())
    return LABELS.filter(pa.array(is_kept)), reads


def test_too_little_data_is_refused():
    with pytest.raises(TraceContentError, match=r"nothing to learn from|one device"):
        evaluate_reads(*filter_devices(["phone-01"]), [Tree()])
    missing = LABELS.column_names.index("missing")
    for value in (0, 1):
        uniform = LABELS.set_column(missing, "missing", pa.array([value] * len(LABELS)))
        with pytest.raises(TraceContentError, match="All examples have the same outcome"):
            evaluate_reads(uniform, READS, [Tree()])
    with pytest.raises(TraceContentError, match="no reads"):
        evaluate_reads(LABELS.slice(0, 0), READS.slice(0, 0), [Tree()])
    labels, reads = build_labelled_reads(days=1)
    with pytest.raises(TraceContentError, match="no later day"):
        evaluate_reads(labels, reads, [Tree()], folds="time")


def test_tree_name_has_costs_and_features():
    assert [str(Tree()), str(Tree([[0, 1], [1, 0]])), str(Tree("freshness", "paper"))] == [
        "tree, latency",
        "tree, own costs",
        "tree, freshness, paper features",
    ]
    assert str(Tree(match=FixedRule())) == "tree, as stale as the rule"
