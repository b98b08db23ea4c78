"""Machines of SUBLIM: publish server, agent queue, handover, and access point."""

from __future__ import annotations

from types import NoneType
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.session import Follower
from mudkit.events import (
    Call,
    Complete,
    ContextChanged,
    LinkUp,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    TimerFired,
)
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import PolicyError
from mudkit.systems.sublim.device import ClientMachine
from mudkit.systems.sublim.messages import (
    FROM_CLIENT,
    FROM_POINT,
    TO_CLIENT,
    Automatic,
    InstallPolicy,
    Publish,
    PublishedMessage,
    ReadState,
)
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.agent import MAX_QUEUED, WINDOW, Agent, build_initial_state
from mudkit.systems.sublim.servers.handover import Handover
from mudkit.systems.sublim.servers.publish_server import REPLAY_BATCH, PublishServerMachine
from mudkit.systems.sublim.sites import Site
from mudkit.wire import as_wire

INCARNATION = "00000000"
SITES = [Site("ap", None, 100.0, True), Site("other-ap", None, 100.0, True)]
ATTACH = {
    "kind": "attach", "subscriber": "doctor", "epoch": 1, "from": "ap", "fresh": True, "report": 1, "automatic": {}, "incarnation": INCARNATION,
}  # fmt: skip


def create_ports(store: MemoryStore, address: str = "me") -> Ports:
    return Ports(store, lambda n: bytes(n), address)


def select(effects: Any, kind: str) -> list[Any]:
    messages = [as_wire(effect.message) for effect in effects if isinstance(effect, Send)]
    return [message for message in messages if message["kind"] == kind]


# -- the publish server


def create_server(store: MemoryStore, kept: int = 5) -> PublishServerMachine:
    return PublishServerMachine(create_ports(store), 1_000_000, [Site("ap", None, 100.0, True)], kept=kept)


def publish(machine: PublishServerMachine, count: int) -> Any:
    for number in range(count):
        effects = machine.handle(number, Call(number, Publish({"n": number}, None)))
    return effects


def test_messages_are_numbered_and_flooded_to_joined_access_points():
    machine = create_server(MemoryStore())
    machine.handle(0, Received("ap", {"kind": "join"}))
    effects = publish(machine, 1)
    (answer,) = select(effects, "messages")
    assert (answer["last"], answer["first"]) == (1, 1)
    assert answer["messages"] == [
        {"number": 1, "item": "message 1", "created_us": 0, "at_s": 1.0, "body": {"n": 0}}
    ]
    assert Complete(0, 1) in effects


def test_replay_is_batched_and_reports_the_first_stored_message():
    store = MemoryStore()
    machine = create_server(store, kept=60)
    publish(machine, 70)
    (answer,) = select(machine.handle(0, Received("ap", {"kind": "replay", "from": 1})), "messages")
    assert (answer["first"], answer["last"]) == (11, 70)
    assert [message["number"] for message in answer["messages"]] == list(range(11, 11 + REPLAY_BATCH))
    (rest,) = select(machine.handle(0, Received("ap", {"kind": "replay", "from": 61})), "messages")
    assert [message["number"] for message in rest["messages"]] == list(range(61, 71))
    assert len(store.items("message ")) == 60


def test_restarted_publish_server_keeps_numbers_and_access_points():
    store = MemoryStore()
    machine = create_server(store)
    machine.handle(0, Received("ap", {"kind": "join"}))
    publish(machine, 3)
    restarted = create_server(store)
    (answer,) = select(restarted.handle(0, LinkUp("me", "server")), "messages")
    assert answer["last"] == 3
    assert list(answer["lineage"].values()) == [4]
    (start,) = answer["lineage"]
    restarted.handle(0, Received("ap", {"kind": "have", "last": 3}))  # of the log before the restart
    assert select(restarted.handle(5_000_000, TimerFired("again")), "messages")
    restarted.handle(0, Received("ap", {"kind": "have", "last": 3, "start": start}))
    assert restarted.handle(0, TimerFired("again")) == []
    assert select(publish(restarted, 1), "messages")[0]["messages"][0]["number"] == 4


# -- an agent's queue


def create_agent(store: MemoryStore) -> Agent:
    Agent.store_state(store, "doctor", build_initial_state("doctor", 1, Follower()))
    return Agent(store, "doctor", None)


def create_message(number: int) -> PublishedMessage:
    return PublishedMessage(number, f"m{number}", 0, 0.0, {"n": number})


