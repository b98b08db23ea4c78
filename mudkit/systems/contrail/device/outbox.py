"""Outbox of a module for one cloud provider: messages are kept until it has answered (Contrail 4.1).

========  ==========================================================================================
add       stored with its number; it waits for a flush
flush     everything is sent
sent      acknowledged: removed; an item that was only named and is not in the cache is sent with its
          body
failed    the provider is unreachable
timer     overdue messages are sent again, see :mod:`mudkit.delivery.retransmit`
link up   everything that was flushed is sent again
========  ==========================================================================================

The outbox is bounded for a provider that never answers. With ``MAX_OUT`` messages it takes no item or filter
of an application. Keys, and whatever else a module sends by itself, have as much room again; then the oldest
of them are evicted. Of white-lists, and of each group, only the last message waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from mudkit.delivery.outbox import Outbox as Durable
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, size_bytes
from mudkit.events import Send as SendTo
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.messages import Data, Join, Membership, Send, Withdraw

__all__ = ["MAX_OUT", "RETRY", "Outbox", "Pushed"]

RETRY: Final = "push again "
MAX_OUT: Final = 10_000
_TIMEOUT_US: Final = 10_000_000
"""Initial timeout: a page takes 7 s over a slow link, and the answer may wait behind it."""

Pushed = Join | Membership | Send | Withdraw


class _Post(msgspec.Struct, frozen=True):
    """A message in the outbox.

    Parameters
    ----------
    message : Join, Membership, Send or Withdraw
    is_named : bool
        Whether the provider should have the body of this item.
    is_own : bool
        Whether no application has asked for it.
    replaces : str or None
        A later message of this name replaces it.
    """

    message: Pushed
    is_named: bool
    is_own: bool
    replaces: str | None


class Outbox:
    """The outbox for one provider; ``relay`` is its index.

    Attributes
    ----------
    gateway : str
        The address that it sends to.
    is_reached : bool
        Whether the provider has answered since it was last found unreachable.
    """

    def __init__(self, core: Core, relay: int) -> None:
        self._core, self.relay = core, relay
        self.gateway = ""
        self.is_reached = True
        self._is_up = False
        self._posts = Durable(core.machine_ports, _Post, f"out {relay}", 2 * MAX_OUT)
        self._unanswered: RetransmitTimer[int] = RetransmitTimer(f"{RETRY}{relay}", _TIMEOUT_US)
        self._batch: set[int] = set()
        """Messages that wait for a flush."""
        self._missing: set[int] = set()
        """Named items whose body the provider does not have."""

    def __len__(self) -> int:
        return len(self._posts)

    @property
    def is_full(self) -> bool:
        """Whether it takes no message of an application."""
        return len(self._posts) >= MAX_OUT

    def add(
        self, message: Pushed, *, is_named: bool = False, is_own: bool = False, replaces: str | None = None
    ) -> list[Effect]:
        """Store a message, see :class:`_Post`; its number is above all before."""
        gone = [
            seq for seq, post in self._posts.items() if replaces is not None and post.replaces == replaces
        ]
        if len(self._posts) - len(gone) >= 2 * MAX_OUT:
            gone.append(next(seq for seq, post in self._posts.items() if post.is_own))
        effects = self._remove(gone)
        self._posts.add(_Post(message, is_named, is_own, replaces), message.number)
        self._batch.add(message.number)
        return effects

    def forget(self, device: str) -> tuple[list[tuple[Send, str]], list[Effect]]:
        """Remove a device from the destinations of all messages; return these with its ports."""
        forgotten: list[tuple[Send, str]] = []
        effects: list[Effect] = []
        for seq, post in list(self._posts.items()):
            if not isinstance(post.message, Send):
                continue
            left, ports = _without(device, post.message)
            forgotten += [(post.message, port) for port in ports]
            if ports and left is None:
                effects += self._remove([seq])
            elif ports and left is not None:
                self._posts.replace(seq, replace(post, message=left))
        return forgotten, effects

    def flush(self) -> list[Effect]:
        """Send all messages that wait for it."""
        batch, self._batch = sorted(self._batch), set()
        return self._send(batch)

    def answered(self, number: int, *, is_missing: bool) -> tuple[Pushed | None, list[Effect]]:
        """Take an answer; return the message that it acknowledges."""
        if number not in self._posts:
            return None, []
        self.is_reached = True
        post = self._posts[number]
        if not is_missing:
            return post.message, self._remove([number])
        if not post.is_named or number in self._missing:
            return None, []  # a late answer: the body has been sent already
        self._missing.add(number)
        return None, self._send([number])

    def failed(self, number: int) -> None:
        """Note that the provider is unreachable; the message stays due at its deadline."""
        if self._is_up and number in self._unanswered:
            self.is_reached = False

    def again(self) -> list[Effect]:
        """Send overdue messages again."""
        now_us = self._core.now_us
        return [*self._send(self._unanswered.overdue(now_us)), *self._unanswered.fired(now_us)]

    def link(self, *, is_up: bool) -> list[Effect]:
        """Follow the network: what was sent over another one may be lost."""
        self._is_up = is_up
        if not is_up:
            return list(self._unanswered.clear())
        return self._send([seq for seq, _ in self._posts.items() if seq not in self._batch])

    def _remove(self, numbers: Iterable[int]) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers:
            self._posts.ack(number)
            self._batch.discard(number)
            self._missing.discard(number)
            effects += self._unanswered.answered(self._core.now_us, number)
        return effects

    def _send(self, numbers: Iterable[int]) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers if self._is_up else ():
            post = self._posts[number]
            push = post.message
            has_body = not post.is_named or number in self._missing
            if isinstance(push, Send) and isinstance(push.message, Data) and not has_body:
                push = replace(push, message=replace(push.message, body=None))
            effects.append(SendTo(self.gateway, push))
            effects += self._unanswered.sent(self._core.now_us, number, size_bytes(push))
        return effects


def _without(device: str, push: Send) -> tuple[Send | None, list[str]]:
    """Return a message without the destinations on a device, and the ports there; None: no other is left."""
    message = push.message
    ports = [to.port for to in message.to if to.device == device]
    left = [to for to in message.to if to.device != device]
    return (replace(push, message=replace(message, to=left)) if left else None), ports
