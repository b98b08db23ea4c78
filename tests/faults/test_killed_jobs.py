"""The pipeline's commands, killed with SIGKILL with all that they started: 30 times in the soak.

A life is one `mudkit pipeline run`, killed when it has finished so many parts more and, for half of them, a
fraction of a part's time later. The next life goes on; the last one of each output is left in peace. What comes
of it is compared with what a session gives that nobody kills.
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
MORE = {
    "ingest": [0, 1, 2, 5],
    "label_reads": [0, 1, 1, 2],
    "label_writes": [0, 1, 1, 2],
    "cells": [0, 1, 1, 2],
}
OPTIONS = {"ingest": ["--rule", "trip_start"]}
PART_S = {"ingest": 0.1, "label_reads": 0.4, "label_writes": 0.3, "cells": 0.6}
"""About what a part takes once the session is warm: it only spreads the moments of the kills."""


class Chain:
    """The lives of one output."""

    def __init__(self, job: str, source: Path, out: Path) -> None:
        self.job, self.out = job, out
        options = OPTIONS.get(job, ["--dates", "1"])
        self.command = [
            sys.executable,
            "-m",
            "mudkit",
            "pipeline",
            "run",
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
        """When each part was finished."""
        result = {}
        for file in self.out.parent.glob(f".{self.out.name}.resume-*/done/[!.]*.json"):
            try:
                result[file.name] = file.stat().st_mtime_ns
            except FileNotFoundError:
                continue
        return result

    def killed(self, more: int, late_s: float) -> bool:
        """Live until so many parts more are finished, and a little longer; say whether it was killed."""
        target = min(len(self.parts()) + more, PARTS[self.job])
        process = self.start()
        try:
            while process.poll() is None and len(self.parts()) < target and not self.out.exists():
                time.sleep(0.003)
            if late_s:
                time.sleep(late_s)
            was_alive = process.poll() is None
        finally:
            kill(process)
        process.communicate()
        return was_alive


def rows(path: Path) -> pa.Table:
    table = ds.dataset(path, format="parquet").to_table()
    return table.sort_by([(name, "ascending") for name in table.column_names])


@pytest.fixture(scope="module")
def cabs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated trace of ten days as 16 files of the taxi archive's kind."""
    loaded = trace.generate(cars=16, days=10, seed=3, interval_s=60)
    place = tmp_path_factory.mktemp("killed") / "cabs"
    place.mkdir()
    table = loaded.positions.sort_by([("device", "ascending"), ("ts", "ascending")])
    lines: dict[str, list[str]] = {}
    for row in table.to_pylist():
        line = f"{row['lat']:.5f} {row['lon']:.5f} 0 {int(row['ts'].timestamp())}"
        lines.setdefault(row["device"], []).append(line)
    assert len(lines) == 16
    for device, text in lines.items():
        (place / f"new_{device}.txt").write_text("\n".join(text) + "\n")
    return place


@pytest.fixture(scope="module")
def folder(cabs: Path) -> Path:
    out = cabs.parent / "trace"
    trace.load(cabs, rule="trip_start").save(out)
    assert len(list((out / "positions").iterdir())) == PARTS["cells"]
    return out


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", KILLS)
def test_killed_jobs(
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
        # Now and then early: in the first part of a life, or before it.
        more = min(chance.choice(MORE[job]), max(0, PARTS[job] - 2 - len(finished)))
        more = more or int(number == 0)  # so that the lives after it find finished parts
        late_s = chance.choice([0.0, chance.random() * PART_S[job]])
        if number == lives - 1:
            more, late_s = PARTS[job], chance.random() * 0.02  # the last step
        if not more:
            late_s = chance.random() * 3.0  # of the time that a session takes to start
        was_killed = chain.killed(more, late_s)
        kills += was_killed
        if out.exists():  # only the very last moment is after it is whole
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
        calm, again = trace.load(cabs, rule="trip_start"), trace.load(out)
        assert again.positions.equals(calm.positions)
        assert again.reads.sort_by("read_id").equals(calm.reads.sort_by("read_id"))
        assert again.rejected.equals(calm.rejected)
    calm_out = tmp_path / "calm"
    if job == "ingest":
        pipeline.ingest(spark, cabs, calm_out, rule="trip_start")
    else:
        pipeline.run_job(spark, job, folder, calm_out)
    if job == "ingest":
        files = [file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file()]
        assert files == [file.relative_to(calm_out) for file in sorted(calm_out.rglob("*")) if file.is_file()]
        assert all((out / file).read_bytes() == (calm_out / file).read_bytes() for file in files)
    else:
        assert rows(out).equals(rows(calm_out))
        for file in out.iterdir():
            made = finished.get(f"{re.split('-', file.name)[1]}.json")
            assert made is None or file.stat().st_mtime_ns <= made  # not made again after it was whole
