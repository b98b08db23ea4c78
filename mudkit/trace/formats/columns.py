"""Assignment of a table's columns, by usual names or by the caller's mapping."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection

from mudkit.errors import TraceFormatError
from mudkit.files import Place

COLUMNS = (
    "device",
    "ts",
    "date",
    "lat",
    "lat_hemisphere",
    "lon",
    "lon_hemisphere",
    "speed_mps",
    "occupied",
    "box_km",
    "window_s",
)
"""Columns of a trace, by mudkit's names; ``date`` is the day where ``ts`` is a time of day, hemispheres are
letters beside coordinates without a sign."""

CABSPOTTING = {"device": "cab", "ts": "t", "lat": "lat", "lon": "lon", "occupied": "occ"}
REQUIRED = ("device", "ts", "lat", "lon")
"""Columns that each table has."""

_HEMISPHERES = (
    "{0}_hemisphere",
    "{1}_hemisphere",
    "{0}_dir",
    "{1}_dir",
    "{0}_direction",
    "{1}_direction",
    "{0}_ref",
    "{1}_ref",
    "{0}_{2}",
    "{1}_{2}",
    "{2}_indicator",
    "{2}",
)
"""Usual names of the letters beside a coordinate."""

SPELLINGS = {
    "device": (
        "device",
        "device_id",
        "vehicle_id",
        "vehicle",
        "cab",
        "cab_id",
        "taxi",
        "taxi_id",
        "car",
        "car_id",
        "user",
        "user_id",
        "tracker_id",
        "unit_id",
        "imei",
        "trip_id",
        "track_id",
        "id",
    ),
    "ts": (
        *(
            name.format(moment)
            for moment in ("ts", "timestamp", "datetime", "date_time", "time", "t")
            for name in ("{}_utc", "utc_{}", "{}_gmt", "gmt_{}", "{}")
        ),
        "tst",
        "utc",
    ),
    "date": ("date", "utc_date", "date_utc", "gps_date", "local_date"),
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "lat_hemisphere": tuple(name.format("lat", "latitude", "ns") for name in _HEMISPHERES),
    "lon_hemisphere": tuple(name.format("lon", "longitude", "ew") for name in _HEMISPHERES),
    "speed_mps": ("speed_mps",),
    "occupied": ("occupied",),
    "box_km": ("box_km",),
    "window_s": ("window_s",),
}
"""Usual names of each column in files, in any case and with or without ``_``; the first one counts."""

_PAIRS = (
    *("coordinates", "latlng", "latlon", "latlong", "latitudelongitude", "lnglat", "lonlat", "longlat"),
    *("location", "position", "point", "geopoint", "gpscoordinates", "wkt", "wktgeom", "thegeom", "geom"),
    *("geometry",),
)
"""Usual names of a column with both coordinates, as :func:`_folded` returns them."""

REPROJECT = (
    "convert them to degrees of WGS 84, for instance with pyproj: "
    "Transformer.from_crs('EPSG:32632', 'EPSG:4326', always_xy=True).transform(x, y) returns longitude and "
    "latitude, where 32632 is UTM's zone 32 north; take the code of yours"
)
"""Remedy for places in metres."""

_COORDINATE = re.compile("^(lat|lon|lng)|(lat|lon|lng|latitude|longitude|easting|northing)(deg|degrees)?$")
"""Parts of names that may be those of a single coordinate."""

_START = re.compile("start|pickup|origin|^from")
_END = re.compile("end|dropoff|destination|^to")
"""Parts of names of a trip's start and end."""

_TIMES_OF_DAY = frozenset(("time", "utc", "utctime", "timeutc", "gpstime", "localtime"))
"""Names of times that a date may stand beside, as :func:`_folded` returns them."""

_GTFS_RT = {
    "device": ("vehicle_vehicle_id", "vehicle_id"),
    "ts": ("vehicle_timestamp", "timestamp", "t"),
    "lat": ("vehicle_position_latitude", "position_latitude", "latitude", "lat"),
    "lon": ("vehicle_position_longitude", "position_longitude", "longitude", "lon"),
}
_TRIP = {
    "trip_id",
    "route_id",
    "trip_trip_id",
    "trip_route_id",
    "vehicle_trip_trip_id",
    "vehicle_trip_route_id",
}


class ColumnsMissing(TraceFormatError):
    """Columns of a table are missing; callers with another mapping adapt the remedy."""


