"""A history that is written down and read again is the same to every model."""

from __future__ import annotations

import pytest
from random_histories import recorded, seeded

from mudkit.consistency import MODELS, History, Kind, Outcome, check

BY_HAND = """
ann: w1     [w?>2@2      ]  d@3    u0@3
ann:           u2      w5>6…
bob:   c1    [w(k)1>7 !4@2]      w4#
"""


def shape(history):
    """What stands still when values and times are called otherwise."""
    events = sorted(
        (t_us, place, is_end)
        for place, each in enumerate(history)
        for is_end, t_us in enumerate((each.invoked_us, each.answered_us))
        if t_us is not None
    )
    return [event[1:] for event in events], [
        (each.client, each.key, each.kind, each.outcome, each.content.version, each.expected is None,
         each.actual and each.actual.version) for each in history
    ]  # fmt: skip


def counted(history):
    return History(each for each in history if each.is_write or each.outcome is Outcome.OK)


@pytest.mark.soak(keep=15)
@pytest.mark.parametrize("seed", range(150))
def test_it_means_the_same_to_every_model(seed):
    history = seeded(seed)
    again = History.parse(history.to_text())
    assert shape(again) == shape(counted(history))
    for model in MODELS:
        assert check(again, model).status == check(history, model).status, f"{history.to_text()}\n{model}"


def test_what_is_under_way_at_once_has_lines_of_its_own():
    history = recorded(3, operations=60, clients=3, versions=True, stale=2)
    text = history.to_text()
    assert shape(History.parse(text)) == shape(history)
    assert len(text.splitlines()) > 3
    assert check(History.parse(text), "sequential").status == check(history, "sequential").status


def test_everything_that_the_notation_has_comes_back():
    history = History.parse(BY_HAND)
    again = History.parse(history.to_text())
    assert shape(again) == shape(history)
    assert [each.type for each in again] == [each.type for each in history]
    assert again.to_text() == history.to_text()
    assert [each.what for each in again if each.outcome is Outcome.CONFLICT] == ["w(k)1>3!5@2"]


def test_values_are_numbered_and_a_record_alone_has_no_name():
    assert History.parse("ann: w(news)d41d r(news)d41d w(news)8cd9").to_text() == "ann: w1 r1 w2"


def test_reads_without_an_answer_count_for_nothing():
    history = History.parse("ann: w1 u1… u1")
    assert [each.kind for each in History.parse(history.to_text())] == [Kind.WRITE, Kind.READ]


def test_a_condition_that_is_not_known_is_one_still():
    (write,) = History.parse("ann: w?>2!@3")
    assert (write.type, write.expected, write.outcome) == ("conditional", None, Outcome.CONFLICT)
    assert write.actual.version == 3


def test_nothing_is_nothing():
    assert History().to_text() == ""


def test_hashes_become_numbers_and_nothing_else_changes():
    history = History.parse("ann: w(k)9f@1  u(k)77\nbob:     w(k)77>ab!9f@1   d@2")
    again = history.numbered()
    assert [each.what for each in again] == ["w(k)1@1", "w(k)3>2!1@1", "r(k)3", "d(x)@2"]
    assert [each.id for each in again] == [each.id for each in history]
    assert [each.invoked_us for each in again] == [each.invoked_us for each in history]
    assert again.numbered() == again
