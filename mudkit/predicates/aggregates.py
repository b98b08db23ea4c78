"""Aggregates of a read: computed where the records are, combined where the answers meet.

Sums are exact, so the result is the same however the records are spread and in whatever order the parts come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import TokenType

from mudkit.errors import PredicateError
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.parse import Parser
from mudkit.predicates.parsed import Bound, ListOf, Parameter
from mudkit.predicates.python import compile_tree
from mudkit.predicates.tokens import tokens
from mudkit.predicates.tree import Call, Name, walk
from mudkit.predicates.values import BOOLEAN, EVERY_KIND, NUMBER, STRING, kind_names, kind_of

__all__ = ["Aggregates", "State"]

State: TypeAlias = tuple[Any, ...]
"""What is known of some records, one item an aggregate; it can be sent as JSON."""

_NAMES: Final = ("count", "sum", "min", "max", "avg")
_ONE: Final = 1 << 1074
"""Sums are counted in the smallest double, 2^-1074: every double is a whole multiple of it."""
_ORDER: Final = {NUMBER: 0, STRING: 1, BOOLEAN: 2}


class _Aggregate(NamedTuple):
    name: str
    written: str
    value: Callable[..., Any] | None
    constants: tuple[Any, ...]


class Aggregates:
    """Aggregates of a read.

    Parameters
    ----------
    text : str
        Aggregates, for instance ``"count(*), avg(speed)"``: ``count``, ``sum``, ``min``, ``max`` and
        ``avg`` of an expression. NULL does not count; a sum of nothing is NULL. ``min`` and ``max`` order
        numbers before strings before booleans.
    language : Language, optional

    Raises
    ------
    PredicateError

    Notes
    -----
    Mobius 2.2: aggregates and user-defined functions run at the processors, so that only the answer crosses
    the network.

    Examples
    --------
    >>> speed = Aggregates("count(*), avg(speed)")
    >>> here, there = speed.of([{"speed": 1}, {"speed": 2}]), speed.of([{"speed": 6}, {}])
    >>> speed.result(speed.combine([here, there]))
    {'count(*)': 4, 'avg(speed)': 3.0}
    """

    def __init__(self, text: str, *, language: Language = MOBIUS) -> None:
        self.text = text
        self._aggregates: list[_Aggregate] = []
        self._scopes = language.scopes.names
        self.looks_at: list[Name] = []
        """The names in its arguments."""
        for part in _parts(text):
            name, argument = Parser(text, language.scopes, part=part).aggregate(_NAMES)
            written = text[part[0].start : part[-1].end + 1]
            if argument is None:
                self._aggregates.append(_Aggregate(name, written, None, ()))
                continue
            if any(isinstance(source, (Parameter, Bound, ListOf)) for source in argument.sources):
                raise PredicateError(
                    "An aggregate has no parameters and no sender.",
                    text=text,
                    at=argument.root.at,
                    expected="attributes and values that are written out, such as sum(price * 2)",
                )
            if any(isinstance(each, Call) and each.function.name == "lookup" for each in walk(argument.root)):
                raise PredicateError(
                    "An aggregate looks into no other table.",
                    text=text,
                    at=argument.root.at,
                    expected="attributes of the table that is read",
                )
            self.looks_at += [each for each in walk(argument.root) if isinstance(each, Name)]
            kind = NUMBER if name in ("sum", "avg") else EVERY_KIND
            if not argument.root.kinds & kind:
                raise PredicateError(
                    f"{name} takes a number.",
                    text=text,
                    at=argument.root.at,
                    found=f"a {kind_names(argument.root.kinds)}",
                    remedy="count, min and max take other kinds, too",
                )
            compiled = compile_tree(argument.root, self._scopes, kind=kind)
            self._aggregates.append(_Aggregate(name, written, compiled, argument.sources))

    @property
    def names(self) -> list[str]:
        """Aggregates in their written form."""
        return [aggregate.written for aggregate in self._aggregates]

    def of(self, records: Iterable[Mapping[str, Any]], **scopes: Mapping[str, Any]) -> State:
        """Compute the state of a part of the records, as one processor does.

        Parameters
        ----------
        records : iterable of mapping
        **scopes : mapping
            Data of the other scopes, the same for all records.
        """
        states = [_start(aggregate.name) for aggregate in self._aggregates]
        others = [scopes.get(scope, {}) for scope in self._scopes[1:]]
        for record in records:
            for number, (name, _, value, constants) in enumerate(self._aggregates):
                item = True if value is None else value(constants, None, record, *others)
                if item is not None:
                    states[number] = _combined(name, states[number], _single(name, item))
        return tuple(states)

    def combine(self, states: Iterable[State]) -> State:
        """Combine the states of parts in any order, as the gateway does."""
        whole = [_start(aggregate.name) for aggregate in self._aggregates]
        for state in states:
            for number, aggregate in enumerate(self._aggregates):
                whole[number] = _combined(aggregate.name, whole[number], state[number])
        return tuple(whole)

    def is_state(self, state: Any) -> bool:
        """Return whether a value has the form of a state, as far as :meth:`combine` depends on it."""
        if not isinstance(state, list | tuple) or len(state) != len(self._aggregates):
            return False
        return all(_is_part(each.name, part) for each, part in zip(self._aggregates, state, strict=True))

    def result(self, state: State) -> dict[str, Any]:
        """Return the values of a state by aggregate (in its written form); ``None`` is NULL."""
        return {
            aggregate.written: _result(aggregate.name, part)
            for aggregate, part in zip(self._aggregates, state, strict=True)
        }


def _parts(text: str) -> list[list[Any]]:
    """Cut a list at its commas."""
    parts: list[list[Any]] = [[]]
    depth = 0
    for token in tokens(text):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if not all(parts):
        raise PredicateError(
            "An aggregate is missing.", text=text, expected="for instance count(*), avg(speed)"
        )
    return parts


def _start(name: str) -> Any:
    return 0 if name == "count" else [0, 0] if name in ("sum", "avg") else None


def _is_part(name: str, part: Any) -> bool:
    if name == "count":
        return _is_count(part)
    if name in ("sum", "avg"):
        return isinstance(part, list) and len(part) == 2 and all(map(_is_whole, part)) and _is_count(part[0])
    return part is None or kind_of(part) in _ORDER


def _is_whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _is_count(item: Any) -> bool:
    return _is_whole(item) and item >= 0


def _single(name: str, item: Any) -> Any:
    if name == "count":
        return 1
    if name in ("sum", "avg"):
        numerator, denominator = item.as_integer_ratio()
        return [1, numerator * (_ONE // denominator)]
    return item if kind_of(item) in _ORDER else None


def _combined(name: str, a: Any, b: Any) -> Any:
    if name == "count":
        return a + b
    if name in ("sum", "avg"):
        return [a[0] + b[0], a[1] + b[1]]
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=_sort_key) if name == "min" else max(a, b, key=_sort_key)


def _sort_key(item: Any) -> tuple[int, Any]:
    return _ORDER[kind_of(item)], item


def _result(name: str, state: Any) -> Any:
    if name not in ("sum", "avg"):
        return state
    count, total = state
    if not count:
        return None
    try:
        return total / (_ONE if name == "sum" else count * _ONE)
    except OverflowError:
        return None
