"""Pipeline commands, killed with SIGKILL together with their child processes: 30 times in the soak.

A life is one `mudkit pipeline JOB`, killed after it has finished a number of further parts and, for half of
them, a fraction of a part's time later. The next life resumes; the last one of each output is not killed. Its
output is compared with that of an uninterrupted session.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from killing import kill
from pyspark.sql import SparkSession

from mudkit import pipeline, trace
from mudkit.trace.folder import is_trace

pytestmark = pytest.mark.spark

KILLS = {"ingest": 10, "label_reads": 7, "label_writes": 7, "cells": 6}
PARTS = {"ingest": 18, "label_reads": 11, "label_writes": 11, "cells": 11}
FURTHER_PARTS = {
    "ingest": [0, 1, 2, 5],
    "label_reads": [0, 1, 1, 2],
    "label_writes": [0, 1, 1, 2],
    "cells": [0, 1, 1, 2],
}
OPTIONS = {"ingest": ["--rule", "trip_start"]}
PART_S = {"ingest": 0.1, "label_reads": 0.4, "label_writes": 0.3, "cells": 0.6}
"""Approximate duration of a part in a warm session; only spreads the moments of the kills."""


class Chain:
    """Successive runs of a job for one output."""

    def __init__(self, job: str, source: Path, out: Path) -> None:
        self.job, self.out = job, out
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

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"MUDKIT_SPARK_MASTER": "local[2]"},
        )

    def parts(self) -> dict[str, int]:
        """Return the time at which each part was finished."""
        result = {}
        for file in self.out.parent.glob(f".{self.out.name}.resume-*/done/[!.]*.json"):
            try:
                result[file.name] = file.stat().st_mtime_ns
            except FileNotFoundError:
                continue
        return result

    def run_and_kill(self, further_parts: int, delay_s: float) -> bool:
        """Kill a run after some further parts and a delay; return whether it was still running."""
        target = min(len(self.parts()) + further_parts, PARTS[self.job])
        process = self.start()
        try:
            while process.poll() is None and len(self.parts()) < target and not self.out.exists():
                time.sleep(0.003)
            if delay_s:
                time.sleep(delay_s)
            was_alive = process.poll() is None
        finally:
            kill(process)
        process.communicate()
        return was_alive


def read_rows(path: Path) -> pa.Table:
    table = ds.dataset(path, format="parquet").to_table()
    return table.sort_by([(name, "ascending") for name in table.column_names])


@pytest.fixture(scope="module")
def cabs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate a trace of ten days as 16 files in the format of the taxi archive."""
    loaded = trace.generate(cars=16, days=10, seed=3, interval_s=60)
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
def folder(cabs: Path) -> Path:
    out = cabs.parent / "trace"
    trace.load(cabs, rule="trip_start").save(out)
    assert len(list((out / "positions").iterdir())) == PARTS["cells"]
    return out


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", KILLS)
def test_killed_jobs_resume_and_give_the_same_output(
    job: str,
    spark: SparkSession,
    cabs: Path,
    folder: Path,
    tmp_path: Path,
    scaled: Callable[[int, int], int],
) -> None:
    lives = scaled(KILLS[job], 2)
    chance = random.Random(f"kills of {job}")
    out = tmp_path / "out"
    chain = Chain(job, cabs if job == "ingest" else folder, out)
    kills = lost = 0
    finished: dict[str, int] = {}
    for number in range(lives):
        # Sometimes early: in the first part of a life, or before it.
        further_parts = min(chance.choice(FURTHER_PARTS[job]), max(0, PARTS[job] - 2 - len(finished)))
        further_parts = further_parts or int(number == 0)  # so that later lives find finished parts
        delay_s = chance.choice([0.0, chance.random() * PART_S[job]])
        if number == lives - 1:
            further_parts, delay_s = PARTS[job], chance.random() * 0.02  # the last step
        if not further_parts:
            delay_s = chance.random() * 3.0  # during the start of a session
        was_killed = chain.run_and_kill(further_parts, delay_s)
        kills += was_killed
        if out.exists():  # only at the very last moment
            assert number == lives - 1
            break
        lost += was_killed
        now = chain.parts()
        assert finished.items() <= now.items(), "a finished part was done again"
        finished = now
        assert not [file.name for file in tmp_path.iterdir() if not file.name.startswith(".")]
    assert lost >= lives - 1
    assert finished
    if not out.exists():
        process = chain.start()
        stdout, stderr = process.communicate(timeout=600)  # a guard: seconds on a quiet machine
        assert process.returncode == 0, stderr
        assert stderr == f"{len(finished)} of {PARTS[job]} partitions existed already\n"
        assert str(out) in stdout
        assert [file.name for file in tmp_path.iterdir()] == ["out"]
    if job == "ingest":
        assert is_trace(out)
        uninterrupted, resumed = trace.load(cabs, rule="trip_start"), trace.load(out)
        assert resumed.positions.equals(uninterrupted.positions)
        assert resumed.reads.sort_by("read_id").equals(uninterrupted.reads.sort_by("read_id"))
        assert resumed.rejected.equals(uninterrupted.rejected)
    uninterrupted_out = tmp_path / "calm"
    if job == "ingest":
        pipeline.ingest(spark, cabs, uninterrupted_out, rule="trip_start")
    else:
        pipeline.run_job(spark, job, folder, uninterrupted_out)
    if job == "ingest":
        files = [file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file()]
        assert files == [
            file.relative_to(uninterrupted_out)
            for file in sorted(uninterrupted_out.rglob("*"))
            if file.is_file()
        ]
        assert all((out / file).read_bytes() == (uninterrupted_out / file).read_bytes() for file in files)
    else:
        assert read_rows(out).equals(read_rows(uninterrupted_out))
        for file in out.iterdir():
            finished_ns = finished.get(f"{re.split('-', file.name)[1]}.json")
            assert finished_ns is None or file.stat().st_mtime_ns <= finished_ns  # not written again
