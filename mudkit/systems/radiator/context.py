"""Contexts: who, when, and what is known of them (Radiator 2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mudkit.errors import ContextProblem, ParameterError, brief
from mudkit.wire import Fields, Value

__all__ = ["Context"]


class Context(msgspec.Struct, frozen=True):
    """The situation of some people during a span of time; also what several of these become when joined.

    Parameters
    ----------
    people : frozenset of str
        Any iterable of names.
    attributes : mapping of str to object
        What JSON can hold; tuples arrive as lists.
    span_us : (int, int)
        The first and the last moment that it is about, µs of virtual time; without one, the client puts the
        moment of sending there.

    Raises
    ------
    ParameterError
        A part is of another kind.

    Examples
    --------
    >>> ann = Context({"ann"}, {"loc": (38.7, -9.1), "speed_kmh": 12})
    >>> ann["speed_kmh"]
    12
    """

    people: frozenset[str] = frozenset()
    attributes: Fields = {}
    span_us: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if type(self.people) is not frozenset:
            msgspec.structs.force_setattr(self, "people", _names(self.people))
        if type(self.attributes) is not dict:
            _check_attributes(self.attributes)
        if self.span_us is not None:
            first, last = _pair(self.span_us)
            msgspec.structs.force_setattr(self, "span_us", (first, last))

    def __getitem__(self, name: str) -> Any:
        """Give an attribute.

        Raises
        ------
        ContextProblem
            It has none of this name.
        """
        try:
            return self.attributes[name]
        except KeyError:
            raise ContextProblem(
                f"A context has no attribute {name!r}.",
                where=", ".join(sorted(self.people)),
                found=", ".join(map(repr, self.attributes)) or "none",
                expected=repr(name),
                remedy="propagate a context with it, or give it at registration",
            ) from None

    def get(self, name: str, default: Value = None) -> Any:
        """Give an attribute, or the default where it has none."""
        return self.attributes.get(name, default)

    def over(self, attributes: Fields) -> Context:
        """Give the same with attributes beneath its own."""
        if attributes.keys() <= self.attributes.keys():
            return self
        return Context(self.people, {**attributes, **self.attributes}, self.span_us)

    def at(self, now_us: int) -> Context:
        """Give the same; one without a span is of this moment."""
        return self if self.span_us else Context(self.people, self.attributes, (now_us, now_us))

    def describe(self) -> dict[str, Value]:
        """Give it as JSON can hold it; :meth:`read` takes it back."""
        span = None if self.span_us is None else list(self.span_us)
        return {"people": sorted(self.people), "span_us": span, "attributes": self.attributes}

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> Context:
        """Take what :meth:`describe` gave, also after its way through JSON."""
        span = described["span_us"]
        return cls(described["people"], described["attributes"], None if span is None else tuple(span))


def _names(given: Value | Iterable[str]) -> frozenset[str]:
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        names = list(given)
        people = frozenset(name for name in names if isinstance(name, str))
        if all(isinstance(name, str) for name in names):
            return people
    raise _refused("people", given, "names of people, such as {'ann'}")


def _check_attributes(given: Value) -> None:
    if not isinstance(given, Mapping):
        raise _refused("attributes", given, "a mapping of names to values")


def _pair(given: tuple[int, int]) -> tuple[int, int]:
    try:
        first, last = given
        if type(first) is int and type(last) is int and first <= last:
            return first, last
    except (TypeError, ValueError):
        pass
    raise _refused("span_us", given, "its begin and its end in µs, whole numbers, the begin first")


def _refused(where: str, found: Value | Iterable[str], expected: str) -> ParameterError:
    return ParameterError("This is no context.", where=where, found=brief(found, 200), expected=expected)
