"""Containment of predicates, and what is left of one beside another (Mobius 6 and 8: query containment).

:func:`contains` is sound: it says yes only if every record that matches the smaller predicate matches the
larger one. It compares bounds, boxes, circles and lists an expression, through AND, OR and NOT; of other
conditions it knows whether they are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

from mudkit.predicates import tree
from mudkit.predicates.functions import find
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.tree import And, Call, Compare, Constant, In, IsNull, Node, Not, Or
from mudkit.predicates.values import BOOLEAN, NUMBER, STRING, Members, Point, point
from mudkit.units import apart_km

_MAX_CASES: Final = 64
"""Alternatives of a predicate that are examined; of one with more, only equal conditions are found."""
_MARGIN_KM: Final = 1e-6
"""Above the error of a computed distance: a circle inside another one is inside it by this much."""
_ONE_VALUE_SHARE: Final = 1e-6
"""Share of one value among many, as of the edge that two boxes have in common: not 0, which says none."""
_NEGATED: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ORDERED: Final = NUMBER | STRING
_LISTED: Final = NUMBER | STRING | BOOLEAN


@dataclass(frozen=True)
class _Same:
    """Condition that is only known by its text, with its constants in place."""

    text: str


@dataclass(frozen=True)
class _Range:
    """Values of one kind of an expression that are allowed, between two bounds.

    ``low`` and ``high`` None: no bound. ``is_above``: ``low`` itself is not allowed; ``is_below``: ``high``.
    """

    of: str
    kind: int
    low: Any = None
    is_above: bool = False
    high: Any = None
    is_below: bool = False

    def meet(self, other: _Range) -> _Range:
        """Return the values that both allow, of the same expression and kind."""
        met = self
        if other.low is not None and (
            met.low is None or (other.low, other.is_above) > (met.low, met.is_above)
        ):
            met = replace(met, low=other.low, is_above=other.is_above)
        if other.high is not None and (
            met.high is None or (other.high, not other.is_below) < (met.high, not met.is_below)
        ):
            met = replace(met, high=other.high, is_below=other.is_below)
        return met

    def holds(self, value: Any) -> bool:
        """Return whether a value of its kind is allowed."""
        if self.low is not None and (value < self.low or (self.is_above and value == self.low)):
            return False
        return self.high is None or not (value > self.high or (self.is_below and value == self.high))

    def is_empty(self) -> bool:
        """Return whether no value is allowed."""
        if self.low is None or self.high is None:
            return False
        return bool(self.low > self.high or (self.low == self.high and (self.is_above or self.is_below)))

    def is_within(self, larger: _Range) -> bool:
        """Return whether the other one, of the same expression, allows all values that this one does."""
        return self.kind == larger.kind and self.meet(larger) == self


@dataclass(frozen=True)
class _OneOf:
    """Values of an expression that are allowed, each with its kind."""

    of: str
    members: frozenset[tuple[int, Any]]


@dataclass(frozen=True)
class _Unlike:
    """A value of its kind that an expression does not have; it has one of this kind."""

    of: str
    kind: int
    value: Any


@dataclass(frozen=True)
class _Circle:
    """Circle in which the place of an expression is."""

    of: str
    centre: Point
    km: float


@dataclass(frozen=True)
class _NotNull:
    """An expression is not NULL."""

    of: str


_Atom: TypeAlias = _Same | _Range | _OneOf | _Unlike | _Circle | _NotNull


class _Facts(NamedTuple):
    """Conditions that all hold for the records of one case of a predicate."""

    texts: frozenset[str]
    ranges: dict[str, _Range]
    lists: dict[str, frozenset[tuple[int, Any]]]
    unlike: frozenset[_Unlike]
    circles: tuple[_Circle, ...]
    present: frozenset[str]


def contains(larger: Predicate | None, smaller: Predicate | None) -> bool:
    """Return whether every record that one predicate matches is certain to match a larger one.

    The data of readers are the same for both. None is the predicate that all records match.
    """
    if larger is None:
        return True
    return _implies(facts_of(smaller), _tree(larger))


def remainder(query: Predicate | None, covered: Predicate | None) -> Predicate | None:
    """Return a predicate for the records that match ``query`` and not ``covered``; None: it is of no use.

    It is of none if the two are certain to have no record in common, or ``query`` nothing that is not
    covered.
    """
    if covered is None or overlap(query, covered) == 0.0:
        return None
    if query is None:
        query = Predicate.parse("TRUE", language=covered.language)
    kept = [part for part in tree.conjuncts(covered.form.root) if not _implies_part(query, covered, part)]
    if not kept:
        return None
    constants = query.constants + covered.constants
    if all(_is_never_null(query, covered, part) for part in kept):
        text = f"({query.text}) AND NOT ({covered.text})"
    else:
        text = f"({query.text}) AND (NOT ({covered.text}) OR ({covered.text}) IS NULL)"
        constants += covered.constants
    return Predicate.restore(text, constants, query.language)


def overlap(query: Predicate | None, covered: Predicate | None) -> float:
    """Return the share of a query's records that another predicate covers, as far as bounds tell it.

    0 only where the two are certain to have no record in common. Values are taken as spread evenly between
    bounds; where one is missing, half of them are covered.
    """
    shares = [
        max((_share(facts, other) for other in facts_of(covered)), default=0.0) for facts in facts_of(query)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def restrict(predicate: Predicate, keep: Callable[[Node], bool]) -> Predicate | None:
    """Return the conjunction of the top-level conditions for which ``keep`` is true; None if there is none.

    The result matches all records that the whole predicate matches.
    """
    parts = [part for part in tree.conjuncts(predicate.form.root) if keep(part)]
    if not parts:
        return None
    used: dict[str, Any] = {}

    def name(constant: Constant) -> str:
        """Return a parameter for a constant; NULL has no parameter."""
        value = predicate.constants[constant.slot]
        if value is None:
            return "NULL"
        used[f"c{constant.slot}"] = value.values() if isinstance(value, Members) else value
        return f":c{constant.slot}"

    text = " AND ".join(f"({tree.text_of(part, name)})" for part in parts)
    return Predicate.parse(text, used, language=predicate.language)


# -- the form that is compared


_Tree: TypeAlias = "_All | _Any | _Atom"


@dataclass(frozen=True)
class _All:
    """All of these hold; without any: every record."""

    parts: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Any:
    """One of these holds; without any: no record."""

    parts: tuple[_Tree, ...]


@functools.lru_cache(maxsize=1024)
def _tree(predicate: Predicate) -> _Tree:
    """Return a predicate in the form that is compared: NOT only inside leaves, which are bounds and lists."""
    return _positive(predicate.form.root, predicate)


@functools.lru_cache(maxsize=1024)
def facts_of(predicate: Predicate | None) -> tuple[_Facts, ...]:
    """Return the facts that hold in each case of a predicate; a matching record is in at least one case."""
    if predicate is None:
        return (_facts(()),)
    form = _tree(predicate)
    cases = list(_list_cases(form))
    return tuple(_facts(case) for case in cases)


def _positive(node: Node, predicate: Predicate) -> _Tree:
    """Return a condition in the form that is compared; what is not recognised becomes its text."""
    match node:
        case And(args=args):
            return _All(tuple(_positive(arg, predicate) for arg in args))
        case Or(args=args):
            return _Any(tuple(_positive(arg, predicate) for arg in args))
        case Constant(slot=slot) if predicate.constants[slot] is True:
            return _All(())
        case Not(item=And(args=args)):  # in the logic of NULL, too: De Morgan
            return _Any(tuple(_positive(Not(arg), predicate) for arg in args))
        case Not(item=Or(args=args)):
            return _All(tuple(_positive(Not(arg), predicate) for arg in args))
        case Not(item=Not(item=inner)):
            return _positive(inner, predicate)
        case Not(item=Compare(operator=operator, left=left, right=right)):
            return _positive(Compare(_NEGATED[operator], left, right), predicate)
        case Not(item=IsNull(item=item)):
            return _NotNull(_text(item, predicate))
        case Compare(operator=operator, left=left, right=Constant(slot=slot)) if not isinstance(
            left, Constant
        ):
            return _comparison(operator, left, predicate.constants[slot], node, predicate)
        case Compare(operator=operator, left=Constant(slot=slot), right=right):
            return _comparison(tree.FLIPPED[operator], right, predicate.constants[slot], node, predicate)
        case In(item=item, members=members):
            listed = predicate.constants[members.slot]
            if isinstance(listed, Members) and listed.kinds and not listed.kinds & ~_LISTED:
                kinds = (NUMBER, STRING, BOOLEAN)
                pairs = frozenset((kind, value) for kind in kinds for value in listed.of_kind(kind))
                return _OneOf(_text(item, predicate), pairs)
        case Call(function=function, args=args) if function.name in ("within_box", "within_km"):
            return _area(function.name, args, node, predicate)
    return _Same(_text(node, predicate))


def _comparison(operator: str, left: Node, constant: Any, node: Node, predicate: Predicate) -> _Tree:
    """Return ``left operator constant`` as a bound, a list or a circle, else ``node``'s text."""
    kind = _kind_of(constant)
    of = _text(left, predicate)
    if operator == "<=" and kind == NUMBER and isinstance(left, Call) and left.function.name == "distance_km":
        centre, place = _centre(left.args, predicate)
        if centre is not None and place is not None:
            return _Circle(_text(place, predicate), centre, constant)
    if operator == "=" and kind & _LISTED:
        return _OneOf(of, frozenset({(kind, constant)}))
    if operator == "<>" and kind & _LISTED:
        return _Unlike(of, kind, constant)
    if kind & _ORDERED:
        if operator in (">", ">="):
            return _Range(of, kind, low=constant, is_above=operator == ">")
        if operator in ("<", "<="):
            return _Range(of, kind, high=constant, is_below=operator == "<")
    return _Same(_text(node, predicate))