def test_deliveries_beyond_the_window_are_queued():
    agent = create_agent(MemoryStore())
    effects = [
        effect for number in range(1, WINDOW + 5) for effect in agent.decide(0, create_message(number))
    ]
    assert [message["number"] for message in select(effects, "deliver")] == list(range(1, WINDOW + 1))
    effects = agent.acknowledge(0, 3)
    assert [(message["number"], message["first"]) for message in select(effects, "deliver")] == [
        (WINDOW + n, 4) for n in (1, 2, 3)
    ]
    assert len(select(agent.restart_deliveries(0), "deliver")) == WINDOW


def test_nothing_is_sent_to_a_device_that_is_away():
    agent = create_agent(MemoryStore())
    agent.is_away = True
    assert select(agent.decide(0, create_message(1)), "deliver") == []
    agent.is_away = False
    assert len(select(agent.restart_deliveries(0), "deliver")) == 1


def test_oldest_delivery_is_dropped_from_a_full_queue():
    store = MemoryStore()
    agent = create_agent(store)
    agent.is_away = True
    for number in range(1, MAX_QUEUED + 3):
        agent.decide(0, create_message(number))
    agent.is_away = False
    assert [message["number"] for message in select(agent.restart_deliveries(0), "deliver")][:1] == [3]
    assert len(store.items("out ")) == MAX_QUEUED


def test_restarted_agent_has_the_stored_state():
    store = MemoryStore()
    agent = create_agent(store)
    agent.decide(0, create_message(1))
    agent.record_report(2, Automatic(battery=50))
    agent.record_report(1, Automatic(battery=60))  # an older report arrives late
    restarted = Agent(store, "doctor", None)
    assert restarted.record == agent.record
    assert restarted.record.automatic == Automatic(battery=50)
    assert restarted.export_state(1) == agent.export_state(1)


def test_messages_published_before_the_loss_of_a_store_are_skipped():
    """Check the bound of ``SubscriberRecord.since_us``: one published at that very time is decided."""
    agent = create_agent(MemoryStore())
    agent.update_record(replace(agent.record, since_us=100))
    before, at = (replace(create_message(number), created_us=98 + number) for number in (1, 2))
    assert (agent.decide(200, before), agent.record.skipped, agent.record.next_lsn) == ((), 1, 2)
    assert [message["item"] for message in select(agent.decide(200, at), "deliver")] == ["m2"]
    assert agent.record.since_us is UNSET


# -- the client


def test_answer_to_a_policy_completes_earlier_ones_and_no_later_one():
    """Check that a policy that a later one has replaced is done with it: see ``Subscriber.set_policy``."""
    client = ClientMachine(create_ports(MemoryStore(), "pda"), "doctor", SITES, 1, 0.1)
    for op_id in (11, 12, 13):
        client.handle(0, Call(op_id, InstallPolicy({})))
    answer = {"kind": "policy set", "incarnation": INCARNATION, "number": 2}
    problem = {"summary": "This is no policy.", "where": None, "found": None}
    completed = [
        effect
        for effect in client.handle(0, Received("ap", {**answer, "problem": problem}))
        if isinstance(effect, Complete)
    ]
    assert [(effect.op_id, type(effect.error)) for effect in completed] == [(12, PolicyError), (11, NoneType)]
    effects = client.handle(0, Received("ap", {**answer, "number": 3}))
    assert [effect.op_id for effect in effects if isinstance(effect, Complete)] == [13]


def test_policy_and_report_that_are_overdue_together_are_both_retransmitted():
    client = ClientMachine(create_ports(MemoryStore(), "pda"), "doctor", SITES, 1, 0.1)
    client.handle(0, LinkUp("pda", "server"))
    client.handle(
        0, Received("ap", {"kind": "attached", "incarnation": INCARNATION, "epoch": 1, "report": 1})
    )
    sent = [
        *client.handle(2_000_000, Call(1, InstallPolicy({}))),
        *client.handle(2_000_000, ContextChanged({"battery_share": 0.5})),
    ]
    assert len(select(sent, "policy")) == len(select(sent, "report")) == 1
    again = client.handle(600_000_000, TimerFired("again"))
    assert len(select(again, "policy")) == len(select(again, "report")) == 1


