"""Columns of Arrow tables as NumPy arrays, refused with a reason where a map could not show them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError

__all__ = ["Floats", "Group", "column", "placed", "places", "refuse_empty", "refuse_off_sphere", "texts"]

Floats = NDArray[np.float64]

Group = tuple[Floats, Floats]
"""Latitudes and longitudes of some places, degrees."""


def places(table: pa.Table, what: str) -> Group:
    """Return the places of a table, rows without one left out.

    Parameters
    ----------
    table : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees.
    what : str
        What the table is to the caller, for messages.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        No row has a place, or one lies off the sphere.
    """
    lat, lon = column(table, what, "lat"), column(table, what, "lon")
    known = np.isfinite(lat) & np.isfinite(lon)
    lat, lon = lat[known], lon[known]
    refuse_empty(len(lat), what)
    refuse_off_sphere(lat, lon, what)
    return lat, lon


def placed(table: pa.Table, what: str) -> pa.Table:
    """Return the rows of a table that have a place."""
    known = np.isfinite(column(table, what, "lat")) & np.isfinite(column(table, what, "lon"))
    return table if known.all() else table.filter(pa.array(known))


def column(table: pa.Table, what: str, name: str) -> Floats:
    """Return a column of numbers; null becomes NaN.

    Raises
    ------
    ParameterError
        This is no Arrow table, it lacks the column, or the column holds no numbers.
    """
    if not isinstance(table, pa.Table):
        raise ParameterError(
            "A map takes Arrow tables.",
            where=what,
            found=type(table).__name__,
            expected="pyarrow.Table",
            remedy="pa.Table.from_pandas(frame) makes one of a pandas DataFrame",
        )
    _refuse_missing(table, what, name)
    try:
        numbers = table.column(name).cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise ParameterError(
            f"The column {name!r} of {what} holds no numbers.",
            where=what,
            found=str(table.schema.field(name).type),
            expected="numbers",
        ) from error
    return np.asarray(numbers.to_numpy(), dtype=np.float64)


def texts(table: pa.Table, what: str, name: str) -> list[str]:
    """Return a column as texts, null as an empty one."""
    _refuse_missing(table, what, name)
    return ["" if entry is None else str(entry) for entry in table.column(name).to_pylist()]


def _refuse_missing(table: pa.Table, what: str, name: str) -> None:
    if name not in table.column_names:
        raise ParameterError(
            f"The table of {what} has no column {name!r}.",
            where=what,
            found=", ".join(table.column_names) or "no columns",
            expected=name,
        )


def refuse_empty(rows: int, what: str) -> None:
    """Raise TraceContentError when there is nothing to draw."""
    if rows == 0:
        raise TraceContentError(
            f"There is nothing to draw: the table of {what} has no row with a place.",
            where=what,
            found="0 rows",
            expected="at least one row with latitude and longitude",
        )


def refuse_off_sphere(lat: Floats, lon: Floats, what: str) -> None:
    """Raise TraceContentError when a place has a latitude or longitude that none has."""
    wrong = (np.abs(lat) > 90.0) | (np.abs(lon) > 180.0)
    if wrong.any():
        first = int(wrong.argmax())
        raise TraceContentError(
            f"The table of {what} holds places that are not on the sphere.",
            where=what,
            found=f"{int(wrong.sum()):,} rows; the first: latitude {lat[first]:g}, longitude {lon[first]:g}",
            expected="latitudes within ±90 and longitudes within ±180 degrees",
            remedy="check whether latitude and longitude are swapped, and clean the trace when loading it",
        )
