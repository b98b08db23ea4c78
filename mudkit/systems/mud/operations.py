"""Operations that an application calls on the machine of its client (Mobius 3, 5, 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mudkit.predicates import Predicate
from mudkit.systems.mud.policies.utility import Utility
from mudkit.systems.mud.tables.changes import Changes
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Fields


class Create(Struct, frozen=True, tag_field="operation", tag="create"):
    """Operation: create a table (Mobius 3.1), in the cloud or on the device alone."""

    table: str
    properties: Fields
    where: Literal["cloud", "device"] = "cloud"


class Alter(Struct, frozen=True, tag_field="operation", tag="alter"):
    """Operation: alter the properties of a table (Mobius 3.1)."""

    table: str
    properties: Fields


class Drop(Struct, frozen=True, tag_field="operation", tag="drop"):
    """Operation: drop a table (Mobius 3.1)."""

    table: str


class Write(Struct, frozen=True, tag_field="operation", tag="write"):
    """Operation: write a record, or delete it if ``record`` is None (Mobius 3.1).

    ``key`` None: a new one; ``type``: blind or conditional; ``utility``: input of the write policy;
    ``reader``: the writer's own data as a reader; ``may_write``: the rule of who may write the record
    afterwards, None: as before; ``version``: the one that a conditional write replaces, None: the device's;
    ``changes``: changes of columns in place of a record; None: the write is of the whole record.
    """

    table: str
    key: str | None
    record: Fields | None
    type: str
    predicate: Predicate | None
    utility: Utility | None
    reader: Fields
    may_write: Predicate | None = None
    version: int | None = None
    changes: Changes | None = None


class Delete(Write, frozen=True, tag_field="operation", tag="delete"):
    """Operation: delete a record (Mobius 3.1): a write without a record."""


class Update(Write, frozen=True, tag_field="operation", tag="update"):
    """Operation: change columns of a record: a write with changes in place of a record."""


class CommitBatch(Struct, frozen=True, tag_field="operation", tag="batch"):
    """Operation: commit writes of several records of a table together, all or none."""

    table: str
    parts: Sequence[Write]


Offline: TypeAlias = Literal["answer", "wait", "fail"]
"""Choice of a read without a network: answer with what the device holds, wait for one, or fail."""


class Read(Struct, frozen=True, tag_field="operation", tag="read"):
    """Operation: read records once (Mobius 3.1).

    ``predicate`` None: all records; ``type``: uncommitted, committed or committed_wio; ``utility`` None: no
    cached answer is fresh; ``latest``: only the store's latest versions; ``aggregate``: aggregates to return
    instead of records; ``offline``: what to do without a network; ``selection`` None: all columns of all
    records.
    """

    table: str
    predicate: Predicate | None
    type: str
    reader: Fields
    utility: Utility | None
    latest: bool
    aggregate: str | None
    offline: Offline = "answer"
    selection: Selection | None = None


class Register(Struct, frozen=True, tag_field="operation", tag="register"):
    """Operation: register a continuous read (Mobius 5).

    ``sync_timestamp`` is the commit time at the store, in seconds, from which existing records are delivered;
    None: none of them. ``listener`` is notified of the handle as soon as the read is stored; empty: the
    application has no callback for changes. ``aggregate``: aggregates of which it is notified instead of
    records. ``selection``: columns of which it is notified, or a window, which is of all records; None: of
    all columns of all records.
    """

    table: str
    predicate: Predicate
    reader: Fields
    sync_timestamp: float | None
    listener: str
    type: Literal["continuous"] = "continuous"
    aggregate: str | None = None
    selection: Selection | None = None


class Listen(Struct, frozen=True, tag_field="operation", tag="listen"):
    """Operation: notify the listener of the continuous read with this handle, which was registered again.

    ``is_afresh``: of what comes from now on; the result has the records that the read has.
    """

    handle: int
    is_afresh: bool = False


class AwaitSynced(Struct, frozen=True, tag_field="operation", tag="await_synced"):
    """Operation: wait until the existing records that a continuous read asked for have been delivered."""

    handle: int


class ListReads(Struct, frozen=True, tag_field="operation", tag="continuous_reads"):
    """Operation: list the continuous reads."""


class UpdateData(Struct, frozen=True, tag_field="operation", tag="update_data"):
    """Operation: replace the reader's data of the continuous read with this handle."""

    handle: int
    reader: Fields


class Unregister(Struct, frozen=True, tag_field="operation", tag="unregister"):
    """Operation: end the continuous read with this handle."""

    handle: int


class Renew(Struct, frozen=True, tag_field="operation", tag="renew"):
    """Operation: use another token of the same app and user."""

    token: str


class ListPolicies(Struct, frozen=True, tag_field="operation", tag="policies"):
    """Operation: list the shipped policies in use."""


class ListPending(Struct, frozen=True, tag_field="operation", tag="pending"):
    """Operation: list the writes that the cloud has not answered."""


class ListHeld(Struct, frozen=True, tag_field="operation", tag="held"):
    """Operation: list the versions of a table's records that the device holds."""

    table: str
    reader: Fields


class Ship(Struct, frozen=True, tag_field="operation", tag="ship"):
    """Operation: ship a policy, as JSON, to the clients of an app (Mobius 6); ``to`` None: on all devices."""

    app: str
    document: Fields
    to: Sequence[str] | None


class ShipLearnt(Struct, frozen=True, tag_field="operation", tag="ship learnt"):
    """Operation: ship what was learnt of several apps, ``app, document``, where it decides otherwise."""

    policies: Sequence[tuple[str, Fields]]


class Move(Struct, frozen=True, tag_field="operation", tag="move"):
    """Operation: have a partition of a table served by the processor at an address (Mobius 4.2)."""

    table: str
    partition: int
    processor: str


class ForgetUser(Struct, frozen=True, tag_field="operation", tag="forget"):
    """Operation: remove what the clients of a user have reported of their use (Mobius 6)."""

    user: str


ClientOperation = (
    Create | Alter | Drop | Write | Delete | Update | CommitBatch | Read | Register | Listen | AwaitSynced
    | ListReads | UpdateData | Unregister | Renew | ListPolicies | ListPending | ListHeld
)  # fmt: skip
"""Operations of a client."""
