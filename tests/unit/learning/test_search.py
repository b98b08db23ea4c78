"""Search for a read policy: replays of many policies at once, choices with a margin, families in order."""

import math
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import build_labelled_reads, shuffle_labels

from mudkit import intervals
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import FixedRule, candidates, export_policy, recommend
from mudkit.learning.candidates import Split, Sums, cells_of_reads
from mudkit.learning.devices import LocalDevices
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Always, LearntReads, day_runs
from mudkit.learning.replay import SENT, replay, stale_reads
from mudkit.learning.search import FAMILIES, MIN_GAIN, MIN_READS, replay_rules, search_policies
from mudkit.units import solar_day, solar_time

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


def stale_as(pairs, is_stale):
    """Return the pairs with other labels: completeness 0 where an answer is stale, else 1."""
    return replace(pairs, completeness=np.where(is_stale, 0.0, 1.0), missing=is_stale.astype(np.int64))


def recommend_for(pairs, is_stale, max_stale, **options):
    devices = LocalDevices(stale_as(pairs, is_stale))
    return search_policies(devices, completeness=1.0, max_stale=max_stale, **options)


def split_of(pairs, folds="device"):
    return Split(folds, np.sort(pairs.ids), np.unique(solar_day(pairs.t_us, pairs.lon)))


def sums_of(pairs, is_stale, split, rules=RULES):
    return replay_rules(LocalDevices(stale_as(pairs, is_stale)), 1.0, split, rules)


def test_rules_replayed_at_once_match_one_by_one(pairs):
    is_stale = pairs.completeness < 0.9
    sums = sums_of(pairs, is_stale, split_of(pairs))
    assert sums.reads[-1] == len(pairs.device)
    for number, rule in enumerate(RULES):
        counted = sums.fresh[-1, number], sums.stale[-1, number]
        assert counted == count_plainly(pairs, is_stale, rule), rule


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 12))
def test_any_pairs_are_replayed_at_once_as_one_by_one(seed, devices, a_day):
    labels, reads = build_labelled_reads(devices=devices, days=2, a_day=a_day, seed=seed)
    pairs = Pairs.of(labels, reads)
    is_stale = np.random.default_rng(seed).random(len(pairs.read)) < 0.4
    sums = sums_of(pairs, is_stale, split_of(pairs))
    for number, rule in enumerate(RULES):
        counted = sums.fresh[-1, number], sums.stale[-1, number]
        assert counted == count_plainly(pairs, is_stale, rule)


@pytest.mark.parametrize("folds", ["device", "time"])
@pytest.mark.parametrize(("devices", "days"), [(12, 3), (3, 8), (12, 8), (1, 2)])
def test_sums_without_a_fold_are_those_of_its_other_reads(devices, days, folds):
    """Leave out the reads of each fold, and compare all sums with those of the others alone."""
    labels, reads = build_labelled_reads(devices=devices, days=days, a_day=6)
    pairs = Pairs.of(labels, reads)
    is_stale = np.random.default_rng(3).random(len(pairs.read)) < 0.4
    split = split_of(pairs, folds)
    sums = sums_of(pairs, is_stale, split)
    fold_of = split.fold_of_reads(pairs)
    cell, device, day, count = cells_of_reads(pairs)
    stale = np.zeros((len(count), len(RULES)), np.int64)
    for number, rule in enumerate(RULES):
        bad = stale_reads(is_stale, replay(pairs, rule.local(pairs)))
        stale[:, number] = np.bincount(cell[bad], minlength=len(count))
    fold_of_cell = split.fold(device, day)
    assert np.array_equal(fold_of_cell[cell], fold_of)
    for left_out in (*range(split.folds), split.folds):
        rows = fold_of_cell != left_out
        expected = intervals.clusterings(stale[rows], count[rows], device[rows], day[rows])
        for of, one in zip(sums._clusterings(left_out), expected, strict=True):
            assert (of.clusters, of.squared_cases) == (one.clusters, one.squared_cases)
            assert np.array_equal(of.products, one.products)
            assert np.array_equal(of.squares, one.squares)
        assert sums.reads[left_out] == count[rows].sum()
        assert np.array_equal(sums.stale[left_out], stale[rows].sum(axis=0))


def test_sums_of_parts_that_were_computed_apart_add_up_to_those_of_the_whole():
    """Each part labels its own reads alone and numbers its devices from 0, as another process does."""
    labels, reads = build_labelled_reads()
    pairs = Pairs.of(labels, reads)
    split = split_of(pairs)
    whole = sums_of(pairs, pairs.completeness < 0.9, split)
    names = sorted(set(reads["device"].to_pylist()))
    parts = []
    for some in (names[1::2], names[::2]):
        mine = reads.filter(pc.is_in(reads["device"], pa.array(some)))
        of_mine = Pairs.of(labels.filter(pc.is_in(labels["read_id"], mine["read_id"])), mine)
        parts.append(sums_of(of_mine, of_mine.completeness < 0.9, split))
    merged = parts[0] + parts[1]
    for of in fields(Sums):
        assert np.array_equal(getattr(merged, of.name), getattr(whole, of.name)), of.name


