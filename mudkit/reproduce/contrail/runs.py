"""Contrail: one sender and receivers on a lab, and what is measured of items between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mudkit.errors import SimulationProblem
from mudkit.fleet.failures import raise_failure
from mudkit.lab import Lab
from mudkit.systems.contrail import Item, Module, Port, Relay

__all__ = ["Pair", "latencies_s", "radio_mw", "round_trips_s", "self_latencies_s"]

_MOST_S: Final = 3600.0


class Pair:
    """A sender, and a receiver whose parameters are looked at (Contrail 7.1).

    Parameters
    ----------
    seed : int
    polling_s, idle_s : float
        The time between two polls of the receiver, and how long it keeps an idle connection, in seconds.
    link : str
        The profile of the sender's and the receivers' links.
    receivers : int
        The number of receivers; all of them do the same.
    encrypted : bool
        Whether items are encrypted; False is the control.
    """

    def __init__(
        self,
        seed: int,
        polling_s: float,
        idle_s: float,
        *,
        link: str = "umts_3g",
        receivers: int = 1,
        encrypted: bool = True,
    ) -> None:
        self.lab = Lab(seed=seed, held=True)
        self.lab.world.on_failure = raise_failure
        self.relay = Relay(self.lab, most_waiting=100_000)
        names = [f"receiver-{number}" for number in range(receivers)]
        sender = Module(self.lab.device("sender", link=link), self.relay, friends=names, encrypted=encrypted)
        self.out = sender.open_port("items", polling_interval_ms=2000.0)
        self.modules = [
            Module(self.lab.device(name, link=link), self.relay, friends=["sender"], encrypted=encrypted)
            for name in names
        ]
        self.came: list[tuple[float, Item]] = []
        self.ports = [self._receiver(module, polling_s, idle_s) for module in self.modules]
        self.lab.run(minutes=1)
        self.out.polling_interval_ms = 1e9  # from now on it only sends

    def _receiver(self, module: Module, polling_s: float, idle_s: float) -> Port:
        port = module.open_port("items", polling_interval_ms=polling_s * 1000, idle_timeout_ms=idle_s * 1000)
        port.on_item(lambda item: self.came.append((self.now_s, item)))
        port.install_filter("destination = 'receiver'", to=("sender", "items")).result()
        return port

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.lab.world.now_us / 1e6

    def publish(self, payload: bytes, item_id: str | None = None, **metadata: Any) -> Any:
        """Publish an item for the receivers."""
        return self.out.publish(Item({"destination": "receiver", **metadata}, payload), item_id)

    def bytes_of(self, device: str, direction: str) -> int:
        """Give what has gone over a device's link."""
        bill = self.lab.bill()
        return int(bill[(bill["device"] == device) & (bill["direction"] == direction)]["bytes"].sum())

    def wait(self, until: Callable[[], bool]) -> None:
        """Let time go on until something holds."""
        deadline_us = self.lab.world.now_us + round(_MOST_S * 1e6)
        self.lab.world.run_until(until, deadline_us)
        if not until():
            raise SimulationProblem("An item has not come within an hour.")


def latencies_s(
    seed: int, polling_s: float, idle_s: float, count: int, pause_s: float = 0.0, link: str = "umts_3g"
) -> list[float]:
    """Send one item after the other, each when the one before has come, and give how long each took.

    Parameters
    ----------
    seed : int
    polling_s, idle_s : float
        As for :class:`Pair`.
    count : int
        The number of items.
    pause_s : float
        The time until the next item is sent, in seconds; without a pause polling and sending keep step.
    link : str
    """
    pair = Pair(seed, polling_s, idle_s, link=link)
    pair.out.polling_interval_ms = 2000.0  # so that its radio does not fall asleep between two items
    took_s = []
    for number in range(count):
        pair.lab.run(seconds=pause_s * (0.1 + number * 0.618034 % 1))  # spread evenly, not in step with polls
        began_s, before = pair.now_s, len(pair.came)
        pair.publish(b"x" * 100)
        pair.wait(lambda before=before: len(pair.came) > before)  # type: ignore[misc]
        took_s.append(pair.came[-1][0] - began_s)
    return took_s


def radio_mw(seed: int, polling_s: float, idle_s: float, hours: float, link: str = "umts_3g") -> float:
    """Send an item every 2 s, and give the mean power of the receiver's radio (Fig. 8).

    Parameters
    ----------
    seed : int
    polling_s, idle_s, hours : float
        As for :class:`Pair`; and how long items are sent, in hours.
    link : str
    """
    pair = Pair(seed, polling_s, idle_s, link=link)
    device = pair.lab.devices["receiver-0"]
    before_mj, began_s = pair.lab.world.radio_mj(device), pair.now_s
    for _ in range(round(hours * 1800)):
        pair.publish(b"x" * 100)
        pair.lab.run(seconds=2)
    return (pair.lab.world.radio_mj(device) - before_mj) / (pair.now_s - began_s)


def round_trips_s(
    seed: int, polling_s: float, idle_s: float, count: int, pause_s: float = 0.0
) -> list[float]:
    """Send items that the receiver sends back at once, and give how long each took there and back (7.1.1).

    Parameters
    ----------
    seed, polling_s, idle_s, count, pause_s
        As for :func:`latencies_s`; sender and receiver poll alike.
    """
    pair = Pair(seed, polling_s, idle_s)
    pair.out.polling_interval_ms, pair.out.idle_timeout_ms = polling_s * 1000, idle_s * 1000
    back: list[float] = []
    pair.out.on_item(lambda item: back.append(pair.now_s))
    pair.out.install_filter("destination = 'sender'", to=("receiver-0", "items")).result()
    pair.ports[0].on_item(lambda item: pair.ports[0].publish(Item({"destination": "sender"}, item.payload)))
    pair.lab.run(minutes=1)
    took_s = []
    for number in range(count):
        pair.lab.run(seconds=pause_s * (0.1 + number * 0.618034 % 1))
        began_s, before = pair.now_s, len(back)
        pair.publish(b"x" * 100)
        pair.wait(lambda before=before: len(back) > before)  # type: ignore[misc]
        took_s.append(back[-1] - began_s)
    return took_s


def self_latencies_s(
    seed: int, clients: int, instances: int, *, service_ms: float, minutes: float = 3.0
) -> list[float]:
    """Let clients send themselves a message every 5 s and poll every 5 s, and give the latencies (Fig. 11).

    Parameters
    ----------
    seed : int
    clients, instances : int
        The number of clients, and of compute instances at the relay.
    service_ms : float
        The time that an instance needs for a request, in milliseconds.
    minutes : float
        How long the clients send, in minutes; the minute before in which they register is not counted.
    """
    lab = Lab(seed=seed, messages=False)
    lab.world.on_failure = raise_failure
    relay = Relay(lab, instances, service_ms=service_ms)
    took_s: list[float] = []

    def came(item: Item) -> None:
        took_s.append(lab.world.now_us / 1e6 - float(item.metadata["at_s"]))

    ports = []
    for number in range(clients):
        name = f"client-{number:04d}"
        module = Module(lab.device(name, link="wifi"), relay, friends=[name])
        port = module.open_port("self", polling_interval_ms=5000)
        port.on_item(came)
        port.install_filter("at_s >= 0", to=(name, "self"))
        ports.append(port)
    lab.run(minutes=1)
    for _ in range(round(minutes * 12)):
        for port in ports:
            port.publish(Item({"at_s": lab.world.now_us / 1e6}))
            lab.run(seconds=5 / clients)
    return took_s
