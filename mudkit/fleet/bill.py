"""One bill: every message, byte, wake-up and millijoule is charged once, to (system, device, direction)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Account", "Bill", "BillRow"]


class BillRow(NamedTuple):
    """A row of the bill.

    Parameters
    ----------
    system, device : str
    direction : {'up', 'down'}
        As seen from the device.
    messages : int
        The number of messages that were begun, also of those that were cut.
    bytes : int
        The bytes that went over the link: the whole of what arrived, and what had gone of what was cut.
    radio_mj : float
    wakeups : int
        How often the radio was opened for one of them.
    """

    system: str
    device: str
    direction: str
    messages: int
    bytes: int
    radio_mj: float
    wakeups: int


class Account:
    """What one system costs one device in one direction."""

    __slots__ = ("bytes", "device", "direction", "messages", "radio_mj", "system", "wakeups")

    def __init__(self, system: str, device: str, direction: str) -> None:
        self.system = system
        self.device = device
        self.direction = direction
        self.messages = 0
        self.bytes = 0
        self.radio_mj = 0.0
        self.wakeups = 0


class Bill:
    """All accounts of a run."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str, str], Account] = {}
        self._by_device: dict[str, list[Account]] = {}

    def account(self, system: str, device: str, direction: str) -> Account:
        """Give an account; it is opened when it is asked for first."""
        key = system, device, direction
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(*key)
            self._by_device.setdefault(device, []).append(account)
        return account

    def of_device(self, device: str) -> Sequence[Account]:
        """Give the accounts of a device."""
        return self._by_device.get(device, ())

    def accounts(self) -> Iterator[Account]:
        """Give them, sorted by system, device and direction."""
        for key in sorted(self._accounts):
            yield self._accounts[key]
