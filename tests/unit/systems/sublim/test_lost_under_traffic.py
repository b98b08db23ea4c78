"""Retransmission deadlines of lost messages under other traffic."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit import Lab
from mudkit.delivery.session import Follower
from mudkit.events import Call, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim.messages import Publish, PublishedMessage
from mudkit.systems.sublim.servers.agent import Agent, build_initial_state
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site


def lose_first_copy(lab: Lab, action: Any) -> Any:
    lab.faults.messages(loss_share=1.0)
    operation = action()
    lab.run(seconds=0.5)
    lab.faults.messages()
    return operation


def create_ward() -> tuple[Lab, PublishServer, Any, Subscriber]:
    lab = Lab(seed=7)
    net = PublishServer(lab)
    AccessPoint(lab, net, at=(44.4, 26.1), range_m=150)
    device = lab.device("x", link="wifi", at=(44.4, 26.1), display_px=480)
    subscriber = Subscriber(device, net, report_s=2)
    lab.run(minutes=1)
    return lab, net, device, subscriber


@pytest.mark.parametrize("every_s", [2, 3, 4, 5, 9])
def test_lost_policy_is_retransmitted_while_the_context_changes(every_s):
    lab, _, device, subscriber = create_ward()
    operation = lose_first_copy(lab, lambda: subscriber.set_policy(Policy("p", [Rule()])))
    for number in range(60 // every_s):
        device.change_context(display_px=960 if number % 2 == 0 else 480)
        lab.run(seconds=every_s)
        if operation.done():
            break
    assert operation.done()
    assert lab.world.now_us <= 60e6 + 0.5e6 + 12e6


@pytest.mark.parametrize("every_s", [2, 3, 4])
def test_lost_message_is_retransmitted_while_others_are_published(every_s):
    lab, net, _, subscriber = create_ward()
    lose_first_copy(lab, lambda: net.publish({"n": -1}))
    start_us = lab.world.now_us
    received_us: list[int] = []
    subscriber.on_message(lambda body: received_us.append(lab.world.now_us) if body["n"] == -1 else None)
    for number in range(60 // every_s):
        net.publish({"n": number})
        lab.run(seconds=every_s)
    assert received_us
    assert received_us[0] - start_us <= 12e6
    assert [message["n"] for message in subscriber.read().result()] == list(range(-1, 60 // every_s))


def test_agent_retransmits_at_the_deadline_of_the_oldest_delivery():
    Agent.store_state(store := MemoryStore(), "doctor", build_initial_state("doctor", 1, Follower()))
    agent = Agent(store, "doctor", None)
    due_us = None
    for number in range(1, 8):
        now_us = (number - 1) * 1_000_000
        message = PublishedMessage(number, f"m{number}", 0, 0.0, {"n": number})
        for effect in agent.decide(now_us, message):
            if isinstance(effect, SetTimer):
                due_us = now_us + effect.delay_us
    assert due_us is not None
    assert 5_000_000 <= due_us < 5_100_000
    agent.acknowledge(4_000_000, 2)
    (timer,) = agent.retransmit_overdue(due_us)  # the deadline of the new oldest one
    assert 7_000_000 <= due_us + timer.delay_us < 7_300_000


def test_publish_server_retransmits_only_to_the_overdue_access_point():
    sites = [Site("ap1", None, 1.0, True), Site("ap2", None, 1.0, True)]
    machine = PublishServerMachine(Ports(MemoryStore(), lambda n: bytes(n), "server"), 0, sites)
    for site in sites:
        machine.handle(0, Received(site.address, {"kind": "join"}))
    due_us = None
    for second in range(5):
        now_us = second * 1_000_000
        effects = machine.handle(now_us, Call(second, Publish({}, None)))
        for effect in effects:
            if isinstance(effect, SetTimer):
                assert due_us is None
                due_us = now_us + effect.delay_us
        machine.handle(now_us, Received("ap1", {"kind": "have", "last": second + 1}))
    machine.handle(0, Received("ap2", {"kind": "have", "last": 1}))
    assert due_us == 5_000_000
    effects = machine.handle(5_000_000, TimerFired("again"))
    assert [effect for effect in effects if isinstance(effect, Send)] == []
    (timer,) = effects
    effects = machine.handle(5_000_000 + timer.delay_us, TimerFired("again"))
    assert timer.delay_us == 1_000_000
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["ap2"]
    machine.handle(0, Received("ap2", {"kind": "have", "last": 5}))
    assert machine.handle(20_000_000, TimerFired("again")) == []
    assert machine.handle(20_000_000, LinkUp("server", "server")) == []
