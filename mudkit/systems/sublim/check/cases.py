"""Cases that the conditions of a policy distinguish, for both parts of the checker.

A condition is AND, OR and NOT of atoms. An atom compares a term (a name, an arithmetic value, a lookup) with
constants. A term has finitely many critical values: NULL, a value of another kind, each constant that it is
compared with, and one below, between and above these. :class:`Cases` enumerates the combinations of some
values, one set for each of several axes.

:class:`Situations` has an axis per term, and evaluates conditions symbolically. Its terms are independent, so
some situations never happen, but none that happens is missing: a rule that fires in no situation never fires.
:class:`~mudkit.systems.sublim.check.contexts.Contexts` has an axis per name, and builds messages and states
to try the policy on.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates import Language, Predicate, tree
from mudkit.predicates.expressions import Expression
from mudkit.predicates.values import Constant, Members, kind_of
from mudkit.sources.streams import Stream
from mudkit.systems.sublim._policy.actions import (
    Action,
    Compress,
    Every,
    Remember,
    Resize,
    SetField,
    Summary,
)
from mudkit.wire import Value

FALSE: Final = 0
NULL: Final = 1
TRUE: Final = 2
"""Ordered so that AND is the minimum and OR the maximum."""
MAX_SITUATIONS: Final = 50_000
_BLOCK: Final = 1024
"""Random words that are drawn together."""

Name: TypeAlias = tuple[str, tuple[str, ...]]
"""Scope and path of a name."""
Term: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Text of a term, with type and text of each of its constants."""
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


class RandomChoices:
    """Random choices by a seeded stream: the same at every check of a policy."""

    def __init__(self, name: str) -> None:
        self._stream, self._step = Stream(0, f"contexts of a policy, {name}"), 0
        self._words: list[int] = []

    def choice(self, values: Sequence[_T]) -> _T:
        """Draw one of several values."""
        if not self._words:
            steps = np.arange(self._step, self._step + _BLOCK)
            self._step += _BLOCK
            self._words = self._stream.words(0, steps)[0].tolist()
        return values[self._words.pop() % len(values)]


class Cases(Generic[_K]):
    """Combinations of the positions on several axes, which have ``sizes``.

    All of them if they are at most ``limit``, else as many random ones; ``is_whole`` is False for the latter.
    """

    def __init__(self, sizes: Mapping[_K, int], limit: int) -> None:
        self._sizes = dict(sizes)
        self._limit = limit
        self.count = math.prod(self._sizes.values())
        self.is_whole = self.count <= limit

    def draw(self, draw: RandomChoices) -> Iterator[Sequence[int]]:
        """Yield the cases, each as its position on each axis: all, or ``limit`` random ones."""
        sizes = self._sizes.values()
        if self.is_whole:
            yield from itertools.product(*map(range, sizes))
        else:
            yield from ([draw.choice(range(size)) for size in sizes] for _ in range(self._limit))

    def positions(self, axis: _K) -> NDArray[np.int64]:
        """Return the position on an axis in each of all cases, in the order of :meth:`draw`."""
        sizes = list(self._sizes.values())
        inner = math.prod(sizes[list(self._sizes).index(axis) + 1 :])
        return np.arange(self.count) // inner % self._sizes[axis]


# -- conditions and actions


