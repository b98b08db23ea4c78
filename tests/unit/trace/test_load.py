import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import trace
from mudkit.errors import (
    InputMissing,
    OutputExists,
    ParameterError,
    TraceFormatError,
)
from mudkit.trace.parse import FIELDS, UNBOUNDED, UNNAMED, UNPLACED, UNREADABLE
from mudkit.trace.schema import POSITIONS, READS, REJECTED

T0 = 1_211_100_000
CABS = [f"{cab},{T0 + 60 * i},37.7{i},-122.4,{i % 2}" for cab in ("abc", "xyz") for i in range(5)]


def get_reasons(loaded):
    return {row["row"]: row["reason"] for row in loaded.rejected.to_pylist()}


@pytest.mark.parametrize("name", ["cabs.csv", "cabs.csv.gz"])
def test_cabspotting_csv_is_loaded(csv_file, name):
    loaded = trace.load(csv_file("cab,t,lat,lon,occ", CABS, name))
    assert loaded.source["format"] == "cabspotting"
    assert len(loaded.positions) == 10
    assert loaded.positions.schema == POSITIONS
    assert loaded.reads.schema == READS
    assert loaded.rejected.schema == REJECTED
    assert len(loaded.reads) == 4  # two pickups a cab
    assert set(loaded.reads["origin"].to_pylist()) == {"derived: occupancy"}
    assert loaded.positions["speed_mps"].null_count == 10


def test_original_cabspotting_files_yield_the_same_trace(csv_file, tmp_path):
    folder = tmp_path / "cabspottingdata"
    folder.mkdir()
    for cab in ("abc", "xyz"):
        lines = [
            f"{lat} {lon} {occ} {t}" for c, t, lat, lon, occ in (row.split(",") for row in CABS) if c == cab
        ]
        (folder / f"new_{cab}.txt").write_text("\n".join(lines[::-1]) + "\n")  # newest first, as published
    (folder / "_cabs.txt").write_text("what is not a cab's file is left alone\n")
    one, many = trace.load(csv_file("cab,t,lat,lon,occ", CABS)), trace.load(folder)
    assert many.source["format"] == "cabspotting-txt"
    assert many.positions.equals(one.positions)
    assert many.reads.equals(one.reads)
    assert trace.load(folder / "new_abc.txt").positions["device"].unique().to_pylist() == ["abc"]


def test_usual_column_names_are_recognised_and_others_mapped(csv_file):
    rows = [f"7,{T0 + 60 * i},{10 + i / 1000},20,{i}" for i in range(3)]
    plain = trace.load(
        csv_file("vehicle_id;Timestamp;Latitude;LNG;speed_mps", [r.replace(",", ";") for r in rows])
    )
    mapping = {"device": "who", "ts": "wann", "lat": "breite", "lon": "länge", "speed_mps": "v"}
    mapped = trace.load(csv_file("who,wann,breite,länge,v", rows, "b.csv"), columns=mapping)
    assert plain.positions.equals(mapped.positions)
    assert plain.positions["speed_mps"].to_pylist() == [0, 1, 2]


def test_parquet_and_csv_yield_the_same_trace(csv_file, tmp_path):
    rows = [("a", T0 + 60 * i, 10 + i / 1000, 20.0) for i in range(4)]
    csv = trace.load(csv_file("device,t,lat,lon", [",".join(map(str, row)) for row in rows]))
    device, t, lat, lon = zip(*rows, strict=True)
    for times in (
        pa.array(t),
        pa.array([x * 1_000_000 for x in t], pa.timestamp("us", tz="UTC")),
        pa.array([x * 1_000 for x in t], pa.timestamp("ms")),
    ):
        file = tmp_path / "trace.parquet"
        pq.write_table(pa.table({"device": device, "t": times, "lat": lat, "lon": lon}), file)
        assert trace.load(file).positions.equals(csv.positions)


