"""Nothing waits for ever, nothing is lost, nothing comes from a table that is gone: over networks as they are."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import AccessDenied, TableProblem
from mudkit.events import Call, Complete, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import AlwaysRemote, Conflict, freshness
from mudkit.wire import as_wire

FRESH = freshness(1e6)


# -- a lost burst under steady traffic (6)


def create(place, jane, answer):
    return jane.create("other")


def alter(place, jane, answer):
    return jane.alter("news", add={"city": "text"})


def drop(place, jane, answer):
    return jane.drop("gone")


def write(place, jane, answer):
    return jane.write("news", "k", {"n": 1})


def delete(place, jane, answer):
    return jane.delete("news", "old")


def read(place, jane, answer):
    return jane.read("news", "n > 0")


def read_in_order(place, jane, answer):
    jane.write("news", "k", {"n": 1})
    return jane.read("news", type="committed_wio")


def aggregate(place, jane, answer):
    return jane.read("news", aggregate="count(*)")


def register(place, jane, answer):
    return jane.read("news", None, "continuous", callback=print)


def update_data(place, jane, answer):
    return jane.update_data(place.handle, {"age": 3})


def unregister(place, jane, answer):
    return jane.unregister(place.handle)


class Told:
    """What a continuous read is told of a write, as if it were an operation."""

    def __init__(self, answer):
        self._told = answer

    def done(self):
        return any(each.key == "k" for each in self._told)


def notification(place, jane, answer):
    place.ann.write("news", "k", {"n": 1})
    return Told(answer)


REQUESTS = (
    create, alter, drop, write, delete, read, read_in_order, aggregate, register, update_data, unregister,
    notification,
)  # fmt: skip


@pytest.mark.parametrize(("burst_s", "every_s"), [(0.5, 4), (4, 2), (12, 5), (30, 9)])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.__name__)
def test_what_a_burst_has_lost_comes_within_a_minute_under_steady_traffic(request_, burst_s, every_s):
    place = Place()
    place.lab.device("jane", link="ideal")
    jane, place.ann, answer = place.client("jane", read_policy=AlwaysRemote()), place.client("ann"), []
    for name in ("news", "gone", "others"):
        jane.create(name).result()
    jane.write("news", "old", {"n": 1}).result()
    place.handle = jane.read("news", "n > 0", "continuous", {"age": 30}, callback=answer.append).result()
    place.lab.run(minutes=1)
    place.lab.faults.messages(loss_share=1.0)
    made = request_(place, jane, answer)
    place.lab.run(seconds=burst_s)
    assert not made.done()
    place.lab.faults.messages()
    for number in range(int(60 / every_s)):
        jane.read("others", "n > 5")
        if number % 2:
            jane.write("others", "k", {"n": number})
        place.lab.run(seconds=every_s)
        if made.done():
            break
    assert made.done()


# -- a wiped device (6)


def wipe(client):
    client.installed.kill()
    client.installed.store = MemoryStore()
    client.installed.start()


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("kind", ["blind", "conditional", "delete"])
def test_a_device_that_is_wiped_writes_on(place, before, kind):
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


def test_a_late_copy_of_a_life_before_is_not_applied_again(place):
    """Over what was written since: by the same device, which has forgotten that it wrote before."""
    ann = place.client("ann")
    ann.create("news").result()
    place.lab.world.fault_hook = lambda transfer: (
        (0, 90_000_000) if as_wire(transfer.message)["kind"] in ("ask", "write") else (0,)
    )
    ann.write("news", "a", {"n": "before"}).result()
    place.lab.world.fault_hook = None
    wipe(ann)
    assert ann.write("news", "a", {"n": "after"}).result() == 2
    place.lab.run(minutes=5)
    result = ann.read("news", latest=True).result()
    assert (result.records, result.versions) == ({"a": {"n": "after"}}, {"a": 2})


def test_a_wiped_device_makes_tables_and_is_told_again(place):
    ann, bob, answer = place.client("ann"), place.client("bob"), []
    ann.create("news").result()
    ann.read("news", type="continuous", callback=print).result()
    wipe(ann)
    ann.create("more").result()
    ann.read("news", type="continuous", callback=answer.append).result()
    bob.write("news", "a", {"n": 1}).result()
    bob.write("more", "a", {"n": 1}).result()
    place.lab.run(minutes=1)
    assert [each.key for each in answer] == ["a"]


# -- a table that was dropped (7)


@pytest.mark.parametrize("seed", range(6, 10))
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_was_written_into_a_table_that_was_dropped_is_no_row_of_the_next(seed, is_lost):
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
    seen = ann.read("news", "key = 'k'", utility=FRESH).result().records
    assert seen in ({}, {"k": {"x": "of bob"}})
    if not seen:
        with pytest.raises(Conflict):
            ann.write("news", "k", {"x": "of ann"}, "conditional").result()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_late_answer_of_a_table_that_was_dropped_leaves_no_ghost(place, kind):
    lab, ann, bob = place.lab, place.client("ann"), place.client("bob")
    ann.create("news").result()
    if kind == "read":
        bob.write("news", "k", {"x": "old"}).result()
    lab.run(minutes=1)
    late = {"read": ("part", "complete"), "write": ("outcome",)}[kind]
    address = lab.devices["ann"].address

    def fault_hook(transfer):
        is_late = transfer.to.startswith(address) and as_wire(transfer.message)["kind"] in late
        return (8_000_000,) if is_late else (0,)

    lab.world.fault_hook = fault_hook
    old = ann.write("news", "k", {"x": "old"}) if kind == "write" else ann.read("news")
    lab.run(seconds=3)
    lab.world.fault_hook = None
    bob.drop("news").result()
    bob.create("news").result()
    bob.write("news", "k", {"x": "of bob"}).result()
    ann.read("news", "key = 'z'").result()
    lab.run(minutes=1)
    assert old.done()
    assert ann.read("news", "key = 'k'", utility=FRESH).result().records in ({}, {"k": {"x": "of bob"}})
    assert all(each["record"] != {"x": "old"} for each in ann.holdings("news").result())


def test_a_write_for_a_table_that_was_dropped_is_none_into_the_next(place):
    ann, bob = place.client("ann"), place.client("bob")
    ann.create("news").result()
    ann.read("news").result()
    place.lab.faults.cut("ann")
    made = ann.write("news", "k", {"x": "old"})
    bob.drop("news").result()
    bob.create("news").result()
    place.lab.faults.mend("ann")
    with pytest.raises(TableProblem):
        made.result()
    assert bob.read("news", latest=True).result().records == {}


# -- forged senders (5)


class Evil:
    """Sends whatever it is given, to whom it is given."""

    def __init__(self, ports):
        pass

    def handle(self, now_us, event):
        if isinstance(event, Call):
            return [Send(event.arguments["to"], event.arguments["message"]), Complete(event.op_id)]
        return ()


CLAIMS = {"app": "news", "user": "ann", "device": None, "expires_s": 1e9}
WRITE = {
    "kind": "write", "id": "ann/news e.1", "reply": "evil/x", "client": "ann/news", "incarnation": "e", "number": 99,
    "known": 1, "refused": None, "claims": CLAIMS, "name": "news", "table": None, "key": "a", "data": {"t": "forged"},
    "type": "blind", "predicate": None, "replaces": None, "reader": {},
}  # fmt: skip
READ = {
    "kind": "read", "id": "ann/news e.2", "reply": "evil/x", "name": "news", "table": 1, "partition": 0, "keys": None,
    "predicate": None, "reader": {}, "auth": {"app": "news", "user": "ann"}, "aggregate": None, "latest": True, "least": 0,
}  # fmt: skip


@pytest.mark.parametrize("message", [
    WRITE, READ, {"kind": "follow", "turn": "0" * 16}, {"kind": "has", "lsn": 1 << 50},
    {"kind": "admin", "op": "drop", "id": "ann/news e.3", "name": "news", "claims": CLAIMS, "properties": {}},
    {"kind": "log", "entries": [{"lsn": 1 << 50, "op": "drop", "name": "news"}]},
    {"kind": "stream", "stream": "mud-processor-1 1", "number": 1, "first": 1, "body": {"what": "life"}},
], ids=lambda each: each["kind"])  # fmt: skip
def test_nobody_gets_past_the_gateway_with_claims_of_his_own(place, message):
    ann, heard = place.client("ann"), []
    ann.create("news", acl="user").result()
    ann.write("news", "a", {"t": 1}, predicate="auth.user = 'ann'").result()
    evil = place.lab.device("evil").install("mud", Evil, name="x")
    place.lab.world.fault_hook = lambda transfer: heard.append(transfer.to) or (0,)
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
    assert not any(to.startswith(place.lab.devices["evil"].address) for to in heard)
    assert ann.read("news", latest=True).result().records == {"a": {"t": 1}}
    incidents = place.lab.frame("incidents")
    assert (incidents["incident"] == "dropped").sum() == len(servers)


def test_a_token_that_was_overheard_is_of_no_use_on_another_device_when_it_names_one(place):
    ann = place.client("ann")
    ann.create("news", acl="user").result()
    token = place.lab.token(user="ann", app="news", device="ann")
    eve = place.client("eve", token=token)
    with pytest.raises(AccessDenied, match="another device"):
        eve.read("news").result()
