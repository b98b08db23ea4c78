"""Public data sets: GeoLife, Gowalla, Brightkite, Foursquare, T-Drive, Porto."""

import gzip

import pytest
from trace_samples import SAMPLES

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.options import Options
from mudkit.trace.parse import FIELDS

HEADER = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
EARLIER = [
    "39.984702,116.318417,0,492,39744.1201851852,2008-10-23,02:53:04",
    "39.984683,116.31845,0,-777,39744.1202546296,2008-10-23,02:53:10",
]
LATER = ["39.984686,116.318417,0,492,39744.1203125,2008-10-24,02:53:15"]


def encode_plt(rows, end="\r\n"):
    return (HEADER.replace("\n", end) + end.join(rows) + end).encode()


@pytest.fixture
def geolife(tmp_path):
    """Write the folder of two users, one with two trajectories, and files to ignore."""
    for user, name, rows in (
        ("000", "20081023025304.plt", EARLIER),
        ("000", "20081024025315.plt", LATER),
        ("001", "20081023025304.plt", [*EARLIER, "39.98,116.3,0,492,39744,2008-10-23", *LATER]),
    ):
        place = tmp_path / "Geolife" / "Data" / user / "Trajectory"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(encode_plt(rows))
    (tmp_path / "Geolife" / "Data" / "001" / "labels.txt").write_text("Start Time\tEnd Time\tMode\n")
    (tmp_path / "Geolife" / "Data" / "001" / "Trajectory" / "._20081023025304.plt").write_bytes(b"\0\5\x16\7")
    (tmp_path / "Geolife" / "User Guide-1.3.pdf").write_bytes(b"%PDF-1.4")
    return tmp_path / "Geolife"


def test_geolife_is_loaded(geolife):
    loaded = trace.load(geolife)
    assert loaded.source["format"] == "geolife"
    rows = loaded.positions.to_pylist()
    assert [row["device"] for row in rows] == ["000"] * 3 + ["001"] * 3
    assert rows[0]["ts"].isoformat() == "2008-10-23T02:53:04+00:00"  # from the GMT text, not the rounded days
    assert (rows[1]["lat"], rows[1]["lon"], rows[1]["speed_mps"]) == (39.984683, 116.31845, None)
    assert loaded.rejected.to_pylist() == [
        {
            "source": "Data/001/Trajectory/20081023025304.plt",
            "row": 3,
            "reason": FIELDS,
            "raw": "39.98,116.3,0,492,39744,2008-10-23",
            **dict.fromkeys(("device", "ts", "lat", "lon")),
        }
    ]


def test_geolife_times_are_gmt_regardless_of_tz(geolife):
    assert trace.load(geolife, tz="Asia/Shanghai").positions.equals(trace.load(geolife).positions)


@pytest.mark.parametrize("part", ["", "Data", "Data/000", "Data/000/Trajectory"])
def test_geolife_is_loaded_from_any_folder_above_trajectories(geolife, part):
    positions = trace.load(geolife / part).positions
    assert positions["device"].to_pylist()[:3] == ["000"] * 3
    assert len(positions) == (6 if part in ("", "Data") else 3)


def test_single_trajectory_may_be_compressed(geolife, tmp_path, monkeypatch):
    file = geolife / "Data/000/Trajectory/20081023025304.plt"
    one = trace.load(file).positions
    assert one["device"].to_pylist() == ["000"] * 2
    packed = tmp_path / "home" / "20081023025304.plt.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(file.read_bytes()))
    other = trace.load(packed).positions
    assert other["device"].to_pylist() == ["home"] * 2  # its folder
    assert other.drop_columns("device").equals(one.drop_columns("device"))
    monkeypatch.chdir(packed.parent)
    assert trace.load(packed.name).positions.equals(other)


def test_trajectory_without_rows_is_accepted_among_others(geolife):
    (geolife / "Data/000/Trajectory/20081025000000.plt").write_text(HEADER)
    assert len(trace.load(geolife).positions) == 6


def test_geolife_row_is_recognised_without_the_first_line(tmp_path):
    file = tmp_path / "track.plt"
    file.write_bytes(encode_plt(EARLIER).replace(b"Geolife trajectory", b"OziExplorer Track Point File"))
    assert len(trace.load(file).positions) == 2


@pytest.mark.parametrize(
    ("above", "aside"),
    [
        ("", {}),
        ("Geolife trajectory\n", {}),
        (HEADER, {}),
        ("39.98,116.3\n", {FIELDS: 1}),
        ("x\n" * 2, {FIELDS: 2}),
    ],
)
def test_no_row_of_geolife_is_taken_for_a_header(tmp_path, above, aside):
    file = tmp_path / "1.plt"
    rows = [f"39.98{n},116.3,0,492,39744.1,2008-10-23,02:53:{n:02d}" for n in range(9)]
    file.write_text(above + "\n".join(rows) + "\n")
    loaded = trace.load(file)
    assert (len(loaded.positions), loaded.rejected_by_reason()) == (9, aside)


ROW_OF_TAXI = "7,2008-02-02 15:36:0{n},116.5,39.900{n}"
ROW_OF_PLT = "39.98{n},116.3,0,492,39744.1,2008-10-23,02:53:0{n}"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("device\ttime\tlat\tlon\tspeed", "a\t2023-03-01T10:00:0{n}Z\t47.37\t8.54\t3.5"),
        ("device\ttime\tlat\tlon\tspeed", "7\t2023-03-01T10:00:0{n}Z\t47.37\t8.54\t3"),
        ("id,time,lon,lat", ROW_OF_TAXI),
        ("lat,lon,flag,altitude,days,date,time", ROW_OF_PLT),
    ],
)
def test_table_with_a_header_is_a_table(tmp_path, header, row):
    file = tmp_path / "t.txt"
    file.write_text("\n".join([header, *(row.format(n=n) for n in range(9))]) + "\n")
    loaded = trace.load(file, device="a")
    assert (loaded.source["format"], len(loaded.rejected)) == ("csv", 0)


