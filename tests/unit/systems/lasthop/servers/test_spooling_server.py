"""The spooling server's machine: sessions, what it forwards, what it forgets, and what outlives it."""

from __future__ import annotations

import pytest

from mudkit.delivery.retransmit import DEFAULT_TIMEOUT_US, DEFAULT_US_PER_BYTE
from mudkit.errors import ParameterError
from mudkit.events import (
    Call,
    Complete,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.fleet.store import MemoryStore
from mudkit.systems.lasthop import Forwarding, Subscription, messages
from mudkit.systems.lasthop.messages import FromServer as Revived
from mudkit.systems.lasthop.messages import Identify, SubscriptionFields, Welcome
from mudkit.systems.lasthop.servers.spooling_server import SpoolServer
from mudkit.wire import as_wire

S = 1_000_000
LIFE = "a0b1c2d3"
LIMIT_2 = Forwarding("buffer", 2)


class Server:
    """A machine by itself, what it sent to whom, and a phone's side of the talk."""

    def __init__(self, store=None, capacity=100):
        self.store = store or MemoryStore()
        self.machine = SpoolServer(Ports(self.store, bytes, "spool/p"), 0, capacity)
        self.now_us, self.sent, self.answers, self.rows, self.facts = 0, [], [], [], 0

    def gets(self, event, at_s=None):
        self.now_us = self.now_us if at_s is None else round(at_s * S)
        self.new, self.timers = [], []
        for effect in self.machine.handle(self.now_us, event):
            match effect:
                case Send(to=to, message=message):
                    self.new.append((to, as_wire(message)))
                case Complete(result=result, error=error):
                    self.answers.append(error or result)
                case Record(row=row):
                    self.rows.append(row)
                case SetTimer(name=name):
                    self.timers.append(name)
        self.sent += self.new
        self.store.commit()

    def hears(self, kind, source="ann/p", session=(1, 1), **more):
        self.gets(Received(source, {"kind": kind, "device": "ann", "session": [LIFE, *session], **more}))

    def hello(self, session=(1, 1), source="ann/p", after=None, holds=None, facts=(), room=None):
        self.hears("hello", source, session, after=after, holds=holds or {}, facts=list(facts), room=room)

    def told(self, *facts, session=(1, 1)):
        numbered = []
        for fact in facts:
            self.facts += 1
            numbered.append([self.facts, fact])
        self.hears("told", session=session, facts=numbered)
        return numbered

    def subscribe(self, **settings):
        wanted = Subscription("news", **{"policy": LIMIT_2, **settings})
        fact = {"what": "subscribe", "topic": "news", "subscription": as_wire(SubscriptionFields.of(wanted))}
        return self.told(fact)

    def publish(self, identity, rank=1.0, expires_us=None):
        self.gets(Call(1, messages.Publish("news", rank, expires_us, {"text": identity}, identity)))

    def said(self, what="message"):
        """Give what this event has brought into the stream."""
        bodies = [message["body"] for _, message in self.new if message["kind"] == "stream"]
        return [body.get("id", body.get("ids")) for body in bodies if body["what"] == what]

    def kinds(self):
        return [message["kind"] for _, message in self.new]

    def queues(self):
        self.gets(Call(1, messages.Queues("ann", "news")))
        return self.answers[-1]["waiting"], self.answers[-1]["on_device"]


@pytest.fixture
def server():
    made = Server()
    made.hello()
    made.subscribe()
    return made


def test_what_is_forwarded_is_sent_again_until_it_is_confirmed(server):
    server.publish("a")
    assert server.said() == ["a"]
    server.gets(TimerFired("again ann"), 60)
    assert server.said() == ["a"]
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=1)
    server.gets(TimerFired("again ann"), 120)
    assert server.new == []


def test_what_the_device_misses_is_sent_again_at_once_and_nothing_else(server):
    for identity in "ab":
        server.publish(identity)
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=0, missing=[1])
    assert (server.said(), server.new[0][0]) == (["a"], "ann/p")
    server.hears("confirmed", stream=f"{LIFE} 0.9", number=0, missing=[1])
    assert server.new == []
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=1, missing=[1])
    assert server.new == []
    to, message = server.sent[-1]
    server.gets(SendFailed(to, Revived().decode(message)))
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=1, missing=[2])
    assert server.new == []  # it is away, and says itself what it has


