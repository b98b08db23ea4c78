"""Prefetch policies that are learnt from what devices have read again and again (Mobius 6).

Time is cut into intervals, before each of which a device may fetch the answer to a query that it has read
before. A tree decides by the query, the hour and weekday of mean solar time, the place, and the time since
the last read whether it is read in the interval. A fetched answer that is not read is *waste*; a read whose
answer was fetched is a *hit*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals, words
from mudkit.errors import TraceContentError
from mudkit.learning.export import tree_document
from mudkit.learning.trees import grow
from mudkit.systems.mud.policies.artefact import OWN, PREFETCH_EVERY_S, Artefact
from mudkit.trace.usage import Repeated, Survey, Usage
from mudkit.units import US_PER_S, solar_time

FEATURES: Final = ("query", "hour", "weekday", "lat", "lon", "since")
_WEEKDAYS_FROM_US: Final = 14 * 86_400 * US_PER_S
"""Length of the usage from which on a tree asks for weekdays: there are two of each."""
_DAY_US: Final = 86_400 * US_PER_S
_EVERY_US: Final = round(PREFETCH_EVERY_S * US_PER_S)
_FETCH, _SKIP = 0, 1
_ACTIONS: Final = ("fetch", "skip", OWN)
_MAX_EXAMPLES: Final = 500_000
"""Intervals that are learnt from, at most, about: if there are more, those of a sample of the devices."""


@dataclass(frozen=True)
class Examples:
    """Intervals of devices: features, and whether the query is read in it; ``device`` numbers the devices.

    ``start_us`` is when an interval begins.
    """

    features: NDArray[np.float32]
    is_read: NDArray[np.bool_]
    device: NDArray[np.int64]
    start_us: NDArray[np.int64]


class LearntFetches(NamedTuple):
    """A prefetch policy, that of the devices' own if none pays, and why."""

    artefact: Artefact
    why: str


def learn_prefetches(usage: Usage, of: Survey, *, min_hit_share: float, seed: int) -> LearntFetches:
    """Train a policy on the usage of an app's table: which queries to fetch before they are read.

    Parameters
    ----------
    usage : Usage
    of : Survey
        The app's table, of which some queries are read repeatedly by enough devices.
    min_hit_share : float
        A policy is used if, on devices that it was not learnt from, the 95 % interval of the share of its
        fetches that are read lies above, and that of the last day alone does not lie below.
    seed : int
        Which devices are learnt from, if there are too many.
    """
    examples = build_examples(usage.repeated(of, _EVERY_US, _MAX_EXAMPLES, seed))
    has_weekdays = of.span_us >= _WEEKDAYS_FROM_US
    names = [name for name in FEATURES if has_weekdays or name != "weekday"]
    known = examples.features[:, [FEATURES.index(name) for name in names]]
    manifest: dict[str, Any] = {"learnt from": f"{len(examples.is_read):,} intervals"}
    try:
        truth = np.where(examples.is_read, _FETCH, _SKIP)
        trees = grow(known, truth, examples.device, 2)
    except TraceContentError as error:
        return LearntFetches(_own_policy(of.table, manifest), error.summary)
    tree, decided = trees.tree(1.0 - np.eye(2))
    fetched = decided == _FETCH
    hits = intervals.share(int((fetched & examples.is_read).sum()), int(fetched.sum()))
    nodes = tree_document(tree)
    if not fetched.any() or [_FETCH] not in nodes:  # a tree that never fetches would bar the devices' own
        why = "When a query is read does not follow from the hour, the place or the last read."
        return LearntFetches(_own_policy(of.table, manifest), why)
    shares = f"{words.percent(float(hits.low))} to {words.percent(float(hits.high))}"
    if hits.low < min_hit_share:
        why = f"Of the fetches {shares} are read; it has to be {words.percent(min_hit_share)} at least."
        return LearntFetches(_own_policy(of.table, manifest), why)
    is_last = fetched & (examples.start_us > examples.start_us.max() - _DAY_US)
    last_day = intervals.share(int((is_last & examples.is_read).sum()), int(is_last.sum()))
    if is_last.any() and last_day.high < min_hit_share:
        on_day = f"{words.percent(float(last_day.low))} to {words.percent(float(last_day.high))}"
        why = (
            f"On the last day {on_day} of the fetches are read; it has to be {words.percent(min_hit_share)}."
        )
        return LearntFetches(_own_policy(of.table, manifest), why)
    manifest["hits among fetches"] = [round(float(hits.low), 3), round(float(hits.high), 3)]
    artefact = Artefact.create(
        "prefetch", 1, names, nodes, _ACTIONS, manifest=manifest, table=of.table, queries=of.queries
    )
    return LearntFetches(artefact, f"Of the fetches {shares} are read on other devices.")


def _own_policy(table: str, manifest: Mapping[str, Any]) -> Artefact:
    """Return the policy that leaves prefetching to the devices."""
    own = _ACTIONS.index(OWN)
    return Artefact.create("prefetch", 1, [], [[own]], _ACTIONS, manifest=manifest, table=table)


def build_examples(repeated: Repeated) -> Examples:
    """Return the intervals of devices, for each query that one has read repeatedly.

    They begin with its first read of the query, and end with what the device has reported last.
    """
    reads: dict[tuple[str, int], list[int]] = defaultdict(list)
    columns = (repeated.reads[name].to_pylist() for name in ("device", "query", "t_us"))
    for device, query, t_us in zip(*columns, strict=True):
        reads[device, query].append(t_us)
    known = {row["device"]: row for row in repeated.devices.to_pylist()}
    numbers = {device: number for number, device in enumerate(sorted(known))}
    parts = [
        _intervals(np.sort(reads[device, of]), known[device], of, numbers[device])
        for device, of in sorted(reads)
    ]
    return Examples(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _intervals(
    reads_us: NDArray[np.int64], known: Mapping[str, Any], query: int, device: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return features, truth, device and beginning of the intervals of one device and query."""
    starts = np.arange(reads_us[0] // _EVERY_US + 1, known["t_us"] // _EVERY_US + 1) * _EVERY_US
    is_read = np.searchsorted(reads_us, starts) < np.searchsorted(reads_us, starts + _EVERY_US)
    # The last interval is not over: what is read in it may be reported later.
    starts, is_read = (of[is_read | (starts + _EVERY_US <= known["t_us"])] for of in (starts, is_read))
    after = np.searchsorted(reads_us, starts)
    is_placed = known["lat"] is not None
    lat, lon = (known["lat"], known["lon"]) if is_placed else (np.nan, np.nan)
    hour, weekday = solar_time(starts, lon if is_placed else 0.0)
    since_s = (starts - reads_us[np.maximum(after - 1, 0)]) / US_PER_S
    same = np.ones(len(starts))
    features = np.column_stack([query * same, hour, weekday, lat * same, lon * same, since_s])
    return features.astype(np.float32), is_read, np.full(len(starts), device), starts
