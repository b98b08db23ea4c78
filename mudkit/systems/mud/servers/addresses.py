"""Addresses of the devices of one notification server, which pass from one device to another.

A device takes the address of another one, which may be a device of another server: each server announces the
addresses that its devices take (Occupied) to the others that have ranges, until these acknowledge that they
send nothing there (Vacated), or are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Send
from mudkit.systems.mud.messages.notifications import Occupied, Vacated
from mudkit.systems.mud.servers.ranges import SUSPECT_US

OCCUPIED: Final = "occupied"
"""Timer of the announcements to the other servers."""
_TIMEOUT_US: Final = SUSPECT_US
_MAX_TIMEOUT_US: Final = 20 * 60 * 1_000_000


class Addresses:
    """Names of the sessions that have an address; ``others`` are the other servers that have ranges."""

    def __init__(self, others: Sequence[str]) -> None:
        self._others = others
        self._session_at: dict[str, str] = {}
        self._announced: RetransmitTimer[tuple[str, str]] = RetransmitTimer(
            OCCUPIED, _TIMEOUT_US, _MAX_TIMEOUT_US
        )
        """Unacknowledged announcements, by server and address."""

    def has_address(self, session: str, address: str) -> bool:
        """Return whether a session still has an address: no other device has taken it."""
        return self._session_at.get(address) == session

    def is_free(self, address: str, session: str) -> bool:
        """Return whether no session of another name has an address."""
        return self._session_at.get(address, session) == session

    def assign(self, now_us: int, address: str, session: str) -> tuple[str | None, Sequence[Effect]]:
        """Assign an address to a session, and announce it; return the session that loses it, if any."""
        former = self._session_at.get(address)
        self._session_at[address] = session
        effects: list[Effect] = []
        for server in self._others:
            effects += self._announce(now_us, server, address)
        return (None if former == session else former), effects

    def release(self, address: str, session: str) -> None:
        """Remove the address that a session has left, unless another session has it by now."""
        if self.has_address(session, address):
            del self._session_at[address]

    def withdraw(self, now_us: int, server: str, address: str) -> tuple[str | None, Sequence[Effect]]:
        """Remove an address that a device of another server has taken, and acknowledge this.

        Return the session that loses it, None: no one had it here.
        """
        settled = self._announced.settle(now_us, (server, address))
        return self._session_at.pop(address, None), [*settled, Send(server, Vacated(address))]

    def replace_others(self, now_us: int, others: Sequence[str]) -> Sequence[Effect]:
        """Announce addresses to these servers from now on; those that others lack are announced no more."""
        self._others = others
        withdrawn = [key for key in self._announced if key[0] not in others]
        return [effect for key in withdrawn for effect in self._announced.settle(now_us, key)]

    def silent_servers(self, now_us: int) -> list[str]:
        """Return the servers that have not acknowledged an announcement in time."""
        return sorted({server for server, _ in self._announced.overdue(now_us)})

    def record_vacated(self, now_us: int, server: str, address: str) -> Sequence[Effect]:
        """Stop announcing an address to a server, which sends nothing there any more."""
        return self._announced.settle(now_us, (server, address))

    def announce_overdue(self, now_us: int) -> Sequence[Effect]:
        """Announce again what was not acknowledged, unless nobody has the address any more."""
        effects: list[Effect] = []
        for server, address in self._announced.overdue(now_us):
            if address in self._session_at:
                effects += self._announce(now_us, server, address)
            else:
                effects += self.record_vacated(now_us, server, address)
        return [*effects, *self._announced.restart(now_us)]

    def _announce(self, now_us: int, server: str, address: str) -> Sequence[Effect]:
        """Announce to another server that a device here has an address, and start the deadline."""
        return Send(server, Occupied(address)), *self._announced.start(now_us, (server, address))
