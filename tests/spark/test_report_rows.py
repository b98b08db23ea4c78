"""Reports on Spark: every number and table of a page is that of the same trace in memory.

A trace is a file, the same at an address with ``file://``, a folder of Hive, a table of the catalogue, and a trace
folder.
"""

import re
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from joining_values import joining_values
from profile_values import assert_same_values, page_values, write_faulty
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import figures, trace
from mudkit.errors import InputMissing
from mudkit.pipeline.summaries import SparkRows
from mudkit.report import joined_sums, open_source
from mudkit.report.joined_messages import Limits
from mudkit.trace.schema import epoch_us
from mudkit.trace.summaries import Lines, in_blocks

pytestmark = pytest.mark.spark

OPTIONS = {"tz": "Europe/Berlin", "box_km": 4.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("cars") / "cars.csv"
    write_faulty(file)
    return file


@pytest.fixture(scope="module")
def here(file):
    return page_values(open_source(str(file), **OPTIONS))


@pytest.mark.soak(keep=1, group="pages on Spark", shared=True)
def test_page_and_map_on_spark_are_those_in_memory(spark, file, here, tmp_path):
    source = open_source(str(file), spark=True, work=tmp_path / "work", **OPTIONS)
    assert_same_values(here, page_values(source))
    assert "computed on Spark" in source.describe()
    pages = [
        re.sub(r"[0-9a-f]{32}", "", figures.density_map(rows).get_root().render())
        for rows in (trace.load(file, **OPTIONS).positions, source.positions)
    ]
    assert pages[0] == pages[1]


def test_blocks_of_time_are_whole_in_a_task(spark, file, tmp_path):
    """Rows soon after a block belong to it, too; a piece that tasks summarise is one block."""
    rows = trace.load(file, **OPTIONS).positions.select(["device", "ts", "lat", "lon"])
    pq.write_table(rows, tmp_path / "rows.parquet")
    edges_us = np.quantile(epoch_us(rows["ts"]), [0.0, 0.2, 0.21, 0.6]).astype(np.int64)
    expected = in_blocks(rows, edges_us, 3_600_000_000)

    def list_ends(piece):
        """Return the blocks of the first and last row of a piece, and its rows."""
        is_known = "block" in piece.table.column_names
        numbers = piece.table["block"].slice(piece.begin).to_pylist() if is_known else []
        ends = {"block": numbers[:1], "last_block": numbers[-1:], "rows": [len(numbers)] if numbers else []}
        return pa.table({name: pa.array(values, pa.int64()) for name, values in ends.items()})

    positions = SparkRows(spark.read.parquet(str(tmp_path / "rows.parquet")), "positions")
    blocks = positions.by_time(edges_us, 3_600_000_000)
    pieces = blocks.summarise({"pieces": partial(Lines, list_ends, ("block",))})["pieces"].to_pandas()
    counts = expected.group_by("block").aggregate([("ts", "count")]).sort_by("block")["ts_count"]
    assert pieces["block"].tolist() == pieces["last_block"].tolist() == [0, 1, 2, 3]
    assert pieces["rows"].tolist() == counts.to_pylist()
    assert pieces["rows"].sum() > len(rows)
    tasks = blocks.frame.select(F.spark_partition_id().alias("task"), "block").distinct().toPandas()
    assert sorted(tasks.set_index("block")["task"]) == [0, 1, 2, 3], "each block has a task of its own"


@pytest.mark.soak
def test_joined_messages_on_spark_are_those_in_memory(spark, file, tmp_path, monkeypatch):
    """Sums of several blocks of time come from tasks; the page says where it was computed."""
    limits = Limits(7200, 20_000.0)
    here = joining_values(open_source(str(file), needs_reads=False, **OPTIONS), limits)
    monkeypatch.setattr(joined_sums, "BLOCK_ROWS", 4000)
    source = open_source(str(file), needs_reads=False, spark=True, work=tmp_path / "work", **OPTIONS)
    assert_same_values(here, joining_values(source, limits))
    assert "computed on Spark (local" in source.describe()


def as_address(spark, file, folder):
    return file.as_uri()


def as_hive_folder(spark, file, folder):
    rows = pd.read_csv(file, dtype=str)  # as written: the parser of numbers errs in the last digit
    for device, part in rows.groupby("device"):
        (folder / f"device={device}").mkdir(parents=True)
        part.drop(columns="device").to_csv(folder / f"device={device}" / "rows.csv", index=False)
    return str(folder)


def as_table(spark, file, folder):
    spark.read.csv(str(file), header=True, inferSchema=False).createOrReplaceTempView("cars_of_report")
    return "cars_of_report"


def as_trace_folder(spark, file, folder):
    trace.load(file, **OPTIONS).save(folder)
    return str(folder)


@pytest.mark.soak(keep=1, group="pages on Spark", shared=True)
@pytest.mark.parametrize("given", [as_address, as_hive_folder, as_table, as_trace_folder])
def test_same_page_of_each_kind_of_trace(spark, file, here, tmp_path, given):
    named = given(spark, file, tmp_path / "given")
    options = {"tz": OPTIONS["tz"]} if given is as_trace_folder else OPTIONS
    source = open_source(named, spark=True, work=tmp_path / "work", **options)
    assert_same_values(here, page_values(source))


@pytest.mark.soak(keep=1, group="pages on Spark", shared=True)
def test_selection_on_spark_is_that_in_memory(spark, file, tmp_path):
    chosen = {"where": "lat > 48.1 AND device != 'car01'", "period": "2023-05-02/2023-05-04"}
    values = [
        page_values(open_source(str(file), **chosen, **place, **OPTIONS))
        for place in ({}, {"spark": True, "work": tmp_path / "work"})
    ]
    assert_same_values(*values)


def test_trace_folder_is_opened_on_spark_for_its_positions_alone(spark, file, tmp_path):
    """A page that needs no reads derives none: of a trace folder it leaves those that are there."""
    folder = as_trace_folder(spark, file, tmp_path / "given")
    here = open_source(folder, needs_reads=False)
    source = open_source(folder, needs_reads=False, spark=True, work=tmp_path / "work")
    assert source.describe().startswith(here.describe())
    assert (source.count, source.read_count) == (here.count, here.read_count)


def test_name_that_is_no_table_is_refused_in_words(spark, tmp_path):
    with pytest.raises(InputMissing, match="no file and no table") as caught:
        open_source("no_such_table_of_cars", spark=True, work=tmp_path / "work", **OPTIONS)
    assert "table of the catalogue" in str(caught.value)
