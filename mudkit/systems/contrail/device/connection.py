"""Connection of a module with one cloud provider: outbox and pull component (Contrail 4.1).

Outbox, which stores messages until the provider has answered:

=============  =====================================================================================
add            store the message with its number; it waits for a flush
flush          send all waiting messages
acknowledge    remove the message; after a cache miss, send the item with its body
mark_failed    the provider is unreachable
retransmit     send overdue messages again, see :mod:`mudkit.delivery.retransmit`
follow_link    at link up, send all flushed messages again
=============  =====================================================================================

The outbox is bounded, because a provider may never answer. From ``MAX_OUT`` messages on, it refuses items and
filters of applications. Keys and other messages of the module itself have the same capacity again, after
which the oldest of them are evicted. Of white-lists, and of each group, only the last message is kept.

Pull component:

=======  =================  ==================================================================
state    event              action, next state
=======  =================  ==================================================================
asleep   interval over      request a page; asked
asked    page with entries  acknowledge them and request the next page, unless it is the second copy of
                            a page that was requested again; asked
asked    empty page         with an idle timeout: open; without: asleep
asked    timeout            probe, because the page may be on its way over a slow link; asked
asked    answer to a probe  request again, because links keep the order: the page was lost; asked
open     filled             request a page; asked
open     idle timeout       send bye; asleep
any      link down          asleep; at link up, an overdue request is sent at once
any      send failed        asleep for at least ``_MIN_FAILED_US``
other    page               late: its entries are received, and delivered again
=======  =================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.outbox import Outbox
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import CancelTimer, Effect, Send, SetTimer, size_bytes
from mudkit.systems.contrail.device.module_state import ModuleState
from mudkit.systems.contrail.messages import (
    Bye,
    Data,
    Deliver,
    Membership,
    OpenQueue,
    Probe,
    Pull,
    Push,
    Unread,
    Withdraw,
)

RETRY: Final = "push again "
MAX_OUT: Final = 10_000
_PUSH_TIMEOUT_US: Final = 10_000_000
"""Initial timeout: a page takes 7 s over a slow link, and the answer may be queued behind it."""
PULL: Final = "pull "
_PULL_TIMEOUT_US: Final = 20_000_000
"""Least timeout of a page: 7 s over a slow link, and it may be queued behind others. Longer where the last
page took more than half of it; doubles with each probe."""
_MAX_PROBE_US: Final = 60_000_000
"""Longest time between two probes."""
_MIN_FAILED_US: Final = 1_000_000
"""Minimum sleep after the provider was unreachable."""

OutboxMessage = OpenQueue | Membership | Push | Withdraw


class _PendingMessage(msgspec.Struct, frozen=True):
    """A message in the outbox, until the provider has answered."""

    message: OutboxMessage
    is_named: bool
    """The provider should have the body of the item in its cache."""
    is_own: bool
    """The module itself sends it, not an application."""
    replaces: str | None
    """A later message of the same name replaces it."""


class ProviderOutbox:
    """Outbox for one provider: stores messages until it has answered; ``relay`` is its index."""

    def __init__(self, module: ModuleState, relay: int) -> None:
        self._module, self.relay = module, relay
        self.gateway = ""
        """Address of the gateway."""
        self.is_reached = True
        """The provider has answered since it was last unreachable."""
        self._is_up = False
        self._pending = Outbox(module.machine_ports, _PendingMessage, f"out {relay}", 2 * MAX_OUT)
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(f"{RETRY}{relay}", _PUSH_TIMEOUT_US)
        self._batch: set[int] = set()
        """Numbers of messages that wait for a flush."""
        self._missing: set[int] = set()
        """Numbers of items that were not in the cache of the provider."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """True if messages of applications are refused; those of the module itself never are."""
        return len(self._pending) >= MAX_OUT

    def add(
        self,
        message: OutboxMessage,
        *,
        is_named: bool = False,
        is_own: bool = False,
        replaces: str | None = None,
    ) -> list[Effect]:
        """Store a message, to be sent at the next flush; its number must be above all earlier ones.

        It takes the place of those that replace the same; of too many, the oldest of the module's own is
        dropped. Return the effects of settling these.
        """
        replaced = [
            seq
            for seq, pending in self._pending.items()
            if replaces is not None and pending.replaces == replaces
        ]
        if len(self._pending) - len(replaced) >= 2 * MAX_OUT:
            replaced.append(next(seq for seq, pending in self._pending.items() if pending.is_own))
        effects = self._remove(replaced)
        self._pending.add(_PendingMessage(message, is_named, is_own, replaces), message.number)
        self._batch.add(message.number)
        return effects

    def forget(self, device: str) -> tuple[list[tuple[Push, str]], list[Effect]]:
        """Remove a device from all destinations; return the messages concerned with the removed ports."""
        forgotten: list[tuple[Push, str]] = []
        effects: list[Effect] = []
        for seq, pending in list(self._pending.items()):
            if not isinstance(pending.message, Push):
                continue
            left, ports = _without_device(device, pending.message)
            forgotten += [(pending.message, port) for port in ports]
            if ports and left is None:
                effects += self._remove([seq])
            elif ports and left is not None:
                self._pending.replace(seq, replace(pending, message=left))
        return forgotten, effects

    def flush(self) -> list[Effect]:
        """Send all messages that wait for a flush."""
        batch, self._batch = sorted(self._batch), set()
        return self._send(batch)

    def acknowledge(self, number: int, *, is_missing: bool) -> tuple[OutboxMessage | None, list[Effect]]:
        """Process an acknowledgement: return the message if it is settled, or send a body the cache lacks.

        None: the message is not settled, or was settled before.
        """
        if number not in self._pending:
            return None, []
        self.is_reached = True
        pending = self._pending[number]
        if not is_missing:
            return pending.message, self._remove([number])
        if not pending.is_named or number in self._missing:
            return None, []  # late answer: the body was sent already
        self._missing.add(number)
        return None, self._send([number])

    def mark_failed(self, number: int) -> None:
        """Mark the provider as unreachable, if the message is in flight; it keeps its deadline."""
        if self._is_up and number in self._in_flight:
            self.is_reached = False

    def retransmit(self) -> list[Effect]:
        """Send overdue messages again, when the timer of the outbox fires."""
        now_us = self._module.now_us
        return [*self._send(self._in_flight.overdue(now_us)), *self._in_flight.restart(now_us)]

    def follow_link(self, *, is_up: bool) -> list[Effect]:
        """Send flushed messages again at link up, because they may be lost; stop the timer at link down."""
        self._is_up = is_up
        if not is_up:
            return list(self._in_flight.clear())
        return self._send([seq for seq, _ in self._pending.items() if seq not in self._batch])

    def _remove(self, numbers: Iterable[int]) -> list[Effect]:
        """Delete messages from the outbox with all that is known of them; they are settled."""
        effects: list[Effect] = []
        for number in numbers:
            self._pending.ack(number)
            self._batch.discard(number)
            self._missing.discard(number)
            effects += self._in_flight.settle(self._module.now_us, number)
        return effects

    def _send(self, numbers: Iterable[int]) -> list[Effect]:
        """Send messages if the link is up, an item without its body if the provider should have it cached."""
        effects: list[Effect] = []
        for number in numbers if self._is_up else ():
            pending = self._pending[number]
            push = pending.message
            has_body = not pending.is_named or number in self._missing
            if isinstance(push, Push) and isinstance(push.message, Data) and not has_body:
                push = replace(push, message=replace(push.message, body=None))
            effects.append(Send(self.gateway, push))
            effects += self._in_flight.start(self._module.now_us, number, size_bytes(push))
        return effects


def _without_device(device: str, push: Push) -> tuple[Push | None, list[str]]:
    """Return a message without a destination device, or None if it has no other, and the device's ports."""
    message = push.message
    ports = [to.port for to in message.to if to.device == device]
    left = [to for to in message.to if to.device != device]
    return (replace(push, message=replace(message, to=left)) if left else None), ports


