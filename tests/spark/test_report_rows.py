"""The report trace_profile on Spark: every number and table is that of the same trace in memory.

A trace is a file, the same at an address with ``file://``, a folder of Hive, a table of the catalogue, and a trace
folder.
"""

import re

import pandas as pd
import pytest
from profile_values import assert_same_values, page_values, write_faulty

from mudkit import figures, trace
from mudkit.errors import InputMissing
from mudkit.report import open_source

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


def test_page_and_map_on_spark_are_those_in_memory(spark, file, here, tmp_path):
    source = open_source(str(file), spark=True, work=tmp_path / "work", **OPTIONS)
    assert_same_values(here, page_values(source))
    assert "computed on Spark" in source.describe()
    pages = [
        re.sub(r"[0-9a-f]{32}", "", figures.density_map(rows).get_root().render())
        for rows in (trace.load(file, **OPTIONS).positions, source.positions)
    ]
    assert pages[0] == pages[1]


def as_address(spark, file, folder):
    return file.as_uri()


def as_hive_folder(spark, file, folder):
    rows = pd.read_csv(file)
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


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("given", [as_address, as_hive_folder, as_table, as_trace_folder])
def test_same_page_of_each_kind_of_trace(spark, file, here, tmp_path, given):
    named = given(spark, file, tmp_path / "given")
    options = {"tz": OPTIONS["tz"]} if given is as_trace_folder else OPTIONS
    source = open_source(named, spark=True, work=tmp_path / "work", **options)
    assert_same_values(here, page_values(source))


def test_selection_on_spark_is_that_in_memory(spark, file, tmp_path):
    chosen = {"where": "lat > 48.1 AND device != 'car01'", "period": "2023-05-02/2023-05-04"}
    values = [
        page_values(open_source(str(file), **chosen, **place, **OPTIONS))
        for place in ({}, {"spark": True, "work": tmp_path / "work"})
    ]
    assert_same_values(*values)


def test_name_that_is_no_table_is_refused_in_words(spark, tmp_path):
    with pytest.raises(InputMissing, match="no file and no table") as caught:
        open_source("no_such_table_of_cars", spark=True, work=tmp_path / "work", **OPTIONS)
    assert "table of the catalogue" in str(caught.value)
