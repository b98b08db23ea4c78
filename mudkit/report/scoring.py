"""The report scoreboard: which system to use for which task, what becomes of what was wanted, and why."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import intervals, words
from mudkit.display import MAX_CELL
from mudkit.experiment import (
    ADAPTERS,
    FATES,
    LABELS,
    MEASURES,
    TASKS,
    UNSUPPORTED,
    Scoreboard,
    Task,
    check_orders,
    commutativity,
    pareto_front,
    scoreboard,
)
from mudkit.experiment.privacy import OTHERS, PHONE, RELAY, SERVERS
from mudkit.processes import spread_out
from mudkit.report.page import Answer, FirstScreen

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = [
    "BEST",
    "FATE_LABELS",
    "KNOWN_LABELS",
    "MEASURE_LABELS",
    "ScoreStudy",
    "measure_meanings",
    "order_answer",
    "order_table",
    "study_scores",
    "try_orders",
]

Cost = Literal["j_per_useful", "kb_per_useful"]

_TOLERANCE: Final = 0.02
"""A system may bring so much less in time than the best one, as a share of what was wanted, and be chosen."""
_RESAMPLES: Final = 1000
_CLOSE: Final = 0.8
_FEW_WANTED: Final = 200
_COSTS: Final[Mapping[Cost, tuple[str, str, tuple[str, ...]]]] = {
    "j_per_useful": ("radio energy", "J", ("radio_j",)),
    "kb_per_useful": ("data", "kB", ("up_kb", "down_kb")),
}
_SHOWN: Final = ("useful_share", "latency_s", "wasted", "kb_per_useful", "j_per_useful", "server_kb")

MEASURE_LABELS: Final = {
    "useful_share": "in time, % of wanted",
    "latency_s": "latency, median, s",
    "wasted": "of no use, on phones",
    "kb_per_useful": "data a useful delivery, kB",
    "j_per_useful": "radio a useful delivery, J",
    "server_kb": "sent by servers, kB",
}
"""Headings of the measures on screen."""
BEST: Final[dict[str, Literal["low", "high"]]] = {
    name: "high" if name == "useful_share" else "low" for name in _SHOWN
}
FATE_LABELS: Final = {
    "useful": "in time",
    "late": "late",
    "stale": "stale",
    "unopened": "never opened",
    "lost": "lost",
}
"""Names of the parts of what was wanted."""
KNOWN_LABELS: Final = {
    "items_read": "items that servers read",
    "items_not_for_it": "items of others on a phone",
    "pairs": "pairs that servers know",
    "places_share": "phones whose place servers know, %",
    "interests_share": "phones whose interests servers know, %",
}


@dataclass(frozen=True)
class ScoreStudy:
    """Systems on the same tasks, and the recommended one of each by deliveries in time and ``cost``."""

    board: Scoreboard
    given: Sequence[Task]
    cost: Cost
    confidence: float

    @cached_property
    def uses(self) -> pd.DataFrame:
        """The recommended system of each task, its share in time and its cost; none if nothing was delivered.

        ``certain_share`` is the share of resamples of the seeds that choose it (NaN with one seed);
        ``runner_up`` is chosen most often otherwise.
        """
        import pandas as pd

        return pd.DataFrame([self._use(task) for task in self.board.tasks])

    def _use(self, task: str) -> dict[str, object]:
        useful, wanted_count, paid = self._sums(task)
        chosen = _choice(useful.sum(axis=1), wanted_count.sum(axis=1), paid.sum(axis=1))
        base = float(paid[0].sum() / useful[0].sum()) if useful[0].sum() else math.nan
        if chosen is None:
            return {"task": task, "system": "", "baseline_cost": base, "runner_up": ""} | dict.fromkeys(
                ["useful_share", "cost", "certain_share"], math.nan
            )
        share = intervals.ratio(useful[chosen], wanted_count[chosen], self.confidence)
        cost = intervals.ratio(paid[chosen], useful[chosen], self.confidence)
        certain, other = _certainty(useful, wanted_count, paid, chosen)
        return {
            "task": task,
            "system": self.board.systems[chosen],
            "useful_share": share.value,
            "useful_share_low": share.low,
            "useful_share_high": share.high,
            "cost": cost.value,
            "cost_low": cost.low,
            "cost_high": cost.high,
            "baseline_cost": base,
            "certain_share": certain,
            "runner_up": "" if other is None else self.board.systems[other],
        }

    def _sums(self, task: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return useful deliveries, wanted ones, and the cost of all, by system and seed."""
        runs = self.board.runs[self.board.runs["task"] == task]
        paid = runs.assign(paid=runs[list(_COSTS[self.cost][2])].sum(axis=1))

        def grid(name: str) -> NDArray[np.float64]:
            pivot = paid.pivot(index="system", columns="seed", values=name).loc[self.board.systems]
            return pivot.to_numpy(dtype=np.float64)

        return grid("useful"), grid("wanted_count"), grid("paid")

    @cached_property
    def fates(self) -> pd.DataFrame:
        """Parts of what was wanted by task and system: ``wanted_count``, and a share of each."""
        runs = self.board.runs
        sums = runs.groupby(["task", "system"], sort=False)[["wanted_count", *FATES]].sum().reset_index()
        for name in FATES:
            sums[name] = sums[name] / sums["wanted_count"].where(sums["wanted_count"] > 0)
        return sums

    @cached_property
    def _chosen(self) -> pd.DataFrame:
        """The rows of :attr:`fates` of the recommended systems."""
        return self.fates.merge(self.uses[["task", "system"]], on=["task", "system"])

    def first_screen(self) -> FirstScreen:
        """Return what was compared, three figures, the recommendation, what it rests on, and warnings."""
        runs = self.board.runs
        wanted_count = int(runs.drop_duplicates(["task", "seed"])["wanted_count"].sum())
        phones = sorted({task.scenario.devices for task in self.given})
        read = " · ".join(
            [
                words.count(len(self.board.tasks), "task"),
                words.count(len(self.board.systems), "system"),
                words.count(runs["seed"].nunique(), "seed"),
                words.count(len(runs), "run"),
                f"{words.listing(map(str, phones))} phones",
                f"{words.count(wanted_count, 'wanted delivery', 'wanted deliveries')} in each system's runs",
                "the same devices, moves, links, outages and items for all",
            ]
        )
        return FirstScreen(
            read, self._tiles(), self._headline(), self._reason(), self._assumption(), self._warnings()
        )

    def _tiles(self) -> list[tuple[str, str]]:
        named, unit, parts = _COSTS[self.cost]
        chosen = self._chosen
        wanted_count = chosen["wanted_count"].sum()
        counts = {name: float((chosen[name] * chosen["wanted_count"]).sum()) for name in FATES}
        in_time = counts["useful"] / wanted_count if wanted_count else math.nan
        missed = {name: counts[name] for name in FATES[1:] if counts[name]}
        paid = self.board.runs.assign(paid=self.board.runs[list(parts)].sum(axis=1))
        used = paid.merge(self.uses[["task", "system"]], on=["task", "system"])
        base = paid[(paid["system"] == self.board.baseline) & paid["task"].isin(used["task"])]
        costs = [
            float(rows["paid"].sum() / rows["useful"].sum()) if rows["useful"].sum() else math.nan
            for rows in (used, base)
        ]
        most = max(missed, key=lambda name: missed[name], default="")
        return [
            (words.percent(in_time), "of what was wanted is in time with the systems recommended here"),
            (
                f"{words.number(costs[0])} {unit}",
                f"of {named} for each delivery in time; {words.number(costs[1])} {unit} with "
                f"{_named(self.board.baseline)} in every task",
            ),
            (
                words.percent(counts[most] / wanted_count) if most else "nothing",
                f"of what was wanted is {FATE_LABELS[most]}, the most common of the other ends"
                if most
                else "that was wanted is missed",
            ),
        ]

    def _headline(self) -> str:
        uses = self.uses[self.uses["system"] != ""]
        if uses.empty:
            return "No system can be recommended: nothing that was wanted was delivered."
        names = [name for name in self.board.systems if name in set(uses["system"])]
        if len(names) == 1:
            tasks = list(uses["task"])
            which = _all(tasks) if len(tasks) > 1 else tasks[0]
            return f"Use {_named(names[0])} for {which}: {self._brought()}."
        by_count = sorted(names, key=lambda name: -int((uses["system"] == name).sum()))
        parts = [
            f"{_named(name)} for {_and(list(uses.loc[uses['system'] == name, 'task']))}" for name in by_count
        ]
        return f"Use {', and '.join(parts)}: {self._brought()}."

    def _brought(self) -> str:
        """Return what the recommended systems bring in time, and for how much."""
        (in_time, _), (cost, _), _ = self._tiles()
        return f"{in_time} is in time, for {cost} each"

    def _reason(self) -> str:
        uses = self.uses[self.uses["system"] != ""]
        if uses.empty:
            return "Take longer tasks (`length`) or more phones (`devices`)."
        text = (
            f"Among systems that bring at most {100 * _TOLERANCE:.0f} points less in time than the best, "
            f"{'it takes' if uses['system'].nunique() == 1 else 'each takes'} the least "
            f"{_COSTS[self.cost][0]} for each delivery in time."
        )
        certain = uses["certain_share"]
        if certain.isna().any():
            return f"{text} One seed says nothing about how certain that is."
        low, high = certain.min(), certain.max()
        share = words.percent(low) if low == high else f"{words.percent(low)} to {words.percent(high)}"
        return f"{text} The choice is the same in {share} of {_RESAMPLES:,} resamples of the seeds."

    def _assumption(self) -> str:
        phones = max(task.scenario.devices for task in self.given)
        return (
            f"It depends on the size of the fleet, here {phones} phones (`devices`): what goes to every "
            f"phone costs more with each. What counts is {_COSTS[self.cost][0]} (`cost`)."
        )

    def _warnings(self) -> list[str]:
        notes = []
        runs, uses = self.board.runs, self.uses
        seeds = runs["seed"].nunique()
        if seeds < intervals.MIN_REPETITIONS:
            notes.append(
                f"With {words.count(seeds, 'seed')} the ends of intervals are the range of the seeds."
            )
        wanted_count = (
            runs.drop_duplicates(["task", "seed"]).groupby("task", sort=False)["wanted_count"].sum()
        )
        for task, count in wanted_count.items():
            if 0 < count < _FEW_WANTED:
                deliveries = words.count(int(count), "delivery", "deliveries")
                notes.append(f"{_begun(task)}: only {deliveries} wanted in all seeds: shares are coarse.")
            elif not count:
                notes.append(f"{_begun(task)}: nothing was wanted, so no system is recommended.")
        notes += [
            f"{_begun(row['task'])}: the choice is close; other seeds may choose {_named(row['runner_up'])}."
            for row in uses.to_dict("records")
            if row["certain_share"] < _CLOSE and row["runner_up"]
        ]
        return notes

    def use_answer(self) -> Answer:
        """Return the heading of the table of recommended systems."""
        uses = self.uses[self.uses["system"] != ""]
        counts = uses["system"].value_counts()
        tasks = words.count(len(self.uses), "task")
        fits = [f"{_named(str(name))} fits {count} of {tasks}" for name, count in counts.items()]
        return Answer(
            "; ".join(fits) or "No system fits",
            " ".join(self._sentence(row) for row in uses.to_dict("records")),
        )

    def _sentence(self, row: Mapping[Hashable, Any]) -> str:
        """Return which use a system fits, in a sentence."""
        share, most = (
            words.percent(value)
            for value in (row["useful_share"], self.board.table(row["task"])["useful_share"].max())
        )
        best = f"; the most with any system is {most}" if most != share else ""
        return (
            f"{_named(row['system'])} fits {row['task']}: {share} is in time "
            f"for {words.number(row['cost'])} {_COSTS[self.cost][1]} each{best}."
        )

    def use_table(self) -> pd.DataFrame:
        """Return what is shown of :attr:`uses`."""
        unit = _COSTS[self.cost][1].lower()
        cost = f"cost_{unit}"
        renamed = {f"cost{end}": f"{cost}{end}" for end in ("", "_low", "_high")}
        table = self.uses.rename(columns=renamed | {"baseline_cost": f"baseline_{unit}"})
        names = ["task", "system", "useful_share", cost, f"baseline_{unit}", "certain_share"]
        names += [f"{name}{end}" for name in ("useful_share", cost) for end in ("_low", "_high")]
        table["system"] = table["system"].replace("", words.NO_VALUE)
        return table[[name for name in names if name in table.columns]]

    def use_labels(self) -> dict[str, str]:
        """Return the headings of :meth:`use_table`."""
        unit = _COSTS[self.cost][1]
        return {
            "system": "use",
            "useful_share": "in time, % of wanted",
            f"cost_{unit.lower()}": f"{unit} for each in time",
            f"baseline_{unit.lower()}": f"{unit} with {_named(self.board.baseline)}",
            "certain_share": "same choice, % of resamples",
        }

    def points(self, task: str) -> pd.DataFrame:
        """Return the systems of a task by cost and ``in_time_percent``; ``is_best``: no other beats it."""
        table = pareto_front(self.board.table(task).reset_index(), self.cost, "useful_share")
        return table.assign(in_time_percent=100 * table["useful_share"])

    @property
    def axes(self) -> tuple[str, str]:
        """Titles of the axes of :meth:`points`."""
        named, unit, _ = _COSTS[self.cost]
        return f"{named} for each delivery in time, {unit}", "in time, % of what was wanted"

    def task_answer(self, task: str) -> Answer:
        """Return the heading of a task."""
        table = self.points(task)
        best = [str(name) for name in table.loc[table["is_best"], "system"]]
        use = self.uses[self.uses["task"] == task].iloc[0]
        question = next(entry.question for entry in self.given if entry.name == task)
        if not use["system"]:
            return Answer(f"{_begun(task)}: nothing was delivered that was wanted", question)
        beaten = [name for name in self.board.systems if name not in best]
        text = (
            f"{question} Beaten by another system: {_and([_named(name) for name in beaten])}."
            if beaten
            else question
        )
        brought = f"{words.percent(use['useful_share'])} in time"
        paid = f"{words.number(use['cost'])} {_COSTS[self.cost][1]} each"
        return Answer(f"{_begun(task)}: {_named(use['system'])} brings {brought} for {paid}", text)

    def measures(self, task: str) -> pd.DataFrame:
        """Return the measures of a task that are on screen, a row a system, with intervals."""
        long = self.board.measures(task, self.confidence)
        table = long[["system"]].drop_duplicates().reset_index(drop=True)
        for name in _SHOWN:
            rows = long[long["measure"] == name].set_index("system").loc[table["system"]]
            for end, column in (("", "mean"), ("_low", "low"), ("_high", "high")):
                table[f"{name}{end}"] = rows[column].to_numpy()
        return table

    def fates_answer(self) -> Answer:
        """Return what becomes of what was wanted with the recommended systems, as a heading."""
        chosen = self._chosen
        if chosen.empty:
            return Answer("Nothing was delivered in time")
        wanted_count = chosen["wanted_count"].sum()
        counts = {name: float((chosen[name] * chosen["wanted_count"]).sum()) / wanted_count for name in FATES}
        missed = [
            f"{words.percent(counts[name])} {FATE_LABELS[name]}" for name in FATES[1:] if counts[name] > 0
        ]
        title = f"With the systems above {words.percent(counts['useful'])} is in time"
        return Answer(
            f"{title}; {_and(missed)}" if missed else title,
            "Late: on the phone only after it had expired. Stale: in time on the phone, but not seen "
            "before it expired. Never opened: on the phone, and not seen by the end of the run. Lost: "
            "never on the phone. The five parts add up to what was wanted.",
        )

    def known(self) -> pd.DataFrame:
        """Return what servers and phones know with each system: sums over tasks of the first seed."""
        table = self.privacy()
        grouped = table.groupby("system", sort=False)
        sums = grouped[["items_read", "items_not_for_it", "pairs"]].sum()
        return sums.join(grouped[["places_share", "interests_share"]].max()).reset_index()

    def privacy(self) -> pd.DataFrame:
        """Return what parties know, a row a task and system; places and interests as shares of the phones."""
        import pandas as pd

        rows = []
        for task in self.board.tasks:
            for system in self.board.systems:
                known, disclosed = (
                    entry[(entry["task"] == task) & (entry["system"] == system)].set_index("party")
                    for entry in (self.board.privacy, self.board.disclosures)
                )
                rows.append(
                    {
                        "task": task,
                        "system": system,
                        "items_read": known.loc[SERVERS, "items_read"],
                        "items_read_by_relay": known["items_read"].get(RELAY, math.nan),
                        "items_not_for_it": known.loc[PHONE, "items_not_for_it"],
                        "pairs": known.loc[SERVERS, "pairs"],
                        "places_share": disclosed.loc[SERVERS, "places"],
                        "interests_share": disclosed.loc[SERVERS, "interests"],
                        "places_by_others_share": disclosed.loc[OTHERS, "places"],
                        "interests_by_others_share": disclosed.loc[OTHERS, "interests"],
                    }
                )
        return pd.DataFrame(rows)

    def known_answer(self) -> Answer:
        """Return which systems keep items from servers, as a heading."""
        table = self.known()
        blind = [_named(str(name)) for name in table.loc[table["items_read"] == 0, "system"]]
        if not blind:
            title = "Every system lets servers read items"
        elif len(blind) == len(table):
            title = "No server reads an item"
        else:
            title = f"Only {_and(blind)} {'keeps' if len(blind) == 1 else 'keep'} items from servers"
        return Answer(
            title,
            "Looked up in every byte that servers and phones held in the runs of the first seed; what is "
            "only packed counts as read.",
        )

    def task_table(self) -> pd.DataFrame:
        """Return the tasks, a row each."""
        import pandas as pd

        shown = ["predicate", "devices", "feeds", "hours", "items", "size", "link", "outage", "seen"]
        table = pd.DataFrame([{"task": task.name, **task.describe()} for task in self.given])
        return table[["task", *(name for name in shown if name in table.columns)]]

    def all_measures(self) -> pd.DataFrame:
        """Return the measures of all tasks, as :meth:`Scoreboard.measures` does, with ``task``."""
        import pandas as pd

        tables = [self.board.measures(task, self.confidence).assign(task=task) for task in self.board.tasks]
        table = pd.concat(tables, ignore_index=True)
        return table[["task", *(name for name in table.columns if name != "task")]]

    def differences(self) -> pd.DataFrame:
        """Return the differences from the first system, paired by seed, of all tasks."""
        import pandas as pd

        tables = [
            self.board.differences(task, self.confidence).assign(task=task) for task in self.board.tasks
        ]
        table = pd.concat(tables, ignore_index=True)
        return table[["task", *(name for name in table.columns if name != "task")]]

    def clear_differences(self) -> pd.DataFrame:
        """Return the differences of the measures on screen whose interval does not hold 0."""
        table = self.differences()
        is_clear = (table["difference_low"] > 0) | (table["difference_high"] < 0)
        shown = table[is_clear & table["measure"].isin(_SHOWN)].reset_index(drop=True)
        numbers = ["baseline", "mean", "difference", "difference_low", "difference_high"]
        shown.loc[shown["measure"] == "useful_share", numbers] *= 100  # % and points
        names = [MEASURE_LABELS[name] for name in shown["measure"]]
        return shown.assign(measure=names).drop(columns="seeds")

    def cannot(self) -> pd.DataFrame:
        """Return what the systems cannot express of the tasks: a row for each that cannot."""
        import pandas as pd

        rows = [
            (task, system, UNSUPPORTED[system][task])
            for task in self.board.tasks
            for system in self.board.systems
            if task in UNSUPPORTED.get(system, {})
        ]
        return pd.DataFrame(rows, columns=["task", "system", "what it cannot express"])


