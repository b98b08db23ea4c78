"""F2: what labels take: of reads beside DuckDB, of writes, for longer traces, and on a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mudkit import trace
from mudkit.errors import EnvironmentProblem
from mudkit.reproduce.lab.spark_modes import environment, last_words
from mudkit.reproduce.peaks import PeakMemory
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.trace.schema import epoch_us
from mudkit.units import box_bounds

__all__ = ["measure", "serve_duckdb", "serve_spark"]

BIN_S, BIN_LAT, BIN_LON = 7200, 0.09, 0.11  # two hours, about 10 km
_MODULE: Final = "mudkit.reproduce.lab.spark_labels"
_QUERY: Final = """
    WITH p AS (
        SELECT epoch_us(ts) / 1e6 AS t, lat, lon, CAST(floor(epoch_us(ts) / 1e6 / {bin_s}) AS BIGINT) AS bt,
               CAST(floor(lat / {bin_lat}) AS BIGINT) AS bx, CAST(floor(lon / {bin_lon}) AS BIGINT) AS bl
        FROM read_parquet('{files}')
    ), r AS (
        SELECT *, unnest(range(CAST(floor((t - window_s) / {bin_s}) AS BIGINT),
                               CAST(floor(t / {bin_s}) AS BIGINT) + 1)) AS bt FROM asked
    ), r2 AS (
        SELECT *, unnest(range(CAST(floor(south / {bin_lat}) AS BIGINT),
                               CAST(floor(north / {bin_lat}) AS BIGINT) + 1)) AS bx FROM r
    ), r3 AS (
        SELECT *, unnest(range(CAST(floor(west / {bin_lon}) AS BIGINT),
                               CAST(floor(east / {bin_lon}) AS BIGINT) + 1)) AS bl FROM r2
    )
    SELECT read_id, count(*) AS points FROM r3 JOIN p USING (bt, bx, bl)
    WHERE p.t > r3.t - window_s AND p.t <= r3.t
      AND lat BETWEEN south AND north AND lon BETWEEN west AND east
    GROUP BY read_id
"""


def serve_spark(place: str) -> None:
    """Do what each line of the input says, a job and a trace folder; answer each with a line of JSON.

    Parameters
    ----------
    place : str
        Arguments of `mudkit.pipeline.session` as JSON.
    """
    from mudkit import pipeline

    spark = pipeline.session(**json.loads(place))
    try:
        with PeakMemory(os.getpid()) as peaks:
            for line in sys.stdin:
                job, folder = json.loads(line)
                began_s = time.perf_counter()
                labels = _label_reads(spark, folder) if job == "label_reads" else _label_writes(spark, folder)
                taken_s = time.perf_counter() - began_s
                peaks.look()
                _answer(s=taken_s, mb=peaks.mb(), **_summed_up(labels))
    finally:
        pipeline.stop()


def _label_reads(spark: Any, folder: str) -> pa.Table:
    from mudkit import pipeline

    positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
    return pipeline.label_reads(positions, reads).toArrow()


def _label_writes(spark: Any, folder: str) -> int:
    """Write one row for each position: so many are for a folder, not for a driver's memory."""
    from mudkit import pipeline

    with tempfile.TemporaryDirectory(prefix="mudkit-labels-") as out:
        return pipeline.run_job(spark, "label_writes", folder, Path(out) / "labels").rows


def _summed_up(labels: pa.Table | int) -> dict[str, Any]:
    if isinstance(labels, int):
        return {"labels": labels}
    own = pc.and_(pc.is_null(labels["cached_read_id"]), pc.greater(labels["points"], 0))
    return {"labels": len(labels), "counted": _digest(labels.filter(own))}


def serve_duckdb() -> None:
    """Count the points of each read of the trace folder in each line; answer with a line of JSON."""
    import duckdb

    for line in sys.stdin:
        _, folder = json.loads(line)
        table = trace.read_table(folder, "reads")
        box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
        asked = pa.table(
            {
                "read_id": table["read_id"],
                "t": epoch_us(table["ts"]) // 1_000_000,
                "window_s": table["window_s"],
                "south": box.south,
                "west": box.west,
                "north": box.north,
                "east": box.east,
            }
        )
        files = str(Path(folder) / "positions" / "*" / "*.parquet").replace("'", "''")
        query = _QUERY.format(bin_s=BIN_S, bin_lat=BIN_LAT, bin_lon=BIN_LON, files=files)
        with duckdb.connect() as database:
            database.execute("SET enable_progress_bar = false")  # it would come between the answers
            database.register("asked", asked)
            began_s = time.perf_counter()
            counts = database.sql(query).to_arrow_table()
            taken_s = time.perf_counter() - began_s
        _answer(s=taken_s, counted=_digest(counts))


def _answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)  # noqa: T201 - this is how the process answers


def _digest(counts: pa.Table) -> str:
    """Sum up (read_id, points), whatever their order."""
    ordered = counts.select(["read_id", "points"]).sort_by("read_id").combine_chunks()
    digest = hashlib.sha256()
    for name in ("read_id", "points"):
        digest.update(ordered[name].to_numpy().astype("int64").tobytes())
    return digest.hexdigest()


