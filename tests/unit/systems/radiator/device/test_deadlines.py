"""Deadlines: each item has its own, and nothing but the item itself moves it."""

from __future__ import annotations

from mudkit.events import CancelTimer, SetTimer
from mudkit.systems.radiator.device.deadlines import MOST_US, RETRY_US, RETRY_US_PER_BYTE, Deadlines


def test_new_traffic_moves_no_deadline():
    deadlines = Deadlines("retry")
    deadlines.sent(0, 1, 0)
    assert deadlines.timer(0) == (SetTimer("retry", RETRY_US),)
    for second in range(1, 5):
        deadlines.sent(second * 1_000_000, 1 + second, 100)
        assert deadlines.timer(second * 1_000_000) == ()
    assert deadlines.overdue(RETRY_US) == [1]


def test_an_answer_is_of_one_item():
    deadlines = Deadlines("retry")
    deadlines.sent(0, 0, 0)
    deadlines.sent(1_000_000, 7, 0)
    deadlines.timer(1_000_000)
    deadlines.answered(1_500_000, 9)
    assert deadlines.timer(1_500_000) == (), "it is of nobody"
    deadlines.answered(1_500_000, 0)
    assert deadlines.timer(1_500_000) == (SetTimer("retry", RETRY_US - 500_000),)
    deadlines.answered(1_600_000, 7)
    assert deadlines.timer(1_600_000) == (CancelTimer("retry"),)
    assert deadlines.timer(1_600_000) == ()


def test_what_is_sent_again_waits_for_longer_up_to_a_minute():
    deadlines, now_us, waits_us = Deadlines("retry"), 0, []
    for _ in range(8):
        deadlines.sent(now_us, 1, 0)
        (timer,) = deadlines.timer(now_us)
        waits_us.append(timer.delay_us)
        now_us += timer.delay_us
        assert deadlines.overdue(now_us) == [1]
    assert waits_us == [RETRY_US, 2 * RETRY_US, 4 * RETRY_US, 8 * RETRY_US] + 4 * [MOST_US]


def test_what_waits_for_the_link_is_not_late():
    deadlines = Deadlines("retry")
    for item in range(1, 4):
        deadlines.sent(0, item, 10_000)
    assert deadlines.overdue(2 * RETRY_US_PER_BYTE * 10_000 + RETRY_US) == [1, 2]


def test_where_answers_take_long_what_is_sent_later_waits_for_longer():
    deadlines = Deadlines("retry")
    deadlines.sent(0, 1, 0)
    deadlines.answered(4_000_000, 1)
    deadlines.sent(4_000_000, 2, 0)
    assert deadlines.timer(4_000_000) == (SetTimer("retry", RETRY_US + 8_000_000),)
    deadlines.sent(5_000_000, 2, 0)
    deadlines.answered(6_000_000, 2)
    deadlines.sent(6_000_000, 3, 0)
    (timer,) = deadlines.timer(6_000_000)
    assert timer.delay_us == RETRY_US + 8_000_000, "of what was sent twice nobody knows which was answered"


def test_forget():
    deadlines = Deadlines("retry")
    deadlines.sent(0, 1, 0)
    deadlines.timer(0)
    deadlines.forget()
    assert deadlines.timer(0) == (CancelTimer("retry"),)
    assert deadlines.overdue(10 * MOST_US) == []
