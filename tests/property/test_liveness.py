"""Whatever is asked is answered soon after the last fault, at any rate of other traffic.

Every operation of every system is tried: a new one fails here until it is said how it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mudkit import Lab
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems import contrail, lasthop, mud, radiator, store_and_forward, sublim
from mudkit.systems.contrail import messages as of_contrail
from mudkit.systems.contrail.device.filters import parse_filter
from mudkit.systems.contrail.items import pack
from mudkit.systems.lasthop import messages as of_lasthop
from mudkit.systems.lasthop.subscription import Following
from mudkit.systems.mud import messages as of_mud
from mudkit.systems.radiator import Context, Volume
from mudkit.systems.radiator import messages as of_radiator
from mudkit.systems.store_and_forward import messages as of_store_and_forward
from mudkit.systems.sublim import messages as of_sublim

EVERY_S = (0.5, 1, 2, 4, 6, 15, 30)
T_S = 70.0
"""So soon all is answered: after the longest wait for an answer, and an answer's time."""


class Place:
    """A system in the middle of its work: what is asked of whom, and what goes on beside it."""

    def __init__(self) -> None:
        self.lab = Lab(seed=3)
        self.asks: dict[type, tuple[Any, Any]] = {}
        self.traffic: Callable[[int], Any] = lambda number: None


def place_of_store_and_forward() -> Place:
    place = Place()
    relay = store_and_forward.Relay(place.lab)
    ann, bob, cy = (
        store_and_forward.Client(place.lab.device(name, link="wifi"), relay) for name in ("ann", "bob", "cy")
    )
    place.asks = {
        of_store_and_forward.Submit: (ann, of_store_and_forward.Submit("bob", "lunch?")),
        of_store_and_forward.Read: (bob, of_store_and_forward.Read()),
    }

    def traffic(number: int) -> None:
        ann.send("cy", f"to cy {number}")
        cy.send("ann", f"to ann {number}")

    place.traffic = traffic
    return place


def place_of_radiator() -> Place:
    place = Place()
    server = radiator.Server(place.lab, lambda sender, receiver: Volume(2))
    ann, bob = (radiator.Client(place.lab.device(name, link="wifi"), server) for name in ("ann", "bob"))
    fields = of_radiator.ContextFields(["ann"], {"doing": "dancing"}, None)
    place.asks = {
        of_radiator.RegisterClient: (ann, of_radiator.RegisterClient({"age": 20})),
        of_radiator.UnregisterClient: (ann, of_radiator.UnregisterClient()),
        of_radiator.PropagateContext: (ann, of_radiator.PropagateContext(fields)),
        of_radiator.ListClients: (server, of_radiator.ListClients()),
        of_radiator.CountPending: (server, of_radiator.CountPending()),
        of_radiator.GetCounters: (server, of_radiator.GetCounters()),
    }

    def traffic(number: int) -> None:
        for client in (ann, bob):
            client.propagate_context(Context(frozenset((client.client_id,)), {"number": number}))

    place.traffic = traffic
    return place


def place_of_lasthop() -> Place:
    place = Place()
    server = lasthop.Publications(place.lab)
    jane = lasthop.Subscriber(place.lab.device("jane", link="wifi", at=(69.65, 18.96)), server)
    place.lab.run(seconds=5)
    for topic in ("news", "sports", "old"):
        jane.subscribe(topic, policy="on-line").result()
    news = server.topic("news")
    first = news.publish("first", rank=3.0).result()
    places = {"Tromsø": (69.65, 18.96, 20.0)}
    jane.follow("weather {place}", places).result()
    following = Following(lasthop.Subscription("traffic {place}"), places)
    place.asks = {
        of_lasthop.Subscribe: (jane, of_lasthop.Subscribe(lasthop.Subscription("arts"))),
        of_lasthop.Unsubscribe: (jane, of_lasthop.Unsubscribe("old")),
        of_lasthop.Read: (jane, of_lasthop.Read("news")),
        of_lasthop.Follow: (jane, of_lasthop.Follow(following)),
        of_lasthop.Unfollow: (jane, of_lasthop.Unfollow("weather {place}")),
        of_lasthop.QueueSizes: (jane, of_lasthop.QueueSizes()),
        of_lasthop.Publish: (server, of_lasthop.Publish("news", 1.0, None, {"text": "second"}, None)),
        of_lasthop.Rerank: (server, of_lasthop.Rerank("news", first, 4.0)),
        of_lasthop.Queues: (server, of_lasthop.Queues("jane", "news")),
    }

    def traffic(number: int) -> None:
        server.topic("sports").publish(f"goal {number}", rank=2.0)
        jane.read("sports")

    place.traffic = traffic
    return place


