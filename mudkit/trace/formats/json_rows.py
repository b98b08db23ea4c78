"""JSON: objects line by line or in a list, GeoJSON, and Google's location history; read as a stream."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mudkit.trace.formats.batch import (
    NO_PLACE,
    UNPARSABLE,
    Batch,
    Row,
    batches_of,
    library,
    other_format,
    unreadable,
)
from mudkit.trace.formats.packed import opened, peek, stem

__all__ = [
    "is_geojson",
    "is_json",
    "is_takeout",
    "json_names",
    "read_geojson",
    "read_json",
    "read_takeout",
]

_OBJECTS_LOOKED_AT = 100
_BLANK = b"\xef\xbb\xbf\x1e \t\r\n"
"""Bytes before an object: a signature, the record separator of RFC 8142, blanks."""

_GEOJSON = re.compile(rb'"type"\s*:\s*"(FeatureCollection|Feature)"')
_FEATURES = re.compile(rb'"features"\s*:\s*\[')
_TAKEOUT = re.compile(rb'"(locations|semanticSegments|timelinePath)"\s*:\s*\[')
_DEGREES = re.compile(r"[+-]?\d+(?:\.\d+)?")


def is_json(head: bytes) -> bool:
    """Return whether a file begins like an object, or like a list of them."""
    return bool(re.match(rb'\{\s*["}]|\[\s*\{', head.lstrip(_BLANK)))


def is_geojson(head: bytes) -> bool:
    """Return whether a file begins like GeoJSON."""
    return is_json(head) and bool(_GEOJSON.search(head))


def is_takeout(head: bytes) -> bool:
    """Return whether a file begins like a location history of Google."""
    return is_json(head) and bool(_TAKEOUT.search(head))


def json_names(file: Path) -> list[str]:
    """Return the names of the values of a file's first objects; those of nested objects have dots."""
    rows = islice(_rows(file, is_geojson(peek(file))), _OBJECTS_LOOKED_AT)
    names = list(dict.fromkeys(name for row, reason in rows if reason != UNPARSABLE for name in row))
    if not names:
        raise other_format(file, "JSON objects, line by line or in a list")
    return names


def read_json(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read objects line by line (JSON lines, RFC 8142) or in a list; ``columns`` maps names to the file's.

    A line that is no object is set aside.
    """
    return _mapped(file, _rows(file, is_geojson=False), columns)


def read_geojson(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the points of GeoJSON (RFC 7946): a collection of features, or features line by line.

    Columns are the properties of features, and ``lat`` and ``lon``. A line with the times of its points among
    its properties (``coordTimes``, ``times``, ``coordinateProperties.times``) is a row for each point, with
    ``time``. Features of other geometries are set aside.
    """
    return _mapped(file, _rows(file, is_geojson=True), columns)


def _mapped(file: Path, rows: Iterator[Row], columns: dict[str, str]) -> Iterator[Batch]:
    mapped = (
        ({name: row.get(given) for name, given in columns.items()} if reason != UNPARSABLE else row, reason)
        for row, reason in rows
    )
    return batches_of(file, mapped, columns)


def _rows(file: Path, is_geojson: bool) -> Iterator[Row]:
    """Yield the values of each object by name; a row that is no object holds its text under ``device``."""
    has_features = is_geojson and _FEATURES.search(peek(file))
    for value in _objects(file, "features.item" if has_features else ""):
        if not isinstance(value, dict):
            yield {"device": str(value)[:1000]}, UNPARSABLE
        elif is_geojson:
            yield from _feature_rows(value)
        else:
            yield _flat(value), ""


def _feature_rows(feature: dict[str, Any]) -> Iterator[Row]:
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
    if geometry.get("type") == "Point":
        yield values | _place(places), ""
    elif geometry.get("type") == "LineString" and isinstance(places, list) and isinstance(times, list):
        for number, place in enumerate(places):
            time = _text(times[number]) if number < len(times) else None
            yield values | _place(place) | {"time": time}, ""
    else:
        yield values | _place(None), NO_PLACE


def _place(coordinates: object) -> dict[str, str | None]:
    lon, lat = coordinates[:2] if isinstance(coordinates, list) and len(coordinates) > 1 else (None, None)
    return {"lat": _text(lat), "lon": _text(lon)}


def read_takeout(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the location history of a phone that Google exports.

    ``Records.json`` of Takeout has ``locations``; ``Timeline.json`` of phones has ``semanticSegments`` (a
    list of them on iPhones), of which the points of ``timelinePath`` are read. The device is the file's stem,
    with the ``deviceTag`` of a location that has one.
    """
    rows = _locations(file) if b'"locations"' in peek(file) else _segments(file)
    return batches_of(file, rows, ("device", "ts", "lat", "lon", "speed_mps"))


def _locations(file: Path) -> Iterator[Row]:
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


def _segments(file: Path) -> Iterator[Row]:
    for value in _objects(file, "semanticSegments.item"):
        segment = value if isinstance(value, dict) else {}
        path = segment.get("timelinePath")
        for point in path if isinstance(path, list) else []:
            values = _flat(point) if isinstance(point, dict) else {}
            place = _DEGREES.findall(values.get("point") or "")
            lat, lon = place if len(place) == 2 else (None, None)
            time = values.get("time") or _after(segment.get("startTime"), values)
            yield {"device": stem(file), "ts": time, "lat": lat, "lon": lon}, ""


def _of_e7(text: str | None) -> str | None:
    """Convert a whole number of 1e-7 degrees."""
    try:
        return None if text is None else str(int(text) / 1e7)
    except (ValueError, OverflowError):
        return text


def _of_milliseconds(text: str | None) -> str | None:
    """Convert milliseconds since 1970 to ISO 8601."""
    try:
        return text and dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return text


def _after(start: object, point: Mapping[str, str | None]) -> str | None:
    """Return the time of a point that is some minutes after the start of its segment."""
    try:
        minutes = float(point["durationMinutesOffsetFromStartTime"] or "")
        return (dt.datetime.fromisoformat(str(start)) + dt.timedelta(minutes=minutes)).isoformat()
    except (KeyError, ValueError, OverflowError):
        return None


def _objects(file: Path, prefix: str) -> Iterator[object]:
    """Yield the objects of a list; else those at ``prefix`` in a document; without it those of lines.

    Of lines that are no JSON the text is yielded.
    """
    head = peek(file).lstrip(_BLANK)
    try:
        with opened(file) as stream:
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


def _parsed(line: bytes) -> object:
    """Parse a line; return its text if it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace")


def _items(file: Path, stream: object, prefix: str) -> Iterator[object]:
    ijson = library("ijson", file)
    try:
        yield from ijson.items(stream, prefix, use_float=True, multiple_values=not prefix)
    except (ijson.JSONError, ValueError) as error:
        raise unreadable(file, error) from error


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str | None]:
    """Return the values of an object and of those in it as texts; lists are JSON."""
    flat: dict[str, str | None] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            flat |= _flat(inner, f"{prefix}{name}.")
        else:
            flat[prefix + name] = _text(inner)
    return flat


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()  # half of a surrogate pair is no text
