"""Who is no friend any more gets nothing, wherever it waits; what was about her is answered, and ends."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, arranged, marked, opened

from mudkit.errors import AccessDenied
from mudkit.systems.contrail import Group


def got(there, port):
    return [item.payload.decode().removeprefix("payload of ") for item in port.receive_all().result()]


@pytest.mark.parametrize("waits", ["off-line", "in a batch", "at the relay", "at a relay that is cut off"])
@pytest.mark.parametrize("relays", [1, 2])
def test_what_waits_for_her_goes_nowhere_and_what_waits_for_others_comes(place, waits, relays):
    there, ann, bob, cyd = arranged(place, "ann bob cyd", relays=relays)
    if waits == "off-line":
        there.lab.faults.cut("ann")
    elif waits == "in a batch":
        ann.batch_size = 50
    else:
        there.lab.faults.cut("bob")
    if waits == "at a relay that is cut off" and relays == 2:
        for name in [each for each in there.lab.world.hosts if each.startswith("relay2-gateway")]:
            there.lab.faults.kill(name)
    call = there.publish(ann, marked("secret"), "x")
    there.run(10)
    there.modules["ann"].unfriend("bob").result()
    there.run(10)
    for name in ("ann", "bob"):
        there.lab.faults.mend(name)
    for name in [each for each in there.lab.world.hosts if each.startswith("relay2-gateway")]:
        there.lab.faults.restart(name)
    there.run(300)
    assert (got(there, bob), got(there, cyd)) == ([], ["secret"])
    assert call.done
    assert not [key for key, _ in there.store("ann").items("out ")]


def test_her_filters_match_nothing_and_she_is_told_by_an_error_when_she_asks(place):
    there, ann, bob = opened(place, "ann bob")
    there.lab.faults.cut("bob")
    call = bob.install_filter(EVERYTHING, to=("ann", "app"))
    there.run(5)
    there.modules["bob"].unfriend("ann").result()
    there.run(1)
    with pytest.raises(AccessDenied, match="no friend any more"):
        call.result(0)
    there.lab.faults.mend("bob")
    there.run(65)
    assert there.publish(ann, marked("x")).result().destinations == ()


def test_what_she_sent_before_that_waits_here_is_dropped_too(place):
    there, ann, bob = opened(place, "ann bob")
    there.modules["ann"].join(Group("club")).result()
    there.install(bob, EVERYTHING, to=(Group("club"), "app"))
    there.lab.faults.cut("bob")
    there.publish(ann, marked("late")).result()
    there.run(5)
    there.modules["bob"].unfriend("ann").result()
    there.lab.faults.mend("bob")
    there.run(130)
    assert got(there, bob) == []
    assert there.publish(ann, marked("later")).result().destinations == ()


def test_a_friend_again_gets_what_is_said_from_then_on(place):
    there, ann, bob = arranged(place, "ann bob")
    there.lab.faults.cut("ann")
    there.publish(ann, marked("before"))
    there.modules["ann"].unfriend("bob")
    there.modules["ann"].befriend("bob")
    there.lab.faults.mend("ann")
    there.run(65)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("after"), "a").result()
    there.run(65)
    assert got(there, bob) == ["after"]
