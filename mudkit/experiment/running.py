"""Runs: a scenario, a system and a seed, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mudkit.errors import ParameterError
from mudkit.events import Network
from mudkit.experiment.scenario import Scenario
from mudkit.lab import Lab
from mudkit.sources.parameters import of_kind, whole_number
from mudkit.sources.streams import Stream
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "System", "check_seed", "check_system", "run"]


class System(Protocol):
    """A system as an experiment runs it; made from the lab, when all devices are there."""

    @property
    def name(self) -> str:
        """Who is charged."""
        ...

    def publish(self, item: str, sender: str, receivers: Sequence[str], size_bytes: int) -> None:
        """Let a device publish an item for others, now."""
        ...

    def read(self, device: str) -> None:
        """Let the user of a device look at what has come, now."""
        ...


class Run:
    """One run and its results.

    Parameters
    ----------
    scenario : Scenario
    system : str
        Its name.
    seed : int
    lab : Lab
        The lab in which it happened, at its end.
    """

    def __init__(self, scenario: Scenario, system: str, seed: int, lab: Lab) -> None:
        self.scenario = scenario
        self.system = system
        self.seed = seed
        self.lab = lab
        self.trace = lab.trace

    @cached_property
    def bill(self) -> pd.DataFrame:
        """One row per (system, device, direction): ``messages, bytes, radio_mj, wakeups``."""
        return self.lab.bill()

    @cached_property
    def deliveries(self) -> pd.DataFrame:
        """One row per (item, receiver): times, ``latency_s, staleness_s, status``."""
        return self.lab.deliveries()

    @cached_property
    def held(self) -> pd.DataFrame:
        """What each party held, in clear or as ciphertext; see :meth:`mudkit.lab.Lab.held`."""
        return self.lab.held()

    def measures(self) -> dict[str, float]:
        """Sum the run up.

        Returns
        -------
        dict of str to float
            The measures. Over all devices: ``messages``, ``bytes``, ``radio_j``, ``wakeups``; of all items
            and receivers the shares that were delivered and that were read before they expired
            (``delivered_share``, ``read_share``), and that expired (``expired_share``); of those that were
            delivered, and read, in time the medians ``latency_s`` and ``staleness_s`` (NaN: there is none).
        """
        bill, deliveries = self.bill, self.deliveries
        count = len(deliveries) or math.nan
        late = deliveries["expired"].notna() & (deliveries["delivered"] > deliveries["expired"])
        in_time = deliveries[deliveries["delivered"].notna() & ~late]
        read = deliveries[deliveries["status"] == "read"]
        return {
            "messages": float(bill["messages"].sum()),
            "bytes": float(bill["bytes"].sum()),
            "radio_j": float(bill["radio_mj"].sum() / 1000),
            "wakeups": float(bill["wakeups"].sum()),
            "delivered_share": len(in_time) / count,
            "read_share": len(read) / count,
            "expired_share": float((deliveries["status"] == "expired").sum()) / count,
            "latency_s": float(in_time["latency_s"].median()) if len(in_time) else math.nan,
            "staleness_s": float(read["staleness_s"].median()) if len(read) else math.nan,
        }


def run(
    scenario: Scenario,
    system: Callable[[Network], System],
    seed: int = 0,
    *,
    messages: bool = True,
    held: bool = True,
) -> Run:
    """Run a system through a scenario.

    Parameters
    ----------
    scenario : Scenario
    system : callable
        Makes the system from the lab, for instance the class
        :class:`mudkit.experiment.adapters.StoreAndForward`.
    seed : int
        Same scenario, system and seed: same run.
    messages, held : bool
        As in :class:`mudkit.lab.Lab`.

    Returns
    -------
    Run

    Raises
    ------
    ParameterError
        This is no scenario, no system or no seed, or a trace of moves or links does not cover the run.
    """
    of_kind("scenario", scenario, Scenario, expected="a scenario, such as Scenario(devices=20, hours=24)")
    check_system(system)
    lab = Lab(seed, start=scenario.start, record_messages=messages, record_held=held)
    lab.fleet(
        scenario.devices,
        mobility=scenario.mobility,
        link=scenario.link,
        outage=scenario.outage,
        every_s=scenario.every_s,
        battery_j=scenario.battery_j,
    )
    lab.faults.messages(
        loss_share=scenario.loss_share,
        repeat_share=scenario.repeat_share,
        delay_share=scenario.delay_share,
        delay_s=scenario.delay_s,
    )
    made = system(lab)
    lab.trace.description["scenario"] = scenario.describe()
    _Play(scenario, lab, made).begin()
    lab.run(hours=scenario.hours)
    return Run(scenario, made.name, seed, lab)


def check_system(given: Any) -> None:
    """Refuse what makes no system.

    Raises
    ------
    ParameterError
    """
    if not callable(given):
        raise ParameterError(
            "This makes no system.",
            where="system",
            found=repr(given)[:120],
            expected="a class or function of the lab, such as StoreAndForward",
            remedy="give the class itself, not its name or one that was made",
        )


def check_seed(name: str, given: Any) -> int:
    """Refuse what is no seed.

    Raises
    ------
    ParameterError
    """
    return whole_number(name, given, -(1 << 63), (1 << 63) - 1)


class _Play:
    """Brings a scenario's items, reads and queries into a lab, one after the other."""

    def __init__(self, scenario: Scenario, lab: Lab, system: System) -> None:
        self._scenario = scenario
        self._lab = lab
        self._system = system
        self._names = list(lab.devices)
        self._receivers = Stream(lab.world.seed, "receivers")
        self._published = [0] * len(self._names)

    def begin(self) -> None:
        """Do something at each moment of the workloads; only the next one is in the kernel's heap.

        What comes first at one moment depends on nobody else: positions, messages, timers, then these.
        """
        scenario, world = self._scenario, self._lab.world
        length_us = round(scenario.hours * 3600 * US_PER_S)
        does = (self._publish, self._look, self._ask)
        drawn = [
            (workload.moments(world.seed, name, self._names, self._lab.start_us, length_us), kind)
            for kind, (name, workload) in enumerate(
                (("items", scenario.items), ("reads", scenario.reads), ("queries", scenario.queries))
            )
            if workload is not None
        ]
        rows = np.concatenate([moments.device for moments, _ in drawn])
        times_us = np.concatenate([moments.t_us for moments, _ in drawn])
        kinds = np.repeat([kind for _, kind in drawn], [len(moments.t_us) for moments, _ in drawn])
        order = np.lexsort((rows, kinds, times_us))

        def step(number: int) -> None:
            if number + 1 < len(order):
                world.ask_at(int(times_us[order[number + 1]]), step, number + 1)
            does[kinds[order[number]]](int(rows[order[number]]))

        if len(order):
            world.ask_at(int(times_us[order[0]]), step, 0)

    def _look(self, row: int) -> None:
        self._system.read(self._names[row])

    def _publish(self, row: int) -> None:
        scenario, names, now_us = self._scenario, self._names, self._lab.world.now_us
        self._published[row] += 1
        number, sender = self._published[row], names[row]
        item = f"{sender} {number}"
        receivers = [names[each] for each in self._others(row, number)]
        for receiver in receivers:
            created = {"item": item, "receiver": receiver, "created_us": now_us}
            if scenario.expires_s is not None:
                created["expired_us"] = now_us + round(scenario.expires_s * US_PER_S)
            self._lab.trace.deliveries.note(self._system.name, created)
        self._system.publish(item, sender, receivers, scenario.size_bytes)

    def _others(self, row: int, number: int) -> list[int]:
        """Draw different devices, none of them the sender; alone, a device sends to itself."""
        count, wanted = len(self._names), self._scenario.receivers
        if count == 1:
            return [row]
        device = self._lab.devices[self._names[row]].number
        # The devices with the lowest draws would be a draw for each of them; this is one for each receiver.
        steps = number * wanted + np.arange(wanted)
        draws = self._receivers.integers(device, steps, 0, count - 1 - np.arange(wanted))
        taken = [row]
        for draw in draws.tolist():
            for each in sorted(taken):
                draw += draw >= each
            taken.append(draw)
        return taken[1:]

    def _ask(self, row: int) -> None:
        host = self._lab.devices[self._names[row]]
        self._lab.trace.read(host, self._scenario.box_km, self._scenario.window_s)
