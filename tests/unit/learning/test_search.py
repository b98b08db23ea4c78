"""Search for a read policy: replays of many policies at once, choices with a margin, families in order."""

import math
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import build_labelled_reads, shuffle_labels

from mudkit.errors import ParameterError
from mudkit.learning import FixedRule, export_policy, search
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Always, LearntReads, day_runs
from mudkit.learning.replay import SENT, replay
from mudkit.learning.search import FAMILIES, MIN_GAIN, MIN_READS, Sums, recommend, replay_rules
from mudkit.units import solar_time

RULES = [
    FixedRule(km, minutes)
    for km in (0.0, 1.0, math.inf)
    for minutes in (
        0.0,
        15.0,
        60.0,
        *(tuple(120.0 * slot / slots for slot in range(slots)) for slots in (24, 72)),
    )
]


@pytest.fixture(scope="module")
def pairs():
    return Pairs.of(*build_labelled_reads())


@pytest.fixture(scope="module")
def many():
    """Build pairs whose labels a test replaces."""
    return Pairs.of(*build_labelled_reads(devices=40, days=8, a_day=20, noise=0.0))


def count_plainly(pairs, is_stale, rule):
    served = replay(pairs, rule.local(pairs))
    local = served != SENT
    stale = np.zeros(len(local), np.bool_)
    stale[local] = is_stale[served[local]]
    return int((local & ~stale).sum()), int(stale.sum())


def test_rules_replayed_at_once_match_one_by_one(pairs):
    is_stale = pairs.completeness < 0.9
    sums = replay_rules(pairs, is_stale, RULES)
    assert sums.reads.sum() == len(pairs.device)
    for number, rule in enumerate(RULES):
        counted = sums.fresh[:, number].sum(), sums.stale[:, number].sum()
        assert counted == count_plainly(pairs, is_stale, rule), rule


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 12))
def test_any_pairs_are_replayed_at_once_as_one_by_one(seed, devices, a_day):
    labels, reads = build_labelled_reads(devices=devices, days=2, a_day=a_day, seed=seed)
    pairs = Pairs.of(labels, reads)
    is_stale = np.random.default_rng(seed).random(len(pairs.read)) < 0.4
    sums = replay_rules(pairs, is_stale, RULES)
    for number, rule in enumerate(RULES):
        counted = sums.fresh[:, number].sum(), sums.stale[:, number].sum()
        assert counted == count_plainly(pairs, is_stale, rule)


def test_sums_of_parts_that_were_computed_apart_add_up_to_those_of_the_whole():
    """Each part labels its own reads alone and numbers its devices from 0, as another process does."""
    labels, reads = build_labelled_reads()
    pairs = Pairs.of(labels, reads)
    whole = replay_rules(pairs, pairs.completeness < 0.9, RULES)
    names = sorted(set(reads["device"].to_pylist()))
    parts = []
    for some in (names[1::2], names[::2]):
        mine = reads.filter(pc.is_in(reads["device"], pa.array(some)))
        of_mine = Pairs.of(labels.filter(pc.is_in(labels["read_id"], mine["read_id"])), mine)
        parts.append(replay_rules(of_mine, of_mine.completeness < 0.9, RULES))
    merged = parts[0] + parts[1]
    assert len(np.unique(merged.device)) == len(names)
    order, of_whole = (np.lexsort((sums.day, sums.device)) for sums in (merged, whole))
    for name in ("device", "day", "reads", "fresh", "stale"):
        assert np.array_equal(getattr(merged, name)[order], getattr(whole, name)[of_whole]), name
    total = float(whole.reads.sum())
    for max_stale in (0.02, 0.05, 0.1, 0.2):
        chosen = [sums.best(sums.device % 3 != 0, total, max_stale) for sums in (merged, whole)]
        assert chosen[0] == chosen[1]


def build_sums(fresh, stale, reads=100.0, devices=20):
    """Build sums of policies with these answers on each of some devices."""
    rows = np.ones((devices, 1))
    return Sums(
        np.arange(devices),
        np.arange(devices) % 7,
        np.full(devices, reads),
        (rows * fresh).astype(np.float32),
        (rows * stale).astype(np.float32),
    )


