"""Jobs in all kinds of sessions, missing clusters, and lost workers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from spark_cluster import create_bare_python, is_running
from webhdfs_server import webhdfs_server

from mudkit import pipeline, trace
from mudkit.reproduce.cluster import local_cluster, members
from mudkit.reproduce.harness import environment
from mudkit.reproduce.lab_spark import (
    count_differing,
    count_differing_rows,
    read_tables,
    run_jobs,
    write_source,
)

pytestmark = pytest.mark.spark
TIMEOUT_S = 600  # takes seconds on an idle machine


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_source(folder, cars=8, days=1)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return create_bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def local(source, tmp_path_factory) -> Path:
    """Return the output of the jobs on one core."""
    out = tmp_path_factory.mktemp("local") / "out"
    session_options = {"master": "local[1]", "config": {"spark.sql.shuffle.partitions": 3}}
    locations = run_jobs(source, out, session_options)
    assert locations["mudkit"] == [str(Path(pipeline.__file__).resolve())]
    return out


@pytest.mark.soak
def test_reference_output_has_rows_in_every_table(local):
    rows = {name: len(table) for name, table in read_tables(local).items()}
    assert min(rows.values()) > 0
    assert {"positions", "reads", "rejected", "cells-generated", "label_reads-ingested"} <= set(rows)
    assert rows["label_reads-generated"] > 1.2 * rows["reads"]  # some answers are cached


@pytest.mark.soak
@pytest.mark.parametrize(
    "session_options",
    [
        {"master": "local[2]", "config": {"spark.sql.shuffle.partitions": 7}},
        {"remote": "local[2]"},
    ],
    ids=["two cores", "connect"],
)
def test_local_sessions_produce_the_same_rows(source, local, tmp_path, session_options):
    locations = run_jobs(source, tmp_path / "out", session_options)
    assert count_differing_rows(local, tmp_path / "out") == 0
    assert locations["mudkit"][0].endswith("mudkit.zip/mudkit/pipeline/__init__.py") == (
        "remote" in session_options
    )


@pytest.mark.soak
def test_cluster_without_mudkit_produces_the_same_rows(source, local, cluster, python, tmp_path):
    process = subprocess.run([python, "-c", "import mudkit"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'mudkit'" in process.stderr
    session_options = {"master": cluster.url, "config": {"spark.sql.shuffle.partitions": 5}}
    locations = run_jobs(source, tmp_path / "out", session_options, {"PYSPARK_PYTHON": str(python)})
    assert count_differing_rows(local, tmp_path / "out") == 0
    assert {Path(folder).parent.parent for folder in locations["folder"]} == {
        cluster.folder / "worker-0",
        cluster.folder / "worker-1",
    }
    assert all(file.endswith("mudkit.zip/mudkit/pipeline/__init__.py") for file in locations["mudkit"])
    assert all(file.startswith(str(cluster.folder)) for file in locations["mudkit"]), locations


@pytest.mark.soak
def test_comparison_detects_missing_and_changed_rows(source, local, tmp_path):
    """Check the comparison itself with modified copies of a result."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(local), str(copy)], check=True)
    assert count_differing_rows(local, copy) == 0
    file = next(
        file for file in (copy / "cells-generated").glob("*.parquet") if pq.read_metadata(file).num_rows
    )
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    assert count_differing_rows(local, copy) == 1
    pq.write_table(table.set_column(6, "positions", pa.array([0] * len(table), pa.int64())), file)
    assert table.column_names[6] == "positions"
    assert count_differing_rows(local, copy) == 2 * len(table)


