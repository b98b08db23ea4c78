"""Zip file from which executors import mudkit, and merging of record batches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import py4j
import pyarrow as pa
import pyspark
import pytest
from spark_cluster import create_bare_python

import mudkit
from mudkit.pipeline import executors
from mudkit.pipeline.executors import merged_batches, package_folder, provide, write_package


@pytest.mark.process
def test_python_imports_mudkit_from_the_zip_file(tmp_path):
    path = write_package(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import mudkit.errors; print(mudkit.errors.__file__)"
    )
    process = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == str(path / "mudkit" / "errors.py")


@pytest.mark.process
def test_executors_need_only_the_listed_packages(tmp_path):
    """Import the pipeline, as unpickling a task does, with the bare Python of the cluster tests."""
    program, packages = create_bare_python(tmp_path / "bare"), tmp_path / "beside"
    packages.mkdir()
    for package in (pyspark, py4j):  # supplied by the executor
        folder = Path(package.__file__).parent
        (packages / folder.name).symlink_to(folder)
    (packages / "mudkit").symlink_to(package_folder())
    names = ("_ingest", "counts", "coverage", "jobs", "labels", "streaming", "tables")
    code = "import " + ", ".join(f"mudkit.pipeline.{name}" for name in names)
    process = subprocess.run(
        [program, "-c", code], env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_package_bytes_are_reproducible(tmp_path):
    (tmp_path / "again").mkdir()
    assert write_package(tmp_path).read_bytes() == write_package(tmp_path / "again").read_bytes()


@pytest.mark.parametrize("version", ["", "0.1.0", mudkit.__version__])
def test_mudkit_is_sent_once_to_executors_that_lack_this_version(version, tmp_path, monkeypatch):
    class Session:
        sent, questions = (), 0

        def addArtifacts(self, path, *, pyfile):
            self.sent = (*self.sent, path)

    def ask(spark):
        spark.questions += 1
        return version

    monkeypatch.setattr(executors, "_version_there", ask)
    monkeypatch.setattr(executors, "work_folder", lambda: tmp_path)
    monkeypatch.setattr(executors, "write_package", lambda folder: folder / "mudkit.zip")
    session = Session()
    provide(session)
    provide(session)
    assert session.sent == ((str(tmp_path / "mudkit.zip"),) if version != mudkit.__version__ else ())
    assert session.questions == 1


def test_package_folder_contains_mudkit():
    assert (package_folder() / "errors.py").is_file()


@pytest.mark.parametrize(
    ("sizes", "min_rows", "lengths"),
    [
        ([], 3, []),
        ([1, 1], 3, [2]),
        ([2, 2, 2], 3, [4, 2]),
        ([5, 1], 3, [5, 1]),
        ([0, 3], 3, [3]),
        ([3, 3], 1, [3, 3]),
    ],
)
def test_batches_are_merged_up_to_the_minimum_length(sizes, min_rows, lengths):
    numbers = iter(range(100))
    batches = [
        pa.record_batch({"n": [next(numbers) for _ in range(size)]}, pa.schema([("n", pa.int64())]))
        for size in sizes
    ]
    result = list(merged_batches(iter(batches), min_rows))
    assert [len(batch) for batch in result] == lengths
    assert [n for batch in result for n in batch["n"].to_pylist()] == list(range(sum(sizes)))


def test_workers_of_an_ingest_load_no_package_that_they_do_not_use():
    """Each new worker loads the module of its tasks: SciPy and sqlglot took half of that time."""
    code = (
        "import sys, mudkit.pipeline._ingest; "
        "print([name for name in ('scipy', 'sqlglot') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
