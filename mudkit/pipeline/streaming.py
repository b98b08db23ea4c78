"""What waits for receivers, and when it goes, over a stream of events: pending queues as Spark state.

What holds the queues (for Radiator: Algorithm 3 for a share of the receivers) comes from above, as an
:class:`Engine`. A query keeps one for each share of the receivers in the state of ``transformWithState``, and
gives each of them every event:

=============  ============================================================================================
an event       waits until the watermark has reached it, and is taken then, in the order of (time, number),
               whichever batches the events have come in
a timer        of the engine is taken at its time between the events, after those of the same time; where no
               event comes, a timer of Spark brings it about when the watermark has reached it
a late event   not after the watermark that the batch before has known: left out, and counted
the watermark  is so long behind the latest event (``delay_s``), in whole milliseconds
a batch        is in the state, the result and the checkpoint together, or not at all
=============  ============================================================================================

So the result is a function of the events alone, as long as none is late; also when the query is killed and
started again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.errors import OutputExists, ParameterError
from mudkit.files import existing, staged_file
from mudkit.pipeline._progress import progress
from mudkit.pipeline.keeper import WRITTEN, Engine, Event, Gone, Keeper, Start
from mudkit.pipeline.launch.quiet_workers import hushed
from mudkit.pipeline.launch.shipping import provide
from mudkit.pipeline.tables import require_columns, writing

__all__ = [
    "EVENTS",
    "Batch",
    "Engine",
    "Event",
    "Gone",
    "Start",
    "Streamed",
    "aggregate_stream",
    "event_stream",
]

EVENTS: Final = "ts TIMESTAMP, number BIGINT, client STRING, kind STRING, text STRING"
"""Columns of a stream of events."""
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_POLL_S: Final = 1
_SETTINGS: Final = "settings.json"


@dataclass(frozen=True)
class Batch:
    """A batch of a query.

    Attributes
    ----------
    number : int
        Goes on where the query was stopped.
    events : int
        How many have come.
    late, unusable : int
        How many of them were left out: behind the watermark; without a time, number, client or kind.
    latest_ts, watermark_ts : str or None
        The latest event of it; up to where its events were taken. ISO 8601, UTC.
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
    """What a query has written, in this run and before.

    Attributes
    ----------
    path : Path
    batches : tuple of Batch
        Those of this run.
    """

    spark: SparkSession
    path: Path
    batches: tuple[Batch, ...]

    @property
    def late(self) -> int:
        """Events of this run that came behind the watermark and were left out."""
        return sum(batch.late for batch in self.batches)

    @property
    def aggregates(self) -> DataFrame:
        """What has gone to whom.

        ``ts`` (of the event or timer that let it go), ``numbers`` (of the messages in it), ``recipients``
        (sorted), ``aggregate`` (JSON), ``watermark_ts`` (up to where events were taken in its batch).
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
        """What went wrong with functions and events, each problem once: ``ts, problem``."""
        rows = self._rows().where("problem IS NOT NULL")
        first = rows.groupBy("problem").agg(F.min("t_us").alias("t_us"))
        return first.select(F.timestamp_micros("t_us").alias("ts"), "problem")

    def _rows(self) -> DataFrame:
        folder = self.path / "rows"
        if not (folder / "_spark_metadata").exists():
            return self.spark.createDataFrame([], WRITTEN)
        # Spark reads there which files are whole; others are of batches that were not finished.
        return self.spark.read.schema(WRITTEN).parquet(str(folder))


def event_stream(
    spark: SparkSession, folder: str | os.PathLike[str], *, files_per_batch: int = 1
) -> DataFrame:
    """Read events from Parquet files as a stream.

    Parameters
    ----------
    spark : SparkSession
    folder : path-like
        The folder of files with the columns :data:`EVENTS`; they are taken in the order of their times of
        modification.
    files_per_batch : int

    Returns
    -------
    DataFrame
        A stream; also one of any other source will do that has these columns.

    Raises
    ------
    InputMissing
        There is no such folder.
    """
    place = existing(folder, "folder of events").absolute()
    stream = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", files_per_batch)
    return stream.parquet(str(place))


def aggregate_stream(
    events: DataFrame,
    start: Start,
    path: str | os.PathLike[str],
    *,
    delay_s: float = 0.0,
    shares: int = 2,
) -> Streamed:
    """Run events through pending queues until all available events are processed.

    Called again with the same path, it resumes where it was stopped or killed: nothing is lost and nothing
    repeated. What waits at the end waits in the state, and so do the events of the last ``delay_s``: a later
    event of any kind releases them.

    Parameters
    ----------
    events : DataFrame
        A stream with the columns :data:`EVENTS`: when, a number that ascends with the time, and what the
        engine is to know.
    start : callable
        Makes the engine of a share of the receivers, such as :class:`mudkit.systems.radiator.Shares`. It
        travels by cloudpickle.
    path : path-like
        The folder for the result, the state and the checkpoint.
    delay_s : float
        How far behind the latest event one may come and still be taken in its place.
    shares : int
        Into how many the receivers are divided, each worked on by one task; a folder keeps its number.

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
    path = Path(path).expanduser().absolute()
    _check(events, delay_s, shares)
    _settle(path, {"delay_s": float(delay_s), "shares": shares})
    spark = events.sparkSession
    provide(spark)
    usable = "ts IS NOT NULL AND number IS NOT NULL AND client IS NOT NULL AND kind IS NOT NULL"
    counted = events.observe("events", F.count_if(~F.expr(usable)).alias("unusable"))
    t_us = F.unix_micros("ts").alias("t_us")
    known = counted.where(usable).select("ts", t_us, "number", "client", "kind", "text")
    each = F.explode(F.sequence(F.lit(0), F.lit(shares - 1)))
    late_after = f"{round(delay_s * 1000)} milliseconds"
    spread = known.withWatermark("ts", late_after).withColumn("share", each).groupBy("share")
    gone = spread.transformWithState(Keeper(start, shares), WRITTEN, "append", "eventTime")
    writer = gone.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    writer = writer.option("path", str(path / "rows")).option("checkpointLocation", str(path / "checkpoint"))
    seen: dict[int, Any] = {}
    with writing(path), progress(spark, "stream"), hushed():
        with _settings(spark, shares):
            query = writer.start()
        try:
            while not query.awaitTermination(_POLL_S):
                seen |= {each["batchId"]: each for each in query.recentProgress}
            seen |= {each["batchId"]: each for each in query.recentProgress}
        finally:
            query.stop()
    # A query that finds nothing to do tells of a batch that it has not run.
    ran = [batch for _, batch in sorted(seen.items()) if "addBatch" in batch["durationMs"]]
    return Streamed(spark, path, tuple(_batch(batch, shares) for batch in ran))


def _batch(progress: Mapping[str, Any], shares: int) -> Batch:
    late = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
    # Of a batch without events Spark Connect has the name of what is observed and no value.
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
    """Set what a query takes over when it starts."""
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
    """Take a free folder, or one that a query with the same settings has begun.

    Raises
    ------
    ParameterError, OutputExists, OutputProblem
    """
    file = path / _SETTINGS
    if file.is_file():
        offsets = json.loads(file.read_text())
        if offsets != settings:
            raise ParameterError(
                "The query that was begun here has other settings.",
                where=str(path),
                found=repr(settings),
                expected=repr(offsets),
                remedy="go on with these, or choose another folder",
            )
        return
    if path.exists() and (not path.is_dir() or any(not each.name.startswith(".") for each in path.iterdir())):
        raise OutputExists(
            f"There is something at {path} already.",
            where=str(path),
            expected="a free place, or the folder of a query",
            remedy="choose another place, or remove it",
        )
    with staged_file(file) as staging:
        staging.write_text(json.dumps(settings))
