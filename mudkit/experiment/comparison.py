"""Comparisons and scoreboards: systems on the same tasks and seeds, and how their measures differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mudkit import intervals, words
from mudkit.checks import check_arguments, one_of, unusable, whole_number
from mudkit.display import MAX_COLUMNS, MAX_ROWS, Align, Cell, Displayed, Table, View
from mudkit.errors import ParameterError, SimulationProblem, brief
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.privacy import disclosures, knowledge
from mudkit.experiment.runs import MEASURES, by_device, check_system, fates, phone_bills, run
from mudkit.experiment.tasks import Task
from mudkit.experiment.testbed import Adapter, Testbed
from mudkit.progress import bar

if TYPE_CHECKING:
    import pandas as pd


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
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

    def _view(self) -> View:
        seeds = int(self.runs["seed"].nunique())
        facts = {"baseline": self.baseline, "seeds": seeds}
        means = self.runs.drop(columns=["seed", "task"], errors="ignore")
        means = means.groupby("system", sort=False).mean(numeric_only=True).head(MAX_COLUMNS - 2)
        is_pair = len(means) == 2 and self.baseline in means.index
        differences = self.differences().set_index("measure").to_dict("index") if is_pair else {}
        rows = []
        for measure in means.columns[:MAX_ROWS]:
            label = words.label(measure)
            values = [float(value) * label.scale for value in means[measure]]
            if not any(values):
                continue
            places = words.decimals(values)
            row: list[Any] = [label.title]
            row += [Cell(words.number(value, places)) for value in values]
            if differences:
                row.append(_difference_cell(differences[measure], label, places))
            rows.append(row)
        head = ["measure", *map(str, means.index), *(["difference"] if is_pair else [])]
        align: list[Align] = ["left", *["right"] * (len(head) - 1)]  # type: ignore[list-item]
        notes = []
        if is_pair and seeds > 1:
            kind = "the range" if seeds < intervals.MIN_REPETITIONS else "the 95 % interval"
            notes.append(f"In small print: {kind} of the differences, each between runs of the same seed.")
        table = Table(head, rows, f"Means of {words.count(seeds, 'seed')}", align, notes=notes)
        return View("Comparison", facts, [table])

    def differences(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return the differences of each system from the baseline, paired by seed.

        Parameters
        ----------
        confidence : float
            Confidence of the intervals, bootstrapped over the seeds' differences: the range with fewer than
            five seeds, NaN with one.

        Returns
        -------
        pandas.DataFrame
            ``system, measure, baseline, mean, difference, difference_low, difference_high, seeds``.
        """
        import pandas as pd

        measures = [name for name in self.runs.columns if name not in ("system", "seed")]
        by_system = {name: table.set_index("seed")[measures] for name, table in self.runs.groupby("system")}
        base = by_system[self.baseline]
        rows = []
        for name in dict.fromkeys(self.runs["system"]):
            if name == self.baseline:
                continue
            for measure in measures:
                pairs = pd.DataFrame({"base": base[measure], "mine": by_system[name][measure]}).dropna()
                differs = (pairs["mine"] - pairs["base"]).to_numpy()
                result = intervals.mean(differs, confidence)
                means = (pairs["base"].mean(), pairs["mine"].mean(), result.value)
                rows.append((name, measure, *means, result.low, result.high, len(differs)))
        columns = ["system", "measure", "baseline", "mean", "difference", "difference_low", "difference_high",
                   "seeds"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)


def _difference_cell(row: Mapping[Any, Any], label: words.Label, places: int) -> Cell:
    """Return a difference with its sign, and its interval in small print; of shares in points."""
    value, low, high = (
        float(row[name]) * label.scale for name in ("difference", "difference_low", "difference_high")
    )
    sign = "+" if value > 0 else ""
    unit = " points" if label.unit.startswith("%") else ""
    note = words.interval(low, high, places) if low < high else ""
    return Cell(f"{sign}{words.number(value, places)}{unit}", note)


