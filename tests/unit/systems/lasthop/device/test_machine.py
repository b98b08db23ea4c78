"""The device's machine: what lies there, what is read there, what it says of it, and what outlives it."""

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
from mudkit.systems.lasthop.device.machine import APP, ARRIVALS, DeviceMachine, EventLog
from mudkit.systems.lasthop.messages import HasRead
from mudkit.wire import as_wire, wire_fields

S = 1_000_000
LIFE = "00000000"
"""The incarnation of a store, where nothing is random."""


class Phone:
    """A machine by itself, and what it sent, answered and showed."""

    def __init__(self, capacity=None, store=None):
        self.store = store or MemoryStore()
        self.machine = DeviceMachine(Ports(self.store, bytes, "ann/p"), "ann", "spool/p", capacity)
        self.now_us, self.sent, self.answers, self.number = 0, [], {}, 0
        self.shown, self.arrived = [], []

    def gets(self, event, at_s=None):
        self.now_us = self.now_us if at_s is None else round(at_s * S)
        self.timers = []
        for effect in self.machine.handle(self.now_us, event):
            match effect:
                case SetTimer(name=name):
                    self.timers.append(name)
                case Send(message=message):
                    self.sent.append(as_wire(message))
                case Complete(op_id=op_id, result=result, error=error):
                    self.answers[op_id] = error or result
                case Notify(app=app, payload=payload):
                    {APP: self.shown, ARRIVALS: self.arrived}[app].append(payload["text"])
        self.store.commit()

    def up(self, at_s=0):
        self.gets(LinkUp("ann/p", "lte"), at_s)
        self.number = 0
        self.hears("welcome", session=self.last("hello")["session"], number=0)

    def hears(self, kind, **more):
        if kind == "heard":
            more = {"session": self.last("hello")["session"], **more}
        self.gets(Received("spool/p", {"kind": kind, "device": "ann", **more}))

    def says(self, what, **body):
        """Let the server say something in the stream."""
        self.number += 1
        name = "{} {}.{}".format(*self.last("hello")["session"])
        body = {"what": what, "topic": "news", "run": 1, **body}
        self.hears("stream", stream=name, number=self.number, first=1, body=body)

    def message(self, identity, rank, expires_us=None, shown=False, **more):
        self.says("message", id=identity, rank=rank, order=self.number + 1, expires_us=expires_us, shown=shown,
                  content={"text": identity}, **more)  # fmt: skip

    def last(self, kind):
        return [message for message in self.sent if message["kind"] == kind][-1]

    def subscribe(self, **settings):
        self.gets(Call(1, messages.Subscribe(Subscription("news", **settings))))

    def read(self, op_id):
        self.gets(Call(op_id, messages.Read("news")))


@pytest.fixture
def phone():
    made = Phone()
    made.up()
    made.subscribe(max=2)
    made.hears("heard", number=1)
    return made


def test_a_subscription_is_there_when_the_server_has_heard_of_it():
    phone = Phone()
    phone.up()
    phone.subscribe()
    assert phone.answers == {}
    assert phone.last("told")["facts"][0][1]["what"] == "subscribe"
    phone.hears("heard", number=1)
    assert phone.answers == {1: None}


def test_a_read_asks_for_better_messages_and_then_takes_the_best(phone):
    phone.message("a", 1.0)
    phone.read(2)
    assert phone.last("read")["most"] == 2
    assert 2 not in phone.answers
    phone.message("b", 3.0)
    phone.message("c", 2.0)
    phone.says("offered", number=1)
    assert [each["text"] for each in phone.answers[2]] == ["b", "c"]
    fact = phone.last("told")["facts"][-1][1]
    assert (fact["what"], fact["ids"], fact["number"]) == ("read", ["b", "c"], 1)


def test_a_read_does_not_wait_for_a_link_that_is_gone(phone):
    phone.message("a", 1.0)
    phone.read(2)
    phone.gets(LinkDown(), 5)
    assert [each["text"] for each in phone.answers[2]] == ["a"]
    phone.read(3)
    assert phone.answers[3] == []
    phone.up(9)
    facts = [fact for _, fact in phone.last("hello")["facts"]]
    assert [(fact["at_us"], fact["ids"]) for fact in facts] == [(5 * S, ["a"]), (5 * S, [])]


