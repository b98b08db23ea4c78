"""Kinds of values, and the conversion of data to values that all evaluators share.

Data are Python objects: a record from JSON, a row of a table, the attributes of a reader.

* number: a double. Integers beyond 2^53, NaN and infinity are NULL. A time (``datetime``, ``date``,
  ``numpy.datetime64``) is the number of seconds since 1970 UTC; a time without a zone is in UTC.
* string: valid Unicode without U+0000; other strings are NULL.
* boolean: true or false; no number is a boolean and no boolean is a number.
* point: ``{"lat": …, "lon": …}`` or a pair ``(lat, lon)``, degrees, within ±90 and ±180.
* struct: any other mapping. It is not NULL and its attributes have names, but every comparison with it is
  NULL.
* anything else is NULL.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import numbers
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mudkit.units import zone

NULL: Final = 0
NUMBER: Final = 1
STRING: Final = 2
BOOLEAN: Final = 4
POINT: Final = 8
STRUCT: Final = 16
LIST: Final = 32
"""Kinds are bits, so that a set of kinds is one integer. Only constants are lists."""

EVERY_KIND: Final = NUMBER | STRING | BOOLEAN | POINT | STRUCT
KINDS: Final = {"number": NUMBER, "string": STRING, "boolean": BOOLEAN, "point": POINT, "struct": STRUCT}
_NAMES: Final = {bit: name for name, bit in KINDS.items()} | {LIST: "list"}

MAX_INTEGER: Final = 2**53
MAX_NUMBER: Final = float(np.finfo(np.float64).max)


class Point(NamedTuple):
    """Geographic point.

    Parameters
    ----------
    lat, lon : float
        Latitude and longitude, degrees.
    """

    lat: float
    lon: float


Value: TypeAlias = float | str | bool | Point | Mapping[str, Any] | None


class Members(NamedTuple):
    """Constant list of an ``IN``, by kind."""

    numbers: frozenset[float]
    strings: frozenset[str]
    booleans: frozenset[bool]
    points: frozenset[Point]
    kinds: int
    """Kinds of the members; with :data:`LIST` if a member is NULL or a struct."""

    @classmethod
    def of(cls, values: list[Value]) -> Members:
        """Group values by kind; structs count as NULL."""
        sets: dict[int, set[Any]] = {NUMBER: set(), STRING: set(), BOOLEAN: set(), POINT: set()}
        kinds = 0
        for item in values:
            kind = kind_of(item)
            if kind in sets:
                sets[kind].add(item)
                kinds |= kind
            else:
                kinds |= LIST
        by_kind = {kind: frozenset(members) for kind, members in sets.items()}
        return cls(by_kind[NUMBER], by_kind[STRING], by_kind[BOOLEAN], by_kind[POINT], kinds)

    def values(self) -> list[Value]:
        """Return the members, with None if one is NULL or a struct."""
        missing: list[Value] = [None] if self.kinds & LIST else []
        return [*self.numbers, *self.strings, *self.booleans, *self.points, *missing]

    def of_kind(self, kind: int) -> frozenset[Any]:
        """Return the members of one kind."""
        return {NUMBER: self.numbers, STRING: self.strings, BOOLEAN: self.booleans, POINT: self.points}[kind]

    def holds(self, item: Value) -> bool | None:
        """Return whether a value is in the list.

        None, for NULL, where a chain of ``=`` with ``OR`` would be NULL.
        """
        if not self.kinds:
            return False
        kind = kind_of(item)
        if kind in (NULL, STRUCT):
            return None
        if item in self.of_kind(kind):
            return True
        return None if self.kinds != kind else False


Constant: TypeAlias = Value | Members
"""Constant of a predicate."""


def kind_names(kinds: int) -> str:
    """Return a set of kinds in words, such as ``number or string``; NULL for none."""
    names = [name for bit, name in _NAMES.items() if kinds & bit]
    return " or ".join(names) if names else "NULL"


def kind_of(item: Value | Members) -> int:
    """Return the kind of a value (not of data: see :func:`value`)."""
    if item is None:
        return NULL
    if item is True or item is False:
        return BOOLEAN
    if isinstance(item, float):
        return NUMBER
    if isinstance(item, str):
        return STRING
    if isinstance(item, Point):
        return POINT
    return LIST if isinstance(item, Members) else STRUCT


def number(data: Any) -> float | None:
    """Convert a number or a time, which is seconds since 1970 UTC, to a number; None for any other data.

    NaN, infinity and integers that a float does not hold exactly are None, too.
    """
    kind = type(data)
    if kind is float:
        return data if -MAX_NUMBER <= data <= MAX_NUMBER else None
    if kind is int:
        return float(data) if -MAX_INTEGER <= data <= MAX_INTEGER else None
    if data is None or kind is str or kind is bool:
        return None
    return _other_number(data)


def _other_number(data: Any) -> float | None:
    """Convert data of other types than ``float`` and ``int``, such as NumPy's, to a number, or NULL."""
    if isinstance(data, (bool, np.bool_)):
        return None
    if isinstance(data, numbers.Integral):
        return number(int(data))
    if isinstance(data, (numbers.Real, decimal.Decimal)):
        try:
            plain = float(data)
        except (OverflowError, ValueError):
            return None
        return plain if math.isfinite(plain) else None
    return _seconds(data)


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _seconds(data: Any) -> float | None:
    """Convert a date or a point in time to seconds since 1970, in UTC unless it has a zone; None for others.

    Such as a time of day, or NumPy's NaT.
    """
    if isinstance(data, np.datetime64):
        if np.isnat(data):
            return None
        return int(data.astype("datetime64[us]").astype(np.int64)) / 1e6
    if not isinstance(data, dt.date) or data != data:  # pandas' NaT is a datetime that is not equal to itself
        return None
    if not isinstance(data, dt.datetime):
        return float((data - _EPOCH.date()).days * 86_400)
    aware = data if data.tzinfo is not None else data.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1) / 1e6