@check_arguments(types=False)
def sweep(
    play: Callable[..., Mapping[str, Mapping[str, float]]],
    name: str,
    values: Iterable[Any],
    seeds: Iterable[int] = range(3),
) -> pd.DataFrame:
    """Play a scenario for several values of one parameter, with each seed.

    Parameters
    ----------
    play : callable
        Takes a value and a seed, and returns the measures of each system: ``{"relay": {"radio_j": 12.0}}``.
    name : str
        Name of the parameter, the first column of the result.
    values : iterable
        Values of the parameter, at least one.
    seeds : iterable of int

    Returns
    -------
    pandas.DataFrame
        One row per (value, system, seed): the parameter, ``system, seed`` and the measures.
        :func:`mudkit.figures.crossover` draws it.

    Raises
    ------
    ParameterError
        There is no value, or no seed; ``play`` is no function, or returns no measures of systems.

    Examples
    --------
    >>> def play(rate, seed):
    ...     return {"direct": {"messages": 2 * rate}, "batched": {"messages": 3}}
    >>> sweep(play, "rate", [1, 2], seeds=[7])["messages"].tolist()
    [2, 3, 4, 3]
    """
    import pandas as pd

    _check_play(play)
    plan = [(value, seed) for value in values for seed in seeds]
    if not plan:
        raise ParameterError("There is nothing to run.", where="values, seeds", expected="one of each")
    rows = []
    with bar(len(plan), "runs", "") as done:
        for number, (value, seed) in enumerate(plan):
            for system, measures in _check_measures(play(value, seed)).items():
                rows.append({name: value, "system": system, "seed": seed, **measures})
            done(number + 1)
    return pd.DataFrame(rows)


@check_arguments(types=False)
def compare(
    play: Callable[[int], Mapping[str, Mapping[str, float]]],
    seeds: Iterable[int] = range(10),
    *,
    map: Callable[..., Iterable[Mapping[str, Mapping[str, float]]]] = map,  # noqa: A002 - the name of what it stands for
) -> Comparison:
    """Play a scenario with each seed, and compare its systems.

    Parameters
    ----------
    play : callable
        Takes a seed, and returns the measures of each system: ``{"relay": {"radio_j": 12.0}}``; the first
        system is the baseline. :meth:`mudkit.worlds.Inboxes.compare` is one. Systems on a task are compared
        by :func:`scoreboard`.
    seeds : iterable of int
    map : callable
        How the seeds are spread: ``map``, that of a process pool, or one that spreads over Spark.

    Raises
    ------
    ParameterError
        A seed is missing or given twice, ``play`` or ``map`` is no function, or no system is played.

    Examples
    --------
    >>> def play(seed):
    ...     return {"direct": {"messages": 2 * seed}, "batched": {"messages": 3}}
    >>> compare(play, seeds=[1, 2]).differences()["difference"].tolist()
    [0.0]
    """
    import pandas as pd

    _check_play(play)
    numbers = _check_seeds(seeds)
    played = _spread(play, numbers, map)
    rows: list[dict[str, Any]] = [
        {"system": system, "seed": seed, **measures}
        for seed, systems in zip(numbers, played, strict=True)
        for system, measures in _check_measures(systems).items()
    ]
    if not rows:
        raise ParameterError(
            "There is no system to compare.", where="play", found="no measures", expected=_MEASURES_IN_WORDS
        )
    return Comparison(pd.DataFrame(rows), rows[0]["system"])


_MEASURES_IN_WORDS: Final = "the measures of each system, by its name, such as {'relay': {'radio_j': 12.0}}"


def _check_play(play: Any) -> None:
    """Raise ParameterError unless a scenario can be called."""
    if not callable(play):
        raise unusable("play", play, f"a function that returns {_MEASURES_IN_WORDS}")


def _check_measures(systems: Any) -> Mapping[str, Mapping[str, float]]:
    """Return what a function has played; raise ParameterError unless it is the measures of each system."""
    if not isinstance(systems, Mapping) or not all(isinstance(one, Mapping) for one in systems.values()):
        raise ParameterError(
            "What was played has no measures of systems.",
            where="play",
            found=brief(systems),
            expected=_MEASURES_IN_WORDS,
        )
    return systems


