"""Outputs in any format and table: the same rows, by date, in no more files than the dates need."""

import json
from collections import Counter

import pyarrow.dataset as ds
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import pipeline, trace
from mudkit.errors import EnvironmentProblem, OutputExists, OutputProblem, ParameterError
from mudkit.pipeline import outputs

pytestmark = pytest.mark.spark
T0 = 1_211_100_000
ROWS = [
    f"{cab},{T0 + 40_000 * day + 60 * i},{37 + i / 1000},-122.4,{i % 2}"
    for cab in "abcd"
    for day in range(4)
    for i in range(50)
]
DATES = ["2008-05-18", "2008-05-19"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    file = tmp_path_factory.mktemp("outputs") / "cabs.csv"
    file.write_text("\n".join(["cab,t,lat,lon,occ", *ROWS]) + "\n")
    return file


@pytest.fixture(scope="module")
def folder(spark, source):
    pipeline.ingest(spark, source, source.parent / "trace", rule="occupancy")
    return source.parent / "trace"


@pytest.fixture
def database(spark):
    """Create a database for the tables of a test, and drop it."""
    spark.sql("CREATE DATABASE lake")
    yield "lake"
    spark.sql("DROP DATABASE lake CASCADE")


def read_back(spark, folder, format, schema):  # noqa: A002
    """Read a folder as Spark does, without the names of mudkit."""
    reader = spark.read.schema(schema).format(format)
    return (reader.option("header", True) if format == "csv" else reader).load(str(folder))


def rows_of(frame):
    """Count the rows of a frame, without its dates."""
    columns = sorted(set(frame.columns) - {"date"})
    return Counter(map(tuple, frame.select(*columns).collect()))


def dates_of(out, ending):
    """Return the number of files of each date that the manifest names, which are all in the folder."""
    manifest = json.loads((out / "_manifest.json").read_text())
    names = [file["name"] for file in manifest["files"]]
    assert {str(path.relative_to(out)) for path in out.rglob(f"part-*.{ending}")} == {*names}
    assert sum(file["rows"] for file in manifest["files"]) == manifest["rows"]
    return Counter(name.partition("/")[0] for name in names)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "json"])
def test_files_of_each_format_have_the_rows_by_date(spark, folder, tmp_path, format):  # noqa: A002
    """66: `out=`: any format, partitioned by date, compacted: no more files than partitions need."""
    horizon_s = 50_000.0  # a read has earlier reads of another date, which is another part
    report = pipeline.run_job(
        spark, "label_reads", folder, pipeline.Files(tmp_path / "out", format), dates=1, horizon_s=horizon_s
    )
    positions, reads = (pipeline.read(spark, folder, name) for name in ("positions", "reads"))
    labels = pipeline.label_reads(positions, reads, horizon_s=horizon_s).join(
        reads.select("read_id", "ts"), "read_id"
    )
    assert dates_of(tmp_path / "out", format) == dict.fromkeys((f"date={date}" for date in DATES), 1)
    stored = read_back(spark, tmp_path / "out", format, labels.schema.simpleString()[7:-1].replace(":", " "))
    assert rows_of(stored) == rows_of(labels)
    assert report.rows == stored.count() > 100
    with pytest.raises(OutputExists):
        pipeline.run_job(spark, "cells", folder, pipeline.Files(tmp_path / "out", format))
    assert pipeline.write(spark.range(3), pipeline.Files(tmp_path / "out", "json"), overwrite=True) == 3
    assert dates_of(tmp_path / "out", "json").total() == 1
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == []


def test_ingest_writes_its_tables_in_another_format(spark, source, folder, tmp_path):
    """Other programs read them, and mudkit as any folder of files; a trace folder is of Parquet."""
    out = pipeline.Files(tmp_path / "out", "csv")
    report = pipeline.ingest(spark, source, out, rule="occupancy")
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert [file["name"].split("/")[1] for file in manifest["files"]["positions"]] == [
        f"date={date}" for date in DATES
    ]
    assert (report.path, report.kept) == (tmp_path / "out", manifest["rows"]["positions"])
    assert not trace.is_trace(tmp_path / "out")
    assert trace.load(tmp_path / "out" / "positions", rule="none").positions.equals(
        trace.load(folder).positions
    )
    assert pipeline.ingest(spark, source, out, rule="occupancy").duration_s == 0
    with pytest.raises(OutputExists):
        pipeline.ingest(spark, source, out, rule="none")


