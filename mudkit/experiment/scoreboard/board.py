"""The scoreboard: systems on the same tasks and seeds, and what each took to do them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import ParameterError, SimulationProblem
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.comparison import Comparison, interval
from mudkit.experiment.running import check_seed
from mudkit.experiment.scoreboard._by_device import by_device
from mudkit.experiment.scoreboard._disclosed import disclosed
from mudkit.experiment.scoreboard._knowledge import knowledge
from mudkit.experiment.scoreboard.entry import MEASURES, play
from mudkit.experiment.tasks import Adapter, Task, Testbed
from mudkit.progress import bar
from mudkit.sources.parameters import of_kind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RATIOS", "Scoreboard", "pareto", "scoreboard"]

RATIOS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "kb_per_useful": (("up_kb", "down_kb"), "useful"),
    "j_per_useful": (("radio_j",), "useful"),
}
"""What a run without a useful delivery does not have: what is added up, and by what it is divided."""


@dataclass(frozen=True)
class Scoreboard:
    """What came of it.

    Parameters
    ----------
    runs : pandas.DataFrame
        One row per (task, system, seed), with ``wanted``, ``digest`` (equal for all systems) and each of
        :data:`MEASURES`.
    privacy : pandas.DataFrame
        One row per (task, system, party) of the first seed: what parties learnt from what they held, see
        :func:`~mudkit.experiment.scoreboard.knowledge`. Empty if it was not kept.
    baseline : str
        The system that the others are compared with.
    devices, disclosed, latencies : pandas.DataFrame
        The same, of the first seed: :func:`by_device`, :func:`disclosed`, and the ``latency_s`` of each
        useful delivery, with ``task`` and ``system`` before them. Empty if it was not kept.
    """

    runs: pd.DataFrame
    privacy: pd.DataFrame
    baseline: str
    devices: pd.DataFrame
    disclosed: pd.DataFrame
    latencies: pd.DataFrame

    @property
    def systems(self) -> list[str]:
        """The systems, in the order in which they entered."""
        return list(dict.fromkeys(self.runs["system"]))

    @property
    def tasks(self) -> list[str]:
        """The tasks, in their order."""
        return list(dict.fromkeys(self.runs["task"]))

    def measured(self, task: str, confidence: float = 0.95) -> pd.DataFrame:
        """Give a task's measures: ``system, measure, mean, low, high, seeds``.

        The mean of a ratio is that of all seeds together (:data:`RATIOS`): a seed without a useful delivery
        has none of its own, and what it took counts all the same. The interval is of the seeds that have one.

        Parameters
        ----------
        task : str
        confidence : float
            The confidence of the intervals of the mean (Student's t over the seeds), which are NaN with fewer
            than two seeds.

        Raises
        ------
        ParameterError
            There is no such task here.
        """
        import pandas as pd

        rows = []
        for system, runs in self._of(task).groupby("system", sort=False):
            for measure in MEASURES:
                values = runs[measure].dropna().to_numpy()
                rows.append(
                    (system, measure, _mean(runs, measure), *interval(values, confidence), len(values))
                )
        return pd.DataFrame(rows, columns=["system", "measure", "mean", "low", "high", "seeds"])

    def table(self, task: str, measures: Sequence[str] = tuple(MEASURES)) -> pd.DataFrame:
        """Give the table that a reader can quote: a row a system, a column a measure, means of the seeds.

        Ratios are those of all seeds together (:data:`RATIOS`).
        """
        import pandas as pd

        runs = dict(list(self._of(task).groupby("system", sort=False)))
        rows = [[_mean(runs[system], measure) for measure in measures] for system in self.systems]
        index = pd.Index(self.systems, name="system")
        return pd.DataFrame(rows, columns=list(measures), index=index)

    def differences(self, task: str, confidence: float = 0.95) -> pd.DataFrame:
        """Give what each system changes against the baseline, paired by seed; see :class:`Comparison`."""
        runs = self._of(task)[["system", "seed", *MEASURES]]
        return Comparison(runs, self.baseline).differences(confidence)

    def pareto(self, task: str, gain: str = "useful_share", cost: str = "j_per_useful") -> pd.DataFrame:
        """Give ``system``, a gain, a cost, and ``is_best``: none has more of one for no more of the other."""
        table = self.table(task, [gain, cost]).reset_index()
        table["is_best"] = pareto(table[gain], table[cost])
        return table

    @cached_property
    def _by_task(self) -> dict[str, pd.DataFrame]:
        return {str(task): runs for task, runs in self.runs.groupby("task", sort=False)}

    def _of(self, task: str) -> pd.DataFrame:
        if task not in self._by_task:
            raise ParameterError(
                "This task is not on the scoreboard.",
                where="task",
                found=repr(task),
                expected=", ".join(self.tasks),
            )
        return self._by_task[task]


def scoreboard(
    tasks: Iterable[Task],
    systems: Mapping[str, Callable[[Testbed], Adapter]] = ADAPTERS,
    seeds: Iterable[int] = range(3),
    *,
    privacy: bool = True,
    map: Callable[..., Iterable[dict[str, Any]]] = map,  # noqa: A002 - the name of what it stands for
) -> Scoreboard:
    """Let systems do tasks, each on the same seeds.

    Parameters
    ----------
    tasks : iterable of Task
    systems : mapping of str to callable
        The systems by name; the first is the baseline. What makes an adapter may be of one's own.
    seeds : iterable of int
    privacy : bool
        Whether the runs of the first seed keep what each party held.
    map : callable
        How the runs are spread: ``map``, that of a process pool, or one that spreads over Spark.

    Returns
    -------
    Scoreboard

    Raises
    ------
    ParameterError
        There is no task, system or seed, one is given twice, or what is given is none.
    SimulationProblem
        Two systems were not given the same: one has changed what all depend on.
    """
    import pandas as pd

    _check_given(tasks, systems, seeds)
    todo, numbers = list(tasks), list(seeds)
    for each in todo:
        of_kind(
            "tasks",
            each,
            Task,
            expected="tasks, such as [NEWS, WARD]",
            remedy="take those of mudkit.experiment.scoreboard; TASKS has them by name",
        )
    for number in numbers:
        check_seed("seeds", number)
    names = [task.name for task in todo]
    for what, given in (("tasks", names), ("systems", list(systems)), ("seeds", numbers)):
        if not given or len(set(given)) < len(given):
            raise ParameterError(
                "A scoreboard needs tasks, systems and seeds, each once.",
                where=what,
                found=repr(given),
                expected="one at least, and each once",
            )
    plan = [
        (task, make, name, seed, privacy and seed == numbers[0])
        for task in todo
        for name, make in systems.items()
        for seed in numbers
    ]
    rows, parties = [], []
    kept: dict[str, list[Any]] = {name: [] for name in ("devices", "disclosed", "latencies")}
    with bar(len(plan), "runs", "runs") as done:
        for row in map(_measured, plan):
            parties += row.pop("parties")
            for name, tables in kept.items():
                tables += row.pop(name)
            rows.append(row)
            done(len(rows))
    runs = pd.DataFrame(rows)
    for (task, seed), same in runs.groupby(["task", "seed"]):
        if same["digest"].nunique() > 1:
            raise SimulationProblem(
                "Systems were not given the same devices, moves, outages and items.",
                where=f"{task}, seed {seed}",
                found=", ".join(same["system"] + " " + same["digest"].str[:8]),
                expected="one digest",
                remedy="an adapter changes nothing but what its own machines do",
            )
    frames = {
        name: pd.concat(each, ignore_index=True) if each else pd.DataFrame() for name, each in kept.items()
    }
    return Scoreboard(runs, pd.DataFrame(parties), next(iter(systems)), **frames)


def _check_given(tasks: Any, systems: Any, seeds: Any) -> None:
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise ParameterError(
            "These are no tasks.",
            where="tasks",
            found=_shown(tasks),
            expected="several, such as [NEWS, WARD]",
        )
    if not isinstance(systems, Mapping) or not all(map(callable, systems.values())):
        raise ParameterError(
            "These are no systems.",
            where="systems",
            found=_shown(systems),
            expected="what makes an adapter, by name, such as {'MUD': ADAPTERS['MUD']}",
        )
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise ParameterError(
            "These are no seeds.", where="seeds", found=_shown(seeds), expected="several, such as range(3)"
        )


def _shown(given: Any) -> str:
    return given.name if isinstance(given, Task) else repr(given)[:120]


def pareto(gain: Iterable[float], cost: Iterable[float]) -> list[bool]:
    """Say of each whether no other has at least its gain for at most its cost, and more of one.

    What is not a number is never among the best.
    """
    points = list(zip(gain, cost, strict=True))

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one[0] >= other[0] and one[1] <= other[1] and one != other

    return [
        not any(math.isnan(part) for part in point) and not any(beats(each, point) for each in points)
        for point in points
    ]


def _mean(runs: pd.DataFrame, measure: str) -> float:
    """Give the mean of a measure over seeds; a ratio is that of all of them together."""
    if measure not in RATIOS:
        return float(runs[measure].mean())
    parts, whole = RATIOS[measure]
    total = float(runs[whole].sum())
    return float(runs[list(parts)].to_numpy().sum()) / total if total else math.nan


def _measured(what: tuple[Task, Callable[[Testbed], Adapter], str, int, bool]) -> dict[str, Any]:
    task, make, name, seed, held = what
    entry = play(task, make, seed, name=name, messages=False, held=held)
    parties: list[Any] = []
    kept: dict[str, list[Any]] = {"devices": [], "disclosed": [], "latencies": []}
    if held:
        useful = entry.deliveries[entry.deliveries["status"] == "read"]
        of = {"devices": by_device(entry), "disclosed": disclosed(entry), "latencies": useful[["latency_s"]]}
        for what_kept, table in of.items():
            kept[what_kept] = [_of(table, task.name, name)]
        known = knowledge(entry)
        known.insert(0, "task", task.name)
        known.insert(1, "system", name)
        parties = known.to_dict("records")
    return {
        "task": task.name,
        "system": name,
        "seed": seed,
        "wanted": entry.testbed.wanted,
        "digest": entry.digest,
        **entry.measures(),
        "parties": parties,
        **kept,
    }


def _of(table: pd.DataFrame, task: str, system: str) -> pd.DataFrame:
    return table.assign(task=task, system=system)[["task", "system", *table.columns]]
