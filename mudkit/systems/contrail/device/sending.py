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
key refused      a key that did not fit in a queue is sent again with the next item
===============  ===================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from typing import Final

import msgspec
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.errors import ParameterError
from mudkit.events import CancelTimer, Complete, Effect, SetTimer
from mudkit.systems.contrail.crypto import Secret, build_data, digest, item_header, seal
from mudkit.systems.contrail.device.channels import Channel
from mudkit.systems.contrail.device.connection import MAX_OUT, ProviderOutbox
from mudkit.systems.contrail.device.filters import Filters, InstalledFilter, InstalledFilters, SentFilter
from mudkit.systems.contrail.device.module_state import ModuleState
from mudkit.systems.contrail.device.pending_calls import (
    ACCEPTED,
    PendingCall,
    PendingCalls,
    Publication,
    build_installation,
)
from mudkit.systems.contrail.items import Backlogged, Endpoint, Published, QueueFull, delivery_name, unpack
from mudkit.systems.contrail.messages import (
    ChannelKey,
    DeviceMessage,
    Filter,
    InstallFilter,
    ItemKey,
    Publish,
    Push,
    PushAnswer,
    Withdraw,
)

PUSH: Final = "push"
MAX_NAMED: Final = 1000
"""Number of recent items of a port that are deduplicated by name."""


