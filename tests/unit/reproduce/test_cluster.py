"""Errors of a local Spark cluster that fails to start."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.reproduce import cluster as clusters
from mudkit.reproduce.cluster import local_cluster


@pytest.fixture(autouse=True)
def use_own_temporary_folder(monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def install_spark(tmp_path, monkeypatch):
    """Install a Spark whose `spark-class` is a given script."""
    program = tmp_path / "spark" / "bin" / "spark-class"

    def write(script):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))

    return write


@pytest.fixture
def assert_refused(tmp_path):
    """Start a cluster that fails for a given reason; no temporary file remains."""

    def start(message, error=EnvironmentProblem, **options):
        with pytest.raises(error, match=message), local_cluster(**options):
            pass
        assert list((tmp_path / "temporary").iterdir()) == []

    return start


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"cores": 0}, {"memory_mib": 100}])
def test_invalid_cluster_sizes_are_refused(assert_refused, wrong):
    assert_refused(next(iter(wrong)).partition("_")[0], ParameterError, **wrong)


def test_master_that_fails_to_start_reports_the_reason(install_spark, assert_refused, tmp_path, monkeypatch):
    install_spark("echo no room; exit 3")
    assert_refused("master: ended with status 3; no room")
    monkeypatch.setattr(clusters, "_START_S", 0.2)
    install_spark("exec sleep 600")
    assert_refused(r"no answer within 0\.2 s; it said nothing")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    assert_refused("spark-class")


def test_master_is_stopped_when_a_worker_ends(install_spark, assert_refused, tmp_path):
    install_spark(
        f"echo $$ >> {tmp_path}/pids\n"
        "case $1 in *Master) echo Starting Spark master at spark://127.0.0.1:9; exec sleep 600 ;; esac\n"
        "echo out of order; exit 1"
    )
    assert_refused("worker-0: ended with status 1; out of order")
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_watch_ends_when_the_cluster_has_ended(tmp_path):
    """It waits for a word, and kills what is left of the cluster if its reader ends without one."""
    watch = clusters._start_watch(tmp_path / "cluster", [])
    clusters._dismiss(watch)
    assert watch.returncode == 0


def test_session_settings_are_not_passed_to_the_daemons(tmp_path, monkeypatch):
    for name in ("SPARK_REMOTE", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "/theirs")
    environ = clusters._environ(tmp_path)
    assert "/theirs" not in environ.values()
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert Path(environ["SPARK_CONF_DIR"]).is_dir()
