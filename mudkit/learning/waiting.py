"""Write policies learnt from usage: when writes of a table may wait, by what readers lose (Mobius 6).

The writes of an app are replayed with delays against the reads of all apps of the table. A write that comes
after a read which should have it makes that read stale. No write stays on its device for good: who reads a
table and does not report it would never see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mudkit import intervals, words
from mudkit.errors import TraceContentError
from mudkit.learning.batching import Batch, LearntWrites
from mudkit.learning.delays import DelaySearch, LearntDelays, ReplayedDelay, search_delays
from mudkit.learning.devices import LocalWriters, Writers, open_writers
from mudkit.learning.export import export_policy
from mudkit.learning.search import MIN_GAIN, MIN_READS
from mudkit.learning.trees import Folds
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.systems.mud.policies.artefact import OWN, Artefact
from mudkit.trace.usage import ALL_KM, Survey, Usage

_WINDOW_S: Final = 2 * 86_400.0
"""Time before a read without a window from which it should have writes: longer than any of them waits."""
_MIN_LAST_READS: Final = 20
"""Reads of the last day, with fewer of which it says nothing against a policy."""


class Limits(NamedTuple):
    """Limits of a write policy.

    Attributes
    ----------
    completeness : float
        Share of what others wrote to an area below which a read of it is stale.
    max_stale : float
        Largest share of the reads that may become stale because writes wait.
    folds : {'device', 'time'}
        What a delay is scored on: readers, or days, other than those that it was chosen on.
    weekdays_from : int
        Days with writes from which on delays depend on the weekday.
    """

    completeness: float
    max_stale: float
    folds: Folds
    weekdays_from: int


def learn_delays(
    usage: Usage, of: Survey, limits: Limits, *, min_devices: int, max_reads: int, seed: int
) -> tuple[Artefact | None, str]:
    """Return how long the writes of an app's table may wait, and why; None: too little usage to say.

    Parameters
    ----------
    usage : Usage
    of : Survey
    limits : Limits
    min_devices : int
        Fewest devices that write to the table, and that read it.
    max_reads : int
        Reads that are judged, at most, about: if there are more, those of a sample of the devices.
    seed : int
        Which devices are drawn.
    """
    written, read = of.written, of.table_reads
    if of.is_read_continuously:
        why = "It is read continuously: what waits would come late to those readers."
        return _own_policy(of.table), why
    if min(written.devices, read.devices) < min_devices:
        devices = f"{written.devices:,} devices, and read by {read.devices:,}"
        return None, f"It is written by {devices}; there have to be {min_devices:,} of each."
    if min(written.rows, read.rows) < MIN_READS:
        return (
            None,
            f"It is written {written.rows:,} times, and read {read.rows:,} times; {MIN_READS} are needed.",
        )
    reads = usage.requests(of, _WINDOW_S, max_reads, seed)
    requests = ReadRequests.of(reads)
    # Of a read without an area or a window nobody knows which writes it needs: each one counts.
    is_open = pc.or_(
        pc.equal(requests.table["box_km"], ALL_KM), pc.equal(requests.table["window_s"], _WINDOW_S)
    )
    completeness = 1.0 if pc.any(is_open).as_py() else limits.completeness
    with _open_writes(usage.writes(of), reads, requests) as writers:
        try:
            search = search_delays(
                writers,
                requests,
                completeness=completeness,
                max_stale=limits.max_stale,
                folds=limits.folds,
            )
        except TraceContentError as error:
            return None, error.summary
        return _choose(search, of, limits.weekdays_from, seed)


@contextmanager
def _open_writes(positions: Any, reads: Any, requests: ReadRequests) -> Iterator[Writers]:
    """Open a context with the first read of each write: in this process, or on Spark."""
    if isinstance(positions, pa.Table):
        yield LocalWriters(Writes.unread(positions).seen_by(requests))
        return
    from mudkit.pipeline.labels import label_writes  # loads Spark

    with open_writers(label_writes(positions, reads), positions) as writers:
        yield writers


def _choose(search: DelaySearch, of: Survey, weekdays_from: int, seed: int) -> tuple[Artefact, str]:
    """Return the policy with the fewest messages that keeps the limit, or the devices' own; and why."""
    at_once = search.replay(Batch(0.0))
    fixed, _ = search.choose(search.search())
    best = at_once if fixed is None else fixed
    learnt = _learn_by_place(search, of, weekdays_from, seed)
    if learnt is not None and _saved(search, learnt, best).low > MIN_GAIN:
        best = learnt
    saved = _saved(search, best, at_once)
    limit = words.percent(search.max_stale)
    if saved.low <= MIN_GAIN:
        return _own_policy(
            of.table
        ), f"No delay saves enough messages with at most {limit} of the reads stale."
    last_day = _stale_on_last_day(search, best)
    if last_day is not None and last_day.low > search.max_stale:
        low, high = words.percent(last_day.low), words.percent(last_day.high)
        return (
            _own_policy(of.table),
            f"On the last day {low} to {high} of the reads would be stale; {limit} may be.",
        )
    stale = words.percent(search.stale_share(best).value)
    shares = f"{words.percent(saved.low)} to {words.percent(saved.high)}"
    manifest: dict[str, Any] = {
        "learnt from": f"{of.written.rows:,} writes and {len(search.fold_of):,} reads",
        "stale": f"at most {search.max_stale:g}, below a completeness of {search.completeness:g}",
        "messages saved": [round(float(saved.low), 3), round(float(saved.high), 3)],
    }
    if isinstance(best.policy, LearntDelays):
        how = "by place and time"
        policy = LearntWrites(best.policy.trees[0], best.policy.costs)
        artefact = export_policy(policy, 1, manifest=manifest).of_table(of.table)
    else:
        how = words.duration(60 * best.minutes)
        artefact = Artefact.create(
            "write", 1, [], [[0]], [60.0 * best.minutes], manifest=manifest, table=of.table
        )
    return artefact, f"Writes wait {how}: {shares} of the messages are saved, and {stale} of the reads stale."


def _learn_by_place(search: DelaySearch, of: Survey, weekdays_from: int, seed: int) -> ReplayedDelay | None:
    """Return the best delays by place and time; None: no tree, or the places of writes are unknown."""
    if of.placed_writes < of.written.rows:
        return None
    try:
        return search.choose(search.learnt(seed, keeps=False, weekdays_from=weekdays_from))[0]
    except TraceContentError:  # too few devices, or all writes may wait equally long
        return None


def _saved(search: DelaySearch, replayed: ReplayedDelay, than: ReplayedDelay) -> intervals.Interval:
    """Return by how many messages a write one delay sends fewer than another, with its 95 % interval."""
    device, day, writes = search.cells
    saved = than.messages - replayed.messages
    return intervals.clustered(saved, device, day, weights=writes, limits=(-1.0, 1.0))


def _stale_on_last_day(search: DelaySearch, replayed: ReplayedDelay) -> intervals.Interval | None:
    """Return the share of stale reads on the last day; None: too few reads to say."""
    day = search.clusters[1]
    is_last = day == day.max()
    reads = int(is_last.sum())
    if reads < _MIN_LAST_READS:
        return None
    return intervals.share(int((replayed.is_stale & is_last).sum()), reads)


def _own_policy(table: str) -> Artefact:
    """Return the policy that leaves writes to the devices."""
    return Artefact.create("write", 1, [], [[0]], [OWN], table=table)
