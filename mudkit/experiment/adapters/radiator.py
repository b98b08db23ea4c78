"""Radiator as experiments run it: an item is a context for all, and what nobody waits for waits (2.2, 3.1).

On a task, who wants an item gets it at once; to all others it goes with what has come in ten minutes, as one
message. Nothing is left out: that everyone gets everything in the end is what Radiator promises, and on the
scoreboard it is waste.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.events import Call, Complete, Effect, Event, Record
from mudkit.experiment.adapters.hop import BaseHop, Batch, OnBatch, Way, text_of
from mudkit.experiment.tasks import SETTLE_S, TASKS, Item
from mudkit.experiment.testbed import Testbed
from mudkit.systems.radiator import NAME, Aggregability, Client, ClientMachine, Context, Server, Time, Volume
from mudkit.systems.radiator.aggregation.joins import concatenation
from mudkit.systems.radiator.aggregation.thresholds import Function, Threshold

__all__ = ["LATER_S", "Radiator", "RadiatorAdapter", "RadiatorHop"]

LATER_S: Final = SETTLE_S
"""So long a message waits for those who have not asked for it. A run settles as long, so it is all billed."""
_ME: Final = "me "
_HALF_AN_HOUR: Final = Time(1800.0)


class _Reader(ClientMachine):
    """A client whose user reads what has come for her."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._unread: list[str] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="read"):
                unread, self._unread = self._unread, []
                return (*(self._happened("read_us", item, now_us) for item in unread), Complete(op_id))
        return super().handle(now_us, event)

    def shown(self, now_us: int, context: Context) -> Sequence[Effect]:
        """Note those items that are for this device."""
        items, receivers = context.get("item"), context.get("receivers")
        if not isinstance(items, list) or not isinstance(receivers, list):
            return ()  # not of an experiment: anybody may push something to who can be reached by its peers
        mine = [
            item
            for item, those in zip(items, receivers, strict=False)
            if isinstance(item, str) and isinstance(those, list) and self.device in those
        ]
        self._unread += mine
        return [self._happened("delivered_us", item, now_us) for item in mine]

    def _happened(self, what: str, item: str, now_us: int) -> Record:
        return Record("deliveries", {"item": item, "receiver": self.device, what: now_us})


def _at_once(sender: Context, receiver: Context) -> Volume:
    return Volume(1)


class Radiator:
    """The system as an experiment runs it: each item is a context for all, of which some wait.

    Parameters
    ----------
    testbed : Testbed
    aggregability : callable
        The aggregability function; by default everything goes at once.
    p2p_enabled : bool
        Whether the devices can reach each other.
    **settings
        The settings of :class:`Server`: ``chain``, ``compress``, ``max_retention_s``, ….
    """

    name: Final = NAME

    def __init__(
        self,
        testbed: Testbed,
        aggregability: Function | Aggregability = _at_once,
        *,
        p2p_enabled: bool = True,
        **settings: Any,
    ) -> None:
        lab = testbed.lab
        server = Server(lab, aggregability, concatenation, **settings)
        attributes: Mapping[str, Any] = {"p2p_enabled": p2p_enabled}
        self._clients = {
            name: Client(device, server, attributes=attributes, machine=_Reader)
            for name, device in lab.devices.items()
        }

    def publish(self, item: Item) -> None:
        """Propagate an item to all devices, its receivers among them."""
        attributes = {"item": item.name, "receivers": list(item.about["to"]), "text": item.filler}
        self._clients[item.sender].propagate_context(Context(frozenset((item.sender,)), attributes))

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._clients[phone].installed.call("read")


class RadiatorAdapter:
    """The server with an aggregability function made of the want, and its clients.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
    """

    name: Final = "Radiator"
    cannot: Final[Mapping[str, str]] = dict.fromkeys(
        TASKS, "Everyone gets everything in the end: what nobody wanted comes later, put together."
    )
    """What its paper cannot say, by the name of the task."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        want = testbed.task.want

        def when(sender: Context, receiver: Context) -> Threshold:
            about = {name: sender.get(name) for name in want.of_item}
            me = {name: receiver.get(f"{_ME}{name}") for name in want.of_me}
            return Volume(1) if want.holds(about, me) else Time(LATER_S)

        # No chains: phones cannot be reached from outside.
        server = Server(testbed.lab, when, chain=0.0, max_retention_s=2 * LATER_S)
        self._clients = {}
        for name, device in testbed.lab.devices.items():
            receive = partial(self._come, name) if name in set(testbed.phones) else None
            attributes = self._attributes(name) if name in set(testbed.phones) else {}
            self._clients[name] = Client(device, server, receive=receive, attributes=attributes)

    def publish(self, item: Item) -> None:
        """Propagate it."""
        about = {**item.about, "called": item.name, "text": item.content}
        self._clients[item.sender].propagate_context(Context(frozenset((item.sender,)), about))

    def moved(self, phone: str) -> None:
        """Say where it is now."""
        self._clients[phone].register(self._attributes(phone))

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def _attributes(self, phone: str) -> dict[str, Any]:
        return {f"{_ME}{name}": value for name, value in self._testbed.about(phone).items()}

    def _come(self, phone: str, context: Context) -> None:
        for name in context["called"]:
            self._testbed.arrived(phone, name)


class RadiatorHop(BaseHop):
    """Radiator: what is for a phone waits together, and goes as one aggregate.

    Parameters
    ----------
    way : Way
    on_batch : callable
    until : Threshold
        What the aggregability function gives, for all.
    retention_s : float
    """

    def __init__(
        self, way: Way, on_batch: OnBatch, until: Threshold = _HALF_AN_HOUR, retention_s: float = 3600.0
    ) -> None:
        super().__init__(way, on_batch)

        # Not compressed: what a server could read is looked for in what it held.
        def server(name: str) -> Server:
            return Server(
                way.testbed.lab,
                lambda sender, receiver: until,
                compress=False,
                name=name,
                max_retention_s=retention_s,
            )

        all_of_them = server("radiator") if way.is_first else None
        self._servers = {phone: all_of_them or server(f"radiator of {phone}") for phone in way.ends}
        self._peers = {
            name: Client(host, all_of_them or self._servers[name], f"from {name}")
            for name, host in way.sources.items()
        }
        for phone, host in way.ends.items():
            Client(host, self._servers[phone], f"to {phone}", receive=partial(self._context, phone))

    def send(self, source: str, batch: Batch) -> None:
        """Propagate it."""
        people = frozenset(item.sender for item in batch)
        self._peers[source].propagate_context(
            Context(people, {"called": self._note(batch), "text": text_of(batch)})
        )

    def _context(self, phone: str, context: Context) -> None:
        items = [item for name in context["called"] for item in self._under_way[name]]
        # Radiator brings her what is hers, too: it is not her bridge that has sent it.
        batch = tuple(item for item in items if item.sender != phone)
        if batch:
            self._on_batch(phone, batch)
