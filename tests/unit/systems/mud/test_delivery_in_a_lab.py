"""Delivery over faulty networks: lost bursts, wiped devices, dropped tables, and forged senders."""

from __future__ import annotations

from copy import deepcopy

import pytest
from mud_machines import build_routed, op_of
from mud_place import Place

from mudkit import Lab
from mudkit.errors import AccessDenied, TableProblem
from mudkit.events import Call, Complete, Send
from mudkit.fleet.store import Killed, MemoryStore
from mudkit.systems.mud import AlwaysRemote, Client, Cloud, Conflict, PubSub, freshness
from mudkit.wire import as_wire

FRESH = freshness(1e6)


# -- a lost burst under steady traffic (6)


def create(place, jane, changes):
    return jane.create("other")


def alter(place, jane, changes):
    return jane.alter("news", add={"city": "text"})


def drop(place, jane, changes):
    return jane.drop("gone")


def write(place, jane, changes):
    return jane.write("news", "k", {"n": 1})


def delete(place, jane, changes):
    return jane.delete("news", "old")


def read(place, jane, changes):
    return jane.read("news", "n > 0")


def read_in_order(place, jane, changes):
    jane.write("news", "k", {"n": 1})
    return jane.read("news", type="committed_wio")


def aggregate(place, jane, changes):
    return jane.read("news", aggregate="count(*)")


def register(place, jane, changes):
    return jane.read("news", None, "continuous", callback=print)


def update_data(place, jane, changes):
    return jane.update_data(place.handle, {"age": 3})


def unregister(place, jane, changes):
    return jane.unregister(place.handle)


class Notification:
    """Notification of a write by a continuous read, with the interface of an operation."""

    def __init__(self, changes):
        self._changes = changes

    def done(self):
        return any(change.key == "k" for change in self._changes)


def notification(place, jane, changes):
    place.ann.write("news", "k", {"n": 1})
    return Notification(changes)


REQUESTS = (
    create, alter, drop, write, delete, read, read_in_order, aggregate, register, update_data, unregister,
    notification,
)  # fmt: skip


@pytest.mark.parametrize(("burst_s", "every_s"), [(0.5, 4), (4, 2), (12, 5), (30, 9)])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda function: function.__name__)
def test_lost_burst_is_repaired_within_a_minute_of_steady_traffic(request_, burst_s, every_s):
    place = Place()
    place.lab.device("jane", link="ideal")
    jane, place.ann, changes = place.client("jane", read_policy=AlwaysRemote()), place.client("ann"), []
    for name in ("news", "gone", "others"):
        jane.create(name).result()
    jane.write("news", "old", {"n": 1}).result()
    place.handle = jane.read("news", "n > 0", "continuous", {"age": 30}, callback=changes.append).result()
    place.lab.run(minutes=1)
    place.lab.faults.messages(loss_share=1.0)
    operation = request_(place, jane, changes)
    place.lab.run(seconds=burst_s)
    assert not operation.done()
    place.lab.faults.messages()
    for number in range(int(60 / every_s)):
        jane.read("others", "n > 5")
        if number % 2:
            jane.write("others", "k", {"n": number})
        place.lab.run(seconds=every_s)
        if operation.done():
            break
    assert operation.done()


# -- a wiped device (6)


def wipe(client):
    client.installed.kill()
    client.installed.store = MemoryStore()
    client.installed.start()


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("kind", ["blind", "conditional", "delete"])
def test_wiped_device_can_write(place, before, kind):
    ann = place.client("ann")
    ann.create("news", split=["b"]).result()
    for number in range(before):
        ann.write("news", "ab"[number % 2], {"n": number}).result()
    for life in range(3):
        wipe(ann)
        ann.read("news").result()
        key = f"of life {life}"
        if kind == "delete":
            ann.write("news", key, {"n": 1}).result()
            written = ann.delete("news", key)
        else:
            written = ann.write("news", key, {"n": life}, kind)
        place.lab.run(minutes=1)
        assert written.done()
        assert written.result() == (2 if kind == "delete" else 1)
    result = ann.read("news", latest=True).result().records
    assert set(result) == {
        *"ab"[:before],
        *(() if kind == "delete" else (f"of life {life}" for life in range(3))),
    }


def test_late_copy_of_a_write_before_a_wipe_is_not_applied_again(place):
    """Keep the later write of the wiped device, which has no record of the first one."""
    ann = place.client("ann")
    ann.create("news").result()
    place.lab.world.fault_hook = lambda transfer: (
        (0, 90_000_000) if op_of(as_wire(transfer.message)) in ("ask", "write") else (0,)
    )
    ann.write("news", "a", {"n": "before"}).result()
    place.lab.world.fault_hook = None
    wipe(ann)
    assert ann.write("news", "a", {"n": "after"}).result() == 2
    place.lab.run(minutes=5)
    result = ann.read("news", latest=True).result()
    assert (result.records, result.versions) == ({"a": {"n": "after"}}, {"a": 2})


