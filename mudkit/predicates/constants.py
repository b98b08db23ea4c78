"""From what a caller gives to the constants of a predicate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mudkit.errors import PredicateError
from mudkit.predicates.parsed import ListOf, Parameter, Parsed
from mudkit.predicates.tree import Place
from mudkit.predicates.values import BIGGEST_INTEGER, STRUCT, Members, kind_of, value

__all__ = ["MAX_LIST", "check_mapping", "list_of", "parameter"]

MAX_LIST: Final = 10_000
"""Items in the list of an ``IN``."""


def parameter(parsed: Parsed, slot: int, name: str, given: Mapping[str, Any], known: set[str]) -> Any:
    """Give the constant of a parameter.

    Parameters
    ----------
    parsed : Parsed
    slot : int
        Where it goes.
    name : str
    given : mapping of str to object
        What the caller gave.
    known : set of str
        Takes the parameters that the text has.

    Raises
    ------
    PredicateError
        It is missing, or of no usable kind.
    """
    known.add(name)
    try:
        return _constant(given[name], name, parsed.text, parsed.slots[slot].at)
    except KeyError:
        raise PredicateError(
            f"The parameter :{name} is missing.",
            text=parsed.text,
            at=parsed.slots[slot].at,
            found=", ".join(given) or "no parameters",
            remedy=f"Predicate(…, {name}=…)",
        ) from None


def _constant(data: Any, name: str, text: str, at: Place) -> Any:
    """Make data a constant, or say why they are none: a constant that would be NULL silently is a mistake."""
    kind = type(data)
    if kind is float:
        if data - data == 0.0:  # neither NaN nor infinite
            return data
    elif kind is str and data.isascii() and "\0" not in data:
        return data
    constant = value(data)
    what = f":{name}"
    if constant is None and data is not None:
        summary = f"{what} cannot be used as a constant."
        if isinstance(data, (int, np.integer)):
            summary = f"{what} is an integer that cannot be told from its neighbours."
        elif isinstance(data, (float, np.floating)) and not math.isfinite(data):
            summary = f"{what} is not a finite number."
        elif isinstance(data, str):
            summary = f"{what} is not valid text: it holds U+0000 or half of a character."
        raise PredicateError(
            summary,
            text=text,
            at=at,
            found=f"{type(data).__name__}: {data!r}"[:80],
            expected=f"a number (if whole up to {BIGGEST_INTEGER:,}), a string, a boolean, None or a point "
            "within ±90 and ±180",
        )
    if kind_of(constant) == STRUCT:
        raise PredicateError(
            f"{what} cannot be used as a constant.",
            text=text,
            at=at,
            found=f"{data!r}"[:80],
            expected='a number, string, boolean, None, or a point such as {"lat": 30.3, "lon": -97.7}',
        )
    return constant


def list_of(parsed: Parsed, slot: int, source: ListOf, given: Mapping[str, Any], known: set[str]) -> Members:
    """Give the constant list of an ``IN``; see :func:`parameter`."""
    items: list[Any] = []
    at = parsed.slots[slot].at
    for item in source.items:
        if type(item) is not Parameter:
            items.append(item)
            continue
        members = given.get(item.name)
        if len(source.items) == 1 and isinstance(members, (list, tuple, set, frozenset, np.ndarray)):
            known.add(item.name)
            if len(members) > MAX_LIST:
                raise PredicateError(
                    f"The list :{item.name} is too long.",
                    text=parsed.text,
                    at=at,
                    found=f"{len(members):,} items",
                    expected=f"at most {MAX_LIST:,}",
                )
            items += [_constant(each, item.name, parsed.text, at) for each in members]
        else:
            items.append(parameter(parsed, slot, item.name, given, known))
    return Members.of(items)


def check_mapping(scope: str, data: Any) -> None:
    """Refuse data of a scope that have no names.

    Raises
    ------
    PredicateError
    """
    if not isinstance(data, Mapping):
        raise PredicateError(
            f"The data of the scope {scope} are no mapping.",
            found=type(data).__name__,
            expected='a mapping of names to values such as {"price": 7}',
        )
