"""Checks of the functions that Radiator is given: what can be known before they are used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mudkit.errors import ParameterError, brief
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.radiator.aggregation import joins
from mudkit.wire import Value

__all__ = ["check_function", "check_join"]

_MOST: Final = 1 << 60
_NEEDS: Final = ((joins.people_count, "k=5"), (joins.top_k, 'by="speed_kmh"'))
"""Joins that need a setting, and how one may look."""


def check_function(where: str, given: object, arguments: Sequence[str]) -> None:
    """Refuse what cannot be called with these arguments, in this order and no others.

    Raises
    ------
    ParameterError
    """
    if not callable(given):
        raise ParameterError(
            "This is no function.",
            where=where,
            found=brief(given, 120),
            expected=f"a function of {' and '.join(arguments)}",
        )
    is_partial = isinstance(given, partial)
    try:
        inspect.signature(given).bind(*arguments)
    except (TypeError, ValueError) as error:
        # Of some builtins nobody knows what they take: that is a ValueError, too.
        if isinstance(error, ValueError) and not is_partial:
            return
        raise ParameterError(
            f"This function cannot be called as it will be: {error}.",
            where=where,
            found=_name(given),
            expected=f"a function of {' and '.join(arguments)}",
            remedy=f"set what it takes besides, and only that, with functools.partial({_name(given)}, …)",
        ) from None


def check_join(given: joins.Join) -> None:
    """Refuse what cannot join contexts: it lacks a setting, or one of the joins of mudkit has a wrong one.

    Raises
    ------
    ParameterError
    """
    set_already = getattr(given, "keywords", {})
    function = getattr(given, "func", given)
    needs = next((what for needed, what in _NEEDS if needed is function), "")
    name = needs.split("=")[0]
    if needs and name not in set_already:
        raise ParameterError(
            f"The join {_name(function)} needs {name}.",
            where="join",
            found=f"no {name}",
            expected=f"partial(joins.{_name(function)}, {needs})",
            remedy=f"write from functools import partial, and join=partial(joins.{_name(function)}, {needs})",
        )
    check_function("join", given, ["contexts"])
    if getattr(function, "__module__", None) == joins.__name__:
        for setting, value in set_already.items():
            if setting in _SETTINGS:
                _SETTINGS[setting](f"join, {setting}", value, function)


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    return str(getattr(function, "__name__", type(function).__name__))


def _names(where: str, given: Value, function: object) -> None:
    """Refuse what names no attribute, or for :func:`joins.mean` several of them."""
    is_several = function is joins.mean and where.endswith(" of")
    names = given if is_several and isinstance(given, list | tuple | set | frozenset) else [given]
    is_none = given is None and function is joins.people_count
    if not is_none and (
        (is_several and isinstance(given, str)) or not all(isinstance(name, str) for name in names)
    ):
        raise ParameterError(
            "This names no attribute.",
            where=where,
            found=brief(given, 120),
            expected='names such as ("speed_kmh",)' if is_several else "a name such as 'loc'",
        )


_SETTINGS: Final[dict[str, Callable[[str, Value, object], float | None]]] = {
    "k": lambda where, given, _: whole_number(where, given, 1, _MOST),
    "least": lambda where, given, _: whole_number(where, given, 1, _MOST),
    "digits": lambda where, given, _: whole_number(where, given, 0, 15),
    "km": lambda where, given, _: number(where, given, 1e-6, 20_000.0),
    "loc": _names,
    "of": _names,
    "by": _names,
}
