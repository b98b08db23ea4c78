"""Phones that send each other messages, over a relay or directly; each user opens her inbox now and then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from mudkit.checks import check_arguments, number, one_of, whole_number
from mudkit.display import Displayed, View
from mudkit.fleet.device import BASE_MW, check_battery
from mudkit.lab import Lab
from mudkit.scenario import Activity, Scenario, build_lab, check_workload, require_mobility, schedule
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Workload
from mudkit.systems.store_and_forward import Client, DirectClient, Relay
from mudkit.systems.store_and_forward.api import NAME
from mudkit.systems.store_and_forward.device import DIRECT
from mudkit.units import US_PER_S
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "offline_share": Label("time without a network", "%", 100.0),
        "j_per_read": Label("radio energy", "J per message read"),
    }
)

System: TypeAlias = Literal["direct", "relay"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)


@check_arguments(types=False)
@dataclass(frozen=True)
class Inboxes(Scenario):
    """A scenario in which each item is a message to some phones, drawn evenly, for their inboxes.

    Parameters
    ----------
    devices, hours, link, outage, mobility, every_s, items, size_bytes, expires_s, reads, start, transport
        As in :class:`mudkit.experiment.Scenario`.
    loss_share, repeat_share, delay_share, delay_s : float
        As in :meth:`mudkit.fleet.Faults.messages`.
    receivers : int
        How many others each message is for.
    battery_j : float, optional
        As in :meth:`mudkit.lab.Lab.fleet`.
    queries : Workload, optional
        When each user asks for what is around her (a row of the trace's ``reads``; needs a mobility).
    box_km, window_s : float
        What a query asks for.

    Raises
    ------
    ParameterError
        A value is not usable, or queries are asked where there is no mobility.

    Examples
    --------
    >>> Inboxes(devices=4, hours=1).run(seed=1).measures()["delivered_share"]
    1.0
    """

    receivers: int = 1
    battery_j: float | None = None
    queries: Workload | None = None
    box_km: float = 20.0
    window_s: float = 7200.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("receivers", self.receivers, 1, max(self.devices - 1, 1))
        number("box_km", self.box_km, 1e-6, 1e5)
        number("window_s", self.window_s, 1e-6, 1e9)
        if self.battery_j is not None:
            check_battery(self.battery_j, BASE_MW)
        if self.queries is not None:
            check_workload("queries", self.queries)
            summary = "A query asks for what is around a device, which has no place."
            require_mobility(self, "queries", summary)

    def run(
        self,
        seed: int = 0,
        system: System = "relay",
        *,
        record_messages: bool = True,
        record_exposure: bool = True,
    ) -> InboxesRun:
        """Run the scenario.

        Parameters
        ----------
        seed : int
            Same seed: same phones, moves, outages, messages and looks, whatever the system.
        system : {'direct', 'relay'}
            Whether a message goes straight to its receivers, and is lost if one of them has no network, or
            to a relay, which keeps it (:mod:`mudkit.systems.store_and_forward`).
        record_messages, record_exposure : bool
            As in :class:`mudkit.lab.Lab`.
        """
        one_of("system", system, SYSTEMS)
        lab = build_lab(
            self,
            seed,
            battery_j=self.battery_j,
            record_messages=record_messages,
            record_exposure=record_exposure,
        )
        lab.trace.description["scenario"] = self.describe()
        phones = _Phones(self, lab, system)
        names = list(lab.devices)
        activities = [
            Activity("items", self.items, names, phones.send),
            Activity("reads", self.reads, names, phones.read),
        ]
        if self.queries is not None:
            activities.append(Activity("queries", self.queries, names, phones.query))
        schedule(lab, self.hours, activities)
        lab.run(hours=self.hours)
        return InboxesRun(self, system, lab)

    def compare(self, seed: int = 0) -> dict[str, dict[str, float]]:
        """Return the measures of both systems with one seed, by name; messages are not recorded."""
        return {
            system: self.run(seed, system, record_messages=False, record_exposure=False).measures()
            for system in SYSTEMS
        }


class _Phones:
    """Clients of the phones, and what their users do."""

    def __init__(self, plan: Inboxes, lab: Lab, system: System) -> None:
        self._plan, self._lab, self._names = plan, lab, list(lab.devices)
        self._receivers = Stream(lab.world.seed, "receivers")
        self._sent = dict.fromkeys(self._names, 0)
        self._rows = {name: row for row, name in enumerate(self._names)}
        self._clients: dict[str, Client | DirectClient]
        if system == "relay":
            relay, self._system = Relay(lab), NAME
            self._clients = {name: Client(device, relay) for name, device in lab.devices.items()}
        else:
            self._system = DIRECT
            self._clients = {name: DirectClient(device) for name, device in lab.devices.items()}

    def send(self, sender: str) -> None:
        """Send a message to receivers drawn for it."""
        plan, lab = self._plan, self._lab
        number = self._sent[sender] = self._sent[sender] + 1
        item, now_us = f"{sender} {number}", lab.world.now_us
        row: dict[str, Any] = {"item": item, "created_us": now_us}
        if plan.expires_s is not None:
            row["expired_us"] = now_us + round(plan.expires_s * US_PER_S)
        receivers = self._draw_receivers(sender, number)
        for receiver in receivers:
            lab.trace.deliveries.record(self._system, {**row, "receiver": receiver})
        for receiver in receivers:
            self._clients[sender].send(receiver, "x" * plan.size_bytes, item)

    def read(self, phone: str) -> None:
        """Open the inbox of a phone."""
        self._clients[phone].read()

    def query(self, phone: str) -> None:
        """Ask for what is around a phone."""
        self._lab.trace.record_read(self._lab.devices[phone], self._plan.box_km, self._plan.window_s)

    def _draw_receivers(self, sender: str, number: int) -> list[str]:
        """Draw distinct devices other than the sender; a single device sends to itself."""
        names, receivers = self._names, self._plan.receivers
        count = len(names)
        if count == 1:
            return [sender]
        device = self._lab.devices[sender].number
        # The devices with the lowest draws would be a draw for each of them; this is one for each receiver.
        steps = number * receivers + np.arange(receivers)
        draws = self._receivers.integers(device, steps, 0, count - 1 - np.arange(receivers))
        taken = [self._rows[sender]]
        for draw in draws.tolist():
            for other in sorted(taken):
                draw += draw >= other
            taken.append(draw)
        return [names[other] for other in taken[1:]]


@check_arguments(types=False)
class InboxesRun(Displayed):
    """A run of :class:`Inboxes`.

    Attributes
    ----------
    plan, system : Inboxes, str
        What was run.
    lab : Lab
        The lab at the end.
    """

    def __init__(self, plan: Inboxes, system: System, lab: Lab) -> None:
        self.plan, self.system, self.lab = plan, system, lab

    def _view(self) -> View:
        shown = self.lab._view()
        facts = {"system": self.system} | dict(shown.facts) | {"seed": str(self.lab.world.seed)}
        return View("InboxesRun", facts, shown.tables[:1])

    @cached_property
    def bill(self) -> pd.DataFrame:
        """One row per (system, device, direction): ``messages, bytes, radio_mj, wakeups``."""
        return self.lab.bill()

    @cached_property
    def deliveries(self) -> pd.DataFrame:
        """One row per (message, receiver): times, ``latency_s, staleness_s, status``."""
        return self.lab.deliveries()

    def energy(self) -> pd.DataFrame:
        """Return the billed radio energy by state (ramp, active, tail): ``state, energy_j, energy_share``."""
        import pandas as pd

        radios = pd.concat([self.lab.radio(name) for name in self.lab.devices])
        energy_j = (radios["end"] - radios["start"]).dt.total_seconds() * radios["power_mw"] / 1000
        by_state = energy_j.groupby(radios["state"]).sum()
        by_state = by_state.reindex(["promotion", "active", "tail"], fill_value=0.0)
        whole = by_state.sum()
        table = pd.DataFrame({"state": ["ramp", "active", "tail"], "energy_j": by_state.to_numpy()})
        table["energy_share"] = table["energy_j"] / whole if whole else math.nan
        return table

    def measures(self) -> dict[str, float]:
        """Return the measures of the run, over all phones; NaN without a value.

        These are ``messages, bytes, radio_j, wakeups, j_per_read``; of all messages and receivers the shares
        delivered and read before they expired (``delivered_share, read_share``), and expired
        (``expired_share``); of those delivered, and read, in time the medians ``latency_s`` and
        ``staleness_s``.
        """
        bill, deliveries = self.bill, self.deliveries
        count = len(deliveries) or math.nan
        radio_j = float(bill["radio_mj"].sum() / 1000)
        late = deliveries["expired"].notna() & (deliveries["delivered"] > deliveries["expired"])
        in_time = deliveries[deliveries["delivered"].notna() & ~late]
        read = deliveries[deliveries["status"] == "read"]
        return {
            "messages": float(bill["messages"].sum()),
            "bytes": float(bill["bytes"].sum()),
            "radio_j": radio_j,
            "wakeups": float(bill["wakeups"].sum()),
            "j_per_read": radio_j / (len(read) or math.nan),
            "delivered_share": len(in_time) / count,
            "read_share": len(read) / count,
            "expired_share": float((deliveries["status"] == "expired").sum()) / count,
            "latency_s": float(in_time["latency_s"].median()) if len(in_time) else math.nan,
            "staleness_s": float(read["staleness_s"].median()) if len(read) else math.nan,
        }
