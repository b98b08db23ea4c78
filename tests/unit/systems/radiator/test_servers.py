"""Outbound link, timers and chains of the server."""

from __future__ import annotations

import pytest
from busy_labs import Radiator

from mudkit import Lab
from mudkit.events import Received, Record, Send, SendFailed
from mudkit.systems.radiator import Client, Context, Server, Time, pack, unpack
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


@pytest.mark.parametrize("served", ["away", "acknowledged"])
def test_chain_goes_on_with_the_next_client_that_is_reachable_and_still_owed(served):
    """See :meth:`ServerMachine._continue_chain`, and 3.2: a chain skips who cannot or need not be served."""
    fleet = Radiator()
    machine = fleet.server.installed.machine
    sent = []
    fleet.lab.world.fault_hook = lambda transfer: (
        sent.append(transfer) or () if unpack(transfer.message)["kind"] == "push" else (0,)
    )
    fleet.propagate("d0", "a 1").result()
    fleet.lab.run(seconds=1)
    push = unpack(sent[0].message)
    (second, second_address), (_, third_address), *_ = push["chain"]
    if served == "away":
        machine.handle(fleet.lab.world.now_us, SendFailed(second_address, b""))
    else:
        got = {"kind": "got", "client": second, "device": second, "aggregate": push["aggregate"]}
        machine.handle(fleet.lab.world.now_us, Received(second_address, pack(got, True), second))
    effects = machine.handle(fleet.lab.world.now_us, SendFailed(sent[0].to, sent[0].message))
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [third_address]
