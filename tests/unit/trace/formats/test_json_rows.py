"""JSON lines and lists, GeoJSON, and Google's location history."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from trace_samples import MINUTES, T0, dump, feature, geojson_point

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.formats import NESTED
from mudkit.trace.parse import UNPLACED

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
    "a list in an object": (dump({"count": 5, "data": ROWS}), "json"),
    "a list in an object in a line": (
        json.dumps({"status": {}, "tags": ["x"], "data": {"rows": ROWS}}).encode(),
        "json",
    ),
    "locations of another program": (dump({"locations": ROWS}), "json"),
    "objects with lists in lines": (dump_lines([{"sensors": [{"id": 1}], **row} for row in ROWS]), "json"),
    "objects with lists": (b"\n".join(dump({"sensors": [{"id": 1}], **row}) for row in ROWS), "json"),
    "a list with a signature": (b"\xef\xbb\xbf" + dump(ROWS), "json"),
    "a list in UTF-16": (json.dumps(ROWS).encode("utf-16"), "json"),
    "lines in UTF-16": (dump_lines(ROWS).decode().encode("utf-16"), "json"),
    "GeoJSON with a signature": (
        b"\xef\xbb\xbf" + dump({"type": "FeatureCollection", "features": POINTS}),
        "geojson",
    ),
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


def test_objects_without_a_place_among_positions_are_set_aside(tmp_path):
    events = [{"device": "a", "ts": T0, "event": "start"}] * 2000
    (tmp_path / "a.jsonl").write_bytes(dump_lines([*events, *ROWS]))
    loaded = trace.load(tmp_path / "a.jsonl")
    assert (len(loaded.positions), loaded.rejected_by_reason()) == (5, {"no place": 2000})


@pytest.mark.parametrize("name", ["location", "gps.loc"])
def test_documents_of_mongodb_are_read(tmp_path, name):
    times = [{"$date": {"$numberLong": str(row["ts"] * 1000)}} for row in ROWS[1:]]
    rows = [
        {
            "_id": {"$oid": "6553f"},
            "device": "a",
            "ts": ts,
            "x": {"type": "Point", "coordinates": [-122.4, row["lat"]]},
        }
        for ts, row in zip([{"$date": MINUTES[0]}, *times], ROWS, strict=True)
    ]
    text = dump_lines(rows).decode().replace('"x"', json.dumps(name))
    (tmp_path / "a.json").write_text(text)
    positions = trace.load(tmp_path / "a.json").positions
    assert [ts.timestamp() for ts in positions["ts"].to_pylist()] == [row["ts"] for row in ROWS]
    assert positions.select(["lat", "lon"]).to_pylist() == [{"lat": r["lat"], "lon": -122.4} for r in ROWS]


POINTS_INSIDE = {
    "an object": (dump({**ROWS[0], "points": ROWS[1:]}), 4),
    "lists of numbers": (dump({**ROWS[0], "points": [[37, -122.4, T0 + n] for n in range(4)]}), 4),
    "lists with times": (dump({**ROWS[0], "points": [[time, 37, -122.4] for time in MINUTES[:4]]}), 4),
    "lines": (dump_lines([{**ROWS[0], "day": {"legs": [{"points": ROWS[n:]}]}} for n in range(3)]), 12),
    "features": (dump_lines(feature(POINTS[0]["geometry"], **ROWS[0], points=ROWS[2:]) for _ in "ab"), 6),
}


@pytest.mark.parametrize("layout", POINTS_INSIDE)
def test_points_in_a_list_inside_a_row_are_counted(tmp_path, layout):
    content, points = POINTS_INSIDE[layout]
    (tmp_path / "a.json").write_bytes(content)
    error = rf"{points} point in a list inside another row.*points: [{{\[](?s:.)*jq -c '{{device}} \+ \.points\[\]'"
    with pytest.raises(TraceFormatError, match=error):
        trace.load(tmp_path / "a.json")


def test_points_in_a_list_inside_few_rows_are_set_aside(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(dump_lines([*ROWS, {**ROWS[0], "day": {"points": ROWS[1:3]}}]))
    loaded = trace.load(tmp_path / "a.jsonl")
    assert (len(loaded.positions), loaded.rejected_by_reason()) == (5, {NESTED: 2, "duplicate": 1})
    assert loaded.rejected["raw"].to_pylist()[-2] == f"day.points: {json.dumps(ROWS[1])}"


def test_stops_inside_a_row_are_no_points(tmp_path):
    fence = [[-122.4, 37.1, 400], [-122.4, 37.2, 400], [-122.5, 37.2, 400]] * 5
    rows = [{**row, "stops": [{"lat": 37, "lon": -122}] * 9, "fence": fence} for row in ROWS]
    (tmp_path / "a.jsonl").write_bytes(dump_lines(rows))
    assert trace.load(tmp_path / "a.jsonl").rejected_by_reason() == {}


TIMELINE = {
    "semanticSegments": [
        {"timelinePath": PATH},
        {"startTime": MINUTES[0], "visit": {"topCandidate": {"placeLocation": {"latLng": "37°, -122°"}}}},
        {"startTime": MINUTES[0], "activity": {"start": {"latLng": "37°, -122°"}}},
        {"startTime": MINUTES[0], "timelineMemory": {}},
        3,
    ],
    "rawSignals": [
        {"position": {"LatLng": "37.006°, -122.4°", "timestamp": MINUTES[6], "speedMetersPerSecond": 2.0}},
        {"position": {"timestamp": MINUTES[7]}},
        {"wifiScan": {"deliveryTime": MINUTES[0]}},
    ],
}


def test_every_segment_and_signal_of_a_timeline_is_read_or_set_aside(tmp_path):
    (tmp_path / "a.json").write_bytes(dump(TIMELINE))
    loaded = trace.load(tmp_path / "a.json")
    assert loaded.positions["lat"].to_pylist() == [37, 37.001, 37.002, 37.003, 37.004, 37.006]
    assert loaded.positions["speed_mps"].to_pylist()[-1] == 2
    assert loaded.rejected_by_reason() == {"no place": 3, "activity": 1, "visit": 1, UNPLACED: 1}
    visits = TIMELINE["semanticSegments"][1:3]
    for content in ({"semanticSegments": visits, "rawSignals": []}, visits):
        (tmp_path / "a.json").write_bytes(dump(content))
        with pytest.raises(TraceContentError, match=r"no positions(?s:.)*set aside: visit, 1 row"):
            trace.load(tmp_path / "a.json")


BARE = [{name: value for name, value in row.items() if name != "device"} for row in ROWS]
ENTRIES = [["a", *list(row.values())[1:]] for row in ROWS]
WITH_JQ = {
    "lists": {"a": ROWS, "b": ROWS},
    "a list with a device": [{"vehicle": d, "day": {"points": BARE}} for d in "ab"],
    "a list with a device by line": dump_lines([{"id": d, "points": BARE} for d in "ab"]),
    "a name with a hyphen": [{"tracker-id": d, "gps-points": BARE, "x": [{"a": 1}]} for d in "ab"],
    "a name with a dollar sign and a blank": {"$id": 1, "my points": {"1st": ENTRIES}},
    "entries": {"time": 1, "states": ENTRIES},
    "points inside rows": [{**ROWS[0], "points": BARE}],
    "lists inside rows": [{**ROWS[0], "points": [row[1:] for row in ENTRIES]}],
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("case", WITH_JQ)
def test_command_of_the_error_makes_rows(tmp_path, case):
    content = WITH_JQ[case]
    file = tmp_path / "my day's.json"
    text = (
        content
        if isinstance(content, bytes)
        else b"\n".join(map(dump, content if isinstance(content, list) else [content]))
    )
    file.write_bytes(text)
    with pytest.raises(TraceFormatError) as caught:
        trace.load(file)
    commands = re.findall(r"jq -c '[^']*'(?: .* > rows.jsonl)?", caught.value.remedy)
    command = commands[-1 if case == "lists inside rows" else 0]
    if "rows.jsonl" not in command:
        command += f" {shlex.quote(file.name)} > rows.jsonl"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    loaded = trace.load(tmp_path / "rows.jsonl")
    assert loaded.rejected_by_reason() == {}
    assert set(loaded.positions["lat"].to_pylist()) == {row["lat"] for row in ROWS}


REFUSED = {
    "several lists": ({"a": ROWS, "b": ROWS}, r"lists at a, b(?s:.)*jq -c '\.a\[\]' a\.json"),
    "lists of values": ({"time": 1, "states": [["a", T0, 1, 2]]}, r"jq -c '\.states\[\] \| {device: \.\[0\]"),
    "features in a list": ({"locations": POINTS}, r"jq -c '\.locations\[\]'"),
    "no lists": ({"a": 1}, "lacks columns"),
    "a feature alone": (feature({"type": "LineString", "coordinates": [[1, 2], [3, 4]]}), "lacks columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_objects_that_are_not_found_are_named(tmp_path, case):
    content, pattern = REFUSED[case]
    for text in (dump(content), json.dumps(content).encode()):
        (tmp_path / "a.json").write_bytes(text)
        with pytest.raises(TraceFormatError, match=pattern):
            trace.load(tmp_path / "a.json")


def test_messages_of_gtfs_in_json_are_recognised(tmp_path):
    entities = [
        {
            "id": str(n),
            "vehicle": {
                "trip": {"tripId": "t"},
                "position": {"latitude": 37 + n / 1000, "longitude": -122.4},
                "timestamp": str(T0 + 60 * n),
                "vehicle": {"id": "v"},
            },
        }
        for n in range(5)
    ]
    (tmp_path / "a.json").write_bytes(json.dumps({"header": {"timestamp": T0}, "entity": entities}).encode())
    assert trace.load(tmp_path / "a.json").positions["device"].to_pylist() == ["v"] * 5


def test_truncated_document_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(dump(ROWS)[:-30])
    with pytest.raises(TraceFormatError, match="is cut short"):
        trace.load(tmp_path / "a.json")


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_line_with_times_is_a_row_for_each_point(tmp_path, nested, several):
    moments, places = MINUTES[:3], [[8, 47], [8, 47.001], [8, 47.002]]
    if several:
        moments, places = [moments[:2], moments[2:]], [places[:2], places[2:]]
    times = {"coordinateProperties": {"times": moments}} if nested else {"coordTimes": moments}
    line = {"type": "MultiLineString" if several else "LineString", "coordinates": places}
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
