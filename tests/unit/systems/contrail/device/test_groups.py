"""Groups of publishers: the installer's friends who are members, those who come later included."""

from __future__ import annotations

from contrail_place import marked

from mudkit.systems.contrail import Group

EVERYTHING = "what > ''"
CLUB = Group("club")


def destinations(there, port, text="x"):
    return [device for device, _ in there.publish(port, marked(text)).result().destinations]


def test_a_filter_reaches_friends_who_are_members_also_later_ones(place):
    there = place("reader ann bob cyd")
    there.module("stranger", ["ann"])
    ports = {name: there.port(name) for name in ("reader", "ann", "bob", "cyd", "stranger")}
    for name in ("ann", "stranger"):
        there.modules[name].join(CLUB).result()
    there.run(5)
    there.install(ports["reader"], EVERYTHING, to=(CLUB, "app"))
    assert destinations(there, ports["ann"]) == ["reader"]
    assert destinations(there, ports["bob"]) == destinations(there, ports["stranger"]) == []
    there.modules["bob"].join(CLUB).result()
    there.run(65)
    assert destinations(there, ports["bob"]) == ["reader"]
    there.modules["ann"].leave(CLUB).result()
    assert destinations(there, ports["ann"]) == []
    there.run(65)
    assert [ports["reader"].receive_item().result(1).source[0] for _ in range(2)] == ["ann", "bob"]
    assert not ports["reader"].receive_item().done()


def test_a_filter_that_has_expired_or_was_removed_reaches_no_later_member(place):
    there = place("reader ann bob cyd")
    ports = {name: there.port(name) for name in ("reader", "ann", "bob", "cyd")}
    there.modules["ann"].join(CLUB).result()
    there.run(5)
    there.install(ports["reader"], "what > '1'", to=(CLUB, "app"), lifetime_s=200.0)
    slot = there.install(ports["reader"], "what > '2'", to=(CLUB, "app"))
    there.run(200)
    there.modules["bob"].join(CLUB).result()
    there.run(65)
    assert destinations(there, ports["bob"]) == ["reader"]  # by the second
    ports["reader"].remove_filter(slot).result()
    there.run(65)
    there.modules["cyd"].join(CLUB).result()
    there.run(65)
    for name in ("ann", "bob", "cyd"):
        assert destinations(there, ports[name]) == []


def test_membership_by_context_follows_the_device(place):
    here = Group("Mountain View", rule="within_box(loc, 37.35, -122.12, 37.43, -122.04)")
    there = place("reader ann")
    reader, ann = there.port("reader"), there.port("ann")
    device = there.lab.devices["ann"]
    device.change_context(loc=(30.0, -97.0))
    there.modules["ann"].join(here).result()
    there.install(reader, EVERYTHING, to=(here, "app"))
    assert destinations(there, ann) == []
    device.change_context(loc=(37.4, -122.1))
    there.run(65)
    assert destinations(there, ann) == ["reader"]
    device.change_context(loc=(30.0, -97.0))
    there.run(1)
    assert destinations(there, ann) == []
    device.change_context(loc=(37.4, -122.1))
    there.run(65)
    assert destinations(there, ann) == ["reader"]


def test_friends_who_come_and_go_are_in_a_groups_filter_from_then_on(place):
    there = place("reader ann")
    there.module("new", ["reader"])
    ports = {name: there.port(name) for name in ("reader", "ann", "new")}
    for name in ("ann", "new"):
        there.modules[name].join(CLUB).result()
    there.run(5)
    there.install(ports["reader"], EVERYTHING, to=(CLUB, "app"))
    assert destinations(there, ports["new"]) == []
    there.modules["reader"].befriend("new").result()
    there.run(65)
    assert destinations(there, ports["new"]) == destinations(there, ports["ann"]) == ["reader"]
    there.modules["reader"].unfriend("ann").result()
    there.run(65)
    assert destinations(there, ports["ann"]) == []
    assert destinations(there, ports["new"]) == ["reader"]


def test_what_an_application_has_decided_stays_when_a_groups_filter_comes_again(place):
    there = place("reader ann")
    there.module("new", ["reader"])
    asked = []
    reader = there.port("reader")
    ann = there.port("ann", on_filter=lambda f, who: asked.append(who) is not None)
    there.modules["ann"].join(CLUB).result()
    there.run(5)
    there.install(reader, EVERYTHING, to=(CLUB, "app"))
    there.modules["reader"].befriend("new").result()
    there.run(65)
    assert asked == ["reader"]
    assert destinations(there, ann) == []
