import gzip
import zipfile

import pytest
from trace_samples import KML_POINT, TCX_POINT, cab_lines, kml, kml_track, tcx

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.formats import batch, tracks
from mudkit.trace.parse import UNPLACED, UNREADABLE

GPX = '<?xml version="1.0" encoding="{}"?>\n<gpx version="1.1" creator="t" xmlns="http://www.topografix.com/GPX/1/1">{}</gpx>'


def build_point(minute, kind="trkpt", inside="", time=True):
    when = f"<time>2020-05-01T10:{minute:02d}:00Z</time>" if time else ""
    return f'<{kind} lat="47.{100 + minute}" lon="8.5"><ele>400</ele>{when}{inside}</{kind}>'


def build_track(points, name=""):
    return f"<trk>{f'<name>{name}</name>' if name else ''}<trkseg>{''.join(points)}</trkseg></trk>"


@pytest.fixture
def write(tmp_path):
    def write(body, name="ride.gpx", encoding="UTF-8"):
        content = GPX.format(encoding, body).encode(encoding)
        file = tmp_path / name
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return file

    return write


def list_devices(loaded):
    return sorted(set(loaded.positions["device"].to_pylist()))


@pytest.mark.parametrize("name", ["ride.gpx", "ride.GPX", "ride.gpx.gz"])
def test_device_of_a_single_track_is_named_after_the_file(write, name):
    loaded = trace.load(write(build_track([build_point(i) for i in range(3)], "Tour"), name))
    assert loaded.source["format"] == "gpx"
    assert list_devices(loaded) == ["ride"]  # one track: the file's stem, whatever the track is called
    assert loaded.positions["ts"][0].as_py().isoformat() == "2020-05-01T10:00:00+00:00"
    assert loaded.positions["lat"].to_pylist() == [47.1, 47.101, 47.102]


def test_several_tracks_are_several_devices(write):
    body = (
        build_track([build_point(0), build_point(1)], "Ann")
        + build_track([build_point(0), build_point(1)])
        + build_track([build_point(5), build_point(6)], "Ann")
    )
    loaded = trace.load(write(body))
    assert list_devices(loaded) == ["ride/Ann", "ride/track 2"]
    assert len(loaded.positions) == 6


@pytest.mark.parametrize("name", ["Ann <b>on</b> tour", "<name>Ann</name>", "<time>x</time>"])
def test_elements_within_a_name_end_no_name_and_no_file(write, name):
    body = build_track([build_point(0), build_point(1)], name) + build_track(
        [build_point(2), build_point(3)], "Bob"
    )
    loaded = trace.load(write(body))
    assert len(loaded.positions) == 4
    assert "ride/Bob" in list_devices(loaded)
    assert "<b>" not in name or list_devices(loaded) == ["ride/Ann on tour", "ride/Bob"]


def test_route_points_are_loaded_and_waypoints_set_aside(write):
    places = "".join(build_point(i, "wpt") for i in range(9))
    body = places + f"<rte>{build_point(1, 'rtept')}{build_point(2, 'rtept', time=False)}</rte>"
    loaded = trace.load(write(body + build_track([build_point(3), build_point(4)])))
    assert loaded.positions["lat"].to_pylist() == [47.101, 47.103, 47.104]
    assert loaded.rejected_by_reason() == {"waypoint": 9, "no time": 1}
    untimed = next(row for row in loaded.rejected.to_pylist() if row["reason"] == "no time")
    assert (untimed["row"], untimed["source"]) == (11, "ride.gpx")
    assert untimed["raw"] == "ride,,47.102,8.5,"


def test_file_of_waypoints_only_is_refused(write):
    with pytest.raises(TraceContentError, match="holds no positions") as caught:
        trace.load(write("".join(build_point(i, "wpt") for i in range(9))))
    assert caught.value.found == "9 rows set aside: waypoint"


@pytest.mark.parametrize("inside", ["<gpxtpx:hr>120</gpxtpx:hr>", "<osmand:speed>3.5</osmand:speed>"])
def test_prefix_need_not_be_declared(write, inside):
    body = build_track([build_point(i, inside=f"<extensions>{inside}</extensions>") for i in range(3)])
    assert len(trace.load(write(body)).positions) == 3


