"""Invalid messages, and messages of peers in a chain."""

from __future__ import annotations

from random import Random

import pytest
from busy_labs import Radiator
from odd_messages import draw_value

from mudkit.errors import ParameterError
from mudkit.events import Received, Record, Send
from mudkit.systems.radiator import Client, Context, pack, unpack


def test_messages_that_cannot_be_unpacked_are_dropped():
    fleet = Radiator()
    draw = Random(6)
    machines = [process.machine for host in fleet.lab.world.hosts.values() for process in host.processes]
    for machine in machines:
        for source in ("radiator/radiator", "d1/radiator d1", "eve/x"):
            for message in (b"", b"\x1f\x8b", b"[" * 100_000, b"\xff", "text", 3, None, {}, draw_value(draw)):
                (effect,) = machine.handle(0, Received(source, message, source.split("/")[0]))
                assert isinstance(effect, Record)
                assert effect.row["incident"] == "dropped"


def find_pending_push(fleet, name):
    """Return id and record of the unacknowledged push to a client."""
    (row,) = (row for client, row in get_server_machine(fleet)._rows.items() if client == name)
    return next(iter(row.deliveries.items()))


def get_server_machine(fleet):
    return fleet.server.installed.machine


def pass_push(fleet, **fields):
    """Return the effects at d2 of a push that d1 passes on."""
    push = {"kind": "push", "aggregate": "x 1", "context": Context({"d1"}).to_dict(), "to": "d2", **fields}
    return fleet.clients["d2"].installed.machine.handle(0, Received("d1/x", pack(push, True), "d1"))


def report_unreachable(fleet, client, target, aggregate, rest=()):
    address = get_server_machine(fleet)._rows[target].address
    message = {"kind": "unreachable", "client": client, "device": client, "aggregate": aggregate,
               "who": target, "address": address, "rest": list(rest)}  # fmt: skip
    source = get_server_machine(fleet)._rows[client].address
    return get_server_machine(fleet).handle(
        fleet.lab.world.now_us, Received(source, pack(message, True), client)
    )


def test_unreachable_is_accepted_once_from_the_previous_chain_member():
    fleet = Radiator()
    fleet.lab.world.fault_hook = lambda transfer: () if unpack(transfer.message)["kind"] == "push" else (0,)
    fleet.propagate("d0", "a 1").result()
    aggregate, owed = find_pending_push(fleet, "d3")
    previous, following = owed.chain[owed.chain.index("d3") - 1], owed.chain[owed.chain.index("d3") + 1 :]
    for other in {*Radiator.NAMES} - {previous}:
        effects = report_unreachable(fleet, other, "d3", aggregate)
        assert not [effect for effect in effects if isinstance(effect, Send)], other
        assert fleet.server.clients().result()["d3"], f"{other} is not to say so"
    effects = report_unreachable(fleet, previous, "d3", aggregate, rest=["d0"])
    sent = [effect for effect in effects if isinstance(effect, Send)]
    assert [effect.to.split("/")[0] for effect in sent] == [*following[:1]], (
        "the chain is the server's, not the message's"
    )
    assert not fleet.server.clients().result()["d3"]
    assert not [
        effect for effect in report_unreachable(fleet, previous, "d3", aggregate) if isinstance(effect, Send)
    ], "once"
    with pytest.raises(ParameterError, match="taken"):
        Client(fleet.lab.devices["eve"], fleet.server, "d3").registered.result()
    fleet.lab.faults.messages()
    fleet.lab.run(minutes=4)
    assert fleet.serials("d3") == {"a 1": 1}, "the server has sent it itself"


def test_client_without_p2p_drops_pushes_of_peers():
    fleet = Radiator(chain=0.0, p2p=False)
    (effect,) = pass_push(fleet, chain=[])
    assert effect.row["incident"] == "dropped"


def test_passed_push_contains_only_known_fields():
    fleet = Radiator()
    fleet.lab.run(minutes=1)
    effects = pass_push(fleet, chain=[["d3", "d3/radiator d3"]], more="x" * 1000)
    ack, passed_push = (unpack(effect.message) for effect in effects if isinstance(effect, Send))
    assert (ack["kind"], ack["client"], ack["device"]) == ("got", "d2", "d2")
    assert set(passed_push) == {"kind", "aggregate", "context", "chain", "to"}
