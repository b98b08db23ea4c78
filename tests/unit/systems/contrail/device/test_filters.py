"""Filters at the sender, groups of publishers, and secrets visible to relays."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from contrail_place import EVERYTHING, build_item, open_ports
from msgspec.structs import replace

from mudkit.errors import FailureWarning, ParameterError, PredicateError
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.contrail import Group, Item, Published
from mudkit.systems.contrail.device import filters as filters_module
from mudkit.systems.contrail.device.filters import (
    MAX_FILTERS,
    InstalledFilter,
    InstalledFilters,
    SentFilter,
)

CLUB = Group("club")


def get_receivers(place, port, item):
    return [device for device, _ in place.publish(port, item).result().destinations]


@pytest.mark.parametrize("encrypted", [True, False])
def test_relays_see_all_secrets_without_encryption_and_none_with_it(make_place, encrypted):
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd", encrypted=encrypted)
    place.modules["ann"].join(Group("club")).result()
    place.install(bob, "what = 'metadata of red' AND size > 3", to=("ann", "app"))
    place.install(cyd, "what LIKE '%blue%'", to=(Group("club"), "app"))
    place.publish(ann, build_item("red", size=4, tag="the family")).result()
    place.publish(ann, build_item("blue", tag="the office")).result()
    place.run(65)
    assert bob.receive_item().result().metadata["tag"] == "the family"
    assert cyd.receive_item().result().metadata["tag"] == "the office"
    assert len(place.secrets) == 8
    assert place.seen_by_relays() == (set() if encrypted else place.secrets)


def test_application_accepts_or_rejects_filters(make_place):
    place = make_place("ann bob cyd")
    calls = []

    def decide(predicate, name):
        calls.append((predicate, name))
        return name == "bob"

    ann = place.port("ann", on_filter=decide)
    for name in ("bob", "cyd"):
        place.install(place.port(name), EVERYTHING, to=("ann", "app"))
    assert get_receivers(place, ann, build_item("x")) == ["bob"]
    assert [(p.text, name) for p, name in calls] == [(EVERYTHING, "bob"), (EVERYTHING, "cyd")]
    assert isinstance(calls[0][0], Predicate)


def test_undecided_filter_matches_nothing_and_early_one_waits(make_place):
    place = make_place("ann bob")
    place.port("ann", "other")
    place.install(place.port("bob"), EVERYTHING, to=("ann", "app"))
    ann = place.port("ann")  # opened after the filter has arrived
    assert get_receivers(place, ann, build_item("x")) == ["bob"]


def test_filter_is_not_accepted_if_the_callback_fails(make_place):
    place = make_place("ann bob")

    def decide(predicate, name):
        raise RuntimeError("undecided")

    ann = place.port("ann", on_filter=decide)
    with pytest.warns(FailureWarning, match="undecided"):
        place.install(place.port("bob"), EVERYTHING, to=("ann", "app"))
    assert list(place.lab.problems["device"]) == ["ann"]
    place.run(65)
    assert get_receivers(place, ann, build_item("x")) == []


def test_decisions_survive_a_crash_and_pending_ones_are_requested_again(make_place):
    place = make_place("ann bob cyd")
    answers = {"bob": True}
    calls = []

    def decide(predicate, name):
        calls.append(name)
        place.lab.faults.kill("ann") if name == "cyd" and calls.count("cyd") == 1 else None
        return answers.get(name, True)

    ann = place.port("ann", on_filter=decide)
    for name in ("bob", "cyd"):
        place.install(place.port(name), EVERYTHING, to=("ann", "app"))
    place.lab.faults.restart("ann")
    place.run(5)
    assert calls == ["bob", "cyd", "cyd"]
    assert get_receivers(place, ann, build_item("x")) == ["bob", "cyd"]


@pytest.mark.parametrize("expiry", ["soon", -1, 1.5, [], 1 << 70, True])
def test_received_filter_with_an_invalid_expiration_is_refused(make_place, expiry, monkeypatch):
    place, ann, bob = open_ports(make_place, "ann bob")
    with pytest.raises(ParameterError):
        bob.install_filter(EVERYTHING, to=("ann", "app"), item_expires_s=expiry if expiry != 1.5 else "1.5")
    encode = msgspec.json.encode

    def forge(message, **options):  # by a module that does not check its arguments
        is_filter = isinstance(message, SentFilter)
        return encode(replace(message, item_expires_us=expiry) if is_filter else message, **options)

    monkeypatch.setattr(msgspec.json, "encode", forge)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    monkeypatch.undo()
    assert get_receivers(place, ann, build_item("x")) == []
    assert place.counts("ann") == {"refused filters": 1}
    assert place.lab.problems.empty
    place.install(bob, EVERYTHING, to=("ann", "app"))
    assert get_receivers(place, ann, build_item("x")) == ["bob"]


def test_filter_is_replaced_and_removed(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    slot = place.install(bob, "what = 'metadata of red'", to=("ann", "app"))
    assert place.install(bob, "what = 'metadata of blue'", to=("ann", "app"), replaces=slot) == slot
    assert get_receivers(place, ann, build_item("red")) == []
    assert get_receivers(place, ann, build_item("blue")) == ["bob"]
    with pytest.raises(ParameterError, match="can replace"):
        bob.install_filter(EVERYTHING, to=("ann", "other"), replaces=slot).result()
    bob.remove_filter(slot).result()
    place.run(35)
    assert get_receivers(place, ann, build_item("blue")) == []


def test_item_matched_by_a_removed_filter_is_not_accepted(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    slot = place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("late")).result()
    bob.remove_filter(slot).result()
    place.run(65)
    assert not bob.receive_item().done()
    assert place.counts("bob") == {"not asked for": 2}  # the item and its key


def test_failing_filter_matches_nothing_is_reported_and_affects_no_other(make_place, request):
    place = make_place("ann bob cyd")

    @function("contrail_trap", returns="number", argument_kinds=("string",))
    def trap(text):
        raise ZeroDivisionError("trapped")

    request.addfinalizer(lambda: remove("contrail_trap"))
    ann, bob, cyd = place.port("ann"), place.port("bob"), place.port("cyd")
    place.install(bob, "contrail_trap(what) = 1", to=("ann", "app"))
    place.install(cyd, EVERYTHING, to=("ann", "app"))
    assert get_receivers(place, ann, build_item("x")) == ["cyd"]
    assert [type(problem) for problem in place.problems["ann"]] == [PredicateError]
    assert place.counts("ann") == {"filters that raised": 1}
    remove("contrail_trap")
    place.lab.faults.kill("ann")  # restarted, it cannot parse the filter
    place.lab.faults.restart("ann")
    place.run(1)
    assert get_receivers(place, ann, build_item("x")) == ["cyd"]
    trapped = function("contrail_trap", returns="number", argument_kinds=("string",))
    trapped(trap)  # for the finalizer


def test_filter_over_the_limit_of_a_device_is_refused_and_others_stay(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    for number in range(MAX_FILTERS + 1):
        predicate = f"n = {number}"
        place.secrets.add(predicate)
        bob.install_filter(predicate, to=("ann", "app")).result()
    place.run(65)
    assert [
        len(get_receivers(place, ann, build_item("x", n=n))) for n in (0, MAX_FILTERS - 1, MAX_FILTERS)
    ] == [
        1,
        1,
        0,
    ]
    assert [type(problem) for problem in place.problems["ann"]] == [ParameterError]
    assert place.counts("ann") == {"refused filters": 1}


def test_operations_on_a_port_that_is_not_open_are_refused(make_place):
    place = make_place("ann bob")
    ann = place.port("ann")
    ann.name = "never opened"
    for call in (ann.publish(Item({})), ann.receive_item(), ann.install_filter("x = 1", to=("bob", "app"))):
        with pytest.raises(ParameterError, match="not open"):
            call.result()


@pytest.mark.parametrize(
    ("expirations_s", "longest_us"),
    [((10.0, 100.0), 100_000_000), ((100.0, 10.0), 100_000_000), ((10.0, None), None), ((None, 10.0), None)],
)
def test_longest_expiration_of_several_matching_filters_applies(make_place, expirations_s, longest_us):
    """None is no expiration, which is longer than any."""
    place, ann, bob = open_ports(make_place, "ann bob")
    for number, expires_s in enumerate(expirations_s):
        place.install(bob, f"what > '{number}'", to=("ann", "app"), item_expires_s=expires_s)
    delivered = place.handed("bob")
    now_us = place.lab.world.now_us
    assert place.publish(ann, build_item("x")).result() == Published((("bob", "app"),), uploaded=True)
    place.run(35)
    (expires_us,) = [message["to"][0]["expires_us"] for message in delivered if message["kind"] == "data"]
    assert expires_us == (None if longest_us is None else now_us + longest_us)


# -- groups


def get_destinations(place, port, text="x"):
    return [device for device, _ in place.publish(port, build_item(text)).result().destinations]


def test_group_filter_reaches_current_and_later_members_who_are_friends(make_place):
    place = make_place("reader ann bob cyd")
    place.module("stranger", ["ann"])
    ports = {name: place.port(name) for name in ("reader", "ann", "bob", "cyd", "stranger")}
    for name in ("ann", "stranger"):
        place.modules[name].join(CLUB).result()
    place.run(5)
    place.install(ports["reader"], EVERYTHING, to=(CLUB, "app"))
    assert get_destinations(place, ports["ann"]) == ["reader"]
    assert get_destinations(place, ports["bob"]) == get_destinations(place, ports["stranger"]) == []
    place.modules["bob"].join(CLUB).result()
    place.run(65)
    assert get_destinations(place, ports["bob"]) == ["reader"]
    place.modules["ann"].leave(CLUB).result()
    assert get_destinations(place, ports["ann"]) == []
    place.run(65)
    assert [ports["reader"].receive_item().result(1).source[0] for _ in range(2)] == ["ann", "bob"]
    assert not ports["reader"].receive_item().done()


def test_expired_or_removed_group_filter_reaches_no_later_member(make_place):
    place = make_place("reader ann bob cyd")
    ports = {name: place.port(name) for name in ("reader", "ann", "bob", "cyd")}
    place.modules["ann"].join(CLUB).result()
    place.run(5)
    place.install(ports["reader"], "what > '1'", to=(CLUB, "app"), lifetime_s=200.0)
    slot = place.install(ports["reader"], "what > '2'", to=(CLUB, "app"))
    place.run(200)
    place.modules["bob"].join(CLUB).result()
    place.run(65)
    assert get_destinations(place, ports["bob"]) == ["reader"]  # matched by the second filter
    ports["reader"].remove_filter(slot).result()
    place.run(65)
    place.modules["cyd"].join(CLUB).result()
    place.run(65)
    for name in ("ann", "bob", "cyd"):
        assert get_destinations(place, ports[name]) == []


@pytest.mark.parametrize("has_restarted", [False, True])
def test_membership_by_context_follows_the_device(make_place, has_restarted):
    """A rule is durable: it is the application's (:class:`Groups`)."""
    group = Group("Mountain View", rule="within_box(loc, 37.35, -122.12, 37.43, -122.04)")
    place = make_place("reader ann")
    reader, ann = place.port("reader"), place.port("ann")
    device = place.lab.devices["ann"]
    device.change_context(loc=(30.0, -97.0))
    place.modules["ann"].join(group).result()
    place.install(reader, EVERYTHING, to=(group, "app"))
    assert get_destinations(place, ann) == []
    if has_restarted:
        place.lab.faults.kill("ann")
        place.lab.faults.restart("ann")
        place.run(65)
    device.change_context(loc=(37.4, -122.1))
    place.run(65)
    assert get_destinations(place, ann) == ["reader"]
    device.change_context(loc=(30.0, -97.0))
    place.run(1)
    assert get_destinations(place, ann) == []
    device.change_context(loc=(37.4, -122.1))
    place.run(65)
    assert get_destinations(place, ann) == ["reader"]


