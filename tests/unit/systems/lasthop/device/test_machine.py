"""Device machine of last hop: inbox, reads, facts, and recovery."""

from __future__ import annotations

from collections import deque

import pytest

from mudkit import Lab
from mudkit.delivery.retransmit import DEFAULT_TIMEOUT_US, DEFAULT_US_PER_BYTE
from mudkit.errors import ParameterError
from mudkit.events import (
    Call,
    Complete,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Send,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop import Forwarding, Publications, Subscriber, Subscription, messages
from mudkit.systems.lasthop.device.machine import APP, ARRIVALS, DeviceMachine, FactLog
from mudkit.systems.lasthop.messages import HasRead
from mudkit.wire import as_wire, wire_fields

S = 1_000_000
INCARNATION = "00000000"
"""Incarnation of a store with zeros for entropy."""


class Phone:
    """A device machine without a lab, and its effects."""

    def __init__(self, capacity=None, store=None):
        self.store = store or MemoryStore()
        self.machine = DeviceMachine(Ports(self.store, bytes, "ann/p"), "ann", "spool/p", capacity)
        self.now_us, self.sent, self.results, self.number = 0, [], {}, 0
        self.shown, self.arrived = [], []

    def handle(self, event, at_s=None):
        self.now_us = self.now_us if at_s is None else round(at_s * S)
        self.timers = []
        for effect in self.machine.handle(self.now_us, event):
            match effect:
                case SetTimer(name=name):
                    self.timers.append(name)
                case Send(message=message):
                    self.sent.append(as_wire(message))
                case Complete(op_id=op_id, result=result, error=error):
                    self.results[op_id] = error or result
                case Notify(listener=listener, payload=payload):
                    {APP: self.shown, ARRIVALS: self.arrived}[listener].append(payload["text"])
        self.store.commit()

    def connect(self, at_s=0):
        self.handle(LinkUp("ann/p", "lte"), at_s)
        self.number = 0
        self.receive("welcome", session=self.last_sent("hello")["session"], number=0)

    def receive(self, kind, **fields):
        if kind == "heard":
            fields = {"session": self.last_sent("hello")["session"], **fields}
        self.handle(Received("spool/p", {"kind": kind, "device": "ann", **fields}))

    def receive_item(self, item_kind, **body):
        """Receive the next item of the stream."""
        self.number += 1
        name = "{} {}.{}".format(*self.last_sent("hello")["session"])
        body = {"what": item_kind, "topic": "news", "run": 1, **body}
        self.receive("stream", stream=name, number=self.number, first=1, body=body)

    def receive_message(self, identity, rank, expires_us=None, shown=False, **fields):
        self.receive_item("message", id=identity, rank=rank, order=self.number + 1, expires_us=expires_us,
                          shown=shown, content={"text": identity}, **fields)  # fmt: skip

    def last_sent(self, kind):
        return [message for message in self.sent if message["kind"] == kind][-1]

    def subscribe(self, **settings):
        self.handle(Call(1, messages.Subscribe(Subscription("news", **settings))))

    def read(self, op_id):
        self.handle(Call(op_id, messages.Read("news")))


@pytest.fixture
def phone():
    phone = Phone()
    phone.connect()
    phone.subscribe(max=2)
    phone.receive("heard", number=1)
    return phone


def test_subscription_completes_when_acknowledged():
    phone = Phone()
    phone.connect()
    phone.subscribe()
    assert phone.results == {}
    assert phone.last_sent("told")["facts"][0][1]["what"] == "subscribe"
    phone.receive("heard", number=1)
    assert phone.results == {1: None}


def test_read_requests_better_messages_and_returns_the_best(phone):
    phone.receive_message("a", 1.0)
    phone.read(2)
    assert phone.last_sent("read")["most"] == 2
    assert 2 not in phone.results
    phone.receive_message("b", 3.0)
    phone.receive_message("c", 2.0)
    phone.receive_item("offered", number=1)
    assert [message["text"] for message in phone.results[2]] == ["b", "c"]
    fact = phone.last_sent("told")["facts"][-1][1]
    assert (fact["what"], fact["ids"], fact["number"]) == ("read", ["b", "c"], 1)


def test_read_completes_at_once_without_a_link(phone):
    phone.receive_message("a", 1.0)
    phone.read(2)
    phone.handle(LinkDown(), 5)
    assert [message["text"] for message in phone.results[2]] == ["a"]
    phone.read(3)
    assert phone.results[3] == []
    phone.connect(9)
    facts = [fact for _, fact in phone.last_sent("hello")["facts"]]
    assert [(fact["at_us"], fact["ids"]) for fact in facts] == [(5 * S, ["a"]), (5 * S, [])]


def test_read_request_is_retransmitted_until_its_timeout(phone):
    phone.receive_message("a", 1.0)
    phone.read(2)
    request_count = len([message for message in phone.sent if message["kind"] == "read"])
    phone.handle(TimerFired("again"), 6)
    phone.handle(TimerFired("again"), 10)  # the retransmission timeout has doubled
    assert len([message for message in phone.sent if message["kind"] == "read"]) == request_count + 1
    assert 2 not in phone.results
    phone.handle(TimerFired("again"), 17)
    assert [message["text"] for message in phone.results[2]] == ["a"]


def test_overtaken_items_are_reported_missing_repeatedly(phone):
    def pop_missing(event=None, at_s=None):
        if event is not None:
            phone.handle(event, at_s)
        acks = [message for message in phone.sent if message["kind"] == "confirmed"]
        phone.sent = [message for message in phone.sent if message["kind"] != "confirmed"]
        return [message.get("missing") for message in acks]

    def receive_late(number):
        before, phone.number = phone.number, number - 1
        phone.receive_message(f"{number}", 1.0)
        phone.number = before

    phone.receive_message("1", 1.0)
    phone.number += 1
    phone.receive_message("3", 1.0)
    phone.number += 1
    phone.receive_message("5", 1.0)
    assert pop_missing() == [None] * 3
    assert pop_missing(TimerFired("missing"), 5) == [[2]]  # item 4 was not overtaken when the timer was set
    assert pop_missing(TimerFired("missing"), 10) == [[2, 4]]
    receive_late(4)
    assert pop_missing(TimerFired("missing"), 15) == [None, [2]]
    receive_late(2)
    assert pop_missing(TimerFired("missing"), 20) == [None]
    assert phone.machine._queue.ranks("news").keys() == set("12345")


def test_new_session_sets_its_own_timer_for_missing_items(phone):
    for start_s in (2, 9):
        phone.number += 1
        phone.receive_message("2", 1.0)
        assert phone.timers == ["missing"]
        phone.handle(LinkDown(), start_s - 1)
        phone.connect(start_s)


def test_read_completes_in_time_after_one_lost_message():
    lab = Lab(seed=2)
    spool = Publications(lab)
    ann = Subscriber(lab.device("ann", "umts_3g"), spool)
    ann.subscribe("news", max=8, policy="on-demand").result()
    news, lost, sent = spool.topic("news"), [], []
    for number in range(8):
        news.publish(f"{number}" + "x" * 4_000, rank=number)
    lab.run(hours=1)

    def fault_hook(transfer):
        if wire_fields(transfer.message)["kind"] == "stream":
            sent.append(wire_fields(transfer.message)["number"])
            if not lost:
                lost.append(wire_fields(transfer.message)["number"])
                return ()
        return (0,)

    lab.world.fault_hook = fault_hook
    operation, start_us = ann.read("news"), lab.world.now_us
    assert [message["text"][0] for message in operation.result()] == list("76543210")
    assert lab.world.now_us - start_us < 10 * S
    assert sorted(sent) == sorted([*range(1, 10), *lost])  # only the lost item is retransmitted


def test_expired_messages_are_neither_queued_nor_read(phone):
    phone.receive_message("a", 1.0, expires_us=10 * S)
    phone.receive_message("b", 1.0, expires_us=20 * S)
    phone.now_us = 10 * S
    phone.receive_message("late", 9.0, expires_us=10 * S)
    phone.handle(LinkDown())
    phone.read(2)
    assert [message["text"] for message in phone.results[2]] == ["b"]


def test_duplicate_late_and_foreign_items_are_ignored(phone):
    phone.receive_message("a", 1.0)
    before = dict(phone.machine._queue.ranks("news"))
    duplicate = {
        "kind": "stream",
        "device": "ann",
        "stream": f"{INCARNATION} 1.1",
        "number": 1,
        "first": 1,
        "body": {"what": "retract", "topic": "news", "run": 1, "id": "a"},
    }
    phone.handle(Received("spool/p", duplicate))
    phone.handle(Received("spool/p", {**duplicate, "stream": f"{INCARNATION} 0.9", "number": 2}))
    phone.receive_item("retract", id="a", run=77)
    phone.receive_item("retract", id="a", topic="sport")
    assert phone.machine._queue.ranks("news") == before == {"a": 1.0}
    phone.receive_item("retract", id="a")
    assert phone.machine._queue.ranks("news") == {}


def test_lowest_rank_over_capacity_is_dropped_and_reported():
    phone = Phone(capacity=2)
    phone.connect()
    phone.subscribe()
    phone.receive("heard", number=1)
    assert phone.last_sent("hello")["room"] == 2
    for identity, rank in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        phone.receive_message(identity, rank)
    assert phone.machine._queue.ranks("news") == {"a": 3.0, "c": 2.0}
    assert phone.last_sent("told")["facts"][-1][1] == {"what": "gone", "topic": "news", "ids": ["b"]}
    phone.receive_item("rank", id="a", rank=0.5)
    phone.receive_message("d", 1.0)
    assert phone.machine._queue.ranks("news") == {"c": 2.0, "d": 1.0}
    phone.read(2)
    assert phone.last_sent("read")["most"] == 2


def test_shown_messages_count_as_read_and_are_shown_once(phone):
    phone.receive_message("a", 1.0, shown=True)
    phone.receive_message("b", 2.0)
    phone.receive_item("show", ids=["b", "gone"])
    phone.receive_item("show", ids=["b"])
    assert phone.shown == ["a", "b"]
    assert phone.arrived == ["a", "b"]
    phone.receive("heard", number=2)
    facts = [(fact["what"], fact["ids"]) for _, fact in phone.last_sent("told")["facts"]]
    assert facts == [("shown", ["b"]), ("gone", ["gone"]), ("gone", ["b"])]


def test_expired_message_to_show_is_reported_as_dropped(phone):
    phone.now_us = 10 * S
    phone.receive_message("late", 9.0, expires_us=10 * S, shown=True)
    phone.receive_message("later", 9.0, expires_us=10 * S)
    assert phone.shown == phone.arrived == []
    assert phone.last_sent("told")["facts"][-1][1] == {"what": "gone", "topic": "news", "ids": ["late"]}


def test_queue_and_facts_are_restored_after_a_restart(phone):
    phone.receive_message("a", 1.0, expires_us=50 * S)
    phone.receive_message("b", 2.0)
    phone.handle(LinkDown())
    phone.read(2)
    phone.receive_message("c", 3.0)
    restarted = Phone(store=phone.store)
    restarted.connect(20)
    hello = restarted.last_sent("hello")
    assert hello["session"] == [INCARNATION, 2, 1]
    assert hello["after"] is None
    assert hello["holds"] == {"news": {"c": 3.0}}
    assert [fact["ids"] for _, fact in hello["facts"]] == [["b", "a"]]
    restarted.receive("heard", number=2)
    assert not phone.store.items("fact ")


def test_known_session_resumes_after_its_last_item(phone):
    phone.receive_message("a", 1.0)
    phone.receive_message("b", 1.0)
    phone.connect(10)
    assert phone.last_sent("hello")["after"] == [f"{INCARNATION} 1.1", 2]
    assert phone.last_sent("hello")["holds"] == {}
    who = {"nonce": "12345678", "known": [INCARNATION, 1, 0]}
    phone.receive("who", session=[INCARNATION, 1, 1], **who)  # of an earlier session
    assert phone.last_sent("hello")["session"] == [INCARNATION, 1, 2]
    phone.receive("who", session=[INCARNATION, 1, 2], **who)
    assert phone.last_sent("hello")["session"] == [INCARNATION, 1, 3]
    assert phone.last_sent("hello")["holds"] == {"news": {"a": 1.0, "b": 1.0}}


def test_unanswered_hello_is_retransmitted_in_its_session():
    phone = Phone()
    phone.handle(LinkUp("ann/p", "lte"), 0)
    for at_s in (5, 10, 15):
        phone.handle(TimerFired("again"), at_s)
    hellos = [message["session"] for message in phone.sent if message["kind"] == "hello"]
    assert len(hellos) >= 2
    assert set(map(tuple, hellos)) == {(INCARNATION, 1, 1)}


def test_hello_is_retransmitted_after_its_timeout_and_not_before():
    phone = Phone()
    phone.handle(LinkUp("ann/p", "lte"), 0)
    timeout_s = (DEFAULT_TIMEOUT_US + DEFAULT_US_PER_BYTE * size_bytes(phone.last_sent("hello"))) / S
    for at_s, count in (
        (5, 1),
        (timeout_s - 1e-6, 1),
        (timeout_s, 2),
        (2 * timeout_s - 1e-6, 2),
        (999, 3),
    ):
        phone.handle(TimerFired("again"), at_s)
        assert [message["kind"] for message in phone.sent] == ["hello"] * count
        assert phone.timers == ["again"]


def test_unknown_topics_and_operations_are_refused(phone):
    for op_id, (operation, topic) in enumerate(
        (("read", "sport"), ("unsubscribe", "sport"), ("eat", "x")), 5
    ):
        phone.handle(Call(op_id, operation, {"topic": topic}))
        assert isinstance(phone.results[op_id], ParameterError)


def test_unsubscribe_completes_pending_reads_and_deletes_messages(phone):
    phone.receive_message("a", 1.0)
    phone.read(2)
    phone.handle(Call(3, messages.Unsubscribe("news")))
    assert [message["text"] for message in phone.results[2]] == ["a"]
    assert not phone.store.items("queue") + phone.store.items("topic")


def test_pending_empty_reads_are_bounded():
    facts = FactLog(Ports(MemoryStore(), lambda n: bytes(n), "ann/p"))
    facts.add(HasRead("news", 0, ["a"], 1))
    for at_us in range(1, 100):
        facts.add(HasRead("news", at_us, [], 1))
    times_us = [fact.at_us for _, fact in facts.pending()]
    assert times_us == [0, *range(84, 100)]
    assert facts.ack_up_to(90) == [1, *range(85, 91)]


@pytest.mark.soak
def test_memory_does_not_grow_over_ten_years():
    """Publish more than is read: at capacity, no collection grows."""
    lab = Lab(seed=1, record_messages=False)
    lab.world.on_record = lambda process, effect: None
    server = Publications(lab, spool_capacity=50)
    ann = Subscriber(lab.device("ann", link="ideal"), server, device_capacity=20)
    ann.subscribe("news", max=1, threshold=0.2, policy=Forwarding("unified", delay_s=60.0)).result()
    day_us, sizes = 86_400 * S, []

    def schedule_day(number):
        for hour in range(4):
            lab.world.schedule_call(number * day_us + hour * 3600 * S, publish, (number * 7 + hour) % 10)
        lab.world.schedule_call(number * day_us + 80_000 * S, lambda _: ann.read("news"))

    def publish(rank):
        server.topic("news").publish("x", rank / 10, None if rank % 2 else 90_000.0)

    for number in range(3650):
        schedule_day(number)
        if number % 7 == 0:
            lab.world.schedule_action(number * day_us + 3600 * S, lambda _: ann.installed.host.link_down())
            lab.world.schedule_action(number * day_us + 9 * 3600 * S, lambda _: ann.installed.host.link_up())
        if number % 365 == 364:
            lab.world.run((number + 1) * day_us)
            sizes.append(_count_entries(server, ann))
    assert max(sizes) < 1.2 * sizes[3]


def _count_entries(server, ann):
    """Count the entries of all collections of both machines and of their stores."""
    count, seen, todo = 0, set(), [server.installed.machine, ann.installed.machine]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, str | int | float | type(None) | MemoryStore):
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | tuple | set | deque):
            count += len(value)
            todo += value.values() if isinstance(value, dict) else value
        elif type(value).__module__.startswith("mudkit"):
            names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
            todo += [getattr(value, name, None) for name in names]
            todo += [getattr(value, name, None) for name in getattr(value, "__struct_fields__", ())]
    return count + sum(len(value.installed.store.items()) for value in (server, ann))


