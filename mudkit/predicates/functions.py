"""The functions of the language: what each takes and returns; what it does stands in each evaluator.

A function gives NULL when an argument is NULL or of another kind; ``coalesce`` alone looks at NULL.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_type_hints

from mudkit.errors import PredicateError
from mudkit.predicates.values import BOOLEAN, EVERY_KIND, KINDS, NULL, NUMBER, POINT, STRING, Point

__all__ = ["BUILT_IN", "OPERATORS", "Function", "find", "function", "names", "remove", "user_functions"]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the language.

    Parameters
    ----------
    name : str
        The name, in lower case.
    takes : tuple of int
        Kinds of the arguments, in order.
    returns : int
        Kind of the result; NULL means: of the kind of its arguments.
    required : int
        How many arguments must be given; the rest may be left out.
    symbol : str
        The sign of an operator; empty: it is no operator.
    many : bool
        Whether the last argument may be repeated.
    python : callable, optional
        A user's function over plain Python values, called only when no argument is NULL.
    numpy : callable, optional
        The same over arrays.
    sql : mapping of str to str
        The same as SQL by dialect, arguments as ``{0}``, ``{1}``, ….
    """

    name: str
    takes: tuple[int, ...]
    returns: int
    required: int
    symbol: str = ""
    many: bool = False
    python: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    sql: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_user(self) -> bool:
        """Whether somebody registered it."""
        return self.python is not None

    def kind_of_argument(self, position: int) -> int:
        """Give the kinds that an argument may have."""
        return self.takes[min(position, len(self.takes) - 1)]


def _built_in(name: str, takes: tuple[int, ...], returns: int, *, required: int = 0, **more: Any) -> Function:
    return Function(name, takes, returns, required or len(takes), **more)


OPERATORS: Final = {
    function.name: function
    for function in (
        *(_built_in(symbol, (NUMBER, NUMBER), NUMBER, symbol=symbol) for symbol in "+-*/"),
        _built_in("negate", (NUMBER,), NUMBER, symbol="-"),
        _built_in("like", (STRING, STRING), BOOLEAN, symbol="LIKE"),
    )
}

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
        _built_in("hour", (NUMBER, STRING), NUMBER, required=1),
        _built_in("weekday", (NUMBER, STRING), NUMBER, required=1),
        _built_in("lookup", (STRING, EVERY_KIND, STRING), EVERY_KIND),
    )
}

_registered: dict[str, Function] = {}
_ANNOTATIONS: Final = {float: NUMBER, int: NUMBER, str: STRING, bool: BOOLEAN, Point: POINT}
KindName: TypeAlias = Literal["number", "string", "boolean", "point"]
_F = TypeVar("_F", bound=Callable[..., Any])


def function(
    name: str,
    *,
    returns: KindName,
    argument_kinds: tuple[str, ...] | None = None,
    numpy: Callable[..., Any] | None = None,
    sqlite: str | None = None,
    spark: str | None = None,
) -> Callable[[_F], _F]:
    """Register a Python function for use in predicates.

    Parameters
    ----------
    name : str
        Name in predicates; case does not matter.
    returns : {'number', 'string', 'boolean', 'point'}
        Kind of its result; a result of another kind is NULL.
    argument_kinds : tuple of str, optional
        Kinds of its arguments; by default from its annotations (``float``, ``int``, ``str``, ``bool``,
        ``Point``).
    numpy : callable, optional
        Equivalent over arrays without NULL; without it the NumPy evaluator refuses the function, and the
        index evaluates one by one.
    sqlite, spark : str, optional
        Equivalent in SQL with ``{0}``, ``{1}``, … for the arguments. SQLite needs none: it calls Python.

    Returns
    -------
    callable
        Decorator that returns the function unchanged. The function must be pure: evaluators call it in any
        order and any number of times, never with NULL.

    Raises
    ------
    PredicateError
        The name is taken or invalid, or a kind is unknown.

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
        forms = {dialect: sql for dialect, sql in (("sqlite", sqlite), ("spark", spark)) if sql is not None}
        _registered[key] = Function(
            key,
            tuple(KINDS[kind] for kind in kinds),
            KINDS[returns],
            len(kinds),
            python=python,
            numpy=numpy,
            sql=forms,
        )
        return python

    return register


def _annotated(python: Callable[..., Any]) -> tuple[str, ...]:
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
    """Forget a registered function; predicates that are made already keep it.

    Raises
    ------
    PredicateError
        There is none of that name.
    """
    if _registered.pop(name.lower(), None) is None:
        raise PredicateError(
            "There is no such function to remove.", found=repr(name), expected=", ".join(_registered)
        )


def find(name: str) -> Function | None:
    """Find a function by its name, in any case."""
    key = name.lower()
    return BUILT_IN.get(key) or _registered.get(key)


def names() -> list[str]:
    """Give the names of all functions."""
    return sorted({*BUILT_IN, *_registered})


def user_functions() -> list[Function]:
    """Give the functions that were registered."""
    return list(_registered.values())
