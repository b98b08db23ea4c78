"""Load a trace from a file of a public format into memory.

A row passes through these modules once: :mod:`mudkit.trace.formats` (format and columns, batch by batch),
:mod:`mudkit.trace.parse`, :mod:`mudkit.trace.clean`, :mod:`mudkit.trace.loaded`.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mudkit.arguments import check_options
from mudkit.files import existing
from mudkit.trace.clean import check_moves, check_plausible, clean
from mudkit.trace.folder import is_trace, read_manifest, read_table
from mudkit.trace.formats import Source
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import FileTable, Options, TimeUnit, refuse_for_folder
from mudkit.trace.parse import Parsed, parse_source

__all__ = ["load"]


@check_options
def load(
    path: str | os.PathLike[str],
    format: str = "auto",  # noqa: A002
    *,
    table: FileTable = "positions",
    columns: dict[str, str] | None = None,
    tz: str = "UTC",
    time_unit: TimeUnit = "s",
    rule: str | None = None,
    box_km: float | None = None,
    window_s: float | None = None,
) -> Loaded:
    """Load a trace into memory.

    Implausible rows (:mod:`mudkit.trace.plausible`) and unreadable ones go to ``rejected`` with a reason;
    nothing is dropped silently.

    Parameters
    ----------
    path : path-like
        File (also packed with gzip), a folder of files of one kind (``new_*.txt``, ``*.plt``, ``*.gpx``,
        ``*.csv`` or ``*.parquet``), or a trace folder of mudkit.
    format : str
        ``auto``, which recognises the format, or one of:

        - ``cabspotting``: one CSV with ``cab,t,lat,lon,occ``; ``cabspotting-txt``: the original files.
        - ``geolife``: a ``.plt`` file of GeoLife, or any folder above some
          (:func:`mudkit.trace.formats.headerless.read_plt`); the device is the user.
        - ``gtfs-rt``: vehicle positions of GTFS-realtime as a table
          (:func:`mudkit.trace.formats.columns.gtfs_rt`); speeds are null unless ``columns`` maps
          them, since feeds use several units.
        - ``gowalla``: check-ins, which are reads whatever ``table`` says.
        - ``gpx``: tracks, routes and points (:func:`mudkit.trace.formats.gpx.read_gpx`); the device is the
          file's stem, with the track's name where there are several.
        - ``csv``, ``parquet``: any table with a device, a time and a place.
    table : {'positions', 'reads'}
        Table that the rows belong to. An access log is loaded with ``table="reads"``.
    columns : dict, optional
        Mapping from mudkit's names (``device, ts, lat, lon, speed_mps, occupied, box_km, window_s``) to the
        file's, for ``csv``, ``gtfs-rt`` and ``parquet``.
    tz : str
        Time zone (IANA name) of texts without one.
    time_unit : {'s', 'ms', 'us', 'ns'}
        Unit of numeric times.
    rule : str, optional
        Rule that derives reads from positions (:class:`mudkit.trace.derive.Rule`); by default ``occupancy``
        if the file records when a taxi has a fare, else ``trip_start(still_s=600)``.
    box_km, window_s : float, optional
        Box and time window of a derived read, and of a recorded one without them; by default 20 km and
        two hours (Mobius 7.3).

    Returns
    -------
    Loaded

    Raises
    ------
    InputMissing
        The file does not exist.
    TraceFormatError
        The file is empty, cut short, of another format, lacks columns, or most of its rows cannot be read
        (another time unit, latitude and longitude exchanged).
    TraceContentError
        The file holds no usable row, or no device that moves.
    ParameterError
        An option is invalid.
    """
    options = Options(format, table, tz, time_unit, columns, rule, box_km, window_s)
    path = existing(path, "trace")
    if path.is_dir() and is_trace(path):
        refuse_for_folder(path, **vars(options))
        return _load_folder(path)
    plan = options.plan(path)
    parsed = parse_source(plan)
    positions, reads, rejected, fares = clean(parsed.good, plan)
    if plan.options.table == "positions":
        _check_positions(plan.source, parsed, positions, rejected)
    aside = pa.concat_tables([parsed.bad, rejected])
    return Loaded(positions, reads, aside, plan.description(), fares)


def _check_positions(source: Source, parsed: Parsed, positions: pa.Table, rejected: pa.Table) -> None:
    aside = Counter(rejected["reason"].to_pylist())
    check_plausible(source, len(parsed.good), dict(aside))
    aside.update(parsed.bad["reason"].to_pylist())
    check_moves(source, len(positions), pc.count_distinct(positions["device"]).as_py(), aside)


def _load_folder(path: Path) -> Loaded:
    manifest = read_manifest(path)
    positions = read_table(path, "positions").sort_by([("device", "ascending"), ("ts", "ascending")])
    return Loaded(positions, read_table(path, "reads"), read_table(path, "rejected"), manifest)
