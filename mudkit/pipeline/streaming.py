"""Pending queues over a stream of events, as state of a Spark query.

The caller supplies the queues as an :class:`Engine` (for Radiator: Algorithm 3 for a share of the receivers).
A query has one for each share of the receivers in the state of ``transformWithState``; each processes every
event:

=============  ============================================================================================
an event       is pending until the watermark reaches it, and is processed in order of (time, number),
               independent of its batch
a timer        of the engine is processed at its time, after events of the same time; without events a timer
               of Spark starts it when the watermark has reached it
a late event   is not after the watermark of the batch before: dropped and counted
the watermark  is ``delay_s`` behind the latest event, in whole milliseconds
a batch        is in the result if its manifest is there, which is written when its files are complete; Spark
               repeats a batch that it has not recorded in its checkpoint, and one with a manifest is not
               written again
=============  ============================================================================================

So the result is a function of the events alone if none is late, also when the query is killed and restarted.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from mudkit.checks import check_arguments
from mudkit.errors import OutputExists, ParameterError
from mudkit.files import existing_path, output_path
from mudkit.pipeline._progress import progress
from mudkit.pipeline.commits import RESULT, Job
from mudkit.pipeline.executors import provide
from mudkit.pipeline.launch.jvm import suppress_worker_output
from mudkit.pipeline.tables import require_columns
from mudkit.pipeline.tasks import write_frame, writing

WRITTEN: Final = (
    "t_us BIGINT, numbers ARRAY<BIGINT>, recipients ARRAY<STRING>, aggregate STRING, problem STRING, "
    "watermark_us BIGINT"
)
"""Columns of the rows that a keeper returns."""
_WAITING: Final = "t_us BIGINT, number BIGINT, client STRING, kind STRING, text STRING"

_dumps: Callable[[Any], bytes] = cloudpickle.dumps


class Event(NamedTuple):
    """Event for the engines of all shares; `number` ascends with time over all clients, `text` is JSON."""

    t_us: int
    number: int
    client: str
    kind: str
    text: str


Released: TypeAlias = tuple[int, Sequence[int], Sequence[str], str | None, str | None]
"""Time (µs), numbers of the messages, recipients, and the aggregate or, instead, a problem."""


class Engine(Protocol):
    """Pending queues of a share of the receivers, without a clock."""

    @property
    def due_us(self) -> float:
        """Time of the next call of :meth:`fire`; infinity: none."""
        ...

    def handle(self, event: Event) -> Iterable[Released]:
        """Process an event, and return what it releases."""
        ...

    def fire(self, now_us: int) -> Iterable[Released]:
        """Advance the time to ``now_us``, and return what is released by then."""
        ...

    def state(self) -> object:
        """Return the state to store after a batch; it is pickled."""
        ...


Start: TypeAlias = Callable[[int, int, Any], Engine]
"""Factory of the engine of a share: its number, the number of shares, and the stored state, if any."""


class Keeper(StatefulProcessor):
    """Stateful processor that restores the engine of a share, processes a batch and stores the engine."""

    def __init__(self, start: Start, shares: int) -> None:
        self._start, self._shares = start, shares

    def init(self, handle: Any) -> None:
        """Store what Spark hands over for states and timers; see :class:`StatefulProcessor`."""
        self._handle = handle
        self._engine = handle.getValueState("engine", "kept BINARY")
        self._waiting = handle.getListState("waiting", _WAITING)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Process the incoming events of a share up to the watermark; yield what is released."""
        incoming = [Event(row.t_us, row.number, row.client, row.kind, row.text) for row in rows]
        return self._advance(key[0], incoming, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Process what is due by the watermark, without incoming events; yield what is released."""
        return self._advance(key[0], [], timerValues.getCurrentWatermarkInMs())

    def _advance(self, share: int, incoming: Sequence[Event], watermark_ms: int) -> Iterator[Row]:
        """Process everything up to the watermark, keep the rest; yield what is released."""
        until_us = watermark_ms * 1000
        waiting = sorted([*(Event(*row) for row in self._waiting.get()), *incoming], key=_moment)
        is_due = [event for event in waiting if event.t_us <= until_us]
        rest = waiting[len(is_due) :]
        kept = cloudpickle.loads(self._engine.get()[0]) if self._engine.exists() else None
        engine = self._start(share, self._shares, kept)
        released = _process(engine, is_due, until_us)
        self._engine.update((_dumps(engine.state()),))
        if rest:
            self._waiting.put(rest)
        elif len(waiting) > len(incoming):
            self._waiting.clear()
        self._set_timer(min(engine.due_us, rest[0].t_us if rest else math.inf))
        for t_us, numbers, recipients, aggregate, problem in released:
            yield Row(
                t_us=t_us,
                numbers=list(numbers),
                recipients=list(recipients),
                aggregate=aggregate,
                problem=problem,
                watermark_us=until_us,
            )

    def _set_timer(self, next_us: float) -> None:
        """Replace all timers by one, rounded up to milliseconds; infinity: none."""
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        if next_us < math.inf:
            self._handle.registerTimer(-int(-next_us // 1000))


def _process(engine: Engine, events: Iterable[Event], until_us: int) -> list[Released]:
    """Process events and the engine's timers, up to ``until_us``, in order of time.

    Return what is released.
    """
    released: list[Released] = []
    for event in events:
        while (due_us := engine.due_us) < event.t_us:
            released += engine.fire(int(due_us))
        released += engine.handle(event)
    while (due_us := engine.due_us) <= until_us:
        released += engine.fire(int(due_us))
    return released


def _moment(event: Event) -> tuple[int, int]:
    """Return the key by which events are ordered."""
    return event.t_us, event.number


EVENTS: Final = "ts TIMESTAMP, number BIGINT, client STRING, kind STRING, text STRING"
"""Columns of a stream of events."""
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_POLL_S: Final = 1
_STREAM: Final = "stream"


@dataclass(frozen=True)
class Batch:
    """A batch of a query.

    Attributes
    ----------
    number : int
        Continues the numbers of earlier runs.
    events : int
        Number of incoming events.
    late, unusable : int
        Numbers of dropped events: behind the watermark; without a time, number, client or kind.
    latest_ts, watermark_ts : str or None
        Latest event; time up to which events were processed. ISO 8601, UTC.
    duration_s : float
    """

    number: int
    events: int
    late: int
    unusable: int
    latest_ts: str | None
    watermark_ts: str | None
    duration_s: float


@dataclass(frozen=True)
class Streamed:
    """Result of a query, earlier runs included.

    Attributes
    ----------
    path : Path
    batches : tuple of Batch
        Batches of this run.
    """

    spark: SparkSession
    path: Path
    batches: tuple[Batch, ...]

    @property
    def late(self) -> int:
        """Number of events of this run that were dropped behind the watermark."""
        return sum(batch.late for batch in self.batches)

    @property
    def aggregates(self) -> DataFrame:
        """Released aggregates.

        ``ts`` (of the event or timer that released it), ``numbers`` (of its messages), ``recipients``
        (sorted), ``aggregate`` (JSON), ``watermark_ts`` (up to which its batch processed events).
        """
        rows = self._rows().where("problem IS NULL").groupBy("t_us", "numbers", "aggregate")
        together = rows.agg(
            F.sort_array(F.flatten(F.collect_list("recipients"))).alias("recipients"),
            F.max("watermark_us").alias("watermark_us"),
        )
        return together.select(
            F.timestamp_micros("t_us").alias("ts"),
            "numbers",
            "recipients",
            "aggregate",
            F.timestamp_micros("watermark_us").alias("watermark_ts"),
        )

    @property
    def problems(self) -> DataFrame:
        """Problems with functions and events, each once: ``ts, problem``."""
        rows = self._rows().where("problem IS NOT NULL")
        first = rows.groupBy("problem").agg(F.min("t_us").alias("t_us"))
        return first.select(F.timestamp_micros("t_us").alias("ts"), "problem")

    def _rows(self) -> DataFrame:
        """Return all rows of the finished batches; a batch without its record is not read."""
        # Files that no manifest of a batch names belong to batches that were not finished.
        finished = _job(self.path).finished().values()
        files = [str(self.path / file.name) for part in finished for file in part.files]
        if not files:
            return self.spark.createDataFrame([], WRITTEN)
        return self.spark.read.schema(WRITTEN).parquet(*files)


@check_arguments(types=False)
def event_stream(
    spark: SparkSession, folder: str | os.PathLike[str], *, files_per_batch: int = 1
) -> DataFrame:
    """Read events from Parquet files as a stream.

    Parameters
    ----------
    spark : SparkSession
    folder : path-like
        Folder of files with the columns :data:`EVENTS`, read in order of modification.
    files_per_batch : int

    Returns
    -------
    DataFrame
        A stream. Any other stream with these columns works as well.

    Raises
    ------
    InputMissing
        There is no such folder.
    """
    place = existing_path(folder, "folder of events").absolute()
    stream = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", files_per_batch)
    return stream.parquet(str(place))


@check_arguments(types=False)
def aggregate_stream(
    events: DataFrame,
    start: Start,
    path: str | os.PathLike[str],
    *,
    delay_s: float = 0.0,
    shares: int = 2,
) -> Streamed:
    """Run events through pending queues until all available events are processed.

    A call with the same path resumes a stopped or killed query without loss or duplicates. Messages that are
    pending at the end stay in the state, and so do the events of the last ``delay_s`` until a later event.

    Parameters
    ----------
    events : DataFrame
        A stream with the columns :data:`EVENTS`; numbers ascend with time.
    start : callable
        Factory of the engine of a share of the receivers, such as :class:`mudkit.systems.radiator.Shares`; it
        is pickled by cloudpickle.
    path : path-like
        The folder for the result, the state and the checkpoint.
    delay_s : float
        How late an event may arrive and still be processed in order.
    shares : int
        Number of shares of the receivers, one task each; fixed for a folder.

    Returns
    -------
    Streamed

    Raises
    ------
    ParameterError, TraceContentError
        ``events`` is no such stream; the folder is of a query with other settings.
    OutputExists, OutputProblem
        Something else is at ``path``, or it cannot be written.
    """
    path = output_path(path).absolute()
    _check(events, delay_s, shares)
    _settle(path, {"delay_s": float(delay_s), "shares": shares})
    spark = events.sparkSession
    provide(spark)
    usable = "ts IS NOT NULL AND number IS NOT NULL AND client IS NOT NULL AND kind IS NOT NULL"
    counted = events.observe("events", F.count_if(~F.expr(usable)).alias("unusable"))
    t_us = F.unix_micros("ts").alias("t_us")
    known = counted.where(usable).select("ts", t_us, "number", "client", "kind", "text")
    every_share = F.explode(F.sequence(F.lit(0), F.lit(shares - 1)))
    late_after = f"{round(delay_s * 1000)} milliseconds"
    spread = known.withWatermark("ts", late_after).withColumn("share", every_share).groupBy("share")
    released = spread.transformWithState(Keeper(start, shares), WRITTEN, "append", "eventTime")
    writer = released.writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.foreachBatch(partial(_write_batch, _job(path)))
    writer = writer.option("checkpointLocation", str(path / "checkpoint"))
    with writing(path), progress(spark, "stream"), suppress_worker_output():
        with _settings(spark, shares):
            query = writer.start()
        try:
            ran = _wait_for(query)
        finally:
            query.stop()
    return Streamed(spark, path, tuple(_batch(batch, shares) for batch in ran))


def _job(path: Path) -> Job:
    """Return a query as a job without an end: each batch is a part of it."""
    return Job(path, RESULT, _STREAM, uuid.uuid4().hex[:8])


def _write_batch(job: Job, batch: DataFrame, number: int) -> None:
    """Write the rows of a batch, and its manifest when they are complete; only once.

    A batch that is repeated is run to the end, because it makes the state of the next one.
    """
    name = f"{number:09d}"
    if job.has_finished(name):
        batch.write.format("noop").mode("overwrite").save()
    else:
        write_frame(job, name, batch)


def _wait_for(query: Any) -> list[Mapping[str, Any]]:
    """Return the progress of all batches of a query when it has ended; Spark keeps the last hundred."""
    seen: dict[int, Mapping[str, Any]] = {}
    has_ended = False
    while not has_ended:
        has_ended = query.awaitTermination(_POLL_S)
        seen |= {batch["batchId"]: batch for batch in query.recentProgress}
    # A query without events reports a batch that it has not run.
    return [batch for _, batch in sorted(seen.items()) if "addBatch" in batch["durationMs"]]


def _batch(progress: Mapping[str, Any], shares: int) -> Batch:
    """Return a batch from Spark's report of its progress."""
    late = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
    # For a batch without events Spark Connect has the observation's name and no value.
    observed = progress["observedMetrics"].get("events")
    unusable = (observed.asDict().get("unusable") or 0) if observed is not None else 0
    times = progress["eventTime"]
    return Batch(
        progress["batchId"],
        progress["numInputRows"],
        late // shares,
        unusable,
        times.get("max"),
        times.get("watermark"),
        progress["durationMs"]["triggerExecution"] / 1000,
    )


@contextmanager
def _settings(spark: SparkSession, shares: int) -> Iterator[None]:
    """Set, while the body runs, the settings that a query reads when it starts."""
    settings = {
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.shuffle.partitions": str(shares),
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def _check(events: DataFrame, delay_s: float, shares: int) -> None:
    """Raise an error of mudkit for events that are no stream, and for delay or shares out of range."""
    require_columns(events, "events", ("ts", "number", "client", "kind", "text"))
    if not events.isStreaming:
        raise ParameterError(
            "These events are no stream.",
            where="events",
            found="a table",
            expected="a streaming DataFrame",
            remedy="read them with pipeline.event_stream(spark, folder)",
        )
    if shares not in range(1, 1001):
        raise ParameterError(
            "The receivers cannot be divided so.", where="shares", found=repr(shares), expected="1 to 1000"
        )
    if not 0 <= delay_s <= 1e6:
        raise ParameterError(
            "The delay is not usable.", where="delay_s", found=repr(delay_s), expected="0 to 1e6 seconds"
        )


def _settle(path: Path, settings: Mapping[str, Any]) -> None:
    """Store the settings of a query in its folder; ParameterError if it began there with others.

    Raises OutputExists if something else is there.
    """
    begun = _job(path).identity()
    if begun is not None:
        if begun != settings:
            raise ParameterError(
                "The query that was begun here has other settings.",
                where=str(path),
                found=repr(settings),
                expected=repr(begun),
                remedy="go on with these, or choose another folder",
            )
        return
    if path.exists() and (not path.is_dir() or any(not file.name.startswith(".") for file in path.iterdir())):
        raise OutputExists(
            f"There is something at {path} already.",
            where=str(path),
            expected="a free place, or the folder of a query",
            remedy="choose another place, or remove it",
        )
    _job(path).begin(json.dumps(settings))
