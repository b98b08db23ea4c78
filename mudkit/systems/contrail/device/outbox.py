"""What a module sends to one cloud provider: kept until that has answered (Contrail 4.1, push).

A provider that never comes back costs a bounded place: with ``MOST_OUT`` messages an outbox takes no item and
no filter of an application any more. Keys, and what else a module sends by itself, have as much room again;
then the oldest of them go. Of white-lists, and of each group, only the last word waits.

========  ==========================================================================================
add       durably, with the next number; it waits
flush     everything that waits goes
sent      the relay has it: out of the outbox; an item that was only named and is not in the cache
          any more goes again, with its content
failed    the relay is not there: it is tried again
timer     what nobody has answered in its time goes again: each message has a time of its own, which
          nothing that is sent later moves
link up   the same
========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.events import Send, SetTimer, size_bytes
from mudkit.systems.contrail.device.core import Core

__all__ = ["MOST_OUT", "RETRY", "Outbox"]

RETRY: Final = "push again "
MOST_OUT: Final = 10_000
"""Messages that wait for a provider."""
_RETRY_US: Final = 10_000_000
_RETRY_US_PER_BYTE: Final = 400
"""A slow link takes 100 µs a byte, and others may be in front."""
_LOST_US: Final = 1_000_000
_MOST_DOUBLED: Final = 6


class Outbox:
    """The outbox for one provider.

    Parameters
    ----------
    core : Core
    relay : int
        Which of the module's providers.
    """

    def __init__(self, core: Core, relay: int) -> None:
        self._core, self.relay = core, relay
        self.gateway = ""
        """Where it sends to."""
        self.is_up = False
        self.is_reached = True
        """Whether the provider answered of late."""
        self._sent: dict[int, tuple[int, int] | None] = {}
        """By number the size of what may be on its way and when it goes again; None: it waits for a flush."""
        self._underway_bytes = 0
        self._own: dict[int, None] = {}
        """What may go when there is no room: it has been asked for by nobody."""
        self._last: dict[str, int] = {}
        for key, kept in core.store.items(self._prefix):
            self._note(int(key.removeprefix(self._prefix)), kept)
        self._timer_us: int | None = None
        """When the timer fires."""
        self._failures = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing that an application asks for."""
        return len(self._sent) >= MOST_OUT

    def add(
        self,
        message: Mapping[str, Any],
        *,
        is_named: bool = False,
        is_own: bool = False,
        replaces: str | None = None,
    ) -> int:
        """Take a message, and give its number.

        Parameters
        ----------
        message : mapping
        is_named : bool
            Whether the relay should have the content of this item.
        is_own : bool
            Whether it has been asked for by nobody.
        replaces : str, optional
            It stands in place of the last one of this name.
        """
        number = self._core.next_number()
        entry = {**message, "device": self._core.me, "number": number}
        kept = {"entry": entry, "named": is_named, "own": is_own, "replaces": replaces}
        if replaces in self._last:
            self._forget(self._last[replaces])
        self._core.store.put(self._key(number), kept)
        self._note(number, kept)
        if len(self._sent) > 2 * MOST_OUT and self._own:
            self._forget(next(iter(self._own)))
        return number

    def forget(self, device: str) -> list[tuple[int, Mapping[str, Any], Mapping[str, Any]]]:
        """Take a device off the destinations of what waits; give numbers, messages, and its entries there."""
        forgotten = []
        for number in list(self._sent):
            kept = self._core.store.get(self._key(number))
            message = kept["entry"].get("message", {"to": []})
            left = [each for each in message["to"] if each["device"] != device]
            forgotten += [(number, message, each) for each in message["to"] if each["device"] == device]
            if left and len(left) < len(message["to"]):
                entry = {**kept["entry"], "message": {**message, "to": left}}
                self._core.store.put(self._key(number), {**kept, "entry": entry})
            elif message["to"] and not left:
                self._forget(number)
        return forgotten

    def flush(self) -> None:
        """Send everything that waits; what may be on its way is left to it."""
        self._send([number for number, sent in self._sent.items() if sent is None])

    def answered(self, number: int, results: Any) -> Mapping[str, Any] | None:
        """Take an answer; give the message that it is about, unless it goes again."""
        if number not in self._sent:
            return None
        self.is_reached, self._failures = True, 0
        kept = self._core.store.get(self._key(number))
        if results is None:
            if not kept["named"]:
                return None  # it comes late: the content is on its way already
            self._core.store.put(self._key(number), {**kept, "named": False})
            self._send([number])
            return None
        self._forget(number)
        entry: Mapping[str, Any] = kept["entry"]
        return entry

    def failed(self, number: int) -> None:
        """Try again, the later the more often it has failed."""
        if not self.is_up or self._sent.get(number) is None:
            return
        if self.is_reached or not self._failures:
            self._failures += 1
        self.is_reached = False
        self._mark(number, 0)

    def again(self) -> None:
        """Send again what nobody has answered for long."""
        self._timer_us = None
        if not self.is_up:
            return
        if not self.is_reached:
            self._failures = min(self._failures + 1, _MOST_DOUBLED)
        now_us = self._core.now_us
        self._send([number for number, sent in self._sent.items() if sent is not None and sent[1] <= now_us])
        self._fire_at(min((sent[1] for sent in self._sent.values() if sent), default=None))

    def link(self, *, is_up: bool) -> None:
        """Take note of the network; what was sent over another one may be lost."""
        self.is_up = is_up
        if is_up:
            self._send([number for number, sent in self._sent.items() if sent is not None])

    def _note(self, number: int, kept: Mapping[str, Any]) -> None:
        self._sent[number] = None  # it waits
        if kept["own"]:
            self._own[number] = None
        if kept["replaces"] is not None:
            self._last[kept["replaces"]] = number

    def _forget(self, number: int) -> None:
        self._core.store.delete(self._key(number))
        sent = self._sent.pop(number)
        self._underway_bytes -= sent[0] if sent else 0
        self._own.pop(number, None)
        for name in [each for each, last in self._last.items() if last == number]:
            del self._last[name]

    def _send(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            kept = self._core.store.get(self._key(number))
            message = kept["entry"]
            if kept["named"]:
                message = {**message, "message": {**message["message"], "body": None}}
            self._mark(number, size_bytes(message))
            if self.is_up:
                self._core.effects.append(Send(self.gateway, message))

    def _mark(self, number: int, size: int) -> None:
        """Take note that a message may be on its way from now on, and when it goes again."""
        before = self._sent[number]
        self._underway_bytes += size - (before[0] if before else 0)
        due_us = self._core.now_us + self._wait_us()
        self._sent[number] = size, due_us
        if self.is_up:
            self._fire_at(due_us)

    def _wait_us(self) -> int:
        """Say how long an answer may take."""
        if not self.is_reached:
            return _LOST_US << self._failures
        return _RETRY_US + _RETRY_US_PER_BYTE * self._underway_bytes

    def _fire_at(self, due_us: int | None) -> None:
        """Let the timer fire then, unless it fires before."""
        if due_us is not None and (self._timer_us is None or due_us < self._timer_us):
            self._timer_us = due_us
            self._core.effects.append(SetTimer(f"{RETRY}{self.relay}", due_us - self._core.now_us))

    @property
    def _prefix(self) -> str:
        return f"out {self.relay}\n"

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:012d}"
