"""Servers of a cloud without a lab: gateways, stateless compute instances, and storages."""

from __future__ import annotations

import pytest

from mudkit.events import Ports, Received, Send, SendFailed, size_bytes
from mudkit.fleet.store import MemoryStore
from mudkit.systems.contrail.servers import Compute, Gateway, Storage
from mudkit.systems.contrail.servers.compute import PAGE_BYTES
from mudkit.systems.contrail.servers.contents import Queue
from mudkit.wire import as_wire

INSTANCES = ["one", "two", "three"]


def build_ports(address="here"):
    return Ports(MemoryStore(), lambda n: bytes(n), address)


def handle(machine, message, source="ann/contrail", now_us=0):
    return [
        (effect.to, as_wire(effect.message))
        for effect in machine.handle(now_us, Received(source, message))
        if isinstance(effect, Send)
    ]


PULL = {"kind": "pull", "device": "bob", "visit": 1, "got": [], "hold": True}
BYE = {"kind": "bye", "device": "bob", "visit": 1}
FILLED = {"kind": "filled", "device": "bob"}
GONE = [("store", {"kind": "gone", "device": "bob"})]


@pytest.fixture
def gateway():
    return Gateway(build_ports(), INSTANCES, ["store"])


def build_item(name="a", seq=1, epoch=1, sender="ann", to="bob", expires_us=None, body=b"body"):
    entry = {"device": to, "port": "in", "expires_us": expires_us, "tag": b""}
    return {"kind": "data", "from": sender, "port": "out", "item": name, "seq": seq, "epoch": epoch, "to": [entry], "body": body}  # fmt: skip


def build_filter(number, sender="ann", group=None, to="bob"):
    sealed = {"device": to, "port": "in", "sealed": b"", "signature": b""}
    return {"kind": "filter", "from": sender, "port": "out", "slot": 1, "number": number, "group": group,
            "expires_us": None, "to": [sealed]}  # fmt: skip


def build_join(device, number, friends):
    return {"kind": "join", "device": device, "number": number, "friends": friends}


def build_membership(number, joins=True):
    return {"kind": "group", "device": "bob", "number": number, "group": "club", "joins": joins}


def test_send_in_the_name_of_another_device_is_refused(gateway):
    assert handle(gateway, {"kind": "send", "device": "eve", "number": 1, "message": build_item()}) == []
    assert len(handle(gateway, {"kind": "send", "device": "ann", "number": 1, "message": build_item()})) == 1


def test_request_tries_each_unreachable_instance_once(gateway):
    (sent,) = gateway.handle(0, Received("ann/contrail", build_join("ann", 1, None)))
    destinations = [sent.to]
    while effects := gateway.handle(0, SendFailed(sent.to, sent.message)):
        (sent,) = effects
        destinations.append(sent.to)
    assert sorted(destinations) == sorted(INSTANCES)


def test_connection_is_held_until_the_device_leaves(gateway):
    handle(gateway, PULL, "bob/contrail")
    assert handle(gateway, FILLED, "store") == [("bob/contrail", {"kind": "filled"})]
    gateway.handle(0, SendFailed("bob/contrail", {"kind": "filled"}))
    assert handle(gateway, FILLED, "store") == GONE
    handle(gateway, PULL, "bob/contrail")
    handle(gateway, BYE, "bob/contrail")
    assert handle(gateway, FILLED, "store") == GONE
    handle(gateway, {**PULL, "visit": 2}, "bob/contrail")
    handle(gateway, {**PULL, "visit": 2, "hold": False}, "bob/contrail")
    assert handle(gateway, FILLED, "store") == GONE


class Tiers:
    """A storage, and a new compute instance for each step: instances keep no state."""

    def __init__(self, **options):
        defaults = {"computes": ["compute"], "units": ["store"], "gateways": ["gateway"]}
        self.ports, self.options = (
            build_ports("store"),
            {"max_waiting": 10, "max_cached": 10, **defaults, **options},
        )
        self.notified = []
        self.restart()

    def restart(self):
        self.storage = Storage(self.ports, **self.options)

    def request(self, content, now_us=0):
        ask = {"kind": "ask", "gateway": "gateway", "client": "client", "what": content, "tries": 1}
        pending = [("compute", ask)]
        answers = []
        while pending:
            to, message = pending.pop(0)
            if to == "store":
                pending += handle(self.storage, message, "compute", now_us)
            elif to == "compute":
                source = "gateway" if message["kind"] == "ask" else "store"
                instance = Compute(build_ports(), ["store"], "store", 3, ["gateway"])
                pending += handle(instance, message, source, now_us)
            elif message["kind"] == "tell":
                answers.append(message["message"])
            elif message["kind"] == "filled":
                self.notified.append((to, message["device"]))
        return answers

    def send(self, message, now_us=0, number=7):
        request = {"kind": "send", "device": "ann", "number": number, "message": message}
        (answer,) = self.request(request, now_us)
        return answer

    def pull(self, acked=(), now_us=0, hold=False):
        (answer,) = self.request({**PULL, "got": list(acked), "hold": hold}, now_us)
        return answer


