"""One Contrail sender and its receivers in a lab: latency, traffic and radio power of items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mudkit.errors import SimulationProblem
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.systems.contrail import Item, Module, Port, Relay

__all__ = ["ContrailPair", "item_latencies_s", "receiver_radio_mw"]

_MAX_WAIT_S: Final = 3600.0


class ContrailPair:
    """A sender and receivers that poll at one interval (Contrail 7.1).

    Parameters
    ----------
    seed : int
        Seed of the lab.
    polling_s, idle_s : float
        Polling interval of a receiver, and how long it keeps an idle connection, in seconds.
    link : str
        Link profile of all devices.
    receivers : int
        Number of receivers; all of them subscribe alike.
    encrypted : bool
        Whether items are encrypted.
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
        self.lab = Lab(seed=seed, record_held=True)
        self.lab.world.on_failure = raise_failure
        self.relay = Relay(self.lab, max_waiting=100_000)
        names = [f"receiver-{number}" for number in range(receivers)]
        sender = Module(self.lab.device("sender", link=link), self.relay, friends=names, encrypted=encrypted)
        self.sender_port = sender.open_port("items", polling_interval_ms=2000.0)
        self.modules = [
            Module(self.lab.device(name, link=link), self.relay, friends=["sender"], encrypted=encrypted)
            for name in names
        ]
        self.received: list[tuple[float, Item]] = []
        self.ports = [self._receiver(module, polling_s, idle_s) for module in self.modules]
        self.lab.run(minutes=1)
        self.sender_port.polling_interval_ms = 1e9  # from now on it only sends

    def _receiver(self, module: Module, polling_s: float, idle_s: float) -> Port:
        port = module.open_port("items", polling_interval_ms=polling_s * 1000, idle_timeout_ms=idle_s * 1000)
        port.on_item(lambda item: self.received.append((self.now_s, item)))
        port.install_filter("destination = 'receiver'", to=("sender", "items")).result()
        return port

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.lab.world.now_us / 1e6

    def publish(self, payload: bytes, item_id: str | None = None, **metadata: Any) -> Any:
        """Publish an item with a ``payload`` and ``metadata``; ``item_id`` as in ``Port.publish``."""
        return self.sender_port.publish(Item({"destination": "receiver", **metadata}, payload), item_id)

    def bytes_of(self, device: str, direction: str) -> int:
        """Return the bytes sent over a device's link in one ``direction``, ``"up"`` or ``"down"``."""
        bill = self.lab.bill()
        return int(bill[(bill["device"] == device) & (bill["direction"] == direction)]["bytes"].sum())

    def wait(self, until: Callable[[], bool]) -> None:
        """Run the lab until a condition holds."""
        deadline_us = self.lab.world.now_us + round(_MAX_WAIT_S * 1e6)
        self.lab.world.run_until(until, deadline_us)
        if not until():
            raise SimulationProblem(
                "An item has not arrived within an hour.",
                remedy="choose a shorter polling interval, or another link",
            )

    def latencies_s(
        self, arrivals: list[tuple[float, Item]], count: int, pause_s: float = 0.0
    ) -> list[float]:
        """Send ``count`` items, about ``pause_s`` apart; return the latencies of their ``arrivals``."""
        took_s = []
        for number in range(count):
            self.lab.run(seconds=pause_s * (0.1 + number * 0.618034 % 1))  # evenly, not in step with polls
            began_s, before = self.now_s, len(arrivals)
            self.publish(b"x" * 100)
            self.wait(lambda before=before: len(arrivals) > before)  # type: ignore[misc]
            took_s.append(arrivals[-1][0] - began_s)
        return took_s


def item_latencies_s(
    seed: int, polling_s: float, idle_s: float, count: int, pause_s: float = 0.0, link: str = "umts_3g"
) -> list[float]:
    """Send items, each after the previous one has arrived, and return their latencies in seconds.

    Parameters
    ----------
    seed : int
    polling_s, idle_s : float
        As for :class:`ContrailPair`.
    count : int
        Number of items.
    pause_s : float
        Mean time between an arrival and the next item, in seconds. With 0, sending follows the polls.
    link : str
        Link profile of all devices.
    """
    pair = ContrailPair(seed, polling_s, idle_s, link=link)
    pair.sender_port.polling_interval_ms = 2000.0  # so that its radio does not fall asleep between two items
    return pair.latencies_s(pair.received, count, pause_s)


def receiver_radio_mw(
    seed: int, polling_s: float, idle_s: float, hours: float, link: str = "umts_3g"
) -> float:
    """Return the mean power of the receiver's radio in mW while an item is sent every 2 s (Fig. 8).

    Parameters
    ----------
    seed : int
    polling_s, idle_s, hours : float
        As for :class:`ContrailPair`; and how long items are sent, in hours.
    link : str
        Link profile of all devices.
    """
    pair = ContrailPair(seed, polling_s, idle_s, link=link)
    device = pair.lab.devices["receiver-0"]
    before_mj, began_s = pair.lab.world.radio_mj(device), pair.now_s
    for _ in range(round(hours * 1800)):
        pair.publish(b"x" * 100)
        pair.lab.run(seconds=2)
    return (pair.lab.world.radio_mj(device) - before_mj) / (pair.now_s - began_s)
