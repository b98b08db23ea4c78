"""Messages from other modules: verified, taken once, kept for their application (Contrail 3.3).

===================  ===============================================================================
tampered             reported as TamperedMessage, dropped
from a stranger      dropped, counted
not asked for        an item or a key at a port that has no filter on its sender: dropped, counted
expired              an item whose time is over: dropped, counted
seen before          the same copy is a duplicate; an older one than one seen is obsolete, and so is one
                     that is ``MAX_SEEN`` numbers behind the last of its channel in this start of the
                     sender, or ``MAX_INCARNATIONS`` starts behind: dropped, counted; these are honest
                     retransmissions
early                an item whose key has not arrived yet: kept until it has, up to ``MAX_EARLY``
                     of a channel
no room              the inbox of the port has ``MAX_KEPT`` items: dropped, counted; the item may be
                     published again
unknown              from a friend without a registered public key, since the process is new: kept
                     until it has one, up to ``MAX_UNKNOWN``
filter               stored; the application decides
key                  stored, and early items are taken; so is the key of one item
item                 stored until its application has taken it
===================  ===============================================================================

An item is handed over as the answer to a call or as a notification. It is deleted when the application says
that it has taken it: after a kill between the two it is handed over again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec

from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.delivery.inbox import Inbox as Watermarks
from mudkit.delivery.records import delivery
from mudkit.errors import ParameterError, PredicateError
from mudkit.events import Complete, Effect, Notify
from mudkit.systems.contrail.crypto import KEY_BYTES, Secret
from mudkit.systems.contrail.device.channels import KEPT_EPOCHS
from mudkit.systems.contrail.device.core import BITS, Core
from mudkit.systems.contrail.device.filters import Filters, Groups, InstalledFilters
from mudkit.systems.contrail.envelopes import check_item, decrypt_item, key_header, open_sealed, read
from mudkit.systems.contrail.items import Endpoint, Item, TamperedMessage, item_name, unpack
from mudkit.systems.contrail.messages import Data, DeviceMessage, Filter, ItemKey, Key, Unread

__all__ = ["MAX_EARLY", "MAX_KEPT", "MAX_SEEN", "MAX_UNKNOWN", "Inbox", "Receiving", "listener"]

MAX_EARLY: Final = 1000
MAX_SEEN: Final = 4000
"""More than the number of items that senders identify by name (``MAX_NAMED``)."""
MAX_UNKNOWN: Final = 1000
MAX_KEPT: Final = 10_000
"""Capacity of the inbox of a port."""
_PARTS: Final = 3
"""Separators in the key of a channel's last number in one start."""


def listener(port: str) -> str:
    """Return the application that is notified of the items of a port."""
    return f"items at {port}"


class _Kept(msgspec.Struct, frozen=True):
    """An item in the inbox."""

    content: bytes
    source: Endpoint
    item: str
    seq: int


class _Port(msgspec.Struct):
    """Inbox of one port."""

    numbers: list[int] = []
    """Items in the store, in order."""
    handed: set[int] = set()
    """Items that were handed over and not taken yet."""
    calls: deque[int] = msgspec.field(default_factory=deque)
    """Calls that wait for an item."""


