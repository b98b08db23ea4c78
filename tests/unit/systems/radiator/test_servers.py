"""Outbound link of the server."""

from __future__ import annotations

from mudkit import Lab
from mudkit.events import Received, Record
from mudkit.systems.radiator import Client, Context, Server, Time
from mudkit.systems.radiator.servers import ServerLink


def test_timer_of_what_waits_is_set_once():
    """See :meth:`ServerMachine._set_timers`: an event that changes nothing sets no timer again."""
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Time(seconds=600))
    ann, _ = (Client(lab.device(name), server) for name in ("ann", "bob"))
    lab.run(minutes=1)
    ann.propagate_context(Context({"ann"}, {"n": 1})).result()
    lab.run(minutes=1)
    assert server.waiting().result() == {"ann": 0, "bob": 1}
    counts = server.counts().result()
    assert (counts["contexts"], counts["aggregates"]) == (1, 0)
    (effect,) = server.installed.machine.handle(lab.world.now_us, Received("eve/x", b"", "eve"))
    assert isinstance(effect, Record)
    lab.run(minutes=10)
    assert server.counts().result()["aggregates"] == 1


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