def study_scores(
    tasks: Sequence[str],
    systems: Sequence[str],
    *,
    devices: int,
    length: float,
    seeds: range,
    cost: Cost,
    confidence: float,
) -> ScoreStudy:
    """Run systems on tasks, on two processes; the first system is the baseline.

    ``length`` is a multiple of each task's own hours.
    """
    given = [
        TASKS[name].over(devices=devices, hours=round(length * TASKS[name].scenario.hours, 4))
        for name in tasks
    ]
    with spread_out(part=1) as spread:
        board = scoreboard(given, {name: ADAPTERS[name] for name in systems}, seeds, map=spread)
    return ScoreStudy(board, given, cost, confidence)


def try_orders(scenarios: int, seed: int) -> pd.DataFrame:
    """Check each order of two systems with :func:`mudkit.experiment.check_orders`; none with 0 scenarios."""
    if not scenarios:
        return check_orders([])
    with spread_out(part=1) as spread:
        return check_orders(scenarios=scenarios, seed=seed, map=spread)


def order_table(tried: pd.DataFrame) -> pd.DataFrame:
    """Return for each pair of systems which orders keep most promises, and whether the order matters."""
    rows = commutativity(tried)
    is_same = rows["same_shown"] & rows["same_kept"]
    rows["best"] = [_shortened(best) for best in rows["best"]]
    rows["order"] = is_same.map({True: "makes no difference", False: "matters"})
    labels = {
        "composition": "put together",
        "order": "order",
        "best": "keeps most promises",
        "never": "no order keeps",
    }
    return rows[list(labels)].rename(columns=labels)


