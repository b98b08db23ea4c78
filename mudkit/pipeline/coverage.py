"""Exact membership of points in the answers of reads, in NumPy: counts by read, and the first read by point.

The answer of a read at ``t`` has the points of its box with times in ``(t - window, t]``. Points are
processed in pieces, in any order; counts of disjoint pieces add up, so Spark can distribute them.

Within a piece every point has three ranks (by time, latitude, longitude): each edge of a read is found once
by binary search, and membership is three comparisons of 16-bit integers. A read's points are one row of bits;
the number of points that two answers share is the population count of ``row & row``. The first read of a
point is found by iterating over the reads in order of time, a few at once, with the remaining points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.trace.schema import epoch_us, read_ids
from mudkit.units import US_PER_S, Box, box_bounds

__all__ = ["NOTHING", "Counts", "Reads", "first_reads", "read_labels"]

NOTHING = -1
"""Number that stands for no read."""

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
    positions = positions.select(["ts", "lat", "lon"]).sort_by("ts")
    for first in range(0, len(positions), _SLICE_POINTS):
        some = positions.slice(first, _SLICE_POINTS)
        places = (some[name].to_numpy() for name in ("lat", "lon"))
        parts += [_partial(*counts) for counts in prepared.count(epoch_us(some["ts"]), *places)]
    keys = ["read_id", "cached_read_id"]
    sums = pa.concat_tables(parts).group_by(keys).aggregate([("points", "sum"), ("shared", "sum")])
    points, shared = sums["points_sum"].to_numpy(), sums["shared_sum"].to_numpy()
    return pa.table(
        {
            **{key: sums[key] for key in keys},
            "points": points,
            "missing": points - shared,
            "completeness": np.where(points == 0, 1.0, shared / np.maximum(points, 1)),
        }
    )


def first_reads(positions: pa.Table, reads: pa.Table) -> pa.Table:
    """Label positions in this process as :func:`mudkit.pipeline.label_writes` does."""
    prepared = Reads.of(reads)
    order = np.argsort(epoch_us(positions["ts"]), kind="stable")
    points = positions.take(order)
    first = prepared.first(epoch_us(points["ts"]), *(points[name].to_numpy() for name in ("lat", "lon")))
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
    points: NDArray[np.int64] | None = None,
    shared: NDArray[np.int64] | None = None,
) -> pa.Table:
    nothing = np.zeros(len(read), dtype=np.int64)
    return pa.table(
        {
            "read_id": read,
            "cached_read_id": pa.nulls(len(read), pa.int64()) if cached is None else pa.array(cached),
            "points": nothing if points is None else points,
            "shared": nothing if shared is None else shared,
        }
    )


class Counts(NamedTuple):
    """Partial counts by read id and by (read, cached read): points, and those also in the cached answer."""

    read: NDArray[np.int64]
    cached: NDArray[np.int64] | None
    points: NDArray[np.int64]
    shared: NDArray[np.int64]


@dataclass(frozen=True)
class Reads:
    """Reads in order of time and id, prepared for matching with points.

    A read has times in ``(start_us, end_us]``; ``end_us`` ascends. `by_device` are numbers of reads by device
    and time; earlier reads of the same device within the horizon are
    ``by_device[first_earlier[r]:past_earlier[r]]``, of two reads at the same time neither is earlier. Reads
    before `first_counted` are only there as cached ones of others.
    """

    ids: NDArray[np.int64]
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
        codes = table["device"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        by_device = np.argsort(codes, kind="stable").astype(np.int64)
        first = np.empty(len(table), dtype=np.int64)
        past = np.empty(len(table), dtype=np.int64)
        edges = [0, *(np.flatnonzero(np.diff(codes[by_device])) + 1).tolist(), len(table)]
        horizon_us = round(horizon_s * US_PER_S)
        for a, b in pairwise(edges):
            rows = by_device[a:b]
            first[rows] = a + np.searchsorted(t_us[rows], t_us[rows] - horizon_us, side="left")
            past[rows] = a + np.searchsorted(t_us[rows], t_us[rows], side="left")
        box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
        ids = np.asarray(table["read_id"].to_numpy(), dtype=np.int64)
        counted = 0 if since_us is None else int(np.searchsorted(t_us, since_us))
        return cls(ids, t_us - window_us, t_us, box, by_device, first, past, counted)

    def pairs(self, first: int, past: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List (read, earlier read) for the reads ``first <= read < past``, as numbers."""
        counts = self.past_earlier[first:past] - self.first_earlier[first:past]
        read = np.repeat(np.arange(first, past), counts)
        step = np.arange(len(read)) - np.repeat(np.cumsum(counts) - counts, counts)
        return read, self.by_device[np.repeat(self.first_earlier[first:past], counts) + step]

    def count(
        self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
    ) -> Iterator[Counts]:
        """Count points, in any order, against all counted reads; yield partial counts without zeros."""
        if not len(t_us) or not len(self.ids):
            return
        order = np.argsort(t_us, kind="stable")
        t_us, lat, lon = t_us[order], lat[order], lon[order]
        first, past = self._of_times(t_us)
        counted = max(first, self.first_counted)
        if counted >= past:
            return
        points = np.zeros(past - first, dtype=np.int64)
        read, cached = self.pairs(counted, past)
        starts = np.searchsorted(read, np.arange(first, past + 1))
        shared = np.zeros(len(read), dtype=np.int64)
        for rows in self._pieces(t_us, _PIECE_POINTS):
            a, b = self._of_times(t_us[rows])
            if max(a, counted) >= b:
                continue
            bits = self._bits(a, b, _Piece(t_us[rows], lat[rows], lon[rows]))
            points[a - first : b - first] += _ones(bits)
            for j in range(starts[a - first], starts[b - first], _PAIR_ROWS):
                some = slice(j, min(j + _PAIR_ROWS, starts[b - first]))
                both = np.flatnonzero(cached[some] >= a) + j  # others were over before this piece began
                shared[both] += _ones(bits[read[both] - a] & bits[cached[both] - a])
        points[: counted - first] = 0
        any_points = np.flatnonzero(points)
        nothing = np.zeros(len(any_points), dtype=np.int64)
        yield Counts(self.ids[first + any_points], None, points[any_points], nothing)
        of_read = points[read - first]
        pairs = np.flatnonzero(of_read)
        yield Counts(self.ids[read[pairs]], self.ids[cached[pairs]], of_read[pairs], shared[pairs])

    def first(
        self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the number of the first read whose answer has each point, else :data:`NOTHING`.

        A long stretch of points in order of time is fastest.
        """
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
                    hit = inside.any(axis=0)
                    some = np.flatnonzero(hit)
                    numbers[rows[left[some]]] = c + j + inside[:, some].argmax(axis=0)
                    left = left[~hit]
                if not len(left):
                    break
        return numbers

    @cached_property
    def _longest_us(self) -> int:
        return int(np.max(self.end_us - self.start_us))

    def _of_times(self, t_us: NDArray[np.int64]) -> tuple[int, int]:
        """Return the range of reads that may have points of these ascending times."""
        first = np.searchsorted(self.end_us, t_us[0])
        return int(first), int(np.searchsorted(self.end_us, t_us[-1] + self._longest_us))

    def _pieces(self, t_us: NDArray[np.int64], most: int) -> Iterator[slice]:
        """Cut points with ascending times so that no piece has many reads between two of its points.

        A partition of Spark may have files of dates that are far apart.
        """
        next_reads = np.searchsorted(self.end_us, t_us)
        cuts = np.flatnonzero(np.diff(next_reads) > _BLOCK_READS) + 1
        for first, past in pairwise([0, *cuts.tolist(), len(t_us)]):
            for i in range(first, past, most):
                yield slice(i, min(i + most, past))

    def _bits(self, first: int, past: int, piece: _Piece) -> NDArray[np.uint64]:
        """Return the points of each read ``first <= read < past`` as a row of bits."""
        n = len(piece.t_us)
        edges = piece.edges(self, first, past)
        packed = np.zeros((past - first, -(-n // 64) * 8), dtype=np.uint8)
        for i in range(0, past - first, _BLOCK_READS):
            block = slice(i, i + _BLOCK_READS)
            packed[block, : -(-n // 8)] = np.packbits(piece.inside(edges, block), axis=1)
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


def _ranked(values: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Return the rank of each value, and the sorted values."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.uint16)
    rank[order] = np.arange(len(values), dtype=np.uint16)
    return rank, values[order]


def _ones(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.asarray(np.bitwise_count(bits).sum(axis=1), dtype=np.int64)
