"""Writes that operations have seen."""

from __future__ import annotations

import pytest

from mudkit.consistency import History, seen_writes


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
