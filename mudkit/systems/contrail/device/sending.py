"""Messages to other modules, through all cloud providers: items, filters and keys (Contrail 3.2 to 3.5).

===============  ===================================================================================
publish          evaluate the filters; without a match nothing is sent. Otherwise encrypt the item once
                 for all receivers and add it to the outbox of each provider that has room; without one
                 the result is a backlog. A provider that should have the item cached is sent its name
                 only
repeat           the same content under a name of the last ``MAX_NAMED`` of a port is a retransmission:
                 a receiver that may not have the channel key is sent the key of this item
install, remove  seal the filter for a device, or for all friends that may be in a group
resend           filters and keys, to a friend that may have lost them, and to all friends when a
                 provider may have lost its queues
forget           withdraw everything for a former friend or a wiped device, and complete its calls
flush            when a port has as many waiting messages as its batch size, or after the push timeout
complete         a call is completed when a provider has accepted it for all receivers, or all reachable
                 providers have answered
key refused      a key that did not fit in a queue is sent again with the next item
===============  ===================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.errors import AccessDenied, MudkitError, ParameterError
from mudkit.events import CancelTimer, Complete, Effect, SetTimer
from mudkit.systems.contrail.crypto import Secret, build_data, digest, item_header, seal
from mudkit.systems.contrail.device.channels import Channel
from mudkit.systems.contrail.device.connection import MAX_OUT, ProviderOutbox
from mudkit.systems.contrail.device.filters import Filters, InstalledFilter, InstalledFilters, SentFilter
from mudkit.systems.contrail.device.module_state import ModuleState
from mudkit.systems.contrail.items import Backlogged, Endpoint, Published, QueueFull, item_name, unpack
from mudkit.systems.contrail.messages import (
    DeviceMessage,
    Filter,
    InstallFilter,
    ItemKey,
    Key,
    Publish,
    Push,
    PushAnswer,
    Withdraw,
)

PUSH: Final = "push"
MAX_NAMED: Final = 1000
"""Number of recent items of a port that are deduplicated by name."""
_ACCEPTED: Final = ("ok", "obsolete")

_Result: TypeAlias = Published | Backlogged | MudkitError | int


class _Named(msgspec.Struct, frozen=True):
    """A recent item, deduplicated by its name."""

    digest: bytes
    seq: int
    epoch: int
    relays: list[int]
    """Indices of the providers that were sent the body."""
    key: bytes


@dataclass(eq=False)
class _PendingCall:
    """A call that waits for answers of providers."""

    op_id: int
    to: list[Endpoint] | None
    """Receivers; None: members of a group."""
    left: set[int] = field(default_factory=set)
    """Indices of the providers that have not answered."""
    answers: dict[Endpoint, str] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class _Publication(_PendingCall):
    is_uploaded: bool
    """The body was sent to a provider."""


@dataclass(eq=False, kw_only=True)
class _Installation(_PendingCall):
    """The installation, replacement or removal of a filter."""

    slot: int
    installed: InstalledFilter
    is_new: bool


class Sending:
    """Sender of items, filters and keys, through the outbox of each provider."""

    def __init__(
        self,
        module: ModuleState,
        filters: Filters,
        installed: InstalledFilters,
        outboxes: Sequence[ProviderOutbox],
    ) -> None:
        self._module, self._outboxes = module, outboxes
        self._filters, self._installed = filters, installed
        self._channels: dict[str, Channel] = {}
        self._open: dict[int, _PendingCall] = {}
        """Calls by message number."""
        self._batches: Counter[str] = Counter()
        """Number of messages waiting for a flush, by port."""

    # -- items

    def publish(self, op_id: int, operation: Publish) -> list[Effect]:
        """Send an item to the endpoints whose filters match."""
        module, source = self._module, (self._module.me, operation.port)
        channel = self._channel(operation.port)
        channel.set_receivers(self._filters.receivers(operation.port))
        metadata, _ = unpack(operation.packed)
        matches, effects = self._filters.match(operation.port, metadata)
        own_us = None if operation.expires_us is None else module.now_us + operation.expires_us
        to = {
            endpoint: min((us for us in (until_us, own_us) if us is not None), default=None)
            for endpoint, until_us in matches.items()
            if operation.only is None or endpoint[0] in operation.only
        }
        destinations, rooms = tuple(to), self._with_room()
        if not to or not rooms:
            refused = Backlogged(destinations) if to else Published((), uploaded=False)
            return [*effects, Complete(op_id, refused)]
        named, name, keys = self._prepare_item(channel, operation, list(to))
        body = module.cipher.encrypt(
            named.key, named.seq, item_header(source, name, named.seq, named.epoch), operation.packed
        )
        if operation.item is not None:
            have = sorted({*named.relays, *(outbox.relay for outbox in rooms)})
            module.store.put(f"item {operation.port}\n{name}", replace(named, relays=have))
        message = build_data(module.cipher, source, name, named.seq, named.epoch, body, to)
        is_uploaded = any(outbox.relay not in named.relays for outbox in rooms)
        call = _Publication(op_id, list(destinations), is_uploaded=is_uploaded)
        effects += [*keys, *self._send(operation.port, message, call, rooms, named=named.relays)]
        called = item_name(source, name, named.seq, operation.packed)
        return [*effects, *(
            delivery(called, device, created_us=module.now_us, expired_us=to[device, port])
            for device, port in destinations
        )]  # fmt: skip

    def _prepare_item(
        self, channel: Channel, operation: Publish, to: list[Endpoint]
    ) -> tuple[_Named, str, list[Effect]]:
        """Return key and numbers of an item, its name, and the effects of sending keys.

        A retransmission keeps its numbers, so that providers use the cached ciphertext (Contrail 3.4.1).
        """
        module, port, item, packed = self._module, channel.port, operation.item, operation.packed
        known = None if item is None else module.store.get(f"item {port}\n{item}", _Named)
        if known is not None and known.digest == digest(packed):
            readers = [endpoint for endpoint in to if channel.can_read(known.epoch, [endpoint])]
            others = [endpoint for endpoint in to if endpoint not in readers]
            effects = self._distribute(ItemKey, port, known.seq, Secret(known.key), others)
            if readers:
                secret, lacking = channel.use(known.epoch, readers)
                effects += self._distribute(Key, port, known.epoch, secret, lacking)
            return known, item or "", effects
        seq, epoch = channel.next_seq(), channel.epoch_for(to)
        self._rename(port, item, None if known is None else known.seq, seq)
        name = f"~{seq}" if item is None else item
        secret, lacking = channel.use(epoch, to)
        key = module.cipher.item_key(secret, item_header((module.me, port), name, seq, epoch))
        named = _Named(digest(packed), seq, epoch, [], bytes(key))
        return named, name, self._distribute(Key, port, epoch, secret, lacking)

    def _rename(self, port: str, item: str | None, before: int | None, seq: int) -> None:
        """Store the name of a sequence number and evict the oldest name."""
        store = self._module.store
        if before is not None:
            store.delete(f"named {port}\n{before:012d}")
        if item is not None:
            store.put(f"named {port}\n{seq:012d}", item)
        oldest = f"named {port}\n{seq - MAX_NAMED:012d}"
        forgotten = store.get(oldest, str)
        if forgotten is not None:
            store.delete(oldest)
            store.delete(f"item {port}\n{forgotten}")

    def _distribute(
        self, kind: type[Key] | type[ItemKey], port: str, slot: int, secret: Secret, to: Sequence[Endpoint]
    ) -> list[Effect]:
        """Add a key for some endpoints to the outboxes, to be flushed with the item (Contrail 3.3)."""
        module, effects = self._module, list[Effect]()
        by_device: dict[str, list[str]] = {}
        for device, their_port in to:
            by_device.setdefault(device, []).append(their_port)
        while by_device:
            ports = {device: theirs.pop() for device, theirs in by_device.items()}
            by_device = {device: theirs for device, theirs in by_device.items() if theirs}
            message = seal(
                module.cipher, kind, (module.me, port), module.next_number(), slot, ports, bytes(secret)
            )
            for outbox in self._outboxes:
                effects += outbox.add(Push(module.me, module.next_number(), message), is_own=True)
        return effects

    def _renew(self) -> None:
        for channel in self._all_channels():
            channel.renew()

    def _all_channels(self) -> list[Channel]:
        names = [key.removeprefix("channel ") for key in self._module.store.keys("channel ")]
        return [self._channel(name) for name in names if "\n" not in name]  # others are channel keys

    def _channel(self, port: str) -> Channel:
        if port not in self._channels:
            self._channels[port] = Channel(self._module, port)
        return self._channels[port]

    # -- filters

    def install(self, op_id: int, operation: InstallFilter) -> list[Effect]:
        """Install a filter on a device or a group, or replace an own filter."""
        module, slot = self._module, operation.slot
        self._check_room()
        before = None if slot is None else self._installed.get(slot)
        place = (operation.port, operation.to, operation.group, operation.remote)
        if slot is None:
            slot = module.next_number()
        elif before is None or (before.port, before.to, before.group, before.remote) != place:
            raise ParameterError(
                "A filter can replace one of the same port on the same port.",
                where="replaces",
                found=str(slot),
                expected="the number of such a filter",
            )
        until_us = None if operation.lifetime_us is None else module.now_us + operation.lifetime_us
        installed = InstalledFilter(*place, operation.predicate, operation.item_expires_us, until_us)
        self._installed.add(slot, installed)
        call = _installation(op_id, slot, installed, is_new=operation.slot is None)
        return self._send_filter(call, slot, installed)

    def resend(self, devices: Set[str]) -> list[Effect]:
        """Send filters and keys again to devices that may have lost them."""
        effects: list[Effect] = []
        for channel in self._all_channels():
            for epoch, key, holders in channel.holdings(devices):
                effects += self._distribute(Key, channel.port, epoch, key, holders)
        for slot, installed in self._installed.items():
            if installed.to is None or installed.to in devices:
                effects += self._send_filter(None, slot, installed)
        return [*effects, *self.flush()]

    def resend_group_filters(self) -> list[Effect]:
        """Send the filters of groups again after a change of friends."""
        groups = [(slot, kept) for slot, kept in self._installed.items() if kept.group is not None]
        return [effect for slot, kept in groups for effect in self._send_filter(None, slot, kept)]

    def remove(self, op_id: int, slot: int) -> list[Effect]:
        """Remove an own filter."""
        installed = self._installed.get(slot)
        if installed is None:
            raise ParameterError(
                "There is no such filter.",
                where="filter",
                found=str(slot),
                expected="a number that install_filter returned, once",
            )
        self._check_room()
        removed = replace(installed, predicate=None)
        effects = self._send_filter(_installation(op_id, slot, removed), slot, removed)
        self._installed.remove(slot)
        return effects

    def _send_filter(self, call: _PendingCall | None, slot: int, installed: InstalledFilter) -> list[Effect]:
        module = self._module
        sent = SentFilter(installed.predicate, installed.item_expires_us)
        known = sorted(module.friends & set(module.settings.directory))
        to = known if installed.to is None else [installed.to]
        message = seal(
            module.cipher, Filter, (module.me, installed.port), module.next_number(), slot,
            dict.fromkeys(to, installed.remote), msgspec.json.encode(sent),
            group=installed.group, expires_us=installed.expires_us,
        )  # fmt: skip
        rooms = self._outboxes if call is None else self._with_room()
        return self._send(installed.port, message, call, rooms)

    def _with_room(self) -> list[ProviderOutbox]:
        """Return the outboxes that accept messages of applications."""
        return [outbox for outbox in self._outboxes if not outbox.is_full]

    def _check_room(self) -> None:
        if not self._with_room():
            raise QueueFull(
                "The outboxes for all relays are full.",
                found=f"{MAX_OUT:,} messages for each",
                remedy="try again when a relay has answered",
            )

    # -- friends

    def unfriend(self, device: str) -> list[Effect]:
        """Send nothing more to a device, except the removal of the filters installed there."""
        filters: dict[int, InstalledFilter] = {}
        for slot, installed in self._installed.items():
            if installed.to in (None, device):
                filters[slot] = installed
                if installed.to == device:
                    self._installed.remove(slot)
        forgotten, effects = self._forget(device)
        for push, port in forgotten:
            if isinstance(push.message, Filter):
                lost = InstalledFilter(push.message.port, device, None, port)
                filters.setdefault(push.message.slot, lost)
        for call in self._calls():
            effects += self._leave(call, device)
        if device in self._module.settings.directory:
            for slot, installed in sorted(filters.items(), key=lambda pair: pair[0]):
                effects += self._send_filter(
                    None, slot, replace(installed, predicate=None, to=device, group=None)
                )
        self._renew()
        return [*effects, *self.flush()]

    def replace_device(self, device: str) -> list[Effect]:
        """Send filters again to a wiped device; drop messages to its former incarnation."""
        waiting: dict[int, _PendingCall] = {}
        forgotten, effects = self._forget(device)
        for push, _ in forgotten:
            call = self._open.get(push.number)
            if call is not None and isinstance(push.message, Filter):
                waiting[push.message.slot] = call
        for call in waiting.values():
            self._drop(call)
            call.left.clear()
        for call in self._calls():
            effects += self._leave(call, device)
        for slot, installed in self._installed.items():
            if installed.to in (None, device):
                effects += self._send_filter(waiting.pop(slot, None), slot, installed)
        for call in waiting.values():  # removals of filters, which the wipe deleted
            call.to = []
            effects += self._complete_if_known(call)
        return [*effects, *self.flush()]

    def _forget(self, device: str) -> tuple[list[tuple[Push, str]], list[Effect]]:
        """Withdraw all messages to a device; return those in the outboxes, with its ports."""
        forgotten, effects = list[tuple[Push, str]](), list[Effect]()
        for channel in self._all_channels():
            channel.forget(device)
        for outbox in self._outboxes:
            pushes, more = outbox.forget(device)
            forgotten += pushes
            effects += more
        return forgotten, [*effects, *self.withdraw(device)]

    def withdraw(self, device: str) -> list[Effect]:
        """Withdraw messages to a device from its queue at each provider."""
        effects: list[Effect] = []
        for outbox in self._outboxes:
            withdraw = Withdraw(self._module.me, self._module.next_number(), device)
            effects += outbox.add(withdraw, is_own=True, replaces=f"withdraw {device}")
        return effects

    # -- providers

    def _send(
        self,
        port: str,
        message: DeviceMessage,
        call: _PendingCall | None,
        outboxes: Sequence[ProviderOutbox],
        named: Collection[int] = (),
    ) -> list[Effect]:
        """Add a message to outboxes; flush when the batch of its port is full."""
        effects: list[Effect] = []
        for outbox in outboxes:
            push = Push(self._module.me, self._module.next_number(), message)
            effects += outbox.add(push, is_named=outbox.relay in named, is_own=call is None)
            if call is not None:
                call.left.add(outbox.relay)
                self._open[push.number] = call
        self._batches[port] += 1
        state = self._module.port(port)
        if self._batches[port] >= (1 if state is None else state.batch):
            effects += self.flush()
        elif self._batches.total() == 1:
            effects.append(SetTimer(PUSH, self._module.settings.push_timeout_us))
        return effects

    def flush(self) -> list[Effect]:
        """Send all waiting messages of all ports."""
        effects: list[Effect] = []
        if self._batches:
            self._batches.clear()
            effects.append(CancelTimer(PUSH))
        for outbox in self._outboxes:
            effects += outbox.flush()
        return effects

    def handle_answer(self, relay: int, answer: PushAnswer) -> list[Effect]:
        """Process the answer of a provider."""
        number, results = answer.number, answer.results
        sent, effects = self._outboxes[relay].acknowledge(number, is_missing=results is None)
        if sent is None:
            return effects
        call = self._open.pop(number, None)
        if call is None:
            # an ItemKey is sent with each retransmission anyway
            if isinstance(sent, Push) and isinstance(sent.message, Key):
                lacking = [(device, port) for device, port, done in results or () if done not in _ACCEPTED]
                self._channel(sent.message.port).mark_undelivered(sent.message.slot, lacking)
            return effects
        call.left.discard(relay)
        for device, port, done in results or ():
            if call.answers.get((device, port)) not in _ACCEPTED:
                call.answers[device, port] = done
        return [*effects, *self._complete_if_known(call)]

    def handle_failure(self, relay: int, number: int) -> list[Effect]:
        """Mark a provider as unreachable: calls do not wait for it."""
        self._outboxes[relay].mark_failed(number)
        call = self._open.get(number)
        return self._complete_if_known(call) if call is not None and call.answers else []

    def _complete_if_known(self, call: _PendingCall) -> list[Effect]:
        """Complete a call if its result is known."""
        is_more = any(self._outboxes[relay].is_reached for relay in call.left)
        result = _without_receivers(call) if call.to == [] else self._result(call, is_more)
        if result is None:
            return []
        self._drop(call)
        if isinstance(result, MudkitError):
            return [Complete(call.op_id, error=result)]
        return [Complete(call.op_id, result)]

    def _result(self, call: _PendingCall, is_more: bool) -> _Result | None:
        """Return the result of a call; None: further answers are expected."""
        if isinstance(call, _Installation):
            if call.to is None or any(answer in _ACCEPTED for answer in call.answers.values()):
                return call.slot
            return None if is_more else self._refusal(call)
        receivers = tuple(call.to or ())
        taken = tuple(receiver for receiver in receivers if call.answers.get(receiver) in _ACCEPTED)
        if len(taken) == len(receivers):
            return Published(receivers, isinstance(call, _Publication) and call.is_uploaded)
        full = tuple(receiver for receiver in receivers if receiver not in taken)
        return None if is_more else Backlogged(full, taken)

    def _refusal(self, call: _Installation) -> MudkitError:
        """Return the error of a filter that no provider accepted; delete a new filter."""
        device = str(call.installed.to)
        if call.is_new:
            self._installed.remove(call.slot)
        if "stranger" not in call.answers.values():
            return QueueFull(
                "The queue of this device is full.", where=device, remedy="try again when it has connected"
            )
        return AccessDenied(
            "A relay has refused this filter: the device does not know this one.",
            where=device,
            found=f"a filter from {self._module.me}",
            expected="one from a friend of that device",
            remedy="ask its user to make this device a friend",
        )

    def _leave(self, call: _PendingCall, device: str) -> list[Effect]:
        """Remove a device from the receivers of a call."""
        left = [receiver for receiver in call.to or () if receiver[0] != device]
        if call.to is None or len(left) == len(call.to):
            return []
        call.to = left
        return self._complete_if_known(call) if not left or call.answers else []

    def _calls(self) -> list[_PendingCall]:
        """Return all waiting calls."""
        return list(dict.fromkeys(self._open.values()))

    def _drop(self, call: _PendingCall) -> None:
        for number in [number for number, waiting in self._open.items() if waiting is call]:
            del self._open[number]


def _installation(
    op_id: int, slot: int, installed: InstalledFilter, *, is_new: bool = False
) -> _Installation:
    to = None if installed.to is None else [(installed.to, installed.remote)]
    return _Installation(op_id, to, slot=slot, installed=installed, is_new=is_new)


def _without_receivers(call: _PendingCall) -> _Result:
    """Return the result of a call that has no receiver left."""
    if not isinstance(call, _Installation):
        return Published((), uploaded=False)
    if call.installed.predicate is None:
        return call.slot
    return AccessDenied(
        "This device is no friend any more.",
        where="to",
        found=repr(call.installed.to),
        expected="a friend until a relay has the filter",
        remedy="befriend it again first",
    )
