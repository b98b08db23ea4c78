"""Kills before a callback, and copies of messages that arrive after a wipe or a restart."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.radiator import Client, Context, Server, Volume, unpack

HOUR_US = 3_600_000_000


def release_at_once(sender, receiver):
    return Volume(1)


class Pair:
    """Server with two clients; what bob has received."""

    def __init__(self, **attributes):
        self.lab = Lab(seed=1)
        self.server = Server(self.lab, release_at_once, silence_s=1e8, chain=1.0)
        self.received = []
        self.ann = Client(self.lab.device("ann", link="ideal"), self.server, attributes=attributes)
        self.bob = Client(
            self.lab.device("bob", link="ideal"),
            self.server,
            receive=self.received.append,
            attributes=attributes,
        )
        self.lab.run(minutes=1)

    def propagate(self, value):
        self.ann.propagate_context(Context({"ann"}, {"n": value})).result()
        self.lab.run(seconds=10)

    def delay(self, kind, *delays_us):
        """Deliver messages of a kind once after each delay, and all others at once."""
        self.lab.world.fault_hook = lambda transfer: (
            delays_us if unpack(transfer.message)["kind"] == kind else (0,)
        )

    @property
    def values(self):
        return [context["n"] for context in self.received]


@pytest.mark.parametrize("server_restarts", [False, True])
def test_client_killed_before_its_callback_shows_the_context_after_the_restart(server_restarts):
    pair = Pair()
    pair.lab.faults.kill("bob", at="after commit")
    pair.propagate(1)
    if server_restarts:  # the aggregate is lost there
        pair.lab.faults.kill("radiator")
        pair.lab.faults.restart("radiator")
    pair.lab.faults.restart("bob")
    pair.lab.run(hours=2)
    pair.lab.faults.kill("bob")
    pair.lab.faults.restart("bob")
    pair.lab.run(hours=1)
    assert pair.values == [[1]]
    assert not pair.bob.installed.store.keys("notice ")


def test_context_repeated_after_a_kill_has_the_same_id():
    pair = Pair()
    pair.ann.propagate_context(Context({"ann"}, {"n": 1}))
    while not pair.received:
        pair.lab.faults.kill("bob", at="before commit")  # of the event after the callback
        pair.lab.run(seconds=1)
        pair.lab.faults.restart("bob")
        pair.lab.run(seconds=1e-6)
    pair.lab.run(minutes=5)
    pair.propagate(1)
    first, *repeats, last = pair.received
    assert all((context, context.id) == (first, first.id) for context in repeats)
    assert (last["n"], last.id == first.id) == ([1], False)


@pytest.mark.parametrize("p2p", [False, True])
def test_late_push_to_a_wiped_client_is_not_shown(p2p):
    pair = Pair(p2p_enabled=p2p)
    pair.delay("push", 0, HOUR_US)
    pair.propagate("before the wipe")
    pair.lab.faults.wipe("bob")
    pair.bob.register({"p2p_enabled": p2p}).result()
    pair.lab.run(minutes=1)
    assert pair.values == [["before the wipe"]]
    pair.propagate("after the wipe")
    pair.lab.run(hours=3)
    assert pair.values == [["before the wipe"], ["after the wipe"]]
    assert set(pair.server.clients().result()) == {"ann", "bob"}


def test_late_acknowledgement_of_a_wiped_client_acknowledges_nothing():
    pair = Pair()
    pair.delay("got", 90_000_000)
    pair.propagate("before the wipe")
    pair.lab.faults.cut("bob")
    pair.lab.faults.wipe("bob")
    registered = pair.bob.register()
    pair.lab.world.fault_hook = None
    pair.lab.run(seconds=30)
    pair.lab.faults.mend("bob")
    pair.delay("push")
    registered.result()
    pair.lab.run(minutes=2)  # the acknowledgement has arrived
    pair.lab.world.fault_hook = None
    pair.lab.run(minutes=3)
    assert pair.values == [["before the wipe"], ["before the wipe"]]


def test_chain_delivers_to_restarted_clients():
    lab = Lab(seed=1)
    server = Server(lab, release_at_once, chain=1.0)
    received = {name: [] for name in "abcde"}
    clients = {
        name: Client(
            lab.device(name, link="ideal"),
            server,
            receive=received[name].append,
            attributes={"p2p_enabled": True},
        )
        for name in received
    }
    lab.run(minutes=1)
    for name in ("b", "d"):
        lab.faults.kill(name)
        lab.faults.restart(name)
    lab.run(minutes=1)
    before = server.counts().result()["messages_sent"]
    clients["a"].propagate_context(Context({"a"}, {"n": 1})).result()
    lab.run(seconds=4)
    assert {name: len(contexts) for name, contexts in received.items()} == {
        "a": 0,
        **dict.fromkeys("bcde", 1),
    }
    assert server.counts().result()["messages_sent"] - before == 2  # an acknowledgement, and one chain
