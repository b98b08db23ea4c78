"""Many runs: over values of parameters, and over seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mudkit.errors import ParameterError
from mudkit.progress import bar
from mudkit.systems.lasthop.simulation import simulate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["sweep"]


def sweep(
    over: Mapping[str, Sequence[Any]],
    fixed: Mapping[str, Any] | None = None,
    seeds: Iterable[int] = range(10),
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002 - the name of the API
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
        For instance ``pipeline.spread(spark)``.

    Returns
    -------
    DataFrame
        A row a run: the values, ``seed``, ``waste``, ``loss``, ``forwarded``, ``read``.

    Raises
    ------
    ParameterError
        A value cannot be used, or there is nothing to run.
    """
    import pandas as pd

    names = list(over)
    seeds = list(seeds)
    fixed = dict(fixed or {})
    if twice := set(names) & set(fixed):
        raise ParameterError(
            "A parameter is either fixed or swept over.", where=", ".join(sorted(twice)), found="both"
        )
    points = [
        dict(zip(names, values, strict=True)) | {"seed": seed}
        for values in itertools.product(*over.values())
        for seed in seeds
    ]
    if not points:
        counts = [f"{len(values)} of {name}" for name, values in over.items()]
        raise ParameterError(
            "There is nothing to run.", where="over, seeds", expected="at least one of each",
            found=", ".join([*counts, f"{len(seeds)} seeds"]),
        )  # fmt: skip
    rows = []
    with bar(len(points), "runs", "") as done:
        for point, figures in zip(points, map(partial(_run, fixed), points), strict=True):
            rows.append(point | figures)
            done(len(rows))
    return pd.DataFrame(rows)


def _run(fixed: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    run = simulate(**fixed, **point)
    return {"waste": run.waste, "loss": run.loss, "forwarded": run.forwarded, "read": run.read}
