"""Outbound link of the server."""

from __future__ import annotations

from mudkit.systems.radiator.servers import ServerLink


def test_link_sends_in_order_at_its_capacity():
    link = ServerLink(8.0)  # one byte per millisecond
    (timer,) = link.send(0, "a", b"x" * 100)
    assert timer.delay_us == 100_000
    assert link.send(50_000, "b", b"x" * 10) == ()
    assert link.free_us == 110_000
    sent, timer = link.emit(100_000)
    assert (sent.to, timer.delay_us) == ("a", 10_000)
    (sent,) = link.emit(110_000)
    assert sent.to == "b"
    assert (link.messages_sent, link.bytes_sent) == (2, 110)