class Atom(NamedTuple):
    """Part of a condition that is TRUE, FALSE or NULL as a whole; or an expression of an action."""

    node: tree.Node
    constants: tuple[Constant, ...]

    def names(self) -> set[Name]:
        """Return the names that it reads: scope and path."""
        return {(node.scope, node.path) for node in tree.walk(self.node) if isinstance(node, tree.Name)}

    def constant_values(self) -> list[Value]:
        """Return all constants in it; of a list, its members."""
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
        """Return the names of the lists in which it looks up."""
        tables = set()
        for node in tree.walk(self.node):
            if isinstance(node, tree.Call) and node.function.name == "lookup":
                table = node.args[0]
                name = self.constants[table.slot] if isinstance(table, tree.Constant) else None
                if isinstance(name, str):
                    tables.add(name)
        return tables

    def split_term(self) -> tuple[tree.Node, list[Constant]]:
        """Return its term, and the constants that the term is compared with."""
        match self.node:
            case tree.Compare(left=tree.Constant(slot=slot), right=term) if not _is_constant(term):
                return term, [self.constants[slot]]
            case tree.Compare(left=term, right=tree.Constant(slot=slot)) if not _is_constant(term):
                return term, [self.constants[slot]]
            case tree.In(item=term, members=members) if isinstance(
                listed := self.constants[members.slot], Members
            ):
                return term, [*listed.numbers, *listed.strings, *listed.booleans]
            case tree.IsNull(item=term):
                return term, []
        return self.node, [True, False]

    def truth(self, value: Critical) -> int:
        """Return whether it is TRUE, FALSE or NULL for a value of its term."""
        match self.node:
            case tree.Compare(operator=name, left=tree.Constant(slot=slot), right=term) if not _is_constant(
                term
            ):
                return _truth_of_comparison(value, tree.FLIPPED[name], self.constants[slot])
            case tree.Compare(operator=name, left=term, right=tree.Constant(slot=slot)) if not _is_constant(
                term
            ):
                return _truth_of_comparison(value, name, self.constants[slot])
            case tree.In(members=members) if isinstance(listed := self.constants[members.slot], Members):
                return _truth_of(None if isinstance(value, Other) else listed.holds(value))
            case tree.IsNull():
                return TRUE if value is None else FALSE
        return _truth_of(value)

    @property
    def is_lookup(self) -> bool:
        """True if it is the lookup of a name, of which all outcomes are tried."""
        match self.node:
            case tree.IsNull(item=tree.Call(function=function, args=(_, tree.Name(), *_))):
                return function.name == "lookup"
            case tree.Call(function=function, args=(_, tree.Name(), *_)):
                return function.name == "lookup"
        return False

    @property
    def is_simple(self) -> bool:
        """True if it compares one name with constants."""
        match self.node:
            case tree.Compare(left=left, right=right):
                return {type(left), type(right)} == {tree.Name, tree.Constant}
            case tree.In(item=item) | tree.IsNull(item=item):
                return isinstance(item, tree.Name)
        return isinstance(self.node, tree.Name)


def atoms(node: tree.Node, constants: tuple[Constant, ...]) -> Iterator[Atom]:
    """Yield the atoms of a condition: its parts below AND, OR and NOT."""
    if isinstance(node, tree.And | tree.Or | tree.Not):
        for child in tree.children(node):
            yield from atoms(child, constants)
    elif not isinstance(node, tree.Constant):
        yield Atom(node, constants)


@functools.lru_cache(maxsize=256)
def parse_expression(text: str, language: Language) -> Expression:
    """Return an expression of an action, parsed; results are cached."""
    return Expression(text, language=language)


def expressions_of(action: Action, language: Language) -> list[Expression]:
    """Return the expressions that an action evaluates."""
    given: list[Value] = []
    if isinstance(action, SetField | Remember):
        given = list(action.values.values())
    elif isinstance(action, Compress | Resize):
        given = [action.ratio if isinstance(action, Compress) else action.pixels]
    elif isinstance(action, Every | Summary):
        given = [action.per]
    return [parse_expression(text, language) for text in given if isinstance(text, str)]


# -- critical values


class Other:
    """Value that is not NULL, and of a kind that no constant of the rules has."""

    def __repr__(self) -> str:
        return "something else"


Critical: TypeAlias = "float | str | bool | Other | None"


