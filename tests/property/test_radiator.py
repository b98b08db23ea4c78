"""Radiator on a fleet under faults: registered clients receive every context exactly once."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.experiment import PHOTOS, Radiator, run
from mudkit.experiment.adapters.radiator import RadiatorPart
from mudkit.experiment.chains import Chain
from mudkit.fleet.store import MemoryStore
from mudkit.sources.workloads import Poisson
from mudkit.systems.radiator import Client, Context, People, Server, Time, Volume, distance_km

NAMES = ("ann", "bob", "cy", "dan", "eve")
FUNCTIONS = {
    "volume": lambda sender, receiver: Volume(3),
    "time": lambda sender, receiver: Time(seconds=45),
    "both": lambda sender, receiver: Time(seconds=40) if sender["x"] == receiver["x"] else Volume(2),
    "by distance": lambda sender, receiver: Volume(
        1 + int(distance_km((0, sender["x"]), (0, receiver["x"])) / 100)
    ),
    "a function of both": lambda sender, receiver: Volume(lambda s, r: 1 + (s["x"] + r["x"]) % 3),
    "seldom": lambda sender, receiver: Volume(1_000_000),
    "fails at times": lambda sender, receiver: Volume(2 if sender["x"] == receiver["x"] else "x"),
    "people": lambda sender, receiver: People(3),
}
names = st.sampled_from(NAMES)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["send"] * 5 + ["cut", "kill", "mangle", "move", "leave", "off", "wipe", "attributes", "lose"]
        ),
        names,
        st.integers(0, 3),
        st.integers(1, 40),
    ),
    max_size=30,
)


class Fleet:
    """Five clients with their sent and received contexts and their registrations."""

    def __init__(self, g: Any, chain: float, echo: bool) -> None:
        self.lab = Lab(seed=5, record_messages=False)
        self.server = Server(self.lab, g, chain=chain, echo=echo, max_retention_s=900)
        self.received: dict[str, list[Context]] = defaultdict(list)
        self.clients = {}
        self.sent: dict[str, Context] = {}
        self.operations: dict[str, Any] = {}
        self.left: set[str] = set()
        self.wiped: set[str] = set()
        for place, name in enumerate(NAMES):
            attributes = {"p2p_enabled": name != "bob", "x": place % 2}
            self.clients[name] = Client(
                self.lab.device(name), self.server, receive=self.received[name].append, attributes=attributes
            )
        self.lab.run(seconds=2)

    def do(self, step: Any) -> None:
        action, name, x, seconds = step
        lab, client = self.lab, self.clients[name]
        if action == "send" and name not in self.left:
            serial = f"{name} {len(self.sent)}"
            self.sent[serial] = Context(
                {name}, {"x": x, "serial": serial}, (lab.world.now_us, lab.world.now_us)
            )
            if lab.devices[name].is_on and client.installed.machine is not None:
                self.operations[serial] = client.propagate_context(self.sent[serial])
            else:
                del self.sent[serial]
        elif action == "cut":
            lab.faults.cut(name, minutes=seconds / 10)
        elif action in ("kill", "off"):
            lab.faults.kill(name)
            lab.run(seconds=seconds / 2)
            lab.faults.restart(name)
        elif action == "mangle":
            lab.faults.messages(
                loss_share=0.1 * (seconds % 3), repeat_share=0.2, delay_share=0.2, delay_s=3.0
            )
        elif action == "move":
            lab.devices[name].readdress(lab.devices[name].next_address())
        elif action == "leave" and len(self.left) < 2 and name not in self.left:
            client.unregister()
            self.left.add(name)
        elif action == "wipe" and name not in self.left and client.installed.machine is not None:
            client.installed.kill()
            client.installed.store = MemoryStore()
            client.installed.start()
            client.register({"p2p_enabled": name != "bob", "x": x})
            self.wiped.add(name)
        elif action == "attributes" and name not in self.left and client.installed.machine is not None:
            client.register({"p2p_enabled": name != "bob", "x": x})
        elif action == "lose":
            lab.faults.messages(loss_share=1.0)
            lab.run(seconds=1)
            lab.faults.messages()
        lab.run(seconds=seconds)

    def settle(self) -> None:
        self.lab.faults.messages(loss_share=0.0, repeat_share=0.0, delay_share=0.0, delay_s=1.0)
        self.lab.run(hours=1)


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(10)
@given(story=steps, chain=st.sampled_from([0.0, 0.4, 1.0]), echo=st.booleans())
def test_registered_clients_receive_every_context_once(name, story, chain, echo):
    fleet = Fleet(FUNCTIONS[name], chain, echo)
    for step in story:
        fleet.do(step)
    fleet.settle()
    dropped = fleet.server.counts().result()["dropped"]
    missing = 0
    for client in NAMES:
        serials = Counter(serial for context in fleet.received[client] for serial in context["serial"])
        if client not in fleet.wiped:
            assert max(serials.values(), default=1) == 1, "nothing twice"
        if client not in fleet.left:
            stayed = {
                serial
                for serial in fleet.sent
                if serial.split()[0] not in {*fleet.left, *fleet.wiped}
                or fleet.operations[serial].status == "ok"
            }
            expected = {serial for serial in stayed if echo or not serial.startswith(client)}
            missing += len(expected - set(serials))
        for context in fleet.received[client]:
            check_is_union([fleet.sent[serial] for serial in context["serial"]], context)
            if name == "people":
                assert len(context.people) >= 3
    for client in {*NAMES} - fleet.left:
        assert fleet.clients[client].registered.done(), client
    for serial, operation in fleet.operations.items():
        assert operation.done(), serial
    assert missing <= (dropped if name == "people" else 0)


def check_is_union(parts: list[Context], whole: Context) -> None:
    """Check that an aggregate is exactly the union of its contexts."""
    assert whole.people == frozenset().union(*(part.people for part in parts))
    assert whole.span_us[0] == min(part.span_us[0] for part in parts)
    assert whole.span_us[1] == max(part.span_us[1] for part in parts)
    for attribute in ("x", "serial"):
        assert Counter(whole[attribute]) == Counter(part[attribute] for part in parts)
    assert set(whole.attributes) == {"x", "serial"}


def test_radiator_runs_in_an_experiment():
    task = PHOTOS.over(devices=6, hours=3, items=Poisson(per_day=48), size_bytes=500, outage=0.2)
    waiting = partial(Chain, hops=[partial(RadiatorPart, threshold=Volume(3))])
    result = run(task, waiting, seed=3)
    share = result.deliveries["delivered"].notna().mean()
    assert share > 0.5
    assert set(result.deliveries["receiver"]) == set(result.testbed.phones)
    assert run(task, waiting, seed=3).bill.equals(result.bill)
    immediate = run(task, Radiator, seed=3)
    assert immediate.deliveries["delivered"].notna().mean() >= share
