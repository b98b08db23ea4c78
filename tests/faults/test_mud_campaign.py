"""Random faults on MUD tables, 1,000 runs in the soak, and seeded bugs, which the campaign must catch."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mudkit.systems.mud.device import registrations
from mudkit.systems.mud.servers import processor
from mudkit.systems.mud.servers.decided_writes import DecidedWrites
from mudkit.verify.campaign import campaign
from mudkit.verify.campaign.bugs import BUGS, Bug, hunt
from mudkit.verify.campaign.cells import TRANSITIONS, UNREACHABLE, Table, why_not
from mudkit.verify.campaign.faults import COLUMNS, TRIALS
from mudkit.verify.campaign.judge import play
from mudkit.verify.campaign.runs import Runs, play_all, play_some
from mudkit.verify.campaign.stores import MAX_TAKE_OVER_S, STANDBY_STEPS

REPLAY = "python tests/faults/campaign.py --seed {}"


DIGEST_SEED = 4
"""A run that finds digests that are not compared."""


RARE = {
    "notifications: given up, not heard of", "generator: nothing to tell again", "generator: assignments",
    "notifications: stream, of a device of another server", "notifications: suspects a server",
    "processor: register, in the session of another server", "gateway: assignments",
    *(f"naming: {name}" for name in TRANSITIONS["naming"]),
}  # fmt: skip
"""Transitions that thousands of runs reach with every fault, and a thousand may not: `make faults` requires them."""


@pytest.fixture(scope="module")
def result(scaled):
    """Results of the runs; the thousand of the soak in two processes where there are two cores."""
    result = Runs()
    for runs in play_all(range(scaled(1000, 30)), scaled(min(2, os.cpu_count() or 1), 1)):
        result.add(runs)
    return result


def test_runs_with_faults_violate_no_guarantee(result, scaled):
    assert result.runs == scaled(1000, 30)
    assert Table(result.cells).unknown() == []
    problems = [
        f"{REPLAY.format(seed)}\n    {findings[:3]}" for seed, findings in sorted(result.problems.items())
    ]
    assert not problems, "\n".join(problems)
    for kind, model in (("committed", "sequential"), ("committed_wio", "sequential-wio")):
        assert result.counts[f"{kind} {model} OK"] > result.runs / 4


@pytest.fixture
def digests_of_all_keys(monkeypatch):
    """Registrations name no delivered key, as if a run had thousands."""
    monkeypatch.setattr(registrations, "MAX_NAMED_KEYS", 0)


@pytest.mark.usefixtures("digests_of_all_keys")
def test_digests_in_place_of_delivered_keys_violate_no_guarantee(scaled):
    assert play_some(range(2000, 2000 + scaled(300, 8))).problems == {}


@pytest.mark.usefixtures("digests_of_all_keys")
def test_campaign_finds_digests_that_are_not_compared(monkeypatch):
    def ignore(copy, name, table, routed, registration, sent):
        return set(registration.delivered), []

    monkeypatch.setattr(processor, "recall_delivered", ignore)
    assert "notified" in str(play(DIGEST_SEED).broken)


def test_runs_with_standbys_violate_no_guarantee(scaled, monkeypatch):
    monkeypatch.setattr(campaign, "STANDBYS_WEIGHTS", (0, 1, 1))
    runs = play_some(range(3000, 3000 + scaled(150, 6)))
    assert runs.problems == {}
    assert all(runs.counts[step] for step in (*STANDBY_STEPS, "take-overs, judged"))
    assert 5.0 < runs.longest_take_over_s < MAX_TAKE_OVER_S


def test_table_counts_retransmissions(result):
    transitions = {transition for transition, _ in result.cells}
    assert {
        "connection: asked again", "generator: tells again", "notifications: sent again",
        "processor: tells again", "watching: hello timer",
    } <= transitions  # fmt: skip


def test_trials_are_judged(result):
    assert [kind for kind in TRIALS if not result.counts[f"{kind}, judged"]] == []


def test_every_kind_of_fault_occurs(result):
    """Find crash points that no machine has any more, which would count as survived."""
    assert [fault for fault in COLUMNS if fault != "none" and not result.counts[fault]] == []


@pytest.mark.soak  # thirty runs do not reach every cell
def test_every_transition_occurs_with_every_fault(result):
    assert [cell for cell in Table(result.cells).missing() if cell[0] not in RARE] == []


def test_unreachable_patterns_match_existing_cells():
    rows = [f"{machine}: {name}" for machine, names in TRANSITIONS.items() for name in names]
    cells = [(row, column) for row in rows for column in COLUMNS]
    for pattern in UNREACHABLE:
        matching = [cell for cell in cells if why_not(*cell, (pattern,))]
        assert matching, pattern
        assert pattern[2]
    assert sum(why_not(*cell) is not None for cell in cells) < len(cells) / 20


def test_table_lists_and_marks_cells_with_count_0(result):
    row = "writing: committed"
    cells = result.cells.copy()
    for name, faults in result.cells:
        if name == row and "cut" in faults:
            del cells[name, faults]
    table = Table(cells)
    assert (row, "cut") in table.missing()
    line = next(line for line in str(table).splitlines() if line.startswith(row))
    assert line.split()[-len(COLUMNS) :][COLUMNS.index("cut")] == "0!"


def test_result_is_independent_of_the_number_of_processes():
    seeds = range(2)
    one, two = play_some(seeds), Runs()
    for runs in play_all(seeds, 2):
        two.add(runs)
    assert two == one


def test_trial_hears_of_a_removal_before_its_record():
    """A continuous read hears that its record was removed, which has no value, while a trial waits for one."""
    assert play(63867).problems == []


def test_failed_run_is_a_problem_of_its_seed(monkeypatch):
    monkeypatch.setattr(DecidedWrites, "_results", lambda self, client: 1 // 0)
    assert set(play_some([3]).problems) == {3}


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_campaign_finds_seeded_bug(bug):
    caught = hunt(bug, range(300))
    assert caught is not None, f"{bug.breaks}: not found"
    assert (caught.operations is not None) == bug.in_histories
    assert caught.promise
    assert caught.words in str(caught)
    assert play(caught.seed).problems == [], "the bug is still seeded"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a session without a token", "has begun a session"),
        ("a timeout that does not adapt to the link", "over a slow link"),
        ("a registration of all continuous reads for each of them", "still sends"),
        ("a session that ends although its client is reached", "sessions"),
    ],
)
def test_trial_finds_its_bug(name, problem):
    bug = next(bug for bug in BUGS if bug.name == name)
    assert play(bug.seed).problems == []
    with bug.inject():
        assert any(problem in words for words in play(bug.seed).problems)


def test_attributes_that_bugs_replace_exist():
    for bug in BUGS:
        assert [name for owner, name, _ in bug.swaps if name not in vars(owner)] == [], bug.name


def test_checker_must_find_the_bugs_of_the_design():
    """consistency.md: "seeded bugs in the protocol (…), each of which the checker must catch"."""
    assert [bug.name for bug in BUGS[:4]] == [
        "a dropped last-seen version",
        "an unordered gateway queue",
        "a repeated blind write",
        "a conflict that keeps the pending write",
    ]
    assert all(bug.in_histories for bug in BUGS[:4])


@pytest.mark.parametrize("in_histories", [True, False])
def test_no_bug_is_found_without_one(in_histories):
    assert hunt(Bug("none", "nothing", (), in_histories), range(1, 5)) is None


@pytest.mark.parametrize("in_histories", [True, False])
def test_exception_is_not_a_finding(in_histories):
    broken = Bug(
        "an error", "runs", ((DecidedWrites, "_results", lambda self, client: 1 // 0),), in_histories
    )
    assert hunt(broken, range(1, 3)) is None


def test_checker_does_not_find_a_bug_outside_histories():
    always = next(bug for bug in BUGS if bug.name == "conditional writes that always succeed")
    assert hunt(replace(always, in_histories=True), range(1, 3)) is None
    assert hunt(always, range(1)).promise == "each write is applied once, and answered accordingly"
