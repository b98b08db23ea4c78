"""Rows of the ledger of deliveries: one for each item and receiver."""

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
    """Build a row of the ledger for an item and one of its receivers.

    Parameters
    ----------
    item : str
        Name of the item in the ledger, the same at its sender and at each receiver.
    receiver : str
        Name of the device or user that it is for.
    created_us, delivered_us, read_us, refused_us : int, optional
        Time of the event, in µs of virtual time; None: not part of this row.
    expired_us : int, optional
        Time at which the item expires, in µs of virtual time; None: not part of this row.
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
