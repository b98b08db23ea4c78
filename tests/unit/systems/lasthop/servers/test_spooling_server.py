"""Server machine of last hop: sessions, forwarding, bounds, and recovery."""

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
from mudkit.systems.lasthop.messages import FromServer as Decoder
from mudkit.systems.lasthop.messages import Identify, SubscriptionFields, Welcome
from mudkit.systems.lasthop.servers.spooling_server import SpoolServer
from mudkit.wire import as_wire

S = 1_000_000
INCARNATION = "a0b1c2d3"
LIMIT_2 = Forwarding("buffer", 2)


class Server:
    """A server machine without a lab, its effects, and the messages of a phone."""

    def __init__(self, store=None, capacity=100):
        self.store = store or MemoryStore()
        self.machine = SpoolServer(Ports(self.store, bytes, "spool/p"), 0, capacity)
        self.now_us, self.sent, self.results, self.rows, self.facts = 0, [], [], [], 0

    def handle(self, event, at_s=None):
        self.now_us = self.now_us if at_s is None else round(at_s * S)
        self.last_sent, self.timers = [], []
        for effect in self.machine.handle(self.now_us, event):
            match effect:
                case Send(to=to, message=message):
                    self.last_sent.append((to, as_wire(message)))
                case Complete(result=result, error=error):
                    self.results.append(error or result)
                case Record(row=row):
                    self.rows.append(row)
                case SetTimer(name=name):
                    self.timers.append(name)
        self.sent += self.last_sent
        self.store.commit()

    def receive(self, kind, source="ann/p", session=(1, 1), **fields):
        self.handle(
            Received(source, {"kind": kind, "device": "ann", "session": [INCARNATION, *session], **fields})
        )

    def receive_hello(self, session=(1, 1), source="ann/p", after=None, holds=None, facts=(), room=None):
        self.receive("hello", source, session, after=after, holds=holds or {}, facts=list(facts), room=room)

    def receive_answer(self, session, holds=None, facts=(), **wants):
        """Receive the hello that answers the last question, with the subscriptions that are known here."""
        nonce = next(message["nonce"] for _, message in reversed(self.sent) if message["kind"] == "who")
        peer = self.machine._peers["ann"]
        topics = {
            topic: [known.subscribed_seq, as_wire(SubscriptionFields.of(known.subscription)), 0]
            for topic, known in peer.topics.items()
        }
        wants = {"topics": topics, "first": 1, "acked": peer.facts_seq, "nonce": nonce, **wants}
        fields = {"after": None, "holds": holds or {}, "facts": list(facts), "room": None}
        self.receive("hello", session=session, wants=wants, **fields)

    def receive_facts(self, *facts, session=(1, 1)):
        numbered = []
        for fact in facts:
            self.facts += 1
            numbered.append([self.facts, fact])
        self.receive("told", session=session, facts=numbered)
        return numbered

    def subscribe(self, **settings):
        subscription = Subscription("news", **{"policy": LIMIT_2, **settings})
        fact = {
            "what": "subscribe",
            "topic": "news",
            "subscription": as_wire(SubscriptionFields.of(subscription)),
        }
        return self.receive_facts(fact)

    def publish(self, identity, rank=1.0, expires_us=None):
        self.handle(Call(1, messages.Publish("news", rank, expires_us, {"text": identity}, identity)))

    def item_ids(self, kind="message"):
        """Return the ids of the stream items that the last event sent."""
        bodies = [message["body"] for _, message in self.last_sent if message["kind"] == "stream"]
        return [body.get("id", body.get("ids")) for body in bodies if body["what"] == kind]

    def sent_kinds(self):
        return [message["kind"] for _, message in self.last_sent]

    def queues(self):
        self.handle(Call(1, messages.Queues("ann", "news")))
        return self.results[-1]["waiting"], self.results[-1]["on_device"]


@pytest.fixture
def server():
    server = Server()
    server.receive_hello()
    server.subscribe()
    return server


def test_forwarded_messages_are_retransmitted_until_acknowledged(server):
    server.publish("a")
    assert server.item_ids() == ["a"]
    server.handle(TimerFired("again ann"), 60)
    assert server.item_ids() == ["a"]
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=1)
    server.handle(TimerFired("again ann"), 120)
    assert server.last_sent == []


