"""Actions of rules."""

from __future__ import annotations

import pytest

from mudkit.events import size_bytes
from mudkit.systems.sublim import Explanation, Policy, PolicyError, Rule, method, validate
from mudkit.systems.sublim._policy.actions import (
    ACTIONS,
    MAX_KEYS,
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
    build_action,
    describe,
)
from mudkit.systems.sublim._policy.execution import MAX_BOOKS_BYTES
from mudkit.systems.sublim._policy.state import MAX_STATE_BYTES

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
def fail_after_changes(message, state):
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


def test_rule_without_actions_sends_message_unchanged():
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


def test_values_of_one_action_are_evaluated_before_assignment():
    swapped = decide({}, Remember({"x": "state.y", "y": "state.x"}), variables={"x": 1, "y": 2})
    assert swapped.variables == {"x": 2.0, "y": 1.0}


def test_registered_method_is_called():
    assert decide({"text": "a"}, Call("shout"), automatic={"battery": 4}).out == {"text": "A", "b": 4}
    assert decide({"text": "hush"}, Call("shout")).outcome == "dropped"


def test_failing_method_stops_the_policy_and_changes_nothing():
    message, variables = {"nested": {"a": 1}}, {"list": [1, 2]}
    stopped = decide(message, Call("spoils"), variables=variables)
    assert (stopped.outcome, stopped.problem) == ("stopped", "RuntimeError: no")
    assert (message, variables) == ({"nested": {"a": 1}}, {"list": [1, 2]})


@pytest.mark.parametrize(
    "action",
    [
        Drop(), Keep(("a", "b")), SetField({"a": 1}), Compress("a", "2 + 3"), Resize("a"), Remember({"a": "message.b"}),
        Forget(("a",)), Every(5), Every(5, "message.a", "x"), Summary(5, ("a",), "message.a"), Call("shout"),
    ],
)  # fmt: skip
def test_actions_survive_a_round_trip_through_their_description(action):
    description = describe(action)
    name, parameter = (description, None) if isinstance(description, str) else next(iter(description.items()))
    assert build_action(name, parameter) == action
    assert ACTIONS[name] is type(action)


# -- rate limits and summaries


def play(policy, messages):
    variables, sent = policy.variables, []
    for now_s, message in messages:
        verdict = policy.decide(message, variables, {}, now_s)
        variables = verdict.variables
        if verdict.out is not None:
            sent.append((now_s, verdict.out))
        else:
            assert verdict.outcome == "held back"
    return sent, variables


def test_rate_limit_is_per_key_and_deletes_expired_keys():
    policy = Policy("limit", [Rule(None, [Every(300, "message.p", "sent")])])
    sent, variables = play(
        policy, [(0, {"p": 1}), (10, {"p": 2}), (299, {"p": 1}), (300, {"p": 1}), (700, {"p": 3})]
    )
    assert [(at, message["p"]) for at, message in sent] == [(0, 1), (10, 2), (300, 1), (700, 3)]
    assert variables == {"sent": {"3.0": 700}}


def test_explanation_of_held_back_message_has_the_reason():
    policy = Policy("limit", [Rule("message.p > 0", [Every(300, "message.p", "sent")], "limits")])
    state = {"sent": {"1.0": 100.0}}
    verdict = policy.decide({"p": 1}, state, {}, 250.0)
    answer = str(Explanation(verdict, policy.explain({"p": 1}, state, {}, 250.0)))
    assert answer == "held back: limits (message.p = 1); the last of 1.0 was sent 150 s ago, less than 300"
    window = Policy("summary", [Rule(None, [Summary(60, ("p",))])])
    assert "the window of all began 0 s ago" in window.decide({"p": 1}, {}, {}, 5.0).problem


def test_rate_limit_without_key_applies_to_all_messages():
    policy = Policy("limit", [Rule(None, [Every(300)])])
    sent, _ = play(policy, [(0, {"p": 1}), (10, {"p": 2}), (300, {"p": 2})])
    assert [at for at, _ in sent] == [0, 300]


def test_keys_of_different_types_are_distinct():
    policy = Policy("limit", [Rule(None, [Every(300, "message.p", "sent")])])
    sent, _ = play(
        policy,
        [(0, {"p": 1}), (0, {"p": "1.0"}), (0, {"p": True}), (0, {}), (1, {"p": 1.0}), (1, {"p": None})],
    )
    assert len(sent) == 4


