"""The checker: what it finds, and what it leaves alone."""

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


def found(*rules, **more):
    return [(each.kind, each.rule) for each in findings(Policy("test", rules, **more))]


@pytest.mark.parametrize(
    "policy",
    [
        picu([1]), picu([]), shared_timestamp_policy([1]), stateless_picu([1]), stateless_picu([]), stock_policy(["A"]),
        disaster_policy(1, 2),
    ],
)  # fmt: skip
def test_the_policies_that_are_shipped_are_in_order(policy):
    assert findings(policy) == []


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ([Rule(), Rule("message.a = 1")], [(UNREACHABLE, 1)]),
        ([Rule("message.a < 5"), Rule("message.a < 3", PULSE)], [(UNREACHABLE, 1)]),
        ([Rule("message.a < 5"), Rule("message.a >= 5"), Rule("message.a > 7", PULSE)], [(UNREACHABLE, 2)]),
        ([Rule("message.a < 3"), Rule("message.a < 5", PULSE)], []),
        ([Rule("message.a < 5 AND message.a > 7")], [(UNREACHABLE, 0)]),
        ([Rule("message.a IN (1, 2)"), Rule("message.a = 2", PULSE)], [(UNREACHABLE, 1)]),
        ([Rule("message.a IN ('x', 'y')"), Rule("message.a = 'z'", PULSE)], []),
        ([Rule("message.a IS NULL"), Rule("message.a IS NOT NULL"), Rule(None, PULSE)], [(UNREACHABLE, 2)]),
        ([Rule("message.a < 5"), Rule("NOT (message.a < 5)"), Rule(None, PULSE)], []),  # NULL is left
        ([Rule("message.a > message.b"), Rule("message.b < message.a", PULSE)], []),  # more than it can tell
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
def test_rules_that_nothing_is_left_for(rules, wanted):
    assert found(*rules, variables={"l": []}) == wanted


def test_unknown_names_of_state_tables_and_fields():
    assert found(Rule("state.batery < 5")) == [(UNKNOWN, 0)]
    assert found(Rule("state.seen < 5"), variables={"seen": 1}) == []
    assert found(Rule("state.seen < 5"), Rule(None, [Remember({"seen": 1})])) == []
    assert found(Rule(None, [Every(5, variable="sent")]), Rule("state.sent IS NULL"))[-1] == (UNREACHABLE, 1)
    assert found(Rule("lookup('mine', message.a, 'listed')")) == [(UNKNOWN, 0)]
    assert found(Rule(None, [Compress("ecg", "state.ratio")])) == [(UNKNOWN, 0)]
    assert found(Rule(None, [Compress("ekg", 2)]), message={"ecg": "bytes"}) == [(UNKNOWN, 0)]
    assert found(Rule(None, [Keep(("ecg", "puls"))]), message={"ecg": "bytes"}) == [(UNKNOWN, 0)]


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
def test_more_on_a_lower_battery(low, high, is_more):
    kinds = found(Rule("state.battery < 25", low), Rule(None, high))
    assert kinds == ([(MORE_ON_LESS, 0)] if is_more else [])


def test_more_on_a_lower_battery_by_an_expression():
    up = [Compress("ecg", "1 + state.battery / 10")]
    down = [Compress("ecg", "20 - state.battery / 10")]
    rest = Rule(None, [Drop()])
    assert (MORE_ON_LESS, 0) in found(Rule("state.battery < 50", up), rest)
    none = Rule("state.battery IS NULL", [Drop()])
    assert found(none, Rule("state.battery >= 50", down), Rule(None, [Compress("ecg", 40)])) == []
    (up,) = up
    assert found(Rule(None, up)) == [(MORE_ON_LESS, 0)]
    assert (MORE_ON_LESS, 0) in found(Rule("state.battery < 10", up), Rule(None, [PULSE]))
    assert found(Rule(None, Compress("ecg", "20 - state.battery / 10"))) == []


def test_what_is_too_much_to_look_at_is_said():
    many = " AND ".join(f"message.a{n} IN (1, 2, 3)" for n in range(12))
    policy = Policy("many", [Rule(many), Rule()])
    assert [(each.kind, each.is_error) for each in findings(policy)] == [(NOT_CHECKED, False)]
    assert validate(policy) is policy


def test_a_finding_has_its_line_and_refuses_the_policy():
    policy = Policy.from_yaml("rules:\n  - do: []\n  - name: late\n    when: message.a = 1\n")
    (finding,) = findings(policy)
    assert (finding.line, finding.kind) == (4, UNREACHABLE)
    with pytest.raises(PolicyError, match="late: 'rule 1' always comes before it") as caught:
        validate(policy)
    assert caught.value.line == 4