def test_only_missing_items_are_retransmitted_at_once(server):
    for identity in "ab":
        server.publish(identity)
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=0, missing=[1])
    assert (server.item_ids(), server.last_sent[0][0]) == (["a"], "ann/p")
    server.receive("confirmed", stream=f"{INCARNATION} 0.9", number=0, missing=[1])
    assert server.last_sent == []
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=1, missing=[1])
    assert server.last_sent == []
    to, message = server.sent[-1]
    server.handle(SendFailed(to, Decoder().decode(message)))
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=1, missing=[2])
    assert server.last_sent == []  # unreachable: its next hello reports its state


def test_item_in_flight_on_a_slow_link_is_not_retransmitted(server):
    server.publish("x" * 30_000)
    server.handle(TimerFired("again ann"), 5)
    assert server.item_ids() == []
    server.handle(TimerFired("again ann"), 60)
    assert len(server.item_ids()) == 1


def test_messages_for_an_unreachable_device_wait_for_its_hello(server):
    server.publish("a")
    to, message = server.last_sent[-1]
    server.handle(SendFailed("somewhere else", Decoder().decode(message)))
    assert server.queues() == (0, 1)
    server.handle(SendFailed(to, Decoder().decode(message)))
    assert server.queues() == (1, 0)
    server.publish("b")
    assert server.last_sent == []
    server.receive_hello((1, 2), "ann/q", after=[f"{INCARNATION} 1.1", 0])
    assert server.item_ids() == ["a", "b"]
    assert server.last_sent[-1][0] == "ann/q"


def test_hello_with_a_session_position_retransmits_only_lost_items(server):
    server.publish("a")
    server.publish("b", 2.0)
    server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 1])
    assert server.item_ids() == ["b"]
    assert server.queues() == (0, 2)


def test_restarted_server_requests_the_state_of_an_unknown_session(server):
    server.publish("a")
    restarted = Server(server.store)
    restarted.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 1])
    assert restarted.sent_kinds()[-1] == "who"
    restarted.receive_hello((1, 3), holds={"news": {"a": 1.0}})
    assert restarted.sent_kinds() == ["who"]  # may be a late copy
    restarted.receive_answer((1, 4), holds={"news": {"a": 1.0}})
    assert restarted.item_ids() == []
    assert restarted.queues() == (0, 1)


def test_restarted_server_asks_a_device_until_it_answers(server):
    restarted = Server(server.store)
    restarted.handle(Call(1, messages.Queues("ann", "news")))
    assert restarted.sent_kinds() == ["who"]
    restarted.handle(TimerFired("again ann"), 60)
    assert restarted.sent_kinds() == ["who"]
    restarted.receive_answer((1, 2))
    restarted.handle(TimerFired("again ann"), 600)
    assert restarted.sent_kinds() == []


def test_facts_wait_until_the_device_has_answered_a_restarted_server(server):
    facts = server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": [], "number": 1})
    restarted = Server(server.store)
    restarted.receive("told", facts=[[9, facts[0][1]]])
    assert restarted.sent_kinds() == ["who", "who"]
    assert restarted.machine._peers["ann"].facts_seq == 2
    restarted.receive_answer((1, 2), facts=[[8, facts[0][1]], [9, facts[0][1]]], first=3, acked=8)
    assert restarted.machine._peers["ann"].facts_seq == 9
    assert [row["incident"] for row in restarted.rows] == ["rolled back"]


def test_facts_of_a_restored_device_are_accepted_from_the_last_shared_one(server):
    server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": [], "number": 1})
    server.receive_hello((2, 1))
    fact = {"what": "read", "topic": "news", "at_us": 0, "ids": [], "number": 7}
    server.receive_hello((2, 1), facts=[[2, fact]])
    server.receive_answer((2, 2), facts=[[2, fact]], base=1, acked=1)
    assert server.machine._peers["ann"].facts_seq == 2
    assert [row["detail"] for row in server.rows] == ["ann: facts 2 to 2 are gone"]


