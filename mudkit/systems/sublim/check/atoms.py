"""Atoms of conditions: a name beside constants, and the values between which they tell apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from mudkit.predicates import tree
from mudkit.predicates.values import Constant, Members, Point
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
    "_MAX_LEVELS",
    "Atom",
    "Name",
    "_is_number",
    "_points",
    "atoms",
    "battery_levels",
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
