"""Layout of a scope's attributes in columns of Spark, and JSON that Spark and Python read alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mudkit.checks import check_arguments
from mudkit.errors import PredicateError, did_you_mean, listed
from mudkit.predicates.tree import Name
from mudkit.predicates.values import BOOLEAN, EVERY_KIND, NUMBER, POINT, STRING, STRUCT, number, string

_KINDS: Final = {
    "number": NUMBER, "date": NUMBER, "string": STRING, "boolean": BOOLEAN, "point": POINT, "pair": POINT,
    "struct": STRUCT, "variant": EVERY_KIND, "null": 0,
}  # fmt: skip


class Column(NamedTuple):
    """Column whose name differs from the attribute, or that is inside another column.

    Parameters
    ----------
    name : str or tuple of str
        Name of the column; for a point in two columns of numbers, both names, latitude first.
    kind : str
        Kind of the column, see :class:`Layout`.
    path : tuple of str
        Fields of a Spark ``STRUCT`` that lead to it.
    """

    name: str | tuple[str, str]
    kind: str
    path: tuple[str, ...] = ()


class Whole(NamedTuple):
    """Place inside a column that holds values of any kind."""

    column: Column
    path: tuple[str, ...]

    @property
    def kinds(self) -> int:
        """Kinds that the values may have, as bits: every kind."""
        return EVERY_KIND


class Typed(NamedTuple):
    """Column of one kind, or a part (``lat``, ``lon``) of a column of points."""

    column: Column
    part: str

    @property
    def kinds(self) -> int:
        """Kinds that the values may have, as bits."""
        return NUMBER if self.part else _KINDS[self.column.kind]


class Group(NamedTuple):
    """Struct whose attributes are columns."""

    struct: Column | None
    columns: tuple[Column, ...]
    lat: Column | None
    lon: Column | None

    @property
    def kinds(self) -> int:
        """Kinds of the values: a struct with a latitude and a longitude may be a point."""
        return STRUCT if self.lat is None or self.lon is None else STRUCT | POINT


Resolved: TypeAlias = Whole | Typed | Group | None
"""Place of a name; ``None`` for a name that is always NULL."""


@check_arguments(types=False)
class Layout:
    """Columns of Spark that hold the attributes of each scope.

    Parameters
    ----------
    **scopes : str or mapping of str to (str or Column)
        Columns of each scope. A string is the name of the one ``VARIANT`` that holds all attributes. A
        mapping gives a kind to each attribute, or a :class:`Column` where the column has another name. The
        names of a scope without columns are NULL.

    Raises
    ------
    PredicateError
        A kind does not exist.

    Notes
    -----
    Kinds of columns; a value of another kind than its column is NULL:

    * ``'number'``; also a ``TIMESTAMP``, which is a number of seconds since 1970 UTC.
    * ``'date'``: a ``DATE`` or ``TIMESTAMP_NTZ``, also in seconds.
    * ``'string'``; ``'boolean'``.
    * ``'point'``: two columns of numbers, ``Column(("lat", "lon"), "point")``; or one ``STRUCT`` with
      ``lat`` and ``lon``.
    * ``'pair'``: a point as an ``ARRAY`` of two numbers.
    * ``'struct'``: tested for NULL only; it has no value.
    * ``'variant'``: values of any kind, also structs with paths into them.
    * ``'null'``: a column of a type that the language does not have.

    An attribute of a struct is named with dots, ``"home.city"``. A struct ``home`` of which only attributes
    are given is NULL when all of them are, and with ``home.lat`` and ``home.lon`` it may be a point.

    Examples
    --------
    >>> layout = Layout(record={"loc": Column(("lat", "lon"), "point")}, receiver="profile")
    """

    def __init__(self, **scopes: str | Mapping[str, str | Column]) -> None:
        self.scopes: dict[str, Column | dict[tuple[str, ...], Column]] = {}
        for scope, given in scopes.items():
            if isinstance(given, str):
                self.scopes[scope] = Column(given, "variant")
            else:
                self.scopes[scope] = {
                    tuple(key.split(".")): _column(scope, key, column) for key, column in given.items()
                }

    def find(self, name: Name, text: str | None = None) -> Resolved:
        """Return the place of a name in a tree; ``text`` is the predicate, for the error.

        Parameters
        ----------
        name : Name
        text : str, optional

        Raises
        ------
        PredicateError
            The scope has columns, but none for this name.
        """
        columns = self.scopes.get(name.scope)
        if columns is None:
            return None
        if isinstance(columns, Column):
            return Whole(columns, name.path)
        path = name.path
        for length in range(len(path), 0, -1):
            column = columns.get(path[:length])
            if column is None:
                continue
            rest = path[length:]
            if column.kind == "variant":
                return Whole(column, rest)
            if column.kind in ("point", "pair") and rest in (("lat",), ("lon",)):
                return Typed(column, rest[0])
            if not rest and column.kind != "struct":
                return Typed(column, "")
            if not rest:
                return _group(columns, path, column)
            break
        if any(key[: len(path)] == path for key in columns):
            return _group(columns, path, None)
        raise _unknown(name, columns, text)


def _column(scope: str, key: str, given: str | Column) -> Column:
    """Return a column from its kind or as given; PredicateError if the kind does not exist or fit."""
    column = given if isinstance(given, Column) else Column(key, given)
    pair = not isinstance(column.name, str)
    if column.kind not in _KINDS or (pair and column.kind != "point"):
        raise PredicateError(
            "Two columns can only hold a point." if pair else "The layout has a kind that does not exist.",
            where=f"{scope}.{key}",
            found=repr(column.kind),
            expected=", ".join(_KINDS),
        )
    return column


def _group(columns: dict[tuple[str, ...], Column], path: tuple[str, ...], struct: Column | None) -> Group:
    """Return the columns below a path as a struct; ``struct`` is the column of the whole, if any."""
    inside = {key: column for key, column in columns.items() if key[: len(path)] == path and key != path}
    lat, lon = (inside.get((*path, part)) for part in ("lat", "lon"))
    numbers = all(column is not None and _KINDS[column.kind] & NUMBER for column in (lat, lon))
    return Group(struct, tuple(inside.values()), lat if numbers else None, lon if numbers else None)


def _unknown(name: Name, columns: Mapping[tuple[str, ...], Column], text: str | None) -> PredicateError:
    """Return the error for a name that the layout does not have."""
    written = ".".join(name.path)
    known = sorted(".".join(key) for key in columns)
    return PredicateError(
        f"There is no {name.scope}.{written} in the layout.",
        text=text,
        at=name.at,
        expected=f"one of {listed(known)}" if known else "no names",
        remedy=did_you_mean(written, known),
    )


MAX_LEVELS: Final = 200


def to_json(record: Mapping[str, Any]) -> str:
    """Encode a record as JSON that Spark and Python read as the same values, up to 200 levels deep.

    >>> to_json({"price": np.float32(7.5), "loc": (30.27, -97.74), "x": float("nan")})
    '{"price": 7.5, "loc": [30.27, -97.74], "x": null}'
    """
    parts: list[str] = []
    _write(record, parts, 0)
    return "".join(parts)


def _write(data: Any, parts: list[str], level: int) -> None:
    """Append a value's JSON to ``parts``; what the language does not have, or lies too deep, becomes null."""
    if data is None or level > MAX_LEVELS:
        parts.append("null")
    elif isinstance(data, (bool, np.bool_)):
        parts.append("true" if data else "false")
    elif isinstance(data, str):
        parts.append(json.dumps(string(data), ensure_ascii=False))
    elif isinstance(data, Mapping):
        names = [key for key in data if string(key) is not None]
        for position, key in enumerate(names):
            parts.append("{" if not position else ", ")
            parts.append(json.dumps(str(key), ensure_ascii=False) + ": ")
            _write(data[key], parts, level + 1)
        parts.append("}" if names else "{}")
    elif isinstance(data, (list, tuple)) or (isinstance(data, np.ndarray) and data.ndim):
        for position, item in enumerate(data):
            parts.append("[" if not position else ", ")
            _write(item, parts, level + 1)
        parts.append("]" if len(data) else "[]")
    else:
        checked = number(data)
        if checked is None:
            parts.append("null")
        elif isinstance(data, (int, np.integer)):
            parts.append(str(int(data)))
        else:
            parts.append(repr(checked))
