"""Checker of policies: findings, and policies without any."""

from __future__ import annotations

import pytest

from mudkit.systems.sublim import Policy, PolicyError, Rule
from mudkit.systems.sublim._policy.actions import (
    Compress,
    Drop,
    Every,
    Forget,
    Keep,
    Remember,
    Resize,
    Summary,
)
from mudkit.systems.sublim.check.checker import (
    CONTRADICTION,
    MORE_ON_LESS,
    NOT_CHECKED,
    UNKNOWN,
    UNREACHABLE,
    findings,
    validate,
)
from mudkit.systems.sublim.study import (
    disaster_policy,
    picu,
    shared_timestamp_policy,
    stateless_picu,
    stock_policy,
)

PULSE = Keep(("pulse",))


def check(*rules, **options):
    return [(finding.kind, finding.rule) for finding in findings(Policy("test", rules, **options))]


@pytest.mark.parametrize(
    "policy",
    [
        picu([1]), picu([]), shared_timestamp_policy([1]), stateless_picu([1]), stateless_picu([]), stock_policy(["A"]),
        disaster_policy(1, 2),
    ],
)  # fmt: skip
def test_shipped_policies_have_no_findings(policy):
    assert findings(policy) == []


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([Rule(), Rule("message.a = 1")], [(UNREACHABLE, 1)]),
        ([Rule("message.a < 5"), Rule("message.a < 3", PULSE)], [(UNREACHABLE, 1)]),
        ([Rule("message.a < 5"), Rule("message.a >= 5"), Rule("message.a > 7", PULSE)], [(UNREACHABLE, 2)]),
        ([Rule("message.a < 3"), Rule("message.a < 5", PULSE)], []),
        ([Rule("message.a < 5 AND message.a > 7")], [(UNREACHABLE, 0)]),
        ([Rule("message.a IN (1, 2)"), Rule("message.a = 2", PULSE)], [(UNREACHABLE, 1)]),
        ([Rule("message.a IN ('x', 'y')"), Rule("message.a = 'z'", PULSE)], []),
        ([Rule("message.a IS NULL"), Rule("message.a IS NOT NULL"), Rule(None, PULSE)], [(UNREACHABLE, 2)]),
        ([Rule("message.a < 5"), Rule("NOT (message.a < 5)"), Rule(None, PULSE)], []),  # NULL remains
        ([Rule("message.a > message.b"), Rule("message.b < message.a", PULSE)], []),  # beyond the checker
        ([Rule("lookup('l', message.a, 'listed')"), Rule("lookup('l', message.b, 'listed')", PULSE)], []),
        (
            [Rule("message.f = TRUE"), Rule("message.f <> TRUE"), Rule("message.f = FALSE", PULSE)],
            [(CONTRADICTION, 2)],
        ),
        ([Rule("message.a < 5", [Drop()]), Rule("NOT (message.a >= 5)", PULSE)], [(CONTRADICTION, 1)]),
        ([Rule("message.a < 5", PULSE), Rule("message.a < 5", PULSE)], [(UNREACHABLE, 1)]),
        *(
            ([Rule(None, actions)], [(CONTRADICTION, 0)])  # actions that undo each other
            for actions in (
                [PULSE, Compress("ecg", 2)], [PULSE, Resize("ecg")], [PULSE, Drop()], [Remember({"a": 1}), Forget(("a",))],
            )
        ),
        ([Rule(None, [Drop(), Remember({"a": 1})])], [(UNREACHABLE, 0)]),
    ],
)  # fmt: skip
def test_unreachable_and_contradictory_rules_are_found(rules, expected):
    assert check(*rules, variables={"l": []}) == expected


def test_unknown_names_of_state_tables_and_fields_are_found():
    assert check(Rule("state.batery < 5")) == [(UNKNOWN, 0)]
    assert check(Rule("state.seen < 5"), variables={"seen": 1}) == []
    assert check(Rule("state.seen < 5"), Rule(None, [Remember({"seen": 1})])) == []
    assert check(Rule(None, [Every(5, variable="sent")]), Rule("state.sent IS NULL"))[-1] == (UNREACHABLE, 1)
    assert check(Rule("lookup('mine', message.a, 'listed')")) == [(UNKNOWN, 0)]
    assert check(Rule(None, [Compress("ecg", "state.ratio")])) == [(UNKNOWN, 0)]
    assert check(Rule(None, [Compress("ekg", 2)]), message={"ecg": "bytes"}) == [(UNKNOWN, 0)]
    assert check(Rule(None, [Keep(("ecg", "puls"))]), message={"ecg": "bytes"}) == [(UNKNOWN, 0)]


@pytest.mark.parametrize(
    ("low", "high", "is_more"),
    [
        ([], [PULSE], True),
        ([PULSE], [], False),
        ([], [Drop()], True),
        ([Compress("ecg", 2)], [Compress("ecg", 4)], True),
        ([Compress("ecg", 4)], [Compress("ecg", 2)], False),
        ([Every(60)], [Every(300)], True),
        ([Every(300)], [Every(60)], False),
        ([Summary(300, ("pulse",))], [], False),
        ([Keep(("a",))], [Keep(("b",))], False),  # neither more nor less
        ([Every(300)], [PULSE], False),  # more fields, but seldom
        ([Keep(("a", "b"))], [Keep(("a",))], True),
    ],
)
def test_rule_sending_more_on_a_lower_battery_is_found(low, high, is_more):
    kinds = check(Rule("state.battery < 25", low), Rule(None, high))
    assert kinds == ([(MORE_ON_LESS, 0)] if is_more else [])


def test_expression_sending_more_on_a_lower_battery_is_found():
    up = [Compress("ecg", "1 + state.battery / 10")]
    down = [Compress("ecg", "20 - state.battery / 10")]
    drop_rest = Rule(None, [Drop()])
    assert (MORE_ON_LESS, 0) in check(Rule("state.battery < 50", up), drop_rest)
    drop_unknown = Rule("state.battery IS NULL", [Drop()])
    assert check(drop_unknown, Rule("state.battery >= 50", down), Rule(None, [Compress("ecg", 40)])) == []
    (up,) = up
    assert check(Rule(None, up)) == [(MORE_ON_LESS, 0)]
    assert (MORE_ON_LESS, 0) in check(Rule("state.battery < 10", up), Rule(None, [PULSE]))
    assert check(Rule(None, Compress("ecg", "20 - state.battery / 10"))) == []


def test_excessive_number_of_situations_is_a_warning():
    many = " AND ".join(f"message.a{n} IN (1, 2, 3)" for n in range(12))
    policy = Policy("many", [Rule(many), Rule()])
    assert [(finding.kind, finding.is_error) for finding in findings(policy)] == [(NOT_CHECKED, False)]
    assert validate(policy) is policy


def test_finding_has_its_line_and_refuses_the_policy():
    policy = Policy.from_yaml("rules:\n  - do: []\n  - name: late\n    when: message.a = 1\n")
    (finding,) = findings(policy)
    assert (finding.line, finding.kind) == (4, UNREACHABLE)
    with pytest.raises(PolicyError, match="late: 'rule 1' always comes before it") as caught:
        validate(policy)
    assert caught.value.line == 4