def critical_values(constants: Iterable[Value | Members]) -> list[Critical]:
    """Return constants, values below, between and above them, NULL and a value of another kind."""
    constants = list(constants)
    numbers = sorted({value for value in constants if isinstance(value, float)})
    between = [low / 2 + high / 2 for low, high in itertools.pairwise(numbers)]
    around = []
    if numbers:  # next to a large number, adding 1 changes nothing
        around = [min(numbers[0] - 1.0, math.nextafter(numbers[0], -math.inf))]
        around.append(max(numbers[-1] + 1.0, math.nextafter(numbers[-1], math.inf)))
    around = [value for value in around if math.isfinite(value)]
    texts = sorted({value for value in constants if isinstance(value, str)})
    text_gaps = [text + "\x01" for text in texts] + ([""] if texts and texts[0] else [])
    flags = [True, False] if any(isinstance(value, bool) for value in constants) else []
    ordered = sorted({*numbers, *between, *around})
    return [None, Other(), *flags, *sorted({*texts, *text_gaps}), *ordered]


# -- situations


class Situations:
    """Combinations of critical values of the terms in some predicates; None stands for TRUE.

    ``count`` is None if there are more than :data:`MAX_SITUATIONS`, which are not evaluated.
    """

    def __init__(self, predicates: Sequence[Predicate | None]) -> None:
        self._predicates = predicates
        constants: dict[Term, list[Constant]] = {}
        for predicate in predicates:
            if predicate is not None:
                for atom in atoms(predicate.form.root, predicate.constants):
                    term, compared = atom.split_term()
                    listed = constants.setdefault(_term_key(term, atom.constants), [])
                    listed += [value for value in compared if value is not None]
        self._values = {term: critical_values(listed) for term, listed in constants.items()}
        self._cases = Cases({term: len(values) for term, values in self._values.items()}, MAX_SITUATIONS)
        self.count = self._cases.count if self._cases.is_whole else None

    def truths(self, number: int) -> NDArray[np.int8]:
        """Return :data:`FALSE`, :data:`NULL` or :data:`TRUE` of a predicate in each situation."""
        assert self.count is not None
        predicate = self._predicates[number]
        if predicate is None:
            return np.full(self.count, TRUE, dtype=np.int8)
        return self._truths(predicate.form.root, predicate.constants)

    def _truths(self, node: tree.Node, constants: tuple[Constant, ...]) -> NDArray[np.int8]:
        """Return the truth of a part of a condition in each situation: AND is the minimum, OR the maximum."""
        match node:
            case tree.And(args=args):
                return functools.reduce(np.minimum, [self._truths(arg, constants) for arg in args])
            case tree.Or(args=args):
                return functools.reduce(np.maximum, [self._truths(arg, constants) for arg in args])
            case tree.Not(item=item):
                return (TRUE - self._truths(item, constants)).astype(np.int8)
            case tree.Constant(slot=slot):
                return np.full(self._cases.count, _truth_of(constants[slot]), dtype=np.int8)
        atom = Atom(node, constants)
        term = _term_key(atom.split_term()[0], constants)
        truths = np.array([atom.truth(value) for value in self._values[term]], dtype=np.int8)
        return truths[self._cases.positions(term)]


def _is_constant(node: tree.Node) -> bool:
    """Return whether a node of a condition is a constant."""
    return isinstance(node, tree.Constant)


def _term_key(node: tree.Node, constants: tuple[Constant, ...]) -> Term:
    """Return a term as text with its constants: equal terms of several rules have one axis."""
    used = [constants[part.slot] for part in tree.walk(node) if isinstance(part, tree.Constant)]
    return tree.text_of(node), tuple((type(value).__name__, repr(value)) for value in used)


def _truth_of(truth: Constant | Other) -> int:
    """Return FALSE, NULL or TRUE for a value of a condition; all but truth values are NULL."""
    if truth is True:
        return TRUE
    return FALSE if truth is False else NULL


def _truth_of_comparison(value: Critical, name: str, constant: Constant) -> int:
    """Return FALSE, NULL or TRUE for a comparison; values of different kinds compare to NULL."""
    if value is None or isinstance(value, Other) or kind_of(value) != kind_of(constant):
        return NULL
    return TRUE if _OPERATORS[name](value, constant) else FALSE


_OPERATORS: Final[Mapping[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