def test_choice_has_most_fresh_answers_within_the_limit_and_a_margin():
    sums = build_sums([10, 30, 40], [0, 1, 3])
    every = np.ones(20, np.bool_)
    assert sums.best(every, 2000.0, 0.02) == 1
    assert sums.best(every, 2000.0, 0.05) == 2
    assert sums.best(every, 2000.0, 0.001) is None, "no stale answer in 2,000 reads is no promise of 0.1 %"
    assert sums.best(np.zeros(20, np.bool_), 2000.0, 0.5) is None
    # One device in four has all of the stale answers: on others there may be more such devices.
    uneven = build_sums([10, 30], [0, 0])
    uneven.stale[::4, 1] = 7.6
    assert uneven.stale[:, 1].sum() / 2000 < 0.02
    assert uneven.best(every, 2000.0, 0.02) == 0


def test_equal_policies_give_the_first():
    assert build_sums([30, 30], [0, 0]).best(np.ones(20, np.bool_), 2000.0, 0.02) == 0


def test_place_decides_so_a_tree_is_recommended(pairs):
    """Answers are stale after 20 minutes in the east, after 80 in the west: no rule knows the place."""
    result = recommend(pairs, pairs.completeness < 0.9, 0.1)
    assert result.chosen.family == "tree"
    assert result.gain(result.chosen, result.best_rule).low > 0.02
    assert isinstance(result.chosen.policy, LearntReads)
    assert [choice.family for choice in result.choices] == sorted(
        (choice.family for choice in result.choices), key=FAMILIES.index
    )


def test_nothing_is_recommended_when_labels_say_nothing():
    pairs = Pairs.of(*(shuffle_labels(build_labelled_reads()[0]), build_labelled_reads()[1]))
    result = recommend(pairs, pairs.completeness < 0.9, 0.02)
    assert result.chosen.family == "always ask"
    assert not result.chosen.is_fresh.any()


def test_few_reads_give_no_recommendation():
    pairs = Pairs.of(*build_labelled_reads(devices=2, days=1, a_day=3))
    result = recommend(pairs, np.zeros(len(pairs.read), np.bool_), 0.5)
    assert len(pairs.device) < MIN_READS
    assert not result.has_enough_reads
    assert result.chosen.family == "always ask"


def relabel(pairs, is_good):
    """Return whether each pair is stale, for answers that are good where a function says so."""
    hour = solar_time(pairs.t_us, pairs.lon)[0][pairs.read]
    return ~is_good(pairs.age_s / 60, pairs.distance_km, hour)


def most_fresh(pairs, is_stale):
    """Return the number of fresh answers of a policy that knows which are stale."""
    return int((replay(pairs, ~is_stale) != SENT).sum())


@pytest.mark.parametrize(
    ("family", "is_good"),
    [
        ("age", lambda age, km, hour: age <= 43),
        ("distance and age", lambda age, km, hour: (age <= 70) & (km <= 2.2)),
        ("time of day", lambda age, km, hour: age <= np.where((hour >= 8) & (hour < 13), 90, 9)),
    ],
)
def test_planted_rule_is_found_and_no_tree_beats_it(family, is_good, many):
    is_stale = relabel(many, is_good)
    result = recommend(many, is_stale, 0.02)
    assert result.chosen.family == family
    assert most_fresh(many, is_stale) - result.chosen.is_fresh.sum() < 0.02 * len(many.device)
    assert result.risk(result.chosen) <= 0.1
    assert result.share(result.chosen.is_fresh).low < result.chosen.is_fresh.mean()


def test_policy_of_which_other_devices_are_stale_is_not_recommended(pairs):
    """Answers older than 10 minutes are stale for one device: all is good for the others, which choose without it.

    "Any policy has to keep the limit on folds that it was not chosen on" (`recommend`).
    """
    result = recommend(pairs, (pairs.device[pairs.read] == 0) & (pairs.age_s > 600), 0.02)
    alone = result.choices[0]
    assert all(choice.is_stale.mean() > 0.02 for choice in result.choices[1:])
    assert all(result.gain(choice, alone).low > MIN_GAIN for choice in result.choices[1:])
    assert len(result.choices) > 2
    assert (result.chosen.family, result.best_rule.family) == ("always ask", "always ask")


@pytest.mark.parametrize("minutes", [43.0, 57.0])
def test_ages_are_refined_on_both_sides_of_the_best_one_on_the_grid(pairs, minutes):
    """Start from 40 minutes, the best of the grid for 43, or from 60, the best for 57: stale answers are allowed."""
    is_stale = pairs.age_s > 60 * minutes
    policy = recommend(pairs, is_stale, 0.5).choice("age").policy
    assert policy.ages[0] == pytest.approx(minutes, rel=0.02), "within the factor that is not refined"
    assert (
        count_plainly(pairs, is_stale, policy)[0]
        == count_plainly(pairs, is_stale, FixedRule(math.inf, minutes))[0]
    )


