"""The tiers of a cloud without a lab: who may send, what is passed over, what compute keeps (nothing)."""

from __future__ import annotations

import pytest

from mudkit.events import Ports, Received, Send, SendFailed, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail.servers import Compute, Gateway, Storage
from mudkit.systems.contrail.servers.compute import PAGE_BYTES
from mudkit.wire import as_wire

INSTANCES = ["one", "two", "three"]


def ports(address="here"):
    return Ports(MemoryStore(), lambda n: bytes(n), address)


def told(machine, message, source="ann/contrail", now_us=0):
    return [
        (each.to, as_wire(each.message))
        for each in machine.handle(now_us, Received(source, message))
        if isinstance(each, Send)
    ]


PULL = {"kind": "pull", "device": "bob", "visit": 1, "got": [], "hold": True}
BYE = {"kind": "bye", "device": "bob", "visit": 1}
FILLED = {"kind": "filled", "device": "bob"}
GONE = [("store", {"kind": "gone", "device": "bob"})]


@pytest.fixture
def gateway():
    return Gateway(ports(), INSTANCES, ["store"])


def item(name="a", seq=1, epoch=1, sender="ann", to="bob", expires_us=None, body=b"body"):
    entry = {"device": to, "port": "in", "expires_us": expires_us, "tag": b""}
    return {"kind": "data", "from": sender, "port": "out", "item": name, "seq": seq, "epoch": epoch, "to": [entry], "body": body}  # fmt: skip


def filter_of(number, sender="ann", group=None, to="bob"):
    sealed = {"device": to, "port": "in", "sealed": b"", "signature": b""}
    return {"kind": "filter", "from": sender, "port": "out", "slot": 1, "number": number, "group": group,
            "expires_us": None, "to": [sealed]}  # fmt: skip


def join(device, number, friends):
    return {"kind": "join", "device": device, "number": number, "friends": friends}


def membership(number, joins=True):
    return {"kind": "group", "device": "bob", "number": number, "group": "club", "joins": joins}


def test_nobody_sends_in_anothers_name(gateway):
    assert told(gateway, {"kind": "send", "device": "eve", "number": 1, "message": item()}) == []
    assert len(told(gateway, {"kind": "send", "device": "ann", "number": 1, "message": item()})) == 1


def test_a_request_goes_to_every_instance_once_when_none_is_there(gateway):
    (sent,) = gateway.handle(0, Received("ann/contrail", join("ann", 1, None)))
    tried = [sent.to]
    while effects := gateway.handle(0, SendFailed(sent.to, sent.message)):
        (sent,) = effects
        tried.append(sent.to)
    assert sorted(tried) == sorted(INSTANCES)


def test_a_connection_is_held_as_long_as_the_device_is_there(gateway):
    told(gateway, PULL, "bob/contrail")
    assert told(gateway, FILLED, "store") == [("bob/contrail", {"kind": "filled"})]
    gateway.handle(0, SendFailed("bob/contrail", {"kind": "filled"}))
    assert told(gateway, FILLED, "store") == GONE
    told(gateway, PULL, "bob/contrail")
    told(gateway, BYE, "bob/contrail")
    assert told(gateway, FILLED, "store") == GONE
    told(gateway, {**PULL, "visit": 2}, "bob/contrail")
    told(gateway, {**PULL, "visit": 2, "hold": False}, "bob/contrail")
    assert told(gateway, FILLED, "store") == GONE


