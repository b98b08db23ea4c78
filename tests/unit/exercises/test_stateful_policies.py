"""Judge of chapter 07: correct policies are accepted and likely mistakes rejected."""

from __future__ import annotations

import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises import judge
from mudkit.systems.sublim import Policy, Rule, compress, create_message, policy, resize
from mudkit.systems.sublim._policy.actions import Compress, Every, Keep, Resize
from mudkit.systems.sublim.study import picu, picu_function, shared_timestamp_policy, stateless_picu

CHAPTER = "07_stateful_policies"
SOLUTION = """
policy: ward
variables:
  patients: {patients}
rules:
  - name: others, not in danger
    when: lookup('patients', message.patient, 'listed') IS NULL AND coalesce(message.pulse >= 50, TRUE)
    do: drop
  - name: an alarm, low battery
    when: state.battery < 25 AND message.pulse < 50
    do:
      - keep: [patient, pulse]
  - name: low battery
    when: state.battery < 25
    do:
      - every: {{seconds: 300, per: message.patient}}
      - keep: [patient, pulse]
  - name: poor link, or not charged
    when: state.bandwidth_kbps < 500 OR state.battery <= 75
    do:
      - compress: {{field: ecg, ratio: 4}}
      - resize: {{field: ecg}}
  - name: all is well
    do:
      - resize: {{field: ecg}}
"""


def as_text(patients):
    return SOLUTION.format(patients=patients)


def as_function(patients, shrink=compress):
    @policy(patients=patients, shown={})
    def ward(message, state):
        pulse, battery = message.get("pulse"), state.get_property("battery")
        is_alarm = pulse is not None and pulse < 50
        patient = message["patient"]
        if patient not in state.get_property("patients") and not is_alarm:
            return None
        created = create_message(message)
        if battery is not None and battery < 25:
            shown = dict(state.get_property("shown"))
            if not is_alarm and state.now_s - shown.get(str(patient), -300) < 300:
                return None
            state.set_property("shown", {**shown, str(patient): state.now_s})
            return {name: created[name] for name in ("patient", "pulse") if name in created}
        kbps = state.get_property("bandwidth_kbps")
        if (kbps is not None and kbps < 500) or (battery is not None and battery <= 75):
            shrink(created, "ecg", 2)
        return resize(created, "ecg", state.get_property("display_px"))

    return ward


def as_rules(patients):
    rules = list(picu(patients).rules)
    rules.insert(1, Rule("state.battery < 25 AND message.pulse < 50", Keep(("patient", "pulse")), "alarm"))
    return Policy("ward", rules, variables={"patients": patients})


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", [as_text, as_function, as_rules])
def test_judge_accepts(piece):
    check_accepted(CHAPTER, piece)


def change_solution(old, new):
    assert old in SOLUTION
    return lambda patients: SOLUTION.replace(old, new).format(patients=patients)


def use_one_timestamp(patients):
    """Use the paper's Timestamp, but let alarms through."""
    rules = list(as_rules(patients).rules)
    low = Rule("state.battery < 25", [Every(300), Keep(("patient", "pulse"))], "one Timestamp")
    return Policy("ward", [*rules[:2], low, *rules[3:]], variables={"patients": patients})


def send_alarms_first(patients):
    """Send alarms first, at any battery level and bandwidth."""
    rules = [Rule("message.pulse < 50", Resize("ecg"), "alarm"), *picu(patients).rules]
    return Policy("ward", rules, variables={"patients": patients})