def _check_systems(systems: Any) -> None:
    """Raise ParameterError unless the systems are a mapping with an entry."""
    if not isinstance(systems, Mapping) or not systems:
        raise ParameterError(
            "Expected a mapping of names to systems.",
            where="systems",
            found=brief(systems),
            expected="callables that return an adapter, by name, such as {'relay': StoreAndForward}",
        )
    for make in systems.values():
        check_system(make)


def _check_seeds(seeds: Any) -> list[int]:
    """Return the seeds as a list; raise a ParameterError unless there are some, each once."""
    numbers = _each_once("seeds", seeds, "range(10)")
    return [whole_number("seeds", number, -(1 << 63), (1 << 63) - 1) for number in numbers]


def _each_once(name: str, given: Any, example: str, kind: type = object) -> list[Any]:
    """Return an argument as a list; raise unless it has items of a kind, each once."""
    items = [] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    known = [getattr(item, "name", item) for item in items]
    if not items or len(set(known)) < len(known) or not all(isinstance(item, kind) for item in items):
        expected = f"at least one, and each once, such as {example}"
        raise ParameterError(
            f"Expected {name}, each once.", where=name, found=brief(known or given), expected=expected
        )
    return items


def _spread(function: Callable[..., Any], work: list[Any], map: Callable[..., Iterable[Any]]) -> list[Any]:  # noqa: A002
    """Call a function on each item by ``map``, and show the progress; return the results as a list.

    Raises
    ------
    ParameterError
        The ``map`` cannot be called.
    """
    if not callable(map):
        raise unusable("map", map, "a function like map, which takes a function and its arguments")
    rows = []
    with bar(len(work), "runs", "runs") as done:
        for row in map(function, work):
            rows.append(row)
            done(len(rows))
    return rows


