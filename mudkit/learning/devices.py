"""Devices whose reads or writes are replayed, in this process or on Spark.

What is computed is a function of the pairs, or the writes, of some whole devices. Of Arrow tables it is
called in this process, of DataFrames in Spark's tasks, with some devices at a time. Its results are small:
numbers by device. Results of all devices are put in the order of their names, and added in it, so that no
figure depends on which devices were together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning.density import WrittenPlaces
from mudkit.learning.pairs import Pairs, check_tables, other_reads
from mudkit.learning.writes import NUMBERED, ReadRequests, Writes
from mudkit.trace.schema import POSITIONS, device_ids
from mudkit.units import US_PER_S

MAX_LEARNT_PAIRS: Final = 1_000_000
"""Pairs from which trees are learnt, about: at most twice as many, but for a few blocks of reads."""
MAX_LEARNT_WRITES: Final = 1_000_000
"""Writes from which trees are learnt, at most, but for the last device of the sample."""
SAMPLED_BLOCK: Final = 512
"""Consecutive reads of a device that are in a sample together."""
_MIN_LEARNT_DEVICES: Final = 20
"""Devices of a sample, at least, if there are as many: two of each fold."""
_US_PER_DAY: Final = 86_400 * US_PER_S

Result = TypeVar("Result")


class Devices(Protocol):
    """Labelled reads of devices."""

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call a function with the pairs of all devices, some devices at a time; results in any order."""
        ...

    def total(self, function: Callable[[Pairs], list[Result]]) -> list[Result]:
        """Call a function that returns numbers or sums; add each over all devices.

        Tasks add the results, so what comes back does not grow with the devices.
        """
        ...

    def gather(self, fleet: Fleet, sample: Sample) -> Pairs:
        """Return the pairs of a sample in this process, with the numbers of its devices in a fleet."""
        ...


class Writers(Protocol):
    """Labelled writes of devices."""

    def map(self, function: Callable[[Writes], Result]) -> list[Result]:
        """Call a function with the writes of all devices, some devices at a time; results in any order."""
        ...

    def late(
        self,
        function: Callable[[Writes], tuple[Result, pa.Table]],
        requests: ReadRequests,
        count: Callable[[ReadRequests, pa.Table], pa.Table],
    ) -> tuple[list[Result], pa.Table]:
        """Call a function that returns a result and late writes, and another that counts these by read.

        Parameters
        ----------
        function : callable
            Function of the writes of some devices; its table has the columns of :data:`LATE`.
        requests : ReadRequests
        count : callable
            Function of some late writes of any devices, and of the reads that may miss them. Its counts are
            added; they have the columns of :data:`COUNTS`.

        Returns
        -------
        results, counts : list and pyarrow.Table
        """
        ...

    def count(self, requests: ReadRequests, function: Callable[[ReadRequests, Writes], pa.Table]) -> pa.Table:
        """Call a function that counts some writes of any devices by read; return the sums of its counts."""
        ...

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_], past_us: int) -> Writes:
        """Return the writes of chosen devices before a moment in this process."""
        ...


@dataclass(frozen=True)
class DeviceCounts:
    """Rows (reads or writes) and examples (pairs or writes) of some devices; their days with rows."""

    names: pa.Array
    ids: NDArray[np.int64]
    rows: NDArray[np.int64]
    examples: NDArray[np.int64]
    days: NDArray[np.int64]


