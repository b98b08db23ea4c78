"""Rows of the lab on Spark: labels beside DuckDB (F2), starts (F3), and equal results in all modes (F4)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mudkit import trace
from mudkit.reproduce.harness import JsonServer, PeakMemory, Task, answer_of, json_of, require_peer, serve
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.trace.schema import epoch_us
from mudkit.units import box_bounds

LOCAL: Final = "local[2], 2 shuffle partitions"
CONNECT: Final = "Spark Connect"
CLUSTER: Final = "standalone cluster"
_REFERENCE: Final = "local[1], 5 shuffle partitions"
_SPARK_TASK: Final = Task(
    "runs Spark", "room for Spark: 3 GB of memory, and a Java", "run `mudkit doctor`, and measure again"
)
_MEAN: Final = "mean_speed_mps"
_MEAN_TOLERANCE: Final = 1e-12  # the order of a sum of floats is not fixed

Place = Mapping[str, Any]
"""Arguments of `mudkit.pipeline.session`."""


def _session_arguments(
    master: str | None = None, remote: str | None = None, partitions: int | None = None
) -> Place:
    """Return arguments of ``pipeline.session`` for a place; None leaves Spark's own choice."""
    config = {} if partitions is None else {"spark.sql.shuffle.partitions": partitions}
    return {"master": master, "remote": remote, "config": config}


def write_source(folder: Path, cars: int, days: int, seed: int = 7) -> None:
    """Write a generated trace twice: as a trace folder, ``generated``, and as files to ingest, ``cabs``."""
    loaded = trace.generate(cars, days, seed)
    loaded.save(folder / "generated")
    (folder / "cabs").mkdir()
    table = loaded.positions.sort_by([("device", "ascending"), ("ts", "descending")])
    seconds = epoch_us(table["ts"]) // 1_000_000
    columns = (table["device"], table["lat"], table["lon"])
    lines: dict[str, list[str]] = {}
    for number, (device, lat, lon) in enumerate(
        zip(*(column.to_pylist() for column in columns), strict=True)
    ):
        lines.setdefault(device, []).append(f"{lat:.5f} {lon:.5f} {number // 40 % 2} {seconds[number]}")
    for device, rows in lines.items():
        (folder / "cabs" / f"new_{device}.txt").write_text("\n".join([*rows, "no position"]) + "\n")


def write_results(source: str, out: str, place: Place) -> dict[str, list[str]]:
    """Run the jobs in a session and write their rows below ``out``; return where tasks ran."""
    from mudkit import pipeline

    spark = pipeline.session(**place)
    try:
        pipeline.ingest(spark, Path(source) / "cabs", Path(out) / "trace")
        for name, frame in _jobs(spark, source, out):
            pipeline.write(frame, Path(out) / name)
        _spread(spark, Path(out) / "spread-seeds")
        return _task_places(spark)
    finally:
        pipeline.stop()


def _jobs(spark: Any, source: str, out: str) -> Iterator[tuple[str, Any]]:
    """Yield names and results of the pipeline's operations, on the ingested trace and a generated one."""
    from mudkit import pipeline

    for name, folder in (("ingested", Path(out) / "trace"), ("generated", Path(source) / "generated")):
        positions, reads = (pipeline.read(spark, folder, table) for table in ("positions", "reads"))
        yield f"cells-{name}", pipeline.cells(positions, reads, zooms=(12, 15))
        yield f"label_reads-{name}", pipeline.label_reads(positions, reads)
    yield "label_writes-generated", pipeline.label_writes(positions, reads)
    yield "propagation-generated", pipeline.propagation(positions)


def _spread(spark: Any, folder: Path) -> None:
    """Draw 20 numbers on the session's workers, and write them into the folder as one Parquet file."""
    from mudkit import pipeline

    def drawn(seed: int) -> dict[str, float]:
        random = np.random.default_rng(seed)
        return {"seed": seed, "drawn": float(random.normal())}

    rows = list(pipeline.spread(spark)(drawn, range(20)))
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


