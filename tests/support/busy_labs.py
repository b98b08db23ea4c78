"""Labs of all systems in which every kind of message is sent, and the messages that each machine received."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from contrail_place import Place as ContrailPlace
from contrail_place import build_item
from mud_machines import op_of
from mud_place import Place as MudPlace
from odd_messages import record_received

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.fleet.store import MemoryStore
from mudkit.systems import contrail, lasthop, mud, radiator, store_and_forward, sublim
from mudkit.systems.mud.policies.policies import Later
from mudkit.systems.sublim._policy.actions import Compress, Every, Remember

POLICY = mud.Artefact.create("read", 1, ["age"], [[0, 5.0, 1, 2, 2], [0], [1]], ["local", "remote"])
ADULTS = "receiver.age >= 21"
WARD = sublim.Policy(
    "ward",
    [
        sublim.Rule("message.n > 1e6", Every(60, "message.n")),
        sublim.Rule(None, [Compress("ecg", 2), Remember({"n": "message.n"})]),
    ],
)


SUBMISSIONS = frozenset({"submit hello", "submit welcome", "submit", "submit ack", "submit unknown"})
"""Kinds of messages between publishers and their server."""


def replace_store(installed: Any) -> None:
    """Restart a machine with an empty store."""
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


class BusyLab:
    """System on a lab with two devices, ``eve`` and ``mal``, that are not part of the system."""

    KINDS: ClassVar[frozenset[str]]
    """Kinds of messages that :meth:`talk` sends."""
    MACHINES: ClassVar[Counter[str]]
    """Machines that receive something, by class."""
    lab: Lab

    def __init__(self) -> None:
        self.build()
        for stranger in ("eve", "mal"):
            self.lab.device(stranger)

    def run(self) -> None:
        """Send every kind of message, and record what each machine receives."""
        with record_received(self.lab) as self.received:
            self.talk()

    def build(self) -> None:
        """Create the lab and the system."""
        raise NotImplementedError

    def talk(self) -> None:
        """Send every kind of message."""
        raise NotImplementedError

    def check(self) -> None:
        """Send a message to each client, and check that it arrives once."""
        raise NotImplementedError

    @staticmethod
    def unpack(message: Any) -> Any:
        """Return a message as a dictionary."""
        return message

    @classmethod
    def kind_of(cls, message: Any) -> str:
        """Return the kind of a message."""
        return str(cls.unpack(message)["kind"])

    @staticmethod
    def pack(message: Any) -> Any:
        """Return a dictionary in its wire form."""
        return message

    def dropped(self) -> int:
        return int((self.lab.frame("incidents")["incident"] == "dropped").sum())


class Mud(BusyLab):
    KINDS = frozenset({
        "administered", "alter", "ask", "asks", "complete", "confirmed", "create", "drop",
        "follow", "followed", "has", "hello", "log", "outcome", "part", "read", "redirect", "register", "registered",
        "state", "stream", "unregister", "update_data", "welcome", "write",
    })  # fmt: skip
    MACHINES: ClassVar = Counter(
        Gateway=2,
        Processor=2,
        BackEnd=1,
        Replica=2,
        NotificationServer=2,
        Generator=1,
        ClientMachine=3,
        DeviceService=3,
    )

    @classmethod
    def kind_of(cls, message: Any) -> str:
        """Return the kind of a message; of a request that a server passes on, its operation."""
        return op_of(message)

    def build(self) -> None:
        self.place = MudPlace(replica_lag_s=0.1)
        self.lab, self.cloud = self.place.lab, self.place.cloud
        self.changes: list[mud.Change] = []
        self.written = 0
        self.ann = self.place.client("ann")
        self.bob = self.place.client("bob", read_policy=mud.ShippedPolicy())

    def talk(self) -> None:
        ann, bob = self.ann, self.bob
        ann.create("news", split=["g", "p"]).result()
        ann.create("people").result()
        ann.create("gone").result()
        ann.write("people", "ann", {"n": 1}).result()
        for key in ("a", "h", "z"):
            ann.write("news", key, {"n": 1, "by": "ann", "at": [30.3, -97.7]}, predicate=ADULTS).result()
        bob.read("news", data={"age": 30}).result()
        bob.read("news", "key = 'a' AND n >= 1", "uncommitted", data={"age": 30}).result()
        bob.read("news", "n IN (1, 2)", "committed_wio", latest=True).result()
        bob.read("news", "lookup('people', by, 'n') = 1", data={"age": 30}).result()
        bob.read("news", data={"age": 30}, aggregate="count(*), avg(n), min(by)").result()
        handle = bob.read("news", "n > 0", "continuous", {"age": 3}, callback=self.changes.append).result()
        bob.update_data(handle, {"age": 30}).result()
        other = bob.read("news", type="continuous", sync_timestamp=0).result()
        ann.write("news", "a", {"n": 2}, predicate=ADULTS).result()
        bob.unregister(other).result()
        ann.write("news", "a", {"n": 3}, "conditional", ADULTS).result()
        for data in ({"age": 30}, None):
            self.lab.faults.cut("bob")
            edit = bob.write("news", "h", {"n": 9}, "conditional", data=data)
            ann.write("news", "h", {"n": 4}, predicate=ADULTS).result()
            self.lab.faults.mend("bob")
            with pytest.raises(mud.Conflict):
                edit.result()
        cem = self.place.client("cem", write_policy=Later(5))
        for operation in [cem.write("news", key, {"n": 1}) for key in "cd"]:
            operation.result()
        ann.delete("news", "z").result()
        ann.alter("news", add={"city": "text"}, remove=["by"]).result()
        ann.drop("gone").result()
        self.cloud.ship(POLICY, app="news").result()
        self.lab.run(minutes=41)  # heartbeats

    def check(self) -> None:
        del self.changes[:]
        self.written += 1
        key = f"new {self.written}"
        assert self.ann.write("news", key, {"n": 1}).result() == 1
        assert self.bob.read("news", f"key = '{key}'").result().versions == {key: 1}
        self.lab.run(minutes=1)
        assert [change.key for change in self.changes] == [key]


class LastHop(BusyLab):
    KINDS = SUBMISSIONS | {"hello", "told", "read", "confirmed", "welcome", "heard", "who", "stream"}
    MACHINES: ClassVar = Counter(SpoolServer=1, DeviceMachine=2, PublisherMachine=1)

    def build(self) -> None:
        self.lab = Lab(seed=4)
        self.server = lasthop.Publications(self.lab)
        self.ann, self.bob = (
            lasthop.Subscriber(self.lab.device(name), self.server, device_capacity=capacity)
            for name, capacity in (("ann", 3), ("bob", None))
        )
        self.station = lasthop.Publisher(self.lab.device("station"), self.server)
        self.news, self.sport = self.station.topic("news"), self.server.topic("sport")
        self.topics = 0

    def talk(self) -> None:
        lab, ann, bob = self.lab, self.ann, self.bob
        ann.subscribe("news", policy="on-line", threshold=0.2, interrupt=0.95)
        ann.subscribe(lasthop.query("kind = 'b'"), mode="on-line", quiet_h=(1, 2), per_day=20)
        bob.subscribe("news", policy=lasthop.Forwarding("buffer", 2))
        bob.subscribe("sport", mode="on-line", at_h=(8.0,), policy="on-line")
        lab.run(minutes=1)
        ids = []
        for n in range(20):
            lifetime_s = 300.0 if n % 3 else None
            message = self.news.publish("x" * 40, rank=n / 20, kind="ab"[n % 2], expires_s=lifetime_s)
            with suppress(ParameterError):  # a message that was garbled on its way may be refused
                ids.append(message.result())
        ids.append(self.sport.publish("goal", rank=0.5).result())
        for n, identity in enumerate(ids[:20:3]):
            self.news.rerank(identity, (n * 7 % 20) / 10 - 0.5)
        lab.run(minutes=1)
        for subscriber in (ann, bob):
            subscriber.read("news")
        lab.run(minutes=1)
        lab.faults.messages(loss_share=0.4)
        self.news.publish("lost", rank=0.9)
        self.news.publish("after it", rank=0.91)
        lab.run(minutes=1)
        lab.faults.messages()
        lab.faults.cut("bob", minutes=1)
        self.news.publish("while he is away", rank=1.0)
        bob.read("news")
        lab.run(minutes=3)
        bob.unsubscribe("sport")
        for name in ("spool", "ann"):
            lab.faults.kill(name)
            lab.faults.restart(name)
            lab.run(minutes=1)
        self.news.publish("to a restarted server", rank=0.5).result()

    def check(self) -> None:
        self.check_of(self.ann, self.bob)

    def check_of(self, *subscribers: lasthop.Subscriber) -> None:
        """Publish a message to each of some subscribers, and check that it arrives.

        It is published at the server: odd messages in the name of the station may have its next numbers.
        """
        for subscriber in subscribers:
            self.topics += 1
            topic = f"later {self.topics}"
            subscriber.subscribe(topic, policy="on-line", threshold=0.0).result()
            self.server.topic(topic).publish("hello", rank=0.5)
            self.lab.run(minutes=1)
            assert [message["text"] for message in subscriber.read(topic).result()] == ["hello"]


class Contrail(BusyLab):
    KINDS = frozenset({
        "join", "send", "group", "withdraw", "pull", "bye", "sent", "deliver", "filled", "tell", "gone", "ask", "do",
        "done", "moving", "adopted", "restarted", "holds",
    })  # fmt: skip
    MACHINES: ClassVar = Counter(Gateway=2, Compute=2, Storage=2, ModuleMachine=3)
    CENTRES: ClassVar = {"us": (37.0, -122.0), "eu": (52.0, 5.0)}
    EVERYTHING = "what > ''"

    def build(self) -> None:
        self.place = ContrailPlace("ann bob cyd", centres=self.CENTRES, instances=1, move_after=1)
        self.lab = self.place.lab
        self.ports = 0

    def talk(self) -> None:
        place, faults, club = self.place, self.lab.faults, contrail.Group("club")
        ann, bob, cyd = place.port("ann"), place.port("bob", idle_timeout_ms=20_000), place.port("cyd")
        place.modules["ann"].join(club).result()
        place.install(bob, self.EVERYTHING, to=("ann", "app"))
        place.install(cyd, "what LIKE '%blue%'", to=(club, "app"))
        for number in range(3):
            self.lab.devices["ann"].change_context(loc=self.CENTRES["eu" if number % 2 else "us"])
            self.lab.devices["bob"].change_context(loc=self.CENTRES["us" if number % 2 else "eu"])
            place.run(62)
            for text in ("red", "blue"):
                place.publish(ann, build_item(f"{text} {number}"), f"{text} {number}").result()
            place.run(3)
        faults.cut("bob", minutes=1)
        place.publish(ann, build_item("while he is away"), "while he is away").result()
        place.run(130)
        place.install(cyd, self.EVERYTHING, to=("ann", "app"))
        place.publish(
            ann, build_item("red 1"), "red 1"
        ).result()  # addressed by name, with the key of this item
        place.modules["bob"].unfriend("ann").result()
        place.modules["ann"].leave(club).result()
        place.modules["bob"].befriend("ann").result()
        place.run(130)
        for name in ("relay1-storage-us", "relay1-compute-1-us", "relay1-gateway-us", "ann"):
            faults.kill(name)
            faults.restart(name)
            place.run(65)
        self.lab.run(minutes=5)

    def check(self) -> None:
        self.ports += 1
        ann, cyd = (self.place.port(name, f"later {self.ports}") for name in ("ann", "cyd"))
        self.place.install(cyd, self.EVERYTHING, to=("ann", f"later {self.ports}"))
        self.place.publish(ann, build_item("last"), "last").result()
        self.place.run(65)
        assert [item.payload for item in cyd.receive_all().result()] == [b"payload of last"]


class Radiator(BusyLab):
    KINDS = frozenset({
        "register", "unregister", "context", "got", "unreachable", "registered", "unregistered", "refused", "identify",
        "taken", "unknown", "push",
    })  # fmt: skip
    MACHINES: ClassVar = Counter(ServerMachine=1, ClientMachine=7)
    NAMES = tuple(f"d{i}" for i in range(6))

    def __init__(self, *, chain: float = 1.0, p2p: bool = True) -> None:
        self.chain, self.p2p = chain, p2p
        super().__init__()

    def build(self) -> None:
        """Create six devices; all but the first are reachable by their peers."""
        self.lab = Lab(seed=5)
        self.server = radiator.Server(self.lab, lambda sender, receiver: radiator.Volume(1), chain=self.chain)
        self.contexts: dict[str, list[radiator.Context]] = {name: [] for name in self.NAMES}
        self.clients = {
            name: radiator.Client(
                self.lab.device(name),
                self.server,
                receive=self.contexts[name].append,
                attributes={"p2p_enabled": self.p2p and name != "d0"},
            )
            for name in self.NAMES
        }
        self.rounds = 0

    def propagate(self, name: str, serial: str) -> Any:
        return self.clients[name].propagate_context(radiator.Context({name}, {"serial": serial}))

    def talk(self) -> None:
        lab = self.lab
        lab.run(seconds=5)
        for name in self.NAMES:
            self.propagate(name, f"a {name}").result()
        lab.faults.cut("d3", minutes=1)  # unreachable
        self.propagate("d0", "a cut").result()
        lab.run(minutes=4)
        self.clients["d4"].unregister().result()
        lab.run(seconds=5)
        self.clients["d4"].register({"p2p_enabled": self.p2p}).result()
        replace_store(self.clients["d5"].installed)  # identify
        self.clients["d5"].register({"p2p_enabled": self.p2p}).result()
        with pytest.raises(ParameterError, match="taken"):  # refused
            radiator.Client(lab.devices["d1"], self.server, "d2").registered.result()
        lab.world.hosts["radiator"].kill()
        lab.world.hosts["radiator"].restart()
        for name in self.NAMES:  # unknown
            self.propagate(name, f"a later {name}").result()
        lab.run(minutes=3)

    def serials(self, name: str) -> Counter[str]:
        """Count the serial numbers that a device received."""
        return Counter(
            serial
            for context in self.contexts[name]
            for serial in context.get("serial", ())
            if str(serial).startswith("a ")
        )

    def check(self) -> None:
        self.rounds += 1
        start = f"a last {self.rounds}"
        for name in self.NAMES:
            self.propagate(name, f"{start} {name}").result()
        self.lab.run(minutes=10)
        for name in self.NAMES:
            last = {serial: n for serial, n in self.serials(name).items() if serial.startswith(start)}
            assert last == {f"{start} {other}": 1 for other in self.NAMES if other != name}, name

    unpack = staticmethod(radiator.unpack)

    @staticmethod
    def pack(message: Any) -> bytes:
        return radiator.pack(message, True)


class Sublim(BusyLab):
    KINDS = frozenset({
        "join", "replay", "have", "messages", "attach", "attached", "behind", "report", "reported", "policy",
        "policy set", "deliver", "got", "left", "ask", "parcel", "parcel has come", "moved", "hello", "bye", "plain",
    }) | SUBMISSIONS  # fmt: skip
    MACHINES: ClassVar = Counter(
        PublisherMachine=1,
        PublishServerMachine=1,
        AccessPointMachine=3,
        PlainAccessPointMachine=1,
        ClientMachine=3,
        PlainClientMachine=1,
    )

    def build(self) -> None:
        self.lab = lab = Lab(seed=4)
        self.server = sublim.PublishServer(lab)
        for number in range(3):
            sublim.AccessPoint(lab, self.server, at=(number * 0.001, 0.0), range_m=80.0)
        sublim.AccessPoint(lab, self.server, at=(0.003, 0.0), range_m=80.0, stateful=False)
        self.monitor = sublim.Publisher(lab.device("monitor", link="wifi"), self.server)
        self.subscribers: dict[str, Any] = {}
        self.published = 1_000

    def talk(self) -> None:
        lab, net, subscribers = self.lab, self.server, self.subscribers
        for name in ("ann", "bob", "cy"):
            device = lab.device(name, link="wifi", at=(0.0, 0.0))
            subscribers[name] = sublim.Subscriber(device, net, report_s=2)
        device = lab.device("dan", link="wifi", at=(0.0, 0.0))
        subscribers["dan"] = sublim.PlainSubscriber(device, net, "message.n > 0")
        lab.run(seconds=10)
        subscribers["ann"].set_policy(WARD).result()
        subscribers["bob"].set_policy(sublim.policy(lambda message, state: message)).result()
        for number in range(12):
            lab.faults.messages(loss_share=0.3 if number % 2 else 0.0, repeat_share=0.1)
            for place, name in enumerate(subscribers):
                lab.devices[name].set_measured("loc", ((number + place) % 4 * 0.001, 0.0))
                lab.devices[name].change_context(display_px=480 if number % 2 else 960)
            (self.monitor if number % 2 else net).publish({"n": number, "ecg": bytes(50)})
            lab.run(seconds=7)
        lab.faults.messages()
        lab.run(minutes=1)
        for name in ("ann", "bob"):
            lab.devices[name].set_measured("loc", (0.0, 0.0))
        lab.run(minutes=1)
        replace_store(subscribers["ann"].installed)
        lab.devices["bob"].set_measured("loc", (0.001, 0.0))
        lab.run(minutes=1)
        replace_store(subscribers["bob"].installed)
        lab.devices["bob"].set_measured("loc", (0.002, 0.0))
        lab.faults.kill("access-point-1")  # it asks for a replay
        net.publish({"n": 98, "ecg": bytes(50)}).result()
        lab.faults.restart("access-point-1")
        lab.run(minutes=1)
        lab.faults.kill("publish-server")
        lab.faults.restart("publish-server")
        self.monitor.publish({"n": 99, "ecg": bytes(50)})
        lab.run(minutes=2)

    def check(self) -> None:
        """Publish messages, and check that each subscriber receives each once, by its policy."""
        numbers = list(range(self.published, self.published + 10))
        self.published += 10
        self.subscribers["ann"].set_policy(WARD).result(300)
        for subscriber in self.subscribers.values():
            subscriber.read().result()
        for number in numbers:
            self.monitor.publish({"n": number, "ecg": bytes(50)}).result()
        self.lab.run(minutes=3)
        for name, subscriber in self.subscribers.items():
            read = subscriber.read().result()
            assert [message["n"] for message in read] == numbers, name
            assert {len(message["ecg"]) for message in read} == {25 if name == "ann" else 50}


class StoreAndForward(BusyLab):
    KINDS = frozenset(
        {"send", "delivered", "hello", "accepted", "missing", "deliver", "welcome", "identify", "lacks"}
    )
    MACHINES: ClassVar = Counter(RelayMachine=1, ClientMachine=3)
    PAIRS = (("ann", "bob"), ("bob", "cy"), ("cy", "ann"))

    def build(self) -> None:
        self.lab = Lab(seed=5)
        self.relay = store_and_forward.Relay(self.lab)
        self.clients: dict[str, store_and_forward.Client] = {}

    def talk(self) -> None:
        lab, clients = self.lab, self.clients
        for name in ("ann", "bob", "cy"):
            clients[name] = store_and_forward.Client(lab.device(name), self.relay)
        for number in range(6):
            lab.faults.messages(loss_share=0.3 if number % 2 else 0.0)
            for sender, receiver in self.PAIRS:
                clients[sender].send(receiver, f"{number}")
            lab.devices["bob"].change_context(busy=number in (2, 3))
            lab.run(seconds=2)
        lab.faults.messages()
        lab.run(minutes=2)
        replace_store(self.relay.installed)
        for sender, receiver in self.PAIRS:
            clients[sender].send(receiver, "late")
        lab.run(minutes=2)

    def check(self) -> None:
        """Send a message from each client to each, and check that each arrives once."""
        for client in self.clients.values():
            client.read().result()
        for name, client in self.clients.items():
            for other in self.clients:
                client.send(other, f"{name} to {other}").result(600)
        self.lab.run(minutes=10)
        for name, client in self.clients.items():
            read = [(message["from"], message["text"]) for message in client.read().result()]
            assert sorted(message for message in read if message[0] in self.clients) == [
                (other, f"{other} to {name}") for other in self.clients
            ]


BUSY: dict[str, type[BusyLab]] = {
    "contrail": Contrail, "lasthop": LastHop, "mud": Mud, "radiator": Radiator, "store_and_forward": StoreAndForward,
    "sublim": Sublim,
}  # fmt: skip
