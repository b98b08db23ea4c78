"""An entry on the scoreboard: a task that a system has done, and what it took."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from mudkit.errors import ParameterError
from mudkit.experiment.tasks import APP, Adapter, Item, Task, Testbed
from mudkit.experiment.tasks.task import SETTLE_S
from mudkit.fleet import Process
from mudkit.fleet.battery import BASE_MW
from mudkit.fleet.failures import raise_failure
from mudkit.lab import Lab
from mudkit.sources.parameters import of_kind
from mudkit.sources.workloads import Workload
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BATTERY_J", "MEASURES", "Entry", "play"]

BATTERY_J: Final = 18_648.0
"""Of the phone whose hours are told: 1,400 mAh at 3.7 V, as the phones of these papers' years have."""

MEASURES: Final[dict[str, str]] = {
    "useful": "deliveries that were wanted and seen in time",
    "useful_share": "of all pairs of an item and a phone that wanted it",
    "lost": "wanted, and never on the phone",
    "stale": "wanted, and on the phone, but not seen before it was over",
    "wasted": "on the phone, and of no use: not wanted, not seen, or seen too late",
    "latency_s": "from publication to the phone, median of the useful ones",
    "latency_p95_s": "the same, of which 95 in 100 are under it",
    "age_s": "from publication to when it was seen, median of the useful ones",
    "up_kb": "that phones and feeds sent",
    "down_kb": "that phones and feeds got",
    "messages": "both ways",
    "wakeups": "of radios",
    "radio_j": "that radios took",
    "battery_h": "of a phone that draws as much as all do on average",
    "server_events": "that machines on servers handled",
    "server_kb": "that servers sent, to phones and to each other",
    "kb_per_useful": "both ways, for each useful delivery",
    "j_per_useful": "of radios, for each useful delivery",
}
"""What is measured, and what it means."""


class Entry:
    """A task that a system has done.

    Parameters
    ----------
    task : Task
    system : str
    seed : int
    testbed : Testbed
        The testbed at the end of the run.
    """

    def __init__(self, task: Task, system: str, seed: int, testbed: Testbed) -> None:
        self.task, self.system, self.seed, self.testbed = task, system, seed, testbed
        self.lab: Lab = testbed.lab

    @cached_property
    def deliveries(self) -> pd.DataFrame:
        """One row for each phone that wanted an item, and for each other one that got it."""
        deliveries = self.lab.deliveries()
        return deliveries[deliveries["system"] == APP].reset_index(drop=True)

    @cached_property
    def bill(self) -> pd.DataFrame:
        """One row per (system, device, direction): ``messages, bytes, radio_mj, wakeups``."""
        return self.lab.bill()

    @cached_property
    def digest(self) -> str:
        """What every system was given: devices, moves, links, outages, items and looks, as SHA-256."""
        digest = self.testbed.given.copy()
        for name in ("positions", "links", "incidents"):
            for piece in self.lab.trace.pieces(name):
                given = piece if name != "incidents" else piece.filter(pc.is_null(piece["system"]))
                for batch in given.combine_chunks().to_batches():
                    digest.update(batch.serialize())
        return digest.hexdigest()

    def measures(self) -> dict[str, float]:
        """Give the :data:`MEASURES`, from the bill and the table of deliveries.

        What servers did is on no bill: it is counted where they stand.
        """
        rows, bill, wanted = self.deliveries, self.bill, self.testbed.wanted
        came, read = rows["delivered"].notna(), rows["status"] == "read"
        useful = rows[read]
        count = len(useful)
        phones = bill[bill["device"].isin(self.testbed.phones)]
        radio_j = float(phones["radio_mj"].sum() / 1000)
        kb = {way: float(bill.loc[bill["direction"] == way, "bytes"].sum() / 1000) for way in ("up", "down")}
        watts = radio_j / self.seconds / len(self.testbed.phones) + BASE_MW / 1000
        servers = self._servers()
        return {
            "useful": float(count),
            "useful_share": count / wanted if wanted else math.nan,
            "lost": float((~came).sum()),
            "stale": float((came & (rows["status"] == "expired")).sum()),
            "wasted": float((came & ~read).sum()),
            "latency_s": float(useful["latency_s"].median()) if count else math.nan,
            "latency_p95_s": float(useful["latency_s"].quantile(0.95)) if count else math.nan,
            "age_s": float(useful["staleness_s"].median()) if count else math.nan,
            "up_kb": kb["up"],
            "down_kb": kb["down"],
            "messages": float(bill["messages"].sum()),
            "wakeups": float(phones["wakeups"].sum()),
            "radio_j": radio_j,
            "battery_h": BATTERY_J / watts / 3600,
            "server_events": float(sum(each.handled for each in servers)),
            "server_kb": sum(each.sent_bytes for each in servers) / 1000,
            "kb_per_useful": sum(kb.values()) / count if count else math.nan,
            "j_per_useful": radio_j / count if count else math.nan,
        }

    @property
    def seconds(self) -> float:
        """How long the run was, in virtual time."""
        return 3600 * self.task.scenario.hours + SETTLE_S

    def _servers(self) -> list[Process]:
        hosts = self.lab.world.hosts
        servers = (host for name, host in hosts.items() if name not in self.lab.devices)
        return [process for server in servers for process in server.processes]