def _area(name: str, args: tuple[Node, ...], node: Node, predicate: Predicate) -> _Tree:
    """Return ``within_box`` as two ranges, ``within_km`` as a circle; what is neither as ``node``'s text."""
    values = [predicate.constants[arg.slot] if isinstance(arg, Constant) else None for arg in args]
    if name == "within_box" and all(isinstance(value, float) for value in values[1:]):
        south, west, north, east = (float(value or 0.0) for value in values[1:])
        if -180.0 < west <= east < 180.0:  # at the date line, two longitudes are one
            boxed = _text(args[0], predicate)
            return _All((
                _Range(f"latitude of {boxed}", NUMBER, low=south, high=north),
                _Range(f"longitude of {boxed}", NUMBER, low=west, high=east),
            ))  # fmt: skip
    if name == "within_km" and isinstance(values[2], float):
        centre, place = _centre(args[:2], predicate)
        if centre is not None and place is not None:
            return _Circle(_text(place, predicate), centre, values[2])
    return _Same(_text(node, predicate))


def _centre(args: tuple[Node, ...], predicate: Predicate) -> tuple[Point | None, Node | None]:
    """Return which of two places is constant, and the expression of the other; both None if none is."""
    for mine, other in (args, args[::-1]):
        centre = _place(mine, predicate)
        if centre is not None:
            return centre, other
    return None, None


