"""Shares of a device's link: what leaves too soon and what waits too long, in what a service receives and sends."""

from __future__ import annotations

from collections import Counter

import pytest

from mudkit.events import LinkDown, Received, TimerFired, size_bytes
from mudkit.systems.mud.device.attachment import address_of
from mudkit.systems.mud.messages.requests import Ask, ReadRequest
from mudkit.systems.mud.tables.selection import Selection
from mudkit.verify.campaign.link_shares import MAX_BYTES, LinkShares
from mudkit.wire import as_wire

GATEWAY = "mud-gateway-1/mud"


def ask(app, number, size=10, op="write"):
    what = {"op": op, "name": "t", "predicate": "x" * size}
    return {"kind": "ask", "id": f"ann/{app} first.{number}", "client": f"ann/{app}", "what": what}


def answer(app, number, kind="outcome", **more):
    return Received(GATEWAY, {"kind": kind, "id": f"ann/{app} first.{number}", **more}, "mud-gateway-1")


class Device:
    """Service of a device with the apps game and mail."""

    def __init__(self):
        self.problems, self.counts = [], Counter()
        self._shares = LinkShares("ann", self.problems, self.counts)

    def pass_on(self, *messages, at_us=0, is_sent=True):
        """Receive messages of apps; send them if they are not to wait."""
        for message in messages:
            source = address_of(message["client"].partition("/")[2])
            sent = [message] if is_sent else []
            self._shares.observe(at_us, Received(source, message, "ann"), sent)

    def observe(self, event, *sent, at_us=0):
        self._shares.observe(at_us, event, sent)


@pytest.fixture
def device():
    return Device()


def test_a_share_before_another_app_is_no_problem_and_one_message_more_is(device):
    """The guide: each may have 16 unanswered messages or 16 kB of them."""
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("mail", 1))
    assert device.problems == []
    device.pass_on(ask("game", 16), ask("mail", 2))
    (problem,) = device.problems
    assert "17 messages of game" in problem


def test_bytes_count_unless_a_message_is_alone(device):
    device.pass_on(ask("game", 1, size=20_000), ask("mail", 1))
    assert device.problems == []
    device.pass_on(ask("game", 2), ask("mail", 2))
    (problem,) = device.problems
    assert "2 messages of game" in problem


def test_bytes_are_those_on_the_link_which_lack_what_a_message_omits(device):
    """A mapping of a message has defaults, too."""

    def read(number, size):
        what = ReadRequest(
            name="t", table=None, predicate=None, keys=["x" * size], reader={}, aggregate=None, latest=False,
            seen_lsns={}, selection=Selection(["v"]),
        )  # fmt: skip
        return Ask(f"ann/game first.{number}", "ann/game", None, what)

    for number in range(8):
        message = read(number, MAX_BYTES // 8 - size_bytes(read(number, 0)))
        assert size_bytes(as_wire(message)) > size_bytes(message) == MAX_BYTES // 8
        device.observe(Received(address_of("game"), message, "ann"), message)
    device.pass_on(ask("mail", 1))
    assert device.problems == []
    device.pass_on(ask("game", 8), ask("mail", 2))
    assert len(device.problems) == 1


def test_answers_leave_the_link_and_parts_of_answers_do_not(device):
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.observe(answer("game", 3, kind="part"))
    device.observe(answer("game", 4))
    device.observe(answer("game", 5, kind="part", error={"kind": "NoNetwork"}))
    device.pass_on(ask("game", 16), ask("game", 17), ask("mail", 1))
    assert device.problems == []
    device.pass_on(ask("game", 18), ask("mail", 2))
    assert len(device.problems) == 1


def test_nothing_is_on_a_lost_link(device):
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("game", 16), is_sent=False)
    device.observe(LinkDown())
    device.pass_on(*(ask("game", number) for number in range(16)), at_us=1)
    device.pass_on(ask("mail", 1), at_us=2)
    assert device.problems == []


def test_message_must_not_wait_for_another_app_until_the_next_moment(device):
    """Writes leave at the end of the moment."""
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("game", 16), ask("mail", 1), is_sent=False)
    device.observe(TimerFired("send"), {"kind": "asks of apps", "parts": [ask("mail", 1)]})
    device.observe(TimerFired("any"), at_us=1)
    assert device.problems == []
    assert device.counts.total() == 1
    device.pass_on(ask("mail", 2), at_us=1, is_sent=False)
    device.observe(TimerFired("any"), at_us=2)
    (problem,) = device.problems
    assert "a message of mail waits" in problem


def test_message_must_not_wait_when_an_answer_has_made_room(device):
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("game", 16), is_sent=False)
    device.observe(answer("game", 0), at_us=1)
    device.observe(TimerFired("any"), at_us=2)
    (problem,) = device.problems
    assert "a message of game waits, though only 15 are on the link" in problem


def test_read_may_wait_for_the_answer_to_an_equal_one_of_another_app(device):
    """The guide: an equal read of another app that is in flight is not sent again."""
    device.pass_on(ask("game", 1, op="read"))
    device.pass_on(ask("mail", 1, op="read"), is_sent=False)
    device.observe(TimerFired("any"), at_us=1)
    assert device.problems == []
    device.pass_on(ask("mail", 2, size=11, op="read"), at_us=1, is_sent=False)
    device.observe(TimerFired("any"), at_us=2)
    assert len(device.problems) == 1


def test_retransmission_is_no_further_message_and_one_of_what_waits_takes_its_place(device):
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("game", 16), ask("game", 16), is_sent=False)
    device.pass_on(ask("game", 0))
    device.observe(answer("game", 1), ask("game", 16))
    device.pass_on(ask("mail", 1), at_us=1)
    assert device.problems == []


def test_message_counts_for_a_minute_since_its_last_transmission(device):
    device.pass_on(*(ask("game", number) for number in range(16)))
    device.pass_on(ask("game", 0), at_us=10_000_000)
    device.pass_on(*(ask("game", number) for number in range(16, 31)), at_us=60_000_000)
    device.pass_on(ask("mail", 1), at_us=60_000_000)
    assert device.problems == []
    device.pass_on(ask("game", 31), ask("mail", 2), at_us=60_000_000)
    assert len(device.problems) == 1


def test_message_in_the_name_of_another_app_is_not_the_sender_s(device):
    device.observe(Received(address_of("game"), ask("mail", 1), "ann"))
    device.observe(TimerFired("any"), at_us=1)
    assert device.problems == []