def build_sums(fresh, stale, reads=100, devices=20):
    """Build sums of policies with these answers on each of some devices, which are all of one fold."""
    answers = [np.broadcast_to(np.asarray(of, np.int64), (devices, len(fresh))) for of in (fresh, stale)]
    return sums_of_answers(*answers, np.full(devices, reads))


def sums_of_answers(fresh, stale, reads):
    """Build sums of answers by device and policy; devices are on seven days in turn."""
    device = np.arange(len(reads))
    day = device % 7
    one, _, both = intervals.clusterings(stale, reads, device, day)
    clustered = (one, both)
    return Sums(
        np.array([0, reads.sum()]),
        *(np.stack([0 * of[0], of.sum(axis=0)]) for of in (fresh, stale)),
        *(
            np.stack([[0 * getattr(of, name), getattr(of, name)] for of in clustered])
            for name in ("clusters", "squared_cases", "products", "squares")
        ),
        np.bincount(day, reads).astype(np.int64)[None],
        np.stack([stale[day == number].sum(axis=0) for number in range(7)])[None],
    )


def test_choice_has_most_fresh_answers_within_the_limit_and_a_margin():
    sums = build_sums([10, 30, 40], [0, 1, 3])
    assert sums.best(1, 0.02) == 1
    assert sums.best(1, 0.05) == 2
    assert sums.best(1, 0.001) is None, "no stale answer in 2,000 reads is no promise of 0.1 %"
    assert sums.best(0, 0.5) is None, "nothing is left without the fold"
    # One device in four has all of the stale answers: on others there may be more such devices.
    fresh, stale = np.tile([10, 30], (20, 1)), np.zeros((20, 2), np.int64)
    stale[::4, 1] = 7
    assert stale[:, 1].sum() / 2000 < 0.02
    assert sums_of_answers(fresh, stale, np.full(20, 100)).best(1, 0.02) == 0


def test_equal_policies_give_the_first():
    assert build_sums([30, 30], [0, 0]).best(1, 0.02) == 0


def test_place_decides_so_a_tree_is_recommended(pairs):
    """Answers are stale after 20 minutes in the east, after 80 in the west: no rule knows the place."""
    result = recommend_for(pairs, pairs.completeness < 0.9, 0.1)
    assert result.chosen.family == "tree"
    assert result.gain(result.chosen, result.best_rule).low > 0.02
    assert isinstance(result.chosen.policy, LearntReads)
    assert [choice.family for choice in result.choices] == sorted(
        (choice.family for choice in result.choices), key=FAMILIES.index
    )


def test_nothing_is_recommended_when_labels_say_nothing():
    pairs = Pairs.of(*(shuffle_labels(build_labelled_reads()[0]), build_labelled_reads()[1]))
    result = recommend_for(pairs, pairs.completeness < 0.9, 0.02)
    assert result.chosen.family == "always ask"
    assert not result.chosen.fresh.any()


def test_policy_with_more_stale_than_fresh_answers_is_not_recommended(many):
    """Three answers in five are stale, whatever their age, and the limit would allow all of them."""
    is_stale = np.random.default_rng(3).random(len(many.read)) < 0.6
    result = recommend_for(many, is_stale, 0.95)
    assert result.chosen.family == "always ask"
    assert result.best_rule.family == "always ask"


def test_choice_has_more_fresh_than_stale_answers():
    sums = build_sums([10, 30, 12], [1, 40, 12])
    assert sums.best(1, 0.5) == 0
    assert sums.of([1, 2]).best(1, 0.5) is None


def test_few_reads_give_no_recommendation():
    pairs = Pairs.of(*build_labelled_reads(devices=2, days=1, a_day=3))
    result = recommend_for(pairs, np.zeros(len(pairs.read), np.bool_), 0.5)
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


@pytest.mark.soak(keep=1)
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
    result = recommend_for(many, is_stale, 0.02)
    assert result.chosen.family == family
    assert most_fresh(many, is_stale) - result.chosen.fresh.sum() < 0.02 * len(many.device)
    assert result.risk(result.chosen) <= 0.1
    assert result.share(result.chosen.fresh).low < result.chosen.fresh_share
    for choice in result.choices:
        reads, shares = choice.reads.sum(), (choice.fresh_share, choice.stale_share)
        assert shares == (choice.fresh.sum() / reads, choice.stale.sum() / reads)


