"""ingest on Spark gives what trace.load gives in memory: rows, order, reasons, reads."""

import pytest

from mudkit import pipeline, trace
from mudkit.errors import OutputExists, TraceContentError, TraceFormatError

pytestmark = pytest.mark.spark
T0 = 1_211_100_000
ROWS = [
    f"{cab},{T0 + 3600 * hour + 60 * i},{37 + i / 1000},-122.4,{i % 2}"
    for cab in ("a", "b", "c")
    for hour in (0, 20)
    for i in range(9)
]
ROWS[3] = "a,x,37,-122,0"
ROWS[5] = f"a,{T0 + 300},50,-122.4,1"
ROWS.append(f"c,{T0 - 5},37,-122.4,0")


def assert_same(folder, loaded):
    stored = trace.load(folder)
    assert stored.positions.equals(loaded.positions)
    assert stored.reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    key = [("source", "ascending"), ("row", "ascending")]
    assert stored.rejected.sort_by(key).equals(loaded.rejected.sort_by(key))
    assert stored.source["rejected"] == loaded.rejected_by_reason()
    assert stored.source["rows"] == {
        name: len(getattr(loaded, name)) for name in ("positions", "reads", "rejected")
    }


def test_same_as_load(spark, csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    loaded = trace.load(file)
    report = pipeline.ingest(spark, file, tmp_path / "out")
    assert_same(tmp_path / "out", loaded)
    assert (report.rows, report.kept, report.reads) == (55, 52, len(loaded.reads))
    assert report.rejected == {"unparsable": 1, "speed over 70 m/s": 1, "out of order": 1}
    assert sorted(p.name for p in (tmp_path / "out" / "positions").glob("date=*")) == [
        "date=2008-05-18",
        "date=2008-05-19",
    ]


def test_original_files_one_a_task(spark, tmp_path):
    folder = tmp_path / "cabs"
    folder.mkdir()
    for cab in "abc":
        lines = [" ".join((r.split(",") * 2)[i] for i in (2, 3, 4, 1)) for r in ROWS if r.startswith(cab)]
        (folder / f"new_{cab}.txt").write_text("\n".join(lines[::-1]) + "\n")
    pipeline.ingest(spark, folder, tmp_path / "out")
    assert_same(tmp_path / "out", trace.load(folder))


def test_access_log(spark, csv_file, tmp_path):
    rows = [f"{u},{T0 + i % 5},1,2" for u in "ab" for i in range(7)]
    file = csv_file("user,time,lat,lon", rows)
    pipeline.ingest(spark, file, tmp_path / "out", table="reads", box_km=5)
    assert_same(tmp_path / "out", trace.load(file, table="reads", box_km=5))


def test_the_same_again_costs_nothing_and_something_else_is_refused(spark, csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    first = pipeline.ingest(spark, file, tmp_path / "out")
    before = (tmp_path / "out" / "trace.json").stat().st_mtime_ns
    again = pipeline.ingest(spark, file, tmp_path / "out")
    assert again.duration_s == 0
    assert (again.rows, again.rejected) == (first.rows, first.rejected)
    assert (tmp_path / "out" / "trace.json").stat().st_mtime_ns == before
    with pytest.raises(OutputExists):
        pipeline.ingest(spark, file, tmp_path / "out", rule="none")
    assert pipeline.ingest(spark, file, tmp_path / "out", rule="none", overwrite=True).reads == 0


@pytest.mark.parametrize(
    ("header", "rows", "kind", "says"),
    [
        (
            "cab,t,lat,lon,occ",
            [r.replace(str(T0)[:4], str(T0)[:4] + "000") for r in ROWS],
            TraceFormatError,
            "unit",
        ),
        ("cab,t,lon,lat,occ", ROWS, TraceFormatError, "exchanged"),
        ("cab,t,lat,lon,occ", [], TraceContentError, "no rows"),
        ("cab,t,lat,lon,occ", ROWS[:1], TraceContentError, "more than one position"),
        ("cab,t,lat", ROWS, TraceFormatError, "lon"),
    ],
)
def test_bad_files_leave_nothing(spark, csv_file, tmp_path, header, rows, kind, says):
    with pytest.raises(kind, match=says):
        pipeline.ingest(spark, csv_file(header, rows), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]


def test_a_file_that_breaks_off_inside_a_task(spark, csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", ROWS * 2000, "cabs.csv.gz")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TraceFormatError, match="cut short"):
        pipeline.ingest(spark, file, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["cabs.csv.gz"]