@pytest.mark.parametrize(
    ("texts", "tz"),
    [
        (["2008-05-18T01:00:00", "2008-05-18 01:01:00.5"], "America/Los_Angeles"),
        (["2008-05-18T08:00:00Z", "2008-05-18T10:01:00.500+02:00"], "Asia/Tokyo"),
    ],
)
def test_text_times_are_converted_to_utc(csv_file, texts, tz):
    loaded = trace.load(csv_file("device,ts,lat,lon", [f"a,{t},10,20" for t in texts]), tz=tz)
    assert [t.isoformat() for t in loaded.positions["ts"].to_pylist()] == [
        "2008-05-18T08:00:00+00:00",
        "2008-05-18T08:01:00.500000+00:00",
    ]


def test_nonexistent_local_time_is_rejected(csv_file):
    texts = ["2008-03-09T01:00:00", "2008-03-09T02:30:00", "2008-03-09T04:00:00"]  # clocks went forward
    loaded = trace.load(
        csv_file("device,ts,lat,lon", [f"a,{t},10,20" for t in texts]), tz="America/Los_Angeles"
    )
    assert get_reasons(loaded) == {2: "local time that a clock change repeats or skips"}


def test_ambiguous_local_time_is_distinguished_from_unparsable(csv_file):
    texts = ["2024-10-27T01:00:00", "2024-10-27T02:30:00", "2024-10-27T0x:30:00", "2024-10-27T04:00:00"]
    rows = [*(f"a,{t},10,20" for t in texts), "a,2024-10-27T04:01:00,10,20"]
    loaded = trace.load(csv_file("device,ts,lat,lon", rows), tz="Europe/Berlin")
    assert get_reasons(loaded) == {2: "local time that a clock change repeats or skips", 3: UNREADABLE}


@pytest.mark.parametrize(
    "texts",
    [
        ["20240518T080000Z", "20240518T080100Z"],
        ["20240518T1000+0200", "20240518T1001+0200"],
        ["20240518T080000.0", "20240518T080100"],
    ],
)
def test_basic_iso_8601_times_may_have_zones(csv_file, texts):
    loaded = trace.load(csv_file("device,ts,lat,lon", [f"a,{t},10,20" for t in texts]))
    assert [f"{t:%H:%M}" for t in loaded.positions["ts"].to_pylist()] == ["08:00", "08:01"]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_time_units(csv_file, unit, factor):
    file = csv_file("device,t,lat,lon", [f"a,{(T0 + i) * factor},10,20" for i in range(3)])
    loaded = trace.load(file, time_unit=unit)
    assert [int(t.timestamp()) for t in loaded.positions["ts"].to_pylist()] == [T0, T0 + 1, T0 + 2]


@pytest.mark.parametrize("nothing", ["", "NULL", r"\N", "NaN", "None"])
def test_marker_of_a_missing_value_is_no_device(csv_file, nothing):
    rows = [f"{'ann' if i else nothing},{T0 + 60 * i},37.{i},-122" for i in range(5)]
    assert trace.load(csv_file("device,t,lat,lon", rows)).rejected_by_reason() == {"no device": 1}


def test_rejected_rows_have_number_and_reason(csv_file):
    rows = [
        f"a,{T0},10,20",
        f"a,{T0 + 60},95,200",
        f"a,{T0 + 60},95,20",
        f"a,{T0 + 60},10.001,20",
        f"a,{T0 + 60},10.001,20",  # a duplicate
        f"a,{T0 + 120},,20",  # an empty number
        f"a,{T0 + 120},10.002",  # a field is missing
        f",{T0 + 120},10.002,20",  # no device
        f"a,{T0 + 120},10.002,20",
        f"a,{T0 + 150},50.5,20",  # an implausible speed
        f"a,{T0 + 90},10.001,20",  # late, but sorted into its place
        "a,12,10.002,20",  # 1970
        f"a,{T0 + 240},10.003,20",
        f"a,{T0 + 300},nan,20",
        *[f"a,{T0 + 400 + i},10.004,20" for i in range(15)],
        f"a,{T0 + 500},10.005,20,9",  # a field too many
        *(f"b,{t},10,20" for t in (315_964_799, 315_964_800, 4_102_444_800, 4_102_444_801)),  # 1980 and 2100
    ]
    loaded = trace.load(csv_file("device,t,lat,lon", rows))
    assert get_reasons(loaded) == {
        2: "coordinates out of range",
        3: "coordinates out of range, in range if exchanged",
        5: "duplicate",
        6: UNPLACED,
        7: FIELDS,
        8: UNNAMED,
        10: "speed over 70 m/s",
        12: "time before 1980 or after 2100",
        14: UNPLACED,
        30: FIELDS,
        31: "time before 1980 or after 2100",
        34: "time before 1980 or after 2100",
    }
    assert loaded.rejected.sort_by("row")["raw"].to_pylist()[4] == f"a,{T0 + 120},10.002"
    assert len(loaded.positions) + len(loaded.rejected) == len(rows)
    assert loaded.summary().set_index("what").loc[f"rejected: {FIELDS}", "value"] == "2"


