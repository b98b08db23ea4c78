"""Odd messages: whatever comes to a module or to a server of a cloud, none raises, and nobody speaks for another."""

from __future__ import annotations

import pytest
from contrail_place import Place, marked
from odd_messages import bombard, forge, overhear

from mudkit.events import Received
from mudkit.systems.contrail import Group

EVERYTHING = "what > ''"
CENTRES = {"us": (37.0, -122.0), "eu": (52.0, 5.0)}
CLUB = Group("club")
MACHINES = {"Gateway", "Compute", "Storage", "ModuleMachine"}


def talk(there):
    """Let every kind of message be sent: between devices, to a cloud, and between its servers."""
    for name in ("eve", "mal"):
        there.lab.device(name)
    ann, bob, cyd = there.port("ann"), there.port("bob", idle_timeout_ms=20_000), there.port("cyd")
    there.modules["ann"].join(CLUB).result()
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.install(cyd, "what LIKE '%blue%'", to=(CLUB, "app"))
    for number in range(3):
        there.lab.devices["ann"].change_context(loc=CENTRES["eu" if number % 2 else "us"])
        there.lab.devices["bob"].change_context(loc=CENTRES["us" if number % 2 else "eu"])
        there.run(62)
        for text in ("red", "blue"):
            there.publish(ann, marked(f"{text} {number}"), f"{text} {number}").result()
        there.run(3)
    there.lab.faults.cut("bob", minutes=1)
    there.publish(ann, marked("while he is away"), "while he is away").result()
    there.run(130)
    there.install(cyd, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("red 1"), "red 1").result()  # named, with the key of this item
    there.modules["bob"].unfriend("ann").result()
    there.modules["ann"].leave(CLUB).result()
    there.modules["bob"].befriend("ann").result()
    there.run(130)
    for name in ("relay1-storage-us", "relay1-compute-1-us", "relay1-gateway-us", "ann"):
        there.lab.faults.kill(name)
        there.lab.faults.restart(name)
        there.run(65)


def works(there):
    """Say whether what is published comes."""
    ann, cyd = (there.port(name, "later") for name in ("ann", "cyd"))
    there.install(cyd, EVERYTHING, to=("ann", "later"))
    there.publish(ann, marked("last"), "last").result()
    there.run(65)
    return [item.payload for item in cyd.receive_all().result()] == [b"payload of last"]


def talked_of():
    there = Place("ann bob cyd", centres=CENTRES, instances=1, move_after=1)
    with overhear(there.lab) as heard:
        talk(there)
    return there, heard


@pytest.fixture(scope="module")
def talked():
    return talked_of()


def dropped(there):
    return int((there.lab.frame("incidents")["incident"] == "dropped").sum())


def test_every_kind_of_message_is_sent(talked):
    _, heard = talked
    assert {type(process.machine).__name__ for process in heard} == MACHINES
    kinds = {event.message["kind"] for events in heard.values() for event in events}
    assert kinds == {
        "join", "send", "group", "withdraw", "pull", "bye", "sent", "deliver", "filled", "tell", "gone", "ask", "do",
        "done", "moving", "adopted", "restarted", "holds",
    }  # fmt: skip


def test_what_was_heard_means_nothing_from_another_host(talked):
    there, heard = talked
    assert set(forge(there.lab, heard, "eve")) == MACHINES
    assert works(there)


def test_odd_messages_of_strangers_change_nothing():
    there, heard = talked_of()
    there.lab.run(minutes=5)  # what is under way has come
    strangers = {
        process: [Received("mal/x", event.message, "mal") for event in events]
        for process, events in heard.items()
    }
    before = {process: process.store.items() for process in heard}
    answer = dropped(there)
    sent = bombard(there.lab, strangers, 2_000, seed=5)
    assert {process: process.store.items() for process in heard} == before
    assert dropped(there) == answer + sent.total()
    assert works(there)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_no_odd_message_of_whoever_raises(scaled, seed):
    """Those of a cloud's own servers, too; what comes of those is not looked at: a cloud trusts itself."""
    there, heard = talked_of()
    count = scaled(10_000, 1_000)
    sent = bombard(there.lab, heard, count, seed)
    assert set(sent) == MACHINES
    assert sent.total() == count * len(heard)
    assert there.lab.problems.empty


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_device_in_its_own_name_concern_no_other(scaled, seed):
    there, heard = talked_of()
    of_bob = {
        process: result
        for process, events in heard.items()
        if (result := [e for e in events if e.host == "bob"])
    }
    assert {type(process.machine).__name__ for process in of_bob} == {"Gateway"}
    bombard(there.lab, of_bob, scaled(10_000, 1_000), seed)
    there.run(600)
    assert there.lab.problems.empty
    assert works(there)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_odd_messages_of_a_relay_fail_no_module(scaled, seed):
    """The paper trusts no relay (3.3)."""
    there, heard = talked_of()
    modules = {
        process: events
        for process, events in heard.items()
        if type(process.machine).__name__ == "ModuleMachine"
    }
    bombard(there.lab, modules, scaled(10_000, 1_000), seed)
    there.run(600)
    assert there.lab.problems.empty
    assert not there.seen_by_relays()
