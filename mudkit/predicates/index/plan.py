"""Plan of a read predicate's signature: which parts are looked up, and which are evaluated.

Of the parts that must all be TRUE, one that compares an expression over the record with one over the
subscription is looked up: an equality or an ``IN`` by hash, a bound, a box or a circle in a tree of bounds.
The other parts are evaluated on the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mudkit.predicates import tree
from mudkit.predicates.index.bounds import Side
from mudkit.predicates.python import Code, finish
from mudkit.predicates.tree import Call, Compare, Constant, In, Name, Node
from mudkit.predicates.values import (
    BOOLEAN,
    EVERY_KIND,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Members,
    Point,
    Value,
    kind_of,
)
from mudkit.units import EARTH_RADIUS_KM

_RECORD: Final = "record"
_INF: Final = math.inf
_HASHED: Final = NUMBER | STRING | BOOLEAN


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookup of the subscriptions of one signature: ``probe`` places a record, ``place`` a subscription.

    ``probe`` is ``(None, tables, *scopes)`` to ``(key, point)``, ``place`` ``(constants, tables, *scopes)``
    to ``(keys, corner, is_loose)``; None if nothing can match. ``rest`` is evaluated on the candidates,
    ``rest_loose`` while bounds of a subscription are wider than its predicate. ``is_key_all``: the key alone
    decides, without bounds and without a rest.
    """

    probe: Callable[..., Any]
    place: Callable[..., Any]
    sides: tuple[Side, ...]
    several: bool
    is_key_all: bool
    rest: Node | None
    rest_loose: Node | None
    readers: frozenset[str]
    indexed: tuple[str, ...]
    evaluated: tuple[str, ...]


def _sides_of(node: Node) -> str:
    """Return whether an expression reads the record alone, the subscription alone, or both."""
    sides = set()
    for part in tree.walk(node):
        if isinstance(part, Constant):
            sides.add("subscription")
        elif isinstance(part, Name):
            sides.add("record" if part.scope == _RECORD else "subscription")
        elif isinstance(part, Call) and (part.function.name == "lookup" or part.function.is_user):
            return "both"  # tables change, and users' functions may be slow: evaluated at the end
    return sides.pop() if len(sides) == 1 else "both"


def plan(root: Node, scopes: tuple[str, ...]) -> Plan:
    """Build the plan of a signature; ``scopes`` are in the order of compiled functions."""
    builder = _Builder()
    for part in tree.conjuncts(root):
        builder.add(part)
    return builder.plan(scopes)


