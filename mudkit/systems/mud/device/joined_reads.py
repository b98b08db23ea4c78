"""Reads that concern tables on the device, together with those of the cloud (Mobius 3.1: limited joins).

A read of a table on the device may look up records of the cloud, and a read of a table of the cloud those of
the device. The device evaluates both: it first reads from the cloud, by key, the records that are looked up
there. The cloud hears of no table on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mudkit.errors import MudkitError, ParameterError, TableProblem
from mudkit.events import Complete, Effect
from mudkit.predicates import Aggregates, Predicate
from mudkit.predicates.containment import restrict
from mudkit.predicates.tree import Call, Node, walk
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.connection import ReadAnswer
from mudkit.systems.mud.device.local import Local, Version
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.read_path import ReadPath, check_options
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.operations import Read, Register
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.queries import keys_of, tables_of
from mudkit.systems.mud.tables.replica import JoinedTables, record_of
from mudkit.wire import Fields, Value

_Records = dict[str, dict[str, Fields | None]]
"""Records of tables by key; None: there is none that this reader may see."""


@dataclass
class _Join:
    """Read that is not answered, and the tables on the device that it concerns.

    ``base`` has the records that may match, and ``remote`` the keys of those that come from the cloud.
    ``looked_up`` has the records of the cloud that were read for lookups. ``waiting`` counts the reads from
    the cloud that are not answered; ``is_failed``: one has failed, and completed the call.
    """

    op_id: int
    read: Read
    own: Sequence[str]
    base: Sequence[Version | Row] = ()
    remote: frozenset[str] = frozenset()
    looked_up: _Records = field(default_factory=dict)
    waiting: int = 0
    is_complete: bool = True
    is_failed: bool = False


class JoinedReads:
    """Reads of one client that concern tables on the device."""

    def __init__(self, own: OwnTables, local: Local, access: Access, reads: ReadPath) -> None:
        self._own = own
        self._local = local
        self._access = access
        self._reads = reads

    def concerns(self, read: Read) -> bool:
        """Return whether a read concerns a table on the device."""
        return read.table in self._own or any(name in self._own for name in tables_of(read.predicate))

    def check_continuous(self, read: Register) -> None:
        """Raise MudkitError if a continuous read joins tables on the device with tables of the cloud.

        One of a table on the device may not name a column that this does not have, either.
        """
        is_own = read.table in self._own
        if is_own:
            self._own.check_read(read)
        for name in tables_of(read.predicate):
            if (name in self._own) is not is_own:
                raise ParameterError(
                    "A continuous read cannot join tables on the device with tables of the cloud.",
                    where="predicate",
                    found=f"lookup({name!r}, …)",
                    expected=f"a table {'on the device' if is_own else 'of the cloud'}",
                    remedy="read without it, and look the records up when a change comes",
                )

    def read(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer a read, at once or after reading from the cloud what it needs."""
        check_options(read)
        own = [name for name in (read.table, *tables_of(read.predicate)) if name in self._own]
        if read.table in self._own:
            self._own.check_read(read)
            keys = keys_of(read.predicate)
            base = self._own.select(read.table, None, read.reader, self._access.auth, keys=keys)
            return self._advance(now_us, _Join(op_id, read, own, base))
        if read.type == "committed_wio":
            raise ParameterError(
                "A read in the order of writes cannot look up records on the device.",
                where="type",
                found=read.type,
                expected="committed or uncommitted",
            )
        predicate = None if read.predicate is None else restrict(read.predicate, _looks_nothing_up)
        query = Query(read.table, predicate, read.type, dict(read.reader), read.utility)
        return self._read_from_cloud(now_us, _Join(op_id, read, own), query, None)

    def _read_from_cloud(
        self, now_us: int, join: _Join, query: Query, keys: frozenset[str] | None
    ) -> Sequence[Effect]:
        """Read records of the cloud for a join: those of some keys, for a lookup; None: those that match."""
        join.waiting += 1
        then = partial(self._receive, join, query.table, keys)
        return self._reads.read_for(now_us, query, join.read, then)

    def _receive(
        self,
        join: _Join,
        name: str,
        keys: frozenset[str] | None,
        now_us: int,
        answer: ReadAnswer | Exception,
    ) -> Sequence[Effect]:
        """Add records that were read for a join, and evaluate it once it waits for no others.

        If they could not be read, the call of the join fails, once.
        """
        join.waiting -= 1
        if join.is_failed:
            return ()
        if isinstance(answer, Exception):
            join.is_failed = True
            return (Complete(join.op_id, error=answer),)
        join.is_complete = join.is_complete and answer.is_complete
        table = self._local.tables.get(name)
        present = {key: version for key, version in answer.versions.items() if version.data is not None}
        if keys is None:
            join.base, join.remote = list(present.values()), frozenset(answer.remote)
        else:
            records = join.looked_up.setdefault(name, {})
            for key in keys:
                records[key] = record_of(present[key], table) if key in present else None
        return () if join.waiting else self._advance(now_us, join)

    def _advance(self, now_us: int, join: _Join) -> Sequence[Effect]:
        """Evaluate a join with what was read; read what it looks up and lacks, or complete it."""
        read, predicate, auth = join.read, join.read.predicate, self._access.auth
        for name in join.own:
            if name not in self._own:
                return (Complete(join.op_id, error=_dropped_error(name)),)
        table = self._own.tables.get(read.table) or self._local.tables.get(read.table)
        tables = _Tables(self._own.joined(read.reader, auth), join.looked_up)
        matching: list[Version | Row] = []
        try:
            for version in join.base:
                record = record_of(version, table)
                if predicate is not None and version.data is not None:
                    is_match = predicate(record, tables=tables, receiver=read.reader, auth=auth)
                    if is_match is not True:
                        continue
                matching.append(version)
        except MudkitError as error:
            return (Complete(join.op_id, error=error),)
        if not tables.missing:
            return self._complete(now_us, join, matching)
        join.waiting = 1  # until all reads have begun: some may be answered at once
        effects: list[Effect] = []
        for name, keys in tables.missing.items():
            by_key = Predicate("key IN :keys", keys=sorted(keys))
            query = Query(name, by_key, "committed", dict(read.reader), read.utility)
            effects += self._read_from_cloud(now_us, join, query, frozenset(keys))
        join.waiting -= 1
        if join.waiting == 0 and not join.is_failed:
            effects += self._advance(now_us, join)
        return effects

    def _complete(self, now_us: int, join: _Join, matching: Sequence[Version | Row]) -> Sequence[Effect]:
        """Complete a join with the records that match."""
        read = join.read
        if read.aggregate is not None:
            aggregates = Aggregates(read.aggregate)
            table = self._own.tables.get(read.table) or self._local.tables.get(read.table)
            records = [record_of(version, table) for version in matching if version.data is not None]
            result = aggregates.result(aggregates.of(records))
            return (Complete(join.op_id, ReadResult(aggregates=result, is_complete=join.is_complete)),)
        if read.table in self._own:
            rows = [version for version in matching if isinstance(version, Row)]
            return self._own.complete(
                join.op_id, read.table, rows, read.selection, is_complete=join.is_complete
            )
        versions = {version.key: version for version in matching if not isinstance(version, Row)}
        return self._reads.complete_joined(
            now_us, join.op_id, read, versions, join.remote, is_complete=join.is_complete
        )


