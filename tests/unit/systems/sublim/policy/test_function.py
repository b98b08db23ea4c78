"""Functions of trusted notebooks: what they may do, and what stops them."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
import threading

import pytest

from mudkit.systems.sublim import Policy, Rule, create_message, method, policy
from mudkit.systems.sublim._policy import function as function_module
from mudkit.systems.sublim._policy.actions import Call
from mudkit.systems.sublim._policy.state import MAX_STATE_BYTES, MAX_VARIABLES
from mudkit.systems.sublim._policy.verdict import MAX_MESSAGE_BYTES

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


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """What a clock ends is ended soon: what it ends runs for hours otherwise."""
    monkeypatch.setattr(function_module, "MAX_CPU_S", 0.2)


# fmt: off
def loops_on_a_line(message, state):
    while True: pass  # noqa: E701


def loops_in_an_inner_function(message, state):
    def inner():
        while True: pass  # noqa: E701

    return inner()


def loops_in_a_list(message, state):
    return [each + 1 for each in itertools.count()]


def loops_in_a_generator(message, state):
    return sum(each for each in itertools.count())


def loops_in_a_callback(message, state):
    return max(itertools.count(), key=lambda each: each)


def loops_in_an_iterator(message, state):
    class Endless:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

    return sum(Endless())


def waits_for_what_never_changes(message, state):
    while message["pulse"] == 48: state.now_s  # noqa: E701, B018


def loops_for(message, state):
    for _ in itertools.count(): pass  # noqa: E701


# fmt: on
def loops_and_catches(message, state):
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def fails_at_saying_so(message, state):
    raise Mute


def recurses(message, state):
    return recurses(message, state)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (loops, "lines"),
        (loops_and_catches, "lines"),
        (loops_on_a_line, "lines"),
        (loops_in_an_inner_function, "lines"),
        (loops_in_a_list, "lines"),
        (loops_in_a_generator, "lines"),
        (loops_in_a_callback, "lines"),
        (loops_in_an_iterator, "lines"),
        (waits_for_what_never_changes, "lines"),
        (loops_for, "lines"),
        (lambda message, state: 10**10**10, "processor time"),
        (lambda message, state: re.match("(a|a)*$", "a" * 60 + "b"), "processor time"),
        (lambda message, state: "a" * 10**15, "MemoryError"),
        (lambda message, state: [0] * 10**15, "MemoryError"),
        (fails_at_saying_so, "Mute"),
        (recurses, "Recursion"),
        (lambda message, state: 1 / 0, "ZeroDivisionError"),
        (lambda message, state: exit(1), "SystemExit"),
        (lambda message, state: message["none"], "KeyError"),
        (lambda message, state: "text", ""),
        (lambda message, state: {"a": float("nan")}, "something else"),
        (lambda message, state: {"a": {1, 2}}, "something else"),
        (lambda message, state: {"a": object()}, "something else"),
        (lambda message, state: {1: 2}, "something else"),
        (lambda message, state: {"a": [{None: 2}]}, "something else"),
        (lambda message, state: state.set_property("a", {1: 2}), "something else"),
        (lambda message, state: state.set_property(1, 2), "something else"),
        (lambda message, state: {"a": json.loads("[" * 70 + "]" * 70)}, "something else"),
        (lambda message, state: {"a": "x" * MAX_MESSAGE_BYTES}, "may send"),
        (lambda message, state: state.set_property("a", "x" * MAX_STATE_BYTES), "may keep"),
        (lambda message, state: [state.set_property(f"a{n}", 0) for n in range(MAX_VARIABLES + 1)] and None, "may keep"),
        (lambda message, state: state.set_property("a", float("inf")) or state.set_property("b", object()), "something else"),
    ],
)  # fmt: skip
def test_what_goes_wrong_stops_it_and_leaves_the_state(function, says):
    verdict = decide(function, {"old": 1})
    assert (verdict.outcome, verdict.out, verdict.variables) == ("stopped", None, {"old": 1})
    assert says in verdict.problem


def test_it_explains_what_it_was_given():
    (seen,) = policy(loops).explain({"pulse": 48}, {"a": 1}, {"battery": 3})
    assert (seen.name, seen.values) == ("loops", {"message.pulse": 48, "state.a": 1, "state.battery": 3})


@pytest.mark.parametrize(
    "function", [loops, loops_on_a_line, loops_in_a_generator, lambda message, state: exit(1)]
)
def test_a_registered_method_is_ended_as_a_function_is(function):
    method("endless_one")(function)
    verdict = Policy("calls", [Rule(None, [Call("endless_one")])]).decide(BODY, {"old": 1}, {}, 5.0)
    assert (verdict.outcome, verdict.out, verdict.variables) == ("stopped", None, {"old": 1})


def test_a_function_that_a_tracer_watches_already_is_ended_by_the_clock():
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: None)
    try:
        verdict = decide(loops_on_a_line)
    finally:
        sys.settrace(before)
    assert "processor time" in verdict.problem


def test_it_leaves_nothing_behind():
    before = sys.gettrace(), signal.getsignal(signal.SIGVTALRM)
    for function in (loops_on_a_line, lambda message, state: message, lambda message, state: 10**10**10):
        decide(function)
        assert (sys.gettrace(), signal.getsignal(signal.SIGVTALRM)) == before
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_another_thread_counts_lines_too():
    result = []
    thread = threading.Thread(target=lambda: result.append(decide(loops_on_a_line)))
    thread.start()
    thread.join(30)
    assert [each.outcome for each in result] == ["stopped"]
