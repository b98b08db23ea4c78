"""What applications ask of MUD tables: operations of a client on a device, and of the policy generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mudkit.predicates import Predicate
from mudkit.systems.mud.policies.utility import Utility
from mudkit.wire import Fields

__all__ = [
    "Alter",
    "Create",
    "Delete",
    "Drop",
    "Held",
    "Operation",
    "Pending",
    "Policies",
    "Read",
    "Register",
    "Renew",
    "Ship",
    "Unregister",
    "UpdateData",
    "Write",
]


class Create(msgspec.Struct, frozen=True, tag_field="operation", tag="create"):
    """Create a table (Mobius 3.1)."""

    table: str
    properties: Fields


class Alter(msgspec.Struct, frozen=True, tag_field="operation", tag="alter"):
    """Alter the properties of a table (Mobius 3.1)."""

    table: str
    properties: Fields


class Drop(msgspec.Struct, frozen=True, tag_field="operation", tag="drop"):
    """Drop a table (Mobius 3.1)."""

    table: str


class Write(msgspec.Struct, frozen=True, tag_field="operation", tag="write"):
    """Write a record (Mobius 3.1).

    Parameters
    ----------
    table : str
    key : str or None
        None: one that no other record has.
    record : mapping or None
        Its columns; None: the record is deleted.
    type : {'blind', 'conditional'}
    predicate : Predicate or None
        The writer predicate.
    utility : Utility or None
        Input of the write policy.
    reader : mapping
        The writer's own data as a reader.
    """

    table: str
    key: str | None
    record: Fields | None
    type: str
    predicate: Predicate | None
    utility: Utility | None
    reader: Fields


class Delete(Write, frozen=True, tag_field="operation", tag="delete"):
    """Delete a record (Mobius 3.1): a write without a record."""


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Read records once (Mobius 3.1).

    Parameters
    ----------
    table : str
    predicate : Predicate or None
        None: all records.
    type : {'uncommitted', 'committed', 'committed_wio'}
    reader : mapping
        The reader's data.
    utility : Utility or None
        None: nothing held counts as fresh.
    latest : bool
        Whether only the store's latest versions will do.
    aggregate : str or None
        Aggregates that are wanted instead of records.
    """

    table: str
    predicate: Predicate | None
    type: str
    reader: Fields
    utility: Utility | None
    latest: bool
    aggregate: str | None


class Register(msgspec.Struct, frozen=True, tag_field="operation", tag="register"):
    """Register a continuous read (Mobius 5).

    Parameters
    ----------
    table : str
    predicate : Predicate
    reader : mapping
        The reader's data.
    sync_timestamp : float or None
        Commit time at the store in seconds from which existing records are delivered; None: none of them.
    listener : str
        The listener that is notified of changes.
    """

    table: str
    predicate: Predicate
    reader: Fields
    sync_timestamp: float | None
    listener: str
    type: Literal["continuous"] = "continuous"


class UpdateData(msgspec.Struct, frozen=True, tag_field="operation", tag="update_data"):
    """Replace the reader's data of a continuous read."""

    handle: int
    reader: Fields


class Unregister(msgspec.Struct, frozen=True, tag_field="operation", tag="unregister"):
    """End a continuous read."""

    handle: int


class Renew(msgspec.Struct, frozen=True, tag_field="operation", tag="renew"):
    """Use another token of the same app and user."""

    token: str


class Policies(msgspec.Struct, frozen=True, tag_field="operation", tag="policies"):
    """List the shipped policies in use."""


class Pending(msgspec.Struct, frozen=True, tag_field="operation", tag="pending"):
    """List the writes that the cloud has not answered."""


class Held(msgspec.Struct, frozen=True, tag_field="operation", tag="held"):
    """List the versions of a table's records that the device holds."""

    table: str
    reader: Fields


class Ship(msgspec.Struct, frozen=True, tag_field="operation", tag="ship"):
    """Ship a policy to the clients of an app (Mobius 6).

    Parameters
    ----------
    app : str
    document : mapping
        The artefact as JSON.
    to : sequence of str or None
        The only devices that receive it; None: all.
    """

    app: str
    document: Fields
    to: Sequence[str] | None


Operation = (
    Create | Alter | Drop | Write | Delete | Read | Register | UpdateData | Unregister | Renew | Policies
    | Pending | Held
)  # fmt: skip
"""Operations of a client."""
