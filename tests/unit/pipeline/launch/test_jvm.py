"""How the JVM is asked to be, and what happens when it does not come up."""

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

sessions = sys.modules[session.__module__]  # the package's attribute of that name is the function


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(jvms, "running_process", lambda: None)
    monkeypatch.setattr(jvms, "end", lambda _: None)
    monkeypatch.setattr(jvms, "temporary_folder", lambda: tmp_path / "room")
    monkeypatch.setattr(jvms, "prepare", lambda *_: Archive(("-XX:Archive=/a b",), ("-XX:Base=/a b",)))


def test_a_local_session_stays_on_this_machine():
    jvm = jvm_config(Target(), {})
    assert jvm.config["spark.driver.host"] == jvm.config["spark.driver.bindAddress"] == "127.0.0.1"
    assert jvm.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert jvm.config["spark.driver.memory"] == "1024m"
    assert jvm_config(Target(), {"PYSPARK_PYTHON": "/x"}).environ["PYSPARK_PYTHON"] == sys.executable
    with pytest.raises(ParameterError):
        jvm_config(Target(), {"MUDKIT_SPARK_MEMORY": "lots"})


def test_a_cluster_finds_the_driver_by_its_own_means():
    jvm = jvm_config(Target("spark://h:7077"), {"PYSPARK_PYTHON": "/cluster/python"})
    assert "spark.driver.host" not in jvm.config
    assert "spark.sql.warehouse.dir" not in jvm.config
    assert "SPARK_LOCAL_IP" not in jvm.environ
    assert jvm.environ["PYSPARK_PYTHON"] == "/cluster/python"
    here = jvm_config(Target("spark://127.0.0.1:7077"), {})
    assert here.config["spark.driver.host"] == here.config["spark.driver.bindAddress"] == "127.0.0.1"
    assert here.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "PYTHONPATH" not in here.environ
    assert "spark.local.dir" not in here.config


def test_the_callers_options_come_last_and_choose_the_collector():
    plain = jvm_config(Target(), {}).config["spark.driver.extraJavaOptions"]
    assert "-XX:+UseSerialGC" in plain
    wanted = Target(config={"spark.driver.extraJavaOptions": "-XX:+UseG1GC -Dx=y"})
    theirs = jvm_config(wanted, {}).config["spark.driver.extraJavaOptions"]
    assert theirs.endswith(" -XX:+UseG1GC -Dx=y")
    assert "UseSerialGC" not in theirs


def test_options_with_spaces_are_quoted_or_left_out():
    jvm = jvm_config(Target(), {"SPARK_LAUNCHER_OPTS": "-Dtheirs=1"})
    assert '"-XX:Archive=/a b"' in jvm.config["spark.driver.extraJavaOptions"]
    assert "Base" not in jvm.environ["SPARK_LAUNCHER_OPTS"]
    assert jvm.environ["SPARK_LAUNCHER_OPTS"].endswith("-Dtheirs=1")


@pytest.mark.parametrize(
    ("option", "quoted"), [("-Da=b", "-Da=b"), ("-Da=b c", '"-Da=b c"'), ('-Da="\\', '"-Da=\\"\\\\"')]
)
def test_quoting(option, quoted):
    assert jvms._quoted(option) == quoted


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_HOME"])
def test_other_classes_need_no_archive(variable):
    config = jvm_config(Target(), {variable: "/somewhere"})
    assert config.archive == Archive()


def test_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("MUDKIT_A", "before")
    monkeypatch.delenv("MUDKIT_B", raising=False)
    with pytest.raises(ZeroDivisionError), environment({"MUDKIT_A": None, "MUDKIT_B": "within"}):
        assert ("MUDKIT_A" in os.environ, os.environ["MUDKIT_B"]) == (False, "within")
        raise ZeroDivisionError
    assert (os.environ["MUDKIT_A"], "MUDKIT_B" in os.environ) == ("before", False)


@pytest.fixture
def starts(monkeypatch, tmp_path):
    """Let starts fail as a test says; tell with which archives they were tried."""
    used = tmp_path / "spark.jsa"
    used.write_text("damaged")
    state = SimpleNamespace(used=used, failures=0, process=None, tried=[])

    def config(_wanted, _environ, *, archived=True):
        archive = Archive(used=used if archived else None)
        return jvms.Jvm({}, {}, archive, tmp_path / "room", state.process)

    def start(jvm, _wanted):
        state.tried.append(jvm.archive.used)
        if len(state.tried) <= state.failures:
            raise EnvironmentProblem("Spark did not start.")
        return "running"

    monkeypatch.setattr(jvms, "jvm_config", config)
    monkeypatch.setattr(sessions, "_start_with", start)
    return state


def test_a_start_is_tried_again_without_the_archive(starts):
    starts.failures = 1
    assert sessions._start(Target()) == "running"
    assert starts.tried == [starts.used, None]
    assert not starts.used.exists()


@pytest.mark.parametrize(("failures", "process", "tries"), [(2, None, 2), (1, object(), 1)])
def test_an_archive_is_kept_when_it_is_not_to_blame(starts, failures, process, tries):
    starts.failures, starts.process = failures, process
    with pytest.raises(EnvironmentProblem):
        sessions._start(Target())
    assert len(starts.tried) == tries, "a JVM that came up is not tried again"
    assert starts.used.exists()
