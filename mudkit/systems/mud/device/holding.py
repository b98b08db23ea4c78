"""What lies in a client's store, and what of it a reader would be shown: for looking at a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.tables.queries import tables_of_sent
from mudkit.systems.mud.tables.replica import is_visible

__all__ = ["holdings"]


def holdings(
    local: Local, name: str, reader: Mapping[str, Any], auth: Mapping[str, Any], now_us: int
) -> Iterator[dict[str, Any]]:
    """Give the versions of a table's records that are held, by key; after the committed one the pending ones.

    Parameters
    ----------
    local : Local
    name : str
        The name of the table.
    reader, auth : mapping
        What a reader says of itself, and what was verified.
    now_us : int

    Yields
    ------
    dict
        ``key``; ``version``, None while it is pending; ``record``, None after a delete; ``predicate``, the
        writer's, as text or None; ``type`` of a pending write, else None; ``visible``: whether this reader
        would be shown it, None where only the cloud can say; ``age_s``, since the cloud last said so, 0 for
        what is pending.
    """
    table = local.tables.get(name)
    rows = {row["key"]: row for row in local.rows(name)}
    for key in sorted({*rows, *local.pending_keys(name)}):
        committed = [rows[key]] if key in rows else []
        for version in [*committed, *local.pending(name, key)]:
            data, predicate = version["data"], version["predicate"]
            yield {
                "key": key,
                "version": version.get("ver"),
                "record": data if data is None or table is None else table.seen(version),
                "predicate": None if predicate is None else predicate["text"],
                "type": version.get("type"),
                "visible": None if tables_of_sent(predicate) else is_visible(version, reader, auth, table),
                "age_s": (now_us - version["held_us"]) / 1e6 if "held_us" in version else 0.0,
            }
