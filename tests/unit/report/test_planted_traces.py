"""Checks of the generator of planted traces: no simple policy is better, and a planted tree is, where it should."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cache_oracle import SENT, label, replay, score
from learning_traces import build_positions, build_reads
from planted import BAR, REGIMES, TRACES, planted_trace
from report_traces import build_learnable

from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import replay as replay_pairs
from mudkit.pipeline.coverage import read_labels

SEED = 0
NOISE, NOISE_OF_BURSTS = 0.015, 0.04
"""Largest gain of the best of some hundred policies on the trace on which it is chosen."""
AGES_S = 60.0 * np.concatenate([[0], np.geomspace(2, 180, 28)])
ONE_OF_EACH = [TRACES.index(name) for name in dict.fromkeys(TRACES)]
REST = [number for number in range(len(TRACES)) if number not in ONE_OF_EACH]


def most_fresh(planted, labelled):
    """Return the most fresh answers within the limit, by family: the best of a grid of simple policies."""
    result = dict.fromkeys(("age", "distance and age", "time of day", "age by hour"), 0.0)
    age_s, distance_km, hour = (labelled.known[name] for name in ("age_s", "distance_km", "hour"))
    is_night = (hour >= REGIMES["day"][1]) | (hour < REGIMES["day"][0])

    def judge(family, local):
        shares = score(labelled, local, planted.completeness)
        if shares.stale <= planted.max_stale:
            result[family] = max(result[family], float(shares.fresh))
        return shares

    for km in np.geomspace(0.1, 20, 12):
        for limit_s in AGES_S[4::4]:
            judge("distance and age", (age_s <= limit_s) & (distance_km <= km))
    for first in np.arange(0, 24, 3.0):
        for hours in np.arange(3, 24, 3.0):
            judge("time of day", (hour - first) % 24 < hours)
    # No pair spans two shifts, so what limits by day and by night bring adds up.
    day, night = [], []
    for limit_s in AGES_S:
        judge("age", age_s <= limit_s)
        day.append(judge("age by hour", (age_s <= limit_s) & ~is_night))
        night.append(judge("age by hour", (age_s <= limit_s) & is_night))
    both = [(a.fresh + b.fresh, a.stale + b.stale) for a in day for b in night]
    allowed = [fresh for fresh, stale in both if stale <= planted.max_stale]
    result["age by hour"] = max(result["age by hour"], *map(float, allowed))
    return result


def check_planted_is_best(number):
    """Compare the planted policy with all simple ones on its own trace."""
    planted = planted_trace(SEED, number)
    labelled = label(planted.positions, planted.reads, planted.horizon_s)
    own = score(labelled, labelled.decisions(planted.decide), planted.completeness)
    simple = most_fresh(planted, labelled)
    best = max(simple.values())
    assert own.fresh >= best - (NOISE_OF_BURSTS if "bursts" in planted.name else NOISE)
    assert own.stale <= planted.max_stale + 0.02
    if planted.families == {"tree"}:
        assert own.fresh - best > 1.5 * BAR
    else:
        assert own.fresh - best < 0.75 * BAR
    if planted.kind == "nothing":
        assert own.fresh == 0
    elif planted.kind in ("distance", "hour"):
        named = [fresh for family, fresh in simple.items() if family in planted.families]
        others = [fresh for family, fresh in simple.items() if family not in planted.families]
        assert max(named) - max(others) > BAR


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("number", ONE_OF_EACH, ids=lambda number: TRACES[number])
def test_no_simple_policy_is_better_than_the_planted_one(number):
    check_planted_is_best(number)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("number", REST)
def test_no_simple_policy_is_better_in_the_other_traces(number):
    check_planted_is_best(number)


def test_ten_of_forty_traces_have_a_tree_above_the_bar():
    assert len(TRACES) == 40
    assert sum(name == "tree above the bar" for name in TRACES) == 10
    assert {name.split()[0].strip(",") for name in TRACES} == {
        *("age", "distance", "hour", "place", "tree", "nothing")
    }


def test_traces_repeat_and_fresh_ones_have_other_devices_and_days():
    planted, again = planted_trace(SEED, 23), planted_trace.__wrapped__(SEED, 23)
    assert planted.positions.equals(again.positions)
    assert planted.reads.equals(again.reads)
    assert not planted.reads.equals(planted_trace(SEED + 1, 23).reads)
    fresh = planted.fresh(1)
    days = [
        set(pc.floor_temporal(table["ts"], unit="day").to_pylist()) for table in (planted.reads, fresh.reads)
    ]
    assert not days[0] & days[1]
    assert not {*planted.reads["device"].to_pylist()} & {*fresh.reads["device"].to_pylist()}


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("number", [0, 4, 6, 23])
def test_labels_and_replay_agree_with_the_product(number):
    planted = planted_trace(SEED, number)
    assert not {*planted.positions["device"].to_pylist()} & {*planted.reads["device"].to_pylist()}
    check_agreement(planted.positions, planted.reads, planted.horizon_s)


def test_labels_and_replay_agree_where_answers_are_empty():
    source = build_learnable()
    check_agreement(source.positions, source.reads, 7200.0)


def check_agreement(positions, reads, horizon_s):
    """Compare with the labels of the pipeline and the replay of `mudkit.learning`, for random decisions too."""
    labelled = label(positions, reads, horizon_s)
    keys = [("read_id", "ascending"), ("cached_read_id", "ascending")]
    expected = read_labels(positions, reads, horizon_s).sort_by(keys)
    result = labelled.table().sort_by(keys)
    assert result.select(expected.column_names).cast(expected.schema).equals(expected)
    pairs = Pairs.of(labelled.table(), reads)
    assert np.array_equal(pairs.read, labelled.read)
    assert np.array_equal(pairs.cached, labelled.cached)
    rng = np.random.default_rng(3)
    for share in (0.0, 0.3, 0.9, 1.0):
        local = rng.random(len(pairs.read)) < share
        served, by_product = replay(labelled, local), replay_pairs(pairs, local)
        assert np.array_equal(np.where(served == SENT, -1, served), np.where(by_product < 0, -1, by_product))


def test_points_of_its_own_are_in_an_answer_but_never_missing():
    positions = build_positions([("me", 1, 0.0), ("other", 2, 0.0), ("me", 12, 0.0), ("other", 13, 0.0)])
    reads = build_reads([("me", 5, 0.0), ("me", 14, 0.0)])
    labelled = label(positions, reads, 3600.0)
    assert labelled.points.tolist() == [2, 4]
    assert labelled.others.tolist() == [1, 2]
    assert labelled.missing.tolist() == [1]
    assert labelled.completeness.tolist() == [0.5]
    assert labelled.table()["cached_read_id"].null_count == 2


def test_a_replay_keeps_the_answer_that_was_fetched_last():
    reads = build_reads([("a", minute, 0.0) for minute in (0, 10, 20, 30)] + [("b", 5, 0.0)])
    writes = build_positions([("w", minute, 0.0) for minute in (-5, 15)])
    labelled = label(writes, reads, 1500.0)
    local = labelled.decisions(lambda age_s, **_: age_s <= 1200)
    assert replay(labelled, local).tolist() == [SENT, 0, 1, SENT, SENT]
    shares = score(labelled, local, 1.0)
    assert (shares.sent, shares.stale, shares.fresh) == (0.6, 0.2, 0.2)


def test_decisions_know_solar_hours_and_weekdays():
    reads = build_reads([("a", 0, 0.0), ("a", 10, 0.0)])
    east = reads.set_column(reads.column_names.index("lon"), "lon", pa.array([90.0, 90.0]))
    known = label(build_positions([("w", 0, 0.0)]), east, 3600.0).known
    assert known["hour"].tolist() == pytest.approx([6 + 1 / 6])
    assert known["weekday"].tolist() == [0]
    assert known["age_s"].tolist() == [600]
