"""Bounds of the state of modules and clouds, and the consequences of reaching them."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, build_item, install_filters, open_ports, payloads

from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail import Backlogged, Group, Published, QueueFull, Relay
from mudkit.systems.contrail.device import connection as outbox_module
from mudkit.systems.contrail.device import filters as filters_module
from mudkit.systems.contrail.device import receiving as receiving_module
from mudkit.systems.contrail.device import sending as sending_module
from mudkit.systems.contrail.messages import Filter, SealedFor
from mudkit.systems.contrail.servers import contents as contents_module


def count_keys(place, name):
    """Count the keys of each kind in the store of a host."""
    store = place.store(name)
    counts = {}
    for key, _ in store.items(""):
        counts[key.split(" ")[0]] = counts.get(key.split(" ")[0], 0) + 1
    return counts


@pytest.mark.soak
def test_seen_and_named_items_are_bounded_over_a_month(make_place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_SEEN", 40)
    monkeypatch.setattr(sending_module, "MAX_NAMED", 10)
    place = make_place("ann bob", max_cached=20)
    ann, bob = place.port("ann", polling_interval_ms=1e7), place.port("bob", polling_interval_ms=3e6)
    place.install(bob, EVERYTHING, to=("ann", "app"), lifetime_s=None)
    received = payloads(bob)
    sizes = []
    for day in range(30):
        for number in range(10):
            place.publish(ann, build_item(f"{day} {number}"), None if number % 2 else f"{day} {number}")
            place.run(8640)
        sizes.append({name: count_keys(place, name) for name in ("ann", "bob", "relay1-storage")})
    assert len(received) == len(set(received)) == 300
    assert sizes[-1]["bob"]["seen"] <= 2 * 40
    assert sizes[-1]["ann"]["item"] <= 10
    assert sizes[-1]["relay1-storage"]["item"] <= 20
    totals = [sum(counts[name][kind] for name in counts for kind in counts[name]) for counts in sizes]
    assert max(totals[20:]) <= max(totals[10:20]) + 40  # it varies, but does not grow
    delivered = place.handed("bob")
    place.publish(ann, build_item("29 0"), "29 0").result()  # its name is remembered: a duplicate
    place.publish(ann, build_item("0 0"), "0 0").result()  # its name is forgotten: a new item
    place.run(4000)
    assert received[300:] == [b"payload of 0 0"]
    assert [message["kind"] for message in delivered].count("data") == 2


def test_last_names_of_a_port_are_remembered(make_place, monkeypatch):
    """Content that is published under a remembered name again is a retransmission (Contrail 3.4.1)."""
    monkeypatch.setattr(sending_module, "MAX_NAMED", 3)
    place, ann, bob = install_filters(make_place, "ann bob")
    for number in range(4):
        place.publish(ann, build_item(f"{number}"), f"{number}").result()
    assert count_keys(place, "ann")["item"] == count_keys(place, "ann")["named"] == 3
    place.run(65)
    received = payloads(bob)
    for number in (3, 0):
        place.publish(ann, build_item(f"{number}"), f"{number}").result()
    place.run(65)
    assert received == [f"payload of {number}".encode() for number in (0, 1, 2, 3, 0)]
    assert place.counts("bob") == {"duplicate": 1}


def test_copy_of_an_item_older_than_the_window_is_obsolete(make_place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_SEEN", 5)
    place, ann, bob = install_filters(make_place, "ann bob")
    delivered = place.handed("bob")
    for number in range(20):
        place.publish(ann, build_item(f"{number}"), f"{number}").result()
    place.run(35)
    machine, items = place.machine("bob"), [message for message in delivered if message["kind"] == "data"]
    before = dict(place.counts("bob"))
    for message in items:
        machine._receiving.receive(message)
    place.store("bob").commit()
    assert {name: count - before.get(name, 0) for name, count in place.counts("bob").items()} == {
        "obsolete": 15,
        "duplicate": 5,  # the five in the window
    }
    assert len(bob.receive_all().result()) == 20


@pytest.mark.soak
def test_state_of_expired_and_removed_filters_is_bounded(make_place, monkeypatch):
    monkeypatch.setattr(filters_module, "MAX_OF_DEVICE", 8)
    monkeypatch.setattr(filters_module, "MAX_EXPIRED", 5)
    place, ann, bob = open_ports(make_place, "ann bob")
    club = Group("club")
    place.modules["ann"].join(club).result()
    place.run(5)
    place.install(bob, "what > 'lasting'", to=(club, "app"))
    delivered = place.handed("ann")
    for number in range(30):
        place.install(bob, f"what > '{number}'", to=("ann", "app"), lifetime_s=100.0)
        place.run(40)
        slot = place.install(bob, f"what > '{number} too'", to=("ann", f"never opened {number}"))
        bob.remove_filter(slot).result()
        place.run(35)
        place.publish(ann, build_item("x")).result()  # removes expired filters
    assert count_keys(place, "ann")["filter"] <= 8 + 8
    assert count_keys(place, "bob")["asked"] <= 5 + 1 + 2
    place.modules["ann"].leave(club).result()
    assert place.publish(ann, build_item("x")).result().destinations == ()
    place.modules["ann"].join(club).result()
    place.run(35)
    assert place.publish(ann, build_item("later")).result().destinations  # matched by the lasting filter
    before = place.counts("ann").get("obsolete filters", 0)
    machine = place.machine("ann")
    for message in delivered[:10]:
        machine._receiving.receive(message)  # forgotten, but not installed as new ones
    place.store("ann").commit()
    assert place.counts("ann")["obsolete filters"] == before + 10


@pytest.mark.soak
def test_outbox_for_an_unreachable_relay_is_bounded(make_place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 20)
    place = make_place("ann bob", relays=2, module={"renew_s": 500.0})
    ann, bob = (place.port(name, polling_interval_ms=60_000) for name in ("ann", "bob"))
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.kill("relay1")
    received = payloads(bob)
    for number in range(50):
        assert isinstance(place.publish(ann, build_item(f"{number}"), f"{number}").result(), Published)
        place.run(300)
    assert len(received) == len(set(received)) == 50
    assert count_keys(place, "ann")["out"] <= 2 * 20
    place.restart_cloud()
    place.run(600)
    assert count_keys(place, "ann").get("out", 0) == 0
    assert len(received) == 50
    place.kill("relay2")  # the other relay
    place.publish(ann, build_item("after"), "after").result()
    place.run(100)
    assert received[50:] == [b"payload of after"]


def test_item_left_out_of_a_full_outbox_is_uploaded_next_time(make_place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 3)
    place, ann, _bob = install_filters(make_place, "ann bob", relays=2)
    place.lab.faults.kill("relay1-gateway")
    for name in "abcd":  # the last one does not fit
        assert place.publish(ann, build_item(name), name).result().uploaded
    place.lab.faults.restart("relay1-gateway")
    place.run(200)
    cached = place.store("relay1-storage")
    list_names = lambda: [key.split("\n")[2] for key, _ in cached.items("item ann\n")]  # noqa: E731
    assert list_names() == ["a", "b"]  # besides the key
    assert [place.publish(ann, build_item("d"), "d").result().uploaded for _ in range(2)] == [True, False]
    place.run(5)
    assert list_names() == ["a", "b", "d"]


def test_full_outbox_without_relays_refuses_items_and_filters(make_place, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_OUT", 5)
    place, ann, bob = open_ports(make_place, "ann bob")
    slot = place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("key"), "key").result()
    for name in ("ann", "bob"):
        place.lab.faults.cut(name)
    calls = [place.publish(ann, build_item(f"{n}"), f"{n}") for n in range(8)]
    assert [call.done() for call in calls] == [False] * 5 + [True] * 3
    assert calls[-1].result() == Backlogged((("bob", "app"),))
    place.secrets |= {f"what > '{number}'" for number in range(8)}
    for number in range(5):
        bob.install_filter(f"what > '{number}'", to=("ann", "app"))
    for change_filter in (
        lambda: bob.install_filter("what > '6'", to=("ann", "app")),
        lambda: bob.remove_filter(slot),
    ):
        with pytest.raises(QueueFull):
            change_filter().result()
    for name in ("ann", "bob"):
        place.lab.faults.mend(name)
    place.run(65)
    assert [call.result().destinations for call in calls[:5]] == [(("bob", "app"),)] * 5
    assert len(bob.receive_all().result()) == 6
    place.secrets -= {f"what > '{number}'" for number in range(5, 8)}  # never sent


def test_full_inbox_drops_items_that_may_be_sent_again(make_place, monkeypatch):
    monkeypatch.setattr(receiving_module, "MAX_KEPT", 3)
    place, ann, bob = install_filters(make_place, "ann bob")
    for number in range(5):
        place.publish(ann, build_item(f"{number}"), f"{number}").result()
    place.run(35)
    assert place.counts("bob") == {"no room": 2}
    assert len(bob.receive_all().result()) == 3
    place.publish(ann, build_item("4"), "4").result()
    place.run(35)
    assert [item.payload for item in bob.receive_all().result()] == [b"payload of 4"]


def test_full_queue_refuses_filters_and_a_refused_key_is_resent_later(make_place, monkeypatch):
    monkeypatch.setattr(contents_module, "MAX_CONTROLS", 2)
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.lab.faults.cut("bob")
    place.secrets |= {"what > '1'", "what > '2'"}
    for number in (1, 2):
        cyd.install_filter(f"what > '{number}'", to=("bob", "app")).result()
    with pytest.raises(QueueFull):
        cyd.install_filter("what > '3'", to=("bob", "app")).result()
    place.publish(ann, build_item("a"), "a").result()  # without its key
    place.lab.faults.mend("bob")
    place.run(35)
    assert bob.receive_all().result() == []
    place.publish(ann, build_item("b"), "b").result()
    place.run(35)
    assert [item.payload for item in bob.receive_all().result()] == [b"payload of a", b"payload of b"]


def test_filters_of_a_group_are_bounded_per_device(monkeypatch):
    monkeypatch.setattr(contents_module, "MAX_FILTERS", 3)
    store = MemoryStore()
    groups = contents_module.PublisherGroups(store)
    to = [SealedFor("bob", "in", b"", b"")]

    def spread(source, slot, expires_us=None):
        groups.add_filter(50, "club", Filter(source, "in", slot, slot, "club", expires_us, to))

    spread("cyd", 1)
    for slot in (2, 3, 4):
        spread("ann", slot, 40 if slot == 3 else None)
    spread("ann", 5)  # the one in slot 3 has expired
    assert [entry.slot for entry in groups.join(50, "club", "bob", 1)] == [2, 4, 5, 1]  # grouped by sender
    spread("ann", 6)
    restored = contents_module.PublisherGroups(store)
    assert [entry.slot for entry in restored.join(50, "club", "bob", 2)] == [4, 5, 6, 1]


def test_completed_moves_leave_no_state_in_storages(make_place):
    centres = {"us": (37.0, -122.0), "eu": (52.0, 5.0)}
    place = make_place("ann bob", centres=centres, move_after=1)
    for name in ("ann", "bob"):
        place.port(name, polling_interval_ms=5_000)
    sizes = []
    for number in range(20):
        for name in ("ann", "bob"):
            place.lab.devices[name].change_context(loc=centres["us" if number % 2 else "eu"])
        place.run(20)
        sizes.append([count_keys(place, f"relay1-storage-{centre}") for centre in centres])
    assert not any(counts.get("moving") for counts in sizes[-1])
    assert (
        sum(sum(counts.values()) for counts in sizes[-1])
        <= sum(sum(counts.values()) for counts in sizes[3]) + 2
    )


def test_item_of_a_friend_without_a_module_yet_waits_for_its_keys(tmp_path, make_place):
    def start(names):
        place = Place(seed=3)
        place.lab.server("kept-storage", storage=tmp_path / "storage")
        place.relays = [Relay(place.lab, name="kept")]
        for name in names:
            place.module(
                name, [friend for friend in ("ann", "bob") if friend != name], storage=tmp_path / name
            )
        return place

    def close_stores(place):
        for host in place.lab.world.hosts.values():
            for process in host.processes:
                if host.storage is not None:
                    process.store.close()

    place = start(("ann", "bob"))
    ann, bob = place.port("ann"), place.port("bob")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("one"), "one").result()
    place.run(35)
    assert len(bob.receive_all().result()) == 1
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("two"), "two").result()
    close_stores(place)
    place = start(("bob",))
    bob = place.port("bob")
    place.run(65)
    assert place.problems["bob"] == []
    assert place.counts("bob") == {}
    place.module("ann", ["bob"], storage=tmp_path / "ann")
    place.run(65)
    assert [item.payload for item in bob.receive_all().result()] == [b"payload of two"]
    close_stores(place)


def test_ports_forget_processed_items_once_the_module_knows(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    for number in range(5):
        place.publish(ann, build_item(f"{number}")).result()
    place.run(35)
    for _ in range(2):
        bob.receive_item().result()
    assert len(bob.receive_all().result()) == 3
    place.run(1)
    assert not bob._taken
