"""F2 and F3: what `label_reads` takes beside DuckDB, and what it takes to start."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mudkit import trace
from mudkit.errors import EnvironmentProblem
from mudkit.reproduce.row import Figure, Measured, Say, nothing_said
from mudkit.reproduce.spark_modes import answer_of, environment, last_words
from mudkit.trace.schema import epoch_us
from mudkit.units import box_bounds

__all__ = ["Peaks", "measure_labels", "measure_starts", "serve_duckdb", "serve_spark"]

BIN_S, BIN_LAT, BIN_LON = 7200, 0.09, 0.11  # two hours, about 10 km
_MODULE: Final = "mudkit.reproduce.spark_times"
_POLL_S: Final = 0.2
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


# Not a function of this module, whose own imports are half of what there is to measure.
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


class Peaks:
    """The most memory that this process and its descendants had while the body ran.

    Where there is no ``/proc`` it is what they had at moments 0.2 s apart.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._peaks: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Look once more."""
        with self._lock:
            family = {self._root, *self._peaks}
            for pid, parent, name, mb in sorted(_processes()):
                if pid in family or parent in family:
                    family.add(pid)
                    self._peaks[pid] = (name, max(mb, self._peaks.get(pid, ("", 0.0))[1]))

    def mb(self) -> dict[str, float]:
        """Give MB (10⁶ bytes): of the driver, its Python and its largest Java, and of Python's workers."""
        with self._lock:
            peaks = dict(self._peaks)
        java = [mb for pid, (name, mb) in peaks.items() if "java" in name and pid != self._root]
        own = peaks.get(self._root, ("", 0.0))[1]
        rest = sum(mb for _, mb in peaks.values()) - own - sum(java)
        return {"driver": own + max(java, default=0.0), "workers": rest}


def _processes() -> list[tuple[int, int, str, float]]:
    """List all processes: number, parent, name, memory at its peak in MB."""
    if not Path("/proc/self/status").exists():
        command = ["ps", "-axo", "pid=,ppid=,rss=,comm="]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [line.split(None, 3) for line in said.stdout.splitlines()]
        return [(int(pid), int(parent), name, int(kb) * 1024 / 1e6) for pid, parent, kb, name in rows]
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):
            lines = (place / "status").read_text().splitlines()
            said_of = dict(line.split(":", 1) for line in lines if ":" in line)
            mb = int(said_of["VmHWM"].split()[0]) * 1024 / 1e6
            found.append((int(place.name), int(said_of["PPid"]), said_of["Name"].strip(), mb))
    return found


def serve_spark(place: str) -> None:
    """Label the trace folder that each line of the input names; answer each with a line of JSON.

    Parameters
    ----------
    place : str
        Arguments of `mudkit.pipeline.session` as JSON.
    """
    from mudkit import pipeline

    spark = pipeline.session(**json.loads(place))
    try:
        with Peaks(os.getpid()) as peaks:
            for folder in map(str.strip, sys.stdin):
                began_s = time.perf_counter()
                positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
                labels = pipeline.label_reads(positions, reads).toArrow()
                taken_s = time.perf_counter() - began_s
                peaks.look()
                own = pc.and_(pc.is_null(labels["cached_read_id"]), pc.greater(labels["points"], 0))
                _answer(s=taken_s, labels=len(labels), counted=_digest(labels.filter(own)), mb=peaks.mb())
    finally:
        pipeline.stop()


def serve_duckdb() -> None:
    """Count the points of each read of the trace folder that each line names; answer with a line of JSON."""
    import duckdb

    for folder in map(str.strip, sys.stdin):
        table = trace.read_table(folder, "reads")
        box = box_bounds(table["lat"].to_numpy(), table["lon"].to_numpy(), table["box_km"].to_numpy())
        asked = pa.table(
            {
                "read_id": table["read_id"], "t": epoch_us(table["ts"]) // 1_000_000,
                "window_s": table["window_s"], "south": box.south, "west": box.west, "north": box.north,
                "east": box.east,
            }
        )  # fmt: skip
        files = str(Path(folder) / "positions" / "*" / "*.parquet").replace("'", "''")
        query = _QUERY.format(bin_s=BIN_S, bin_lat=BIN_LAT, bin_lon=BIN_LON, files=files)
        with duckdb.connect() as database:
            database.execute("SET enable_progress_bar = false")  # it would come between the answers
            database.register("asked", asked)
            began_s = time.perf_counter()
            counts = database.sql(query).to_arrow_table()
            taken_s = time.perf_counter() - began_s
        _answer(s=taken_s, counted=_digest(counts))


