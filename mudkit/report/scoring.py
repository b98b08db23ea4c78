"""The report scoreboard: which system to use for which task, what becomes of what was wanted, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import intervals, words
from mudkit.experiment import (
    ADAPTERS,
    FATES,
    LABELS,
    MEASURES,
    TASKS,
    TRAFFIC,
    UNSUPPORTED,
    Scoreboard,
    Task,
    pareto_front,
    scoreboard,
)
from mudkit.experiment.tasks import SETTLE_S
from mudkit.processes import spread_out
from mudkit.report.growing import Growth, grow
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.scored_measures import first_measures
from mudkit.report.verdicts import COSTS, DRAWS, FATE_LABELS, LOOSER, TOLERANCE, Cost, TaskPool, choose, ends

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.report.scenario import OwnScenario

_MAX_LISTED: Final = 3
"""Tasks of which a figure of the first screen is listed one by one."""
_MUCH: Final = 0.05
"""Share of what was wanted and never opened from which that is said beside what was in time."""
_NOTICED, _NOTICED_S, _NOTICED_POINTS = 0.05, 1.0, 0.01
"""Least difference from the baseline that is listed: as a share of it; of latencies, s; of shares."""
_WHOLE_COST: Final = 10.0
"""Cost from which it is shown without decimals."""
_CLOSE: Final = 0.8
"""Share of draws in which a firm choice is the same, at least."""
MIN_DELIVERIES: Final = 200
"""Different wanted deliveries of a firm verdict, at least: at 200 a share of a half is known to 7 points."""
_SYSTEMS: Final = {
    "to everyone": "Servers store each item and forward it to every phone as it comes.",
    "MUD": "A table over devices and cloud; reader and writer match by predicates (Mobius).",
    "Last hop": "A server sends as much as the user will read, by rank and expiration.",
    "Contrail": "The receiver's filter runs on the sender; what it accepts goes encrypted.",
    "Radiator": "Everyone gets everything; what nobody waits for is delayed and joined.",
    "SUBLIM": "The server keeps a state per subscriber; a policy drops or rewrites by it.",
}
"""Sentence on what each system does, by system."""
_SHOWN: Final = ("useful_share", "latency_s", "wasted_share", "kb_per_useful", "j_per_useful",
                 "server_kb_per_useful")  # fmt: skip

MEASURE_LABELS: Final = {
    "useful_share": "in time, % of wanted",
    "latency_s": "median latency, s",
    "wasted_share": "useless, % of what arrived",
    "kb_per_useful": "data for each in time, kB",
    "j_per_useful": "radio for each in time, J",
    "server_kb_per_useful": "servers for each in time, kB",
}
"""Headings of the measures on screen."""
BEST: Final[dict[str, Literal["low", "high"]]] = {
    name: "high" if name == "useful_share" else "low" for name in _SHOWN
}
DEFINITION: Final = (
    "Each figure is of all deliveries of all runs together: a sum divided by a sum, or a median of all times"
)
"""The one definition of the means of this report's tables."""