@dataclass(frozen=True)
class Fleet(DeviceCounts):
    """Counts of all devices, in the order of their names."""

    @classmethod
    def of(cls, parts: Sequence[DeviceCounts]) -> Fleet:
        """Join the counts of devices."""
        names = pa.concat_arrays([part.names for part in parts] or [pa.array([], pa.string())])
        order = pc.sort_indices(names)
        ids, rows, examples, days = (
            np.concatenate([np.zeros(0, dtype=np.int64), *(getattr(part, name) for part in parts)])
            for name in ("ids", "rows", "examples", "days")
        )
        numbers = order.to_numpy()
        return cls(names.take(order), ids[numbers], rows[numbers], examples[numbers], np.unique(days))

    @cached_property
    def by_id(self) -> NDArray[np.int64]:
        """Numbers of the devices in the order of their ids."""
        return np.argsort(self.ids)

    def numbers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of devices by id."""
        return self.by_id[np.searchsorted(self.ids, ids, sorter=self.by_id)]

    def sample(self, seed: int, most: int, among: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Draw devices until they have as many examples: the same ones in any order.

        Parameters
        ----------
        seed : int
        most : int
            Number of examples; the last device may bring more.
        among : ndarray of bool, shape (devices,), optional
            Devices to draw from; by default all.
        """
        order = np.argsort(_drawn(self.ids, seed), kind="stable")
        if among is not None:
            order = order[among[order]]
        before = np.cumsum(self.examples[order]) - self.examples[order]
        chosen = np.zeros(len(self.ids), dtype=np.bool_)
        chosen[order] = (before < most) | (np.arange(len(order)) < _MIN_LEARNT_DEVICES)
        return chosen

    def sample_pairs(self, seed: int, most: int) -> Sample:
        """Draw devices until they have as many pairs, and a part of the reads of those with many.

        A few devices with very many pairs would not fit into memory: if all have more than twice as many as
        wanted, the largest ones have an equal share of these.
        """
        chosen = self.sample(seed, most)
        every = np.ones(len(self.ids), dtype=np.int64)
        pairs = np.sort(self.examples[chosen])
        if pairs.sum() > 2 * most:
            # What each may have if the smaller ones have all of theirs.
            left = most - (np.cumsum(pairs) - pairs)
            share = max(int(np.max(left // np.arange(len(pairs), 0, -1))), 1)
            every = np.maximum(-(-self.examples // share), 1)
        first = (_drawn(self.ids, seed) % every.astype(np.uint64)).astype(np.int64)
        return Sample(chosen, every, first)


@dataclass(frozen=True)
class Sample:
    """Devices of a fleet, and which of their reads.

    Of the blocks of 512 consecutive reads of a device it has each ``every``-th, from ``first`` on. All are of
    shape (devices,).
    """

    chosen: NDArray[np.bool_]
    every: NDArray[np.int64]
    first: NDArray[np.int64]

    @property
    def is_whole(self) -> bool:
        """True if all reads of the chosen devices are in it."""
        return bool((self.every[self.chosen] == 1).all())

    def has(self, device: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which reads are in it, by the device's number and their own among the device's."""
        is_in: NDArray[np.bool_] = number // SAMPLED_BLOCK % self.every[device] == self.first[device]
        return is_in & self.chosen[device]


def _drawn(ids: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a random number of each id."""
    return device_ids([f"{seed} {number}" for number in ids.tolist()]).view(np.uint64)


@contextmanager
def open_devices(labels: Any, reads: Any, positions: Any = None) -> Iterator[Devices]:
    """Join labels to reads: Arrow tables in this process, DataFrames on Spark.

    Parameters
    ----------
    labels, reads : pyarrow.Table or DataFrame
        The result of ``pipeline.label_reads``, and the reads that were labelled.
    positions : pyarrow.Table or DataFrame, optional
        What was written, for features of density.

    Raises
    ------
    ParameterError
        They are no such tables.
    """
    check_tables(labels=labels, reads=reads, **({} if positions is None else {"positions": positions}))
    if isinstance(labels, pa.Table) or isinstance(reads, pa.Table):
        yield LocalDevices(Pairs.of(labels, reads, positions))
        return
    from mudkit.pipeline.devices import rows_by_device  # loads Spark

    with rows_by_device(labels, reads) as rows:
        yield _Spread(rows, positions)


def no_reads() -> TraceContentError:
    """Return the error for a trace without reads."""
    return TraceContentError(
        "There are no reads to replay.",
        found="a trace without reads",
        expected="at least one read",
        remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
    )


@dataclass(frozen=True)
class LocalDevices:
    """Reads in this process."""

    pairs: Pairs

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call the function with all devices."""
        return [function(self.pairs)]

    def total(self, function: Callable[[Pairs], list[Result]]) -> list[Result]:
        """Call the function with all devices."""
        return function(self.pairs)

    def gather(self, fleet: Fleet, sample: Sample) -> Pairs:
        """Return the pairs whose two reads are in a sample; devices have the numbers of the fleet already."""
        if sample.chosen.all() and sample.is_whole:
            return self.pairs
        device = self.pairs.device
        number = np.arange(len(device)) - np.searchsorted(device, device)
        return self.pairs.of_reads(sample.has(device, number))


@dataclass(frozen=True)
class _Spread:
    """Reads on Spark: a row for each label, with what is known of its read."""

    rows: Any
    positions: Any

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call the function in tasks."""
        results: list[Result] = self.rows.map(_OfRows(function))
        return results

    def total(self, function: Callable[[Pairs], list[Result]]) -> list[Result]:
        """Call the function in tasks, and add what these have added."""
        sums: list[Result] = self.rows.join(_OfRows(function), _add_each)
        return sums

    def gather(self, fleet: Fleet, sample: Sample) -> Pairs:
        """Collect the pairs of a sample from Spark into this process."""
        chosen = pa.array(sample.chosen)
        if sample.is_whole:
            names = None if sample.chosen.all() else fleet.names.filter(chosen)
            rows = self.rows.collect(names)
        else:
            columns = {
                "device": fleet.names,
                "every": pa.array(sample.every),
                "first": pa.array(sample.first),
            }
            rows = self.rows.collect_blocks(pa.table(columns).filter(chosen), SAMPLED_BLOCK)
        pairs = pairs_of_rows(rows)
        written = None
        if self.positions is not None:
            numbers = {name: number for number, name in enumerate(fleet.names.to_pylist())}
            written = WrittenPlaces.of(self.positions, numbers)
        number = fleet.numbers(pairs.ids)
        return replace(pairs, device=number[pairs.device], ids=fleet.ids, names=fleet.names, written=written)


def _add_each(sums: list[Any], others: list[Any]) -> list[Any]:
    """Add two lists of sums, each to its own."""
    return [one + other for one, other in zip(sums, others, strict=True)]


@dataclass(frozen=True)
class _OfRows:
    """Function of the rows of labels of some devices: a function of their pairs."""

    function: Callable[[Pairs], Any]

    def __call__(self, rows: pa.Table) -> Any:
        return self.function(pairs_of_rows(rows))


def pairs_of_rows(rows: pa.Table) -> Pairs:
    """Return the pairs of labels that were joined with their reads.

    A row without a device has a label of another read, one without points no label.
    """
    if rows["device"].null_count:
        raise other_reads(len(rows), len(rows) - rows["device"].null_count)
    reads = rows.filter(rows["cached_read_id"].is_null())
    return Pairs.of(rows.filter(rows["points"].is_valid()), reads)


def count_pairs(pairs: Pairs) -> DeviceCounts:
    """Count the reads and the pairs of some devices."""
    assert pairs.names is not None
    count = len(pairs.ids)
    return DeviceCounts(
        pairs.names,
        pairs.ids,
        np.bincount(pairs.device, minlength=count),
        np.bincount(pairs.device[pairs.read], minlength=count),
        np.unique(pairs.t_us // _US_PER_DAY),
    )


def count_writes(writes: Writes) -> DeviceCounts:
    """Return the devices that have these writes, each with its number of writes, and the days of any."""
    present, rows = np.unique(writes.device, return_counts=True)
    names = writes.names.take(pa.array(present))
    return DeviceCounts(
        names, device_ids(names.to_pylist()), rows, rows, np.unique(writes.t_us // _US_PER_DAY)
    )


@contextmanager
def open_writers(first_reads: Any, positions: Any) -> Iterator[Writers]:
    """Join labels to positions: Arrow tables in this process, DataFrames on Spark.

    Parameters
    ----------
    first_reads, positions : pyarrow.Table or DataFrame
        The result of ``pipeline.label_writes``, and the positions that were labelled.

    Raises
    ------
    ParameterError
        They are no such tables.
    """
    check_tables(first_reads=first_reads, positions=positions)
    if isinstance(first_reads, pa.Table) or isinstance(positions, pa.Table):
        yield LocalWriters(Writes.of(first_reads, positions))
        return
    from mudkit.pipeline.devices import writes_by_device  # loads Spark

    with writes_by_device(first_reads, positions) as rows:
        yield _WritesSpread(rows, positions)


@dataclass(frozen=True)
class LocalWriters:
    """Writes in this process."""

    writes: Writes

    def map(self, function: Callable[[Writes], Result]) -> list[Result]:
        """Call the function with parts of the devices."""
        return [function(self.writes.take(rows)) for rows in self.writes.parts()]

    def late(
        self,
        function: Callable[[Writes], tuple[Result, pa.Table]],
        requests: ReadRequests,
        count: Callable[[ReadRequests, pa.Table], pa.Table],
    ) -> tuple[list[Result], pa.Table]:
        """Call the function with parts of the devices, and count all late writes."""
        results = self.map(function)
        rows = pa.concat_tables([LATE.empty_table(), *(late for _, late in results)])
        return [result for result, _ in results], count(requests, rows.sort_by("ts"))

    def count(self, requests: ReadRequests, function: Callable[[ReadRequests, Writes], pa.Table]) -> pa.Table:
        """Call the function once, with all writes; return its counts."""
        return function(requests, self.writes)

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_], past_us: int) -> Writes:
        """Return the writes of chosen devices before a moment."""
        ids = device_ids(self.writes.names.to_pylist())
        is_chosen = chosen[fleet.numbers(ids)][self.writes.device]
        return self.writes.take(is_chosen & (self.writes.t_us < past_us))


@dataclass(frozen=True)
class _WritesSpread:
    """Writes on Spark: a row for each, with its label; and the positions as they came, best by time."""

    rows: Any
    positions: Any

    def map(self, function: Callable[[Writes], Result]) -> list[Result]:
        """Call the function in tasks."""
        results: list[Result] = self.rows.map(_OfWrites(function))
        return results

    def late(
        self,
        function: Callable[[Writes], tuple[Result, pa.Table]],
        requests: ReadRequests,
        count: Callable[[ReadRequests, pa.Table], pa.Table],
    ) -> tuple[list[Result], pa.Table]:
        """Call the function in tasks, and count late writes in tasks of some time each."""
        from mudkit.pipeline.slices import sum_late  # loads Spark

        reads, prepare = requests.rows(), ReadRequests.of_rows
        return sum_late(self.rows, _OfWrites(function), reads, prepare, count, COUNTS)

    def count(self, requests: ReadRequests, function: Callable[[ReadRequests, Writes], pa.Table]) -> pa.Table:
        """Call the function in tasks of Spark; return the sums of its counts."""
        from mudkit.pipeline.slices import sum_by_reads  # loads Spark

        def count_positions(some: ReadRequests, positions: pa.Table) -> pa.Table:
            return function(some, Writes.unread(positions))

        positions = self.positions.select(["device", "ts", "lat", "lon"])
        prepare = ReadRequests.of_rows
        return sum_by_reads(positions, requests.rows(), prepare, count_positions, COUNTS, NUMBERED)

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_], past_us: int) -> Writes:
        """Collect the writes of chosen devices before a moment from Spark into this process."""
        names = None if chosen.all() else fleet.names.filter(pa.array(chosen))
        writes = writes_of_rows(self.rows.collect(names))
        return writes.take(writes.t_us < past_us)


LATE: Final = pa.schema(
    [
        ("policy", pa.int64()),
        ("turns", pa.int64()),
        ("device", pa.string()),
        ("ts", POSITIONS.field("ts").type),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("sent_us", pa.int64()),
    ]
)
"""Writes that a policy, by number, sends after another device has read them, in some turns, a bit each."""
COUNTS: Final = pa.schema([("policy", pa.int64()), ("read", pa.int64()), ("points", pa.int64())])
"""Points by number of a policy and of a read."""


@dataclass(frozen=True)
class _OfWrites:
    """Function of the rows of labels of some devices: a function of their writes."""

    function: Callable[[Writes], Any]

    def __call__(self, rows: pa.Table) -> Any:
        return self.function(writes_of_rows(rows))


def writes_of_rows(rows: pa.Table) -> Writes:
    """Return the writes of positions that were joined with their labels.

    A row without a place has a label of another position, one without ``labelled`` none.
    """
    of_labels, of_places = (
        rows.filter(rows[name].is_valid()) if rows[name].null_count else rows for name in ("labelled", "lat")
    )
    return Writes.of(of_labels, of_places)
