"""Configuration of the JVM, and recovery when it fails to start."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline._session import session
from mudkit.pipeline.launch import jvm as jvms
from mudkit.pipeline.launch.java import Archive
from mudkit.pipeline.launch.jvm import environment, jvm_config
from mudkit.pipeline.launch.settings import Target

sessions = sys.modules[session.__module__]  # the package exports the function under this name


@pytest.fixture(autouse=True)
def replace_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(jvms, "running_process", lambda: None)
    monkeypatch.setattr(jvms, "end", lambda _: None)
    monkeypatch.setattr(jvms, "temporary_folder", lambda: tmp_path / "room")
    monkeypatch.setattr(jvms, "prepare", lambda *_: Archive(("-XX:Archive=/a b",), ("-XX:Base=/a b",)))


def test_local_session_binds_to_loopback():
    jvm = jvm_config(Target(), {})
    assert jvm.config["spark.driver.host"] == jvm.config["spark.driver.bindAddress"] == "127.0.0.1"
    assert jvm.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert jvm.config["spark.driver.memory"] == "1024m"
    assert jvm_config(Target(), {"PYSPARK_PYTHON": "/x"}).environ["PYSPARK_PYTHON"] == sys.executable
    with pytest.raises(ParameterError):
        jvm_config(Target(), {"MUDKIT_SPARK_MEMORY": "lots"})


def test_driver_host_is_set_for_local_clusters_only():
    jvm = jvm_config(Target("spark://h:7077"), {"PYSPARK_PYTHON": "/cluster/python"})
    assert "spark.driver.host" not in jvm.config
    assert "spark.sql.warehouse.dir" not in jvm.config
    assert "SPARK_LOCAL_IP" not in jvm.environ
    assert jvm.environ["PYSPARK_PYTHON"] == "/cluster/python"
    local = jvm_config(Target("spark://127.0.0.1:7077"), {})
    assert local.config["spark.driver.host"] == local.config["spark.driver.bindAddress"] == "127.0.0.1"
    assert local.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "PYTHONPATH" not in local.environ
    assert "spark.local.dir" not in local.config


def test_workers_have_an_allocator_that_keeps_what_was_freed():
    names = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    local = jvm_config(Target(), {"MALLOC_ARENA_MAX": "4"})
    assert {name: local.environ[name] for name in names} == names | {"MALLOC_ARENA_MAX": "4"}
    cluster = jvm_config(Target("spark://h:7077"), {})
    assert {name: cluster.config[f"spark.executorEnv.{name}"] for name in names} == names
    assert not names.keys() & cluster.environ.keys()


def test_caller_options_follow_and_select_the_collector():
    default_options = jvm_config(Target(), {}).config["spark.driver.extraJavaOptions"]
    assert "-XX:+UseSerialGC" in default_options
    target = Target(config={"spark.driver.extraJavaOptions": "-XX:+UseG1GC -Dx=y"})
    options = jvm_config(target, {}).config["spark.driver.extraJavaOptions"]
    assert options.endswith(" -XX:+UseG1GC -Dx=y")
    assert "UseSerialGC" not in options


def test_options_with_spaces_are_quoted_or_omitted():
    jvm = jvm_config(Target(), {"SPARK_LAUNCHER_OPTS": "-Dtheirs=1"})
    assert '"-XX:Archive=/a b"' in jvm.config["spark.driver.extraJavaOptions"]
    assert "Base" not in jvm.environ["SPARK_LAUNCHER_OPTS"]
    assert jvm.environ["SPARK_LAUNCHER_OPTS"].endswith("-Dtheirs=1")


@pytest.mark.parametrize(
    ("option", "quoted"), [("-Da=b", "-Da=b"), ("-Da=b c", '"-Da=b c"'), ('-Da="\\', '"-Da=\\"\\\\"')]
)
def test_java_options_are_quoted(option, quoted):
    assert jvms._quoted(option) == quoted


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_HOME"])
def test_no_archive_is_used_with_other_classes(variable, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    config = jvm_config(Target(), {variable: str(tmp_path)})
    assert config.archive == Archive()


def test_environment_variables_are_restored(monkeypatch):
    monkeypatch.setenv("MUDKIT_A", "before")
    monkeypatch.delenv("MUDKIT_B", raising=False)
    with pytest.raises(ZeroDivisionError), environment({"MUDKIT_A": None, "MUDKIT_B": "within"}):
        assert ("MUDKIT_A" in os.environ, os.environ["MUDKIT_B"]) == (False, "within")
        raise ZeroDivisionError
    assert (os.environ["MUDKIT_A"], "MUDKIT_B" in os.environ) == ("before", False)


@pytest.fixture
def start_log(monkeypatch, tmp_path):
    """Fail a given number of starts and record the archives they used."""
    used = tmp_path / "spark.jsa"
    used.write_text("damaged")
    state = SimpleNamespace(used=used, failures=0, process=None, tried=[])

    def make_config(_target, _environ, *, archived=True):
        archive = Archive(used=used if archived else None)
        return jvms.Jvm({}, {}, archive, tmp_path / "room", state.process)

    def start(jvm, _target):
        state.tried.append(jvm.archive.used)
        if len(state.tried) <= state.failures:
            raise EnvironmentProblem("Spark did not start.")
        return "running"

    monkeypatch.setattr(jvms, "jvm_config", make_config)
    monkeypatch.setattr(sessions, "_start_with", start)
    return state


def test_failed_start_is_retried_without_the_archive(start_log):
    start_log.failures = 1
    assert sessions._start(Target()) == "running"
    assert start_log.tried == [start_log.used, None]
    assert not start_log.used.exists()


@pytest.mark.parametrize(("failures", "process", "attempts"), [(2, None, 2), (1, object(), 1)])
def test_archive_is_kept_when_the_retry_fails_or_the_jvm_is_running(start_log, failures, process, attempts):
    start_log.failures, start_log.process = failures, process
    with pytest.raises(EnvironmentProblem):
        sessions._start(Target())
    assert len(start_log.tried) == attempts, "a JVM that came up is not tried again"
    assert start_log.used.exists()
