"""Artefact: a decision tree learnt on the server and shipped to devices as one JSON document (Mobius 6).

A device accepts only a document whose format, version and SHA-256 are right. The digest detects damage, not
forgery: who can write to the notification channel can ship.

=============  ===============================================================================
``format``     2; of an artefact that names a table 3, which those who do not know it must refuse
``kind``       ``read``, ``write`` or ``prefetch``: what it decides
``table``      the only table whose reads or writes it decides; absent: all that have none of their own
``version``    whole number; only a higher one replaces another
``features``   names with their units, for instance ``["age", "s"]``: see :data:`FEATURES`
``nodes``      ``[feature, threshold, left, right, unknown]``: at most the threshold goes left,
               more right, an unknown value to the child ``unknown``; or ``[action]``. The first is
               the root, children come after their parents
``actions``    of the leaves: ``local``, ``remote``, ``own`` (the device's own policy decides);
               seconds of delay, ``never``, ``own``; ``fetch``, ``skip``, ``own``
``queries``    of a prefetch: the predicates that the feature ``query`` numbers
``density``    table for the feature of that name, or null: see :class:`Density`
``costs``      the cost matrix it was learnt with, or null
``manifest``   how it was learnt
``sha256``     of all the rest, as sorted compact JSON
=============  ===============================================================================
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, TypeGuard

import numpy as np

from mudkit import checks, words
from mudkit.checks import check_arguments
from mudkit.display import Branch, Displayed, View, tree
from mudkit.errors import ParameterError, brief
from mudkit.systems.mud.policies.policies import MAX_DELAY_S
from mudkit.wire import Fields, Value

HOURS: Final = 24
_MAX_CELLS: Final = 100_000
_CELL_DEG: Final = (1e-9, 360.0)
_MAX_FLOAT: Final = sys.float_info.max
"""JSON has integers beyond it, which cannot become a float."""


@check_arguments
@dataclass(frozen=True)
class Density:
    """Write rate of places by hour: the table for the feature ``density``.

    As JSON: ``{"cell_deg": 0.05, "cells": [[row, column, [24 numbers]], …]}``. Row and column of a cell are
    its latitude and longitude divided by its size, rounded down. Cells that are not listed have no writes.

    Parameters
    ----------
    cell_deg : float
        Size of a cell, in degrees of latitude and of longitude.
    cells : mapping of (int, int) to tuple of float
        Points an hour, 24 numbers for each row and column, by the hour of mean solar time.
    """

    cell_deg: float
    cells: Mapping[tuple[int, int], tuple[float, ...]]

    def __post_init__(self) -> None:
        checks.number("cell_deg", self.cell_deg, *_CELL_DEG)

    @check_arguments(types=False)
    def at(self, lat: float, lon: float, hour: float) -> float:
        """Return the points an hour in the cell of a place.

        Parameters
        ----------
        lat, lon : float
            Degrees.
        hour : float
            Hour of mean solar time, from 0 to 24.
        """
        rates = self.cells.get((math.floor(lat / self.cell_deg), math.floor(lon / self.cell_deg)))
        return 0.0 if rates is None else rates[int(hour) % HOURS]

    def document(self) -> dict[str, Value]:
        """Return the table as JSON, the form of :meth:`from_document`."""
        cells: list[Value] = [[*place, list(rates)] for place, rates in sorted(self.cells.items())]
        return {"cell_deg": self.cell_deg, "cells": cells}

    @classmethod
    @check_arguments(types=False)
    def from_document(cls, document: Value) -> Density:
        """Read a document; raise ParameterError if any part of it is malformed."""
        match document:
            case {"cell_deg": int() | float() as size, "cells": list() as cells, **rest} if (
                not rest and not isinstance(size, bool) and _CELL_DEG[0] <= size <= _CELL_DEG[1]
            ):
                pass
            case _:
                least, most = _CELL_DEG
                expected = f"cell_deg, a number from {least:g} to {most:g}, and cells, a list"
                raise _unusable_error("density", brief(document, 200), expected)
        if len(cells) > _MAX_CELLS:
            raise _unusable_error("density.cells", f"{len(cells):,} cells", f"at most {_MAX_CELLS:,}")
        read: dict[tuple[int, int], tuple[float, ...]] = {}
        for index, cell in enumerate(cells):
            match cell:
                case [int(row), int(column), list() as rates] if (
                    (row, column) not in read and len(rates) == HOURS and all(map(_is_not_negative, rates))
                ):
                    read[row, column] = tuple(float(rate) for rate in rates if _is_not_negative(rate))
                case _:
                    expected = f"[row, column, {HOURS} numbers, 0 or more], each cell once"
                    raise _unusable_error(f"density.cells[{index}]", brief(cell, 200), expected)
        return cls(float(size), read)


def _is_not_negative(rate: Value) -> TypeGuard[float]:
    """Return whether a JSON value is a number from 0 on, and no truth value."""
    return isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= _MAX_FLOAT


OWN: Final = "own"
"""Decision of a policy that leaves it to the device's own one: it takes a policy back."""
FORMAT: Final = 2
_FORMAT_OF_TABLE: Final = 3
Kind: TypeAlias = Literal["read", "write", "prefetch"]
KINDS: Final[tuple[Kind, ...]] = ("read", "write", "prefetch")
_TEXTS_OF_WRITES: Final = ("never", OWN)
_ACTIONS: Final = {"read": ("local", "remote", OWN), "prefetch": ("fetch", "skip", OWN)}
PREFETCH_EVERY_S: Final = 900.0
"""Interval between two decisions of a shipped prefetch policy, each about the reads before the next one."""
_MAX_QUERIES: Final = 1000
_MAX_TABLE: Final = 400
FEATURES: Final[Mapping[str, str]] = {
    "age": "s",
    "distance": "km",
    "lat": "deg",
    "lon": "deg",
    "cached_lat": "deg",
    "cached_lon": "deg",
    "hour": "h",
    "weekday": "d",
    "cached_hour": "h",
    "held": "points",
    "density": "points/h",
    "box": "km",
    "window": "s",
    "covered": "share",
    "query": "number",
    "since": "s",
}
"""Features and their units; those of a write are its place and time.

Hours (0 to 24) and weekdays (Monday is 0) are those of mean solar time, UTC and an hour for each 15 degrees
of longitude, so that a device needs no table of time zones. ``held``: records in the cached answer.
``density``: write rate by the table that comes with the artefact. ``box`` and ``window``: size of the area of
the query, and how far back it reads; ``covered``: share of its area that the cached query has, too
(:mod:`mudkit.predicates.areas`). Of a prefetch ``query`` is the number of the query in the artefact, and
``since`` the time since the device has read it. A query without an area is covered by one that is certain to
have all its records.
"""
_EXPORT_AGAIN: Final = "export it again with mudkit.learning.export_policy, or `mudkit report cache_policy`"
_NEWER: Final = "install the mudkit that wrote it, or export it again with this one"
_MAX_NODES: Final = 100_000
_FLOAT32_ENDS: Final = 2.0**128 - 2.0**103
"""Numbers from here are rounded to infinity."""

