"""The parts of messages: a predicate, claims, an error, a table and a row, as they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mudkit.systems.receiving import Count, Name

__all__ = ["Claims", "Endpoint", "Error", "Fields", "Number", "Predicate", "Row", "Table", "fit_together"]


Fields = Mapping[str, Any]
Number = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Endpoint = Annotated[str, Meta(max_length=1024, pattern=r"\A[^\n]+/[^/\n]+\Z")]
"""``netid/appid``."""


def fit_together(fits: bool) -> None:
    """Refuse a message whose fields do not fit each other: msgspec makes a ValidationError of it."""
    if not fits:
        raise ValueError("its fields do not fit each other")


class Predicate(msgspec.Struct, frozen=True):
    """A predicate as it is sent."""

    text: str
    constants: list[Any]


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway has found that a token proves."""

    app: str
    user: str | None
    device: str | None
    expires_s: float


class Error(msgspec.Struct, frozen=True):
    """An error of :mod:`mudkit.errors`."""

    kind: str
    summary: str
    found: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET
    where: str | UnsetType = UNSET


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a table, see :class:`mudkit.systems.mud.tables.table.Table`."""

    name: Name
    owner: str
    acl: Literal["public", "app", "user"]
    apps: list[str] | None
    split: list[str]
    schema: dict[str, str] | None
    removed: dict[str, Count | None]
    number: Count
    lsn: Count


class Row(msgspec.Struct, frozen=True):
    """A record at the store; no data: it is deleted."""

    key: Name
    ver: Count
    data: Fields | None
    predicate: Predicate | None
    ts_us: Count
    lsn: Count