def test_a_slow_link_is_not_sent_the_same_while_it_may_be_on_its_way(server):
    server.publish("x" * 30_000)
    server.gets(TimerFired("again ann"), 5)
    assert server.said() == []
    server.gets(TimerFired("again ann"), 60)
    assert len(server.said()) == 1


def test_nothing_is_sent_to_who_cannot_be_reached(server):
    server.publish("a")
    to, message = server.new[-1]
    server.gets(SendFailed("somewhere else", Revived().decode(message)))
    assert server.queues() == (0, 1)
    server.gets(SendFailed(to, Revived().decode(message)))
    assert server.queues() == (1, 0)
    server.publish("b")
    assert server.new == []
    server.hello((1, 2), "ann/q", after=[f"{LIFE} 1.1", 0])
    assert server.said() == ["a", "b"]
    assert server.new[-1][0] == "ann/q"


def test_a_short_hello_tells_what_has_come_from_what_was_lost(server):
    server.publish("a")
    server.publish("b", 2.0)
    server.hello((1, 2), after=[f"{LIFE} 1.1", 1])
    assert server.said() == ["b"]
    assert server.queues() == (0, 2)


def test_a_short_hello_that_nobody_understands_is_not_enough(server):
    server.publish("a")
    again = Server(server.store)
    again.hello((1, 2), after=[f"{LIFE} 1.1", 1])
    assert again.kinds()[-1] == "who"
    again.hello((1, 3), holds={"news": {"a": 1.0}})
    assert again.said() == []
    assert again.queues() == (0, 1)


def test_what_a_device_missed_of_ranks_it_is_told(server):
    server.publish("a")
    server.publish("b", 5.0)
    server.gets(SendFailed("ann/p", Welcome("ann", (LIFE, 1, 1), 0)))
    server.gets(Call(1, messages.Rerank("news", "a", 4.0)))
    server.gets(Call(1, messages.Rerank("news", "b", -9.0)))
    server.hello((1, 2), after=[f"{LIFE} 1.1", 2])
    assert (server.said("rank"), server.said("retract")) == (["a"], ["b"])
    server.hello((2, 1), holds={"news": {"a": 1.0, "b": 5.0}})
    assert server.kinds() == ["who"]  # a restarted device, or a late copy
    server.hello((2, 2), holds={"news": {"a": 1.0, "b": 5.0}})
    assert (server.said("rank"), server.said("retract")) == (["a"], ["b"])


def test_who_missed_too_much_has_to_say_what_it_has(server):
    server.publish("a")
    server.gets(SendFailed("ann/p", Welcome("ann", (LIFE, 1, 1), 0)))
    for number in range(1100):
        server.gets(Call(1, messages.Rerank("news", "a", float(number))))
    server.hello((1, 2), after=[f"{LIFE} 1.1", 1])
    assert server.kinds() == ["who"]


def test_late_and_repeated_hellos_begin_nothing(server):
    server.publish("a")
    server.hello((1, 2), after=[f"{LIFE} 1.1", 0])
    assert server.said() == ["a"]
    for session in ((1, 2), (1, 1), (0, 9)):
        server.hello(session)
        assert server.said() == []
    assert server.queues() == (0, 1)
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=1)
    server.gets(TimerFired("again ann"), 60)
    assert server.said() == ["a"]


def test_what_is_told_counts_once(server):
    for identity in ("a", "b", "c"):
        server.publish(identity)
    facts = server.told({"what": "read", "topic": "news", "at_us": 0, "ids": ["a"], "number": 1})
    assert server.said() == ["c"]
    assert ("ann/p", {"kind": "heard", "device": "ann", "session": [LIFE, 1, 1], "number": 2}) in server.new
    server.hears("told", facts=facts)
    assert server.said() == []
    spool = server.machine._peers["ann"].topics["news"].spool
    assert spool.habits.read_at_a_time == 1.0
    assert len(spool.habits._reads) == 1


