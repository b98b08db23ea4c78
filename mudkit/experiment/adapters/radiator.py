"""Radiator in experiments: an item is a context for all, and less urgent ones wait (2.2, 3.1).

Alone, phones that want an item get it at once; all others get it with the items of ten minutes, as one
message. Nothing is left out: Radiator promises that everyone gets everything in the end, and on the
scoreboard that is waste.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.experiment.adapters.system import Batch, Part, System, Way, text_of
from mudkit.experiment.tasks import SETTLE_S, TASKS, Item
from mudkit.experiment.testbed import Testbed
from mudkit.systems.radiator import Client, Context, Server, Time, Volume
from mudkit.systems.radiator.thresholds import Threshold

LATER_S: Final = SETTLE_S
"""Time for which a message waits for phones that do not want it; a run settles as long, so all is billed."""
_ME: Final = "me "
_HALF_AN_HOUR: Final = Time(1800.0)


@check_arguments(types=False)
class Radiator(System):
    """A server with an aggregability function made of the want, and its clients: what is wanted goes at once.

    Parameters
    ----------
    testbed : Testbed
    """

    label: ClassVar = "Radiator"
    unsupported: ClassVar = dict.fromkeys(
        TASKS, "Everyone gets everything: what nobody wanted comes later, put together."
    )

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        want, phones = self._task.interest, set(testbed.phones)

        def when(sender: Context, receiver: Context) -> Threshold:
            about = {name: sender.get(name) for name in want.of_item}
            me = {name: receiver.get(f"{_ME}{name}") for name in want.of_me}
            return Volume(1) if want.holds(about, me) else Time(LATER_S)

        # No chains: phones cannot be reached from outside.
        server = Server(self._lab, when, chain=0.0, max_retention_s=2 * LATER_S)
        self._clients: dict[str, Client] = {}
        for name, device in self._lab.devices.items():
            receive = partial(self._receive, name) if name in phones else None
            attributes = self._attributes(name) if name in phones else {}
            self._clients[name] = Client(device, server, receive=receive, attributes=attributes)

    def publish(self, item: Item) -> None:
        """Propagate an item."""
        about = {**item.metadata, "called": item.name, "text": item.content}
        self._clients[item.sender].propagate_context(Context(frozenset((item.sender,)), about))

    def on_move(self, phone: str) -> None:
        """Register a phone again, with its current place."""
        self._clients[phone].register(self._attributes(phone))

    def _attributes(self, phone: str) -> dict[str, Any]:
        """Return the profile of a phone as attributes of its receiver context."""
        return {f"{_ME}{name}": value for name, value in self._testbed.profile(phone).items()}

    def _receive(self, phone: str, context: Context) -> None:
        """Record the arrival of each item in a context, which may be an aggregate."""
        for name in context["called"]:
            self._testbed.record_arrival(phone, name)


@check_arguments(types=False)
class RadiatorPart(Part):
    """A server, and its clients: what is for a phone waits and goes as one aggregate.

    Parameters
    ----------
    way : Way
    threshold : Threshold
        Threshold for all.
    """

    def __init__(self, way: Way, *, threshold: Threshold = _HALF_AN_HOUR) -> None:
        super().__init__(way)

        # Not compressed: what a server could read is looked for in what it held.
        def server(name: str) -> Server:
            return Server(
                self._lab,
                lambda sender, receiver: threshold,
                compress=False,
                max_retention_s=3600.0,
                name=name,
            )

        whole = server("radiator") if way.is_first else None
        servers = {phone: whole or server(f"radiator of {phone}") for phone in way.ends}
        self._clients = {
            name: Client(host, whole or servers[name], f"from {name}") for name, host in way.sources.items()
        }
        for phone, host in way.ends.items():
            Client(host, servers[phone], f"to {phone}", receive=partial(self._receive, phone))

    def send(self, source: str, batch: Batch) -> None:
        """Propagate a batch."""
        people = frozenset(item.sender for item in batch)
        about = {"called": self._store_batch(batch), "text": text_of(batch)}
        self._clients[source].propagate_context(Context(people, about))

    def _receive(self, phone: str, context: Context) -> None:
        """Pass on the items in a context as one batch, without the phone's own."""
        items = [item for name in context["called"] for item in self._under_way[name]]
        # Radiator brings a phone its own items, too, which its bridge has not sent.
        batch = tuple(item for item in items if item.sender != phone)
        if batch:
            self._way.on_batch(phone, batch)
