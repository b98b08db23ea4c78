"""The report cache_policy on Spark: every number and table is that of the same trace in memory."""

import policy_values as values
import pytest
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


@pytest.fixture
def small_samples(monkeypatch):
    """Draw samples of each kind also from a small trace."""
    monkeypatch.setattr(search, "MAX_LEARNT_PAIRS", 100)
    monkeypatch.setattr(devices, "_MIN_LEARNT_DEVICES", 5)
    monkeypatch.setattr(assuming, "_MAX_READS", 150)
    monkeypatch.setattr(batching, "_MAX_READS", 150)


def as_table(spark, folder):
    """Return a table of the positions; the reads are derived."""
    spark.read.parquet(str(folder / "positions")).select(
        "device", "ts", "lat", "lon"
    ).createOrReplaceTempView("cars_of_policies")
    return "cars_of_policies"


PARTS = {
    "reads": lambda source: values.read_values(values.study_reads(source)),
    "assumptions": lambda source: values.assumed_values(values.study_reads(source)),
    "writes": lambda source: values.write_values(values.study_writes(source)),
}


@pytest.mark.soak(keep=1, group="pages on Spark", shared=True)
@pytest.mark.parametrize("part", PARTS)
def test_part_of_the_page_on_spark_is_that_in_memory(spark, folder, tmp_path, small_samples, part):
    """Compare a part, for which Spark runs about thirty jobs; a page takes a hundred."""
    here = PARTS[part](open_source(str(folder)).with_whole_windows())
    source = open_source(str(folder), spark=True, work=tmp_path / "work")
    assert "computed on Spark" in source.describe()
    assert_same_values(here, PARTS[part](source.with_whole_windows()))


@pytest.mark.soak
def test_page_on_spark_is_that_in_memory(spark, folder, tmp_path, small_samples):
    """Compare what is read, recommended, saved, tried and assumed."""
    here = values.policy_values(open_source(str(folder)))
    source = open_source(str(folder), spark=True, work=tmp_path / "work")
    assert_same_values(here, values.policy_values(source))


@pytest.mark.soak
@pytest.mark.parametrize("folds", ["device", "time"])
def test_page_of_a_table_is_that_of_its_file(spark, folder, tmp_path, folds):
    table = as_table(spark, folder)
    file = tmp_path / "cars.parquet"
    spark.table(table).coalesce(1).write.parquet(str(file))
    limits = {"folds": folds, "max_stale": 0.05}
    here = values.policy_values(open_source(str(next(file.glob("*.parquet")))), **limits)
    source = open_source(table, spark=True, work=tmp_path / "work")
    assert_same_values(here, values.policy_values(source, **limits))
