"""A language: its scopes, and the attributes of each scope where they are known."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from mudkit.checks import check_arguments
from mudkit.errors import PredicateError, listed
from mudkit.predicates import tree
from mudkit.predicates.values import EVERY_KIND, KINDS, POINT, STRUCT


class Scopes(NamedTuple):
    """Scopes of a language; names without a scope are in the first."""

    names: tuple[str, ...]
    bound: frozenset[str]


_SIMILARITY: Final = 0.82
"""Similarity from which a name is taken for a scope: ``reciever`` (0.88) is, ``author`` (0.80) is not."""

Schema: TypeAlias = Mapping[str, "str | Schema"]
"""Attributes of a scope: a kind (``'number'``, ``'string'``, ``'boolean'``, ``'point'``, ``'struct'``), or
the attributes of a struct."""


@check_arguments(types=False)
class Language:
    """Scopes, and optionally attributes, that predicates may name.

    Parameters
    ----------
    scopes : tuple of str
        Names of the scopes. A name without a scope is in the first.
    bound : tuple of str
        Scopes whose names become constants when a predicate is bound (Mobius 3: the writer's context).
    schema : mapping of str to mapping, optional
        Attributes of each scope. A scope that is not in the schema may have any attribute.
    always : mapping of str to str, optional
        Scopes that may be missing as a whole, ``old IS NULL``, each with an attribute that it has otherwise.

    Raises
    ------
    PredicateError
        The schema names a kind or a scope that does not exist.

    Examples
    --------
    >>> sublim = Language(("message", "state"))
    >>> stocks = Language(schema={"record": {"symbol": "string", "price": "number"}})
    """

    def __init__(
        self,
        scopes: tuple[str, ...] = ("record", "receiver", "auth", "sender"),
        *,
        bound: tuple[str, ...] = ("sender",),
        schema: Mapping[str, Schema] | None = None,
        always: Mapping[str, str] | None = None,
    ) -> None:
        self.scopes = Scopes(tuple(scopes), frozenset(bound) & frozenset(scopes))
        self.others: tuple[Mapping[str, object], ...] = ({},) * (len(self.scopes.names) - 1)
        self.schema = dict(schema or {})
        self.always = dict(always or {})
        for scope, attributes in self.schema.items():
            if scope not in self.scopes.names:
                raise PredicateError(
                    "The schema has a scope that is not in the language.",
                    found=repr(scope),
                    expected=", ".join(self.scopes.names),
                )
            _check_kinds(scope, attributes)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.scopes.names, tuple(self.scopes.bound), self.schema, self.always)

    def suggest(self, path: tuple[str, ...]) -> str | None:
        """Return the name that a ``path`` without a scope means if its first part resembles one, else None.

        With a schema of the first scope the attributes are known, and nothing is guessed.
        """
        if len(path) == 1 or self.scopes.names[0] in self.schema:
            return None
        near = difflib.get_close_matches(path[0].lower(), self.scopes.names, n=1, cutoff=_SIMILARITY)
        return ".".join((near[0], *path[1:])) if near else None

    def kinds(self, name: tree.Name, text: str) -> int:
        """Return the kinds that a ``name`` may have; all, if its scope has no schema.

        Raises PredicateError for a name that the schema does not have; ``text`` is the predicate, for the
        error.
        """
        if name.scope not in self.schema:
            return EVERY_KIND
        return self.kinds_of(name.scope, name.path, text=text, at=name.at)

    def kinds_of(
        self, scope: str, path: tuple[str, ...], *, text: str | None = None, at: tuple[int, int] | None = None
    ) -> int:
        """Return the kinds of a ``path`` in a ``scope`` that the schema has.

        Raises PredicateError if the schema has no such path; ``text`` and ``at`` locate the error.
        """
        attributes: str | Schema = self.schema[scope]
        before = ""
        for part in path:
            if attributes == "point" and part in ("lat", "lon"):
                attributes = "number"
            elif attributes == "struct":
                return EVERY_KIND
            elif isinstance(attributes, str) or part not in attributes:
                known = list(attributes) if not isinstance(attributes, str) else []
                if attributes == "point":
                    known = ["lat", "lon"]
                raise _unknown(scope, before + part, before, known, text, at)
            else:
                attributes = attributes[part]
            before += f"{part}."
        if isinstance(attributes, str):
            # Data of a point may also be a struct with lat and lon.
            return KINDS[attributes]
        place = set(attributes) >= {"lat", "lon"} and all(attributes[x] == "number" for x in ("lat", "lon"))
        return POINT | STRUCT if place else STRUCT


MOBIUS = Language()
"""Scopes of Mobius: the record, its reader (unverified and verified), its writer."""


def _restore(
    scopes: tuple[str, ...],
    bound: tuple[str, ...],
    schema: Mapping[str, Schema],
    always: Mapping[str, str],
) -> Language:
    """Return an unpickled language; the Mobius language is the one object :data:`MOBIUS`."""
    if not schema and scopes == MOBIUS.scopes.names and frozenset(bound) == MOBIUS.scopes.bound:
        return MOBIUS
    return Language(scopes, bound=bound, schema=schema, always=always)


def _check_kinds(where: str, attributes: Schema) -> None:
    """Raise PredicateError if a schema, or one nested in it, has a kind that does not exist."""
    for name, kind in attributes.items():
        if isinstance(kind, str):
            if kind not in KINDS:
                raise PredicateError(
                    "The schema has a kind that does not exist.",
                    where=f"{where}.{name}",
                    found=repr(kind),
                    expected=", ".join(KINDS),
                )
        else:
            _check_kinds(f"{where}.{name}", kind)


def _unknown(
    scope: str, name: str, before: str, known: list[str], text: str | None, at: tuple[int, int] | None
) -> PredicateError:
    """Return the error for a name that a schema does not have; ``before`` is the part that it has."""
    close = difflib.get_close_matches(name.removeprefix(before), known, n=1, cutoff=0.5)
    return PredicateError(
        f"There is no {scope}.{name}.",
        text=text,
        at=at,
        expected=f"one of {listed(sorted(known))}" if known else "a value without attributes",
        remedy=f"did you mean {before + close[0]!r}?" if close else None,
    )
