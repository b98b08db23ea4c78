"""The predicate: a condition as text, its constants, and its evaluators."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import words
from mudkit.display import View, one_line
from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.constants import check_mapping, list_of, parameter
from mudkit.predicates.form import Form, check_constants, form_of
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.parse import Parser
from mudkit.predicates.parsed import Bound, ListOf, Parameter, Parsed, typed
from mudkit.predicates.values import (
    NUMBER,
    STRING,
    attribute,
    kind_of,
    value,
)

if TYPE_CHECKING:
    from mudkit.predicates.layout import Layout

__all__ = ["Predicate"]

_KEPT: Final = 4096
_EMPTY: Final[Mapping[str, Any]] = {}
_parsed: OrderedDict[tuple[str, Language], Parsed] = OrderedDict()


class _Unbound(enum.Enum):
    """The constant of a name whose scope is not bound yet."""

    UNBOUND = 0


_UNBOUND: Final = _Unbound.UNBOUND
_KINDS: Final[dict[type, int]] = {float: NUMBER, str: STRING, _Unbound: -1}


class Predicate:
    """Condition over records, their readers and their writers (Mobius 2.2).

    Parameters
    ----------
    text : str
        SQL condition, such as ``topic = 'news' AND price < :most``.
    **parameters
        Constants for ``:name`` in the text: a number, string, boolean, ``None``, point (``{"lat", "lon"}`` or
        a pair), or after ``IN`` a list of these.

    Raises
    ------
    PredicateError
        The text is not a condition of the language, or a parameter is missing, unknown or of a wrong kind.
        The error marks the place with a caret.

    Notes
    -----
    Writers name their intended readers, and readers the records they want. Each text is parsed once and
    each shape compiled once per process; caches hold the 4,096 used last. Chained comparisons such as
    ``1 < n < 3`` or ``n = 1 IS NULL`` are refused, since SQL engines evaluate them differently.

    Examples
    --------
    >>> p = Predicate("topic = 'sports' AND price BETWEEN :lo AND :hi", lo=5, hi=10)
    >>> p({"topic": "sports", "price": 7})
    True
    >>> p({"topic": "sports"}) is None
    True
    """

    __slots__ = ("_parsed", "constants", "form", "language")

    def __init__(self, text: str, /, **parameters: Any) -> None:
        self._make(text, parameters, MOBIUS)

    @classmethod
    def parse(
        cls, text: str, parameters: Mapping[str, Any] | None = None, *, language: Language = MOBIUS
    ) -> Predicate:
        """Build a predicate of another language than that of Mobius, or one with a schema.

        Parameters
        ----------
        text : str
        parameters : mapping of str to object, optional
        language : Language
            Scopes and, if known, their attributes.

        Raises
        ------
        PredicateError
            As for the class; also if the schema does not have a name.
        """
        made = cls.__new__(cls)
        made._make(text, parameters or {}, language)
        return made

    def _make(self, text: str, parameters: Mapping[str, Any], language: Language) -> None:
        self.language = language
        self._parsed = parsed = _parse(text, language, parameters)
        known: set[str] = set()
        constants = []
        for slot, source in enumerate(parsed.sources):
            if isinstance(source, Parameter):
                constants.append(parameter(parsed, slot, source.name, parameters, known))
            elif isinstance(source, ListOf):
                constants.append(list_of(parsed, slot, source, parameters, known))
            else:
                constants.append(_UNBOUND if isinstance(source, Bound) else source)
        if len(known) < len(parameters):
            unused = [name for name in parameters if name not in known]
            raise PredicateError(
                f"There is no parameter :{unused[0]} in the predicate.",
                text=text,
                found=", ".join(unused),
                expected=", ".join(f":{name}" for name in sorted(known)) or "no parameters",
            )
        self._settle(tuple(constants))

    def _settle(self, constants: tuple[Any, ...]) -> None:
        parsed = self._parsed
        kinds = tuple([_KINDS.get(type(c)) or kind_of(c) for c in constants])
        form = parsed.forms.get(kinds)
        if form is None:
            form = parsed.forms[kinds] = form_of(typed(parsed, kinds), self.language, parsed.text)
        if form.patterns:
            check_constants(form, constants, parsed.text)
        self.form: Form = form
        """What it shares with all predicates of its signature."""
        self.constants = constants
        """Its constants, by slot."""

    @property
    def text(self) -> str:
        """Text of the condition."""
        return self._parsed.text

    @property
    def signature(self) -> str:
        """Shape: names, operators and functions, with ``?kind`` for each constant.

        Equal for equal shapes, whatever their constants, spacing or comments.
        """
        return self.form.signature

    @property
    def unbound(self) -> list[str]:
        """Names that must be bound before evaluation, for instance ``sender.loc``."""
        return list(self.form.unbound)

    def names(self) -> dict[str, set[str]]:
        """Return the names in the condition, by scope.

        Returns
        -------
        dict of str to set of str
            All scopes of the language; paths into structs with dots.
        """
        names: dict[str, set[str]] = {scope: set() for scope in self.language.scopes.names}
        for scope, path in self.form.names:
            names[scope].add(".".join(path))
        return names

    def bind(self, **scopes: Mapping[str, Any]) -> Predicate:
        """Replace the names of a scope by constants, as a writer's device does at the write.

        Parameters
        ----------
        **scopes : mapping
            Data of the scope, for instance ``sender={"loc": (30.27, -97.74)}``; missing names are NULL.

        Returns
        -------
        Predicate
            New predicate.

        Raises
        ------
        PredicateError
            The language does not bind this scope, or its data are not a mapping.
        """
        for scope, data in scopes.items():
            if scope not in self.language.scopes.bound:
                bound = ", ".join(sorted(self.language.scopes.bound)) or "no scope"
                raise PredicateError(
                    "This scope is not bound when a predicate is written.", found=scope, expected=bound
                )
            check_mapping(scope, data)
        constants = list(self.constants)
        for slot, source in enumerate(self._parsed.sources):
            if type(source) is Bound and source.scope in scopes:
                data = scopes[source.scope]
                for part in source.path:
                    data = attribute(data, part)
                constants[slot] = value(data)
        made = Predicate.__new__(Predicate)
        made.language = self.language
        made._parsed = self._parsed
        made._settle(tuple(constants))
        return made

    def __call__(
        self, record: Mapping[str, Any] = _EMPTY, /, *, tables: Mapping[str, Any] | None = None, **scopes: Any
    ) -> bool | None:
        """Evaluate for one record.

        Parameters
        ----------
        record : mapping
            Data of the first scope.
        tables : mapping of str to mapping, optional
            The tables for ``lookup``: by name of the table, records by primary key.
        **scopes : mapping
            Data of the others, for instance ``receiver={"age": 30}``. A scope that is not given is empty: its
            names are NULL.

        Returns
        -------
        bool or None
            TRUE, FALSE or NULL (``None``). A record matches when the result is TRUE.

        Raises
        ------
        PredicateError
            A scope is not bound (it says which names are missing), is unknown or no mapping; a ``lookup`` has
            no table; a user's function failed.
        """
        if scopes or type(record) is not dict or self.form.unbound:
            return self.form.evaluate(self.constants, tables, *self.arguments(record, scopes))
        return self.form.evaluate(self.constants, tables, record, *self.language.others)

    def arguments(self, record: Mapping[str, Any], scopes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the data of all scopes in the language's order, after checking them."""
        names = self.language.scopes.names
        if type(record) is not dict:
            check_mapping(names[0], record)
        data = [record]
        known = 0
        for name in names[1:]:
            given = scopes.get(name)
            if given is None:
                data.append(_EMPTY)
                known += name in scopes
                continue
            if type(given) is not dict:
                check_mapping(name, given)
            data.append(given)
            known += 1
        if known < len(scopes):
            wrong = ", ".join(scopes.keys() - set(names[1:]))
            raise PredicateError("There is no such scope.", found=wrong, expected=", ".join(names[1:]))
        if self.form.unbound:
            self._check_bound(scopes)
        return data

    def _check_bound(self, scopes: Mapping[str, Any]) -> None:
        for scope, _ in self.form.names:
            if scope in self.language.scopes.bound and scope not in scopes:
                raise PredicateError(
                    f"The predicate is not bound: {', '.join(self.unbound)} is missing.",
                    text=self.text,
                    remedy=f"bind({scope}={{…}}) when it is written",
                )

    def numpy(
        self,
        columns: Mapping[str, Any],
        /,
        *,
        tables: Mapping[str, Any] | None = None,
        **scopes: Mapping[str, Any],
    ) -> np.ma.MaskedArray[Any, Any]:
        """Evaluate many records at once with NumPy.

        Parameters
        ----------
        columns : mapping of str to array_like
            Columns of the first scope by name: arrays of numbers, booleans, times, strings or objects, of
            points an (n, 2) array, of structs an object array or one column a path (``"loc.lat"``). A masked
            value is NULL. A scalar (a string, number, tuple or dict) applies to all records.
        tables : mapping, optional
            Tables for ``lookup``.
        **scopes : mapping of str to array_like
            Columns of the other scopes.

        Returns
        -------
        masked array of bool, shape (n,)
            NULL is masked, with ``False`` as data, so that ``rows[result]`` selects the matches.

        Raises
        ------
        PredicateError
            Columns differ in length, or the predicate has a function without a NumPy form.
        """
        from mudkit.predicates import vectors

        data = self.arguments(columns, scopes)
        given = dict(zip(self.language.scopes.names, data, strict=True))
        return vectors.evaluate(self.form.root, self.constants, given, tables, self.text)

    def sql(self, dialect: Literal["sqlite", "spark"], layout: Layout) -> str:
        """Return a SQL expression that is TRUE, FALSE or NULL exactly as in Python.

        Parameters
        ----------
        dialect : {'sqlite', 'spark'}
            Dialect. For SQLite, call :func:`mudkit.predicates.register_functions` on the connection.
        layout : Layout
            Columns of the attributes of each scope.

        Returns
        -------
        str
            Expression; constants are quoted literals.

        Raises
        ------
        PredicateError
            The layout lacks a name, a scope is not bound, or the dialect has no form of a function.
        """
        from mudkit.predicates import dialects

        self._check_bound({})
        return dialects.write(self.form.root, self.constants, dialect, layout, self.text)

    def explain(self) -> str:
        """Return the tree as text, one node per line with its kinds, and a note for names that look misspelt.

        A name with a misspelt scope is a name of the record, and NULL if no record has it.
        """
        lines = [tree.outline(self.form.root, self.constants)]
        for scope, path in self.form.names:
            if (meant := self.language.meant(scope, path)) is not None:
                lines.append(
                    f"{path[0]} is no scope: this looks at {'.'.join((scope, *path))}; did you mean {meant}?"
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        constants = [c for c in self.constants if c is not _UNBOUND]
        return f"Predicate({self.text!r}" + (f", constants={constants!r})" if constants else ")")

    def _repr_html_(self) -> str:
        names = [".".join((scope, *path)) for scope, path in self.form.names]
        constants = [constant for constant in self.constants if constant is not _UNBOUND]
        return View(
            "Predicate",
            {"reads": words.listing(names, 8), "constants": constants},
            text=one_line(self.text, 400),
        ).html()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predicate):
            return NotImplemented
        return self.form is other.form and self.constants == other.constants

    def __hash__(self) -> int:
        return hash(self.signature)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.text, self.language, self.constants)

    @classmethod
    def restore(cls, text: str, constants: Iterable[Any], language: Language = MOBIUS) -> Predicate:
        """Rebuild a predicate from its text and its :attr:`constants`."""
        return _restored(text, language, tuple(constants))


def _restored(text: str, language: Language, constants: tuple[Any, ...]) -> Predicate:
    made = Predicate.__new__(Predicate)
    made.language = language
    made._parsed = _parse(text, language)
    made._settle(constants)
    return made


def _parse(text: str, language: Language, parameters: Mapping[str, Any] = _EMPTY) -> Parsed:
    try:
        parsed = _parsed.get((text, language))
    except TypeError:  # not even hashable: the parser says what was expected
        parsed = None
    if parsed is not None and (
        not parsed.functions or all(functions.find(f.name) is f for f in parsed.functions)
    ):
        _parsed.move_to_end((text, language))
        return parsed
    parsed = Parser(text, language.scopes, parameters).expression()
    _parsed[text, language] = parsed
    if len(_parsed) > _KEPT:
        _parsed.popitem(last=False)
    return parsed
