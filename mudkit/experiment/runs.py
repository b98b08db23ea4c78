"""Runs: one system on one task with one seed, and the measures of what happened."""

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
from mudkit.experiment.tasks import SETTLE_S, Item, Task
from mudkit.experiment.testbed import APP, Adapter, Testbed
from mudkit.fleet.device import BASE_MW
from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.scenario import Activity, build_lab, schedule
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "useful": Label("useful deliveries"),
        "useful_share": Label("useful, share of what was wanted", "%", 100.0),
        "unopened": Label("never opened"),
        "latency_p95_s": Label("time to arrive", "s, 95th percentile"),
        "server_events": Label("events on servers"),
        "kb_per_useful": Label("for each useful delivery", "kB"),
        "j_per_useful": Label("for each useful delivery", "J"),
    }
)

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
    def duration_s(self) -> float:
        """Length of the run in virtual time."""
        return 3600 * self.task.scenario.hours + SETTLE_S

    @cached_property
    def bill(self) -> pd.DataFrame:
        """One row per (system, device, direction): ``messages, bytes, radio_mj, wakeups``."""
        return self.lab.bill()

    @cached_property
    def deliveries(self) -> pd.DataFrame:
        """One row per (item, receiver): times, ``latency_s, staleness_s, status``.

        There is a row for each phone that wanted an item, and for each other one that received it.
        """
        deliveries = self.lab.deliveries()
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
        """Return the :data:`MEASURES` of the run; NaN without a value."""
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
    task: Task,
    system: Callable[[Testbed], Adapter],
    seed: int = 0,
    *,
    name: str | None = None,
    record_messages: bool = True,
    record_exposure: bool = True,
) -> Run:
    """Run a system on a task.

    Parameters
    ----------
    task : Task
    system : callable
        Returns an adapter for a testbed: one of :data:`mudkit.experiment.ADAPTERS`, or another class.
    seed : int
        Same task, system and seed: same run.
    name : str, optional
        Name of the system in results; by default that of the adapter, or of the callable.
    record_messages, record_exposure : bool
        Whether the lab records messages, and what each party held.

    Raises
    ------
    ParameterError
        The task, system or seed is not one, or a trace of moves or links does not cover the run; or the
        system reports an arrival that did not come over a link, or its machines share memory.

    Examples
    --------
    >>> from mudkit.experiment import WARD, StoreAndForward
    >>> run(WARD.over(devices=2, hours=0.1, outage=0.0), StoreAndForward, seed=1).measures()["useful_share"]
    1.0
    """
    check_task(task)
    check_system(system)
    scenario = task.scenario
    lab = build_lab(scenario, seed, record_messages=record_messages, record_exposure=record_exposure)
    lab.world.on_failure = raise_failure  # a failing machine of a reader's own is reported, not compared
    if task.feeds:
        lab.fleet(task.feeds, link="ideal", prefix="feed")
    testbed = Testbed(task, lab)
    adapter = system(testbed)
    testbed.attach(adapter)
    lab.trace.description["scenario"] = task.describe()
    activities = [Activity("items", scenario.items, testbed.senders, _Publishing(testbed).publish)]
    if not task.is_shown:
        activities.append(Activity("reads", scenario.reads, testbed.phones, adapter.on_look))
    testbed.given.update(schedule(lab, scenario.hours, activities).astype("<i8").tobytes())
    lab.run(hours=scenario.hours, seconds=SETTLE_S)
    getattr(adapter, "end", lambda: None)()
    lab.trace.description["wanted"] = testbed.wanted_count
    return Run(task, name or getattr(adapter, "name", None) or _name(system), seed, testbed)


def _name(system: Any) -> str:
    """Return the name of what makes an adapter, for results."""
    while isinstance(system, partial):
        system = system.func
    return str(getattr(system, "name", None) or getattr(system, "__name__", None) or type(system).__name__)


def check_task(given: Any) -> None:
    """Raise ParameterError unless the argument is a Task."""
    of_kind("task", given, Task, expected="a task, such as NEWS")


def check_system(given: Any) -> None:
    """Raise ParameterError unless the argument is callable, as what makes an adapter is."""
    if not callable(given):
        raise ParameterError(
            "Expected a callable that returns an adapter.",
            where="system",
            found=brief(given),
            expected="a class or function of the testbed, such as StoreAndForward or ADAPTERS['MUD']",
            remedy="pass the class itself, not its name or an instance",
        )


class _Publishing:
    """Items that a run publishes, numbered by sender."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._published: dict[str, int] = {}
        self._rows = {name: row for row, name in enumerate(testbed.phones)}

    def publish(self, sender: str) -> None:
        """Publish the next item of a sender."""
        task, lab = self._testbed.task, self._testbed.lab
        number = self._published[sender] = self._published.get(sender, 0) + 1
        about: dict[str, Any] = {"who": sender, "rank": 0.0}
        about |= task.metadata(lab.world.seed, sender, number, lab.devices[sender].loc)
        size_bytes, expires_s = task.scenario.size_bytes, task.scenario.expires_s
        if task.recording is not None:
            size_bytes, expires_s = task.recording.limits(self._rows[sender], number)
        self._testbed.publish(Item(f"{sender} {number}", sender, about, size_bytes, expires_s))


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
    return has_arrived, rows["delivered"] > rows["expired"]  # False where one is missing


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
