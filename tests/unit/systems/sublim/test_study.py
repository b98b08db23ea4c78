"""Policies of the PICU study: rules R1 to R4, the same as a function, and a shared timestamp."""

from __future__ import annotations

import pytest

from mudkit.reproduce.sublim import SITUATIONS, cases, decision
from mudkit.systems.sublim import Policy
from mudkit.systems.sublim.study import picu, picu_function, shared_timestamp_policy, stateless_picu

ECG = bytes(1_000)
PATIENTS = (1, 2, 3, 4)


@pytest.mark.parametrize("create_policy", [picu, picu_function])
@pytest.mark.parametrize(("message", "automatic", "expected"), SITUATIONS)
def test_policies_send_the_expected_messages(create_policy, message, automatic, expected):
    policy = create_policy(PATIENTS)
    assert decision(policy.decide({**message, "ecg": ECG}, policy.variables, automatic)) == expected


def test_rules_and_function_agree_on_random_messages(scaled):
    rules, function = picu(PATIENTS), picu_function(PATIENTS)
    rules_state, function_state = rules.variables, function.variables
    for message, automatic, now_s in cases(scaled(10_000, 1_000), seed=5):
        verdict = rules.decide(message, rules_state, automatic, now_s)
        other = function.decide(message, function_state, automatic, now_s)
        rules_state, function_state = verdict.variables, other.variables
        assert (verdict.out, rules_state.get("sent", {})) == (other.out, function_state["sent"]), (
            message,
            automatic,
        )


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


@pytest.mark.parametrize("create_policy", [picu, picu_function])
def test_rate_limit_is_per_patient_and_includes_alarms(create_policy):
    pulses = [(0, 1, 70), (10, 2, 70), (20, 1, 40), (299, 1, 40), (300, 1, 40), (300, 9, 40), (301, 9, 30)]
    assert play(create_policy(PATIENTS), pulses) == [(0, 1), (10, 2), (300, 1), (300, 9)]


def test_shared_timestamp_starves_other_patients():
    pulses = [(step * 5.0, 1 + step % 2, 70) for step in range(360)]
    assert {patient for _, patient in play(shared_timestamp_policy(PATIENTS), pulses)} == {1}
    assert {patient for _, patient in play(picu(PATIENTS), pulses)} == {1, 2}


def test_stateless_policy_depends_on_the_message_only():
    policy = stateless_picu(PATIENTS)
    assert policy.decide({"patient": 1, "pulse": 70, "ecg": ECG}, {}, {"battery": 1}).out["ecg"] == ECG
    assert policy.decide({"patient": 9, "pulse": 70}, {}, {}).out is None
    assert policy.decide({"patient": 9, "pulse": 49}, {}, {}).out is not None
    assert stateless_picu([]).decide({"patient": 9, "pulse": 49}, {}, {}).out is not None


def test_sample_file_contains_the_same_policy():
    sample = Policy.from_yaml("data/sample/picu.yaml")
    assert sample.to_dict() == picu(PATIENTS).to_dict()
