"""Select the rows of a table of a trace by a predicate."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.predicates import Language, Predicate

__all__ = ["columns_language", "select"]


def columns_language(schema: pa.Schema) -> Language:
    """Make the language in which a predicate may name the columns of a table.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns of the table; times among them count as numbers: seconds since 1970 (UTC).

    Returns
    -------
    Language
        A language with one scope, ``record``, in which a name that is no column is an error.
    """
    return Language(("record",), schema={"record": {field.name: _kind(field.type) for field in schema}})


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_boolean(type_):
        return "boolean"
    return "string" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else "number"


def select(table: pa.Table, where: str | Predicate) -> pa.Table:
    """Keep the rows for which a predicate is TRUE.

    Parameters
    ----------
    table : pyarrow.Table
        A table of a trace.
    where : str or Predicate
        The condition, for instance ``"within_km(point(lat, lon), point(37.77, -122.42), 5) AND hour(ts)
        BETWEEN 7 AND 9"``.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    PredicateError
        It is no predicate, or names what is no column.
    """
    language = columns_language(table.schema)
    predicate = Predicate.parse(where, language=language) if isinstance(where, str) else where
    columns = {name: _numpy(table[name]) for name in predicate.names()["record"] & set(table.column_names)}
    is_wanted = predicate.numpy(columns) if columns else None
    if is_wanted is None:  # it looks at no column: the same for all rows
        return table if predicate({}) else table.slice(0, 0)
    return table.filter(pa.array(np.ma.filled(is_wanted, False)))


def _numpy(column: pa.ChunkedArray) -> NDArray[np.generic]:
    return np.asarray(column.to_numpy())