class Inbox:
    """Items of all ports that their applications have not taken yet."""

    def __init__(self, core: Core) -> None:
        self._core, self._store = core, core.store
        self._ports: dict[str, _Port] = {}
        for key in core.store.keys("inbox "):
            port, number = key.removeprefix("inbox ").split("\n")
            self._port(port).numbers.append(int(number))

    def ports(self) -> dict[str, int]:
        """Return the number of items of each port."""
        return {name: len(port.numbers) for name, port in self._ports.items()}

    def has_room(self, port: str) -> bool:
        """Return whether the inbox of a port can take an item."""
        return len(self._port(port).numbers) < MAX_KEPT

    def add(self, came: Data, content: bytes) -> list[Effect]:
        """Store an item and hand it over; raise TamperedMessage if it is not an item."""
        try:
            unpack(content)
        except ValueError as error:
            raise TamperedMessage("Expected an item.", where=f"from {came.source}") from error
        port, number = came.to[0].port, self._core.next_number()
        self._port(port).numbers.append(number)
        kept = _Kept(bytes(content), (came.source, came.port), came.item, came.seq)
        self._store.put(_key(port, number), kept)
        return self.hand_over(port)

    def receive(self, port: str, op_id: int) -> list[Effect]:
        """Answer a call with the next item, as soon as there is one."""
        self._port(port).calls.append(op_id)
        return self.hand_over(port)

    def all(self, port: str) -> list[Item]:
        """Hand over all items of a port."""
        state = self._port(port)
        state.handed.update(state.numbers)
        return [_item(number, kept) for number in state.numbers if (kept := self._get(port, number))]

    def hand_over(self, port: str, *, again: bool = False) -> list[Effect]:
        """Hand items over to the calls that wait, then to a listening application.

        With ``again``, also those that were handed over and not taken.
        """
        state, opened = self._port(port), self._core.port(port)
        if again:
            state.handed.clear()
        listens, effects = opened is not None and opened.listens, list[Effect]()
        for number in state.numbers:
            if not state.calls and not listens:
                break
            kept = None if number in state.handed else self._get(port, number)
            if kept is None:
                continue
            item = _item(number, kept)
            effects.append(
                Complete(state.calls.popleft(), item) if state.calls else Notify(listener(port), item)
            )
            state.handed.add(number)
        return effects

    def taken(self, port: str, numbers: Collection[int]) -> list[Effect]:
        """Delete items that the application has taken."""
        effects: list[Effect] = []
        for number in numbers:
            kept = self._get(port, number)
            if kept is None:
                continue
            self._store.delete(_key(port, number))
            self._port(port).numbers.remove(number)
            self._port(port).handed.discard(number)
            name = item_name(kept.source, kept.item, kept.seq, kept.content)
            effects.append(delivery(name, self._core.me, read_us=self._core.now_us))
        return effects

    def _port(self, name: str) -> _Port:
        if name not in self._ports:
            self._ports[name] = _Port()
        return self._ports[name]

    def _get(self, port: str, number: int) -> _Kept | None:
        return self._store.get(_key(port, number), _Kept)


def _key(port: str, number: int) -> str:
    return f"inbox {port}\n{number:012d}"


def _item(number: int, kept: _Kept) -> Item:
    metadata, payload = unpack(kept.content)
    return Item(metadata, payload, kept.source, kept.item, number)


class _Unknown(msgspec.Struct, frozen=True):
    """A message from a friend whose public key is not registered yet."""

    message: DeviceMessage