class _Builder:
    """Plan being built from conjuncts: keys, bounds, and what is left to evaluate."""

    def __init__(self) -> None:
        self.keys: list[
            tuple[Node, Node, int]
        ] = []  # expression over the record, over the subscription, kind
        self.members: tuple[Node, Constant] | None = None
        self.expressions: list[tuple[Node, str]] = []  # over the record; part of a point
        self.sides: list[Side] = []
        self.corners: list[tuple[str, tuple[Node, ...]]] = []  # operator or function, and its expressions
        self.indexed: list[str] = []
        self.rest: list[Node] = []
        self.loose: list[Node] = []

    def add(self, part: Node) -> None:
        """Add a conjunct to what is looked up, if possible, else to what is evaluated."""
        match part:
            case Compare(operator=operator, left=left, right=right):
                mine, other = _sides_of(left), _sides_of(right)
                flipped = tree.FLIPPED[operator]
                if self._index_distance(operator, left, right, part) or self._index_distance(
                    flipped, right, left, part
                ):
                    return
                if (
                    mine == "record"
                    and other == "subscription"
                    and self._index_comparison(operator, left, right, part)
                ):
                    return
                if (
                    mine == "subscription"
                    and other == "record"
                    and self._index_comparison(flipped, right, left, part)
                ):
                    return
            case In(item=item, members=members):
                if self.members is None and _sides_of(item) == "record":
                    self.members = item, members
                    self._add_indexed("hash", part)
                    return
            case Call(function=function, args=args) if function.name in ("within_box", "within_km"):
                if self._index_area(function.name, args, part):
                    return
        self.rest.append(part)

    def _add_indexed(self, how: str, part: Node) -> None:
        """Add a condition to the texts of those that are looked up."""
        self.indexed.append(f"{how}: {tree.text_of(part)}")

    def _index_comparison(self, operator: str, record: Node, mine: Node, part: Node) -> bool:
        """Add a comparison of a record's value with the subscription's as key or bound; else return False."""
        if operator == "=":
            common = record.kinds & mine.kinds
            if not common & _HASHED:
                return False
            self.keys.append((record, mine, common if common in (NUMBER, STRING, BOOLEAN) else EVERY_KIND))
            self._add_indexed("hash", part)
            return True
        if operator == "<>" or mine.kinds != NUMBER:
            return False
        self._add_side(record, "", operator.startswith("<"))
        self.corners.append((operator, (mine,)))
        self._add_indexed("bound", part)
        return True

    def _index_distance(self, operator: str, distance: Node, limit: Node, part: Node) -> bool:
        """Add a distance below a limit as a circle; False if the comparison is none."""
        if not isinstance(distance, Call) or distance.function.name != "distance_km":
            return False
        return operator in ("<", "<=") and self._index_area("within_km", (*distance.args, limit), part)

    def _add_side(self, record: Node, component: str, upper: bool) -> None:
        """Add a bound of a record's expression; ``component`` is ``lat``, ``lon``, or empty for a number."""
        # A range is one expression with two sides, although it occurs in two parts.
        written = tree.text_of(record)
        known = [(tree.text_of(expression), part) for expression, part in self.expressions]
        if (written, component) not in known:
            known.append((written, component))
            self.expressions.append((record, component))
        number = known.index((written, component))
        self.sides.append(Side(number, upper))

    def _index_area(self, name: str, args: tuple[Node, ...], part: Node) -> bool:
        """Add a box or a circle as bounds; False unless only its place is the record's."""
        where = [_sides_of(arg) for arg in args]
        if name == "within_km" and where[:2] == ["subscription", "record"]:
            args, where = (args[1], args[0], args[2]), ["record", "subscription", where[2]]
        if where[0] != "record" or any(side != "subscription" for side in where[1:]):
            return False
        for component in ("lat", "lon"):
            for upper in (False, True):
                self._add_side(args[0], component, upper)
        self.corners.append((name, args[1:]))
        self._add_indexed("box" if name == "within_box" else "circle", part)
        (self.loose if name == "within_box" else self.rest).append(part)
        return True

    def plan(self, scopes: tuple[str, ...]) -> Plan:
        """Return the plan of the conditions added so far."""
        mine = [node for _, node, _ in self.keys] + [node for _, nodes in self.corners for node in nodes]
        readers = {n.scope for node in mine for n in tree.walk(node) if isinstance(n, Name)}
        evaluated = [tree.text_of(part) for part in self.rest]
        return Plan(
            probe=self._probe(scopes),
            place=self._place(scopes),
            sides=tuple(self.sides) or (Side(0, False),),
            several=self.members is not None,
            is_key_all=not (self.corners or self.rest),
            rest=_all(self.rest),
            rest_loose=_all(self.rest + self.loose),
            readers=frozenset(readers),
            indexed=tuple(self.indexed),
            evaluated=tuple(evaluated),
        )

    def _probe(self, scopes: tuple[str, ...]) -> Callable[..., Any]:
        """Compile the function that returns key and point of a record; None if nothing can match."""
        code = Code()
        keys = []
        for record, _, kind in self.keys:
            keys.append(_key(code, record, kind))
        if self.members is not None:
            keys.append(_key(code, self.members[0], EVERY_KIND))
        values = []
        for record, component in self.expressions:
            atom, nullable = code.emit(record, POINT if component else NUMBER)
            if nullable:
                code.line(f"if {atom} is None: return None")
            values.append(f"{atom}.{component}" if component else atom)
        point = [
            f"-{values[side.expression]}" if side.upper else values[side.expression] for side in self.sides
        ]
        code.line(f"return {_tuple(keys)}, {_tuple(point or ['0.0'])}")
        return finish(code, scopes)

    def _place(self, scopes: tuple[str, ...]) -> Callable[..., Any]:
        """Compile the function that returns keys, corner and looseness of a subscription's constants."""
        code = Code()
        code.known |= {
            "next_up": _next_up,
            "next_down": _next_down,
            "box": _box,
            "circle": _circle,
            "listed": _listed,
        }
        keys = []
        for _, mine, kind in self.keys:
            keys.append(_key(code, mine, kind))
        corner, loose = [], []
        for how, nodes in self.corners:
            atoms = []
            for number, node in enumerate(nodes):
                point = how == "within_km" and number == 0
                atom, nullable = code.emit(node, POINT if point else NUMBER)
                if nullable:
                    code.line(f"if {atom} is None: return None")
                atoms.append(atom)
            if how in _STEPS:
                corner.append(_STEPS[how].format(atoms[0]))
                continue
            area = code.fresh()
            code.line(f"{area} = {'box' if how == 'within_box' else 'circle'}({', '.join(atoms)})")
            code.line(f"if {area} is None: return None")
            corner.append(f"*{area}[0]")
            loose.append(f"{area}[1]")
        key = _tuple(keys)
        if self.members is not None:
            key = f"listed(k[{self.members[1].slot}], {key})"
        else:
            key = f"({key},)"
        code.line(f"return {key}, {_tuple(corner or ['0.0'])}, {' or '.join(loose) or 'False'}")
        return finish(code, scopes)