def cut_off(patients):
    """Send the first half of the electrocardiogram, where the whole one is to be compressed."""

    def cut(message, field, ratio):
        if field in message:
            message[field] = message[field][: len(message[field]) // ratio]

    return as_function(patients, shrink=cut)


def compress_always(patients):
    rules = [*as_rules(patients).rules[:-1], Rule(None, [Compress("ecg", 2), Resize("ecg")], "well")]
    return Policy("ward", rules, variables={"patients": patients})


WRONG = {
    "half a second too early": (change_solution("seconds: 300", "seconds: 299.5"), "shown again after 299.9", ""),
    "a second too early": (change_solution("seconds: 300", "seconds: 299"), "shown again after 299", ""),
    "a second too late": (change_solution("seconds: 300", "seconds: 301"), "a message of patient", ""),
    "a pulse too low": (change_solution("message.pulse < 50", "message.pulse < 49"), "the alarm of patient", ""),
    "a kbit/s too low": (change_solution("kbps < 500", "kbps < 499"), "a link of 499 kbit/s", ""),
    "the paper's PICU": (picu, "the alarm of patient", "R2, battery below 25 %"),
    "PICU as a function": (picu_function, "the alarm of patient", "is not sent"),
    "PICU with one Timestamp": (shared_timestamp_policy, "is not sent", "R2, battery below 25 %"),
    "one Timestamp, alarms let through": (use_one_timestamp, "a message of patient", "one Timestamp"),
    "stateless": (stateless_picu, "", ""),
    "alarms before the battery": (send_alarms_first, "", "alarm"),
    "no limit": (change_solution("      - every: {{seconds: 300, per: message.patient}}\n", ""), "is shown again after", ""),
    "a limit for each pulse": (change_solution("per: message.patient", "per: message.pulse"), "is shown again after", ""),
    "too long a limit": (change_solution("seconds: 300", "seconds: 301"), "a message of patient", "is not sent"),
    "NULL forgotten": (change_solution("coalesce(message.pulse >= 50, TRUE)", "message.pulse >= 50"), "not the doctor's", ""),
    "25 % is low": (change_solution("state.battery < 25\n", "state.battery <= 25\n"), "", "low battery"),
    "50 is an alarm": (change_solution("message.pulse >= 50", "message.pulse > 50"), "not the doctor's", ""),
    "the link forgotten": (change_solution("state.bandwidth_kbps < 500 OR ", ""), "samples are sent", "all is well"),
    "75 % is charged": (change_solution("state.battery <= 75", "state.battery < 75"), "samples are sent", "all is well"),
    "too small": (change_solution("ratio: 4", "ratio: 40"), "expected a half to a sixteenth", "poor link"),
    "the display forgotten": (change_solution("  - name: all is well\n    do:\n      - resize: {{field: ecg}}\n", "  - name: all is well\n"), "samples for 150 pixels", "all is well"),
    "cut off": (cut_off, "are not the whole electrocardiogram", ""),
    "compressed always": (compress_always, "only 200 of 400 samples", "well"),
    "no pulse": (change_solution("keep: [patient, pulse]", "keep: [patient]"), "is sent as None", ""),
    "nothing": (lambda patients: Policy("none", [Rule("FALSE OR message.patient = 99")]), "is not sent", "No rule fires"),
    "refused": (change_solution("state.battery <= 75", "state.batery <= 75"), "the policy is refused: ", "state.batery"),
    "no YAML": (lambda patients: "rules: [", "the policy is refused: ", "not YAML"),
    "no policy": (lambda patients: None, "it returns None; expected a policy", ""),
    "raises": (lambda patients: patients[5], "it raises IndexError", ""),
    "stops": (lambda patients: policy(lambda message, state: message["puls"]), "the policy is stopped: KeyError", ""),
}  # fmt: skip


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("piece", "problem", "why"),
    mark_soak(WRONG, "half a second too early", "cut off", "the paper's PICU", "no limit", "NULL forgotten"),
)
def test_judge_rejects(piece, problem, why):
    verdict = check_rejected(CHAPTER, piece, problem)
    assert why in verdict.failure.problem
    assert verdict.failure.scenario.startswith("the doctor has patient")


def test_smallest_scenario_is_short_and_drawn():
    verdict = judge(CHAPTER, picu)
    assert verdict.failure.scenario.count("after ") == 2, "one message that is shown, then the alarm"
    figure = verdict.diagram()
    assert "smallest scenario" in figure.layout.title.text
    marks = {trace.name: len(trace.x) for trace in figure.data}
    assert marks["here"] == 1
    assert marks["held back"] == 1
    assert marks["an alarm"] >= 1


def test_invalid_policy_has_no_diagram():
    assert judge(CHAPTER, lambda patients: None).diagram() is None
