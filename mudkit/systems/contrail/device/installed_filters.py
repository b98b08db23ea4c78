"""The filters that this device has installed on others: whose keys and items it accepts (Contrail 3.3).

Items of a filter that has expired may still be on their way; of such filters the last ``MOST_EXPIRED`` count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mudkit.systems.contrail.device.core import Core

__all__ = ["MOST_EXPIRED", "Asked"]

MOST_EXPIRED: Final = 1000


class Asked:
    """What this device has asked others for.

    Parameters
    ----------
    core : Core
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._all: dict[int, dict[str, Any]] = {
            int(key.removeprefix("asked ")): kept for key, kept in core.store.items("asked ")
        }

    def add(self, slot: int, asked: dict[str, Any]) -> None:
        """Take note of a filter.

        Parameters
        ----------
        slot : int
        asked : dict
            ``port`` (own), ``to`` (a device) or ``group``, ``remote`` (its port), and the filter as sent.
        """
        self._all[slot] = asked
        self._core.store.put(f"asked {slot:012d}", asked)
        now_us = self._core.now_us
        over = [
            (each["expires_us"], other)
            for other, each in self._all.items()
            if each["expires_us"] is not None and each["expires_us"] <= now_us
        ]
        for _, other in sorted(over)[: max(len(over) - MOST_EXPIRED, 0)]:
            self.remove(other)

    def get(self, slot: int) -> dict[str, Any] | None:
        """Give a filter that was installed."""
        return self._all.get(slot)

    def is_same(self, slot: int, port: str, to: str | None, group: str | None, remote: str) -> bool:
        """Say whether a filter that was installed lies between these."""
        kept = self._all.get(slot, {})
        return [kept.get(name) for name in ("port", "to", "group", "remote")] == [port, to, group, remote]

    def remove(self, slot: int) -> None:
        """Forget a filter: what comes because of it is not accepted any more."""
        self._all.pop(slot, None)
        self._core.store.delete(f"asked {slot:012d}")

    def items(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give all of them."""
        yield from list(self._all.items())

    def has(self, port: str, device: str, remote: str) -> bool:
        """Say whether one of an own port lies on a device's port, or on that port of a group."""
        return any(
            each["port"] == port and each["remote"] == remote and each["to"] in (None, device)
            for each in self._all.values()
        )
