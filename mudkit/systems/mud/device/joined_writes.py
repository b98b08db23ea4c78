"""Joining of blind writes of one record that were never sent: one goes in place of both (Mobius 6).

A record or a delete takes the place of a record before it. Changes join the changes before them, or the
record that they change. The store has the same record afterwards as with both, and the same users may read
and write it. So these go one by one:

- a record after changes, which the store may refuse;
- a record after a delete, which ends the rule of the record (``may_write``);
- changes that the store may refuse because the predicate of the record hides it from their writer: of a
  record that is hidden, or after changes if its predicate reads columns;
- writes that a rule judges, each by itself, where the device knows of one: the rule of the table, or one
  that a pending write gives the record.

A device is not sent the rules of records. Such a rule judges a joined write as one: ``old`` is the record
that the store has, ``new`` the last one. For a rule of ``auth`` alone this is the same.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.errors import MudkitError
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.tables.changes import Changes, change_record, compose
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import is_visible


def join(write: PendingWrite, before: PendingWrite, local: Local, access: Access) -> PendingWrite | None:
    """Return the write in whose place one and the pending one before it go; None: they go one by one."""
    table = local.tables.get(write.name)
    if (
        write.type != "blind"
        or before.type != "blind"
        or before.batch is not None
        or write.table != before.table
        or (table is not None and table.write_rule is not UNSET)
        or write.may_write is not None
        or local.has_pending_rule(write.name, write.key)
    ):
        return None
    if write.changes is None:
        revives = before.data is None and write.data is not None
        return None if revives or before.changes is not None else write
    if write.reader != before.reader:
        return None
    if before.changes is None:
        is_shown = before.data is not None and is_visible(before, write.reader, access.auth, table)
        return _change(before, write, write.changes) if is_shown else None
    if _reads_columns(local.latest_predicate(write.name, write.key)):
        return None
    composed = compose(before.changes, write.changes)
    return None if composed is None else replace(write, changes=composed)


def _change(before: PendingWrite, write: PendingWrite, changes: Changes) -> PendingWrite | None:
    """Return a write of the record of ``before`` with changes; None: they do not fit it."""
    try:
        data = change_record(before.data, changes, "")
    except MudkitError:
        return None
    return replace(write, data=data, changes=None, predicate=before.predicate)


def _reads_columns(sent: SentPredicate | None) -> bool:
    """Return whether a predicate reads columns of the record, which changes may change."""
    return sent is not None and bool(sent.predicate().names()["record"])
