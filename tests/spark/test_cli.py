"""Pipeline jobs through the command, each in a separate process and session."""

import subprocess
import sys

import pyarrow.dataset as ds
import pytest

from mudkit import trace

pytestmark = pytest.mark.spark


def run_mudkit(*arguments):
    command = [sys.executable, "-m", "mudkit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_command_runs_ingest_cells_and_labels(repository, tmp_path):
    source = repository / "data" / "sample" / "positions.csv.gz"
    options = ("--rule", "trip_start", "--box-km", 4, "--window-s", 600)
    result = run_mudkit("pipeline", "ingest", source, "--out", tmp_path / "trace", *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert "36,031 rows: 36,031 kept, 0 rejected" in result.stdout
    reads_table = trace.load(tmp_path / "trace").reads
    assert [reads_table[name].unique().to_pylist() for name in ("box_km", "window_s")] == [[4.0], [600.0]]
    read_count = len(reads_table)
    assert f"{read_count:,} reads" in result.stdout
    for job in ("cells", "label_reads"):
        result = run_mudkit("pipeline", job, tmp_path / "trace", "--out", tmp_path / job)
        assert (result.returncode, result.stderr) == (0, "")
        table = ds.dataset(tmp_path / job, format="parquet").to_table()
        assert f"{len(table):,} rows" in result.stdout
        assert (
            sum(table["cached_read_id"].is_null().to_pylist()) == read_count
            if job == "label_reads"
            else len(table) > 100
        )
    again = run_mudkit("pipeline", "cells", tmp_path / "trace", "--out", tmp_path / "cells")
    assert again.returncode == 1
    assert "--overwrite" in again.stderr or "overwriting" in again.stderr
