"""What a machine writes into the ledger of deliveries: one row for what became of an item for a receiver."""

from __future__ import annotations

from mudkit.events import Record

__all__ = ["delivery"]


def delivery(
    item: str,
    receiver: str,
    *,
    created_us: int | None = None,
    delivered_us: int | None = None,
    read_us: int | None = None,
    expired_us: int | None = None,
    refused_us: int | None = None,
) -> Record:
    """Record what became of an item for one of its receivers.

    Parameters
    ----------
    item : str
        What the ledger calls the item: the same at its sender, and at each of its receivers.
    receiver : str
        The name of the device, or of the user, that it is for.
    created_us, delivered_us, read_us, refused_us : int, optional
        When that happened, in µs of virtual time; None: this record does not say.
    expired_us : int, optional
        When the item's time is over, in µs of virtual time; None: this record does not say.
    """
    times = {
        "created_us": created_us,
        "delivered_us": delivered_us,
        "read_us": read_us,
        "expired_us": expired_us,
        "refused_us": refused_us,
    }
    known = {name: time_us for name, time_us in times.items() if time_us is not None}
    return Record("deliveries", {"item": item, "receiver": receiver, **known})
