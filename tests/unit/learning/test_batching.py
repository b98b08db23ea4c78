"""Write batching: sending times, missed reads, bounds, and learnt delays."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import (
    MINUTE_US,
    START_US,
    build_positions,
    build_reads,
    contains,
    label_by_definition,
    misses,
)

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import Batch, BatchBound, BatchTree, RadioModel, batching, delay_costs, evaluate_writes
from mudkit.learning.batching import delayed
from mudkit.learning.costs import CLASSES
from mudkit.learning.evaluate_batches import _contents, bound_us, trained_on
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, missed


def make_world(writes, reads, **options):
    positions, queries = build_positions(writes), build_reads(reads, **options)
    return Writes.of(label_by_definition(positions, queries), positions), ReadRequests.of(queries)


def to_minutes(t_us):
    return [None if time_us == NEVER_US else (time_us - START_US) / MINUTE_US for time_us in t_us.tolist()]


def to_us(values):
    return np.array(
        [NEVER_US if minute is None else START_US + round(minute * MINUTE_US) for minute in values]
    )


def test_message_includes_all_pending_writes():
    writes, _ = make_world([("a", 0, 0), ("a", 5, 0), ("a", 12, 0), ("b", 6, 0)], [("q", 500, 0)])
    sent = batches(writes, Batch(10).due_us(writes))
    assert (sent.messages, sent.points, to_minutes(sent.sent_us)) == (3, 4, [10, 10, 22, 16])


def test_writes_are_sent_by_due_time_or_never():
    writes, _ = make_world([("a", 0, 0), ("a", 1, 0), ("a", 2, 0), ("a", 3, 0)], [("q", 500, 0)])
    sent = batches(writes, to_us([30, 4, None, 3]))
    assert (sent.messages, sent.points, to_minutes(sent.sent_us)) == (1, 3, [3, 3, None, 3])
    assert batches(writes, to_us([None] * 4)).messages == 0
    at_once = batches(writes, Batch(0).due_us(writes))
    assert (at_once.messages, to_minutes(at_once.sent_us)) == (4, [0, 1, 2, 3])


WRITES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([0, 8, 30])),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[:2],
)
READS = st.lists(
    st.tuples(st.sampled_from("aq"), st.integers(0, 60), st.sampled_from([0, 4, 30])),
    min_size=1,
    max_size=5,
    unique=True,
)


@given(WRITES, READS, st.data())
@examples(100)
def test_missed_reads_match_the_definition(rows, queries, data):
    """Count what has not come in each answer: devices read what they wrote themselves, and hold it."""
    writes, reads = make_world(rows, queries, window_min=20)
    delays = data.draw(
        st.lists(st.sampled_from([0, 3, 10, 30, None]), min_size=len(rows), max_size=len(rows))
    )
    due = np.array(
        [
            NEVER_US if delay is None else t + delay * MINUTE_US
            for t, delay in zip(writes.t_us.tolist(), delays, strict=True)
        ]
    )
    sent = batches(writes, due)
    positions = build_positions(sorted(rows)).to_pylist()
    arrived = [time_us if time_us != NEVER_US else None for time_us in sent.sent_us.tolist()]
    late, others = [], []
    for read in reads.table.to_pylist():
        at_us = round(read["ts"].timestamp() * 1e6)
        is_late = [
            misses(read, write) and (arrival_us is None or arrival_us > at_us)
            for write, arrival_us in zip(positions, arrived, strict=True)
        ]
        late.append(sum(is_late))
        others.append(sum(contains(read, write) and write["device"] != read["device"] for write in positions))
    assert missed(writes, sent.sent_us, reads).tolist() == [count > 0 for count in late]
    assert reads.counted(writes).others.tolist() == others
    for least in (0.2, 0.5, 2 / 3, 0.75, 0.9, 1.0):
        expected = [
            count > 0 and (total - count) / total < least for count, total in zip(late, others, strict=True)
        ]
        assert missed(writes, sent.sent_us, reads, least).tolist() == expected


@given(WRITES, READS)
@examples(60)
def test_writes_seen_by_reads_have_their_first_reads(rows, queries):
    """Find the first reads without labels, from rows in any order, as the definition has them."""
    expected, requests = make_world(rows, queries, window_min=20)
    writes = Writes.unread(build_positions(rows[::-1]))
    assert set(writes.first_us.tolist()) <= {NEVER_US}
    writes = writes.seen_by(requests)
    for name in ("device", "t_us", "lat", "lon", "first_us"):
        assert getattr(writes, name).tolist() == getattr(expected, name).tolist(), name
    assert writes.names.equals(expected.names)


def test_own_writes_are_never_missed():
    writes, reads = make_world([("a", 0, 0), ("b", 5, 0)], [("a", 10, 0), ("b", 20, 0), ("q", 400, 0)])
    assert to_minutes(writes.first_us) == [20, 10]
    never = np.full(2, NEVER_US)
    assert missed(writes, never, reads).tolist() == [True, True, False]
    # The own point of each of the two, half of its answer, says nothing about what the other wrote.
    assert missed(writes, never, reads, 0.1).tolist() == [True, True, False]
    alone, reads = make_world([("a", 0, 0)], [("a", 10, 0)])
    assert alone.first_us.tolist() == [NEVER_US]
    assert batches(alone, bound_us(None, alone, reads)).messages == 0


def test_points_that_came_before_are_part_of_the_answer():
    """Some of the writes are judged by whole answers: the others come at once."""
    writes, reads = make_world([("a", 0, 0), ("b", 5, 0)], [("q", 10, 0)])
    of_b = writes.take(np.array([False, True]))
    assert missed(of_b, np.full(1, NEVER_US), reads.counted(writes), 0.5).tolist() == [False]
    assert missed(of_b, np.full(1, NEVER_US), reads, 0.5).tolist() == [True]


@given(WRITES, READS)
@examples(60)
def test_bound_sends_the_fewest_messages_without_missed_reads(rows, queries):
    """Compare with all choices of sending times; only the times of reads matter."""
    writes, reads = make_world(rows, queries, window_min=20)
    sent = batches(writes, bound_us(None, writes, reads))
    assert not missed(writes, sent.sent_us, reads).any()
    assert sent.points == np.count_nonzero(writes.first_us != NEVER_US)
    fewest = 0
    for device in np.unique(writes.device):
        is_own = (writes.device == device) & (writes.first_us != NEVER_US)
        t_us, until_us = writes.t_us[is_own], writes.first_us[is_own]
        moments = np.unique(until_us)
        fewest += next(
            count
            for count in range(len(moments) + 1)
            for chosen in itertools.combinations(moments.tolist(), count)
            if all(any(t <= c <= u for c in chosen) for t, u in zip(t_us, until_us, strict=True))
        )
    assert sent.messages == fewest


@given(WRITES, READS)
@examples(40)
def test_bound_of_a_policy_misses_only_reads_the_policy_misses(rows, queries):
    writes, reads = make_world(rows, queries, window_min=20)
    by_policy = missed(writes, batches(writes, Batch(10).due_us(writes)).sent_us, reads)
    sent = batches(writes, bound_us(Batch(10), writes, reads))
    assert not (missed(writes, sent.sent_us, reads) & ~by_policy).any()
    assert sent.messages <= batches(writes, bound_us(None, writes, reads)).messages


def test_delays_round_down():
    writes, _ = make_world(
        [("a", 0, 0), ("a", 25, 0), ("a", 30, 0), ("a", 34, 0), ("a", 34.5, 30)],
        [("q", 34, 0), ("q", 35, 0)],
    )
    assert [CLASSES[number] for number in writes.classes()] == [30, 0, 0, 0, float("inf")]
    exact, _ = make_world([("a", 0, 0), ("a", 0.1, 0)], [("q", 119.99, 0), ("q", 10, 0)])
    assert [CLASSES[number] for number in exact.classes()] == [10, 0]
    due = delayed(writes, np.array([3, 0, 12, 13, 0]))
    assert to_minutes(due) == [30, 25, 150, None, 34.5]


def test_messages_are_charged_bytes_and_radio_energy():
    writes, _ = make_world(
        [("a", 0, 0), ("a", 5, 0), ("a", 12, 0), ("b", 6, 0), ("b", 90, 0)], [("q", 500, 0)]
    )
    device, at_us, count = _contents(writes, batches(writes, Batch(10).due_us(writes)).sent_us)
    assert (device.tolist(), to_minutes(at_us), count.tolist()) == (
        [0, 0, 1, 1],
        [10, 22, 16, 100],
        [2, 1, 1, 1],
    )
    model = RadioModel()
    charge = model.messages(device, at_us, count)
    single_bytes = model.batch_bytes + model.write_bytes + model.acknowledged_bytes
    assert charge.bytes.tolist() == [
        single_bytes + model.write_bytes + model.acknowledged_bytes,
        single_bytes,
        single_bytes,
        single_bytes,
    ]
    no_contents = _contents(writes, np.full(5, NEVER_US))
    assert [len(column) for column in no_contents] == [0, 0, 0]


def test_reads_are_divided_among_their_writes():
    writes, _ = make_world(
        [("a", 0, 0), ("a", 1, 0), ("a", 2, 0), ("a", 20, 0), ("a", 30, 90)], [("q", 5, 0), ("q", 25, 0)]
    )
    part = writes.reads_each()
    assert part[:3].tolist() == [part[0]] * 3
    assert part[3] == pytest.approx(3 * part[0])
    assert part[4] == 0
    assert part[:4].mean() == pytest.approx(1)


def make_habits(devices=40, days=8):
    """Return writes and reads: no read in the north; in the south one an hour after each drive."""
    writes, reads = [], []
    for device, day in itertools.product(range(devices), range(days)):
        north = 60 * (device // 2 % 2)
        start = 1440 * day + 480 + 10 * device
        writes += [(f"car-{device:02d}", start + step / 2, north + step / 40) for step in range(40)]
        if not north:
            reads.append((f"phone-{device:02d}", start + 80, 0.5))
    return build_positions(writes), build_reads(reads, window_min=120)


POSITIONS, QUERIES = make_habits()


@pytest.fixture(scope="module")
def labels():
    from mudkit.pipeline.coverage import first_reads

    rows = [("device", "ascending"), ("ts", "ascending")]  # as the positions have them
    return first_reads(POSITIONS, QUERIES).sort_by(rows)


@pytest.mark.parametrize("folds", ["device", "time"])
def test_tree_learns_places_without_reads(labels, folds):
    policies = [Batch(10), Batch(30), BatchTree(match=Batch(30)), BatchTree(delay_costs(0.05)), BatchBound()]
    table = evaluate_writes(labels, POSITIONS, QUERIES, policies, folds=folds, repeats=2)
    ten, thirty, matched, tree, bound = table.to_dict("records")
    assert ten["point_share"] == thirty["point_share"] == 1
    assert bound["missed_share"] == 0
    assert bound["point_share"] == pytest.approx(0.5)
    # Writes that are never read stay unsent; one of two turns may learn nothing from only four devices.
    assert tree["point_share"] == pytest.approx(0.5) or (folds == "device" and tree["point_share"] < 0.8)
    assert tree["message_share"] >= bound["message_share"]
    assert tree["missed_share"] < thirty["missed_share"]
    assert matched["missed_share"] <= thirty["missed_share"] + 0.05
    # Fewer messages wake the radio less often, and fewer points are fewer bytes.
    assert ten["radio_mj"] > thirty["radio_mj"] > 0
    assert tree["bytes"] < thirty["bytes"] < ten["bytes"]
    assert thirty["radio_mj_change"] == 0
    assert tree["bytes_change"] == pytest.approx(tree["bytes"] - thirty["bytes"])
    if folds == "device":
        assert table["message_share_low"].le(table["message_share"]).all()
        assert table["writes"].iloc[0] == 0.9 * len(POSITIONS)
    else:
        assert table["message_share_low"].isna().all()
        assert table["writes"].iloc[0] == 6 / 8 * len(POSITIONS)


def test_completeness_judges_reads_and_the_search_for_a_price(labels):
    """Reads may miss a share of their answers: more may wait, and a tree may send less."""
    policies = [Batch(30), Batch(60), BatchTree(match=Batch(60))]
    strict, one, half = (
        evaluate_writes(labels, POSITIONS, QUERIES, policies, repeats=2, completeness=least)
        for least in (None, 1.0, 0.5)
    )
    assert strict.equals(one)
    for name in ("message_share", "point_share", "missed_share"):
        assert half[name].le(strict[name] + 1e-12).all()
    assert half["missed_share"].iloc[1] < strict["missed_share"].iloc[1]
    writes, reads = Writes.of(labels, POSITIONS), ReadRequests.of(QUERIES)
    match = Batch(60)
    for least in (None, 0.9, 0.5):
        learnt = BatchTree(match=match).learn(writes, reads, completeness=least)
        by_tree, by_delay = (
            missed(writes, batches(writes, due_us).sent_us, reads, least).sum()
            for due_us in (learnt.due_us(writes), match.due_us(writes))
        )
        assert by_tree <= by_delay + 0.05 * len(QUERIES)


def test_shuffled_labels_teach_one_delay_for_all_writes(labels):
    writes = Writes.of(labels, POSITIONS)
    wait_us = np.where(writes.first_us == NEVER_US, NEVER_US, writes.first_us - writes.t_us)
    shuffled_us = np.random.default_rng(0).permutation(wait_us)
    first_us = np.where(
        shuffled_us == NEVER_US, NEVER_US, writes.t_us + np.where(shuffled_us == NEVER_US, 0, shuffled_us)
    )
    shuffled = replace(writes, first_us=first_us)
    true, control = (
        BatchTree(delay_costs(0.5), shared=False).learn(examples, ReadRequests.of(QUERIES))
        for examples in (writes, shuffled)
    )
    assert np.count_nonzero(true.tree.is_leaf) >= 2
    delays = control.due_us(writes) - writes.t_us
    assert np.mean(delays == np.median(delays)) > 0.97


def test_training_and_test_devices_are_disjoint(labels):
    writes = Writes.of(labels, POSITIONS)
    for turn in range(3):
        rows = trained_on(writes, turn)
        assert not set(writes.device[rows]) & set(writes.device[~rows])
        assert len(set(writes.device[rows])) == 4


def test_matched_tree_sends_immediately_when_no_price_suffices(labels, monkeypatch):
    """Send all writes at once if no price fits; the name says that the match holds in training only."""
    monkeypatch.setattr(batching, "PRICES", (0.001,))
    writes = Writes.of(labels, POSITIONS)
    due_us = BatchTree(match=Batch(0)).learn(writes, ReadRequests.of(QUERIES)).due_us(writes)
    assert (due_us == writes.t_us).all()
    assert str(BatchTree(match=Batch(30))) == "tree, misses no more than 30 min in training"


def filter_rows(labels, keep):
    rows = pa.array(np.array([keep(row) for row in POSITIONS.to_pylist()]))
    return labels.filter(rows), POSITIONS.filter(rows)


def test_invalid_input_is_refused(labels):
    with pytest.raises(TraceContentError, match="no reads"):
        evaluate_writes(labels, POSITIONS, QUERIES.slice(0, 0), [Batch(10)])
    with pytest.raises(TraceContentError, match="too few devices"):
        evaluate_writes(*filter_rows(labels, lambda row: row["device"] == "car-01"), QUERIES, [BatchTree()])
    with pytest.raises(TraceContentError, match="too few days"):
        three_days = filter_rows(labels, lambda row: row["ts"].day <= 8)
        evaluate_writes(*three_days, QUERIES, [BatchTree()], folds="time")
    with pytest.raises(TraceContentError, match="All examples have the same outcome"):
        evaluate_writes(*filter_rows(labels, lambda row: row["lat"] > 0.3), QUERIES, [BatchTree()])
    with pytest.raises(TraceContentError, match="other positions"):
        evaluate_writes(labels.slice(1), POSITIONS, QUERIES, [Batch(10)])
    with pytest.raises(TraceContentError, match="two places at once"):
        duplicated = [pa.concat_tables([table, table.slice(0, 1)]) for table in (labels, POSITIONS)]
        evaluate_writes(*duplicated, QUERIES, [Batch(10)])
    with pytest.raises(ParameterError, match="no bound"):
        evaluate_writes(labels, POSITIONS, QUERIES, [Batch(10), BatchBound()], completeness=0.9)
    assert len(evaluate_writes(labels, POSITIONS, QUERIES, [BatchBound()], completeness=1.0)) == 1
    for options in ({"folds": "moon"}, {"repeats": 0}, {"completeness": 0.0}, {"completeness": 1.1}):
        with pytest.raises(ParameterError):
            evaluate_writes(labels, POSITIONS, QUERIES, [Batch(10)], **options)
    for cost in (np.zeros((2, 2)), -np.ones((14, 14)), "free"):
        with pytest.raises(ParameterError):
            evaluate_writes(labels, POSITIONS, QUERIES, [BatchTree(cost)])
