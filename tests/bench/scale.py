"""Traces larger than memory, step by step: `python tests/bench/run.py scale`, or `scale.py POSITIONS …`.

A generated trace is written as one CSV, ingested, labelled, learnt from, replayed and reported in the default session.
Each step has its seconds, and the peak memory of the driver (Python and Java) and of Python's workers up to then; of
two sizes, how the seconds grow, and what follows on paper for a cluster. DuckDB reads the CSV, with gaps and speeds, and
counts the points of the labels.
3.7 M positions take minutes, 37 M an hour; 371 M, named by hand, hours and 50 GB of disk. Ctrl-C stops it, and the
folder is removed.

With `--folder DIR` the traces and the figures stay there, and the next call with the same folder begins with the first
step that was not finished. Peaks of memory are those since the last start. Remove the folder by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds

import mudkit
from mudkit import learning, trace
from mudkit.files import sizes_below, staged_file
from mudkit.reproduce.harness import JsonServer, PeakMemory, Task, serve
from mudkit.reproduce.lab_spark import serve_duckdb

SIZES = (3_700_000, 37_000_000)
POSITIONS_OF_A_DAY = 123_000
"""Positions of 600 generated cars in a day, about."""

CARS = 600
MAX_DRIVER_GB = 2.0
ESTIMATED_POSITIONS, ESTIMATED_EXECUTORS = 10**10, 100
"""Positions and executors of the estimate on paper."""
MAX_GROWTH = {10: 12.0, 100: 15.0}
"""Times as long as a tenth, or a hundredth, of the positions may take."""

_TASK = Task("works on the trace", "4 GB of memory, room on the disk, and a Java", "run `mudkit doctor`")
_GAPS = """
    SELECT count(*) FILTER (gap > 600), max(km / gap) FROM (
        SELECT t - lag(t) OVER w AS gap,
               111.2 * sqrt((lat - lag(lat) OVER w) ** 2
                            + (cos(radians(lat)) * (lon - lag(lon) OVER w)) ** 2) AS km
        FROM (SELECT device, ts AS t, lat, lon FROM read_csv('{file}')) WINDOW w AS (PARTITION BY device ORDER BY t)
    ) WHERE gap > 0