class Tiers:
    """A storage, and another compute instance for each step: what is under way is with none of them."""

    def __init__(self, **more):
        mine = {"computes": ["compute"], "units": ["store"], "gateways": ["gateway"]}
        self.storage = Storage(ports("store"), **{"max_waiting": 10, "max_cached": 10, **mine, **more})

    def ask(self, what, now_us=0):
        ask = {"kind": "ask", "gateway": "gateway", "client": "client", "what": what, "tries": 1}
        pending = [("compute", ask)]
        answers = []
        while pending:
            to, message = pending.pop(0)
            if to == "store":
                pending += told(self.storage, message, "compute", now_us)
            elif to == "compute":
                source = "gateway" if message["kind"] == "ask" else "store"
                instance = Compute(ports(), ["store"], "store", 3, 0, ["gateway"])
                pending += told(instance, message, source, now_us)
            elif message["kind"] == "tell":
                answers.append(message["message"])
        return answers

    def send(self, message, now_us=0):
        ((answer),) = self.ask({"kind": "send", "device": "ann", "number": 7, "message": message}, now_us)
        return answer

    def pull(self, got=(), now_us=0):
        (answer,) = self.ask({**PULL, "got": list(got), "hold": False}, now_us)
        return answer


def test_a_copy_for_each_destination_names_no_other():
    tiers = Tiers()
    both = item()
    both["to"] = [both["to"][0], {**both["to"][0], "device": "cyd"}]
    results = [["bob", "in", "ok"], ["cyd", "in", "ok"]]
    assert tiers.send(both) == {"kind": "sent", "number": 7, "results": results}
    page = tiers.pull()["page"]
    assert [[entry["device"] for entry in message["to"]] for _, message in page] == [["bob"]]


def test_what_was_not_confirmed_comes_again_and_a_repeated_upload_waits_once():
    tiers = Tiers()
    tiers.send(item())
    tiers.send(item())
    first = tiers.pull()["page"]
    assert len(first) == 1
    assert tiers.pull()["page"] == first
    assert tiers.pull(got=[first[0][0]])["page"] == []


def test_an_older_copy_does_not_replace_a_newer_one():
    tiers = Tiers()
    tiers.send(item(seq=2, body=b"newer"))
    assert tiers.send(item(seq=1, body=b"older"))["results"] == [["bob", "in", "obsolete"]]
    assert [message["body"] for _, message in tiers.pull()["page"]] == [b"newer"]
    assert tiers.send({**item(seq=1), "body": None})["results"] is None  # nor in the cache
    assert tiers.send({**item(seq=2), "body": None})["results"] == [["bob", "in", "ok"]]


def test_a_groups_filter_that_comes_late_does_not_replace_a_newer_one():
    tiers = Tiers()
    tiers.ask(membership(1))
    for number in (5, 4):
        tiers.send(filter_of(number, group="club"))
    assert [each["number"] for _, each in tiers.pull()["page"]] == [5]
    late = Tiers()
    for number in (5, 4):
        late.send(filter_of(number, group="club"))
    late.ask(membership(1))
    assert [each["number"] for _, each in late.pull()["page"]] == [5]


