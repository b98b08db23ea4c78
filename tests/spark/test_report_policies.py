"""The report cache_policy on Spark: every number and table is that of the same trace in memory."""

import pytest
from policy_values import policy_values
from profile_values import assert_same_values

from mudkit import trace
from mudkit.learning import devices, search
from mudkit.report import assuming, batching, open_source

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "cars"
    trace.generate(16, 5, 3, towns=2, path=folder)
    return folder


def as_table(spark, folder):
    """Return a table of the positions; the reads are derived."""
    spark.read.parquet(str(folder / "positions")).select(
        "device", "ts", "lat", "lon"
    ).createOrReplaceTempView("cars_of_policies")
    return "cars_of_policies"


@pytest.mark.soak(keep=1, group="page")
def test_page_on_spark_is_that_in_memory(spark, folder, tmp_path, monkeypatch):
    """Compare what is read, recommended, saved, tried and assumed, with samples of each kind."""
    monkeypatch.setattr(search, "MAX_LEARNT_PAIRS", 100)
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 5)
    monkeypatch.setattr(assuming, "_MAX_READS", 150)
    monkeypatch.setattr(batching, "_MAX_READS", 150)
    here = policy_values(open_source(str(folder)))
    source = open_source(str(folder), spark=True, work=tmp_path / "work")
    assert "computed on Spark" in source.describe()
    assert_same_values(here, policy_values(source))


@pytest.mark.soak(keep=1, group="page")
@pytest.mark.parametrize("folds", ["device", "time"])
def test_page_of_a_table_is_that_of_its_file(spark, folder, tmp_path, folds):
    table = as_table(spark, folder)
    file = tmp_path / "cars.parquet"
    spark.table(table).coalesce(1).write.parquet(str(file))
    limits = {"folds": folds, "max_stale": 0.05}
    here = policy_values(open_source(str(next(file.glob("*.parquet")))), **limits)
    source = open_source(table, spark=True, work=tmp_path / "work")
    assert_same_values(here, policy_values(source, **limits))