def _task_places(spark: Any) -> dict[str, list[str]]:
    """Return the folders that tasks ran in, and where Python found mudkit there."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time as clock
        from pathlib import Path as AnyPath

        import mudkit.pipeline

        for batch in batches:
            clock.sleep(0.2)  # otherwise one executor runs all tasks before the other has started
            here = [str(AnyPath.cwd()), str(AnyPath(mudkit.pipeline.__file__).resolve())]
            yield pa.RecordBatch.from_arrays(
                [pa.array([text] * len(batch)) for text in here], names=["folder", "mudkit"]
            )

    rows = spark.range(0, 8, 1, 8).mapInArrow(look, "folder STRING, mudkit STRING").toArrow()
    return {name: sorted(set(rows[name].to_pylist())) for name in ("folder", "mudkit")}


def run_jobs(
    source: Path, out: Path, place: Place, environ: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Call :func:`write_results` in a process of its own."""
    out.mkdir(parents=True)
    places: dict[str, list[str]] = answer_of(
        write_results, str(source), str(out), place, task=_SPARK_TASK, environ=environ
    )
    return places


def read_tables(out: Path) -> dict[str, pa.Table]:
    """Read the results of a run, and the tables of the ingested trace."""
    folders = [*out.glob("*-*"), *(out / "trace" / name for name in ("positions", "reads", "rejected"))]
    return {
        folder.name: ds.dataset(folder, format="parquet", partitioning="hive").to_table()
        for folder in sorted(folders)
        if any(folder.rglob("*.parquet"))
    }


def count_differing_rows(one: Path, other: Path) -> int:
    """Count the rows that only one of two runs has; means may differ by one part in 10^12."""
    a, b = read_tables(one), read_tables(other)
    nothing = pa.table({})
    return sum(count_differing(a.get(name, nothing), b.get(name, nothing)) for name in sorted({*a, *b}))


def count_differing(one: pa.Table, other: pa.Table) -> int:
    """Count the rows that only one of two tables has; see :func:`count_differing_rows`."""
    if one.column_names != other.column_names:
        return len(one) + len(other)
    exact = [name for name in one.column_names if name != _MEAN]
    rows_one, rows_other = (
        Counter(zip(*(table[name].to_pylist() for name in exact), strict=True)) for table in (one, other)
    )
    count = (rows_one - rows_other).total() + (rows_other - rows_one).total()
    if not count and _MEAN in one.column_names:
        order = [(name, "ascending") for name in exact]
        mean, also = (table.sort_by(order)[_MEAN].to_numpy().astype(np.float64) for table in (one, other))
        return int(np.count_nonzero(~np.isclose(mean, also, rtol=_MEAN_TOLERANCE, atol=0.0, equal_nan=True)))
    return count


def measure_modes(say: Say = say_nothing, *, cars: int = 60, days: int = 5, workers: int = 2) -> Measured:
    """Measure row F4, each mode in a process of its own."""
    from mudkit.reproduce.cluster import local_cluster  # loads Spark

    quantities: dict[str, Quantity] = {}
    with tempfile.TemporaryDirectory(prefix="mudkit-modes-") as folder, local_cluster(workers) as cluster:
        write_source(Path(folder) / "source", cars, days)
        places = {
            _REFERENCE: _session_arguments("local[1]", partitions=5),
            LOCAL: _session_arguments("local[2]", partitions=2),
            CONNECT: _session_arguments(remote="local[2]"),
            CLUSTER: _session_arguments(cluster.url),
        }
        tasks = {}
        for number, (name, place) in enumerate(places.items()):
            say(name)
            began_s = time.perf_counter()
            tasks[name] = run_jobs(Path(folder) / "source", Path(folder) / str(number), place)
            quantities[f"s, {name}"] = Quantity.of([time.perf_counter() - began_s])
            if number:
                count = count_differing_rows(Path(folder) / "0", Path(folder) / str(number))
                quantities[f"rows that differ, {name}"] = Quantity.of([count])
        written = read_tables(Path(folder) / "0")
    quantities["rows compared"] = Quantity.of([sum(map(len, written.values()))])
    quantities["executors that took part"] = Quantity.of([len(tasks[CLUSTER]["folder"])])
    parameters = {
        "cars": cars,
        "days": days,
        "seed": 7,
        "workers": f"{workers} of one core and 1 GiB",
        "tables": {name: len(table) for name, table in written.items()},
        "compared with": _REFERENCE,
        "means": f"equal to one part in {1 / _MEAN_TOLERANCE:g}; all else exactly",
    }
    return Measured(quantities, parameters)