@pytest.mark.parametrize(
    "inside",
    [
        "<speed>3.5</speed>",
        "<extensions><speed>3.5</speed></extensions>",
        '<extensions><g:TrackPointExtension xmlns:g="http://www.garmin.com/xmlschemas/TrackPointExtension/v2">'
        "<g:speed>3.5</g:speed></g:TrackPointExtension></extensions>",
    ],
)
def test_speeds_in_elements_and_extensions_are_loaded(write, inside):
    loaded = trace.load(write(build_track([build_point(0, inside=inside), build_point(1)])))
    assert loaded.positions["speed_mps"].to_pylist() == [3.5, None]


def test_times_of_other_elements_are_ignored(write):
    body = "<metadata><time>2020-01-01T00:00:00Z</time><name>x</name></metadata>"
    inside = "<extensions><visit><time>2019-01-01T00:00:00Z</time></visit></extensions>"
    loaded = trace.load(write(body + build_track([build_point(0, inside=inside), build_point(1)])))
    assert {t.year for t in loaded.positions["ts"].to_pylist()} == {2020}


def test_bad_points_are_rejected_with_a_reason(write):
    bad = (
        '<trkpt lat="north" lon="8"><time>2020-05-01T10:30:00Z</time></trkpt>'
        '<trkpt lon="8"><time>2020-05-01T10:30:00Z</time></trkpt>'
        '<trkpt lat="47" lon="8"><time>yesterday</time></trkpt>'
        '<trkpt lat="47" lon="8"><time/></trkpt>'
        '<trkpt lat="95" lon="188"><time>2020-05-01T10:30:00Z</time></trkpt>'
    )
    loaded = trace.load(write(build_track([*(build_point(i) for i in range(9)), bad])))
    assert [(row["row"], row["reason"]) for row in loaded.rejected.to_pylist()] == [
        (10, UNPLACED),
        (11, UNPLACED),
        (12, UNREADABLE),
        (13, "no time"),
        (14, "coordinates out of range"),
    ]


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1"])
def test_declared_xml_encodings_are_used(write, encoding):
    body = build_track([build_point(0), build_point(1)], "Zürich") + build_track(
        [build_point(0), build_point(1)], "Genève"
    )
    assert list_devices(trace.load(write(body, encoding=encoding))) == ["ride/Genève", "ride/Zürich"]


def test_batches_do_not_change_the_rows(write, monkeypatch):
    file = write(
        build_track([build_point(i) for i in range(30)], "a")
        + build_track([build_point(i) for i in range(30)], "b")
    )
    whole = trace.load(file).positions
    monkeypatch.setattr(batch, "_BATCH_ROWS", 7)
    monkeypatch.setattr(tracks, "_CHUNK_BYTES", 100)
    batches = list(tracks.read_gpx(file, {}))
    assert len(batches) > 3
    assert [row for batch in batches for row in batch.rows] == list(range(1, 61))
    assert trace.load(file).positions.equals(whole)


def test_folder_of_gpx_files(write, tmp_path):
    for name in ("a.gpx", "b.gpx"):
        write(build_track([build_point(0), build_point(1)], "the same name"), name)
    (tmp_path / "2021").mkdir()
    write(build_track([build_point(0), build_point(1)]), "2021/c.gpx.gz")
    assert list_devices(trace.load(tmp_path)) == ["a", "b", "c"]


def list_rows(loaded):
    return [(row["device"], row["ts"].minute, row["lat"]) for row in loaded.positions.to_pylist()]


def test_tracks_and_placemarks_of_kml_are_loaded(tmp_path):
    body = kml(
        kml_track("Ann", ["8 47 400", "8 47.001 400"]),
        f"<Folder>{kml_track('Bob', ['8 47 400', '8 47.001 400'])}</Folder>",
        *cab_lines(KML_POINT, "a", 2),
    )
    (tmp_path / "tour.kml").write_bytes(body)
    assert list_rows(trace.load(tmp_path / "tour.kml")) == [
        ("tour", 40, 37),
        ("tour", 41, 37.001),
        ("tour/Ann", 40, 47),
        ("tour/Ann", 41, 47.001),
        ("tour/Bob", 40, 47),
        ("tour/Bob", 41, 47.001),
    ]


def test_track_of_a_kmz_is_loaded_beside_its_pictures(tmp_path):
    with zipfile.ZipFile(tmp_path / "tour.kmz", "w") as archive:
        archive.writestr("doc.kml", kml(kml_track("Ann", ["8 47", "8 47.001"])))
        archive.writestr("files/pin.png", b"\x89PNG")
    assert list_devices(trace.load(tmp_path / "tour.kmz")) == ["tour"]
    assert list_devices(trace.load(tmp_path)) == ["tour"]


