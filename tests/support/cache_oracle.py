"""Labels, replay and score of cache policies, by brute force: nothing is shared with the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

US = 1_000_000
EARTH_KM = 6371.0088
SENT = -1

Decide = Callable[..., NDArray[np.bool_]]
"""Decides by ``age_s, distance_km, hour, lat, lon, weekday`` of each pair, all of the read but the first two."""


@dataclass(frozen=True)
class Labelled:
    """Reads by device and time, and pairs with each earlier read within the horizon, by read and earlier read.

    ``points`` are those of an answer, ``others`` those of them that another device wrote, the only ones that can
    be missing.
    """

    ids: NDArray[np.int64]
    device: NDArray[np.int64]
    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    points: NDArray[np.int64]
    others: NDArray[np.int64]
    first: NDArray[np.int64]
    oldest: NDArray[np.int64]
    read: NDArray[np.int64]
    cached: NDArray[np.int64]
    missing: NDArray[np.int64]

    @cached_property
    def completeness(self) -> NDArray[np.float64]:
        """Completeness of the cached answer of each pair; nothing by others is complete."""
        return _completeness(self.others[self.read], self.missing)

    @cached_property
    def known(self) -> dict[str, NDArray[Any]]:
        """Features that a policy may decide by, for each pair; hours and weekdays (Monday: 0) in mean solar time."""
        read, cached = self.read, self.cached
        hours = self.t_us / 3600e6 + self.lon / 15.0
        return {
            "age_s": (self.t_us[read] - self.t_us[cached]) / US,
            "distance_km": haversine_km(self.lat[read], self.lon[read], self.lat[cached], self.lon[cached]),
            "hour": (hours % 24.0)[read],
            "lat": self.lat[read],
            "lon": self.lon[read],
            "weekday": ((hours // 24).astype(np.int64) + 3)[read] % 7,
        }

    def decisions(self, decide: Decide) -> NDArray[np.bool_]:
        """Return the decision for each pair."""
        return np.asarray(decide(**self.known), dtype=np.bool_)

    def table(self) -> pa.Table:
        """Return the labels as the pipeline writes them."""
        alone = pa.nulls(len(self.ids), pa.int64())
        points = np.concatenate([self.points, self.points[self.read]])
        others = np.concatenate([self.others, self.others[self.read]])
        missing = np.concatenate([self.others, self.missing])
        return pa.table(
            {
                "read_id": np.concatenate([self.ids, self.ids[self.read]]),
                "cached_read_id": pa.concat_arrays([alone, pa.array(self.ids[self.cached])]),
                "points": points,
                "others": others,
                "missing": missing,
                "completeness": _completeness(others, missing),
            }
        )


@dataclass(frozen=True)
class Score:
    """Shares of all reads: sent, answered from the cache and stale, answered from the cache and fresh."""

    sent: float
    stale: float
    fresh: float


def label(positions: pa.Table, reads: pa.Table, horizon_s: float) -> Labelled:
    """Compare the answer of each read with each earlier answer, point by point; own points never count."""
    reads = reads.sort_by([("device", "ascending"), ("ts", "ascending"), ("read_id", "ascending")])
    positions = positions.sort_by("ts")
    names = {name: number for number, name in enumerate(sorted(set(reads["device"].to_pylist())))}
    device = np.array([names[name] for name in reads["device"].to_pylist()])
    writer = np.array([names.get(name, -1) for name in positions["device"].to_pylist()])
    t_us, at_us = (np.asarray(table["ts"].cast(pa.int64())) for table in (reads, positions))
    lat, lon = (np.asarray(reads[name]) for name in ("lat", "lon"))
    north, east = (np.asarray(positions[name]) for name in ("lat", "lon"))
    window_us = np.round(np.asarray(reads["window_s"]) * US).astype(np.int64)
    half_lat = np.degrees(np.asarray(reads["box_km"]) / 2 / EARTH_KM)
    half_lon = half_lat / np.cos(np.radians(lat))
    horizon_us, total = round(horizon_s * US), len(reads)
    points, others, oldest, missing = np.zeros(total, int), np.zeros(total, int), np.zeros(total, int), []
    for read in range(total):
        since = np.searchsorted(at_us, t_us[read] - window_us[read], side="right")
        rows = np.arange(since, np.searchsorted(at_us, t_us[read], side="right"))
        near = np.abs(north[rows] - lat[read]) <= half_lat[read]
        near &= np.abs(east[rows] - lon[read]) <= half_lon[read]
        rows = rows[near]
        own = writer[rows] == device[read]
        points[read], others[read] = len(rows), (~own).sum()
        oldest[read] = read
        while oldest[read] > 0 and device[oldest[read] - 1] == device[read]:
            if t_us[read] - t_us[oldest[read] - 1] > horizon_us:
                break
            oldest[read] -= 1
        earlier = np.arange(oldest[read], read)[:, None]
        has = (at_us[rows] <= t_us[earlier]) & (at_us[rows] > t_us[earlier] - window_us[earlier])
        has &= np.abs(north[rows] - lat[earlier]) <= half_lat[earlier]
        has &= np.abs(east[rows] - lon[earlier]) <= half_lon[earlier]
        missing.append((~has & ~own).sum(axis=1))
    pairs = np.arange(total) - oldest
    return Labelled(
        ids=np.asarray(reads["read_id"]),
        device=device,
        t_us=t_us,
        lat=lat,
        lon=lon,
        points=points,
        others=others,
        first=np.concatenate([[0], np.cumsum(pairs)]),
        oldest=oldest,
        read=np.repeat(np.arange(total), pairs),
        cached=np.concatenate([np.arange(a, b) for a, b in zip(oldest, range(total), strict=True)]).astype(
            int
        ),
        missing=np.concatenate(missing).astype(int),
    )


def replay(labelled: Labelled, local: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the pair that serves each read, or ``SENT``: the cache holds the last answer that was fetched."""
    oldest, first = labelled.oldest.tolist(), labelled.first.tolist()
    served, decisions, cached = [], local.tolist(), -1
    for read in range(len(oldest)):
        pair = first[read] + cached - oldest[read]
        if cached >= oldest[read] and decisions[pair]:
            served.append(pair)
        else:
            served.append(SENT)
            cached = read
    return np.array(served, dtype=np.int64)


def score(labelled: Labelled, local: NDArray[np.bool_], completeness: float) -> Score:
    """Replay decisions and count."""
    served = replay(labelled, local)
    stale = labelled.completeness[served[served != SENT]] < completeness
    total = len(served)
    counts = (served == SENT).sum(), stale.sum(), (~stale).sum()
    return Score(*(int(count) / total for count in counts))


def _completeness(points, missing):
    return np.where(points == 0, 1.0, (points - missing) / np.maximum(points, 1))


def haversine_km(lat1, lon1, lat2, lon2):
    """Return great-circle distances."""
    a, b = np.radians(lat1), np.radians(lat2)
    h = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * np.arcsin(np.sqrt(h))
