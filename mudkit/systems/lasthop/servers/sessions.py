"""The server's sessions with devices: who is there, and what is sent again until it is confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mudkit.events import (
    Effect,
    Send,
    SetTimer,
    Store,
)
from mudkit.systems.lasthop.servers.phone import AGAIN_US, Phone

__all__ = ["AGAIN", "Sessions"]

AGAIN: Final = "again"


class Sessions:
    """Keeps what is known of each phone, and sends again what nobody has confirmed.

    Parameters
    ----------
    store : Store
        What outlives the server.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._phones: dict[str, Phone] = {}
        self._owed: set[str] = set()
        """Devices that were told something which they may not have confirmed."""
        self._unknown: set[str] = set()
        """Devices that were there in another life, and are asked."""
        self._is_again_set = False
        self._now_us = 0
        self._effects: list[Effect] = []

    def _acked(self, device: str, message: Mapping[str, Any]) -> None:
        """Take note of what has come, and send again what the device misses."""
        phone = self._phones.get(device)
        if phone is None or phone.stream is None or phone.stream.name != message["stream"]:
            return
        phone.stream.acked(message["number"])
        if phone.is_there and phone.address is not None:
            lost = phone.stream.missing(frozenset(message.get("missing", ())))
            self._effects += [Send(phone.address, {**each, "device": device}) for each in lost]

    def _check(self, source: str, device: str, phone: Phone, session: tuple[Any, ...]) -> bool:
        """Say whether this is the session that goes on; a device that believes so is asked who it is."""
        goes_on = session == phone.session and phone.is_there
        if not goes_on and not phone.is_over(session):
            self._send(source, "who", device, session=session)
        return goes_on

    def _phone(self, device: str) -> Phone:
        if device not in self._phones:
            self._phones[device] = Phone(len(self._phones))
        return self._phones[device]

    def _keep(self, device: str, phone: Phone) -> None:
        kept = {
            "session": list(phone.session),
            "former": phone.former,
            "address": phone.address,
            "told": phone.facts_heard,
        }
        self._store.put(f"phone {device}", kept)

    def _send(self, to: str, kind: str, device: str, **more: Any) -> None:
        self._effects.append(Send(to, {"kind": kind, "device": device, **more}))

    def _ask_who(self) -> None:
        for device in sorted(self._unknown):
            phone = self._phones[device]
            if phone.address is not None:
                self._send(phone.address, "who", device, session=phone.session)
        if self._unknown:
            self._set_again()

    def _again(self) -> None:
        """Send again what nobody has confirmed, and ask again who is there."""
        self._is_again_set = False
        self._ask_who()
        owed = sorted(self._owed, key=lambda device: self._phones[device].number)
        self._owed.clear()
        for device in owed:
            phone = self._phones[device]
            if not phone.is_there or phone.address is None or not phone.stream or not phone.stream.waiting:
                continue
            self._owed.add(device)
            late = phone.stream.missing(phone.overdue(self._now_us))
            self._effects += [Send(phone.address, {**each, "device": device}) for each in late]
            self._set_again()

    def _set_again(self) -> None:
        if not self._is_again_set:
            self._is_again_set = True
            self._effects.append(SetTimer(AGAIN, AGAIN_US))
