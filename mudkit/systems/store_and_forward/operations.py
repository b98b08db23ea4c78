"""What applications ask of store and forward: operations of the client of a device."""

from __future__ import annotations

import msgspec

__all__ = ["Operation", "Read", "Submit"]


class Submit(msgspec.Struct, frozen=True, tag_field="operation", tag="send"):
    """Send a text to a device.

    Parameters
    ----------
    to : str
        The name of the receiver.
    text : str
    item : str or None
        What the deliveries call it; None: the sender and a number.
    """

    to: str
    text: str
    item: str | None = None


class Read(msgspec.Struct, frozen=True, tag_field="operation", tag="read"):
    """Give what has come since the last time."""


Operation = Submit | Read
