"""What modules and clouds keep is bounded, however long it goes on, and what is forgotten does no harm."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, arranged, marked, opened, payloads

from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail import Backlogged, Group, Published, QueueFull, Relay
from mudkit.systems.contrail.device import connection as outbox_module
from mudkit.systems.contrail.device import filters as filters_module
from mudkit.systems.contrail.device import receiving as receiving_module
from mudkit.systems.contrail.device import sending as sending_module
from mudkit.systems.contrail.messages import Filter, SealedFor
from mudkit.systems.contrail.servers import contents as contents_module


def kept(there, name):
    """How many keys of each kind a host's machine has in its store."""
    store = there.store(name)
    result = {}
    for key, _ in store.items(""):
        result[key.split(" ")[0]] = result.get(key.split(" ")[0], 0) + 1
    return result


@pytest.mark.soak
def test_what_is_seen_and_known_by_name_is_bounded_over_a_month(place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_SEEN", 40)
    monkeypatch.setattr(sending_module, "MAX_NAMED", 10)
    there = place("ann bob", max_cached=20)
    ann, bob = there.port("ann", polling_interval_ms=1e7), there.port("bob", polling_interval_ms=3e6)
    there.install(bob, EVERYTHING, to=("ann", "app"), lifetime_s=None)
    got = payloads(bob)
    sizes = []
    for day in range(30):
        for number in range(10):
            there.publish(ann, marked(f"{day} {number}"), None if number % 2 else f"{day} {number}")
            there.run(8640)
        sizes.append({name: kept(there, name) for name in ("ann", "bob", "relay1-storage")})
    assert len(got) == len(set(got)) == 300
    assert sizes[-1]["bob"]["seen"] <= 2 * 40
    assert sizes[-1]["ann"]["item"] <= 10
    assert sizes[-1]["relay1-storage"]["item"] <= 20
    totals = [sum(each[name][kind] for name in each for kind in each[name]) for each in sizes]
    assert max(totals[20:]) <= max(totals[10:20]) + 40  # it goes up and down, and no higher
    first = there.handed("bob")
    there.publish(ann, marked("29 0"), "29 0").result()  # known by its name: a duplicate
    there.publish(ann, marked("0 0"), "0 0").result()  # no more: a new one
    there.run(4000)
    assert got[300:] == [b"payload of 0 0"]
    assert [each["kind"] for each in first].count("data") == 2


def test_a_copy_that_is_too_far_behind_is_obsolete(place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_SEEN", 5)
    there, ann, bob = arranged(place, "ann bob")
    seen = there.handed("bob")
    for number in range(20):
        there.publish(ann, marked(f"{number}"), f"{number}").result()
    there.run(35)
    machine, items = there.machine("bob"), [each for each in seen if each["kind"] == "data"]
    before = dict(there.counts("bob"))
    for each in items:
        machine._receiving.receive(each)
    there.store("bob").commit()
    assert {name: count - before.get(name, 0) for name, count in there.counts("bob").items()} == {
        "obsolete": 15,
        "duplicate": 5,  # five are remembered
    }
    assert len(bob.receive_all().result()) == 20


@pytest.mark.soak
def test_filters_that_come_and_go_leave_a_bounded_trace(place, monkeypatch):
    monkeypatch.setattr(filters_module, "MAX_OF_DEVICE", 8)
    monkeypatch.setattr(filters_module, "MAX_EXPIRED", 5)
    there, ann, bob = opened(place, "ann bob")
    club = Group("club")
    there.modules["ann"].join(club).result()
    there.run(5)
    there.install(bob, "what > 'lasting'", to=(club, "app"))
    seen = there.handed("ann")
    for number in range(30):
        there.install(bob, f"what > '{number}'", to=("ann", "app"), lifetime_s=100.0)
        there.run(40)
        slot = there.install(bob, f"what > '{number} too'", to=("ann", f"never opened {number}"))
        bob.remove_filter(slot).result()
        there.run(35)
        there.publish(ann, marked("x")).result()  # what has expired is noticed
    assert kept(there, "ann")["filter"] <= 8 + 8
    assert kept(there, "bob")["asked"] <= 5 + 1 + 2
    there.modules["ann"].leave(club).result()
    assert there.publish(ann, marked("x")).result().destinations == ()
    there.modules["ann"].join(club).result()
    there.run(35)
    assert there.publish(ann, marked("later")).result().destinations  # by the one that lasts, an old one
    before = there.counts("ann").get("obsolete filters", 0)
    machine = there.machine("ann")
    for each in seen[:10]:
        machine._receiving.receive(each)  # forgotten, and no new ones either
    there.store("ann").commit()
    assert there.counts("ann")["obsolete filters"] == before + 10


@pytest.mark.soak
def test_a_relay_that_never_comes_back_costs_a_bounded_place(place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 20)
    there = place("ann bob", relays=2, module={"renew_s": 500.0})
    ann, bob = (there.port(name, polling_interval_ms=60_000) for name in ("ann", "bob"))
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.kill("relay1")
    got = payloads(bob)
    for number in range(50):
        assert isinstance(there.publish(ann, marked(f"{number}"), f"{number}").result(), Published)
        there.run(300)
    assert len(got) == len(set(got)) == 50
    assert kept(there, "ann")["out"] <= 2 * 20
    there.restart_cloud()
    there.run(600)
    assert kept(there, "ann").get("out", 0) == 0
    assert len(got) == 50
    there.kill("relay2")  # now the other one
    there.publish(ann, marked("after"), "after").result()
    there.run(100)
    assert got[50:] == [b"payload of after"]


def test_what_a_full_outbox_left_out_is_uploaded_there_the_next_time(place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 3)
    there, ann, _bob = arranged(place, "ann bob", relays=2)
    there.lab.faults.kill("relay1-gateway")
    for name in "abcd":  # the last one finds no room
        assert there.publish(ann, marked(name), name).result().uploaded
    there.lab.faults.restart("relay1-gateway")
    there.run(200)
    cached = there.store("relay1-storage")
    names = lambda: [key.split("\n")[2] for key, _ in cached.items("item ann\n")]  # noqa: E731
    assert names() == ["a", "b"]  # and a key
    assert [there.publish(ann, marked("d"), "d").result().uploaded for _ in range(2)] == [True, False]
    there.run(5)
    assert names() == ["a", "b", "d"]


def test_without_any_relay_an_item_or_a_filter_is_refused_in_the_end(place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 5)
    there, ann, bob = opened(place, "ann bob")
    slot = there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("key"), "key").result()
    for name in ("ann", "bob"):
        there.lab.faults.cut(name)
    calls = [there.publish(ann, marked(f"{n}"), f"{n}") for n in range(8)]
    assert [each.done() for each in calls] == [False] * 5 + [True] * 3
    assert calls[-1].result() == Backlogged((("bob", "app"),))
    there.secrets |= {f"what > '{number}'" for number in range(8)}
    for number in range(5):
        bob.install_filter(f"what > '{number}'", to=("ann", "app"))
    for refused in (
        lambda: bob.install_filter("what > '6'", to=("ann", "app")),
        lambda: bob.remove_filter(slot),
    ):
        with pytest.raises(QueueFull):
            refused().result()
    for name in ("ann", "bob"):
        there.lab.faults.mend(name)
    there.run(65)
    assert [each.result().destinations for each in calls[:5]] == [(("bob", "app"),)] * 5
    assert len(bob.receive_all().result()) == 6
    there.secrets -= {f"what > '{number}'" for number in range(5, 8)}  # never sent


def test_an_inbox_that_nobody_reads_is_bounded_and_what_it_dropped_may_come_again(place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_KEPT", 3)
    there, ann, bob = arranged(place, "ann bob")
    for number in range(5):
        there.publish(ann, marked(f"{number}"), f"{number}").result()
    there.run(35)
    assert there.counts("bob") == {"no room": 2}
    assert len(bob.receive_all().result()) == 3
    there.publish(ann, marked("4"), "4").result()
    there.run(35)
    assert [each.payload for each in bob.receive_all().result()] == [b"payload of 4"]


def test_a_queue_takes_so_many_filters_and_keys_and_a_key_that_was_refused_comes_later(place, monkeypatch):
    monkeypatch.setattr(contents_module, "MAX_CONTROLS", 2)
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.cut("bob")
    there.secrets |= {"what > '1'", "what > '2'"}
    for number in (1, 2):
        cyd.install_filter(f"what > '{number}'", to=("bob", "app")).result()
    with pytest.raises(QueueFull):
        cyd.install_filter("what > '3'", to=("bob", "app")).result()
    there.publish(ann, marked("a"), "a").result()  # without its key
    there.lab.faults.mend("bob")
    there.run(35)
    assert bob.receive_all().result() == []
    there.publish(ann, marked("b"), "b").result()
    there.run(35)
    assert [each.payload for each in bob.receive_all().result()] == [b"payload of a", b"payload of b"]


def test_filters_of_a_group_are_bounded_by_device(monkeypatch):
    monkeypatch.setattr(contents_module, "MAX_FILTERS", 3)
    store = MemoryStore()
    groups = contents_module.PublisherGroups(store)
    to = [SealedFor("bob", "in", b"", b"")]

    def spread(source, slot, expires_us=None):
        groups.spread(50, "club", Filter(source, "in", slot, slot, "club", expires_us, to))

    spread("cyd", 1)
    for slot in (2, 3, 4):
        spread("ann", slot, 40 if slot == 3 else None)
    spread("ann", 5)  # the third has expired
    assert [each.slot for each in groups.join(50, "club", "bob", 1)] == [2, 4, 5, 1]  # by who sent them
    spread("ann", 6)
    again = contents_module.PublisherGroups(store)
    assert [each.slot for each in again.join(50, "club", "bob", 2)] == [4, 5, 6, 1]


def test_storages_store_nothing_of_moves_that_are_over(place):
    centres = {"us": (37.0, -122.0), "eu": (52.0, 5.0)}
    there = place("ann bob", centres=centres, move_after=1)
    for name in ("ann", "bob"):
        there.port(name, polling_interval_ms=5_000)
    sizes = []
    for number in range(20):
        for name in ("ann", "bob"):
            there.lab.devices[name].change_context(loc=centres["us" if number % 2 else "eu"])
        there.run(20)
        sizes.append([kept(there, f"relay1-storage-{centre}") for centre in centres])
    assert not any(each.get("moving") for each in sizes[-1])
    assert sum(sum(each.values()) for each in sizes[-1]) <= sum(sum(each.values()) for each in sizes[3]) + 2


def test_a_friend_whose_module_is_not_there_yet_has_not_tampered(tmp_path, place):
    def begin(names):
        there = Place(seed=3)
        there.lab.server("kept-storage", storage=tmp_path / "storage")
        there.relays = [Relay(there.lab, name="kept")]
        for name in names:
            there.module(name, [each for each in ("ann", "bob") if each != name], storage=tmp_path / name)
        return there

    def end(there):
        for host in there.lab.world.hosts.values():
            for process in host.processes:
                if host.storage is not None:
                    process.store.close()

    there = begin(("ann", "bob"))
    ann, bob = there.port("ann"), there.port("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("one"), "one").result()
    there.run(35)
    assert len(bob.receive_all().result()) == 1
    there.lab.faults.cut("bob")
    there.publish(ann, marked("two"), "two").result()
    end(there)
    there = begin(("bob",))
    bob = there.port("bob")
    there.run(65)
    assert there.problems["bob"] == []
    assert there.counts("bob") == {}
    there.module("ann", ["bob"], storage=tmp_path / "ann")
    there.run(65)
    assert [each.payload for each in bob.receive_all().result()] == [b"payload of two"]
    end(there)


def test_ports_forget_what_their_modules_know(place):
    there, ann, bob = arranged(place, "ann bob")
    for number in range(5):
        there.publish(ann, marked(f"{number}")).result()
    there.run(35)
    for _ in range(2):
        bob.receive_item().result()
    assert len(bob.receive_all().result()) == 3
    there.run(1)
    assert not bob._taken