def test_partial_acknowledgement_leaves_the_rest_to_its_own_timeout():
    phone = Phone()
    phone.connect()
    for op_id, topic in enumerate(("a", "b", "c"), 1):
        phone.handle(Call(op_id, messages.Subscribe(Subscription(topic))), 0)
    phone.handle(TimerFired("again"), 5)
    phone.handle(TimerFired("again"), 10)
    fact_counts = [len(message["facts"]) for message in phone.sent if message["kind"] == "told"]
    assert fact_counts == [1, 3]
    phone.receive("heard", number=1)  # the answer to the first transmission
    assert phone.results == {1: None}
    assert len([message for message in phone.sent if message["kind"] == "told"]) == 2
    phone.handle(TimerFired("again"), 25)
    assert [number for number, _ in phone.last_sent("told")["facts"]] == [2, 3]
    phone.receive("heard", number=3)
    assert phone.results == {1: None, 2: None, 3: None}


def test_equal_rank_and_order_number_are_read_in_order_of_id(phone):
    """Reuse order numbers, as a server may have to, while removed entries are still in the heap."""
    for identity in ("a", "b", "c"):
        phone.receive_item(
            "message",
            id=identity,
            rank=4.0,
            order=1,
            expires_us=None,
            shown=False,
            content={"text": identity},
        )
        phone.receive_item("retract", id=identity)
    for identity in ("e", "d"):
        phone.receive_item(
            "message",
            id=identity,
            rank=4.0,
            order=1,
            expires_us=None,
            shown=False,
            content={"text": identity},
        )
    phone.handle(LinkDown())
    phone.read(2)
    assert [message["text"] for message in phone.results[2]] == ["d", "e"]
