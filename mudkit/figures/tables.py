"""Checks and conversions of the tables that figures are drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError

Floats = NDArray[np.float64]

Group = tuple[Floats, Floats]
"""Latitudes and longitudes of some places, degrees."""


def require_columns(
    table: Any, where: str, columns: Iterable[str], *, remedy: str | None = None
) -> pd.DataFrame:
    """Return a table, or raise ParameterError if it is no DataFrame or lacks one of the columns."""
    if not isinstance(table, pd.DataFrame):
        raise ParameterError(
            "This figure takes a pandas DataFrame.",
            where=where,
            found=repr(table) if isinstance(table, (int, float, str)) else type(table).__name__,
            expected=f"a pandas DataFrame with {', '.join(columns)}",
            remedy=remedy or "table.to_pandas() converts an Arrow table",
        )
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ParameterError(
            f"The table of {where} lacks columns: {', '.join(missing)}.",
            where=where,
            found=", ".join(map(str, table.columns)) or "no columns",
            expected=", ".join(missing),
            remedy=remedy,
        )
    return table


def rows_of(table: pd.DataFrame) -> list[Any]:
    """Return the rows of a table as named tuples."""
    return list(table.itertuples(index=False))


def places(table: pa.Table, what: str) -> Group:
    """Return columns ``lat`` and ``lon`` (degrees) of the rows that have both."""
    lat, lon = number_column(table, what, "lat"), number_column(table, what, "lon")
    known = np.isfinite(lat) & np.isfinite(lon)
    lat, lon = lat[known], lon[known]
    refuse_empty(len(lat), what)
    refuse_off_sphere(lat, lon, what)
    return lat, lon


def with_place(table: pa.Table, what: str) -> pa.Table:
    """Return the rows of a table that have a latitude and a longitude."""
    known = np.isfinite(number_column(table, what, "lat")) & np.isfinite(number_column(table, what, "lon"))
    return table if known.all() else table.filter(pa.array(known))


def number_column(table: pa.Table, what: str, name: str) -> Floats:
    """Return a column of numbers; null becomes NaN."""
    if not isinstance(table, pa.Table):
        raise ParameterError(
            "A map takes Arrow tables.",
            where=what,
            found=type(table).__name__,
            expected="pyarrow.Table",
            remedy="pa.Table.from_pandas(frame) converts a pandas DataFrame",
        )
    _require_column(table, what, name)
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


def text_column(table: pa.Table, what: str, name: str) -> list[str]:
    """Return a column as text; null becomes an empty string."""
    _require_column(table, what, name)
    return ["" if entry is None else str(entry) for entry in table.column(name).to_pylist()]


def _require_column(table: pa.Table, what: str, name: str) -> None:
    """Raise ParameterError if a table lacks a column."""
    if name not in table.column_names:
        raise ParameterError(
            f"The table of {what} has no column {name!r}.",
            where=what,
            found=", ".join(table.column_names) or "no columns",
            expected=name,
        )


def refuse_empty(rows: int, what: str) -> None:
    """Raise TraceContentError if there is nothing to draw."""
    if rows == 0:
        raise TraceContentError(
            f"There is nothing to draw: the table of {what} has no row with a place.",
            where=what,
            found="0 rows",
            expected="at least one row with latitude and longitude",
        )


def refuse_off_sphere(lat: Floats, lon: Floats, what: str) -> None:
    """Raise TraceContentError if a latitude or longitude is out of range."""
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
