"""Compare policies for writes: messages, points, reads that miss any (Mobius 7.3), bytes and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.batching import Batch, BatchBound, BatchLearner, BatchPolicy
from mudkit.learning.devices import (
    COUNTS,
    LATE,
    MAX_LEARNT_WRITES,
    DeviceCounts,
    Fleet,
    Writers,
    count_writes,
    open_writers,
)
from mudkit.learning.measures import Measures, changes, shares, sums_by
from mudkit.learning.radio import RadioModel
from mudkit.learning.trees import Folds, Groups, check_folds
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, late_points, missed
from mudkit.trace.schema import device_ids, epoch_us
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
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
) -> pd.DataFrame:
    """Replay policies for writes: 10 % are learnt from, the other 90 % tested on (Mobius 7.3).

    DataFrames are replayed in Spark's tasks, some devices at a time; this process holds the reads (about 60
    bytes each), a few numbers of each device, and the writes that trees are learnt from. A task gets the
    reads of its times, but for a bound with ``match``. The result is the same as that of Arrow tables.

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
    seed : int
        Which devices of a tenth trees are learnt from: as many as have
        :data:`~mudkit.learning.devices.MAX_LEARNT_WRITES` writes, all of them if there are fewer.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, writes, reads`` (of one turn's test), ``message_share`` and
        ``point_share`` (messages and points that are sent, of the points written), ``missed_share`` (reads
        that miss points of other devices: see ``completeness``), ``bytes`` and ``radio_mj`` (of a point
        written), each the mean over turns; for each ``…_low`` and ``…_high``, the range over turns (from
        five on the 95 % interval, too narrow because tests overlap; NaN with fewer than two), and
        ``…_change, …_change_low, …_change_high``, its difference from the last :class:`Batch` (NaN without
        one); and ``learnt_devices``, from which it was learnt in the last turn (0: nothing is learnt). Writes
        that may be learnt from come at once in the test. ``attrs['sample']`` has the seed, and how many
        devices were drawn of how many.

    Raises
    ------
    ParameterError, TraceContentError
    """
    check_folds(folds)
    _check_completeness(completeness, policies)
    with open_writers(first_reads, positions) as writers:
        requests = ReadRequests.of(reads)
        fleet = Fleet.of(writers.map(count_writes))
        if completeness is not None and completeness < 1:
            requests = with_counted_points(writers, requests)
        study = WriteStudy(writers, fleet, requests, completeness, RadioModel() if radio is None else radio)
        measured = []
        learnt_devices = 0
        turns = draw_turns(fleet, folds, repeats)
        sends_reads = any(isinstance(policy, BatchBound) and policy.match for policy in policies)
        for some in [[turn] for turn in turns] if sends_reads else [turns]:
            learnt = []
            for turn in some:
                of_turn, learnt_devices = study.learn(policies, turn, groups_of(folds), seed)
                learnt.append(of_turn)
            measured += study.measure(learnt, some)
    of_turns = np.array([shares_ for shares_, _ in measured])  # turns, policies, measures
    measures = [Measures(of_turns[:, i].mean(axis=0), of_turns[:, i]) for i in range(len(policies))]
    delays = [
        measured_ for measured_, policy in zip(measures, policies, strict=True) if isinstance(policy, Batch)
    ]
    baseline = delays[-1] if delays else None
    rows = [
        {"policy": str(policy), "writes": measured[-1][1], "reads": len(requests.table)}
        | shares(measured_, _MEASURES)
        | changes(measured_, baseline, _MEASURES)
        | {"learnt_devices": learnt_devices if isinstance(policy, BatchLearner) else 0}
        for policy, measured_ in zip(policies, measures, strict=True)
    ]
    import pandas as pd  # loading it takes longer than loading all of mudkit

    table = pd.DataFrame(rows)
    table.attrs["sample"] = {"seed": seed, "devices": learnt_devices, "of": len(fleet.ids)}
    return table


@dataclass(frozen=True)
class Turn:
    """Writes that are learnt from: those of some devices, by ascending id, before a moment."""

    ids: NDArray[np.int64]
    past_us: int

    def is_learnt(self, writes: Writes) -> NDArray[np.bool_]:
        """Return a mask, True for the writes of the turn's devices before the test begins."""
        of_device = np.isin(device_ids(writes.names.to_pylist()), self.ids)
        return of_device[writes.device] & (writes.t_us < self.past_us)


def groups_of(folds: Folds) -> Groups:
    """Return what the training does not share with the test."""
    return "device" if folds == "device" else "day"


def draw_turns(fleet: Fleet, folds: Folds, repeats: int) -> list[Turn]:
    """Choose what is learnt from, in each turn."""
    if folds == "device":
        numbers = np.arange(len(fleet.ids))
        return [Turn(np.sort(fleet.ids[_tenth(numbers, turn)]), NEVER_US) for turn in range(repeats)]
    parts = min(_TENTHS, len(fleet.days) // 2)
    if parts < 2:
        raise too_few("days", len(fleet.days), 4)
    last = fleet.days[len(fleet.days) // parts - 1]
    return [Turn(np.sort(fleet.ids), int(last + 1) * _US_PER_DAY)]


@dataclass(frozen=True)
class _CountLearnt:
    """Function of the writes of some devices: counts of those that are learnt from, by device."""

    turn: Turn

    def __call__(self, writes: Writes) -> DeviceCounts:
        return count_writes(writes.take(self.turn.is_learnt(writes)))


def _count_points(requests: ReadRequests, writes: Writes) -> pa.Table:
    """Count the points of other devices in each answer."""
    asking = requests.asking_for(writes.t_us)
    return _counts_of(0, asking.points_in(writes), asking.numbers)


@dataclass(frozen=True)
class CountLate:
    """Late points of each policy by read: see :func:`~mudkit.learning.writes.late_points`.

    Of several turns the counts of policy ``p`` in turn ``t`` have the number ``p * turns + t``.
    """

    completeness: float | None
    turns: int = 1

    def __call__(self, requests: ReadRequests, late: pa.Table) -> pa.Table:
        """Count the late points of some rows of :data:`LATE`."""
        counts = [COUNTS.empty_table()]
        for policy in pc.unique(late["policy"]).to_pylist():
            rows = late.filter(pc.equal(late["policy"], policy))
            turns = rows["turns"].to_numpy()
            t_us = epoch_us(rows["ts"])
            lat, lon, sent_us = (rows[name].to_numpy() for name in ("lat", "lon", "sent_us"))
            names = rows["device"].combine_chunks().dictionary_encode()
            device = np.asarray(names.indices.to_numpy(), dtype=np.int64)
            writes = Writes(device, t_us, lat, lon, np.full(len(t_us), -1), names.dictionary)
            asking = requests.asking_for(t_us)
            for turn in range(self.turns):
                tested = np.flatnonzero(turns >> turn & 1)
                if len(tested):
                    by_read = late_points(writes.take(tested), sent_us[tested], asking, self.completeness)
                    counts.append(_counts_of(policy * self.turns + turn, by_read, asking.numbers))
        return pa.concat_tables(counts)


def _counts_of(policy: int, by_read: NDArray[np.int64], numbers: NDArray[np.int64]) -> pa.Table:
    """Return the counts of a policy by read, of reads with these numbers, as a table without zeros."""
    reads = np.flatnonzero(by_read)
    columns = [np.full(len(reads), policy), numbers[reads], by_read[reads]]
    return pa.table(columns, names=COUNTS.names).cast(COUNTS)


def with_counted_points(writers: Writers, requests: ReadRequests) -> ReadRequests:
    """Count the points of other devices in all answers."""
    counts = writers.count(requests, _count_points)
    return replace(requests, others=counts_by_read(counts, 0, len(requests.table)))


def counts_by_read(counts: pa.Table, policy: int, reads: int) -> NDArray[np.int64]:
    """Return the points counted for a policy in an array with an entry for each read, 0 without a row."""
    of_policy = counts.filter(pc.equal(counts["policy"], policy))
    by_read = np.zeros(reads, dtype=np.int64)
    by_read[of_policy["read"].to_numpy()] = of_policy["points"].to_numpy()
    return by_read


@dataclass(frozen=True)
class _FirstReads:
    """A bound: each write goes when it is first read; by some reads only, those that are left of all."""

    left: ReadRequests | None

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the time by which each write must be sent."""
        return writes.first_us if self.left is None else writes.seen_by(self.left).first_us


_NO_MISSES: Final = _FirstReads(None)


class _Sums(NamedTuple):
    """Sums of the tested writes of some devices.

    Attributes
    ----------
    ids : ndarray of int, shape (devices,)
    turns : ndarray of int, shape (devices,)
        Turns in which the device is tested, a bit each.
    writes : ndarray of int, shape (devices,)
    sums : ndarray, shape (policies, devices, 4)
        Messages, points, bytes and energy.
    """

    ids: NDArray[np.int64]
    turns: NDArray[np.int64]
    writes: NDArray[np.int64]
    sums: NDArray[np.float64]


@dataclass(frozen=True)
class _SendTested:
    """Send the tested writes of some devices by each policy; the others come at once.

    A policy is one of some turns, a bit each. Either what is learnt from are whole devices, or there is one
    turn. Returns sums, and the late writes of each policy.
    """

    turns: tuple[Turn, ...]
    policies: tuple[tuple[BatchPolicy, int], ...]
    radio: RadioModel

    def __call__(self, writes: Writes) -> tuple[_Sums, pa.Table]:
        turns = np.zeros(len(writes.t_us), dtype=np.int64)
        for number, turn in enumerate(self.turns):
            turns |= np.int64(1 << number) * ~turn.is_learnt(writes)
        tested, turns = writes.take(turns > 0), turns[turns > 0]
        present, first, rows = np.unique(tested.device, return_index=True, return_counts=True)
        ids = device_ids(tested.names.take(pa.array(present)).to_pylist())
        sums = np.zeros((len(self.policies), len(present), 4))
        late = [LATE.empty_table()]
        for number, ((policy, of_turns), of_policy) in enumerate(zip(self.policies, sums, strict=True)):
            is_mine = turns & of_turns > 0
            mine = tested if is_mine.all() else tested.take(is_mine)
            sent_us = batches(mine, policy.due_us(mine)).sent_us
            device, at_us, count = _contents(mine, sent_us)
            taken = self.radio.messages(device, at_us, count)
            spent = np.column_stack([np.ones(len(device)), count, taken.bytes, taken.radio_mj])
            of_policy[:] = sums_by(np.searchsorted(present, device), spent, len(present))
            late.append(late_writes(number, mine, sent_us, turns[is_mine] & of_turns))
        return _Sums(ids, turns[first], rows, sums), pa.concat_tables(late)


def late_writes(
    policy: int, writes: Writes, sent_us: NDArray[np.int64], turns: NDArray[np.int64] | None = None
) -> pa.Table:
    """Return the writes that a policy sends after another device has read them, with bits of their turns."""
    rows = np.flatnonzero(sent_us > writes.first_us)
    late = writes.take(rows)
    names = writes.names.take(pa.array(late.device))
    tested = np.ones(len(rows), dtype=np.int64) if turns is None else turns[rows]
    columns = [np.full(len(rows), policy), tested, names, late.t_us, late.lat, late.lon, sent_us[rows]]
    return pa.table(columns, names=LATE.names).cast(LATE)


@dataclass(frozen=True)
class WriteStudy:
    """Policies over the writes of a fleet."""

    writers: Writers
    fleet: Fleet
    requests: ReadRequests
    completeness: float | None
    radio: RadioModel

    def learn(
        self,
        policies: Sequence[BatchPolicy | BatchLearner | BatchBound],
        turn: Turn,
        by: Groups,
        seed: int,
    ) -> tuple[tuple[BatchPolicy, ...], int]:
        """Train what has to be learnt, and find the bounds; return all, and the devices learnt from."""
        train, devices = None, 0
        learnt: list[BatchPolicy] = []
        for policy in policies:
            if isinstance(policy, BatchBound):
                learnt.append(self._first_reads(policy, turn))
            elif isinstance(policy, BatchLearner):
                if train is None:
                    train = self.sample(turn, seed)
                    devices = len(np.unique(train.device))
                learnt.append(policy.learn(train, self.requests, by, self.completeness))
            else:
                learnt.append(policy)
        return tuple(learnt), devices

    def sample(self, turn: Turn, seed: int) -> Writes:
        """Return the writes that trees are learnt from."""
        counted = Fleet.of(self.writers.map(_CountLearnt(turn)))
        chosen = np.zeros(len(self.fleet.ids), dtype=np.bool_)
        chosen[self.fleet.numbers(counted.ids[counted.sample(seed, MAX_LEARNT_WRITES)])] = True
        return self.writers.gather(self.fleet, chosen, turn.past_us)

    def _first_reads(self, bound: BatchBound, turn: Turn) -> _FirstReads:
        """Return the policy of a bound; with ``match``, reads that miss writes under it count no more."""
        if bound.match is None:
            return _NO_MISSES
        send = _SendTested((turn,), ((bound.match, 1),), self.radio)
        _, late = self.writers.late(send, self.requests, CountLate(None))
        given_up = counts_by_read(late, 0, len(self.requests.table)) > 0
        return _FirstReads(self.requests.but_for(given_up))

    def measure(
        self, policies: Sequence[tuple[BatchPolicy, ...]], turns: Sequence[Turn]
    ) -> list[tuple[list[list[float]], int]]:
        """Return the measures of the policies of each turn, and the number of writes that were tested.

        A policy that is the same object in several turns is replayed once. Sums are added by device in the
        order of their names.
        """
        of_turns: dict[int, tuple[BatchPolicy, int]] = {}
        for turn, of_turn in enumerate(policies):
            for policy in of_turn:
                _, known = of_turns.get(id(policy), (policy, 0))
                of_turns[id(policy)] = policy, known | 1 << turn
        numbers = {key: number for number, key in enumerate(of_turns)}
        count = CountLate(self.completeness, len(turns))
        send = _SendTested(tuple(turns), tuple(of_turns.values()), self.radio)
        replays, late = self.writers.late(send, self.requests, count)
        order = np.argsort(self.fleet.numbers(np.concatenate([some.ids for some in replays])))
        tested, writes = (
            np.concatenate([getattr(some, name) for some in replays])[order] for name in ("turns", "writes")
        )
        sums = np.concatenate([some.sums for some in replays], axis=1)[:, order]
        measured = []
        for turn, of_turn in enumerate(policies):
            rows = np.flatnonzero(tested >> turn & 1)
            total, nothing = int(writes[rows].sum()), np.zeros(len(rows), dtype=np.int64)
            of_policies = []
            for policy in of_turn:
                number = numbers[id(policy)]
                spent = sums_by(nothing, sums[number][rows], 1)[0] / total
                messages, points, *of_radio = spent.tolist()
                points_late = counts_by_read(late, number * len(turns) + turn, len(self.requests.table))
                lacking = self.requests.lack(points_late, self.completeness)
                of_policies.append([messages, points, float(lacking.mean()), *of_radio])
            measured.append((of_policies, total))
        return measured


def _tenth(devices: NDArray[np.int64], turn: int) -> NDArray[np.int64]:
    """Return a tenth of the devices, another in each turn; two at least."""
    parts = min(_TENTHS, len(devices) // 2)  # one device alone would tell nothing about another
    if parts < 2:
        raise too_few("devices", len(devices), 4)
    return devices[turn % parts :: parts]


def trained_on(writes: Writes, turn: int = 0) -> NDArray[np.bool_]:
    """Return which writes are of a tenth of the devices to learn from, another in each turn; two at least."""
    return np.isin(writes.device, _tenth(np.unique(writes.device), turn))


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
    """Return the time at which a ``BatchBound(match)`` sends each write; ``NEVER_US``: it never does."""
    if match is None:
        return test.first_us
    given_up = missed(test, batches(test, match.due_us(test)).sent_us, requests)
    return test.seen_by(requests.but_for(given_up)).first_us


def _check_completeness(
    completeness: float | None, policies: Sequence[BatchPolicy | BatchLearner | BatchBound]
) -> None:
    """Raise ParameterError for a threshold out of range, or one below 1 with a bound."""
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
