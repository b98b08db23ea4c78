"""Rows F2 to F4 without Spark; tests/spark runs them with Spark."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import EnvironmentProblem
from mudkit.reproduce import lab, lab_spark, row
from mudkit.reproduce.harness import JsonServer
from mudkit.reproduce.lab_spark import F2, F4
from mudkit.reproduce.row import judge


def make_runs(*times_s, driver_mb=900.0):
    return [
        {"s": s, "counted": "a", "labels": 9, "mb": {"driver": driver_mb, "workers": 400.0}} for s in times_s
    ]


def test_f2_labels_a_tenth_and_ten_times_the_days(monkeypatch):
    """The docstring of `measure_labels`."""
    days = []

    def generate(cars, many, path):
        days.append(many)
        return {"rows": {"positions": 1, "reads": 1}}

    def stop(*_, **__):
        raise StopIteration

    monkeypatch.setattr(lab_spark, "require_peer", lambda *_: None)
    monkeypatch.setattr(lab_spark.trace, "generate", generate)
    monkeypatch.setattr(lab_spark, "JsonServer", stop)
    with pytest.raises(StopIteration):
        lab_spark.measure_labels(cars=5, days=30, times=10)
    assert days == [3, 30, 300]


def test_f2_compares_pairs_of_runs_after_the_first():
    pairs = list(zip(make_runs(50.0, 2.0, 4.0, 3.0), make_runs(1.0, 2.0, 1.0, 2.0), strict=True))
    local = {
        "label_reads, shorter trace": make_runs(1.0),
        "label_reads": make_runs(3.0, 4.0, 2.0),
        "label_reads, longer trace": make_runs(30.0, 33.0),
        "label_writes, shorter trace": make_runs(1.0),
        "label_writes": make_runs(5.0),
        "label_writes, longer trace": make_runs(55.0, driver_mb=1500.0),
    }
    sizes = {
        name: row.Quantity.of([rows])
        for name, rows in (("positions", 3.7e6), ("reads", 5e4), ("positions, longer trace", 3.7e7))
    }

    def measure():
        return row.Measured(lab_spark._label_figures(pairs, local, local) | sizes, {})

    assert {required.quantity for required in F2.required} <= set(measure().quantities)
    assert measure().quantities["times DuckDB's time"].median == 1.5
    assert measure().quantities["times as long, label_reads, longer trace"].high == 11
    assert measure().quantities["times as long, label_writes, longer trace"].median == 11
    assert measure().quantities["GB of the driver at its peak"].median == 1.5
    assert measure().quantities["s, label_writes, two workers"].median == 5
    assert judge(F2, measure())[0] == "reproduced"
    pairs[2][1]["counted"] = "b"
    assert measure().quantities["share of runs in which both count the same"].median == 0.75
    assert judge(F2, measure())[0] == "not reproducible"


def test_f3_measures_imports_after_a_warm_up(monkeypatch):
    """The parameter "import" of row F3."""
    imports, texts = [], []
    start = dict.fromkeys(("import", "session", "job", "action", "python", "again"), 1.0)
    monkeypatch.setattr(
        lab_spark, "subprocess", SimpleNamespace(run=lambda line, check: imports.append(line[2]))
    )
    monkeypatch.setattr(lab_spark, "json_of", lambda *_, **__: start)
    measured = lab_spark.measure_starts(texts.append, runs=2)
    assert imports == ["import mudkit", "pass"] * (1 + 2)
    assert {required.quantity for required in lab_spark.F3.required} <= set(measured.quantities)
    assert texts[-2:] == ["session, Spark Connect, 1 of 2", "session, Spark Connect, 2 of 2"]


def test_f4_names_each_mode_when_it_begins(monkeypatch):
    """A mode takes a minute: the reader sees which one runs."""
    running = []

    @contextmanager
    def local_cluster(workers):
        yield SimpleNamespace(url="spark://here:7077")

    def run_jobs(source, out, place):
        running.append(texts[-1])
        return {"folder": ["worker-0", "worker-1"]}

    monkeypatch.setitem(sys.modules, "mudkit.reproduce.cluster", SimpleNamespace(local_cluster=local_cluster))
    monkeypatch.setattr(lab_spark, "run_jobs", run_jobs)
    monkeypatch.setattr(lab_spark, "write_source", lambda *_: None)
    monkeypatch.setattr(lab_spark, "read_tables", lambda folder: {})
    texts = []
    measured = lab_spark.measure_modes(texts.append)
    assert running == [lab_spark._REFERENCE, lab_spark.LOCAL, lab_spark.CONNECT, lab_spark.CLUSTER]
    assert measured.quantities["executors that took part"].median == 2


@pytest.mark.soak
def test_server_process_that_ends_early_raises_its_error(tmp_path):
    with (
        pytest.raises(EnvironmentProblem, match="There is no"),
        JsonServer(lab_spark.serve_duckdb, task=lab_spark._LABELS_TASK) as server,
    ):
        server.ask(("label_reads", str(tmp_path / "nowhere")))


def test_digest_ignores_row_order_but_not_values():
    one, two, three = (
        pa.table({"points": points, "read_id": ids, "missing": points})
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
def test_differing_rows_are_counted(other, count):
    one = pa.table({"a": [1, 3, 1], "mean_speed_mps": [0.5, 0.25, 1.5]})
    assert lab_spark.count_differing(one, pa.table(other)) == count


def test_rows_of_a_missing_table_are_counted_as_different(tmp_path):
    for name in ("one/cells-x", "one/label-x", "two/cells-x"):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / name / "part-0.parquet")
    assert lab_spark.count_differing_rows(tmp_path / "one", tmp_path / "two") == 2
    assert lab_spark.count_differing_rows(tmp_path / "one", tmp_path / "one") == 0


def test_all_lab_rows_except_f4_measure_speed():
    assert [row.name for row in (*lab.ROWS, *lab_spark.ROWS) if not row.is_speed] == [F4.name]


def test_f4_writes_traces_readable_by_the_jobs(tmp_path):
    lab_spark.write_source(tmp_path, cars=3, days=1)
    files = sorted((tmp_path / "cabs").iterdir())
    loaded, generated = trace.load(tmp_path / "cabs"), trace.load(tmp_path / "generated")
    assert [file.name for file in files] == [f"new_car-0000{i}.txt" for i in range(3)]
    assert len(loaded.positions) + len(loaded.rejected) == len(generated.positions) + len(files)
    assert len(loaded.rejected) >= len(files)