def test_overwritten_books_are_reset():
    policy = Policy("limit", [Rule(None, [Every(300, variable="sent")])])
    assert policy.decide({}, {"sent": 5}, {}, 0.0).variables == {"sent": {"all": 0.0}}


def test_number_of_keys_in_books_is_bounded():
    policy = Policy("limit", [Rule(None, [Every(1e6, "message.p", "sent")])])
    sent, variables = play(policy, [(at, {"p": at}) for at in range(MAX_KEYS + 10)])
    assert len(sent) == MAX_KEYS + 10
    assert len(variables["sent"]) == MAX_KEYS
    assert "0.0" not in variables["sent"]


def test_summary_is_sent_after_the_end_of_its_window():
    policy = Policy("summary", [Rule(None, [Summary(60, ("pulse",), "message.p", "window")])])
    sent, variables = play(policy, [
        (0, {"p": 1, "pulse": 60}), (10, {"p": 2, "pulse": 90}), (30, {"p": 1, "pulse": 80}),
        (59, {"p": 1, "pulse": "?"}), (61, {"p": 1, "pulse": 100}), (70, {"p": 2}),
    ])  # fmt: skip
    assert sent == [
        (61, {"p": 1, "pulse": {"count": 2, "min": 60, "max": 80, "mean": 70.0}}),
        (70, {"p": 2, "pulse": {"count": 1, "min": 90, "max": 90, "mean": 90.0}}),
    ]
    assert variables["window"] == {
        "1.0": {"since_s": 61, "pulse": [1, 100, 100, 100]},
        "2.0": {"since_s": 70, "pulse": None},
    }


def test_summary_of_window_without_numbers_is_empty():
    policy = Policy("summary", [Rule(None, [Summary(60, ("pulse",))])])
    sent, _ = play(policy, [(0, {}), (60, {"pulse": 1})])
    assert sent[0][1]["pulse"] == {"count": 0, "min": None, "max": None, "mean": None}


@pytest.mark.parametrize("letter", ["k", '"', "\\", "é", "\n"])
@pytest.mark.parametrize("length", [1, 20, 36, 50, 80, 5_000])
def test_keys_of_any_length_stop_no_message(length, letter):
    """Check that books larger than the state do not stop the policy."""
    policy = Policy("limit", [Rule(None, [Every(1e6, "message.k", "sent")])])
    sent, variables = play(
        policy, [(1267448400.123456 + at, {"k": f"{at:06d}" + letter * length}) for at in range(1_100)]
    )
    assert len(sent) == 1_100
    assert len(variables["sent"]) == MAX_KEYS
    assert size_bytes(variables) <= MAX_BOOKS_BYTES


def test_long_keys_with_the_same_prefix_are_distinct():
    policy = Policy("limit", [Rule(None, [Every(300, "message.k")])])
    sent, _ = play(
        policy, [(0, {"k": "x" * 200 + "1"}), (0, {"k": "x" * 200 + "2"}), (1, {"k": "x" * 200 + "1"})]
    )
    assert len(sent) == 2


def test_windows_with_long_keys_and_many_fields_stop_no_message():
    fields = tuple(f"field_{n}" for n in range(20))
    policy = Policy("summary", [Rule(None, [Summary(60, fields, "message.k", "window")])])
    messages = [
        (1267448400.123456 + at, {"k": f"{at:06d}" * 9, **dict.fromkeys(fields, 1e299 / 7)})
        for at in range(1_100)
    ]
    sent, variables = play(policy, messages)
    assert sent == []
    assert 10 < len(variables["window"]) < MAX_KEYS
    assert size_bytes(variables) <= MAX_BOOKS_BYTES
    assert [message["k"] for _, message in messages[-5:]] == [
        messages[n][1]["k"] for n in range(1_095, 1_100)
    ]


def test_books_share_a_capacity_separate_from_variables():
    rules = [
        Rule(f"message.n = {n}", [Every(1e6, "message.k", f"sent{n}"), Remember({"a": "message.a"})])
        for n in range(4)
    ]
    policy = Policy("limits", rules)
    large_text = "x" * (MAX_STATE_BYTES - 100)
    sent, variables = play(
        policy, [(at, {"n": at % 4, "k": f"{at:040d}", "a": large_text}) for at in range(5_000)]
    )
    assert len(sent) == 5_000
    assert size_bytes({name: value for name, value in variables.items() if name != "a"}) <= MAX_BOOKS_BYTES
    assert min(len(variables[f"sent{n}"]) for n in range(4)) > 200


