"""Versions of records that a device knows of and does not hold: it evicted them, or was told of them only.

No later answer of the device may be older than these. Positions count in the log that the device knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from mudkit.systems.mud.device.local import HeldRow

_MAX_LOST: Final = 64
"""Lost versions that are remembered one by one."""


class LostVersion(Struct, frozen=True):
    """Newest version of a record that a device knew and does not hold; ``row`` None: with unknown columns."""

    partition: int
    lsn: int
    row: HeldRow | None


class LostVersions:
    """Lost versions of one client.

    Of the oldest ones only the last position of each partition is remembered.
    """

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], LostVersion] = {}
        self._forgotten_lsns: dict[tuple[str, int], int] = {}
        """Position up to which a partition may have lost others, by table and partition."""
        self._answered_lsns: dict[tuple[str, int], int] = {}
        """Position at which an answer has shown last which records of a partition match a query."""

    def add(self, name: str, key: str, lost: LostVersion) -> None:
        """Add a lost version of a record, unless a newer one is known."""
        known = self._versions.pop((name, key), lost)
        self._versions[name, key] = max(known, lost, key=lambda one: one.lsn)
        if len(self._versions) > _MAX_LOST:
            oldest = next(iter(self._versions))
            former = self._versions.pop(oldest)
            self.forget(oldest[0], former.partition, former.lsn)

    def forget(self, name: str, partition: int, lsn: int) -> None:
        """Note that any record of a partition may have been lost in a version up to a position."""
        place = name, partition
        self._forgotten_lsns[place] = max(lsn, self._forgotten_lsns.get(place, 0))

    def record_answer(self, name: str, partition: int, lsn: int) -> None:
        """Note that the cloud has answered a query of a partition at a position: what is absent is gone."""
        place = name, partition
        self._answered_lsns[place] = max(lsn, self._answered_lsns.get(place, 0))

    def remove(self, name: str, key: str) -> None:
        """Remove the lost version of a record, which is held again."""
        self._versions.pop((name, key), None)

    def leave_table(self, name: str) -> None:
        """Remove what is known of the former table of a name."""
        self._versions = {one: lost for one, lost in self._versions.items() if one[0] != name}
        self._forgotten_lsns = {one: lsn for one, lsn in self._forgotten_lsns.items() if one[0] != name}
        self._answered_lsns = {one: lsn for one, lsn in self._answered_lsns.items() if one[0] != name}

    def go_back(self, shared_lsn: int) -> None:
        """Remove what another incarnation of the log does not have."""
        self._versions = {one: lost for one, lost in self._versions.items() if lost.lsn <= shared_lsn}
        for lsns in (self._forgotten_lsns, self._answered_lsns):
            lsns.update({place: min(lsn, shared_lsn) for place, lsn in lsns.items()})

    def newest_lsn(self, name: str, key: str, partition: int) -> int:
        """Return the position before which no version is the newest of a record that is not held."""
        lost, place = self._versions.get((name, key)), (name, partition)
        return max(
            0 if lost is None else lost.lsn,
            self._forgotten_lsns.get(place, 0),
            self._answered_lsns.get(place, 0),
        )

    def of_table(self, name: str) -> Iterator[tuple[str, LostVersion]]:
        """Iterate over the lost versions of a table that are remembered, by key."""
        return ((key, lost) for (table, key), lost in self._versions.items() if table == name)

    def forgotten_lsns(self, name: str) -> Mapping[int, int]:
        """Return up to which position each partition of a table may have lost others."""
        return {partition: lsn for (table, partition), lsn in self._forgotten_lsns.items() if table == name}
