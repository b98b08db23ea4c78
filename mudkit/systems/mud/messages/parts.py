"""Names of machines, and parts of messages of several kinds: errors and rows."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias
from zlib import crc32

from msgspec import UNSET, Meta, Struct, UnsetType

from mudkit.errors import (
    AccessDenied,
    MudkitError,
    ParameterError,
    PredicateError,
    TableProblem,
    TokenExpired,
)
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.receiving import Count, Name
from mudkit.wire import Fields

Lsn: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 62)]
"""Position in the log; -1: the follower has no state yet."""

Endpoint: TypeAlias = Annotated[str, Meta(max_length=1024, pattern=r"\A[^\n]+/[^/\n]+\Z")]
"""``netid/appid``."""

PORT: Final = "mud"
"""Name of each server's machine, and of a device's service; that of an app's machine ends with the app."""


def is_of_service(source: str) -> bool:
    """Return whether an address is that of a device's service, for which the device vouches."""
    return source.rpartition("/")[2] == PORT


def netid_of(endpoint: str) -> str:
    """Return the device of an endpoint; names of devices may contain a slash, those of apps none."""
    return endpoint.rpartition("/")[0]


def app_of(endpoint: str) -> str:
    """Return the app of an endpoint."""
    return endpoint.rpartition("/")[2]


def partition_range_index(table: int, partition: int, ranges: int) -> int:
    """Return the index of the range of a partition: those of a table are in successive ranges."""
    return (table + partition) % ranges


def range_index(netid: str, ranges: int) -> int:
    """Return the index of the range of a device: each range is a part of the netids' hashes."""
    return crc32(netid.encode()) * ranges >> 32


def server_of_session(session: str) -> str:
    """Return the address of the notification server that has begun a session."""
    return session.rpartition(" ")[0]


def check_consistent(is_consistent: bool) -> None:
    """Raise ValueError, which msgspec turns into a ValidationError, unless the fields are consistent."""
    if not is_consistent:
        raise ValueError("the fields are not consistent")


class EncodedError(Struct, frozen=True, rename={"got": "found"}):
    """A MudkitError as a part of messages (:func:`encode_error`, :func:`decode_error`)."""

    kind: str
    summary: str
    got: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET
    where: str | UnsetType = UNSET


_KINDS: Final[dict[str, type[MudkitError]]] = {
    kind.__name__: kind for kind in (AccessDenied, ParameterError, PredicateError, TableProblem, TokenExpired)
}


def encode_error(error: MudkitError) -> EncodedError:
    """Return an error as a part of a message, for :func:`decode_error`."""
    texts = (error.found, error.expected, error.remedy, error.where)
    given = (UNSET if text is None else text for text in texts)
    return EncodedError(type(error).__name__, error.summary, *given)


def decode_error(error: EncodedError) -> MudkitError:
    """Decode an error of a message; of an unknown kind, it is a MudkitError."""
    got, expected, remedy, where = (
        None if text is UNSET else text for text in (error.got, error.expected, error.remedy, error.where)
    )
    kind = _KINDS.get(error.kind, MudkitError)
    return kind(error.summary, found=got, expected=expected, remedy=remedy, where=where)


class Row(Struct, frozen=True):
    """Version of a record at the store; a part of messages.

    ``data`` is None after a delete, which keeps the writer predicate of the deleted version: a reader who
    could not see that version does not see the delete either. ``predicate`` None: every reader sees it.
    ``may_write`` is the rule of who may write it, which clients are not sent; absent: whom the table admits.
    """

    key: Name
    ver: Count
    data: Fields | None
    predicate: SentPredicate | None
    ts_us: Count
    lsn: Count
    may_write: SentPredicate | UnsetType = UNSET
