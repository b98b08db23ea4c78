"""Devices whose reads are replayed, in this process or on Spark.

What is computed of reads is a function of the pairs of some whole devices. Of Arrow tables it is called once,
with all of them; of DataFrames in Spark's tasks, with some devices at a time. Its results are small: numbers
by device. Results of all devices are put in the order of their names, and added in it, so that no figure
depends on which devices were together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from mudkit.learning.pairs import Pairs, arrow, other_reads
from mudkit.trace.schema import device_ids
from mudkit.units import US_PER_S

MAX_LEARNT_PAIRS: Final = 1_000_000
"""Pairs from which trees are learnt, at most, but for the last device of the sample."""
_MIN_LEARNT_DEVICES: Final = 20
"""Devices of a sample, at least, if there are as many: two of each fold."""
_US_PER_DAY: Final = 86_400 * US_PER_S

Result = TypeVar("Result")


class Devices(Protocol):
    """Labelled reads of devices."""

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call a function with the pairs of all devices, some devices at a time; results in any order."""
        ...

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_]) -> Pairs:
        """Return the pairs of chosen devices in this process, with their numbers in a fleet."""
        ...


@dataclass(frozen=True)
class Fleet:
    """All devices with reads, in the order of their names: ids, reads and pairs of each; days with reads."""

    names: pa.Array
    ids: NDArray[np.int64]
    reads: NDArray[np.int64]
    pairs: NDArray[np.int64]
    days: NDArray[np.int64]

    @classmethod
    def of(cls, devices: Devices) -> Fleet:
        """Count the reads and pairs of devices, of which there must be some."""
        parts = devices.map(_count)
        if not sum(len(part.ids) for part in parts):
            raise TraceContentError(
                "There are no reads to replay.",
                found="a trace without reads",
                expected="at least one read",
                remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
            )
        names = pa.concat_arrays([part.names for part in parts])
        order = pc.sort_indices(names)
        numbers = order.to_numpy()
        ids, reads, pairs = (
            np.concatenate([getattr(part, name) for part in parts])[numbers]
            for name in ("ids", "reads", "pairs")
        )
        return cls(names.take(order), ids, reads, pairs, np.unique(np.concatenate([p.days for p in parts])))

    @cached_property
    def by_id(self) -> NDArray[np.int64]:
        """Numbers of the devices in the order of their ids."""
        return np.argsort(self.ids)

    def numbers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of devices by id."""
        return self.by_id[np.searchsorted(self.ids, ids, sorter=self.by_id)]

    def sample(self, seed: int) -> NDArray[np.bool_]:
        """Draw devices until they have :data:`MAX_LEARNT_PAIRS` pairs: the same ones in any order."""
        order = np.argsort(_drawn(self.ids, seed), kind="stable")
        before = np.cumsum(self.pairs[order]) - self.pairs[order]
        chosen = np.zeros(len(order), dtype=np.bool_)
        chosen[order] = (before < MAX_LEARNT_PAIRS) | (np.arange(len(order)) < _MIN_LEARNT_DEVICES)
        return chosen


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
    """
    if isinstance(labels, pa.Table) or isinstance(reads, pa.Table):
        yield _Here(Pairs.of(labels, reads, positions))
        return
    from mudkit.pipeline.devices import rows_by_device  # loads Spark

    with rows_by_device(labels, reads) as rows:
        yield _Spread(rows, positions)


@dataclass(frozen=True)
class _Here:
    """Reads in this process."""

    pairs: Pairs

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call the function with all devices."""
        return [function(self.pairs)]

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_]) -> Pairs:
        """Return the pairs of chosen devices; numbers are the same."""
        return self.pairs if chosen.all() else self.pairs.of_readers(np.flatnonzero(chosen))


@dataclass(frozen=True)
class _Spread:
    """Reads on Spark: a row for each label, with what is known of its read."""

    rows: Any
    positions: Any

    def map(self, function: Callable[[Pairs], Result]) -> list[Result]:
        """Call the function in tasks."""
        results: list[Result] = self.rows.map(_OfRows(function))
        return results

    def gather(self, fleet: Fleet, chosen: NDArray[np.bool_]) -> Pairs:
        """Collect the pairs of chosen devices."""
        names = None if chosen.all() else fleet.names.filter(pa.array(chosen))
        pairs = pairs_of_rows(self.rows.collect(names))
        written = None
        if self.positions is not None:
            numbers = {name: number for number, name in enumerate(fleet.names.to_pylist())}
            written = WrittenPlaces.of(arrow(self.positions), numbers)
        number = fleet.numbers(pairs.ids)
        return replace(pairs, device=number[pairs.device], ids=fleet.ids, names=fleet.names, written=written)


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


@dataclass(frozen=True)
class _Counts:
    names: pa.Array
    ids: NDArray[np.int64]
    reads: NDArray[np.int64]
    pairs: NDArray[np.int64]
    days: NDArray[np.int64]


def _count(pairs: Pairs) -> _Counts:
    """Count the reads and the pairs of some devices."""
    assert pairs.names is not None
    count = len(pairs.ids)
    return _Counts(
        pairs.names,
        pairs.ids,
        np.bincount(pairs.device, minlength=count),
        np.bincount(pairs.device[pairs.read], minlength=count),
        np.unique(pairs.t_us // _US_PER_DAY),
    )