@pytest.mark.parametrize(("known", "count"), [(0, 1), (1, 0)])
def test_policy_is_sent_again_where_the_access_point_has_an_older_one(known, count):
    """See :class:`Attached`: the access point has lost a policy if it knows one with a lower number."""
    client = ClientMachine(create_ports(MemoryStore(), "pda"), "doctor", SITES, 1, 0.1)
    client.handle(0, LinkUp("pda", "server"))
    attached = {"kind": "attached", "incarnation": INCARNATION, "epoch": 1, "report": 1}
    client.handle(0, Received("ap", attached))
    client.handle(0, Call(1, InstallPolicy({})))
    client.handle(0, Received("ap", {"kind": "policy set", "incarnation": INCARNATION, "number": 1}))
    effects = client.handle(0, Received("ap", {**attached, "policy": known}))
    assert len(select(effects, "policy")) == count


def test_client_that_has_forgotten_reports_sends_one_under_the_next_number():
    client = ClientMachine(create_ports(MemoryStore(), "pda"), "doctor", SITES, 1, 0.1)
    client.handle(0, LinkUp("pda", "server"))
    attached = {"kind": "attached", "incarnation": INCARNATION, "epoch": 1, "report": 5}
    effects = client.handle(0, Received("ap", attached))
    assert [report["number"] for report in select(effects, "report")] == [6]


# -- handovers