def _place(node: Node, predicate: Predicate) -> Point | None:
    """Return a place that stands in a predicate as a constant; None: another expression."""
    match node:
        case Constant(slot=slot):
            constant = predicate.constants[slot]
            return constant if isinstance(constant, Point) else None
        case Call(function=function, args=(Constant(slot=lat), Constant(slot=lon))) if (
            function.name == "point"
        ):
            return point((predicate.constants[lat], predicate.constants[lon]))
    return None


def _kind_of(constant: Any) -> int:
    """Return the kind of a constant that can be compared here; 0: another one."""
    kinds = {float: NUMBER, str: STRING, bool: BOOLEAN}
    return kinds.get(type(constant), 0)


def _text(part: Node, predicate: Predicate) -> str:
    """Return an expression as text with its constants in place: equal texts are equal expressions."""
    if isinstance(part, Constant):
        constant = predicate.constants[part.slot]
        if isinstance(constant, Members):
            members = (constant.numbers, constant.strings, constant.booleans, constant.points)
            return f"in {[sorted(kind) for kind in members]} {constant.kinds}"
        return f"constant {constant!r}"
    inner = ", ".join(_text(child, predicate) for child in tree.children(part))
    match part:
        case tree.Name(scope=scope, path=path):
            return repr((scope, *path))
        case Call(function=function):
            known = "" if find(function.name) is function else f" {id(function)}"
            return f"{function.symbol or function.name}{known}({inner})"
        case Compare(operator=operator):
            return f"{operator}({inner})"
    return f"{type(part).__name__}({inner})"