Action = str | float
"""``local``, ``remote`` or ``own`` for a read; seconds, ``never`` or ``own`` for a write."""

_Node = tuple[int, float, int, int, int]
_Tied: TypeAlias = Action | tuple[int, float, "_Tied", "_Tied", "_Tied"]

_MAX_COUNTED: Final = 10_000
_MAX_LEVELS: Final = 3
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def question_text(feature: str, threshold: float) -> str:
    """Return the test of a feature against a threshold in words, in everyday units."""
    whose = "the answer's " if feature.startswith("cached_") else ""
    match feature.removeprefix("cached_"):
        case "lat":
            return f"{whose}place south of {threshold:.3f}°"
        case "lon":
            return f"{whose}place west of {threshold:.3f}°"
        case "hour":
            minutes = min(round(60 * threshold), 24 * 60)
            return f"{whose}time before {minutes // 60:02d}:{minutes % 60:02d}"
        case "weekday":
            last = _WEEKDAYS[min(max(int(threshold), 0), 6)]
            return last if last == "Monday" else f"Monday to {last}"
        case "distance":
            return f"at most {words.distance(threshold)} away"
        case "age":
            return f"at most {words.duration(threshold)} old"
        case "held":
            return f"it holds at most {words.number(threshold)} points"
        case "density":
            return f"at most {words.number(threshold)} points an hour"
        case "box":
            return f"an area of at most {words.distance(threshold)}"
        case "window":
            return f"the last {words.duration(threshold)} at most"
        case "query":
            return f"one of the first {words.number(int(threshold) + 1)} queries"
        case "since":
            return f"read at most {words.duration(threshold)} ago"
        case "covered":
            return f"it covers at most {words.number(100 * threshold)} % of the area"
    return f"{feature} ≤ {words.number(threshold)}"