def place_of_sublim() -> Place:
    place = Place()
    net = sublim.PublishServer(place.lab)
    point = sublim.AccessPoint(place.lab, net, at=(44.4, 26.1), range_m=150)
    device = place.lab.device("doctor", link="wifi", at=(44.4, 26.1), display_px=480)
    doctor = sublim.Subscriber(device, net, report_s=1)
    ward = sublim.Policy("ward", [sublim.Rule()])
    place.asks = {
        of_sublim.Publish: (net, of_sublim.Publish({"n": 1}, None)),
        of_sublim.ReadState: (point, of_sublim.ReadState("doctor")),
        of_sublim.InstallPolicy: (doctor, of_sublim.InstallPolicy(ward.to_dict())),
        of_sublim.Read: (doctor, of_sublim.Read()),
    }

    def traffic(number: int) -> None:
        net.publish({"n": number})
        device.change_context(display_px=480 + number % 2 * 480)

    place.traffic = traffic
    return place


def place_of_mud() -> Place:
    place = Place()
    lab = place.lab
    cloud = mud.Cloud(lab)
    token = lab.token("ann", "news", hours=1.0)
    ann, bob = (
        mud.Client(lab.device(name, link="wifi"), cloud, app="news", token=given)
        for name, given in (("ann", token), ("bob", lab.token("bob", "news")))
    )
    for table in ("news", "old"):
        ann.create(table, split=["m"]).result()
    ann.write("news", "a", {"n": 1}).result()
    everything = Predicate("TRUE")
    handle, other = (bob.read("news", type="continuous").result() for _ in range(2))
    policy = mud.Artefact.create("read", 1, ["age"], [[0, 5.0, 1, 2, 2], [0], [1]], ["local", "remote"])
    place.asks = {
        of_mud.Create: (ann, of_mud.Create("new", {})),
        of_mud.Alter: (ann, of_mud.Alter("news", {"add": {"city": "text"}})),
        of_mud.Drop: (ann, of_mud.Drop("old")),
        of_mud.Write: (ann, of_mud.Write("news", "k", {"n": 1}, "blind", None, None, {})),
        of_mud.Delete: (ann, of_mud.Delete("news", "a", None, "conditional", None, None, {})),
        of_mud.Read: (bob, of_mud.Read("news", None, "committed_wio", {}, None, False, None)),
        of_mud.Register: (bob, of_mud.Register("news", everything, {}, 0.0, "listener")),
        of_mud.UpdateData: (bob, of_mud.UpdateData(handle, {"age": 30})),
        of_mud.Unregister: (bob, of_mud.Unregister(other)),
        of_mud.Renew: (ann, of_mud.Renew(lab.token("ann", "news", hours=2.0))),
        of_mud.Policies: (bob, of_mud.Policies()),
        of_mud.Pending: (bob, of_mud.Pending()),
        of_mud.Held: (ann, of_mud.Held("news", {})),
        of_mud.Ship: (cloud, of_mud.Ship("news", policy.document, None)),
    }

    def traffic(number: int) -> None:
        ann.write("news", f"of ann {number % 7}", {"n": number})
        bob.read("news", f"n = {number}")

    place.traffic = traffic
    return place


