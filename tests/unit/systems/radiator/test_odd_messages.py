"""Chains of peers: who is believed, and what is passed on; messages that cannot be unpacked."""

from __future__ import annotations

from random import Random

import pytest
from busy_labs import Radiator
from odd_messages import anything

from mudkit.errors import ParameterError
from mudkit.events import Received, Record, Send
from mudkit.systems.radiator import Client, Context, pack, unpack


def test_what_is_no_packed_message_is_dropped():
    fleet = Radiator()
    draw = Random(6)
    machines = [each.machine for host in fleet.lab.world.hosts.values() for each in host.processes]
    for machine in machines:
        for source in ("radiator/radiator", "d1/radiator d1", "eve/x"):
            for message in (b"", b"\x1f\x8b", b"[" * 100_000, b"\xff", "text", 3, None, {}, anything(draw)):
                (effect,) = machine.handle(0, Received(source, message, source.split("/")[0]))
                assert isinstance(effect, Record)
                assert effect.row["incident"] == "dropped"


def pushed(fleet, name):
    """Give what is on its way to somebody in a chain."""
    (row,) = (row for client, row in machine(fleet)._rows.items() if client == name)
    return next(iter(row.owed.items()))


def machine(fleet):
    return fleet.server.installed.machine


def handed_on(fleet, **more):
    """Return what d2 does with a push that d1 passes on."""
    push = {"kind": "push", "aggregate": "x 1", "context": Context({"d1"}).to_dict(), "to": "d2", **more}
    return fleet.clients["d2"].installed.machine.handle(0, Received("d1/x", pack(push, True), "d1"))


def unreachable(fleet, client, who, aggregate, rest=()):
    address = machine(fleet)._rows[who].address
    message = {"kind": "unreachable", "client": client, "device": client, "aggregate": aggregate, "who": who,
               "address": address, "rest": list(rest)}  # fmt: skip
    source = machine(fleet)._rows[client].address
    return machine(fleet).handle(fleet.lab.world.now_us, Received(source, pack(message, True), client))


def test_only_the_one_before_in_a_chain_is_believed_and_only_for_a_while():
    fleet = Radiator()
    fleet.lab.world.fault_hook = lambda transfer: () if unpack(transfer.message)["kind"] == "push" else (0,)
    fleet.propagate("d0", "a 1").result()
    aggregate, owed = pushed(fleet, "d3")
    before, behind = owed.chain[owed.chain.index("d3") - 1], owed.chain[owed.chain.index("d3") + 1 :]
    for other in {*Radiator.NAMES} - {before}:
        effects = unreachable(fleet, other, "d3", aggregate)
        assert not [each for each in effects if isinstance(each, Send)], other
        assert fleet.server.clients().result()["d3"], f"{other} is not to say so"
    effects = unreachable(fleet, before, "d3", aggregate, rest=["d0"])
    sent = [each for each in effects if isinstance(each, Send)]
    assert [each.to.split("/")[0] for each in sent] == [*behind[:1]], (
        "the chain is the server's, not the message's"
    )
    assert not fleet.server.clients().result()["d3"]
    assert not [each for each in unreachable(fleet, before, "d3", aggregate) if isinstance(each, Send)], (
        "once"
    )
    with pytest.raises(ParameterError, match="taken"):
        Client(fleet.lab.devices["eve"], fleet.server, "d3").registered.result()
    fleet.lab.faults.messages()
    fleet.lab.run(minutes=4)
    assert fleet.serials("d3") == {"a 1": 1}, "the server has sent it itself"


def test_who_cannot_be_reached_by_peers_takes_nothing_from_them():
    fleet = Radiator(chain=0.0, p2p=False)
    (effect,) = handed_on(fleet, chain=[])
    assert effect.row["incident"] == "dropped"


def test_a_push_is_passed_on_as_it_was_understood():
    fleet = Radiator()
    effects = handed_on(fleet, chain=[["d3", "d3/radiator d3"]], more="x" * 1000)
    got, passed = (unpack(each.message) for each in effects if isinstance(each, Send))
    assert (got["kind"], got["client"], got["device"]) == ("got", "d2", "d2")
    assert set(passed) == {"kind", "aggregate", "context", "chain", "to"}
