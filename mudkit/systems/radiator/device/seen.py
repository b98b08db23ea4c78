"""The aggregates that have come to a client: the last ones are known when they come again."""

from __future__ import annotations

from typing import Final

from mudkit.events import Store

__all__ = ["SeenAggregates"]

_REMEMBERED: Final = 4096
"""So many of the last aggregates are known again when they come again."""


class SeenAggregates:
    """Names of aggregates, in a ring that outlives the machine.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = {name for _, name in store.items("seen ", str)}

    def __contains__(self, aggregate: str) -> bool:
        return aggregate in self._names

    def add(self, aggregate: str) -> None:
        """Remember an aggregate in the place of the oldest."""
        place = ((self._store.get("place", int) or 0) + 1) % _REMEMBERED
        self._store.put("place", place)
        self._names.discard(self._store.get(f"seen {place:04d}", str) or "")
        self._store.put(f"seen {place:04d}", aggregate)
        self._names.add(aggregate)