F4: Final = Row(
    name="F4",
    source="the lab",
    paper="None: the same job gives the same rows wherever Spark runs.",
    required=(
        *(Required(f"rows that differ, {mode}", "at most", 0) for mode in (LOCAL, CONNECT, CLUSTER)),
        Required("rows compared", "at least", 100_000),
        Required("executors that took part", "at least", 2),
    ),
    measure=measure_modes,
    minutes=1.7,
)


BIN_S, BIN_LAT, BIN_LON = 7200, 0.09, 0.11  # two hours, about 10 km
_LABELS_TASK: Final = Task(
    "works on the trace", "room for a process of 4 GB, and a Java", "run `mudkit doctor`, and measure again"
)
_QUERY: Final = """
    WITH p AS (
        SELECT device, epoch_us(ts) / 1e6 AS t, lat, lon,
               CAST(floor(epoch_us(ts) / 1e6 / {bin_s}) AS BIGINT) AS bt,
               CAST(floor(lat / {bin_lat}) AS BIGINT) AS bx, CAST(floor(lon / {bin_lon}) AS BIGINT) AS bl
        FROM read_parquet('{files}')
    ), r AS (
        SELECT *, unnest(range(CAST(floor((t - window_s) / {bin_s}) AS BIGINT),
                               CAST(floor(t / {bin_s}) AS BIGINT) + 1)) AS bt FROM requests
    ), r2 AS (
        SELECT *, unnest(range(CAST(floor(south / {bin_lat}) AS BIGINT),
                               CAST(floor(north / {bin_lat}) AS BIGINT) + 1)) AS bx FROM r
    ), r3 AS (
        SELECT *, unnest(range(CAST(floor(west / {bin_lon}) AS BIGINT),
                               CAST(floor(east / {bin_lon}) AS BIGINT) + 1)) AS bl FROM r2
    )
    SELECT read_id, count(*) AS points, count(*) FILTER (p.device <> r3.device) AS missing
    FROM r3 JOIN p USING (bt, bx, bl)
    WHERE p.t > r3.t - window_s AND p.t <= r3.t
      AND lat BETWEEN south AND north AND lon BETWEEN west AND east
    GROUP BY read_id
"""


def serve_spark(place: Place) -> None:
    """Serve requests, a job and a trace folder, from a Spark session."""
    from mudkit import pipeline

    spark = pipeline.session(**place)

    def answer(request: tuple[str, str]) -> dict[str, Any]:
        job, folder = request
        began_s = time.perf_counter()
        labels = _label_reads(spark, folder) if job == "label_reads" else _label_writes(spark, folder)
        duration_s = time.perf_counter() - began_s
        peaks.sample()
        return {"s": duration_s, "mb": peaks.mb(), **_summary(labels)}

    try:
        with PeakMemory(os.getpid()) as peaks:
            serve(answer)
    finally:
        pipeline.stop()


def _label_reads(spark: Any, folder: str) -> pa.Table:
    """Label the reads of a folder's trace on Spark, and return the labels in this process."""
    from mudkit import pipeline

    positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
    return pipeline.label_reads(positions, reads).toArrow()


