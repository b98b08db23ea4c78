"""Judge of chapter 04: correct rules are accepted and likely mistakes rejected."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from judged import check_accepted, check_rejected, mark_soak

import mudkit
from mudkit.exercises import judge, last_hop
from mudkit.exercises.last_hop import _Case, _Judged, _play
from mudkit.systems.lasthop import Forwarding, Item, Spool, message_lifecycles, play, simulate
from mudkit.systems.lasthop.spool.ranked import FOREVER_US

CHAPTER = "04_last_hop"
SIMPLE = _Case(32.0, 2.0, 8, 0.5, None, 0.0, 0)


def list_acceptable(known):
    return [item for item in known.waiting if item.rank >= known.threshold and item.expires_s > known.now_s]


def fill(known, limit, among=list_acceptable):
    return among(known)[: max(0, round(limit) - len(known.device))]


def solution(known):
    """Use the paper's limit, at least 8, and the paper's expiration threshold."""
    lasting = [
        item for item in list_acceptable(known) if item.expires_s - known.now_s >= known.between_reads_s
    ]
    return fill(known, max(2 * known.read_at_a_time, 8), lambda _: lasting)


@pytest.mark.soak
def test_rules_of_the_paper_pass_in_every_scenario():
    """Play all scenarios that the judge can draw."""
    combinations = itertools.product(
        (32.0, 16.0), (2.0, 3.0), (8, 4), (0.5, 0.75, 0.9), (None, 72.0, 24.0), (0.0, 0.5), (0, 1, 2)
    )
    problems = {case: _play(solution, case).problem for case in itertools.starmap(_Case, combinations)}
    assert len(problems) == 432
    assert not {str(case): problem for case, problem in problems.items() if problem is not None}


@pytest.mark.parametrize("case", [SIMPLE, _Case(16.0, 3.0, 4, 0.9, 24.0, 0.5, 2)])
def test_events_are_those_of_the_story(case):
    """A student reads the rates and means of a scenario in its words; those of 14 days lie within a fifth."""
    drawn, day_us = case.drawn(), 86_400_000_000
    assert len(drawn.arrivals_us) == pytest.approx(14 * case.event_frequency, rel=0.2)
    assert len(drawn.reads_us) == pytest.approx(14 * case.user_frequency, rel=0.2)
    assert max(drawn.arrivals_us[-1], drawn.reads_us[-1]) <= 14 * day_us
    lives_us = drawn.expires_us - drawn.arrivals_us
    if case.expiration_h is None:
        assert (drawn.expires_us >= FOREVER_US).all()
    else:
        assert lives_us.mean() == pytest.approx(case.expiration_h * day_us / 24, rel=0.2)
    switches_us = [0, *drawn.switches_us.tolist(), 14 * day_us]
    up_us = sum(
        later - switch
        for switch, later in itertools.islice(itertools.pairwise(switches_us), not drawn.starts_up, None, 2)
    )
    assert 1 - up_us / (14 * day_us) == pytest.approx(case.outage, rel=0.2)


def test_solution_passes():
    check_accepted(CHAPTER, solution)


WRONG = {
    "everything": (list_acceptable, "too much is wasted"),
    "nothing": (lambda known: [], "too much is lost"),
    "learnt, and falls to nothing": (lambda known: fill(known, 2 * known.read_at_a_time), "too much is lost"),
    "the limit of figure 3": (lambda known: fill(known, 16), "too much is wasted"),
    "the worst first": (
        lambda known: fill(known, 16, lambda known: list_acceptable(known)[::-1]),
        "too much is",
    ),
    "does not look at the device": (lambda known: list_acceptable(known)[:8], "too much is wasted"),
    "sees no threshold": (
        lambda known: fill(
            known, 16, lambda known: [item for item in known.waiting if item.expires_s > known.now_s]
        ),
        "below the threshold of 0.5",
    ),
    "sees no expiration": (
        lambda known: fill(
            known, 16, lambda known: [item for item in known.waiting if item.rank >= known.threshold]
        ),
        ", which expired ",
    ),
    "keeps the best on the device": (
        lambda known: sorted([*list_acceptable(known), *known.device], key=lambda item: -item.rank)[:16],
        "which is on the device already",
    ),
    "twice": (lambda known: list_acceptable(known)[:2] * 2, " twice."),
    "identities": (
        lambda known: [item.identity for item in known.waiting[:2]],
        "which is not a waiting message",
    ),
    "made up": (lambda known: [Item(10_000, 1.0, 0.0, 1e9)], "which is not a waiting message"),
    "no list": (lambda known: None, "Your function returned None; expected a list of messages"),
    "raises": (lambda known: known.wating, "it raises AttributeError"),
}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("rule", "problem"), mark_soak(WRONG, "everything", "nothing", "sees no expiration"))
def test_judge_rejects(rule, problem):
    verdict = check_rejected(CHAPTER, rule, problem)
    assert verdict.failure.scenario.startswith("14 days with ")
    figure = verdict.diagram()
    assert figure.layout.annotations[0].text == "the rule"
    assert any(trace.name == "waits at the server" and trace.x for trace in figure.data)


def test_picture_shows_36_hours_around_the_harm():
    """A rule that forwards nothing loses much of what is read on-line: half of it comes before the middle."""
    best = last_hop._best(SIMPLE)
    figure = last_hop._drawn(lambda known: [], SIMPLE, best)
    begin_h, end_h = figure.layout.xaxis.range
    assert end_h - begin_h == 36
    online = message_lifecycles(SIMPLE.drawn(), partial(Spool, 0.0, Forwarding("on-line")), SIMPLE.most)
    lost_h = online["came_us"][(online["read_us"] >= 0) & (online["came_us"] > 36 * 3.6e9)] / 3.6e9
    assert (begin_h + end_h) / 2 == pytest.approx(lost_h.median(), abs=12)


def test_failure_is_the_simplest_scenario():
    verdict = judge(CHAPTER, lambda known: [])
    assert verdict.failure.scenario == str(SIMPLE)


def test_scenario_is_what_its_sentence_says():
    case = SIMPLE._replace(outage=0.75, expiration_h=24.0)
    assert "with 32 messages and 2 reads a day" in str(case)
    assert "no link 75 % of the time, they expire after 24 h" in str(case)
    drawn = [case._replace(seed=seed).drawn() for seed in range(40)]
    assert np.mean([len(one.arrivals_us) for one in drawn]) == pytest.approx(14 * 32, rel=0.03)
    assert np.mean([len(one.reads_us) for one in drawn]) == pytest.approx(14 * 2, rel=0.1)
    lifetimes_us = np.concatenate([one.expires_us - one.arrivals_us for one in drawn])
    assert lifetimes_us.mean() == pytest.approx(24 * 3.6e9, rel=0.03)
    assert np.mean([one.starts_up for one in drawn]) == pytest.approx(0.25, abs=0.2)
    assert (SIMPLE.drawn().expires_us >= FOREVER_US).all()


@pytest.mark.parametrize("limit", [1, 16, 256])
def test_judge_uses_the_spool_of_the_simulator(limit):
    """Compare a rule that fills the device with the simulator's buffer policy."""
    for case in (SIMPLE, SIMPLE._replace(expiration_h=24.0, threshold=0.5, outage=0.9, seed=2)):
        drawn = case.drawn()
        judged = _Judged(lambda known: fill(known, limit), case, drawn)
        buffer = partial(Spool, case.threshold, Forwarding("buffer", limit))
        assert play(drawn, judged.spool, case.most) == play(drawn, buffer, case.most)
        assert judged.problem is None


