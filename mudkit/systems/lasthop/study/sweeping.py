"""Many runs: sweeps over parameters, the paper's figures as sweeps, and policies under several conditions."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.checks import Range, check_arguments, one_of
from mudkit.errors import ParameterError
from mudkit.progress import bar
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.study.scenario import Drawn, Expiration
from mudkit.systems.lasthop.study.simulation import (
    Map,
    Parameter,
    Simulated,
    play,
    play_best,
    read_limit,
    readable_ids,
    simulate,
    spool_factory,
)
from mudkit.wire import Value

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")

HOUR_S: Final = 3600.0
_OUTAGES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
_TIMES_S: Final = tuple(float(4**power) for power in range(2, 10))
"""From 16 seconds to 3 days."""


class Sweep(TypedDict):
    """Parameters of the runs of a figure."""

    over: dict[str, Sequence[Parameter]]
    fixed: dict[str, Parameter]


FIGURES: Final[dict[int, Sweep]] = {
    1: {
        "over": {
            "max": [2**power for power in range(7)],
            "user_frequency": [2.0**power for power in range(-2, 6)],
        },
        "fixed": {"policy": "on-line"},
    },
    2: {
        "over": {
            "outage": [*_OUTAGES, 0.98, 0.99, 1.0],
            "user_frequency": [2.0**power for power in range(-2, 6)],
        },
        "fixed": {"policy": "on-demand"},
    },
    3: {
        "over": {"prefetch_limit": [2**power for power in range(15)], "outage": list(_OUTAGES)},
        "fixed": {"policy": "buffer"},
    },
    4: {
        "over": {"expiration": list(_TIMES_S), "user_frequency": [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]},
        "fixed": {"max": None, "policy": "on-line"},
    },
    5: {
        "over": {"expiration": list(_TIMES_S), "user_frequency": [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]},
        "fixed": {"max": None, "outage": 0.95, "policy": "on-demand"},
    },
    6: {
        "over": {
            "expiration_threshold_s": [HOUR_S * 2.0**power for power in range(-6, 8)],
            # Five values between 4.2 hours and 5.7 days, as in the paper.
            "expiration": [HOUR_S * hours for hours in (4.2, 10.0, 24.0, 57.3, 136.8)],
        },
        # The limit is out of reach: everything that passes the threshold is prefetched.
        "fixed": {"max": None, "outage": 0.9, "policy": "buffer", "prefetch_limit": 1_000_000},
    },
}
"""Arguments of :func:`~mudkit.systems.lasthop.simulate_grid` for each figure (Last hop 4.2, 4.3):
``simulate_grid(**FIGURES[3])``.

