"""Refusal of texts and constants that can never be TRUE: slips that would select nothing.

Data are never refused: a comparison of kinds that differ, a place outside the Earth and a time zone that does
not exist are NULL for the records, readers and writers that have them. Kinds are known of constants, of
the results of functions, and of names in a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import re2

from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.parse import Bound, Parsed
from mudkit.predicates.tree import Call, Constant, Node
from mudkit.predicates.values import (
    BOOLEAN,
    EVERY_KIND,
    LIST,
    NULL,
    NUMBER,
    Members,
    kind_names,
    point,
    seconds_of,
)
from mudkit.units import zone


def check_tree(root: Node, nodes: Sequence[Node], text: str) -> None:
    """Raise an error if an argument can never have a kind that its function accepts."""
    _expect(root, BOOLEAN, "A predicate is a condition", text)
    for node in nodes:
        match node:
            case tree.And(args=args) | tree.Or(args=args):
                for arg in args:
                    _expect(arg, BOOLEAN, f"{type(node).__name__.upper()} takes conditions", text)
            case tree.Not(item=item):
                _expect(item, BOOLEAN, "NOT takes a condition", text)
            case Call(function=function, args=args):
                for position, arg in enumerate(args):
                    kinds = function.kind_of_argument(position)
                    name = function.symbol or function.name
                    _expect(arg, kinds, f"{name} takes a {kind_names(kinds)} here", text)


def _expect(node: Node, kinds: int, summary: str, text: str) -> None:
    """Raise PredicateError if a node can never have one of some kinds; NULL may stand anywhere."""
    if node.kinds != NULL and not node.kinds & kinds:
        raise PredicateError(f"{summary}.", text=text, at=node.at, found=f"a {kind_names(node.kinds)}")


def check_comparisons(nodes: Sequence[Node], parsed: Parsed) -> None:
    """Raise an error for a comparison of two sides whose kinds always differ."""
    for node in nodes:
        if not isinstance(node, tree.Compare):
            continue
        left, right = node.left.kinds, node.right.kinds
        if left and right and not left & right:
            sources = [
                parsed.sources[side.slot] for side in (node.left, node.right) if type(side) is Constant
            ]
            raise _mixed(left, right, sources, parsed.text, node.at)


def _mixed(left: int, right: int, constants: Sequence[Any], text: str, at: tree.Place) -> PredicateError:
    """Return the error for a comparison of two kinds; a string that is a time is shown as TIMESTAMP."""
    times = [written for written in constants if isinstance(written, str) and seconds_of(written) is not None]
    remedy = "write both sides as one kind: text in quotes, numbers without"
    if times and (left | right) & NUMBER:
        remedy = f"a time is a number of seconds, which TIMESTAMP '{times[0]}' writes"
    return PredicateError(
        "This comparison is never TRUE: its sides are of different kinds.",
        text=text,
        at=at,
        found=f"a {kind_names(left)} and a {kind_names(right)}",
        expected="two numbers, two strings, two booleans or two points",
        remedy=remedy,
    )


def list_limited(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes whose constants :func:`check_constants` checks."""
    return tuple(
        [
            node
            for node in nodes
            if (isinstance(node, tree.In) and node.item.kinds not in (EVERY_KIND, NULL))
            or (isinstance(node, Call) and node.function.name in _CHECKS)
        ]
    )


def check_constants(limited: Sequence[Node], constants: Sequence[Any], parsed: Parsed) -> None:
    """Raise an error for a literal or a parameter that makes its condition or its function NULL."""
    for node in limited:
        if isinstance(node, tree.In):
            members: Members = constants[node.members.slot]
            if foreign := members.kinds & ~LIST & ~node.item.kinds:
                listed = [item for item in members.values() if isinstance(item, str)]
                at = parsed.slots[node.members.slot].at
                raise _mixed(node.item.kinds, foreign, listed, parsed.text, at)
        elif isinstance(node, Call):
            given = [
                constants[arg.slot]
                if type(arg) is Constant and not isinstance(parsed.sources[arg.slot], Bound)
                else None
                for arg in node.args
            ]
            if problem := _CHECKS[node.function.name](*given):
                at = next(parsed.slots[arg.slot].at for arg in node.args if type(arg) is Constant)
                raise PredicateError(**problem, text=parsed.text, at=at)


def check_written(parsed: Parsed) -> None:
    """Raise the errors of comparisons and constants for a text without parameters."""
    nodes = tuple(tree.walk(parsed.root))
    check_comparisons(nodes, parsed)
    check_constants(list_limited(nodes), parsed.sources, parsed)


Problem = dict[str, str] | None


def _check_zone(_seconds: Any, name: Any = None) -> Problem:
    """Return the problem if a constant names no time zone; None: not constant, or not given."""
    if name is None or zone(name) is not None:
        return None
    return {
        "summary": "There is no such time zone.",
        "found": repr(name),
        "expected": "a name of the IANA database such as 'Europe/Zurich' or 'UTC'",
    }


def _check_place(lat: Any, lon: Any) -> Problem:
    """Return the problem if constant coordinates are out of range, with a remedy if they are exchanged."""
    if point((0.0 if lat is None else lat, 0.0 if lon is None else lon)) is not None:
        return None
    is_exchanged = lat is not None and lon is not None and point((lon, lat)) is not None
    return {
        "summary": "There is no such place.",
        "found": f"latitude {_shown(lat)}, longitude {_shown(lon)}",
        "expected": "point(lat, lon): a latitude within ±90, then a longitude within ±180",
        "remedy": f"the latitude comes first: point({_shown(lon)}, {_shown(lat)})" if is_exchanged else "",
    }


def _check_box(_place: Any, south: Any, west: Any, north: Any, east: Any) -> Problem:
    """Return the problem if a constant corner of a box is no place, or the south is above the north."""
    is_turned = south is not None and north is not None and south > north
    for lat, lon in ((south, west), (north, east)):
        if is_turned or _check_place(lat, lon):
            return {
                "summary": "There is no such box.",
                "found": f"south {_shown(south)}, west {_shown(west)}, "
                f"north {_shown(north)}, east {_shown(east)}",
                "expected": "within_box(place, south, west, north, east): latitudes within ±90, the southern "
                "one first, longitudes within ±180",
            }
    return None


def _shown(degrees: Any) -> str:
    """Return degrees as text, ``…`` for what is not constant."""
    return "…" if degrees is None else f"{degrees:.12g}"


def _check_pattern(_text: Any, written: Any) -> Problem:
    """Return the problem if RE2 does not know a constant regular expression."""
    if written is None:
        return None
    try:
        functions.pattern(written)
    except re2.error as error:
        problem = error.args[0]
        return {
            "summary": "This is not a regular expression that RE2 knows.",
            "found": problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem),
            "expected": "RE2 syntax: no look-around, no back-references",
        }
    return None


_CHECKS: Final[dict[str, Callable[..., Problem]]] = {
    **dict.fromkeys(functions.TIME_PARTS, _check_zone),
    "point": _check_place,
    "within_box": _check_box,
    "matches": _check_pattern,
}
"""Checks of the constant arguments of a function; an argument that is no constant is None."""
