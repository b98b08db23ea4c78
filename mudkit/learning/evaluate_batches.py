"""Compare policies for writes: messages, points, reads that miss any (Mobius 7.3), bytes and energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.batching import Batch, BatchBound, BatchLearner, BatchPolicy
from mudkit.learning.measures import Measures, changes, shares
from mudkit.learning.radio import RadioModel
from mudkit.learning.trees import Folds, Groups, check_folds
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, missed
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

_TENTHS = 10
_TURNS = 3
_US_PER_DAY = 86_400 * US_PER_S
_MEASURES = ("message_share", "point_share", "missed_share", "bytes", "radio_mj")


@check_arguments(types=False)
def evaluate_writes(
    first_reads: Any,
    positions: Any,
    reads: Any,
    policies: Sequence[BatchPolicy | BatchLearner | BatchBound],
    *,
    folds: Folds = "device",
    repeats: Annotated[int, Range(1, _TENTHS)] = _TURNS,
    radio: RadioModel | None = None,
    completeness: float | None = None,
) -> pd.DataFrame:
    """Replay policies for writes: 10 % are learnt from, the other 90 % tested on (Mobius 7.3).

    Parameters
    ----------
    first_reads, positions, reads : pyarrow.Table or Spark DataFrame
        The result of ``pipeline.label_writes``, and the positions and reads that it was given.
    policies : sequence
        :class:`~mudkit.learning.Batch`, :class:`~mudkit.learning.BatchTree`,
        :class:`~mudkit.learning.BatchBound`.
    folds : {'device', 'time'}
        ``device``: a tenth of the devices, another in each turn. ``time``: the first tenth of the days, in
        one turn. Of either two at least.
    repeats : int
        Number of turns, from 1 to 10.
    radio : RadioModel, optional
        Radio that carries the messages and nothing else; by default LTE.
    completeness : float, optional
        Share of its answer's points, above 0 and at most 1, without which a read misses writes; by default it
        does when it lacks one point (Mobius 7.3), as with 1. What its device wrote itself is part of the
        answer, and never lacking.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, writes, reads`` (of one turn's test), ``message_share`` and
        ``point_share`` (messages and points that are sent, of the points written), ``missed_share`` (reads
        that miss points of other devices: see ``completeness``), ``bytes`` and ``radio_mj`` (of a point
        written), each the mean over turns; for each ``…_low`` and ``…_high``, the range over turns (from
        five on the 95 % interval, too narrow because tests overlap; NaN with fewer than two), and
        ``…_change, …_change_low, …_change_high``, its difference from the last :class:`Batch` (NaN without
        one). Writes that are learnt from come at once in the test.

    Raises
    ------
    ParameterError, TraceContentError
    """
    check_folds(folds)
    _check_completeness(completeness, policies)
    writes, requests = Writes.of(first_reads, positions), ReadRequests.of(reads)
    if completeness is not None:
        requests = requests.counted(writes)
    return measure_writes(writes, requests, policies, folds, completeness, repeats, radio)


def measure_writes(
    writes: Writes,
    requests: ReadRequests,
    policies: Sequence[BatchPolicy | BatchLearner | BatchBound],
    folds: Folds,
    completeness: float | None,
    repeats: int = _TURNS,
    radio: RadioModel | None = None,
) -> pd.DataFrame:
    """Compare policies as :func:`evaluate_writes` does, on writes and requests that are prepared.

    With a `completeness`, the points of the requests are counted. Nothing is checked.
    """
    carried = RadioModel() if radio is None else radio
    by: Groups = "device" if folds == "device" else "day"
    measured = []
    for learnt_from in _parts(writes, folds, repeats):
        train = writes.take(learnt_from)
        is_tested = ~learnt_from
        measured.append(
            [
                _shares(policy, train, writes, is_tested, requests, by, carried, completeness)
                for policy in policies
            ]
        )
    of_turns = np.array(measured)  # turns, policies, measures
    measures = [Measures(of_turns[:, i].mean(axis=0), of_turns[:, i]) for i in range(len(policies))]
    delays = [
        measured_ for measured_, policy in zip(measures, policies, strict=True) if isinstance(policy, Batch)
    ]
    baseline = delays[-1] if delays else None
    rows = [
        {"policy": str(policy), "writes": int(is_tested.sum()), "reads": len(requests.table)}
        | shares(measured_, _MEASURES)
        | changes(measured_, baseline, _MEASURES)
        for policy, measured_ in zip(policies, measures, strict=True)
    ]
    import pandas as pd  # loading it takes longer than loading all of mudkit

    return pd.DataFrame(rows)


def trained_on(writes: Writes, turn: int = 0) -> NDArray[np.bool_]:
    """Choose a tenth of the devices to learn from, another in each turn; two at least."""
    devices = np.unique(writes.device)
    parts = min(_TENTHS, len(devices) // 2)  # one device alone would tell nothing about another
    if parts < 2:
        raise too_few("devices", len(devices), 4)
    return np.isin(writes.device, devices[turn % parts :: parts])


def _parts(writes: Writes, folds: Folds, repeats: int) -> list[NDArray[np.bool_]]:
    """Choose what is learnt from, in each turn."""
    if folds == "device":
        return [trained_on(writes, turn) for turn in range(repeats)]
    day = writes.t_us // _US_PER_DAY
    days = np.unique(day)
    parts = min(_TENTHS, len(days) // 2)
    if parts < 2:
        raise too_few("days", len(days), 4)
    return [np.isin(day, days[: len(days) // parts])]


def _shares(
    policy: BatchPolicy | BatchLearner | BatchBound,
    train: Writes,
    writes: Writes,
    is_tested: NDArray[np.bool_],
    requests: ReadRequests,
    by: Groups,
    radio: RadioModel,
    completeness: float | None,
) -> list[float]:
    """Replay a policy for the tested writes; the others come at once. A part of the devices is in memory."""
    if isinstance(policy, BatchLearner):
        policy = policy.learn(train, requests, by, completeness)
    due_us = _due(policy, writes, is_tested, requests)
    sent_us = writes.t_us.copy()
    spent = np.zeros(4)  # messages, points, bytes, energy
    for rows in writes.parts():
        part = writes.take(rows).take(is_tested[rows])
        sent = batches(part, due_us(part, rows))
        sent_us[rows][is_tested[rows]] = sent.sent_us
        taken = radio.messages(*_contents(part, sent.sent_us))
        spent += [sent.messages, sent.points, taken.bytes.sum(), taken.radio_mj.sum()]
    messages, points, *of_radio = (spent / np.count_nonzero(is_tested)).tolist()
    return [messages, points, float(missed(writes, sent_us, requests, completeness).mean()), *of_radio]


def _due(
    policy: BatchPolicy | BatchBound, writes: Writes, is_tested: NDArray[np.bool_], requests: ReadRequests
) -> Callable[[Writes, slice], NDArray[np.int64]]:
    """Return the function that says when the tested writes among some rows must be sent."""
    if isinstance(policy, BatchBound):
        bound = np.full(len(is_tested), NEVER_US)
        bound[is_tested] = bound_us(policy.match, writes.take(is_tested), requests)
        return lambda part, rows: bound[rows][is_tested[rows]]
    return lambda part, rows: policy.due_us(part)


def _contents(
    test: Writes, sent_us: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return device, time and number of writes of each message; a device's batches are adjacent."""
    rows = sent_us != NEVER_US
    device, at_us = test.device[rows], sent_us[rows]
    begins = np.ones(len(at_us), dtype=np.bool_)
    begins[1:] = (np.diff(device) != 0) | (np.diff(at_us) != 0)
    first = np.flatnonzero(begins)
    return device[first], at_us[first], np.diff(np.append(first, len(at_us)))


def bound_us(match: Batch | None, test: Writes, requests: ReadRequests) -> NDArray[np.int64]:
    """Return the time at which a :class:`~mudkit.learning.BatchBound` sends each write."""
    if match is None:
        return test.first_us
    given_up = missed(test, batches(test, match.due_us(test)).sent_us, requests)
    return test.seen_by(requests.but_for(given_up)).first_us


def _check_completeness(
    completeness: float | None, policies: Sequence[BatchPolicy | BatchLearner | BatchBound]
) -> None:
    if completeness is None:
        return
    if not 0 < completeness <= 1:
        raise ParameterError(
            "The threshold is not usable.",
            where="completeness",
            found=str(completeness),
            expected="over 0, at most 1",
        )
    if completeness < 1 and any(isinstance(policy, BatchBound) for policy in policies):
        raise ParameterError(
            "There is no bound where a read may miss some points.",
            where="completeness",
            found=f"BatchBound with completeness={completeness:g}",
            expected="no completeness, or 1: one missing point is a miss",
            remedy="leave the bound out, or the completeness",
        )


def too_few(what: str, count: int, needed: int) -> TraceContentError:
    """Return the error for a trace with too few devices, or days."""
    return TraceContentError(
        f"There are too few {what} to learn from some and test on others.",
        found=f"{count} {what}",
        expected=f"{needed} at least",
        remedy="take a longer trace, or more devices",
    )
