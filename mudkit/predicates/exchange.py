"""Predicates as JSON, for messages and stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mudkit.errors import PredicateError, brief
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.values import LIST, Members, Point, point, value
from mudkit.wire import is_too_deep


def to_json(predicate: Predicate | None) -> dict[str, Any] | None:
    """Encode a bound predicate as its text and its constants; None stays None."""
    if predicate is None:
        return None
    if predicate.unbound:
        raise PredicateError(
            f"The predicate is not bound: {', '.join(predicate.unbound)} is missing.",
            text=predicate.text,
            remedy=f"bind({predicate.unbound[0].partition('.')[0]}={{…}}) before it is sent",
        )
    return {"text": predicate.text, "constants": [_encode(constant) for constant in predicate.constants]}


def from_json(sent: Mapping[str, Any] | None, language: Language = MOBIUS) -> Predicate | None:
    """Decode what :func:`to_json` returned, in the language of the predicate; None for None.

    The data may be malicious: whatever cannot be decoded is a PredicateError.
    """
    if sent is None:
        return None
    try:
        if is_too_deep(sent):
            raise ValueError("it is nested too deeply")
        return Predicate.restore(
            sent["text"], [_decode(constant) for constant in sent["constants"]], language
        )
    except PredicateError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise PredicateError(
            "Expected an encoded predicate.",
            found=brief(sent, 200),
            expected="a text and its constants",
        ) from error


def _encode(constant: Any) -> Any:
    """Return a constant as JSON data; a point, a list and a struct become an object that names its kind."""
    if isinstance(constant, Point):
        return {"point": [constant.lat, constant.lon]}
    if isinstance(constant, Members):
        members: list[Any] = [
            *sorted(constant.numbers),
            *sorted(constant.strings),
            *sorted(constant.booleans),
        ]
        members += [_encode(place) for place in sorted(constant.points)]
        return {"in": members + [None] * bool(constant.kinds & LIST)}
    if isinstance(constant, Mapping):
        return {"struct": msgspec.json.decode(msgspec.json.encode(constant))}  # tuples become lists
    return constant


def _decode(sent: Any) -> Any:
    """Return the constant that :func:`_encode` encoded.

    Other data raise a built-in exception.
    """
    if sent is None or sent is True or sent is False:
        return sent
    constant: Any = None
    if isinstance(sent, float | str):
        constant = value(sent)
    elif isinstance(sent, Mapping):
        if "point" in sent:
            constant = point(sent["point"])
        elif "in" in sent:
            constant = Members.of([_decode(member) for member in sent["in"]])
        elif isinstance(sent["struct"], Mapping) and _is_storable(sent["struct"]):
            constant = sent["struct"]
    if constant is None:
        raise TypeError("it is no constant")
    return constant


def _is_storable(struct: Mapping[str, Any]) -> bool:
    """Return whether msgpack can store a struct: no NaN, no number beyond 64 bits."""
    decoded: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(struct))
    return bool(decoded == struct)
