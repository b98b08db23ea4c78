"""Load a trace from a file of a public format: positions or reads, and every row that was set aside."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mudkit.errors import ParameterError, TraceFormatError
from mudkit.files import existing, sha256
from mudkit.trace.clean import check_moves, check_parsed, check_plausible, clean_positions, clean_reads
from mudkit.trace.derive import Rule, derive_reads
from mudkit.trace.folder import is_trace, read_manifest, read_table
from mudkit.trace.formats import Source, recognise
from mudkit.trace.loaded import Loaded
from mudkit.trace.parse import UNPARSABLE, Options, Parsed, parse
from mudkit.trace.schema import POSITIONS, REJECTED

__all__ = [
    "describe",
    "fitting",
    "load",
    "options_of",
    "parsed_batches",
    "refuse_for_folder",
    "rule_for",
    "tables",
]


def load(
    path: str | os.PathLike[str],
    format: str = "auto",  # noqa: A002
    *,
    table: str = "positions",
    columns: dict[str, str] | None = None,
    tz: str = "UTC",
    time_unit: str = "s",
    rule: str | None = None,
    box_km: float | None = None,
    window_s: float | None = None,
) -> Loaded:
    """Load a trace into memory.

    Rows that cannot be true (:mod:`mudkit.trace.plausible`) or cannot be read are set aside in
    ``rejected`` with the reason; nothing is dropped silently.

    Parameters
    ----------
    path : path-like
        A file (also packed with gzip), a folder of files of one kind (``new_*.txt``, ``*.plt``, ``*.gpx``,
        ``*.csv`` or ``*.parquet``), or a trace folder of mudkit.
    format : str
        ``auto``, which recognises them, or one of:

        - ``cabspotting``: one CSV with ``cab,t,lat,lon,occ``; ``cabspotting-txt``: the original files.
        - ``geolife``: a ``.plt`` file of GeoLife, or any folder above some
          (:func:`mudkit.trace.formats.headerless.read_plt`); the device is the user.
        - ``gtfs-rt``: vehicle positions of GTFS-realtime as a table
          (:func:`mudkit.trace.formats.columns.gtfs_rt`); speeds are null unless ``columns`` maps them, for
          feeds do not keep to metres a second.
        - ``gowalla``: check-ins, which are reads whatever ``table`` says.
        - ``gpx``: tracks, routes and points (:func:`mudkit.trace.formats.gpx.read_gpx`); the device is the
          file's stem, with the track's name where there are several.
        - ``csv``, ``parquet``: any table with a device, a time and a place.
    table : {'positions', 'reads'}
        What the rows are. An access log is loaded with ``table="reads"``.
    columns : dict, optional
        mudkit's names (``device, ts, lat, lon, speed_mps, occupied, box_km, window_s``) to the file's, for
        ``csv``, ``gtfs-rt`` and ``parquet``.
    tz : str
        Time zone of texts that do not name theirs.
    time_unit : {'s', 'ms', 'us', 'ns'}
        Unit of numeric times.
    rule : str, optional
        How to derive reads from positions (:class:`mudkit.trace.derive.Rule`); by default ``occupancy``
        where the file says when a taxi has a fare, else ``trip_start(still_s=600)``.
    box_km, window_s : float, optional
        What a derived read asks for, and a recorded one whose row does not say; by default 20 km and two
        hours (Mobius 7.3).

    Returns
    -------
    Loaded

    Raises
    ------
    InputMissing
        There is no such file.
    TraceFormatError
        The file is empty, cut short, of another format, lacks columns, or most of its rows cannot be read
        (another time unit, latitude and longitude exchanged).
    TraceContentError
        The file holds no usable row, or no device that moves.
    ParameterError
        An option is not usable.
    """
    options = options_of(table, tz, time_unit, box_km, window_s)
    path = existing(path, "trace")
    if path.is_dir() and is_trace(path):
        refuse_for_folder(
            path, format=format, table=table, tz=tz, time_unit=time_unit, columns=columns, rule=rule,
            box_km=box_km, window_s=window_s,
        )  # fmt: skip
        return _load_folder(path)
    source = recognise(path, format, columns)
    options = fitting(source, options)
    how = rule_for(source, options, rule)
    good, bad = _read(source, options)
    positions, reads, rejected = tables(good, options, how)
    if options.table == "positions":
        aside = Counter(rejected["reason"].to_pylist())
        check_plausible(source, len(good), dict(aside))
        aside.update(bad["reason"].to_pylist())
        check_moves(source, len(positions), pc.count_distinct(positions["device"]).as_py(), aside)
    return Loaded(positions, reads, pa.concat_tables([bad, rejected]), describe(source, options, how))


def tables(good: pa.Table, options: Options, rule: Rule) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Clean parsed rows of whole devices, and derive reads.

    Parameters
    ----------
    good : pyarrow.Table
        As :class:`mudkit.trace.parse.Parsed` has it, in the order of the files.
    options : Options
    rule : Rule

    Returns
    -------
    positions, reads, rejected : pyarrow.Table
        With the schemas of the trace.
    """
    if options.table == "reads":
        return (POSITIONS.empty_table(), *clean_reads(good, options))
    positions, occupied, rejected = clean_positions(good)
    asked = {"box_km": options.box_km, "window_s": options.window_s}
    return positions, derive_reads(positions, rule, **asked, occupied=occupied), rejected


