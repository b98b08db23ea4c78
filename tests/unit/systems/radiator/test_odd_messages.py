"""Odd messages: whatever comes from whomever, no machine raises, and nobody speaks in another's name."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import Received, Record, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.radiator import Client, Context, Server, Volume, pack, unpack
from tests.support.odd_messages import anything, bombard, forge, mutated, overhear

NAMES = [f"d{i}" for i in range(6)]


class Fleet:
    """Six devices, all of whom but the first can be reached by their peers, and one that is no part of it."""

    def __init__(self, *, chain=1.0, p2p=True):
        self.lab = Lab(seed=5)
        self.server = Server(self.lab, lambda sender, receiver: Volume(1), chain=chain)
        self.got = {name: [] for name in NAMES}
        self.clients = {
            name: Client(
                self.lab.device(name),
                self.server,
                receive=self.got[name].append,
                attributes={"p2p_enabled": p2p and name != "d0"},
            )
            for name in NAMES
        }
        self.lab.device("eve")
        self.lab.run(seconds=5)

    def say(self, name, what):
        return self.clients[name].propagate_context(Context({name}, {"serial": what}))

    def serials(self, name):
        return Counter(
            serial
            for each in self.got[name]
            for serial in each.get("serial", ())
            if str(serial).startswith("a ")
        )


def traffic(fleet):
    """Let every kind of message be sent."""
    lab = fleet.lab
    for name in NAMES:
        fleet.say(name, f"a {name}").result()
    lab.faults.cut("d3", minutes=1)  # unreachable
    fleet.say("d0", "a cut").result()
    lab.run(minutes=4)
    fleet.clients["d4"].unregister().result()
    lab.run(seconds=5)
    fleet.clients["d4"].register({"p2p_enabled": True}).result()
    installed = fleet.clients["d5"].installed  # identify
    installed.kill()
    installed.store = MemoryStore()
    installed.start()
    fleet.clients["d5"].register({"p2p_enabled": True}).result()
    with pytest.raises(ParameterError, match="taken"):  # refused
        Client(lab.devices["d1"], fleet.server, "d2").registered.result()
    lab.world.hosts["radiator"].kill()
    lab.world.hosts["radiator"].restart()
    for name in NAMES:  # unknown
        fleet.say(name, f"a later {name}").result()
    lab.run(minutes=3)


def still_works(fleet):
    """Say something everywhere: everyone gets it once."""
    for name in NAMES:
        fleet.say(name, f"a last {name}").result()
    fleet.lab.run(minutes=10)
    for name in NAMES:
        last = {each: n for each, n in fleet.serials(name).items() if each.startswith("a last")}
        assert last == {f"a last {other}": 1 for other in NAMES if other != name}, name


def kinds(heard):
    return {unpack(event.message)["kind"] for events in heard.values() for event in events}


def mutations(heard, count, seed):
    """Give messages for each machine: those that are overheard, changed and packed again."""
    draw = Random(seed)
    everything = [event for events in heard.values() for event in events]
    for process, events in heard.items():
        for _ in range(count):
            event = draw.choice(events if draw.random() < 0.7 else everything)
            message = mutated(draw, unpack(event.message))
            if draw.random() < 0.3:
                message = mutated(draw, message)
            yield process, event, pack(message, draw.random() < 0.5)


def test_no_message_raises(scaled):
    fleet = Fleet()
    with overhear(fleet.lab) as heard:
        traffic(fleet)
    assert kinds(heard) == {
        "register", "unregister", "context", "got", "unreachable",
        "registered", "unregistered", "refused", "identify", "taken", "unknown", "push",
    }  # fmt: skip
    tried = bombard(fleet.lab, heard, scaled(3_000, 300), seed=1)
    assert set(tried) == {"ServerMachine", "ClientMachine"}
    for process, event, message in mutations(heard, scaled(10_000, 1_000), seed=2):
        fleet.lab.world._handle(process, Received(event.source, message, event.host))
    fleet.lab.run(minutes=10)
    assert fleet.lab.problems.empty, fleet.lab.problems["detail"][0]
    assert "dropped" in set(fleet.lab.frame("incidents")["incident"])


def test_what_a_foreign_device_sends_is_of_no_concern_to_others(scaled):
    count = scaled(10_000, 1_000)
    fleet = Fleet()
    with overhear(fleet.lab) as heard:
        traffic(fleet)
    draw = Random(3)
    for number, (process, _, message) in enumerate(mutations(heard, count, seed=4)):
        sent = unpack(message)
        if type(sent) is dict and draw.random() < 0.3:
            message = pack({**sent, "device": "eve", "client": draw.choice([*NAMES, "eve"])}, True)
        fleet.lab.world._handle(process, Received("eve/x", message, "eve"))
        if number % count == 0:
            fleet.lab.run(seconds=20)
    fleet.lab.run(minutes=5)
    assert fleet.lab.problems.empty
    still_works(fleet)


def test_what_was_overheard_does_nothing_from_elsewhere():
    fleet = Fleet(p2p=False)
    with overhear(fleet.lab) as heard:
        for name in NAMES:
            fleet.say(name, f"a {name}").result()
        fleet.clients["d4"].unregister().result()
        fleet.lab.run(seconds=5)
        fleet.clients["d4"].register().result()
        fleet.lab.run(minutes=1)
    assert set(forge(fleet.lab, heard)) == {"ServerMachine", "ClientMachine"}
    still_works(fleet)


def test_what_is_no_packed_message_is_dropped():
    fleet = Fleet()
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


def unreachable(fleet, client, who, aggregate, rest=()):
    address = machine(fleet)._rows[who].address
    message = {"kind": "unreachable", "client": client, "device": client, "aggregate": aggregate, "who": who,
               "address": address, "rest": list(rest)}  # fmt: skip
    source = machine(fleet)._rows[client].address
    return machine(fleet).handle(fleet.lab.world.now_us, Received(source, pack(message, True), client))


def test_only_the_one_before_in_a_chain_is_believed_and_only_for_a_while():
    fleet = Fleet()
    fleet.lab.world.fault_hook = lambda transfer: () if unpack(transfer.message)["kind"] == "push" else (0,)
    fleet.say("d0", "a 1").result()
    aggregate, owed = pushed(fleet, "d3")
    before, behind = owed.chain[owed.chain.index("d3") - 1], owed.chain[owed.chain.index("d3") + 1 :]
    for other in {*NAMES} - {before}:
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
    fleet = Fleet(chain=0.0, p2p=False)
    push = {
        "kind": "push",
        "aggregate": "x 1",
        "context": Context({"d1"}).describe(),
        "chain": [],
        "to": "d2",
    }
    (effect,) = fleet.clients["d2"].installed.machine.handle(0, Received("d1/x", pack(push, True), "d1"))
    assert effect.row["incident"] == "dropped"


def test_a_push_is_passed_on_as_it_was_understood():
    fleet = Fleet()
    push = {
        "kind": "push",
        "aggregate": "x 1",
        "context": Context({"d1"}).describe(),
        "to": "d2",
        "chain": [["d3", "d3/radiator d3"]],
        "more": "x" * 1000,
    }
    effects = fleet.clients["d2"].installed.machine.handle(0, Received("d1/x", pack(push, True), "d1"))
    got, passed = (unpack(each.message) for each in effects if isinstance(each, Send))
    assert (got["kind"], got["client"], got["device"]) == ("got", "d2", "d2")
    assert set(passed) == {"kind", "aggregate", "context", "chain", "to"}
