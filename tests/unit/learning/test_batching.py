"""Writes that wait for others: what is sent when, which reads miss some, and what a tree finds."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import MINUTE_US, START_US, asked, first_labels, holds, written

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import Batch, BatchBound, BatchTree, RadioModel, batching, delay_costs, evaluate_writes
from mudkit.learning.batching import delayed
from mudkit.learning.costs import CLASSES
from mudkit.learning.evaluate_batches import _contents, bound_us, trained_on
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, missed


def world(writes, reads, **options):
    positions, queries = written(writes), asked(reads, **options)
    return Writes.of(first_labels(positions, queries), positions), ReadRequests.of(queries)


def minutes(t_us):
    return [None if each == NEVER_US else (each - START_US) / MINUTE_US for each in t_us.tolist()]


def at(values):
    return np.array([NEVER_US if each is None else START_US + round(each * MINUTE_US) for each in values])


def test_a_message_takes_along_all_that_is_pending():
    writes, _ = world([("a", 0, 0), ("a", 5, 0), ("a", 12, 0), ("b", 6, 0)], [("q", 500, 0)])
    sent = batches(writes, Batch(10).due_us(writes))
    assert (sent.messages, sent.points, minutes(sent.sent_us)) == (3, 4, [10, 10, 22, 16])


def test_what_is_due_first_goes_first_and_what_never_is_stays():
    writes, _ = world([("a", 0, 0), ("a", 1, 0), ("a", 2, 0), ("a", 3, 0)], [("q", 500, 0)])
    sent = batches(writes, at([30, 4, None, 3]))
    assert (sent.messages, sent.points, minutes(sent.sent_us)) == (1, 3, [3, 3, None, 3])
    assert batches(writes, at([None] * 4)).messages == 0
    at_once = batches(writes, Batch(0).due_us(writes))
    assert (at_once.messages, minutes(at_once.sent_us)) == (4, [0, 1, 2, 3])


WRITES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([0, 8, 30])),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[:2],
)
READS = st.lists(
    st.tuples(st.just("q"), st.integers(0, 60), st.sampled_from([0, 4, 30])),
    min_size=1,
    max_size=5,
    unique=True,
)


@given(WRITES, READS, st.data())
@examples(60)
def test_missed_reads_are_those_of_the_definition(rows, queries, data):
    writes, reads = world(rows, queries, window_min=20)
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
    positions = written(sorted(rows)).to_pylist()
    arrived = [each if each != NEVER_US else None for each in sent.sent_us.tolist()]
    expected = []
    for read in reads.table.to_pylist():
        at_us = round(read["ts"].timestamp() * 1e6)
        late = [
            holds(read, write) and (when is None or when > at_us)
            for write, when in zip(positions, arrived, strict=True)
        ]
        expected.append(any(late))
    assert missed(writes, sent.sent_us, reads).tolist() == expected


@given(WRITES, READS)
@examples(60)
def test_the_bound_is_the_fewest_messages_with_which_no_read_misses_any(rows, queries):
    """Against every choice of moments to send, of which only those of reads can matter."""
    writes, reads = world(rows, queries, window_min=20)
    sent = batches(writes, bound_us(None, writes, reads))
    assert not missed(writes, sent.sent_us, reads).any()
    assert sent.points == np.count_nonzero(writes.first_us != NEVER_US)
    fewest = 0
    for device in np.unique(writes.device):
        mine = (writes.device == device) & (writes.first_us != NEVER_US)
        t_us, until_us = writes.t_us[mine], writes.first_us[mine]
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
def test_a_bound_that_may_miss_as_a_policy_does_misses_no_other_read(rows, queries):
    writes, reads = world(rows, queries, window_min=20)
    by_policy = missed(writes, batches(writes, Batch(10).due_us(writes)).sent_us, reads)
    sent = batches(writes, bound_us(Batch(10), writes, reads))
    assert not (missed(writes, sent.sent_us, reads) & ~by_policy).any()
    assert sent.messages <= batches(writes, bound_us(None, writes, reads)).messages


def test_delays_round_down():
    writes, _ = world(
        [("a", 0, 0), ("a", 25, 0), ("a", 30, 0), ("a", 34, 0), ("a", 34.5, 30)],
        [("q", 34, 0), ("q", 35, 0)],
    )
    assert [CLASSES[each] for each in writes.classes()] == [30, 0, 0, 0, float("inf")]
    exact, _ = world([("a", 0, 0), ("a", 0.1, 0)], [("q", 119.99, 0), ("q", 10, 0)])
    assert [CLASSES[each] for each in exact.classes()] == [10, 0]
    due = delayed(writes, np.array([3, 0, 12, 13, 0]))
    assert minutes(due) == [30, 25, 150, None, 34.5]


def test_messages_take_their_bytes_and_wake_the_radio():
    writes, _ = world([("a", 0, 0), ("a", 5, 0), ("a", 12, 0), ("b", 6, 0), ("b", 90, 0)], [("q", 500, 0)])
    device, at_us, count = _contents(writes, batches(writes, Batch(10).due_us(writes)).sent_us)
    assert (device.tolist(), minutes(at_us), count.tolist()) == (
        [0, 0, 1, 1],
        [10, 22, 16, 100],
        [2, 1, 1, 1],
    )
    model = RadioModel()
    taken = model.messages(device, at_us, count)
    one = model.batch_bytes + model.write_bytes + model.acknowledged_bytes
    assert taken.bytes.tolist() == [one + model.write_bytes + model.acknowledged_bytes, one, one, one]
    none = _contents(writes, np.full(5, NEVER_US))
    assert [len(each) for each in none] == [0, 0, 0]


def test_parts_of_a_read():
    writes, _ = world(
        [("a", 0, 0), ("a", 1, 0), ("a", 2, 0), ("a", 20, 0), ("a", 30, 90)], [("q", 5, 0), ("q", 25, 0)]
    )
    part = writes.reads_each()
    assert part[:3].tolist() == [part[0]] * 3
    assert part[3] == pytest.approx(3 * part[0])
    assert part[4] == 0
    assert part[:4].mean() == pytest.approx(1)


def habits(devices=40, days=8):
    """In the north nobody reads; in the south somebody reads an hour after each drive."""
    writes, reads = [], []
    for device, day in itertools.product(range(devices), range(days)):
        north = 60 * (device // 2 % 2)
        begin = 1440 * day + 480 + 10 * device
        writes += [(f"car-{device:02d}", begin + step / 2, north + step / 40) for step in range(40)]
        if not north:
            reads.append((f"car-{device:02d}", begin + 80, 0.5))
    return written(writes), asked(reads, window_min=120)


POSITIONS, QUERIES = habits()


@pytest.fixture(scope="module")
def labels():
    from mudkit.pipeline.coverage import NOTHING, Reads
    from mudkit.trace.schema import epoch_us, timestamps

    prepared = Reads.of(QUERIES)
    first = prepared.first(
        epoch_us(POSITIONS["ts"]), POSITIONS["lat"].to_numpy(), POSITIONS["lon"].to_numpy()
    )
    never = first == NOTHING
    return pa.table(
        {
            "device": POSITIONS["device"],
            "ts": POSITIONS["ts"],
            "first_read_id": pa.array(prepared.ids[first], mask=never),
            "first_read_ts": pa.array(
                timestamps(prepared.end_us[first]).to_pylist(), pa.timestamp("us", "UTC"), mask=never
            ),
        }
    )


@pytest.mark.parametrize("folds", ["device", "time"])
def test_a_tree_learns_where_nobody_reads(labels, folds):
    policies = [Batch(10), Batch(30), BatchTree(match=Batch(30)), BatchTree(delay_costs(0.05)), BatchBound()]
    table = evaluate_writes(labels, POSITIONS, QUERIES, policies, folds=folds, repeats=2)
    ten, thirty, matched, own, bound = table.to_dict("records")
    assert ten["point_share"] == thirty["point_share"] == 1
    assert bound["missed_share"] == 0
    assert bound["point_share"] == pytest.approx(0.5)
    # What nobody reads stays; four devices are few, and one of two turns may find nothing in them.
    assert own["point_share"] == pytest.approx(0.5) or (folds == "device" and own["point_share"] < 0.8)
    assert own["message_share"] >= bound["message_share"]
    assert own["missed_share"] < thirty["missed_share"]
    assert matched["missed_share"] <= thirty["missed_share"] + 0.05
    # Fewer messages wake the radio less often, and fewer points are fewer bytes.
    assert ten["radio_mj"] > thirty["radio_mj"] > 0
    assert own["bytes"] < thirty["bytes"] < ten["bytes"]
    assert thirty["radio_mj_change"] == 0
    assert own["bytes_change"] == pytest.approx(own["bytes"] - thirty["bytes"])
    if folds == "device":
        assert table["message_share_low"].le(table["message_share"]).all()
        assert table["writes"].iloc[0] == 0.9 * len(POSITIONS)
    else:
        assert table["message_share_low"].isna().all()
        assert table["writes"].iloc[0] == 6 / 8 * len(POSITIONS)


def test_shuffled_labels_teach_one_delay_for_all(labels):
    writes = Writes.of(labels, POSITIONS)
    wait_us = np.where(writes.first_us == NEVER_US, NEVER_US, writes.first_us - writes.t_us)
    mixed_us = np.random.default_rng(0).permutation(wait_us)
    mixed = Writes(
        writes.device,
        writes.t_us,
        writes.lat,
        writes.lon,
        np.where(mixed_us == NEVER_US, NEVER_US, writes.t_us + np.where(mixed_us == NEVER_US, 0, mixed_us)),
    )
    true, control = (
        BatchTree(delay_costs(0.5), shared=False).learn(each, ReadRequests.of(QUERIES))
        for each in (writes, mixed)
    )
    assert np.count_nonzero(true.tree.is_leaf) >= 2
    delays = control.due_us(writes) - writes.t_us
    assert np.mean(delays == np.median(delays)) > 0.97


def test_no_device_is_on_both_sides(labels):
    writes = Writes.of(labels, POSITIONS)
    for turn in range(3):
        rows = trained_on(writes, turn)
        assert not set(writes.device[rows]) & set(writes.device[~rows])
        assert len(set(writes.device[rows])) == 4


def test_what_a_tree_is_matched_to_holds_where_it_learns_also_when_no_price_will_do(labels, monkeypatch):
    """Then all goes at once. On others it may miss more, and its name says so."""
    monkeypatch.setattr(batching, "PRICES", (0.001,))
    writes = Writes.of(labels, POSITIONS)
    due_us = BatchTree(match=Batch(0)).learn(writes, ReadRequests.of(QUERIES)).due_us(writes)
    assert (due_us == writes.t_us).all()
    assert str(BatchTree(match=Batch(30))) == "tree, misses no more than 30 min in training"


def some(labels, keep):
    rows = pa.array(np.array([keep(row) for row in POSITIONS.to_pylist()]))
    return labels.filter(rows), POSITIONS.filter(rows)


def test_bad_input(labels):
    with pytest.raises(TraceContentError, match="no reads"):
        evaluate_writes(labels, POSITIONS, QUERIES.slice(0, 0), [Batch(10)])
    with pytest.raises(TraceContentError, match="too few devices"):
        evaluate_writes(*some(labels, lambda row: row["device"] == "car-01"), QUERIES, [BatchTree()])
    with pytest.raises(TraceContentError, match="too few days"):
        three_days = some(labels, lambda row: row["ts"].day <= 8)
        evaluate_writes(*three_days, QUERIES, [BatchTree()], folds="time")
    with pytest.raises(TraceContentError, match="Only one thing"):
        evaluate_writes(*some(labels, lambda row: row["lat"] > 0.3), QUERIES, [BatchTree()])
    with pytest.raises(TraceContentError, match="other positions"):
        evaluate_writes(labels.slice(1), POSITIONS, QUERIES, [Batch(10)])
    with pytest.raises(TraceContentError, match="two places at once"):
        twice = [pa.concat_tables([each, each.slice(0, 1)]) for each in (labels, POSITIONS)]
        evaluate_writes(*twice, QUERIES, [Batch(10)])
    for options in ({"folds": "moon"}, {"repeats": 0}):
        with pytest.raises(ParameterError):
            evaluate_writes(labels, POSITIONS, QUERIES, [Batch(10)], **options)
    for cost in (np.zeros((2, 2)), -np.ones((14, 14)), "free"):
        with pytest.raises(ParameterError):
            evaluate_writes(labels, POSITIONS, QUERIES, [BatchTree(cost)])
