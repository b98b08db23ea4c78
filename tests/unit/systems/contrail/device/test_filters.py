"""Filters at the sender, groups of publishers, and what relays see without a cipher."""

from __future__ import annotations

import msgspec
import pytest
from contrail_place import EVERYTHING, marked, opened
from msgspec.structs import replace

from mudkit.errors import FailureWarning, ParameterError, PredicateError
from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.contrail import Group, Item, Published
from mudkit.systems.contrail.device.filters import MAX_FILTERS, SentFilter

CLUB = Group("club")


def who(there, port, item):
    return [device for device, _ in there.publish(port, item).result().destinations]


@pytest.mark.parametrize("encrypted", [True, False])
def test_relays_see_everything_without_encryption_and_nothing_with_it(place, encrypted):
    there, ann, bob, cyd = opened(place, "ann bob cyd", encrypted=encrypted)
    there.modules["ann"].join(Group("club")).result()
    there.install(bob, "what = 'metadata of red' AND size > 3", to=("ann", "app"))
    there.install(cyd, "what LIKE '%blue%'", to=(Group("club"), "app"))
    there.publish(ann, marked("red", size=4, tag="the family")).result()
    there.publish(ann, marked("blue", tag="the office")).result()
    there.run(65)
    assert bob.receive_item().result().metadata["tag"] == "the family"
    assert cyd.receive_item().result().metadata["tag"] == "the office"
    assert len(there.secrets) == 8
    assert there.seen_by_relays() == (set() if encrypted else there.secrets)


def test_an_application_accepts_or_rejects(place):
    there = place("ann bob cyd")
    asked = []

    def decide(predicate, name):
        asked.append((predicate, name))
        return name == "bob"

    ann = there.port("ann", on_filter=decide)
    for name in ("bob", "cyd"):
        there.install(there.port(name), EVERYTHING, to=("ann", "app"))
    assert who(there, ann, marked("x")) == ["bob"]
    assert [(p.text, name) for p, name in asked] == [(EVERYTHING, "bob"), (EVERYTHING, "cyd")]
    assert isinstance(asked[0][0], Predicate)


def test_a_filter_that_nobody_has_decided_matches_nothing_and_one_that_came_early_waits(place):
    there = place("ann bob")
    there.port("ann", "other")
    there.install(there.port("bob"), EVERYTHING, to=("ann", "app"))
    ann = there.port("ann")  # opened when the filter is there already
    assert who(there, ann, marked("x")) == ["bob"]


def test_an_application_that_fails_to_decide_has_not_accepted(place):
    there = place("ann bob")

    def decide(predicate, name):
        raise RuntimeError("undecided")

    ann = there.port("ann", on_filter=decide)
    with pytest.warns(FailureWarning, match="undecided"):
        there.install(there.port("bob"), EVERYTHING, to=("ann", "app"))
    assert list(there.lab.problems["device"]) == ["ann"]
    there.run(65)
    assert who(there, ann, marked("x")) == []


def test_a_decision_outlives_the_module_and_an_open_question_is_asked_again(place):
    there = place("ann bob cyd")
    answers = {"bob": True}
    asked = []

    def decide(predicate, name):
        asked.append(name)
        there.lab.faults.kill("ann") if name == "cyd" and asked.count("cyd") == 1 else None
        return answers.get(name, True)

    ann = there.port("ann", on_filter=decide)
    for name in ("bob", "cyd"):
        there.install(there.port(name), EVERYTHING, to=("ann", "app"))
    there.lab.faults.restart("ann")
    there.run(5)
    assert asked == ["bob", "cyd", "cyd"]
    assert who(there, ann, marked("x")) == ["bob", "cyd"]


@pytest.mark.parametrize("expiry", ["soon", -1, 1.5, [], 1 << 70, True])
def test_a_filter_with_no_number_as_expiry_is_refused_when_it_comes(place, expiry, monkeypatch):
    there, ann, bob = opened(place, "ann bob")
    with pytest.raises(ParameterError):
        bob.install_filter(EVERYTHING, to=("ann", "app"), item_expires_s=expiry if expiry != 1.5 else "1.5")
    encode = msgspec.json.encode

    def forged(sent, **more):  # of a module that does not check what it is given
        is_filter = isinstance(sent, SentFilter)
        return encode(replace(sent, item_expires_us=expiry) if is_filter else sent, **more)

    monkeypatch.setattr(msgspec.json, "encode", forged)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    monkeypatch.undo()
    assert who(there, ann, marked("x")) == []
    assert there.counts("ann") == {"refused filters": 1}
    assert there.lab.problems.empty
    there.install(bob, EVERYTHING, to=("ann", "app"))
    assert who(there, ann, marked("x")) == ["bob"]


