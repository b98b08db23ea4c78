"""What comes to a module from others: verified, taken once, kept for its application (Contrail 3.3).

===================  ===============================================================================
not as it was sent   reported as TamperedMessage, dropped
from a stranger      dropped, counted
not asked for        an item or a key at a port that has no filter on its sender: dropped, counted
over                 an item that has expired: dropped, counted
seen before          the same copy is a duplicate, one older than one seen is obsolete, and so is one
                     that is ``MOST_SEEN`` numbers behind the last of its channel, as no more are
                     remembered: dropped, counted; they are honest retransmissions
early                an item whose key has not come yet: kept until it has, up to ``MOST_EARLY``
                     of a channel
no room              in the inbox of a port: dropped, counted
unknown              from a friend of whom nobody has a public key yet, since the process is new:
                     kept until somebody has, up to ``MOST_UNKNOWN``
filter               kept; the application decides
key                  kept, and early items are taken; so is the key of one item
item                 kept until its application has it
===================  ===============================================================================
"""

from __future__ import annotations

from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.events import Notify, Record
from mudkit.systems.contrail.crypto import KEY_BYTES, Secret
from mudkit.systems.contrail.device.channels import KEPT_EPOCHS
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.device.filters import Filters
from mudkit.systems.contrail.device.groups import Groups
from mudkit.systems.contrail.device.inbox import Inbox
from mudkit.systems.contrail.device.installed_filters import Asked
from mudkit.systems.contrail.envelopes import Data, Sealed, read
from mudkit.systems.contrail.items import delivery
from mudkit.systems.contrail.problems import TamperedMessage

__all__ = ["MOST_EARLY", "MOST_SEEN", "MOST_UNKNOWN", "Receiving", "decisions"]

MOST_EARLY: Final = 1000
"""Items of a channel that wait for their key."""
MOST_SEEN: Final = 4000
"""More than senders know again by their names (``MOST_NAMED``)."""
MOST_UNKNOWN: Final = 1000


def decisions(port: str) -> str:
    """Name the application that decides about the filters at a port."""
    return f"filters at {port}"


