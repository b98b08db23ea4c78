"""Shares of a device's link: windows of unanswered requests, and queues of what does not fit."""

from __future__ import annotations

import pytest
from msgspec import convert
from mud_machines import build_request

from mudkit.events import size_bytes
from mudkit.systems.mud.device.fair_shares import MAX_BYTES, MAX_REQUESTS, FairShares
from mudkit.systems.mud.messages.requests import Ask, AskBatch, IdentifiedRequest


def ask(number, app="game", size=1):
    request = build_request(f"first.{number}", f"jane/{app}", op="write", data={"x": "x" * size})
    return convert(request, Ask)


def batch(*numbers):
    asks = [ask(number) for number in numbers]
    return AskBatch("jane/game", None, [IdentifiedRequest(one.id, one.what) for one in asks])


@pytest.fixture
def shares():
    return FairShares()


def fill(shares, count=MAX_REQUESTS):
    for number in range(count):
        assert shares.offer(0, "game", ask(number)) == [ask(number)]


def test_message_beyond_the_window_waits_for_an_answer_to_the_same_app(shares):
    fill(shares)
    for number in (100, 101):
        assert shares.offer(0, "game", ask(number)) == []
    assert shares.offer(0, "mail", ask(1, "mail")) == [ask(1, "mail")]
    assert shares.settle(0, "mail", ask(1, "mail").id) == []
    assert shares.settle(0, "game", ask(0).id) == [ask(100)]
    assert shares.settle(0, "game", ask(0).id) == []  # a duplicate
    assert shares.settle(0, "game", ask(1).id) == [ask(101)]


def test_window_counts_bytes(shares):
    large = ask(1, size=MAX_BYTES - 2 * size_bytes(ask(2)))
    assert shares.offer(0, "game", large) == [large]
    assert shares.offer(0, "game", ask(2)) == [ask(2)]
    assert shares.offer(0, "game", ask(3, size=1000)) == []
    assert shares.offer(0, "game", ask(4)) == []  # not before the one that came first


def test_one_message_is_sent_however_large_it_is(shares):
    large = ask(1, size=2 * MAX_BYTES)
    assert shares.offer(0, "game", large) == [large]


def test_retransmission_takes_the_place_of_what_waits_and_is_sent_if_it_was_before(shares):
    fill(shares)
    shares.offer(0, "game", ask(100))
    shares.offer(0, "game", ask(101))
    newer = ask(100, size=5)
    assert shares.offer(0, "game", newer) == []
    assert shares.offer(0, "game", ask(3)) == [ask(3)]
    assert shares.settle(0, "game", ask(0).id) == [newer]
    assert shares.settle(0, "game", ask(1).id) == [ask(101)]


def test_batch_counts_until_its_last_answer(shares):
    assert shares.offer(0, "game", batch(50, 51)) == [batch(50, 51)]
    fill(shares, MAX_REQUESTS - 1)
    assert shares.offer(0, "game", ask(100)) == []
    assert shares.settle(0, "game", ask(50).id) == []
    assert shares.settle(0, "game", ask(51).id) == [ask(100)]


def test_request_without_an_answer_does_not_count_for_ever(shares):
    """An app may have withdrawn it."""
    fill(shares)
    assert shares.offer(59_999_999, "game", ask(100)) == []
    assert shares.offer(60_000_000, "game", ask(101)) == [ask(100), ask(101)]


def test_request_counts_while_its_app_sends_it_again(shares):
    """Unanswered requests fill the window (`MAX_REQUESTS`); one that is sent again is not withdrawn."""
    fill(shares)
    for number in range(MAX_REQUESTS):
        assert shares.offer(50_000_000, "game", ask(number)) == [ask(number)]
    assert shares.offer(109_999_999, "game", ask(100)) == []
    assert shares.offer(110_000_000, "game", ask(101)) == [ask(100), ask(101)]


def test_nothing_waits_over_a_lost_link(shares):
    fill(shares)
    shares.offer(0, "game", ask(100))
    shares.clear()
    assert shares.settle(0, "game", ask(0).id) == []
    assert shares.offer(0, "game", ask(101)) == [ask(101)]


def test_request_that_leaves_with_one_sent_before_needs_room_like_any_other(shares):
    """A change of network groups messages anew: what was sent of them no longer counts alone (the guide)."""
    fill(shares)
    assert shares.offer(0, "game", batch(1, 2, 100)) == [batch(1, 2, 100)]  # in place of two
    assert shares.offer(0, "game", ask(101)) == [ask(101)]
    assert shares.offer(0, "game", batch(3, 102)) == [batch(3, 102)]  # in place of one
    assert shares.offer(0, "game", ask(103)) == []
    assert shares.settle(0, "game", ask(100).id) == []  # 1 and 2 are open
    assert shares.settle(0, "game", ask(4).id) == [ask(103)]
    large = AskBatch(
        "jane/game", None, [IdentifiedRequest(one.id, one.what) for one in (ask(5), ask(104, size=MAX_BYTES))]
    )
    assert shares.offer(0, "game", large) == []
