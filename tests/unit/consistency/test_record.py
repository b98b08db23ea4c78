"""Writes that operations have seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mudkit.consistency import Content, History, Kind, Operation, Outcome, check, seen_writes
from mudkit.consistency.record import INITIAL, set_aside


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("ann: w1   w1>2\nbob:    r1      r2", {"r(x)1": "w(x)1", "w(x)1>2": "w(x)1", "r(x)2": "w(x)1>2"}),
        ("ann: r0   w1\nbob:    r3", {}),
        ("ann: w1   w1   r1", {}),
        ("ann: w1\nbob:    w0>2   r1", {"r(x)1": "w(x)1"}),
    ],
    ids=["returned and replaced", "initial and never written", "one of several", "initial is replaced"],
)
def test_seen_writes_are_those_that_were_returned_or_replaced(text, seen):
    history = History.parse(text)
    writes = seen_writes(history)
    assert {
        operation.label: writes[operation.id].label for operation in history if operation.id in writes
    } == seen


def list_operations(*rows, until_us=50):
    """Build operations of ann from (kind, type, value, version, invoked_us); writes end together."""
    return [
        Operation(
            client="ann",
            op_id=number,
            kind=kind,
            key="x",
            invoked_us=invoked_us,
            answered_us=until_us if kind is Kind.WRITE else invoked_us + 1,
            content=Content(value, version),
            type=type_,
        )
        for number, (kind, type_, value, version, invoked_us) in enumerate(rows, start=1)
    ]


ABSORBED = [
    (Kind.WRITE, "blind", "1", 1, 0),
    (Kind.READ, "uncommitted", "1", None, 10),
    (Kind.WRITE, "blind", "2", 1, 20),
    (Kind.READ, "uncommitted", "2", None, 30),
    (Kind.READ, "uncommitted", "2", 1, 60),
    (Kind.READ, "committed", "2", 1, 70),
]


@pytest.mark.parametrize("model", ["sequential", "fork-sequential", "read-your-writes", "monotonic-reads"])
@pytest.mark.parametrize("kinds", [["uncommitted"], ["committed"]])
def test_absorbed_write_comes_directly_before_the_one_that_absorbed_it(model, kinds):
    """Mobius 6: outstanding updates are compacted; only its own client sees the earlier one, while it waits."""
    history = History(list_operations(*ABSORBED))
    assert str(check(history, model, reads=kinds).status) == "OK"


@pytest.mark.parametrize(
    "change",
    [{"type": "conditional"}, {"client": "bob"}, {"answered_us": 45}],
    ids=["conditional", "of another client", "answered at another time"],
)
def test_one_version_of_two_writes_that_absorbed_nothing_is_a_contradiction(change):
    first, *others = list_operations(*ABSORBED)
    verdict = check(History([replace(first, **change), *others]), "sequential", reads=["committed"])
    assert str(verdict.status) == "ILLEGAL"
    assert "version 1" in str(verdict)


def test_absorbed_write_is_not_seen_after_the_one_that_absorbed_it():
    operations = list_operations(*ABSORBED, (Kind.READ, "uncommitted", "1", None, 80))
    assert str(check(History(operations), "fork-sequential", reads=["uncommitted"]).status) == "ILLEGAL"


@pytest.mark.parametrize(("answered_us", "is_lost"), [(49, True), (50, False), (51, False)])
def test_only_reads_answered_before_the_rejection_must_return_the_pending_write(answered_us, is_lost):
    """Mobius 4.1: an uncommitted read returns own pending writes; one that is refused is pending no more."""
    write, first, later = list_operations(
        (Kind.WRITE, "blind", "1", None, 0), (Kind.READ, "uncommitted", "1", None, 10), (Kind.READ, "uncommitted", None, None, 20)
    )  # fmt: skip
    operations = [replace(write, outcome=Outcome.FAILED), first, replace(later, answered_us=answered_us)]
    result = set_aside(operations, {1: 0, 2: INITIAL})
    assert (getattr(result, "kind", None) == "pending write lost") == is_lost
    assert is_lost or result == {0, 1}


@pytest.mark.parametrize(
    ("reads", "kind"),
    [("r1@3  r2@3", "one version twice"), ("r1@3  r2@3  r1@3", "one version twice"), ("r1@3", None), ("r4@3", "unwritten")],
)  # fmt: skip
def test_version_with_two_contents_is_told_from_content_that_nobody_wrote(reads, kind):
    verdict = check(History.parse(f"ann: w1  w2\nbob:         {reads}"), "sequential")
    assert str(verdict.status) == ("OK" if kind is None else "ILLEGAL")
    if kind == "one version twice":
        assert verdict.explanation.kind == kind
        assert "Version 3 was seen with contents" in verdict.explanation.text
    elif kind:
        assert "Nobody wrote" in verdict.explanation.text


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("ann: w1@1  w1@1>2!", [("w(x)1@1", "w(x)1@1>2!"), ("w(x)1@1>2!", "w(x)1@1>2!")]),
        ("ann: w0>2!", [("w(x)0>2!", "w(x)0>2!")]),
    ],
    ids=["after a write", "after nothing"],
)
def test_refusal_that_can_have_found_only_what_it_expected_is_explained_by_what_came_before(text, steps):
    explanation = check(History.parse(text), "sequential").explanation
    assert [(step.first.label, step.then.label) for step in explanation.steps] == steps
