"""Entrants that are made of two systems: one behind the other, or a policy in the application's own hands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from mudkit.experiment.scoreboard.compositions.hops import ContrailHop, Hop, MakeHop, Parcel, Way
from mudkit.experiment.scoreboard.entrants.sublim import as_state, not_wanted
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.systems.sublim import Policy, Rule
from mudkit.units import US_PER_S

__all__ = ["AtTheEnds", "Chain", "Handed", "Logged"]

_DESK: Final = "desk of "


class Handed(NamedTuple):
    """Something that the application on a phone was handed.

    Parameters
    ----------
    t_us : int
    phone : str
    parcel : tuple of Item
    """

    t_us: int
    phone: str
    parcel: Parcel


class Logged:
    """What entrants of this package have in common: they keep what was published and handed over.

    Parameters
    ----------
    stage : Testbed

    Attributes
    ----------
    published : list of Item
    handed : list of Handed
        In the order of time.
    """

    def __init__(self, stage: Testbed) -> None:
        self._stage = stage
        self.published: list[Item] = []
        self.handed: list[Handed] = []

    def _hand(self, phone: str, parcel: Parcel) -> None:
        """Hand something to the application on a phone."""
        self.handed.append(Handed(self._stage.lab.world.now_us, phone, parcel))
        for item in parcel:
            self._stage.arrived(phone, item.name)


class Chain(Logged):
    """Hops, one behind the other: what comes out of one for a phone goes into the next.

    Parameters
    ----------
    stage : Testbed
    hops : sequence of callable
        One, or two with a desk for each phone in between.
    """

    def __init__(self, stage: Testbed, hops: Sequence[MakeHop]) -> None:
        super().__init__(stage)
        devices = stage.lab.devices
        sources = {name: devices[name] for name in stage.senders}
        ends = {phone: devices[phone] for phone in stage.phones}
        desks = {phone: stage.lab.server(f"{_DESK}{phone}") for phone in stage.phones} if hops[1:] else ends
        self._hops: list[Hop] = []
        self._tellers: dict[str, Client] = {}
        if hops[1:]:
            second = hops[1](Way(stage, desks, ends, is_first=False), self._hand)
            self._hops = [hops[0](Way(stage, sources, desks, is_first=True), second.send), second]
            if stage.task.want.moves and self._hops[0].listens:
                self._tell_desks(stage)
        else:
            self._hops = [hops[0](Way(stage, sources, ends, is_first=True), self._hand)]

    def publish(self, item: Item) -> None:
        """Let it enter the first hop."""
        self.published.append(item)
        self._hops[0].send(item.sender, (item,))

    def moved(self, phone: str) -> None:
        """Tell the hop that ends on the phone, and send word to the desk, on which the other one does."""
        about = self._stage.about(phone)
        self._hops[-1].moved(phone, about)
        if phone in self._tellers:
            self._tellers[phone].send(f"{_DESK}{phone}", msgspec.json.encode(about).decode())

    def look(self, phone: str) -> None:
        """Let what waits for her at the last hop come, and show what has come."""
        self._hops[-1].look(phone)

    def _tell_desks(self, stage: Testbed) -> None:
        """Let phones send what they say of themselves to their desks, by store and forward, on the bill."""
        relay = Relay(stage.lab, "telling")
        for phone in stage.phones:
            self._tellers[phone] = Client(stage.lab.devices[phone], relay)
            desk = Client(stage.lab.server(f"{_DESK}{phone}"), relay)
            desk.on_message(partial(self._told, phone))

    def _told(self, phone: str, message: Any) -> None:
        self._hops[0].moved(phone, msgspec.json.decode(message["text"]))


class AtTheEnds(Logged):
    """Contrail from phone to phone, and a SUBLIM policy that an application keeps at one of the ends.

    Parameters
    ----------
    stage : Testbed
    place : {'sender', 'receiver'}
        Each sender keeps a policy and its state for each phone, or each phone its own. A sender needs to know
        what the phones say of themselves; how it learns that is not modelled.
    rules : sequence of Rule
        What is done with what is wanted.
    """

    def __init__(self, stage: Testbed, place: str, rules: Sequence[Rule] = (Rule(),)) -> None:
        super().__init__(stage)
        self._is_sender = place == "sender"
        self._policy = Policy("limited", [not_wanted(stage.task.want), *rules])
        self._kept: dict[tuple[str, str], dict[str, object]] = {}
        devices = stage.lab.devices
        ends = {phone: devices[phone] for phone in stage.phones}
        sources = {name: devices[name] for name in stage.senders}
        self._contrail = ContrailHop(Way(stage, sources, ends, is_first=True), self._come)

    def publish(self, item: Item) -> None:
        """Send it to those to whom the policy lets it go."""
        self.published.append(item)
        only = None
        if self._is_sender:
            only = [phone for phone in self._stage.phones if self._passes(item.sender, phone, item)]
        self._contrail.send(item.sender, (item,), only)

    def moved(self, phone: str) -> None:
        """Nobody needs to know."""

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _come(self, phone: str, parcel: Parcel) -> None:
        for item in parcel:
            if self._is_sender or self._passes("", phone, item):
                self._hand(phone, (item,))

    def _passes(self, keeper: str, phone: str, item: Item) -> bool:
        world = self._stage.lab.world
        before = self._kept.get((keeper, phone), {})
        state = {**before, **as_state(phone, self._stage.about(phone))}
        now_s = (self._stage.lab.start_us + world.now_us) / US_PER_S
        verdict = self._policy.decide(item.about, state, {}, now_s)
        self._kept[keeper, phone] = dict(verdict.variables)
        return verdict.out is not None
