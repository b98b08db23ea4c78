"""JSON lines and lists, GeoJSON, and Google's location history."""

import json

import pytest
from trace_samples import MINUTES, T0, dump, feature, geojson_point

from mudkit import trace
from mudkit.errors import TraceFormatError

ROWS = [{"device": "a", "ts": T0 + 60 * n, "lat": round(37 + n / 1000, 3), "lon": -122.4} for n in range(5)]
POINTS = [geojson_point(n) for n in range(5)]
PATH = [{"point": f"{37 + n / 1000:.3f}°, -122.4°", "time": MINUTES[n]} for n in range(5)]
PATH_OF_IPHONE = [
    {"point": f"geo:{37 + n / 1000:.3f},-122.4", "durationMinutesOffsetFromStartTime": str(n)}
    for n in range(5)
]


def dump_lines(values, start=""):
    return "".join(start + json.dumps(value) + "\n" for value in values).encode()


LAYOUTS = {
    "lines": (dump_lines(ROWS), "json"),
    "lines with a signature and blanks": (b"\xef\xbb\xbf" + dump_lines(ROWS) + b"\n \n", "json"),
    "a sequence of RFC 8142": (dump_lines(ROWS, "\x1e"), "json"),
    "a list": (dump(ROWS), "json"),
    "a list in a line": (json.dumps(ROWS).encode(), "json"),
    "indented objects": (b"\n".join(map(dump, ROWS)), "json"),
    "GeoJSON": (dump({"type": "FeatureCollection", "name": "x", "features": POINTS}), "geojson"),
    "GeoJSON in a line": (json.dumps({"type": "FeatureCollection", "features": POINTS}).encode(), "geojson"),
    "features by line": (dump_lines(POINTS), "geojson"),
    "Timeline.json of Android": (
        dump({"semanticSegments": [{"timelinePath": PATH}], "rawSignals": []}),
        "takeout",
    ),
    "Timeline.json of an iPhone": (
        dump([{"startTime": MINUTES[0], "timelinePath": PATH_OF_IPHONE}]),
        "takeout",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_is_recognised_and_read(tmp_path, layout):
    content, kind = LAYOUTS[layout]
    (tmp_path / "a.json").write_bytes(content)
    loaded = trace.load(tmp_path / "a.json")
    assert loaded.source["format"] == kind
    assert loaded.positions["device"].to_pylist() == ["a"] * 5
    assert loaded.positions["lat"].to_pylist() == [row["lat"] for row in ROWS]
    assert [ts.timestamp() for ts in loaded.positions["ts"].to_pylist()] == [row["ts"] for row in ROWS]


def test_names_of_nested_objects_have_dots(tmp_path):
    rows = [{"car": {"id": "a"}, "at": row["ts"], "gps": {"y": row["lat"], "x": row["lon"]}} for row in ROWS]
    (tmp_path / "a.jsonl").write_bytes(dump_lines(rows))
    columns = {"device": "car.id", "ts": "at", "lat": "gps.y", "lon": "gps.x"}
    assert len(trace.load(tmp_path / "a.jsonl", columns=columns).positions) == 5


def test_line_that_is_no_object_is_set_aside_as_it_stands(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(dump_lines(ROWS) + b'{"device": "a", "ts"\n')
    (rejected,) = trace.load(tmp_path / "a.jsonl").rejected.to_pylist()
    assert (rejected["row"], rejected["reason"], rejected["raw"]) == (6, "unparsable", '{"device": "a", "ts"')


def test_truncated_document_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(dump(ROWS)[:-30])
    with pytest.raises(TraceFormatError, match="is cut short"):
        trace.load(tmp_path / "a.json")


@pytest.mark.parametrize("nested", [False, True])
def test_line_with_times_is_a_row_for_each_point(tmp_path, nested):
    times = {"coordinateProperties": {"times": MINUTES[:3]}} if nested else {"coordTimes": MINUTES[:3]}
    line = {"type": "LineString", "coordinates": [[8, 47], [8, 47.001], [8, 47.002]]}
    (tmp_path / "a.geojson").write_bytes(dump(feature(line, device="b", **times)))
    assert trace.load(tmp_path / "a.geojson").positions["lat"].to_pylist() == [47, 47.001, 47.002]


def test_locations_of_takeout_have_devices_times_and_speeds(tmp_path):
    locations = [
        {"latitudeE7": 370000000, "longitudeE7": -1224000000, "timestampMs": str(T0 * 1000), "velocity": 3},
        {"latitudeE7": 370010000, "longitudeE7": -1224000000, "timestamp": MINUTES[1]},
        {"latitudeE7": 370000000, "longitudeE7": -1224000000, "timestamp": MINUTES[0], "deviceTag": -5},
    ]
    (tmp_path / "jane.json").write_bytes(dump({"locations": locations}))
    rows = trace.load(tmp_path / "jane.json").positions.to_pylist()
    assert [(row["device"], row["ts"].timestamp() - T0, row["lat"], row["speed_mps"]) for row in rows] == [
        ("jane", 0, 37.0, 3.0),
        ("jane", 60, 37.001, None),
        ("jane/-5", 0, 37.0, None),
    ]


def test_points_without_a_device_are_of_the_one_named(tmp_path):
    points = [feature(point["geometry"], time=point["properties"]["time"]) for point in POINTS]
    (tmp_path / "a.geojson").write_bytes(dump({"type": "FeatureCollection", "features": points}))
    assert set(trace.load(tmp_path / "a.geojson", device="ann").positions["device"].to_pylist()) == {"ann"}