def action_text(action: Action) -> str:
    """Return the decision of a leaf in words.

    Of a read ``local``, ``remote`` or ``own``; of a prefetch ``fetch``, ``skip`` or ``own``; of a write how
    long it waits: ``at once``, ``10 min``, or ``never``, if it is not sent.
    """
    return action if isinstance(action, str) else words.duration(action) if action else "at once"


def sha256(document: Fields) -> str:
    """Return the digest of a document, without its own digest."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    written = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(written.encode()).hexdigest()


@check_arguments
@dataclass(frozen=True, repr=False)
class Artefact(Displayed):
    """A decision tree as shipped to devices.

    Parameters
    ----------
    kind : {'read', 'write', 'prefetch'}
    version : int
    features : tuple of str
        Names, in the order of the values.
    nodes : tuple
        See the module; a leaf is its action.
    document : mapping
        The JSON document.
    density : Density or None
        The table for the feature of that name.
    table : str or None
        The only table whose reads or writes it decides.
    queries : tuple of str
        Predicates of a prefetch policy, in the order of their numbers.
    """

    kind: Kind
    version: int
    features: tuple[str, ...]
    nodes: tuple[_Node | Action, ...]
    document: Fields
    density: Density | None = None
    table: str | None = None
    queries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise _unusable_error("nodes", "none", "at least one node")

    @property
    def slot(self) -> str:
        """Name of the slot that it takes on a device: its kind, and its table if it names one."""
        return self.kind if self.table is None else f"{self.kind} of {self.table}"

    @cached_property
    def root(self) -> _Tied:
        """Root node with its children nested, so that a decision needs no lookups."""
        tied: list[_Tied] = list(self.nodes)
        for number in range(len(tied) - 1, -1, -1):  # children come after their parents
            node = self.nodes[number]
            if isinstance(node, tuple):
                feature, threshold, left, right, unknown = node
                tied[number] = (feature, _upper_bound(threshold), tied[left], tied[right], tied[unknown])
        return tied[0]

    @classmethod
    def create(
        cls,
        kind: str,
        version: int,
        features: Sequence[str],
        nodes: Sequence[Sequence[float]],
        actions: Sequence[Action],
        *,
        density: Density | None = None,
        costs: Sequence[Sequence[float]] | None = None,
        manifest: Fields | None = None,
        table: str | None = None,
        queries: Sequence[str] = (),
    ) -> Artefact:
        """Create an artefact and its digest.

        Parameters
        ----------
        kind : str
            Decision that the tree makes: ``read``, ``write`` or ``prefetch``.
        version : int
            A device replaces its artefact only by one of a higher version.
        features : sequence of str
            Names of :data:`FEATURES`, in the order in which ``nodes`` number them.
        nodes : sequence of sequence
            ``[feature, threshold, left, right, unknown]`` or ``[action]``; the first is the root.
        actions : sequence of str or float
            Actions of the leaves: ``local``, ``remote``, ``own``; seconds of delay, ``never``, ``own``;
            ``fetch``, ``skip``, ``own``.
        density : Density, optional
            Table of the feature ``density``.
        costs : sequence of sequence of float, optional
            Cost matrix by which the tree was learnt.
        manifest : mapping, optional
            How it was learnt.
        table : str, optional
            The only table whose reads or writes it decides; a prefetch policy has one.
        queries : sequence of str
            Predicates that the feature ``query`` of a prefetch policy numbers.

        Raises
        ------
        ParameterError
            A device could not use it.
        """
        document: dict[str, Value] = {
            "format": FORMAT,
            "kind": kind,
            "version": version,
            "features": [[name, FEATURES.get(name, "?")] for name in features],
            "nodes": [list(node) for node in nodes],
            "actions": list(actions),
            "density": None if density is None else density.document(),
            "costs": costs,
            "manifest": dict(manifest or {}),
        }
        if table is not None:
            document |= {"format": _FORMAT_OF_TABLE, "table": table}
        if kind == "prefetch":
            document["queries"] = list(queries)
        return cls._sign(document)

    @classmethod
    @check_arguments(types=False)
    def from_document(cls, document: Value) -> Artefact:
        """Read a document and check all of it.

        Raises
        ------
        ParameterError
            It is damaged, in another format, or needs an unknown feature.
        """
        if not isinstance(document, Mapping):
            raise _unusable_error("document", type(document).__name__, "a JSON object")
        if (given_format := document.get("format")) not in (FORMAT, _FORMAT_OF_TABLE):
            is_newer = isinstance(given_format, int) and given_format > _FORMAT_OF_TABLE
            expected = f"{FORMAT}, or {_FORMAT_OF_TABLE}"
            raise _unusable_error(
                "format", repr(given_format), expected, _NEWER if is_newer else _EXPORT_AGAIN
            )
        try:
            digest = sha256(document)
        except (TypeError, ValueError) as error:
            raise _unusable_error("document", str(error), "JSON values") from None
        if document.get("sha256") != digest:
            raise _unusable_error("sha256", repr(document.get("sha256")), repr(digest), _EXPORT_AGAIN)
        kind = next((known for known in KINDS if known == document.get("kind")), None)
        version = document.get("version")
        if kind is None:
            raise _unusable_error("kind", repr(document.get("kind")), ", ".join(KINDS), _NEWER)
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise _unusable_error("version", repr(version), "a whole number, 1 or more")
        features = _check_features(document.get("features"))
        given = document.get("actions")
        actions = (
            [action for action in given if _is_action(kind, action)] if isinstance(given, list) else None
        )
        if actions is None or actions != given:
            expected = (
                ", ".join(_ACTIONS.get(kind, ())) or f"seconds from 0 to {MAX_DELAY_S:,.0f}, never, own"
            )
            raise _unusable_error("actions", repr(given)[:200], expected)
        nodes = _check_nodes(document.get("nodes"), len(features), actions)
        rates = document.get("density")
        if ("density" in features) is (rates is None):
            raise _unusable_error(
                "density", "a table" if rates else "no table", "a table if it is a feature, else none"
            )
        density = None if rates is None else Density.from_document(rates)
        table, queries = _check_table(document), _check_queries(kind, document)
        return cls(kind, version, features, nodes, document, density, table, queries)

    def _view(self) -> View:
        """Return the view of a display: its facts, and a picture of the upper levels."""
        leaves = sum(not isinstance(node, tuple) for node in self.nodes[:_MAX_COUNTED])
        facts = {
            "decides": f"{self.kind}es" if self.kind == "prefetch" else f"{self.kind}s",
            "table": self.table,
            "version": self.version,
            "features": ", ".join(self.features),
            "leaves": leaves if len(self.nodes) <= _MAX_COUNTED else None,
            "sha256": str(self.document.get("sha256"))[:12],
        }
        notes = ["Levels below the third are left out."] if self._is_deep() else []
        return View(
            "mud.Artefact", facts, (), notes, picture=tree(self._build_branch(0, 0), "A decision tree")
        )

    def _build_branch(self, number: int, level: int) -> Branch:
        """Build the picture of the tree below a node; three levels are shown."""
        node = self.nodes[number]
        if not isinstance(node, tuple):
            return Branch(action_text(node))
        text = f"{question_text(self.features[node[0]], node[1])}?"
        if level == _MAX_LEVELS:
            return Branch("…", text)
        return Branch(
            text, "", self._build_branch(node[2], level + 1), self._build_branch(node[3], level + 1)
        )

    def _is_deep(self) -> bool:
        """Return whether the tree has levels that the picture leaves out."""
        level = [0]
        for _ in range(_MAX_LEVELS):
            nodes = [self.nodes[number] for number in level]
            level = [child for node in nodes if isinstance(node, tuple) for child in node[2:4]]
        return any(isinstance(self.nodes[number], tuple) for number in level)

    @check_arguments(types=False)
    def with_override(
        self, action: Action, *, south: float, north: float, west: float, east: float, version: int
    ) -> Artefact:
        """Return an artefact with the same decisions, except for one action within a box.

        Parameters
        ----------
        action : str or float
            See the module.
        south, north, west, east : float
            Degrees; a place on the north or east edge is inside, one on the others is not.
        version : int

        Raises
        ------
        ParameterError
            A device could not use it.
        """
        lat, lon, rest = "lat", "lon", 5
        guard: list[list[str | float]] = [
            [lat, south, rest, 1, rest],
            [lat, north, 2, rest, rest],
            [lon, west, rest, 3, rest],
            [lon, east, 4, rest, rest],
        ]
        inside = {"but inside": [south, north, west, east], "action": action}
        return self._guard(guard, action, version, inside)

    @check_arguments(types=False)
    def up_to_age(self, limit_s: float) -> Artefact:
        """Return an artefact with the same decisions for answers up to an age, which asks for older ones.

        A tree knows nothing of answers that are older than those it was learnt from.

        Parameters
        ----------
        limit_s : float
            Maximum age, in seconds.

        Raises
        ------
        ParameterError
            A device could not use it.
        """
        return self._guard(
            [["age", limit_s, 2, 1, 1]], "remote", self.version, {"up to an age of, s": limit_s}
        )

    def if_covered(self) -> Artefact:
        """Return an artefact with the same decisions if the cached query covers all of a query, else remote.

        Raises
        ------
        ParameterError
            A device could not use it.
        """
        return self._guard([["covered", 0.999, 1, 2, 1]], "remote", self.version, {"if covered": True})

    def of_table(self, table: str) -> Artefact:
        """Return the same decisions for the reads or writes of one table.

        Raises
        ------
        ParameterError
            The name is not usable.
        """
        return self._sign({**self.document, "format": _FORMAT_OF_TABLE, "table": table})

    def _guard(
        self, guard: Sequence[Sequence[str | float]], action: Action, version: int, noted: Mapping[str, Value]
    ) -> Artefact:
        """Return an artefact with guard nodes before these nodes, and a leaf with ``action`` between.

        ``noted`` is added to its manifest.
        """
        names = list(dict.fromkeys((*self.features, *(str(name) for name, *_ in guard))))
        actions = list(dict.fromkeys([*(node for node in self.nodes if not isinstance(node, tuple)), action]))
        rest = len(guard) + 1
        nodes: list[Value] = [[names.index(str(name)), *node] for name, *node in guard]
        nodes.append([actions.index(action)])
        nodes += [
            [*node[:2], *(child + rest for child in node[2:])]
            if isinstance(node, tuple)
            else [actions.index(node)]
            for node in self.nodes
        ]
        manifest = self.document.get("manifest")
        document: dict[str, Value] = {
            **self.document,
            "version": version,
            "features": [[name, FEATURES[name]] for name in names],
            "nodes": nodes,
            "actions": actions,
            "manifest": {**manifest, **noted} if isinstance(manifest, Mapping) else noted,
        }
        return self._sign(document)

    def decides_as(self, other: Artefact) -> bool:
        """Return whether another artefact decides the same by the same questions, in the same slot."""
        mine, theirs = (
            (one.slot, one.features, one.nodes, one.density, one.queries) for one in (self, other)
        )
        return mine == theirs

    @check_arguments(types=False)
    def renewed(self, version: int) -> Artefact:
        """Return the same decisions as another version, which replaces what devices have.

        Raises
        ------
        ParameterError
            The version is not usable.
        """
        return self._sign({**self.document, "version": version})

    @classmethod
    def _sign(cls, document: Fields) -> Artefact:
        """Return the artefact of a document with the digest added, or replaced."""
        try:
            digest = sha256(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise _unusable_error("nodes, manifest", brief(error), "JSON values") from error
        return Artefact.from_document({**document, "sha256": digest})

    @check_arguments(types=False)
    def decide(self, values: Sequence[float | None]) -> Action:
        """Return the decision; as in scikit-learn, values are compared as float32.

        Parameters
        ----------
        values : sequence of float or None
            The values of the features, in their order; None: unknown, as NaN is.
        """
        node = self.root
        while isinstance(node, tuple):
            feature, most, left, right, unknown = node
            value = values[feature]
            if value is None:
                node = unknown
            elif value <= most:
                node = left
            elif value > most:
                node = right
            else:  # not a number
                node = unknown
        return node


def _upper_bound(threshold: float) -> float:
    """Return the largest number that is at most a threshold after rounding to float32.

    Rounding keeps the order of numbers, so a device need not round.
    """
    with np.errstate(over="ignore"):
        below = np.float32(threshold)
        if float(below) > threshold:
            below = np.nextafter(below, np.float32(-np.inf))
        above = np.nextafter(below, np.float32(np.inf))
    if not np.isfinite(below):  # below all that float32 has: what is smaller yet is rounded to -inf
        return -_FLOAT32_ENDS
    middle = (float(below) + (float(above) if np.isfinite(above) else 2.0**128)) / 2.0
    # A number in the middle goes to the one whose last bit is 0.
    is_even = not int(below.view(np.uint32)) & 1
    return middle if is_even else math.nextafter(middle, -math.inf)


def _check_features(given: Value) -> tuple[str, ...]:
    """Return the names of the features, or raise ParameterError for one that devices do not know."""
    if not isinstance(given, list):
        raise _unusable_error("features", repr(given), "a list of names with their units")
    names = []
    for feature in given:
        match feature:
            case [str(name), unit] if FEATURES.get(name, ...) == unit:
                names.append(name)
            case _:
                expected = ", ".join(f"{name} in {unit}" for name, unit in FEATURES.items())
                raise _unusable_error("features", repr(feature), expected)
    return tuple(names)


def _check_table(document: Fields) -> str | None:
    """Return the name of the table that an artefact is for, or raise ParameterError; None: for all."""
    table = document.get("table")
    if document.get("format") == FORMAT:
        if "table" in document:
            raise _unusable_error("table", repr(table), f"none in format {FORMAT}", _EXPORT_AGAIN)
        return None
    if not isinstance(table, str) or not 1 <= len(table) <= _MAX_TABLE:
        raise _unusable_error("table", brief(table, 200), f"a text of 1 to {_MAX_TABLE} characters")
    return table


def _check_queries(kind: str, document: Fields) -> tuple[str, ...]:
    """Return the queries of a prefetch policy, or raise ParameterError; another one has none."""
    queries = document.get("queries")
    if kind != "prefetch":
        return ()
    if document.get("table") is None:
        raise _unusable_error("table", "none", "the table that a prefetch policy is for")
    if not isinstance(queries, list) or len(queries) > _MAX_QUERIES:
        raise _unusable_error("queries", brief(queries, 200), f"a list of at most {_MAX_QUERIES:,} texts")
    texts = tuple(query for query in queries if isinstance(query, str))
    if len(texts) != len(queries) or len(set(texts)) != len(texts):
        raise _unusable_error("queries", brief(queries, 200), "texts, each of them once")
    return texts


def _is_action(kind: str, action: Value) -> TypeGuard[Action]:
    """Return whether a JSON value is an action of the leaves of a read or write policy."""
    if kind in _ACTIONS:
        return action in _ACTIONS[kind]
    if action in _TEXTS_OF_WRITES:
        return True
    return isinstance(action, int | float) and not isinstance(action, bool) and 0 <= action <= MAX_DELAY_S


def _check_nodes(given: Value, features: int, actions: Sequence[Action]) -> tuple[_Node | Action, ...]:
    """Return the nodes, leaves as their actions; raise ParameterError for a malformed one."""
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_NODES:
        raise _unusable_error("nodes", f"{type(given).__name__}", f"a list of 1 to {_MAX_NODES:,} nodes")
    nodes: list[_Node | Action] = []
    for number, node in enumerate(given):
        match node:
            case [int(action)] if 0 <= action < len(actions):
                nodes.append(actions[action])
            case [int(feature), float() | int() as threshold, int(left), int(right), int(unknown)] if (
                0 <= feature < features
                and -_MAX_FLOAT <= threshold <= _MAX_FLOAT
                # Children come after their parents, so every path ends.
                and all(number < child < len(given) for child in (left, right))
                and unknown in (left, right)
            ):
                nodes.append((feature, float(threshold), left, right, unknown))
            case _:
                expected = "[feature, threshold, left, right, unknown], or [action], children after parents"
                raise _unusable_error(f"nodes[{number}]", repr(node)[:200], expected)
    return tuple(nodes)


def _unusable_error(where: str, value: str, expected: str, remedy: str | None = None) -> ParameterError:
    """Build the error for a part of a document that a device could not use."""
    return ParameterError(
        "The policy is not usable.", where=where, found=value, expected=expected, remedy=remedy
    )
