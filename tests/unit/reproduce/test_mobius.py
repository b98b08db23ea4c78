"""Rows M1-index and M6 at small sizes, untimed, and the evaluation one by one of M1."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
from measured_rows import check_complete

from mudkit.reproduce import mobius
from mudkit.reproduce.mobius import M1_INDEX, M6
from mudkit.reproduce.row import judge
from mudkit.systems.mud.servers.decided_writes import DecidedWrites
from mudkit.verify.campaign.bugs import BUGS, Bug
from mudkit.verify.campaign.runs import play_some
from mudkit.worlds.matching import MatchingLoad


@pytest.fixture(scope="module")
def one_by_one():
    return mobius.measure_one_by_one(lambda step: None, (1, 5, 20), 5)


@pytest.fixture(scope="module")
def m1():
    return mobius.measure_matching(
        subscriptions=600,
        fewer=200,
        hard=300,
        topics=20,
        hot_topics=2,
        records=40,
        updates=30,
        runs=2,
    )


@pytest.mark.soak
def test_m1_measures_all_required_quantities(m1):
    check_complete(M1_INDEX, m1)
    assert all(math.isfinite(quantity.median) for quantity in m1.quantities.values())
    assert m1.quantities["share of records on which both agree"].low == 1
    assert m1.parameters["subscriptions"] == 600


def test_m1_divides_what_was_done_by_the_time_it_took(monkeypatch):
    """By a clock that is read once a second, a second is all that each measurement takes."""
    clock = itertools.count().__next__
    monkeypatch.setattr(mobius, "time", SimpleNamespace(perf_counter=clock, process_time=clock))
    monkeypatch.setattr(mobius, "_HARD", ())
    monkeypatch.setattr(mobius, "_EVALUATIONS", 1000)
    monkeypatch.setattr(mobius, "_CHECKED", 6)
    sizes = {"subscriptions": 90, "fewer": 30, "topics": 9, "hot_topics": 3, "records": 20, "updates": 50}
    quantities = mobius.measure_matching(**sizes, runs=1).quantities
    quantities = {**quantities, **mobius.measure_one_by_one(lambda step: None, (50, 100, 500), 3)}
    per_s = {name: quantity.median for name, quantity in quantities.items() if "/s" in name}
    assert [per_s[f"messages/s one by one, {many} a partition"] for many in (50, 100, 500)] == [20, 10, 6]
    for topics in ("many topics", "hot topics"):
        assert per_s[f"records/s, {topics}"] == pytest.approx(20)
        assert per_s[f"updates/s, {topics}"] == pytest.approx(50)
        assert per_s[f"added/s, {topics}"] == 90
    assert quantities["µs a record one at a time, many topics"].median == pytest.approx(1e6 / 2)


def test_m1_measures_the_hard_shapes(m1):
    for shape in ("ranges", "wide", "skewed", "near"):
        assert m1.quantities[f"{shape}: µs a record"].median > 0
    assert m1.quantities["near: µs for 10 moves and a record"].median > 0


def test_line_through_the_fastest_runs_lies_within_its_interval(one_by_one):
    for name in mobius._LINE:
        quantity = one_by_one[name]
        assert quantity.low <= quantity.median <= quantity.high, name


def test_agreement_detects_a_difference_between_index_and_scan(monkeypatch):
    assert mobius._agreement(MatchingLoad(300, 2)) == 1
    match_each = mobius.match_each
    monkeypatch.setattr(mobius, "match_each", lambda *pair: match_each(*pair)[:2])
    assert 0 < mobius._agreement(MatchingLoad(300, 2)) < 1


def test_fit_finds_a_line_and_its_power():
    counts = [1, 10, 100, 1000]
    base, per_s, power = mobius._fit(counts, [3e-6, 21e-6, 201e-6, 2001e-6])
    assert (round(base, 9), round(per_s), round(power, 2)) == (1, 500_000, 1)
    for seconds_for, expected in (
        (lambda n: 1e-6 * n**2, 2),
        (lambda n: 1e-6 * n**0.5, 0.5),
        (lambda n: 1e-6, 0),
    ):
        assert mobius._fit(counts, [seconds_for(n) for n in counts])[2] == pytest.approx(expected, abs=0.01)
    assert mobius._fit(counts, [3e-6, 21e-6, 2001e-6, 201e-6])[2] < 0  # shuffled


def test_m6_counts_runs_and_broken_promises(monkeypatch):
    bugs = [bug for bug in BUGS if bug.name == "a conflict that keeps the pending write"]
    measured = mobius.measure_campaign(seeds=[0, 17], bugs=bugs)
    check_complete(M6, measured)
    assert measured.quantities["runs"].median == 2
    assert measured.quantities["runs in which a promise was broken"].median == 0
    assert measured.quantities["writes"].median > 10
    assert (
        "seed 17: ILLEGAL (fork-sequential" in measured.parameters["smallest counterexample to definition 3"]
    )
    assert measured.quantities["seeded bugs that nothing caught"].median == 0
    assert measured.quantities[f"operations of the smallest counterexample, {bugs[0].name}"].median == 2
    violated = measured.parameters[f"seeded, {bugs[0].name}"]
    assert violated == f"seed {bugs[0].seed}, violated: fork-sequential-retracted"
    monkeypatch.setattr(DecidedWrites, "_results", lambda self, client: {})  # applies duplicate writes
    measured = mobius.measure_campaign(seeds=range(5, 10), bugs=())
    assert measured.quantities["runs in which a promise was broken"].median > 0


def test_m6_counts_the_faults_of_its_runs():
    seeds = range(5)
    counts = play_some(seeds).counts
    faults = mobius.measure_campaign(seeds=seeds, bugs=()).parameters["faults"]
    assert faults["killed"] == sum(count for name, count in counts.items() if " killed" in name) > 10
    assert faults["restored"] == counts["restored"] + counts["naming restored"] > counts["restored"]
    assert all(faults[name] == counts[name] for name in faults if name not in ("killed", "restored"))
    assert faults["cut"] > 0


@pytest.mark.soak
def test_m6_is_not_reproduced_when_seeded_bugs_escape():
    bugs = [Bug("none", "nothing", ())] * 4
    measured = mobius.measure_campaign(seeds=range(2), bugs=bugs)
    (required,) = (
        requirement
        for requirement in M6.required
        if requirement.quantity == "seeded bugs that nothing caught"
    )
    row = dataclasses.replace(M6, required=(required,))
    assert judge(row, measured)[0] == "not reproducible"
    assert measured.parameters["seeded, none"] == "nothing caught it"
