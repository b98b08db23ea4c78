"""How the time a record takes grows with the subscriptions: one by one, and with the index."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import ParameterError
from mudkit.predicates import SubscriptionIndex
from mudkit.reproduce.mobius.matching import one_by_one, papers_messages_per_s
from mudkit.reproduce.mobius.workload import Subscription, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PAPER", "WAYS", "growth"]

WAYS: Final = ("one by one", "index, a record at a time", "index, all records at once")
PAPER: Final = "the paper, one by one"

_RUNS: Final = 3
_EVALUATIONS: Final = 100_000
_EXPLAINED: Final = 100


def growth(
    sizes: Sequence[int], *, topics: int = 1000, records: int = 500, seed: int = 1, shape: str = "box"
) -> pd.DataFrame:
    """Match the same kind of records against ever more subscriptions, in each way.

    Parameters
    ----------
    sizes : sequence of int
        The numbers of subscriptions to try.
    topics, seed, shape
        As for :class:`~mudkit.reproduce.mobius.workload.Workload`.
    records : int
        That are matched. One by one only as many of them as take 100,000 evaluations, and one at least.

    Returns
    -------
    DataFrame
        ``subscriptions, way, µs_a_record`` (median of 3 runs), ``looked_at`` (subscriptions a record, mean
        over some records), ``reached`` (those that a record reaches, mean), ``records``, ``agree`` (share of
        the records evaluated one by one for which this way finds the same); also the paper's curve, with
        only the first three.

    Raises
    ------
    ParameterError
        A number is not positive.
    """
    import pandas as pd

    if min(*sizes, topics, records) < 1:
        raise ParameterError(
            "There must be one of each at least.",
            found=f"{list(sizes)}, {topics} topics, {records} records",
            expected="1 or more of each",
        )
    rows: list[dict[str, Any]] = []
    for many in sizes:
        load = Workload(many, topics, seed, shape)
        whole = list(load.draw())
        index = SubscriptionIndex()
        for name, predicate, receiver, auth in whole:
            index.add(name, predicate, receiver=receiver, auth=auth)
        rows += _ways(load, whole, index, records)
        rows.append({"subscriptions": many, "way": PAPER, "µs_a_record": 1e6 / papers_messages_per_s(many)})
    return pd.DataFrame(rows)


def _ways(
    load: Workload, whole: Sequence[Subscription], index: SubscriptionIndex, records: int
) -> list[dict[str, Any]]:
    batch = load.records(records)
    writers = load.writers(batch)
    pairs = list(zip(batch, writers, strict=True))
    few = pairs[: max(1, _EVALUATIONS // len(whole))]
    scanned = statistics.fmean(index.explain(record)["scanned"].sum() for record in batch[:_EXPLAINED])
    calls = (
        (len(whole), len(few), lambda: [one_by_one(whole, *pair) for pair in few]),
        (scanned, records, lambda: [index.match(*pair) for pair in pairs]),
        (scanned, records, lambda: index.match_many(batch, writers)),
    )
    rows: list[dict[str, Any]] = []
    expected: list[list[Any]] = []
    for way, (looked_at, done, call) in zip(WAYS, calls, strict=True):
        us, matches = _timed(call, done)
        expected = expected or matches
        rows.append(
            {
                "subscriptions": len(whole),
                "way": way,
                "µs_a_record": us,
                "looked_at": looked_at,
                "reached": statistics.fmean(map(len, matches)),
                "records": done,
                "agree": statistics.fmean(a == b for a, b in zip(expected, matches, strict=False)),
            }
        )
    return rows


def _timed(call: Callable[[], list[list[Any]]], records: int) -> tuple[float, list[list[Any]]]:
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        matches = call()
        times.append((time.perf_counter() - started) / records * 1e6)
    return statistics.median(times), matches
