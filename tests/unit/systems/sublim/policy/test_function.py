"""Policy functions of trusted notebooks: message, state, and run time limits."""

from __future__ import annotations

import gc
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


def test_function_returns_the_message_another_or_none():
    assert decide(lambda message, state: message).out == BODY
    assert decide(lambda message, state: create_message(pulse=1)).out == {"pulse": 1}
    assert decide(lambda message, state: None).outcome == "dropped"


def test_function_changes_manual_but_not_automatic_variables():
    def change_variables(message, state):
        assert (state["battery"], state.now_s, state.get_property("none")) == (9, 5.0, None)
        state.set_property("battery", 100)
        state.remove_property("battery")
        state.set_property("new", (message["pulse"], {"a": 1}))
        state.remove_property("old")
        return create_message(battery=state["battery"])

    verdict = decide(change_variables, {"old": 1}, {"battery": 9})
    assert verdict.out == {"battery": 9}
    assert verdict.variables == {"new": [48, {"a": 1}]}


def test_decorator_sets_initial_variables():
    @policy(seen=[1])
    def append_seen(message, state):
        state.set_property("seen", [*state["seen"], 2])
        return message

    assert append_seen.variables == {"seen": [1]}
    assert append_seen.decide({}, append_seen.variables, {}).variables == {"seen": [1, 2]}


def test_function_cannot_change_published_message_or_stored_state():
    def change_inputs(message, state):
        state["list"].append(3)
        with pytest.raises(TypeError):
            message["pulse"] = 0
        with pytest.raises(TypeError):
            message["nested"]["a"] = 0
        with pytest.raises(AttributeError):
            message["nested"]["a"].append(3)

    variables = {"list": [1]}
    assert decide(change_inputs, variables).outcome == "dropped"
    assert variables == {"list": [1]}
    assert BODY == {"pulse": 48, "nested": {"a": [1, 2]}}


def loops(message, state):
    while True:
        pass


@pytest.fixture(autouse=True)
def reduce_cpu_limit(monkeypatch):
    """Reduce the processor time limit, up to which some functions run."""
    monkeypatch.setattr(function_module, "MAX_CPU_S", 0.2)


# fmt: off
def loop_on_one_line(message, state):
    while True: pass  # noqa: E701


def loop_in_inner_function(message, state):
    def inner():
        while True: pass  # noqa: E701

    return inner()


def loop_in_list_comprehension(message, state):
    return [number + 1 for number in itertools.count()]


def loop_in_generator(message, state):
    return sum(number for number in itertools.count())


def loop_in_callback(message, state):
    return max(itertools.count(), key=lambda number: number)


def loop_in_iterator(message, state):
    class Endless:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

    return sum(Endless())


def wait_forever(message, state):
    while message["pulse"] == 48: state.now_s  # noqa: E701, B018


def loop_with_for(message, state):
    for _ in itertools.count(): pass  # noqa: E701


# fmt: on
def loop_and_catch_exceptions(message, state):
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def fail_without_text(message, state):
    raise Mute


def recurse(message, state):
    return recurse(message, state)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (loops, "lines"),
        (loop_and_catch_exceptions, "lines"),
        (loop_on_one_line, "lines"),
        (loop_in_inner_function, "lines"),
        (loop_in_list_comprehension, "lines"),
        (loop_in_generator, "lines"),
        (loop_in_callback, "lines"),
        (loop_in_iterator, "lines"),
        (wait_forever, "lines"),
        (loop_with_for, "lines"),
        (lambda message, state: 10**10**10, "processor time"),
        (lambda message, state: re.match("(a|a)*$", "a" * 60 + "b"), "processor time"),
        (lambda message, state: "a" * 10**15, "MemoryError"),
        (lambda message, state: [0] * 10**15, "MemoryError"),
        (fail_without_text, "Mute"),
        (recurse, "Recursion"),
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
def test_failure_stops_the_function_and_leaves_its_state(function, problem):
    verdict = decide(function, {"old": 1})
    assert (verdict.outcome, verdict.out, verdict.variables) == ("stopped", None, {"old": 1})
    assert problem in verdict.problem


def test_explanation_shows_message_and_state():
    (seen,) = policy(loops).explain({"pulse": 48}, {"a": 1}, {"battery": 3})
    assert (seen.number, seen.name) == (0, "loops"), "the only rule"
    assert seen.values == {"message.pulse": 48, "state.a": 1, "state.battery": 3}


@pytest.mark.parametrize(
    "function", [loops, loop_on_one_line, loop_in_generator, lambda message, state: exit(1)]
)
def test_registered_method_is_stopped_like_a_function(function):
    method("endless_one")(function)
    verdict = Policy("calls", [Rule(None, [Call("endless_one")])]).decide(BODY, {"old": 1}, {}, 5.0)
    assert (verdict.outcome, verdict.out, verdict.variables) == ("stopped", None, {"old": 1})


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_is_not_collected_in_a_function(is_enabled):
    gc.enable() if is_enabled else gc.disable()
    try:
        verdict = decide(lambda message, state: {"collects": gc.isenabled()})
        assert (verdict.out, gc.isenabled()) == ({"collects": False}, is_enabled)
    finally:
        gc.enable()


def test_traced_function_is_stopped_by_processor_time():
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: None)
    try:
        verdict = decide(loop_on_one_line)
    finally:
        sys.settrace(before)
    assert "processor time" in verdict.problem


def test_tracer_signal_handler_and_timer_are_restored():
    before = sys.gettrace(), signal.getsignal(signal.SIGVTALRM)
    for function in (loop_on_one_line, lambda message, state: message, lambda message, state: 10**10**10):
        decide(function)
        assert (sys.gettrace(), signal.getsignal(signal.SIGVTALRM)) == before
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_lines_are_counted_in_another_thread():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(decide(loop_on_one_line)))
    thread.start()
    thread.join(30)
    assert [verdict.outcome for verdict in verdicts] == ["stopped"]
