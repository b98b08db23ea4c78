"""Inputs of an ingest: the same rows, reasons and reads in whatever form they are given."""

import pandas as pd
import pytest

from mudkit import pipeline, trace
from mudkit.errors import OutputExists, ParameterError, TraceFormatError
from mudkit.pipeline import inputs
from mudkit.trace.schema import REJECTED

pytestmark = pytest.mark.spark
T0 = 1_211_100_000
NAMES = ["cab", "t", "lat", "lon", "occ"]
ROWS = [
    (cab, f"{T0 + 3600 * hour + 60 * i}", f"{37 + i / 1000}", "-122.4", f"{i % 2}")
    for cab in ("a", "b", "c", "dé")
    for hour in (0, 20)
    for i in range(30)
]
ROWS[3] = ("a", "x", "37", "-122", "0")
ROWS[5] = ("a", f"{T0 + 300}", "50", "-122.4", "1")
ROWS += [ROWS[7], ("", f"{T0}", "37", "-122.4", "0"), ("c", f"{T0 - 5}", "37", "-122.4", "0")]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows as a CSV file, in a folder with nothing else."""
    file = tmp_path_factory.mktemp("rows") / "cabs.csv"
    file.write_text("\n".join(map(",".join, [NAMES, *ROWS])) + "\n", encoding="utf-8")
    return file


def tables(loaded):
    """Return the tables of a trace; rejected rows without their places in files."""
    names = [name for name in REJECTED.names if name not in ("source", "row", "raw")]
    rejected = loaded.rejected.select(names).sort_by([("reason", "ascending"), ("device", "ascending")])
    return loaded.positions, loaded.reads.sort_by("read_id"), rejected


@pytest.fixture(scope="module")
def forms(spark, rows):
    """The forms in which the rows may be given, by name."""
    folder = rows.parent
    frame = spark.createDataFrame(pd.DataFrame(ROWS, columns=NAMES)).repartition(3)
    frame.createOrReplaceTempView("cabs_view")
    frame.write.mode("overwrite").saveAsTable("cabs_table")
    nested = frame.selectExpr("cab", "t", "struct(lat, lon) AS at", "occ")
    mapped = {"columns": {"device": "cab", "ts": "t", "lat": "at.lat", "lon": "at.lon", "occupied": "occ"}}
    parts = folder / "parts"
    for cab in ("a", "b", "c", "dé", ""):
        of_cab = pd.DataFrame([row for row in ROWS if row[0] == cab], columns=NAMES)
        place = parts / f"city=x/cab{ord(cab[:1] or '0')}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        of_cab.to_csv(place, index=False)
    hive = folder / "hive"
    frame.where("cab <> ''").write.partitionBy("cab").option("header", True).csv(str(hive))
    yield {
        "address": (f"file://{rows}", {}),
        "pattern": (str(parts / "*" / "cab*.csv"), {}),
        "list": (sorted(parts.rglob("*.csv")), {}),
        "folder": (parts, {}),
        "DataFrame": (frame, {}),
        "struct": (nested, mapped),
        "view": ("cabs_view", {}),
        "table": ("cabs_table", {}),
        "pandas": (pd.DataFrame(ROWS, columns=NAMES), {}),
        "hive": (hive, {"columns": {"device": "cab", "ts": "t", "occupied": "occ"}}),
    }
    spark.sql("DROP TABLE cabs_table")


FORMS = ("address", "pattern", "list", "folder", "DataFrame", "struct", "view", "table", "pandas", "hive")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.soak(keep=3, group="forms of an input")
def test_rows_are_the_same_in_each_form(spark, rows, forms, tmp_path, form):
    given, options = forms[form]
    report = pipeline.ingest(spark, given, tmp_path / "out", **options)
    expected = trace.load(rows)
    positions, reads, rejected = tables(expected)
    if form == "hive":  # a row without a device is in no folder
        rejected = rejected.filter([reason != "no device" for reason in rejected["reason"].to_pylist()])
    assert tables(trace.load(tmp_path / "out")) == (positions, reads, rejected)
    assert report.rows == len(positions) + len(rejected)


def test_large_file_is_parsed_in_segments(spark, rows, tmp_path, monkeypatch):
    """Rows keep their numbers in the file."""
    monkeypatch.setattr(inputs, "_MIN_BYTES", 1000)
    report = pipeline.ingest(spark, rows, tmp_path / "out")
    assert report.parts > 8
    expected, stored = trace.load(rows), trace.load(tmp_path / "out")
    assert tables(stored) == tables(expected)
    key = [("source", "ascending"), ("row", "ascending")]
    assert stored.rejected.sort_by(key) == expected.rejected.sort_by(key)


def test_only_large_files_are_counted_before_they_are_parsed(spark, rows, tmp_path, monkeypatch):
    """A folder may hold many thousand small files beside a large one."""
    folder = tmp_path / "cabs"
    folder.mkdir()
    (folder / "m.csv").write_bytes(rows.read_bytes())
    for n in range(40):
        (folder / f"{'az'[n % 2]}{n}.csv").write_text(",".join(NAMES) + f"\nsmall{n},{T0},37,-122.4,0\n")
    monkeypatch.setattr(inputs, "_MIN_BYTES", 2000)
    report = pipeline.ingest(spark, folder, tmp_path / "out")
    assert report.parts < 40  # a count of each would be 40 parts more
    assert tables(trace.load(tmp_path / "out")) == tables(trace.load(folder))


def test_zone_of_some_times_counts_for_all_rows_of_a_table(spark, tmp_path):
    texts = [f"2024-07-01 08:{n:02}:00" for n in range(29)] + [
        f"2024-07-01T08:{n}:00Z" for n in range(29, 59)
    ]
    frame = pd.DataFrame(
        {"device": "ann", "ts": texts, "lat": [47 + n / 1000 for n in range(59)], "lon": 8.0}
    )
    report = pipeline.ingest(spark, spark.createDataFrame(frame).repartition(4), tmp_path / "out")
    assert (
        report.rejected
        == trace.load(frame).rejected_by_reason()
        == {"local time among times with a zone": 29}
    )


def test_table_is_read_anew_by_each_call(spark, rows, tmp_path):
    """A table may have changed since the last call, and nothing tells whether it has."""
    frame = spark.read.csv(str(rows), header=True)
    pipeline.ingest(spark, frame, tmp_path / "out")
    with pytest.raises(OutputExists):
        pipeline.ingest(spark, frame, tmp_path / "out")
    half = frame.where("cab < 'c'")
    report = pipeline.ingest(spark, half, tmp_path / "out", overwrite=True)
    assert report.rows == half.count()


def test_tables_that_cannot_be_read_are_refused(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trips").write_text("device,ts,lat,lon\n")
    spark.range(1).createOrReplaceTempView("trips")
    with pytest.raises(ParameterError, match="Both a table and a file are named trips"):
        pipeline.ingest(spark, "trips", "out")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ParameterError, match="A stream has no end"):
        pipeline.ingest(spark, stream, "out")
    with pytest.raises(TraceFormatError, match="lacks columns"):
        pipeline.ingest(spark, spark.range(3), "out")
    frame = spark.sql("SELECT 'a' device, map('x', 1) ts, 47.0 lat, 8.0 lon")
    with pytest.raises(TraceFormatError, match="has a type that is not read") as caught:
        pipeline.ingest(spark, frame, "out")
    assert caught.value.found == "map<string,int>"
    late = spark.sql("SELECT 'a' device, 'soon' ts, 47.0 lat, 8.0 lon FROM range(5)")
    with pytest.raises(TraceFormatError, match="cannot be read"):
        pipeline.ingest(spark, late, "out")
    assert not (tmp_path / "out").exists()