_STEPS: Final = {"<": "-next_down({})", "<=": "-{}", ">": "next_up({})", ">=": "{}"}


def _all(parts: list[Node]) -> Node | None:
    """Return the conjunction of conditions; None for an empty list."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else tree.And(tuple(parts))


def _tuple(atoms: list[str]) -> str:
    """Return the source of a tuple of expressions."""
    return f"({', '.join(atoms)},)" if atoms else "()"


def _key(code: Code, node: Node, kind: int) -> str:
    """Write a part of a key, tagged with its kind if that is open, because in Python ``True == 1.0``."""
    atom, nullable = code.emit(node, kind)
    if kind == EVERY_KIND:
        tagged = code.fresh()
        code.known["tagged"] = _tagged
        code.line(f"{tagged} = tagged({atom})")
        atom, nullable = tagged, True
    if nullable:
        code.line(f"if {atom} is None: return None")
    return atom


def _tagged(item: Value) -> tuple[int, Value] | None:
    """Return a value with its kind, for a key; None for NULL and structs, which equal nothing."""
    kind = kind_of(item)
    return None if kind in (NULL, STRUCT) else (kind, item)


def _next_up(x: float) -> float:
    """Return the next larger number: ``x > low`` is ``x >= _next_up(low)``."""
    return math.nextafter(x, _INF)


def _next_down(x: float) -> float:
    """Return the next smaller number."""
    return math.nextafter(x, -_INF)


def _listed(members: Members, key: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Return a key for each member of a list."""
    kinds = (NUMBER, STRING, BOOLEAN, POINT)
    return tuple((*key, (kind, member)) for kind in kinds for member in members.of_kind(kind))


def _box(south: float, west: float, north: float, east: float) -> tuple[tuple[float, ...], bool]:
    """Return the corner of a box, and whether it is wider than the box: at the date line it is."""
    if west > east or west <= -180.0 or east >= 180.0:
        return (south, -north, -_INF, -_INF), True
    return (south, -north, west, -east), False


def _circle(centre: Point, km: float) -> tuple[tuple[float, ...], bool] | None:
    """Return the corner of a box slightly wider than a circle, and False; None if ``km < 0``.

    A circle is always evaluated, so it does not count as loose.
    """
    if km < 0:
        return None
    angle = (km + 1e-5) * (1 + 1e-9) / EARTH_RADIUS_KM
    half_lat = math.degrees(angle)
    south, north = centre.lat - half_lat, centre.lat + half_lat
    if south <= -90.0 or north >= 90.0 or angle >= math.pi / 2:
        return (south, -north, -_INF, -_INF), False
    half_lon = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(centre.lat))))) * (
        1 + 1e-9
    )
    west, east = centre.lon - half_lon, centre.lon + half_lon
    if west <= -180.0 or east >= 180.0:
        return (south, -north, -_INF, -_INF), False
    return (south, -north, west, -east), False
