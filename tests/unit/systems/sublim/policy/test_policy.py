"""Declarative policies: parsing, decisions, and errors with their line."""

from __future__ import annotations

import pickle

import pytest

from mudkit.errors import InputMissing, ParameterError
from mudkit.events import size_bytes
from mudkit.systems.sublim import Policy, PolicyError, Rule, decision_table, method
from mudkit.systems.sublim import policy as function_policy
from mudkit.systems.sublim._policy.actions import Drop, Every, Keep, Remember, SetField
from mudkit.systems.sublim._policy.policy import MAX_ACTIONS, MAX_RULES
from mudkit.systems.sublim._policy.state import MAX_STATE_BYTES
from mudkit.systems.sublim.check.checker import findings, validate

MESSAGE = {"patient": 7, "pulse": 48}


def parse_refused(text):
    with pytest.raises(PolicyError) as caught:
        validate(Policy.from_yaml(text))
    return caught.value


def test_only_the_first_true_rule_fires():
    policy = Policy(
        "one", [Rule("message.pulse < 50", Keep(("pulse",))), Rule("message.pulse < 60", [Drop()])]
    )
    assert policy.decide({"pulse": 40, "a": 1}, {}, {}).out == {"pulse": 40}
    assert policy.decide({"pulse": 55}, {}, {})[:3] == ("dropped", None, 1)
    assert policy.decide({"pulse": 70}, {}, {})[:3] == ("dropped", None, None)


def test_decision_table_has_the_size_of_what_is_sent():
    policy = Policy(
        "one", [Rule("message.pulse < 50", Keep(("pulse",))), Rule("message.pulse < 60", [Drop()])]
    )
    messages = {"sent": {"pulse": 40, "a": 1}, "dropped": {"pulse": 55}, "no rule": {"pulse": 70}}
    table = decision_table(policy, messages, {"full": {"battery": 100}})
    assert table["fields"].tolist() == ["pulse", "", ""]
    assert table["bytes"].tolist() == [size_bytes({"pulse": 40}), 0, 0]
    assert table["rule"].tolist() == [1, 2, 0]


def test_missing_field_is_null_in_comparisons():
    policy = Policy(
        "one",
        [
            Rule("message.pulse < 50"),
            Rule("NOT (message.pulse < 50)"),
            Rule("message.pulse IS NULL", Keep(("a",))),
        ],
    )
    assert policy.decide({"a": 1, "b": 2}, {}, {}).out == {"a": 1}


def test_clock_is_the_time_of_publication():
    policy = Policy("day", [Rule("hour(clock.now_s) BETWEEN 8 AND 17")])
    assert policy.decide(MESSAGE, {}, {}, 9 * 3600.0).out == MESSAGE
    assert policy.decide(MESSAGE, {}, {}, 20 * 3600.0).out is None


def test_decide_changes_neither_message_nor_variables():
    policy = Policy("one", [Rule(None, [SetField({"pulse": 1}), Remember({"seen": "message.pulse"})])])
    message, variables = {"pulse": 48}, {"old": 1}
    verdict = policy.decide(message, variables, {"battery": 3})
    assert (message, variables) == ({"pulse": 48}, {"old": 1})
    assert (verdict.out, verdict.variables) == ({"pulse": 1}, {"old": 1, "seen": 48.0})


def test_sample_policy_survives_a_dict_round_trip():
    policy = Policy.from_yaml("data/sample/picu.yaml")
    assert findings(validate(policy)) == []
    copy = Policy.from_dict(policy.to_dict())
    assert copy.to_dict() == policy.to_dict()
    assert copy.decide(MESSAGE, policy.variables, {}).out == MESSAGE


def test_explanation_shows_rules_up_to_the_one_that_fired():
    policy = Policy(
        "two", [Rule("state.battery < 25", [Drop()], "low"), Rule("message.pulse < 50", [], "alarm")]
    )
    low, alarm = policy.explain({"pulse": 48}, {}, {})
    assert (low.truth, low.values) == (None, {"state.battery": None})
    assert (alarm.truth, alarm.values, alarm.name) == (True, {"message.pulse": 48}, "alarm")
    (always,) = Policy("two", [Rule(None), Rule("message.pulse < 50")]).explain({"pulse": 48}, {}, {})
    assert (always.number, always.truth) == (0, True)