class Point:
    """Handover of an access point, with its store."""

    def __init__(self, address: str, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.agents: dict[str, Agent] = {}
        self.handover = Handover(
            create_ports(self.store, address), self.agents, self.add_agent, Follower(last_lsn=0)
        )

    def add_agent(self, name: str) -> Agent:
        self.agents[name] = Agent(self.store, name, None)
        return self.agents[name]

    def attach(
        self, epoch: int, origin: str, is_fresh: bool = False, client: str = "pda", **fields: Any
    ) -> Any:
        message = {**ATTACH, "epoch": epoch, "from": origin, "fresh": is_fresh, "report": epoch, **fields}
        return self.handover.handle(0, client, FROM_CLIENT.decode(message))

    def receive(self, source: str, message: Any) -> Any:
        return self.handover.handle(0, source, FROM_POINT.decode(message))


def start_handover() -> tuple[Point, Point, Any]:
    one, two = Point("one"), Point("two")
    one.attach(1, "one", is_fresh=True)
    (ask,) = select(two.attach(2, "one"), "ask")
    (state,) = select(one.receive("two", ask), "parcel")
    return one, two, state


def test_state_is_transferred_and_acknowledged():
    one, two, state = start_handover()
    assert one.agents == {}
    effects = two.receive("one", state)
    assert select(effects, "parcel has come") == [
        {"kind": "parcel has come", "subscriber": "doctor", "epoch": 2}
    ]
    assert [message["epoch"] for message in select(effects, "attached")] == [2]
    one.receive("two", select(effects, "parcel has come")[0])
    assert one.store.items("leave ") == []


def test_duplicate_state_transfer_is_acknowledged_but_ignored():
    _, two, state = start_handover()
    two.receive("one", state)
    two.agents["doctor"].update_record(replace(two.agents["doctor"].record, variables={"a": 1}))
    (ask,) = select(Point("three").attach(3, "two"), "ask")
    assert len(select(two.receive("one", state), "parcel has come")) == 1
    assert two.agents["doctor"].record.variables == {"a": 1}
    two.receive("three", ask)
    assert len(select(two.receive("one", state), "parcel has come")) == 1  # also after the next transfer
    assert two.agents == {}


def test_state_transfer_is_retransmitted_until_acknowledged():
    one, _, state = start_handover()
    assert select(one.handover.retransmit_overdue(4_000_000), "parcel") == [state]
    answer = {"kind": "parcel has come", "subscriber": "doctor", "epoch": 2}
    for epoch in (1, 3):  # of other transfers
        one.receive("two", {**answer, "epoch": epoch})
    assert select(one.handover.retransmit_all(4_000_000), "parcel") == [state]
    one.receive("two", answer)
    assert one.handover.retransmit_overdue(9_000_000) == []


def test_new_incarnation_continues_after_the_last_epoch_of_the_former_one():
    one, *_ = start_handover()  # one knows of epoch 2, in which the subscriber left
    one.attach(3, "two")
    wiped = {"is_fresh": True, "incarnation": "1" * 8}
    (identify,) = select(one.attach(1, "one", **wiped), "identify")
    for epoch in (2, 3):
        (behind,) = select(one.attach(epoch, "one", nonce=identify["nonce"], **wiped), "behind")
        assert behind["epoch"] == 3
    assert [type(effect.message).__name__ for effect in one.attach(4, "one", **wiped)] == ["Attached"]


def test_request_to_a_former_access_point_is_redirected():
    one, two, state = start_handover()
    three = Point("three")
    (ask,) = select(three.attach(3, "one"), "ask")
    (moved,) = select(one.receive("three", ask), "moved")
    assert moved["to"] == "two"
    (ask,) = select(three.receive("one", moved), "ask")
    assert select(two.receive("three", ask), "parcel") == []  # not yet installed
    two.receive("one", state)
    (state,) = select(two.receive("three", ask), "parcel")
    three.receive("two", state)
    assert list(three.agents) == ["doctor"]
    assert (one.agents, two.agents) == ({}, {})


def test_request_with_an_older_epoch_is_stale():
    one, _, _ = start_handover()
    three = Point("three")
    one.attach(4, "one")
    (ask,) = select(three.attach(2, "one"), "ask")
    (stale,) = select(one.receive("three", {**ask, "epoch": 1}), "stale")
    assert stale["epoch"] == 1
    three.receive("one", {**stale, "epoch": 2})
    assert three.store.items("want ") == []


def test_request_for_lost_state_is_answered_with_missing():
    two, three = Point("two"), Point("three")
    two.handover.start_us, two.handover.start_lsn = 7_000_000, 90
    (ask,) = select(three.attach(3, "two"), "ask")
    (missing,) = select(two.receive("three", ask), "missing")
    assert two.agents == {}
    effects = three.receive("two", {**missing, "epoch": 2})
    assert effects == ()  # a late copy
    (attached,) = select(three.receive("two", missing), "attached")
    assert attached["epoch"] == 3
    assert (three.agents["doctor"].record.since_us, three.store.items("want ")) == (7_000_000, [])


def test_access_point_without_the_state_starts_anew():
    two = Point("two")
    effects = two.attach(1, "two", seen=8)
    assert len(select(effects, "attached")) == 1
    assert [effect.row["incident"] for effect in effects if isinstance(effect, Record)] == ["rolled back"]
    assert two.agents["doctor"].record.last_seq == 8


def test_restored_access_point_requests_newer_state_from_another():
    one, two, state = start_handover()
    two.receive("one", state)
    one.agents["doctor"] = old = Agent(two.store, "doctor", None)  # as in the backup of one
    old.update_record(replace(old.record, epoch=1))
    old.suspend(0)
    two.agents["doctor"].update_record(replace(two.agents["doctor"].record, epoch=2, last_seq=5))
    (ask,) = select(one.attach(3, "two"), "ask")
    (state,) = select(two.receive("one", ask), "parcel")
    assert len(select(one.receive("two", state), "attached")) == 1
    assert (one.agents["doctor"].record.last_seq, list(two.agents)) == (5, [])


def test_restored_state_is_served_if_the_other_access_point_has_none():
    one, two = Point("one"), Point("two")
    one.attach(1, "one", is_fresh=True)
    one.agents["doctor"].suspend(0)
    (ask,) = select(one.attach(4, "two"), "ask")
    (missing,) = select(two.receive("one", ask), "missing")
    assert len(select(one.receive("two", missing), "attached")) == 1
    assert one.agents["doctor"].is_confirmed


def test_left_deletes_the_agent_only_at_a_later_epoch():
    one = Point("one")
    one.attach(3, "one", is_fresh=True)
    left = {"kind": "left", "subscriber": "doctor", "incarnation": INCARNATION, "epoch": 3}
    one.handover.handle(0, "pda", FROM_CLIENT.decode(left))
    assert list(one.agents) == ["doctor"]  # a late copy
    effects = one.handover.handle(0, "pda", FROM_CLIENT.decode({**left, "epoch": 4}))
    (identify,) = select(effects, "identify")
    assert list(one.agents) == ["doctor"]  # this may be a late copy, too
    one.handover.handle(0, "pda", FROM_CLIENT.decode({**left, "epoch": 4, "nonce": identify["nonce"]}))
    assert one.agents == {}


def test_late_first_attachment_creates_no_second_state():
    one, two = Point("one"), Point("two")
    (ask,) = select(two.attach(2, "one", is_fresh=True), "ask")
    (state,) = select(one.receive("two", ask), "parcel")  # an initial state
    two.receive("one", state)
    late = one.attach(1, "one", is_fresh=True)  # the client ignores the answer: its epoch is later
    assert [type(effect.message).__name__ for effect in late] == ["Behind"]
    assert (list(one.agents), list(two.agents)) == ([], ["doctor"])


def test_attachment_from_another_address_updates_the_address():
    one = Point("one")
    one.attach(1, "one", is_fresh=True)
    one.attach(1, "one", client="pda@2", report=2)
    assert one.agents["doctor"].record.address == "pda@2"
    assert select(one.attach(0, "one", client="pda@1"), "attached") == []
    (behind,) = select(one.attach(1, "one", client="pda@1", report=1), "behind")
    assert (behind["epoch"], behind["report"]) == (1, 2)
    assert one.agents["doctor"].record.address == "pda@2"


# -- the access point


def create_access_point(store: MemoryStore) -> AccessPointMachine:
    machine = AccessPointMachine(create_ports(store, "ap"), "server", {}, SITES)
    machine.handle(0, Received("server", {"kind": "messages", "last": 0, "first": 1, "messages": []}))
    return machine


def create_flood(*numbers: int, last: int = 0, first: int = 1) -> Received:
    messages = [create_message(number) for number in numbers]
    flood = {"kind": "messages", "last": last or max(numbers), "first": first, "messages": messages}
    return Received("server", flood)


@pytest.fixture
def machine() -> AccessPointMachine:
    """Return an access point that serves a doctor."""
    machine = create_access_point(MemoryStore())
    machine.handle(0, Received("doctor", ATTACH))
    return machine


def test_missing_messages_are_requested_once_and_decided_in_order(machine):
    effects = machine.handle(0, create_flood(3))
    assert [message["from"] for message in select(effects, "replay")] == [1]
    assert select(machine.handle(0, create_flood(4)), "replay") == []
    effects = machine.handle(0, create_flood(1, 2, 3, 4))
    assert [message["body"]["n"] for message in select(effects, "deliver")] == [1, 2, 3, 4]
    assert select(machine.handle(0, create_flood(2, 4)), "deliver") == []


def test_deleted_messages_are_skipped_and_counted(machine):
    effects = machine.handle(0, create_flood(7, 8, first=7))
    assert [message["body"]["n"] for message in select(effects, "deliver")] == [7, 8]
    (state,) = machine.handle(5, Call(1, ReadState("doctor")))
    assert (state.result["skipped"], state.result["now_us"]) == (6, 5)


def test_lost_replay_is_requested_again(machine):
    machine.handle(0, create_flood(3))
    assert len(select(machine.handle(6_000_000, TimerFired("server")), "replay")) == 1


def test_attachments_are_ignored_until_the_log_position_is_known():
    machine = AccessPointMachine(create_ports(MemoryStore(), "ap"), "server", {}, SITES)
    assert machine.handle(0, Received("doctor", ATTACH)) == []
    assert select(machine.handle(0, LinkUp("ap", "server")), "join")
    assert select(machine.handle(6_000_000, TimerFired("server")), "join")


def test_restarted_access_point_asks_a_subscriber_until_it_attaches():
    store = MemoryStore()
    create_access_point(store).handle(0, Received("doctor", ATTACH))
    restarted = create_access_point(store)
    (first,) = select(restarted.handle(0, LinkUp("ap", "server")), "identify")
    (again,) = select(restarted.handle(60_000_000, TimerFired("identify")), "identify")
    assert again["nonce"] == first["nonce"]
    restarted.handle(60_000_000, Received("doctor", {**ATTACH, "report": 2, "nonce": again["nonce"]}))
    assert select(restarted.handle(600_000_000, TimerFired("identify")), "identify") == []


def test_undelivered_messages_are_sent_after_the_next_attachment(machine):
    (deliver,) = select(machine.handle(0, create_flood(1)), "deliver")
    machine.handle(0, SendFailed("doctor", TO_CLIENT.decode(deliver)))
    assert select(machine.handle(0, create_flood(2)), "deliver") == []
    effects = machine.handle(0, Received("doctor", {**ATTACH, "report": 2}))
    assert [message["body"]["n"] for message in select(effects, "deliver")] == [1, 2]


@pytest.mark.parametrize("kind", ["got", "report", "policy"])
def test_unknown_subscriber_is_asked_to_attach_after_report_or_policy(kind):
    machine = create_access_point(MemoryStore())
    message = {
        "kind": kind,
        "subscriber": "nobody",
        "number": 1,
        "automatic": {},
        "policy": {},
        "incarnation": INCARNATION,
    }
    requests = select(machine.handle(0, Received("nobody", message)), "identify")
    assert len(requests) == (kind != "got")
