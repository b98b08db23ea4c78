"""One bill: every message, byte, wake-up and millijoule is charged once, to (system, device, direction).

A bill that is split has an account for each reason of these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class BillRow(NamedTuple):
    """A row of the bill; ``direction`` is ``up`` or ``down`` as seen from the device.

    That of a short-range link is ``near up`` or ``near down``.

    ``messages`` counts those that were begun, also if they were cut; ``bytes`` what went over the link, the
    sent part of a cut message included; ``wakeups`` how often the radio was opened. Handshakes and pings of a
    transport are bytes and energy, and no messages.
    """

    system: str
    device: str
    direction: str
    messages: int
    bytes: int
    radio_mj: float
    wakeups: int


class Account:
    """Charges of one system on one device in one direction; of one reason, if the bill is split."""

    __slots__ = ("bytes", "device", "direction", "messages", "radio_mj", "reason", "system", "wakeups")

    def __init__(self, system: str, device: str, direction: str, reason: str = "") -> None:
        self.system = system
        self.device = device
        self.direction = direction
        self.reason = reason
        self.messages = 0
        self.bytes = 0
        self.radio_mj = 0.0
        self.wakeups = 0


class Bill:
    """All accounts of a run."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str, str, str], Account] = {}
        self._by_device: dict[str, list[Account]] = {}
        self.sort: Callable[[Any], str] | None = None
        """Returns the reason of a transfer; None: the bill is not split."""

    def account(self, system: str, device: str, direction: str, reason: str = "") -> Account:
        """Return the account of a system, device, direction and reason; open it at the first use."""
        key = system, device, direction, reason
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(*key)
            self._by_device.setdefault(device, []).append(account)
        return account

    def of_device(self, device: str) -> Sequence[Account]:
        """Return the accounts of a device, of all systems and directions."""
        return self._by_device.get(device, ())

    def accounts(self) -> Iterator[Account]:
        """Iterate over all accounts, sorted by system, device, direction and reason."""
        for key in sorted(self._accounts):
            yield self._accounts[key]