def run_python(
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


def test_missing_cluster_is_reported_before_java_starts():
    process = run_python(
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
    assert process.returncode == 0, process.stderr
    where, result, remedy, is_java_absent = json.loads(process.stdout)
    assert where == "MUDKIT_SPARK_MASTER"
    assert result.startswith("spark://127.0.0.1:1: 127.0.0.1:1: ")
    assert "refused" in result
    assert "leave it out" in remedy
    assert is_java_absent


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
def test_killed_worker_does_not_change_the_labels(source, local, python, tmp_path):
    """Kill a worker during a job; then end the cluster while a session holds an executor: nothing remains."""
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    with local_cluster(2) as cluster:
        command = [sys.executable, "-c", textwrap.dedent(LOSES_A_WORKER)]
        with (
            (tmp_path / "said").open("w+") as log,
            subprocess.Popen(
                [*command, cluster.url, str(source), str(marks), str(out / "label_reads-generated")],
                env=environment(PYSPARK_PYTHON=str(python)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                deadline = time.monotonic() + TIMEOUT_S
                while len(waiting := list(marks.glob("*.waits"))) < 2 and process.poll() is None:
                    assert time.monotonic() < deadline, "no two tasks at a time"
                    time.sleep(0.05)
                workers = {Path(mark.read_text()).relative_to(cluster.folder).parts[0] for mark in waiting}
                assert workers == {"worker-0", "worker-1"}, (tmp_path / "said").read_text()
                cluster.kill_worker(1)
                (marks / "go").touch()
                deadline = time.monotonic() + TIMEOUT_S
                while (
                    not (marks / "ready").exists() and process.poll() is None and time.monotonic() < deadline
                ):
                    time.sleep(0.05)
                assert (marks / "ready").exists(), (tmp_path / "said").read_text()
                pids = [pid for daemon in (cluster.master, cluster.workers[0]) for pid in members(daemon)]
            finally:
                process.kill()
        assert len(pids) >= 4  # master, worker, its executor, and the executor's Python
        assert cluster.folder.is_dir()
    assert not cluster.folder.exists()
    assert not [pid for pid in pids if is_running(pid)]
    name = "label_reads-generated"
    expected = read_tables(local)[name]
    assert len(expected) > 0
    assert count_differing(read_tables(out)[name], expected) == 0


@pytest.mark.soak
def test_cluster_ends_when_its_python_is_killed():
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
        deadline = time.monotonic() + TIMEOUT_S
        while (
            any(is_running(int(pid)) for pid in pids) or Path(folder).exists()
        ) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not [pid for pid in pids if is_running(int(pid))]
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
def test_foreign_session_receives_mudkit_once_if_missing(cluster, python, tmp_path, kind):
    rows = [f"{cab},{1_211_100_000 + 60 * i},37.{i:03d},-122.4,{i % 2}" for cab in "ab" for i in range(20)]
    (tmp_path / "raw.csv").write_text("cab,t,lat,lon,occ\n" + "\n".join(rows) + "\n")
    master = {"cluster": cluster.url, "connect": "", "has mudkit": "local[1]"}[kind]
    program = sys.executable if kind == "has mudkit" else str(python)
    remote = "local[1]" if kind == "connect" else ""
    root = str(Path(pipeline.__file__).parents[2])
    variables = {"PYSPARK_PYTHON": program, "PYTHONPATH": root if kind == "has mudkit" else ""}
    process = run_python(OWN_SESSION, root, master, remote, str(tmp_path), cwd=tmp_path, **variables)
    assert process.returncode == 0, process.stderr[-3000:]
    assert json.loads(process.stdout.splitlines()[-1]) == [40, True, 40, [1, 2], kind != "has mudkit"]


PRIVATE = """
    import json, sys
    from mudkit import pipeline, trace
    from mudkit.errors import MudkitError

    source, generated, out = sys.argv[1:]
    spark = pipeline.session()
    positions, reads = (pipeline.read(spark, generated, name) for name in ("positions", "reads"))
    calls = {
        "ingest": lambda at: pipeline.ingest(spark, source, at, rule="trip_start").kept,
        "run_job": lambda at: pipeline.run_job(spark, "label_reads", generated, at, dates=1).rows,
        "write": lambda at: pipeline.write(positions.repartition(4), at),
    }
    for name, call in calls.items():
        try:
            print(json.dumps([name, call(f"{out}/{name}")]), flush=True)
        except MudkitError as error:
            print(json.dumps([type(error).__name__, str(error), error.remedy]), flush=True)
    pipeline.stop()
"""


@pytest.fixture(scope="module")
def private(tmp_path_factory) -> Path:
    """Return a folder in which each worker of `apart` has a file system of its own."""
    folder = tmp_path_factory.mktemp("apart") / "private"
    folder.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    process = subprocess.run(mount, capture_output=True, text=True)
    if process.returncode:
        pytest.skip(f"this machine does not let workers have file systems of their own: {process.stderr}")
    return folder


@pytest.fixture(scope="module")
def apart(private):
    with local_cluster(2, private=private) as cluster:
        yield cluster


@pytest.mark.soak
def test_output_on_private_file_systems_is_refused_in_words(apart, private, source, python):
    """scale.md and 66: nothing is called a success that the driver does not see.

    Two workers without a shared folder once kept 10,636 of 20,000 rows, and said so as success.
    """
    arguments = (str(source / "cabs"), str(source / "generated"), str(private))
    process = run_python(PRIVATE, *arguments, MUDKIT_SPARK_MASTER=apart.url, PYSPARK_PYTHON=str(python))
    assert process.returncode == 0, process.stderr[-3000:]
    errors = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(errors) == 3
    for kind, text, remedy in errors:
        assert kind == "OutputProblem"
        assert "not shared" in text
        assert "shared file system" in remedy
    assert list(private.iterdir()) == []


@pytest.mark.soak
def test_source_on_private_file_systems_is_refused_in_words(apart, private, source, python, tmp_path):
    shutil.copytree(source / "cabs", private / "cabs")
    arguments = (str(private / "cabs"), str(source / "generated"), str(tmp_path))
    process = run_python(PRIVATE, *arguments, MUDKIT_SPARK_MASTER=apart.url, PYSPARK_PYTHON=str(python))
    shutil.rmtree(private / "cabs")
    assert process.returncode == 0, process.stderr[-3000:]
    kind, text, remedy = json.loads(process.stdout.splitlines()[0])
    assert kind == "InputMissing"
    assert "A worker does not see the file" in text
    assert "shared file system" in remedy
    assert not (tmp_path / "ingest").exists()


@pytest.mark.soak
def test_store_between_private_file_systems_has_the_same_rows_as_local_mode(
    apart, source, tmp_path, tmp_path_factory
):
    """Workers with private file systems, and a store between them that refuses to rename."""
    program = create_bare_python(tmp_path_factory.mktemp("bare"), "universal_pathlib", "requests")
    local = run_python(
        PRIVATE,
        str(source / "cabs"),
        str(source / "generated"),
        str(tmp_path),
        MUDKIT_SPARK_MASTER="local[2]",
    )
    assert local.returncode == 0, local.stderr[-3000:]
    with webhdfs_server() as server:
        for file in (source / "generated").rglob("*"):
            if file.is_file():
                server.put(f"/generated/{file.relative_to(source / 'generated')}", file.read_bytes())
        arguments = (str(source / "cabs"), f"{server.address}/generated", f"{server.address}/out")
        process = run_python(PRIVATE, *arguments, MUDKIT_SPARK_MASTER=apart.url, PYSPARK_PYTHON=str(program))
        assert process.returncode == 0, process.stderr[-3000:]
        assert process.stdout == local.stdout
        assert server.operations["RENAME"] == server.operations["APPEND"] == 0
        for name, content in server.files.items():
            if name.startswith("/out/"):
                place = tmp_path / "store" / name.removeprefix("/out/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
    assert not list((tmp_path / "store").rglob("_job-*"))
    for table in ("positions", "reads", "rejected"):
        one, other = (
            trace.read_table(folder, table) for folder in (tmp_path / "ingest", tmp_path / "store/ingest")
        )
        assert one.equals(other)
    for name in ("run_job", "write"):
        one, other = (
            ds.dataset(folder / name, format="parquet").to_table()
            for folder in (tmp_path, tmp_path / "store")
        )
        assert len(one) > 0
        assert count_differing(one, other) == 0
