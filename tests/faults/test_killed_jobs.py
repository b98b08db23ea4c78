"""Pipeline commands, killed with SIGKILL: once in a test; 30 times in the soak, and executors of a cluster.

A life is one `mudkit pipeline JOB`, killed after it has finished a number of further parts and, for half of
them, a fraction of a part's time later: with its child processes, or only its Java, or only its Python (tasks
outlive it for a moment). The next life resumes; the last one of each output is not killed, and in the test it is
a call in the session of the tests. Its output is compared with that of an uninterrupted session. After each kill
there is no output for any reader.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from killing import alive_members, kill, kill_members
from pyspark.sql import SparkSession

from mudkit import pipeline, trace
from mudkit.reproduce.cluster import local_cluster

pytestmark = pytest.mark.spark

KILLS = {"ingest": 10, "label_reads": 7, "label_writes": 7, "cells": 6}
DAYS = 10, 4
"""Days of the trace in the soak, and in `make test`; a job has a part for each of their dates."""
INGEST_PARTS = 19
"""Parts of an ingest of 16 files, for any number of dates."""
FURTHER_PARTS = {
    "ingest": [0, 1, 2, 5],
    "label_reads": [0, 1, 1, 2],
    "label_writes": [0, 1, 1, 2],
    "cells": [0, 1, 1, 2],
}
OPTIONS = {"ingest": ["--rule", "trip_start"]}
VICTIMS = ("all", "all", "java", "python")
GUARD_S = 300
"""A limit for what takes seconds on a quiet machine."""
PART_S = {"ingest": 0.1, "label_reads": 0.4, "label_writes": 0.3, "cells": 0.6}
"""Approximate duration of a part in a warm session; only spreads the moments of the kills."""


class Chain:
    """Successive runs of a job for one output."""

    def __init__(self, job: str, source: Path, out: Path, parts: int = INGEST_PARTS) -> None:
        self.job, self.source, self.out, self.total_parts = job, source, out, parts
        self.master = "local[2]"
        options = OPTIONS.get(job, ["--dates", "1"])
        self.command = [
            sys.executable,
            "-m",
            "mudkit",
            "pipeline",
            job,
            str(source),
            "--out",
            str(out),
            *options,
        ]

    def __enter__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            kill(process)

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"MUDKIT_SPARK_MASTER": self.master},
        )
        self.processes.append(process)
        return process

    def parts(self) -> dict[str, int]:
        """Return the time at which each part was finished."""
        result = {}
        for file in self.out.glob("_job-*/done/[!.]*.json"):
            try:
                result[file.name] = file.stat().st_mtime_ns
            except FileNotFoundError:
                continue
        return result

    def is_complete(self) -> bool:
        """Return whether a reader finds the output, as README and the guides tell it to."""
        return any((self.out / name).exists() for name in ("trace.json", "_manifest.json"))

    def wait_for(self, process: subprocess.Popen[str], parts: int, delay_s: float) -> None:
        """Wait until a number of parts is finished, or the process ends, and then for a delay."""
        while process.poll() is None and len(self.parts()) < parts and not self.is_complete():
            time.sleep(0.003)
        if delay_s:
            time.sleep(delay_s)

    def run_and_kill(self, further_parts: int, delay_s: float, victim: str) -> bool:
        """Kill a run after some further parts and a delay; return whether it was still running."""
        target = min(len(self.parts()) + further_parts, self.total_parts)
        process = self.start()
        try:
            self.wait_for(process, target, delay_s)
            was_alive = process.poll() is None
            if victim == "java" and kill_members(process, "java"):
                process.wait(GUARD_S)  # it ends by itself, and does not say that all is well
                assert process.returncode or self.is_complete()
            elif victim == "python":
                process.kill()
                deadline_s = time.monotonic() + GUARD_S
                while alive_members(process) and time.monotonic() < deadline_s:
                    time.sleep(0.01)
                assert not alive_members(process)
        finally:
            kill(process)
        _, stderr = process.communicate()
        assert "could not be written" not in stderr  # a Java that is gone is no problem of the output
        return was_alive


def run_in_session(
    spark: SparkSession, job: str, source: Path, out: Path, dates: int | None = None
) -> pipeline.IngestReport | pipeline.JobReport:
    if job == "ingest":
        return pipeline.ingest(spark, source, out, rule="trip_start")
    return pipeline.run_job(spark, job, source, out, dates=dates)


def read_rows(path: Path) -> pa.Table:
    table = ds.dataset(path, format="parquet").to_table()
    return table.sort_by([(name, "ascending") for name in table.column_names])


@pytest.fixture(scope="module")
def cabs(tmp_path_factory: pytest.TempPathFactory, scaled: Callable[[int, int], int]) -> Path:
    """Generate a trace of some days as 16 files in the format of the taxi archive."""
    loaded = trace.generate(cars=16, days=scaled(*DAYS), seed=3, interval_s=60)
    archive = tmp_path_factory.mktemp("killed") / "cabs"
    archive.mkdir()
    table = loaded.positions.sort_by([("device", "ascending"), ("ts", "ascending")])
    lines: dict[str, list[str]] = {}
    for row in table.to_pylist():
        line = f"{row['lat']:.5f} {row['lon']:.5f} 0 {int(row['ts'].timestamp())}"
        lines.setdefault(row["device"], []).append(line)
    assert len(lines) == 16
    for device, text in lines.items():
        (archive / f"new_{device}.txt").write_text("\n".join(text) + "\n")
    return archive


@pytest.fixture(scope="module")
def folder(cabs: Path, scaled: Callable[[int, int], int]) -> Path:
    out = cabs.parent / "trace"
    trace.load(cabs, rule="trip_start").save(out)
    assert len(list_names(out / "positions")) == scaled(*DAYS) + 1
    return out


@pytest.mark.soak(keep=1, group="own Java", shared=True)
@pytest.mark.parametrize("job", KILLS)
def test_killed_jobs_resume_and_give_the_same_output(
    job: str,
    spark: SparkSession,
    cabs: Path,
    folder: Path,
    tmp_path: Path,
    scaled: Callable[[int, int], int],
) -> None:
    lives = scaled(KILLS[job], 1)
    chance = random.Random(f"kills of {job}")
    out = tmp_path / "out"
    parts = INGEST_PARTS if job == "ingest" else len(list_names(folder / "positions"))
    chain = Chain(job, cabs if job == "ingest" else folder, out, parts)
    lost = 0
    finished: dict[str, int] = {}
    with chain:
        for number in range(lives):
            is_last = number == lives - 1 > 0
            # Sometimes early: in the first part of a life, or before it.
            further_parts = min(chance.choice(FURTHER_PARTS[job]), max(0, parts - 2 - len(finished)))
            further_parts = further_parts or int(number == 0)  # so that later lives find finished parts
            delay_s = chance.choice([0.0, chance.random() * PART_S[job]])
            if is_last:
                further_parts, delay_s = parts, chance.random() * 0.02  # the last step
            if not further_parts:
                delay_s = chance.random() * 3.0  # during the start of a session
            lost += chain.run_and_kill(further_parts, delay_s, chance.choice(VICTIMS))
            if chain.is_complete():  # only at the very last moment
                assert is_last
                break
            if not is_last and out.exists():  # Arrow, as Spark and pandas do, passes over what begins with _
                assert not ds.dataset(out, format="parquet").files
            now = chain.parts()
            assert finished.items() <= now.items(), "a finished part was done again"
            finished = now
        assert lost >= lives - 1
        assert finished
        if not chain.is_complete():
            if lives > 1:
                process = chain.start()
                stdout, stderr = process.communicate(timeout=GUARD_S)
                assert process.returncode == 0, stderr
                assert stderr == f"{len(finished)} of {parts} partitions existed already\n"
                assert str(out) in stdout
            else:  # in the session of the tests: a Java takes seconds to start
                report = run_in_session(spark, job, chain.source, out, dates=1)
                assert (report.parts, report.parts_reused) == (parts, len(finished))
            assert not [name for name in list_names(out) if name.startswith(("_job", "."))]
        assert list_names(tmp_path) == ["out"]
    uninterrupted_out = tmp_path / "calm"
    if job == "ingest":
        uninterrupted, resumed = trace.load(cabs, rule="trip_start"), trace.load(out)
        assert resumed.positions.equals(uninterrupted.positions)
        assert resumed.reads.sort_by("read_id").equals(uninterrupted.reads.sort_by("read_id"))
        assert resumed.rejected.equals(uninterrupted.rejected)
        run_in_session(spark, job, cabs, uninterrupted_out)
        for table in ("positions", "reads", "rejected"):
            assert read_bytes(out, table) == read_bytes(uninterrupted_out, table)
    else:
        run_in_session(spark, job, folder, uninterrupted_out)
        assert read_rows(out).equals(read_rows(uninterrupted_out))


@pytest.mark.soak
def test_executors_killed_on_a_cluster_change_no_row(cabs: Path, tmp_path: Path) -> None:
    """Kill executors of both workers during an ingest, which uses those that the workers start anew.

    Then kill a worker with its executor and, soon after, the whole session; the next run completes the trace.
    """
    chance = random.Random("kills of executors")
    chain = Chain("ingest", cabs, tmp_path / "out")
    with local_cluster(2) as cluster, chain:
        chain.master = cluster.url
        process = chain.start()
        for target in (1, 4, 9):
            chain.wait_for(process, target, chance.random() * 0.3)
            kill_members(cluster.workers[chance.randrange(2)], "java", but_leader=True)
        assert process.poll() is None
        chain.wait_for(process, 12, 0.0)
        cluster.kill_worker(0)
        kill_members(cluster.workers[0], "java")
        chain.wait_for(process, 14, chance.random() * 0.3)
        assert not chain.is_complete()
        kill(process)
        process.communicate()
        assert chain.parts()
        process = chain.start()
        _, stderr = process.communicate(timeout=GUARD_S)
        assert process.returncode == 0, stderr
    uninterrupted, resumed = trace.load(cabs, rule="trip_start"), trace.load(chain.out)
    assert resumed.positions.equals(uninterrupted.positions)
    assert resumed.reads.sort_by("read_id").equals(uninterrupted.reads.sort_by("read_id"))
    assert list_names(chain.out) == ["positions", "reads", "trace.json"]


@pytest.mark.soak
@pytest.mark.parametrize("rule", ["trip_start", "none"])
def test_two_processes_at_one_place_leave_one_whole_trace(cabs: Path, tmp_path: Path, rule: str) -> None:
    """Two calls of one job both succeed; of two different jobs one does, and the other says why not."""
    first, second = (Chain("ingest", cabs, tmp_path / "out") for _ in range(2))
    second.command[-1] = rule
    with first, second:
        processes = [first.start(), second.start()]
        stderr = [process.communicate(timeout=GUARD_S)[1] for process in processes]
        statuses = [process.returncode for process in processes]
    rules = [rule for rule, status in zip(("trip_start", rule), statuses, strict=True) if status == 0]
    assert rules, stderr
    if rule == "trip_start":
        assert statuses == [0, 0], stderr
    for text, status in zip(stderr, statuses, strict=True):
        assert status == 0 or "Another job began" in text or "something at" in text, text
    assert trace.read_manifest(first.out)["options"]["rule"].partition("(")[0] in rules
    expected = trace.load(cabs, rule=trace.read_manifest(first.out)["options"]["rule"])
    assert trace.load(first.out).positions.equals(expected.positions)
    assert {*list_names(first.out)} <= {"positions", "reads", "trace.json"}
    for table in ("positions", "reads"):
        read_bytes(first.out, table)


def list_names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def read_bytes(folder: Path, table: str) -> list[tuple[str, bytes]]:
    """Return the folder and the bytes of each file of a table, of which the manifest must name all."""
    named = [file["name"] for file in trace.read_manifest(folder)["files"].get(table, [])]
    assert {file.relative_to(folder).as_posix() for file in (folder / table).rglob("*.parquet")} == {*named}
    return [(name.rpartition("/")[0], (folder / name).read_bytes()) for name in named]
