"""Rows F2 to F4 without Spark; with it they run in tests/spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import EnvironmentProblem
from mudkit.reproduce import lab, lab_spark, row
from mudkit.reproduce.harness import JsonServer
from mudkit.reproduce.lab_spark import F2, F4
from mudkit.reproduce.row import judge


def labelled(*times_s, driver_mb=900.0):
    return [
        {"s": s, "counted": "a", "labels": 9, "mb": {"driver": driver_mb, "workers": 400.0}} for s in times_s
    ]


def test_f2_is_about_pairs_of_runs_after_the_first():
    pairs = list(zip(labelled(50.0, 2.0, 4.0, 3.0), labelled(1.0, 2.0, 1.0, 2.0), strict=True))
    local = {
        "label_reads, shorter trace": labelled(1.0),
        "label_reads": labelled(3.0, 4.0, 2.0),
        "label_reads, longer trace": labelled(30.0, 33.0),
        "label_writes, shorter trace": labelled(1.0),
        "label_writes": labelled(5.0),
        "label_writes, longer trace": labelled(55.0, driver_mb=1500.0),
    }
    sizes = {
        name: row.Figure.of([rows])
        for name, rows in (("positions", 3.7e6), ("reads", 5e4), ("positions, longer trace", 3.7e7))
    }

    def measured():
        return row.Measured(lab_spark._label_figures(pairs, local, local) | sizes, {})

    assert {required.figure for required in F2.required} <= set(measured().figures)
    assert measured().figures["times DuckDB's time"].median == 1.5
    assert measured().figures["times as long, label_reads, longer trace"].high == 11
    assert measured().figures["times as long, label_writes, longer trace"].median == 11
    assert measured().figures["GB of the driver at its peak"].median == 1.5
    assert measured().figures["s, label_writes, two workers"].median == 5
    assert judge(F2, measured())[0] == "reproduced"
    pairs[2][1]["counted"] = "b"
    assert measured().figures["share of runs in which both count the same"].median == 0.75
    assert judge(F2, measured())[0] == "not reproducible"


@pytest.mark.soak
def test_a_side_that_ends_early_says_so(tmp_path):
    with (
        pytest.raises(EnvironmentProblem, match="There is no"),
        JsonServer(lab_spark.serve_duckdb, task=lab_spark._LABELS_TASK) as side,
    ):
        side.ask(("label_reads", str(tmp_path / "nowhere")))


def test_the_digest_does_not_depend_on_order():
    one, two, three = (
        pa.table({"points": points, "read_id": ids})
        for points, ids in (([5, 6], [1, 2]), ([6, 5], [2, 1]), ([6, 5], [1, 2]))
    )
    assert lab_spark._digest(one) == lab_spark._digest(two) != lab_spark._digest(three)


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5]}, 0),
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5 + 1e-15]}, 0),
        ({"a": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5 + 1e-9]}, 1),
        ({"a": [3, 1, 2], "mean_speed_mps": [0.25, 0.5, 1.5]}, 2),
        ({"a": [3, 1], "mean_speed_mps": [0.25, 0.5]}, 1),
        ({"b": [3, 1, 1], "mean_speed_mps": [0.25, 0.5, 1.5]}, 6),
    ],
)
def test_rows_that_differ(other, count):
    one = pa.table({"a": [1, 3, 1], "mean_speed_mps": [0.5, 0.25, 1.5]})
    assert lab_spark.differing(one, pa.table(other)) == count


def test_a_table_that_one_run_lacks_differs(tmp_path):
    for name in ("one/cells-x", "one/label-x", "two/cells-x"):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / name / "part-0.parquet")
    assert lab_spark.differing_rows(tmp_path / "one", tmp_path / "two") == 2
    assert lab_spark.differing_rows(tmp_path / "one", tmp_path / "one") == 0


def test_of_the_labs_rows_all_but_f4_are_of_speed():
    assert [row.name for row in (*lab.ROWS, *lab_spark.ROWS) if not row.is_speed] == [F4.name]


def test_f4_writes_what_the_jobs_read(tmp_path):
    lab_spark.write_source(tmp_path, cars=3, days=1)
    files = sorted((tmp_path / "cabs").iterdir())
    loaded, generated = trace.load(tmp_path / "cabs"), trace.load(tmp_path / "generated")
    assert [file.name for file in files] == [f"new_car-0000{i}.txt" for i in range(3)]
    assert len(loaded.positions) + len(loaded.rejected) == len(generated.positions) + len(files)
    assert len(loaded.rejected) >= len(files)