The defaults of ``simulate`` apply: 32 messages and 2 reads of at most 8 a day, 12 outages a day, one year.
"""

_PARAMETERS = inspect.signature(simulate).parameters
_OF_POLICIES: Final = ("policy", "prefetch_limit", "expiration_threshold_s")


@check_arguments
def simulate_grid(
    over: Mapping[str, Sequence[Parameter]],
    fixed: Mapping[str, Parameter] | None = None,
    seeds: Iterable[int] = range(10),
    map: Map = map,  # noqa: A002 - the name of the API
) -> pd.DataFrame:
    """Run :func:`simulate` for all combinations of values, with each seed.

    Parameters
    ----------
    over : mapping of str to sequence
        Values by name of the parameter.
    fixed : mapping, optional
        The other parameters.
    seeds, map
        As for :func:`compare_policies`.

    Returns
    -------
    DataFrame
        One row per run: the values, ``seed``, ``waste``, ``loss``, ``forwarded``, ``read`` and ``best``
        (number of messages read under the on-line policy). ``attrs["parameters"]`` has what a figure has to
        state: the values that all runs share, those swept over, and the seeds.

    Raises
    ------
    ParameterError
        A value cannot be used, or there is nothing to run.

    Examples
    --------
    >>> fixed = {"policy": "on-line", "user_frequency": 1, "days": 30}
    >>> table = simulate_grid({"max": [4, 32]}, fixed, seeds=[1, 2])
    >>> list(table.columns)
    ['max', 'seed', 'waste', 'loss', 'forwarded', 'read', 'best']
    """
    import pandas as pd

    others = dict(fixed or {})
    values = {name: list(given) for name, given in over.items()}
    numbers = list(seeds)
    _check_names(values, others)
    points = [
        dict(zip(values, point, strict=True)) | {"seed": seed}
        for point in itertools.product(*values.values())
        for seed in numbers
    ]
    if not points:
        counts = [f"{len(given)} of {name}" for name, given in values.items()]
        raise ParameterError(
            "There is nothing to run.",
            where="over, seeds",
            expected="at least one of each",
            found=", ".join([*counts, f"{len(numbers)} seeds"]),
        )
    # Consecutive runs that differ only in the policy share events and best service (a cache of simulate).
    order = sorted(range(len(points)), key=lambda index: _events_key(points[index]))
    by_number: dict[int, dict[str, Parameter]] = {}
    with bar(len(points), "runs", "") as done:
        runs = map(partial(_run_point, others), [points[index] for index in order])
        for index, figures in zip(order, runs, strict=True):
            by_number[index] = {**points[index], **figures}
            done(len(by_number))
    table = pd.DataFrame([by_number[index] for index in range(len(points))])
    defaults = {name: parameter.default for name, parameter in _PARAMETERS.items() if name != "seed"}
    stated: dict[str, Parameter] = {
        **{name: _plain_value(value) for name, value in {**defaults, **others}.items()},
        **{name: [_plain_value(value) for value in listed] for name, listed in values.items()},
    }
    table.attrs["parameters"] = {**stated, "seeds": numbers}
    return table


def _events_key(point: Mapping[str, Parameter]) -> str:
    """Return a text that is equal for runs on the same events, as a key for sorting."""
    return repr([value for name, value in point.items() if name not in _OF_POLICIES])


def _run_point(fixed: Mapping[str, Parameter], point: Mapping[str, Parameter]) -> dict[str, float]:
    """Run :func:`simulate` for one point of the grid, and return its figures."""
    checked: Callable[..., Simulated] = simulate  # simulate checks the kinds
    run = checked(**fixed, **point)
    return {
        "waste": run.waste,
        "loss": run.loss,
        "forwarded": run.forwarded,
        "read": run.read,
        "best": len(run.online.read_ids),
    }


def _check_names(over: Iterable[str], fixed: Iterable[str]) -> None:
    """Raise ParameterError if a parameter is unknown, a seed, or both fixed and swept over."""
    known = [parameter for parameter in _PARAMETERS if parameter != "seed"]
    for name in (*over, *fixed):
        if name == "seed":
            raise ParameterError(
                "Seeds are no parameter of the runs.", where="seed", found="seed", expected="seeds=range(10)"
            )
        one_of("over, fixed", name, known, "There is no such parameter.")
    if twice := sorted(set(over) & set(fixed)):
        raise ParameterError(
            "A parameter is either fixed or swept over.",
            where=", ".join(twice),
            found="both",
            expected="one of them",
        )


def _plain_value(value: Parameter) -> Value:
    """Convert a parameter to a value that a table can be stored with."""
    if isinstance(value, Forwarding | Push | Outages | Expiration):
        return asdict(value)
    return value


class Drawable(Protocol):
    """Source of the events of a run, such as a :class:`~mudkit.systems.lasthop.Scenario`."""

    def draw(self, seed: int) -> Drawn:
        """Draw all events of a seed."""


@check_arguments
@dataclass(frozen=True)
class RecordedEvents:
    """Recorded events, numbered from 0 instead of drawn by a seed.

    Parameters
    ----------
    draws : sequence of Drawn
    """

    draws: Sequence[Drawn]

    def draw(self, seed: int) -> Drawn:
        """Return the recorded events with the number ``seed``."""
        return self.draws[seed]


@check_arguments
def compare_policies(
    conditions: Mapping[str, Drawable],
    policies: Mapping[str, Forwarding | Push],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: Annotated[float, Range(-1e9, 1e9)] = 0.0,
    seeds: Iterable[int] = range(10),
    map: Map = map,  # noqa: A002 - the name of the API
) -> pd.DataFrame:
    """Run policies under conditions; all policies see the same events of a condition and seed.

    Parameters
    ----------
    conditions : mapping of str to Scenario or RecordedEvents
    policies : mapping of str to Forwarding or Push
    max : int or None
        Messages per read; None: unlimited.
    threshold : float
        Lowest acceptable rank.
    seeds : iterable of int
    map : callable
        Maps the runs: ``pipeline.spread(spark)``, or the ``map`` of a pool of processes.

    Returns
    -------
    pandas.DataFrame
        ``condition, policy, runs``, and for ``waste`` and ``loss`` the mean over the seeds with its 95 %
        interval (bootstrap; the range below five seeds; NaN with one) as ``…_low`` and ``…_high``.

    Raises
    ------
    ParameterError
        There is nothing to run.
    """
    import pandas as pd

    numbers, max_messages = list(seeds), read_limit(max)
    if not (conditions and policies and numbers):
        raise ParameterError(
            "There is nothing to run.",
            where="conditions, policies, seeds",
            expected="at least one of each",
            found=f"{len(conditions)} conditions, {len(policies)} policies, {len(numbers)} seeds",
        )
    plan = [(name, conditions[name], seed) for name in conditions for seed in numbers]
    rows: list[dict[str, str | float]] = []
    with bar(len(plan), "runs", "") as done:
        for of_run in map(partial(_run_condition, dict(policies), max_messages, threshold), plan):
            rows += of_run
            done(len(rows) // len(policies))
    runs = pd.DataFrame(rows)
    measures = []
    for names, table in runs.groupby(["condition", "policy"], sort=False):
        row: dict[str, Hashable] = dict(zip(("condition", "policy"), names, strict=True)) | {
            "runs": len(table)
        }
        for measure in ("waste", "loss"):
            row |= interval(measure, table[measure].to_numpy())
        measures.append(row)
    return pd.DataFrame(measures)


def interval(measure: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean over the seeds with its interval (:func:`mudkit.intervals.mean`)."""
    result = intervals.mean(values)
    return {measure: result.value, f"{measure}_low": result.low, f"{measure}_high": result.high}


def _run_condition(
    policies: Mapping[str, Forwarding | Push],
    max_messages: float,
    threshold: float,
    plan: tuple[str, Drawable, int],
) -> list[dict[str, str | float]]:
    """Run all policies on the events of a condition and seed; return a row for each."""
    name, condition, seed = plan
    drawn = condition.draw(seed)
    online = play_best(drawn, threshold, max_messages)
    readable = readable_ids(drawn, online, threshold, max_messages)
    rows: list[dict[str, str | float]] = []
    for policy, given in policies.items():
        run = Simulated(play(drawn, spool_factory(given, threshold), max_messages), online, {}, readable)
        rows.append({"condition": name, "policy": policy, "waste": run.waste, "loss": run.loss})
    return rows
