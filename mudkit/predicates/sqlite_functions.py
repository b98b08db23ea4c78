"""The functions that the SQL text of a predicate needs on a connection to SQLite."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from typing import Any, Final

from mudkit.predicates import functions, meaning
from mudkit.predicates.functions import Function
from mudkit.predicates.values import (
    BOOLEAN,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Point,
    point,
)

__all__ = ["packed", "register_functions"]


_TYPES: Final = {float: NUMBER, str: STRING, int: BOOLEAN}


def register_functions(connection: sqlite3.Connection) -> None:
    """Register the functions of predicates, and users' functions, on a SQLite connection.

    Parameters
    ----------
    connection : sqlite3.Connection

    Notes
    -----
    Their names begin with ``mudkit_``. Call it again after a later :func:`mudkit.predicates.function`.
    """
    known: dict[str, tuple[int, Callable[..., Any]]] = {
        "point": (-1, _point),
        "lat": (1, lambda place: _part(place, 0)),
        "lon": (1, lambda place: _part(place, 1)),
        "only": (2, _only),
        "compare": (3, _compare),
        "distance_km": (2, _strict("distance_km", places=2)),
        "within_box": (5, _strict("within_box", places=1)),
        "within_km": (3, _strict("within_km", places=2)),
        "matches": (2, _strict("matches")),
        "like": (2, _strict("like")),
        "hour": (-1, _strict("hour")),
        "weekday": (-1, _strict("weekday")),
    }
    for function in functions.user_functions():
        known[f"user_{function.name}"] = (-1, _user_function(function))
    for name, (arguments, python) in known.items():
        connection.create_function(f"mudkit_{name}", arguments, python, deterministic=True)


def packed(place: Point) -> bytes:
    """Write a point as SQLite keeps it: the bytes of its two doubles."""
    # One zero, so that equal points are equal bytes.
    return struct.pack("<2d", place.lat + 0.0, place.lon + 0.0)


def _unpacked(given: Any) -> Point | None:
    """Read a point: our own bytes, or JSON."""
    if isinstance(given, bytes):
        return Point(*struct.unpack("<2d", given)) if len(given) == 16 else None
    if not isinstance(given, str):
        return None
    try:
        return point(json.loads(given))
    except (ValueError, RecursionError):
        return None


def _point(*given: Any) -> bytes | None:
    place = _unpacked(given[0]) if len(given) == 1 else point(given)
    return None if place is None else packed(place)


def _part(given: Any, position: int) -> float | None:
    place = _unpacked(given)
    return None if place is None else place[position]


def _strict(name: str, places: int = 0) -> Callable[..., Any]:
    """Make a function of SQLite from the meaning of one of the language."""
    python = meaning.MEANING[name]

    def called(*args: Any) -> Any:
        values = [*map(_unpacked, args[:places]), *args[places:]]
        return None if any(value is None for value in values) else python(*values)

    return called


def _only(value: Any, kinds: int) -> Any:
    kind = (
        (POINT if len(value) == 16 else STRUCT) if isinstance(value, bytes) else _TYPES.get(type(value), NULL)
    )
    return value if kind & kinds else None


def _compare(left: Any, operator: str, right: Any) -> bool | None:
    if left is None or type(left) is not type(right):
        return None
    if operator in ("=", "<>"):
        return bool(left == right) is (operator == "=")
    below: bool = right < left if operator in (">", "<=") else left < right
    return below is (operator in ("<", ">"))


def _user_function(function: Function) -> Callable[..., Any]:
    convert: dict[int, Callable[[Any], Any]] = {POINT: _unpacked, BOOLEAN: bool}

    def called(*args: Any) -> Any:
        if any(arg is None for arg in args):
            return None
        values = [
            convert.get(function.kind_of_argument(position), lambda x: x)(arg)
            for position, arg in enumerate(args)
        ]
        result = None if None in values else meaning.call_user(function, *values)
        return packed(result) if isinstance(result, Point) else result

    return called
