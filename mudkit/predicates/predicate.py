"""The predicate: a condition as text, its constants, and its form.

A form is the checked tree of a signature, with its compiled functions. Forms are cached by signature.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import View, one_line
from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.parse import Bound, ListOf, Parameter, Parsed, Parser, with_kinds
from mudkit.predicates.python import compile_tree
from mudkit.predicates.refusals import check_comparisons, check_constants, check_tree, list_limited
from mudkit.predicates.tree import Call, Constant, Name, Node
from mudkit.predicates.values import (
    MAX_INTEGER,
    NUMBER,
    STRING,
    STRUCT,
    Members,
    attribute,
    kind_of,
    value,
)

if TYPE_CHECKING:
    from mudkit.predicates.layout import Layout

MAX_LIST: Final = 10_000
"""Maximum number of items in the list of an ``IN``."""
MAX_CACHED: Final = 4096
"""Maximum number of parsed texts, and of forms, that are cached."""
_EMPTY: Final[Mapping[str, Any]] = {}
_parsed: OrderedDict[tuple[str, Language], Parsed] = OrderedDict()


class _Unbound(enum.Enum):
    """Constant of a name whose scope is not bound yet."""

    UNBOUND = 0


_UNBOUND: Final = _Unbound.UNBOUND
_KINDS: Final[dict[type, int]] = {float: NUMBER, str: STRING, _Unbound: -1}


class Predicate:
    """Condition over records, their readers and their writers (Mobius 3, 3.1).

    Parameters
    ----------
    text : str
        A SQL condition. The guide to predicates describes the language.
    **parameters
        Constants for ``:name`` in the text: a number, string, boolean, ``None``, point (``{"lat", "lon"}`` or
        a pair), or after ``IN`` a list of these.

    Raises
    ------
    PredicateError
        The text is not a condition of the language, or a parameter is missing, unknown or of a kind that
        cannot be a constant. The error marks the place with a caret.

    Notes
    -----
    Each text is parsed once and each shape compiled once in a process; the 4,096 used last are cached.
    Chained comparisons, such as ``1 < n < 3``, are refused: engines disagree on their meaning.

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
        self._initialize(text, parameters, MOBIUS)

    @classmethod
    @check_arguments(types=False)
    def parse(
        cls, text: str, parameters: Mapping[str, Any] | None = None, *, language: Language = MOBIUS
    ) -> Predicate:
        """Build a predicate of a given language, also with a schema that its names are checked against.

        Parameters
        ----------
        text : str
            A SQL condition.
        parameters : mapping of str to object, optional
            Constants for ``:name`` in the text.
        language : Language
            Scopes, and optionally attributes, that the predicate may name.

        Raises
        ------
        PredicateError
            As for the class; also if the schema does not have a name.
        """
        predicate = cls.__new__(cls)
        predicate._initialize(text, parameters or {}, language)
        return predicate

    def _initialize(self, text: str, parameters: Mapping[str, Any], language: Language) -> None:
        """Parse the text and set the constants from the parameters, whose names must be those of the text."""
        self.language = language
        self._parsed = parsed = _parse(text, language, parameters)
        if parameters.keys() != parsed.parameters:
            raise _misnamed(parsed, parameters)
        constants = []
        for slot, source in enumerate(parsed.sources):
            if type(source) is Parameter:
                constants.append(_constant(parameters[source.name], source.name, parsed, slot))
            elif isinstance(source, ListOf):
                constants.append(_list_of(parsed, slot, source, parameters))
            else:
                constants.append(_UNBOUND if isinstance(source, Bound) else source)
        self._set_constants(tuple(constants))
        if self.form.limited:
            check_constants(self.form.limited, self.constants, parsed)

    def _set_constants(self, constants: tuple[Any, ...]) -> None:
        """Set the constants and the form that belongs to their kinds."""
        parsed = self._parsed
        types = tuple(map(type, constants))
        form = parsed.forms_by_types.get(types)
        if form is None:
            form = self._form(types, constants)
        self.form: Form = form
        """Checked tree and compiled functions, shared by all predicates of its signature."""
        self.constants = constants
        """Constants, by slot."""

    def _form(self, types: tuple[type, ...], constants: tuple[Any, ...]) -> Form:
        """Return the form for the kinds of the constants."""
        parsed = self._parsed
        kinds = tuple([_KINDS.get(type(c)) or kind_of(c) for c in constants])
        form: Form | None = parsed.forms.get(kinds)
        if form is None:
            form = parsed.forms[kinds] = _form_of(with_kinds(parsed, kinds), self.language, parsed)
        if _KINDS.keys() >= set(types):  # the types alone decide the kinds
            parsed.forms_by_types[types] = form
        return form

    @property
    def text(self) -> str:
        """Text of the condition."""
        return self._parsed.text

    @property
    def signature(self) -> str:
        """Shape of the predicate: names, operators and functions, with ``?kind`` for each constant."""
        return self.form.signature

    @property
    def unbound(self) -> list[str]:
        """Names that must be bound before evaluation, for instance ``sender.loc``."""
        return list(self.form.unbound)

    def names(self) -> dict[str, set[str]]:
        """Return the names that the predicate reads, by scope; dots separate the parts of paths."""
        names: dict[str, set[str]] = {scope: set() for scope in self.language.scopes.names}
        for scope, path in self.form.names:
            names[scope].add(".".join(path))
        return names

    def bind(self, **scopes: Mapping[str, Any]) -> Predicate:
        """Return a predicate with the names of a scope replaced by constants: the data of the writer.

        Parameters
        ----------
        **scopes : mapping
            Data of the scope, for instance ``sender={"loc": (30.27, -97.74)}``. Missing attributes are NULL.

        Raises
        ------
        PredicateError
            The language does not bind this scope, or its data are not a mapping.
        """
        for scope, data in scopes.items():
            if scope not in self.language.scopes.bound:
                known = ", ".join(sorted(self.language.scopes.bound)) or "no scope"
                raise PredicateError(
                    "This scope is not bound when a predicate is written.", found=scope, expected=known
                )
            check_mapping(scope, data)
        constants = list(self.constants)
        for slot, source in enumerate(self._parsed.sources):
            if type(source) is Bound and source.scope in scopes:
                data = scopes[source.scope]
                for part in source.path:
                    data = attribute(data, part)
                constants[slot] = value(data)
        return _built(self._parsed, self.language, constants)

    def __call__(
        self, record: Mapping[str, Any] = _EMPTY, /, *, tables: Mapping[str, Any] | None = None, **scopes: Any
    ) -> bool | None:
        """Evaluate for one record.

        Parameters
        ----------
        record : mapping
            Data of the first scope.
        tables : mapping of str to mapping, optional
            Tables for ``lookup``: by name of the table, records by primary key.
        **scopes : mapping
            Data of the other scopes, for instance ``receiver={"age": 30}``. The names of a missing scope are
            NULL.

        Returns
        -------
        bool or None
            TRUE, FALSE or NULL (``None``). A record matches when the result is TRUE.

        Raises
        ------
        PredicateError
            A scope is not bound (the error lists the missing names), unknown or not a mapping; ``lookup`` has
            no table; a user's function raised an exception.
        """
        if scopes or type(record) is not dict or self.form.unbound:
            return self.form.evaluate(self.constants, tables, *self.arguments(record, scopes))
        return self.form.evaluate(self.constants, tables, record, *self.language.others)

    def evaluator(
        self, *, tables: Mapping[str, Any] | None = None, **scopes: Mapping[str, Any]
    ) -> Callable[[dict[str, Any]], bool | None]:
        """Return a function that evaluates for one record, for many records with the same other scopes.

        Parameters
        ----------
        tables, **scopes
            As for a call.

        Raises
        ------
        PredicateError
            As for a call; the function raises what concerns its record.
        """
        _, *others = self.arguments({}, scopes)
        evaluate, constants = self.form.evaluate, self.constants
        return lambda record: evaluate(constants, tables, record, *others)

    def arguments(self, record: Mapping[str, Any], scopes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return ``record`` and the data of the other scopes, in the language's order; ``{}`` if missing.

        Raises PredicateError for data that are no mapping, an unknown scope, or one that must be bound
        first.
        """
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
            unknown = ", ".join(scopes.keys() - set(names[1:]))
            raise PredicateError("There is no such scope.", found=unknown, expected=", ".join(names[1:]))
        if self.form.unbound:
            self._check_bound(scopes)
        return data

    def _check_bound(self, scopes: Mapping[str, Any]) -> None:
        """Raise PredicateError if the predicate reads a bound scope that is not among ``scopes``."""
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
        """Evaluate for many records at once, with NumPy.

        Parameters
        ----------
        columns : mapping of str to array_like
            Columns of the first scope by name: arrays of numbers, booleans, times, strings or objects; for
            points an (n, 2) array; for structs an object array, or one column for each path (``"loc.lat"``).
            A masked value is NULL. A value that is not an array (string, number, tuple, dict) applies to all
            records.
        tables : mapping, optional
            Tables for ``lookup``.
        **scopes : mapping of str to array_like
            Columns of the other scopes.

        Returns
        -------
        masked array of bool, shape (n,)
            NULL is masked, with ``False`` beneath, so that ``rows[result]`` keeps the records that match.

        Raises
        ------
        PredicateError
            Columns differ in length, or a function of the predicate has no NumPy form.
        """
        from mudkit.predicates import vectors

        data = self.arguments(columns, scopes)
        given = dict(zip(self.language.scopes.names, data, strict=True))
        return vectors.evaluate(self.form.root, self.constants, given, tables, self.text)

    @check_arguments(types=False)
    def sql(self, layout: Layout) -> str:
        """Return an expression of Spark SQL that is TRUE, FALSE or NULL exactly as the predicate in Python.

        Parameters
        ----------
        layout : Layout
            Columns that hold the attributes of each scope.

        Returns
        -------
        str
            Constants are quoted literals. With ``matches`` it needs the function ``mudkit_matches``, which
            :func:`mudkit.pipeline.column` registers in the session.

        Raises
        ------
        PredicateError
            Spark lacks a function, the layout lacks a name, a scope is not bound, or the expression would be
            longer than 1 MB.
        """
        from mudkit.predicates.layout import Layout
        from mudkit.predicates.spark import SparkWriter

        self._check_bound({})
        if not isinstance(layout, Layout):
            raise PredicateError("Expected a Layout.", found=type(layout).__name__)
        return SparkWriter(self.constants, layout, self.text).write(self.form.root)

    def explain(self) -> str:
        """Return a drawing of the tree, a node a line, with known kinds."""
        return tree.outline(self.form.root, self.constants)

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
        # Of the constants, too: queries of one shape are keys of large dictionaries and caches.
        try:
            return hash((self.form.signature, self.constants))
        except TypeError:  # a struct of a writer's data is not hashable
            return hash(self.form.signature)

    def __reduce__(self) -> tuple[Any, ...]:
        return Predicate.restore, (self.text, self.constants, self.language)

    @classmethod
    @check_arguments(types=False)
    def restore(cls, text: str, constants: Iterable[Any], language: Language = MOBIUS) -> Predicate:
        """Build the predicate of a text and its :attr:`constants`.

        Parameters
        ----------
        text : str
        constants : iterable
            Constants, by slot.
        language : Language
        """
        return _built(_parse(text, language), language, constants)


def _built(parsed: Parsed, language: Language, constants: Iterable[Any]) -> Predicate:
    """Return a predicate of a parsed text and its constants, which are not checked."""
    predicate = Predicate.__new__(Predicate)
    predicate.language = language
    predicate._parsed = parsed
    predicate._set_constants(tuple(constants))
    return predicate


def _parse(text: str, language: Language, parameters: Mapping[str, Any] = _EMPTY) -> Parsed:
    """Return the parsed text, from the cache unless a function in it was registered anew."""
    key = text, language
    try:
        parsed = _parsed.get(key)
    except TypeError:  # not hashable: the parser raises the error
        parsed = None
    if parsed is not None and (
        not parsed.functions or all(functions.find(f.name) is f for f in parsed.functions)
    ):
        _parsed.move_to_end(key)
        return parsed
    parsed = Parser(text, language, parameters).expression()
    _parsed[key] = parsed
    if len(_parsed) > MAX_CACHED:
        _parsed.popitem(last=False)
    return parsed


class Form:
    """Checked tree of a signature, and its compiled functions.

    ``key`` is equal for forms of the same signature, also when one was evicted and built again.
    """

    def __init__(
        self, root: Node, nodes: tuple[Node, ...], signature: str, key: Hashable, language: Language
    ) -> None:
        self.root = root
        self.scopes = language.scopes.names
        self.signature = signature
        self.key = key
        self.names = tuple(dict.fromkeys([(n.scope, n.path) for n in nodes if type(n) is Name]))
        bound = language.scopes.bound
        self.unbound = tuple([".".join((scope, *path)) for scope, path in self.names if scope in bound])
        self.limited = list_limited(nodes)

    @cached_property
    def evaluate(self) -> Callable[..., bool | None]:
        """Compiled predicate: ``(constants, tables, *scopes)`` to TRUE, FALSE or NULL."""
        return compile_tree(self.root, self.scopes)

    @cached_property
    def matches(self) -> Callable[..., bool]:
        """Compiled test for TRUE; stops at the first part that is not TRUE."""
        return compile_tree(self.root, self.scopes, only_true=True)


class _Key(NamedTuple):
    """Identity of a form: all that its compiled functions depend on."""

    signature: str
    slots: str
    """Signature with the numbers of the slots, where a name that is bound has one slot for all its places."""
    scopes: tuple[str, ...]
    functions: tuple[Any, ...]


_forms: OrderedDict[_Key, Form] = OrderedDict()


def _form_of(root: Node, language: Language, parsed: Parsed) -> Form:
    """Return the form of a tree whose constants have kinds; PredicateError if names or kinds do not fit."""
    text = parsed.text
    kinds = slots = ""
    if language.schema:
        named = {
            id(node): tree.Name(node.scope, node.path, node.at, language.kinds(node, text))
            for node in tree.walk(root)
            if isinstance(node, Name)
        }
        root = tree.replace_nodes(root, named)
        kinds = "".join(f"|{node.kinds}" for node in tree.walk(root) if isinstance(node, Name))
    nodes = tuple(tree.walk(root))
    check_tree(root, nodes, text)
    bound = [isinstance(parsed.sources[node.slot], Bound) for node in nodes if type(node) is Constant]
    if any(bound):
        slots = tree.text_of(root, lambda node: f"?{node.slot}")
    else:
        check_comparisons(nodes, parsed)
    users = tuple([node.function for node in nodes if type(node) is Call and node.function.is_user])
    signature = tree.text_of(root)
    key = _Key(signature + kinds, slots, language.scopes.names, users)
    form = _forms.get(key)
    if form is None:
        form = _forms[key] = Form(root, nodes, signature, key, language)
        if len(_forms) > MAX_CACHED:
            _forms.popitem(last=False)
    else:
        _forms.move_to_end(key)
    return form


def _misnamed(parsed: Parsed, given: Mapping[str, Any]) -> PredicateError:
    """Return the error for a parameter that is missing, or that the predicate does not have."""
    for slot, source in enumerate(parsed.sources):
        for item in source.items if isinstance(source, ListOf) else (source,):
            if isinstance(item, Parameter) and item.name not in given:
                return PredicateError(
                    f"The parameter :{item.name} is missing.",
                    text=parsed.text,
                    at=parsed.slots[slot].at,
                    found=", ".join(given) or "no parameters",
                    remedy=f"Predicate(…, {item.name}=…)",
                )
    unused = [name for name in given if name not in parsed.parameters]
    return PredicateError(
        f"There is no parameter :{unused[0]} in the predicate.",
        text=parsed.text,
        found=", ".join(unused),
        expected=", ".join(f":{name}" for name in sorted(parsed.parameters)) or "no parameters",
    )


def _constant(data: Any, name: str, parsed: Parsed, slot: int) -> Any:
    """Convert data to a constant for a slot; data that would become NULL are an error."""
    kind = type(data)
    if kind is float:
        if data - data == 0.0:  # neither NaN nor infinite
            return data
    elif kind is str and data.isascii() and "\0" not in data:
        return data
    constant = value(data)
    if constant is None and data is not None:
        summary = f":{name} cannot be used as a constant."
        if isinstance(data, (int, np.integer)):
            summary = f":{name} is an integer too large to be exact."
        elif isinstance(data, (float, np.floating)) and not math.isfinite(data):
            summary = f":{name} is not a finite number."
        elif isinstance(data, str):
            summary = f":{name} is not valid text: it contains U+0000 or half of a surrogate pair."
        raise PredicateError(
            summary,
            text=parsed.text,
            at=parsed.slots[slot].at,
            found=f"{type(data).__name__}: {data!r}"[:80],
            expected=f"a number (if whole up to {MAX_INTEGER:,}), a string, a boolean, None or a point "
            "within ±90 and ±180",
        )
    if kind_of(constant) == STRUCT:
        raise PredicateError(
            f":{name} cannot be used as a constant.",
            text=parsed.text,
            at=parsed.slots[slot].at,
            found=f"{data!r}"[:80],
            expected='a number, string, boolean, None, or a point such as {"lat": 30.3, "lon": -97.7}',
        )
    return constant


def _list_of(parsed: Parsed, slot: int, source: ListOf, given: Mapping[str, Any]) -> Members:
    """Return the constant list of an ``IN``."""
    items: list[Any] = []
    for item in source.items:
        if type(item) is not Parameter:
            items.append(item)
            continue
        members = given[item.name]
        if len(source.items) == 1 and isinstance(members, (list, tuple, set, frozenset, np.ndarray)):
            if len(members) > MAX_LIST:
                raise PredicateError(
                    f"The list :{item.name} is too long.",
                    text=parsed.text,
                    at=parsed.slots[slot].at,
                    found=f"{len(members):,} items",
                    expected=f"at most {MAX_LIST:,}",
                )
            items += [_constant(member, item.name, parsed, slot) for member in members]
        else:
            items.append(_constant(members, item.name, parsed, slot))
    return Members.of(items)


def check_mapping(scope: str, data: Any) -> None:
    """Raise an error if the data of a scope are not a mapping."""
    if not isinstance(data, Mapping):
        raise PredicateError(
            f"The data of the scope {scope} are not a mapping.",
            found=type(data).__name__,
            expected='a mapping of names to values such as {"price": 7}',
        )
