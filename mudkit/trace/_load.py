"""Load a trace from a file of a public format into memory.

A row passes through these modules once: :mod:`mudkit.trace.formats` (format and columns, batch by batch),
:mod:`mudkit.trace.parse`, :mod:`mudkit.trace.clean`, :mod:`mudkit.trace.loaded`.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mudkit.arguments import check_options
from mudkit.files import existing
from mudkit.trace.clean import check_moves, check_plausible, clean
from mudkit.trace.folder import is_trace, read_manifest, read_table
from mudkit.trace.formats import Source
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import Options, refuse_for_folder
from mudkit.trace.parse import Parsed, parse_source

__all__ = ["load"]


@check_options
def load(path: str | os.PathLike[str], **options: Any) -> Loaded:
    """Load a trace into memory.

    Implausible rows (:mod:`mudkit.trace.plausible`) and unreadable ones go to ``rejected`` with a reason;
    nothing is dropped silently.

    Parameters
    ----------
    path : path-like
        File (also packed with gzip), a folder of files of one kind (``new_*.txt``, ``*.plt``, ``*.gpx``,
        ``*.csv`` or ``*.parquet``), or a trace folder of mudkit.
    **options
        Those of :class:`mudkit.trace.Options`.

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
    given = Options(**options)
    path = existing(path, "trace")
    if path.is_dir() and is_trace(path):
        refuse_for_folder(path, **vars(given))
        return _load_folder(path)
    plan = given.plan(path)
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
