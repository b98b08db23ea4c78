"""What rules do with a message."""

from __future__ import annotations

import pytest

from mudkit.systems.sublim import Policy, PolicyError, Rule, method
from mudkit.systems.sublim._policy.actions import (
    ACTIONS,
    Call,
    Compress,
    Drop,
    Every,
    Forget,
    Keep,
    Remember,
    Resize,
    SetField,
    Summary,
    action_of,
    described,
)

ECG = bytes(range(100))


def decide(message, *actions, variables=None, automatic=None, now_s=0.0):
    return Policy("test", [Rule(None, actions)]).decide(message, variables or {}, automatic or {}, now_s)


@method("shout")
def shout(message, state):
    return (
        None
        if message["text"] == "hush"
        else {**message, "text": message["text"].upper(), "b": state.get("battery")}
    )


@method("spoils")
def spoils(message, state):
    message["nested"]["a"] = state["list"].append(3)
    raise RuntimeError("no")


def test_drop_keep_and_set():
    assert decide({"a": 1}, Drop()).out is None
    assert decide({"a": 1, "b": 2}, Keep(("b", "c"))).out == {"b": 2}
    assert decide({"a": 1}, SetField({"b": "message.a + 1", "c": "'text'", "d": [1], "e": True})).out == {
        "a": 1,
        "b": 2.0,
        "c": "text",
        "d": [1],
        "e": True,
    }


def test_a_rule_without_actions_sends_the_message_as_it_is():
    assert decide({"a": 1}).out == {"a": 1}


def test_compress_and_resize():
    assert len(decide({"ecg": ECG}, Compress("ecg", 4)).out["ecg"]) == 25
    assert decide({"ecg": ECG}, Compress("ecg", "state.none")).out == {"ecg": ECG}
    twice = decide({"ecg": ECG}, Compress("ecg", 2), Resize("ecg", 10)).out
    assert (len(twice["ecg"]), twice["ecg_ratio"]) == (10, 10.0)
    assert decide({"ecg": ECG}, Resize("ecg"), automatic={"display_px": 200}).out == {"ecg": ECG}
    assert decide({"pulse": 4}, Compress("ecg", 4), Resize("pulse")).out == {"pulse": 4}


def test_automatic_variables_are_read_only():
    verdict = decide(
        {"a": 1},
        Remember({"battery": 5, "mine": 6}),
        Forget(("display_px", "gone")),
        variables={"gone": 1},
        automatic={"battery": 90, "display_px": 3},
    )
    assert verdict.variables == {"mine": 6}
    after = decide(
        {"a": 1}, Remember({"battery": 5}), SetField({"b": "state.battery"}), automatic={"battery": 90}
    )
    assert after.out == {"a": 1, "b": 90.0}
    assert after.variables == {}


def test_values_of_one_action_do_not_see_each_other():
    swapped = decide({}, Remember({"x": "state.y", "y": "state.x"}), variables={"x": 1, "y": 2})
    assert swapped.variables == {"x": 2.0, "y": 1.0}


def test_a_method_of_one_s_own():
    assert decide({"text": "a"}, Call("shout"), automatic={"battery": 4}).out == {"text": "A", "b": 4}
    assert decide({"text": "hush"}, Call("shout")).outcome == "dropped"


def test_a_method_that_fails_stops_its_policy_and_spoils_nothing():
    message, variables = {"nested": {"a": 1}}, {"list": [1, 2]}
    stopped = decide(message, Call("spoils"), variables=variables)
    assert (stopped.outcome, stopped.problem) == ("stopped", "RuntimeError: no")
    assert (message, variables) == ({"nested": {"a": 1}}, {"list": [1, 2]})


def test_a_method_has_a_name():
    with pytest.raises(PolicyError, match="cannot be the name"):
        method("no name")


@pytest.mark.parametrize(
    "action",
    [
        Drop(), Keep(("a", "b")), SetField({"a": 1}), Compress("a", "2 + 3"), Resize("a"), Remember({"a": "message.b"}),
        Forget(("a",)), Every(5), Every(5, "message.a", "x"), Summary(5, ("a",), "message.a"), Call("shout"),
    ],
)  # fmt: skip
def test_each_action_comes_back_from_its_description(action):
    plain = described(action)
    name, given = (plain, None) if isinstance(plain, str) else next(iter(plain.items()))
    assert action_of(name, given) == action
    assert ACTIONS[name] is type(action)