def test_missed_rank_changes_and_retractions_follow_the_hello(server):
    server.publish("a")
    server.publish("b", 5.0)
    server.handle(SendFailed("ann/p", Welcome("ann", (INCARNATION, 1, 1), 0)))
    server.handle(Call(1, messages.Rerank("news", "a", 4.0)))
    server.handle(Call(1, messages.Rerank("news", "b", -9.0)))
    server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 2])
    assert (server.item_ids("rank"), server.item_ids("retract")) == (["a"], ["b"])
    server.receive_hello((2, 1), holds={"news": {"a": 1.0, "b": 5.0}})
    assert server.sent_kinds() == ["who"]  # a restarted device, or a late duplicate
    server.receive_answer((2, 2), holds={"news": {"a": 1.0, "b": 5.0}})
    assert (server.item_ids("rank"), server.item_ids("retract")) == (["a"], ["b"])


@pytest.mark.parametrize(("missed", "is_asked"), [(1000, False), (1001, True)])
def test_session_with_too_many_missed_items_is_asked_for_its_state(server, missed, is_asked):
    """See ``_MAX_MISSED``: a device that is away has 1000 pending items; with more it has to report its state."""
    server.publish("a")
    server.handle(SendFailed("ann/p", Welcome("ann", (INCARNATION, 1, 1), 0)))
    for number in range(1, missed):
        server.handle(Call(1, messages.Rerank("news", "a", 1.0 + number)))
    server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 1])
    assert (server.sent_kinds() == ["who"]) is is_asked


def test_late_and_duplicate_hellos_start_no_session(server):
    server.publish("a")
    server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 0])
    assert server.item_ids() == ["a"]
    for session in ((1, 2), (1, 1), (0, 9)):
        server.receive_hello(session)
        assert server.item_ids() == []
    assert server.queues() == (0, 1)
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=1)
    server.handle(TimerFired("again ann"), 60)
    assert server.item_ids() == ["a"]


def test_facts_are_handled_once(server):
    for identity in ("a", "b", "c"):
        server.publish(identity)
    facts = server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": ["a"], "number": 1})
    assert server.item_ids() == ["c"]
    assert (
        "ann/p",
        {"kind": "heard", "device": "ann", "session": [INCARNATION, 1, 1], "number": 2},
    ) in server.last_sent
    server.receive("told", facts=facts)
    assert server.item_ids() == []
    spool = server.machine._peers["ann"].topics["news"].spool
    assert spool.habits.reads == [(0, 1, 2)], "it could have used one more, which waited here"


def test_read_request_forwards_better_messages_once(server):
    for number in range(4):
        server.publish(f"m{number}", float(number))
    server.receive("read", topic="news", number=1, most=3)
    assert server.item_ids() == ["m3", "m2"]
    assert len(server.item_ids("offered")) == 1
    server.receive("read", topic="news", number=1, most=4)
    assert server.last_sent == []
    server.receive("read", topic="sport", number=2, most=4)
    server.receive("read", topic="news", number=3, most=None, session=(1, 7))
    assert server.sent_kinds() == ["who"]


def test_restarted_device_may_reuse_read_numbers(server):
    read = {"what": "read", "topic": "news", "at_us": 0, "ids": [], "number": 9}
    server.receive_hello((2, 1), facts=[[2, read]])
    server.receive_answer((2, 2), facts=[[2, read]])
    server.publish("a")
    server.receive("read", session=(2, 2), topic="news", number=1, most=3)
    assert len(server.item_ids("offered")) == 1


def test_subscriptions_and_waiting_messages_are_restored(server):
    server.publish("low", 0.5)
    server.publish("high", 5.0)
    server.publish("soon", 7.0, expires_us=40 * S)
    server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": ["low"], "number": 1})
    restarted = Server(server.store)
    restarted.handle(TimerFired("again ann"), 20)
    for at_s in (25, 30):
        assert (restarted.last_sent[0][0], restarted.last_sent[0][1]["kind"]) == ("ann/p", "who")
        assert "again ann" in restarted.timers
        restarted.handle(TimerFired("again ann"), at_s)
    restarted.publish("new", 1.0)
    restarted.handle(Call(1, messages.Rerank("news", "low", 9.0)))  # already read
    assert restarted.last_sent == []
    restarted.receive_answer((1, 2), holds={"news": {"high": 5.0}})
    assert restarted.item_ids() == ["soon"]
    restarted.handle(TimerFired("due ann\nnews"), 40)
    assert restarted.item_ids() == ["new"]
    assert {key for key, _ in server.store.items("message ")} == {
        "message ann\nnews\nhigh",
        "message ann\nnews\nnew",
    }


