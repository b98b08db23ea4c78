"""Messages from other modules: verified, deduplicated and stored for their application (Contrail 3.3).

===================  ===============================================================================
tampered             dropped, reported as TamperedMessage
from a stranger      dropped, counted
not asked for        an item or key at a port without a filter on its sender: dropped, counted
expired              an item past its expiry: dropped, counted
duplicate            a copy of a received item (honest retransmission): dropped, counted
obsolete             older than a received item of its name, or ``MAX_SEEN`` numbers behind the last of
                     its channel in this generation of the sender, or ``MAX_INCARNATIONS`` behind:
                     dropped, counted
early                an item whose key has not arrived: stored until then, up to ``MAX_EARLY`` of a
                     channel
no room              the inbox of the port has ``MAX_KEPT`` items: dropped, counted; the item may be
                     published again
unknown              from a friend whose public key is not registered yet: stored until it is, up to
                     ``MAX_UNKNOWN``
filter               stored; the application accepts or rejects it
key                  stored; early items are received again
item                 stored until its application has processed it
===================  ===============================================================================

An item is handed to the application as the result of a call or by a notification, and deleted when the
application confirms that it has processed it. After a crash in between it is handed over again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec

from mudkit.delivery.inbox import MAX_INCARNATIONS, Inbox
from mudkit.delivery.records import delivery
from mudkit.errors import ParameterError, PredicateError
from mudkit.events import Complete, Effect, Notify
from mudkit.systems.contrail.crypto import (
    KEY_BYTES,
    Secret,
    decode_message,
    decrypt_item,
    open_sealed,
    received_item_header,
    verify_item,
)
from mudkit.systems.contrail.device.channels import KEPT_EPOCHS
from mudkit.systems.contrail.device.filters import Filters, Groups, InstalledFilters
from mudkit.systems.contrail.device.module_state import NUMBER_BITS, ModuleState
from mudkit.systems.contrail.items import Endpoint, Item, TamperedMessage, delivery_name, unpack
from mudkit.systems.contrail.messages import ChannelKey, Data, DeviceMessage, Filter, ItemKey, Unread

MAX_EARLY: Final = 1000
MAX_SEEN: Final = 4000
"""Must exceed the number of items that senders identify by name (``MAX_NAMED``)."""
MAX_UNKNOWN: Final = 1000
MAX_KEPT: Final = 10_000
"""Capacity of the inbox of a port, in items."""
_PARTS: Final = 3
"""Separators in the store key of a watermark."""


def item_listener(port: str) -> str:
    """Return the name of the callback that gets the items of a port."""
    return f"items at {port}"


class _StoredItem(msgspec.Struct, frozen=True):
    """An item in the inbox of a port, decrypted and still encoded."""

    content: bytes
    source: Endpoint
    item: str
    seq: int


class _PortInbox(msgspec.Struct):
    """Inbox of one port."""

    numbers: list[int] = []
    """Numbers of the stored items, in order of arrival."""
    handed: set[int] = set()
    """Numbers of the items that the application is processing."""
    calls: deque[int] = msgspec.field(default_factory=deque)
    """Calls that wait for an item."""


class ItemInbox:
    """Received items of all ports until their applications have processed them."""

    def __init__(self, module: ModuleState) -> None:
        self._module, self._store = module, module.store
        self._ports: dict[str, _PortInbox] = {}
        for key in module.store.keys("inbox "):
            port, number = key.removeprefix("inbox ").split("\n")
            self._port_inbox(port).numbers.append(int(number))

    def ports(self) -> dict[str, int]:
        """Return the number of items by port."""
        return {name: len(port.numbers) for name, port in self._ports.items()}

    def has_room(self, port: str) -> bool:
        """Return whether the inbox of a port is below its capacity."""
        return len(self._port_inbox(port).numbers) < MAX_KEPT

    def add(self, message: Data, content: bytes) -> list[Effect]:
        """Store an item and hand it over; raise TamperedMessage if it is not an item."""
        try:
            unpack(content)
        except ValueError as error:
            raise TamperedMessage("Expected an item.", where=f"from {message.source}") from error
        port, number = message.to[0].port, self._module.take_number()
        self._port_inbox(port).numbers.append(number)
        kept = _StoredItem(bytes(content), (message.source, message.port), message.item, message.seq)
        self._store.put(_inbox_key(port, number), kept)
        return self.hand_over(port)

    def receive_item(self, port: str, op_id: int) -> list[Effect]:
        """Complete a call with the next item of a port, now or when there is one."""
        self._port_inbox(port).calls.append(op_id)
        return self.hand_over(port)

    def receive_all(self, port: str) -> list[Item]:
        """Return all items of a port, and mark them as handed over."""
        state = self._port_inbox(port)
        state.handed.update(state.numbers)
        return [
            _build_item(number, kept) for number in state.numbers if (kept := self._stored_item(port, number))
        ]

    def hand_over(self, port: str, *, again: bool = False) -> list[Effect]:
        """Complete waiting calls with items, then notify a listening application of the others.

        ``again``: include items that were handed over but not confirmed.
        """
        state, opened = self._port_inbox(port), self._module.port(port)
        if again:
            state.handed.clear()
        listens, effects = opened is not None and opened.listens, list[Effect]()
        for number in state.numbers:
            if not state.calls and not listens:
                break
            kept = None if number in state.handed else self._stored_item(port, number)
            if kept is None:
                continue
            item = _build_item(number, kept)
            effects.append(
                Complete(state.calls.popleft(), item) if state.calls else Notify(item_listener(port), item)
            )
            state.handed.add(number)
        return effects

    def delete(self, port: str, numbers: Collection[int]) -> list[Effect]:
        """Delete items that the application has processed; return when they were read, for the ledger."""
        effects: list[Effect] = []
        for number in numbers:
            kept = self._stored_item(port, number)
            if kept is None:
                continue
            self._store.delete(_inbox_key(port, number))
            self._port_inbox(port).numbers.remove(number)
            self._port_inbox(port).handed.discard(number)
            name = delivery_name(kept.source, kept.item, kept.seq, kept.content)
            effects.append(delivery(name, self._module.me, read_us=self._module.now_us))
        return effects

    def _port_inbox(self, name: str) -> _PortInbox:
        """Return the inbox of a port; create it at the first call."""
        if name not in self._ports:
            self._ports[name] = _PortInbox()
        return self._ports[name]

    def _stored_item(self, port: str, number: int) -> _StoredItem | None:
        """Return a stored item by port and number; None: it was deleted."""
        return self._store.get(_inbox_key(port, number), _StoredItem)


def _inbox_key(port: str, number: int) -> str:
    """Return the store key of an item in an inbox."""
    return f"inbox {port}\n{number:012d}"


def _build_item(number: int, kept: _StoredItem) -> Item:
    """Return a stored item as the application gets it."""
    metadata, payload = unpack(kept.content)
    return Item(metadata, payload, kept.source, kept.item, number)


class _UnverifiedMessage(msgspec.Struct, frozen=True):
    """A message from a friend whose public key is not registered yet."""

    message: DeviceMessage


class Receiving:
    """Receiver of messages from other modules: verifies and decrypts them, and drops what is not due."""

    def __init__(
        self,
        module: ModuleState,
        filters: Filters,
        installed: InstalledFilters,
        groups: Groups,
        inbox: ItemInbox,
    ) -> None:
        self._module, self._store, self._inbox = module, module.store, inbox
        self._filters, self._installed, self._groups = filters, installed, groups
        self._last = Inbox(module.store, "last")
        """Highest number of each channel by generation of its sender."""
        self._unknown = list(module.store.keys("unknown "))

    def receive(self, message: Unread) -> list[Effect]:
        """Process a message that a cloud delivered, by the table above."""
        module = self._module
        try:
            decoded = decode_message(message, module.me)
            if decoded.source in module.friends and decoded.source not in module.settings.directory:
                self._store_unverified(decoded)
                return []
            plain = b""
            if isinstance(decoded, Data):
                verify_item(module.cipher, decoded)
            else:
                plain = open_sealed(module.cipher, decoded)
            if decoded.source not in module.friends:
                module.count("from strangers")
            elif isinstance(decoded, Filter):
                return self._receive_filter(decoded, plain)
            elif not self._installed.has_filter_on(decoded.to[0].port, decoded.source, decoded.port):
                module.count("not asked for")
            elif isinstance(decoded, Data):
                return self._receive_item(decoded)
            else:
                return self._receive_key(decoded, plain)
        except TamperedMessage as error:
            return module.report_problem("tampered", error)
        return []

    def retry_unknown(self) -> list[Effect]:
        """Process stored messages of friends whose public key has been registered since."""
        effects: list[Effect] = []
        for key in list(self._unknown):
            if key.split("\n")[0].removeprefix("unknown ") in self._module.settings.directory:
                self._unknown.remove(key)
                kept = self._store.get(key, _UnverifiedMessage)
                self._store.delete(key)
                effects += [] if kept is None else self.receive(kept.message)
        return effects

    def last_seqs(self, device: str) -> list[int]:
        """Return the last sequence number of each channel and generation of a device."""
        keys = [key for key in self._store.keys(f"last {device}\n") if key.count("\n") == _PARTS]
        return [self._store.get(key, int) or 0 for key in keys]

    def forget_numbers(self, device: str) -> None:
        """Delete keys and numbers of a device that was wiped."""
        for kind in ("last", "seen", "key", "single key"):
            for key in self._store.keys(f"{kind} {device}\n"):
                self._store.delete(key)

    def forget(self, device: str) -> None:
        """Delete messages of a device that wait for a key."""
        for key in (*self._store.keys(f"early {device}\n"), *self._store.keys(f"unknown {device}\n")):
            self._store.delete(key)
        self._unknown = list(self._store.keys("unknown "))

    def _store_unverified(self, message: DeviceMessage) -> None:
        """Store a message until its friend's public key is registered; beyond a limit, drop and count it."""
        if len(self._unknown) >= MAX_UNKNOWN:
            self._module.count("from friends nobody knows yet")
            return
        key = f"unknown {message.source}\n{self._module.take_number():012d}"
        self._store.put(key, _UnverifiedMessage(message))
        self._unknown.append(key)

    def _receive_filter(self, message: Filter, plain: bytes) -> list[Effect]:
        """Store a filter; report one that is refused, and drop one for a group that this device is not in."""
        if message.group is not None and not self._groups.is_member(message.group):
            self._module.count("filters of groups that it has left")
            return []
        try:
            return self._filters.receive(message, plain, self._module.port(message.to[0].port))
        except (PredicateError, ParameterError) as error:
            return self._module.report_problem("refused filters", error)
        except msgspec.MsgspecError as error:
            refused = ParameterError(
                "Expected a filter.", where=f"from {message.source}", found=f"{error}"[:200]
            )
            return self._module.report_problem("refused filters", refused)

    def _receive_key(self, message: ChannelKey | ItemKey, key: bytes) -> list[Effect]:
        """Store a key, unless it is a duplicate or obsolete; receive the early items again that it decrypts.

        Raise TamperedMessage if it is no key.
        """
        if len(key) != KEY_BYTES:
            raise TamperedMessage(
                "Expected a key.",
                where=f"from {message.source}",
                found=f"{len(key)} bytes",
                expected=f"{KEY_BYTES}",
            )
        is_channel = isinstance(message, ChannelKey)
        prefix = f"{'key' if is_channel else 'single key'} {message.source}\n{message.port}\n"
        if not self._store_key(prefix, message.slot, key, KEPT_EPOCHS if is_channel else MAX_EARLY):
            return []
        effects: list[Effect] = []
        for name, item in self._store.items(f"early {message.source}\n{message.port}\n", Data):
            if (item.epoch if is_channel else item.seq) == message.slot:
                self._store.delete(name)
                effects += self.receive(item)
        return effects

    def _store_key(self, prefix: str, slot: int, key: bytes, limit: int) -> bool:
        """Store a key, evict the oldest, and return True; return False if it is a duplicate or obsolete."""
        name, stored = f"{prefix}{slot:012d}", self._store.keys(prefix)
        if name in stored:
            self._module.count("duplicate keys")
            return False
        if len(stored) >= limit and name < stored[0]:
            self._module.count("obsolete keys")
            return False
        self._store.put(name, bytes(key))
        for oldest in stored[: max(len(stored) + 1 - limit, 0)]:
            self._store.delete(oldest)
        return True

    def _receive_item(self, message: Data) -> list[Effect]:
        """Decrypt an item and store it in the inbox, unless it is expired, old, early or without room."""
        module, store, to = self._module, self._store, message.to[0]
        if to.expires_us is not None and to.expires_us <= module.now_us:
            module.count("expired")
            return []
        channel, generation = f"{message.source}\n{to.port}\n{message.port}", message.seq >> NUMBER_BITS
        oldest = module.settings.directory[message.source].generation - MAX_INCARNATIONS + 1
        seen_key = f"seen {channel}\n{message.item}"
        seen, last = store.get(seen_key, int) or 0, self._last.last_number(channel, str(generation))
        if generation < oldest or message.seq <= max(seen, last - MAX_SEEN):
            module.count("duplicate" if seen == message.seq else "obsolete")
            return []
        if not self._inbox.has_room(to.port):
            module.count("no room")
            return []
        key = self._item_key(message)
        if key is None:
            self._store_early(message)
            return []
        content = decrypt_item(module.cipher, key, message)
        effects = self._inbox.add(message, content)
        store.put(seen_key, message.seq)
        self._last.mark_taken(channel, str(generation), message.seq)
        if not last:
            self._forget_seen(channel, range(oldest << NUMBER_BITS))
        elif message.seq // MAX_SEEN > last // MAX_SEEN:
            self._forget_seen(channel, range(generation << NUMBER_BITS, message.seq - MAX_SEEN + 1))
        name = delivery_name((message.source, message.port), message.item, message.seq, content)
        return [*effects, delivery(name, module.me, delivered_us=module.now_us)]

    def _item_key(self, message: Data) -> Secret | None:
        """Return the key that decrypts an item; None: it has not arrived yet."""
        channel = f"key {message.source}\n{message.port}\n"
        key = self._store.get(f"{channel}{message.epoch:012d}", bytes)
        if key is not None:
            return self._module.cipher.item_key(Secret(key), received_item_header(message))
        single = self._store.get(f"single {channel}{message.seq:012d}", bytes)
        return None if single is None else Secret(single)

    def _forget_seen(self, channel: str, seqs: range) -> None:
        """Delete the numbers of a channel's named items in a range, which are obsolete anyway."""
        for key, seq in self._store.items(f"seen {channel}\n", int):
            if seq in seqs:
                self._store.delete(key)

    def _store_early(self, message: Data) -> None:
        """Store an item until its key arrives; beyond a limit, drop it and count it as too early."""
        prefix = f"early {message.source}\n{message.port}\n"
        waiting = self._store.keys(prefix)
        name = f"{prefix}{message.to[0].port}\n{message.item}\n{message.seq:012d}"
        if len(waiting) >= MAX_EARLY and name not in waiting:
            self._module.count("too early")
            return
        self._store.put(name, message)
