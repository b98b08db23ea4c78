"""Exact membership of points in the answers of reads, in NumPy: counts by read, and the first read by point.

The answer of a read at ``t`` has the points of its box with times in ``(t - window, t]``. **A point that the
reading device wrote itself is held by that device the moment it is written**: it is one of the points of the
answer, but never missing, neither in a cached answer nor because its batch has not been sent. So only
another device's read can miss a point, and the **completeness** of an answer is the share that is there of
the points that others wrote: 1 where they wrote none. Labels, policies, bounds and reports all mean this.

Points are processed in pieces, in any order; counts of disjoint pieces add up, so Spark can distribute them.
Within a piece every point has three ranks (by time, latitude, longitude): each edge of a read is found once
by binary search, and membership is three comparisons of 16-bit integers. A read's points are one row of bits,
and those of other devices another one. Two reads of a device have the same own points, so the population
count of ``others[read] & row[earlier]`` is the number of others' points that both answers have. The first
read of a point is found by iterating over the reads in order of time, a few at once, with the remaining
points.

A cached answer serves the next :data:`MAX_SERVED` reads of its device at most, within the horizon. So a
device that reads each second has 360 pairs for each read, not one for each second of the horizon; that is
part of what a cache is, and the counts of all pairs, replays and the bound are exact for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.trace.schema import epoch_us, read_ids
from mudkit.units import US_PER_S, Box, box_bounds

NOTHING = -1
"""Number that stands for no read."""

MAX_SERVED = 360
"""Reads that a cached answer may serve, at most: as many as a device makes in two hours every 20 seconds."""

_PIECE_POINTS = 4096  # ranks of a piece fit 16 bits, and a block of reads by a piece stays in cache
_BLOCK_READS = 128
_PAIR_ROWS = 4096
_SEARCH_POINTS = 2048  # all points of a short piece soon have their first read
_SEARCH_READS = 32
_EDGE_READS = 1024
_SLICE_POINTS = 1 << 20  # more would need the bit rows of too many reads in memory


def read_labels(positions: pa.Table, reads: pa.Table, horizon_s: float) -> pa.Table:
    """Label reads in this process; the columns are those of :func:`mudkit.pipeline.label_reads`."""
    prepared = Reads.of(reads, horizon_s)
    read, cached = prepared.pairs(0, len(prepared.ids))
    read_ids_, cached_ids = prepared.ids[read], prepared.ids[cached]
    parts = [_partial(prepared.ids, None), _partial(read_ids_, cached_ids)]
    positions = positions.select(["device", "ts", "lat", "lon"])
    order = np.argsort(epoch_us(positions["ts"]), kind="stable")
    for first in range(0, len(order), _SLICE_POINTS):
        some = positions.take(pa.array(order[first : first + _SLICE_POINTS]))
        parts += [_partial(*counts) for counts in prepared.count(prepared.points_of(some))]
    keys = ["read_id", "cached_read_id"]
    counted = ["points", "others", "missing"]
    sums = pa.concat_tables(parts).group_by(keys).aggregate([(name, "sum") for name in counted])
    points, others, missing = (sums[f"{name}_sum"].to_numpy() for name in counted)
    return pa.table(
        {
            **{key: sums[key] for key in keys},
            "points": points,
            "others": others,
            "missing": missing,
            "completeness": np.where(others == 0, 1.0, (others - missing) / np.maximum(others, 1)),
        }
    )


def first_reads(positions: pa.Table, reads: pa.Table) -> pa.Table:
    """Label positions in this process as :func:`mudkit.pipeline.label_writes` does."""
    prepared = Reads.of(reads)
    order = np.argsort(epoch_us(positions["ts"]), kind="stable")
    points = positions.take(order)
    first = prepared.first(prepared.points_of(points))
    never = first == NOTHING
    return pa.table(
        {
            "device": points["device"],
            "ts": points["ts"],
            "first_read_id": pa.array(prepared.ids[first], mask=never),
            "first_read_ts": pa.array(prepared.end_us[first], mask=never).cast(points["ts"].type),
        }
    )


def _partial(
    read: NDArray[np.int64],
    cached: NDArray[np.int64] | None,
    *counts: NDArray[np.int64],
) -> pa.Table:
    """Return partial counts as a table.

    All are 0 if none are given, and ``cached`` None: of the reads themselves.
    """
    points, others, missing = counts or [np.zeros(len(read), dtype=np.int64)] * 3
    return pa.table(
        {
            "read_id": read,
            "cached_read_id": pa.nulls(len(read), pa.int64()) if cached is None else pa.array(cached),
            "points": points,
            "others": others,
            "missing": missing,
        }
    )


class Points(NamedTuple):
    """Points with the numbers of the devices that wrote them, as the reads have them; see `Reads.owners`."""

    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    owner: NDArray[np.int32]


class Counts(NamedTuple):
    """Partial counts by read id and by (read, cached read): points, those of other devices, missing ones.

    What is missing is what the device does not hold: with nothing cached all that others wrote, else what the
    cached answer does not have of it.
    """

    read: NDArray[np.int64]
    cached: NDArray[np.int64] | None
    points: NDArray[np.int64]
    others: NDArray[np.int64]
    missing: NDArray[np.int64]


@dataclass(frozen=True)
class Reads:
    """Reads in order of time and id, prepared for matching with points.

    A read has times in ``(start_us, end_us]``; ``end_us`` ascends. `device` is the place of its device in
    `names`. `by_device` are numbers of reads by device and time; earlier reads of the same device whose
    answers may serve it are ``by_device[first_earlier[r]:past_earlier[r]]``: those within the horizon, the
    last :data:`MAX_SERVED` at most. Of two reads at the same time neither is earlier. Reads before
    `first_counted` are only there as cached ones of others.
    """

    ids: NDArray[np.int64]
    names: pa.Array
    device: NDArray[np.int32]
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    box: Box
    by_device: NDArray[np.int64]
    first_earlier: NDArray[np.int64]
    past_earlier: NDArray[np.int64]
    first_counted: int = 0

    @classmethod
    def of(cls, table: pa.Table, horizon_s: float = 0.0, *, since_us: int | None = None) -> Reads:
        """Prepare a table of reads; those before `since_us` only count as cached.

        `horizon_s` is the age up to which an answer counts as cached. A missing ``read_id`` is added.
        """
        if "read_id" not in table.column_names:
            table = table.append_column("read_id", pa.array(read_ids(table)))
        table = table.sort_by([("ts", "ascending"), ("read_id", "ascending")])
        t_us = epoch_us(table["ts"])
        window_us = np.rint(table["window_s"].to_numpy() * US_PER_S).astype(np.int64)
        devices = table["device"].combine_chunks().dictionary_encode()
        codes = np.asarray(devices.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
        by_device = np.argsort(codes, kind="stable").astype(np.int64)
        first = np.empty(len(table), dtype=np.int64)
        past = np.empty(len(table), dtype=np.int64)
        edges = [0, *(np.flatnonzero(np.diff(codes[by_device])) + 1).tolist(), len(table)]
        horizon_us = round(horizon_s * US_PER_S)
        for a, b in pairwise(edges):
            rows = by_device[a:b]
            first[rows] = a + np.searchsorted(t_us[rows], t_us[rows] - horizon_us, side="left")
            past[rows] = a + np.searchsorted(t_us[rows], t_us[rows], side="left")
            first[rows] = np.maximum(first[rows], past[rows] - MAX_SERVED)
        box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
        ids = np.asarray(table["read_id"].to_numpy(), dtype=np.int64)
        counted = 0 if since_us is None else int(np.searchsorted(t_us, since_us))
        names = devices.dictionary
        return cls(ids, names, codes, t_us - window_us, t_us, box, by_device, first, past, counted)

    def owners(self, devices: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the numbers of devices by name; -1: it never reads."""
        if not len(self.names):
            return np.full(len(devices), -1, dtype=np.int32)
        numbers = pc.index_in(devices.cast(self.names.type), value_set=self.names)
        return np.asarray(pc.fill_null(numbers, -1).to_numpy(), dtype=np.int32)

    def points_of(self, positions: pa.Table) -> Points:
        """Return the points of a table ``device, ts, lat, lon``."""
        lat, lon = (positions[name].to_numpy() for name in ("lat", "lon"))
        return Points(epoch_us(positions["ts"]), lat, lon, self.owners(positions["device"]))

    def pairs(self, first: int, past: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List (read, earlier read) for the reads ``first <= read < past``, as numbers."""
        counts = self.past_earlier[first:past] - self.first_earlier[first:past]
        read = np.repeat(np.arange(first, past), counts)
        step = np.arange(len(read)) - np.repeat(np.cumsum(counts) - counts, counts)
        return read, self.by_device[np.repeat(self.first_earlier[first:past], counts) + step]

    def count(self, some_points: Points) -> Iterator[Counts]:
        """Count points, in any order, against all counted reads; yield partial counts without zeros."""
        if not len(some_points.t_us) or not len(self.ids):
            return
        t_us, lat, lon, owner = some_points
        order = np.argsort(t_us, kind="stable")
        ascending_us = t_us[order]
        first, past = self._of_times(ascending_us)
        counted = max(first, self.first_counted)
        points, others = np.zeros((2, past - first), dtype=np.int64)
        read, cached = self.pairs(counted, past)
        starts = np.searchsorted(read, np.arange(first, past + 1))
        cached_others = np.zeros(len(read), dtype=np.int64)
        for some_rows in self._pieces(ascending_us, _PIECE_POINTS):
            rows = order[some_rows]
            a, b = self._of_times(t_us[rows])
            if max(a, counted) >= b:
                continue
            bits = self._bits(a, b, _Piece(t_us[rows], lat[rows], lon[rows]))
            of_others = self._of_others(a, bits, owner[rows])
            points[a - first : b - first] += _ones(bits)
            others[a - first : b - first] += _ones(of_others)
            for j in range(starts[a - first], starts[b - first], _PAIR_ROWS):
                some = slice(j, min(j + _PAIR_ROWS, starts[b - first]))
                both = np.flatnonzero(cached[some] >= a) + j  # others were over before this piece began
                cached_others[both] += _ones(of_others[read[both] - a] & bits[cached[both] - a])
        points[: counted - first] = 0
        any_points = np.flatnonzero(points)
        alone = points[any_points], others[any_points], others[any_points]
        yield Counts(self.ids[first + any_points], None, *alone)
        pairs = np.flatnonzero(points[read - first])
        of_read = read[pairs] - first
        whole = points[of_read], others[of_read], others[of_read] - cached_others[pairs]
        yield Counts(self.ids[read[pairs]], self.ids[cached[pairs]], *whole)

    def first(self, points: Points) -> NDArray[np.int64]:
        """Return for each point the number of another device's first read that has it, or :data:`NOTHING`.

        A long stretch of points in order of time is fastest.
        """
        t_us, lat, lon, owner = points
        numbers = np.full(len(t_us), NOTHING, dtype=np.int64)
        order = np.argsort(t_us, kind="stable")
        for some_rows in self._pieces(t_us[order], _SEARCH_POINTS) if len(self.ids) else ():
            rows = order[some_rows]
            a, b = self._of_times(t_us[rows])
            if a == b:
                continue
            piece = _Piece(t_us[rows], lat[rows], lon[rows])
            left = np.arange(len(rows))
            for c in range(a, b, _EDGE_READS):
                edges = piece.edges(self, c, min(c + _EDGE_READS, b))
                for j in range(0, len(edges.wraps), _SEARCH_READS):
                    inside = piece.inside(edges, slice(j, j + _SEARCH_READS), left)
                    some = np.flatnonzero(inside.any(axis=0))
                    reader = self.device[c + j : c + j + len(inside), None]
                    by_others = inside[:, some] & (owner[rows[left[some]]] != reader)
                    hit = by_others.any(axis=0)
                    numbers[rows[left[some[hit]]]] = c + j + by_others[:, hit].argmax(axis=0)
                    left = np.delete(left, some[hit])
                if not len(left):
                    break
        return numbers

    @cached_property
    def _longest_us(self) -> int:
        """Length of the longest window."""
        return int(np.max(self.end_us - self.start_us))

    def _of_times(self, t_us: NDArray[np.int64]) -> tuple[int, int]:
        """Return the range of reads that may have points of these ascending times."""
        first = np.searchsorted(self.end_us, t_us[0])
        return int(first), int(np.searchsorted(self.end_us, t_us[-1] + self._longest_us))

    def _pieces(self, t_us: NDArray[np.int64], most: int) -> Iterator[slice]:
        """Yield slices of points, at most ``most`` each, with few reads between the times of one slice.

        A partition of Spark may have files of dates that are far apart. Times are ascending.
        """
        next_reads = np.searchsorted(self.end_us, t_us)
        cuts = np.flatnonzero(np.diff(next_reads) > _BLOCK_READS) + 1
        for first, past in pairwise([0, *cuts.tolist(), len(t_us)]):
            for i in range(first, past, most):
                yield slice(i, min(i + most, past))

    def late(
        self, points: Points, arrival_us: NDArray[np.int64], some: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count for each read the points of other devices in its answer that come after it.

        Only the points with the numbers `some` are looked at.
        """
        counts = np.zeros(len(self.ids), dtype=np.int64)
        if not len(some) or not len(self.ids):
            return counts
        t_us, lat, lon, owner = points
        order = some[np.argsort(t_us[some], kind="stable")]
        for some_rows in self._pieces(t_us[order], _PIECE_POINTS):
            rows = order[some_rows]
            a, b = self._of_times(t_us[rows])
            b = min(b, int(np.searchsorted(self.end_us, arrival_us[rows].max())))  # later reads lack none
            if a >= b:
                continue
            piece = _Piece(t_us[rows], lat[rows], lon[rows])
            arrival_rank, arrivals = _ranked(arrival_us[rows])
            come = np.searchsorted(arrivals, self.end_us[a:b], side="right").astype(np.uint16)
            counts[a:b] += _ones(self._of_others(a, self._bits(a, b, piece, arrival_rank, come), owner[rows]))
        return counts

    def _of_others(
        self, first: int, bits: NDArray[np.uint64], owner: NDArray[np.int32]
    ) -> NDArray[np.uint64]:
        """Return rows of bits, of the reads from ``first`` on, without the points of their own devices."""
        readers = np.flatnonzero(owner >= 0)
        writes, row = np.unique(owner[readers], return_inverse=True)
        own = np.zeros((len(writes), bits.shape[1] * 8), dtype=np.uint8)
        # Each point is a bit of its own: adding sets it.
        np.add.at(own, (row, readers // 8), (128 >> (readers % 8)).astype(np.uint8))
        of_others = bits.copy()
        reader = self.device[first : first + len(bits)]
        has_row = np.flatnonzero(np.isin(reader, writes))
        of_others[has_row] &= ~own.view(np.uint64)[np.searchsorted(writes, reader[has_row])]
        return of_others

    def _bits(
        self,
        first: int,
        past: int,
        piece: _Piece,
        rank: NDArray[np.uint16] | None = None,
        from_rank: NDArray[np.uint16] | None = None,
    ) -> NDArray[np.uint64]:
        """Return the points of each read ``first <= read < past``, from a rank on, as a row of bits."""
        n = len(piece.t_us)
        edges = piece.edges(self, first, past)
        packed = np.zeros((past - first, -(-n // 64) * 8), dtype=np.uint8)
        for i in range(0, past - first, _BLOCK_READS):
            block = slice(i, i + _BLOCK_READS)
            inside = piece.inside(edges, block)
            if rank is not None and from_rank is not None:
                inside &= rank >= from_rank[block, None]
            packed[block, : -(-n // 8)] = np.packbits(inside, axis=1)
        return packed.view(np.uint64)


class _Edges(NamedTuple):
    """Sides of reads among the ranks of a piece: ``low <= rank < low + width``."""

    low: list[NDArray[np.uint16]]
    width: list[NDArray[np.uint16]]
    wraps: NDArray[np.bool_]  # the box crosses the date line: the ranks of longitude are those outside


class _Piece:
    """Points in order of time, with their ranks."""

    def __init__(self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
        self.t_us = t_us
        lat_rank, self._lat = _ranked(lat)
        lon_rank, self._lon = _ranked(np.where(lon == 180.0, -180.0, lon))
        self._ranks = [np.arange(len(t_us), dtype=np.uint16), lat_rank, lon_rank]

    def edges(self, reads: Reads, first: int, past: int) -> _Edges:
        """Find the edges of the reads ``first <= read < past``."""
        south, west, north, east = (side[first:past] for side in reads.box)
        wraps = west > east
        west_first = np.searchsorted(self._lon, west, side="left")
        east_past = np.searchsorted(self._lon, east, side="right")
        # A box across the date line holds what is not strictly between its east and its west edge.
        sides = [
            (
                np.searchsorted(self.t_us, reads.start_us[first:past], side="right"),
                np.searchsorted(self.t_us, reads.end_us[first:past], side="right"),
            ),
            (
                np.searchsorted(self._lat, south, side="left"),
                np.searchsorted(self._lat, north, side="right"),
            ),
            (np.where(wraps, east_past, west_first), np.where(wraps, west_first, east_past)),
        ]
        return _Edges(
            [low.astype(np.uint16) for low, _ in sides],
            [np.maximum(high - low, 0).astype(np.uint16) for low, high in sides],
            wraps,
        )

    def inside(
        self, edges: _Edges, block: slice, points: NDArray[np.int64] | None = None
    ) -> NDArray[np.bool_]:
        """Return which points (all, or the given ones) a block of reads has, a row for each read."""
        wraps = edges.wraps[block]
        inside = None
        for number, (rank, low, width) in enumerate(zip(self._ranks, edges.low, edges.width, strict=True)):
            ranks = rank if points is None else rank[points]
            # Below the low edge the difference wraps around to a number that no width reaches.
            within = (ranks[None, :] - low[block, None]) < width[block, None]
            if number == 2 and wraps.any():
                within ^= wraps[:, None]
            inside = within if inside is None else np.logical_and(inside, within, out=inside)
        assert inside is not None
        return inside


def _ranked(values: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Return the rank of each value among all, from 0, and the sorted values."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.uint16)
    rank[order] = np.arange(len(values), dtype=np.uint16)
    return rank, values[order]


def _ones(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of ones in each row of bits."""
    return np.asarray(np.bitwise_count(bits).sum(axis=1), dtype=np.int64)