def test_learnt_habits_are_restored():
    server = Server()
    server.receive_hello()
    server.subscribe(policy="unified")
    for identity in ("a", "b"):
        server.publish(identity)
    server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": ["a", "b"], "number": 1})
    restarted = Server(server.store)
    restarted.receive_hello((1, 2))
    assert restarted.machine._peers["ann"].topics["news"].spool.prefetch_limit == 2 * 2


def test_state_of_a_version_that_knew_no_demands_is_read():
    server = Server()
    server.receive_hello()
    server.subscribe(policy="unified")
    server.publish("a")
    server.receive_facts({"what": "read", "topic": "news", "at_us": 0, "ids": ["a"], "number": 1})
    state = server.store.get("state ann\nnews", dict)
    server.store.put("state ann\nnews", {name: value for name, value in state.items() if name != "demands"})
    restarted = Server(server.store)
    restarted.receive_hello((1, 2))
    assert restarted.machine._peers["ann"].topics["news"].spool.prefetch_limit == 2 * 1


def test_unsubscribe_deletes_the_state_of_the_topic(server):
    server.publish("a")
    server.publish("too low", -1.0)
    server.receive_facts({"what": "unsubscribe", "topic": "news"})
    server.publish("b")
    assert server.last_sent == []
    assert not [key for key, _ in server.store.items() if "news" in key and not key.startswith("count")]
    assert server.machine._subscribers == {}


def test_repeated_subscription_gets_a_new_run(server):
    server.publish("a")
    first_run = server.last_sent[-1][1]["body"]["run"]
    server.receive_facts({"what": "unsubscribe", "topic": "news"})
    server.subscribe()
    server.publish("b")
    assert server.last_sent[-1][1]["body"]["run"] > first_run


def test_timer_of_the_next_expiration_is_set_once(server):
    """See :meth:`ServerSubscription.show_due`: an event that changes nothing sets no timer again."""

    def is_set():
        return any(timer.startswith("due ") for timer in server.timers)

    server.publish("a", expires_us=100 * S)
    assert is_set()
    server.publish("b", expires_us=200 * S)
    assert not is_set()
    server.publish("c", expires_us=50 * S)
    assert is_set()


def test_content_of_a_message_that_is_not_kept_is_forgotten():
    """One is dropped for another of a higher rank, and one has expired when its rank rises to the threshold."""
    server = Server(capacity=1)
    server.receive_hello()
    server.subscribe(policy=Forwarding("on-demand"), threshold=1.0)
    server.publish("low", 0.5, expires_us=100 * S)
    for identity, rank in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        server.publish(identity, rank)
    server.handle(Call(1, messages.Rerank("news", "low", 9.0)), at_s=200)
    assert server.queues() == (1, 0)
    assert list(server.machine._peers["ann"].topics["news"]._contents) == ["c"]


def test_rank_above_the_threshold_is_queued_and_capacity_drops_the_lowest():
    server = Server(capacity=2)
    server.receive_hello()
    server.subscribe(threshold=1.0, policy="on-demand")
    server.publish("low", 0.5)
    assert server.rows == []
    server.handle(Call(1, messages.Rerank("news", "low", 0.7)))
    assert server.queues() == (0, 0)
    server.handle(Call(1, messages.Rerank("news", "low", 1.5)))
    assert server.queues() == (1, 0)
    assert server.rows == [{"item": "low", "receiver": "ann", "created_us": 0}]
    server.publish("b", 1.0)
    server.publish("c", 2.0)
    assert server.queues() == (2, 0)
    assert [key.split("\n")[-1] for key, _ in server.store.items("message ")] == ["c", "low"]


def test_messages_below_the_threshold_are_bounded(server):
    for number in range(1200):
        server.publish(f"m{number}", -1.0)
    assert len(server.store.items("low ")) == 1000


def test_facts_of_an_unknown_device_trigger_identify():
    server = Server()
    server.receive("told", facts=[])
    assert server.sent_kinds() == ["who"]
    server.receive("confirmed", stream=f"{INCARNATION} 1.1", number=1)
    server.handle(SendFailed("ann/p", Identify("bob", (INCARNATION, 1, 1), INCARNATION, ("", 0, 0))))
    assert server.last_sent == []


