"""Radiator in experiments: an item is a context for all, and less urgent ones wait (2.2, 3.1).

Alone, phones that want an item get it at once; all others get it with the items of ten minutes, as one
message. Nothing is left out: Radiator promises that everyone gets everything in the end, and on the
scoreboard that is waste.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Call, Complete, Effect, Event, Record
from mudkit.experiment.adapters.system import Batch, System, Way, text_of
from mudkit.experiment.tasks import SETTLE_S, TASKS
from mudkit.experiment.testbed import Testbed
from mudkit.systems.radiator import NAME, Aggregability, Client, ClientMachine, Context, Server, Time, Volume
from mudkit.systems.radiator.joins import concatenation
from mudkit.systems.radiator.thresholds import Function, Threshold

LATER_S: Final = SETTLE_S
"""Time for which a message waits for phones that do not want it; a run settles as long, so all is billed."""
_ME: Final = "me "
_HALF_AN_HOUR: Final = Time(1800.0)


class _Reader(ClientMachine):
    """Client whose user reads the items for her."""

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
            for item, names in zip(items, receivers, strict=False)
            if isinstance(item, str) and isinstance(names, list) and self.device in names
        ]
        self._unread += mine
        return [self._happened("delivered_us", item, now_us) for item in mine]

    def _happened(self, what: str, item: str, now_us: int) -> Record:
        return Record("deliveries", {"item": item, "receiver": self.device, what: now_us})


@check_arguments(types=False)
class Radiator(System):
    """A server with an aggregability function, and its clients.

    Alone, the function is made of the want: what is wanted goes at once. As a part of a chain, what is for a
    phone waits and goes as one aggregate. If items name their receivers, each goes to all devices.

    Parameters
    ----------
    place : Testbed or Way
    aggregability : callable, optional
        Aggregability function for items that name their receivers; by default everything goes at once.
    threshold : Threshold
        Threshold for all, in a chain.
    **settings
        Settings of each :class:`Server`, such as ``chain``, ``compress``, ``max_retention_s``.
    """

    label: ClassVar = "Radiator"
    charged: ClassVar = NAME
    unsupported: ClassVar = dict.fromkeys(
        TASKS, "Everyone gets everything: what nobody wanted comes later, put together."
    )

    def __init__(
        self,
        place: Testbed | Way,
        aggregability: Function | Aggregability = lambda sender, receiver: Volume(1),
        *,
        threshold: Threshold = _HALF_AN_HOUR,
        **settings: Any,
    ) -> None:
        super().__init__(place)
        self._clients: dict[str, Client] = {}
        """Clients by device; in a chain, those where items enter."""
        if self._task.is_addressed:
            server = Server(self._lab, aggregability, concatenation, **settings)
            for name, device in self._lab.devices.items():
                self._clients[name] = Client(
                    device, server, attributes={"p2p_enabled": True}, machine=_Reader
                )
        elif self._is_alone:
            self._begin_alone()
        else:
            self._begin_part(threshold, settings)

    def send(self, source: str, batch: Batch) -> None:
        """Propagate a batch, or an item."""
        people, item = frozenset((source,)), batch[0]
        if self._task.is_addressed:
            about = {"item": item.name, "receivers": list(item.metadata["to"]), "text": item.filler}
        elif self._is_alone:
            about = {**item.metadata, "called": item.name, "text": item.content}
        else:
            people = frozenset(part.sender for part in batch)
            about = {"called": self._note(batch), "text": text_of(batch)}
        self._clients[source].propagate_context(Context(people, about))

    def on_move(self, phone: str, profile: Mapping[str, Any] | None = None) -> None:
        """Register a phone again, with its current place."""
        if self._chooses:
            self._clients[phone].register(self._attributes(phone))

    def on_look(self, phone: str) -> None:
        """Read, or show, the items that have arrived on a phone."""
        if self._task.is_addressed:
            self._clients[phone].installed.call("read")
        else:
            super().on_look(phone)

    def _begin_alone(self) -> None:
        want, phones = self._task.interest, set(self._testbed.phones)

        def when(sender: Context, receiver: Context) -> Threshold:
            about = {name: sender.get(name) for name in want.of_item}
            me = {name: receiver.get(f"{_ME}{name}") for name in want.of_me}
            return Volume(1) if want.holds(about, me) else Time(LATER_S)

        # No chains: phones cannot be reached from outside.
        server = Server(self._lab, when, chain=0.0, max_retention_s=2 * LATER_S)
        for name, device in self._lab.devices.items():
            receive = partial(self._receive, name) if name in phones else None
            attributes = self._attributes(name) if name in phones else {}
            self._clients[name] = Client(device, server, receive=receive, attributes=attributes)

    def _begin_part(self, threshold: Threshold, settings: Mapping[str, Any]) -> None:
        way = self._way

        # Not compressed: what a server could read is looked for in what it held.
        def server(name: str) -> Server:
            usual: dict[str, Any] = {"compress": False, "max_retention_s": 3600.0, "name": name}
            return Server(self._lab, lambda sender, receiver: threshold, **usual, **settings)

        whole = server("radiator") if way.is_first else None
        servers = {phone: whole or server(f"radiator of {phone}") for phone in way.ends}
        for name, host in way.sources.items():
            self._clients[name] = Client(host, whole or servers[name], f"from {name}")
        for phone, host in way.ends.items():
            Client(host, servers[phone], f"to {phone}", receive=partial(self._receive, phone))

    def _attributes(self, phone: str) -> dict[str, Any]:
        return {f"{_ME}{name}": value for name, value in self._testbed.profile(phone).items()}

    def _receive(self, phone: str, context: Context) -> None:
        if self._way.on_batch is None:
            for name in context["called"]:
                self._testbed.record_arrival(phone, name)
            return
        items = [item for name in context["called"] for item in self._under_way[name]]
        # Radiator brings a phone its own items, too, which its bridge has not sent.
        batch = tuple(item for item in items if item.sender != phone)
        if batch:
            self._way.on_batch(phone, batch)