# -- cases and what is known of them


def _list_cases(form: _Tree) -> Iterator[tuple[_Atom, ...]]:
    """Yield the conjunctions of which a condition is the disjunction; of too many, what they share."""
    if isinstance(form, _Any):
        for part in form.parts:
            yield from _list_cases(part)
        return
    if not isinstance(form, _All):
        yield (form,)
        return
    alternatives = [list(_list_cases(part)) for part in form.parts]
    count = 1
    for cases in alternatives:
        count *= len(cases)
    if count > _MAX_CASES:
        alternatives = [cases for cases in alternatives if len(cases) == 1]
    for chosen in product(*alternatives):
        yield tuple(atom for case in chosen for atom in case)


def _facts(atoms: Sequence[_Atom]) -> _Facts:
    """Combine conditions that all hold into what is known of a record."""
    texts: set[str] = set()
    ranges: dict[str, _Range] = {}
    lists: dict[str, frozenset[tuple[int, Any]]] = {}
    unlike: set[_Unlike] = set()
    circles: list[_Circle] = []
    present: set[str] = set()
    for atom in atoms:
        match atom:
            case _Same(text=text):
                texts.add(text)
                continue
            case _Range(of=of):
                known = ranges.get(of)
                ranges[of] = atom if known is None or known.kind != atom.kind else known.meet(atom)
            case _OneOf(of=of, members=members):
                lists[of] = members & lists.get(of, members)
            case _Unlike():
                unlike.add(atom)
            case _Circle():
                circles.append(atom)
        present.add(atom.of)
    return _Facts(frozenset(texts), ranges, lists, frozenset(unlike), tuple(circles), frozenset(present))


def _implies(cases: Sequence[_Facts], form: _Tree) -> bool:
    """Return whether a condition is certain to hold in all cases."""
    return all(_holds(facts, form) for facts in cases)


def _holds(facts: _Facts, form: _Tree) -> bool:
    """Return whether a condition is certain to hold where some facts do."""
    if isinstance(form, _All):
        return all(_holds(facts, part) for part in form.parts)
    if isinstance(form, _Any):
        return any(_holds(facts, part) for part in form.parts) or _is_listed(facts, form)
    if isinstance(form, _Same):
        return form.text in facts.texts
    listed = facts.lists.get(form.of)
    match form:
        case _NotNull(of=of):
            return of in facts.present
        case _Circle(of=of, centre=centre, km=km):
            return any(circle.of == of and _is_inside(circle, centre, km) for circle in facts.circles)
        case _OneOf(members=members):
            return listed is not None and listed <= members
        case _Range(kind=kind):
            if listed is not None and all(of_kind == kind and form.holds(value) for of_kind, value in listed):
                return True
            known = facts.ranges.get(form.of)
            return known is not None and known.is_within(form)
        case _Unlike(kind=kind, value=value):
            if form in facts.unlike:
                return True
            if listed is not None and all(of_kind == kind and other != value for of_kind, other in listed):
                return True
            known = facts.ranges.get(form.of)
            return known is not None and known.kind == kind and not known.holds(value)


