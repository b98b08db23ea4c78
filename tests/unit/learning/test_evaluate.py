import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from learning_traces import build_labelled_reads

from mudkit.errors import TraceContentError
from mudkit.learning import COSTS, Always, Bound, CostMatrix, FixedRule, RadioModel, Tree, evaluate_reads
from mudkit.trace.schema import with_read_ids

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def make_reads(*rows):
    """Return reads from (device, minutes, kilometres north)."""
    return with_read_ids(
        pa.table(
            {
                "device": [r[0] for r in rows],
                "ts": pa.array([START + dt.timedelta(minutes=r[1]) for r in rows], pa.timestamp("us", "UTC")),
                "lat": [r[2] / 111.195 for r in rows],
                "lon": [0.0] * len(rows),
                "box_km": [20.0] * len(rows),
                "window_s": [7200.0] * len(rows),
                "origin": ["recorded"] * len(rows),
            }
        )
    )


def make_labels(reads, pairs, points=10):
    """Return labels from (read, cached, missing); without a cached answer all points are missing."""
    ids = reads["read_id"].to_pylist()
    rows = [(i, None, points) for i in ids] + [(ids[q], ids[p], m) for q, p, m in pairs]
    read, cached, missing = zip(*rows, strict=True)
    return pa.table(
        {
            "read_id": pa.array(read, pa.int64()),
            "cached_read_id": pa.array(cached, pa.int64()),
            "points": pa.array([points] * len(rows), pa.int64()),
            "others": pa.array([points] * len(rows), pa.int64()),
            "missing": pa.array(missing, pa.int64()),
            "completeness": [1 - m / points for m in missing],
        }
    )


# One phone reads at 0, 5, 9 and 30 minutes. The rule serves the second and third read from the first answer.
READS = make_reads(("a", 0, 0), ("a", 5, 0.5), ("a", 9, 0.9), ("a", 30, 0))
LABELS = make_labels(READS, [(1, 0, 0), (2, 0, 2), (2, 1, 1), (3, 0, 5), (3, 1, 0), (3, 2, 0)])


def evaluate_policy(policy, **options):
    table = evaluate_reads(LABELS, READS, [FixedRule(), policy], **options)
    return table.iloc[1]


def test_rule_serves_from_the_last_fetched_answer():
    result = evaluate_policy(FixedRule(km=1, minutes=10))
    assert result["sent_share"] == 2 / 4
    assert result["stale_share"] == 1 / 4  # the third lacks two points
    assert result["completeness"] == (1 + 1 + 0.8 + 1) / 4
    assert result["cost"] == 1 / 4  # one stale answer; the send at 30 min was necessary


def test_distant_or_old_answers_cause_a_query():
    assert evaluate_policy(FixedRule(km=0.6, minutes=10))["sent_share"] == 3 / 4
    # The third is 0.4 km from the second, but the second was not fetched.
    assert evaluate_policy(FixedRule(km=1, minutes=4.9))["sent_share"] == 3 / 4


def test_always_policy_is_never_stale_but_costly():
    result = evaluate_policy(Always())
    assert (result["sent_share"], result["stale_share"], result["completeness"]) == (1, 0, 1)
    assert result["cost"] == 2 / 4  # the second and the fourth could have been served
    assert result.isna()["sent_share_low"]  # one device has no interval


def test_bound_sends_early_to_stay_fresh_later():
    # Serving the second from the first is free, but then the third and the fourth must both be sent.
    labels = make_labels(READS, [(1, 0, 0), (2, 0, 3), (2, 1, 0), (3, 0, 5), (3, 1, 0), (3, 2, 9)])
    result = evaluate_reads(labels, READS, [Bound(0.0)]).iloc[0]
    assert (result["sent_share"], result["stale_share"]) == (2 / 4, 0)


def test_bound_is_at_most_as_stale_as_the_rule():
    result = evaluate_policy(Bound())
    assert result["stale_share"] <= 1 / 4
    assert result["sent_share"] == 2 / 4
    assert (
        evaluate_reads(LABELS, READS, [Bound()]).iloc[0]["stale_share"] == 0
    )  # without a rule nothing may be stale
    assert evaluate_reads(LABELS, READS, [Bound(1.0)]).iloc[0]["sent_share"] == 1 / 4


def test_bound_distributes_stale_answers_over_all_devices():
    # The rule is stale once, on phone b; a stale answer on phone a saves two sends instead.
    reads = make_reads(("a", 0, 0), ("a", 20, 0), ("a", 40, 0), ("b", 0, 0), ("b", 5, 0))
    labels = make_labels(reads, [(1, 0, 1), (2, 0, 0), (2, 1, 9), (4, 3, 1)])
    rule, bound = evaluate_reads(labels, reads, [FixedRule(), Bound()]).to_dict("records")
    assert (rule["sent_share"], rule["stale_share"]) == (4 / 5, 1 / 5)
    assert (bound["sent_share"], bound["stale_share"]) == (3 / 5, 1 / 5)


def test_stale_is_measured_by_completeness():
    result = evaluate_policy(FixedRule(), stale="completeness", completeness=0.8)
    assert result["stale_share"] == 0
    assert evaluate_policy(FixedRule(), stale="completeness", completeness=0.81)["stale_share"] == 1 / 4