# -- invalid input


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("policy: x\nrules:\n  - when: [a\n  - do: drop\n", 4, "not YAML"),
        (
            "rules:\n  - when: message.pulse < 50\n    do:\n    - keep: [pulse]\n    - explode: 3\n",
            5,
            "'explode'",
        ),
        ("rules:\n  - do: explode\n", 2, "compress"),  # the error lists the actions
        ("policy: x\nrules:\n  - do: []\n    when: message.pulse < (SELECT 1)\n", 4, "line 4"),
        ("rules:\n  - when: '__import__(''os'') = 1'\n", 2, "line 2"),
        ("message: {pulse: number}\nrules:\n  - when: message.puls < 50\n", 3, "did you mean 'pulse'"),
        ("rules:\n  - when: state.batery < 25\n", 2, "line 2"),
        ("rules:\n  - when: message.a = 1\n    then: drop\n", 3, "Unknown part 'then'"),
        ("rules:\n  - when: 5\n", 2, "a text"),
        ("policy: x\nrule: []\n", 2, "Unknown part 'rule'"),
        ("policy: x\nrules: 5\n", 2, "a list of rules"),
        ("policy: x\nrules: []\n", 2, "needs rules"),
        ("policy: x\n", 1, "a list of rules"),
        ("- a\n- b\n", 1, "named parts"),
        ("\n", None, "policy is empty"),
        ("rules:\n  - do: [{keep: [a], drop: 1}]\n", 2, "Expected one action"),
        ("rules:\n  - do: {keep: pulse}\n", 2, "list of names"),
        ("rules:\n  - do:\n    - every: {per: message.a}\n", 3, "parameter of every is missing"),
        ("rules:\n  - do:\n    - every: {seconds: -1}\n", 3, "Expected a duration"),
        ("rules:\n  - do:\n    - every: {second: 1}\n", 3, "no parameter 'second'"),
        ("rules:\n  - do:\n    - every: 5\n", 3, "parameters by name"),
        ("rules:\n  - do:\n    - compress: {field: a, ratio: 0.5}\n", 3, "Invalid ratio"),
        ("rules:\n  - do:\n    - call: nothing_of_that_name\n", 3, "Unknown method"),
        ("rules:\n  - do:\n    - set: {a: 'message.b +'}\n", 3, "incomplete"),
        ("rules:\n  - do:\n    - drop: 5\n", 3, "takes nothing"),
        ("message: {a: float}\nrules:\n  - do: drop\n", 1, "kind of field"),
        ("variables:\n  battery: 5\nrules:\n  - do: drop\n", 2, "automatic"),
        ("variables: [1]\nrules:\n  - do: drop\n", 1, "are named"),
    ],
)
def test_invalid_files_are_refused_with_line(text, line, problem):
    error = parse_refused(text)
    assert problem in str(error)
    assert error.line == line


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (lambda: Policy.from_yaml("data/sample/picu.yml"), InputMissing, "picu.yml"),
        (lambda: Policy("many", [Rule()] * (MAX_RULES + 1)), PolicyError, "needs rules"),
        (
            lambda: Policy("many", [Rule()], variables={f"v{n}": 1 for n in range(65)}), PolicyError,
            "too many variables",
        ),
        (lambda: Policy("p", [Rule(None, [Every(5, 5)])]), PolicyError, "key of a limit must be an expression"),
        (lambda: SetField(["a"]), PolicyError, "takes values by name"),
        (lambda: SetField({}), PolicyError, "takes values by name"),
        (lambda: SetField({"a": {"b": 1}}), PolicyError, "cannot give a this value"),
        (lambda: SetField({"a": ["\ud800"]}), PolicyError, "cannot give a this value"),
        (lambda: Rule(None, [Keep(("a",))] * (MAX_ACTIONS + 1)), PolicyError, "too many actions"),
        (lambda: Policy("fat", [Rule()], variables={"a": "x" * MAX_STATE_BYTES}), PolicyError, "cannot be kept"),
        (lambda: method("no name"), PolicyError, "Invalid name of a method"),
        (lambda: function_policy(seen={1, 2})(lambda message, state: None), PolicyError, "cannot be kept"),
        (lambda: function_policy(5), ParameterError, "a function or None"),
        (lambda: validate(Policy("theirs", [Rule(None, [SetField({"a": "state.secret"})])])), PolicyError, "unknown name"),
        *((lambda text=text: Policy("reads", [Rule(None, [SetField({"a": text})])]), PolicyError, "") for text in (
            "__import__('os')", "open('x')", "message.__class__.__mro__", "state.x.__globals__", "exec('1')",
        )),
    ],
)  # fmt: skip
def test_invalid_policies_and_rules_are_refused(call, error, problem):
    with pytest.raises(error, match=problem or "."):
        call()


def test_policy_error_can_be_pickled():
    error = parse_refused("rules:\n  - do: explode\n")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.line) == (str(error), 2)


# -- limits


def test_oversized_state_stops_the_policy_for_this_message():
    policy = Policy("grows", [Rule(None, [Remember({"all": "message.text"})])])
    fits = policy.decide({"text": "x" * 60_000}, {}, {})
    assert fits.outcome == "sent"
    stopped = policy.decide({"text": "x" * 70_000}, fits.variables, {})
    assert (stopped.outcome, stopped.out, stopped.variables) == ("stopped", None, fits.variables)
    assert "may keep" in stopped.problem


def test_oversized_message_is_not_sent():
    names = [f"f{number}" for number in range(10)]
    policy = Policy("grows", [Rule(None, [SetField(dict.fromkeys(names, "message.text"))])])
    stopped = policy.decide({"text": "x" * 60_000}, {}, {})
    assert stopped.outcome == "stopped"
    assert "may send" in stopped.problem