def test_message_is_listed_until_a_day_after_it_can_no_longer_be_forwarded():
    """A message of the threshold's rank is not below it, so it can be forwarded until it expires."""
    judged = _Judged(solution, SIMPLE._replace(threshold=0.5), SIMPLE.drawn())
    day_s = 86_400.0
    at, below = (Item(number, rank, 0.0, 5 * day_s) for number, rank in enumerate((0.5, 0.4)))
    listed_days = [[day for day in range(8) if judged._is_listed(item, day * day_s)] for item in (at, below)]
    assert listed_days == [[0, 1, 2, 3, 4, 5], [0]]


def test_best_limit_has_the_smallest_sum_of_waste_and_loss(monkeypatch):
    """The exercise states it: waste and loss together are compared with those of the best fixed limit."""
    waste_of = {1: 0.0, 4: 0.1, 16: 0.2, 64: 0.6, 256: 0.9}
    lost_of = {1: 9, 4: 4, 16: 1, 64: 1, 256: 0}

    def play_forwarding(drawn, spool, most):
        forwarding = spool.args[1]
        if forwarding.kind == "on-line":
            return SimpleNamespace(read_ids=range(10))
        limit = forwarding.prefetch_limit
        return SimpleNamespace(waste=waste_of[limit], read_ids=range(lost_of[limit], 10))

    monkeypatch.setattr(last_hop, "play", play_forwarding)
    best = last_hop._best.__wrapped__(SIMPLE)
    assert (best.limit, best.waste, best.loss) == (16, 0.2, 0.1)


def test_passing_rule_works_in_the_simulator():
    run = simulate(policy=Forwarding("rule", rule=solution), outage=0.9, days=30, seed=5)
    assert run.waste + run.loss < 0.1


def test_chapter_states_the_limit_of_the_judge():
    text = (Path(mudkit.__file__).parent / "notebooks" / "04_last_hop.ipynb").read_text(encoding="utf-8")
    assert f"may be at most {last_hop._WITHIN:g} above those of the best fixed limit" in text
