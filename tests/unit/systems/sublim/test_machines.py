"""The machines by themselves: the server's books, an agent's queue, handovers message by message."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mudkit.delivery.session import Follower
from mudkit.events import (
    Call,
    Complete,
    LinkUp,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    TimerFired,
)
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim.messages import (
    FROM_CLIENT,
    FROM_POINT,
    TO_CLIENT,
    Automatic,
    Publish,
    Published,
    ReadState,
)
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.agent import MAX_QUEUED, WINDOW, Agent, initial_state
from mudkit.systems.sublim.servers.handover import Handover
from mudkit.systems.sublim.servers.publish_server import REPLAY_BATCH, PublishServerMachine
from mudkit.systems.sublim.sites import Site
from mudkit.wire import as_wire

LIFE = "00000000"
SITES = [Site("ap", None, 100.0, True), Site("other-ap", None, 100.0, True)]
ATTACH = {
    "kind": "attach", "subscriber": "doctor", "epoch": 1, "from": "ap", "fresh": True, "report": 1, "automatic": {}, "incarnation": LIFE,
}  # fmt: skip


def ports(store: MemoryStore, address: str = "me") -> Ports:
    return Ports(store, lambda n: bytes(n), address)


def sent(effects: Any, kind: str) -> list[Any]:
    messages = [as_wire(each.message) for each in effects if isinstance(each, Send)]
    return [each for each in messages if each["kind"] == kind]


# -- the publish server


def server(store: MemoryStore, kept: int = 5) -> PublishServerMachine:
    return PublishServerMachine(ports(store), 1_000_000, [Site("ap", None, 100.0, True)], kept=kept)


def publish(machine: PublishServerMachine, count: int) -> Any:
    for number in range(count):
        effects = machine.handle(number, Call(number, Publish({"n": number}, None)))
    return effects


def test_messages_are_numbered_and_flooded_to_those_who_joined():
    machine = server(MemoryStore())
    machine.handle(0, Received("ap", {"kind": "join"}))
    effects = publish(machine, 1)
    (answer,) = sent(effects, "messages")
    assert (answer["last"], answer["first"]) == (1, 1)
    assert answer["messages"] == [
        {"number": 1, "item": "message 1", "created_us": 0, "at_s": 1.0, "body": {"n": 0}}
    ]
    assert Complete(0, 1) in effects


def test_a_replay_gives_some_at_a_time_and_says_what_is_no_longer_kept():
    store = MemoryStore()
    machine = server(store, kept=60)
    publish(machine, 70)
    (answer,) = sent(machine.handle(0, Received("ap", {"kind": "replay", "from": 1})), "messages")
    assert (answer["first"], answer["last"]) == (11, 70)
    assert [each["number"] for each in answer["messages"]] == list(range(11, 11 + REPLAY_BATCH))
    (rest,) = sent(machine.handle(0, Received("ap", {"kind": "replay", "from": 61})), "messages")
    assert [each["number"] for each in rest["messages"]] == list(range(61, 71))
    assert len(store.items("message ")) == 60


def test_it_goes_on_counting_after_a_restart_and_knows_its_access_points():
    store = MemoryStore()
    machine = server(store)
    machine.handle(0, Received("ap", {"kind": "join"}))
    publish(machine, 3)
    again = server(store)
    (answer,) = sent(again.handle(0, LinkUp("me", "server")), "messages")
    assert answer["last"] == 3
    assert list(answer["lineage"].values()) == [4]
    (start,) = answer["lineage"]
    again.handle(0, Received("ap", {"kind": "have", "last": 3}))  # of the log before the restart
    assert sent(again.handle(5_000_000, TimerFired("again")), "messages")
    again.handle(0, Received("ap", {"kind": "have", "last": 3, "start": start}))
    assert again.handle(0, TimerFired("again")) == []
    assert sent(publish(again, 1), "messages")[0]["messages"][0]["number"] == 4


# -- an agent's queue


def agent(store: MemoryStore) -> Agent:
    Agent.install(store, "doctor", initial_state("doctor", 1, Follower()))
    return Agent(store, "doctor", None)


def message(number: int) -> Published:
    return Published(number, f"m{number}", 0, 0.0, {"n": number})


def test_a_window_is_under_way_and_the_others_wait():
    mine = agent(MemoryStore())
    effects = [each for number in range(1, WINDOW + 5) for each in mine.decide(0, message(number))]
    assert [each["number"] for each in sent(effects, "deliver")] == list(range(1, WINDOW + 1))
    effects = mine.acknowledge(0, 3)
    assert [(each["number"], each["first"]) for each in sent(effects, "deliver")] == [
        (WINDOW + n, 4) for n in (1, 2, 3)
    ]
    assert len(sent(mine.resend(0), "deliver")) == WINDOW


def test_nothing_is_sent_to_a_device_that_is_away():
    mine = agent(MemoryStore())
    mine.is_away = True
    assert sent(mine.decide(0, message(1)), "deliver") == []
    mine.is_away = False
    assert len(sent(mine.resend(0), "deliver")) == 1


def test_of_what_waits_too_long_the_oldest_goes():
    store = MemoryStore()
    mine = agent(store)
    mine.is_away = True
    for number in range(1, MAX_QUEUED + 3):
        mine.decide(0, message(number))
    mine.is_away = False
    assert [each["number"] for each in sent(mine.resend(0), "deliver")][:1] == [3]
    assert len(store.items("out ")) == MAX_QUEUED


def test_an_agent_is_as_it_was_after_a_restart():
    store = MemoryStore()
    mine = agent(store)
    mine.decide(0, message(1))
    mine.record_report(2, Automatic(battery=50))
    mine.record_report(1, Automatic(battery=60))  # an older one that comes late
    again = Agent(store, "doctor", None)
    assert again.record == mine.record
    assert again.record.automatic == Automatic(battery=50)
    assert again.export(1) == mine.export(1)


# -- handovers


class Point:
    """An access point's part, with its store."""

    def __init__(self, address: str, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.agents: dict[str, Agent] = {}
        self.over = Handover(ports(self.store, address), self.agents, self.begin, Follower(last_seq=0))

    def begin(self, name: str) -> Agent:
        self.agents[name] = Agent(self.store, name, None)
        return self.agents[name]

    def attach(
        self, epoch: int, origin: str, is_fresh: bool = False, client: str = "pda", **more: Any
    ) -> Any:
        message = {**ATTACH, "epoch": epoch, "from": origin, "fresh": is_fresh, "report": epoch, **more}
        return self.over.handle(0, client, FROM_CLIENT.decode(message))

    def hear(self, source: str, message: Any) -> Any:
        return self.over.handle(0, source, FROM_POINT.decode(message))


def handed_over() -> tuple[Point, Point, Any]:
    one, two = Point("one"), Point("two")
    one.attach(1, "one", is_fresh=True)
    (ask,) = sent(two.attach(2, "one"), "ask")
    (state,) = sent(one.hear("two", ask), "parcel")
    return one, two, state


def test_the_state_goes_from_one_to_the_other():
    one, two, state = handed_over()
    assert one.agents == {}
    effects = two.hear("one", state)
    assert sent(effects, "parcel has come") == [
        {"kind": "parcel has come", "subscriber": "doctor", "epoch": 2}
    ]
    assert [each["epoch"] for each in sent(effects, "attached")] == [2]
    one.hear("two", sent(effects, "parcel has come")[0])
    assert one.store.items("leave ") == []


def test_a_parcel_that_comes_twice_is_taken_once():
    _, two, state = handed_over()
    two.hear("one", state)
    two.agents["doctor"].update(replace(two.agents["doctor"].record, variables={"a": 1}))
    (ask,) = sent(Point("three").attach(3, "two"), "ask")
    assert len(sent(two.hear("one", state), "parcel has come")) == 1
    assert two.agents["doctor"].record.variables == {"a": 1}
    two.hear("three", ask)
    assert len(sent(two.hear("one", state), "parcel has come")) == 1  # also when it has gone on
    assert two.agents == {}


def test_a_parcel_is_sent_again_until_it_has_come():
    one, _, state = handed_over()
    assert sent(one.over.retransmit_overdue(4_000_000), "parcel") == [state]
    assert sent(one.over.retransmit_all(4_000_000), "parcel") == [state]
    one.hear("two", {"kind": "parcel has come", "subscriber": "doctor", "epoch": 2})
    assert one.over.retransmit_overdue(9_000_000) == []


def test_who_asks_one_that_it_has_left_is_told_where_to():
    one, two, state = handed_over()
    three = Point("three")
    (ask,) = sent(three.attach(3, "one"), "ask")
    (moved,) = sent(one.hear("three", ask), "moved")
    assert moved["to"] == "two"
    (ask,) = sent(three.hear("one", moved), "ask")
    assert sent(two.hear("three", ask), "parcel") == []  # not yet there: three will ask again
    two.hear("one", state)
    (state,) = sent(two.hear("three", ask), "parcel")
    three.hear("two", state)
    assert list(three.agents) == ["doctor"]
    assert (one.agents, two.agents) == ({}, {})


def test_who_asks_for_one_that_has_come_back_is_stale():
    one, _, _ = handed_over()
    three = Point("three")
    one.attach(4, "one")
    (ask,) = sent(three.attach(2, "one"), "ask")
    (stale,) = sent(one.hear("three", {**ask, "epoch": 1}), "stale")
    assert stale["epoch"] == 1
    three.hear("one", {**stale, "epoch": 2})
    assert three.store.items("want ") == []


def test_a_point_that_has_lost_a_subscriber_says_so_to_another_one():
    two, three = Point("two"), Point("three")
    two.over.start_us, two.over.start_seq = 7_000_000, 90
    (ask,) = sent(three.attach(3, "two"), "ask")
    (missing,) = sent(two.hear("three", ask), "missing")
    assert two.agents == {}
    effects = three.hear("two", {**missing, "epoch": 2})
    assert effects == ()  # a late copy
    (attached,) = sent(three.hear("two", missing), "attached")
    assert attached["epoch"] == 3
    assert (three.agents["doctor"].record.since_us, three.store.items("want ")) == (7_000_000, [])


def test_a_point_that_has_lost_a_subscriber_begins_anew():
    two = Point("two")
    effects = two.attach(1, "two", seen=8)
    assert len(sent(effects, "attached")) == 1
    assert [each.row["incident"] for each in effects if isinstance(each, Record)] == ["rolled back"]
    assert two.agents["doctor"].record.last_seq == 8


def test_a_subscriber_that_was_served_elsewhere_since_a_backup_is_asked_for_there():
    one, two, state = handed_over()
    two.hear("one", state)
    one.agents["doctor"] = old = Agent(two.store, "doctor", None)  # as one's backup had it
    old.update(replace(old.record, epoch=1))
    old.suspend(0)
    two.agents["doctor"].update(replace(two.agents["doctor"].record, epoch=2, last_seq=5))
    (ask,) = sent(one.attach(3, "two"), "ask")
    (state,) = sent(two.hear("one", ask), "parcel")
    assert len(sent(one.hear("two", state), "attached")) == 1
    assert (one.agents["doctor"].record.last_seq, list(two.agents)) == (5, [])


def test_a_subscriber_that_only_seems_to_have_been_elsewhere_is_served():
    one, two = Point("one"), Point("two")
    one.attach(1, "one", is_fresh=True)
    one.agents["doctor"].suspend(0)
    (ask,) = sent(one.attach(4, "two"), "ask")
    (missing,) = sent(two.hear("one", ask), "missing")
    assert len(sent(one.hear("two", missing), "attached")) == 1
    assert one.agents["doctor"].is_confirmed


def test_who_has_left_for_a_later_epoch_is_forgotten():
    one = Point("one")
    one.attach(3, "one", is_fresh=True)
    left = {"kind": "left", "subscriber": "doctor", "incarnation": LIFE, "epoch": 3}
    one.over.handle(0, "pda", FROM_CLIENT.decode(left))
    assert list(one.agents) == ["doctor"]  # a late copy: it has come back
    one.over.handle(0, "pda", FROM_CLIENT.decode({**left, "epoch": 4}))
    assert one.agents == {}


def test_a_first_attachment_that_was_lost_is_no_second_state():
    one, two = Point("one"), Point("two")
    (ask,) = sent(two.attach(2, "one", is_fresh=True), "ask")
    (state,) = sent(one.hear("two", ask), "parcel")  # an empty one
    two.hear("one", state)
    late = one.attach(1, "one", is_fresh=True)  # a client that has moved on ignores the answer
    assert [type(effect.message).__name__ for effect in late] == ["Behind"]
    assert (list(one.agents), list(two.agents)) == ([], ["doctor"])


def test_an_attachment_from_another_address_is_the_same_subscriber():
    one = Point("one")
    one.attach(1, "one", is_fresh=True)
    one.attach(1, "one", client="pda@2")
    assert one.agents["doctor"].record.address == "pda@2"
    assert sent(one.attach(0, "one", client="pda@1"), "attached") == []
    assert one.agents["doctor"].record.address == "pda@2"


# -- the access point


def access_point(store: MemoryStore) -> AccessPointMachine:
    machine = AccessPointMachine(ports(store, "ap"), "server", {}, SITES)
    machine.handle(0, Received("server", {"kind": "messages", "last": 0, "first": 1, "messages": []}))
    return machine


def flooded(*numbers: int, last: int = 0, first: int = 1) -> Received:
    messages = [message(number) for number in numbers]
    flood = {"kind": "messages", "last": last or max(numbers), "first": first, "messages": messages}
    return Received("server", flood)


@pytest.fixture
def machine() -> AccessPointMachine:
    """An access point that serves a doctor."""
    machine = access_point(MemoryStore())
    machine.handle(0, Received("doctor", ATTACH))
    return machine


def test_what_was_missed_is_asked_for_once_and_decided_in_order(machine):
    effects = machine.handle(0, flooded(3))
    assert [each["from"] for each in sent(effects, "replay")] == [1]
    assert sent(machine.handle(0, flooded(4)), "replay") == []
    effects = machine.handle(0, flooded(1, 2, 3, 4))
    assert [each["body"]["n"] for each in sent(effects, "deliver")] == [1, 2, 3, 4]
    assert sent(machine.handle(0, flooded(2, 4)), "deliver") == []


def test_what_is_no_longer_to_be_had_is_skipped_and_counted(machine):
    effects = machine.handle(0, flooded(7, 8, first=7))
    assert [each["body"]["n"] for each in sent(effects, "deliver")] == [7, 8]
    (state,) = machine.handle(5, Call(1, ReadState("doctor")))
    assert (state.result["skipped"], state.result["now_us"]) == (6, 5)


def test_a_lost_replay_is_asked_for_again(machine):
    machine.handle(0, flooded(3))
    assert len(sent(machine.handle(6_000_000, TimerFired("server")), "replay")) == 1


def test_until_it_knows_which_message_is_next_it_begins_with_nobody():
    machine = AccessPointMachine(ports(MemoryStore(), "ap"), "server", {}, SITES)
    assert machine.handle(0, Received("doctor", ATTACH)) == []
    assert sent(machine.handle(0, LinkUp("ap", "server")), "join")
    assert sent(machine.handle(6_000_000, TimerFired("server")), "join")


def test_what_could_not_be_delivered_waits_for_the_next_attachment(machine):
    (deliver,) = sent(machine.handle(0, flooded(1)), "deliver")
    machine.handle(0, SendFailed("doctor", TO_CLIENT.decode(deliver)))
    assert sent(machine.handle(0, flooded(2)), "deliver") == []
    effects = machine.handle(0, Received("doctor", ATTACH))
    assert [each["body"]["n"] for each in sent(effects, "deliver")] == [1, 2]


@pytest.mark.parametrize("kind", ["got", "report", "policy"])
def test_who_is_not_served_here_is_asked_to_attach_if_it_counts_on_it(kind):
    machine = access_point(MemoryStore())
    answer = {
        "kind": kind,
        "subscriber": "nobody",
        "number": 1,
        "automatic": {},
        "policy": {},
        "incarnation": LIFE,
    }
    asked = sent(machine.handle(0, Received("nobody", answer)), "identify")
    assert len(asked) == (kind != "got")