def test_headerless_table_of_other_columns_is_no_check_ins(tmp_path):
    file = tmp_path / "t.tsv"
    file.write_text("".join(f"a\t2023-03-01T10:00:0{n}Z\t47.37\t8.54\t3.5\n" for n in range(9)))
    with pytest.raises(TraceFormatError, match="has no header"):
        trace.load(file)


CHECK_INS = [
    "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847",
    "0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315",
    "0\t2010-10-17T23:42:03Z\t30.2557309927\t-97.7633857727\t316637",
    "7\t2010-10-17T19:26:05Z\t30.2634181234\t-97.7575966669\t16516",
    "7\t2010-10-17T19:26:05Z\t30.2634181234\t-97.7575966669\t16516",
]


@pytest.mark.parametrize("name", ["loc-gowalla_totalCheckins.txt", "checkins.tsv.gz"])
def test_gowalla_is_loaded_as_reads(tmp_path, name):
    text = ("\n".join([*CHECK_INS, "7\t2010-10-17T19:26:05Z\t30.2634"]) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    loaded = trace.load(tmp_path / name, box_km=2, window_s=3600)
    assert loaded.source["format"] == "gowalla"
    assert len(loaded.positions) == 0
    assert loaded.reads["device"].to_pylist() == ["7", "0", "0", "0"]
    assert loaded.reads["ts"][0].as_py().isoformat() == "2010-10-17T19:26:05+00:00"
    assert set(loaded.reads["origin"].to_pylist()) == {"recorded"}
    assert set(loaded.reads["box_km"].to_pylist()) == {2}
    assert set(loaded.reads["window_s"].to_pylist()) == {3600}
    assert sorted((row["row"], row["reason"]) for row in loaded.rejected.to_pylist()) == [
        (5, "duplicate"),
        (6, FIELDS),
    ]
    assert loaded.source["options"]["table"] == "reads"


def test_gowalla_keeps_the_location_of_rejected_rows(tmp_path):
    file = tmp_path / "g.txt"
    file.write_text("\n".join([*CHECK_INS, "7\t2010-10-17T19:26:05Z\t95\t-97\t16516"]) + "\n")
    (raw,) = (row["raw"] for row in trace.load(file).rejected.to_pylist() if "range" in row["reason"])
    assert raw == "7\t2010-10-17T19:26:05Z\t95\t-97\t16516"


def test_check_ins_are_reads_regardless_of_table(tmp_path):
    file = tmp_path / "g.txt"
    file.write_text("\n".join(CHECK_INS) + "\n")
    for table in ("positions", "reads"):
        plan = Options(table=table).plan(file)
        assert (plan.options.table, plan.rule.name) == ("reads", "none")


def test_brightkite_is_read_like_gowalla(tmp_path):
    text = "".join(
        f"58186\t2008-12-0{n}T21:09:14Z\t39.63\t-105.3\tee8b88dea22411ddb074dbd65f1665cf\n"
        for n in range(1, 5)
    )
    (tmp_path / "loc-brightkite_totalCheckins.txt").write_text(text + "58187\t\t\t\t\n")
    loaded = trace.load(tmp_path / "loc-brightkite_totalCheckins.txt")
    assert (len(loaded.reads), loaded.rejected_by_reason()) == (4, {"no time": 1})


def test_foursquare_times_are_utc(tmp_path):
    (tmp_path / "nyc.txt").write_bytes(SAMPLES["foursquare"].files["dataset_TSMC2014_NYC.txt"])
    loaded = trace.load(tmp_path / "nyc.txt", tz="America/New_York")
    assert loaded.source["format"] == "foursquare"
    assert loaded.reads["ts"][0].as_py().isoformat() == "2012-04-03T18:00:00+00:00"


def test_t_drive_times_are_read_in_the_zone_of_the_caller(tmp_path):
    (tmp_path / "1.txt").write_text("".join(f"1,2008-02-02 15:36:{n:02d},116.5,39.9\n" for n in range(3)))
    loaded = trace.load(tmp_path / "1.txt", tz="Asia/Shanghai")
    assert loaded.positions["ts"][0].as_py().isoformat() == "2008-02-02T07:36:00+00:00"


def test_folder_named_like_t_drive_needs_its_rows(tmp_path):
    (tmp_path / "0.txt").touch()
    (tmp_path / "1.txt").write_text("".join(f"7,2023-03-01 10:00:0{n},47.37,8.500{n}\n" for n in range(9)))
    with pytest.raises(TraceFormatError, match=r"may be others(?s:.)*47\.37(?s:.)*format='t-drive'"):
        trace.load(tmp_path)
    assert trace.load(tmp_path, format="t-drive").positions["lon"][0].as_py() == 47.37


def test_points_of_a_trip_of_porto_are_15_seconds_apart(tmp_path):
    sample = SAMPLES["porto"]
    loaded = trace.load(sample.write(tmp_path))
    rows = loaded.positions.to_pylist()[:3]
    assert [(row["device"], row["ts"].second, row["lat"]) for row in rows] == [
        ("1", 0, 41.1),
        ("1", 15, 41.101),
        ("1", 30, 41.102),
    ]
    assert sorted(loaded.rejected["row"].to_pylist()) == [7, 8, 9, 10, 11, 12, 13]
