"""The same jobs in every kind of session, and clusters that are not there or lose a worker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cluster import bare_python, lives

from mudkit import pipeline
from mudkit.reproduce.cluster import local_cluster, members
from mudkit.reproduce.harness import environment
from mudkit.reproduce.lab_spark import differing, differing_rows, read_tables, run_jobs, write_source

pytestmark = pytest.mark.spark
PATIENCE_S = 600  # a guard: seconds on a quiet machine


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_source(folder, cars=8, days=1)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def local(source, tmp_path_factory) -> Path:
    """What one core gives."""
    out = tmp_path_factory.mktemp("local") / "out"
    place = {"master": "local[1]", "config": {"spark.sql.shuffle.partitions": 3}}
    where = run_jobs(source, out, place)
    assert where["mudkit"] == [str(Path(pipeline.__file__).resolve())]
    return out


@pytest.mark.soak
def test_there_is_something_to_compare(local):
    rows = {name: len(table) for name, table in read_tables(local).items()}
    assert min(rows.values()) > 0
    assert {"positions", "reads", "rejected", "cells-generated", "label_reads-ingested"} <= set(rows)
    assert rows["label_reads-generated"] > 1.2 * rows["reads"]  # some answers are cached


@pytest.mark.soak
@pytest.mark.parametrize(
    "place",
    [
        {"master": "local[2]", "config": {"spark.sql.shuffle.partitions": 7}},
        {"remote": "local[2]"},
    ],
    ids=["two cores", "connect"],
)
def test_the_same_rows_on_this_machine(source, local, tmp_path, place):
    where = run_jobs(source, tmp_path / "out", place)
    assert differing_rows(local, tmp_path / "out") == 0
    assert where["mudkit"][0].endswith("mudkit.zip/mudkit/pipeline/__init__.py") == ("remote" in place)


@pytest.mark.soak
def test_the_same_rows_on_a_cluster_whose_executors_have_no_mudkit(source, local, cluster, python, tmp_path):
    said = subprocess.run([python, "-c", "import mudkit"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'mudkit'" in said.stderr
    place = {"master": cluster.url, "config": {"spark.sql.shuffle.partitions": 5}}
    where = run_jobs(source, tmp_path / "out", place, {"PYSPARK_PYTHON": str(python)})
    assert differing_rows(local, tmp_path / "out") == 0
    assert {Path(folder).parent.parent for folder in where["folder"]} == {
        cluster.folder / "worker-0",
        cluster.folder / "worker-1",
    }
    assert all(file.endswith("mudkit.zip/mudkit/pipeline/__init__.py") for file in where["mudkit"])
    assert all(file.startswith(str(cluster.folder)) for file in where["mudkit"]), where


@pytest.mark.soak
def test_one_row_less_is_noticed(source, local, tmp_path):
    """The comparison itself: a copy of a result without one of its files' rows differs."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(local), str(copy)], check=True)
    assert differing_rows(local, copy) == 0
    file = next(
        file for file in (copy / "cells-generated").glob("*.parquet") if pq.read_metadata(file).num_rows
    )
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    assert differing_rows(local, copy) == 1
    pq.write_table(table.set_column(6, "positions", pa.array([0] * len(table), pa.int64())), file)
    assert table.column_names[6] == "positions"
    assert differing_rows(local, copy) == 2 * len(table)