def test_oversized_variable_is_not_counted_as_books():
    policy = Policy("hides", [Rule(None, [Remember({"sent": "message.a"}), Every(300, variable="sent")])])
    verdict = policy.decide({"a": {"first": 1.0, "x": "y" * MAX_STATE_BYTES}}, {}, {}, 0.0)
    assert verdict.outcome == "stopped"


@pytest.mark.parametrize(
    "books", [{"all": "x"}, {"all": {}}, {"all": None}, {"all": {"since_s": 0.0, "p": [1]}}, {"b": "x"}]
)
def test_invalid_books_stop_no_message(books):
    limit = Policy("l", [Rule(None, [Every(300, variable="sent")])])
    window = Policy("s", [Rule(None, [Summary(60, ("p",), variable="window")])])
    assert limit.decide({"p": 1}, {"sent": books}, {}, 100.0).outcome == "sent"
    assert window.decide({"p": 1}, {"window": books}, {}, 100.0).outcome in ("sent", "held back")


ALARM_EVERY_300_S = (0.0, 40), (10.0, 70), (20.0, 40), (30.0, 70), (40.0, 40), (310.0, 40)


@pytest.mark.parametrize("per", [(None, None), (None, "message.patient"), ("message.patient", None)])
def test_rate_limits_of_different_rules_are_independent(per):
    rules = [Rule("message.pulse < 50", Every(300, per[0])), Rule(None, Every(5, per[1]))]
    sent, _ = play(
        validate(Policy("p", rules)),
        [(at, {"patient": 7, "pulse": pulse}) for at, pulse in ALARM_EVERY_300_S],
    )
    assert [at for at, message in sent if message["pulse"] < 50] == [0.0, 310.0]
    assert [at for at, message in sent if message["pulse"] > 50] == [10.0, 30.0]


def test_two_rate_limits_of_one_rule_both_apply():
    policy = Policy("p", [Rule(None, [Every(5, "message.p"), Every(60)])])
    sent, _ = play(policy, [(at, {"p": at % 20 // 10}) for at in range(0, 130, 10)])
    assert [at for at, _ in sent] == [0, 60, 120]


def test_summary_covers_messages_of_its_own_rule():
    rules = [Rule("message.kind = 'a'", Summary(60, ("x",))), Rule(None, Summary(300, ("y",)))]
    messages = [
        (0.0, {"kind": "a", "x": 1}),
        (10.0, {"kind": "b", "y": 5}),
        (20.0, {"kind": "a", "x": 3}),
        (30.0, {"kind": "b", "y": 7}),
        (80.0, {"kind": "a", "x": 9}),
        (320.0, {"kind": "b", "y": 1}),
    ]
    sent, _ = play(validate(Policy("p", rules)), messages)
    assert [message.get("x") or message["y"] for _, message in sent] == [
        {"count": 2, "min": 1, "max": 3, "mean": 2.0},
        {"count": 2, "min": 5, "max": 7, "mean": 6.0},
    ]


def test_rules_share_a_rate_limit_with_the_same_variable():
    shared = Every(60, variable="sent")
    policy = Policy("p", [Rule("message.p = 1", shared), Rule(None, shared)])
    sent, _ = play(policy, [(0, {"p": 1}), (30, {"p": 2}), (60, {"p": 2}), (70, {"p": 1})])
    assert [at for at, _ in sent] == [0, 60]


@pytest.mark.parametrize(
    "other", [Every(5, variable="v"), Every(60, "message.p", "v"), Summary(60, ("p",), variable="v")]
)
def test_different_actions_cannot_share_a_variable(other):
    with pytest.raises(PolicyError, match="a variable each") as caught:
        Policy("p", [Rule("message.p = 1", Every(60, variable="v")), Rule(None, other)])
    assert caught.value.where.startswith("rules.2.do")


def test_default_books_cannot_be_named_by_other_rules():
    policy = Policy("p", [Rule("message.p = 1", Every(60)), Rule(None, Every(60))])
    _, variables = play(policy, [(0, {"p": 1}), (0, {"p": 2})])
    assert len(variables) == 2
    assert not any(name.isidentifier() for name in variables)


def test_books_do_not_count_towards_the_limit_of_variables():
    policy = Policy("p", [Rule(f"message.p = {n}", [Every(60), Every(600)]) for n in range(64)])
    sent, variables = play(policy, [(0, {"p": n}) for n in range(64)])
    assert len(sent) == 64
    assert len(variables) == 128