def place_name(place: int | str) -> str:
    """Return the name of a column without a header, by its place from 1."""
    return f"column {place}"


def is_place(name: str) -> bool:
    """Return whether a name is made by :func:`place_name`, for a column without a name."""
    return re.fullmatch(r"column [1-9]\d*", name) is not None


def has_places(names: list[str]) -> bool:
    """Return whether names include those of a latitude and a longitude."""
    folded = set(map(_folded, names))
    return all(
        not folded.isdisjoint(map(_folded, SPELLINGS[column])) or any(name.endswith(end) for name in folded)
        for column, end in (("lat", "latitude"), ("lon", "longitude"))
    )


def pair_name(names: list[str]) -> str | None:
    """Return the name of a column that holds both coordinates, also of GeoJSON inside an object.

    None if another column may be a coordinate, by its name.
    """
    folded = {_folded(name): name for name in reversed(names)}
    inner = (name for name in names if name.lower().endswith(".coordinates"))
    pair = next((folded[name] for name in _PAIRS if name in folded), next(inner, None))
    return None if any(_COORDINATE.search(_folded(name)) for name in names if name != pair) else pair


def is_longitude_first(name: str) -> bool:
    """Return whether a column with both coordinates is named for the longitude first."""
    return _folded(name).startswith(("lon", "lng"))


def is_utc(name: str) -> bool:
    """Return whether a column of times says by its name that they are in UTC."""
    return _folded(name).startswith(("utc", "gmt")) or _folded(name).endswith(("utc", "gmt"))


def device_name(names: list[str]) -> str | None:
    """Return the name of the column of devices, by its usual spellings; None if no column has one."""
    folded = {_folded(name): name for name in reversed(names)}
    return next((folded[name] for name in map(_folded, SPELLINGS["device"]) if name in folded), None)


def has_time(names: list[str]) -> bool:
    """Return whether names include a usual one of times."""
    return not {_folded(name) for name in names}.isdisjoint(map(_folded, SPELLINGS["ts"]))


@functools.lru_cache(maxsize=4096)
def _folded(name: str) -> str:
    """Return a name in lower case, with letters and digits only: ``vehicleId`` is ``vehicle_id``."""
    return re.sub(r"[\W_]+", "", name).lower()


def resolve(
    file: Place,
    names: list[str],
    columns: dict[str, str],
    *,
    guess: bool = True,
    required: Collection[str] = REQUIRED,
) -> dict[str, str]:
    """Return the mapping of mudkit's names to the file's; names not mapped are searched by usual spellings.

    ``file`` is for messages; with ``guess`` False only the given mapping counts.

    Raises
    ------
    ColumnsMissing
        Required columns are missing.
    TraceFormatError
        Several columns have a name that was searched for.
    """
    folded = {_folded(name): name for name in reversed(names)}
    mapping = dict(columns)
    if guess:
        matches = {
            column: next((folded[s] for s in map(_folded, spellings) if s in folded), None)
            for column, spellings in SPELLINGS.items()
        }
        has_hemispheres = None not in (matches["lat_hemisphere"], matches["lon_hemisphere"])
        for column, match in matches.items():
            if column == "date" and _folded(mapping.get("ts", "")) not in _TIMES_OF_DAY:
                continue
            if column.endswith("_hemisphere") and not has_hemispheres:  # ns alone may be nanoseconds
                continue
            if column not in mapping and match is not None:
                mapping[column] = match
        if "lat" not in mapping and "lon" not in mapping and (pair := pair_name(names)):
            mapping |= {"lat": pair, "lon": pair}
        _refuse_twins(file, names, {c: name for c, name in mapping.items() if c not in columns})
    absent = [c for c in required if mapping.get(c) not in names]
    missing = [mapping.get(c, c) for c in absent]
    missing += [given for c, given in columns.items() if c not in required and given not in names]
    if missing == ["device"]:
        raise ColumnsMissing(
            f"{file.name} has no column that names a device.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]),
            expected="a column for device, by a usual name such as " + ", ".join(SPELLINGS["device"][:3]),
            remedy="if all rows are of one device, name it: device='ann' (on the command line --device ann); "
            "else map the column: columns={'device': …} (on the command line --column device=…)",
        )
    if {"lat", "lon"} & {*absent} and (reason := _no_places(names)):
        summary, remedy = reason
        raise ColumnsMissing(
            f"{file.name} {summary}.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]),
            expected="a latitude and a longitude in each row, in degrees",
            remedy=remedy,
        )
    if missing:
        raise ColumnsMissing(
            f"{file.name} lacks columns.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]) or "columns without names",
            expected="a column for each of "
            + ", ".join(_with_near(column, names) for column in dict.fromkeys(missing)),
            remedy="map the file's names: columns={'device': …, 'ts': …, 'lat': …, 'lon': …} "
            "(on the command line --column device=…)",
        )
    return {column: mapping[column] for column in COLUMNS if column in mapping}