def seconds_of(text: str) -> float | None:
    """Return the seconds since 1970 of a time in ISO 8601, in UTC unless an offset or a zone follows."""
    written, _, name = text.strip().rpartition(" ")
    tz = zone(name) if name[:1].isalpha() else None
    try:
        moment = dt.datetime.fromisoformat(text.strip() if tz is None else written)
    except ValueError:
        return None
    if tz is not None and moment.tzinfo is not None:
        return None
    return _seconds(moment if tz is None else moment.replace(tzinfo=tz))


def string(data: Any) -> str | None:
    """Convert data to a string; NULL for what is no string, has U+0000, or cannot be encoded."""
    if type(data) is str:
        text = data
    elif isinstance(data, str):
        text = str(data)
    else:
        return None
    if "\0" in text:
        return None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    return text


def boolean(data: Any) -> bool | None:
    """Convert data to a boolean, or NULL."""
    if data is True or data is False:
        return data
    return bool(data) if isinstance(data, np.bool_) else None


def point(data: Any) -> Point | None:
    """Convert a pair, or a mapping with ``lat`` and ``lon``, to a point; NULL for others and out of range."""
    if isinstance(data, (tuple, list, np.ndarray)):
        if np.shape(data)[:1] != (2,) if isinstance(data, np.ndarray) else len(data) != 2:
            return None
        lat, lon = number(data[0]), number(data[1])
    elif isinstance(data, Mapping):
        lat, lon = number(data.get("lat")), number(data.get("lon"))
    else:
        return None
    if lat is None or lon is None or not (-90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0):
        return None
    return Point(lat, lon)


def value(data: Any) -> Value:
    """Convert data to a value of the kind that they are; NULL for what the language does not have."""
    kind = type(data)
    if data is None or data is True or data is False:
        return data
    if kind is float or kind is int:
        return number(data)
    if isinstance(data, str):
        return string(data)
    if isinstance(data, Mapping):
        return point(data) or data
    if isinstance(data, (tuple, list, np.ndarray)):
        return point(data)
    return boolean(data) if isinstance(data, np.bool_) else number(data)


def attribute(data: Any, name: str) -> Any:
    """Return an attribute of a struct or a point; NULL if it is missing."""
    if isinstance(data, Mapping):
        return data.get(name)
    if name == "lat" or name == "lon":
        place = point(data)
        return None if place is None else getattr(place, name)
    return None
