"""What a cluster on this machine says when it cannot be."""

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
def own_places(monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A Spark whose `spark-class` is a script of the test's."""
    program = tmp_path / "spark" / "bin" / "spark-class"

    def write(script):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))

    return write


@pytest.fixture
def refused(tmp_path):
    """Start a cluster that does not come up, for a reason; nothing is left of it."""

    def start(words, error=EnvironmentProblem, **options):
        with pytest.raises(error, match=words), local_cluster(**options):
            pass
        assert list((tmp_path / "temporary").iterdir()) == []

    return start


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"cores": 0}, {"memory_mib": 100}])
def test_clusters_that_cannot_work(refused, wrong):
    refused(next(iter(wrong)).partition("_")[0], ParameterError, **wrong)


def test_a_master_that_does_not_start_says_why(spark, refused, tmp_path, monkeypatch):
    spark("echo no room; exit 3")
    refused("master: ended with status 3; no room")
    monkeypatch.setattr(clusters, "_START_S", 0.2)
    spark("exec sleep 600")
    refused(r"no answer within 0\.2 s; it said nothing")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    refused("spark-class")


def test_a_worker_that_ends_takes_the_master_with_it(spark, refused, tmp_path):
    spark(
        f"echo $$ >> {tmp_path}/pids\n"
        "case $1 in *Master) echo Starting Spark master at spark://127.0.0.1:9; exec sleep 600 ;; esac\n"
        "echo out of order; exit 1"
    )
    refused("worker-0: ended with status 1; out of order")
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_settings_of_sessions_do_not_reach_the_daemons(tmp_path, monkeypatch):
    for name in ("SPARK_REMOTE", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "/theirs")
    environ = clusters._environ(tmp_path)
    assert "/theirs" not in environ.values()
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert Path(environ["SPARK_CONF_DIR"]).is_dir()