def _is_listed(facts: _Facts, form: _Any) -> bool:
    """Return whether an expression has listed values, for each of which one of the conditions holds."""
    for of, members in facts.lists.items():
        if len(members) <= _MAX_CASES and all(
            any(
                _holds(facts._replace(lists={**facts.lists, of: frozenset({member})}), part)
                for part in form.parts
            )
            for member in members
        ):
            return bool(members)
    return False


def _is_inside(circle: _Circle, centre: Point, km: float) -> bool:
    """Return whether a circle is inside another one."""
    if circle.centre == centre:
        return circle.km <= km
    return apart_km(circle.centre, centre) + circle.km + _MARGIN_KM <= km


# -- what is left


def _implies_part(query: Predicate, covered: Predicate, part: Node) -> bool:
    """Return whether a condition of a conjunction holds for all records of a query."""
    return _implies(facts_of(query), _positive(part, covered))


def _is_never_null(query: Predicate, covered: Predicate, part: Node) -> bool:
    """Return whether a condition is TRUE or FALSE, not NULL, for all records of a query."""
    atoms = [atom for case in _list_cases(_positive(part, covered)) for atom in case]
    return all(
        isinstance(atom, _Range | _OneOf)
        and all({_kind_in(facts, atom.of)} == _kinds_of(atom) for facts in facts_of(query))
        for atom in atoms
    )


def _kinds_of(atom: _Range | _OneOf) -> set[int]:
    """Return the kinds of the values that an expression is compared with."""
    return {atom.kind} if isinstance(atom, _Range) else {kind for kind, _ in atom.members}


def _kind_in(facts: _Facts, of: str) -> int:
    """Return the kind that an expression is certain to have; 0: unknown, or one of several."""
    if of in facts.ranges:
        return facts.ranges[of].kind
    kinds = {kind for kind, _ in facts.lists.get(of, ())}
    return kinds.pop() if len(kinds) == 1 else 0


def _share(facts: _Facts, covered: _Facts) -> float:
    """Estimate the share of the records with the first facts that have the second ones, too, from 0 to 1."""
    share = 1.0
    for of, members in covered.lists.items():
        mine = facts.lists.get(of)
        known = facts.ranges.get(of)
        if mine is not None:
            share *= len(mine & members) / max(len(mine), 1)
        elif known is not None:
            share *= 0.5 * any(kind == known.kind and known.holds(value) for kind, value in members)
        else:
            share *= 0.5
    for of, allowed in covered.ranges.items():
        mine, known = facts.lists.get(of), facts.ranges.get(of)
        if mine is not None:
            within = sum(kind == allowed.kind and allowed.holds(value) for kind, value in mine)
            share *= within / max(len(mine), 1)
        elif known is None:
            share *= 0.5
        elif known.kind != allowed.kind:
            return 0.0
        else:
            share *= _estimate_share(known, known.meet(allowed))
    return share if covered.texts <= facts.texts else share * 0.5


def _estimate_share(whole: _Range, part: _Range) -> float:
    """Return the share of a range that another one within it has; 0.5 where it has no length, as of texts.

    0 only where the other one is empty.
    """
    if part.is_empty():
        return 0.0
    if whole == part:
        return 1.0
    if whole.kind != NUMBER or whole.low is None or whole.high is None or whole.low == whole.high:
        return 0.5
    return max(_ONE_VALUE_SHARE, float((part.high - part.low) / (whole.high - whole.low)))
