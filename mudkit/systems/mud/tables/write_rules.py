"""Rules of who may write: conditions over the stored record, the new one, and the identity of the writer.

A rule is given for a table (``write_rule`` of ``create``) or a record (``may_write`` of ``write``); both must
be TRUE. FALSE, NULL and an error refuse the write. The paper has predicates of who reads (Mobius 3, 3.1): all
whom the ACL admits may overwrite and delete, also what is hidden from them.

A rule sees ``old``, the record that is stored, ``new``, the one that is written, and ``auth``, what the token
of the writer proves; it does not see what applications claim of their users. ``old IS NULL`` means that the
record is inserted, ``new IS NULL`` that it is deleted. A ``lookup`` finds what this token alone may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mudkit.checks import unusable
from mudkit.errors import AccessDenied, MudkitError, ParameterError, PredicateError
from mudkit.predicates import Language, Predicate
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.tables.queries import check_column, tables_of
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, record_of
from mudkit.systems.mud.tables.table import Table, claims_text, no_such_table_error
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

_NOWHERE: Final = "record"
"""Scope of names without one, which a rule must not have."""
RULES: Final = Language(
    (_NOWHERE, "old", "new", "auth"),
    bound=(),
    schema={"auth": {"user": "string", "app": "string"}},
    always={"old": "key", "new": "key"},
)
"""Language of rules; a record that is there has a ``key``."""


def rule(text: str | Predicate, /, **parameters: Value) -> Predicate:
    """Return a rule of who may write, with constants for its parameters.

    Parameters
    ----------
    text : str or Predicate
        A condition over ``old``, ``new`` and ``auth``; or a rule, which is returned as it is, whatever the
        parameters.
    **parameters
        Constants for ``:name`` in the text; a text without parameters may be passed as it is.

    Raises
    ------
    PredicateError
        The rule cannot be parsed, or names what it cannot see.
    ParameterError
        A predicate that is no rule.

    Examples
    --------
    >>> rule("old IS NULL OR auth.user IN :editors", editors=["ann", "bob"])
    Predicate('old IS NULL OR auth.user IN :editors', constants=[...])
    """
    if isinstance(text, Predicate):
        if text.language.scopes != RULES.scopes:
            raise unusable("text", text, "a text, or a rule that this function has returned")
        return text
    parsed = Predicate.parse(text, parameters, language=RULES)
    tables_of(parsed)  # raises PredicateError for a table that is not a constant
    if without_scope := sorted(parsed.names()[_NOWHERE]):
        name = without_scope[0]
        is_claimed = name.startswith(("receiver.", "sender."))
        raise PredicateError(
            "A rule names the stored record, the new one, or the identity of the writer.",
            text=text,
            found=name,
            expected="auth.user or auth.app: a rule sees what tokens prove, not what applications claim"
            if is_claimed
            else f"old.{name}, new.{name}, auth.user or auth.app",
        )
    return parsed


def decode_rule(sent: SentPredicate) -> Predicate:
    """Decode a rule; raise PredicateError if it is malformed or names what it cannot see."""
    decoded = from_json({"text": sent.text, "constants": sent.constants}, RULES)
    assert decoded is not None
    if decoded.names()[_NOWHERE]:
        rule(sent.text)  # raises the error
    return decoded


def check_rule(sent: SentPredicate, table: Table, tables: Mapping[str, Table], claims: Claims | None) -> None:
    """Raise MudkitError for a rule that is malformed, or names a column or a table that does not exist."""
    decoded = decode_rule(sent)
    for name in tables_of(decoded):
        if name not in tables:
            raise no_such_table_error(name, tables, claims)
    for scope, path in decoded.form.names:
        if scope not in ("old", "new"):
            continue
        check_column(table, path, decoded.text)
        if table.removed.get(path[0], 0) is None:
            raise ParameterError(
                "The write rule of the table reads this column.",
                where=f"table {table.name!r}, column {path[0]!r}",
                found=decoded.text[:120],
                expected="a column that the rule does not name",
            )


def check_may_write(
    replica: TableReplica, table: Table, row: Row | None, new: Fields | None, key: str, claims: Claims | None
) -> None:
    """Raise AccessDenied unless the rules of a table and of its record admit a write, or a delete.

    The error shows the rule of the table; that of the record may be hidden, as the record is.
    """
    rules = [(table.write_rule, "the rule of this table")]
    if row is not None and row.data is not None:
        rules.append((row.may_write, "the rule of this record"))
    auth = {} if claims is None else claims.auth
    for sent, name in rules:
        if isinstance(sent, SentPredicate) and not _admits(sent, replica, table, row, new, key, auth):
            raise AccessDenied(
                "You may not write this record.",
                where=f"table {table.name!r}, key {key!r}",
                found=claims_text(claims),
                expected=f"a write that {name} admits"
                + (f": {sent.text[:200]}" if sent is table.write_rule else ""),
            )


def _admits(
    sent: SentPredicate, replica: TableReplica, table: Table, row: Row | None, new: Fields | None, key: str,
    auth: Mapping[str, str],
) -> bool:  # fmt: skip
    """Return whether a rule is TRUE; an error refuses."""
    old = {} if row is None or row.data is None else record_of(row, table)
    written = {} if new is None else {**new, "key": key}
    try:
        verdict = decode_rule(sent)(
            {}, old=old, new=written, auth=auth, tables=JoinedTables(replica, {}, auth)
        )
    except MudkitError:
        return False
    return verdict is True
