"""Text notation of histories: round trips and numbering of values."""

from __future__ import annotations

import pytest
from random_histories import draw_seeded_history, simulate_history

from mudkit.consistency import MODELS, History, Kind, Outcome, check
from mudkit.errors import TraceFormatError

BY_HAND = """
ann: w1     [w?>2@2      ]  d@3    u0@3
ann:           u2      w5>6…
bob:   c1    [w(k)1>7 !4@2]      w4#
"""


def extract_shape(history):
    """Return the order of events and the operations, without values and times."""
    events = sorted(
        (t_us, place, is_end)
        for place, operation in enumerate(history)
        for is_end, t_us in enumerate((operation.invoked_us, operation.answered_us))
        if t_us is not None
    )
    return [event[1:] for event in events], [
        (operation.client, operation.key, operation.kind, operation.outcome, operation.content.version, operation.expected is None,
         operation.actual and operation.actual.version) for operation in history
    ]  # fmt: skip


def drop_unanswered_reads(history):
    return History(
        operation for operation in history if operation.is_write or operation.outcome is Outcome.OK
    )


@pytest.mark.soak(keep=15)
@pytest.mark.parametrize("seed", range(150))
def test_round_trip_keeps_the_verdict_of_every_model(seed):
    history = draw_seeded_history(seed)
    reparsed = History.parse(history.to_text())
    assert extract_shape(reparsed) == extract_shape(drop_unanswered_reads(history))
    for model in MODELS:
        assert check(reparsed, model).status == check(history, model).status, f"{history.to_text()}\n{model}"


def test_overlapping_operations_get_separate_lines():
    history = simulate_history(3, operations=60, clients=3, versions=True, stale=2)
    text = history.to_text()
    assert extract_shape(History.parse(text)) == extract_shape(history)
    assert len(text.splitlines()) > 3
    assert check(History.parse(text), "sequential").status == check(history, "sequential").status


def test_round_trip_keeps_all_of_the_notation():
    history = History.parse(BY_HAND)
    reparsed = History.parse(history.to_text())
    assert extract_shape(reparsed) == extract_shape(history)
    assert [operation.type for operation in reparsed] == [operation.type for operation in history]
    assert reparsed.to_text() == history.to_text()
    assert [operation.label for operation in reparsed if operation.outcome is Outcome.CONFLICT] == [
        "w(k)1>3!5@2"
    ]


def test_values_are_numbered_and_a_single_record_is_unnamed():
    assert History.parse("ann: w(news)d41d r(news)d41d w(news)8cd9").to_text() == "ann: w1 r1 w2"


def test_unanswered_reads_are_omitted():
    history = History.parse("ann: w1 u1… u1")
    assert [operation.kind for operation in History.parse(history.to_text())] == [Kind.WRITE, Kind.READ]


def test_unknown_condition_stays_conditional():
    (write,) = History.parse("ann: w?>2!@3")
    assert (write.type, write.expected, write.outcome) == ("conditional", None, Outcome.CONFLICT)
    assert write.actual.version == 3


def test_empty_history_has_empty_text():
    assert History().to_text() == ""


def test_numbered_changes_only_values():
    history = History.parse("ann: w(k)9f@1  u(k)77\nbob:     w(k)77>ab!9f@1   d@2")
    numbered = history.numbered()
    assert [operation.label for operation in numbered] == ["w(k)1@1", "w(k)3>2!1@1", "r(k)3", "d(x)@2"]
    assert [operation.id for operation in numbered] == [operation.id for operation in history]
    assert [operation.invoked_us for operation in numbered] == [operation.invoked_us for operation in history]
    assert numbered.numbered() == numbered


@pytest.mark.parametrize(
    ("text", "where"),
    [("ann: zz", "line 1, column 6"), ("ann: w1 zz", "line 1, column 9"), ("# a\nbob:w1\nann:  w1  r", "line 3, column 11")],
)  # fmt: skip
def test_error_names_the_line_and_the_column_of_the_operation(text, where):
    """Both count from 1, as editors do, and the name of the client counts."""
    with pytest.raises(TraceFormatError) as caught:
        History.parse(text)
    assert caught.value.where == where