def play(
    task: Task,
    system: Callable[[Testbed], Adapter],
    seed: int = 0,
    *,
    name: str | None = None,
    messages: bool = True,
    held: bool = True,
) -> Entry:
    """Let a system do a task.

    Parameters
    ----------
    task : Task
    system : callable
        Makes an adapter from the testbed, such as those of
        :data:`mudkit.experiment.adapters.ADAPTERS`.
    seed : int
        Same task, system and seed: same run.
    name : str, optional
        What the scoreboard calls it; by default the name of the system, or of the callable.
    messages, held : bool
        As in :class:`mudkit.lab.Lab`.

    Returns
    -------
    Entry

    Raises
    ------
    ParameterError
        This is no task, no system or no seed; or the system has an item arrive that did not come over a link,
        or machines that share what they know.
    """
    of_kind("task", task, Task, expected="a task, such as NEWS")
    if not callable(system):
        raise ParameterError(
            "This makes no adapter.",
            where="system",
            found=repr(system)[:120],
            expected="what makes one from a testbed, such as ADAPTERS['MUD']",
        )
    scenario = task.scenario
    lab = Lab(seed, start=scenario.start, record_messages=messages, record_held=held)
    lab.world.on_failure = raise_failure  # a machine of one's own that fails is told, not compared
    lab.fleet(
        scenario.devices,
        mobility=scenario.mobility,
        link=scenario.link,
        outage=scenario.outage,
        every_s=scenario.every_s,
    )
    if task.feeds:
        lab.fleet(task.feeds, link="ideal", prefix="feed")
    lab.faults.messages(
        loss_share=scenario.loss_share,
        repeat_share=scenario.repeat_share,
        delay_share=scenario.delay_share,
        delay_s=scenario.delay_s,
    )
    testbed = Testbed(task, lab)
    testbed.enter(system(testbed))
    lab.trace.description["scenario"] = task.describe()
    _Play(task, testbed).begin()
    lab.run(hours=scenario.hours, seconds=SETTLE_S)
    testbed.end()
    lab.trace.description["wanted"] = testbed.wanted
    return Entry(task, name or _name(system), seed, testbed)


def _name(system: Any) -> str:
    while isinstance(system, partial):
        system = system.func
    return str(getattr(system, "name", None) or getattr(system, "__name__", None) or type(system).__name__)


class _Play:
    """Brings a task's items and looks in, one after the other."""

    def __init__(self, task: Task, testbed: Testbed) -> None:
        self._task, self._testbed, self._lab = task, testbed, testbed.lab
        self._published: dict[str, int] = {}

    def begin(self) -> None:
        """Do something at each moment; only the next one is in the kernel's heap."""
        scenario, world, testbed = self._task.scenario, self._lab.world, self._testbed
        length_us = round(scenario.hours * 3600 * US_PER_S)
        plan: list[tuple[Workload, str, list[str], Callable[[str], None]]] = [
            (scenario.items, "items", testbed.senders, self._publish)
        ]
        if not self._task.is_shown:
            plan.append((scenario.reads, "reads", testbed.phones, testbed.look))
        drawn = [
            (workload.moments(world.seed, stream, names, self._lab.start_us, length_us), names, does)
            for workload, stream, names, does in plan
        ]
        times_us = np.concatenate([moments.t_us for moments, _, _ in drawn])
        rows = np.concatenate([moments.device for moments, _, _ in drawn])
        kinds = np.repeat(np.arange(len(drawn)), [len(moments.t_us) for moments, _, _ in drawn])
        order = np.lexsort((rows, kinds, times_us))
        testbed.given.update(np.column_stack([times_us, rows, kinds])[order].astype("<i8").tobytes())

        def step(number: int) -> None:
            if number + 1 < len(order):
                world.ask_at(int(times_us[order[number + 1]]), step, number + 1)
            _, names, does = drawn[kinds[order[number]]]
            does(names[int(rows[order[number]])])

        if len(order):
            world.ask_at(int(times_us[order[0]]), step, 0)

    def _publish(self, sender: str) -> None:
        task, lab = self._task, self._lab
        number = self._published[sender] = self._published.get(sender, 0) + 1
        loc = lab.devices[sender].loc
        about: dict[str, Any] = {
            "who": sender,
            "rank": 0.0,
            **task.tells(lab.world.seed, sender, number, loc),
        }
        self._testbed.publish(
            Item(f"{sender} {number}", sender, about, task.scenario.size_bytes, task.scenario.expires_s)
        )
