"""Small labs of all systems: one client sends a message each minute, one receives it, any host can fail."""

from __future__ import annotations

from typing import Any, ClassVar

from mudkit import Lab
from mudkit.systems import contrail, lasthop, mud, radiator, sublim
from mudkit.systems.store_and_forward import Client, Relay

HERE = (44.43, 26.10)


class SystemLab:
    """System with a sender and a receiver, and the messages sent, received and accepted."""

    hosts: ClassVar[dict[str, str]]
    """Hosts that can fail, by role."""

    def __init__(self) -> None:
        self.lab = Lab(seed=1)
        self.sent: list[str] = []
        self.received: list[str] = []
        self.accepted: list[str] = []
        self._ids: set[str] = set()
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def send(self, text: str) -> Any:
        raise NotImplementedError

    def take(self, identifier: str, texts: list[str]) -> None:
        """Record texts of which the application is notified, unless it has seen their id."""
        if identifier not in self._ids:
            self._ids.add(identifier)
            self.received += texts

    def send_each_minute(self, name: str, count: int) -> None:
        """Send a message each minute, and record those that are accepted."""
        for number in range(count):
            text = f"{name} {number}"
            self.sent.append(text)
            self.send(text).add_done_callback(
                lambda operation, text=text: self.record_if_accepted(operation, text)
            )
            self.lab.run(minutes=1)

    def record_if_accepted(self, operation: Any, text: str) -> None:
        if operation.status == "ok":
            self.accepted.append(text)


class Texts(SystemLab):
    hosts: ClassVar = {"sender": "ann", "receiver": "bob", "relay": "relay"}

    def build(self) -> None:
        relay = Relay(self.lab)
        self.ann, bob = (Client(self.lab.device(name), relay) for name in ("ann", "bob"))
        bob.on_message(lambda message: self.take(message.id, [message["text"]]))

    def send(self, text: str) -> Any:
        return self.ann.send("bob", text)


class Spooled(SystemLab):
    hosts: ClassVar = {"publisher": "ann", "device": "bob", "server": "spool"}

    def build(self) -> None:
        publications = lasthop.Publications(self.lab)
        self.topic = lasthop.Publisher(self.lab.device("ann"), publications).topic("news")
        bob = lasthop.Subscriber(self.lab.device("bob"), publications)
        bob.on_arrival(lambda content: self.take(content.id, [content["text"]]))
        bob.subscribe("news", mode="on-line", max=1000).result()

    def send(self, text: str) -> Any:
        return self.topic.publish(text, rank=5.0)


class Contexts(SystemLab):
    hosts: ClassVar = {"sender": "ann", "receiver": "bob", "server": "radiator"}

    def build(self) -> None:
        server = radiator.Server(self.lab, lambda sender, receiver: radiator.Volume(1))
        self.ann = radiator.Client(self.lab.device("ann"), server)
        self.bob = radiator.Client(
            self.lab.device("bob"), server, receive=lambda context: self.take(context.id, context["text"])
        )
        for client in (self.ann, self.bob):
            client.registered.result()

    def send(self, text: str) -> Any:
        self.bob.propagate_context(radiator.Context({"bob"}))  # so that a restarted server knows bob
        return self.ann.propagate_context(radiator.Context({"ann"}, {"text": text}))


class Messages(SystemLab):
    hosts: ClassVar = {
        "publisher": "ann",
        "subscriber": "bob",
        "access point": "ap",
        "publish server": "publish-server",
    }

    def build(self) -> None:
        net = sublim.PublishServer(self.lab)
        sublim.AccessPoint(self.lab, net, at=HERE, range_m=150, name="ap")
        self.ann = sublim.Publisher(self.lab.device("ann", link="wifi"), net)
        bob = sublim.Subscriber(self.lab.device("bob", link="wifi", at=HERE), net)
        bob.on_message(lambda message: self.take(message.id, [message["text"]]))

    def send(self, text: str) -> Any:
        return self.ann.publish({"text": text})


class Tables(SystemLab):
    hosts: ClassVar = {
        "writer": "ann",
        "reader": "bob",
        "store": "mud-store",
        "processor": "mud-processor-1",
        "replica": "mud-replica-1",
        "notification server": "mud-notifications-1",
        "gateway": "mud-gateway-1",
        "generator": "mud-policies",
    }

    def build(self) -> None:
        cloud = mud.Cloud(self.lab, replicas=1, gateways=1, processors=1, notification_servers=1)
        self.ann, self.bob = (
            mud.Client(self.lab.device(name), cloud, app="app", token=self.lab.token(name, "app", hours=100))
            for name in ("ann", "bob")
        )
        self.ann.create("t").result()
        self.bob.read(
            "t", type="continuous", callback=lambda change: self.take(change.id, [change.key])
        ).result()

    def send(self, text: str) -> Any:
        return self.ann.write("t", text, {"text": text})


class Items(SystemLab):
    hosts: ClassVar = {
        "publisher": "ann",
        "subscriber": "bob",
        "storage": "contrail-storage",
        "gateway": "contrail-gateway",
        "compute instance": "contrail-compute-1",
    }

    def build(self) -> None:
        relay = contrail.Relay(self.lab)
        ann = contrail.Module(self.lab.device("ann"), relay, friends=["bob"])
        bob = contrail.Module(self.lab.device("bob"), relay, friends=["ann"])
        self.port, home = ann.open_port("news"), bob.open_port("home", idle_timeout_ms=86_400_000)
        home.on_item(lambda item: self.received.append(item.metadata["text"]))
        home.install_filter("topic = 'news'", to=("ann", "news")).result()
        self.lab.run(minutes=1)

    def send(self, text: str) -> Any:
        return self.port.publish(contrail.Item({"topic": "news", "text": text}), item_id="latest")


SYSTEM_LABS = (Texts, Spooled, Contexts, Messages, Tables, Items)