def test_a_read_is_offered_what_is_better_once(server):
    for number in range(4):
        server.publish(f"m{number}", float(number))
    server.hears("read", topic="news", number=1, most=3)
    assert server.said() == ["m3", "m2"]
    assert len(server.said("offered")) == 1
    server.hears("read", topic="news", number=1, most=4)
    assert server.new == []
    server.hears("read", topic="sport", number=2, most=4)
    server.hears("read", topic="news", number=3, most=None, session=(1, 7))
    assert server.kinds() == ["who"]


def test_another_life_of_the_device_asks_anew(server):
    read = {"what": "read", "topic": "news", "at_us": 0, "ids": [], "number": 9}
    server.hello((2, 1), facts=[[2, read]])
    server.hello((2, 2), facts=[[2, read]])
    server.publish("a")
    server.hears("read", session=(2, 2), topic="news", number=1, most=3)
    assert len(server.said("offered")) == 1


def test_subscriptions_and_what_waits_outlive_the_machine(server):
    server.publish("low", 0.5)
    server.publish("high", 5.0)
    server.publish("soon", 7.0, expires_us=40 * S)
    server.told({"what": "read", "topic": "news", "at_us": 0, "ids": ["low"], "number": 1})
    again = Server(server.store)
    again.gets(TimerFired("again ann"), 20)
    for at_s in (25, 30):
        assert (again.new[0][0], again.new[0][1]["kind"]) == ("ann/p", "who")
        assert "again ann" in again.timers
        again.gets(TimerFired("again ann"), at_s)
    again.publish("new", 1.0)
    again.gets(Call(1, messages.Rerank("news", "low", 9.0)))  # it was read
    assert again.new == []
    again.hello((1, 2), holds={"news": {"high": 5.0}})
    assert again.said() == ["soon"]
    again.gets(TimerFired("due ann\nnews"), 40)
    assert again.said() == ["new"]
    assert {key for key, _ in server.store.items("message ")} == {
        "message ann\nnews\nhigh",
        "message ann\nnews\nnew",
    }


def test_what_was_learnt_outlives_the_machine():
    server = Server()
    server.hello()
    server.subscribe(policy="unified")
    for identity in ("a", "b"):
        server.publish(identity)
    server.told({"what": "read", "topic": "news", "at_us": 0, "ids": ["a", "b"], "number": 1})
    again = Server(server.store)
    again.hello((1, 2))
    assert again.machine._peers["ann"].topics["news"].spool.prefetch_limit == 4


def test_who_unsubscribes_leaves_nothing_behind(server):
    server.publish("a")
    server.publish("too low", -1.0)
    server.told({"what": "unsubscribe", "topic": "news"})
    server.publish("b")
    assert server.new == []
    assert not [key for key, _ in server.store.items() if "news" in key and not key.startswith("count")]
    assert server.machine._subscribers == {}


def test_another_subscription_to_a_topic_is_another_one(server):
    server.publish("a")
    first = server.new[-1][1]["body"]["run"]
    server.told({"what": "unsubscribe", "topic": "news"})
    server.subscribe()
    server.publish("b")
    assert server.new[-1][1]["body"]["run"] > first


def test_a_rank_that_rises_above_the_threshold_comes_in_and_the_lowest_goes_when_there_is_no_room():
    server = Server(capacity=2)
    server.hello()
    server.subscribe(threshold=1.0, policy="on-demand")
    server.publish("low", 0.5)
    assert server.rows == []
    server.gets(Call(1, messages.Rerank("news", "low", 0.7)))
    assert server.queues() == (0, 0)
    server.gets(Call(1, messages.Rerank("news", "low", 1.5)))
    assert server.queues() == (1, 0)
    assert server.rows == [{"item": "low", "receiver": "ann", "created_us": 0}]
    server.publish("b", 1.0)
    server.publish("c", 2.0)
    assert server.queues() == (2, 0)
    assert [key.split("\n")[-1] for key, _ in server.store.items("message ")] == ["c", "low"]


