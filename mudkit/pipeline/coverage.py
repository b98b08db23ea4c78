"""Which points the answer of each read holds, counted exactly, in NumPy.

A read that was asked at ``t`` holds the points of its box with times in ``(t - window, t]``. Points come in
pieces, in any order; counts of disjoint pieces add up, which is what lets Spark spread them.

Within a piece every point gets three ranks (by time, latitude, longitude), so that each edge of a read is
found once by binary search and membership is three comparisons of 16-bit integers. A read's points are one
row of bits, and what two answers share is the population count of ``row & row``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.trace.schema import epoch_us, read_ids
from mudkit.units import US_PER_S, Box, box_bounds

__all__ = ["Counts", "Reads"]

_PIECE_POINTS = 4096  # ranks of a piece fit 16 bits, and a block of reads by a piece stays in cache
_BLOCK_READS = 128
_PAIR_ROWS = 4096


class Counts(NamedTuple):
    """Partial counts by read and by (read, cached read).

    Attributes
    ----------
    read, cached : ndarray of int64
        Ids; ``cached`` is None where nothing is cached.
    points, held : ndarray of int64
        How many points the read's answer has, and how many of them the cached answer has too.
    """

    read: NDArray[np.int64]
    cached: NDArray[np.int64] | None
    points: NDArray[np.int64]
    held: NDArray[np.int64]


@dataclass(frozen=True)
class Reads:
    """Reads in order of time, ready to be counted against points.

    Attributes
    ----------
    ids : ndarray of int64, shape (reads,)
    start_us, end_us : ndarray of int64
        The read holds times in ``(start_us, end_us]``; ``end_us`` ascends.
    box : Box
    by_device : ndarray of int64
        Numbers of the reads, ordered by device and time.
    first_earlier, past_earlier : ndarray of int64
        Earlier reads of the same device within the horizon are
        ``by_device[first_earlier[r]:past_earlier[r]]``. Of two reads at the same time neither is earlier.
    """

    ids: NDArray[np.int64]
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    box: Box
    by_device: NDArray[np.int64]
    first_earlier: NDArray[np.int64]
    past_earlier: NDArray[np.int64]

    @classmethod
    def of(cls, table: pa.Table, horizon_s: float) -> Reads:
        """Prepare a table of reads (``device, ts, lat, lon, box_km, window_s``; ids are made if missing)."""
        if "read_id" not in table.column_names:
            table = table.append_column("read_id", pa.array(read_ids(table)))
        table = table.sort_by([("ts", "ascending"), ("device", "ascending"), ("read_id", "ascending")])
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
        return cls(ids, t_us - window_us, t_us, box, by_device, first, past)

    def pairs(self, first: int, past: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List (read, earlier read) for the reads ``first <= read < past``, as numbers."""
        counts = self.past_earlier[first:past] - self.first_earlier[first:past]
        read = np.repeat(np.arange(first, past), counts)
        step = np.arange(len(read)) - np.repeat(np.cumsum(counts) - counts, counts)
        return read, self.by_device[np.repeat(self.first_earlier[first:past], counts) + step]

    def count(
        self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
    ) -> Iterator[Counts]:
        """Count points against all reads.

        Parameters
        ----------
        t_us : ndarray of int64
            Times of the points, in any order.
        lat, lon : ndarray of float64
            Places, degrees.

        Yields
        ------
        Counts
            Partial counts by read id, zeros left out; those of the same (read, cached) add up.
        """
        if not len(t_us) or not len(self.ids):
            return
        order = np.argsort(t_us, kind="stable")
        t_us, lat, lon = t_us[order], lat[order], np.where(lon == 180.0, -180.0, lon)[order]
        longest_us = int(np.max(self.end_us - self.start_us))
        first = int(np.searchsorted(self.end_us, t_us[0]))
        past = int(np.searchsorted(self.end_us, t_us[-1] + longest_us))
        if first == past:
            return
        points = np.zeros(past - first, dtype=np.int64)
        read, cached = self.pairs(first, past)
        starts = np.searchsorted(read, np.arange(first, past + 1))
        held = np.zeros(len(read), dtype=np.int64)
        for i in range(0, len(t_us), _PIECE_POINTS):
            piece = slice(i, i + _PIECE_POINTS)
            a = int(np.searchsorted(self.end_us, t_us[piece][0]))
            b = int(np.searchsorted(self.end_us, t_us[piece][-1] + longest_us))
            if a == b:
                continue
            bits = self._bits(a, b, t_us[piece], lat[piece], lon[piece])
            points[a - first : b - first] += _ones(bits)
            for j in range(starts[a - first], starts[b - first], _PAIR_ROWS):
                rows = slice(j, min(j + _PAIR_ROWS, starts[b - first]))
                both = np.flatnonzero(cached[rows] >= a) + j  # others were over before this piece began
                held[both] += _ones(bits[read[both] - a] & bits[cached[both] - a])
        some = np.flatnonzero(points)
        yield Counts(self.ids[first + some], None, points[some], np.zeros(len(some), dtype=np.int64))
        of_read = points[read - first]
        some = np.flatnonzero(of_read)
        yield Counts(self.ids[read[some]], self.ids[cached[some]], of_read[some], held[some])

    def _bits(
        self,
        first: int,
        past: int,
        t_us: NDArray[np.int64],
        lat: NDArray[np.float64],
        lon: NDArray[np.float64],
    ) -> NDArray[np.uint64]:
        """Which of the points each read holds, a row of bits for each read ``first <= read < past``."""
        n = len(t_us)
        lat_rank, south, north = _ranks(lat, self.box.south[first:past], self.box.north[first:past])
        lon_rank, west, east = _ranks(lon, self.box.west[first:past], self.box.east[first:past])
        wraps = self.box.west[first:past] > self.box.east[first:past]
        # A box across the date line holds what is not strictly between its east and its west edge.
        east_past = np.searchsorted(np.sort(lon), self.box.east[first:past], side="right")
        west_first = np.where(wraps, east_past, west).astype(np.uint16)
        lon_width = np.where(wraps, np.maximum(west - east_past, 0), np.maximum(east - west, 0))
        since = np.searchsorted(t_us, self.start_us[first:past], side="right")
        until = np.searchsorted(t_us, self.end_us[first:past], side="right")
        sides = [
            (np.arange(n, dtype=np.uint16), since.astype(np.uint16), np.maximum(until - since, 0)),
            (lat_rank, south.astype(np.uint16), np.maximum(north - south, 0)),
            (lon_rank, west_first, lon_width),
        ]
        packed = np.zeros((past - first, -(-n // 64) * 8), dtype=np.uint8)
        for i in range(0, past - first, _BLOCK_READS):
            block = slice(i, i + _BLOCK_READS)
            inside = np.ones((len(wraps[block]), n), dtype=np.bool_)
            for number, (rank, low, width) in enumerate(sides):
                # Below the low edge the difference wraps around to a number that no width reaches.
                within = (rank[None, :] - low[block, None]) < width[block, None].astype(np.uint16)
                inside &= within ^ wraps[block, None] if number == 2 else within
            packed[block, : -(-n // 8)] = np.packbits(inside, axis=1)
        return packed.view(np.uint64)


def _ranks(
    values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64]]:
    """Ranks of values, and the half-open range of ranks that lies in each closed interval."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.uint16)
    rank[order] = np.arange(len(values), dtype=np.uint16)
    ordered = values[order]
    return rank, np.searchsorted(ordered, low, side="left"), np.searchsorted(ordered, high, side="right")


def _ones(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.asarray(np.bitwise_count(bits).sum(axis=1), dtype=np.int64)