"""


def measure_rows(sizes: tuple[int, ...] = SIZES, folder: Path | None = None) -> Iterator[dict[str, object]]:
    """Measure all steps at each size, and how they grow from the first one.

    What is in ``folder`` is not measured again; None: a temporary folder, which is removed.
    """
    here = str(Path(__file__).parent)
    of_servers = filter(None, [here, os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(of_servers)
    first: dict[str, float] = {}
    seconds_of: dict[int, dict[str, float]] = {}
    for positions in sizes:
        at = None if folder is None else folder / str(positions)
        for step, seconds, mb, duckdb_s in _measure_size(positions, at):
            seconds_of.setdefault(positions, {})[step] = seconds
            begin_s = first.setdefault(step, seconds)
            times = positions / sizes[0]
            allowed = next((most for least, most in MAX_GROWTH.items() if times <= least), times)
            growth = f", {seconds / begin_s:.1f} times; asked: {allowed:g}" if positions != sizes[0] else ""
            peer_s = begin_s if duckdb_s is None else duckdb_s
            yield {
                "what": f"{step}, {positions / 1e6:.1f} M{growth}; driver {mb['driver'] / 1e3:.1f} GB "
                f"(asked: {MAX_DRIVER_GB:g}), workers {mb['workers'] / 1e3:.1f} GB",
                "ours_s": seconds,
                "peer": f"{sizes[0] / 1e6:.1f} M positions" if duckdb_s is None else "DuckDB",
                "peer_s": peer_s,
                "ratio": seconds / peer_s,
            }

    yield from estimate_rows(seconds_of)


def estimate_rows(seconds_of: dict[int, dict[str, float]]) -> Iterator[dict[str, object]]:
    """Estimate each step for many positions on a cluster, by its growth between the two largest sizes.

    An executor has as many cores as the session that was measured. Not in it: devices or cells with very many
    rows, which take one task, and what a store of files needs. A single size yields nothing.
    """
    if len(seconds_of) < 2:
        return
    (fewer, small), (more, large) = sorted(seconds_of.items())[-2:]
    each_s = {step: (large[step] - small[step]) / (more - fewer) for step in large}
    hours = {
        step: max(s, 0.0) * ESTIMATED_POSITIONS / ESTIMATED_EXECUTORS / 3600 for step, s in each_s.items()
    }
    bound = max(hours, key=lambda step: hours[step])
    for step, step_hours in hours.items():
        yield {
            "what": f"on paper, {step}: {ESTIMATED_POSITIONS:.0e} positions on {ESTIMATED_EXECUTORS} executors, "
            f"{step_hours:.2g} h at {1e6 * each_s[step]:.2g} s a million"
            + (", the bound" if step == bound else ""),
            "ours_s": 3600 * step_hours,
            "peer": "all steps",
            "peer_s": 3600 * sum(hours.values()),
            "ratio": step_hours / sum(hours.values()),
        }


def _measure_size(
    positions: int, kept: Path | None = None
) -> Iterator[tuple[str, float, dict[str, float], float | None]]:
    """Yield the seconds and the memory of each step, and the seconds of DuckDB where it does such a step."""
    folder = mudkit.work_folder() if kept is None else kept
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = Figures(folder / "figures.json")
        file = folder / "positions.csv"
        if "ingest" not in figures.noted and not file.exists():
            write_csv(folder, max(round(positions / POSITIONS_OF_A_DAY), 1))
        with ExitStack() as stack:
            ours: JsonServer | None = None
            for step in STEPS:
                if step not in figures.noted:
                    print(f"scale: {step}, {positions:,} positions", file=sys.stderr, flush=True)
                    duckdb_s = _ask_duckdb(step, folder)
                    if ours is None:
                        ours = stack.enter_context(JsonServer(serve_steps, str(file), task=_TASK))
                    if step in OUTPUTS:
                        shutil.rmtree(folder / OUTPUTS[step], ignore_errors=True)  # of a run that was stopped
                    done = ours.ask(step)
                    disk_gb = sum(sizes_below(folder).values()) / 1e9
                    figures.note(step, {**done, "duckdb_s": duckdb_s, "disk_gb": disk_gb})
                if step in NO_LONGER_NEEDED:  # the disk is for what comes
                    _remove(folder / NO_LONGER_NEEDED[step])
                figure = figures.noted[step]
                yield step, figure["s"], figure["mb"], figure["duckdb_s"]
    finally:
        if kept is None:
            shutil.rmtree(folder)


class Figures:
    """Figures of the steps that are finished, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.noted: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def note(self, step: str, figure: dict[str, Any]) -> None:
        """Add the figures of a step."""
        self.noted[step] = figure
        with staged_file(self._file) as staging:
            staging.write_text(json.dumps(self.noted, indent=2) + "\n")


def _ask_duckdb(step: str, folder: Path) -> float | None:
    """Return the seconds that DuckDB takes for a step; None for one that it does not do."""
    requests: dict[str, tuple[Callable[[], None], Any]] = {
        "ingest": (serve_gaps, str(folder / "positions.csv")),
        "labels of reads": (serve_duckdb, ("label_reads", str(folder / "trace"))),
    }
    if step not in requests:
        return None
    serve_answers, request = requests[step]
    with JsonServer(serve_answers, task=_TASK) as duckdb:
        seconds: float = duckdb.ask(request)["s"]
    return seconds


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_csv(folder: Path, days: int) -> Path:
    """Write a generated trace as one CSV, a date at a time, in the order of time."""
    generated, file = folder / "generated", folder / "positions.csv"
    shutil.rmtree(generated, ignore_errors=True)  # of a run that was stopped
    trace.generate(CARS, days, path=generated, progress=sys.stderr.isatty())
    options = pa_csv.WriteOptions(quoting_style="none")
    dates = sorted((generated / "positions").glob("date=*"))
    schema = _plain(ds.dataset(dates[0]).head(1)).schema
    with staged_file(file) as staging, pa_csv.CSVWriter(staging, schema, write_options=options) as writer:
        for date in dates:
            writer.write(_plain(ds.dataset(date).to_table()))
    shutil.rmtree(generated)
    return file