def test_summary_counts_rows_and_devices(csv_file):
    rows = [f"a,{T0 + t},10,20" for t in (0, 60, 180)] + [f"b,{T0 + 30},10,20", "b,x,10,20"]
    loaded = trace.load(csv_file("device,t,lat,lon", rows))
    facts = dict(loaded.summary().itertuples(index=False))
    utc = [str(np.datetime64(T0 + t, "s")) + " UTC" for t in (0, 180)]
    assert facts == {
        "source": "trace.csv",
        "format": "csv",
        "positions": "4",
        "reads": "2",
        "rejected": "1",
        "rejected: time that cannot be read": "1",
        "devices": "2",
        "devices with one row": "1",
        "first": utc[0],
        "last": utc[1],
        "median interval": "90 s",
        "origin of reads": "derived: trip_start(still_s=600)",
    }


@pytest.mark.parametrize(("values", "speed_mps", "fares"), [("3.5,", 3.5, 0), (",1", None, 1)])
@pytest.mark.parametrize("place", [2, 3])
def test_of_rows_with_equal_time_and_place_the_one_with_more_values_is_kept(
    csv_file, place, values, speed_mps, fares
):
    rows = [f"a,{T0},10,20,0,0", f"a,{T0 + 60},10.001,20,{values}"]
    rows.insert(place - 1, f"a,{T0 + 60},10.001,20,,")
    loaded = trace.load(csv_file("device,t,lat,lon,speed_mps,occupied", rows), rule="occupancy")
    assert loaded.positions["speed_mps"].to_pylist() == [0, speed_mps]
    assert len(loaded.reads) == fares
    assert get_reasons(loaded) == {place: "duplicate"}


def test_access_log_is_loaded_as_reads(csv_file):
    rows = [f"a,{T0 + 60},1,2", f"a,{T0},1,2", f"a,{T0},1,2", f"b,{T0},1,2"]
    loaded = trace.load(csv_file("user,time,lat,lon", rows), table="reads", box_km=5, window_s=600)
    assert len(loaded.positions) == 0
    assert loaded.reads["device"].to_pylist() == ["a", "b", "a"]
    assert set(loaded.reads["origin"].to_pylist()) == {"recorded"}
    assert set(loaded.reads["box_km"].to_pylist()) == {5}
    assert get_reasons(loaded) == {3: "duplicate"}


def test_reads_of_several_pieces_are_in_order_of_time(csv_file, monkeypatch):
    monkeypatch.setattr("mudkit.trace._load._PIECE_ROWS", 1)
    rows = [f"a,{T0 + 60},1,2", f"a,{T0},1,2", f"b,{T0 + 30},1,2"]
    loaded = trace.load(csv_file("user,time,lat,lon", rows), table="reads", box_km=5, window_s=600)
    assert loaded.reads["device"].to_pylist() == ["a", "b", "a"]


def test_saved_trace_is_loaded_unchanged(csv_file, tmp_path):
    loaded = trace.load(csv_file("cab,t,lat,lon,occ", [*CABS, "abc,1,1,1,1"]))
    reloaded = trace.load(loaded.save(tmp_path / "saved"))
    assert reloaded.positions.equals(loaded.positions)
    assert reloaded.reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    assert reloaded.rejected.equals(loaded.rejected)
    assert [p.name for p in (tmp_path / "saved" / "positions").iterdir()] == ["date=2008-05-18"]


