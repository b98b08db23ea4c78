"""Refusal, with a witness, of policies that send more on a lower battery."""

from __future__ import annotations

import math
from typing import Any

import pytest
from examples import examples
from hypothesis import event, example, given
from hypothesis import strategies as st

from mudkit.systems.sublim import Policy, PolicyError, Rule, method
from mudkit.systems.sublim._policy.actions import (
    Call,
    Compress,
    Drop,
    Every,
    Forget,
    Keep,
    Remember,
    Resize,
    SetField,
)
from mudkit.systems.sublim.check.charge import more_on_less
from mudkit.systems.sublim.check.checker import MORE_ON_LESS, NOT_CHECKED, findings, validate
from mudkit.systems.sublim.check.contexts import _points_near_and_far
from mudkit.units import EARTH_RADIUS_KM, distance_km

FIELDS = {"pulse": "number", "ecg": "bytes", "note": "string", "t": "number"}
FLAG = {"urgent": "boolean"}
LOW, REST = "state.battery < 25", None


def build(*rules: Rule, **variables: Any) -> Policy:
    return Policy("test", rules, message=FIELDS, variables=variables)


REFUSED = {
    "a larger picture": build(Rule(LOW, Resize("ecg", 1000)), Rule(REST, Resize("ecg", 10))),
    "a picture that grows": build(Rule(REST, Resize("ecg", "1000 - state.battery"))),
    "one more field": build(Rule(LOW, [Keep(("pulse",)), SetField({"note": "message.note"})]), Rule(REST, Keep(("pulse",)))),
    "a longer field": build(Rule(LOW, SetField({"note": f"'{'x' * 80}'"})), Rule(REST, SetField({"note": "'x'"}))),
    "more often by key": build(Rule(LOW, Every(300, "message.pulse")), Rule(REST, Every(300))),
    "arithmetic on the battery": build(Rule("100 - state.battery > 75"), Rule(REST, Drop())),
    "a product of the battery": build(Rule("state.battery * state.battery < 625"), Rule(REST, Drop())),
    "coalesce": build(Rule("coalesce(state.battery, 100) < 25"), Rule(REST, Drop())),
    "a variable that stays": build(Rule("state.battery < state.limit"), Rule(REST, Drop()), limit=33.3),
    "a variable that comes": build(
        Rule("message.t > 5", [Remember({"mode": "'all'"})]), Rule("state.mode = 'all' AND state.battery < 25"), Rule(REST, Drop()),
    ),
    "a field of the message": build(Rule("state.battery < message.t"), Rule(REST, Drop())),
    "by the link": build(Rule("state.bandwidth_kbps < 500 AND state.battery < 25"), Rule(REST, Drop())),
    "by the hour": build(Rule("hour(clock.now_s) = 17 AND state.battery < 25"), Rule(REST, Drop())),
    "who is listed": build(Rule("lookup('l', message.t, 'listed') AND state.battery < 25"), Rule(REST, Drop()), l=[7]),
    "a ratio by a field that may be small": build(Rule(LOW, Compress("ecg", "message.pulse / 10")), Rule(REST, Compress("ecg", 2))),
    "the rule that is no last one": build(Rule("state.battery > 80", Drop()), Rule("state.battery > 50", Keep(("pulse",))), Rule()),
    "all other fields of a short content": build(
        Rule(LOW, [Compress("ecg", 2), Compress("ecg", 8)]), Rule(REST, [Keep(("pulse", "ecg")), Compress("ecg", 8)]),
    ),
    "a flag that is set": Policy("test", [Rule("state.battery > 50 AND message.urgent", Drop()), Rule()], message=FLAG),
    "a flag that is not set": Policy(
        "test", [Rule("state.battery > 50 AND NOT message.urgent", Drop()), Rule()], message=FLAG
    ),
    "a large picture": build(Rule(LOW, Resize("ecg", 50_000)), Rule(REST, Resize("ecg", 49_999))),
}  # fmt: skip
ACCEPTED = {
    "less": build(Rule(LOW, Keep(("pulse",))), Rule()),
    "nothing of the battery": build(Rule("message.t < 1e300", Drop()), Rule()),
    "a charger": build(Rule("state.battery IS NULL"), Rule(REST, Keep(("pulse",)))),
    "a key that is the same for all": build(
        Rule(LOW, Every(300, "state.me")), Rule(REST, Every(300)), me="x"
    ),
    "another field": build(Rule(LOW, Keep(("pulse",))), Rule(REST, Keep(("t",)))),
    "more fields, but seldom": build(Rule(LOW, Every(300)), Rule(REST, Keep(("pulse",)))),
    "a state to which nobody comes": build(
        Rule("state.mode = 9 AND state.battery < 25"),
        Rule("message.t > 5", [Remember({"mode": 1}), Drop()]),
        Rule(REST, Drop()),
        mode=0,
    ),
    "a battery that no device has": build(
        Rule("state.battery * state.battery > 20000"), Rule(REST, Keep(("pulse",)))
    ),
    "a picture that shrinks": build(Rule(REST, Resize("ecg", "10 + state.battery"))),
}
WARNED = {
    "a ratio by bandwidth": build(
        Rule(LOW, Compress("ecg", "4000 / state.bandwidth_kbps + 4")), Rule(REST, Compress("ecg", 2))
    ),
    "a ratio by the message": build(
        Rule(LOW, Compress("ecg", "4 + message.pulse / 10")), Rule(REST, Compress("ecg", 2))
    ),
    "a square that is negative": build(
        Rule("message.t * message.t < 0 AND state.battery < 25"), Rule(REST, Drop())
    ),
    "a ratio that is a flag": build(
        Rule(LOW, Compress("ecg", "state.k")), Rule(REST, Compress("ecg", 2)), k=True
    ),
    "a width that is a text": build(Rule(LOW, Resize("ecg", "message.note")), Rule(REST, Resize("ecg", 2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_policy_sending_more_on_less_is_refused_with_a_witness(name):
    policy = REFUSED[name]
    with pytest.raises(
        PolicyError, match=r"it sends more on a battery of .* than of .*it sends .* on .* and .* on"
    ):
        validate(policy)
    result = [finding for finding in more_on_less(policy) if finding.is_error]
    for finding in result:
        assert finding.lower < finding.higher


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_policies_are_accepted_without_findings(name):
    assert findings(ACCEPTED[name]) == []


@pytest.mark.parametrize("name", WARNED)
def test_undecidable_policy_is_accepted_with_a_warning(name):
    assert [finding.kind for finding in findings(validate(WARNED[name]))] == [NOT_CHECKED]


@pytest.mark.parametrize("ratios", [("4 + message.pulse / 10", 2), (400, "4 + message.pulse / 10")])
def test_warning_names_the_reduction_that_was_tried_with_some_values(ratios):
    low, rest = ratios
    (finding,) = findings(validate(build(Rule(LOW, Compress("ecg", low)), Rule(REST, Compress("ecg", rest)))))
    assert finding.kind == NOT_CHECKED
    assert "compress by 4 + message.pulse / 10 was tried with some values" in finding.text


def test_registered_method_is_not_called_by_the_checker():
    calls = []
    method("looked_at")(lambda message, state: calls.append(1) or message)
    policy = build(
        Rule(LOW, Call("looked_at")), Rule(REST, [Keep(("pulse",)), Remember({"a": 1}), Forget(("b",))])
    )
    assert [finding.kind for finding in findings(validate(policy))] == [NOT_CHECKED]
    assert calls == []


def test_registered_method_may_add_any_field():
    method("makes")(lambda message, state: {**message, "more": b"xx"})
    policy = build(
        Rule(REST, [Keep(("pulse",)), Call("makes"), Compress("more", 2), Keep(("more", "more_ratio"))])
    )
    assert findings(policy) == []


def test_fields_added_by_actions_may_be_kept_and_compressed():
    rules = [
        Rule(
            REST,
            [
                Keep(("pulse",)),
                SetField({"copy": "message.note"}),
                Compress("copy", 2),
                Keep(("copy", "copy_ratio")),
            ],
        )
    ]
    assert findings(Policy("test", rules, message=FIELDS)) == []


def test_findings_are_not_repeated_per_context():
    kinds = [finding.kind for finding in findings(REFUSED["a larger picture"])]
    assert kinds == [MORE_ON_LESS]


# -- independent oracle: it decides messages at each battery level

LEVELS = [*range(101), 24.9, 25.1, 49.9, 50.1]
MESSAGES = [
    {"t": t, "pulse": 60.0, "note": "x" * 40, "ecg": bytes(length)}
    for t in (None, 0.0, 3.0, 5.0, 7.0)
    for length in (10, 3_000)
]
CONTEXTS = [
    {"bandwidth_kbps": kbps, "display_px": px} for kbps in (100.0, 5_000.0) for px in (200.0, 1_000.0)
]
actions = st.lists(
    st.sampled_from([
        Drop(), Keep(("pulse",)), Keep(("pulse", "ecg")), Keep(("note", "t")), Compress("ecg", 2), Compress("ecg", 8),
        Compress("ecg", "2 + state.battery / 10"), Compress("ecg", "12 - state.battery / 10"), Resize("ecg", 100), Resize("ecg"),
        Resize("ecg", "50 + state.battery"), SetField({"note": "'short'"}), SetField({"more": "message.note"}),
    ]),
    max_size=2,
)  # fmt: skip
conditions = st.recursive(
    st.sampled_from([
        "state.battery < 25", "state.battery >= 50", "100 - state.battery > 75", "coalesce(state.battery, 100) < 50",
        "state.battery BETWEEN 25 AND 50", "message.t < 5", "message.t IS NULL", "state.bandwidth_kbps < 500",
        "state.battery < state.limit", "message.t + 1 > 4",
    ]),
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=3,
)  # fmt: skip


def measure_lengths(out: Any) -> dict[str, int] | None:
    if out is None:
        return None
    return {
        name: len(value) if isinstance(value, bytes | str) else 1
        for name, value in out.items()
        if not name.endswith("_ratio")
    }


def is_more(low: Any, high: Any) -> bool:
    if low is None or high is None:
        return low is not None
    return low != high and all(low.get(name, -1) >= length for name, length in high.items())


def sends_more(policy: Policy) -> bool:
    for message in MESSAGES:
        body = {name: value for name, value in message.items() if value is not None}
        for automatic in CONTEXTS:
            sent = []
            for battery in sorted(LEVELS):
                lengths = measure_lengths(
                    policy.decide(body, policy.variables, {**automatic, "battery": float(battery)}, 0.0).out
                )
                if not sent or sent[-1] != lengths:
                    sent.append(lengths)
            if any(is_more(low, high) for place, low in enumerate(sent) for high in sent[place + 1 :]):
                return True
    return False


@pytest.mark.soak
@given(st.lists(st.tuples(conditions, actions), min_size=1, max_size=3), actions)
@example(  # of a short content both ratios leave a byte, and on a low battery all other fields are sent, too
    [("state.battery < 25", [Compress("ecg", 2), Compress("ecg", 8)])],
    [Keep(("pulse", "ecg")), Compress("ecg", 8)],
)
@examples(150)
def test_checker_agrees_with_an_exhaustive_oracle(drawn_rules, last_actions):
    rules = [Rule(text, do) for text, do in drawn_rules]
    try:
        policy = Policy(
            "drawn",
            [*rules, Rule(None, last_actions)],
            message={**FIELDS, "more": "string"},
            variables={"limit": 40.0},
        )
    except PolicyError:
        return
    result = list(more_on_less(policy))
    refused = [finding for finding in result if finding.is_error]
    event("refused" if refused else "warned" if result else "taken")
    if sends_more(policy):
        assert refused, "the oracle knows a message of which it sends more on less"
    for finding in refused:  # each refusal has a valid witness
        context = finding.context
        low, high = (
            measure_lengths(
                policy.decide(
                    context.message, context.variables, {**context.automatic, "battery": level}, context.now_s
                ).out
            )
            for level in (finding.lower, finding.higher)
        )
        assert is_more(low, high)


@pytest.mark.soak
def test_large_policy_is_checked_in_bounded_work(monkeypatch):
    """Check that a policy cannot keep an access point busy."""
    decisions = []
    fires = Policy.fires
    monkeypatch.setattr(Policy, "fires", lambda *arguments: decisions.append(1) or fires(*arguments))
    rules = [
        Rule(
            f"state.battery + {n / 7} < {' + '.join(f'message.f{m}' for m in range(n % 9 + 1))} AND message.g{n} IN (1, 2, 3)",
            [
                Compress("ecg", f"{n + 2} + state.battery / {n + 10}"),
                Resize("ecg", f"message.f{n % 9} * {n + 1}"),
            ],
        )
        for n in range(63)
    ]
    result = findings(Policy("large", [*rules, Rule()]))
    assert NOT_CHECKED in {finding.kind for finding in result}
    assert len(decisions) <= 40 * 160


def test_witness_lists_fields_in_a_fixed_order():
    wide = " AND ".join(f"message.{name} > 1" for name in "fbdaec")
    text = findings(Policy("wide", [Rule(f"{LOW} AND {wide}"), Rule(REST, Drop())]))[0].text
    assert "of a message with a 2.0, b 2.0, c 2.0, d 2.0, e 2.0, f 2.0, another_field" in text


@pytest.mark.parametrize(("lat", "lon"), [(0.0, 10.0), (47.0, -170.0), (-33.0, 180.0)])
def test_places_far_from_those_of_a_condition_are_on_the_other_side_of_the_earth(lat, lon):
    near, far = _points_near_and_far([lat, lon])
    assert near == {"lat": lat, "lon": lon}
    assert -180 <= far["lon"] <= 180
    apart_km = float(distance_km(near["lat"], near["lon"], far["lat"], far["lon"]))
    assert apart_km == pytest.approx(math.pi * EARTH_RADIUS_KM)