def test_wiped_device_creates_tables_and_receives_changes(place):
    ann, bob, changes = place.client("ann"), place.client("bob"), []
    ann.create("news").result()
    ann.read("news", type="continuous", callback=print).result()
    wipe(ann)
    ann.create("more").result()
    ann.read("news", type="continuous", callback=changes.append).result()
    bob.write("news", "a", {"n": 1}).result()
    bob.write("more", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert [change.key for change in changes] == ["a"]


# -- a table that was dropped (7)


@pytest.mark.parametrize("seed", range(6, 10))
@pytest.mark.parametrize("is_lost", [False, True])
def test_write_to_a_dropped_table_is_not_read_from_its_successor(seed, is_lost):
    place = Place(seed=seed)
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    ann.create("news", split=["m"]).result()
    ann.read("news").result()
    ann.write("news", "k", {"x": "old"})
    lab.run(seconds=0.04)
    if is_lost:
        lab.faults.cut("ann")  # the answer is lost
    bob.drop("news").result()
    bob.create("news", split=["m"]).result()
    bob.write("news", "k", {"x": "of bob"}).result()
    lab.faults.messages(delay_share=0.5, delay_s=2)
    lab.faults.mend("ann")
    ann.read("news", "key = 'z'").result()
    lab.faults.messages()
    lab.run(minutes=1)
    records = ann.read("news", "key = 'k'", utility=FRESH).result().records
    assert records in ({}, {"k": {"x": "of bob"}})
    if not records:
        with pytest.raises(Conflict):
            ann.write("news", "k", {"x": "of ann"}, "conditional").result()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_late_answer_of_a_dropped_table_is_not_stored(place, kind):
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    ann.create("news").result()
    if kind == "read":
        bob.write("news", "k", {"x": "old"}).result()
    lab.run(minutes=1)
    late_kinds = {"read": ("part", "complete"), "write": ("outcome",)}[kind]
    address = lab.devices["ann"].address

    def fault_hook(transfer):
        is_late = transfer.to.startswith(address) and as_wire(transfer.message)["kind"] in late_kinds
        return (8_000_000,) if is_late else (0,)

    lab.world.fault_hook = fault_hook
    operation = ann.write("news", "k", {"x": "old"}) if kind == "write" else ann.read("news")
    lab.run(seconds=3)
    lab.world.fault_hook = None
    bob.drop("news").result()
    bob.create("news").result()
    bob.write("news", "k", {"x": "of bob"}).result()
    ann.read("news", "key = 'z'").result()
    lab.run(minutes=1)
    assert operation.done()
    assert ann.read("news", "key = 'k'", utility=FRESH).result().records in ({}, {"k": {"x": "of bob"}})
    assert all(row["record"] != {"x": "old"} for row in ann.holdings("news").result())


def test_pending_write_to_a_dropped_table_is_refused_by_its_successor(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("news").result()
    ann.read("news").result()
    place.lab.faults.cut("ann")
    write = ann.write("news", "k", {"x": "old"})
    bob.drop("news").result()
    bob.create("news").result()
    place.lab.faults.mend("ann")
    with pytest.raises(TableProblem):
        write.result()
    assert bob.read("news", latest=True).result().records == {}


def test_write_that_follows_one_to_a_dropped_table_is_refused_by_its_successor(place):
    """Mobius 4.1: a conditional write replaces the version that it is based on, not one of another table."""
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    bob.create("news").result()
    first = ann.write("news", "k", {"x": "first"}, "conditional")  # ann does not know the table's number
    second = ann.write("news", "k", {"x": "second"}, "conditional")
    sent = []

    def lose_second(transfer):
        if not transfer.source.startswith("ann/") or as_wire(transfer.message)["kind"] != "ask":
            return (0,)
        sent.append(transfer)
        return () if len(sent) > 1 else (0,)

    lab.world.fault_hook = lose_second
    assert first.result() == 1
    lab.run(seconds=1)
    assert len(sent) > 1
    bob.drop("news").result()
    bob.create("news").result()
    assert bob.write("news", "k", {"x": "of bob"}).result() == 1
    lab.world.fault_hook = None
    with pytest.raises(TableProblem):
        second.result()
    assert bob.read("news", latest=True).result().records == {"k": {"x": "of bob"}}


# -- forged senders (5)


class Evil:
    """Machine that sends any message to any address."""

    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        if isinstance(event, Call):
            return [Send(event.arguments["to"], event.arguments["message"]), Complete(event.op_id)]
        return ()


CLAIMS = {"app": "news", "user": "ann", "device": None, "expires_s": 1e9}
FORGED = {"id": "ann/news e.1", "reply": "evil/x", "endpoint": "ann/news", "claims": CLAIMS, "name": "news"}


@pytest.mark.parametrize("message", [
    build_routed("write", **FORGED, incarnation="e", number=99, data={"t": "forged"}),
    build_routed("read", **FORGED, latest=True), build_routed("drop", **FORGED),
    build_routed("register", **FORGED, sync_us=0),
    {"kind": "follow", "turn": "0" * 16}, {"kind": "has", "lsn": 1 << 50},
    {"kind": "log", "entries": [{"lsn": 1 << 50, "op": "drop", "name": "news"}]},
    {"kind": "stream", "stream": "mud-processor-1 1", "number": 1, "first": 1, "body": {"what": "life"}},
], ids=op_of)  # fmt: skip
def test_forged_messages_to_servers_are_dropped(place, message):
    ann, receivers = place.client("ann"), []
    ann.create("news", acl="user").result()
    ann.write("news", "a", {"t": 1}, predicate="auth.user = 'ann'").result()
    evil = place.lab.device("evil").install("mud", Evil, name="x")
    place.lab.world.fault_hook = lambda transfer: receivers.append(transfer.to) or (0,)
    servers = [
        process.address
        for name, host in place.lab.world.hosts.items()
        if name not in place.lab.devices
        for process in host.processes
    ]
    assert len(servers) >= 6
    for to in servers:
        evil.call("x", to=to, message=message).result()
    place.lab.run(minutes=1)
    assert not any(to.startswith(place.lab.devices["evil"].address) for to in receivers)
    assert ann.read("news", latest=True).result().records == {"a": {"t": 1}}
    incidents = place.lab.frame("incidents")
    assert (incidents["incident"] == "dropped").sum() == len(servers)


def test_token_bound_to_a_device_is_refused_on_another(place):
    ann = place.client("ann")
    ann.create("news", acl="user").result()
    token = place.lab.token(user="ann", app="news", device="ann")
    eve = place.client("eve", token=token)
    with pytest.raises(AccessDenied, match="another device"):
        eve.read("news").result()


# -- kills between a commit and its callbacks


def kill_at(process, place, point):
    """Kill a machine at one of its next commits, counted from 0; return a function that counts them."""
    passed = []

    def crash_point(name):
        if name == point:
            passed.append(name)
            if len(passed) == place + 1:
                raise Killed

    process.store.crash_point = crash_point
    return lambda: len(passed)


@pytest.mark.parametrize("point", ["before commit", "after commit"])
@pytest.mark.parametrize("commit", range(4))
def test_each_change_reaches_the_listener_also_after_a_kill(commit, point):
    lab = Lab(seed=1)
    cloud = Cloud(lab)
    ann, bob = (
        Client(lab.device(name), cloud, app="app", token=lab.token(name, "app")) for name in ("ann", "bob")
    )
    ann.create("t").result()
    changes, ended = {}, {}
    """Notifications by id; a repeat is equal."""
    repeated = []

    def receive(notification):
        known = ended if isinstance(notification, dict) else changes
        if notification.id in known:
            repeated.append(notification.id)
            assert known[notification.id] == notification
        known[notification.id] = deepcopy(notification)
        if known is changes:
            notification.record["n"].append("changed by the application")

    bob.read("t", type="continuous", callback=receive).result()
    lab.run(minutes=1)
    count_commits = kill_at(bob.installed, commit, point)
    for number, key in enumerate("kl"):
        ann.write("t", key, {"n": [number]}).result()
        lab.run(seconds=5)
    assert count_commits() == commit + 1
    lab.faults.restart("bob")
    lab.run(minutes=5)
    delivered = [(change.key, change.record) for change in changes.values()]
    assert delivered == [("k", {"n": [0]}), ("l", {"n": [1]})]
    assert len(repeated) <= 1
    kill_at(bob.installed, commit % 2, point)
    ann.drop("t").result()
    lab.run(seconds=5)
    lab.faults.restart("bob")
    lab.run(minutes=5)
    assert len(ended) == 1
    assert len(repeated) <= 2


def test_subscriber_recognises_a_repeated_message_by_its_id():
    lab = Lab(seed=1)
    cloud = Cloud(lab)
    ann, bob = (
        Client(lab.device(name), cloud, app="app", token=lab.token(name, "app")) for name in ("ann", "bob")
    )
    ann.create("t").result()
    messages = []
    PubSub(bob, "t").subscribe("arts", messages.append).result()
    lab.run(seconds=1)
    kill_at(bob.installed, 1, "before commit")  # after the callback
    PubSub(ann, "t").publish("arts", text="one").result()
    lab.run(seconds=5)
    lab.faults.restart("bob")
    lab.run(minutes=5)
    assert [message["text"] for message in messages] == ["one", "one"]
    assert messages[0].id == messages[1].id
