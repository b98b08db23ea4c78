"""The moves of queues from one data centre to another, as one of them sees it (Contrail 4.2.2).

=========  =========================================================================================
begin      a queue is refused here at once, and sent until the other centre has it
adopted    the other centre has it
take       a queue that comes is taken once; one that comes late follows where that queue has gone
=========  =========================================================================================

Moves of a centre are numbered, and each says from which on some are under way: what was before is over, and
nothing is kept of it at either end. Of a device there remains where its queue has gone, and the last version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mudkit.events import Store

__all__ = ["Moves"]


class Moves:
    """The moves of queues from here and to here.

    Parameters
    ----------
    store : Store
    me : str
        The address of this storage.
    """

    def __init__(self, store: Store, me: str) -> None:
        self._store, self._me = store, me
        self._taken: dict[str, set[int]] = {}
        """Of each centre the numbers of moves that were taken, and are perhaps still sent."""
        for key, _ in store.items("adopted "):
            origin, number = key.removeprefix("adopted ").split("\n")
            self._taken.setdefault(origin, set()).add(int(number))

    def gone(self, device: str, version: int) -> Mapping[str, Any] | None:
        """Say where a queue has gone, unless it has come back since: each move has a higher version.

        Who was sent here says by which move, and may be here before what was moved.
        """
        moved: Mapping[str, Any] | None = self._store.get(f"moved {device}")
        if moved is not None and moved["version"] >= version:
            return moved
        if version > self.version(device):
            self._store.put(f"version {device}", version)
            self._store.delete(f"moved {device}")
        return None

    def version(self, device: str) -> int:
        """Give the number of moves of a queue as far as is known here."""
        return self._store.get(f"version {device}") or 0

    def begin(self, device: str, to: str, what: Mapping[str, Any]) -> None:
        """Move a queue away from here."""
        version = self.version(device) + 1
        self._store.put(f"moved {device}", {"to": to, "version": version})
        self.hand_on(to, {**what, "device": device, "version": version})

    def hand_on(self, to: str, what: Mapping[str, Any]) -> None:
        """Send something that has been moved, until it has arrived."""
        number = (self._store.get("moves") or 0) + 1
        self._store.put("moves", number)
        message = {**what, "kind": "moving", "origin": self._me, "number": number, "to": to}
        self._store.put(f"moving {number:012d}", message)

    def under_way(self) -> list[dict[str, Any]]:
        """Give what has to be sent, again."""
        moving = [each for _, each in self._store.items("moving ")]
        return [{**each, "open_from": moving[0]["number"]} for each in moving]

    def adopted(self, number: int) -> None:
        """Take note that something has arrived."""
        self._store.delete(f"moving {number:012d}")

    def take(self, message: Mapping[str, Any]) -> bool:
        """Say whether what comes has not come before."""
        origin, number, open_from = message["origin"], message["number"], message["open_from"]
        taken = self._taken.setdefault(origin, set())
        over = self._store.get(f"over {origin}") or 0
        if number < over or number in taken:
            return False
        taken.add(number)
        self._store.put(f"adopted {origin}\n{number:012d}", True)
        if open_from > over:
            self._store.put(f"over {origin}", open_from)
            for each in sorted(each for each in taken if each < open_from):
                taken.discard(each)
                self._store.delete(f"adopted {origin}\n{each:012d}")
        return True
