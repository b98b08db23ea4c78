"""F4: the same jobs give the same rows in local mode, over Spark Connect and on a standalone cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mudkit import trace
from mudkit.errors import EnvironmentProblem
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.trace.schema import epoch_us

__all__ = [
    "CLUSTER",
    "CONNECT",
    "LOCAL",
    "Place",
    "answer_of",
    "differing",
    "differing_rows",
    "environment",
    "last_words",
    "measure",
    "results",
    "tables",
    "write_results",
    "write_source",
]

LOCAL: Final = "local[2], 2 shuffle partitions"
CONNECT: Final = "Spark Connect"
CLUSTER: Final = "standalone cluster"
_REFERENCE: Final = "local[1], 5 shuffle partitions"
_CODE: Final = "import sys; from mudkit.reproduce.lab import spark_modes as s; s.write_results(*sys.argv[1:])"
_UNSET: Final = ("SPARK_REMOTE", "MUDKIT_SPARK_MASTER")
_MEAN: Final = "mean_speed_mps"
_MEAN_TOLERANCE: Final = 1e-12  # of a sum of floats, whose order is nobody's

Place = Mapping[str, Any]
"""Arguments of `mudkit.pipeline.session`."""


def _place(master: str | None = None, remote: str | None = None, partitions: int | None = None) -> Place:
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
    for number, (device, lat, lon) in enumerate(zip(*(each.to_pylist() for each in columns), strict=True)):
        lines.setdefault(device, []).append(f"{lat:.5f} {lon:.5f} {number // 40 % 2} {seconds[number]}")
    for device, rows in lines.items():
        (folder / "cabs" / f"new_{device}.txt").write_text("\n".join([*rows, "no position"]) + "\n")


def write_results(source: str, out: str, place: str) -> None:
    """Run the jobs in a session, write each one's rows below ``out``, and print where tasks ran as JSON.

    Parameters
    ----------
    source : str
        The folder that `write_source` wrote.
    out : str
        The folder in which the results are written.
    place : str
        The arguments of `mudkit.pipeline.session` as JSON.
    """
    from mudkit import pipeline

    spark = pipeline.session(**json.loads(place))
    try:
        pipeline.ingest(spark, Path(source) / "cabs", Path(out) / "trace")
        for name, frame in _jobs(spark, source, out):
            pipeline.write(frame, Path(out) / name)
        _spread(spark, Path(out) / "spread-seeds")
        print(json.dumps(_task_places(spark)))  # noqa: T201 - this is how the process answers
    finally:
        pipeline.stop()


def _jobs(spark: Any, source: str, out: str) -> Iterator[tuple[str, Any]]:
    from mudkit import pipeline

    for name, folder in (("ingested", Path(out) / "trace"), ("generated", Path(source) / "generated")):
        positions, reads = (pipeline.read(spark, folder, table) for table in ("positions", "reads"))
        yield f"cells-{name}", pipeline.cells(positions, reads, zooms=(12, 15))
        yield f"label_reads-{name}", pipeline.label_reads(positions, reads)
    yield "label_writes-generated", pipeline.label_writes(positions, reads)
    yield "propagation-generated", pipeline.propagation(positions)


def _spread(spark: Any, folder: Path) -> None:
    from mudkit import pipeline

    def drawn(seed: int) -> dict[str, float]:
        random = np.random.default_rng(seed)
        return {"seed": seed, "drawn": float(random.normal())}

    rows = list(pipeline.spread(spark)(drawn, range(20)))
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


def _task_places(spark: Any) -> dict[str, list[str]]:
    """Tell the folders that tasks ran in, and where Python found mudkit there."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time as clock
        from pathlib import Path as AnyPath

        import mudkit.pipeline

        for batch in batches:
            clock.sleep(0.2)  # or one executor does all before the other has begun
            here = [str(AnyPath.cwd()), str(AnyPath(mudkit.pipeline.__file__).resolve())]
            yield pa.RecordBatch.from_arrays(
                [pa.array([text] * len(batch)) for text in here], names=["folder", "mudkit"]
            )

    rows = spark.range(0, 8, 1, 8).mapInArrow(look, "folder STRING, mudkit STRING").toArrow()
    return {name: sorted(set(rows[name].to_pylist())) for name in ("folder", "mudkit")}


