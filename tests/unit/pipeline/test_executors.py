"""The zip file that executors import mudkit from, and batches that are merged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import py4j
import pyarrow as pa
import pyspark
import pytest
from spark_cluster import bare_python

from mudkit.pipeline.executors import merged_batches, package_folder, write_package


@pytest.mark.process
def test_python_imports_mudkit_from_the_zip_file(tmp_path):
    path = write_package(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import mudkit.errors; print(mudkit.errors.__file__)"
    )
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(path / "mudkit" / "errors.py")


@pytest.mark.process
def test_executors_need_no_more_packages_than_are_listed(tmp_path):
    """What a task unpickles imports the pipeline: all that the bare Python of the cluster's tests has must do."""
    program, beside = bare_python(tmp_path / "bare"), tmp_path / "beside"
    beside.mkdir()
    for package in (pyspark, py4j):  # come with the executor
        folder = Path(package.__file__).parent
        (beside / folder.name).symlink_to(folder)
    (beside / "mudkit").symlink_to(package_folder())
    names = ("_ingest", "counts", "coverage", "jobs", "labels", "streaming", "tables")
    code = "import " + ", ".join(f"mudkit.pipeline.{name}" for name in names)
    said = subprocess.run(
        [program, "-c", code], env={"PYTHONPATH": str(beside)}, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr


def test_the_same_files_give_the_same_bytes(tmp_path):
    (tmp_path / "again").mkdir()
    assert write_package(tmp_path).read_bytes() == write_package(tmp_path / "again").read_bytes()


def test_the_folder_is_the_packages_own():
    assert (package_folder() / "errors.py").is_file()


@pytest.mark.parametrize(
    ("sizes", "least", "lengths"),
    [
        ([], 3, []),
        ([1, 1], 3, [2]),
        ([2, 2, 2], 3, [4, 2]),
        ([5, 1], 3, [5, 1]),
        ([0, 3], 3, [3]),
        ([3, 3], 1, [3, 3]),
    ],
)
def test_tables_have_so_many_rows_at_least(sizes, least, lengths):
    numbers = iter(range(100))
    batches = [
        pa.record_batch({"n": [next(numbers) for _ in range(size)]}, pa.schema([("n", pa.int64())]))
        for size in sizes
    ]
    result = list(merged_batches(iter(batches), least))
    assert [len(each) for each in result] == lengths
    assert [n for each in result for n in each["n"].to_pylist()] == list(range(sum(sizes)))