def options_of(table: str, tz: str, time_unit: str, box_km: float | None, window_s: float | None) -> Options:
    """Collect options; None is the default."""
    sizes = {"box_km": box_km, "window_s": window_s}
    return Options(table, tz, time_unit, **{k: float(v) for k, v in sizes.items() if v is not None})


def fitting(source: Source, options: Options) -> Options:
    """Fit options to a source: rows that can only be reads are reads."""
    return replace(options, table="reads") if source.holds_reads else options


def refuse_for_folder(path: Path, **options: object) -> None:
    """Refuse options that a trace folder cannot follow any more.

    Raises
    ------
    ParameterError
    """
    usual = {"format": "auto", "table": "positions", "tz": "UTC", "time_unit": "s"}
    given = {name: value for name, value in options.items() if value and value != usual.get(name)}
    if given:
        raise ParameterError(
            "A trace folder holds its rows and reads already.",
            where=", ".join(given),
            found=", ".join(f"{name}={value!r}" for name, value in given.items()) + f" for {path}",
            expected="no such option",
            remedy="leave it out, or start from the source file",
        )


def rule_for(source: Source, options: Options, rule: str | None) -> Rule:
    """Choose the rule for reads: the one asked for, or the one that the source allows best.

    Raises
    ------
    ParameterError
        There is no such rule, or the source's rows are no positions.
    """
    if source.holds_reads and options.table != "reads":
        raise ParameterError(
            f"{source.path.name} holds reads, no positions.",
            where="table",
            found=f"table={options.table!r} for the format {source.format}",
            expected="table='reads': a check-in asks what is around",
            remedy="say table='reads' (on the command line --table reads)",
        )
    if rule is not None:
        return Rule.parse(rule)
    if options.table == "reads":
        return Rule("none")
    return Rule("occupancy" if source.has_occupancy else "trip_start")


def describe(source: Source, options: Options, rule: Rule) -> dict[str, Any]:
    """Say where a trace comes from and every option that shaped it."""
    return {
        "name": source.path.name,
        "format": source.format,
        "sha256": sha256(source.path),
        "options": {"columns": source.columns, "rule": str(rule), **asdict(options)},
    }


def parsed_batches(source: Source, options: Options, files: list[Path] | None = None) -> Iterator[Parsed]:
    """Parse a source batch by batch; malformed lines are among the bad rows."""
    for batch in source.batches(files):
        try:
            parsed = parse(batch.columns, batch.source, batch.rows, options)
        except (pa.ArrowException, KeyError) as error:
            kinds = ", ".join(f"{field.name}: {field.type}" for field in batch.columns.schema)
            raise TraceFormatError(
                f"The columns of {batch.source} are not what they should be.",
                where=batch.source,
                found=kinds,
                expected="a device as text or number, a time, and latitude and longitude as numbers",
                remedy="check the column mapping",
            ) from error
        lines = [(batch.source, line.row, UNPARSABLE, line.raw) for line in batch.malformed]
        malformed = pa.Table.from_pylist(
            [dict(zip(REJECTED.names, line, strict=True)) for line in lines], schema=REJECTED
        )
        yield Parsed(parsed.good, pa.concat_tables([parsed.bad, malformed]))


def _load_folder(path: Path) -> Loaded:
    manifest = read_manifest(path)
    positions = read_table(path, "positions").sort_by([("device", "ascending"), ("ts", "ascending")])
    return Loaded(positions, read_table(path, "reads"), read_table(path, "rejected"), manifest)


def _read(source: Source, options: Options) -> tuple[pa.Table, pa.Table]:
    parsed = list(parsed_batches(source, options))
    bad = pa.concat_tables([REJECTED.empty_table(), *(p.bad for p in parsed)])
    rows = len(bad) + sum(len(p.good) for p in parsed)
    sample = str(bad["raw"][0]) if len(bad) else ""
    check_parsed(source, options, rows, dict(Counter(bad["reason"].to_pylist())), sample)
    return pa.concat_tables([p.good for p in parsed]).unify_dictionaries(), bad