def environment(**changes: str) -> dict[str, str]:
    """Give this process's environment without what says where Spark is to run."""
    return {name: value for name, value in os.environ.items() if name not in _UNSET} | changes


def answer_of(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Any:
    """Run Python code in a process of its own and return what it prints last, as JSON.

    Raises
    ------
    EnvironmentProblem
        It ended before it was done.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**(environ or {})),
    )
    if done.returncode or not done.stdout.strip():
        raise EnvironmentProblem(
            "The process that runs Spark ended before it was done.",
            found=last_words(done.stderr) or f"exit status {done.returncode}",
            expected="room for Spark: 3 GB of memory, and a Java",
            remedy="run `mudkit doctor`, and measure again",
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def last_words(said: str) -> str:
    """Find what a traceback ends with: its last line that is not indented."""
    return next((line for line in reversed(said.splitlines()) if line[:1].strip()), "")


def results(
    source: Path, out: Path, place: Place, environ: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Run the jobs in a process of its own; see `write_results`.

    Returns
    -------
    dict
        ``folder``: the folders that tasks ran in; ``mudkit``: where Python found mudkit there.
    """
    out.mkdir(parents=True)
    where: dict[str, list[str]] = answer_of(_CODE, str(source), str(out), json.dumps(place), environ=environ)
    return where


def tables(out: Path) -> dict[str, pa.Table]:
    """Read what a run of the jobs wrote, the tables of the ingested trace included."""
    folders = [*out.glob("*-*"), *(out / "trace" / name for name in ("positions", "reads", "rejected"))]
    return {
        folder.name: ds.dataset(folder, format="parquet", partitioning="hive").to_table()
        for folder in sorted(folders)
        if any(folder.rglob("*.parquet"))
    }


def differing_rows(one: Path, other: Path) -> int:
    """Count the rows that one of two runs has and the other has not, order apart.

    A mean of floats may differ by one part in 10^12, since the order of a sum is not fixed.
    """
    a, b = tables(one), tables(other)
    nothing = pa.table({})
    return sum(differing(a.get(name, nothing), b.get(name, nothing)) for name in sorted({*a, *b}))


def differing(one: pa.Table, other: pa.Table) -> int:
    """Count the rows that one of two tables has and the other has not; see `differing_rows`."""
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


def measure(say: Say = say_nothing, *, cars: int = 60, days: int = 5, workers: int = 2) -> Measured:
    """Measure row F4: each mode in a process of its own.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    cars, days : int
        The number of cars and of days of the trace.
    workers : int
        The number of workers of the cluster, which is started for this and ended again.
    """
    from mudkit.pipeline.launch.cluster import local_cluster  # loads Spark

    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="mudkit-modes-") as folder, local_cluster(workers) as cluster:
        write_source(Path(folder) / "source", cars, days)
        places = {
            _REFERENCE: _place("local[1]", partitions=5),
            LOCAL: _place("local[2]", partitions=2),
            CONNECT: _place(remote="local[2]"),
            CLUSTER: _place(cluster.url),
        }
        where = {}
        for number, (name, place) in enumerate(places.items()):
            say(name)
            began_s = time.perf_counter()
            where[name] = results(Path(folder) / "source", Path(folder) / str(number), place)
            figures[f"s, {name}"] = Figure.of([time.perf_counter() - began_s])
            if number:
                count = differing_rows(Path(folder) / "0", Path(folder) / str(number))
                figures[f"rows that differ, {name}"] = Figure.of([count])
        written = tables(Path(folder) / "0")
    figures["rows compared"] = Figure.of([sum(map(len, written.values()))])
    figures["executors that took part"] = Figure.of([len(where[CLUSTER]["folder"])])
    parameters = {
        "cars": cars,
        "days": days,
        "seed": 7,
        "workers": f"{workers} of one core and 1 GiB",
        "tables": {name: len(table) for name, table in written.items()},
        "compared with": _REFERENCE,
        "means": f"equal to one part in {1 / _MEAN_TOLERANCE:g}; all else exactly",
    }
    return Measured(figures, parameters)
