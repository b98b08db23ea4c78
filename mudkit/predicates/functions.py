"""Functions and operators of the language: signatures, and the reference implementation for every evaluator.

A function returns NULL when an argument is NULL or of another kind; only ``coalesce`` accepts NULL.
"""

from __future__ import annotations

import datetime as dt
import inspect
import math
import re
import string as ascii_only
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_type_hints

import re2

from mudkit.checks import check_arguments
from mudkit.errors import PredicateError
from mudkit.predicates.values import (
    BOOLEAN,
    EVERY_KIND,
    KINDS,
    MAX_NUMBER,
    NULL,
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


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Signature of a function or operator; the last argument may be repeated if ``many``.

    The result has the kinds of the arguments if ``returns`` is NULL. ``python``, ``numpy`` and ``spark``
    (SQL with ``{0}``, ``{1}``, … for the arguments) are forms of a user's function, never called with NULL.
    """

    name: str
    takes: tuple[int, ...]
    returns: int
    required: int
    symbol: str = ""
    many: bool = False
    python: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    spark: str | None = None

    @property
    def is_user(self) -> bool:
        """True for the function of a user."""
        return self.python is not None

    def kind_of_argument(self, position: int) -> int:
        """Return the kinds that the argument at a position may have, as bits."""
        return self.takes[min(position, len(self.takes) - 1)]


def _built_in(name: str, takes: tuple[int, ...], returns: int, *, required: int = 0, **more: Any) -> Function:
    """Return a function of the language; all its arguments are required unless ``required`` is given."""
    return Function(name, takes, returns, required or len(takes), **more)


OPERATORS: Final = {
    function.name: function
    for function in (
        *(_built_in(symbol, (NUMBER, NUMBER), NUMBER, symbol=symbol) for symbol in "+-*/"),
        _built_in("negate", (NUMBER,), NUMBER, symbol="-"),
        _built_in("like", (STRING, STRING), BOOLEAN, symbol="LIKE"),
    )
}

TIME_PARTS: Final = ("year", "month", "day", "weekday", "hour", "minute")
"""Functions of a time, a number of seconds since 1970, and of the name of a time zone, by default UTC."""

BUILT_IN: Final = {
    function.name: function
    for function in (
        _built_in("distance_km", (POINT, POINT), NUMBER),
        _built_in("within_box", (POINT, NUMBER, NUMBER, NUMBER, NUMBER), BOOLEAN),
        _built_in("within_km", (POINT, POINT, NUMBER), BOOLEAN),
        _built_in("point", (NUMBER, NUMBER), POINT),
        _built_in("matches", (STRING, STRING), BOOLEAN),
        _built_in("starts_with", (STRING, STRING), BOOLEAN),
        _built_in("contains", (STRING, STRING), BOOLEAN),
        _built_in("lower", (STRING,), STRING),
        _built_in("upper", (STRING,), STRING),
        _built_in("length", (STRING,), NUMBER),
        _built_in("abs", (NUMBER,), NUMBER),
        _built_in("coalesce", (EVERY_KIND,), NULL, required=1, many=True),
        *(_built_in(part, (NUMBER, STRING), NUMBER, required=1) for part in TIME_PARTS),
        _built_in("lookup", (STRING, EVERY_KIND, STRING), EVERY_KIND),
    )
}

_registered: dict[str, Function] = {}
_ANNOTATIONS: Final = {float: NUMBER, int: NUMBER, str: STRING, bool: BOOLEAN, Point: POINT}
KindName: TypeAlias = Literal["number", "string", "boolean", "point"]
_F = TypeVar("_F", bound=Callable[..., Any])


@check_arguments(types=False)
def function(
    name: str,
    *,
    returns: KindName,
    argument_kinds: tuple[str, ...] | None = None,
    numpy: Callable[..., Any] | None = None,
    spark: str | None = None,
) -> Callable[[_F], _F]:
    """Register a Python function for use in predicates.

    Parameters
    ----------
    name : str
        Name in predicates, in any case.
    returns : {'number', 'string', 'boolean', 'point'}
        Kind of the result; a result of another kind is NULL.
    argument_kinds : tuple of str, optional
        Kinds of the arguments; by default from its annotations (``float``, ``int``, ``str``, ``bool``,
        ``Point``).
    numpy : callable, optional
        The function over arrays without NULL. Without it the NumPy evaluator raises an error, and the index
        evaluates one record at a time.
    spark : str, optional
        The function in Spark SQL, with ``{0}``, ``{1}``, … for the arguments. Without it the Spark evaluator
        raises an error.

    Returns
    -------
    callable
        Decorator that returns the function unchanged. The function must not keep state, and is never called
        with NULL.

    Raises
    ------
    PredicateError
        The name is taken or not a name, or a kind is unknown.

    Examples
    --------
    >>> @function("double_it", returns="number")
    ... def double_it(x: float) -> float:
    ...     return 2 * x
    >>> remove("double_it")
    """
    key = name.lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
        raise PredicateError(
            "This cannot be the name of a function.", found=repr(name), expected="letters, digits, _"
        )

    def register(python: _F) -> _F:
        if key in BUILT_IN:
            raise PredicateError(
                f"{key} is a function of the language.", found=repr(name), expected="a new name"
            )
        kinds = argument_kinds if argument_kinds is not None else _annotated(python)
        known = all(kind in KINDS and kind != "struct" for kind in (*kinds, returns))
        if not known:
            raise PredicateError(
                f"The kinds of {key} are not known.",
                found=f"argument_kinds={kinds!r}, returns={returns!r}",
                expected="number, string, boolean or point",
            )
        _registered[key] = Function(
            key,
            tuple(KINDS[kind] for kind in kinds),
            KINDS[returns],
            len(kinds),
            python=python,
            numpy=numpy,
            spark=spark,
        )
        return python

    return register


def _annotated(python: Callable[..., Any]) -> tuple[str, ...]:
    """Return the kind of each parameter by its annotation; PredicateError if one is missing or unknown."""
    hints = get_type_hints(python)
    by_bit = {bit: name for name, bit in KINDS.items()}
    kinds = []
    for parameter in inspect.signature(python).parameters:
        if hints.get(parameter) not in _ANNOTATIONS:
            raise PredicateError(
                f"The kind of the argument {parameter} is not known.",
                found=repr(hints.get(parameter, "no annotation")),
                expected="float, int, str, bool, Point, or argument_kinds=(…)",
            )
        kinds.append(by_bit[_ANNOTATIONS[hints[parameter]]])
    return tuple(kinds)


def remove(name: str) -> None:
    """Unregister a function; existing predicates keep it."""
    if _registered.pop(name.lower(), None) is None:
        raise PredicateError(
            "No such function is registered.", found=repr(name), expected=", ".join(_registered)
        )


def find(name: str) -> Function | None:
    """Return the built-in or registered function of a name, in any case; None if there is none."""
    key = name.lower()
    return BUILT_IN.get(key) or _registered.get(key)


def names() -> list[str]:
    """Return the names of all built-in and registered functions, sorted."""
    return sorted({*BUILT_IN, *_registered})


CONVERTERS: Final[dict[int, Callable[[Any], Any]]] = {
    NUMBER: number,
    STRING: string,
    BOOLEAN: boolean,
    POINT: point,
}
"""Conversion of data to a value of one kind, or NULL."""

MM_PER_KM: Final = 1e6
"""Millimetres per kilometre. Distances are whole millimetres, so that evaluators with other sines agree."""
MIN_TIME_S: Final = -62_135_510_400
MAX_TIME_S: Final = 253_402_214_400
"""Range of times that have parts: years 1 to 9999, without a day at each end for the zones."""

_LOWER: Final = str.maketrans(ascii_only.ascii_uppercase, ascii_only.ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_only.ascii_lowercase, ascii_only.ascii_uppercase)
_RE2_OPTIONS: Final = re2.Options()
_RE2_OPTIONS.log_errors = False


def finite(x: float) -> float | None:
    """Return a number, or NULL if it overflowed."""
    return x if -MAX_NUMBER <= x <= MAX_NUMBER else None


def equal(a: Value, b: Value) -> bool | None:
    """Return ``a = b`` for values of any kinds; None if their kinds differ, and for structs."""
    if a is None or b is None or type(a) is not type(b) or isinstance(a, Mapping):
        return None
    return a == b


def less(a: Value, b: Value) -> bool | None:
    """Return ``a < b`` for values of any kinds; None if their kinds differ or have no order."""
    if a is None or b is None or type(a) is not type(b) or isinstance(a, (Mapping, Point)):
        return None
    return a < b  # type: ignore[operator]


@lru_cache(maxsize=1024)
def pattern(written: str) -> Any:
    """Compile a regular expression; raise ``re2.error`` if RE2 rejects it."""
    return re2.compile(written, _RE2_OPTIONS)


@lru_cache(maxsize=1024)
def like_pattern(written: str) -> Any:
    """Compile a pattern of ``LIKE``: ``%`` matches any text, ``_`` any one character."""
    parts = {"%": ".*", "_": "."}
    return re2.compile("(?s)" + "".join(parts.get(c) or re2.escape(c) for c in written), _RE2_OPTIONS)


def _matches(text: str, written: str) -> bool | None:
    """Return whether a text contains a match of a regular expression; None if RE2 rejects it."""
    try:
        return pattern(written).search(text) is not None
    except re2.error:
        return None


def _like(text: str, written: str) -> bool | None:
    """Return whether a whole text matches a pattern of LIKE; None if it is longer than RE2 accepts."""
    try:
        return like_pattern(written).fullmatch(text) is not None
    except re2.error:  # longer than RE2 accepts
        return None


def _distance_km(a: Point, b: Point) -> float:
    """Return the great-circle distance of two points in km, rounded to millimetres."""
    phi_a, phi_b = math.radians(a[0]), math.radians(b[0])
    sine_phi = math.sin((phi_b - phi_a) / 2)
    sine_lambda = math.sin((math.radians(b[1]) - math.radians(a[1])) / 2)
    h = sine_phi * sine_phi + math.cos(phi_a) * math.cos(phi_b) * (sine_lambda * sine_lambda)
    return math.floor(2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(h, 1.0))) * MM_PER_KM + 0.5) / MM_PER_KM


def _within_box(place: Point, south: float, west: float, north: float, east: float) -> bool:
    """Return whether a place is in a box, edges included; a box with west > east crosses the date line."""
    lat, lon = place
    return south <= lat <= north and (
        _between(lon, west, east) or ((lon == 180.0 or lon == -180.0) and _between(-lon, west, east))
    )


def _between(lon: float, west: float, east: float) -> bool:
    """Return whether a longitude is between two others, going east from ``west``."""
    return west <= lon <= east if west <= east else lon >= west or lon <= east


def _part(name: str) -> Callable[..., float | None]:
    """Build the function of a part of a time; ``weekday`` counts from Monday, 0."""

    def read(ts: float, tz_name: str = "UTC") -> float | None:
        tz = zone(tz_name)
        if tz is None or not MIN_TIME_S <= ts < MAX_TIME_S:
            return None
        local = dt.datetime.fromtimestamp(math.floor(ts), tz)
        return float(local.weekday() if name == "weekday" else getattr(local, name))

    return read


IMPLEMENTATIONS: Final[dict[str, Callable[..., Any]]] = {
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
    **{part: _part(part) for part in TIME_PARTS},
}


def call_user(function: Function, *args: Any) -> Any:
    """Call a registered function; return a value of the kind it declares, or NULL.

    Raises PredicateError if the function raises anything.
    """
    assert function.python is not None
    try:
        result = function.python(*args)
    except Exception as error:
        raise PredicateError(
            f"The function {function.name} failed: {type(error).__name__}: {error}",
            found=", ".join(repr(arg)[:40] for arg in args),
        ) from error
    return CONVERTERS[function.returns](result)


def lookup(tables: Mapping[str, Mapping[Any, Any]] | None, table: str, key: Value, attribute: str) -> Value:
    """Return an attribute of a table's row by primary key: the limited join of Mobius 3.1, at servers.

    None, which is NULL, if there is no such row or attribute; PredicateError if there is no such table.
    """
    if tables is None:
        raise PredicateError(
            "lookup needs tables, which only servers have.",
            found=repr(table),
            remedy="give them with tables={name: {key: record}}",
        )
    if table not in tables:
        raise PredicateError(
            "There is no such table.",
            found=repr(table),
            expected=", ".join(map(repr, tables)) or "no tables here",
            remedy="give it with tables={name: {key: record}}",
        )
    try:
        row = tables[table].get(key)
    except TypeError:  # a struct is not hashable
        return None
    return None if row is None else value(row.get(attribute))