class Receiving:
    """Receiver of the messages of other modules."""

    def __init__(
        self, core: Core, filters: Filters, installed: InstalledFilters, groups: Groups, inbox: Inbox
    ) -> None:
        self._core, self._store, self._inbox = core, core.store, inbox
        self._filters, self._installed, self._groups = filters, installed, groups
        self._last = Watermarks(core.store, "last")
        """Highest number of each channel, by start of its sender."""
        self._unknown = list(core.store.keys("unknown "))

    def take(self, message: Unread) -> list[Effect]:
        """Take a message that a cloud has delivered."""
        core = self._core
        try:
            came = read(message, core.me)
            if came.source in core.friends and came.source not in core.settings.directory:
                self._wait(came)
                return []
            plain = b""
            if isinstance(came, Data):
                check_item(core.cipher, came)
            else:
                plain = open_sealed(core.cipher, came)
            if came.source not in core.friends:
                core.count("from strangers")
            elif isinstance(came, Filter):
                return self._filter(came, plain)
            elif not self._installed.has(came.to[0].port, came.source, came.port):
                core.count("not asked for")
            elif isinstance(came, Data):
                return self._item(came)
            else:
                return self._key(came, plain)
        except TamperedMessage as error:
            return core.problem("tampered", error)
        return []

    def known(self) -> list[Effect]:
        """Take messages of friends whose public key has been registered meanwhile."""
        effects: list[Effect] = []
        for key in list(self._unknown):
            if key.split("\n")[0].removeprefix("unknown ") in self._core.settings.directory:
                self._unknown.remove(key)
                kept = self._store.get(key, _Unknown)
                self._store.delete(key)
                effects += [] if kept is None else self.take(kept.message)
        return effects

    def seqs(self, device: str) -> list[int]:
        """Return the last sequence number of each channel of a device, by its starts."""
        keys = [key for key in self._store.keys(f"last {device}\n") if key.count("\n") == _PARTS]
        return [self._store.get(key, int) or 0 for key in keys]

    def forget_numbers(self, device: str) -> None:
        """Forget keys and numbers of a device that has begun anew."""
        for kind in ("last", "seen", "key", "single key"):
            for key in self._store.keys(f"{kind} {device}\n"):
                self._store.delete(key)

    def forget(self, device: str) -> None:
        """Drop messages of a device that wait for a key."""
        for key in (*self._store.keys(f"early {device}\n"), *self._store.keys(f"unknown {device}\n")):
            self._store.delete(key)
        self._unknown = list(self._store.keys("unknown "))

    def _wait(self, came: DeviceMessage) -> None:
        if len(self._unknown) >= MAX_UNKNOWN:
            self._core.count("from friends nobody knows yet")
            return
        key = f"unknown {came.source}\n{self._core.next_number():012d}"
        self._store.put(key, _Unknown(came))
        self._unknown.append(key)

    def _filter(self, came: Filter, sent: bytes) -> list[Effect]:
        if came.group is not None and not self._groups.is_member(came.group):
            self._core.count("filters of groups that it has left")
            return []
        try:
            return self._filters.take(came, sent, self._core.port(came.to[0].port))
        except (PredicateError, ParameterError) as error:
            return self._core.problem("refused filters", error)
        except msgspec.MsgspecError as error:
            refused = ParameterError(
                "Expected a filter.", where=f"from {came.source}", found=f"{error}"[:200]
            )
            return self._core.problem("refused filters", refused)

    def _key(self, came: Key | ItemKey, key: bytes) -> list[Effect]:
        """Store a key, and take the early items that it opens."""
        if len(key) != KEY_BYTES:
            raise TamperedMessage(
                "Expected a key.",
                where=f"from {came.source}",
                found=f"{len(key)} bytes",
                expected=f"{KEY_BYTES}",
            )
        is_channel = isinstance(came, Key)
        prefix = f"{'key' if is_channel else 'single key'} {came.source}\n{came.port}\n"
        if not self._keep_key(prefix, came.slot, key, KEPT_EPOCHS if is_channel else MAX_EARLY):
            return []
        effects: list[Effect] = []
        for name, item in self._store.items(f"early {came.source}\n{came.port}\n", Data):
            if (item.epoch if is_channel else item.seq) == came.slot:
                self._store.delete(name)
                effects += self.take(item)
        return effects

    def _keep_key(self, prefix: str, slot: int, key: bytes, limit: int) -> bool:
        """Store a key, unless it is there or older than all that are kept."""
        name, held = f"{prefix}{slot:012d}", self._store.keys(prefix)
        if name in held:
            self._core.count("duplicate keys")
            return False
        if len(held) >= limit and name < held[0]:
            self._core.count("obsolete keys")
            return False
        self._store.put(name, bytes(key))
        for each in held[: max(len(held) + 1 - limit, 0)]:
            self._store.delete(each)
        return True

    def _item(self, came: Data) -> list[Effect]:
        core, store, to = self._core, self._store, came.to[0]
        if to.expires_us is not None and to.expires_us <= core.now_us:
            core.count("expired")
            return []
        channel, start = f"{came.source}\n{to.port}\n{came.port}", came.seq >> BITS
        oldest = core.settings.directory[came.source].start - MAX_INCARNATIONS + 1
        seen_key = f"seen {channel}\n{came.item}"
        seen, last = store.get(seen_key, int) or 0, self._last.last_seq(channel, str(start))
        if start < oldest or came.seq <= max(seen, last - MAX_SEEN):
            core.count("duplicate" if seen == came.seq else "obsolete")
            return []
        if not self._inbox.has_room(to.port):
            core.count("no room")
            return []
        key = self._key_of(came)
        if key is None:
            self._keep_early(came)
            return []
        content = decrypt_item(core.cipher, key, came)
        effects = self._inbox.add(came, content)
        store.put(seen_key, came.seq)
        self._last.take(channel, str(start), came.seq)
        if not last:
            self._forget_seen(channel, range(oldest << BITS))
        elif came.seq // MAX_SEEN > last // MAX_SEEN:
            self._forget_seen(channel, range(start << BITS, came.seq - MAX_SEEN + 1))
        name = item_name((came.source, came.port), came.item, came.seq, content)
        return [*effects, delivery(name, core.me, delivered_us=core.now_us)]

    def _key_of(self, came: Data) -> Secret | None:
        channel = f"key {came.source}\n{came.port}\n"
        key = self._store.get(f"{channel}{came.epoch:012d}", bytes)
        if key is not None:
            return self._core.cipher.item_key(Secret(key), key_header(came))
        single = self._store.get(f"single {channel}{came.seq:012d}", bytes)
        return None if single is None else Secret(single)

    def _forget_seen(self, channel: str, seqs: range) -> None:
        for key, seq in self._store.items(f"seen {channel}\n", int):
            if seq in seqs:
                self._store.delete(key)

    def _keep_early(self, came: Data) -> None:
        prefix = f"early {came.source}\n{came.port}\n"
        waiting = self._store.keys(prefix)
        name = f"{prefix}{came.to[0].port}\n{came.item}\n{came.seq:012d}"
        if len(waiting) >= MAX_EARLY and name not in waiting:
            self._core.count("too early")
            return
        self._store.put(name, came)
