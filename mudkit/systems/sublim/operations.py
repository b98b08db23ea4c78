"""What applications ask of SUBLIM: operations of the publish server, of access points, and of subscribers."""

from __future__ import annotations

import msgspec

from mudkit.systems.sublim.messages import Body, PolicyText

__all__ = ["Publish", "Read", "SetPolicy", "State"]


class Publish(msgspec.Struct, frozen=True, tag_field="operation", tag="publish"):
    """Publish a message at the server.

    Parameters
    ----------
    body : dict
    item : str or None
        What the deliveries call it; None: its number.
    """

    body: Body
    item: str | None


class State(msgspec.Struct, frozen=True, tag_field="operation", tag="state"):
    """Tell what an access point keeps of a subscriber."""

    subscriber: str


class SetPolicy(msgspec.Struct, frozen=True, tag_field="operation", tag="set_policy"):
    """Let the subscriber's messages be decided by a policy from now on."""

    policy: PolicyText


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Give what has come to the subscriber since the last time."""
