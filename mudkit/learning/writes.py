"""Writes with the first read of another device that sees each, and what waiting does to them, in NumPy.

A device holds what it wrote itself the moment it is written (see :mod:`mudkit.pipeline.coverage`): its own
reads never miss a write of its own, whenever that is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning.costs import CLASSES
from mudkit.learning.pairs import arrow, check_tables
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import READS, epoch_us, read_ids
from mudkit.units import US_PER_S, box_bounds, in_box

if TYPE_CHECKING:
    from mudkit.pipeline.coverage import Points, Reads

NEVER_US: Final = np.iinfo(np.int64).max
"""The time of what does not happen."""
NUMBERED: Final = pa.schema([("number", pa.int64()), ("others", pa.int64())])
"""Columns of a read among others: its number, and the points of other devices in its answer."""
_REQUEST: Final = [name for name in READS.names if name != "origin"]
_BY: Final = [("device", "ascending"), ("ts", "ascending")]
_CLASS_US: Final = 600 * US_PER_S
_NEWEST: Final = 32
_MAX_PAIRS: Final = 1_000_000
"""Maximum number of pairs of a read and a write that are compared at once, except those of one read."""
_PART: Final = 200_000
"""Number of writes in a part, but for whole devices."""


@dataclass(frozen=True)
class Writes:
    """Positions that devices wrote, ordered by device and time, and when the first read asks for each.

    ``device`` is a place in ``names``; the first read is that of another device.
    """

    device: NDArray[np.int64]
    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    first_us: NDArray[np.int64]
    names: pa.Array

    @classmethod
    def of(cls, first_reads: Any, positions: Any) -> Writes:
        """Join labels to positions, which must belong together, of one place a device and moment."""
        first_reads, positions = _sorted(arrow(first_reads)), _sorted(arrow(positions))
        fits = len(first_reads) == len(positions) and positions["device"].equals(first_reads["device"])
        if not fits or not np.array_equal(epoch_us(positions["ts"]), epoch_us(first_reads["ts"])):
            raise TraceContentError(
                "These labels are of other positions.",
                found=f"{len(first_reads):,} labels, {len(positions):,} positions",
                expected="labels that label_writes made of these positions",
                remedy="label the writes again",
            )
        first = first_reads["first_read_ts"]
        known = np.asarray(first.is_valid().to_numpy(), dtype=np.bool_)
        first_us = np.full(len(known), NEVER_US, dtype=np.int64)
        first_us[known] = epoch_us(first.drop_null())
        return cls._of_sorted(positions, first_us)

    @classmethod
    def unread(cls, positions: Any) -> Writes:
        """Return positions, of one place a device and moment, as writes that nobody reads; see `seen_by`."""
        positions = _sorted(arrow(positions).select(["device", "ts", "lat", "lon"]))
        return cls._of_sorted(positions, np.full(len(positions), NEVER_US, dtype=np.int64))

    @classmethod
    def _of_sorted(cls, positions: pa.Table, first_us: NDArray[np.int64]) -> Writes:
        """Return sorted positions as writes.

        TraceContentError if one is of no device, or a device is at two places at once.
        """
        if lacking := positions["device"].null_count:
            raise TraceContentError(
                "Some positions are of no device.",
                found=f"{lacking:,} of {len(positions):,} positions without a device",
                expected="the name of a device in each row",
                remedy="load the trace with mudkit.trace.load or pipeline.ingest, which set such rows aside",
            )
        device, t_us = device_codes(positions["device"]), epoch_us(positions["ts"])
        if ((np.diff(t_us) == 0) & (np.diff(device) == 0)).any():
            raise TraceContentError(
                "A device is at two places at once.",
                found="two positions with one device and time",
                expected="one at most",
                remedy="load the trace with mudkit.trace.load or pipeline.ingest, which set such rows aside",
            )
        # Of one chunk nothing is copied.
        lat, lon = (np.asarray(positions[name].combine_chunks().to_numpy()) for name in ("lat", "lon"))
        return cls(device, t_us, lat, lon, first_us, positions["device"].combine_chunks().unique())

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Writes:
        """Return the chosen writes; a slice copies nothing."""
        names = "device", "t_us", "lat", "lon", "first_us"
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def parts(self) -> Iterator[slice]:
        """Cut the writes into parts of whole devices, of about :data:`_PART` writes each.

        What is done with each device on its own then takes memory for one part at a time.
        """
        begin = 0
        while begin < len(self.device):
            last = self.device[min(begin + _PART, len(self.device)) - 1]
            past = int(np.searchsorted(self.device, last, side="right"))
            yield slice(begin, past)
            begin = past

    def seen_by(self, requests: ReadRequests) -> Writes:
        """Return the writes with their first reads among these requests."""
        from mudkit.pipeline.coverage import NOTHING  # loads Spark

        reads = requests.prepared
        first = reads.first(self.points(reads))
        seen = first != NOTHING
        first_us = np.full(len(first), NEVER_US, dtype=np.int64)
        first_us[seen] = reads.end_us[first[seen]]
        return replace(self, first_us=first_us)

    def points(self, reads: Reads) -> Points:
        """Return the writes as points of these reads."""
        from mudkit.pipeline.coverage import Points

        return Points(self.t_us, self.lat, self.lon, reads.owners(self.names)[self.device])

    def interval_s(self) -> float:
        """Return the median time between two writes of a device; 15 seconds if none writes twice."""
        steps_us = np.diff(self.t_us)[np.diff(self.device) == 0]
        return float(np.median(steps_us)) / US_PER_S if len(steps_us) else 15.0

    def reads_each(self) -> NDArray[np.float64]:
        """Return the share of each write in its first read; 1 on average over the writes that are read.

        A read misses one write or all of them: each of the n writes that it is the first to see has an nth.
        """
        seen = self.first_us != NEVER_US
        number = np.unique(self.first_us, return_inverse=True)[1]
        part = np.where(seen, 1.0 / np.bincount(number)[number], 0.0)
        return part * (np.count_nonzero(seen) / max(float(part.sum()), 1e-300))

    def classes(self) -> NDArray[np.int64]:
        """Return the longest useful delay of each write, as the number of one of :data:`CLASSES`."""
        wait_us = self.first_us - self.t_us
        number = np.minimum(wait_us // _CLASS_US, len(CLASSES) - 2)
        return np.where(self.first_us == NEVER_US, len(CLASSES) - 1, number)


@dataclass(frozen=True)
class ReadRequests:
    """Reads, in order of time: what misses a write that comes late.

    ``others`` is the number of points of other devices in each answer; None: not counted. ``number`` is that
    of each among all reads; None: these are all.
    """

    table: pa.Table
    others: NDArray[np.int64] | None = None
    number: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, reads: Any) -> ReadRequests:
        """Put reads in order; TraceContentError without any, ParameterError for another kind of table."""
        check_tables(reads=reads)
        table = arrow(reads)
        if "read_id" not in table.column_names:
            table = table.append_column("read_id", pa.array(read_ids(table)))
        table = table.sort_by([("ts", "ascending"), ("read_id", "ascending")])
        if not len(table):
            raise TraceContentError(
                "There are no reads that could miss a write.",
                found="a trace without reads",
                expected="at least one read",
                remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
            )
        return cls(table)

    def but_for(self, rows: NDArray[np.bool_]) -> ReadRequests:
        """Return the reads for which ``rows`` is False."""
        return ReadRequests(self.table.filter(pa.array(~rows)))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each read among all."""
        return np.arange(len(self.table)) if self.number is None else self.number

    def rows(self) -> pa.Table:
        """Return the reads with numbers and counted points; `of_rows` makes requests of some of them."""
        others = pa.nulls(len(self.table), pa.int64()) if self.others is None else pa.array(self.others)
        table = self.table.select(_REQUEST).append_column("number", pa.array(self.numbers))
        return table.append_column("others", others)

    @classmethod
    def of_rows(cls, rows: pa.Table) -> ReadRequests:
        """Return some of the reads, in order."""
        rows = rows.sort_by("number")
        others = None if rows["others"].null_count else rows["others"].to_numpy()
        return cls(rows.select(_REQUEST), others, rows["number"].to_numpy())

    def asking_for(self, t_us: NDArray[np.int64]) -> ReadRequests:
        """Return the reads whose answers may have points of these times."""
        first = past = 0
        if len(t_us) and len(self.table):
            at_us, longest_us = self._times
            first = int(np.searchsorted(at_us, t_us.min()))
            past = int(np.searchsorted(at_us, t_us.max() + longest_us))
        others = None if self.others is None else self.others[first:past]
        return ReadRequests(self.table.slice(first, past - first), others, self.numbers[first:past])

    @cached_property
    def _times(self) -> tuple[NDArray[np.int64], int]:
        """Time of each read, and the longest window."""
        window_us = np.rint(self.table["window_s"].to_numpy() * US_PER_S).astype(np.int64)
        return epoch_us(self.table["ts"]), int(window_us.max())

    @cached_property
    def prepared(self) -> Reads:
        """The reads, in the same order, prepared for matching with points."""
        from mudkit.pipeline.coverage import Reads  # loads Spark

        return Reads.of(self.table)

    def counted(self, writes: Writes) -> ReadRequests:
        """Return the reads with their number of others' points, if these writes are all that there is."""
        return replace(self, others=self.points_in(writes))

    def points_in(self, writes: Writes) -> NDArray[np.int64]:
        """Count the points of other devices among some writes, by read."""
        others = np.zeros(len(self.table), dtype=np.int64)
        for counts in self.prepared.count(writes.points(self.prepared)):
            if counts.cached is None:
                at = pc.index_in(self.table["read_id"], value_set=pa.array(counts.read))
                known = at.is_valid().to_numpy()
                others[known] = counts.others[at.drop_null().to_numpy()]
        return others

    def lack(self, late: NDArray[np.int64], completeness: float | None) -> NDArray[np.bool_]:
        """Return which reads miss writes, by their number of late points: see :func:`missed`."""
        if completeness is None or completeness == 1:
            return late > 0
        return self.has(late) < completeness

    def has(self, late: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the completeness of each answer when this number of others' points has not come."""
        assert self.others is not None
        return np.where(self.others == 0, 1.0, (self.others - late) / np.maximum(self.others, 1))


def _sorted(rows: pa.Table) -> pa.Table:
    """Return rows ordered by device and time; those of a loaded trace are, and to sort would copy them."""
    if not rows["device"].null_count:
        step = np.diff(device_codes(rows["device"]))
        if ((step > 0) | ((step == 0) & (np.diff(epoch_us(rows["ts"])) >= 0))).all():
            return rows
    return rows.sort_by(_BY)


@dataclass(frozen=True)
class Batches:
    """Number of messages with writes, and when each write was sent."""

    messages: int
    sent_us: NDArray[np.int64]

    @property
    def points(self) -> int:
        """Number of writes that were sent."""
        return int(np.count_nonzero(self.sent_us != NEVER_US))


def batches(writes: Writes, due_us: NDArray[np.int64]) -> Batches:
    """Send writes in batches: what is due first takes along all that its device has pending.

    A write due at :data:`NEVER_US` stays on the device, and nothing takes it along.
    """
    is_due = due_us != NEVER_US
    rows = slice(None) if is_due.all() else np.flatnonzero(is_due)  # a slice copies nothing
    device, t_us, due = writes.device[rows], writes.t_us[rows], due_us[rows]
    is_same = np.diff(device) == 0
    sent_us = np.full(len(due_us), NEVER_US, dtype=np.int64)
    if (np.diff(due)[is_same] >= 0).all():
        # The first write of a batch is due first: all that its device writes until then goes along.
        begins = _begins(device, t_us, due)
        number = np.cumsum(begins) - 1
        sent_us[rows] = due[begins][number]
        return Batches(int(number[-1]) + 1 if len(number) else 0, sent_us)
    numbers, at_us = [], []
    batch, until_us, last = -1, -1, -1
    for who, now, until in zip(device.tolist(), t_us.tolist(), due.tolist(), strict=True):
        if who != last or now > until_us:
            batch, until_us, last = batch + 1, until, who
            at_us.append(until)
        elif until < until_us:
            at_us[batch] = until_us = until
        numbers.append(batch)
    sent_us[rows] = np.array(at_us, dtype=np.int64)[np.array(numbers, dtype=np.int64)]
    return Batches(batch + 1, sent_us)


def _begins(
    device: NDArray[np.int64], t_us: NDArray[np.int64], due_us: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which writes begin a batch, where those of a device are due in the order of their times."""
    begins = np.zeros(len(device), dtype=np.bool_)
    if not len(device):
        return begins
    heads = np.flatnonzero(np.diff(device, prepend=device[0] - 1))
    ends = np.append(heads[1:], len(device))
    # What is written after a batch is due begins the next one: find it for each write of all devices.
    after = np.empty(len(device), dtype=np.int64)
    for head, end in zip(heads.tolist(), ends.tolist(), strict=True):
        after[head:end] = head + np.searchsorted(t_us[head:end], due_us[head:end], side="right")
    at = heads
    while len(at):
        begins[at] = True
        following = after[at]
        goes_on = following < ends
        at, ends = following[goes_on], ends[goes_on]
    return begins


def missed(
    writes: Writes,
    sent_us: NDArray[np.int64],
    requests: ReadRequests,
    completeness: float | None = None,
) -> NDArray[np.bool_]:
    """Return which reads miss writes of other devices that their answer should hold.

    Without `completeness` one such write is enough (Mobius 7.3), as with 1; else a read misses some when less
    than this share of what others wrote has come. What they wrote are the points that were counted for the
    requests, else those among these writes.
    """
    if completeness is not None and completeness < 1 and requests.others is None:
        requests = requests.counted(writes)
    return requests.lack(late_points(writes, sent_us, requests, completeness), completeness)


def late_points(
    writes: Writes,
    sent_us: NDArray[np.int64],
    requests: ReadRequests,
    completeness: float | None = None,
) -> NDArray[np.int64]:
    """Count the writes of other devices that have not come for each read whose answer should hold them.

    Where one is enough (see :func:`missed`), 1 stands for any number. Counts of writes of other devices add
    up: see :meth:`ReadRequests.lack`.
    """
    is_late = sent_us > writes.first_us  # of the others no read misses any
    if completeness is not None and completeness < 1:
        prepared = requests.prepared
        return prepared.late(writes.points(prepared), sent_us, np.flatnonzero(is_late))
    late = np.flatnonzero(is_late)
    late = late[np.argsort(writes.t_us[late], kind="stable")]
    owner, t_us, lat, lon = writes.device[late], writes.t_us[late], writes.lat[late], writes.lon[late]
    arrival_us = sent_us[late]
    reader = pc.fill_null(pc.index_in(requests.table["device"], value_set=writes.names), -1).to_numpy()
    at_us = epoch_us(requests.table["ts"])
    columns = {name: requests.table[name].to_numpy() for name in ("lat", "lon", "box_km", "window_s")}
    since_us = at_us - np.rint(columns["window_s"] * US_PER_S).astype(np.int64)
    first = np.searchsorted(t_us, since_us, side="right")
    past = np.searchsorted(t_us, at_us, side="right")
    box = box_bounds(columns["lat"], columns["lon"], columns["box_km"])
    is_missed = np.zeros(len(at_us), dtype=np.bool_)

    def lacks(reads: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_due: NDArray[np.bool_] = (arrival_us[rows] > at_us[reads]) & (owner[rows] != reader[reads])
        reads, rows = reads[is_due], rows[is_due]
        is_due[is_due] = in_box(lat[rows], lon[rows], type(box)(*(side[reads] for side in box)))
        return is_due

    # What is newest has mostly not come yet: where reads are dense, one of a few writes tells.
    for back in range(1, _NEWEST + 1):
        reads = np.flatnonzero(~is_missed & (past - back >= first))
        is_missed[reads] = lacks(reads, past[reads] - back)
    reads = np.flatnonzero(~is_missed & (past - _NEWEST > first))
    counts = past[reads] - _NEWEST - first[reads]
    for part in np.split(np.arange(len(reads)), np.flatnonzero(np.diff(np.cumsum(counts) // _MAX_PAIRS)) + 1):
        begins = np.cumsum(counts[part]) - counts[part]
        rows = np.repeat(first[reads[part]] - begins, counts[part]) + np.arange(counts[part].sum())
        asking = np.repeat(reads[part], counts[part])
        is_missed[asking[lacks(asking, rows)]] = True
    return is_missed.astype(np.int64)


def batch_shares(
    writes: Writes, due_us: NDArray[np.int64], requests: ReadRequests
) -> tuple[float, float, float]:
    """Return messages and points sent, of the writes, and the share of reads that miss another's write."""
    sent = batches(writes, due_us)
    count = len(writes.t_us)
    return sent.messages / count, sent.points / count, float(missed(writes, sent.sent_us, requests).mean())