def test_custom_costs_are_applied():
    assert evaluate_policy(FixedRule(), cost="freshness")["cost"] == COSTS["freshness"].stale / 4
    assert evaluate_policy(Always(), cost=CostMatrix(stale=9, unnecessary=3))["cost"] == 3 * 2 / 4


def test_query_is_not_unnecessary_when_the_last_fetched_answer_cannot_serve():
    """The second read is served from the first; the third is too late for the first, and not sent in vain."""
    reads = make_reads(("a", 0, 0), ("a", 5, 0), ("a", 40, 0))
    labels = make_labels(reads, [(1, 0, 0), (2, 1, 0)])
    rule = evaluate_reads(labels, reads, [FixedRule()], cost=CostMatrix(stale=9, unnecessary=3)).iloc[0]
    assert (rule["sent_share"], rule["cost"]) == (2 / 3, 0)


def test_intervals_are_over_devices():
    reads = make_reads(*[(f"d{d}", m, 0) for d in range(20) for m in (0, 5)])
    index = {r: i for i, r in enumerate(zip(reads["device"].to_pylist(), range(len(reads)), strict=True))}
    assert len(index) == 40
    pairs = [(2 * d + 1, 2 * d, d % 2) for d in range(20)]
    result = evaluate_reads(make_labels(reads, pairs), reads, [FixedRule()]).iloc[0]
    assert result["stale_share"] == 10 / 40
    assert result["stale_share_low"] < 0.25 < result["stale_share_high"]
    assert result["sent_share_low"] == result["sent_share"] == result["sent_share_high"] == 0.5


def test_bytes_messages_and_energy_count_sent_queries():
    """Send two of the rule's four reads, and all reads of Always; each wakes the radio."""
    rule, always = evaluate_reads(LABELS, READS, [FixedRule(), Always()]).to_dict("records")
    model = RadioModel()
    query_bytes = model.query_bytes + model.answer_bytes + 10 * model.point_bytes
    assert (rule["messages"], always["messages"]) == (6 / 4, 12 / 4)
    assert (rule["bytes"], always["bytes"]) == (2 * query_bytes / 4, query_bytes)
    assert rule["radio_mj"] == pytest.approx(always["radio_mj"] / 2)
    assert 10_000 < always["radio_mj"] < 15_000  # mostly the tail of LTE, 12.3 J
    assert always["radio_mj_change"] == pytest.approx(always["radio_mj"] / 2)
    idle = evaluate_reads(LABELS, READS, [Always()], radio=RadioModel("ideal")).iloc[0]
    assert idle["radio_mj"] == 0
    assert idle.isna()["bytes_change"]  # no rule to compare with


def test_changes_and_gap_are_computed_per_fold():
    """Evaluate twenty phones: the rule serves the second read, which Always sends needlessly."""
    reads = make_reads(*[(f"d{d}", m, 0) for d in range(20) for m in (0, 5, 30 + d % 3)])
    pairs = [(3 * d + 1, 3 * d, 0) for d in range(20)] + [
        (3 * d + 2, 3 * d, int(d % 4 == 0)) for d in range(20)
    ]
    policies = [FixedRule(), Always(), FixedRule(minutes=31.5), Bound()]
    rule, always, longer, bound = evaluate_reads(make_labels(reads, pairs), reads, policies).to_dict(
        "records"
    )
    assert (rule["sent_share"], always["sent_share"], bound["sent_share"]) == (
        pytest.approx(2 / 3),
        1,
        pytest.approx(25 / 60),
    )
    assert rule["sent_share_change"] == rule["gap_closed"] == 0
    assert bound["gap_closed"] == bound["gap_closed_low"] == bound["gap_closed_high"] == 1
    assert always["sent_share_change_low"] == pytest.approx(1 / 3)  # equal for all phones
    assert always["gap_closed"] < 0
    assert longer["sent_share_change_low"] < longer["sent_share_change"] < longer["sent_share_change_high"]
    assert longer["gap_closed_low"] < longer["gap_closed"] < longer["gap_closed_high"]


def test_simultaneous_reads_do_not_serve_each_other():
    reads = make_reads(("a", 0, 0), ("a", 0, 0.1))
    assert evaluate_reads(make_labels(reads, []), reads, [FixedRule()]).iloc[0]["sent_share"] == 1


def test_tree_of_a_fold_that_learns_from_answers_that_are_all_alike_decides_alike():
    """All stale answers are with one device: what is learnt without it would always answer from the cache."""
    labels, reads = build_labelled_reads(devices=12)
    own = reads.filter(pc.equal(reads["device"], reads["device"][0]))["read_id"]
    is_own = pc.is_in(labels["read_id"], value_set=own).to_numpy(zero_copy_only=False)
    column = labels.column_names.index("missing")
    labels = labels.set_column(column, "missing", [np.where(is_own, labels["missing"].to_numpy(), 0)])
    trees, always = evaluate_reads(labels, reads, [Tree(), FixedRule(math.inf, 1e6)]).to_dict("records")
    assert 0 < trees["stale_share"] <= always["stale_share"]
    assert 0 < trees["sent_share"] < 1


def test_labels_of_other_reads_are_refused():
    other = make_reads(("b", 0, 0), ("b", 1, 0), ("b", 2, 0), ("b", 3, 0))
    with pytest.raises(TraceContentError, match="other reads"):
        evaluate_reads(LABELS, other, [Always()])