def _label_writes(spark: Any, folder: str) -> int:
    """Write a row for each position into a folder; they would not fit the driver's memory."""
    from mudkit import pipeline

    with tempfile.TemporaryDirectory(prefix="mudkit-labels-") as out:
        return pipeline.run_job(spark, "label_writes", folder, Path(out) / "labels").rows


def _summary(labels: pa.Table | int) -> dict[str, Any]:
    """Summarise labels: their count and, of a table, a digest of the reads that DuckDB counts alike.

    Labels of which only the count is known are given as that count.
    """
    if isinstance(labels, int):
        return {"labels": labels}
    alone = pc.and_(pc.is_null(labels["cached_read_id"]), pc.greater(labels["points"], 0))
    return {"labels": len(labels), "counted": _digest(labels.filter(alone))}


def serve_duckdb() -> None:
    """Serve requests, a job and a trace folder, from DuckDB: each read's points, and those of others."""
    serve(_count_points)


def _count_points(request: tuple[str, str]) -> dict[str, Any]:
    """Count the points of each read of a folder's trace in DuckDB, the second part of the request."""
    import duckdb

    _, folder = request
    table = trace.read_table(folder, "reads")
    box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
    requests = pa.table(
        {
            "read_id": table["read_id"],
            "device": table["device"],
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
        database.execute("SET enable_progress_bar = false")  # it would be printed between the answers
        database.register("requests", requests)
        began_s = time.perf_counter()
        counts = database.sql(query).to_arrow_table()
        duration_s = time.perf_counter() - began_s
    return {"s": duration_s, "counted": _digest(counts)}


_DIGESTED: Final = ["read_id", "points", "missing"]


def _digest(counts: pa.Table) -> str:
    """Digest (read_id, points, missing), independent of their order."""
    ordered = counts.select(_DIGESTED).sort_by("read_id").combine_chunks()
    digest = hashlib.sha256()
    for name in _DIGESTED:
        digest.update(ordered[name].to_numpy().astype("int64").tobytes())
    return digest.hexdigest()


_SIZES: Final = ("shorter trace", "", "longer trace")
_ON_CLUSTER: Final = "two workers"


def measure_labels(
    say: Say = say_nothing, *, cars: int = 600, days: int = 30, times: int = 10, runs: int = 5
) -> Measured:
    """Measure row F2: Spark and DuckDB alternate on a trace, then Spark labels a shorter and a longer one.

    These have a `times`-th and `times` times the days.
    """
    require_peer("duckdb", "F2", "Spark")
    from mudkit.reproduce.cluster import local_cluster  # loads Spark

    sizes: dict[str, Quantity] = {}
    with tempfile.TemporaryDirectory(prefix="mudkit-traces-") as place:
        folders = {}
        for size, many in zip(_SIZES, (max(days // times, 1), days, days * times), strict=True):
            say(f"generating {cars:,} cars, {many:,} days")
            folders[size] = Path(place) / (size or "usual trace")
            rows = trace.generate(cars, many, path=folders[size])["rows"]
            sizes |= {
                _labelled_name(name, size): Quantity.of([rows[name]]) for name in ("positions", "reads")
            }
        with JsonServer(serve_spark, {}, task=_LABELS_TASK) as spark:
            pairs = []
            with JsonServer(serve_duckdb, task=_LABELS_TASK) as duckdb:
                for number in range(runs + 1):
                    say(f"label_reads beside DuckDB, {number} of {runs}")
                    request = "label_reads", str(folders[""])
                    pairs.append([server.ask(request) for server in (spark, duckdb)])
            local = _label_all(spark, folders, say, runs)
        with (
            local_cluster(2) as cluster,
            JsonServer(serve_spark, {"master": cluster.url}, task=_LABELS_TASK) as spark,
        ):
            on_cluster = _label_all(spark, folders, lambda what: say(f"{what}, {_ON_CLUSTER}"), runs)
    parameters = {
        "traces": f"generated: {cars:,} cars, {days:,} days; a {times}th and {times} times the days; seed 7",
        "Spark": "local[*]; label_reads (horizon 7,200 s) to an Arrow table, label_writes to Parquet; "
        "session start apart, a warm-up before",
        "DuckDB": f"counts of points, and of others' points, only; bins of {BIN_S:,} s, {BIN_LAT}°, "
        f"{BIN_LON}°; all cores",
        "driver": "its Python and its Java, in which local mode runs all tasks but Python's; each one's peak "
        "over all jobs and traces",
        _ON_CLUSTER: "of one core and 1 GiB each, on this machine, beside their driver",
    }
    return Measured(_label_figures(pairs, local, on_cluster) | sizes, parameters)


F2: Final = Row(
    name="F2",
    source="the lab",
    paper="None: how long exact labels of all reads take, beside a database that only counts points.",
    required=(
        Required("times DuckDB's time", "at most", 2.5),
        Required("times as long, label_reads, longer trace", "at most", 12),
        Required("GB of the driver at its peak", "below", 4),
        Required("share of runs in which both count the same", "at least", 1),
        Required("positions", "at least", 3_600_000),
        Required("reads", "at least", 48_000),
        Required("positions, longer trace", "at least", 36_000_000),
    ),
    measure=measure_labels,
    minutes=7.5,
    is_speed=True,
)


def _labelled_name(what: str, size: str) -> str:
    """Return the name of a figure with the size or place it is for; without one, the name itself."""
    return f"{what}, {size}" if size else what


def _label_all(
    spark: JsonServer, folders: Mapping[str, Path], say: Say, max_runs: int
) -> dict[str, list[dict[str, Any]]]:
    """Run both jobs on all traces; return the answers by job and trace."""
    answers: dict[str, list[dict[str, Any]]] = {}
    for job in ("label_reads", "label_writes"):
        spark.ask((job, str(folders[_SIZES[0]])))  # warms up
        for size, folder in folders.items():
            name = _labelled_name(job, size)
            runs = 1 if size == _SIZES[-1] else min(3, max_runs)  # the longer trace takes minutes
            answers[name] = []
            for number in range(runs):
                say(f"{name}, {number + 1} of {runs}")
                answers[name].append(spark.ask((job, str(folder))))
    return answers


def _label_figures(
    pairs: Sequence[Sequence[dict[str, Any]]],
    local: Mapping[str, Sequence[dict[str, Any]]],
    on_cluster: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Quantity]:
    """Return the row's figures from the answers of processes, which are in order of the runs.

    `pairs` are our and DuckDB's answers; their first pair warms up and is not timed.
    """
    agree = [float(ours["counted"] == theirs["counted"]) for ours, theirs in pairs]
    ours_s, theirs_s = ([answer["s"] for answer in side] for side in zip(*pairs[1:], strict=True))
    quantities = {
        "times DuckDB's time": Quantity.of(a / b for a, b in zip(ours_s, theirs_s, strict=True)),
        "share of runs in which both count the same": Quantity.of([sum(agree) / len(agree)]),
    }
    last = [answers[-1] for answers in local.values()]
    driver_mb = max(answer["mb"]["driver"] for answer in last)
    quantities["GB of the driver at its peak"] = Quantity.of([driver_mb / 1000])
    for job in ("label_reads", "label_writes"):
        usual_s = Quantity.of(answer["s"] for answer in local[job]).median
        name = _labelled_name(job, _SIZES[-1])
        quantities[f"times as long, {name}"] = Quantity.of(answer["s"] / usual_s for answer in local[name])
    quantities["s, DuckDB"] = Quantity.of(theirs_s)
    for where, by_name in (("", local), (_ON_CLUSTER, on_cluster)):
        for name, answers in by_name.items():
            quantities[_labelled_name(f"s, {name}", where)] = Quantity.of(answer["s"] for answer in answers)
    workers_mb = max(answer["mb"]["workers"] for answer in last)
    quantities["GB of Python's workers at their peaks"] = Quantity.of([workers_mb / 1000])
    return quantities


# Not a function of this module, because importing this module is half of what is measured.
_START: Final = """
import time
at = [time.perf_counter()]
from mudkit import pipeline
at.append(time.perf_counter())
import json, sys
spark = pipeline.session(**json.loads(sys.argv[1]))
at.append(time.perf_counter())
try:
    spark.range(1000).selectExpr("id % 7 AS rest").groupBy("rest").count().toArrow()
    at.append(time.perf_counter())
    for _ in range(10):
        spark.range(1000).count()
        at.append(time.perf_counter())
    for _ in range(2):
        spark.range(1000).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()
        at.append(time.perf_counter())
finally:
    pipeline.stop()
took = [b - a for a, b in zip(at, at[1:])]
names = ("import", "session", "job", "action", "python", "again")
print(json.dumps(dict(zip(names, [*took[:3], sorted(took[3:13])[5], *took[13:]]))))
"""


def measure_starts(say: Say = say_nothing, *, runs: int = 5) -> Measured:
    """Measure row F3, each start in a process of its own; the first one has an empty cache."""
    imports: list[float] = []
    nothing: list[float] = []
    for number in range(runs + 1):
        say(f"import mudkit, {number} of {runs}")
        for took, code in ((imports, "import mudkit"), (nothing, "pass")):
            began_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            took.append(time.perf_counter() - began_s)
    quantities = {
        "s for import mudkit": Quantity.of(imports[1:]),
        "s for import mudkit, of which Python": Quantity.of(nothing[1:]),
    }
    with tempfile.TemporaryDirectory(prefix="mudkit-starts-") as cache:
        environ = {"XDG_CACHE_HOME": cache}
        say("the first session")
        first = json_of(_START, {}, task=_SPARK_TASK, environ=environ)
        kinds: dict[str, dict[str, str]] = {"": {}, ", Spark Connect": {"remote": "local[*]"}}
        for kind, place in kinds.items():
            again = []
            for number in range(runs):
                say(f"session{kind}, {number + 1} of {runs}")
                again.append(json_of(_START, place, task=_SPARK_TASK, environ=environ))
            quantities |= {
                f"s for a session{kind}": Quantity.of(start["session"] for start in again),
                f"s for its imports{kind}": Quantity.of(start["import"] for start in again),
                f"s for the first job{kind}": Quantity.of(start["job"] for start in again),
                f"s for an action{kind}": Quantity.of(start["action"] for start in again),
                f"s for the first job with Python{kind}": Quantity.of(start["python"] for start in again),
                f"s for the second job with Python{kind}": Quantity.of(start["again"] for start in again),
            }
    quantities["s for the first session ever"] = Quantity.of([first["session"]])
    quantities["s for the first job of the first session ever"] = Quantity.of([first["job"]])
    parameters = {
        "import": "whole processes, a warm-up before",
        "sessions": "pipeline.session() alone, in processes of their own; its imports stand beside it",
        "first session ever": "with an empty cache of mudkit's, thus without an archive of Java's classes",
        "an action": "median of 10 counts of 1,000 numbers",
        "runs": runs,
    }
    return Measured(quantities, parameters)


F3: Final = Row(
    name="F3",
    source="the lab",
    paper="None: what a reader waits for at the head of a notebook.",
    required=(
        Required("s for import mudkit", "below", 0.3),
        Required("s for a session", "below", 2.5),
        Required("s for a session, Spark Connect", "below", 4),
    ),
    measure=measure_starts,
    minutes=1.7,
    is_speed=True,
)


ROWS: Final = (F2, F3, F4)