@dataclass(frozen=True)
class ScoreStudy:
    """Systems on the same tasks, and the recommended one of each by deliveries in time and ``cost``."""

    board: Scoreboard
    given: Sequence[Task]
    cost: Cost
    confidence: float
    own: OwnScenario | None = None
    growth: Mapping[str, Growth] = field(default_factory=dict)
    """Cost of a larger fleet, by task, where the chosen system sends each item to every phone."""

    @cached_property
    def pools(self) -> dict[str, TaskPool]:
        """The deliveries of each task."""
        recorded = {task.name for task in self.given if task.recording is not None}
        return {
            task: TaskPool.of(self.board, task, is_recorded=task in recorded) for task in self.board.tasks
        }

    @cached_property
    def uses(self) -> pd.DataFrame:
        """The recommended system of each task, its share in time and its cost; none if nothing was delivered.

        ``certain_share`` is the share of draws (:class:`~mudkit.report.verdicts.TaskPool`) that choose it,
        ``runner_up`` is chosen most often otherwise, ``deliveries`` is what the verdict rests on. ``verdict``
        is ``firm``, ``few deliveries``, ``close`` or ``nothing delivered``.
        """
        import pandas as pd

        return pd.DataFrame([self._use(task) for task in self.board.tasks])

    def _use(self, task: str) -> dict[str, object]:
        """Return the row of a task: the chosen system, its measures, and how sure that is."""
        pool, part = self.pools[task], COSTS[self.cost][2]
        sums = pool.sums
        chosen = choose(sums["useful"], sums["wanted"], sums[part])
        row: dict[str, object] = {"task": task, "deliveries": pool.deliveries, "readers": pool.readers}
        baseline = float(pool.value(self.cost)[0])
        if chosen is None:
            ends = [f"{name}{end}" for name in ("useful_share", "cost") for end in ("", "_low", "_high")]
            unknown = [*ends, "certain_share", "unopened_share", "opened_share", "saving_share"]
            return {
                **row, "system": "", "runner_up": "", "next": "", "verdict": "nothing delivered",
                **dict.fromkeys(unknown, math.nan), "baseline_cost": baseline,
            }  # fmt: skip
        row["system"] = self.board.systems[chosen]
        row["next"], row["saving_share"] = pool.saving(chosen, part) or ("", math.nan)
        for name, measure in (("useful_share", "useful_share"), ("cost", self.cost)):
            ends_of = pool.interval(measure, self.confidence)
            row |= {
                f"{name}{end}": float(values[chosen])
                for end, values in zip(("", "_low", "_high"), ends_of, strict=True)
            }
        parts = (pool.drawn[name] for name in ("useful", "wanted", part))
        choices = [choose(*entry) for entry in zip(*parts, strict=True)]
        others = [entry for entry in choices if entry is not None and entry != chosen]
        certain = choices.count(chosen) / len(choices)
        runner_up = self.board.systems[max(sorted(set(others)), key=others.count)] if others else ""
        verdict = "close" if certain < _CLOSE else "firm"
        verdict = "few deliveries" if pool.deliveries < MIN_DELIVERIES else verdict
        is_chosen = (self.fates["task"] == task) & (self.fates["system"] == row["system"])
        useful, unopened = (float(self.fates.loc[is_chosen, name].iloc[0]) for name in ("useful", "unopened"))
        row |= {"unopened_share": unopened, "opened_share": round(_divided(useful, 1 - unopened), 12)}
        return row | {
            "baseline_cost": baseline, "certain_share": certain, "runner_up": runner_up, "verdict": verdict,
        }  # fmt: skip

    @property
    def _named_uses(self) -> pd.DataFrame:
        """The recommended systems that the first screen is about: those of firm verdicts, or else all."""
        uses = self.uses[self.uses["system"] != ""]
        firm = uses[uses["verdict"] == "firm"]
        return firm if len(firm) else uses

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
        """The rows of :attr:`fates` of the recommended systems that the first screen is about."""
        return self.fates.merge(self._named_uses[["task", "system"]], on=["task", "system"])

    def first_screen(self) -> FirstScreen:
        """Return what was compared, three figures, the recommendation, what it rests on, and warnings."""
        runs = self.board.runs
        deliveries = int(self.uses["deliveries"].sum())
        phones = sorted({task.scenario.devices for task in self.given})
        read = [
            words.count(len(self.board.tasks), "task"),
            words.count(len(self.board.systems), "system"),
            words.count(runs["seed"].nunique(), "seed"),
            words.count(len(runs), "run"),
            *([] if self.own is not None else [f"{words.listing(map(str, phones))} phones"]),
            words.count(deliveries, "wanted delivery", "wanted deliveries"),
            "the same devices, moves, links, outages and items for all",
        ]
        read.insert(0, "a simulation" if self.own is None else f"a simulation on {self.own.describe()}")
        return FirstScreen(
            " · ".join(read),
            self._tiles(),
            self._headline(),
            self._reason(),
            self._assumption(),
            self._warnings(),
            first_measures(self),
        )

    @cached_property
    def totals(self) -> dict[str, float]:
        """Sums over the tasks that the first screen is about, with the recommended systems."""
        part = COSTS[self.cost][2]
        totals = dict.fromkeys(["wanted", "useful", "paid", "base_useful", "base_paid"], 0.0)
        for row in self._named_uses.to_dict("records"):
            sums, column = self.pools[row["task"]].sums, self.board.systems.index(row["system"])
            for name, of, place in (
                ("wanted", "wanted", column),
                ("useful", "useful", column),
                ("paid", part, column),
                ("base_useful", "useful", 0),
                ("base_paid", part, 0),
            ):
                totals[name] += float(sums[of][place])
        return totals

    @property
    def missed(self) -> tuple[str, float]:
        """The most common fate but ``useful`` with the named systems, and its share of what was wanted."""
        chosen = self._chosen
        counts = {name: float((chosen[name] * chosen["wanted_count"]).sum()) for name in FATES[1:]}
        most = max(counts, key=lambda name: counts[name])
        whole = float(chosen["wanted_count"].sum())
        return (most, counts[most] / whole) if counts[most] else ("", 0.0)

    @property
    def of_ended(self) -> float:
        """Share in time with the named systems of what was wanted and is not ``unopened``."""
        chosen = self._chosen
        useful, unopened, whole = (
            float((part * chosen["wanted_count"]).sum()) for part in (chosen["useful"], chosen["unopened"], 1)
        )
        return _divided(useful, whole - unopened)

    @property
    def _is_of_all(self) -> bool:
        """True if the first screen is about every task."""
        return len(self._named_uses) == len(self.board.tasks)

    def _tiles(self) -> list[tuple[str, str]]:
        """Return value and text of the first screen's tiles."""
        named, unit, _ = COSTS[self.cost]
        uses = self._named_uses
        tasks = [str(task) for task in uses["task"]]
        is_listed = len(tasks) <= _MAX_LISTED
        where = ""
        if len(tasks) > 1:
            where = f" ({' · '.join(tasks)})" if is_listed else f" (range of {len(tasks)} tasks)"
        elif not self._is_of_all and tasks:
            where = f" ({tasks[0]})"
        base = ""
        if set(uses["system"]) != {self.board.baseline}:
            base = self._listed(uses["baseline_cost"], _cost)
            base = f"; {base} {unit} with {words.quoted(self.board.baseline)}"
        in_time, of_what = "useful_share", "wanted"
        if (uses["unopened_share"] >= _MUCH).any():
            in_time, of_what = "opened_share", "wanted, and settled when the run ended,"
        return [
            (self._listed(uses[in_time], words.percent), f"of what was {of_what} is in time{where}"),
            (
                f"{self._listed(uses['cost'], _cost)} {unit}",
                f"of {named} for each delivery in time{base}{where}",
            ),
            self._missed_tile(where),
        ]

    def _missed_tile(self, where: str) -> tuple[str, str]:
        """Return the most common fate of what was not in time, of the tasks in which something was not."""
        most, _ = self.missed
        if not most:
            return "nothing", "that was wanted is missed"
        fates = self._chosen.set_index("task").loc[list(self._named_uses["task"])]
        whole = [str(task) for task in fates.index[fates["useful"] == 1]]
        fates = fates[fates["useful"] < 1]
        if whole:
            tasks = [str(task) for task in fates.index]
            listed = " · ".join(tasks) if len(tasks) <= _MAX_LISTED else f"range of {len(tasks)} tasks"
            where = f" ({listed}); all is in time for {words.joined(whole)}"
        if most == "unopened":
            named = f" for {next(iter(fates.index))}" if len(fates) == 1 else ""
            unopened = (
                f"of what was wanted{named} was still unopened when its run ended, so it is not settled"
            )
            return self._listed(fates[most], words.percent), f"{unopened}{'' if named else where}"
        is_main = (fates[most] >= fates[list(FATES[1:])].max(axis=1)).all()
        rest = f": the main reason for not being in time{'' if is_main else ', over these tasks together'}"
        return (
            self._listed(fates[most], words.percent),
            f"of what was wanted was {FATE_LABELS[most]}{rest}{where}",
        )

    def _listed(self, values: pd.Series, shown: Callable[[float], str]) -> str:
        """Return a figure of each named task in their order; the range of many."""
        texts = [shown(value) for value in values]
        if len(texts) > _MAX_LISTED:
            return words.span(values.min(), values.max(), shown)
        return " · ".join(texts)

    def _span(self, name: str, shown: Callable[[float], str]) -> str:
        """Return the range of a column over the tasks that are named, in words."""
        values = self._named_uses[name]
        return words.span(values.min(), values.max(), shown)

    def _brought(self, row: Mapping[Hashable, Any]) -> str:
        """Return what a system brings in time, and for how much."""
        brought = f"{words.percent(row['useful_share'])} of what was wanted in time"
        if row["unopened_share"] >= _MUCH:
            opened = words.percent(row["opened_share"])
            brought = f"{opened} of what was settled in time, {brought}"
        next_ = f"the next cheapest that brings about as much, {words.quoted(row['next'])}"
        less = f", {words.percent(row['saving_share'])} less than {next_}" if row["next"] else ""
        return f"{brought}, {_cost(row['cost'])} {COSTS[self.cost][1]} for each{less}"

    def _headline(self) -> str:
        """Return which system to use for which task, as a sentence, or that none is firm."""
        uses = self._named_uses
        if uses.empty:
            return "No system can be recommended: nothing that was wanted was delivered."
        is_firm = uses["verdict"].iloc[0] == "firm"
        rows = uses.to_dict("records")
        if not is_firm:
            leads = [f"{words.quoted(row['system'])} is ahead for {row['task']}" for row in rows]
            return f"No recommendation is firm: {words.joined(leads)}, but {self._why_not(uses)}."
        parts = [f"{words.quoted(row['system'])} for {row['task']} ({self._brought(row)})" for row in rows]
        others = self.uses[self.uses["verdict"].isin(("few deliveries", "close"))]
        text = f"Use {'; '.join(parts)}."
        if others.empty:
            return text
        of_others = words.joined([str(task) for task in others["task"]])
        return f"{text} Nothing firm can be said of {of_others}: {self._why_not(others)}."

    def _why_not(self, uses: pd.DataFrame) -> str:
        """Return why verdicts are not firm."""
        few, close = (uses[uses["verdict"] == verdict] for verdict in ("few deliveries", "close"))
        if len(few) and len(close):
            return "the deliveries are too few or others close behind"
        if len(close) == 1:
            return f"{words.quoted(close['runner_up'].iloc[0])} is close behind"
        if len(close):
            return "others are close behind"
        counts = few["deliveries"]
        if len(counts) == 1:
            one = int(counts.iloc[0])
            return f"{words.count(one, 'delivery', 'deliveries')} {'is' if one == 1 else 'are'} too few"
        return f"{counts.min():,} to {counts.max():,} deliveries are too few"

    def _reason(self) -> str:
        """Return how systems were chosen and how sure that is, as sentences."""
        uses = self._named_uses
        if uses.empty:
            if self.own is not None:
                return "Play a longer stretch (`hours`) or more devices (`devices`)."
            return "Take longer tasks (`length`) or more phones (`devices`)."
        near = f"Among systems that bring at most {100 * TOLERANCE:.0f} points less in time than the best, "
        takes = "it takes" if len(uses) == 1 else "each takes"
        text = f"{near}{takes} the least {COSTS[self.cost][0]} for a delivery in time."
        same = self._span("certain_share", words.percent)
        counts = uses["deliveries"]
        if len(uses) == 1:
            deliveries = words.count(int(counts.iloc[0]), "wanted delivery", "wanted deliveries")
            rests = f"{deliveries} of {words.count(int(uses['readers'].iloc[0]), 'phone')}"
        else:
            rests = f"{counts.min():,} to {counts.max():,} wanted deliveries a task"
        runs = self.board.runs["seed"].nunique()
        drawn_from = f"these {words.count(runs, 'run')} of one setting" if runs > 1 else "this run"
        return (
            f"{text}{self._settled()} That rests on {rests}; of {DRAWS:,} draws of runs, phones and "
            f"deliveries from {drawn_from}, {same} lead to the same "
            "choice, which says nothing of other settings."
        )

    def _settled(self) -> str:
        """Return which share to use where much was still unopened when runs ended; empty: nowhere."""
        if not (self._named_uses["unopened_share"] >= _MUCH).any():
            return ""
        return (
            " A run ends soon after its last item. What lies unopened on a phone then is not settled: users "
            "could still open it. How well a system serves them is its share of what was settled; its share "
            "of all that was wanted is only to compare systems in the same runs."
        )

    def _assumption(self) -> str:
        """Return the fleet, its growth and the cost that counts, as sentences."""
        phones = max(task.scenario.devices for task in self.given)
        text = f"The fleet has {phones} phones (`devices`)."
        for task in self._named_uses["task"]:
            if task in self.growth:
                text += f" {self.growth[task].describe(self.cost)}"
        text += f" What counts is {COSTS[self.cost][0]} (`cost`).{self._looser()}"
        return text if self.own is None else f"{self.own.assumption()} {text}"

    def chosen_looser(self, task: str) -> str:
        """Return the system that a looser bar would choose; empty without one."""
        sums = self.pools[task].sums
        looser = choose(sums["useful"], sums["wanted"], sums[COSTS[self.cost][2]], LOOSER)
        return "" if looser is None else self.board.systems[looser]

    def _looser(self) -> str:
        """Return what a looser bar would choose in the tasks of the first screen, as a sentence."""
        uses = self._named_uses
        if uses.empty or len(self.board.systems) == 1:
            return ""
        others = []
        for task, system in zip(uses["task"], uses["system"], strict=True):
            looser = self.chosen_looser(task)
            if looser in ("", system):
                continue
            place = self.board.systems.index(looser)
            share, cost = (float(self.pools[task].value(name)[place]) for name in ("useful_share", self.cost))
            others.append(
                f"{words.quoted(looser)} for {task} ({words.percent(share)} in time for "
                f"{_cost(cost)} {COSTS[self.cost][1]} each)"
            )
        bars = f"{100 * LOOSER:.0f} points less in time than the best instead of {100 * TOLERANCE:.0f}"
        stays = "stays the same" if len(uses) == 1 else "stays the same for each task"
        chosen = f"becomes {words.joined(others)}" if others else stays
        return f" If a system may bring {bars}, the choice {chosen}."

    def _warnings(self) -> list[str]:
        """Return warnings about seeds, tasks and measures, as sentences."""
        notes = [] if self.own is None else self.own.warnings()
        seeds = self.board.runs["seed"].nunique()
        if seeds < intervals.MIN_REPETITIONS:
            notes.append(
                f"With {words.count(seeds, 'seed')} the intervals say little of other runs: take five."
            )
        for row in self.uses.to_dict("records"):
            begun = words.capitalise(row["task"])
            deliveries = words.count(row["deliveries"], "delivery", "deliveries")
            if not row["deliveries"]:
                notes.append(f"{begun}: nothing was wanted, so no system is recommended.")
            elif row["verdict"] == "few deliveries":
                notes.append(
                    f"{begun}: the verdict rests on {deliveries}; it is not firm below {MIN_DELIVERIES}."
                )
            elif row["verdict"] == "close":
                notes.append(
                    f"{begun}: the choice is close; other runs, phones or deliveries may lead to "
                    f"{words.quoted(row['runner_up'])}."
                )
        named = self.cannot().merge(self._named_uses[["task", "system"]], on=["task", "system"])
        notes += [
            f"{words.capitalise(task)}: {words.quoted(system)} cannot express all of the task. {text}"
            for task, system, text in named.itertuples(index=False)
        ]
        return notes

    def use_answer(self) -> Answer:
        """Return the heading of the table of recommended systems."""
        uses = self.uses[self.uses["system"] != ""]
        firm = uses[uses["verdict"] == "firm"]
        counts = firm["system"].value_counts()
        tasks = words.count(len(self.uses), "task")
        fits = [f"{words.quoted(str(name))} fits {count} of {tasks}" for name, count in counts.items()]
        if fits and len(firm) < len(self.uses):
            is_open = len(self.uses) - len(firm)
            fits.append(f"{is_open} {'stays' if is_open == 1 else 'stay'} open")
        if not fits:
            fits = ["No system clearly fits" if len(uses) else "No system fits"]
        return Answer("; ".join(fits), " ".join(self._sentence(row) for row in uses.to_dict("records")))

    def _sentence(self, row: Mapping[Hashable, Any]) -> str:
        """Return which use a system fits, or why that is not known, in a sentence."""
        share, most = (
            words.percent(value)
            for value in (row["useful_share"], self.pools[row["task"]].value("useful_share").max())
        )
        best = f"; the most with any system is {most}" if most != share else ""
        brought = f"{self._brought(row)}{best}"
        if row["verdict"] == "firm":
            return f"{words.quoted(row['system'])} fits {row['task']}: {brought}."
        why = "the choice is close" if row["verdict"] == "close" else "the deliveries are too few"
        return f"For {row['task']} {words.quoted(row['system'])} is ahead, but {why}: {brought}."

    def use_table(self) -> pd.DataFrame:
        """Return what is shown of :attr:`uses`."""
        unit = COSTS[self.cost][1].lower()
        cost = f"cost_{unit}"
        renamed = {f"cost{end}": f"{cost}{end}" for end in ("", "_low", "_high")}
        table = self.uses.rename(columns=renamed | {"baseline_cost": f"baseline_{unit}"})
        names = ["task", "system", "useful_share", cost, f"baseline_{unit}", "certain_share", "deliveries"]
        names += [f"{name}{end}" for name in ("useful_share", cost) for end in ("_low", "_high")]
        is_open = table["verdict"].isin(("few deliveries", "close"))
        table["system"] = table["system"].replace("", words.NO_VALUE)
        table.loc[is_open, "system"] = [f"open ({name} is ahead)" for name in table.loc[is_open, "system"]]
        # So few deliveries are no measure of how sure a choice is.
        table.loc[table["verdict"] == "few deliveries", "certain_share"] = math.nan
        return round_costs(table, [cost, f"baseline_{unit}"])[
            [name for name in names if name in table.columns]
        ]

    def use_labels(self) -> dict[str, str]:
        """Return the headings of :meth:`use_table`."""
        unit = COSTS[self.cost][1]
        return {
            "system": "use",
            "useful_share": "in time, % of wanted",
            f"cost_{unit.lower()}": f"{unit} for each in time",
            f"baseline_{unit.lower()}": f"{unit} with {words.quoted(self.board.baseline)}",
            "certain_share": "same choice, % of draws",
            "deliveries": "wanted deliveries",
        }

    def points(self, task: str) -> pd.DataFrame:
        """Return the systems of a task by cost and ``in_time_percent``; ``is_best``: no other beats it."""
        import pandas as pd

        pool = self.pools[task]
        values = {name: pool.value(name) for name in (self.cost, "useful_share")}
        table = pareto_front(
            pd.DataFrame({"system": self.board.systems, **values}), self.cost, "useful_share"
        )
        _, low, high = pool.interval("useful_share", self.confidence)
        return table.assign(
            in_time_percent=100 * table["useful_share"],
            in_time_percent_low=100 * low,
            in_time_percent_high=100 * high,
        )

    @property
    def axes(self) -> tuple[str, str]:
        """Titles of the axes of :meth:`points`."""
        named, unit, _ = COSTS[self.cost]
        return f"{named} for each delivery in time, {unit}", "in time, % of what was wanted"

    def task_answer(self, task: str) -> Answer:
        """Return the heading of a task."""
        table = self.points(task)
        best = [str(name) for name in table.loc[table["is_best"], "system"]]
        use = self.uses[self.uses["task"] == task].iloc[0]
        question = next(entry.question for entry in self.given if entry.name == task)
        if not use["system"]:
            return Answer(f"{words.capitalise(task)}: nothing was delivered that was wanted", question)
        beaten = [name for name in self.board.systems if name not in best]
        text = (
            f"{question} {words.joined([words.quoted(name) for name in beaten])} "
            f"{'is' if len(beaten) == 1 else 'are each'} no better than another system in either "
            f"{COSTS[self.cost][0]} or deliveries in time, and worse in at least one."
            if beaten
            else question
        )
        name, brought = words.quoted(use["system"]), self._brought(use.to_dict())
        if use["verdict"] != "firm":
            why = self._why_not(self.uses[self.uses["task"] == task])
            return Answer(
                f"{words.capitalise(task)}: open, {why}; {name} is ahead", f"With {name} {brought}. {text}"
            )
        return Answer(f"{words.capitalise(task)}: {name}, {brought}", text)

    def measures(self, task: str) -> pd.DataFrame:
        """Return the measures of a task that are on screen, a row a system, with intervals."""
        import pandas as pd

        table = pd.DataFrame({"system": self.board.systems})
        for name in _SHOWN:
            parts = self.pools[task].interval(name, self.confidence)
            for end, values in zip(("", "_low", "_high"), parts, strict=True):
                table[f"{name}{end}"] = values
        return table

    def fates_answer(self) -> Answer:
        """Return what becomes of what was wanted with the recommended systems, as a heading."""
        uses = self._named_uses
        if uses.empty:
            return Answer("Nothing was delivered in time")
        chosen = self._chosen.set_index("task").loc[list(uses["task"])]
        system = "system" if uses["system"].nunique() == 1 else "systems"
        of_task = zip(chosen.index, chosen["useful"], strict=True)
        shares = [f"{words.percent(share)} for {task}" for task, share in of_task]
        if len(shares) == 1:
            of_tasks = f"{words.percent(chosen['useful'].iloc[0])} is in time"
        elif len(shares) <= _MAX_LISTED:
            of_tasks = f"this is in time: {words.joined(shares)}"
        else:
            of_tasks = f"{self._span('useful_share', words.percent)} is in time, by task"
        ended = (
            f"A run ends {words.count(round(SETTLE_S / 60), 'minute')} after the last item, and what "
            "somebody would open later counts as never opened. "
            if (chosen["unopened"] > 0).any()
            else ""
        )
        parts = " ".join(
            f"{words.capitalise(row['task'])}: {_parts(row)}."
            for row in chosen.reset_index().to_dict("records")
        )
        return Answer(
            f"With the {system} named at the top {of_tasks}",
            f"{parts} {ended}Late: on the phone only after it had expired. Stale: in time on the phone, "
            "but not seen before it expired. Never opened: on the phone, and not seen by the end of the run. "
            "Lost: never on the phone. The five parts add up to what was wanted.",
        )

    def system_table(self) -> pd.DataFrame:
        """Return what each system does, a row each."""
        import pandas as pd

        systems = self.board.systems
        return pd.DataFrame({"system": systems, "what it does": [_SYSTEMS.get(name, "") for name in systems]})

    def task_table(self) -> pd.DataFrame:
        """Return the tasks, a row each."""
        import pandas as pd

        shown = ["predicate", "devices", "feeds", "hours", "items", "size", "link", "outage", "seen"]
        table = pd.DataFrame([{"task": task.name, **task.describe()} for task in self.given])
        return table[["task", *(name for name in shown if name in table.columns)]]

    def own_phones(self) -> pd.DataFrame:
        """Return the phones of the task of a trace, a row each; empty without one."""
        import pandas as pd

        return pd.DataFrame([] if self.own is None else self.own.phones())

    def all_measures(self) -> pd.DataFrame:
        """Return the measures of all tasks: ``task, system, measure, mean, low, high, seeds, definition``.

        Those of this page are of all deliveries together; the others are means over runs, as
        :meth:`Scoreboard.measures <mudkit.experiment.Scoreboard.measures>` has them.
        """
        import pandas as pd

        tables = []
        for task, pool in self.pools.items():
            of_runs = self.board.measures(task, self.confidence)
            of_runs = of_runs[~of_runs["measure"].isin(_SHOWN)].assign(definition="mean over runs")
            tables.append(of_runs.assign(task=task))
            for name in _SHOWN:
                value, low, high = pool.interval(name, self.confidence)
                columns = {"system": self.board.systems, "mean": value, "low": low, "high": high}
                tables.append(
                    pd.DataFrame(columns).assign(
                        task=task, measure=name, seeds=pool.seeds, definition="all deliveries together"
                    )
                )
        table = pd.concat(tables, ignore_index=True)
        names = ["task", "system", "measure", "mean", "low", "high", "seeds", "definition"]
        return table[names]

    def differences(self) -> pd.DataFrame:
        """Return the differences from the first system, draw by draw, of the measures on screen of all tasks.

        ``task, system, measure, baseline, mean, difference, difference_low, difference_high``.
        """
        import pandas as pd

        rows = []
        for task, pool in self.pools.items():
            for name in _SHOWN:
                value, drawn = pool.value(name), pool.drawn_values(name)
                low, high = ends(drawn - drawn[:, :1], self.confidence)
                differs = value - value[0]
                low, high = np.fmin(low, differs), np.fmax(high, differs)
                rows += [
                    (task, system, name, value[0], value[row], differs[row], low[row], high[row])
                    for row, system in enumerate(self.board.systems)
                    if row
                ]
        columns = ["task", "system", "measure", "baseline", "mean", "difference", "difference_low",
                   "difference_high"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    def noticeable_differences(self) -> pd.DataFrame:
        """Return the differences whose interval does not hold 0, and that somebody would notice, in words."""
        import pandas as pd

        table = self.differences()
        is_clear = (table["difference_low"] > 0) | (table["difference_high"] < 0)
        size = table["difference"].abs()
        is_share = table["measure"].isin(("useful_share", "wasted_share"))
        least = np.where(is_share, _NOTICED_POINTS, _NOTICED * table["baseline"])
        is_clear &= size >= np.where(table["measure"] == "latency_s", np.maximum(least, _NOTICED_S), least)
        shown = table[is_clear].reset_index(drop=True)
        numbers = ["baseline", "mean", "difference", "difference_low", "difference_high"]
        shown.loc[shown["measure"].isin(("useful_share", "wasted_share")), numbers] *= 100  # % and points
        labels = [MEASURE_LABELS[name] for name in shown["measure"]]
        rows = [_alike(row) for row in shown[numbers].itertuples(index=False)]
        texts = pd.DataFrame(rows, columns=["baseline", "value", "difference"], dtype=object)
        return pd.concat([shown[["task", "system"]].assign(measure=labels), texts], axis=1)

    def cannot(self) -> pd.DataFrame:
        """Return what the systems cannot express of the tasks: a row for each that cannot."""
        import pandas as pd

        # An own task chooses by place, as traffic alerts do.
        like = {task.name: task.name if task.recording is None else TRAFFIC.name for task in self.given}
        rows = [
            (task, system, UNSUPPORTED[system][like[task]])
            for task in self.board.tasks
            for system in self.board.systems
            if like[task] in UNSUPPORTED.get(system, {})
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
    own: OwnScenario | None = None,
) -> ScoreStudy:
    """Run systems on tasks, on two processes; the first system is the baseline.

    ``length`` is a multiple of each task's own hours. ``own`` comes first; without it no ``tasks`` means all.
    """
    names = tasks or ([] if own is not None else list(TASKS))
    given = [] if own is None else [own.task]
    given += [
        TASKS[name].over(devices=devices, hours=round(length * TASKS[name].scenario.hours, 4))
        for name in names
    ]
    with spread_out(part=1) as spread:
        board = scoreboard(given, {name: ADAPTERS[name] for name in systems}, seeds, map=spread)
    study = ScoreStudy(board, given, cost, confidence, own)
    return replace(study, growth=grow(study.pools, given, cost, seeds))


def measure_meanings() -> pd.DataFrame:
    """Return what the measures mean, a row each."""
    import pandas as pd

    return pd.DataFrame([{"measure": LABELS[name], "meaning": text} for name, text in MEASURES.items()])


def round_costs(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a table whose costs and their ends are whole, as in texts, if all of them are ten or more."""
    least = float(np.nanmin(table[list(names)].to_numpy(dtype=np.float64), initial=math.inf))
    if least < _WHOLE_COST:
        return table
    ends = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    return table.assign(**{name: table[name].round() for name in ends if name in table})


def _cost(value: float) -> str:
    """Return a cost in words: whole from ten on, as tables have it."""
    return words.number(value, 0 if value >= _WHOLE_COST else None)


def _alike(row: Sequence[float]) -> tuple[str, str, str]:
    """Return a value of the baseline, one of a system, and the difference, with the same decimal places."""
    baseline, value, differs, low, high = row
    places = max(words.decimals([part], 2) for part in (baseline, value))
    shown = (words.number(part, places) for part in (baseline, value, differs))
    first, second, third = shown
    return first, second, f"{third} ({words.interval(low, high, places)})"


def _divided(part: float, whole: float) -> float:
    """Return a ratio; NaN if the whole is 0."""
    return part / whole if whole else math.nan


def _parts(row: Mapping[Hashable, Any]) -> str:
    """Return the parts of what was wanted in words, in percent that add up to 100."""
    tenths = [1000 * float(row[name]) for name in FATES]
    floors = [math.floor(round(value, 9)) for value in tenths]
    by_rest = sorted(range(len(tenths)), key=lambda place: floors[place] - tenths[place])
    for place in by_rest[: 1000 - sum(floors)]:
        floors[place] += 1
    shown = [
        f"{words.percent(floor / 1000, 1) if floor else '<0.1 %'} {FATE_LABELS[name]}"
        for name, floor, value in zip(FATES, floors, tenths, strict=True)
        if value
    ]
    return words.joined(shown)
