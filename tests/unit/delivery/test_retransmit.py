"""Each thing that was sent has a deadline of its own; one timer serves all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudkit.delivery.retransmit import DEFAULT_MAX_TIMEOUT_US, DEFAULT_TIMEOUT_US, RetransmitTimer
from mudkit.events import CancelTimer, SetTimer

S = 1_000_000


def test_what_is_sent_later_does_not_move_a_deadline_and_an_answer_touches_only_its_own() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    assert timer.sent(0, "a") == (SetTimer("t", DEFAULT_TIMEOUT_US),)
    assert timer.sent(3 * S, "b") == ()
    assert timer.answered(3 * S, "c") == ()
    assert timer.overdue(5 * S) == ["a"]
    assert timer.sent(5 * S, "a") == ()  # the timer has fired: it is set below
    assert timer.fired(5 * S) == (SetTimer("t", 3 * S),)
    assert timer.answered(5 * S, "b") == ()
    assert timer.overdue(8 * S) == []
    assert timer.fired(8 * S) == (SetTimer("t", 7 * S),)  # it waits twice as long for what was sent twice
    assert timer.answered(8 * S, "a") == (CancelTimer("t"),)
    assert timer.answered(8 * S, "a") == timer.fired(9 * S) == ()


def test_who_waits_for_much_waits_longer() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.sent(0, "long", 100_000)
    timer.sent(0, "behind it", 100)
    assert (len(timer.overdue(45 * S)), timer.size_bytes) == (1, 100_100)
    assert timer.overdue(45 * S) == ["long"]
    timer.answered(45 * S, "long")
    assert timer.size_bytes == 100


def test_what_is_never_answered_is_sent_less_and_less_often_but_never_less_than_once_a_minute() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    now_us, waits = 0, []
    [fires] = timer.sent(0, "a")
    for _ in range(8):
        now_us += fires.delay_us
        waits.append(fires.delay_us)
        assert timer.overdue(now_us) == ["a"]
        timer.sent(now_us, "a")
        [fires] = timer.fired(now_us)
    assert waits == [5 * S, 10 * S, 20 * S, 40 * S, *[DEFAULT_MAX_TIMEOUT_US] * 4]


def test_what_did_not_arrive_is_due_soon_and_what_is_due_sooner_stays() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.sent(0, "a")
    assert timer.expedite(0, "a", S) == (SetTimer("t", S),)
    assert timer.expedite(0, "a", 2 * S) == timer.expedite(0, "b", S) == ()
    assert timer.overdue(S) == ["a"]


def test_an_earlier_deadline_sets_the_timer_and_an_equal_or_later_one_does_not() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.sent(0, "a")
    assert timer.sent(0, "b") == ()
    assert timer.expedite(0, "a", 5 * S) == ()  # it is due then
    assert timer.expedite(0, "a", 2 * S) == (SetTimer("t", 2 * S),)
    assert timer.expedite(0, "b", 2 * S) == timer.expedite(0, "b", 3 * S) == timer.sent(0, "c") == ()
    assert timer.expedite(0, "c", S) == (SetTimer("t", S),)
    assert timer.expedite(0, "b", S) == ()
    assert ("c" in timer, "d" in timer) == (True, False)


def test_twice_the_time_of_the_last_answer_is_waited_for_longer() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.sent(S, "a")
    timer.answered(4 * S, "a")
    assert timer.sent(4 * S, "b") == (SetTimer("t", DEFAULT_TIMEOUT_US + 2 * 3 * S),)
    timer.sent(10 * S, "b")
    timer.answered(30 * S, "b")  # it is unknown which of the two was answered
    assert timer.sent(30 * S, "c") == (SetTimer("t", DEFAULT_TIMEOUT_US + 2 * 3 * S),)


_WHAT = st.sampled_from(["send", "answer", "expedite", "clear"])
STEPS = st.lists(
    st.tuples(_WHAT, st.integers(0, 3), st.integers(0, 5000), st.integers(0, 20 * S)), max_size=40
)


@given(STEPS)
def test_whatever_goes_on_what_waits_has_a_timer_no_later_than_its_deadline(steps) -> None:
    """Nobody is silent with something to send: the timer that is set fires by the first deadline."""
    timer: RetransmitTimer[int] = RetransmitTimer("t")
    now_us, set_us = 0, None

    def carry_out(effects) -> None:
        nonlocal set_us
        for effect in effects:
            set_us = now_us + effect.delay_us if isinstance(effect, SetTimer) else None

    for what, key, size_bytes, after_us in steps:
        now_us += after_us
        while set_us is not None and set_us <= now_us:
            later_us, now_us = now_us, set_us
            set_us = None
            for late in timer.overdue(now_us):
                carry_out(timer.sent(now_us, late, 10))
            carry_out(timer.fired(now_us))
            now_us = later_us
        before = {each: timer._waiting[each].due_us for each in timer._waiting if each != key}
        if what == "send":
            carry_out(timer.sent(now_us, key, size_bytes))
        elif what == "answer":
            carry_out(timer.answered(now_us, key))
        elif what == "expedite":
            carry_out(timer.expedite(now_us, key, size_bytes))
        else:
            carry_out(timer.clear())
        if what != "clear":  # what is done with one item moves the deadline of no other
            assert {each: timer._waiting[each].due_us for each in timer._waiting if each != key} == before
        assert (set_us is not None) == bool(len(timer))
        if len(timer):
            assert set_us <= min(each.due_us for each in timer._waiting.values())
        assert timer.size_bytes == sum(each.size_bytes for each in timer._waiting.values())


def test_what_is_overdue_and_is_not_sent_again_does_not_fire_for_ever() -> None:
    timer: RetransmitTimer[str] = RetransmitTimer("t")
    timer.sent(0, "a")
    assert timer.overdue(5 * S) == ["a"]
    assert timer.fired(5 * S) == (SetTimer("t", 10 * S),)