def test_what_stays_too_low_is_kept_in_bounds(server):
    for number in range(1200):
        server.publish(f"m{number}", -1.0)
    assert len(server.store.items("low ")) == 1000


def test_strangers_are_asked_who_they_are():
    server = Server()
    server.hears("told", facts=[])
    assert server.kinds() == ["who"]
    server.hears("confirmed", stream=f"{LIFE} 1.1", number=1)
    server.gets(SendFailed("ann/p", Identify("bob", (LIFE, 1, 1))))
    assert server.new == []


def test_what_it_cannot_do_is_refused(server):
    server.gets(Call(1, "eat", {}))
    assert isinstance(server.answers[-1], ParameterError)
    server.gets(Call(1, messages.Queues("bob", "news")))
    assert isinstance(server.answers[-1], ParameterError)


def test_what_comes_later_does_not_put_off_what_was_lost(server):
    server.subscribe(policy="on-line")
    server.publish("lost")
    for at_s in range(1, 10):
        server.now_us = at_s * S
        server.publish(f"{at_s}" + "x" * 60_000)
    server.gets(TimerFired("again ann"), 10)
    assert server.said() == ["lost"]
    server.gets(TimerFired("again ann"), 54)
    assert server.said() == []  # that may still be on its way, behind all that came later
    server.gets(TimerFired("again ann"), 55)
    assert [each[:1] for each in server.said()] == ["1"]
    server.gets(TimerFired("again ann"), 500)
    assert server.said()[0] == "lost"


def test_a_message_is_sent_again_when_it_may_have_come_and_been_confirmed_and_not_before(server):
    server.publish("a")
    ((_, message),) = server.new
    may_take_us = DEFAULT_TIMEOUT_US + DEFAULT_US_PER_BYTE * size_bytes(message)
    for at_us, said in ((5 * S, []), (may_take_us - 1, []), (may_take_us, ["a"]), (2 * may_take_us - 1, [])):
        server.gets(TimerFired("again ann"), at_us / S)
        assert server.said() == said
        assert "again ann" in server.timers


def test_a_session_whose_welcome_was_lost_is_welcome_again(server):
    server.publish("a")
    server.hello()
    assert server.kinds() == ["welcome"]
    server.hello((1, 2), after=[f"{LIFE} 1.1", 0])
    for _ in range(2):
        server.hello((1, 2), after=[f"{LIFE} 1.1", 0])
        assert server.kinds() == ["welcome"]


def test_a_read_that_comes_late_is_not_taken_for_one_that_was_asked_for_before(server):
    for number in range(4):
        server.publish(f"m{number}", float(number))
    server.hears("read", topic="news", number=2, most=1)
    assert len(server.said("offered")) == 1
    server.hears("read", topic="news", number=1, most=1)
    assert len(server.said("offered")) == 1
    for number in (1, 2):
        server.hears("read", topic="news", number=number, most=1)
        assert server.new == []
    for number in range(3, 300):
        server.hears("read", topic="news", number=number, most=1)
        assert len(server.said("offered")) == 1
    for number in (1, 2, 235, 250, 299):
        server.hears("read", topic="news", number=number, most=1)
        assert server.new == []
    assert len(server.machine._peers["ann"].read_numbers) <= 64


def test_another_incarnation_is_believed_when_it_answers_and_a_late_hello_of_an_unknown_one_does_not():
    def hello(life, count):
        said = {"kind": "hello", "device": "ann", "after": None, "holds": {}, "facts": [], "room": None}
        server.gets(Received("ann/p", {**said, "session": [life, 1, count]}))

    server = Server()
    server.hello()
    server.subscribe()
    hello("ffffffff", 1)
    assert server.kinds() == ["who"]
    server.publish("for ann")
    assert server.said() == ["for ann"]
    hello("ffffffff", 1)  # repeated on its way
    assert server.kinds() == ["who"]
    hello("ffffffff", 2)
    assert server.kinds() == ["welcome"]
    server.publish("for nobody")
    assert server.new == []
    hello(LIFE, 9)
    assert server.new == []  # that one is over
