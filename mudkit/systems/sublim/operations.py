"""What applications ask of SUBLIM: operations of the publish server, of access points, and of subscribers."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import msgspec

from mudkit.systems.sublim.messages import Body, PolicyText

__all__ = ["Publish", "Read", "Served", "SetPolicy", "State"]


class Served(TypedDict):
    """What an access point keeps of a subscriber: the fields of ``Kept`` on the wire, and its time."""

    epoch: int
    address: str
    report: int
    automatic: dict[str, float]
    variables: Body
    next: int
    last: int
    policy: int
    stopped: int
    skipped: int
    incarnation: str
    lineage: NotRequired[dict[str, int]]
    now_us: int


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
