"""Load a trace from a file of a public format into memory.

A row passes through these modules once: :mod:`mudkit.trace.formats` (format and columns, batch by batch),
:mod:`mudkit.trace.parse`, :mod:`mudkit.trace.runs`, :mod:`mudkit.trace.clean`, :mod:`mudkit.trace.pieces`,
:mod:`mudkit.trace.loaded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mudkit.checks import check_arguments
from mudkit.files import Place
from mudkit.trace.folder import is_trace, read_description, read_table
from mudkit.trace.formats import Files, find
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import Options, refuse_for_folder
from mudkit.trace.pieces import FilePieces

if TYPE_CHECKING:
    from mudkit.trace.formats.given import Given

_PIECE_ROWS = 1_000_000
_BY_FILE = [("source", "ascending"), ("row", "ascending")]
_BY_TIME = [("ts", "ascending"), ("device", "ascending"), ("read_id", "ascending")]


@check_arguments(types=False)
def load(path: Given, **options: Any) -> Loaded:
    """Load a trace into memory.

    Implausible rows (:mod:`mudkit.trace.plausible`) and unreadable ones go to ``rejected`` with a reason;
    nothing is dropped silently.

    Parameters
    ----------
    path : path-like, UPath, list of these, pyarrow.Table or pandas.DataFrame
        Path or address (:func:`mudkit.files.place`) of a file (also packed), of a folder of files of one
        format (:class:`mudkit.trace.Options`), or of a trace folder of mudkit; a pattern of names
        (``rides/2024-*/*.csv``), or a list of files and folders; a table in memory, whose columns are found,
        or mapped, as those of a file.
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
    source = find(path)
    if not isinstance(source, Files | pa.Table) and is_trace(source):
        refuse_for_folder(source, **vars(given))
        return _load_folder(source)
    plan = given.plan(source)
    pieces = FilePieces(plan, _PIECE_ROWS)
    parts: dict[str, list[pa.Table]] = {"positions": [], "reads": [], "rejected": [], "fares": []}
    for piece in pieces:
        for name, tables in parts.items():
            tables.append(getattr(piece, name))
    joined = {name: pa.concat_tables(tables) for name, tables in parts.items()}
    pa.default_memory_pool().release_unused()
    joined["rejected"] = joined["rejected"].sort_by(_BY_FILE)
    if plan.options.table == "reads":
        joined["reads"] = joined["reads"].sort_by(_BY_TIME)
    return Loaded(**joined, source=pieces.description)


def _load_folder(path: Place) -> Loaded:
    """Return a trace folder's tables in memory, positions ordered by device and time."""
    positions = read_table(path, "positions").sort_by([("device", "ascending"), ("ts", "ascending")])
    return Loaded(positions, read_table(path, "reads"), read_table(path, "rejected"), read_description(path))
