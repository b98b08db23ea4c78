"""Ingest on Spark: equal to trace.load in rows, order, reasons and reads."""

from collections import Counter

import pyarrow as pa
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


def test_ingest_equals_load(spark, csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    loaded = trace.load(file)
    report = pipeline.ingest(spark, file, tmp_path / "out")
    assert_same(tmp_path / "out", loaded)
    assert (report.rows, report.kept, report.reads) == (55, 53, len(loaded.reads))
    assert report.rejected == {"time that cannot be read": 1, "speed over 70 m/s": 1}
    assert sorted(p.name for p in (tmp_path / "out" / "positions").glob("date=*")) == [
        "date=2008-05-18",
        "date=2008-05-19",
    ]


def test_ingest_of_nested_folders_equals_load(spark, tmp_path):
    """Read devices from paths; count a file without rows, local times among zoned ones, and other files."""
    for cab, zone in (("a", ""), ("b", "Z"), ("c", "Z")):
        lines = [f"2008-05-18 08:0{i}:00{zone},{37 + i / 1000},-122.4" for i in range(9)]
        file = tmp_path / "cabs" / f"cab={cab}" / "0.csv"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(["time,lat,lon", *lines, ""]))
    (tmp_path / "cabs" / "cab=b" / "1.csv").touch()
    (tmp_path / "cabs" / "notes.txt").touch()
    report = pipeline.ingest(spark, tmp_path / "cabs", tmp_path / "out")
    assert_same(tmp_path / "out", trace.load(tmp_path / "cabs"))
    assert report.rejected == {"local time among times with a zone": 9, "file without rows": 1}
    assert (report.kept, report.passed_over) == (18, "1 .txt")


def test_ingest_of_original_files_equals_load(spark, tmp_path):
    folder = tmp_path / "cabs"
    folder.mkdir()
    for cab in "abc":
        lines = [" ".join((r.split(",") * 2)[i] for i in (2, 3, 4, 1)) for r in ROWS if r.startswith(cab)]
        (folder / f"new_{cab}.txt").write_text("\n".join(lines[::-1]) + "\n")
    pipeline.ingest(spark, folder, tmp_path / "out")
    assert_same(tmp_path / "out", trace.load(folder))


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (
            "sep=;\nDate;Time;lat;lon\n"
            + "".join(f"2023-11-14;12:{i:02}:00;47,00{i % 7};8,5\n" for i in range(20))
            + "2023-11-14;noon;47;8\n",
            {"device": "ann", "tz": "Europe/Zurich"},
        ),
        (
            "".join(f'a, "{T0 + i}", 47.00{i % 7}, 8.5\n' for i in range(20)) + "a\n",
            {"header": False, "columns": {"device": 1, "ts": 2, "lat": 3, "lon": 4}},
        ),
    ],
)
def test_ingest_of_tables_in_other_forms_equals_load(spark, tmp_path, content, options):
    file = tmp_path / "t.csv"
    file.write_text(content, encoding="utf-16")
    report = pipeline.ingest(spark, file, tmp_path / "out", **options)
    assert_same(tmp_path / "out", trace.load(file, **options))
    assert (report.rows, report.kept) == (21, 20)


def test_two_ingests_of_parts_equal_one_of_the_whole(spark, csv_file, tmp_path):
    def concatenate(table):
        pieces = [getattr(trace.load(tmp_path / name), table) for name in ("one", "two")]
        return pa.concat_tables(pieces).sort_by([("device", "ascending"), ("ts", "ascending")])

    pipeline.ingest(spark, csv_file("cab,t,lat,lon,occ", ROWS), tmp_path / "whole")
    for name, cabs in (("one", "a"), ("two", "bc")):
        pipeline.ingest(
            spark, csv_file("cab,t,lat,lon,occ", [row for row in ROWS if row[0] in cabs]), tmp_path / name
        )
    whole = trace.load(tmp_path / "whole")
    assert concatenate("positions").equals(whole.positions)
    assert concatenate("reads").equals(whole.reads.sort_by([("device", "ascending"), ("ts", "ascending")]))
    counts = [trace.load(tmp_path / name).rejected_by_reason() for name in ("one", "two")]
    assert Counter(counts[0]) + Counter(counts[1]) == whole.rejected_by_reason()


def test_small_files_are_grouped_into_parts(spark, tmp_path):
    folder = tmp_path / "geolife"
    head = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
    for user in range(5):
        for track in range(30):
            file = folder / "Data" / f"{user:03d}" / "Trajectory" / f"{track:02d}.plt"
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = [
                f"39.9,{116.3 + i / 10000},0,492,39744.1,2008-10-{track + 1:02d},0{user}:00:{10 + i}"
                for i in range(5)
            ]
            file.write_text(head + "\n".join(lines) + "\n")
    report = pipeline.ingest(spark, folder, tmp_path / "out")
    assert_same(tmp_path / "out", trace.load(folder))
    assert 35 <= report.parts <= 78  # 150 files, two buckets, one part that merges


def test_check_ins_are_recognised_as_reads(spark, tmp_path):
    file = tmp_path / "checkins.txt"
    file.write_text(
        "".join(
            f"{user}\t2010-10-1{user}T23:55:27Z\t30.2359091167\t-97.7951395833\t22847\n" for user in range(5)
        )
    )
    report = pipeline.ingest(spark, file, tmp_path / "out")
    assert_same(tmp_path / "out", trace.load(file))
    assert (report.rows, report.kept, report.reads) == (5, 5, 5)


def test_access_log_is_ingested_as_reads(spark, csv_file, tmp_path):
    rows = [f"{u},{T0 + i % 5},1,2" for u in "ab" for i in range(7)]
    file = csv_file("user,time,lat,lon", rows)
    pipeline.ingest(spark, file, tmp_path / "out", table="reads", box_km=5)
    assert_same(tmp_path / "out", trace.load(file, table="reads", box_km=5))


def test_repeated_ingest_is_free_and_a_different_one_is_refused(spark, csv_file, tmp_path):
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
    ("header", "rows", "kind", "message"),
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
def test_invalid_files_leave_no_output(spark, csv_file, tmp_path, header, rows, kind, message):
    with pytest.raises(kind, match=message):
        pipeline.ingest(spark, csv_file(header, rows), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]


def test_truncated_file_leaves_no_output(spark, csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", ROWS * 2000, "cabs.csv.gz")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TraceFormatError, match="cut short"):
        pipeline.ingest(spark, file, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["cabs.csv.gz"]
