"""CurrentContexts: people, time span and attributes (Radiator 2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mudkit.errors import ContextProblem, ParameterError, brief
from mudkit.wire import Fields, Value


class Context(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """Situation of people during a time span; a message before and after aggregation.

    Parameters
    ----------
    people : iterable of str
        Names.
    attributes : mapping of str to object
        Values that JSON can encode; tuples arrive as lists.
    span_us : (int, int), optional
        First and last moment, µs of virtual time; None: the client inserts the time of sending.
    id : str, optional
        Id of a context that a client has received, by which an application recognises a repeat after a kill;
        not part of its content. None: not received.

    Raises
    ------
    ParameterError
        An argument has the wrong type, or the span ends before it begins.
    ContextProblem
        From ``context[name]``: it has no such attribute.

    Examples
    --------
    >>> ann = Context({"ann"}, {"loc": (38.7, -9.1), "speed_kmh": 12})
    >>> ann["speed_kmh"]
    12
    """

    people: frozenset[str] = frozenset()
    attributes: Fields = {}
    span_us: tuple[int, int] | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if type(self.people) is not frozenset:
            msgspec.structs.force_setattr(self, "people", _check_people(self.people))
        if type(self.attributes) is not dict and not isinstance(self.attributes, Mapping):
            raise _build_error("attributes", self.attributes, "a mapping of names to values")
        if self.span_us is not None:
            first, last = _check_span(self.span_us)
            msgspec.structs.force_setattr(self, "span_us", (first, last))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        mine, theirs = ((context.people, context.attributes, context.span_us) for context in (self, other))
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.people, self.attributes, self.span_us))

    def __getitem__(self, name: str) -> Any:
        """Return an attribute."""
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
        """Return an attribute, or the default if the context has none of this name."""
        return self.attributes.get(name, default)

    def with_defaults(self, attributes: Fields) -> Context:
        """Return a copy in which ``attributes`` fill in for missing ones."""
        if attributes.keys() <= self.attributes.keys():
            return self
        return Context(self.people, {**attributes, **self.attributes}, self.span_us)

    def with_span(self, now_us: int) -> Context:
        """Return the context with this moment as its span if it has none."""
        return self if self.span_us else Context(self.people, self.attributes, (now_us, now_us))

    def to_dict(self) -> dict[str, Value]:
        """Return a JSON-encodable mapping; :meth:`from_dict` is the inverse."""
        span = None if self.span_us is None else list(self.span_us)
        return {"people": sorted(self.people), "span_us": span, "attributes": self.attributes}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Context:
        """Return the context of a mapping from :meth:`to_dict`, also after a trip through JSON."""
        span = fields["span_us"]
        return cls(fields["people"], fields["attributes"], None if span is None else tuple(span))


def _check_people(given: Value | Iterable[str]) -> frozenset[str]:
    """Return names of people as a set; raise a ParameterError if one is no text."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        names = list(given)
        people = frozenset(name for name in names if isinstance(name, str))
        if all(isinstance(name, str) for name in names):
            return people
    raise _build_error("people", given, "names of people, such as {'ann'}")


def _check_span(given: tuple[int, int]) -> tuple[int, int]:
    """Return the first and the last moment; raise a ParameterError if it ends before it begins."""
    try:
        first, last = given
        if type(first) is int and type(last) is int and first <= last:
            return first, last
    except (TypeError, ValueError):
        pass
    raise _build_error("span_us", given, "its begin and its end in µs, whole numbers, the begin first")


def _build_error(where: str, given: Value | Iterable[str], expected: str) -> ParameterError:
    """Return the error that an argument of a context is invalid."""
    return ParameterError("This is no context.", where=where, found=brief(given, 200), expected=expected)
