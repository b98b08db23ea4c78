"""What a module sends to others, by all its cloud providers: items, filters and keys (Contrail 3.2 to 3.5).

=========  =========================================================================================
publish    filters are evaluated; an item that nobody has asked for goes nowhere; else it is
           encrypted once, for all who have asked, and waits in the outbox of each provider that has
           room there; without one it is answered with a backlog; an item that a provider should have
           in its cache is only named
again      an item of the last ``MOST_NAMED`` is known by its name, and its content is not sent again:
           who may not have the channel's key of then is sent the key of this item alone
install    a filter is sealed for a device, or for all friends who may be in a group
forget     somebody is no friend any more, or has begun anew: nothing that waits here or at a provider
           goes to the device, and the calls that were about it are answered
batch      when one port has as many messages waiting as it wants at most, everything goes; and after
           a time in any case
answer     the call is answered when a provider has taken it for everybody, or all that can be reached
           have answered
refused    a key that a provider has no room for goes again with the next item
=========  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mudkit.errors import AccessDenied, ParameterError
from mudkit.events import Complete, Record
from mudkit.systems.contrail.crypto import Secret, digest
from mudkit.systems.contrail.device.channels import Channel
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.device.filters import Filters
from mudkit.systems.contrail.device.installed_filters import Asked
from mudkit.systems.contrail.device.outbox import MOST_OUT, Outbox
from mudkit.systems.contrail.device.posting import TAKEN, Posting, Waiting
from mudkit.systems.contrail.envelopes import data, encrypted, item_key, sealed
from mudkit.systems.contrail.items import Backlogged, Endpoint, Published, delivery, unpack
from mudkit.systems.contrail.problems import QueueFull

__all__ = ["MOST_NAMED", "Sending"]

MOST_NAMED: Final = 1000
"""So many numbers of a port back, an item is known again by its name; one that is older is a new one."""


@dataclass(eq=False)
class _Publication(Waiting):
    """The publication of an item."""

    is_uploaded: bool = False
    """Whether a provider had to be sent its content."""


@dataclass(eq=False)
class _Filtering(Waiting):
    """The installation of a filter on others, or on a group."""

    slot: int = 0
    asked: Mapping[str, Any] = field(default_factory=dict)
    is_new: bool = False


class Sending(Posting):
    """What sends.

    Parameters
    ----------
    core : Core
    filters : Filters
    asked : Asked
    outboxes : sequence of Outbox
        The outbox of each provider.
    """

    def __init__(self, core: Core, filters: Filters, asked: Asked, outboxes: Sequence[Outbox]) -> None:
        super().__init__(core, outboxes)
        self._filters, self._asked = filters, asked

    # -- items

    def publish(
        self,
        op_id: int,
        port: str,
        packed: bytes,
        item: str | None,
        expires_us: int | None,
        only: Collection[str] | None,
    ) -> None:
        """Send an item to those who have asked for it."""
        channel = self._channel(port)
        channel.settle(self._filters.receivers(port))
        metadata, _ = unpack(packed)
        to: dict[Endpoint, int | None] = {}
        for endpoint, until_us in self._filters.match(port, metadata).items():
            if only is None or endpoint[0] in only:
                own_us = None if expires_us is None else self._core.now_us + expires_us
                limits = [each for each in (until_us, own_us) if each is not None]
                to[endpoint] = min(limits, default=None)
        if not to:
            self._core.effects.append(Complete(op_id, Published((), uploaded=False)))
            return
        destinations, rooms = tuple(to), [each for each in self._outboxes if not each.is_full]
        if not rooms:
            self._core.effects.append(Complete(op_id, Backlogged(destinations)))
            return
        name, seq, epoch, body, relays = self._content(channel, packed, item, list(to), rooms)
        message = data(self._core.cipher, (self._core.me, port), name, seq, epoch, body, to)
        is_uploaded = any(each.relay not in relays for each in rooms)

        call = _Publication(op_id, list(destinations), Published((), uploaded=False), is_uploaded=is_uploaded)
        self._send(port, message, call, rooms, named=relays)
        for device, _ in destinations:
            row = {"item": delivery((self._core.me, port), name, seq, packed), "receiver": device}
            times = {"created_us": self._core.now_us, "expired_us": to[device, _]}
            self._core.effects.append(Record("deliveries", {**row, **times}))

    def _content(
        self, channel: Channel, packed: bytes, item: str | None, to: list[Endpoint], rooms: Sequence[Outbox]
    ) -> tuple[str, int, int, bytes, set[int]]:
        """Give the name, number, epoch and ciphertext of an item, and the providers that have it already.

        An item of the last ``MOST_NAMED`` of a port is known again by its name: a provider that has its
        ciphertext is sent it no more (Contrail 3.4.1), whoever it is for now.
        """
        core, port = self._core, channel.port
        key = f"item {port}\n{item}"
        known = None if item is None else core.store.get(key)
        relays: set[int] = set()
        if known is None or known["digest"] != digest(packed):
            seq, epoch, readers = channel.next_seq(), channel.epoch_for(to), to
            self._rename(port, item, None if known is None else known["seq"], seq)
            name = f"~{seq}" if item is None else item
            own = None
        else:
            seq, epoch, relays, own = known["seq"], known["epoch"], set(known["relays"]), Secret(known["key"])
            name, readers = str(item), [each for each in to if channel.can_read(epoch, [each])]
            self._distribute("item key", port, seq, own, [each for each in to if each not in readers])
        if readers or own is None:
            secret, lacking = channel.use(epoch, readers)
            self._distribute("key", port, epoch, secret, lacking)
            own = own or item_key(core.cipher, secret, (core.me, port), name, seq, epoch)
        body = encrypted(core.cipher, own, (core.me, port), name, seq, epoch, packed)
        if item is not None:
            have = sorted(relays | {each.relay for each in rooms})
            core.store.put(
                key, {"digest": digest(packed), "seq": seq, "epoch": epoch, "relays": have, "key": bytes(own)}
            )
        return name, seq, epoch, body, relays

    def _rename(self, port: str, item: str | None, before: int | None, seq: int) -> None:
        """Take note of which item has a number, and forget the one that is too old."""
        store = self._core.store
        if before is not None:
            store.delete(f"named {port}\n{before:012d}")
        if item is not None:
            store.put(f"named {port}\n{seq:012d}", item)
        oldest = f"named {port}\n{seq - MOST_NAMED:012d}"
        forgotten = store.get(oldest)
        if forgotten is not None:
            store.delete(oldest)
            store.delete(f"item {port}\n{forgotten}")

    def _distribute(self, kind: str, port: str, slot: int, secret: Secret, to: Sequence[Endpoint]) -> None:
        """Send the key of a channel, or of one item, to those who have not got it (Contrail 3.3)."""
        by_device: dict[str, list[str]] = {}
        for device, their_port in to:
            by_device.setdefault(device, []).append(their_port)
        while by_device:
            ports = {device: theirs.pop() for device, theirs in by_device.items()}
            by_device = {device: theirs for device, theirs in by_device.items() if theirs}
            number = self._core.next_number()
            message = sealed(
                self._core.cipher, kind, (self._core.me, port), number, slot, ports, bytes(secret)
            )
            for outbox in self._outboxes:
                outbox.add({"kind": "send", "message": message}, is_own=True)

    def renew(self) -> None:
        """Begin a new epoch in all channels with their next items: somebody has left."""
        for channel in self._all_channels():
            channel.renew()

    def _all_channels(self) -> Iterator[Channel]:
        for key, _ in self._core.store.items("channel "):
            if "\n" not in key:  # else it is a key of one: a port may be named anything that is printable
                yield self._channel(key.removeprefix("channel "))

    # -- filters

    def install(
        self, op_id: int | None, port: str, to: str | None, group: str | None, remote: str, predicate: Any,
        item_expires_us: int | None, lifetime_us: int | None, slot: int | None = None,
    ) -> None:  # fmt: skip
        """Install a filter on a device or a group, or another one in place of an own one."""
        core, is_new = self._core, slot is None
        self._check_room()
        if slot is None:
            slot = core.next_number()
        elif not self._asked.is_same(slot, port, to, group, remote):
            raise ParameterError(
                "A filter stands in place of one of the same port on the same port.",
                where="replaces",
                found=str(slot),
                expected="the number of such a filter",
            )
        until_us = None if lifetime_us is None else core.now_us + lifetime_us
        asked = {
            "port": port,
            "to": to,
            "group": group,
            "remote": remote,
            "predicate": predicate,
            "item_expires_us": item_expires_us,
            "expires_us": until_us,
        }
        self._asked.add(slot, asked)
        self._tell(self._answer(op_id, slot, asked, is_new=is_new), slot, asked)

    def again(self, slot: int) -> None:
        """Send a group's filter again: friends have come or gone."""
        asked = self._asked.get(slot)
        if asked is not None:
            self._tell(None, slot, asked)

    def remove(self, op_id: int | None, slot: int) -> None:
        """Take an own filter back."""
        asked = self._asked.get(slot)
        if asked is None:
            raise ParameterError(
                "There is no such filter.",
                where="filter",
                found=str(slot),
                expected="what install_filter gave, once",
            )
        self._check_room()
        taken_back = {**asked, "predicate": None}
        self._tell(self._answer(op_id, slot, taken_back), slot, taken_back)
        self._asked.remove(slot)

    # -- who comes and goes

    def unfriend(self, device: str) -> None:
        """Let nothing go to a device any more but this: its filters are to go that this one has there."""
        there: dict[int, dict[str, Any]] = {}
        for slot, asked in self._asked.items():
            if asked["to"] in (None, device):
                there[slot] = dict(asked)
                if asked["to"] == device:
                    self._asked.remove(slot)
        for _, message, entry in self._forget(device):
            if message["kind"] == "filter":
                there.setdefault(
                    message["slot"],
                    {
                        "port": message["port"],
                        "remote": entry["port"],
                        "item_expires_us": None,
                        "expires_us": None,
                    },
                )
        for call in self._calls():
            self._leave(call, device)
        if device in self._core.settings.directory:
            for slot, asked in sorted(there.items()):
                self._tell(None, slot, {**asked, "predicate": None, "to": device, "group": None})
        self.renew()
        self.flush()

    def anew(self, device: str) -> None:
        """Tell a device that has begun anew, and lost everything, what this one has asked it for.

        What was for its former self is of no use to it: it is not sent, and calls wait for it no more.
        """
        waiting: dict[int, Waiting] = {}
        for number, message, _ in self._forget(device):
            call = self._open.get(number)
            if call is not None and message["kind"] == "filter":
                waiting[message["slot"]] = call
        for call in waiting.values():
            self._drop(call)
            call.left.clear()
        for call in self._calls():
            self._leave(call, device)
        for slot, asked in self._asked.items():
            if asked["to"] in (None, device):
                self._tell(waiting.pop(slot, None), slot, asked)
        for call in waiting.values():  # of filters that were to be taken back: they are gone anyway
            call.to = []
            self._settle(call)
        self.flush()

    def _forget(self, device: str) -> list[tuple[int, Mapping[str, Any], Mapping[str, Any]]]:
        """Take everything back that waits for a device here or at a provider; give what waited here.

        Numbers, messages, and their entries of that device.
        """
        for channel in self._all_channels():
            channel.forget(device)
        forgotten = [each for outbox in self._outboxes for each in outbox.forget(device)]
        for outbox in self._outboxes:
            message = {"kind": "withdraw", "receiver": device}
            outbox.add(message, is_own=True, replaces=f"withdraw {device}")
        return forgotten

    def _leave(self, call: Waiting, device: str) -> None:
        """Let a call wait for a device no more."""
        left = [each for each in call.to or () if each[0] != device]
        if call.to is not None and len(left) < len(call.to):
            call.to = left
            if not left or call.answers:
                self._settle(call)

    def _calls(self) -> list[Waiting]:
        """Give the calls that wait, each once."""
        return list({id(each): each for each in self._open.values()}.values())

    def _check_room(self) -> None:
        if all(each.is_full for each in self._outboxes):
            raise QueueFull(
                "Too much waits on this device for its relays.",
                found=f"{MOST_OUT:,} messages for each",
                remedy="try again when one of them has answered",
            )

    def _answer(
        self, op_id: int | None, slot: int, asked: Mapping[str, Any], *, is_new: bool = False
    ) -> Waiting | None:
        """Make the call that waits for what becomes of a filter."""
        if op_id is None:
            return None

        if asked["group"] is not None:
            return _Filtering(op_id, None, slot, slot=slot, asked=asked, is_new=is_new)
        gone: Any = slot
        if asked["predicate"] is not None:
            gone = AccessDenied(
                "This device is no friend any more.",
                where="to",
                found=repr(asked["to"]),
                expected="a friend until a relay has the filter",
                remedy="befriend it again first",
            )
        whom = [(asked["to"], asked["remote"])]
        return _Filtering(op_id, whom, gone, slot=slot, asked=asked, is_new=is_new)

    def _decide(self, call: Waiting, more: bool) -> Any:
        """See :meth:`Posting._decide`."""
        match call:
            case _Publication():
                wanted = tuple(call.to or ())
                taken = tuple(each for each in wanted if call.answers.get(each) in TAKEN)
                if len(taken) == len(wanted):
                    return Published(wanted, call.is_uploaded)
                full = tuple(each for each in wanted if each not in taken)
                return None if more else Backlogged(full, taken)
            case _Filtering(slot=slot, asked=asked):
                if asked["group"] is not None or any(each in TAKEN for each in call.answers.values()):
                    return slot
                return None if more else self._not_taken(call)
        raise TypeError(f"no call waits as {type(call).__name__}")

    def _not_taken(self, call: _Filtering) -> Exception:
        """Say why no provider has taken a filter; a new one is given up."""
        asked = call.asked
        if call.is_new:
            self._asked.remove(call.slot)
        if "stranger" not in call.answers.values():
            summary = "Too much waits for this device already."
            return QueueFull(summary, where=str(asked["to"]), remedy="try again later")
        return AccessDenied(
            "A relay has refused this filter: the device does not know this one.",
            where=str(asked["to"]),
            found=f"a filter from {self._core.me}",
            expected="one from a friend of that device",
            remedy="ask its user to make this device a friend",
        )

    def _tell(self, call: Waiting | None, slot: int, asked: Mapping[str, Any]) -> None:
        core = self._core
        sent = {"predicate": asked["predicate"], "item_expires_us": asked["item_expires_us"]}
        to = [asked["to"]] if asked["to"] is not None else sorted(core.friends & set(core.settings.directory))
        message = sealed(
            core.cipher,
            "filter",
            (core.me, asked["port"]),
            core.next_number(),
            slot,
            dict.fromkeys(to, asked["remote"]),
            msgspec.json.encode(sent),
            group=asked["group"],
            expires_us=asked["expires_us"],
        )

        rooms = self._outboxes if call is None else [each for each in self._outboxes if not each.is_full]
        self._send(asked["port"], message, call, rooms)

    # -- providers