def _answer(**found: Any) -> None:
    print(json.dumps(found), flush=True)  # noqa: T201 - this is how the process answers


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
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=environment(),
        )  # fmt: skip

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

    def ask(self, folder: Path) -> dict[str, Any]:
        """Let it work on a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{folder}\n")
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


def measure_labels(
    say: Say = nothing_said,
    *,
    cars: int = 600,
    days: int = 30,
    times: int = 10,
    runs: int = 5,
    larger_runs: int = 2,
) -> Measured:
    """Measure row F2: Spark and DuckDB in turn on the same trace, then Spark on a longer one.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    cars, days : int
        Of the trace.
    times : int
        How many times as many days the longer one has.
    runs, larger_runs : int
        How often each is measured, after a warm-up on the smaller one.

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
    with tempfile.TemporaryDirectory(prefix="mudkit-labels-") as place:
        sizes = []
        for name, many in (("small", days), ("large", days * times)):
            say(f"generating {cars:,} cars, {many:,} days")
            sizes.append(trace.generate(cars, many, path=f"{place}/{name}")["rows"])
        small, large = Path(place) / "small", Path(place) / "large"
        with _Side("serve_spark", "{}") as spark, _Side("serve_duckdb") as duckdb:
            ours, theirs = [], []
            for number in range(runs + 1):
                say(f"{sizes[0]['positions']:,} positions, {number} of {runs}")
                ours.append(spark.ask(small))
                theirs.append(duckdb.ask(small))
            larger = []
            for number in range(larger_runs):
                say(f"{sizes[1]['positions']:,} positions, {number + 1} of {larger_runs}")
                larger.append(spark.ask(large))
    traces = f"{cars:,} cars, {days:,} days; {times} times the days"
    return _labels_measured(ours, theirs, larger, sizes, traces)


def _labels_measured(
    ours: Sequence[dict[str, Any]],
    theirs: Sequence[dict[str, Any]],
    larger: Sequence[dict[str, Any]],
    sizes: Sequence[dict[str, int]],
    traces: str,
) -> Measured:
    agree = [float(a["counted"] == b["counted"]) for a, b in zip(ours, theirs, strict=True)]
    ours_s, theirs_s = ([each["s"] for each in side[1:]] for side in (ours, theirs))  # the first warms up
    usual_s = Figure.of(ours_s).median
    figures = {
        "times DuckDB's time": Figure.of(a / b for a, b in zip(ours_s, theirs_s, strict=True)),
        "times as long, longer trace": Figure.of(each["s"] / usual_s for each in larger),
        "GB of the driver at its peak": Figure.of([larger[-1]["mb"]["driver"] / 1000]),
        "share of runs in which both count the same": Figure.of([sum(agree) / len(agree)]),
        "positions": Figure.of([sizes[0]["positions"]]),
        "reads": Figure.of([sizes[0]["reads"]]),
        "positions, longer trace": Figure.of([sizes[1]["positions"]]),
        "reads, longer trace": Figure.of([sizes[1]["reads"]]),
        "s, Spark": Figure.of(ours_s),
        "s, DuckDB": Figure.of(theirs_s),
        "s, Spark, longer trace": Figure.of(each["s"] for each in larger),
        "labels": Figure.of([ours[-1]["labels"]]),
        "labels, longer trace": Figure.of([larger[-1]["labels"]]),
        "GB of the driver, shorter trace": Figure.of([ours[-1]["mb"]["driver"] / 1000]),
        "GB of Python's workers at their peaks": Figure.of([larger[-1]["mb"]["workers"] / 1000]),
    }
    parameters = {
        "traces": f"generated: {traces}; seed 7",
        "Spark": "local[*], all labels (horizon 7,200 s) to an Arrow table; session start apart",
        "DuckDB": f"counts of points only; bins of {BIN_S:,} s, {BIN_LAT}°, {BIN_LON}°; all cores",
        "driver": "its Python and its Java, in which local mode runs all tasks but Python's; each one's peak",
    }
    return Measured(figures, parameters)


def measure_starts(say: Say = nothing_said, *, runs: int = 5) -> Measured:
    """Measure row F3: each time in a process of its own, with a cache of its own for the first start.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    runs : int
        How often each is measured.
    """
    imports: list[float] = []
    nothing: list[float] = []
    for number in range(runs + 1):
        say(f"import mudkit, {number} of {runs}")
        for took, code in ((imports, "import mudkit"), (nothing, "pass")):
            began_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            took.append(time.perf_counter() - began_s)
    figures = {
        "s for import mudkit": Figure.of(imports[1:]),
        "s for import mudkit, of which Python": Figure.of(nothing[1:]),
    }
    with tempfile.TemporaryDirectory(prefix="mudkit-starts-") as cache:
        environ = {"XDG_CACHE_HOME": cache}
        say("the first session")
        first = answer_of(_START, "{}", environ=environ)
        kinds: dict[str, dict[str, str]] = {"": {}, ", Spark Connect": {"remote": "local[*]"}}
        for kind, place in kinds.items():
            again = []
            for number in range(runs):
                say(f"session{kind}, {number + 1} of {runs}")
                again.append(answer_of(_START, json.dumps(place), environ=environ))
            figures |= {
                f"s for a session{kind}": Figure.of(each["session"] for each in again),
                f"s for its imports{kind}": Figure.of(each["import"] for each in again),
                f"s for the first job{kind}": Figure.of(each["job"] for each in again),
                f"s for an action{kind}": Figure.of(each["action"] for each in again),
                f"s for the first job with Python{kind}": Figure.of(each["python"] for each in again),
                f"s for the second job with Python{kind}": Figure.of(each["again"] for each in again),
            }
    figures["s for the first session ever"] = Figure.of([first["session"]])
    figures["s for the first job of the first session ever"] = Figure.of([first["job"]])
    parameters = {
        "import": "whole processes, a warm-up before",
        "sessions": "pipeline.session() alone, in processes of their own; its imports stand beside it",
        "first session ever": "with an empty cache of mudkit's, thus without an archive of Java's classes",
        "an action": "median of 10 counts of 1,000 numbers", "runs": runs,
    }  # fmt: skip
    return Measured(figures, parameters)
