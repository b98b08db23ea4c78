"""Frozen dataclasses of parameters whose fields state their range, and are checked against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np

from mudkit.arguments import check_options
from mudkit.errors import ParameterError, brief, did_you_mean, listed
from mudkit.units import zone

T = TypeVar("T")


def rate(default: T, low: float, high: float) -> T:
    """Declare a field of parameters: its default, whose type is the parameter's, and its inclusive range.

    A tuple of floats keeps its length.
    """
    declared: T = field(default=default, metadata={"low": low, "high": high})
    return declared


def check_ranges(parameters: Any) -> None:
    """Check the fields that :func:`rate` declared, and bring them to their kind; for ``__post_init__``."""
    for declared in fields(parameters):
        if "low" not in declared.metadata:
            continue
        low, high = declared.metadata["low"], declared.metadata["high"]
        value = _value(declared.name, getattr(parameters, declared.name), declared.default, low, high)
        object.__setattr__(parameters, declared.name, value)


def whole_number(name: str, given: Any, low: int, high: int) -> int:
    """Check an argument that is a whole number from ``low`` to ``high``."""
    return int(_value(name, given, 0, low, high))


@check_options
def number(name: str, given: Any, low: float, high: float) -> float:
    """Check an argument that is a number from ``low`` to ``high``; a truth value is none.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    given : object
        Its value.
    low, high : float
        Range, both ends included.

    Raises
    ------
    ParameterError
    """
    return float(_value(name, given, 0.0, low, high))


def time_zone(name: str, given: Any) -> ZoneInfo:
    """Check an argument that is the name of a time zone."""
    tz = zone(given) if isinstance(given, str) else None
    if tz is None:
        raise _refused(name, given, "a time zone, for instance America/Los_Angeles")
    return tz


def of_kind(name: str, given: Any, *kinds: type, expected: str, remedy: str | None = None) -> None:
    """Check an argument that is of one of some types; ``expected`` names it in words, with an example."""
    if isinstance(given, kinds):
        return
    is_plain = type(given).__module__ == "builtins" and not callable(given)
    named = getattr(given, "__name__", None) if callable(given) else None
    raise ParameterError(
        f"The parameter {name} is not usable.",
        where=name,
        found=brief(given, 120) if is_plain else named or f"a {type(given).__name__}",
        expected=expected,
        remedy=remedy,
    )


def one_of(name: str, given: Any, known: Iterable[str], summary: str | None = None) -> None:
    """Check an argument that is one of some texts, and suggest the nearest one."""
    texts = list(known)
    if given not in texts:
        summary = summary or f"The parameter {name} is not usable."
        remedy = did_you_mean(given, texts)
        raise ParameterError(summary, where=name, found=brief(given), expected=listed(texts), remedy=remedy)


def split_rates(rates: Mapping[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """Split keyword arguments by the dataclass that declares them, one dict for each of ``kinds``."""
    names = [{declared.name for declared in fields(kind)} for kind in kinds]
    known = sorted(set().union(*names))
    for name in rates:
        if name not in known:
            raise ParameterError(
                f"There is no parameter {name!r}.",
                where=name,
                found=brief(rates[name]),
                expected="one of " + ", ".join(known),
                remedy=did_you_mean(name, known),
            )
    return [{name: value for name, value in rates.items() if name in mine} for mine in names]


def _value(name: str, given: Any, default: Any, low: float, high: float) -> Any:
    if isinstance(default, tuple):
        if not isinstance(given, list | tuple | np.ndarray) or len(given) != len(default):
            raise _refused(name, given, f"{len(default)} numbers, each {_range(low, high)}")
        return tuple(_value(f"{name}[{i}]", given[i], default[i], low, high) for i in range(len(default)))
    if isinstance(default, int):
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not low <= given <= high:
            raise _refused(name, given, f"a whole number {_range(low, high)}")
        return int(given)
    is_number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not is_number or not low <= given <= high:  # NaN is in no range
        raise _refused(name, given, f"a number {_range(low, high)}")
    return float(given)


def _range(low: float, high: float) -> str:
    return f"from {_written(low)} to {_written(high)}"


def _written(limit: float) -> str:
    """Write a limit without an exponent."""
    if isinstance(limit, int | np.integer):
        return f"{limit:,}"
    if 0 < abs(limit) < 1e-4:
        return f"{limit:.9f}".rstrip("0")
    return f"{limit:,.12g}"


def _refused(name: str, given: Any, expected: str) -> ParameterError:
    summary = f"The parameter {name} is not usable."
    return ParameterError(summary, where=name, found=brief(given), expected=expected)