def test_activities_of_tcx_are_loaded(tmp_path):
    (tmp_path / "run.tcx").write_bytes(tcx(*cab_lines(TCX_POINT, "a", 2)))
    loaded = trace.load(tmp_path / "run.tcx")
    assert list_rows(loaded)[:2] == [("run/one", 40, 37), ("run/one", 41, 37.001)]
    assert list_devices(loaded) == ["run/one", "run/two"]
    assert set(loaded.positions["speed_mps"].to_pylist()) == {3.5}


@pytest.mark.parametrize("encoding", ["UTF-3", "EUC-JP", "hex"])
def test_encoding_that_is_not_read_is_an_error_in_words(tmp_path, encoding):
    (tmp_path / "ride.gpx").write_text(GPX.format(encoding, ""))
    with pytest.raises(TraceFormatError, match="cannot be read"):
        trace.load(tmp_path / "ride.gpx")


TRACK = build_track([build_point(i) for i in range(3)], "{}")
REPAIRED = {
    "blanks before the declaration": ("\n \t", TRACK, "ride"),
    "a signature and blanks": ("\ufeff\n", TRACK, "ride"),
    "a bare ampersand": (
        "",
        build_track([build_point(0)], "x") + TRACK.format("Tom & Jo &amp; &#97; &nbsp;"),
        "ride/Tom & Jo & a &nbsp;",
    ),
    "a bare ampersand in an attribute": ("", TRACK.replace("<trk>", '<trk src="a&b">'), "ride"),
    "references only": (
        "",
        build_track([build_point(0)], "x") + TRACK.format("<![CDATA[a & b]]> &lt;"),
        "ride/a & b <",
    ),
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_odd_bytes_in_tracks_are_read(tmp_path, monkeypatch, case, chunk):
    monkeypatch.setattr(tracks, "_CHUNK_BYTES", chunk)
    above, body, device = REPAIRED[case]
    (tmp_path / "ride.gpx").write_text(above + GPX.format("UTF-8", body))
    loaded = trace.load(tmp_path / "ride.gpx")
    rows = [row for row in loaded.positions.to_pylist() if row["device"] == device]
    assert [row["lat"] for row in rows] == [47.1, 47.101, 47.102]


@pytest.mark.parametrize("chunk", [1, 50, 1 << 18])
@pytest.mark.parametrize("between", ["", "\n\n"])
@pytest.mark.parametrize("pattern", [GPX, "<gpx><!--{}-->{}</gpx>"])
def test_documents_one_after_the_other_are_read(tmp_path, monkeypatch, chunk, between, pattern):
    monkeypatch.setattr(tracks, "_CHUNK_BYTES", chunk)
    documents = [
        pattern.format("UTF-8", build_track([build_point(i) for i in range(n, n + 3)], f"day {n}"))
        for n in (0, 3, 6)
    ]
    (tmp_path / "ride.gpx").write_text(between.join(documents))
    loaded = trace.load(tmp_path / "ride.gpx")
    assert list_devices(loaded) == [f"ride/day {n}" for n in (0, 3, 6)]
    assert len(loaded.positions) == 9


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        ("junk", "syntax error"),
        (GPX[:-8].format("UTF-8", TRACK), "cut short"),
        ("<kml></kml>", "but no GPX"),
        ("\0\0", "invalid token"),
    ],
)
def test_other_bytes_behind_a_document_are_refused(tmp_path, tail, error):
    (tmp_path / "ride.gpx").write_text(GPX.format("UTF-8", TRACK) + tail)
    with pytest.raises(TraceFormatError, match=error):
        trace.load(tmp_path / "ride.gpx")


def test_placemark_has_the_time_of_its_begin(tmp_path):
    span = "<TimeSpan><begin>2020-05-01T10:0{0}:00Z</begin><end>2020-05-01T10:0{0}:30Z</end></TimeSpan>"
    places = [
        f"<Placemark>{span.format(n)}<Point><coordinates>8.5,47.{n}</coordinates></Point></Placemark>"
        for n in range(3)
    ]
    (tmp_path / "a.kml").write_bytes(kml(*places))
    positions = trace.load(tmp_path / "a.kml").positions
    assert [ts.minute for ts in positions["ts"].to_pylist()] == [0, 1, 2]
    assert positions["lat"].to_pylist() == [47.0, 47.1, 47.2]
