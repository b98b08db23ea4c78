"""Functions of trusted notebooks: what they may do, and what stops them."""

from __future__ import annotations

import pytest

from mudkit.systems.sublim import PolicyError, create_message, policy
from mudkit.systems.sublim.limits import MAX_MESSAGE_BYTES, MAX_STATE_BYTES, MAX_VARIABLES

BODY = {"pulse": 48, "nested": {"a": [1, 2]}}


def decide(function, variables=None, automatic=None, body=BODY):
    return policy(function).decide(body, variables or {}, automatic or {}, 5.0)


def test_it_gives_back_the_message_another_one_or_nothing():
    assert decide(lambda message, state: message).out == BODY
    assert decide(lambda message, state: create_message(pulse=1)).out == {"pulse": 1}
    assert decide(lambda message, state: None).outcome == "dropped"


def test_it_reads_and_changes_its_state_but_not_automatic_variables():
    def keeps(message, state):
        assert (state["battery"], state.now_s, state.get_property("none")) == (9, 5.0, None)
        state.set_property("battery", 100)
        state.remove_property("battery")
        state.set_property("new", (message["pulse"], {"a": 1}))
        state.remove_property("old")
        return create_message(battery=state["battery"])

    verdict = decide(keeps, {"old": 1}, {"battery": 9})
    assert verdict.out == {"battery": 9}
    assert verdict.variables == {"new": [48, {"a": 1}]}


def test_first_variables_are_given_with_the_decorator():
    @policy(seen=[1])
    def counts(message, state):
        state.set_property("seen", [*state["seen"], 2])
        return message

    assert counts.variables == {"seen": [1]}
    assert counts.decide({}, counts.variables, {}).variables == {"seen": [1, 2]}
    with pytest.raises(PolicyError, match="cannot be kept"):
        policy(seen={1, 2})(lambda message, state: None)
    with pytest.raises(PolicyError, match="made of a function"):
        policy(5)


def test_it_cannot_change_what_was_published_nor_what_is_stored():
    def spoils(message, state):
        state["list"].append(3)
        with pytest.raises(TypeError):
            message["pulse"] = 0
        with pytest.raises(TypeError):
            message["nested"]["a"] = 0
        with pytest.raises(AttributeError):
            message["nested"]["a"].append(3)

    variables = {"list": [1]}
    assert decide(spoils, variables).outcome == "dropped"
    assert variables == {"list": [1]}
    assert BODY == {"pulse": 48, "nested": {"a": [1, 2]}}


def loops(message, state):
    while True:
        pass


def loops_and_catches(message, state):
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


def recurses(message, state):
    return recurses(message, state)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (loops, "lines"),
        (loops_and_catches, "lines"),
        (recurses, "Recursion"),
        (lambda message, state: 1 / 0, "ZeroDivisionError"),
        (lambda message, state: exit(1), "SystemExit"),
        (lambda message, state: message["none"], "KeyError"),
        (lambda message, state: "text", ""),
        (lambda message, state: {"a": float("nan")}, "something else"),
        (lambda message, state: {"a": {1, 2}}, "JSON cannot"),
        (lambda message, state: {"a": object()}, "JSON cannot"),
        (lambda message, state: {"a": "x" * MAX_MESSAGE_BYTES}, "may send"),
        (lambda message, state: state.set_property("a", "x" * MAX_STATE_BYTES), "may keep"),
        (lambda message, state: [state.set_property(f"a{n}", 0) for n in range(MAX_VARIABLES + 1)] and None, "may keep"),
        (lambda message, state: state.set_property("a", float("inf")) or state.set_property("b", object()), "JSON cannot"),
    ],
)  # fmt: skip
def test_what_goes_wrong_stops_it_and_leaves_the_state(function, says):
    verdict = decide(function, {"old": 1})
    assert (verdict.outcome, verdict.out, verdict.variables) == ("stopped", None, {"old": 1})
    assert says in verdict.problem


def test_it_explains_what_it_was_given():
    (seen,) = policy(loops).explain({"pulse": 48}, {"a": 1}, {"battery": 3})
    assert (seen.name, seen.values) == ("loops", {"message.pulse": 48, "state.a": 1, "state.battery": 3})