def test_a_server_that_does_not_answer_is_asked_again_and_then_given_up(phone):
    phone.message("a", 1.0)
    phone.read(2)
    asked = len([each for each in phone.sent if each["kind"] == "read"])
    phone.gets(TimerFired("again"), 6)
    phone.gets(TimerFired("again"), 10)  # it waits twice as long for what was asked twice
    assert len([each for each in phone.sent if each["kind"] == "read"]) == asked + 1
    assert 2 not in phone.answers
    phone.gets(TimerFired("again"), 17)
    assert [each["text"] for each in phone.answers[2]] == ["a"]


def test_what_was_overtaken_and_does_not_come_is_missed_again_and_again(phone):
    def missed(event=None, at_s=None):
        if event is not None:
            phone.gets(event, at_s)
        acked = [each for each in phone.sent if each["kind"] == "confirmed"]
        phone.sent = [each for each in phone.sent if each["kind"] != "confirmed"]
        return [each.get("missing") for each in acked]

    def late(number):
        before, phone.number = phone.number, number - 1
        phone.message(f"{number}", 1.0)
        phone.number = before

    phone.message("1", 1.0)
    phone.number += 1
    phone.message("3", 1.0)
    phone.number += 1
    phone.message("5", 1.0)
    assert missed() == [None] * 3
    assert missed(TimerFired("missing"), 5) == [[2]]  # the other was not overtaken when it was set
    assert missed(TimerFired("missing"), 10) == [[2, 4]]
    late(4)
    assert missed(TimerFired("missing"), 15) == [None, [2]]
    late(2)
    assert missed(TimerFired("missing"), 20) == [None]
    assert phone.machine._queue.ranks("news").keys() == set("12345")


def test_another_session_waits_anew_for_what_was_overtaken(phone):
    for begins_at_s in (2, 9):
        phone.number += 1
        phone.message("2", 1.0)
        assert phone.timers == ["missing"]
        phone.gets(LinkDown(), begins_at_s - 1)
        phone.up(begins_at_s)


def test_a_read_does_not_lose_its_patience_over_one_lost_message():
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
    reading, asked_us = ann.read("news"), lab.world.now_us
    assert [message["text"][0] for message in reading.result()] == list("76543210")
    assert lab.world.now_us - asked_us < 10 * S
    assert sorted(sent) == sorted([*range(1, 10), *lost])  # what has come is not sent again


def test_what_has_expired_is_neither_taken_nor_read(phone):
    phone.message("a", 1.0, expires_us=10 * S)
    phone.message("b", 1.0, expires_us=20 * S)
    phone.now_us = 10 * S
    phone.message("late", 9.0, expires_us=10 * S)
    phone.gets(LinkDown())
    phone.read(2)
    assert [each["text"] for each in phone.answers[2]] == ["b"]


def test_what_is_repeated_late_or_of_another_subscription_changes_nothing(phone):
    phone.message("a", 1.0)
    before = dict(phone.machine._queue.ranks("news"))
    repeated = {
        "kind": "stream",
        "device": "ann",
        "stream": f"{LIFE} 1.1",
        "number": 1,
        "first": 1,
        "body": {"what": "retract", "topic": "news", "run": 1, "id": "a"},
    }
    phone.gets(Received("spool/p", repeated))
    phone.gets(Received("spool/p", {**repeated, "stream": f"{LIFE} 0.9", "number": 2}))
    phone.says("retract", id="a", run=77)
    phone.says("retract", id="a", topic="sport")
    assert phone.machine._queue.ranks("news") == before == {"a": 1.0}
    phone.says("retract", id="a")
    assert phone.machine._queue.ranks("news") == {}


def test_the_lowest_rank_is_let_go_and_the_server_hears_of_it():
    phone = Phone(capacity=2)
    phone.up()
    phone.subscribe()
    phone.hears("heard", number=1)
    assert phone.last("hello")["room"] == 2
    for identity, rank in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        phone.message(identity, rank)
    assert phone.machine._queue.ranks("news") == {"a": 3.0, "c": 2.0}
    assert phone.last("told")["facts"][-1][1] == {"what": "gone", "topic": "news", "ids": ["b"]}
    phone.says("rank", id="a", rank=0.5)
    phone.message("d", 1.0)
    assert phone.machine._queue.ranks("news") == {"c": 2.0, "d": 1.0}
    phone.read(2)
    assert phone.last("read")["most"] == 2


