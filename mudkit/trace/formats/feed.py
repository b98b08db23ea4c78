"""Vehicle positions of GTFS-realtime in protocol buffers, parsed by gtfs-realtime-bindings."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import NO_PLACE, Batch, Row, batches_of, library, unreadable
from mudkit.trace.formats.packed import opened

_HEADER = re.compile(rb"(?s)\x0a.{1,2}\x0a\x03[12]\.0")


def is_feed(head: bytes) -> bool:
    """Return whether a file begins with the header of a feed, which begins with its version."""
    return bool(_HEADER.match(head))


def read_feed(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one message of a feed, as a poll of it stores; a folder holds the polls of a day.

    The device is the vehicle's id, else its label, else the entity's id. A vehicle without a time has that of
    the header, when the feed was made. Speeds are not read, since feeds use several units
    (:func:`mudkit.trace.formats.columns.gtfs_rt`). Vehicles without a position are set aside; other entities
    (trip updates, alerts) are no rows.
    """
    pb2 = library("google.transit.gtfs_realtime_pb2", file)
    errors = library("google.protobuf.message", file)
    feed = pb2.FeedMessage()
    try:
        with opened(file) as stream:
            feed.ParseFromString(stream.read())
        rows = list(_rows(feed))
    except (errors.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from error
    if not rows:
        kinds = Counter(field.name for entity in feed.entity for field, _ in entity.ListFields())
        raise TraceFormatError(
            f"{file.name} holds no vehicle positions.",
            where=str(file),
            found=", ".join(f"{n:,} {kind}" for kind, n in kinds.items() if kind != "id") or "no entities",
            expected="entities with a vehicle",
            remedy="get the feed of vehicle positions; agencies offer it beside that of trip updates",
        )
    yield from batches_of(file, rows, ("device", "ts", "lat", "lon"))


def _rows(feed: Any) -> Iterator[Row]:
    """Yield the vehicles of a feed; one without a position has a reason to be set aside."""
    for entity in feed.entity:
        if not entity.HasField("vehicle"):
            continue
        vehicle = entity.vehicle
        row = {
            "device": vehicle.vehicle.id or vehicle.vehicle.label or entity.id,
            "ts": _iso(vehicle.timestamp or feed.header.timestamp),
        }
        if vehicle.HasField("position"):
            row |= {"lat": f"{vehicle.position.latitude:.7g}", "lon": f"{vehicle.position.longitude:.7g}"}
        yield row, "" if "lat" in row else NO_PLACE


def _iso(seconds: int) -> str | None:
    """Return ISO 8601, which no option changes, of seconds since 1970; the number if it is out of range."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat() if seconds else None
    except (ValueError, OverflowError, OSError):
        return f"{seconds}"
