"""What the functions of the language mean, for one value at a time: the reference for every evaluator.

Arguments are values of the right kinds, never NULL; a result of ``None`` is NULL.
"""

from __future__ import annotations

import datetime as dt
import math
import string as ascii_only
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import re2

from mudkit.errors import PredicateError
from mudkit.predicates.functions import Function
from mudkit.predicates.values import (
    BOOLEAN,
    NUMBER,
    POINT,
    STRING,
    Point,
    Value,
    boolean,
    number,
    point,
    string,
    value,
)
from mudkit.units import EARTH_RADIUS_KM, zone

__all__ = [
    "CONVERT",
    "FIRST_S",
    "FROM_KM",
    "LAST_S",
    "MEANING",
    "call_user",
    "equal",
    "finite",
    "less",
    "like_pattern",
    "lookup",
    "pattern",
]

CONVERT: Final[dict[int, Callable[[Any], Any]]] = {
    NUMBER: number,
    STRING: string,
    BOOLEAN: boolean,
    POINT: point,
}
"""From data to a value of one kind, or NULL."""

FROM_KM: Final = 1e6
"""Distances are whole millimetres, so that evaluators with other sines give the same number."""
FIRST_S: Final = -62_135_510_400
LAST_S: Final = 253_402_214_400
"""Times that have an hour and a weekday: from year 1 to 9999, a day short at both ends for the zones."""

_LOWER: Final = str.maketrans(ascii_only.ascii_uppercase, ascii_only.ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_only.ascii_lowercase, ascii_only.ascii_uppercase)
_BIGGEST: Final = 1.7976931348623157e308
_QUIET: Final = re2.Options()
_QUIET.log_errors = False


def finite(x: float) -> float | None:
    """Overflow is NULL."""
    return x if -_BIGGEST <= x <= _BIGGEST else None


def equal(a: Value, b: Value) -> bool | None:
    """Compare by ``a = b`` values whose kinds are not known beforehand."""
    if a is None or b is None or type(a) is not type(b) or isinstance(a, Mapping):
        return None
    return a == b


def less(a: Value, b: Value) -> bool | None:
    """Compare by ``a < b`` values whose kinds are not known beforehand."""
    if a is None or b is None or type(a) is not type(b) or isinstance(a, (Mapping, Point)):
        return None
    return a < b  # type: ignore[operator]


@lru_cache(maxsize=1024)
def pattern(written: str) -> Any:
    """Compile a regular expression of RE2.

    Raises
    ------
    re2.error
    """
    return re2.compile(written, _QUIET)


@lru_cache(maxsize=1024)
def like_pattern(written: str) -> Any:
    """Compile a pattern of ``LIKE``: ``%`` is any text, ``_`` is any one character."""
    parts = {"%": ".*", "_": "."}
    return re2.compile("(?s)" + "".join(parts.get(c) or re2.escape(c) for c in written), _QUIET)


def _matches(text: str, written: str) -> bool | None:
    try:
        return pattern(written).search(text) is not None
    except re2.error:
        return None


def _like(text: str, written: str) -> bool | None:
    try:
        return like_pattern(written).fullmatch(text) is not None
    except re2.error:  # a pattern longer than RE2 takes
        return None


def _distance_km(a: Point, b: Point) -> float:
    phi_a, phi_b = math.radians(a[0]), math.radians(b[0])
    sine_phi = math.sin((phi_b - phi_a) / 2)
    sine_lambda = math.sin((math.radians(b[1]) - math.radians(a[1])) / 2)
    h = sine_phi * sine_phi + math.cos(phi_a) * math.cos(phi_b) * (sine_lambda * sine_lambda)
    return math.floor(2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(h, 1.0))) * FROM_KM + 0.5) / FROM_KM


def _within_box(place: Point, south: float, west: float, north: float, east: float) -> bool:
    lat, lon = place
    return south <= lat <= north and (
        _between(lon, west, east) or ((lon == 180.0 or lon == -180.0) and _between(-lon, west, east))
    )


def _between(lon: float, west: float, east: float) -> bool:
    return west <= lon <= east if west <= east else lon >= west or lon <= east


def _local(ts: float, name: str) -> dt.datetime | None:
    tz = zone(name)
    if tz is None or not FIRST_S <= ts < LAST_S:
        return None
    return dt.datetime.fromtimestamp(math.floor(ts), tz)


def _hour(ts: float, name: str = "UTC") -> float | None:
    if name == "UTC":
        return float(math.floor(ts) % 86_400 // 3_600) if FIRST_S <= ts < LAST_S else None
    local = _local(ts, name)
    return None if local is None else float(local.hour)


def _weekday(ts: float, name: str = "UTC") -> float | None:
    if name == "UTC":
        return float((math.floor(ts) // 86_400 + 3) % 7) if FIRST_S <= ts < LAST_S else None
    local = _local(ts, name)
    return None if local is None else float(local.weekday())


MEANING: Final[dict[str, Callable[..., Any]]] = {
    "+": lambda a, b: finite(a + b),
    "-": lambda a, b: finite(a - b),
    "*": lambda a, b: finite(a * b),
    "/": lambda a, b: finite(a / b) if b != 0.0 else None,
    "negate": lambda a: -a,
    "like": _like,
    "distance_km": _distance_km,
    "within_box": _within_box,
    "within_km": lambda place, centre, km: _distance_km(place, centre) <= km,
    "point": lambda lat, lon: point((lat, lon)),
    "matches": _matches,
    "starts_with": str.startswith,
    "contains": str.__contains__,
    "lower": lambda text: text.lower() if text.isascii() else text.translate(_LOWER),
    "upper": lambda text: text.upper() if text.isascii() else text.translate(_UPPER),
    "length": lambda text: float(len(text)),
    "abs": abs,
    "hour": _hour,
    "weekday": _weekday,
}


def call_user(function: Function, *args: Any) -> Any:
    """Call a registered function; its result is of the kind that it promised, or NULL.

    Raises
    ------
    PredicateError
        The function failed.
    """
    assert function.python is not None
    try:
        result = function.python(*args)
    except Exception as error:
        raise PredicateError(
            f"The function {function.name} failed: {type(error).__name__}: {error}",
            found=", ".join(repr(arg)[:40] for arg in args),
        ) from error
    return CONVERT[function.returns](result)


def lookup(tables: Mapping[str, Mapping[Any, Any]] | None, table: str, key: Value, attribute: str) -> Value:
    """Look an attribute up by primary key: the limited join (Mobius 2.2), on the server only.

    Raises
    ------
    PredicateError
        There are no tables here, or none of that name.
    """
    if tables is None:
        raise PredicateError(
            "lookup works on the server only: there are no tables here.",
            found=repr(table),
            remedy="give them with tables={name: {key: record}}",
        )
    if table not in tables:
        raise PredicateError(
            "There is no such table.",
            found=repr(table),
            expected=", ".join(map(repr, tables)) or "none here",
            remedy="give it with tables={name: {key: record}}",
        )
    try:
        row = tables[table].get(key)
    except TypeError:  # a struct is no key
        return None
    return None if row is None else value(row.get(attribute))