def test_what_is_shown_counts_as_read_and_is_shown_once(phone):
    phone.message("a", 1.0, shown=True)
    phone.message("b", 2.0)
    phone.says("show", ids=["b", "gone"])
    phone.says("show", ids=["b"])
    assert phone.shown == ["a", "b"]
    assert phone.arrived == ["a", "b"]
    phone.hears("heard", number=2)
    answer = [(fact["what"], fact["ids"]) for _, fact in phone.last("told")["facts"]]
    assert answer == [("shown", ["b"]), ("gone", ["gone"]), ("gone", ["b"])]


def test_what_was_to_be_shown_and_has_expired_is_not_shown_and_the_server_hears_of_it(phone):
    phone.now_us = 10 * S
    phone.message("late", 9.0, expires_us=10 * S, shown=True)
    phone.message("later", 9.0, expires_us=10 * S)
    assert phone.shown == phone.arrived == []
    assert phone.last("told")["facts"][-1][1] == {"what": "gone", "topic": "news", "ids": ["late"]}


def test_queue_and_facts_outlive_the_machine(phone):
    phone.message("a", 1.0, expires_us=50 * S)
    phone.message("b", 2.0)
    phone.gets(LinkDown())
    phone.read(2)
    phone.message("c", 3.0)
    again = Phone(store=phone.store)
    again.up(20)
    hello = again.last("hello")
    assert hello["session"] == [LIFE, 2, 1]
    assert hello["after"] is None
    assert hello["holds"] == {"news": {"c": 3.0}}
    assert [fact["ids"] for _, fact in hello["facts"]] == [["b", "a"]]
    again.hears("heard", number=2)
    assert not phone.store.items("fact ")


def test_a_session_that_is_known_goes_on_where_it_was(phone):
    phone.message("a", 1.0)
    phone.message("b", 1.0)
    phone.up(10)
    assert phone.last("hello")["after"] == [f"{LIFE} 1.1", 2]
    assert phone.last("hello")["holds"] == {}
    phone.hears("who", session=[LIFE, 1, 1])  # of a session that is over
    assert phone.last("hello")["session"] == [LIFE, 1, 2]
    phone.hears("who", session=[LIFE, 1, 2])
    assert phone.last("hello")["session"] == [LIFE, 1, 3]
    assert phone.last("hello")["holds"] == {"news": {"a": 1.0, "b": 1.0}}


def test_hello_is_said_again_until_it_is_answered():
    phone = Phone()
    phone.gets(LinkUp("ann/p", "lte"), 0)
    for at_s in (5, 10, 15):
        phone.gets(TimerFired("again"), at_s)
    hellos = [each["session"] for each in phone.sent if each["kind"] == "hello"]
    assert len(hellos) >= 2
    assert set(map(tuple, hellos)) == {(LIFE, 1, 1)}


def test_hello_is_said_again_when_it_may_have_come_and_been_answered_and_not_before():
    phone = Phone()
    phone.gets(LinkUp("ann/p", "lte"), 0)
    may_take_s = (DEFAULT_TIMEOUT_US + DEFAULT_US_PER_BYTE * size_bytes(phone.last("hello"))) / S
    for at_s, count in (
        (5, 1),
        (may_take_s - 1e-6, 1),
        (may_take_s, 2),
        (2 * may_take_s - 1e-6, 2),
        (999, 3),
    ):
        phone.gets(TimerFired("again"), at_s)
        assert [each["kind"] for each in phone.sent] == ["hello"] * count
        assert phone.timers == ["again"]


def test_what_is_unknown_is_refused(phone):
    for op_id, (operation, topic) in enumerate(
        (("read", "sport"), ("unsubscribe", "sport"), ("eat", "x")), 5
    ):
        phone.gets(Call(op_id, operation, {"topic": topic}))
        assert isinstance(phone.answers[op_id], ParameterError)


def test_unsubscribing_answers_who_reads_and_forgets_what_is_there(phone):
    phone.message("a", 1.0)
    phone.read(2)
    phone.gets(Call(3, messages.Unsubscribe("news")))
    assert [each["text"] for each in phone.answers[2]] == ["a"]
    assert not phone.store.items("queue") + phone.store.items("topic")