def test_no_answer_is_used_at_the_time_of_day_when_none_is_good(many):
    """The age there is 0: see ``search._ages``, "after 0: no answer is used"."""
    result = recommend_for(
        many, relabel(many, lambda age, km, hour: (age <= 90) & (hour >= 8) & (hour < 13)), 0.02
    )
    ages = result.choice("time of day").policy.ages
    slots = len(ages) // 24
    assert set(ages[: 8 * slots] + ages[13 * slots :]) == {0.0}
    assert min(ages[8 * slots : 13 * slots]) > 60


def test_policy_of_which_other_devices_are_stale_is_not_recommended(pairs):
    """Answers older than 10 minutes are stale for one device: all is good for the others, which choose without it.

    "Any policy has to keep the limit on folds that it was not chosen on" (`recommend`).
    """
    result = recommend_for(pairs, (pairs.device[pairs.read] == 0) & (pairs.age_s > 600), 0.02)
    alone = result.choices[0]
    assert all(choice.stale_share > 0.02 for choice in result.choices[1:])
    assert all(result.gain(choice, alone).low > MIN_GAIN for choice in result.choices[1:])
    assert len(result.choices) > 2
    assert (result.chosen.family, result.best_rule.family) == ("always ask", "always ask")


@pytest.mark.parametrize("minutes", [43.0, 57.0])
def test_ages_are_refined_on_both_sides_of_the_best_one_on_the_grid(pairs, minutes):
    """Start from 40 minutes, the best of the grid for 43, or from 60, the best for 57: stale answers are allowed."""
    is_stale = pairs.age_s > 60 * minutes
    policy = recommend_for(pairs, is_stale, 0.5).choice("age").policy
    assert policy.ages[0] == pytest.approx(minutes, rel=0.02), "within the factor that is not refined"
    assert (
        count_plainly(pairs, is_stale, policy)[0]
        == count_plainly(pairs, is_stale, FixedRule(math.inf, minutes))[0]
    )


@pytest.mark.soak(keep=1)
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
    result = recommend_for(many, is_stale, 0.02)
    assert result.chosen.family == family
    assert 24 * 60 / len(result.chosen.policy.ages) == step_min
    changes = {first / 60 for first, _, _ in day_runs(result.chosen.policy.ages)}
    assert changes >= set(edges)
    assert most_fresh(many, is_stale) - result.chosen.fresh.sum() < 0.02 * len(many.device)


def test_policies_replayed_a_few_at_a_time_give_the_same(many, monkeypatch):
    """The number of policies in memory at once bounds the memory alone."""
    is_stale = relabel(many, lambda age, km, hour: age <= np.where(hour < 12, 90, 9))
    at_once = recommend_for(many, is_stale, 0.02)
    sizes = []
    replay_some = candidates.replay_steps
    monkeypatch.setattr(candidates, "_MAX_DECISIONS", 20_000)
    monkeypatch.setattr(candidates, "_MAX_COUNTS", 20_000)
    monkeypatch.setattr(
        candidates, "replay_steps", lambda pairs, n, *of: sizes.append(n) or replay_some(pairs, n, *of)
    )
    in_parts = recommend_for(many, is_stale, 0.02)
    assert max(sizes) < len(at_once.rules)
    assert [choice.policy for choice in in_parts.choices[:5]] == [
        choice.policy for choice in at_once.choices[:5]
    ]
    assert in_parts.chosen.policy == at_once.chosen.policy


def test_hours_stay_where_finer_times_gain_nothing(many):
    result = recommend_for(many, relabel(many, lambda age, km, hour: age <= np.where(hour < 12, 90, 9)), 0.02)
    assert {len(choice.policy.ages) for choice in result.choices[3:5]} == {24}


def test_days_are_held_out_with_folds_of_time(pairs):
    result = recommend_for(pairs, pairs.completeness < 0.9, 0.1, folds="time")
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


def test_recommendation_of_tables_is_that_of_their_pairs(pairs):
    labels, reads = build_labelled_reads()
    of_tables = recommend(labels, reads, max_stale=0.1, completeness=0.9)
    of_pairs = search_policies(LocalDevices(pairs), completeness=0.9, max_stale=0.1)
    assert [one.fresh.sum() for one in of_tables.choices] == [one.fresh.sum() for one in of_pairs.choices]
    assert f"recommended tree of {of_tables.chosen.policy.leaves} leaves" in repr(of_tables)


def test_recommendation_refuses_what_it_cannot_use():
    labels, reads = build_labelled_reads(devices=2, days=1, a_day=3)
    with pytest.raises(ParameterError, match="max_stale"):
        recommend(labels, reads, max_stale=1.5)
    with pytest.raises(ParameterError, match="completeness"):
        recommend(labels, reads, max_stale=0.1, completeness=0.0)
    with pytest.raises(ParameterError, match="no such folds"):
        recommend(labels, reads, max_stale=0.1, folds="week")
    with pytest.raises(TraceContentError, match="no reads to replay"):
        recommend(labels.slice(0, 0), reads.slice(0, 0), max_stale=0.1)
