"""Budget of a device's local store, which its apps share (Mobius 2): whose records are evicted, and which.

Rules:

=========  =========================================================================================
budget     committed records: the largest ``max_rows`` of the apps; each keeps to its own, too
share      the budget, divided by the number of apps
too many   of the apps that hold more than their share, the one evicts whose record was not received
           for longest, down to its share at most; and so on
=========  =========================================================================================

So an app may use what others do not use of theirs until they need it. An app that fills the store evicts its
own records, and none of an app that holds no more than its share. Pending writes are no part of the budget
and are never evicted.

Each app has a store of its own, and a record that two apps hold counts twice. Which records an app may see
depends on its token, its reader's data and writers' predicates, and on what it has seen before: answers must
not become older. One copy for two apps would have to be judged for each of them at every read, and committed
together with the pending writes of both.
"""

from __future__ import annotations

from mudkit.systems.mud.device.attachment import EvictRows, StoreUse


class StoreBudget:
    """Committed records of the apps of a device, as they have reported them."""

    def __init__(self) -> None:
        self._uses: dict[str, StoreUse] = {}

    def record_use(self, app: str, use: StoreUse) -> tuple[str, EvictRows] | None:
        """Store what an app holds; return which app is to evict records, None: there is room for all."""
        self._uses[app] = use
        uses = self._uses.values()
        budget = max(one.max_rows for one in uses)
        excess, share = sum(one.rows for one in uses) - budget, budget // len(uses)
        if excess <= 0:
            return None
        above = sorted((one.oldest_us, other) for other, one in self._uses.items() if one.rows > share)
        (_, first), *next_ones = above
        until_us = next_ones[0][0] if next_ones else None
        return first, EvictRows(max(share, self._uses[first].rows - excess), until_us)
