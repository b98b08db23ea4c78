"""The groups of publishers in a storage: who is in them, and filters that wait for more (Contrail 3.4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mudkit.events import Store

__all__ = ["MOST_FILTERS", "PublisherGroups"]

MOST_FILTERS: Final = 1000
"""Of a device for a group; the oldest go, those that have expired before others."""


class PublisherGroups:
    """Members and filters of groups.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._members: dict[str, set[str]] = {}
        self._filters: dict[str, dict[str, tuple[str, int, int | None]]] = {}
        """Of each group the keys of its filters, with who sent them, their numbers, and when they expire."""
        for key, _ in store.items("member "):
            group, member = key.removeprefix("member ").split("\n")
            self._members.setdefault(group, set()).add(member)
        for key, kept in store.items("filter "):
            self._note(key.removeprefix("filter ").split("\n")[0], key, kept)

    def join(self, now_us: int, group: str, member: str) -> list[dict[str, Any]]:
        """Take a member; give the filters that are addressed to it and have not expired."""
        self._members.setdefault(group, set()).add(member)
        self._store.put(f"member {group}\n{member}", True)
        self._expire(now_us, group)
        kept = [self._store.get(key) for key in self._filters.get(group, ())]
        return [_addressed(each, entry) for each in kept for entry in each["to"] if entry["device"] == member]

    def leave(self, group: str, member: str) -> None:
        """Let a member go."""
        self._members.get(group, set()).discard(member)
        self._store.delete(f"member {group}\n{member}")

    def spread(self, now_us: int, group: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Keep a filter, and give a copy for each member that it is addressed to."""
        source = message["from"]
        key = f"filter {group}\n{source}\n{message['port']}\n{message['slot']}"
        filters = self._filters.setdefault(group, {})
        if key in filters and filters[key][1] > message["number"]:
            return []
        self._store.put(key, dict(message))
        self._note(group, key, message)
        mine = [each for each, (of, _, _) in filters.items() if of == source]
        if len(mine) > MOST_FILTERS:
            self._expire(now_us, group)
            left = sorted((filters[each][1], each) for each in mine if each in filters)
            for _, oldest in left[: max(len(left) - MOST_FILTERS, 0)]:
                self._forget(group, oldest)
        members = self._members.get(group, set())
        return [_addressed(message, entry) for entry in message["to"] if entry["device"] in members]

    def _note(self, group: str, key: str, message: Mapping[str, Any]) -> None:
        entry = message["from"], message["number"], message["expires_us"]
        self._filters.setdefault(group, {})[key] = entry

    def _expire(self, now_us: int, group: str) -> None:
        for key, (_, _, expires_us) in list(self._filters.get(group, {}).items()):
            if expires_us is not None and expires_us <= now_us:
                self._forget(group, key)

    def _forget(self, group: str, key: str) -> None:
        del self._filters[group][key]
        self._store.delete(key)


def _addressed(message: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Give a message with one destination only."""
    return {**message, "to": [entry]}