def test_longitude_180_is_normalized_to_minus_180(csv_file):
    loaded = trace.load(csv_file("device,t,lat,lon", [f"a,{T0},0,180", f"a,{T0 + 60},0,-180"]))
    assert loaded.positions["lon"].to_pylist() == [-180, -180]


def test_header_may_have_spaces_quotes_and_blank_lines(csv_file):
    rows = [f" a , {T0 + i} , 1 , 2" for i in range(3)]
    for header in (
        "device, t, lat, lon",
        '"device","t","lat","lon"',
        "\n\ndevice,t,lat,lon",
    ):
        loaded = trace.load(csv_file(header, rows))
        assert loaded.positions["lat"].to_pylist() == [1, 1, 1]
        assert loaded.positions["device"].to_pylist() == ["a"] * 3


def test_duplicate_column_names_must_be_resolved(csv_file, tmp_path):
    file = csv_file("device,t,lat,lon,lat", [f"a,{T0 + i},1,2,9" for i in range(3)])
    with pytest.raises(TraceFormatError, match=r"2 columns named lat.(?s:.)*'lat \(4\)'} or 'lat'"):
        trace.load(file)
    for column, lat in (("lat", 1), ("lat (4)", 9)):
        assert trace.load(file, columns={"lat": column}).positions["lat"].to_pylist() == [lat] * 3
    columns = [["a", "a"], [T0, T0 + 1], [1.0, 1.0], [2.0, 2.0], [9.0, 9.0]]
    twins = pa.Table.from_arrays([pa.array(c) for c in columns], names=["device", "t", "lat", "lon", "lat"])
    pq.write_table(twins, tmp_path / "twins.parquet")
    with pytest.raises(TraceFormatError, match=r"2 columns named lat.(?s:.)*rename"):
        trace.load(tmp_path / "twins.parquet")


