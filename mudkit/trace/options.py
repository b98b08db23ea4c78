"""Options of a load, and the plan that they make of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from mudkit.checks import check_arguments, time_zone, unusable
from mudkit.errors import ParameterError
from mudkit.files import Place
from mudkit.trace.derive import Rule
from mudkit.trace.formats import Files, Source, recognise, recognise_table
from mudkit.trace.formats.columns import REQUIRED, is_place, is_utc, place_name
from mudkit.trace.times import AUTO, TIME_UNITS

MAX_BOX_KM = 20_000.0
MAX_WINDOW_S = 3.2e9
"""A hundred years; a longer window is a mistake."""

FileTable: TypeAlias = Literal["positions", "reads"]
TimeUnit: TypeAlias = Literal["auto", "s", "ms", "us", "ns"]


@check_arguments(types=False)
@dataclass(frozen=True)
class Options:
    """Options by which a file becomes a trace; whatever opens one takes them by name.

    :func:`mudkit.trace.load`, :func:`mudkit.trace.scan`, :func:`mudkit.pipeline.ingest`,
    :func:`mudkit.pipeline.open_trace` and the reports do.

    Parameters
    ----------
    format : str
        ``auto``, which recognises the format, or one of:

        - ``cabspotting``: one CSV with ``cab,t,lat,lon,occ``; ``cabspotting-txt``: the original files.
        - ``geolife``: a ``.plt`` file of GeoLife, or any folder above some
          (:func:`mudkit.trace.formats.headerless.read_plt`); the device is the user.
        - ``gtfs-rt``: vehicle positions of GTFS-realtime as a table
          (:func:`mudkit.trace.formats.columns.gtfs_rt`); speeds are null unless ``columns`` maps
          them, since feeds use several units. ``gtfs-rt-pb``: its messages, a file for each poll
          (:func:`mudkit.trace.formats.feed.read_feed`).
        - ``gowalla``: check-ins of Gowalla or Brightkite, and ``foursquare``: of Foursquare
          (:func:`mudkit.trace.formats.headerless.read_foursquare`); they are reads whatever ``table`` says.
        - ``t-drive``: a file for each taxi, with local times (``tz="Asia/Shanghai"``); ``porto``: trips of
          taxis (:func:`mudkit.trace.formats.headerless.read_porto`).
        - ``gpx``, ``tcx``, ``kml``: tracks, routes and points (:mod:`mudkit.trace.formats.tracks`); the
          device is the file's stem, with the track's name where there are several. Waypoints are set aside.
        - ``nmea``: RMC sentences (:func:`mudkit.trace.formats.nmea.read_nmea`); the device is the stem, too.
        - ``takeout``: Google's location history (:func:`mudkit.trace.formats.json_rows.read_takeout`).
        - ``json``, ``geojson``: objects line by line or in a list, and points of GeoJSON
          (:mod:`mudkit.trace.formats.json_rows`), with columns as of a table.
        - ``geopackage``: the only layer of a GeoPackage, with points in degrees.
        - ``csv``, ``parquet``: any table with a device, a time and a place; also GeoParquet with points.

        Files may be packed with gzip, bz2, xz, zst or zip. Some formats need the libraries of the extra
        ``geo``.
    table : {'positions', 'reads'}
        Table that the rows belong to. An access log is loaded with ``table="reads"``.
    tz : str
        Time zone (IANA name) of texts without one; those of a column such as ``time_utc`` are in UTC.
    time_unit : {'auto', 's', 'ms', 'us', 'ns'}
        Unit of numeric times; ``auto`` recognises it, number by number.
    columns : dict, optional
        Mapping from mudkit's names (``device, ts, date, lat, lat_hemisphere, lon, lon_hemisphere, speed_mps,
        occupied, box_km, window_s``) to the file's, for ``csv``, ``gtfs-rt``, ``parquet``, ``json``,
        ``geojson`` and ``geopackage``. ``date`` is the day (as 2023-11-14, 2023/11/14 or 20231114) where
        ``ts`` is only a time of day; the hemispheres are N or S, and E or W, beside coordinates without sign;
        ``lat`` and ``lon`` may be one column, with both (:func:`mudkit.trace.values.coordinates`). Folders of
        Hive and Spark (``device=a/``) are columns, too.
    rule : str, optional
        Rule that derives reads from positions (:class:`mudkit.trace.derive.Rule`); by default ``occupancy``
        if the file records when a taxi has a fare, else ``trip_start(still_s=600)``.
    box_km, window_s : float, optional
        Box and time window of a derived read, and of a recorded one without them; by default 20 km and
        two hours (Mobius 7.3).
    device : str, optional
        The one device of all rows, whatever they name: for the tables and tracks of one person.
    header : bool
        Whether a text table has a header. False: ``columns`` maps to places, from 1, as
        ``{"device": 1, "ts": 2, "lat": 3, "lon": 4}``.

    Raises
    ------
    ParameterError
        An option is invalid.
    """

    format: str = "auto"
    table: FileTable = "positions"
    tz: str = "UTC"
    time_unit: TimeUnit = "auto"
    columns: Mapping[str, str | int] | None = None
    rule: str | None = None
    box_km: float | None = None
    window_s: float | None = None
    device: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        time_zone("tz", self.tz)
        box_km, window_s = self.box_km, self.window_s
        columns = self.columns or {}
        is_mapping = isinstance(columns, Mapping)
        given = list(columns.values()) if is_mapping else []
        are_names = all(isinstance(name, str) for name in given)
        are_places = bool(given) and all(is_place(place_name(place)) for place in given)
        allowed: list[tuple[str, bool, str]] = [
            ("table", self.table in ("positions", "reads"), "positions or reads"),
            ("time_unit", self.time_unit in (AUTO, *TIME_UNITS), ", ".join((AUTO, *TIME_UNITS))),
            ("box_km", box_km is None or 0 < box_km <= MAX_BOX_KM, "a side over 0 and up to 20,000 km"),
            ("window_s", window_s is None or 0 < window_s <= MAX_WINDOW_S, "seconds over 0 and up to 3.2e9"),
            ("device", self.device is None or self.device.strip() != "", "the name of a device"),
            (
                "columns",
                is_mapping and (are_names if self.header else are_places),
                "names of columns; with header=False, places from 1, as {'device': 1, 'ts': 2, …}",
            ),
        ]
        for name, is_allowed, expected in allowed:
            if not is_allowed:
                raise unusable(name, getattr(self, name), expected)

    def plan(self, given: Place | Files | pa.Table, name: str = "table") -> LoadPlan:
        """Recognise a source, and return the plan to load it.

        Parameters
        ----------
        given : Path or UPath or Files or pyarrow.Table
            An existing file or folder, but no trace folder; several, as :func:`mudkit.trace.formats.find`
            returns them; or a table.
        name : str
            Name of a table.
        """
        columns = {
            name: str(given) if self.header else place_name(given)
            for name, given in (self.columns or {}).items()
        }
        required = [name for name in REQUIRED if name != "device" or self.device is None]
        if not isinstance(given, pa.Table):
            return LoadPlan.of(recognise(given, self.format, columns, required), self)
        if self.format != "auto" or not self.header:
            raise ParameterError(
                "A table in memory has no format.",
                where="format" if self.format != "auto" else "header",
                found=repr(self.format if self.format != "auto" else self.header),
                expected="columns with names",
                remedy="leave it out; columns={'device': …} maps names",
            )
        return LoadPlan.of(recognise_table(given, columns, required, name=name), self)

    def of_log(self, columns: Mapping[str, str] | None = None) -> Options:
        """Return the options of a log of reads beside such a trace; format, columns and unit are its own.

        Parameters
        ----------
        columns : dict, optional
            Column mapping of the log.
        """
        log = replace(self, table="reads", format="auto", columns=columns, rule=None)
        return replace(log, time_unit="auto", header=True)


def refuse_for_folder(path: Place, **options: object) -> None:
    """Raise an error for options, by the names of :class:`Options`, that have no effect on a trace folder."""
    defaults = {field.name: field.default for field in fields(Options)}
    given = {name: value for name, value in options.items() if value not in (None, "", {}, defaults[name])}
    if given:
        raise ParameterError(
            "A trace folder holds its rows and reads already.",
            where=", ".join(given),
            found=", ".join(f"{name}={value!r}" for name, value in given.items()) + f" for {path}",
            expected="no such option",
            remedy="leave it out, or start from the source file",
        )


@dataclass(frozen=True)
class LoadPlan:
    """Everything that determines the trace that a file becomes; built by :meth:`of`.

    ``options.table`` is ``reads`` where the format holds only reads. ``rule`` derives reads from positions;
    ``box_km`` and ``window_s`` are the requests of reads that record none.
    """

    source: Source
    options: Options
    rule: Rule
    box_km: float
    window_s: float

    @classmethod
    def of(cls, source: Source, options: Options) -> LoadPlan:
        """Adapt options to a source, a column of which may say by its name that its times are in UTC.

        Without a rule it is ``none`` for recorded reads, ``occupancy`` if the source records fares, else
        ``trip_start``.
        """
        if "ts" not in (options.columns or {}) and is_utc(source.columns.get("ts", "")):
            options = replace(options, tz="UTC")
        if source.holds_reads:
            options = replace(options, table="reads")
        if options.rule is not None:
            rule = Rule.parse(options.rule)
        elif options.table == "reads":
            rule = Rule("none")
        else:
            rule = Rule("occupancy" if source.has_occupancy else "trip_start")
        box_km = 20.0 if options.box_km is None else float(options.box_km)
        window_s = 7200.0 if options.window_s is None else float(options.window_s)
        return cls(source, options, rule, box_km, window_s)

    @cached_property
    def names_zones(self) -> bool:
        """True if some times of the source name their zone; reads the times of all files until one does."""
        return self.source.names_zones()

    def description(self) -> dict[str, Any]:
        """Return the origin of the trace and every option that shaped it."""
        options = self.options
        return {
            "name": self.source.path.name,
            "format": self.source.format,
            "options": {
                "columns": self.source.columns,
                "rule": str(self.rule),
                "table": options.table,
                "tz": options.tz,
                "time_unit": options.time_unit,
                "box_km": self.box_km,
                "window_s": self.window_s,
                "device": options.device,
            },
        } | ({"passed_over": self.source.passed_over} if self.source.passed_over else {})
