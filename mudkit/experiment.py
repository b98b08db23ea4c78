"""Experiments: a scenario and a system and a seed make a run; runs on the same seeds make a comparison.

Two systems on one seed see the same devices, moves, outages, items and reads, so what differs between them
is the systems'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mudkit.errors import ParameterError
from mudkit.events import Network
from mudkit.lab import START, Lab
from mudkit.progress import bar
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.mobility import Mobility
from mudkit.sources.outages import Outages
from mudkit.sources.parameters import whole_number
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Poisson, WakingReads, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Run", "Scenario", "System", "compare", "run"]

_US_PER_S = 1_000_000


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


@dataclass(frozen=True)
class Scenario:
    """What happens, whatever the system.

    Parameters
    ----------
    devices : int
    hours : float
        Virtual time.
    link, outage, mobility, battery_j, every_s
        As in :meth:`mudkit.lab.Lab.fleet`.
    items : Workload
        When each device publishes an item.
    receivers : int
        How many others each item is for, drawn evenly.
    size_bytes : int
        Of an item.
    expires_s : float, optional
        How long after its creation an item is worth reading; None: for ever.
    reads : Workload
        When each device's user looks at what has come.
    queries : Workload, optional
        When each device's user asks for what is around her (a row of the trace's ``reads``); needs a
        mobility.
    box_km, window_s : float
        What a query asks for.
    loss_share, repeat_share, delay_share, delay_s : float
        Of all messages, see :meth:`mudkit.fleet.Faults.messages`.
    start : str
        As in :class:`mudkit.lab.Lab`.
    """

    devices: int = 20
    hours: float = 24.0
    link: str | LinkReplay = "lte"
    outage: float | Outages = 0.0
    mobility: str | Mobility | None = None
    battery_j: float | None = None
    every_s: float = 60.0
    items: Workload = Poisson(per_day=24)
    receivers: int = 1
    size_bytes: int = 500
    expires_s: float | None = None
    reads: Workload = WakingReads(per_day=8)
    queries: Workload | None = None
    box_km: float = 20.0
    window_s: float = 7200.0
    loss_share: float = 0.0
    repeat_share: float = 0.0
    delay_share: float = 0.0
    delay_s: float = 0.0
    start: str = START

    def __post_init__(self) -> None:
        whole_number("devices", self.devices, 1, 1_000_000)
        whole_number("receivers", self.receivers, 1, max(self.devices - 1, 1))
        whole_number("size_bytes", self.size_bytes, 0, 1 << 30)
        most = {"hours": 1e5, "expires_s": 1e9, "box_km": 1e5, "window_s": 1e9}
        for name, high in most.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float | np.integer | np.floating)
            is_left_out = name == "expires_s" and value is None
            if not is_left_out and not (is_number and 0 < value <= high):
                raise ParameterError(
                    f"The parameter {name} is not usable.", where=name, found=repr(value),
                    expected=f"a number over 0, at most {high:,.0f}",
                )  # fmt: skip
        for name in ("items", "reads", "queries"):
            value = getattr(self, name)
            is_left_out = name == "queries" and value is None
            if not is_left_out and (isinstance(value, type) or not isinstance(value, Workload)):
                raise ParameterError(
                    f"The parameter {name} is no workload.", where=name, found=repr(value),
                    expected="one such as Poisson(per_day=24) of mudkit.sources.workloads",
                )  # fmt: skip
        if self.queries is not None and self.mobility is None:
            raise ParameterError(
                "A query asks for what is around a device, and no place of these devices is known.",
                where="queries", found="mobility=None", expected="a mobility",
            )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """Give the parameters as a table: ``parameter, value``."""
        import pandas as pd

        rows = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return pd.DataFrame([(name, _told(value)) for name, value in rows], columns=["parameter", "value"])


def _told(value: Any) -> str:
    """Write a parameter, with everything that a process states of itself."""
    if not hasattr(value, "describe"):
        return str(value)
    return ", ".join(f"{name} {part}" for name, part in value.describe().items())


class Run:
    """One run, and what came of it.

    Parameters
    ----------
    scenario : Scenario
    system : str
        Its name.
    seed : int
    lab : Lab
        In which it happened, at its end.
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
            Of all devices: ``messages``, ``bytes``, ``radio_j``, ``wakeups``; of all items and receivers:
            ``delivered_share``, ``read_share``, and of those that it is known of ``latency_s`` and
            ``staleness_s`` (medians; NaN: of none).
        """
        bill, deliveries = self.bill, self.deliveries
        count = len(deliveries)
        return {
            "messages": float(bill["messages"].sum()),
            "bytes": float(bill["bytes"].sum()),
            "radio_j": float(bill["radio_mj"].sum() / 1000),
            "wakeups": float(bill["wakeups"].sum()),
            "delivered_share": float(deliveries["delivered"].notna().sum() / count) if count else math.nan,
            "read_share": float((deliveries["status"] == "read").sum() / count) if count else math.nan,
            "latency_s": float(deliveries["latency_s"].dropna().median()),
            "staleness_s": float(deliveries["staleness_s"].dropna().median()),
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
        :class:`mudkit.systems.store_and_forward.StoreAndForward`.
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
        A trace of moves or links does not cover the run.
    """
    lab = Lab(seed, start=scenario.start, messages=messages, held=held)
    lab.fleet(
        scenario.devices, mobility=scenario.mobility, link=scenario.link, outage=scenario.outage,
        every_s=scenario.every_s, battery_j=scenario.battery_j,
    )  # fmt: skip
    lab.faults.messages(
        loss_share=scenario.loss_share, repeat_share=scenario.repeat_share,
        delay_share=scenario.delay_share, delay_s=scenario.delay_s,
    )  # fmt: skip
    made = system(lab)
    _Play(scenario, lab, made).begin()
    lab.run(hours=scenario.hours)
    return Run(scenario, made.name, seed, lab)


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
        length_us = round(scenario.hours * 3600 * _US_PER_S)
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
                created["expired_us"] = now_us + round(scenario.expires_s * _US_PER_S)
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