def test_folder_with_a_dangling_link_is_refused(csv_file, tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    csv_file("cab,t,lat,lon,occ", CABS).rename(folder / "a.csv")
    for name in ("b.csv", "c.gpx"):
        (folder / name).symlink_to(tmp_path / "gone")
        with pytest.raises(InputMissing, match=f"behind the link .*{name}(?s:.)*gone"):
            trace.load(folder, format="gpx" if name == "c.gpx" else "csv")


def test_row_numbers_ignore_blank_lines_above_the_header(csv_file):
    rows = [f"a,{T0},1,2", "a,1", f"a,{T0 + 5},1,2", "x,y,1,2", f"a,{T0 + 9},1,2", f"a,{T0 + 10},1,2"]
    assert get_reasons(trace.load(csv_file("\ndevice,t,lat,lon", rows))) == {2: FIELDS, 4: UNREADABLE}


def test_time_formats_may_change_within_a_file(csv_file):
    texts = [f"{T0}", "2008-05-18T08:41:00Z", f"+{T0 + 120}", "2008-05-18 08:43:00+00", f"{T0 + 240}.5"]
    loaded = trace.load(csv_file("device,t,lat,lon", [f"a,{t},1,2" for t in texts]))
    assert [t.timestamp() - T0 for t in loaded.positions["ts"].to_pylist()] == [0, 60, 120, 180, 240.5]


def test_access_log_may_leave_the_box_blank(csv_file):
    rows = [
        f"a,{T0},1,2,,",
        f"a,{T0 + 1},1,2,5,60",
        f"a,{T0 + 2},1,2,-1,60",
        f"a,{T0 + 3},1,2, ,1e15",
        f"a,{T0 + 4},1,2,,",
        f"a,{T0 + 5},1,2,0,60",
    ]
    loaded = trace.load(csv_file("device,t,lat,lon,box_km,window_s", rows), table="reads", window_s=600)
    assert loaded.reads["box_km"].to_pylist() == [20, 5, 20]
    assert loaded.reads["window_s"].to_pylist() == [600, 60, 600]
    assert get_reasons(loaded) == {3: UNBOUNDED, 4: UNBOUNDED, 6: UNBOUNDED}


def test_trace_folder_refuses_options_for_files(csv_file, tmp_path):
    saved = trace.load(csv_file("cab,t,lat,lon,occ", CABS)).save(tmp_path / "saved")
    file_options = ({"format": "gpx"}, {"table": "reads"}, {"tz": "Asia/Tokyo"}, {"time_unit": "ms"})
    file_options += ({"device": "a"}, {"header": False, "columns": {"device": 1}})
    read_options = ({"rule": "none"}, {"box_km": 5}, {"window_s": 60}, {"columns": {"device": "x"}})
    for options in (*file_options, *read_options):
        with pytest.raises(ParameterError, match="already"):
            trace.load(saved, **options)


def test_damaged_trace_folder_is_refused(csv_file, tmp_path):
    saved = trace.load(csv_file("cab,t,lat,lon,occ", CABS)).save(tmp_path / "saved")
    (part,) = (saved / "positions").rglob("*.parquet")
    whole = part.read_bytes()
    for content in (None, whole[:100]):
        part.unlink()
        if content:
            part.write_bytes(content)
        with pytest.raises(TraceFormatError, match="damaged"):
            trace.load(saved)
        part.write_bytes(whole)
    for text in ("", "[]", "{}", '{"format_version": 1, "rows": 3}'):
        (saved / "trace.json").write_text(text)
        with pytest.raises(TraceFormatError, match="damaged"):
            trace.load(saved)
    (saved / "trace.json").unlink()
    with pytest.raises(TraceFormatError, match=r"known format|several kinds|damaged"):
        trace.load(saved)


def test_overwriting_keeps_files_that_mudkit_did_not_write(csv_file, tmp_path):
    file = csv_file("cab,t,lat,lon,occ", CABS)
    loaded = trace.load(file)
    for place in (tmp_path, file):
        with pytest.raises(OutputExists):
            loaded.save(place, overwrite=True)
    assert file.read_text().startswith("cab,t")
    loaded.save(tmp_path / "saved")
    loaded.save(tmp_path / "saved", overwrite=True)
    (tmp_path / "saved" / "mine.txt").touch()
    with pytest.raises(OutputExists, match=r"mine\.txt"):
        loaded.save(tmp_path / "saved", overwrite=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_gzip_is_refused(tmp_path, share):
    whole = gzip.compress("\n".join(["cab,t,lat,lon,occ", *CABS * 1000]).encode())
    file = tmp_path / "cabs.csv.gz"
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(TraceFormatError, match="cut short"):
        trace.load(file)


@pytest.mark.parametrize("encode", [pa.Array.dictionary_encode, lambda column: column.cast(pa.string_view())])
def test_texts_of_parquet_may_be_encoded(tmp_path, encode):
    """A bad row has to be shown, too."""
    columns = {"device": ["a"] * 4, "ts": ["2023-11-14T22:13:20Z", "soon", "2023-11-14T22:14:20Z", None]}
    table = {name: encode(pa.array(values)) for name, values in columns.items()}
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table(table | {"lat": [47.5] * 4, "lon": [8.5] * 4}), file)
    loaded = trace.load(file)
    assert len(loaded.positions) == 2
    assert loaded.rejected_by_reason() == {"time that cannot be read": 1, "no time": 1}


def test_rejected_rows_have_what_they_say(csv_file):
    rows = [f"a,{T0 + 60 * i},10.{i},20" for i in range(4)]
    rows += [
        f"b,{T0},x,20",
        "c,1,10,20",
        f"a,{T0},55.5,20",
        "a,9e17,1,2",
        "a,1",
        f"a,{T0 + 30},0,0",
    ]
    rejected = trace.load(csv_file("device,t,lat,lon", rows)).rejected.to_pylist()
    fields = {
        row["row"]: (row["device"], row["ts"] and int(row["ts"].timestamp()), row["lat"], row["lon"])
        for row in rejected
    }
    assert fields == {
        5: ("b", T0, None, 20.0),
        6: ("c", 1, 10.0, 20.0),
        7: ("a", T0, 55.5, 20.0),
        8: ("a", 900_000_000, 1.0, 2.0),
        9: (None, None, None, None),
        10: ("a", T0 + 30, 0.0, 0.0),
    }
