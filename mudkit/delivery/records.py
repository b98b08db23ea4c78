"""Rows of the ledger of deliveries: one for each item and receiver."""

from __future__ import annotations

from mudkit.events import Record


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
    """Build a row of the ledger for an item and one of its receivers, a device or user.

    Times are those of the events, in µs of virtual time; ``expired_us`` is when the item expires. None: not
    part of this row.
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
