"""Formats that libraries of the extra geo read: NMEA, GTFS-realtime messages, GeoPackage and GeoParquet."""

import json
import sys
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely
from trace_samples import CABS, SAMPLES, T0, feed, geopackage, lines, rmc

from mudkit import trace
from mudkit.errors import EnvironmentProblem, TraceFormatError
from mudkit.trace.formats import layers

LIBRARIES = {
    "nmea": "pynmea2",
    "gtfs-rt-pb": "google.transit.gtfs_realtime_pb2",
    "geopackage": "pyogrio",
    "geojson": "ijson",
    "takeout": "ijson",
}


@pytest.mark.parametrize("kind", LIBRARIES)
def test_missing_library_is_named_with_what_to_install(tmp_path, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'mudkit\[geo\]'") as caught:
        trace.load(SAMPLES[kind].write(tmp_path))
    assert LIBRARIES[kind] in caught.value.found


@pytest.mark.parametrize("first", ["$GPGSV,1,1,00*79", "$PMTK314,0,1*2B", "", "logger 3"])
@pytest.mark.parametrize("before", ["", "2008-05-18 08:40:00 "])
def test_rmc_sentences_are_read(tmp_path, before, first):
    (tmp_path / "boat.log").write_bytes(lines(first, *(before + rmc(n) for n in range(3))))
    loaded = trace.load(tmp_path / "boat.log")
    assert loaded.source["format"] == "nmea"
    rows = loaded.positions.to_pylist()
    assert [row["ts"].timestamp() - T0 for row in rows] == [0, 60, 120]
    assert rows[1]["device"] == "boat"
    assert rows[1]["lat"] == pytest.approx(37 + 0.01 / 60)
    assert (rows[1]["lon"], rows[1]["speed_mps"]) == (-122.4, pytest.approx(3.0867, abs=1e-4))


def test_vehicle_without_id_or_time_uses_those_of_the_entity_and_the_header(tmp_path):
    message = SAMPLES["gtfs-rt-pb"]
    (tmp_path / "0.pb").write_bytes(message.files["0.pb"])
    from google.transit import gtfs_realtime_pb2

    later = gtfs_realtime_pb2.FeedMessage.FromString(feed(("a", 0), ("b", 0)))
    later.header.timestamp = T0 + 300
    for entity in later.entity:
        entity.vehicle.ClearField("timestamp")
        entity.vehicle.ClearField("vehicle")
    (tmp_path / "1.pb").write_bytes(later.SerializeToString())
    rows = trace.load(tmp_path).positions.to_pylist()
    assert [(row["device"], row["ts"].timestamp() - T0) for row in rows] == [
        ("a", 0),
        ("a", 300),
        ("b", 0),
        ("b", 300),
    ]


def test_geopackage_with_several_layers_is_refused(tmp_path):
    file = tmp_path / "two.gpkg"
    file.write_bytes(geopackage())
    table = pa.table({"geom": pa.array(shapely.to_wkb([shapely.Point(1, 2)]), pa.binary())})
    options = {"geometry_name": "geom", "geometry_type": "Point", "crs": "EPSG:4326"}
    pyogrio.raw.write_arrow(table, file, layer="other", append=True, **options)
    with pytest.raises(TraceFormatError, match="has 2 layers") as caught:
        trace.load(file)
    assert caught.value.found == "cabs, other"


def write_geoparquet(file, encoding="WKB", crs=None):
    points = [(-122.4, lat) for lat in CABS["lat"]]
    if encoding == "WKB":
        geometry = pa.array(shapely.to_wkb([shapely.Point(*point) for point in points]), pa.binary())
    else:
        geometry = pa.array([{"x": x, "y": y} for x, y in points])
    column = {"encoding": encoding, "geometry_types": ["Point"]} | ({"crs": crs} if crs else {})
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    table = pa.table({"device": CABS["device"], "ts": CABS["ts"], "geometry": geometry})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), file)


@pytest.mark.parametrize(
    ("encoding", "crs"),
    [("WKB", None), ("point", None), ("WKB", {"name": "WGS 84", "id": {"authority": "EPSG", "code": 4326}})],
)
def test_points_of_geoparquet_are_read(tmp_path, encoding, crs):
    write_geoparquet(tmp_path / "cabs.parquet", encoding, crs)
    positions = trace.load(tmp_path / "cabs.parquet").positions
    assert positions["lat"].to_pylist() == CABS["lat"]
    assert set(positions["lon"].to_pylist()) == {-122.4}


def test_geoparquet_in_metres_is_refused(tmp_path):
    crs = {"name": "ETRS89 / UTM zone 32N", "id": {"authority": "EPSG", "code": 25832}}
    write_geoparquet(tmp_path / "cabs.parquet", crs=crs)
    with pytest.raises(TraceFormatError, match="not in degrees of WGS 84"):
        trace.load(tmp_path / "cabs.parquet")


def test_places_of_a_geoparquet_table_precede_its_geometry(tmp_path):
    write_geoparquet(tmp_path / "a.parquet", crs={"id": {"authority": "EPSG", "code": 25832}})
    table = pq.read_table(tmp_path / "a.parquet")
    for name in ("lat", "lon"):
        table = table.append_column(name, pa.array(CABS["lat"] if name == "lat" else [-122.4] * 20))
    pq.write_table(table, tmp_path / "cabs.parquet")
    assert trace.load(tmp_path / "cabs.parquet").positions["lat"].to_pylist() == CABS["lat"]


def test_warnings_of_the_library_do_not_reach_the_user(tmp_path):
    """See :func:`layers._pyogrio`: they show in the rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with layers._pyogrio(tmp_path / "points.gpkg"):
            warnings.warn("a ring is not closed", RuntimeWarning, stacklevel=1)
    assert caught == []
