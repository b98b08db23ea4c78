"""Summaries of the rows of a trace: counts by group, lists of some rows, and exact ranks of values.

A summary takes rows piece by piece, ordered by device and time, and keeps what is small. Those of several
tasks are joined, and the result does not depend on how rows were divided: sums are of whole numbers. So the
same summaries are computed here, of a table in memory, and on Spark (:mod:`mudkit.pipeline.summaries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.trace.times import NO_TIME

_PIECE_ROWS: Final = 1 << 20
"""Rows of a table in memory that are summarised at one time."""

_WAITING_ROWS: Final = 1 << 20
"""Groups that a summary keeps before it joins the equal ones."""


class Piece:
    """Consecutive rows, with the last one before them.

    Attributes
    ----------
    table : pyarrow.Table
        The rows, behind the last one before, if there is one.
    begin : int
        Number of rows in front of those of the piece: 0 or 1.
    """

    def __init__(self, rows: pa.Table, before: Piece | None = None) -> None:
        last = None if before is None or not len(before.table) else before.table.slice(len(before.table) - 1)
        self.begin = 0 if last is None else 1
        self.table: pa.Table = rows if last is None else pa.concat_tables([last, rows])
        self._carried = 0 if last is None or before is None else before.last_number

    @cached_property
    def _devices(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Names of the devices, and the place of each row's device among them."""
        coded = pc.fill_null(self.table["device"].cast(pa.string()), "").dictionary_encode()
        chunks = coded.unify_dictionaries().chunks
        if not chunks:
            return pa.array([], pa.string()), np.zeros(0, dtype=np.int64)
        parts = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks]
        return chunks[0].dictionary, np.concatenate(parts).astype(np.int64)

    @property
    def names(self) -> pa.Array:
        """Names of devices, empty where a row does not say it."""
        return self._devices[0]

    @property
    def code(self) -> NDArray[np.int64]:
        """Device of each row, a place in :attr:`names`."""
        return self._devices[1]

    @cached_property
    def t_us(self) -> NDArray[np.int64]:
        """Time of each row, microseconds since 1970; ``NO_TIME`` if it is unknown."""
        times = self.table["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return np.asarray(pc.fill_null(times, NO_TIME).to_numpy(), dtype=np.int64)

    @cached_property
    def lat(self) -> NDArray[np.float64]:
        """Latitude of each row, degrees; NaN if it is unknown."""
        return self._numbers("lat")

    @cached_property
    def lon(self) -> NDArray[np.float64]:
        """Longitude of each row, degrees; NaN if it is unknown."""
        return self._numbers("lon")

    def _numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers; NaN where it is null."""
        column = self.table[name].cast(pa.float64())
        return np.asarray(pc.fill_null(column, np.nan).to_numpy(), dtype=np.float64)

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Mask of the rows that are the first of their device in ``table``."""
        return np.append(True, np.diff(self.code) != 0)[: len(self.code)]

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """Number of each row among those of its device, from 0."""
        at = np.arange(len(self.code))
        first = np.maximum.accumulate(np.where(self.is_new, at, 0))
        return np.asarray(at - first + np.where(first == 0, self._carried, 0))

    @property
    def last_number(self) -> int:
        """Number of the last row, if rows have devices."""
        if "device" not in self.table.column_names:
            return 0
        return int(self.number[-1])

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """Places of rows whose next row is of the same device."""
        return np.flatnonzero(np.diff(self.code) == 0)

    def device(self, at: NDArray[np.int64]) -> pa.Array:
        """Return the names of the devices of some rows."""
        return self.names.take(pa.array(self.code[at]))


class Summary(Protocol):
    """Something that is computed of rows, piece by piece."""

    def add(self, piece: Piece) -> None:
        """Add the next rows."""

    def finish(self) -> pa.Table:
        """Return what all rows so far tell."""

    def joined(self, parts: pa.Table) -> pa.Table:
        """Return what the results of several tasks, one below the other, tell together."""


Summaries: TypeAlias = Mapping[str, Callable[[], Summary]]
"""Functions that start summaries, by name."""


Keep: TypeAlias = Callable[[pa.Table], NDArray[np.bool_]]
"""Function of a table that returns which rows are kept."""


@runtime_checkable
class Distributed(Protocol):
    """Rows ordered by device and time that are not on this machine."""

    def summarise(self, summaries: Summaries) -> dict[str, pa.Table]:
        """Return the result of each summary."""

    def select(self, keep: Keep) -> Distributed:
        """Return the rows that a function keeps."""

    def collect(self, devices: pa.Array | None = None) -> pa.Table:
        """Return the rows of some devices, or of all, in memory, ordered by device and time."""

    def by_time(self, edges_us: NDArray[np.int64], overlap_us: int) -> Distributed:
        """Return the rows in blocks of time (:func:`in_blocks`), of which each is a piece of its own."""


Rows: TypeAlias = "pa.Table | Distributed"
"""Rows ordered by device and time: a table in memory, or one on Spark."""


def summarise(rows: Rows, summaries: Summaries) -> dict[str, pa.Table]:
    """Return the result of each summary of some rows, in one pass over them."""
    if isinstance(rows, Distributed):
        return rows.summarise(summaries)
    pieces = (rows.slice(at, _PIECE_ROWS) for at in range(0, len(rows), _PIECE_ROWS))
    results = finished(pieces, summaries)
    return {name: start().joined(results[name]) for name, start in summaries.items()}


def select(rows: Rows, keep: Keep) -> Rows:
    """Return the rows that a function keeps, in their order."""
    if isinstance(rows, Distributed):
        return rows.select(keep)
    return rows.filter(pa.array(keep(rows)))


def in_blocks(rows: pa.Table, edges_us: NDArray[np.int64], overlap_us: int) -> pa.Table:
    """Return rows with their ``block`` of time; a row that is soon after a block belongs to this, too.

    Parameters
    ----------
    rows : pyarrow.Table
    edges_us : ndarray of int
        Begins of the blocks; the first one has all rows before the second.
    overlap_us : int
        How long after a block rows belong to it, too.
    """
    times = rows["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    last = np.searchsorted(edges_us[1:], times, side="right")
    first = np.searchsorted(edges_us[1:], times - overlap_us, side="right")
    times_each = last - first + 1
    at = np.repeat(np.arange(len(rows)), times_each)
    further = np.arange(len(at)) - np.repeat(np.cumsum(times_each) - times_each, times_each)
    return rows.take(pa.array(at)).append_column("block", pa.array((first[at] + further).astype(np.int32)))


def finished(pieces: Iterable[pa.Table], summaries: Summaries) -> dict[str, pa.Table]:
    """Return what the summaries tell of the rows of one task."""
    running = {name: start() for name, start in summaries.items()}
    before: Piece | None = None
    for rows in pieces:
        if len(rows):
            piece = Piece(rows, before)
            for summary in running.values():
                summary.add(piece)
            before = piece
    return {name: summary.finish() for name, summary in running.items()}


@dataclass
class Groups:
    """Rows, or steps from one to the next, joined by the values of some columns.

    Parameters
    ----------
    tell : callable
        Function of a piece that returns the columns of both kinds, in the order of the rows.
    keys : tuple of str
        Columns that are equal within a group.
    values : mapping of str to str
        How others are joined: ``sum, min, max``, or ``first`` and ``last`` within a device.
    """

    tell: Callable[[Piece], pa.Table]
    keys: tuple[str, ...]
    values: Mapping[str, str]
    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _joined: int = 0

    def add(self, piece: Piece) -> None:
        """Add the next rows."""
        rows = self._join(self.tell(piece))
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows > _WAITING_ROWS and self._rows > 2 * self._joined:
            self._waiting = [self._join(pa.concat_tables(self._waiting))]
            self._rows = self._joined = len(self._waiting[0])

    def finish(self) -> pa.Table:
        """Return the groups of all rows so far."""
        if not self._waiting:
            return self._join(self.tell(Piece(_NO_ROWS)))
        return self._join(pa.concat_tables(self._waiting))

    def joined(self, parts: pa.Table) -> pa.Table:
        """Return the groups of several tasks, ordered by their keys."""
        return self._join(parts).sort_by([(key, "ascending") for key in self.keys])

    def _join(self, rows: pa.Table) -> pa.Table:
        """Join rows with equal keys."""
        return join_groups(rows, self.keys, self.values)


def join_groups(rows: pa.Table, keys: tuple[str, ...], values: Mapping[str, str]) -> pa.Table:
    """Join rows with equal keys, in the order of their first ones; ``values`` as for :class:`Groups`."""
    grouped = pa.TableGroupBy(rows, list(keys), use_threads=False)  # in order, for the first and last ones
    joined = grouped.aggregate(list(values.items()))
    named = [*keys, *(f"{name}_{how}" for name, how in values.items())]
    return joined.select(named).rename_columns([*keys, *values])


@dataclass
class Lines:
    """Some rows, or steps, a line each, ordered by ``order``."""

    tell: Callable[[Piece], pa.Table]
    order: tuple[str, ...]
    _parts: list[pa.Table] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """Add the next rows."""
        self._parts.append(self.tell(piece))

    def finish(self) -> pa.Table:
        """Return the lines of all rows so far."""
        return pa.concat_tables(self._parts) if self._parts else self.tell(Piece(_NO_ROWS))

    def joined(self, parts: pa.Table) -> pa.Table:
        """Return the lines of several tasks in order."""
        return parts.sort_by([(name, "ascending") for name in self.order])


_NO_ROWS: Final = pa.table(
    {
        "device": pa.array([], pa.string()),
        "ts": pa.array([], pa.timestamp("us", "UTC")),
        "lat": pa.array([], pa.float64()),
        "lon": pa.array([], pa.float64()),
        "origin": pa.array([], pa.string()),
        "reason": pa.array([], pa.string()),
        "box_km": pa.array([], pa.float64()),
        "window_s": pa.array([], pa.float64()),
    }
)
"""No rows, of any table of a trace: by them a summary knows the columns of its empty result."""

Tell: TypeAlias = Callable[[Piece], tuple[NDArray[np.int64], NDArray[np.float64]]]
"""Function of a piece that returns a group and a value for each row or step that it is about."""


def _key(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers that are ordered as some floating-point numbers are."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)


def _list_ranges(tell: Tell, shift: int, piece: Piece) -> pa.Table:
    """Return group and range of each value in a piece."""
    group, value = tell(piece)
    ones = np.ones(len(value), dtype=np.int64)
    columns = {"group": group, "range": _key(value) >> shift, "rows": ones, "least": value, "most": value}
    return pa.table(columns)


def _list_values(tell: Tell, shift: int, ranges: NDArray[np.int64], piece: Piece) -> pa.Table:
    """Return group and value of those in some ranges."""
    group, value = tell(piece)
    kept = np.isin(_key(value) >> shift, ranges)
    ones = np.ones(int(kept.sum()), dtype=np.int64)
    return pa.table({"group": group[kept], "value": value[kept], "rows": ones})


@dataclass(frozen=True)
class Values:
    """Values of rows, by group, of which ranks are asked: medians, quantiles.

    Values are first counted by ranges: of floating-point numbers that are equal but for their last ``shift``
    bits. A rank in a range with several values takes another pass, over the values of this range.
    """

    tell: Tell
    shift: int

    def ranges(self) -> Summary:
        """Start the summary of :class:`Ranks`."""
        values = {"rows": "sum", "least": "min", "most": "max"}
        return Groups(partial(_list_ranges, self.tell, self.shift), ("group", "range"), values)

    def exact(self, ranges: NDArray[np.int64]) -> Summary:
        """Start the summary of all values in some ranges."""
        tell = partial(_list_values, self.tell, self.shift, ranges)
        return Groups(tell, ("group", "value"), {"rows": "sum"})


class Ranks:
    """Exact ranks of values; groups are those of :class:`Values`, None stands for all together.

    Parameters
    ----------
    rows : Rows
    values : Values
    table : pyarrow.Table
        The summary :meth:`Values.ranges` of these rows.
    """

    def __init__(self, rows: Rows, values: Values, table: pa.Table) -> None:
        self._rows, self._values, self._table = rows, values, table
        self._ranges: dict[int | None, _Ranges] = {None: _Ranges.of(table)}
        group = table["group"].to_numpy()  # the table is ordered by group
        edges = np.flatnonzero(np.diff(group, prepend=group[:1] - 1, append=group[-1:] + 1)).tolist()
        for first, last in pairwise(edges):
            self._ranges[int(group[first])] = _Ranges.of(table.slice(first, last - first))
        self._exact: dict[int, pa.Table] = {}

    @property
    def groups(self) -> list[int]:
        """Groups that have a value, in order."""
        return [group for group in self._ranges if group is not None]

    def count(self, group: int | None = None) -> int:
        """Return the number of values in a group; None: of all."""
        return int(self._ranges[group].rows.sum())

    def ends(self) -> tuple[float, float]:
        """Return the least and the largest value of all; there must be one."""
        ranges = self._ranges[None]
        return float(ranges.least[0]), float(ranges.most[-1])

    def medians(self) -> NDArray[np.float64]:
        """Return the median of each group, in the order of the groups."""
        middles = {group: _middle(self.count(group)) for group in self.groups}
        self._read([places for group, ranks in middles.items() for places in self._several(ranks, group)])
        return np.array([np.mean(self.at(ranks, group)) for group, ranks in middles.items()])

    def median(self) -> float:
        """Return the median of all values; NaN without any."""
        count = self.count()
        return float(np.mean(self.at(_middle(count)))) if count else float("nan")

    def quantiles(self, levels: Iterable[float]) -> NDArray[np.float64]:
        """Return quantiles of all values, as :func:`numpy.quantile` does; there must be a value."""
        last = self.count() - 1
        places = np.array([level * last for level in levels])
        low = np.floor(places).astype(np.int64)
        ends = self.at(np.concatenate([low, np.minimum(low + 1, last)])).reshape(2, -1).T
        return np.array([np.quantile(pair, part) for pair, part in zip(ends, places - low, strict=True)])

    def at(self, ranks: NDArray[np.int64], group: int | None = None) -> NDArray[np.float64]:
        """Return the values that have these ranks, from 0, in a group; None: among all rows."""
        self._read(self._several(ranks, group))
        ranges = self._ranges[group]
        ends = np.cumsum(ranges.rows)
        places = np.searchsorted(ends, ranks, side="right")
        values = ranges.least[places]
        for place in np.flatnonzero(ranges.least[places] != ranges.most[places]).tolist():
            within = int(ranks[place] - ends[places[place]] + ranges.rows[places[place]])
            values[place] = self._pick(int(ranges.number[places[place]]), group, within)
        return np.asarray(values)

    def _several(self, ranks: NDArray[np.int64], group: int | None) -> list[int]:
        """Return the ranges with several values in which some ranks of a group lie; None: of all values."""
        ranges = self._ranges[group]
        places = np.searchsorted(np.cumsum(ranges.rows), ranks, side="right")
        return [int(number) for number in ranges.number[places[ranges.least[places] != ranges.most[places]]]]

    def _read(self, ranges: Iterable[int]) -> None:
        """Read all values of some ranges, unless they are known."""
        missing = np.array(sorted({*ranges} - self._exact.keys()), dtype=np.int64)
        if not len(missing):
            return
        table = summarise(self._rows, {"values": partial(self._values.exact, missing)})["values"]
        number = _key(table["value"].to_numpy()) >> self._values.shift
        for number_read in missing.tolist():
            self._exact[number_read] = table.filter(pa.array(number == number_read)).sort_by("value")

    def _pick(self, number: int, group: int | None, rank: int) -> float:
        """Return the value of a rank within a range."""
        table = self._exact[number]
        if group is not None:
            table = table.filter(pc.equal(table["group"], group))
        ends = np.cumsum(table["rows"].to_numpy())
        return float(table["value"][int(np.searchsorted(ends, rank, side="right"))].as_py())


@dataclass(frozen=True)
class _Ranges:
    """Ranges of values in order: numbers, rows, least and largest values."""

    number: NDArray[np.int64]
    rows: NDArray[np.int64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]

    @classmethod
    def of(cls, table: pa.Table) -> _Ranges:
        """Join the ranges of some groups."""
        values = {"rows": "sum", "least": "min", "most": "max"}
        joined = join_groups(table, ("range",), values).sort_by("range")
        return cls(*(joined[name].to_numpy() for name in ("range", "rows", "least", "most")))


def _middle(count: int) -> NDArray[np.int64]:
    """Return the ranks whose mean is the median."""
    return np.array([(count - 1) // 2, count // 2])