def _no_places(names: list[str]) -> tuple[str, str] | None:
    """Return what a table holds in place of a latitude and a longitude, and what to do; None if unknown."""
    of_start = [name for name in names if _START.search(_folded(name))]
    of_end = [name for name in names if _END.search(_folded(name))]
    lat, lon, time, device = (
        next((name for name in among if re.search(pattern, _folded(name))), "…")
        for among, pattern in (
            (of_start, "lat(itude)?$"),
            (of_start, "(lon|lng|long|longitude)$"),
            (of_start, "(time|date|edat)"),
            (names, "id$"),
        )
    )
    if any(re.search("lat(itude)?$", _folded(name)) for name in of_end) and "…" not in (lat, lon):
        columns = {"device": device, "ts": time, "lat": lat, "lon": lon}
        return "holds trips, each with a start and an end", (
            f"load the starts as reads: table='reads', columns={columns} (on the command line --table reads "
            + " ".join(f"--column {column}={name}" for column, name in columns.items())
            + "), and the ends likewise"
        )
    if any("station" in _folded(name) for name in of_start) and any("station" in _folded(n) for n in of_end):
        return "holds trips between stations, without their places", (
            "join it with the table of stations, write the starts as CSV with the columns device, ts, lat, "
            "lon, and load them with table='reads'"
        )
    if all(any(part in _folded(name) for name in names) for part in ("easting", "northing")):
        return "holds places in metres of a projection", REPROJECT
    return None


def _refuse_twins(file: Place, names: list[str], guessed: dict[str, str]) -> None:
    """Raise an error for several columns of one name, since the file does not tell which is meant."""
    for column, name in guessed.items():
        twins = [other for other in names if re.fullmatch(rf"{re.escape(name)}( \(\d+\))?", other)]
        if len(twins) > 1:
            raise TraceFormatError(
                f"{file.name} has {len(twins)} columns named {name}.",
                where=str(file),
                found=", ".join(other[:40] for other in names[:20]),
                expected=f"one column for {column}",
                remedy="rename all but one in the file"
                if twins[0] == twins[1]  # Parquet, which is read by names
                else f"say which: columns={{{column!r}: {twins[1]!r}}} or {twins[0]!r} "
                f"(on the command line --column {column}='{twins[1]}')",
            )


def _with_near(name: str, names: list[str]) -> str:
    """Return a missing name, with a column of similar spelling."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"{name} (perhaps {near[0]})" if near else name


def gtfs_rt(names: list[str]) -> dict[str, str] | None:
    """Recognise vehicle positions of GTFS-realtime, written as a table.

    Names are those of the specification's messages, as whole paths (``vehicle.position.latitude``) or only
    their ends (``latitude``), with dots, underscores, slashes or blanks between; and there must be a trip or
    a route, or the paths themselves, so that no other table is taken for one.

    The specification gives ``position.speed`` in metres a second; feeds do not all keep to it, and one file
    may hold two units. The recorded positions of Austin's buses (CapMetrics) say miles an hour in 2015: where
    two positions of a bus are up to a minute apart, distance by time is 0.447 of the speed at the second one
    (the median; 0.44704 m/s are a mile an hour). From January 2016 on they are metres a second, in steps of a
    mile an hour: the same median is 0.7 to 0.95, with nothing near 0.447. A row does not tell, so speeds are
    null unless the caller maps ``speed_mps`` to the column.

    Returns
    -------
    dict or None
        mudkit's names to the file's; None for another table.
    """
    plain = {re.sub(r"[./ ]+", "_", name.lower()).removeprefix("entity_"): name for name in reversed(names)}
    candidates = {
        column: next((plain[spelling] for spelling in spellings if spelling in plain), None)
        for column, spellings in _GTFS_RT.items()
    }
    is_feed = not _TRIP.isdisjoint(plain) or any(name.endswith("position_latitude") for name in plain)
    mapping = {column: name for column, name in candidates.items() if name is not None}
    return mapping if is_feed and len(mapping) == len(_GTFS_RT) else None
