"""Values computed in the language of predicates: expressions of one record, aggregates of many.

Aggregates are computed where the records are, and the parts are combined. Sums are exact, so the result does
not depend on how the records are distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import TokenType

from mudkit.checks import check_arguments
from mudkit.errors import PredicateError
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.parse import Bound, ListOf, Parameter, Parsed, Parser
from mudkit.predicates.python import compile_tree
from mudkit.predicates.refusals import check_written
from mudkit.predicates.tokens import tokenize
from mudkit.predicates.tree import Call, Name, walk
from mudkit.predicates.values import BOOLEAN, EVERY_KIND, NUMBER, STRING, kind_names, kind_of


class Expression:
    """Value that is computed from the scopes of a language: arithmetic and functions over names.

    >>> Expression("price * 2")({"price": 4})
    8.0
    >>> Expression("price * 2")({}) is None
    True
    """

    def __init__(self, text: str, *, language: Language = MOBIUS) -> None:
        parsed = Parser(text, language).expression()
        if not _is_closed(parsed):
            raise PredicateError(
                "An expression has no parameters and no sender.",
                text=text,
                expected="attributes and literals, such as price * 2",
            )
        check_written(parsed)
        self.text = text
        self.language = language
        self.constants: tuple[Any, ...] = parsed.sources
        self.root = parsed.root
        for node in walk(parsed.root):
            if isinstance(node, Name):
                language.kinds(node, text)
        self.evaluate = compile_tree(parsed.root, language.scopes.names, kind=EVERY_KIND)
        """``(constants, tables, *scopes)`` to a value of the language, ``None`` for NULL."""

    def names(self) -> dict[str, set[str]]:
        """Return the names that the expression reads, by scope."""
        names: dict[str, set[str]] = {scope: set() for scope in self.language.scopes.names}
        for node in walk(self.root):
            if isinstance(node, Name):
                names[node.scope].add(".".join(node.path))
        return names

    def __call__(self, *scopes: Mapping[str, Any], tables: Mapping[str, Any] | None = None) -> Any:
        """Evaluate for the data of the scopes, in their order; the names of a missing scope are NULL."""
        missing = self.language.others[max(len(scopes) - 1, 0) :]
        first = scopes or ({},)
        return self.evaluate(self.constants, tables, *first, *missing)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


State: TypeAlias = tuple[Any, ...]
"""Partial result of some records, one item for each aggregate; it can be sent as JSON."""

_NAMES: Final = ("count", "sum", "min", "max", "avg")
_ONE: Final = 1 << 1074
"""Sums are counted in the smallest double, 2^-1074: every double is an integer multiple of it."""
_ORDER: Final = {NUMBER: 0, STRING: 1, BOOLEAN: 2}


class _Aggregate(NamedTuple):
    """Aggregate of a read: ``name`` is its function, ``value`` is None for ``count(*)``."""

    name: str
    written: str
    value: Callable[..., Any] | None
    constants: tuple[Any, ...]


@check_arguments(types=False)
class Aggregates:
    """One or more aggregates of a read, computed at the processors (Mobius 3.1).

    Parameters
    ----------
    text : str
        The aggregates, for instance ``"count(*), avg(speed)"``: ``count``, ``sum``, ``min``, ``max`` and
        ``avg`` of an expression. NULL does not count; the sum of no values is NULL. ``min`` and ``max`` order
        numbers before strings before booleans.
    language : Language, optional
        Scopes that the arguments may name.

    Raises
    ------
    PredicateError
        The text is not a list of aggregates, or an argument is not of the kind that an aggregate takes.

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
        """Names in its arguments."""
        for part in _parts(text):
            name, argument = Parser(text, language, part=part).aggregate(_NAMES)
            written = text[part[0].start : part[-1].end + 1]
            if argument is None:
                self._aggregates.append(_Aggregate(name, written, None, ()))
                continue
            if not _is_closed(argument):
                raise PredicateError(
                    "An aggregate has no parameters and no sender.",
                    text=text,
                    at=argument.root.at,
                    expected="attributes and literals, such as sum(price * 2)",
                )
            check_written(argument)
            if any(isinstance(node, Call) and node.function.name == "lookup" for node in walk(argument.root)):
                raise PredicateError(
                    "An aggregate cannot look up other tables.",
                    text=text,
                    at=argument.root.at,
                    expected="attributes of the table that is read",
                )
            self.looks_at += [node for node in walk(argument.root) if isinstance(node, Name)]
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
        """Texts of the aggregates."""
        return [aggregate.written for aggregate in self._aggregates]

    def of(self, records: Iterable[Mapping[str, Any]], **scopes: Mapping[str, Any]) -> State:
        """Return the partial result of some records.

        Parameters
        ----------
        records : iterable of mapping
            Data of the first scope.
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
        """Combine partial results, in any order.

        Parameters
        ----------
        states : iterable of tuple
            Results of :meth:`of` or :meth:`combine`.
        """
        whole = [_start(aggregate.name) for aggregate in self._aggregates]
        for state in states:
            for number, aggregate in enumerate(self._aggregates):
                whole[number] = _combined(aggregate.name, whole[number], state[number])
        return tuple(whole)

    def is_state(self, state: Any) -> bool:
        """Return whether data have the form of a partial result, so that :meth:`combine` accepts them.

        Parameters
        ----------
        state : object
            Data from another machine.
        """
        if not isinstance(state, list | tuple) or len(state) != len(self._aggregates):
            return False
        return all(
            _is_part(aggregate.name, part) for aggregate, part in zip(self._aggregates, state, strict=True)
        )

    def result(self, state: State) -> dict[str, Any]:
        """Return the value of each aggregate, by its text; ``None`` is NULL.

        Parameters
        ----------
        state : tuple
            Result of :meth:`of` or :meth:`combine`.
        """
        return {
            aggregate.written: _result(aggregate.name, part)
            for aggregate, part in zip(self._aggregates, state, strict=True)
        }


def _is_closed(parsed: Parsed) -> bool:
    """Return whether all constants of a text are literals."""
    return not any(isinstance(source, (Parameter, Bound, ListOf)) for source in parsed.sources)


def _parts(text: str) -> list[list[Any]]:
    """Return the tokens of a text, split at its outer commas; PredicateError if nothing is between two."""
    parts: list[list[Any]] = [[]]
    depth = 0
    for token in tokenize(text):
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
    """Return the partial result of no records."""
    return 0 if name == "count" else [0, 0] if name in ("sum", "avg") else None


def _is_part(name: str, part: Any) -> bool:
    """Return whether data, from another machine, have the form of an aggregate's partial result."""
    if name == "count":
        return _is_count(part)
    if name in ("sum", "avg"):
        return isinstance(part, list) and len(part) == 2 and all(map(_is_whole, part)) and _is_count(part[0])
    return part is None or kind_of(part) in _ORDER


