"""Static analysis of queries: possible keys, joined tables, and unknown names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from mudkit.errors import PredicateError
from mudkit.predicates import Aggregates, Language, Predicate
from mudkit.predicates.language import MOBIUS
from mudkit.predicates.predicate import Form
from mudkit.predicates.tree import And, Call, Compare, Constant, In, Name, Node, walk
from mudkit.predicates.values import Members
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Value

_KINDS: Final = {
    "text": "string",
    "number": "number",
    "boolean": "boolean",
    "point": "point",
    "any": "struct",
}
"""Kinds of the predicate language by type of a column; a struct accepts any field name."""


def keys_of(predicate: Predicate | None) -> list[str] | None:
    """Return the only primary keys that a predicate can match; None: any.

    It recognises ``key = 'a'`` and ``key IN ('a', 'b')``, alone or in a conjunction.
    """
    if predicate is None:
        return None
    slots, _ = _key_slots(predicate.form)
    if not slots:
        return None
    constants, first = predicate.constants, slots[0]
    if len(slots) == 1 and type(constants[first]) is str:
        return [constants[first]]
    return sorted(frozenset.intersection(*(_keys_in(constants[slot]) for slot in slots)))


def _keys_in(constant: Value | Members) -> frozenset[str]:
    """Return the keys in a constant of a condition: a text, or the texts of a list."""
    if isinstance(constant, Members):
        return constant.strings
    return frozenset((constant,)) if isinstance(constant, str) else frozenset()


def asks_for_keys_only(predicate: Predicate | None) -> bool:
    """Return whether a predicate matches exactly the records of :func:`keys_of`, whatever they contain."""
    return predicate is not None and _key_slots(predicate.form)[1]


def key_of_point_query(predicate: Predicate) -> str | None:
    """Return the key, if a predicate matches exactly the record of one key; else None."""
    slot = _point_query_slot(predicate.form)
    key = None if slot is None else predicate.constants[slot]
    return key if type(key) is str else None


def check_names(
    table: Table,
    predicate: Predicate | None,
    aggregates: Aggregates | None = None,
    joined: Iterable[Table] = (),
) -> None:
    """Raise PredicateError for a read of a column that its table, or a table in ``joined``, does not have.

    It would read NULL, and is most likely misspelt. A table without a schema has all columns; a removed
    column reads NULL.
    """
    if aggregates is not None:
        _check_paths(table, aggregates.text, aggregates.looks_at)
    if predicate is None:
        return
    root = predicate.form.root
    _check_paths(table, predicate.text, (node for node in walk(root) if isinstance(node, Name)))
    by_name = {other.name: other for other in joined}
    for node in walk(root) if by_name else ():
        if isinstance(node, Call) and node.function.name == "lookup":
            name, column = (
                predicate.constants[argument.slot] if isinstance(argument, Constant) else None
                for argument in (node.args[0], node.args[2])
            )
            if isinstance(column, str) and name in by_name:
                _check_path(_language_of(by_name[name]), tuple(column.split(".")), predicate.text, node.at)


def check_column(table: Table, path: tuple[str, ...], text: str) -> None:
    """Raise PredicateError for a column, named in a text, that the table does not have."""
    _check_path(_language_of(table), path, text, None)


def _check_paths(table: Table, text: str, names: Iterable[Name]) -> None:
    """Raise PredicateError for a column, among names of a predicate, that the table does not have."""
    language = _language_of(table)
    for name in names:
        if name.scope == "record":
            _check_path(language, name.path, text, name.at)


def _check_path(language: Language, path: tuple[str, ...], text: str, at: tuple[int, int] | None) -> None:
    """Raise PredicateError for a column that the schema of a language does not have."""
    if language.schema:
        language.kinds_of("record", path, text=text, at=at)


def _language_of(table: Table) -> Language:
    """Return the language of predicates on a table: it refuses columns that the table does not have.

    A removed column may be named: no version has it any more. Without a schema, any column may be named.
    """
    if table.schema is None:
        return MOBIUS
    columns = {name: _KINDS[kind] for name, kind in table.schema.items()}
    return Language(schema={"record": {"key": "string", **dict.fromkeys(table.removed, "struct"), **columns}})


def tables_of(predicate: Predicate | None) -> list[str]:
    """Return the tables that a predicate looks up records in: the limited joins of Mobius 3.1.

    Raises
    ------
    PredicateError
        A table is not named by a constant: access could not be checked before the evaluation.
    """
    if predicate is None or not (tables := _table_arguments(predicate.form)):
        return []
    names = []
    for node in tables:
        name = predicate.constants[node.slot] if isinstance(node, Constant) else None
        if not isinstance(name, str):
            raise PredicateError(
                "The table of a lookup must be a text.",
                text=predicate.text,
                at=node.at,
                expected="for instance lookup('members', author, 'city'), or a parameter",
            )
        names.append(name)
    return list(dict.fromkeys(names))


def tables_of_sent(sent: SentPredicate | None) -> list[str]:
    """Return the result of :func:`tables_of` for an encoded predicate."""
    if sent is None or "lookup" not in sent.text.lower():
        return []
    return tables_of(sent.predicate())


@functools.lru_cache(maxsize=4096)
def _table_arguments(form: Form) -> tuple[Node, ...]:
    """Return the first argument, the table, of each ``lookup`` in a predicate."""
    calls = [node for node in walk(form.root) if isinstance(node, Call) and node.function.name == "lookup"]
    return tuple(call.args[0] for call in calls)


def _conditions(form: Form) -> tuple[Node, ...]:
    """Return the conditions of a conjunction; of any other form, the form itself."""
    return form.root.args if isinstance(form.root, And) else (form.root,)


@functools.lru_cache(maxsize=4096)
def _key_slots(form: Form) -> tuple[tuple[int, ...], bool]:
    """Return the constants that are the possible keys, and whether the form has no other condition."""
    slots = [_key_slot(part) for part in _conditions(form)]
    return tuple(slot for slot in slots if slot is not None), None not in slots


@functools.lru_cache(maxsize=4096)
def _point_query_slot(form: Form) -> int | None:
    """Return the constant that is the only possible key of a form without another condition."""
    slots, is_all = _key_slots(form)
    return slots[0] if is_all and len(slots) == 1 else None


def _key_slot(part: Node) -> int | None:
    """Return the number of the constant that a condition compares the key with; None: another condition."""
    match part:
        case Compare(operator="=", left=Name(scope="record", path=("key",)), right=Constant(slot=slot)):
            return slot
        case Compare(operator="=", left=Constant(slot=slot), right=Name(scope="record", path=("key",))):
            return slot
        case In(item=Name(scope="record", path=("key",)), members=Constant(slot=slot)):
            return slot
    return None
