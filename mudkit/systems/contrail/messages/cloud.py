"""What gateways and compute instances of a cloud send each other."""

from __future__ import annotations

from mudkit.systems.contrail.messages.devices import AnyCopy, Page, Request, Sent, Text, TypedMessage
from mudkit.systems.receiving import Count, Name

__all__ = ["Ask", "Deliver", "Gone", "QueueFilled", "Tell"]


class Deliver(Page, frozen=True, tag="deliver"):
    """A page, from a compute instance."""

    page: list[tuple[Count, AnyCopy]]


class Tell(TypedMessage, frozen=True, tag="tell"):
    """From a compute instance to a gateway: this is for a device at an address."""

    to: Name
    message: Deliver | Sent


class QueueFilled(TypedMessage, frozen=True, tag="filled"):
    """From storage to a gateway: something waits for a device."""

    device: Text


class Gone(TypedMessage, frozen=True, tag="gone"):
    """From a gateway to storage: a device holds no connection here."""

    device: Text


class Ask(TypedMessage, frozen=True, tag="ask"):
    """From a gateway to a compute instance: what a device at an address asks for."""

    gateway: Name
    client: Name
    what: Request
    tries: Count
