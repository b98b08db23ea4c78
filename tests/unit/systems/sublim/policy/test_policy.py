"""Declarative policies: reading, deciding, and bad input with its line."""

from __future__ import annotations

import pickle

import pytest

from mudkit.errors import InputMissing, ParameterError
from mudkit.systems.sublim import Policy, PolicyError, Rule, method
from mudkit.systems.sublim import policy as function_policy
from mudkit.systems.sublim._policy.actions import Drop, Keep, Remember, SetField
from mudkit.systems.sublim._policy.policy import MAX_ACTIONS, MAX_RULES
from mudkit.systems.sublim._policy.state import MAX_STATE_BYTES
from mudkit.systems.sublim.check.checker import findings, validate

MESSAGE = {"patient": 7, "pulse": 48}


def refused(text):
    with pytest.raises(PolicyError) as caught:
        validate(Policy.from_yaml(text))
    return caught.value


def test_the_first_rule_that_holds_fires_and_no_other():
    policy = Policy(
        "one", [Rule("message.pulse < 50", Keep(("pulse",))), Rule("message.pulse < 60", [Drop()])]
    )
    assert policy.decide({"pulse": 40, "a": 1}, {}, {}).out == {"pulse": 40}
    assert policy.decide({"pulse": 55}, {}, {})[:3] == ("dropped", None, 1)
    assert policy.decide({"pulse": 70}, {}, {})[:3] == ("dropped", None, None)


def test_a_field_that_is_missing_is_null_so_no_comparison_holds():
    policy = Policy(
        "one",
        [
            Rule("message.pulse < 50"),
            Rule("NOT (message.pulse < 50)"),
            Rule("message.pulse IS NULL", Keep(("a",))),
        ],
    )
    assert policy.decide({"a": 1, "b": 2}, {}, {}).out == {"a": 1}


def test_time_is_the_publication_s():
    policy = Policy("day", [Rule("hour(clock.now_s) BETWEEN 8 AND 17")])
    assert policy.decide(MESSAGE, {}, {}, 9 * 3600.0).out == MESSAGE
    assert policy.decide(MESSAGE, {}, {}, 20 * 3600.0).out is None


def test_nothing_that_is_given_is_changed():
    policy = Policy("one", [Rule(None, [SetField({"pulse": 1}), Remember({"seen": "message.pulse"})])])
    message, variables = {"pulse": 48}, {"old": 1}
    verdict = policy.decide(message, variables, {"battery": 3})
    assert (message, variables) == ({"pulse": 48}, {"old": 1})
    assert (verdict.out, verdict.variables) == ({"pulse": 1}, {"old": 1, "seen": 48.0})


def test_the_sample_is_read_and_comes_back_from_its_description():
    policy = Policy.from_yaml("data/sample/picu.yaml")
    assert findings(validate(policy)) == []
    again = Policy.from_dict(policy.to_dict())
    assert again.to_dict() == policy.to_dict()
    assert again.decide(MESSAGE, policy.variables, {}).out == MESSAGE


def test_an_explanation_shows_each_rule_up_to_the_one_that_fired():
    policy = Policy(
        "two", [Rule("state.battery < 25", [Drop()], "low"), Rule("message.pulse < 50", [], "alarm")]
    )
    low, alarm = policy.explain({"pulse": 48}, {}, {})
    assert (low.truth, low.values) == (None, {"state.battery": None})
    assert (alarm.truth, alarm.values, alarm.name) == (True, {"message.pulse": 48}, "alarm")


# -- bad input


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("policy: x\nrules:\n  - when: [a\n  - do: drop\n", 4, "not YAML"),
        (
            "rules:\n  - when: message.pulse < 50\n    do:\n    - keep: [pulse]\n    - explode: 3\n",
            5,
            "'explode'",
        ),
        ("rules:\n  - do: explode\n", 2, "compress"),  # the actions that there are
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
def test_mistakes_in_a_file_are_refused_in_words_with_their_line(text, line, says):
    error = refused(text)
    assert says in str(error)
    assert error.line == line


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Policy.from_yaml("data/sample/picu.yml"), InputMissing, "picu.yml"),
        (lambda: Policy("many", [Rule()] * (MAX_RULES + 1)), PolicyError, "needs rules"),
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
def test_policies_that_cannot_be_are_refused_in_words(call, error, says):
    with pytest.raises(error, match=says or "."):
        call()


def test_an_error_survives_a_process_border():
    error = refused("rules:\n  - do: explode\n")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == (str(error), 2)


# -- limits


def test_a_state_that_grows_beyond_its_limit_stops_the_policy_for_this_message():
    policy = Policy("grows", [Rule(None, [Remember({"all": "message.text"})])])
    fits = policy.decide({"text": "x" * 60_000}, {}, {})
    assert fits.outcome == "sent"
    stopped = policy.decide({"text": "x" * 70_000}, fits.variables, {})
    assert (stopped.outcome, stopped.out, stopped.variables) == ("stopped", None, fits.variables)
    assert "may keep" in stopped.problem


def test_a_message_that_grows_beyond_its_limit_is_not_sent():
    names = [f"f{number}" for number in range(10)]
    policy = Policy("grows", [Rule(None, [SetField(dict.fromkeys(names, "message.text"))])])
    stopped = policy.decide({"text": "x" * 60_000}, {}, {})
    assert stopped.outcome == "stopped"
    assert "may send" in stopped.problem