@dataclass(frozen=True)
class Comparison:
    """Several systems on the same seeds.

    Parameters
    ----------
    runs : pandas.DataFrame
        One row per (system, seed), with the measures of each run.
    baseline : str
        The system that the others are compared with.
    """

    runs: pd.DataFrame
    baseline: str

    def differences(self, confidence: float = 0.95) -> pd.DataFrame:
        """Give what a system changes against the baseline, paired by seed.

        Parameters
        ----------
        confidence : float
            Of the intervals (Student's t over the seeds' differences); NaN with fewer than two seeds.

        Returns
        -------
        pandas.DataFrame
            ``system, measure, baseline, mean, difference, difference_low, difference_high, seeds``.

        Raises
        ------
        ParameterError
            The confidence is not between 0 and 1.
        """
        import pandas as pd

        given: Any = confidence
        if not isinstance(given, int | float | np.floating) or not 0 < given < 1:
            raise ParameterError(
                "This confidence is not usable.", where="confidence", found=repr(confidence),
                expected="between 0 and 1",
            )  # fmt: skip
        measures = [name for name in self.runs.columns if name not in ("system", "seed")]
        by_system = {name: table.set_index("seed")[measures] for name, table in self.runs.groupby("system")}
        base = by_system[self.baseline]
        rows = []
        for name in dict.fromkeys(self.runs["system"]):
            if name == self.baseline:
                continue
            for measure in measures:
                differs = (by_system[name][measure] - base[measure]).dropna().to_numpy()
                low, high = _interval(differs, confidence)
                mean = differs.mean() if len(differs) else math.nan
                rows.append(
                    (name, measure, base[measure].mean(), by_system[name][measure].mean(), mean, low, high,
                     len(differs))
                )  # fmt: skip
        columns = ["system", "measure", "baseline", "mean", "difference", "difference_low", "difference_high",
                   "seeds"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)


def compare(
    scenario: Scenario,
    systems: Mapping[str, Callable[[Network], System]],
    seeds: Iterable[int] = range(10),
    *,
    map: Callable[..., Iterable[dict[str, float]]] = map,  # noqa: A002 - the name of what it stands for
) -> Comparison:
    """Run systems on the same seeds.

    Parameters
    ----------
    scenario : Scenario
    systems : mapping of str to callable
        By name; the first is the baseline.
    seeds : iterable of int
    map : callable
        How the runs are spread: ``map``, that of a process pool, or one that spreads over Spark.

    Raises
    ------
    ParameterError
        There is no system, or no seed, or one is given twice: it would count as two.
    """
    import pandas as pd

    if not isinstance(systems, Mapping):
        raise ParameterError(
            "These are no systems.", where="systems", found=repr(systems),
            expected="what makes each, by name, such as {'relay': StoreAndForward}",
        )  # fmt: skip
    if not isinstance(seeds, Iterable):
        raise ParameterError(
            "These are no seeds.", where="seeds", found=repr(seeds), expected="several, such as range(10)"
        )
    numbers = list(seeds)
    if len(set(numbers)) < len(numbers):
        raise ParameterError(
            "A seed is given twice.", where="seeds", found=repr(numbers), expected="each once"
        )
    if not systems or not numbers:
        raise ParameterError(
            "There is nothing to compare.", where="systems, seeds",
            found=f"{len(systems)} systems, {len(numbers)} seeds", expected="one of each at least",
        )  # fmt: skip
    plan = [(scenario, make, name, seed) for name, make in systems.items() for seed in numbers]
    rows = []
    with bar(len(plan), "runs", "runs") as done:
        for row in map(_measured, plan):
            rows.append(row)
            done(len(rows))
    return Comparison(pd.DataFrame(rows), next(iter(systems)))


def _measured(what: tuple[Scenario, Callable[[Network], System], str, int]) -> dict[str, Any]:
    scenario, make, name, seed = what
    found = run(scenario, make, seed, messages=False, held=False)
    return {"system": name, "seed": seed, **found.measures()}


def _interval(values: Any, confidence: float) -> tuple[float, float]:
    if len(values) < 2:
        return math.nan, math.nan
    from scipy import stats

    mean, error = float(values.mean()), float(stats.sem(values))
    if error == 0.0:
        return mean, mean
    low, high = stats.t.interval(confidence, len(values) - 1, mean, error)
    return float(low), float(high)