RATIOS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "useful_share": (("useful",), "wanted_count"),
    "kb_per_useful": (("up_kb", "down_kb"), "useful"),
    "j_per_useful": (("radio_j",), "useful"),
}
"""Ratios that a run may lack, with nothing to divide by: summed measures, and the divisor."""


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Scoreboard(Displayed):
    """Measures of systems on several tasks and seeds.

    Parameters
    ----------
    runs : pandas.DataFrame
        One row per (task, system, seed), with ``wanted_count``, ``digest`` (equal for all systems) and each
        of :data:`MEASURES`.
    privacy : pandas.DataFrame
        One row per (task, system, party) of the first seed: what parties learnt from what they held, see
        :func:`~mudkit.experiment.knowledge`. Empty if it was not kept.
    baseline : str
        The system that the others are compared with.
    devices, disclosures, latencies : pandas.DataFrame
        The same, of the first seed: :func:`by_device`, :func:`disclosures`, and the ``latency_s`` of each
        useful delivery, with ``task`` and ``system`` before them. Empty if it was not kept.
    deliveries, bills : pandas.DataFrame
        Of all seeds, with ``task, system, seed`` before them: ``device, item, fate, latency_s`` of each item
        that a phone wanted, or got without wanting it (``unwanted``); ``device, up_kb, down_kb, radio_j``.
    """

    runs: pd.DataFrame
    privacy: pd.DataFrame
    baseline: str
    devices: pd.DataFrame
    disclosures: pd.DataFrame
    latencies: pd.DataFrame
    deliveries: pd.DataFrame
    bills: pd.DataFrame

    def _view(self) -> View:
        facts = {
            "tasks": words.listing(self.tasks, 4),
            "systems": words.listing(self.systems, 8),
            "seeds": int(self.runs["seed"].nunique()),
            "runs": len(self.runs),
        }
        return View("Scoreboard", facts, notes=["table(task) has a row for each system."])

    @property
    def systems(self) -> list[str]:
        """The systems, in the order in which they entered."""
        return list(dict.fromkeys(self.runs["system"]))

    @property
    def tasks(self) -> list[str]:
        """The tasks, in their order."""
        return list(dict.fromkeys(self.runs["task"]))

    def measures(self, task: str, confidence: float = 0.95) -> pd.DataFrame:
        """Return a task's measures: ``system, measure, mean, low, high, seeds``.

        The mean of a ratio is that of all seeds together (:data:`RATIOS`): a seed without a useful delivery
        has no cost per delivery of its own, and what it took counts all the same. ``confidence`` is that of
        the intervals, as in :meth:`Comparison.differences`. An unknown ``task`` raises a ParameterError.
        """
        import pandas as pd

        rows = []
        for system, runs in self._of(task).groupby("system", sort=False):
            for measure in MEASURES:
                result = _interval(runs, measure, confidence)
                seeds = int(runs[measure].notna().sum())
                rows.append((system, measure, result.value, result.low, result.high, seeds))
        return pd.DataFrame(rows, columns=["system", "measure", "mean", "low", "high", "seeds"])

    def table(self, task: str, measures: Sequence[str] = tuple(MEASURES)) -> pd.DataFrame:
        """Return one row per system and one column for each of ``measures``, means as of :meth:`measures`."""
        import pandas as pd

        runs = dict(list(self._of(task).groupby("system", sort=False)))
        rows = [[_mean(runs[system], measure) for measure in measures] for system in self.systems]
        index = pd.Index(self.systems, name="system")
        return pd.DataFrame(rows, columns=list(measures), index=index)

    def differences(self, task: str, confidence: float = 0.95) -> pd.DataFrame:
        """Return each system's differences from the baseline, paired by seed; see :class:`Comparison`."""
        runs = self._of(task)[["system", "seed", *MEASURES]]
        return Comparison(runs, self.baseline).differences(confidence)

    def pareto(self, task: str, gain: str = "useful_share", cost: str = "j_per_useful") -> pd.DataFrame:
        """Return ``system``, a gain, a cost, and ``is_best``: on the Pareto front of both."""
        return pareto_front(self.table(task, [gain, cost]).reset_index(), gain, cost)

    @cached_property
    def _by_task(self) -> dict[str, pd.DataFrame]:
        """Rows of the runs by task."""
        return {str(task): runs for task, runs in self.runs.groupby("task", sort=False)}

    def _of(self, task: str) -> pd.DataFrame:
        """Return the runs of a task; ParameterError if it is not on the scoreboard."""
        one_of("task", task, self.tasks, "This task is not on the scoreboard.")
        return self._by_task[task]


@check_arguments(types=False)
def scoreboard(
    tasks: Iterable[Task],
    systems: Mapping[str, Callable[[Testbed], Adapter]] = ADAPTERS,
    seeds: Iterable[int] = range(3),
    *,
    privacy: bool = True,
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002 - the name of what it stands for
) -> Scoreboard:
    """Run systems on tasks, each with the same seeds.

    Parameters
    ----------
    tasks : iterable of Task
    systems : mapping of str to callable
        The systems by name; the first is the baseline.
    seeds, map
        As for :func:`compare`; ``map`` spreads single runs.
    privacy : bool
        Whether the runs of the first seed keep what each party held.

    Raises
    ------
    ParameterError
        There is no task, system or seed, one is given twice, or what is given is none.
    SimulationProblem
        Two systems were not given the same: one has changed what all depend on.
    """
    import pandas as pd

    todo = _each_once("tasks", tasks, "[NEWS, WARD]", Task)
    _check_systems(systems)
    numbers = _check_seeds(seeds)
    work = [
        (task, make, name, seed, privacy and seed == numbers[0])
        for task in todo
        for name, make in systems.items()
        for seed in numbers
    ]
    scored = _spread(_score_run, work, map)
    kept = {name: [tables[name] for _, tables in scored if name in tables] for name in (*_OF_ALL, *_OF_FIRST)}
    runs = pd.DataFrame([measures for measures, _ in scored])
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
        name: pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        for name, tables in kept.items()
    }
    return Scoreboard(runs, baseline=next(iter(systems)), **frames)


