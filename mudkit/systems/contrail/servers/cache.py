"""The item cache of a storage: what was uploaded, for those who get it later (Contrail 3.4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mudkit.events import Store

__all__ = ["ItemCache"]


class ItemCache:
    """Ciphertexts by device, port and item; of each device the newest uploads.

    Parameters
    ----------
    store : Store
    most : int
        Items of a device; the oldest upload goes first.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._in_order: dict[str, dict[int, str]] = {}
        """Of each device the keys of what is in the cache, the oldest first."""
        for place, key in store.items("cached "):
            source, number = place.removeprefix("cached ").rsplit("\n", 1)
            self._in_order.setdefault(source, {})[int(number)] = key

    def put(self, op: Mapping[str, Any]) -> None:
        """Take an upload, in place of the one before of that name, unless that is newer."""
        source, key = op["source"], _item_key(op)
        in_order = self._in_order.setdefault(source, {})
        before = self._store.get(key)
        if before is not None:
            if (before["seq"], before["epoch"]) > (op["seq"], op["epoch"]):
                return
            self._forget(source, before["number"])
        number = next(reversed(in_order), 0) + 1
        self._store.put(key, {"seq": op["seq"], "epoch": op["epoch"], "number": number, "body": op["body"]})
        self._store.put(f"cached {source}\n{number:012d}", key)
        in_order[number] = key
        while len(in_order) > self._most:
            self._forget(source, next(iter(in_order)))

    def get(self, op: Mapping[str, Any]) -> Any:
        """Give a ciphertext, if it is the copy that is meant."""
        entry = self._store.get(_item_key(op))
        is_meant = entry is not None and (entry["seq"], entry["epoch"]) == (op["seq"], op["epoch"])
        return entry["body"] if is_meant else None

    def _forget(self, source: str, number: int) -> None:
        self._store.delete(self._in_order[source].pop(number))
        self._store.delete(f"cached {source}\n{number:012d}")


def _item_key(op: Mapping[str, Any]) -> str:
    return f"item {op['source']}\n{op['port']}\n{op['item']}"