def _plain(positions: pa.Table) -> pa.Table:
    seconds = pc.divide(positions["ts"].cast(pa.int64()), 1_000_000)
    return pa.table(
        {"device": positions["device"], "ts": seconds, "lat": positions["lat"], "lon": positions["lon"]}
    )


def serve_gaps() -> None:
    """Serve a request, a CSV: DuckDB reads it, and computes gaps and speeds."""
    import duckdb

    def answer(file: str) -> dict[str, Any]:
        with duckdb.connect() as database:
            database.execute("SET enable_progress_bar = false")
            began_s = time.perf_counter()
            database.sql(_GAPS.format(file=file.replace("'", "''"))).fetchall()
            return {"s": time.perf_counter() - began_s}

    serve(answer)


def serve_steps(file: str) -> None:
    """Serve the names of steps in a default session: the seconds of each, and the peak memory so far."""
    from mudkit import pipeline

    spark, folder = pipeline.session(), Path(file).parent

    def answer(step: str) -> dict[str, Any]:
        began_s = time.perf_counter()
        STEPS[step](spark, folder)
        duration_s = time.perf_counter() - began_s
        peaks.sample()
        return {"s": duration_s, "mb": peaks.mb()}

    try:
        with PeakMemory(os.getpid()) as peaks:
            serve(answer)
    finally:
        pipeline.stop()


def _ingest(spark: Any, folder: Path) -> None:
    from mudkit import pipeline

    pipeline.ingest(spark, folder / "positions.csv", folder / "trace")


def _label(job: str) -> Callable[[Any, Path], None]:
    def label(spark: Any, folder: Path) -> None:
        from mudkit import pipeline

        pipeline.run_job(spark, job, folder / "trace", folder / job)

    return label


def _tables(spark: Any, folder: Path) -> tuple[Any, Any]:
    from mudkit import pipeline

    return pipeline.read(spark, folder / "trace", "positions"), pipeline.read(
        spark, folder / "trace", "reads"
    )


def _evaluate_reads(spark: Any, folder: Path, *policies: Any) -> None:
    _, reads = _tables(spark, folder)
    labels = spark.read.parquet(str(folder / "label_reads"))
    compared = [learning.FixedRule(), *policies]
    learning.evaluate_reads(labels, reads, compared, stale="completeness", completeness=0.9)


def _evaluate_writes(spark: Any, folder: Path) -> None:
    positions, reads = _tables(spark, folder)
    first_reads = spark.read.parquet(str(folder / "label_writes"))
    learning.evaluate_writes(first_reads, positions, reads, [learning.Batch(10), learning.BatchBound()])


def _report(spark: Any, folder: Path) -> None:
    from mudkit.report import run_report

    run_report("trace_profile", {"trace": str(folder / "trace")}, build=folder / "reports", progress=False)


def _report_joined(spark: Any, folder: Path) -> None:
    from mudkit.report import run_report

    given = {"trace": str(folder / "trace"), "spark": True}
    run_report("propagation", given, build=folder / "reports", progress=False)


STEPS: dict[str, Callable[[Any, Path], None]] = {
    "ingest": _ingest,
    "labels of reads": _label("label_reads"),
    "labels of writes": _label("label_writes"),
    "learning": lambda spark, folder: _evaluate_reads(spark, folder, learning.Tree("freshness")),
    "evaluation of reads": lambda spark, folder: _evaluate_reads(
        spark, folder, learning.Always(), learning.Bound()
    ),
    "evaluation of writes": _evaluate_writes,
    "report": _report,
    "report on joined messages": _report_joined,
}

OUTPUTS = {"ingest": "trace", "labels of reads": "label_reads", "labels of writes": "label_writes"}
"""Folders that steps write for later ones."""
NO_LONGER_NEEDED = {"ingest": "positions.csv", "evaluation of writes": "label_writes"}
"""Files and folders that are removed after a step: the disk is for what comes."""

if __name__ == "__main__":
    import scale  # servers import their functions by this name

    parser = argparse.ArgumentParser(description="Measure the pipeline at some sizes.")
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="numbers of positions")
    parser.add_argument("--folder", type=Path, help="keep traces and figures, and go on from there")
    given = parser.parse_args()
    for row in scale.measure_rows(tuple(given.sizes), given.folder and given.folder.absolute()):
        print(json.dumps(row), flush=True)