def _is_whole(item: Any) -> bool:
    """Return whether an item is an int; booleans are not."""
    return isinstance(item, int) and not isinstance(item, bool)


def _is_count(item: Any) -> bool:
    """Return whether an item is a whole number that is not negative."""
    return _is_whole(item) and item >= 0


def _single(name: str, item: Any) -> Any:
    """Return the partial result of one record with a value.

    Sums are exact integers in units of ``1 / _ONE``.
    """
    if name == "count":
        return 1
    if name in ("sum", "avg"):
        numerator, denominator = item.as_integer_ratio()
        return [1, numerator * (_ONE // denominator)]
    return item if kind_of(item) in _ORDER else None


def _combined(name: str, a: Any, b: Any) -> Any:
    """Return the partial result of the records of two partial results."""
    if name == "count":
        return a + b
    if name in ("sum", "avg"):
        return [a[0] + b[0], a[1] + b[1]]
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=_sort_key) if name == "min" else max(a, b, key=_sort_key)


def _sort_key(item: Any) -> tuple[int, Any]:
    """Return the key by which ``min`` and ``max`` order values: by kind, then by value."""
    return _ORDER[kind_of(item)], item


def _result(name: str, state: Any) -> Any:
    """Return an aggregate's value from its partial result; None, NULL, without any value or on overflow."""
    if name not in ("sum", "avg"):
        return state
    count, total = state
    if not count:
        return None
    try:
        return total / (_ONE if name == "sum" else count * _ONE)
    except OverflowError:
        return None
