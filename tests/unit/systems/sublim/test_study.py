"""PICU: R1 to R4 by situation, as rules and as a function, and what one Timestamp does."""

from __future__ import annotations

import pytest

from mudkit.reproduce.sublim import SITUATIONS, cases, decision
from mudkit.systems.sublim import Policy
from mudkit.systems.sublim.study import picu, picu_function, shared_timestamp_policy, stateless_picu

ECG = bytes(1_000)
MINE = (1, 2, 3, 4)


@pytest.mark.parametrize("make", [picu, picu_function])
@pytest.mark.parametrize(("message", "automatic", "wanted"), SITUATIONS)
def test_what_the_rules_let_through(make, message, automatic, wanted):
    policy = make(MINE)
    assert decision(policy.decide({**message, "ecg": ECG}, policy.variables, automatic)) == wanted


def test_rules_and_function_agree_on_random_messages(scaled):
    rules, same = picu(MINE), picu_function(MINE)
    ours, theirs = rules.variables, same.variables
    for message, automatic, now_s in cases(scaled(10_000, 1_000), seed=5):
        one = rules.decide(message, ours, automatic, now_s)
        other = same.decide(message, theirs, automatic, now_s)
        ours, theirs = one.variables, other.variables
        assert (one.out, ours.get("sent", {})) == (other.out, theirs["sent"]), (message, automatic)


def play(policy, pulses, battery=10):
    variables, sent = policy.variables, []
    for now_s, patient, pulse in pulses:
        verdict = policy.decide(
            {"patient": patient, "pulse": pulse, "ecg": ECG}, variables, {"battery": battery}, now_s
        )
        variables = verdict.variables
        if verdict.out is not None:
            sent.append((now_s, patient))
    return sent


@pytest.mark.parametrize("make", [picu, picu_function])
def test_the_limit_is_per_patient_and_holds_for_alarms_too(make):
    pulses = [(0, 1, 70), (10, 2, 70), (20, 1, 40), (299, 1, 40), (300, 1, 40), (300, 9, 40), (301, 9, 30)]
    assert play(make(MINE), pulses) == [(0, 1), (10, 2), (300, 1), (300, 9)]


def test_one_timestamp_starves_all_but_one():
    pulses = [(step * 5.0, 1 + step % 2, 70) for step in range(360)]
    assert {patient for _, patient in play(shared_timestamp_policy(MINE), pulses)} == {1}
    assert {patient for _, patient in play(picu(MINE), pulses)} == {1, 2}


def test_the_stateless_one_looks_at_the_message_only():
    policy = stateless_picu(MINE)
    assert policy.decide({"patient": 1, "pulse": 70, "ecg": ECG}, {}, {"battery": 1}).out["ecg"] == ECG
    assert policy.decide({"patient": 9, "pulse": 70}, {}, {}).out is None
    assert policy.decide({"patient": 9, "pulse": 49}, {}, {}).out is not None
    assert stateless_picu([]).decide({"patient": 9, "pulse": 49}, {}, {}).out is not None


def test_the_sample_is_the_same_policy():
    sample = Policy.from_yaml("data/sample/picu.yaml")
    assert sample.describe() == picu(MINE).describe()