def run(
    code: str, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=environment(**variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_cluster_that_is_not_there_is_told_before_java_starts():
    done = run(
        """
        import json
        from pyspark import SparkContext
        from mudkit import pipeline
        from mudkit.errors import EnvironmentProblem
        try:
            pipeline.session()
        except EnvironmentProblem as error:
            print(json.dumps([error.where, error.found, error.remedy, SparkContext._gateway is None]))
        """,
        MUDKIT_SPARK_MASTER="spark://127.0.0.1:1",
    )
    assert done.returncode == 0, done.stderr
    where, result, remedy, nothing_started = json.loads(done.stdout)
    assert where == "MUDKIT_SPARK_MASTER"
    assert result.startswith("spark://127.0.0.1:1: 127.0.0.1:1: ")
    assert "refused" in result
    assert "leave it out" in remedy
    assert nothing_started


LOSES_A_WORKER = """
    import sys, time
    from pathlib import Path
    from mudkit import pipeline

    master, source, marks, out = sys.argv[1:]

    def held_up(batches):
        # Half of the tasks pass, so that the worker that dies has something that is needed afterwards.
        from pyspark import TaskContext
        number = TaskContext.get().partitionId()
        if number >= 4:
            (Path(marks) / f"{number}.part").write_text(str(Path.cwd()))
            (Path(marks) / f"{number}.part").rename(Path(marks) / f"{number}.waits")
            past = time.monotonic() + 600
            while not (Path(marks) / "go").exists() and time.monotonic() < past:
                time.sleep(0.05)
        yield from batches

    spark = pipeline.session(master)
    positions, reads = (pipeline.read(spark, source + "/generated", name) for name in ("positions", "reads"))
    positions = positions.repartition(8).mapInArrow(held_up, positions.schema)
    pipeline.write(pipeline.label_reads(positions, reads), out)
    (Path(marks) / "ready").touch()
    sys.stdin.read()
"""


@pytest.mark.soak
def test_a_worker_that_dies_in_the_middle_costs_time_and_nothing_else(source, local, python, tmp_path):
    """And of a cluster that ends while a session holds an executor of it nothing is left."""
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    with local_cluster(2) as cluster:
        command = [sys.executable, "-c", textwrap.dedent(LOSES_A_WORKER)]
        with (
            (tmp_path / "said").open("w+") as said,
            subprocess.Popen(
                [*command, cluster.url, str(source), str(marks), str(out / "label_reads-generated")],
                env=environment(PYSPARK_PYTHON=str(python)),
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
            ) as process,
        ):
            try:
                past = time.monotonic() + PATIENCE_S
                while len(waiting := list(marks.glob("*.waits"))) < 2 and process.poll() is None:
                    assert time.monotonic() < past, "no two tasks at a time"
                    time.sleep(0.05)
                at = {Path(mark.read_text()).relative_to(cluster.folder).parts[0] for mark in waiting}
                assert at == {"worker-0", "worker-1"}, (tmp_path / "said").read_text()
                cluster.kill_worker(1)
                (marks / "go").touch()
                past = time.monotonic() + PATIENCE_S
                while not (marks / "ready").exists() and process.poll() is None and time.monotonic() < past:
                    time.sleep(0.05)
                assert (marks / "ready").exists(), (tmp_path / "said").read_text()
                pids = [pid for each in (cluster.master, cluster.workers[0]) for pid in members(each)]
            finally:
                process.kill()
        assert len(pids) >= 4  # a master, a worker, its executor, that one's Python
        assert cluster.folder.is_dir()
    assert not cluster.folder.exists()
    assert not [pid for pid in pids if lives(pid)]
    name = "label_reads-generated"
    expected = read_tables(local)[name]
    assert len(expected) > 0
    assert differing(read_tables(out)[name], expected) == 0


@pytest.mark.soak
def test_a_cluster_ends_with_a_python_that_is_killed():
    code = """
        import sys
        from mudkit.reproduce.cluster import local_cluster
        with local_cluster(1) as cluster:
            print(cluster.folder, cluster.master.pid, cluster.workers[0].pid, flush=True)
            sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        folder, *pids = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        past = time.monotonic() + PATIENCE_S
        while (any(lives(int(pid)) for pid in pids) or Path(folder).exists()) and time.monotonic() < past:
            time.sleep(0.05)
    assert not [pid for pid in pids if lives(int(pid))]
    assert not Path(folder).exists()


OWN_SESSION = """
    import json, sys
    root, master, remote, folder = sys.argv[1:]
    sys.path.insert(0, root)  # of this Python, and of no executor's
    from pyspark.sql import SparkSession
    from mudkit import pipeline
    from mudkit.pipeline import executors
    from mudkit.pipeline.launch.java import find_java, launch_home
    from mudkit.pipeline.launch.jvm import environment

    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder.master(master)
    sizes = {"spark.executor.memory": "700m", "spark.cores.max": "1", "spark.ui.enabled": "false"}
    sizes["spark.sql.shuffle.partitions"] = "2"
    for key, value in sizes.items():
        builder = builder.config(key, value)
    with environment({"JAVA_HOME": str(launch_home(find_java()))}):
        mine = builder.getOrCreate()
    sent, write = [], executors.write_package
    executors.write_package = lambda folder: sent.append(write(folder)) or sent[-1]
    out = folder + "/out"
    report = pipeline.ingest(mine, folder + "/raw.csv", out)
    positions, reads = (pipeline.read(mine, out, name) for name in ("positions", "reads"))
    labels = pipeline.label_reads(positions, reads, horizon_s=7200).count()
    first_reads = pipeline.label_writes(positions, reads).count()
    found = list(pipeline.spread(mine)(abs, [-1, -2]))
    print(json.dumps([report.kept, labels > 0, first_reads, found, len(sent)]))
    mine.stop()
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["cluster", "connect", "has mudkit"])
def test_a_session_that_somebody_else_started_is_sent_mudkit_once_if_it_has_none(
    cluster, python, tmp_path, kind
):
    rows = [f"{cab},{1_211_100_000 + 60 * i},37.{i:03d},-122.4,{i % 2}" for cab in "ab" for i in range(20)]
    (tmp_path / "raw.csv").write_text("cab,t,lat,lon,occ\n" + "\n".join(rows) + "\n")
    master = {"cluster": cluster.url, "connect": "", "has mudkit": "local[1]"}[kind]
    program = sys.executable if kind == "has mudkit" else str(python)
    remote = "local[1]" if kind == "connect" else ""
    root = str(Path(pipeline.__file__).parents[2])
    seen = {"PYSPARK_PYTHON": program, "PYTHONPATH": root if kind == "has mudkit" else ""}
    done = run(OWN_SESSION, root, master, remote, str(tmp_path), cwd=tmp_path, **seen)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [40, True, 40, [1, 2], kind != "has mudkit"]