class Receiving:
    """What takes messages of other modules.

    Parameters
    ----------
    core : Core
    filters : Filters
    asked : Asked
    groups : Groups
    inbox : Inbox
    """

    def __init__(self, core: Core, filters: Filters, asked: Asked, groups: Groups, inbox: Inbox) -> None:
        self._core, self._inbox = core, inbox
        self._filters, self._asked, self._groups = filters, asked, groups
        self._waiting = [key for key, _ in core.store.items("unknown ")]

    def take(self, message: Any) -> None:
        """Take a message that a cloud has handed over."""
        try:
            came = read(message, self._core.me)
            if came.source in self._core.friends and came.source not in self._core.settings.directory:
                self._unknown(came)
                return
            plain = came.open(self._core.cipher) if isinstance(came, Sealed) else b""
            if isinstance(came, Data):
                came.check(self._core.cipher)
            if came.source not in self._core.friends:
                self._core.count("from strangers")
            elif isinstance(came, Data):
                self._item(came)
            elif came.kind == "filter":
                self._filter(came, plain)
            elif not self._asked.has(came.to_port, came.source, came.port):
                self._core.count("not asked for")
            elif len(plain) != KEY_BYTES:
                raise TamperedMessage(
                    "This is no key.",
                    where=f"from {came.source}",
                    found=f"{len(plain)} bytes",
                    expected=f"{KEY_BYTES}",
                )
            elif came.kind == "key":
                self._key(came, plain)
            else:
                self._item_key(came, plain)
        except TamperedMessage as error:
            self._core.problem("tampered", error)

    def known(self) -> None:
        """Take what has waited for a public key that is there now."""
        for key in list(self._waiting):
            if key.split("\n")[0].removeprefix("unknown ") in self._core.settings.directory:
                self._waiting.remove(key)
                message = self._core.store.get(key)
                self._core.store.delete(key)
                self.take(message)

    def forget(self, device: str) -> None:
        """Drop what has come from a device and waits for a key."""
        for key, _ in self._core.store.items(f"early {device}\n"):
            self._core.store.delete(key)
        for key, _ in self._core.store.items(f"unknown {device}\n"):
            self._core.store.delete(key)
            self._waiting.remove(key)

    def _unknown(self, came: Data | Sealed) -> None:
        if len(self._waiting) >= MOST_UNKNOWN:
            self._core.count("from friends nobody knows yet")
            return
        key = f"unknown {came.source}\n{self._core.next_number():012d}"
        self._core.store.put(key, came.copy())
        self._waiting.append(key)

    def _filter(self, came: Sealed, sent: bytes) -> None:
        if came.group is not None and not self._groups.is_member(came.group):
            self._core.count("filters of groups that it has left")
            return
        port = self._core.store.get(f"port {came.to_port}")
        expires_us = came.message.get("expires_us")
        try:
            question = self._filters.take(
                (came.source, came.port),
                came.to_port,
                came.slot,
                came.number,
                sent=sent,
                group=came.group,
                expires_us=expires_us,
                is_asked=port is None or port["asks"],
            )
        except (PredicateError, ParameterError) as error:
            self._core.problem("refused filters", error)
        except (ValueError, LookupError, TypeError) as error:
            self._core.problem("refused filters", _no_filter(came.source, error))
        else:
            if question is not None and port is not None:
                self._core.effects.append(Notify(decisions(came.to_port), question))

    def _key(self, came: Sealed, key: bytes) -> None:
        if self._keep_key(f"key {came.source}\n{came.port}\n", came.slot, key, KEPT_EPOCHS):
            self._take_early(came, "epoch")

    def _item_key(self, came: Sealed, key: bytes) -> None:
        if self._keep_key(f"single key {came.source}\n{came.port}\n", came.slot, key, MOST_EARLY):
            self._take_early(came, "seq")

    def _keep_key(self, prefix: str, slot: int, key: bytes, most: int) -> bool:
        """Keep a key, if it is none of the last ones already and not older than those."""
        name = f"{prefix}{slot:012d}"
        held = [each for each, _ in self._core.store.items(prefix)]
        if name in held:
            self._core.count("duplicate keys")
            return False
        if len(held) >= most and name < held[0]:
            self._core.count("obsolete keys")
            return False
        self._core.store.put(name, bytes(key))
        for each in held[: max(len(held) + 1 - most, 0)]:
            self._core.store.delete(each)
        return True

    def _take_early(self, came: Sealed, field: str) -> None:
        """Take the items that have waited for a key."""
        for each, message in self._core.store.items(f"early {came.source}\n{came.port}\n"):
            if message[field] == came.slot:
                self._core.store.delete(each)
                self.take(message)

    def _item(self, came: Data) -> None:
        core, now_us = self._core, self._core.now_us
        if not self._asked.has(came.to_port, came.source, came.port):
            core.count("not asked for")
            return
        if came.expires_us is not None and came.expires_us <= now_us:
            core.count("expired")
            return
        channel = f"{came.to_port}\n{came.source}\n{came.port}\n"
        seen_key = f"seen {channel}{came.item}"
        seen, last = core.store.get(seen_key) or 0, core.store.get(f"last {channel}") or 0
        if came.seq <= max(seen, last - MOST_SEEN):
            core.count("duplicate" if seen == came.seq else "obsolete")
            return
        if not self._inbox.has_room(came.to_port):
            core.count("no room")
            return
        key = self._key_of(came)
        if key is None:
            self._early(came)
            return
        content = came.content(core.cipher, key)
        self._inbox.add(came, content)
        core.store.put(seen_key, came.seq)
        if came.seq > last:
            core.store.put(f"last {channel}", came.seq)
            if came.seq // MOST_SEEN > last // MOST_SEEN:
                self._forget_seen(channel, came.seq - MOST_SEEN)
        core.effects.append(
            Record(
                "deliveries",
                {
                    "item": delivery((came.source, came.port), came.item, came.seq, content),
                    "receiver": core.me,
                    "delivered_us": now_us,
                },
            )
        )

    def _key_of(self, came: Data) -> Secret | None:
        store, channel = self._core.store, f"key {came.source}\n{came.port}\n"
        key = store.get(f"{channel}{came.epoch:012d}")
        if key is not None:
            return came.key(self._core.cipher, Secret(key))
        single = store.get(f"single {channel}{came.seq:012d}")
        return None if single is None else Secret(single)

    def _forget_seen(self, channel: str, until: int) -> None:
        for key, seq in self._core.store.items(f"seen {channel}"):
            if seq <= until:
                self._core.store.delete(key)

    def _early(self, came: Data) -> None:
        prefix = f"early {came.source}\n{came.port}\n"
        waiting = self._core.store.items(prefix)
        name = f"{prefix}{came.to_port}\n{came.item}\n{came.seq:012d}"
        if len(waiting) >= MOST_EARLY and name not in dict(waiting):
            self._core.count("too early")
            return
        self._core.store.put(name, came.copy())


def _no_filter(source: str, error: Exception) -> MudkitError:
    return ParameterError(
        "This is no filter.", where=f"from {source}", found=f"{type(error).__name__}: {error}"[:200]
    )