def test_unknown_operations_and_devices_are_refused(server):
    server.handle(Call(1, "eat", {}))
    assert isinstance(server.results[-1], ParameterError)
    server.handle(Call(1, messages.Queues("bob", "news")))
    assert isinstance(server.results[-1], ParameterError)


def test_later_messages_do_not_delay_retransmission(server):
    server.subscribe(policy="on-line")
    server.publish("lost")
    for at_s in range(1, 10):
        server.now_us = at_s * S
        server.publish(f"{at_s}" + "x" * 60_000)
    server.handle(TimerFired("again ann"), 10)
    assert server.item_ids() == ["lost"]
    server.handle(TimerFired("again ann"), 54)
    assert server.item_ids() == []  # may still be in flight, behind all later messages
    server.handle(TimerFired("again ann"), 55)
    assert [identity[:1] for identity in server.item_ids()] == ["1"]
    server.handle(TimerFired("again ann"), 500)
    assert server.item_ids()[0] == "lost"


def test_message_is_retransmitted_after_its_timeout_and_not_before(server):
    server.publish("a")
    ((_, message),) = server.last_sent
    timeout_us = DEFAULT_TIMEOUT_US + DEFAULT_US_PER_BYTE * size_bytes(message)
    for at_us, ids in ((5 * S, []), (timeout_us - 1, []), (timeout_us, ["a"]), (2 * timeout_us - 1, [])):
        server.handle(TimerFired("again ann"), at_us / S)
        assert server.item_ids() == ids
        assert "again ann" in server.timers


def test_duplicate_hello_is_answered_by_another_welcome(server):
    server.publish("a")
    server.receive_hello()
    assert server.sent_kinds() == ["welcome"]
    server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 0])
    for _ in range(2):
        server.receive_hello((1, 2), after=[f"{INCARNATION} 1.1", 0])
        assert server.sent_kinds() == ["welcome"]


def test_reordered_read_requests_are_handled_once(server):
    for number in range(4):
        server.publish(f"m{number}", float(number))
    server.receive("read", topic="news", number=2, most=1)
    assert len(server.item_ids("offered")) == 1
    server.receive("read", topic="news", number=1, most=1)
    assert len(server.item_ids("offered")) == 1
    for number in (1, 2):
        server.receive("read", topic="news", number=number, most=1)
        assert server.last_sent == []
    for number in range(3, 300):
        server.receive("read", topic="news", number=number, most=1)
        assert len(server.item_ids("offered")) == 1
    for number in (1, 2, 235, 250, 299):
        server.receive("read", topic="news", number=number, most=1)
        assert server.last_sent == []
    assert len(server.machine._peers["ann"].read_numbers) <= 64


def test_new_incarnation_is_accepted_only_after_it_answers():
    def receive_hello(incarnation, count, nonce=None):
        fields = {"kind": "hello", "device": "ann", "after": None, "holds": {}, "facts": [], "room": None}
        if nonce is not None:
            fields["wants"] = {"topics": {}, "first": 1, "acked": 0, "nonce": nonce}
        server.handle(Received("ann/p", {**fields, "session": [incarnation, 1, count]}))

    server = Server()
    server.receive_hello()
    server.subscribe()
    receive_hello("ffffffff", 1)
    assert server.sent_kinds() == ["who"]
    server.publish("for ann")
    assert server.item_ids() == ["for ann"]
    receive_hello("ffffffff", 1)  # a duplicate
    assert server.sent_kinds() == ["who"]
    receive_hello("ffffffff", 2)  # a late copy of a later one
    receive_hello("ffffffff", 3, "12345678")
    assert server.sent_kinds() == ["who"]
    receive_hello("ffffffff", 3, server.last_sent[0][1]["nonce"])
    assert server.sent_kinds() == ["welcome"]
    server.publish("for nobody")
    assert server.last_sent == []
    receive_hello(INCARNATION, 9)
    assert server.last_sent == []  # the old incarnation has ended
    server = Server(server.store)
    server.publish("for nobody")  # the server awakes, and asks the new incarnation
    receive_hello(INCARNATION, 9)
    assert server.last_sent == []  # a restarted server knows that, too
