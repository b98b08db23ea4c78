"""Rate limits and summaries."""

from __future__ import annotations

from mudkit.systems.sublim import Explanation, Policy, Rule
from mudkit.systems.sublim.actions import Every, Summary
from mudkit.systems.sublim.limits import MAX_KEYS


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


def test_a_limit_is_per_value_and_forgets_what_is_over():
    policy = Policy("limit", [Rule(None, [Every(300, "message.p")])])
    sent, variables = play(
        policy, [(0, {"p": 1}), (10, {"p": 2}), (299, {"p": 1}), (300, {"p": 1}), (700, {"p": 3})]
    )
    assert [(at, each["p"]) for at, each in sent] == [(0, 1), (10, 2), (300, 1), (700, 3)]
    assert variables == {"sent": {"3.0": 700}}


def test_what_is_held_back_says_why():
    policy = Policy("limit", [Rule("message.p > 0", [Every(300, "message.p")], "limits")])
    state = {"sent": {"1.0": 100.0}}
    verdict = policy.decide({"p": 1}, state, {}, 250.0)
    told = str(Explanation(verdict, policy.explain({"p": 1}, state, {}, 250.0)))
    assert told == "held back: limits (message.p = 1); the last of 1.0 was sent 150 s ago, less than 300"
    window = Policy("summary", [Rule(None, [Summary(60, ("p",))])])
    assert "the window of all began 0 s ago" in window.decide({"p": 1}, {}, {}, 5.0).problem


def test_a_limit_without_per_is_one_for_all():
    policy = Policy("limit", [Rule(None, [Every(300)])])
    sent, _ = play(policy, [(0, {"p": 1}), (10, {"p": 2}), (300, {"p": 2})])
    assert [at for at, _ in sent] == [0, 300]


def test_kinds_of_keys_are_told_apart():
    policy = Policy("limit", [Rule(None, [Every(300, "message.p")])])
    sent, _ = play(
        policy,
        [(0, {"p": 1}), (0, {"p": "1.0"}), (0, {"p": True}), (0, {}), (1, {"p": 1.0}), (1, {"p": None})],
    )
    assert len(sent) == 4


def test_a_policy_that_has_spoilt_its_own_books_begins_them_again():
    policy = Policy("limit", [Rule(None, [Every(300)])])
    assert policy.decide({}, {"sent": 5}, {}, 0.0).variables == {"sent": {"all": 0.0}}


def test_books_are_bounded():
    policy = Policy("limit", [Rule(None, [Every(1e6, "message.p")])])
    sent, variables = play(policy, [(at, {"p": at}) for at in range(MAX_KEYS + 10)])
    assert len(sent) == MAX_KEYS + 10
    assert len(variables["sent"]) == MAX_KEYS
    assert "0.0" not in variables["sent"]


def test_a_window_is_summed_up_when_it_is_over():
    policy = Policy("summary", [Rule(None, [Summary(60, ("pulse",), "message.p")])])
    sent, variables = play(policy, [
        (0, {"p": 1, "pulse": 60}), (10, {"p": 2, "pulse": 90}), (30, {"p": 1, "pulse": 80}),
        (59, {"p": 1, "pulse": "?"}), (61, {"p": 1, "pulse": 100}), (70, {"p": 2}),
    ])  # fmt: skip
    assert sent == [
        (61, {"p": 1, "pulse": {"count": 2, "min": 60, "max": 80, "mean": 70.0}}),
        (70, {"p": 2, "pulse": {"count": 1, "min": 90, "max": 90, "mean": 90.0}}),
    ]
    assert variables["window"] == {
        "1.0": {"since_s": 61, "pulse": [1, 100, 100, 100]}, "2.0": {"since_s": 70, "pulse": None},
    }  # fmt: skip


def test_a_window_without_a_number_is_told_so():
    policy = Policy("summary", [Rule(None, [Summary(60, ("pulse",))])])
    sent, _ = play(policy, [(0, {}), (60, {"pulse": 1})])
    assert sent[0][1]["pulse"] == {"count": 0, "min": None, "max": None, "mean": None}