def test_group_filter_follows_changes_of_friends(make_place):
    place = make_place("reader ann")
    place.module("new", ["reader"])
    ports = {name: place.port(name) for name in ("reader", "ann", "new")}
    for name in ("ann", "new"):
        place.modules[name].join(CLUB).result()
    place.run(5)
    place.install(ports["reader"], EVERYTHING, to=(CLUB, "app"))
    assert get_destinations(place, ports["new"]) == []
    place.modules["reader"].befriend("new").result()
    place.run(65)
    assert get_destinations(place, ports["new"]) == get_destinations(place, ports["ann"]) == ["reader"]
    place.modules["reader"].unfriend("ann").result()
    place.run(65)
    assert get_destinations(place, ports["ann"]) == []
    assert get_destinations(place, ports["new"]) == ["reader"]


def test_copy_of_a_filter_is_no_new_one(make_place):
    """See :meth:`Filters.receive`: a filter has a number, by which a copy of it is recognised."""
    place = make_place("ann bob")
    calls = []
    place.port("ann", on_filter=lambda f, device: calls.append(device) is None)
    delivered = place.handed("ann")
    place.install(place.port("bob"), EVERYTHING, to=("ann", "app"))
    (copy,) = (message for message in delivered if message["kind"] == "filter")
    place.machine("ann")._receiving.receive(copy)
    place.modules["ann"].installed.store.commit()
    place.run(65)
    assert calls == ["bob"]
    assert place.counts("ann") == {"duplicate filters": 1}


def test_oldest_of_too_many_expired_filters_is_forgotten(monkeypatch):
    """See :meth:`InstalledFilters.add`: items that are under way for the others are still accepted."""
    monkeypatch.setattr(filters_module, "MAX_EXPIRED", 2)
    installed = InstalledFilters(SimpleNamespace(store=MemoryStore(), now_us=100))
    lasting = InstalledFilter("app", "ann", None, "app")
    installed.add(1, lasting)
    for slot in range(2, 6):
        installed.add(slot, replace(lasting, expires_us=slot))
    assert [slot for slot, _ in installed.items()] == [1, 4, 5]


def test_decision_persists_when_a_group_filter_is_received_again(make_place):
    place = make_place("reader ann")
    place.module("new", ["reader"])
    calls = []
    reader = place.port("reader")
    ann = place.port("ann", on_filter=lambda f, device: calls.append(device) is not None)
    place.modules["ann"].join(CLUB).result()
    place.run(5)
    place.install(reader, EVERYTHING, to=(CLUB, "app"))
    place.modules["reader"].befriend("new").result()
    place.run(65)
    assert calls == ["reader"]
    assert get_destinations(place, ann) == []
