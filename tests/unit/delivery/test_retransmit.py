"""Retransmission: one deadline per unacknowledged item, one timer for all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.delivery.retransmit import DEFAULT_MAX_TIMEOUT_US, DEFAULT_TIMEOUT_US, RetransmitTimer
from mudkit.events import CancelTimer, SetTimer

S = 1_000_000


def test_deadlines_of_items_are_independent() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    assert timer.start(0, "a") == (SetTimer("t", DEFAULT_TIMEOUT_US),)
    assert timer.start(3 * S, "b") == ()
    assert timer.settle(3 * S, "c") == ()
    assert timer.overdue(5 * S) == ["a"]
    assert timer.start(5 * S, "a") == ()  # the timer has fired, and is set below
    assert timer.restart(5 * S) == (SetTimer("t", 3 * S),)
    assert timer.settle(5 * S, "b") == ()
    assert timer.overdue(8 * S) == []
    assert timer.restart(8 * S) == (SetTimer("t", 7 * S),)  # the timeout of a retransmitted item is doubled
    assert timer.settle(8 * S, "a") == (CancelTimer("t"),)
    assert timer.settle(8 * S, "a") == timer.restart(9 * S) == ()


def test_timeout_grows_with_the_bytes_in_flight() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.start(0, "long", 100_000)
    timer.start(0, "behind it", 100)
    assert (len(timer.overdue(45 * S)), timer.size_bytes) == (1, 100_100)
    assert timer.overdue(45 * S) == ["long"]
    timer.settle(45 * S, "long")
    assert timer.size_bytes == 100


def test_timeout_doubles_up_to_its_maximum() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    now_us, waits = 0, []
    [effect] = timer.start(0, "a")
    for _ in range(8):
        now_us += effect.delay_us
        waits.append(effect.delay_us)
        assert timer.overdue(now_us) == ["a"]
        timer.start(now_us, "a")
        [effect] = timer.restart(now_us)
    assert waits == [5 * S, 10 * S, 20 * S, 40 * S, *[DEFAULT_MAX_TIMEOUT_US] * 4]


def test_expedite_only_shortens_a_deadline() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.start(0, "a")
    assert timer.expedite(0, "a", S) == (SetTimer("t", S),)
    assert timer.expedite(0, "a", 2 * S) == timer.expedite(0, "b", S) == ()
    assert timer.overdue(S) == ["a"]


def test_timer_is_set_only_for_an_earlier_deadline() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.start(0, "a")
    assert timer.start(0, "b") == ()
    assert timer.expedite(0, "a", 5 * S) == ()  # already due then
    assert timer.expedite(0, "a", 2 * S) == (SetTimer("t", 2 * S),)
    assert timer.expedite(0, "b", 2 * S) == timer.expedite(0, "b", 3 * S) == timer.start(0, "c") == ()
    assert timer.expedite(0, "c", S) == (SetTimer("t", S),)
    assert timer.expedite(0, "b", S) == ()
    assert ("c" in timer, "d" in timer) == (True, False)


def test_timeout_includes_twice_the_last_answer_time() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.start(S, "a")
    timer.settle(4 * S, "a")
    assert timer.start(4 * S, "b") == (SetTimer("t", DEFAULT_TIMEOUT_US + 2 * 3 * S),)
    timer.start(10 * S, "b")
    timer.settle(30 * S, "b")  # unknown which transmission was answered
    assert timer.start(30 * S, "c") == (SetTimer("t", DEFAULT_TIMEOUT_US + 2 * 3 * S),)


_ACTIONS = st.sampled_from(["send", "answer", "expedite", "clear"])
STEPS = st.lists(
    st.tuples(_ACTIONS, st.integers(0, 3), st.integers(0, 5000), st.integers(0, 20 * S)), max_size=40
)


@given(STEPS)
def test_timer_fires_no_later_than_the_first_deadline(steps) -> None:
    """Check that the timer is set while items are unacknowledged."""
    timer: RetransmitTimer[int] = RetransmitTimer("t")
    now_us, set_us = 0, None

    def apply_effects(effects) -> None:
        nonlocal set_us
        for effect in effects:
            set_us = now_us + effect.delay_us if isinstance(effect, SetTimer) else None

    for action, key, size_bytes, after_us in steps:
        now_us += after_us
        while set_us is not None and set_us <= now_us:
            later_us, now_us = now_us, set_us
            set_us = None
            for overdue_key in timer.overdue(now_us):
                apply_effects(timer.start(now_us, overdue_key, 10))
            apply_effects(timer.restart(now_us))
            now_us = later_us
        before = {other: timer._in_flight[other].due_us for other in timer._in_flight if other != key}
        if action == "send":
            apply_effects(timer.start(now_us, key, size_bytes))
        elif action == "answer":
            apply_effects(timer.settle(now_us, key))
        elif action == "expedite":
            apply_effects(timer.expedite(now_us, key, size_bytes))
        else:
            apply_effects(timer.clear())
        if action != "clear":  # an action on one item moves no other deadline
            assert {
                other: timer._in_flight[other].due_us for other in timer._in_flight if other != key
            } == before
        assert (set_us is not None) == bool(len(timer))
        if len(timer):
            assert set_us <= min(item.due_us for item in timer._in_flight.values())
        assert timer.size_bytes == sum(item.size_bytes for item in timer._in_flight.values())


def test_overdue_item_without_retransmission_backs_off() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.start(0, "a")
    assert timer.overdue(5 * S) == ["a"]
    assert timer.restart(5 * S) == (SetTimer("t", 10 * S),)
