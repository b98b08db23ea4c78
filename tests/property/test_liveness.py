"""Completion of every operation of every system after the last fault, under any other traffic.

A new operation fails here until its system's setup has a request for it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mudkit import Lab
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems import contrail, lasthop, mud, radiator, store_and_forward, sublim
from mudkit.systems.contrail import messages as contrail_messages
from mudkit.systems.contrail.device.filters import parse_filter
from mudkit.systems.contrail.items import pack
from mudkit.systems.lasthop import messages as lasthop_messages
from mudkit.systems.lasthop.subscription import PlaceSubscription
from mudkit.systems.mud import operations as mud_operations
from mudkit.systems.mud.tables.changes import add_of
from mudkit.systems.radiator import Context, Volume
from mudkit.systems.radiator import messages as radiator_messages
from mudkit.systems.store_and_forward import messages as relay_messages
from mudkit.systems.sublim import messages as sublim_messages

EVERY_S = (0.5, 1, 2, 4, 6, 15, 30)
T_S = 70.0
"""Maximum response time after the last fault: the longest retransmission timeout and a round trip."""


class Setup:
    """Running system with a target and a request for each operation, and its background traffic."""

    def __init__(self) -> None:
        self.lab = Lab(seed=3)
        self.requests: dict[type, tuple[Any, Any]] = {}
        self.traffic: Callable[[int], Any] = lambda number: None


def set_up_store_and_forward() -> Setup:
    setup = Setup()
    relay = store_and_forward.Relay(setup.lab)
    ann, bob, cy = (
        store_and_forward.Client(setup.lab.device(name, link="wifi"), relay) for name in ("ann", "bob", "cy")
    )
    setup.requests = {
        relay_messages.SendText: (ann, relay_messages.SendText("bob", "lunch?")),
        relay_messages.Read: (bob, relay_messages.Read()),
    }

    def traffic(number: int) -> None:
        ann.send("cy", f"to cy {number}")
        cy.send("ann", f"to ann {number}")

    setup.traffic = traffic
    return setup


def set_up_radiator() -> Setup:
    setup = Setup()
    server = radiator.Server(setup.lab, lambda sender, receiver: Volume(2))
    ann, bob = (radiator.Client(setup.lab.device(name, link="wifi"), server) for name in ("ann", "bob"))
    fields = radiator_messages.ContextFields(["ann"], {"doing": "dancing"}, None)
    setup.requests = {
        radiator_messages.RegisterClient: (ann, radiator_messages.RegisterClient({"age": 20})),
        radiator_messages.UnregisterClient: (ann, radiator_messages.UnregisterClient()),
        radiator_messages.PropagateContext: (ann, radiator_messages.PropagateContext(fields)),
        radiator_messages.ListClients: (server, radiator_messages.ListClients()),
        radiator_messages.CountPending: (server, radiator_messages.CountPending()),
        radiator_messages.GetCounters: (server, radiator_messages.GetCounters()),
    }

    def traffic(number: int) -> None:
        for client in (ann, bob):
            client.propagate_context(Context(frozenset((client.client_id,)), {"number": number}))

    setup.traffic = traffic
    return setup


def set_up_lasthop() -> Setup:
    setup = Setup()
    server = lasthop.Publications(setup.lab)
    jane = lasthop.Subscriber(setup.lab.device("jane", link="wifi", at=(69.65, 18.96)), server)
    setup.lab.run(seconds=5)
    for topic in ("news", "sports", "old"):
        jane.subscribe(topic, policy="on-line").result()
    station = lasthop.Publisher(setup.lab.device("station", link="wifi"), server)
    first = station.topic("news").publish("first", rank=3.0).result()
    places = {"Tromsø": (69.65, 18.96, 20.0)}
    jane.follow("weather {place}", places).result()
    following = PlaceSubscription(lasthop.Subscription("traffic {place}"), places)
    setup.requests = {
        lasthop_messages.Subscribe: (jane, lasthop_messages.Subscribe(lasthop.Subscription("arts"))),
        lasthop_messages.Unsubscribe: (jane, lasthop_messages.Unsubscribe("old")),
        lasthop_messages.Read: (jane, lasthop_messages.Read("news")),
        lasthop_messages.Follow: (jane, lasthop_messages.Follow(following)),
        lasthop_messages.Unfollow: (jane, lasthop_messages.Unfollow("weather {place}")),
        lasthop_messages.QueueSizes: (jane, lasthop_messages.QueueSizes()),
        lasthop_messages.Publish: (
            station,
            lasthop_messages.Publish("news", 1.0, None, {"text": "second"}, None),
        ),
        lasthop_messages.Rerank: (station, lasthop_messages.Rerank("news", first, 4.0)),
        lasthop_messages.CountSubmissions: (station, lasthop_messages.CountSubmissions()),
        lasthop_messages.Queues: (server, lasthop_messages.Queues("jane", "news")),
    }

    def traffic(number: int) -> None:
        station.topic("sports").publish(f"goal {number}", rank=2.0)
        jane.read("sports")

    setup.traffic = traffic
    return setup


def set_up_sublim() -> Setup:
    setup = Setup()
    net = sublim.PublishServer(setup.lab)
    point = sublim.AccessPoint(setup.lab, net, at=(44.4, 26.1), range_m=150)
    device = setup.lab.device("doctor", link="wifi", at=(44.4, 26.1), display_px=480)
    doctor = sublim.Subscriber(device, net, report_s=1)
    monitor = sublim.Publisher(setup.lab.device("monitor", link="wifi"), net)
    ward = sublim.Policy("ward", [sublim.Rule()])
    setup.requests = {
        sublim_messages.Publish: (monitor, sublim_messages.Publish({"n": 1}, None)),
        sublim_messages.CountSubmissions: (monitor, sublim_messages.CountSubmissions()),
        sublim_messages.ReadState: (point, sublim_messages.ReadState("doctor")),
        sublim_messages.InstallPolicy: (doctor, sublim_messages.InstallPolicy(ward.to_dict())),
        sublim_messages.Read: (doctor, sublim_messages.Read()),
    }

    def traffic(number: int) -> None:
        monitor.publish({"n": number})
        device.change_context(display_px=480 + number % 2 * 480)

    setup.traffic = traffic
    return setup


def set_up_mud() -> Setup:
    setup = Setup()
    lab = setup.lab
    cloud = mud.Cloud(lab)
    token = lab.token("ann", "news", hours=1.0)
    ann, bob = (
        mud.Client(lab.device(name, link="wifi"), cloud, app="news", token=client_token)
        for name, client_token in (("ann", token), ("bob", lab.token("bob", "news")))
    )
    for table in ("news", "old"):
        ann.create(table, split=["m"]).result()
    ann.write("news", "a", {"n": 1}).result()
    everything = Predicate("TRUE")
    handle, other = (bob.read("news", type="continuous").result() for _ in range(2))
    policy = mud.Artefact.create("read", 1, ["age"], [[0, 5.0, 1, 2, 2], [0], [1]], ["local", "remote"])
    setup.requests = {
        mud_operations.Create: (ann, mud_operations.Create("new", {})),
        mud_operations.Alter: (ann, mud_operations.Alter("news", {"add": {"city": "text"}})),
        mud_operations.Drop: (ann, mud_operations.Drop("old")),
        mud_operations.Write: (ann, mud_operations.Write("news", "k", {"n": 1}, "blind", None, None, {})),
        mud_operations.Delete: (ann, mud_operations.Delete("news", "a", None, "conditional", None, None, {})),
        mud_operations.Update: (
            bob,
            mud_operations.Update(
                "news", "u", None, "blind", None, None, {}, changes=add_of("n", 1, create=True)
            ),
        ),
        mud_operations.CommitBatch: (
            ann,
            mud_operations.CommitBatch(
                "news",
                [mud_operations.Write("news", key, {"n": 1}, "blind", None, None, {}) for key in "bc"],
            ),
        ),
        mud_operations.Read: (bob, mud_operations.Read("news", None, "committed_wio", {}, None, False, None)),
        mud_operations.Register: (bob, mud_operations.Register("news", everything, {}, 0.0, "listener")),
        mud_operations.Listen: (bob, mud_operations.Listen(handle)),
        mud_operations.AwaitSynced: (bob, mud_operations.AwaitSynced(handle)),
        mud_operations.ListReads: (bob, mud_operations.ListReads()),
        mud_operations.UpdateData: (bob, mud_operations.UpdateData(handle, {"age": 30})),
        mud_operations.Unregister: (bob, mud_operations.Unregister(other)),
        mud_operations.Renew: (ann, mud_operations.Renew(lab.token("ann", "news", hours=2.0))),
        mud_operations.ListPolicies: (bob, mud_operations.ListPolicies()),
        mud_operations.ListPending: (bob, mud_operations.ListPending()),
        mud_operations.ListHeld: (ann, mud_operations.ListHeld("news", {})),
        mud_operations.Ship: (cloud, mud_operations.Ship("news", policy.document, None)),
        mud_operations.ShipLearnt: (cloud, mud_operations.ShipLearnt([("news", policy.document)])),
        mud_operations.Move: (
            SimpleNamespace(installed=cloud._installed_naming),
            mud_operations.Move("news", 0, cloud.processors[1]),
        ),
        mud_operations.ForgetUser: (cloud, mud_operations.ForgetUser("ann")),
    }

    def traffic(number: int) -> None:
        ann.write("news", f"of ann {number % 7}", {"n": number})
        bob.read("news", f"n = {number}")

    setup.traffic = traffic
    return setup


def set_up_contrail() -> Setup:
    setup = Setup()
    relay = contrail.Relay(setup.lab)
    names = ("ann", "bob", "cy")
    modules = {
        name: contrail.Module(
            setup.lab.device(name, link="wifi"), relay, friends=[friend for friend in names if friend != name]
        )
        for name in names
    }
    ports = {
        (name, port): module.open_port(port, polling_interval_ms=10_000)
        for name, module in modules.items()
        for port in ("app", "more")
    }
    setup.lab.run(seconds=5)
    for name in ("ann", "bob"):
        modules[name].join(contrail.Group("old")).result()
    for name in ("app", "more"):
        ports["bob", name].install_filter("TRUE", to=("ann", name)).result()
    slot = ports["bob", "app"].install_filter("n = 1", to=("ann", "app")).result()
    ports["cy", "app"].install_filter("TRUE", to=("bob", "app")).result()
    setup.lab.run(seconds=15)
    ports["ann", "app"].publish(contrail.Item({"n": 2})).result()
    ann, bob = modules["ann"], modules["bob"]
    filter_json = to_json(parse_filter("n > 3")) or {}
    setup.requests = {
        contrail_messages.OpenPort: (ann, contrail_messages.OpenPort("app", 10_000_000, 0, 1, False)),
        contrail_messages.ConfigurePort: (ann, contrail_messages.ConfigurePort("app", 20_000_000, 0, 1)),
        contrail_messages.Listen: (bob, contrail_messages.Listen("app")),
        contrail_messages.Publish: (
            ann,
            contrail_messages.Publish("app", pack(contrail.Item({})), "x", None, None),
        ),
        contrail_messages.InstallFilter: (
            bob,
            contrail_messages.InstallFilter("app", "ann", None, "app", filter_json, None, None, None),
        ),
        contrail_messages.RemoveFilter: (bob, contrail_messages.RemoveFilter(slot)),
        contrail_messages.ReceiveItem: (bob, contrail_messages.ReceiveItem("more", [])),
        contrail_messages.ReceiveAll: (bob, contrail_messages.ReceiveAll("app", [])),
        contrail_messages.DeleteItems: (bob, contrail_messages.DeleteItems("app", [1])),
        contrail_messages.FollowFriends: (ann, contrail_messages.FollowFriends()),
        contrail_messages.DecideFilter: (
            ann,
            contrail_messages.DecideFilter("filter app\nbob\napp\n1", True),
        ),
        contrail_messages.Befriend: (ann, contrail_messages.Befriend("cy", False)),
        contrail_messages.JoinGroup: (ann, contrail_messages.JoinGroup("club", None)),
        contrail_messages.LeaveGroup: (ann, contrail_messages.LeaveGroup("old")),
        contrail_messages.GetCounts: (ann, contrail_messages.GetCounts()),
        contrail_messages.GetPublicKeys: (ann, contrail_messages.GetPublicKeys()),
    }

    def traffic(number: int) -> None:
        ports["ann", "more"].publish(contrail.Item({"n": number}))
        ports["bob", "app"].publish(contrail.Item({"n": number}))

    setup.traffic = traffic
    return setup


SETUPS = {
    "mud": set_up_mud,
    "contrail": set_up_contrail,
    "store_and_forward": set_up_store_and_forward,
    "radiator": set_up_radiator,
    "lasthop": set_up_lasthop,
    "sublim": set_up_sublim,
}


def list_operations(system: str) -> dict[str, type[msgspec.Struct]]:
    """Return the typed operations of a system by name."""
    place = "operations" if system == "mud" else "messages"
    module = importlib.import_module(f"mudkit.systems.{system}.{place}")
    return {
        name: kind
        for name, kind in vars(module).items()
        if not name.startswith("_")
        and isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__struct_config__.tag_field == "operation"
    }


OPERATIONS = {system: list_operations(system) for system in SETUPS}
REQUESTS = [(system, name) for system, kinds in OPERATIONS.items() for name in kinds]


@pytest.mark.parametrize("system", SETUPS)
def test_machines_that_cannot_undo_a_call_ignore_its_end(system: str) -> None:
    """Only clients of MUD tables can."""
    setup = SETUPS[system]()
    setup.lab.run(seconds=30)
    operations = [target.installed.call(request) for target, request in setup.requests.values()]
    cancelled = [operation for operation in operations if operation.cancel()]
    setup.lab.run(seconds=T_S)
    assert bool(cancelled) is (system == "mud")


@pytest.mark.soak(keep=120)
@pytest.mark.parametrize("every_s", EVERY_S)
@pytest.mark.parametrize(("system", "name"), REQUESTS)
def test_operations_called_during_total_loss_complete_after_it(
    system: str, name: str, every_s: float
) -> None:
    setup = SETUPS[system]()
    lab = setup.lab
    lab.run(seconds=30)
    target, request = setup.requests[OPERATIONS[system][name]]
    lab.faults.messages(loss_share=1.0)
    operation = target.installed.call(request)
    setup.traffic(0)
    lab.run(seconds=3)
    lab.faults.messages()
    start_us, number = lab.world.now_us, 0
    while not operation.done() and lab.world.now_us - start_us < T_S * 1e6:
        number += 1
        if not name.startswith("Unregister"):  # an unregistered client propagates nothing
            setup.traffic(number)
        lab.run(seconds=every_s)
    assert operation.done(), f"not answered {T_S} s after the last fault"
    operation.result()