def test_copy_for_a_destination_names_no_other():
    tiers = Tiers()
    both = build_item()
    both["to"] = [both["to"][0], {**both["to"][0], "device": "cyd"}]
    results = [["bob", "in", "ok"], ["cyd", "in", "ok"]]
    assert tiers.send(both) == {"kind": "sent", "number": 7, "results": results}
    page = tiers.pull()["page"]
    assert [[entry["device"] for entry in message["to"]] for _, message in page] == [["bob"]]


def test_unacknowledged_items_are_resent_and_duplicates_queued_once():
    tiers = Tiers()
    tiers.send(build_item())
    tiers.send(build_item())
    page = tiers.pull()["page"]
    assert len(page) == 1
    assert tiers.pull()["page"] == page
    assert tiers.pull(acked=[page[0][0]])["page"] == []


def test_older_item_does_not_replace_a_newer_one():
    tiers = Tiers()
    tiers.send(build_item(seq=2, body=b"newer"))
    assert tiers.send(build_item(seq=1, body=b"older"))["results"] == [["bob", "in", "obsolete"]]
    assert [message["body"] for _, message in tiers.pull()["page"]] == [b"newer"]
    assert tiers.send({**build_item(seq=1), "body": None})["results"] is None  # nor in the cache
    assert tiers.send({**build_item(seq=2), "body": None})["results"] == [["bob", "in", "ok"]]


def test_late_group_filter_does_not_replace_a_newer_one():
    tiers = Tiers()
    tiers.request(build_membership(1))
    for number in (5, 4):
        tiers.send(build_filter(number, group="club"))
    assert [message["number"] for _, message in tiers.pull()["page"]] == [5]
    late_tiers = Tiers()
    for number in (5, 4):
        late_tiers.send(build_filter(number, group="club"))
    late_tiers.request(build_membership(1))
    assert [message["number"] for _, message in late_tiers.pull()["page"]] == [5]