@pytest.mark.parametrize(
    ("family", "edges", "step_min"),
    [
        ("time of day", (8.5, 13.0), 30),
        ("time of day", (8.25, 13.5), 15),
        ("age by hour", (8.5, 10.0, 11.5, 13.0), 30),
    ],
)
def test_times_between_hours_are_found_so_no_tree_is_recommended(family, edges, step_min, many):
    """Answers live an hour and a half in every second period, nine minutes else."""
    is_stale = relabel(
        many, lambda age, km, hour: age <= np.where(np.searchsorted(edges, hour, side="right") % 2, 90, 9)
    )
    result = recommend(many, is_stale, 0.02)
    assert result.chosen.family == family
    assert 24 * 60 / len(result.chosen.policy.ages) == step_min
    changes = {first / 60 for first, _, _ in day_runs(result.chosen.policy.ages)}
    assert changes >= set(edges)
    assert most_fresh(many, is_stale) - result.chosen.is_fresh.sum() < 0.02 * len(many.device)


def test_policies_replayed_a_few_at_a_time_give_the_same(many, monkeypatch):
    """The number of policies in memory at once bounds the memory alone."""
    is_stale = relabel(many, lambda age, km, hour: age <= np.where(hour < 12, 90, 9))
    at_once = recommend(many, is_stale, 0.02)
    sizes = []
    replay_some = search.replay_steps
    monkeypatch.setattr(search, "_MAX_CELLS", 20_000)
    monkeypatch.setattr(
        search, "replay_steps", lambda pairs, n, *of: sizes.append(n) or replay_some(pairs, n, *of)
    )
    in_parts = recommend(many, is_stale, 0.02)
    assert max(sizes) < len(at_once.rules)
    assert [choice.policy for choice in in_parts.choices[:5]] == [
        choice.policy for choice in at_once.choices[:5]
    ]
    assert in_parts.chosen.policy == at_once.chosen.policy


def test_hours_stay_where_finer_times_gain_nothing(many):
    result = recommend(many, relabel(many, lambda age, km, hour: age <= np.where(hour < 12, 90, 9)), 0.02)
    assert {len(choice.policy.ages) for choice in result.choices[3:5]} == {24}


def test_days_are_held_out_with_folds_of_time(pairs):
    result = recommend(pairs, pairs.completeness < 0.9, 0.1, folds="time")
    assert result.choice("tree") is not None
    assert len(np.unique(result.day)) == 4


@pytest.mark.parametrize("rule", [Always(), *RULES, FixedRule(2.5, (0.0,) * 7 + (30.0,) * 17)], ids=str)
def test_exported_rules_decide_as_they_do(rule, pairs):
    document = export_policy(rule, 3, manifest={"by": "a test"})
    assert (document.kind, document.version) == ("read", 3)
    hour = solar_time(pairs.t_us, pairs.lon)[0][pairs.read]
    values = {"distance": pairs.distance_km, "hour": hour, "age": pairs.age_s}
    rows = zip(*(values[name].tolist() for name in document.features), strict=True)
    decided = np.array([document.decide(row) == "local" for row in rows])
    assert np.array_equal(decided, rule.local(pairs))


@pytest.mark.parametrize(("minutes", "known", "answer"), [
    (10.0, {"distance": None}, "remote"), (0.5, {"age": 30.0}, "local"), (0.5, {"age": 31.0}, "remote"),
    (0.0, {"age": 0.0}, "remote"),
])  # fmt: skip
def test_exported_rule_asks_where_the_place_is_unknown_and_beyond_its_age(minutes, known, answer):
    document = export_policy(FixedRule(1.0, minutes))
    values = dict.fromkeys(document.features, 0.0) | known
    assert document.decide([values[name] for name in document.features]) == answer


@pytest.mark.parametrize(("slots", "step"), list(product((0, 23, 25, 2880), (1.0, 2.0))))
def test_rule_by_the_time_of_day_has_ages_for_equal_parts_of_it(slots, step):
    with pytest.raises(ParameterError, match="an age for each of equal parts of the day"):
        FixedRule(1.0, (step,) * slots)
    with pytest.raises(ParameterError, match=r"minutes\[23\]"):
        FixedRule(1.0, (step,) * 23 + (-1.0,))