def _shortened(best: str) -> str:
    """Return the orders that keep most promises, or the first and how many more, in a cell's length."""
    names, _, kept = best.rpartition(" (")
    first, *more = names.split("; ")
    return best if len(best) < MAX_CELL else f"{first} and {len(more)} more ({kept}"


def order_answer(table: pd.DataFrame, scenarios: int) -> Answer:
    """Return in how many pairs of :func:`order_table` the order matters, as a heading."""
    matters = int((table["order"] == "matters").sum())
    return Answer(
        f"The order matters in {matters} of {words.count(len(table), 'pair')} of systems",
        f"What one lets through the other takes in, tried on {words.count(scenarios, 'random scenario')} in "
        "each order that can be built. An order that breaks a promise has a counterexample in "
        "`data/orders.parquet`.",
    )


def measure_meanings() -> pd.DataFrame:
    """Return what the measures mean, a row each."""
    import pandas as pd

    return pd.DataFrame([{"measure": LABELS[name], "meaning": text} for name, text in MEASURES.items()])


def _choice(
    useful: NDArray[np.float64], wanted_count: NDArray[np.float64], paid: NDArray[np.float64]
) -> int | None:
    """Return the system with the least cost among those that bring nearly as much in time as the best."""
    if not (useful > 0).any():
        return None
    shares = np.divide(useful, wanted_count, out=np.zeros_like(useful), where=wanted_count > 0)
    costs = np.divide(paid, useful, out=np.full_like(paid, np.inf), where=useful > 0)
    return int(np.where(shares >= shares.max() - _TOLERANCE - 1e-12, costs, np.inf).argmin())


def _certainty(
    useful: NDArray[np.float64], wanted_count: NDArray[np.float64], paid: NDArray[np.float64], chosen: int
) -> tuple[float, int | None]:
    """Return the share of resamples of the seeds with the same choice, and the most common other one."""
    seeds = useful.shape[1]
    if seeds == 1:
        return math.nan, None
    drawn = np.random.default_rng(0).integers(0, seeds, (_RESAMPLES, seeds))
    sums = ([part[:, entry].sum(axis=1) for part in (useful, wanted_count, paid)] for entry in drawn)
    choices = [_choice(*entry) for entry in sums]
    others = [entry for entry in choices if entry is not None and entry != chosen]
    other = max(set(others), key=others.count) if others else None
    return choices.count(chosen) / _RESAMPLES, other


def _named(system: str) -> str:
    """Return the name of a system; one that reads like a phrase stands in quotes."""
    return f"“{system}”" if system.islower() else system


def _begun(task: object) -> str:
    """Return the name of a task as a sentence begins."""
    name = str(task)
    return name[:1].upper() + name[1:]


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _all(tasks: Sequence[str]) -> str:
    return "both tasks" if len(tasks) == 2 else f"all {len(tasks)} tasks"