def place_of_contrail() -> Place:
    place = Place()
    relay = contrail.Relay(place.lab)
    names = ("ann", "bob", "cy")
    modules = {
        name: contrail.Module(
            place.lab.device(name, link="wifi"), relay, friends=[each for each in names if each != name]
        )
        for name in names
    }
    ports = {
        (name, port): module.open_port(port, polling_interval_ms=10_000)
        for name, module in modules.items()
        for port in ("app", "more")
    }
    place.lab.run(seconds=5)
    for name in ("ann", "bob"):
        modules[name].join(contrail.Group("old")).result()
    for name in ("app", "more"):
        ports["bob", name].install_filter("TRUE", to=("ann", name)).result()
    slot = ports["bob", "app"].install_filter("n = 1", to=("ann", "app")).result()
    ports["cy", "app"].install_filter("TRUE", to=("bob", "app")).result()
    place.lab.run(seconds=15)
    ports["ann", "app"].publish(contrail.Item({"n": 2})).result()
    ann, bob = modules["ann"], modules["bob"]
    installs = to_json(parse_filter("n > 3")) or {}
    place.asks = {
        of_contrail.OpenPort: (ann, of_contrail.OpenPort("app", 10_000_000, 0, 1, False)),
        of_contrail.ConfigurePort: (ann, of_contrail.ConfigurePort("app", 20_000_000, 0, 1)),
        of_contrail.Listen: (bob, of_contrail.Listen("app")),
        of_contrail.Publish: (ann, of_contrail.Publish("app", pack(contrail.Item({})), "x", None, None)),
        of_contrail.InstallFilter: (
            bob,
            of_contrail.InstallFilter("app", "ann", None, "app", installs, None, None, None),
        ),
        of_contrail.RemoveFilter: (bob, of_contrail.RemoveFilter(slot)),
        of_contrail.ReceiveItem: (bob, of_contrail.ReceiveItem("more", [])),
        of_contrail.ReceiveAll: (bob, of_contrail.ReceiveAll("app", [])),
        of_contrail.DeleteItems: (bob, of_contrail.DeleteItems("app", [1])),
        of_contrail.FollowFriends: (ann, of_contrail.FollowFriends()),
        of_contrail.DecideFilter: (ann, of_contrail.DecideFilter("filter app\nbob\napp\n1", True)),
        of_contrail.Befriend: (ann, of_contrail.Befriend("cy", False)),
        of_contrail.JoinGroup: (ann, of_contrail.JoinGroup("club", None)),
        of_contrail.LeaveGroup: (ann, of_contrail.LeaveGroup("old")),
        of_contrail.GetCounts: (ann, of_contrail.GetCounts()),
        of_contrail.GetPublicKeys: (ann, of_contrail.GetPublicKeys()),
    }

    def traffic(number: int) -> None:
        ports["ann", "more"].publish(contrail.Item({"n": number}))
        ports["bob", "app"].publish(contrail.Item({"n": number}))

    place.traffic = traffic
    return place


PLACES = {
    "mud": place_of_mud,
    "contrail": place_of_contrail,
    "store_and_forward": place_of_store_and_forward,
    "radiator": place_of_radiator,
    "lasthop": place_of_lasthop,
    "sublim": place_of_sublim,
}


def operations_of(system: str) -> dict[str, type[msgspec.Struct]]:
    """Return the typed operations of a system by name."""
    module = importlib.import_module(f"mudkit.systems.{system}.messages")
    return {
        name: kind
        for name, kind in vars(module).items()
        if name in module.__all__
        and isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__struct_config__.tag_field == "operation"
    }


OPERATIONS = {system: operations_of(system) for system in PLACES}
REQUESTS = [(system, name) for system, kinds in OPERATIONS.items() for name in kinds]


@pytest.mark.soak(keep=120)
@pytest.mark.parametrize("every_s", EVERY_S)
@pytest.mark.parametrize(("system", "name"), REQUESTS)
def test_what_is_asked_while_everything_is_lost_is_answered_soon_after(
    system: str, name: str, every_s: float
) -> None:
    place = PLACES[system]()
    lab = place.lab
    lab.run(seconds=30)
    whom, asked = place.asks[OPERATIONS[system][name]]
    lab.faults.messages(loss_share=1.0)
    operation = whom.installed.call(asked)
    place.traffic(0)
    lab.run(seconds=3)
    lab.faults.messages()
    begun_us, number = lab.world.now_us, 0
    while not operation.done() and lab.world.now_us - begun_us < T_S * 1e6:
        number += 1
        if not name.startswith("Unregister"):  # who has left propagates no more
            place.traffic(number)
        lab.run(seconds=every_s)
    assert operation.done(), f"not answered {T_S} s after the last fault"
    operation.result()