class _NamedItem(msgspec.Struct, frozen=True):
    """A recent item with a name, to find out whether the next one of this name is a retransmission."""

    digest: bytes
    seq: int
    epoch: int
    relays: list[int]
    """Indices of the providers that were sent the body."""
    key: bytes


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
        self._calls = PendingCalls(module.me, installed, outboxes)
        self._batches: Counter[str] = Counter()
        """Number of messages waiting for a flush, by port."""

    # -- items

    def publish(self, op_id: int, operation: Publish) -> list[Effect]:
        """Send an item to the endpoints whose filters match; the call completes when providers answer."""
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
        destinations, rooms = tuple(to), self._outboxes_with_room()
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
        call = Publication(op_id, list(destinations), is_uploaded=is_uploaded)
        effects += [*keys, *self._enqueue(operation.port, message, call, rooms, named=named.relays)]
        called = delivery_name(source, name, named.seq, operation.packed)
        return [*effects, *(
            delivery(called, device, created_us=module.now_us, expired_us=to[device, port])
            for device, port in destinations
        )]  # fmt: skip

    def _prepare_item(
        self, channel: Channel, operation: Publish, to: list[Endpoint]
    ) -> tuple[_NamedItem, str, list[Effect]]:
        """Return key and numbers of an item, its name, and the effects of sending keys.

        A retransmission keeps its numbers, so that providers use the cached ciphertext (Contrail 3.4.1).
        """
        module, port, item, packed = self._module, channel.port, operation.item, operation.packed
        known = None if item is None else module.store.get(f"item {port}\n{item}", _NamedItem)
        if known is not None and known.digest == digest(packed):
            readers = [endpoint for endpoint in to if channel.can_read(known.epoch, [endpoint])]
            others = [endpoint for endpoint in to if endpoint not in readers]
            effects = self._enqueue_key(ItemKey, port, known.seq, Secret(known.key), others)
            if readers:
                secret, lacking = channel.use_key(known.epoch, readers)
                effects += self._enqueue_key(ChannelKey, port, known.epoch, secret, lacking)
            return known, item or "", effects
        seq, epoch = channel.take_seq(), channel.choose_epoch(to)
        self._record_name(port, item, None if known is None else known.seq, seq)
        name = f"~{seq}" if item is None else item
        secret, lacking = channel.use_key(epoch, to)
        key = module.cipher.item_key(secret, item_header((module.me, port), name, seq, epoch))
        named = _NamedItem(digest(packed), seq, epoch, [], bytes(key))
        return named, name, self._enqueue_key(ChannelKey, port, epoch, secret, lacking)

    def _record_name(self, port: str, item: str | None, before: int | None, seq: int) -> None:
        """Store the name of an item by its sequence number; evict the oldest name."""
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

    def _enqueue_key(
        self,
        kind: type[ChannelKey] | type[ItemKey],
        port: str,
        slot: int,
        secret: Secret,
        to: Sequence[Endpoint],
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
                module.cipher, kind, (module.me, port), module.take_number(), slot, ports, bytes(secret)
            )
            for outbox in self._outboxes:
                effects += outbox.add(Push(module.me, module.take_number(), message), is_own=True)
        return effects

    def _renew_channels(self) -> None:
        """Begin a new epoch in each channel with its next item, because a friend has left."""
        for channel in self._all_channels():
            channel.renew()

    def _all_channels(self) -> list[Channel]:
        """Return the channels of all ports that have ever published."""
        names = [key.removeprefix("channel ") for key in self._module.store.keys("channel ")]
        return [self._channel(name) for name in names if "\n" not in name]  # others are channel keys

    def _channel(self, port: str) -> Channel:
        """Return the channel of a port."""
        if port not in self._channels:
            self._channels[port] = Channel(self._module, port)
        return self._channels[port]

    # -- filters

    def install(self, op_id: int, operation: InstallFilter) -> list[Effect]:
        """Install a filter on a device or a group, or replace an own one; the call results in its number."""
        module, slot = self._module, operation.slot
        self._check_room()
        before = None if slot is None else self._installed.get(slot)
        place = (operation.port, operation.to, operation.group, operation.remote)
        if slot is None:
            slot = module.take_number()
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
        call = build_installation(op_id, slot, installed, is_new=operation.slot is None)
        return self._send_filter(call, slot, installed)

    def resend(self, devices: Set[str]) -> list[Effect]:
        """Send filters and keys again to devices that may have lost them."""
        effects: list[Effect] = []
        for channel in self._all_channels():
            for epoch, key, holders in channel.held_keys(devices):
                effects += self._enqueue_key(ChannelKey, channel.port, epoch, key, holders)
        for slot, installed in self._installed.items():
            if installed.to is None or installed.to in devices:
                effects += self._send_filter(None, slot, installed)
        return [*effects, *self.flush()]

    def resend_group_filters(self) -> list[Effect]:
        """Send the filters of groups again after a change of friends, who are their destinations."""
        groups = [(slot, kept) for slot, kept in self._installed.items() if kept.group is not None]
        return [effect for slot, kept in groups for effect in self._send_filter(None, slot, kept)]

    def remove(self, op_id: int, slot: int) -> list[Effect]:
        """Remove an own filter, here at once and at its target by a message."""
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
        effects = self._send_filter(build_installation(op_id, slot, removed), slot, removed)
        self._installed.remove(slot)
        return effects

    def _send_filter(self, call: PendingCall | None, slot: int, installed: InstalledFilter) -> list[Effect]:
        """Seal a filter for its target and send it; ``call``: waits for the answers (None: sent again)."""
        module = self._module
        sent = SentFilter(installed.predicate, installed.item_expires_us)
        known = sorted(module.friends & set(module.settings.directory))
        to = known if installed.to is None else [installed.to]
        message = seal(
            module.cipher, Filter, (module.me, installed.port), module.take_number(), slot,
            dict.fromkeys(to, installed.remote), msgspec.json.encode(sent),
            group=installed.group, expires_us=installed.expires_us,
        )  # fmt: skip
        rooms = self._outboxes if call is None else self._outboxes_with_room()
        return self._enqueue(installed.port, message, call, rooms)

    def _outboxes_with_room(self) -> list[ProviderOutbox]:
        """Return the outboxes that accept messages of applications."""
        return [outbox for outbox in self._outboxes if not outbox.is_full]

    def _check_room(self) -> None:
        """Raise QueueFull if no outbox accepts messages of applications."""
        if not self._outboxes_with_room():
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
        forgotten, effects = self._withdraw_everything(device)
        for push, port in forgotten:
            if isinstance(push.message, Filter):
                lost = InstalledFilter(push.message.port, device, None, port)
                filters.setdefault(push.message.slot, lost)
        effects += self._calls.remove_receiver(device)
        if device in self._module.settings.directory:
            for slot, installed in sorted(filters.items(), key=lambda pair: pair[0]):
                effects += self._send_filter(
                    None, slot, replace(installed, predicate=None, to=device, group=None)
                )
        self._renew_channels()
        return [*effects, *self.flush()]

    def replace_device(self, device: str) -> list[Effect]:
        """Send the filters again to a wiped device, and withdraw older messages, which it cannot decrypt."""
        waiting: dict[int, PendingCall] = {}
        forgotten, effects = self._withdraw_everything(device)
        for push, _ in forgotten:
            call = self._calls.get(push.number)
            if call is not None and isinstance(push.message, Filter):
                waiting[push.message.slot] = call
        for call in waiting.values():
            self._calls.withdraw(call)
        effects += self._calls.remove_receiver(device)
        for slot, installed in self._installed.items():
            if installed.to in (None, device):
                effects += self._send_filter(waiting.pop(slot, None), slot, installed)
        for call in waiting.values():  # removals of filters, which the wipe deleted
            effects += self._calls.complete_without_receivers(call)
        return [*effects, *self.flush()]

    def _withdraw_everything(self, device: str) -> tuple[list[tuple[Push, str]], list[Effect]]:
        """Withdraw all messages to a device; return those in the outboxes, each with the device's port."""
        forgotten, effects = list[tuple[Push, str]](), list[Effect]()
        for channel in self._all_channels():
            channel.forget(device)
        for outbox in self._outboxes:
            pushes, more = outbox.forget(device)
            forgotten += pushes
            effects += more
        return forgotten, [*effects, *self.withdraw(device)]

    def withdraw(self, device: str) -> list[Effect]:
        """Ask each provider to remove the messages to a device from its queue."""
        effects: list[Effect] = []
        for outbox in self._outboxes:
            withdraw = Withdraw(self._module.me, self._module.take_number(), device)
            effects += outbox.add(withdraw, is_own=True, replaces=f"withdraw {device}")
        return effects

    # -- providers

    def _enqueue(
        self,
        port: str,
        message: DeviceMessage,
        call: PendingCall | None,
        outboxes: Sequence[ProviderOutbox],
        named: Collection[int] = (),
    ) -> list[Effect]:
        """Add a message to outboxes; flush when the batch of its port is full, or after the push timeout."""
        effects: list[Effect] = []
        for outbox in outboxes:
            push = Push(self._module.me, self._module.take_number(), message)
            effects += outbox.add(push, is_named=outbox.relay in named, is_own=call is None)
            if call is not None:
                self._calls.add(push.number, outbox.relay, call)
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

    def receive_answer(self, relay: int, answer: PushAnswer) -> list[Effect]:
        """Process the answer of a provider: settle the message; complete its call if the result is known."""
        number, results = answer.number, answer.results
        sent, effects = self._outboxes[relay].acknowledge(number, is_missing=results is None)
        if sent is None:
            return effects
        if self._calls.get(number) is None:
            # an ItemKey is sent with each retransmission anyway
            if isinstance(sent, Push) and isinstance(sent.message, ChannelKey):
                lacking = [(device, port) for device, port, done in results or () if done not in ACCEPTED]
                self._channel(sent.message.port).mark_undelivered(sent.message.slot, lacking)
            return effects
        return [*effects, *self._calls.record_answer(number, relay, results or ())]

    def handle_send_failed(self, relay: int, number: int) -> list[Effect]:
        """Mark a provider as unreachable; calls do not wait for it."""
        self._outboxes[relay].mark_failed(number)
        return self._calls.complete_if_unreachable(number)
