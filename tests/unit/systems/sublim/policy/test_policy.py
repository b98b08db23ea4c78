"""Declarative policies: reading, deciding, and bad input with its line."""

from __future__ import annotations

import pickle

import pytest

from mudkit.errors import InputMissing
from mudkit.systems.sublim import Policy, PolicyError, Rule
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


def test_text_that_is_no_yaml_is_refused_with_its_line():
    error = refused("policy: x\nrules:\n  - when: [a\n  - do: drop\n")
    assert error.line in (3, 4)
    assert "not YAML" in str(error)


def test_an_unknown_action_is_refused_with_its_line():
    error = refused(
        "policy: x\nrules:\n  - when: message.pulse < 50\n    do:\n      - keep: [pulse]\n      - explode: 3\n"
    )
    assert (error.line, error.found) == (6, "'explode'")
    assert "line 6" in str(error)
    assert "compress" in error.expected


def test_a_predicate_outside_the_language_is_refused_with_its_line():
    error = refused("policy: x\nrules:\n  - do: []\n    when: message.pulse < (SELECT 1)\n")
    assert error.line == 4
    assert error.where.startswith("line 4")
    assert refused("rules:\n  - when: '__import__(''os'') = 1'\n").line == 2


def test_unknown_names_are_refused_with_their_line():
    text = "message: {pulse: number}\nrules:\n  - when: message.puls < 50\n"
    error = refused(text)
    assert error.line == 3
    assert "did you mean 'pulse'" in str(error)
    assert refused("rules:\n  - when: state.batery < 25\n").line == 2


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
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
def test_other_mistakes_say_what_came_and_where(text, line, says):
    error = refused(text)
    assert says in str(error)
    assert error.line == line


def test_a_file_that_is_not_there():
    with pytest.raises(InputMissing):
        Policy.from_yaml("data/sample/picu.yml")


def test_an_error_survives_a_process_border():
    error = refused("rules:\n  - do: explode\n")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == (str(error), 2)


# -- limits


def test_a_policy_has_a_bounded_size():
    with pytest.raises(PolicyError, match="needs rules"):
        Policy("many", [Rule()] * (MAX_RULES + 1))
    with pytest.raises(PolicyError, match="too many actions"):
        Rule(None, [Keep(("a",))] * (MAX_ACTIONS + 1))
    with pytest.raises(PolicyError, match="cannot be kept"):
        Policy("fat", [Rule()], variables={"a": "x" * MAX_STATE_BYTES})


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