@pytest.mark.parametrize(("size", "pages"), [(1000, 1), (PAGE_BYTES // 2, 3), (PAGE_BYTES * 2, 3)])
def test_pages_are_bounded_but_hold_one_message(size, pages):
    tiers = Tiers()
    for number in range(3):
        tiers.send(item(f"{number}", seq=number + 1, body=b"x" * size))
    seen, got = 0, []
    while page := (answer := tiers.pull(got))["page"]:
        seen += 1
        got = [number for number, _ in page]
        assert answer["more"] == (seen < pages)
    assert seen == pages


def test_an_instance_serves_one_request_after_the_other():
    compute = Compute(ports(), ["store"], "store", None, 1000, ["g"])
    ask = {"kind": "ask", "gateway": "g", "client": "c", "what": join("ann", 1, None), "tries": 1}
    timers = [*compute.handle(0, Received("g", ask)), *compute.handle(0, Received("g", ask))]
    assert [each.delay_us for each in timers] == [1000]
    done = compute.handle(1000, TimerFired("done"))
    assert type(done[0]) is Send
    assert done[1].delay_us == 1000
    assert len(compute.handle(2000, TimerFired("done"))) == 1


class Adopting:
    """A storage to which another one moves queues."""

    def __init__(self):
        self.storage = Storage(ports("eu"), 10, 10, computes=[], units=["us", "eu"], gateways=[])

    def moves(self, number, device, life="0" * 8, open_from=1):
        """Move the queue of a device with one item; return whether that is acknowledged."""
        message = item(to=device)
        entry = {"slot": "data a", "seq": 1, "expires_us": None, "message": message, "number": 1}
        moving = {
            "kind": "moving", "origin": "us", "incarnation": life, "number": number, "device": device, "version": 1,
            "friends": None, "friends_number": 0, "entries": [entry], "open_from": open_from,
        }  # fmt: skip
        answers = told(self.storage, moving, "us")
        assert answers in ([], [("us", {"kind": "adopted", "incarnation": life, "number": number})])
        return bool(answers)

    def waiting(self, device):
        return len(self.storage._device(device).queue)


def test_queues_are_adopted_once_in_the_order_of_their_moves():
    there = Adopting()
    assert not there.moves(2, "bob")  # the first is missing
    assert there.waiting("bob") == 0
    assert there.moves(1, "ann")
    assert there.moves(2, "bob")
    assert (there.waiting("ann"), there.waiting("bob")) == (1, 1)
    there.storage._device("ann").queue.clear()
    assert there.moves(1, "ann")  # its answer was lost
    assert there.waiting("ann") == 0


def test_a_move_is_adopted_by_a_storage_that_has_missed_the_acknowledged_ones():
    there = Adopting()
    assert there.moves(7, "ann", open_from=7)
    assert there.waiting("ann") == 1


def test_a_queue_of_a_wiped_storage_is_not_taken_for_an_old_one():
    there = Adopting()
    assert there.moves(1, "ann")
    assert there.moves(1, "bob", life="1" * 8)
    assert there.waiting("bob") == 1


@pytest.mark.parametrize("late", [PULL, BYE], ids=["pull", "bye"])
def test_a_late_copy_of_an_earlier_visit_changes_no_connection(gateway, late):
    for visit in (1, 2):
        told(gateway, {**PULL, "visit": visit}, f"bob/contrail {visit}")
    assert told(gateway, late, "bob/contrail 1") == []
    assert told(gateway, FILLED, "store") == [("bob/contrail 2", {"kind": "filled"})]


def test_a_visit_that_is_over_does_not_begin_again(gateway):
    told(gateway, PULL, "bob/contrail")
    told(gateway, BYE, "bob/contrail")
    assert told(gateway, PULL, "bob/contrail") == []
    assert len(told(gateway, {**PULL, "visit": 2}, "bob/contrail")) == 1


def test_a_late_copy_of_a_white_list_changes_nothing():
    tiers = Tiers()
    tiers.ask(join("bob", 2, ["ann"]))
    tiers.ask(join("bob", 1, []))
    assert tiers.send(filter_of(1))["results"] == [["bob", "in", "ok"]]
    tiers.ask(join("bob", 3, []))
    assert tiers.send(filter_of(2))["results"] == [["bob", "in", "stranger"]]
    tiers.ask(join("bob", 4, None))
    tiers.ask(join("bob", 3, []))
    assert tiers.send(filter_of(3))["results"] == [["bob", "in", "ok"]]


def test_a_late_copy_of_a_membership_changes_nothing():
    tiers = Tiers()
    tiers.ask(membership(2))
    tiers.ask(membership(1, joins=False))
    assert tiers.send(filter_of(1, group="club"))["results"] == [["bob", "in", "ok"]]
    tiers.ask(membership(3, joins=False))
    tiers.ask(membership(2))
    assert tiers.send(filter_of(2, group="club"))["results"] == []


def test_a_white_list_moves_with_its_number():
    there = Adopting()
    tiers = Tiers(units=["store", "us"])
    there.storage = tiers.storage
    tiers.ask(join("bob", 2, ["ann"]))
    assert there.moves(1, "bob")  # with an older one, of number 0
    assert tiers.send(filter_of(1, sender="eve"))["results"] == [["bob", "in", "stranger"]]
