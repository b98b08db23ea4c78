"""Predicates as JSON: how they travel between machines and lie in stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mudkit.errors import PredicateError, brief
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.values import LIST, Members, Point, point, value
from mudkit.wire import is_too_deep

__all__ = ["from_json", "to_json"]

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
"""What comes back from there as it was can be stored: no NaN, no number beyond 64 bit."""


def to_json(predicate: Predicate | None) -> dict[str, Any] | None:
    """Give a predicate as JSON can hold it: its text and its constants; None stays None.

    Raises
    ------
    PredicateError
        It is not bound yet.
    """
    if predicate is None:
        return None
    if predicate.unbound:
        raise PredicateError(
            f"The predicate is not bound: {', '.join(predicate.unbound)} is missing.",
            text=predicate.text,
            remedy=f"bind({predicate.unbound[0].partition('.')[0]}={{…}}) before it is sent",
        )
    return {"text": predicate.text, "constants": [_out(each) for each in predicate.constants]}


def from_json(sent: Mapping[str, Any] | None, language: Language = MOBIUS) -> Predicate | None:
    """Give the predicate of :func:`to_json` back, in the language that it was made in.

    Raises
    ------
    PredicateError
        It is none.
    """
    if sent is None:
        return None
    try:
        if is_too_deep(sent):
            raise ValueError("it is nested too deeply")
        return Predicate.restore(sent["text"], [_in(each) for each in sent["constants"]], language)
    except PredicateError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise PredicateError(
            "This is no predicate as it is sent.",
            found=brief(sent, 200),
            expected="a text with the constants that stand in it",
        ) from error


def _out(constant: Any) -> Any:
    if isinstance(constant, Point):
        return {"point": [constant.lat, constant.lon]}
    if isinstance(constant, Members):
        members: list[Any] = [
            *sorted(constant.numbers),
            *sorted(constant.strings),
            *sorted(constant.booleans),
        ]
        members += [_out(each) for each in sorted(constant.points)]
        return {"in": members + [None] * bool(constant.kinds & LIST)}
    if isinstance(constant, Mapping):
        return {"struct": msgspec.json.decode(msgspec.json.encode(constant))}  # pairs are lists there
    return constant


def _in(sent: Any) -> Any:
    if sent is None or sent is True or sent is False:
        return sent
    constant: Any = None
    if isinstance(sent, float | str):
        constant = value(sent)
    elif isinstance(sent, Mapping):
        if "point" in sent:
            constant = point(sent["point"])
        elif "in" in sent:
            constant = Members.of([_in(each) for each in sent["in"]])
        elif isinstance(sent["struct"], Mapping) and _unpack(_pack(sent["struct"])) == sent["struct"]:
            constant = sent["struct"]
    if constant is None:
        raise TypeError("it is no constant")
    return constant