def _dropped_error(name: str) -> TableProblem:
    """Build the error for a read of a table on the device that was dropped before the answer."""
    return TableProblem(
        "The table on the device was dropped while it was read.",
        where=f"table {name!r}",
        found="no table of this name on the device",
        expected="the table of the call",
        remedy="create it again, and read again",
    )


def _looks_nothing_up(part: Node) -> bool:
    """Return whether a condition has no lookup."""
    return not any(isinstance(node, Call) and node.function.name == "lookup" for node in walk(part))


class _Tables(Mapping[str, "_LookedUp"]):
    """Tables as a lookup sees them: those on the device, and what was read of those of the cloud.

    ``missing`` collects the keys, by table of the cloud, that were looked up and not read before.
    """

    def __init__(self, own: JoinedTables, looked_up: _Records) -> None:
        self._own = own
        self._looked_up = looked_up
        self.missing: dict[str, set[str]] = {}

    def __getitem__(self, name: str) -> _LookedUp:
        return _LookedUp(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def look_up(self, name: str, key: Value) -> Fields | None:
        """Return a record by its key; None: the reader may see none, or it is missing.

        The key of a record of the cloud that was not read yet is added to ``missing``.
        """
        if name in iter(self._own):
            return self._own[name].get(key)
        if not isinstance(key, str):
            return None
        records = self._looked_up.get(name, {})
        if key not in records:
            self.missing.setdefault(name, set()).add(key)
        return records.get(key)


class _LookedUp:
    """One of the tables of :class:`_Tables`, whose records are looked up by key."""

    def __init__(self, tables: _Tables, name: str) -> None:
        self._tables, self._name = tables, name

    def get(self, key: Value) -> Fields | None:
        """Return a record by its primary key."""
        return self._tables.look_up(self._name, key)
