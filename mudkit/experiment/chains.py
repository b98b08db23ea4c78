"""Compositions of two systems: one behind the other, or one system and a policy of the application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from mudkit.experiment.adapters.contrail import ContrailPart
from mudkit.experiment.adapters.lasthop import LastHopPart
from mudkit.experiment.adapters.mud import MudPart
from mudkit.experiment.adapters.radiator import LATER_S, RadiatorPart
from mudkit.experiment.adapters.sublim import SublimPart, as_state, not_wanted
from mudkit.experiment.adapters.system import Batch, MakePart, Part, Way
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Adapter, Testbed
from mudkit.systems.radiator import Time
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.systems.sublim import Policy, Rule
from mudkit.units import US_PER_S

_BRIDGE: Final = "desk of "


class Handed(NamedTuple):
    """Batch that the application on a phone has received."""

    t_us: int
    phone: str
    batch: Batch


class Logged:
    """Base of adapters that log published and delivered items, in the order of time."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self.published: list[Item] = []
        self.handed: list[Handed] = []

    def _hand(self, phone: str, batch: Batch) -> None:
        """Deliver a batch to the application on a phone."""
        self.handed.append(Handed(self._testbed.lab.world.now_us, phone, batch))
        for item in batch:
            self._testbed.record_arrival(phone, item.name)


class Chain(Logged):
    """One system, or two with a bridge for each phone in between."""

    def __init__(self, testbed: Testbed, hops: Sequence[MakePart]) -> None:
        super().__init__(testbed)
        self._hops: list[Part] = []
        self._reporters: dict[str, Client] = {}
        way = Way.over(testbed, self._hand)
        if hops[1:]:
            bridges = {phone: testbed.lab.server(f"{_BRIDGE}{phone}") for phone in testbed.phones}
            second = hops[1](way._replace(sources=bridges, is_first=False))
            self._hops = [hops[0](way._replace(ends=bridges, on_batch=second.send)), second]
            if testbed.task.interest.uses_place and self._hops[0].listens:
                self._connect_bridges(testbed)
        else:
            self._hops = [hops[0](way)]

    def publish(self, item: Item) -> None:
        """Send an item into the first part."""
        self.published.append(item)
        self._hops[0].send(item.sender, (item,))

    def on_move(self, phone: str) -> None:
        """Update the part that ends on the phone, and send a report to the bridge of the other one."""
        about = self._testbed.profile(phone)
        self._hops[-1].on_move(phone, about)
        if phone in self._reporters:
            self._reporters[phone].send(f"{_BRIDGE}{phone}", msgspec.json.encode(about).decode())

    def on_look(self, phone: str) -> None:
        """Fetch what waits at the last part, and show what has arrived."""
        self._hops[-1].on_look(phone)

    def _connect_bridges(self, testbed: Testbed) -> None:
        """Connect phones to their bridges by store and forward, for reports of themselves."""
        relay = Relay(testbed.lab, "telling")
        for phone in testbed.phones:
            self._reporters[phone] = Client(testbed.lab.devices[phone], relay)
            bridge = Client(testbed.lab.server(f"{_BRIDGE}{phone}"), relay)
            bridge.on_message(partial(self._update_from_report, phone))

    def _update_from_report(self, phone: str, message: Any) -> None:
        """Update the first part from the report that a bridge received from its phone."""
        self._hops[0].on_move(phone, msgspec.json.decode(message["text"]))


class AtTheEnds(Logged):
    """Contrail from phone to phone, and a SUBLIM policy that an application keeps at one of the ends.

    Each sender keeps a policy and its state for each phone, or each receiver its own. How a sender learns
    what phones say of themselves is not modelled.
    """

    def __init__(self, testbed: Testbed, at_sender: bool, rules: Sequence[Rule] = (Rule(),)) -> None:
        super().__init__(testbed)
        self._is_sender = at_sender
        self._policy = Policy("limited", [not_wanted(testbed.task.interest), *rules])
        self._kept: dict[tuple[str, str], dict[str, object]] = {}
        self._contrail = ContrailPart(Way.over(testbed, self._receive))

    def publish(self, item: Item) -> None:
        """Send an item to the phones to which the policy passes it."""
        self.published.append(item)
        only = None
        if self._is_sender:
            only = [phone for phone in self._testbed.phones if self._passes(item.sender, phone, item)]
        self._contrail.send(item.sender, (item,), only)

    def on_move(self, phone: str) -> None:
        """Do nothing: places are not used."""

    def on_look(self, phone: str) -> None:
        """Show what has arrived."""
        self._testbed.show(phone)

    def _receive(self, phone: str, batch: Batch) -> None:
        """Deliver the items of a batch; those that the policy passes, if it is the receiver's."""
        for item in batch:
            if self._is_sender or self._passes("", phone, item):
                self._hand(phone, (item,))

    def _passes(self, keeper: str, phone: str, item: Item) -> bool:
        """Decide on an item by the policy that ``keeper`` has for a phone, and update the policy's state.

        Return whether the item passes.
        """
        lab = self._testbed.lab
        before = self._kept.get((keeper, phone), {})
        state = {**before, **as_state(phone, self._testbed.profile(phone))}
        now_s = (lab.start_us + lab.world.now_us) / US_PER_S
        verdict = self._policy.decide(item.metadata, state, {}, now_s)
        self._kept[keeper, phone] = dict(verdict.variables)
        return verdict.out is not None


_DROPPING: Final = partial(SublimPart, drop_unwanted=True)
_WAITING: Final = partial(RadiatorPart, threshold=Time(LATER_S))

COMPOSITIONS: Final[dict[str, Callable[[Testbed], Adapter]]] = {
    "MUD, then Last hop": partial(Chain, hops=[MudPart, LastHopPart]),
    "MUD, then Radiator": partial(Chain, hops=[MudPart, _WAITING]),
    "MUD, then Contrail": partial(Chain, hops=[MudPart, ContrailPart]),
    "Radiator, then MUD": partial(Chain, hops=[_WAITING, partial(MudPart, aggregate_rule="each")]),
    "Contrail, then SUBLIM": partial(Chain, hops=[ContrailPart, _DROPPING]),
    "Contrail, SUBLIM on the phone": partial(AtTheEnds, at_sender=False),
}
"""Compositions for the scoreboard by name, as :data:`mudkit.experiment.ADAPTERS`.

A policy at each sender is not among them, since how senders learn of readers would cost nothing.
"""