@pytest.mark.soak(keep=1, group="tables")
def test_table_is_replaced_and_never_has_rows_twice(spark, folder, tmp_path, database, monkeypatch):
    """A job that is repeated after a kill writes no row twice; rows are counted by reading them back."""
    table = pipeline.Table(f"{database}.counts", "orc", work=tmp_path / "work")

    def run(**options):
        return pipeline.run_job(spark, "label_writes", folder, table, dates=1, **options)

    direct = rows_of(
        pipeline.label_writes(*(pipeline.read(spark, folder, name) for name in ("positions", "reads")))
    )
    put = outputs.put_rows
    with monkeypatch.context() as patch:  # before its rows are put, and after they were, before they count
        patch.setattr(outputs, "put_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run()

    def put_and_stop(spark, table, *arguments):
        put(spark, table, *arguments)
        spark.sql(f"ALTER TABLE {table.quoted} UNSET TBLPROPERTIES ('mudkit_rows')")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "put_rows", put_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run()
    with monkeypatch.context() as patch:  # what was counted is not counted again
        patch.setattr("mudkit.pipeline.jobs.write_frame", lambda *_: pytest.fail("parts are finished"))
        report = run()
    assert (report.path, report.rows) == (table, direct.total())
    assert rows_of(spark.table("lake.counts")) == direct
    assert [
        row.date.isoformat()
        for row in spark.sql("SELECT DISTINCT date FROM lake.counts ORDER BY 1").collect()
    ] == DATES
    assert len(spark.table("lake.counts").inputFiles()) == len(DATES)
    assert list((tmp_path / "work").iterdir()) == []
    with pytest.raises(OutputExists, match=r"table or view named lake\.counts"):
        run()
    assert run(overwrite=True).rows == direct.total()
    assert rows_of(spark.table("lake.counts")) == direct
    # Other columns: the table is made again.
    assert pipeline.write(spark.range(7), pipeline.Table("lake.counts"), overwrite=True) == 7
    assert spark.table("lake.counts").columns == ["id"]


@pytest.mark.soak(keep=1, group="tables")
def test_ingest_makes_three_tables(spark, source, folder, database):
    report = pipeline.ingest(spark, source, pipeline.Table("lake.cabs"), rule="occupancy")
    assert str(report.path) == "the table lake.cabs"
    for name in ("positions", "reads", "rejected"):
        stored = pipeline.read(spark, folder, name)
        assert rows_of(spark.table(f"lake.cabs_{name}")) == rows_of(stored)
    labels = pipeline.label_reads(spark.table("lake.cabs_positions"), spark.table("lake.cabs_reads"))
    assert labels.count() > 100
    # A table is a source, too.
    again = pipeline.ingest(spark, "lake.cabs_positions", pipeline.Table("lake.again"), rule="none")
    assert again.kept == report.kept


def test_outputs_that_cannot_be_written_are_refused(spark, folder, tmp_path, database):
    frame = spark.range(3).withColumn("ts", F.timestamp_seconds("id"))
    frame.createOrReplaceTempView("seen")
    spark.range(1).write.saveAsTable("lake.mine")
    nested = frame.withColumn("pair", F.array("id"))
    dated = frame.withColumn("date", F.lit("today"))
    out = tmp_path / "out"
    for rows, output, kind, message in (
        (frame, pipeline.Files(out, "avro"), ParameterError, "format avro"),
        (nested, pipeline.Files(out, "csv"), ParameterError, "no form in CSV"),
        (frame, pipeline.Files(out, date_of="id"), ParameterError, "no dates"),
        (frame, pipeline.Files(out, date_of="day"), ParameterError, "no dates"),
        (dated, pipeline.Files(out), ParameterError, "column named date"),
        (frame, pipeline.Table("out/cells"), ParameterError, "no name of a table"),
        (frame, pipeline.Table("lake.mine"), OutputExists, "table or view"),
        (frame, pipeline.Table("seen"), OutputExists, "table or view"),
        (frame, pipeline.Table("nowhere.cells"), OutputProblem, "could not be written"),
        (frame, pipeline.Table("lake.new", "delta"), EnvironmentProblem, "no tables of the format delta"),
    ):
        with pytest.raises(kind, match=message) as caught:
            pipeline.write(rows, output, overwrite=True)
        assert caught.value.found, message
        assert caught.value.expected, message
    bad = spark.range(5).select(F.raise_error(F.lit("bad row")).cast("long").alias("id"))
    with pytest.raises(Exception, match="bad row"):
        pipeline.write(bad, pipeline.Table("lake.new"))
    assert [table.name for table in spark.catalog.listTables("lake") if not table.isTemporary] == ["mine"]
    assert spark.table("lake.mine").count() == 1
    assert not out.exists()


def test_dates_are_those_of_utc_and_of_a_column_of_dates(spark, tmp_path):
    """Rows without a time are in the folder that Hive names so."""
    frame = spark.sql(
        "SELECT * FROM VALUES (1, TIMESTAMP '2008-05-18 23:59:59+00:00', DATE '2008-01-01'),"
        " (2, TIMESTAMP '2008-05-19 00:00:00+00:00', NULL), (3, NULL, DATE '1969-12-31') AS t (id, ts, date)"
    ).repartition(3)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        pipeline.write(frame.drop("date"), pipeline.Files(tmp_path / "ts"))
        pipeline.write(frame, pipeline.Files(tmp_path / "date", date_of="date"))
        pipeline.write(frame, pipeline.Files(tmp_path / "flat", date_of=""))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    for name, dates in (
        ("ts", ["2008-05-18", "2008-05-19", "__HIVE_DEFAULT_PARTITION__"]),
        ("date", ["2008-01-01", "__HIVE_DEFAULT_PARTITION__", "1969-12-31"]),
    ):
        table = ds.dataset(tmp_path / name, format="parquet", partitioning=None).to_table()
        assert "date" not in table.column_names
        assert dict(zip(table["id"].to_pylist(), [None] * 3, strict=True)) == dict.fromkeys((1, 2, 3))
        for number, date in enumerate(dates, 1):
            of_date = ds.dataset(tmp_path / name / f"date={date}", partitioning=None).to_table()
            assert of_date["id"].to_pylist() == [number]
    assert len(list((tmp_path / "flat").glob("*.parquet"))) == 1
