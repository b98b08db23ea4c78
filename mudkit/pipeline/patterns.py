"""Queries that are read after others in a session: frequent sequences, by PrefixSpan of Spark.

A session has the repeated queries that an app's device reads one after the other, with less than ``gap_s``
between two. A pattern is a query and another one that follows it in the same session. Whether it says more
than that both are read often is found by chance: the queries of each device are shuffled among the times of
its reads, so that all is as before but what was read before what. A pattern counts if its confidence lies
above the one by chance, by its interval, in which devices are the independent cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import intervals
from mudkit.checks import check_arguments
from mudkit.display import shows_fields
from mudkit.pipeline._progress import progress
from mudkit.pipeline.devices import whole_devices
from mudkit.pipeline.executors import provide
from mudkit.pipeline.tables import ddl
from mudkit.trace.schema import device_order, mix_bits
from mudkit.trace.usage import Survey
from mudkit.units import US_PER_S

_MAX_PATTERNS: Final = 200
"""Patterns of an app that are counted, at most: the most frequent ones."""
_MAX_SESSION: Final = 64
"""Queries of a session that are used: the first ones."""
_CONFIDENCE: Final = 0.999
_SHUFFLES: Final = 4
_TASK_ROWS: Final = 1 << 17
_LOCAL_ITEMS: Final = 1 << 20
"""Queries of sessions that PrefixSpan has in the memory of a task at once, at most."""
_SESSIONS_DDL: Final = "app INT, sequence ARRAY<ARRAY<INT>>"
_SESSIONS: Final = pa.schema([("app", pa.int32()), ("sequence", pa.list_(pa.list_(pa.int32())))])
_SUMS: Final = ("devices", "n", "x", "nn", "xx", "nx", "chance_n", "chance_x")
_COUNTS: Final = pa.schema([("pattern", pa.int64()), *((name, pa.float64()) for name in _SUMS)])


@shows_fields
@check_arguments(types=False)
@dataclass(frozen=True)
class Pattern:
    """A query that is read after another one in the same session.

    Attributes
    ----------
    app : str
    table, query : str
        What is read first.
    then_table, then_query : str
        What is read after it.
    support : float
        Share of the app's sessions that have both, in this order.
    confidence : float
        Share of the sessions with the first that have the other after it.
    low, high : float
        The interval of 99.9 % of this share, for other devices.
    by_chance : float
        The same share when each device reads its queries in any order.
    devices : int
        Devices that have read both, in this order.
    """

    app: str
    table: str
    query: str
    then_table: str
    then_query: str
    support: float
    confidence: float
    low: float
    high: float
    by_chance: float
    devices: int


class Sequences(NamedTuple):
    """Patterns, most frequent first, and the number of sessions that they were found in."""

    patterns: tuple[Pattern, ...]
    sessions: int


class _Query(NamedTuple):
    """A query, and the number of its app."""

    app: int
    table: str
    query: str


class _Pair(NamedTuple):
    """Numbers of two queries, and of their app."""

    app: int
    first: int
    then: int


def find_patterns(
    rows: DataFrame,
    surveys: Sequence[Survey],
    *,
    min_devices: int,
    gap_s: float,
    min_support: float,
    min_confidence: float,
    seed: int,
) -> Sequences:
    """Find the patterns of all apps in rows of usage, among the queries of their surveys."""
    apps = sorted({of.app for of in surveys if of.queries})
    queries = [_Query(apps.index(of.app), of.table, query) for of in surveys for query in of.queries]
    if len(queries) < 2:
        return Sequences((), 0)
    spark = rows.sparkSession
    provide(spark)
    known = spark.createDataFrame(
        [(apps[one.app], one.table, one.query, one.app, number) for number, one in enumerate(queries)],
        "app STRING, `table` STRING, query STRING, app_number INT, number INT",
    )
    reads = (
        rows.where("op = 'read' AND query IS NOT NULL")
        .join(F.broadcast(known), ["app", "table", "query"])
        .select("device", F.col("app_number").alias("app"), F.expr("unix_micros(ts)").alias("t_us"), "number")
        .repartition("device")
        .sortWithinPartitions("device", "app", "t_us", "number")
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        gap_us = round(gap_s * US_PER_S)
        sessions = reads.mapInArrow(partial(_list_sessions, gap_us=gap_us), _SESSIONS_DDL)
        sessions = sessions.persist(StorageLevel.DISK_ONLY)
        try:
            with progress(spark, "sessions"):
                counted = {row.app: row["count"] for row in sessions.groupBy("app").count().collect()}
            pairs = [pair for app in sorted(counted) for pair in _frequent(sessions, app, min_support)]
        finally:
            sessions.unpersist()
        sums = _count(reads, pairs, gap_us, seed) if pairs else {}
    finally:
        reads.unpersist()
    patterns = [
        _pattern(apps[pair.app], queries[pair.first], queries[pair.then], sums[number], counted[pair.app])
        for number, pair in enumerate(pairs)
        if number in sums
    ]
    kept = [
        one
        for one in patterns
        if one.devices >= min_devices
        and one.support >= min_support
        and one.confidence >= min_confidence
        and one.low > one.by_chance
    ]
    kept.sort(key=lambda one: (-one.support, -one.confidence, one.app, one.table, one.query, one.then_table,
                               one.then_query))  # fmt: skip
    return Sequences(tuple(kept), sum(counted.values()))


def _frequent(sessions: DataFrame, app: int, min_support: float) -> list[_Pair]:
    """Return the frequent pairs of different queries of an app, by PrefixSpan."""
    from pyspark.ml.fpm import PrefixSpan  # loading it takes longer than the rest of this module

    span = PrefixSpan(minSupport=min_support, maxPatternLength=2, maxLocalProjDBSize=_LOCAL_ITEMS)
    with progress(sessions.sparkSession, "sequences"):
        of_app = sessions.where(F.col("app") == app).select("sequence")
        sequences = span.findFrequentSequentialPatterns(of_app).where("size(sequence) = 2")
        pair = [sequences["sequence"][place][0].alias(name) for place, name in enumerate(("first", "then"))]
        pairs = sequences.select("freq", *pair).where("first != then")
        rows = pairs.orderBy(F.desc("freq"), "first", "then").limit(_MAX_PATTERNS).collect()
    return [_Pair(app, row.first, row.then) for row in rows]


def _count(
    reads: DataFrame, pairs: Sequence[_Pair], gap_us: int, seed: int
) -> dict[int, Mapping[str, float]]:
    """Return the sums of each pair over devices."""
    counted = reads.mapInArrow(partial(_count_pairs, pairs=pairs, gap_us=gap_us, seed=seed), ddl(_COUNTS))
    sums = counted.groupBy("pattern").agg(*(F.sum(name).alias(name) for name in _SUMS))
    with progress(reads.sparkSession, "patterns"):
        return {row.pattern: row.asDict() for row in sums.collect()}


def _pattern(app: str, first: _Query, then: _Query, sums: Mapping[str, float], sessions: int) -> Pattern:
    """Return a pattern by its sums over devices."""
    n, x = sums["n"], sums["x"]
    share = x / n
    # How much more the shares of devices vary than those of as many independent sessions.
    off = max(sums["xx"] - 2 * share * sums["nx"] + share**2 * sums["nn"], 0.0)
    factor = max(off / (n * share * (1 - share)), 1.0) if 0 < share < 1 else sums["nn"] / n
    interval = intervals.share(x / factor, n / factor, _CONFIDENCE)
    by_chance = sums["chance_x"] / max(sums["chance_n"], 1.0)
    return Pattern(
        app, first.table, first.query, then.table, then.query, x / sessions, share,
        float(interval.low), float(interval.high), by_chance, round(sums["devices"]),
    )  # fmt: skip


def _list_sessions(batches: Iterator[pa.RecordBatch], gap_us: int) -> Iterator[pa.RecordBatch]:
    """Yield the queries of each session, each repetition once, as PrefixSpan takes them."""
    for rows in whole_devices(batches, _TASK_ROWS):
        device, app, t_us, number = _columns(rows)
        session, place = _sessions(device, app, t_us, number, gap_us)
        kept = place >= 0
        ends = np.flatnonzero(np.diff(session[kept], append=-1)) + 1
        items = number[kept].astype(np.int32)
        singles = pa.ListArray.from_arrays(
            pa.array(np.arange(len(items) + 1, dtype=np.int32)), pa.array(items)
        )
        edges = np.concatenate([[0], ends]).astype(np.int32)
        sequences = pa.ListArray.from_arrays(pa.array(edges), singles)
        of_app = app[kept][ends - 1].astype(np.int32)
        yield pa.record_batch([pa.array(of_app), sequences], schema=_SESSIONS)


def _columns(rows: pa.Table) -> tuple[NDArray[np.int64], ...]:
    """Return device, by numbers in the order of the rows, app, time and query."""
    device = rows["device"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return device, *(rows[name].to_numpy().astype(np.int64) for name in ("app", "t_us", "number"))


def _sessions(
    device: NDArray[np.int64],
    app: NDArray[np.int64],
    t_us: NDArray[np.int64],
    number: NDArray[np.int64],
    gap_us: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the session of each read, and its place there; -1: it repeats the one before, or is late."""
    begins = np.ones(len(device), dtype=np.bool_)
    same = (device[1:] == device[:-1]) & (app[1:] == app[:-1])
    begins[1:] = ~same | (t_us[1:] - t_us[:-1] >= gap_us)
    session = np.cumsum(begins) - 1
    is_new = begins.copy()
    is_new[1:] |= number[1:] != number[:-1]
    counted = np.cumsum(is_new)
    place = counted - counted[np.flatnonzero(begins)][session]
    return session, np.where(is_new & (place < _MAX_SESSION), place, -1)


