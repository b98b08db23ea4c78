"""JSON: objects line by line or in a list, GeoJSON, and Google's location history; read as a stream."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import (
    ACTIVITY,
    NESTED,
    NO_PLACE,
    UNPARSABLE,
    UNTIMED_LINE,
    VISIT,
    Batch,
    Row,
    batches_of,
    library,
    other_format,
    unreadable,
)
from mudkit.trace.formats.columns import device_name, has_places, has_time, pair_name
from mudkit.trace.formats.delimited import encoding_of
from mudkit.trace.formats.packed import opened, peek, stem

_OBJECTS_LOOKED_AT = 100
_MAX_OBJECTS_LOOKED_AT = 100_000
"""Objects that are searched for names of a latitude and a longitude, which the first ones may lack."""

_AS_TEXT = (UNPARSABLE, NESTED)
"""Reasons of rows that hold their text under ``device``."""

_BLANK = b"\xef\xbb\xbf\x1e \t\r\n"
"""Bytes before an object: a signature, the record separator of RFC 8142, blanks."""

_GEOJSON = re.compile(rb'"type"\s*:\s*"(FeatureCollection|Feature)"')
_FEATURES = re.compile(rb'"features"\s*:\s*\[')
_TIMELINE = re.compile(rb'"(semanticSegments|rawSignals|timelinePath)"\s*:\s*\[|"topCandidate"\s*:')
_LOCATIONS = re.compile(rb'"locations"\s*:\s*\[\s*(\])?')
_LOCATION = re.compile(rb'"(latitudeE7|timestampMs)"\s*:')
_KINDS_OF_SEGMENTS = {"visit": VISIT, "activity": ACTIVITY}
_SECONDS_1980 = 315_532_800
_DATED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d")
_DEGREES = re.compile(r"[+-]?\d+(?:\.\d+)?")


def is_json(head: bytes) -> bool:
    """Return whether a file begins like an object, or like a list of them."""
    return bool(re.match(rb'\{\s*["}]|\[\s*\{', _utf8(head).lstrip(_BLANK)))


def is_geojson(head: bytes) -> bool:
    """Return whether a file begins like GeoJSON."""
    return is_json(head) and bool(_GEOJSON.search(_utf8(head)))


def is_takeout(head: bytes) -> bool:
    """Return whether a file begins like a location history of Google."""
    if not is_json(head):
        return False
    head = _utf8(head)
    locations = _LOCATIONS.search(head)
    return bool(_TIMELINE.search(head) or (locations and (locations[1] or _LOCATION.search(head))))


def _utf8(head: bytes) -> bytes:
    """Return the beginning of a file, in UTF-8 if it is in UTF-16."""
    return head.decode(encoding_of(head), errors="ignore").encode() if 0 in head[:4] else head


def _head(file: Place) -> bytes:
    """Return the beginning of a file as UTF-8, without blanks in front; FileEmpty for an empty file."""
    return _utf8(peek(file)).lstrip(_BLANK)


def json_names(file: Place) -> list[str]:
    """Return the names of the values of a file's first objects; those of nested objects have dots."""
    names: dict[str, None] = {}
    for number, (row, reason) in enumerate(
        islice(_rows(file, is_geojson(peek(file))), _MAX_OBJECTS_LOOKED_AT)
    ):
        if number >= _OBJECTS_LOOKED_AT and (has_places([*names]) or pair_name([*names])):
            break
        names |= dict.fromkeys(row if reason not in _AS_TEXT else ())
    if not names:
        raise other_format(file, "JSON objects, line by line or in a list")
    return list(names)


