"""Runs: one system in one scenario or task with one seed, and the measures of what happened."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from mudkit.checks import check_arguments, of_kind
from mudkit.display import Displayed, View
from mudkit.errors import ParameterError, brief
from mudkit.experiment.tasks import SETTLE_S, Item, Scenario, Task
from mudkit.experiment.testbed import APP, Adapter, Testbed
from mudkit.fleet.device import BASE_MW
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Workload
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

BATTERY_J: Final = 18_648.0
"""Battery of the phone for which ``battery_h`` is stated: 1,400 mAh at 3.7 V, as in the papers' years."""

MEASURES: Final[dict[str, str]] = {
    "useful": "deliveries that were wanted and seen in time",
    "useful_share": "of all pairs of an item and a phone that wanted it",
    "late": "wanted, and on the phone only after it had expired",
    "stale": "wanted, and on the phone in time, but expired before it was seen",
    "unopened": "wanted, on the phone and not expired, but not seen by the end of the run",
    "lost": "wanted, and never on the phone",
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
"""Measures of a run of a task, and their meaning."""

FATES: Final = ("useful", "late", "stale", "unopened", "lost")
"""Fates of a wanted item on a phone; the counts add up to what was wanted."""


@check_arguments(types=False)
class Run(Displayed):
    """One run, and what happened in it.

    Parameters
    ----------
    task : Task
        For a run of a scenario, :meth:`Task.addressed <mudkit.experiment.Task.addressed>` of it.
    system, seed, testbed
        Name of the system, and what it ran with; ``lab`` is the lab at the end of the run.
    """

    def __init__(self, task: Task, system: str, seed: int, testbed: Testbed) -> None:
        self.task, self.system, self.seed, self.testbed = task, system, seed, testbed
        self.lab: Lab = testbed.lab
        self.trace = self.lab.trace

    def _view(self) -> View:
        facts = {"system": self.system, "task": self.task.name, "seed": str(self.seed)}
        shown = self.lab._view()
        return View("Run", facts | dict(shown.facts) | {"seed": str(self.seed)}, shown.tables[:1])

    @property
    def scenario(self) -> Scenario:
        """Scenario of the run."""
        return self.task.scenario

    @property
    def duration_s(self) -> float:
        """Length of the run in virtual time."""
        return 3600 * self.scenario.hours + (0 if self.task.is_addressed else SETTLE_S)

    @cached_property
    def bill(self) -> pd.DataFrame:
        """One row per (system, device, direction): ``messages, bytes, radio_mj, wakeups``."""
        return self.lab.bill()

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

    @cached_property
    def deliveries(self) -> pd.DataFrame:
        """One row per (item, receiver): times, ``latency_s, staleness_s, status``.

        Of a task there is a row for each phone that wanted an item, and for each other one that received it.
        """
        deliveries = self.lab.deliveries()
        if self.task.is_addressed:
            return deliveries
        return deliveries[deliveries["system"] == APP].reset_index(drop=True)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what every system was given: devices, moves, links, outages, items and looks."""
        digest = self.testbed.given.copy()
        for name in ("positions", "links", "incidents"):
            for piece in self.trace.pieces(name):
                given = piece if name != "incidents" else piece.filter(pc.is_null(piece["system"]))
                for batch in given.combine_chunks().to_batches():
                    digest.update(batch.serialize())
        return digest.hexdigest()

    def measures(self) -> dict[str, float]:
        """Return the measures of the run; NaN without a value.

        Of a task the :data:`MEASURES`. Of a scenario, over all devices: ``messages, bytes, radio_j, wakeups,
        j_per_read``; of all items and receivers the shares delivered and read before they expired
        (``delivered_share, read_share``), and expired (``expired_share``); of those delivered, and read, in
        time the medians ``latency_s`` and ``staleness_s``.
        """
        return self._scenario_measures() if self.task.is_addressed else self._task_measures()

    def _scenario_measures(self) -> dict[str, float]:
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

    def _task_measures(self) -> dict[str, float]:
        deliveries, bill, phones = self.deliveries, self.bill, self.testbed.phones
        latency_s = deliveries.loc[deliveries["status"] == "read", "latency_s"]
        hosts = self.lab.world.hosts.items()
        servers = [
            process for name, host in hosts if name not in self.lab.devices for process in host.processes
        ]
        measures = {
            **_delivery_measures(deliveries, self.testbed.wanted_count),
            "latency_p95_s": float(latency_s.quantile(0.95)),
            **_costs(bill, set(phones), self.duration_s),
            "server_events": float(sum(process.handled for process in servers)),
            "server_kb": sum(process.sent_bytes for process in servers) / 1000,
        }
        count = measures["useful"] or math.nan
        measures["kb_per_useful"] = (measures["up_kb"] + measures["down_kb"]) / count
        measures["j_per_useful"] = measures["radio_j"] / count
        return {name: measures[name] for name in MEASURES}


@check_arguments(types=False)
def run(
    plan: Scenario | Task,
    system: Callable[[Testbed], Adapter],
    seed: int = 0,
    *,
    name: str | None = None,
    record_messages: bool = True,
    record_exposure: bool = True,
) -> Run:
    """Run a system through a scenario or a task.

    Parameters
    ----------
    plan : Scenario or Task
    system : callable
        Returns an adapter for a testbed: one of :data:`mudkit.experiment.ADAPTERS`, or another class.
    seed : int
        Same plan, system and seed: same run.
    name : str, optional
        Name of the system in results; by default that of the adapter, or of the callable.
    record_messages, record_exposure : bool
        Whether the lab records messages, and what each party held.

    Raises
    ------
    ParameterError
        The plan, system or seed is not one, or a trace of moves or links does not cover the run; or the
        system reports an arrival that did not come over a link, or its machines share memory.

    Examples
    --------
    >>> from mudkit.experiment import Scenario, StoreAndForward
    >>> run(Scenario(devices=4, hours=1), StoreAndForward, seed=1).measures()["delivered_share"]
    1.0
    """
    check_plan(plan)
    check_system(system)
    task = plan if isinstance(plan, Task) else Task.addressed(plan)
    scenario = task.scenario
    lab = Lab(seed, start=scenario.start, record_messages=record_messages, record_exposure=record_exposure)
    if not task.is_addressed:
        lab.world.on_failure = raise_failure  # a failing machine of a reader's own is reported, not compared
    lab.fleet(
        scenario.devices,
        mobility=scenario.mobility,
        link=scenario.link,
        outage=scenario.outage,
        every_s=scenario.every_s,
        battery_j=scenario.battery_j,
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
    adapter = system(testbed)
    if task.is_addressed and not getattr(adapter, "name", None):
        raise ParameterError(
            "This system cannot run a scenario.",
            where="system",
            found=f"{_name(system)}, whose adapter has no name for items that name their receivers",
            expected="an adapter whose machines record deliveries under its name, such as StoreAndForward",
            remedy="run it on a task, such as NEWS",
        )
    testbed.attach(adapter)
    lab.trace.description["scenario"] = task.describe()
    _Play(task, testbed, adapter).begin()
    lab.run(hours=scenario.hours, seconds=0 if task.is_addressed else SETTLE_S)
    getattr(adapter, "end", lambda: None)()
    if not task.is_addressed:
        lab.trace.description["wanted"] = testbed.wanted_count
    return Run(task, name or getattr(adapter, "name", None) or _name(system), seed, testbed)


def _name(system: Any) -> str:
    while isinstance(system, partial):
        system = system.func
    return str(getattr(system, "name", None) or getattr(system, "__name__", None) or type(system).__name__)


def check_plan(given: Any) -> None:
    """Raise a ParameterError unless it is a scenario or a task."""
    expected = "a scenario, such as Scenario(devices=20, hours=24), or a task, such as NEWS"
    of_kind("plan", given, Scenario, Task, expected=expected)


def check_system(given: Any) -> None:
    """Raise a ParameterError unless an adapter can be made by it."""
    if not callable(given):
        raise ParameterError(
            "Expected a callable that returns an adapter.",
            where="system",
            found=brief(given),
            expected="a class or function of the testbed, such as StoreAndForward or ADAPTERS['MUD']",
            remedy="pass the class itself, not its name or an instance",
        )


class _Play:
    """Items, reads and queries of a task, in the order of time."""

    def __init__(self, task: Task, testbed: Testbed, adapter: Adapter) -> None:
        self._task, self._testbed, self._adapter, self._lab = task, testbed, adapter, testbed.lab
        self._published: dict[str, int] = {}
        self._rows = {name: row for row, name in enumerate(testbed.phones)}
        self._receivers = Stream(self._lab.world.seed, "receivers")

    def begin(self) -> None:
        """Schedule all moments of the workloads; only the next one is in the kernel's heap.

        Within one moment the order is: positions, messages, timers, then these, by kind and device.
        """
        scenario, world, testbed = self._task.scenario, self._lab.world, self._testbed
        length_us = round(scenario.hours * 3600 * US_PER_S)
        plan: list[tuple[Workload, str, list[str], Callable[[str], None]]] = [
            (scenario.items, "items", testbed.senders, self._publish)
        ]
        if not self._task.is_shown:
            plan.append((scenario.reads, "reads", testbed.phones, self._adapter.on_look))
        if scenario.queries is not None:
            plan.append((scenario.queries, "queries", testbed.phones, self._query))
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
        about: dict[str, Any] = {"who": sender, "rank": 0.0}
        if task.is_addressed:
            about["to"] = tuple(self._draw_receivers(sender, number))
        else:
            about |= task.metadata(lab.world.seed, sender, number, lab.devices[sender].loc)
        size_bytes, expires_s = task.scenario.size_bytes, task.scenario.expires_s
        if task.recording is not None:
            size_bytes, expires_s = task.recording.limits(self._rows[sender], number)
        self._testbed.publish(Item(f"{sender} {number}", sender, about, size_bytes, expires_s))

    def _draw_receivers(self, sender: str, number: int) -> list[str]:
        """Draw distinct devices other than the sender; a single device sends to itself."""
        names, receivers = self._testbed.phones, self._task.scenario.receivers
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

    def _query(self, phone: str) -> None:
        scenario = self._task.scenario
        self._lab.trace.read(self._lab.devices[phone], scenario.box_km, scenario.window_s)


DEVICE_MEASURES: Final = (
    "useful", "useful_share", "late", "stale", "unopened", "lost", "wasted", "latency_s", "age_s", "up_kb",
    "down_kb", "messages",
    "wakeups", "radio_j", "battery_h", "kb_per_useful", "j_per_useful",
)  # fmt: skip
"""Measures of a single device."""


@check_arguments(types=False)
def by_device(run: Run) -> pd.DataFrame:
    """Return the measures of each device, from the bill and the table of deliveries.

    Counts add up to those of :meth:`Run.measures`. Deliveries to feeds, and their radios, do not count.

    Parameters
    ----------
    run : Run

    Returns
    -------
    pandas.DataFrame
        One row per device: ``device, is_phone, wanted_count`` and :data:`DEVICE_MEASURES`, of
        :data:`~mudkit.experiment.MEASURES`; NaN where there is nothing to divide by.
    """
    import pandas as pd

    rows, bill, testbed = run.deliveries, run.bill, run.testbed
    phones = set(testbed.phones)
    got = {str(name): table for name, table in rows.groupby("receiver")}
    paid = {str(name): table for name, table in bill.groupby("device")}
    of_devices = [
        {
            "device": device,
            "is_phone": device in phones,
            "wanted_count": testbed.count_wanted(device),
            **_delivery_measures(got.get(device, rows[:0]), testbed.count_wanted(device)),
            **_costs(paid.get(device, bill[:0]), phones & {device}, run.duration_s),
        }
        for device in run.lab.devices
    ]
    table = pd.DataFrame(of_devices)
    useful = table["useful"].where(table["useful"] > 0)
    table["kb_per_useful"] = (table["up_kb"] + table["down_kb"]) / useful
    table["j_per_useful"] = table["radio_j"] / useful
    return table[["device", "is_phone", "wanted_count", *DEVICE_MEASURES]]


def fates(run: Run) -> pd.DataFrame:
    """Return what became of each delivery of a task: ``device, item, fate, latency_s``.

    The fate is one of :data:`FATES`, or ``unwanted`` of an item that came to a phone that did not want it.
    """
    import pandas as pd

    rows = run.deliveries
    is_wanted = [
        run.testbed.is_for(item, phone) for item, phone in zip(rows["item"], rows["receiver"], strict=True)
    ]
    has_arrived, is_late = _arrived_and_late(rows)
    fate = np.select(
        [
            ~np.array(is_wanted, dtype=bool),
            rows["status"] == "read",
            ~has_arrived,
            is_late,
            rows["status"] == "expired",
        ],
        ["unwanted", "useful", "lost", "late", "stale"],
        "unopened",
    )
    return pd.DataFrame(
        {"device": rows["receiver"], "item": rows["item"], "fate": fate, "latency_s": rows["latency_s"]}
    )


def phone_bills(run: Run) -> pd.DataFrame:
    """Return what each device sent and received: ``device, up_kb, down_kb, radio_j``; of feeds no radio."""
    bill, phones = run.bill, set(run.testbed.phones)
    kb = bill.pivot_table(index="device", columns="direction", values="bytes", aggfunc="sum") / 1000
    radio_j = bill.loc[bill["device"].isin(phones)].groupby("device")["radio_mj"].sum() / 1000
    table = kb.reindex(index=list(run.lab.devices), columns=["up", "down"]).assign(radio_j=radio_j)
    return (
        table.fillna(0.0)
        .rename(columns={"up": "up_kb", "down": "down_kb"})
        .rename_axis("device")
        .reset_index()
    )


def _arrived_and_late(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return which deliveries have arrived, and which of them after they had expired."""
    has_arrived = rows["delivered"].notna()
    return has_arrived, has_arrived & rows["expired"].notna() & (rows["delivered"] > rows["expired"])


def _delivery_measures(rows: pd.DataFrame, wanted_count: int) -> dict[str, float]:
    """Return the measures of deliveries; the counts of :data:`FATES` add up to all wanted items."""
    read = rows["status"] == "read"
    has_arrived, is_late = _arrived_and_late(rows)
    counts = {
        "useful": int(read.sum()),
        "late": int(is_late.sum()),
        "stale": int((has_arrived & ~is_late & (rows["status"] == "expired")).sum()),
        "lost": int((~has_arrived).sum()),
    }
    # Rows of phones that did not want the item look like unopened ones.
    counts["unopened"] = wanted_count - sum(counts.values())
    return {
        "useful": float(counts.pop("useful")),
        "useful_share": int(read.sum()) / wanted_count if wanted_count else math.nan,
        **{name: float(counts[name]) for name in FATES[1:]},
        "wasted": float((has_arrived & ~read).sum()),
        "latency_s": float(rows.loc[read, "latency_s"].median()),
        "age_s": float(rows.loc[read, "staleness_s"].median()),
    }


def _costs(bill: pd.DataFrame, phones: set[str], seconds: float) -> dict[str, float]:
    """Return the measures of a bill; radios count if they are those of phones."""
    of_phones = bill[bill["device"].isin(phones)]
    kb = {way: float(bill.loc[bill["direction"] == way, "bytes"].sum() / 1000) for way in ("up", "down")}
    radio_j = float(of_phones["radio_mj"].sum() / 1000)
    watts = radio_j / seconds / len(phones) + BASE_MW / 1000 if phones else math.nan
    return {
        "up_kb": kb["up"],
        "down_kb": kb["down"],
        "messages": float(bill["messages"].sum()),
        "wakeups": float(of_phones["wakeups"].sum()),
        "radio_j": radio_j,
        "battery_h": BATTERY_J / watts / 3600,
    }
