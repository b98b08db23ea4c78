"""What applications ask of last hop: operations of the device of a user, and of the spooling server."""

from __future__ import annotations

import msgspec

from mudkit.systems.lasthop.device.context_handler import Following
from mudkit.systems.lasthop.messages import Content
from mudkit.systems.lasthop.subscription import Subscription

__all__ = ["Follow", "Held", "Publish", "Queues", "Read", "Rerank", "Subscribe", "Unfollow", "Unsubscribe"]


class Subscribe(msgspec.Struct, frozen=True, tag_field="operation", tag="subscribe"):
    """Subscribe the device to a topic, or go on with other limits (3.2)."""

    subscription: Subscription


class Unsubscribe(msgspec.Struct, frozen=True, tag_field="operation", tag="unsubscribe"):
    """End the device's subscription to a topic (3.2)."""

    topic: str


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Read the best messages of a topic (3.2)."""

    topic: str


class Follow(msgspec.Struct, frozen=True, tag_field="operation", tag="follow"):
    """Be subscribed to a topic as long as the device is at one of some places (3.3)."""

    following: Following


class Unfollow(msgspec.Struct, frozen=True, tag_field="operation", tag="unfollow"):
    """End what :class:`Follow` began, by the topic as it was given there."""

    topic: str


class Held(msgspec.Struct, frozen=True, tag_field="operation", tag="held"):
    """Tell how many messages of each topic are on the device."""


class Publish(msgspec.Struct, frozen=True, tag_field="operation", tag="publish"):
    """Publish a message at the server (3.1).

    Parameters
    ----------
    topic : str
    rank : float
    expires_us : int or None
        How long it is relevant, in µs; None: for ever.
    content : dict
        What there is to say of it.
    item : str or None
        What the deliveries call it; None: the topic and a number.
    """

    topic: str
    rank: float
    expires_us: int | None
    content: Content
    item: str | None


class Rerank(msgspec.Struct, frozen=True, tag_field="operation", tag="rerank"):
    """Give a message another rank at the server (3.1)."""

    topic: str
    identity: str
    rank: float


class Queues(msgspec.Struct, frozen=True, tag_field="operation", tag="queues"):
    """Tell how many messages of a topic wait at the server for a device, and how many are on it."""

    device: str
    topic: str
