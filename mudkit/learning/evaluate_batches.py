"""Policies for writes side by side, by the measures of Mobius 7.3: messages, points, reads that miss any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.batching import Batch, BatchBound, BatchLearner, BatchPolicy
from mudkit.learning.writes import Asked, Writes, batches, missed
from mudkit.sources.parameters import whole_number
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["bound_us", "evaluate_writes", "trained_on"]

_TENTHS = 10
_US_PER_DAY = 86_400 * US_PER_S
_MEASURES = ("message_share", "point_share", "missed_share")


def evaluate_writes(
    firsts: Any,
    positions: Any,
    reads: Any,
    policies: Sequence[BatchPolicy | BatchLearner | BatchBound],
    *,
    folds: str = "device",
    turns: int = 3,
) -> pd.DataFrame:
    """Replay policies for writes: 10 % are learnt from, the other 90 % tested on (Mobius 7.3).

    Parameters
    ----------
    firsts, positions, reads : pyarrow.Table or Spark DataFrame
        As ``pipeline.label_writes`` gives them, and the positions and reads that it was given.
    policies : sequence
        :class:`~mudkit.learning.Batch`, :class:`~mudkit.learning.BatchTree`,
        :class:`~mudkit.learning.BatchBound`.
    folds : {'device', 'time'}
        ``device``: a tenth of the devices, another in each turn. ``time``: the first tenth of the days, in
        one turn. Of either two at least.
    turns : int
        From 1 to 10.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, writes, reads`` (of one turn's test), ``message_share`` and
        ``point_share`` (messages and points that are sent, of the points written), ``missed_share`` (reads
        that miss at least one point, of all reads), each the mean over turns, and for each ``…_low`` and
        ``…_high``, the 95 % confidence interval (Student's t over turns, which share what is tested on, so
        it is too narrow; NaN with fewer than two). Writes that are learnt from come at once in the test.

    Raises
    ------
    ParameterError, TraceContentError
    """
    if folds not in ("device", "time"):
        raise ParameterError(
            "There are no such folds.", where="folds", found=repr(folds), expected="device or time"
        )
    turns = whole_number("turns", turns, 1, _TENTHS)
    writes, asked = Writes.of(firsts, positions), Asked.of(reads)
    by, shares = ("device" if folds == "device" else "day"), []
    for learnt_from in _parts(writes, folds, turns):
        test = writes.take(~learnt_from)
        train = writes.take(learnt_from)
        shares.append([_shares(policy, train, test, asked, by) for policy in policies])
    found = np.array(shares)  # turns, policies, measures
    mean, half = found.mean(axis=0), np.full(found.shape[1:], np.nan)
    if len(found) > 1:
        from scipy import stats  # loading it takes longer than loading all of mudkit

        half = stats.t.ppf(0.975, len(found) - 1) * found.std(axis=0, ddof=1) / np.sqrt(len(found))
    rows = []
    for number, policy in enumerate(policies):
        row = {"policy": str(policy), "writes": len(test.t_us), "reads": len(asked.table)}
        for i, name in enumerate(_MEASURES):
            low, high = np.clip([mean[number, i] - half[number, i], mean[number, i] + half[number, i]], 0, 1)
            row |= {name: mean[number, i], f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    import pandas as pd  # loading it takes longer than loading all of mudkit

    return pd.DataFrame(rows)


def trained_on(writes: Writes, turn: int = 0) -> NDArray[np.bool_]:
    """Choose a tenth of the devices to learn from, another in each turn; two at least.

    Raises
    ------
    TraceContentError
        There are fewer than four devices.
    """
    devices = np.unique(writes.device)
    parts = min(_TENTHS, len(devices) // 2)  # one device alone would tell nothing about another
    if parts < 2:
        raise _too_few("devices", len(devices), 4)
    return np.isin(writes.device, devices[turn % parts :: parts])


def _parts(writes: Writes, folds: str, turns: int) -> list[NDArray[np.bool_]]:
    """Choose what is learnt from, in each turn."""
    if folds == "device":
        return [trained_on(writes, turn) for turn in range(turns)]
    day = writes.t_us // _US_PER_DAY
    days = np.unique(day)
    parts = min(_TENTHS, len(days) // 2)
    if parts < 2:
        raise _too_few("days", len(days), 4)
    return [np.isin(day, days[: len(days) // parts])]


def _shares(
    policy: BatchPolicy | BatchLearner | BatchBound, train: Writes, test: Writes, asked: Asked, by: str
) -> list[float]:
    if isinstance(policy, BatchBound):
        due_us = bound_us(policy.match, test, asked)
    else:
        decider = policy.learn(train, asked, by) if isinstance(policy, BatchLearner) else policy
        due_us = decider.due_us(test)
    sent = batches(test, due_us)
    count = len(test.t_us)
    missing = missed(test, sent.sent_us, asked)
    return [sent.messages / count, sent.points / count, float(missing.mean())]


def bound_us(match: Batch | None, test: Writes, asked: Asked) -> NDArray[np.int64]:
    """Tell when a :class:`~mudkit.learning.BatchBound` sends each write."""
    if match is None:
        return test.first_us
    given_up = missed(test, batches(test, match.due_us(test)).sent_us, asked)
    return test.but_for(asked.but_for(given_up)).first_us


def _too_few(what: str, found: int, needed: int) -> TraceContentError:
    return TraceContentError(
        f"There are too few {what} to learn from some and test on others.",
        found=f"{found} {what}",
        expected=f"{needed} at least",
        remedy="take a longer trace, or more devices",
    )
