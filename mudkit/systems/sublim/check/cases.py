"""Cases."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates import Predicate, tree
from mudkit.predicates.values import Constant, Members, Point, kind_of
from mudkit.systems.sublim._policy.actions import (
    Action,
    Compress,
    Every,
    Remember,
    Resize,
    SetField,
    Summary,
)
from mudkit.wire import Fields, Value

__all__ = [
    "FALSE",
    "MAX_SITUATIONS",
    "NULL",
    "TRUE",
    "_MAX_LEVELS",
    "Atom",
    "Name",
    "Other",
    "Situations",
    "_is_number",
    "_points",
    "atoms",
    "battery_levels",
    "critical",
    "given_expressions",
    "is_of_kind",
    "is_plain",
]

_MAX_LEVELS: Final = 160


Name = tuple[str, tuple[str, ...]]


class Atom(NamedTuple):
    """A part of a condition that is TRUE, FALSE or NULL as a whole."""

    node: tree.Node
    constants: tuple[Constant, ...]

    def names(self) -> set[Name]:
        """Give the names that it looks at."""
        return {(each.scope, each.path) for each in tree.walk(self.node) if isinstance(each, tree.Name)}

    def values(self) -> list[Value]:
        """Give its constants."""
        values: list[Value] = []
        for node in tree.walk(self.node):
            if isinstance(node, tree.Constant):
                value = self.constants[node.slot]
                if isinstance(value, Members):
                    values += [*value.numbers, *value.strings, *value.booleans]
                elif value is not None:
                    values.append(value)
        return values

    def tables(self) -> set[str]:
        """Give the lists in which it looks up."""
        return {table for table, _ in self._lookups()}

    @property
    def is_lookup(self) -> bool:
        """Whether it looks up a name in a list, and nothing else: of that all is tried."""
        match self.node:
            case tree.IsNull(item=tree.Call(function=function, args=(_, tree.Name(), *_))):
                return function.name == "lookup"
            case tree.Call(function=function, args=(_, tree.Name(), *_)):
                return function.name == "lookup"
        return False

    def _lookups(self) -> Iterator[tuple[str, tree.Node]]:
        for node in tree.walk(self.node):
            if isinstance(node, tree.Call) and node.function.name == "lookup":
                table = node.args[0]
                name = self.constants[table.slot] if isinstance(table, tree.Constant) else None
                if isinstance(name, str):
                    yield name, node.args[1]

    @property
    def is_simple(self) -> bool:
        """Whether it compares one name with constants, and nothing else."""
        match self.node:
            case tree.Compare(left=left, right=right):
                return {type(left), type(right)} == {tree.Name, tree.Constant}
            case tree.In(item=item) | tree.IsNull(item=item):
                return isinstance(item, tree.Name)
        return isinstance(self.node, tree.Name)


def atoms(node: tree.Node, constants: tuple[Constant, ...]) -> Iterator[Atom]:
    """Give the parts of a condition that AND, OR and NOT join."""
    if isinstance(node, tree.And | tree.Or | tree.Not):
        for each in tree.children(node):
            yield from atoms(each, constants)
    elif not isinstance(node, tree.Constant):
        yield Atom(node, constants)


def given_expressions(action: Action) -> Iterator[str]:
    """Give the texts of an action that are computed."""
    given: list[Value] = []
    if isinstance(action, SetField | Remember):
        given = list(action.values.values())
    elif isinstance(action, Compress | Resize):
        given = [action.ratio if isinstance(action, Compress) else action.pixels]
    elif isinstance(action, Every | Summary):
        given = [action.per]
    return (each for each in given if isinstance(each, str))


def battery_levels(atoms: Sequence[Atom], computed: Sequence[Atom], variables: Fields) -> list[float]:
    """Give the charges that matter, per cent; if a condition computes with the charge, each whole one."""
    looked = [each for each in atoms if ("state", ("battery",)) in each.names()]
    used = [each for each in computed if ("state", ("battery",)) in each.names()]
    levels = {0.0, 50.0, 100.0}
    numbers = {float(each) for atom in used for each in atom.values() if _is_number(each)}
    if not all(each.is_simple for each in looked):
        numbers |= {float(each) for each in variables.values() if _is_number(each)}
        levels |= {float(each) for each in range(101)}
    if used:
        levels |= {10.0 * tenth for tenth in range(11)}
    levels |= {each for each in numbers if 0.0 <= each <= 100.0}
    for value in {float(each) for atom in looked for each in atom.values() if _is_number(each)}:
        levels |= {value, value - 0.1, value + 0.1, value - 1.0, value + 1.0}
    return sorted({round(each, 6) for each in levels})


def is_of_kind(value: Value, kind: str | None) -> bool:
    """Say whether a value is NULL or of a kind."""
    if value is None or kind in (None, "struct"):
        return True
    if kind == "number":
        return _is_number(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, Mapping) if kind == "point" else isinstance(value, str)


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_plain(value: Value) -> TypeGuard[float | str]:
    """Say whether a value is a single one."""
    return isinstance(value, int | float | str | bool)


def _points(constants: Sequence[Value]) -> list[Value]:
    """Give places at which a distance to constant places is small, and large."""
    places = [(each.lat, each.lon) for each in constants if isinstance(each, Point)]
    numbers = [each for each in constants if _is_number(each)]
    places += [
        (lat, lon) for lat, lon in itertools.pairwise(numbers) if abs(lat) <= 90.0 and abs(lon) <= 180.0
    ]
    far = [(-lat, lon - math.copysign(180.0, lon)) for lat, lon in places]
    return [{"lat": float(lat), "lon": float(lon)} for lat, lon in (*places, *far)]


FALSE: Final = 0
NULL: Final = 1
TRUE: Final = 2
"""Ordered so that AND is the least and OR the greatest."""
MAX_SITUATIONS: Final = 50_000
_OTHER: Final = "something else"

Key = tuple[str, tuple[tuple[str, str], ...]]


Critical: TypeAlias = "float | str | bool | Other | None"


class _Term(NamedTuple):
    key: Key
    text: str


class Situations:
    """The situations of some predicates.

    Parameters
    ----------
    predicates : sequence of Predicate or None
        None always holds.
    also : mapping of str to sequence of float, optional
        More values that matter, by name (``state.battery``): actions look at them.

    Attributes
    ----------
    count : int or None
        None: there are too many to look at, and nothing can be said.
    """

    def __init__(
        self, predicates: Sequence[Predicate | None], also: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        self._constants: dict[Key, list[Constant]] = {}
        self._texts: dict[Key, str] = {}
        self._predicates = predicates
        for predicate in predicates:
            if predicate is not None:
                self._collect(predicate.form.root, predicate.constants)
        for name, more in (also or {}).items():
            self._texts.setdefault((name, ()), name)
            self._constants.setdefault((name, ()), []).extend(more)
        self._values = {key: critical(values) for key, values in self._constants.items()}
        sizes = [len(values) for values in self._values.values()]
        total = 1
        for size in sizes:
            total *= size
        self.count: int | None = total if total <= MAX_SITUATIONS else None
        self._sizes = sizes
        self._places = {key: number for number, key in enumerate(self._values)}

    def truths(self, number: int) -> NDArray[np.int8]:
        """Give what a predicate is in each situation.

        Returns
        -------
        ndarray of int8, shape (count,)
            :data:`FALSE`, :data:`NULL` or :data:`TRUE`.
        """
        assert self.count is not None
        predicate = self._predicates[number]
        if predicate is None:
            return np.full(self.count, TRUE, dtype=np.int8)
        return self._truth(predicate.form.root, predicate.constants)

    def values(self, name: str) -> list[Critical]:
        """Give the values of a name that matter, by its text (``state.battery``); empty: nobody looks."""
        return self._values.get((name, ()), [])

    def places(self, name: str) -> NDArray[np.int64]:
        """Give which of these values a name has in each situation."""
        return self._digits((name, ()))

    def describe(self, situation: int) -> str:
        """Say a situation in words."""
        parts = []
        for key, values in self._values.items():
            value = values[int(self._digits(key)[situation])]
            parts.append(f"{self._texts[key]} is {'NULL' if value is None else value}")
        return ", ".join(parts) or "always"

    def _digits(self, key: Key) -> NDArray[np.int64]:
        assert self.count is not None
        place = self._places[key]
        after = int(np.prod(self._sizes[place + 1 :], dtype=np.int64))
        return np.arange(self.count) // after % self._sizes[place]

    # -- terms

    def _collect(self, node: tree.Node, constants: tuple[Constant, ...]) -> None:
        match node:
            case tree.And(args=args) | tree.Or(args=args):
                for arg in args:
                    self._collect(arg, constants)
            case tree.Not(item=item):
                self._collect(item, constants)
            case tree.Constant():
                pass
            case tree.Compare(left=left, right=right) if _is_plain(left) != _is_plain(right):
                term, constant = (right, left) if _is_plain(left) else (left, right)
                self._note(term, constants, [constants[constant.slot]])  # type: ignore[union-attr]
            case tree.In(item=item, members=members) if isinstance(
                listed := constants[members.slot], Members
            ):
                self._note(item, constants, [*listed.numbers, *listed.strings, *listed.booleans])
            case tree.IsNull(item=item):
                self._note(item, constants, [])
            case _:
                self._note(node, constants, [True, False])

    def _note(self, node: tree.Node, constants: tuple[Constant, ...], values: Iterable[Constant]) -> None:
        key = _key(node, constants)
        self._texts.setdefault(key, tree.text_of(node))
        known = self._constants.setdefault(key, [])
        known += [value for value in values if value is not None]

    def _of(
        self, node: tree.Node, constants: tuple[Constant, ...], say: Callable[[Critical], int]
    ) -> NDArray[np.int8]:
        key = _key(node, constants)
        truths = np.array([say(value) for value in self._values[key]], dtype=np.int8)
        return truths[self._digits(key)]

    def _truth(self, node: tree.Node, constants: tuple[Constant, ...]) -> NDArray[np.int8]:
        assert self.count is not None
        match node:
            case tree.And(args=args):
                return functools.reduce(np.minimum, [self._truth(arg, constants) for arg in args])
            case tree.Or(args=args):
                return functools.reduce(np.maximum, [self._truth(arg, constants) for arg in args])
            case tree.Not(item=item):
                return (TRUE - self._truth(item, constants)).astype(np.int8)
            case tree.Constant(slot=slot):
                return np.full(self.count, _three(constants[slot]), dtype=np.int8)
            case tree.Compare(operator=compares, left=left, right=right) if _is_plain(left) != _is_plain(
                right
            ):
                if _is_plain(left):
                    left, right, compares = right, left, tree.FLIPPED[compares]
                constant = constants[right.slot]  # type: ignore[union-attr]
                return self._of(left, constants, lambda value: _compared(value, compares, constant))
            case tree.In(item=item, members=members) if isinstance(
                listed := constants[members.slot], Members
            ):
                return self._of(item, constants, lambda value: _three(_held(listed, value)))
            case tree.IsNull(item=item):
                return self._of(item, constants, lambda value: TRUE if value is None else FALSE)
        return self._of(node, constants, _three)


def _is_plain(node: tree.Node) -> bool:
    return isinstance(node, tree.Constant)


def _key(node: tree.Node, constants: tuple[Constant, ...]) -> Key:
    """Tell a term by what it is made of, its constants included."""
    used = [constants[each.slot] for each in tree.walk(node) if isinstance(each, tree.Constant)]
    return tree.text_of(node), tuple((type(each).__name__, repr(each)) for each in used)


def critical(values: Iterable[Value | Members]) -> list[Critical]:
    """Give the values that matter: those that are given, between and around them, NULL and something else."""
    numbers = sorted({float(each) for each in values if isinstance(each, float)})
    between = [low / 2 + high / 2 for low, high in itertools.pairwise(numbers)]
    around = []
    if numbers:  # a number may be so large that one more or less is the same
        around = [min(numbers[0] - 1.0, math.nextafter(numbers[0], -math.inf))]
        around.append(max(numbers[-1] + 1.0, math.nextafter(numbers[-1], math.inf)))
    around = [each for each in around if math.isfinite(each)]
    texts = sorted({each for each in values if isinstance(each, str)})
    text_gaps = [each + "\x01" for each in texts] + ([""] if texts and texts[0] else [])
    flags = [True, False] if any(isinstance(each, bool) for each in values) else []
    ordered = sorted({*numbers, *between, *around})
    return [None, Other(), *flags, *sorted({*texts, *text_gaps}), *ordered]


class Other:
    """Value that is not NULL, and of a kind that no constant of the rules has."""

    def __repr__(self) -> str:
        return _OTHER


def _three(truth: Constant | Other) -> int:
    if truth is True:
        return TRUE
    return FALSE if truth is False else NULL


def _held(listed: Members, value: Critical) -> bool | None:
    return None if isinstance(value, Other) else listed.holds(value)


def _compared(value: Critical, compares: str, constant: Constant) -> int:
    if value is None or isinstance(value, Other) or kind_of(value) != kind_of(constant):
        return NULL
    return TRUE if _OPERATORS[compares](value, constant) else FALSE


_OPERATORS: Final[Mapping[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