def _count_pairs(
    batches: Iterator[pa.RecordBatch], pairs: Sequence[_Pair], gap_us: int, seed: int
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of each pair over some whole devices, of sessions as they are and by chance."""
    for rows in whole_devices(batches, _TASK_ROWS):
        device, app, t_us, number = _columns(rows)
        orders = device_order(rows["device"].unique().to_pylist(), seed)
        sums = np.zeros((len(pairs), len(_SUMS)))
        for row, (n, x) in enumerate(_sessions_with(device, app, t_us, number, pairs, gap_us)):
            sums[row, :6] = [(x > 0).sum(), n.sum(), x.sum(), n @ n, x @ x, n @ x]
        for shuffle in range(_SHUFFLES):
            shuffled = _shuffled(device, app, number, orders[device], shuffle)
            for row, (n, x) in enumerate(_sessions_with(device, app, t_us, shuffled, pairs, gap_us)):
                sums[row, 6:] += n.sum(), x.sum()
        columns = [pa.array(np.arange(len(pairs))), *(pa.array(sums[:, at]) for at in range(len(_SUMS)))]
        yield pa.record_batch(columns, schema=_COUNTS)


def _shuffled(
    device: NDArray[np.int64],
    app: NDArray[np.int64],
    number: NDArray[np.int64],
    orders: NDArray[np.int64],
    shuffle: int,
) -> NDArray[np.int64]:
    """Return the queries of each device and app in an order that follows from a number of the device."""
    begins = np.flatnonzero((np.diff(device, prepend=-1) != 0) | (np.diff(app, prepend=-1) != 0))
    at = np.arange(len(device)) - np.repeat(begins, np.diff(begins, append=len(device)))
    key = mix_bits(orders.view(np.uint64) ^ mix_bits((at * _SHUFFLES + shuffle).view(np.uint64)))
    return number[np.lexsort((key, app, device))]


def _sessions_with(
    device: NDArray[np.int64],
    app: NDArray[np.int64],
    t_us: NDArray[np.int64],
    number: NDArray[np.int64],
    pairs: Sequence[_Pair],
    gap_us: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield for each pair, by device, the sessions with its first query, and those with both in order."""
    session, place = _sessions(device, app, t_us, number, gap_us)
    count, devices = int(session[-1]) + 1, int(device[-1]) + 1
    of_device = device[np.flatnonzero(np.diff(session, prepend=-1))]
    kept = place >= 0
    session, place, number = session[kept], place[kept].astype(np.int8), number[kept]
    begins = {pair.first: np.full(count, _MAX_SESSION, dtype=np.int8) for pair in pairs}
    ends = {pair.then: np.full(count, -1, dtype=np.int8) for pair in pairs}
    for query, first in begins.items():
        rows = np.flatnonzero(number == query)[::-1]  # the first place of a session is written last
        first[session[rows]] = place[rows]
    for query, last in ends.items():
        rows = np.flatnonzero(number == query)
        last[session[rows]] = place[rows]
    with_first = {
        query: np.bincount(of_device[first < _MAX_SESSION], minlength=devices)
        for query, first in begins.items()
    }
    for pair in pairs:
        with_both = np.bincount(of_device[begins[pair.first] < ends[pair.then]], minlength=devices)
        yield with_first[pair.first], with_both
