"""Prefetch policies that are learnt from what devices have read again and again (Mobius 6).

Time is cut into intervals, before each of which a device may fetch the answer to a query that it has read
before. A tree decides by the query, the hour and weekday of mean solar time, the place, and the time since
the last read whether it is read in the interval. A fetched answer that is not read is *waste*; a read whose
answer was fetched is a *hit*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.errors import TraceContentError
from mudkit.learning.export import tree_document
from mudkit.learning.trees import grow
from mudkit.systems.mud.policies.artefact import OWN, PREFETCH_EVERY_S, Artefact
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S, solar_time

FEATURES: Final = ("query", "hour", "weekday", "lat", "lon", "since")
_WEEKDAYS_FROM_US: Final = 14 * 86_400 * US_PER_S
"""Length of the usage from which on a tree asks for weekdays: there are two of each."""
_EVERY_US: Final = round(PREFETCH_EVERY_S * US_PER_S)
_FETCH, _SKIP = 0, 1
_ACTIONS: Final = ("fetch", "skip", OWN)
_MAX_QUERIES: Final = 64
"""Queries of a policy, at most: those that most devices read."""
_MAX_EXAMPLES: Final = 500_000
"""Intervals that are learnt from, at most: devices are left out evenly."""


@dataclass(frozen=True)
class Examples:
    """Intervals of devices: features, and whether the query is read in it; ``device`` numbers the devices."""

    features: NDArray[np.float32]
    is_read: NDArray[np.bool_]
    device: NDArray[np.int64]


def learn_prefetches(
    rows: pa.Table, table: str, *, min_devices: int, min_hit_share: float
) -> Artefact | None:
    """Train a policy on the usage of an app's table: which queries to fetch before they are read.

    Parameters
    ----------
    rows : pyarrow.Table
        Usage of one app and table, in the columns of :data:`mudkit.trace.schema.USAGE`.
    table : str
    min_devices : int
        Fewest devices that have read a query repeatedly: no policy names what a few have read.
    min_hit_share : float
        A policy is used if, on devices that it was not learnt from, the 95 % interval of the share of its
        fetches that are read lies above.

    Returns
    -------
    Artefact or None
        A policy, or that of the devices' own if none pays; None: no query is read repeatedly by enough.
    """
    repeated = rows.filter(pc.and_(pc.equal(rows["op"], "read"), pc.is_valid(rows["query"])))
    pairs = set(zip(repeated["query"].to_pylist(), repeated["device"].to_pylist(), strict=True))
    counted = Counter(query for query, _ in pairs)
    common = [query for query, devices in counted.items() if devices >= min_devices]
    queries = sorted(sorted(common, key=lambda query: (-counted[query], query))[:_MAX_QUERIES])
    if not queries:
        return None
    examples = build_examples(rows, repeated, queries)
    t_us = epoch_us(repeated["ts"])
    has_weekdays = t_us.max() - t_us.min() >= _WEEKDAYS_FROM_US
    names = [name for name in FEATURES if has_weekdays or name != "weekday"]
    known = examples.features[:, [FEATURES.index(name) for name in names]]
    manifest: dict[str, Any] = {"learnt from": f"{len(examples.is_read):,} intervals"}
    try:
        truth = np.where(examples.is_read, _FETCH, _SKIP)
        trees = grow(known, truth, examples.device, 2)
    except TraceContentError:
        return _own_policy(table, manifest)
    tree, decided = trees.tree(1.0 - np.eye(2))
    fetched = decided == _FETCH
    hits = intervals.share(int((fetched & examples.is_read).sum()), int(fetched.sum()))
    if not fetched.any() or hits.low < min_hit_share:
        return _own_policy(table, manifest)
    manifest["hits among fetches"] = [round(float(hits.low), 3), round(float(hits.high), 3)]
    nodes = tree_document(tree)
    return Artefact.create(
        "prefetch", 1, names, nodes, _ACTIONS, manifest=manifest, table=table, queries=queries
    )


def _own_policy(table: str, manifest: Mapping[str, Any]) -> Artefact:
    """Return the policy that leaves prefetching to the devices."""
    own = _ACTIONS.index(OWN)
    return Artefact.create("prefetch", 1, [], [[own]], _ACTIONS, manifest=manifest, table=table)


def build_examples(rows: pa.Table, repeated: pa.Table, queries: Sequence[str]) -> Examples:
    """Return the intervals of devices, for each query that one has read repeatedly.

    They begin with its first read of the query, and end with what the device has reported last.
    """
    number = {query: i for i, query in enumerate(queries)}
    reads: dict[tuple[str, int], list[int]] = defaultdict(list)
    columns = (
        repeated["device"].to_pylist(),
        repeated["query"].to_pylist(),
        epoch_us(repeated["ts"]).tolist(),
    )
    for device, query, t_us in zip(*columns, strict=True):
        if query in number:
            reads[device, number[query]].append(t_us)
    last_us = {
        row["device"]: int(row["t_us_max"])
        for row in pa.table({"device": rows["device"], "t_us": epoch_us(rows["ts"])})
        .group_by("device")
        .aggregate([("t_us", "max")])
        .to_pylist()
    }
    places = _last_places(rows)
    keys = sorted(reads)
    total = sum((last_us[device] - min(reads[device, of])) // _EVERY_US + 1 for device, of in keys)
    devices = sorted(last_us)
    kept = set(devices[:: max(1, -(-total // _MAX_EXAMPLES))])
    parts = [
        _intervals(np.sort(reads[device, of]), last_us[device], of, places.get(device), devices.index(device))
        for device, of in keys
        if device in kept
    ]
    features, is_read, device_ = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Examples(features, is_read, device_)


def _intervals(
    reads_us: NDArray[np.int64], until_us: int, query: int, place: tuple[float, float] | None, device: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64]]:
    """Return features, truth and device of the intervals of one device and query."""
    starts = np.arange(reads_us[0] // _EVERY_US + 1, until_us // _EVERY_US + 1) * _EVERY_US
    after = np.searchsorted(reads_us, starts)
    is_read = after < np.searchsorted(reads_us, starts + _EVERY_US)
    lat, lon = place or (np.nan, np.nan)
    hour, weekday = solar_time(starts, 0.0 if place is None else lon)
    since_s = (starts - reads_us[np.maximum(after - 1, 0)]) / US_PER_S
    same = np.ones(len(starts))
    features = np.column_stack([query * same, hour, weekday, lat * same, lon * same, since_s])
    return features.astype(np.float32), is_read, np.full(len(starts), device)


def _last_places(rows: pa.Table) -> dict[str, tuple[float, float]]:
    """Return the last known place of each device."""
    placed = rows.filter(pc.is_valid(rows["lat"]))
    devices, lats, lons = (placed[name].to_pylist() for name in ("device", "lat", "lon"))
    return dict(zip(devices, zip(lats, lons, strict=True), strict=True))
