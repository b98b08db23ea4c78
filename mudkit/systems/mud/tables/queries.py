"""What can be said of a query without asking anybody.

Which keys it can match, what it is a part of, into which tables it looks, and whether they
have what it names.
"""

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

__all__ = [
    "asks_for_keys_only",
    "check_names",
    "contains",
    "keys_of",
    "only_key",
    "tables_of",
    "tables_of_sent",
]

_KINDS: Final = {
    "text": "string",
    "number": "number",
    "boolean": "boolean",
    "point": "point",
    "any": "struct",
}
"""Of a table's types, in the language; whatever a struct has may have any name."""


def keys_of(predicate: Predicate | None) -> list[str] | None:
    """Give the only primary keys that a predicate can match; None: any.

    It sees ``key = 'a'`` and ``key IN ('a', 'b')``, alone or joined to something else by AND.
    """
    if predicate is None:
        return None
    slots, _ = _key_slots(predicate.form)
    if not slots:
        return None
    constants, first = predicate.constants, slots[0]
    if len(slots) == 1 and type(constants[first]) is str:
        return [constants[first]]
    return sorted(frozenset.intersection(*(_named(constants[slot]) for slot in slots)))


def _named(constant: Value | Members) -> frozenset[str]:
    """Give the keys that a constant names."""
    if isinstance(constant, Members):
        return constant.strings
    return frozenset((constant,)) if isinstance(constant, str) else frozenset()


def asks_for_keys_only(predicate: Predicate | None) -> bool:
    """Say whether a predicate matches the records of :func:`keys_of` whatever they hold, and no others."""
    return predicate is not None and _key_slots(predicate.form)[1]


def only_key(predicate: Predicate) -> str | None:
    """Return the key of a predicate that matches the record of one key whatever it holds, and no other."""
    slots, is_all = _key_slots(predicate.form)
    key = predicate.constants[slots[0]] if is_all and len(slots) == 1 else None
    return key if type(key) is str else None


def contains(larger: Predicate | None, smaller: Predicate | None) -> bool:
    """Say whether everything that the smaller one matches is certainly matched by the larger one.

    That is so when all conditions that the larger one joins by AND are among the smaller one's.
    """
    if larger is None:
        return True
    if smaller is None:
        return False
    known = {_written(part, smaller) for part in _parts(smaller)}
    return all(_written(part, larger) in known for part in _parts(larger))


def check_names(
    table: Table,
    predicate: Predicate | None,
    aggregates: Aggregates | None = None,
    joined: Iterable[Table] = (),
) -> None:
    """Refuse a read that names what its tables have not: it would read NULL, and most likely is misspelt.

    Parameters
    ----------
    table : Table
        Without a schema it may have any column. One that was taken out reads NULL.
    predicate : Predicate or None
    aggregates : Aggregates, optional
    joined : iterable of Table
        Those that the predicate looks into.

    Raises
    ------
    PredicateError
    """
    if aggregates is not None:
        _check_paths(table, aggregates.text, aggregates.looks_at)
    if predicate is None:
        return
    root = predicate.form.root
    _check_paths(table, predicate.text, (each for each in walk(root) if isinstance(each, Name)))
    by_name = {each.name: each for each in joined}
    for node in walk(root) if by_name else ():
        if isinstance(node, Call) and node.function.name == "lookup":
            name, column = (
                predicate.constants[each.slot] if isinstance(each, Constant) else None
                for each in (node.args[0], node.args[2])
            )
            if isinstance(column, str) and name in by_name:
                _check_path(_language(by_name[name]), tuple(column.split(".")), predicate.text, node.at)


def _check_paths(table: Table, text: str, names: Iterable[Name]) -> None:
    language = _language(table)
    for name in names:
        if name.scope == "record":
            _check_path(language, name.path, text, name.at)


def _check_path(language: Language, path: tuple[str, ...], text: str, at: tuple[int, int] | None) -> None:
    if language.schema:
        language.kinds_of("record", path, text=text, at=at)


def _language(table: Table) -> Language:
    """Give the language in which a table is read."""
    if table.schema is None:
        return MOBIUS
    columns = {name: _KINDS[kind] for name, kind in table.schema.items()}
    return Language(schema={"record": {"key": "string", **dict.fromkeys(table.removed, "struct"), **columns}})


def tables_of(predicate: Predicate | None) -> list[str]:
    """Give the tables that a predicate looks into: the limited joins of Mobius 3.1.

    Raises
    ------
    PredicateError
        It does not name one of them by a text: who may ask could not be said before it is evaluated.
    """
    if predicate is None or not (tables := _looked_into(predicate.form)):
        return []
    names = []
    for node in tables:
        name = predicate.constants[node.slot] if isinstance(node, Constant) else None
        if not isinstance(name, str):
            raise PredicateError(
                "A lookup names its table by a text.",
                text=predicate.text,
                at=node.at,
                expected="for instance lookup('members', author, 'city'), or a parameter",
            )
        names.append(name)
    return list(dict.fromkeys(names))


def tables_of_sent(sent: SentPredicate | None) -> list[str]:
    """Return the same for an encoded predicate."""
    if sent is None or "lookup" not in sent.text.lower():
        return []
    return tables_of(sent.predicate())


@functools.lru_cache(maxsize=4096)
def _looked_into(form: Form) -> tuple[Node, ...]:
    calls = [each for each in walk(form.root) if isinstance(each, Call) and each.function.name == "lookup"]
    return tuple(each.args[0] for each in calls)


def _parts(predicate: Predicate) -> tuple[Node, ...]:
    root = predicate.form.root
    return root.args if isinstance(root, And) else (root,)


def _written(part: Node, predicate: Predicate) -> str:
    """Write a condition down with its constants in place, wherever in the text it stands."""
    if isinstance(part, Constant):
        constant = predicate.constants[part.slot]
        if isinstance(constant, Members):
            members = (constant.numbers, constant.strings, constant.booleans, constant.points)
            return f"in {[sorted(each) for each in members]} {constant.kinds}"
        return f"constant {constant!r}"
    fields = {name: getattr(part, name) for name in part.__dataclass_fields__ if name != "at"}
    inner = []
    for name, value in fields.items():
        if isinstance(value, tuple):
            inner.append(
                name
                + "="
                + ",".join(_written(each, predicate) if hasattr(each, "at") else repr(each) for each in value)
            )
        else:
            inner.append(f"{name}={_written(value, predicate) if hasattr(value, 'at') else repr(value)}")
    return f"{type(part).__name__}({'; '.join(inner)})"


@functools.lru_cache(maxsize=4096)
def _key_slots(form: Form) -> tuple[tuple[int, ...], bool]:
    """Say which constants of a form are the keys that it can match, and whether it says nothing else."""
    root = form.root
    parts = root.args if isinstance(root, And) else (root,)
    slots = [_key_slot(part) for part in parts]
    return tuple(slot for slot in slots if slot is not None), None not in slots


def _key_slot(part: Node) -> int | None:
    match part:
        case Compare(operator="=", left=Name(scope="record", path=("key",)), right=Constant(slot=slot)):
            return slot
        case Compare(operator="=", left=Constant(slot=slot), right=Name(scope="record", path=("key",))):
            return slot
        case In(item=Name(scope="record", path=("key",)), members=Constant(slot=slot)):
            return slot
    return None