@pytest.mark.parametrize(("size", "pages"), [(1000, 1), (PAGE_BYTES // 2, 3), (PAGE_BYTES * 2, 3)])
def test_pages_are_bounded_but_hold_one_message(size, pages):
    tiers = Tiers()
    for number in range(3):
        tiers.send(build_item(f"{number}", seq=number + 1, body=b"x" * size))
    count, acked = 0, []
    while page := (answer := tiers.pull(acked))["page"]:
        count += 1
        acked = [number for number, _ in page]
        assert answer["more"] == (count < pages)
    assert count == pages


def test_page_is_full_at_its_size_and_not_before():
    """See :meth:`Queue.read`: the first entries up to a size."""
    tiers = Tiers()
    for number in (1, 2):
        tiers.send(build_item(f"{number}", seq=number))
    queue = Queue(tiers.ports.store, "bob")
    page, _ = queue.read(0, 10_000)
    both = sum(size_bytes(message) for _, message in page)
    assert [(len(page), more) for page, more in (queue.read(0, both), queue.read(0, both - 1))] == [
        (2, False),
        (1, True),
    ]


class Adopter:
    """A storage to which another one moves queues."""

    def __init__(self):
        self.storage = Storage(build_ports("eu"), 10, 10, computes=[], units=["us", "eu"], gateways=[])

    def adopt(self, number, device, incarnation="0" * 8, open_from=1):
        """Move the queue of a device with one item; return whether that is acknowledged."""
        message = build_item(to=device)
        entry = {"slot": "data a", "seq": 1, "expires_us": None, "message": message, "number": 1}
        moving = {
            "kind": "moving", "origin": "us", "incarnation": incarnation, "number": number, "device": device,
            "version": 1, "friends": None, "friends_number": 0, "entries": [entry], "open_from": open_from,
        }  # fmt: skip
        answers = handle(self.storage, moving, "us")
        assert answers in ([], [("us", {"kind": "adopted", "incarnation": incarnation, "number": number})])
        return bool(answers)

    def count_waiting(self, device):
        return len(self.storage._device(device).queue)


def test_queues_are_adopted_once_in_the_order_of_their_moves():
    adopter = Adopter()
    assert not adopter.adopt(2, "bob")  # the first is missing
    assert adopter.count_waiting("bob") == 0
    assert adopter.adopt(1, "ann")
    assert adopter.adopt(2, "bob")
    assert (adopter.count_waiting("ann"), adopter.count_waiting("bob")) == (1, 1)
    adopter.storage._device("ann").queue.clear()
    assert adopter.adopt(1, "ann")  # a retransmission
    assert adopter.count_waiting("ann") == 0


def test_move_is_adopted_without_the_earlier_acknowledged_moves():
    adopter = Adopter()
    assert adopter.adopt(7, "ann", open_from=7)
    assert adopter.count_waiting("ann") == 1


def test_move_from_a_wiped_storage_is_not_a_duplicate():
    adopter = Adopter()
    assert adopter.adopt(1, "ann")
    assert adopter.adopt(1, "bob", incarnation="1" * 8)
    assert adopter.count_waiting("bob") == 1


def test_storage_rolled_back_over_several_moves_releases_the_queue_once():
    """The version of a queue is its number of moves, as its holder has it (:class:`HoldsQueue`).

    A storage that has released it under this version knows what the holder says again after its next restart.
    """
    storage = Storage(build_ports("us"), 10, 10, computes=[], units=["us", "eu"], gateways=[])
    holds_queue = {"kind": "holds", "device": "bob", "version": 5}
    ((to, moving),) = handle(storage, holds_queue, "eu")
    assert (to, moving["kind"], moving["version"]) == ("eu", "moving", 5)
    assert handle(storage, holds_queue, "eu") == []


def test_storage_rolled_back_over_the_first_move_releases_the_queue():
    """A queue that has not moved has the version 0."""
    storage = Storage(build_ports("us"), 10, 10, computes=[], units=["us", "eu"], gateways=[])
    ((to, moving),) = handle(storage, {"kind": "holds", "device": "bob", "version": 1}, "eu")
    assert (to, moving["kind"], moving["version"]) == ("eu", "moving", 1)


@pytest.mark.parametrize("late_message", [PULL, BYE], ids=["pull", "bye"])
def test_late_copy_of_an_earlier_visit_changes_no_connection(gateway, late_message):
    for visit in (1, 2):
        handle(gateway, {**PULL, "visit": visit}, f"bob/contrail {visit}")
    assert handle(gateway, late_message, "bob/contrail 1") == []
    assert handle(gateway, FILLED, "store") == [("bob/contrail 2", {"kind": "filled"})]


def test_ended_visit_does_not_restart(gateway):
    handle(gateway, PULL, "bob/contrail")
    handle(gateway, BYE, "bob/contrail")
    assert handle(gateway, PULL, "bob/contrail") == []
    assert len(handle(gateway, {**PULL, "visit": 2}, "bob/contrail")) == 1


def test_late_copy_of_a_white_list_has_no_effect():
    tiers = Tiers()
    tiers.request(build_join("bob", 2, ["ann"]))
    tiers.request(build_join("bob", 1, []))
    assert tiers.send(build_filter(1))["results"] == [["bob", "in", "ok"]]
    tiers.request(build_join("bob", 3, []))
    assert tiers.send(build_filter(2))["results"] == [["bob", "in", "stranger"]]
    tiers.request(build_join("bob", 4, None))
    tiers.request(build_join("bob", 3, []))
    assert tiers.send(build_filter(3))["results"] == [["bob", "in", "ok"]]


def test_late_copy_of_a_membership_has_no_effect():
    tiers = Tiers()
    tiers.request(build_membership(2))
    tiers.request(build_membership(1, joins=False))
    assert tiers.send(build_filter(1, group="club"))["results"] == [["bob", "in", "ok"]]
    tiers.request(build_membership(3, joins=False))
    tiers.request(build_membership(2))
    assert tiers.send(build_filter(2, group="club"))["results"] == []


def test_late_copy_of_a_withdrawal_has_no_effect():
    tiers = Tiers()
    for number in (8, 6):
        tiers.request({"kind": "withdraw", "device": "ann", "number": number, "receiver": "bob"})
    tiers.restart()
    assert tiers.send(build_item(), number=7)["results"] == [["bob", "in", "obsolete"]]
    assert tiers.send(build_item(), number=9)["results"] == [["bob", "in", "ok"]]


def test_restarted_storage_knows_the_connections_of_devices():
    tiers = Tiers()
    for hold, notified in ((True, {("gateway", "bob")}), (False, set())):
        tiers.pull(hold=hold)
        for number in range(2):
            tiers.notified.clear()
            tiers.send(build_item(f"{hold} {number}"))
            assert set(tiers.notified) == notified
            tiers.restart()


def test_moved_queue_does_not_replace_a_newer_white_list():
    adopter = Adopter()
    tiers = Tiers(units=["store", "us"])
    adopter.storage = tiers.storage
    tiers.request(build_join("bob", 2, ["ann"]))
    assert adopter.adopt(1, "bob")  # with an older white list, of number 0
    assert tiers.send(build_filter(1, sender="eve"))["results"] == [["bob", "in", "stranger"]]
