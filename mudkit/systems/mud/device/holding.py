"""Inspection of a client's store: the versions that it holds, and what a reader would be shown of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite, Version
from mudkit.systems.mud.tables.queries import tables_of_sent
from mudkit.systems.mud.tables.replica import columns_of, is_visible
from mudkit.wire import Fields, Value

__all__ = ["holdings"]


def holdings(
    local: Local, name: str, reader: Fields, auth: Mapping[str, str], now_us: int
) -> Iterator[dict[str, Value]]:
    """Yield the versions held of a table's records, by key; pending ones after the committed one.

    Parameters
    ----------
    local : Local
    name : str
        Name of the table.
    reader, auth : mapping
        A reader's data, and what was verified of it.
    now_us : int

    Yields
    ------
    dict
        ``key``; ``version``, None while it is pending; ``record``, None after a delete; ``predicate``, the
        writer's, as text or None; ``type`` of a pending write, else None; ``visible``: whether this reader
        would be shown it, None where only the cloud can tell; ``age_s``, since the cloud last sent it, 0
        while it is pending.
    """
    table = local.tables.get(name)
    rows = {row.key: row for row in local.rows(name)}
    for key in sorted({*rows, *local.pending_keys(name)}):
        versions: list[Version] = [rows[key]] if key in rows else []
        for version in [*versions, *local.pending(name, key)]:
            predicate = version.predicate
            needs_cloud = predicate is not None and bool(tables_of_sent(predicate))
            yield {
                "key": key,
                "version": version.ver if isinstance(version, HeldRow) else None,
                "record": None if version.data is None else columns_of(version, table),
                "predicate": None if predicate is None else predicate.text,
                "type": version.type if isinstance(version, PendingWrite) else None,
                "visible": None if needs_cloud else is_visible(version, reader, auth, table),
                "age_s": (now_us - version.held_us) / 1e6 if isinstance(version, HeldRow) else 0.0,
            }