def test_reads_of_nothing_do_not_pile_up_while_the_link_is_down():
    facts = EventLog(Ports(MemoryStore(), lambda n: bytes(n), "ann/p"))
    facts.add(HasRead("news", 0, ["a"], 1))
    for at_us in range(1, 100):
        facts.add(HasRead("news", at_us, [], 1))
    kept = [fact.at_us for _, fact in facts.pending()]
    assert kept == [0, *range(84, 100)]
    assert facts.acked(90) == [1, *range(85, 91)]


@pytest.mark.soak
def test_ten_years_on_the_fleet_need_no_more_memory_than_one():
    """Most of what comes nobody reads: when all that has a limit is full, nothing grows any more."""
    lab = Lab(seed=1, record_messages=False)
    lab.world.on_record = lambda process, effect: None
    server = Publications(lab, spool_capacity=50)
    ann = Subscriber(lab.device("ann", link="ideal"), server, device_capacity=20)
    ann.subscribe("news", max=1, threshold=0.2, policy=Forwarding("unified", delay_s=60.0)).result()
    day_us, kept = 86_400 * S, []

    def day(number):
        for hour in range(4):
            lab.world.ask_at(number * day_us + hour * 3600 * S, publish, (number * 7 + hour) % 10)
        lab.world.ask_at(number * day_us + 80_000 * S, lambda _: ann.read("news"))

    def publish(rank):
        server.topic("news").publish("x", rank / 10, None if rank % 2 else 90_000.0)

    for number in range(3650):
        day(number)
        if number % 7 == 0:
            lab.world.at(number * day_us + 3600 * S, lambda _: ann.installed.host.link_down())
            lab.world.at(number * day_us + 9 * 3600 * S, lambda _: ann.installed.host.link_up())
        if number % 365 == 364:
            lab.world.run((number + 1) * day_us)
            kept.append(_kept(server, ann))
    assert max(kept) < 1.2 * kept[3]


def _kept(server, ann):
    """Count what machines keep, in memory and durably."""
    outcome, seen, todo = 0, set(), [server.installed.machine, ann.installed.machine]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, str | int | float | type(None) | MemoryStore):
            continue
        seen.add(id(each))
        if isinstance(each, dict | list | tuple | set | deque):
            outcome += len(each)
            todo += each.values() if isinstance(each, dict) else each
        elif type(each).__module__.startswith("mudkit"):
            names = [*getattr(each, "__dict__", {}), *getattr(type(each), "__slots__", ())]
            todo += [getattr(each, name, None) for name in names]
            todo += [getattr(each, name, None) for name in getattr(each, "__struct_fields__", ())]
    return outcome + sum(len(each.installed.store.items()) for each in (server, ann))


def test_an_answer_to_less_than_was_told_leaves_the_rest_to_its_own_time():
    phone = Phone()
    phone.up()
    for op_id, topic in enumerate(("a", "b", "c"), 1):
        phone.gets(Call(op_id, messages.Subscribe(Subscription(topic))), 0)
    phone.gets(TimerFired("again"), 5)
    phone.gets(TimerFired("again"), 10)
    answer = [len(each["facts"]) for each in phone.sent if each["kind"] == "told"]
    assert answer == [1, 3]
    phone.hears("heard", number=1)  # it was late
    assert phone.answers == {1: None}
    assert len([each for each in phone.sent if each["kind"] == "told"]) == 2
    phone.gets(TimerFired("again"), 25)
    assert [number for number, _ in phone.last("told")["facts"]] == [2, 3]
    phone.hears("heard", number=3)
    assert phone.answers == {1: None, 2: None, 3: None}


def test_two_of_one_rank_and_one_number_are_in_order_all_the_same(phone):
    """A server may have to number them anew: what was in the queue before is still remembered there."""
    for identity in ("a", "b", "c"):
        phone.says(
            "message",
            id=identity,
            rank=4.0,
            order=1,
            expires_us=None,
            shown=False,
            content={"text": identity},
        )
        phone.says("retract", id=identity)
    for identity in ("e", "d"):
        phone.says(
            "message",
            id=identity,
            rank=4.0,
            order=1,
            expires_us=None,
            shown=False,
            content={"text": identity},
        )
    phone.gets(LinkDown())
    phone.read(2)
    assert [each["text"] for each in phone.answers[2]] == ["d", "e"]
