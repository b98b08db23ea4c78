"""Situations: all that the conditions of some rules can tell apart.

Whatever a condition looks at (a name, an arithmetic value, a lookup) is a term. A term has finitely many
values that matter: NULL, something of another kind, each constant that it is compared with, and what lies
below, between and above these. A situation gives each term one of them. Terms are taken as independent, so
there may be situations that never happen, and none that happens is missing: a rule that fires in none of
them never fires.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates import Predicate, tree
from mudkit.predicates.values import Constant, Members, kind_of
from mudkit.wire import Value

__all__ = ["FALSE", "MAX_SITUATIONS", "NULL", "TRUE", "Other", "Situations", "critical"]

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