def test_a_filter_is_replaced_and_removed(place):
    there, ann, bob = opened(place, "ann bob")
    slot = there.install(bob, "what = 'metadata of red'", to=("ann", "app"))
    assert there.install(bob, "what = 'metadata of blue'", to=("ann", "app"), replaces=slot) == slot
    assert who(there, ann, marked("red")) == []
    assert who(there, ann, marked("blue")) == ["bob"]
    with pytest.raises(ParameterError, match="can replace"):
        bob.install_filter(EVERYTHING, to=("ann", "other"), replaces=slot).result()
    bob.remove_filter(slot).result()
    there.run(35)
    assert who(there, ann, marked("blue")) == []


def test_an_item_that_comes_because_of_a_filter_taken_back_is_not_accepted(place):
    there, ann, bob = opened(place, "ann bob")
    slot = there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("late")).result()
    bob.remove_filter(slot).result()
    there.run(65)
    assert not bob.receive_item().done()
    assert there.counts("bob") == {"not asked for": 2}  # its key, too


def test_a_filter_that_raises_matches_nothing_is_reported_and_stops_nobody(place, request):
    there = place("ann bob cyd")

    @function("contrail_trap", returns="number", argument_kinds=("string",))
    def trap(text):
        raise ZeroDivisionError("trapped")

    request.addfinalizer(lambda: remove("contrail_trap"))
    ann, bob, cyd = there.port("ann"), there.port("bob"), there.port("cyd")
    there.install(bob, "contrail_trap(what) = 1", to=("ann", "app"))
    there.install(cyd, EVERYTHING, to=("ann", "app"))
    assert who(there, ann, marked("x")) == ["cyd"]
    assert [type(each) for each in there.problems["ann"]] == [PredicateError]
    assert there.counts("ann") == {"filters that raised": 1}
    remove("contrail_trap")
    there.lab.faults.kill("ann")  # its next life cannot even read the filter
    there.lab.faults.restart("ann")
    there.run(1)
    assert who(there, ann, marked("x")) == ["cyd"]
    trapped = function("contrail_trap", returns="number", argument_kinds=("string",))
    trapped(trap)  # for the finalizer


def test_one_filter_too_many_of_a_device_is_refused_and_the_others_stay(place):
    there, ann, bob = opened(place, "ann bob")
    for number in range(MAX_FILTERS + 1):
        predicate = f"n = {number}"
        there.secrets.add(predicate)
        bob.install_filter(predicate, to=("ann", "app")).result()
    there.run(65)
    assert [len(who(there, ann, marked("x", n=n))) for n in (0, MAX_FILTERS - 1, MAX_FILTERS)] == [1, 1, 0]
    assert [type(each) for each in there.problems["ann"]] == [ParameterError]
    assert there.counts("ann") == {"refused filters": 1}


def test_a_port_that_is_not_open_is_none(place):
    there = place("ann bob")
    ann = there.port("ann")
    ann.name = "never opened"
    for call in (ann.publish(Item({})), ann.receive_item(), ann.install_filter("x = 1", to=("bob", "app"))):
        with pytest.raises(ParameterError, match="not open"):
            call.result()


def test_the_longest_wish_counts_when_several_filters_match(place):
    there, ann, bob = opened(place, "ann bob")
    there.install(bob, "what > '1'", to=("ann", "app"), item_expires_s=10.0)
    there.install(bob, "what > '2'", to=("ann", "app"), item_expires_s=100.0)
    seen = there.handed("bob")
    now_us = there.lab.world.now_us
    assert there.publish(ann, marked("x")).result() == Published((("bob", "app"),), uploaded=True)
    there.run(35)
    assert [each["to"][0]["expires_us"] - now_us for each in seen if each["kind"] == "data"] == [100_000_000]


# -- groups


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