def _mean(runs: pd.DataFrame, measure: str) -> float:
    """Return the mean of a measure over seeds; a ratio is that of all of them together."""
    if measure not in RATIOS:
        return float(runs[measure].mean())
    return _interval(runs, measure, 0.95).value


def _interval(runs: pd.DataFrame, measure: str, confidence: float) -> intervals.Interval:
    """Return the mean of a measure over seeds, or the ratio of all of them together, with its interval."""
    if measure not in RATIOS:
        return intervals.mean(runs[measure], confidence)
    parts, whole = RATIOS[measure]
    result = intervals.ratio(runs[list(parts)].sum(axis=1), runs[whole], confidence)
    has_interval = int((runs[whole] > 0).sum()) > 1
    return result if has_interval else replace(result, low=math.nan, high=math.nan)


_OF_ALL: Final = ("deliveries", "bills")
"""Tables of a scoreboard that each run has."""
_OF_FIRST: Final = ("privacy", "devices", "disclosures", "latencies")
"""Tables of a scoreboard that the runs of the first seed have."""


def _score_run(
    what: tuple[Task, Callable[[Testbed], Adapter], str, int, bool],
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Return the measures of a run, and its tables; those of what parties held if it keeps that."""
    task, make, name, seed, record_exposure = what
    entry = run(task, make, seed, name=name, record_messages=False, record_exposure=record_exposure)
    key = {"task": task.name, "system": name}
    measures = {
        **key,
        "seed": seed,
        "wanted_count": entry.testbed.wanted_count,
        "digest": entry.digest,
        **entry.measures(),
    }
    kept = dict(zip(_OF_ALL, (fates(entry), phone_bills(entry)), strict=True))
    tables = {name: _marked(table, **key, seed=seed) for name, table in kept.items()}
    if record_exposure:
        useful = entry.deliveries.loc[entry.deliveries["status"] == "read", ["latency_s"]]
        kept = dict(
            zip(_OF_FIRST, (knowledge(entry), by_device(entry), disclosures(entry), useful), strict=True)
        )
        tables |= {name: _marked(table, **key) for name, table in kept.items()}
    return measures, tables


def _marked(table: pd.DataFrame, **key: Any) -> pd.DataFrame:
    """Return a table with the columns of a key before its own."""
    return table.assign(**key)[[*key, *table.columns]]


GAINS: Final = frozenset({"useful", "useful_share", "battery_h"})
"""Measures of which more is better; of all others less is."""

LABELS: Final[Mapping[str, str]] = {name: words.axis_title(name) for name in MEASURES}
"""Axis titles of the measures, with units."""


@check_arguments(types=False)
def pareto_front(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return which systems are on the Pareto front of two measures.

    Parameters
    ----------
    table : pandas.DataFrame
        A table with ``system``, a row each, and both measures.
    x, y : str
        Two of :data:`LABELS`.

    Returns
    -------
    pandas.DataFrame
        ``system``, both measures, and ``is_best``: no other is at least as good in both, and better in one.
        What has no value is never among the best.

    Raises
    ------
    ParameterError
        The table lacks one, or there is no such measure, or both are the same.
    """
    missing = [name for name in ("system", x, y) if name not in table.columns]
    unknown = [name for name in (x, y) if name not in LABELS]
    if missing or unknown or x == y:
        raise ParameterError(
            "These are no two measures of the table.",
            where="x, y",
            found=f"{x}, {y}",
            expected="two of " + ", ".join(name for name in LABELS if name in table.columns),
        )
    points = table[["system", x, y]].reset_index(drop=True)
    values = [points[name] if name in GAINS else -points[name] for name in (x, y)]
    places = list(zip(*values, strict=True))
    points["is_best"] = [
        not any(map(math.isnan, place))
        and not any(other != place and other[0] >= place[0] and other[1] >= place[1] for other in places)
        for place in places
    ]
    return points
