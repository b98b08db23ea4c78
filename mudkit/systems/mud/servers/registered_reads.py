"""Continuous reads as a processor serves them, and what their registrations say of delivered records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from mudkit.predicates import Aggregates, Predicate
from mudkit.systems.mud.messages.notifications import Upsert
from mudkit.systems.mud.messages.partitions import values_by_partition
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.requests import RegisterRequest, Request
from mudkit.systems.mud.messages.servers import Routed
from mudkit.systems.mud.servers.matching import ReadKey
from mudkit.systems.mud.tables.records import keys_digest
from mudkit.systems.mud.tables.replica import TableReplica, record_of
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.mud.tables.window import Window
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

EVERYTHING: Final = Selection()
"""Selection of a read of all columns of all records."""
_NO_KEYS: Final[AbstractSet[str]] = frozenset()


class RegisteredRead(Struct, gc=False):
    """A continuous read, as far as it concerns a processor, besides what its table's matching holds.

    ``lsn`` is the position of the log at its registration: later changes of its ``partitions`` are sent.
    ``has_begun``: the reader was told that these are its partitions here. ``data_seq`` numbers the reader's
    data. ``keys`` are those of the records that the reader was sent. A reader of ``aggregates`` was sent
    their last ``state`` instead, of these records, and one with a ``window`` those in it, which are selected
    by ``predicate``. It is sent the columns of its ``selection``.

    There are as many as subscribers: what most of them lack is shared or None, and the garbage collector
    need not look at them, since nothing in a read leads back to it.
    """

    request: int
    session: str
    address: str
    table: Table
    claims: Claims | None
    lsn: int
    data_seq: int
    partitions: frozenset[int]
    has_begun: bool = False
    selection: Selection = EVERYTHING
    keys: AbstractSet[str] = _NO_KEYS
    aggregates: Aggregates | None = None
    state: list[Value] | None = None
    window: Window | None = None
    predicate: Predicate | None = None

    @property
    def auth(self) -> Mapping[str, str]:
        """App and user of the reader, ``auth.…`` in predicates; empty: there is no token."""
        return {} if self.claims is None else self.claims.auth

    def add_key(self, key: str) -> None:
        """Add the key of a record that the reader was sent."""
        if isinstance(self.keys, set):
            self.keys.add(key)
        else:
            self.keys = {key}

    def discard_key(self, key: str) -> None:
        """Remove the key of a record that has left the read, if it is there."""
        if isinstance(self.keys, set):
            self.keys.discard(key)

    def sent_keys(self) -> set[str]:
        """Return the keys of the records that the reader was sent and that have not left the read."""
        return set(self.keys if self.window is None else self.window.first_keys())

    def build_upsert(self, row: Row) -> Upsert:
        """Build the change that tells the reader of a version of a record, as far as its columns are read."""
        shown = self.selection.columns_of(self.table.visible_columns(row))
        return Upsert(row.key, row.ver, shown, row.predicate, row.ts_us, row.lsn)


class SessionReads:
    """Keys of the continuous reads of each session, in the order of registration.

    Most sessions have one read: its key then stands alone, without a list.
    """

    def __init__(self) -> None:
        self._keys: dict[str, ReadKey | list[ReadKey]] = {}

    def of(self, session: str) -> list[ReadKey]:
        """Return the keys of a session's reads; empty: it has none."""
        keys = self._keys.get(session, [])
        return [*keys] if isinstance(keys, list) else [keys]

    def add(self, session: str, read_key: ReadKey) -> None:
        """Add the key of a read, which must be new."""
        keys = self._keys.get(session)
        if isinstance(keys, list):
            keys.append(read_key)
        else:
            self._keys[session] = read_key if keys is None else [keys, read_key]

    def remove(self, session: str, read_key: ReadKey) -> None:
        """Remove the key of a read, which must have been added."""
        keys = self.of(session)
        keys.remove(read_key)
        if keys:
            self._keys[session] = keys if len(keys) > 1 else keys[0]
        else:
            del self._keys[session]


@dataclass(frozen=True)
class ReadPositions:
    """Positions of a registration, by partition: last received, with its log's incarnation, and begun."""

    since_lsns: Mapping[int, int]
    log_incarnations: Mapping[int, str]
    begun_lsns: Mapping[int, int]

    @classmethod
    def of(cls, registration: RegisterRequest) -> ReadPositions:
        """Return the positions of a registration."""
        return cls(
            values_by_partition(registration.since_lsns),
            values_by_partition(registration.log_incarnations or {}),
            values_by_partition(registration.begun_lsns or {}),
        )


def share_app(claims: Claims | None) -> Claims | None:
    """Return claims whose app is one text for all readers: a processor holds the claims of each read."""
    return None if claims is None else replace(claims, app=sys.intern(claims.app))


def recall_delivered(
    copy: TableReplica,
    positions: ReadPositions,
    table: Table,
    routed: Routed[Request],
    registration: RegisterRequest,
    sent: set[str],
) -> tuple[set[str], list[int]]:
    """Return the keys of a registration's delivered records, and the buckets whose keys it has to name.

    A digest is compared with that of the records which the read has at its position if none of them has
    changed since, and with that of ``sent``, the keys of what this generation of the processor has sent it.
    """
    delivered, unknown = set(registration.delivered), list[int]()
    if registration.digests is UNSET:
        return delivered, unknown
    matching = _matching_keys(copy, positions, table, routed, registration)
    guesses = [table.buckets_of(matching), table.buckets_of(sent)]
    for bucket, digest in registration.digests:
        if table.partition_of_bucket(bucket) in routed.route.partitions:
            known = [guess[bucket] for guess in guesses if bucket in guess]
            keys = next((keys for keys in known if keys_digest(keys) == digest), None)
            if keys is None:
                unknown.append(bucket)
            else:
                delivered.update(keys)
    return delivered, unknown


def _matching_keys(
    copy: TableReplica,
    positions: ReadPositions,
    table: Table,
    routed: Routed[Request],
    registration: RegisterRequest,
) -> list[str]:
    """Return the keys of the matching records that are not newer than a registration's position.

    Of a window, those of the records in it.
    """
    sync_us, selection = registration.sync_us, registration.selection
    predicate, auth = registration.predicate.predicate(), routed.verified.auth
    rows = select_from(copy, table, routed.route.partitions, predicate, registration.reader, auth)
    if selection is not UNSET and selection.limit is not None:
        return window_of(selection, {row.key: row for row in rows}, table).first_keys()
    known: list[str] = []
    for row in rows:
        partition = table.partition_of(row.key)
        since_lsn = positions.since_lsns.get(partition, -1)
        begun_lsn = positions.begun_lsns.get(partition, since_lsn)
        if row.lsn <= since_lsn and (row.lsn > begun_lsn if sync_us is None else row.ts_us >= sync_us):
            known.append(row.key)
    return known


def select_from(
    copy: TableReplica,
    table: Table,
    partitions: Sequence[int],
    predicate: Predicate,
    data: Fields,
    auth: Mapping[str, str],
) -> list[Row]:
    """Return the records of partitions that match a predicate and are visible to a reader."""
    return [
        row
        for partition in copy.filled(table, partitions)
        for row in copy.select(table, partition, predicate, None, data, auth)
    ]


def window_of(selection: Selection, rows: Mapping[str, Row], table: Table) -> Window:
    """Return the window of some records of a table."""
    return Window(selection, {key: record_of(row, table) for key, row in rows.items()})
