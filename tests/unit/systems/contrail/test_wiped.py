"""A device that comes back under its name with an empty store is another one, and nobody waits for the old one."""

from __future__ import annotations

import pytest
from contrail_place import marked

from mudkit.events import Received
from mudkit.fleet.kernel import World
from mudkit.systems.contrail.messages import Bye, Pull

EVERYTHING = "what > ''"


def got(there, port):
    there.run(130)
    return [item.payload.decode().removeprefix("payload of ") for item in port.receive_all().result()]


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("relays", [1, 2])
def test_who_has_lost_everything_asks_again_and_is_told_what_is_said_from_then_on(place, encrypted, relays):
    there = place("ann bob", encrypted=encrypted, relays=relays)
    ann, bob = there.port("ann"), there.port("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("one"), "one").result()
    assert got(there, bob) == ["one"]
    there.lab.faults.wipe("bob")
    there.run(130)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("two"), "two").result()
    assert got(there, bob) == ["two"]


@pytest.mark.parametrize("encrypted", [True, False])
def test_what_a_sender_says_after_a_wipe_is_not_taken_for_old(place, encrypted):
    there = place("ann bob", encrypted=encrypted)
    ann, bob = there.port("ann"), there.port("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    for number in range(5):
        there.publish(ann, marked(f"before {number}")).result()
    assert len(got(there, bob)) == 5
    there.lab.faults.wipe("ann")
    there.run(200)  # bob's filter comes again, of its own accord
    there.publish(ann, marked("after")).result()
    there.publish(ann, marked("and this")).result()
    assert got(there, bob) == ["after", "and this"]


@pytest.mark.parametrize("when_s", [0, 5, 40])
def test_what_was_for_the_old_one_is_not_read_by_the_new_one(place, when_s):
    there = place("ann bob cyd")
    ann, bob, cyd = (there.port(name) for name in ("ann", "bob", "cyd"))
    for port in (bob, cyd):
        there.install(port, EVERYTHING, to=("ann", "app"))
    there.lab.faults.cut("bob")
    call = there.publish(ann, marked("old"), "old")
    there.run(when_s)
    there.lab.faults.wipe("bob")
    there.lab.faults.mend("bob")
    there.run(300)
    assert call.done()
    assert (got(there, bob), got(there, cyd)) == ([], ["old"])
    answer = {type(each).__name__ for each in there.problems["bob"]}
    assert answer <= {"TamperedMessage"}  # what was sealed for other keys looks like that
    assert [type(each).__name__ for each in there.problems["ann"]] == ["KeysChanged"]
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("new"), "new").result()
    assert (got(there, bob), got(there, cyd)) == (["new"], ["new"])


def test_a_filter_under_way_when_its_asker_is_wiped_ends(place):
    there = place("ann bob")
    ann, bob = there.port("ann"), there.port("bob")
    there.lab.faults.cut("ann")
    call = bob.install_filter(EVERYTHING, to=("ann", "app"))
    there.secrets.add(EVERYTHING)
    there.run(1)
    there.lab.faults.wipe("bob")
    there.lab.faults.mend("ann")
    there.run(300)
    assert call.status != "open"
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("x")).result()
    assert got(there, bob) == ["x"]


@pytest.mark.parametrize("how", ["wipe", "restart"])
def test_a_copy_of_what_the_old_one_asked_does_not_take_the_connection_of_the_new_one(
    place, how, monkeypatch
):
    asked, handle = [], World._handle

    def tap(world, process, event):
        if isinstance(event, Received) and isinstance(event.message, Pull | Bye):
            asked.append((process, event))
        handle(world, process, event)

    monkeypatch.setattr(World, "_handle", tap)
    there = place("ann bob")
    ann = there.port("ann", idle_timeout_ms=86_400_000)
    bob = there.port("bob", idle_timeout_ms=86_400_000)
    there.run(60)
    late = list(asked)
    if how == "restart":
        there.lab.faults.kill("bob")
    getattr(there.lab.faults, how)("bob")
    there.run(60)
    there.lab.faults.change_address("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    for each in late:
        there.lab.world._handle(*each)
    there.run(60)
    there.publish(ann, marked("new"), "new").result()
    assert got(there, bob) == ["new"]


def test_an_open_connection_is_asked_for_again_from_another_address(place):
    there = place("ann bob")
    ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=86_400_000)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.change_address("bob")
    there.publish(ann, marked("x"), "x").result()
    assert got(there, bob) == ["x"]
