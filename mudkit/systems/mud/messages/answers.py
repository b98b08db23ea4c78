"""What clients are answered."""

from __future__ import annotations

import msgspec

from mudkit.systems.mud.messages.cloud import Life, Part, Policy, Registered, Stream, Tell
from mudkit.systems.mud.messages.parts import Claims, Error, Table
from mudkit.systems.receiving import Count, Name

__all__ = ["Complete", "PartOfAnswer", "Redirect", "Refused", "RegisteredAt", "StreamOfServer", "Welcome"]


class Refused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """Gateway to client: why not."""

    id: Name
    error: Error


class Complete(msgspec.Struct, frozen=True, tag_field="kind", tag="complete"):
    """Gateway to client: all parts were sent."""

    id: Name
    table: Table
    claims: Claims | None
    places: list[Count | Name]


class PartOfAnswer(Part, frozen=True, tag_field="kind", tag="part", kw_only=True):
    """Gateway to client: the same."""

    place: Count


class RegisteredAt(Registered, frozen=True, tag_field="kind", tag="registered", kw_only=True):
    """Gateway to client: the same, and which processor it is."""

    place: Name


class StreamOfServer(Stream, frozen=True, tag_field="kind", tag="stream"):
    """Notification server to client: what changed, and policies."""

    body: Tell | Life | Policy


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Notification server to client: the session that goes on or begins."""

    session: Name


class Redirect(msgspec.Struct, frozen=True, tag_field="kind", tag="redirect"):
    """Notification server to client: who is responsible."""

    to: Name
