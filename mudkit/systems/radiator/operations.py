"""What applications ask of Radiator: operations of the client on a device, and of the server."""

from __future__ import annotations

import msgspec

from mudkit.systems.radiator.messages import ContextFields
from mudkit.wire import Fields

__all__ = ["Clients", "Counts", "Propagate", "Register", "Unregister", "Waiting"]


class Register(msgspec.Struct, frozen=True, tag_field="operation", tag="register"):
    """Register the client, or register it again with other attributes (4.1)."""

    attributes: Fields


class Unregister(msgspec.Struct, frozen=True, tag_field="operation", tag="unregister"):
    """Let the client leave (4.1)."""


class Propagate(msgspec.Struct, frozen=True, tag_field="operation", tag="propagate"):
    """Propagate a context to all others (3.1)."""

    context: ContextFields


class Clients(msgspec.Struct, frozen=True, tag_field="operation", tag="clients"):
    """Tell who is registered at the server, and whether it believes that they are there."""


class Waiting(msgspec.Struct, frozen=True, tag_field="operation", tag="waiting"):
    """Tell how many messages wait at the server for each client."""


class Counts(msgspec.Struct, frozen=True, tag_field="operation", tag="counts"):
    """Tell what the server has done so far, in numbers."""