class PullComponent:
    """Pull component for one provider: requests pages of the device's queue; ``relay`` is its index."""

    def __init__(self, module: ModuleState, relay: int) -> None:
        self._module, self._timer = module, f"{PULL}{relay}"
        self.gateway = ""
        """Address of the gateway."""
        self.is_up = False
        self.interval_us: int | None = None
        """Polling interval; None: no port is open."""
        self.idle_us = 0
        """Idle timeout."""
        self._state = "asleep"
        self._visit = module.first
        self._is_held = False
        """The last request asked to keep the connection open when the queue is empty."""
        self._asked_us = self._page_us = 0
        """Time of the last request, and how long the last page took."""
        self._probes = 0
        """Number of probes since the last request."""
        self._repeated = 0
        """Number of requests of this visit that were repeated, whose pages may both come."""
        self._got: list[int] = []
        self._storage_incarnation: str | UnsetType = UNSET
        """Incarnation of the storage that delivered these entries."""
        self._asleep_since_us: int | None = None
        """None: no request since link up."""

    @property
    def is_asleep(self) -> bool:
        """No connection is open or requested."""
        return self._state == "asleep"

    def follow_link(self, *, is_up: bool) -> list[Effect]:
        """Record a change of the link, which ends an open connection; request a page or set the timer."""
        self.is_up = is_up
        if not self.is_asleep:
            self._state, self._asleep_since_us = "asleep", None
        return self.schedule_request()

    def schedule_request(self) -> list[Effect]:
        """Request a page or set the timer for it, if asleep: after a change of link or ports."""
        if not self.is_asleep:
            return []
        if self.is_up and self.interval_us is not None:
            if self._asleep_since_us is None:
                return self.request_page()
            left_us = self._asleep_since_us + self.interval_us - self._module.now_us
            return self.request_page() if left_us <= 0 else [SetTimer(self._timer, left_us)]
        return [CancelTimer(self._timer)]

    def request_page(self) -> list[Effect]:
        """Acknowledge received entries and request the next page."""
        if self.is_asleep:
            self._visit += 1
            self._got, self._repeated = [], 0
        self._state, self._is_held = "asked", self.idle_us > 0
        self._asked_us, self._probes = self._module.now_us, 0
        incarnation = self._storage_incarnation if self._got else UNSET
        pull = Pull(self._module.me, self._visit, self._got, self._is_held, incarnation)
        return [Send(self.gateway, pull), SetTimer(self._timer, max(_PULL_TIMEOUT_US, 2 * self._page_us))]

    def receive_page(self, message: Deliver) -> tuple[list[Unread], list[Effect]]:
        """Return the messages of a page, not decoded yet; request the next page, or keep the connection open.

        Messages of a page that was not requested, or came twice, are returned, too, without another effect.
        """
        messages, numbers = [content for _, content in message.page], [number for number, _ in message.page]
        if self._state != "asked" or message.visit != self._visit:
            return messages, []  # late: not acknowledged, so they are delivered again
        is_again = message.storage_incarnation == self._storage_incarnation and not set(numbers).isdisjoint(
            self._got
        )
        if self._repeated and is_again:
            self._repeated -= 1
            return messages, []  # the second copy of the last page; the next one is on its way
        self._got, self._storage_incarnation = numbers, message.storage_incarnation
        self._page_us = self._module.now_us - self._asked_us
        if messages or (self.idle_us > 0 and not self._is_held):
            return messages, self.request_page()
        if self.idle_us > 0:
            self._state = "open"
            return messages, [SetTimer(self._timer, self.idle_us)]
        return messages, self._sleep()

    def request_page_early(self) -> list[Effect]:
        """Request a page before the interval is over, because a push has opened a connection anyway."""
        return self.request_page() if self.is_asleep and self.is_up and self.interval_us else []

    def receive_filled(self) -> list[Effect]:
        """Request a page after a notification over the open connection, or after the answer to a probe."""
        if self._state == "open":
            self._got = []
            return self.request_page()
        if self._state == "asked" and self._probes:
            self._repeated += 1
            return self.request_page()
        return []

    def handle_timer(self) -> list[Effect]:
        """Handle the end of the polling interval, the timeout or the idle timeout."""
        if self._state == "open":
            return [Send(self.gateway, Bye(self._module.me, self._visit)), *self._sleep()]
        return self._probe() if self._state == "asked" else self.schedule_request()

    def handle_send_failed(self) -> list[Effect]:
        """Sleep for the interval, because the provider is unreachable."""
        if self.is_asleep or not self.is_up:
            return []
        self._state, self._asleep_since_us = "asleep", self._module.now_us
        return [SetTimer(self._timer, max(self.interval_us or 0, _MIN_FAILED_US))]

    def _probe(self) -> list[Effect]:
        """Ask the gateway for a sign, which follows the page if that is on its way."""
        self._probes += 1
        wait_us = min(_PULL_TIMEOUT_US << min(self._probes, 10), _MAX_PROBE_US)
        return [Send(self.gateway, Probe(self._module.me, self._visit)), SetTimer(self._timer, wait_us)]

    def _sleep(self) -> list[Effect]:
        """Record that no connection is open, without a bye; request a page after the polling interval."""
        self._state, self._asleep_since_us = "asleep", self._module.now_us
        return [] if self.interval_us is None else [SetTimer(self._timer, self.interval_us)]
