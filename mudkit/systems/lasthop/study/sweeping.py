"""Many runs: over values of parameters, and over seeds."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mudkit.errors import ParameterError, brief, did_you_mean
from mudkit.progress import bar
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.study.scenario import Expiration
from mudkit.systems.lasthop.study.simulation import Map, Parameter, Simulated, simulate
from mudkit.wire import Value

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["sweep"]

_T = TypeVar("_T")

_PARAMETERS = inspect.signature(simulate).parameters
_OF_POLICIES: Final = ("policy", "prefetch_limit", "expiration_threshold_s")


def sweep(
    over: Mapping[str, Sequence[Parameter]],
    fixed: Mapping[str, Parameter] | None = None,
    seeds: Iterable[int] = range(10),
    map: Map = map,  # noqa: A002 - the name of the API
) -> pd.DataFrame:
    """Run :func:`simulate` for all combinations of values, with each seed.

    Parameters
    ----------
    over : mapping of str to sequence
        Values, by name of the parameter.
    fixed : mapping, optional
        The other parameters.
    seeds : iterable of int
    map : callable
        What spreads the runs, for instance ``pipeline.spread(spark)``, or the ``map`` of a pool of processes.

    Returns
    -------
    DataFrame
        A row a run: the values, ``seed``, ``waste``, ``loss``, ``forwarded``, ``read`` and ``best``, which is
        how many the on-line policy has had read. Its ``attrs["parameters"]`` are what a figure has to state:
        the values that all runs share, those that were swept over, and the seeds.

    Raises
    ------
    ParameterError
        A value cannot be used, or there is nothing to run.

    Examples
    --------
    >>> table = sweep({"max": [4, 32]}, {"policy": "on-line", "user_frequency": 1, "days": 30}, seeds=[1, 2])
    >>> list(table.columns)
    ['max', 'seed', 'waste', 'loss', 'forwarded', 'read', 'best']
    """
    import pandas as pd

    others = dict(fixed or {})
    values = {name: _listed(name, given) for name, given in over.items()}
    numbers = _listed("seeds", seeds)
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
    # Runs that differ in the policy only, one after the other: they share their events and the best service.
    order = sorted(range(len(points)), key=lambda each: _scenario(points[each]))
    by_number: dict[int, dict[str, Parameter]] = {}
    with bar(len(points), "runs", "") as done:
        runs = map(partial(_run, others), [points[each] for each in order])
        for each, figures in zip(order, runs, strict=True):
            by_number[each] = {**points[each], **figures}
            done(len(by_number))
    table = pd.DataFrame([by_number[each] for each in range(len(points))])
    defaults = {name: each.default for name, each in _PARAMETERS.items() if name != "seed"}
    stated: dict[str, Parameter] = {
        **{name: _plain(value) for name, value in {**defaults, **others}.items()},
        **{name: [_plain(each) for each in listed] for name, listed in values.items()},
    }
    table.attrs["parameters"] = {**stated, "seeds": numbers}
    return table


def _scenario(point: Mapping[str, Parameter]) -> str:
    """Name the events of a run."""
    return repr([value for name, value in point.items() if name not in _OF_POLICIES])


def _run(fixed: Mapping[str, Parameter], point: Mapping[str, Parameter]) -> dict[str, float]:
    checked: Callable[..., Simulated] = simulate  # it checks the kinds of parameters itself
    run = checked(**fixed, **point)
    return {
        "waste": run.waste,
        "loss": run.loss,
        "forwarded": run.forwarded,
        "read": run.read,
        "best": len(run.online.read_ids),
    }


def _listed(name: str, given: Iterable[_T]) -> list[_T]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ParameterError(
            "Values to run over are several.", where=name, found=brief(given), expected="a list, as [1, 2, 4]"
        )
    return list(given)


def _check_names(over: Iterable[str], fixed: Iterable[str]) -> None:
    for name in (*over, *fixed):
        if name == "seed":
            raise ParameterError(
                "Seeds are no parameter of the runs.", where="seed", found="seed", expected="seeds=range(10)"
            )
        if name not in _PARAMETERS:
            raise ParameterError(
                "There is no such parameter.",
                where="over, fixed",
                found=brief(name),
                expected=", ".join(each for each in _PARAMETERS if each != "seed"),
                remedy=did_you_mean(name, _PARAMETERS),
            )
    if twice := sorted(set(over) & set(fixed)):
        raise ParameterError(
            "A parameter is either fixed or swept over.",
            where=", ".join(twice),
            found="both",
            expected="one of them",
        )


def _plain(value: Parameter) -> Value:
    """Give what a table may be stored with."""
    if isinstance(value, Forwarding | Push | Outages | Expiration):
        return asdict(value)
    return value