class _Side:
    """A process that answers lines."""

    def __init__(self, function: str, *arguments: str) -> None:
        code = f"import sys; from {_MODULE} import {function}; {function}(*sys.argv[1:])"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> _Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.terminate()
        with contextlib.suppress(OSError):
            self._process.communicate()
        self._errors.close()

    def ask(self, job: str, folder: Path) -> dict[str, Any]:
        """Let it do a job with a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([job, str(folder)]) + "\n")
            self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, "")
        if line := next((line for line in lines if line.startswith("{")), ""):
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        raise EnvironmentProblem(
            "The process that works on the trace ended before it was done.",
            found=last_words(said) or f"exit status {status}",
            expected="room for a process of 4 GB, and a Java",
            remedy="run `mudkit doctor`, and measure again",
        )


_SIZES: Final = ("shorter trace", "", "longer trace")
_ON_CLUSTER: Final = "two workers"


def measure(
    say: Say = say_nothing, *, cars: int = 600, days: int = 30, times: int = 10, runs: int = 5
) -> Measured:
    """Measure row F2: Spark and DuckDB in turn on the same trace, then Spark on a shorter and a longer one.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    cars, days : int
        The number of cars and of days of the trace.
    times : int
        How many times as many days the longer one has, and the one beside it the shorter one.
    runs : int
        How often the trace is labelled beside DuckDB, after a warm-up; by itself, and on the cluster, three
        times at most.

    Raises
    ------
    EnvironmentProblem
        There is no DuckDB, or a process ended early.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise EnvironmentProblem(
            "The peer that row F2 compares Spark with is missing.",
            found="no package duckdb in this environment",
            expected="duckdb, which mudkit itself does not need",
            remedy="run `make setup` in a checkout, or `pip install duckdb`",
        )
    from mudkit.pipeline.launch.cluster import local_cluster  # loads Spark

    sizes: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="mudkit-traces-") as place:
        folders = {}
        for size, many in zip(_SIZES, (max(days // times, 1), days, days * times), strict=True):
            say(f"generating {cars:,} cars, {many:,} days")
            folders[size] = Path(place) / (size or "usual trace")
            rows = trace.generate(cars, many, path=folders[size])["rows"]
            sizes |= {_named(name, size): Figure.of([rows[name]]) for name in ("positions", "reads")}
        with _Side("serve_spark", "{}") as spark:
            pairs = []
            with _Side("serve_duckdb") as duckdb:
                for number in range(runs + 1):
                    say(f"label_reads beside DuckDB, {number} of {runs}")
                    pairs.append([side.ask("label_reads", folders[""]) for side in (spark, duckdb)])
            local = _labelled(spark, folders, say, runs)
        with local_cluster(2) as cluster, _Side("serve_spark", json.dumps({"master": cluster.url})) as spark:
            on_cluster = _labelled(spark, folders, lambda what: say(f"{what}, {_ON_CLUSTER}"), runs)
    parameters = {
        "traces": f"generated: {cars:,} cars, {days:,} days; a {times}th and {times} times the days; seed 7",
        "Spark": "local[*]; label_reads (horizon 7,200 s) to an Arrow table, label_writes to Parquet; "
        "session start apart, a warm-up before",
        "DuckDB": f"counts of points only; bins of {BIN_S:,} s, {BIN_LAT}°, {BIN_LON}°; all cores",
        "driver": "its Python and its Java, in which local mode runs all tasks but Python's; each one's peak "
        "over all jobs and traces",
        _ON_CLUSTER: "of one core and 1 GiB each, on this machine, beside their driver",
    }
    return Measured(_figures(pairs, local, on_cluster) | sizes, parameters)


def _named(what: str, size: str) -> str:
    return f"{what}, {size}" if size else what


def _labelled(
    spark: _Side, folders: Mapping[str, Path], say: Say, most: int
) -> dict[str, list[dict[str, Any]]]:
    """Label all traces in both ways, and collect the answers by job and trace."""
    answers: dict[str, list[dict[str, Any]]] = {}
    for job in ("label_reads", "label_writes"):
        spark.ask(job, folders[_SIZES[0]])  # warms up
        for size, folder in folders.items():
            name = _named(job, size)
            runs = 1 if size == _SIZES[-1] else min(3, most)  # the longer trace takes minutes
            answers[name] = []
            for number in range(runs):
                say(f"{name}, {number + 1} of {runs}")
                answers[name].append(spark.ask(job, folder))
    return answers


def _figures(
    pairs: Sequence[Sequence[dict[str, Any]]],
    local: Mapping[str, Sequence[dict[str, Any]]],
    on_cluster: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Figure]:
    agree = [float(ours["counted"] == theirs["counted"]) for ours, theirs in pairs]
    ours_s, theirs_s = ([each["s"] for each in side] for side in zip(*pairs[1:], strict=True))
    figures = {
        "times DuckDB's time": Figure.of(a / b for a, b in zip(ours_s, theirs_s, strict=True)),
        "share of runs in which both count the same": Figure.of([sum(agree) / len(agree)]),
    }
    last = [answers[-1] for answers in local.values()]
    figures["GB of the driver at its peak"] = Figure.of([max(each["mb"]["driver"] for each in last) / 1000])
    for job in ("label_reads", "label_writes"):
        usual_s = Figure.of(each["s"] for each in local[job]).median
        name = _named(job, _SIZES[-1])
        figures[f"times as long, {name}"] = Figure.of(each["s"] / usual_s for each in local[name])
    figures["s, DuckDB"] = Figure.of(theirs_s)
    for where, answers in (("", local), (_ON_CLUSTER, on_cluster)):
        for name, each in answers.items():
            figures[_named(f"s, {name}", where)] = Figure.of(answer["s"] for answer in each)
    workers_mb = max(each["mb"]["workers"] for each in last)
    figures["GB of Python's workers at their peaks"] = Figure.of([workers_mb / 1000])
    return figures