def read_json(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read objects line by line (JSON lines, RFC 8142) or in a list; ``columns`` maps names to the file's.

    The list may be in an object if it is the only one of objects there. A line that is no object is set
    aside.
    """
    return _mapped(file, _rows(file, is_geojson=False), columns)


def read_geojson(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the points of GeoJSON (RFC 7946): a collection of features, or features line by line.

    Columns are the properties of features, and ``lat`` and ``lon``. A line, or several, with the times of its
    points among its properties (``coordTimes``, ``times``, ``coordinateProperties.times``) is a row for each
    point, with ``time``. Features of other geometries are set aside.
    """
    return _mapped(file, _rows(file, is_geojson=True), columns)


def _mapped(file: Place, rows: Iterator[Row], columns: dict[str, str]) -> Iterator[Batch]:
    """Return rows in batches, under mudkit's names for columns."""
    return batches_of(file, (_mapped_row(row, reason, columns) for row, reason in rows), columns)


def _mapped_row(row: Mapping[str, str | None], reason: str, columns: dict[str, str]) -> Row:
    """Return a row under mudkit's names; one that lacks both coordinates has a reason to be set aside."""
    if reason in _AS_TEXT:
        return row, reason
    if columns["lat"] not in row and columns["lon"] not in row:  # an event among positions
        reason = reason or NO_PLACE
    return {name: row.get(given) for name, given in columns.items()}, reason


def _rows(file: Place, is_geojson: bool) -> Iterator[Row]:
    """Yield the values of each object by name; a row that is no object holds its text under ``device``."""
    has_features = is_geojson and _FEATURES.search(_head(file))
    for value in _objects(file, "features.item" if has_features else "" if is_geojson else _path(file)):
        if not isinstance(value, dict):
            yield {"device": str(value)[:1000]}, UNPARSABLE
        else:
            yield from _feature_rows(value) if is_geojson else [(_flat(value), "")]
            for path, point in _points_inside(value):
                yield {"device": f"{path}: {json.dumps(point)}"[:1000]}, NESTED


def _points_inside(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield what has a time and a place in the lists of an object, with the names of these lists."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _points_inside(inner, f"{prefix}{name}.")
        elif isinstance(inner, list):
            for item in inner:
                if isinstance(item, list) and _is_point(item):
                    yield f"{prefix}{name}", item
                elif isinstance(item, dict):
                    names = [*_flat(item)]
                    if has_places(names) and has_time(names):
                        yield f"{prefix}{name}", item
                    yield from _points_inside(item, f"{prefix}{name}.")


def _is_point(values: list[object]) -> bool:
    """Return whether values include two that may be coordinates, and a time since 1980 in any unit."""
    numbers = [value for value in values if isinstance(value, int | float)]
    has_time = any(value >= _SECONDS_1980 for value in numbers) or any(
        isinstance(value, str) and _DATED.match(value) for value in values
    )
    return has_time and sum(abs(value) <= 180 for value in numbers) >= 2


def _path(file: Place) -> str:
    """Return the path of the only list of objects in a document of one object; nothing for other files."""
    head = _head(file)
    first = _parsed(head.splitlines()[0])
    if head.startswith(b"[") or (
        isinstance(first, dict) and not (_has_lists(first) and not has_places([*_flat(first)]))
    ):
        return ""
    lists, _, is_alone = _lists(file)
    ((path, event),) = lists.items() if len(lists) == 1 else [("", "")]
    return path if is_alone and event == "start_map" else ""


def _has_lists(value: object) -> bool:
    """Return whether a value of JSON has, at any depth, a list with objects or lists in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    is_list = isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    return is_list or any(map(_has_lists, inner))


def _lists(file: Place) -> tuple[dict[str, str], list[str], bool]:
    """Return the outer lists of a file's first document, its values, and whether the lists are all there is.

    Lists are paths of their items to the first event of an item; values are paths. A document with a place of
    its own, or followed by another one, is a row itself.
    """
    ijson = library("ijson", file)
    lists: dict[str, str] = {}
    names: list[str] = []
    try:
        with _opened(file) as stream:
            is_done = False
            for path, event, _ in ijson.parse(stream, multiple_values=True):
                if is_done:
                    return lists, names, False
                is_done = not path and event == "end_map"
                if path.endswith(".item") and ".item." not in path and event in ("start_map", "start_array"):
                    lists.setdefault(path, event)
                elif ".item" not in path and event in ("string", "number"):
                    names.append(path)
    except ijson.JSONError as error:
        raise unreadable(file, error) from error
    return lists, names, not has_places(names)


def wrapped(file: Place) -> TraceFormatError | None:
    """Return the error for objects that are in lists of other objects; None for other files."""
    head = _head(file)
    first = _parsed(head.splitlines()[0])
    if head.startswith(b"[") or (isinstance(first, dict) and not _has_lists(first)):
        return None
    lists, names, _ = _lists(file)
    if is_geojson(head):
        lists = {
            path: event for path, event in lists.items() if event == "start_map" and path != "features.item"
        }
    elif _path(file):
        return None
    if not lists:
        return None
    path, event = next(iter(lists.items()))
    place = "".join(f".{_quoted(name)}" for name in path.removesuffix(".item").split("."))
    values = "" if event == "start_map" else " | {device: .[0], ts: .[1], lat: .[2], lon: .[3]}"
    device = None if values else device_name([name for name in names if "." not in name])
    outer = f"{{{_quoted(device)}}} + " if device else ""
    return TraceFormatError(
        f"{file.name} holds its rows in a list inside.",
        where=str(file),
        found="lists at " + ", ".join(name.removesuffix(".item") for name in list(lists)[:5]),
        expected="objects line by line, or one list of objects",
        remedy=f"write the list alone: jq -c '{outer}{place}[]{values}' {shlex.quote(file.name)} > rows.jsonl"
        + (", with the places of your values, from 0" if values else "")
        + ", and load rows.jsonl",
    )


def _quoted(name: str) -> str:
    """Return a name as jq takes it behind a dot."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name)


def _feature_rows(feature: dict[str, Any]) -> Iterator[Row]:
    """Yield the points of a feature, of a line one for each of its times."""
    properties = feature.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    values = _flat({"id": feature["id"]} if "id" in feature else {}) | _flat(properties)
    geometry = feature.get("geometry")
    geometry = geometry if isinstance(geometry, dict) else {}
    places = geometry.get("coordinates")
    nested = properties.get("coordinateProperties")
    times = next(
        (
            of[name]
            for of in (properties, nested if isinstance(nested, dict) else {})
            for name in ("coordTimes", "times")
            if name in of
        ),
        None,
    )
    if geometry.get("type") == "MultiLineString" and isinstance(places, list) and isinstance(times, list):
        geometry, places, times = {"type": "LineString"}, _joined(places), _joined(times)
    if geometry.get("type") == "Point":
        yield values | _place(places), ""
    elif geometry.get("type") == "LineString" and isinstance(places, list) and isinstance(times, list):
        for number, place in enumerate(places):
            time = _text(times[number]) if number < len(times) else None
            yield values | _place(place) | {"time": time}, ""
    else:
        yield values | _place(None), UNTIMED_LINE if "LineString" in str(geometry.get("type")) else NO_PLACE


def _joined(parts: list[object]) -> list[object]:
    """Return the items of lists one after the other; values outside of lists stay."""
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


def _place(coordinates: object) -> dict[str, str | None]:
    """Return latitude and longitude of GeoJSON's coordinates as texts, None if they are no place."""
    lon, lat = coordinates[:2] if isinstance(coordinates, list) and len(coordinates) > 1 else (None, None)
    return {"lat": _text(lat), "lon": _text(lon)}


def read_takeout(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the location history of a phone that Google exports.

    ``Records.json`` of Takeout has ``locations``; ``Timeline.json`` of phones has ``semanticSegments`` (a
    list of them on iPhones), of which the points of ``timelinePath`` are read, and ``rawSignals``, of which
    the positions are read. Visits and activities, whose places are inferred, and other signals are set aside.
    The device is the file's stem, with the ``deviceTag`` of a location that has one.
    """
    rows = _locations(file) if b'"locations"' in _head(file) else chain(_segments(file), _signals(file))
    return batches_of(file, rows, ("device", "ts", "lat", "lon", "speed_mps"))


def _locations(file: Place) -> Iterator[Row]:
    """Yield the positions of a ``Records.json``."""
    for value in _objects(file, "locations.item"):
        location = _flat(value) if isinstance(value, dict) else {}
        tag = location.get("deviceTag")
        yield (
            {
                "device": f"{stem(file)}/{tag}" if tag else stem(file),
                "ts": location.get("timestamp") or _of_milliseconds(location.get("timestampMs")),
                "lat": _of_e7(location.get("latitudeE7")),
                "lon": _of_e7(location.get("longitudeE7")),
                "speed_mps": location.get("velocity"),
            },
            "",
        )


def _segments(file: Place) -> Iterator[Row]:
    """Yield the points of paths in a ``Timeline.json``; other segments have a reason to be set aside."""
    for value in _objects(file, "semanticSegments.item"):
        segment = value if isinstance(value, dict) else {}
        path = segment.get("timelinePath")
        if not isinstance(path, list):
            kind = next((kind for kind in _KINDS_OF_SEGMENTS if kind in segment), "")
            time = _text(segment.get("startTime"))
            yield {"device": stem(file), "ts": time}, _KINDS_OF_SEGMENTS.get(kind, NO_PLACE)
            continue
        for point in path:
            values = _flat(point) if isinstance(point, dict) else {}
            time = values.get("time") or _after(segment.get("startTime"), values)
            yield {"device": stem(file), "ts": time, **_degrees(values.get("point"))}, ""


def _signals(file: Place) -> Iterator[Row]:
    """Yield the raw positions of a ``Timeline.json``; other signals have a reason to be set aside."""
    if _head(file).startswith(b"["):
        return
    for value in _objects(file, "rawSignals.item"):
        values = _flat(value) if isinstance(value, dict) else {}
        row = {
            "device": stem(file),
            "ts": values.get("position.timestamp"),
            "speed_mps": values.get("position.speedMetersPerSecond"),
            **_degrees(values.get("position.LatLng")),
        }
        yield row, "" if any(name.startswith("position.") for name in values) else NO_PLACE


def _degrees(text: str | None) -> dict[str, str | None]:
    """Return ``lat`` and ``lon`` in a text such as ``47.37°, 8.54°`` or ``geo:47.37,8.54``, as texts.

    None without them.
    """
    place = _DEGREES.findall(text or "")
    lat, lon = place if len(place) == 2 else (None, None)
    return {"lat": lat, "lon": lon}


def _of_e7(text: str | None) -> str | None:
    """Convert a whole number of 1e-7 degrees to degrees; another text stays as it is."""
    try:
        return None if text is None else str(int(text) / 1e7)
    except (ValueError, OverflowError):
        return text


def _of_milliseconds(text: str | None) -> str | None:
    """Convert milliseconds since 1970 to ISO 8601; another text stays as it is."""
    try:
        return text and dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return text


def _after(start: object, point: Mapping[str, str | None]) -> str | None:
    """Return the time of a point that is some minutes after the start of its segment.

    None if it is not given.
    """
    try:
        minutes = float(point["durationMinutesOffsetFromStartTime"] or "")
        return (dt.datetime.fromisoformat(str(start)) + dt.timedelta(minutes=minutes)).isoformat()
    except (KeyError, ValueError, OverflowError):
        return None


def _objects(file: Place, prefix: str) -> Iterator[object]:
    """Yield the objects of a list; else those at ``prefix`` in a document; without it those of lines.

    Of lines that are no JSON the text is yielded.
    """
    head = _head(file)
    try:
        with _opened(file) as stream:
            if head.startswith(b"["):
                yield from _items(file, stream, "item")
            elif not prefix and isinstance(_parsed(head.splitlines()[0]), dict):
                for line in io.BufferedReader(stream):
                    if text := line.strip(_BLANK):
                        yield _parsed(text)
            else:
                yield from _items(file, stream, prefix)
    except RecursionError as error:
        raise unreadable(file, ValueError("objects nested too deeply")) from error


@contextmanager
def _opened(file: Place) -> Iterator[pa.NativeFile]:
    """Open a file as UTF-8 without a byte-order mark."""
    head = peek(file)
    with opened(file) as stream:
        is_plain = 0 not in head[:4] and not head.startswith(b"\xef\xbb\xbf")
        yield stream if is_plain else pa.transcoding_input_stream(stream, encoding_of(head), "utf-8")


def _parsed(line: bytes) -> object:
    """Parse a line; return its text if it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace")


def _items(file: Place, stream: object, prefix: str) -> Iterator[object]:
    """Yield the values at a path in a stream of JSON; TraceFormatError if it is damaged."""
    ijson = library("ijson", file)
    try:
        yield from ijson.items(stream, prefix, use_float=True, multiple_values=not prefix)
    except (ijson.JSONError, ValueError) as error:
        raise unreadable(file, error) from error


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str | None]:
    """Return the values of an object and of those in it as texts; lists are JSON."""
    flat: dict[str, str | None] = {}
    for name, inner in value.items():
        while isinstance(inner, dict) and len(inner) == 1 and next(iter(inner)).startswith("$"):
            (inner,) = inner.values()  # {"$date": …} and the like of MongoDB's extended JSON
        if isinstance(inner, dict):
            flat |= _flat(inner, f"{prefix}{name}.")
        else:
            flat[prefix + name] = _text(inner)
    return flat


def _text(value: object) -> str | None:
    """Return a value of JSON as text that UTF-8 can encode; None stays None."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()  # half of a surrogate pair is no text
