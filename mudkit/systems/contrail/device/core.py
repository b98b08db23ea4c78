"""State that the parts of a module share: store, keys, friends and clock.

Each start of a module has numbers of its own, above those of all starts before: the store may be older than
its peers remember. The directory of public keys tells friends of a start.

==========================  ========================================================================
a friend has other keys     it was wiped, or is another device: it knows nothing of before
its start is not a later    the same: the directory was lost, and its store is older than this one
one                         remembers
a later start               it may have lost filters and keys: they are sent again; filters of it that
                            it does not know any more are forgotten
as before, at a start of    filters and keys are sent again: this store may have forgotten which
this module                 it has
==========================  ========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from mudkit.errors import MudkitError
from mudkit.events import Effect, Notify, Ports, Record
from mudkit.systems.contrail.crypto import (
    KEY_BYTES,
    Cipher,
    Directory,
    Plain,
    PublicKeys,
    Sealing,
    Secret,
    channel_key,
    digest,
)

__all__ = ["BITS", "IDENTITY", "PROBLEMS", "Change", "Core", "KeyUse", "PortState", "Settings"]

PROBLEMS: Final = "problems"
"""Application that is notified of errors that concern no call."""
IDENTITY: Final = "identity"
"""Application that is notified of this device's public keys when they are new."""
BITS: Final = 32
"""Numbers of a start are above all numbers of the starts before."""


@dataclass(frozen=True)
class KeyUse:
    """State of a channel's key before an item is encrypted, for a rule of renewal.

    Parameters
    ----------
    to : set of str
        Receiving devices of the item.
    holders : set of str
        Devices that were sent the current key.
    age_s, lasts_s : float
        Age of the current key, and its longest use.
    """

    to: Set[str]
    holders: Set[str]
    age_s: float
    lasts_s: float


@dataclass(frozen=True)
class Settings:
    """Settings of a module.

    Parameters
    ----------
    device : str
    relays : sequence of sequence of (str, (float, float) or None)
        Gateways of each cloud provider: address, and place in degrees.
    directory : Directory
    friends : sequence of str
        Initial white-list; the store keeps the current one.
    shows_friends : bool
        Whether relays know the white-list.
    is_encrypted : bool
    is_combined : bool
        Whether one connection pushes and pulls.
    renew_us : int
        Longest use of a channel's key.
    push_timeout_us : int
        Longest wait of a batch that is not full.
    renewal : callable, optional
        Returns whether an item begins a new key, in place of the rule of channels.
    """

    device: str
    relays: Sequence[Sequence[tuple[str, tuple[float, float] | None]]]
    directory: Directory
    friends: Sequence[str]
    shows_friends: bool
    is_encrypted: bool
    is_combined: bool
    renew_us: int
    push_timeout_us: int
    renewal: Callable[[KeyUse], bool] | None = None


class PortState(msgspec.Struct, frozen=True):
    """An open port.

    Parameters
    ----------
    polling_us, idle_us, batch : int
        Its parameters (Contrail 4.1).
    asks : bool
        Whether its application decides about filters.
    listens : bool
        Whether its application is notified of items.
    """

    polling_us: int
    idle_us: int
    batch: int
    asks: bool
    listens: bool = False


class Change(Enum):
    """Change of a friend, as the directory shows it."""

    ANEW = "anew"
    """It has lost all state, or cannot be told from one that has."""
    RESTARTED = "restarted"
    """It may have lost what it stored last."""
    MET = "met"
    """It is looked up for the first time since this module has started again."""


class _Met(msgspec.Struct, frozen=True):
    """A friend when it was last looked up: digest of its keys, and its start."""

    keys: bytes
    start: int


class Core:
    """State that the parts of a module share.

    Attributes
    ----------
    now_us : int
        Time of the event that is being handled.
    first : int
        Numbers of this start begin after it.
    public : PublicKeys
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self.machine_ports, self.store = ports, ports.store
        self.settings, self.me = settings, settings.device
        self.now_us = 0
        seed, registered = self.store.get("identity", bytes), settings.directory.get(self.me)
        starts = [] if registered is None else [registered.start]
        if seed is None:
            seed = ports.entropy(2 * KEY_BYTES)
            self.store.put("identity", seed)
            self.store.put("friends", sorted(settings.friends))
        else:
            starts.append(self.store.get("start", int) or 0)
        start = max(starts, default=-1) + 1
        self.store.put("start", start)
        self._entropy, self._seed = ports.entropy, Secret(seed)
        self.friends = set(self.store.get("friends", list[str]) or ())
        self.first = start << BITS
        self.cipher: Cipher = (
            Sealing(self.me, self._seed, settings.directory)
            if settings.is_encrypted
            else Plain(self.me, self._seed)
        )
        self.public = msgspec.structs.replace(
            self.cipher.public, start=start, last_number=self.store.get("number", int) or 0
        )
        self._met: dict[str, PublicKeys] = {}
        self._changes = 0

    def befriend(self, device: str, *, is_friend: bool) -> None:
        """Add a device to the white-list, or remove it."""
        (self.friends.add if is_friend else self.friends.discard)(device)
        self.store.put("friends", sorted(self.friends))
        self._changes = 0  # look again

    def changed_friends(self) -> list[tuple[str, Change]]:
        """Return the friends that have changed since they were last looked up."""
        changes = self.settings.directory.changes
        if changes == self._changes:
            return []
        self._changes, changed = changes, list[tuple[str, Change]]()
        for device in sorted(self.friends):
            keys, known = self.settings.directory.get(device), self._met.get(device)
            if keys is None or known is keys:
                continue
            self._met[device] = keys
            met = _Met(digest(keys.agreement + keys.signing), keys.start)
            before = self.store.get(f"met {device}", _Met)
            self.store.put(f"met {device}", met)
            if before == met:
                changed += [(device, Change.MET)] * (known is None and self.first > 0)
            elif before is not None:
                is_later = before.keys == met.keys and before.start < met.start
                changed.append((device, Change.RESTARTED if is_later else Change.ANEW))
        return changed

    def former_friends(self) -> list[str]:
        """Return the devices that were friends and are none any more."""
        met = [key.removeprefix("met ") for key in self.store.keys("met ")]
        return [device for device in met if device not in self.friends]

    def port(self, name: str) -> PortState | None:
        """Return an open port."""
        return self.store.get(f"port {name}", PortState)

    def ports(self) -> dict[str, PortState]:
        """Return the open ports by name."""
        return {key.removeprefix("port "): port for key, port in self.store.items("port ", PortState)}

    def next_number(self) -> int:
        """Return a number that is unique on this device."""
        number = max(self.store.get("number", int) or 0, self.first) + 1
        self.store.put("number", number)
        return number

    def new_key(self, port: str, epoch: int) -> Secret:
        """Derive the key of a channel for an epoch."""
        return channel_key(self._entropy, self._seed, port, epoch)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of dropped messages by reason."""
        return self.store.get("counts", dict[str, int]) or {}

    def count(self, what: str) -> None:
        """Count a dropped message."""
        counts = self.counts
        self.store.put("counts", counts | {what: counts.get(what, 0) + 1})

    def problem(self, what: str, error: MudkitError, incident: str = "dropped") -> list[Effect]:
        """Count an error, record it as an incident, and notify whoever listens."""
        self.count(what)
        detail = f"{what}: {type(error).__name__}: {error}"
        return [Record("incidents", {"incident": incident, "detail": detail}), Notify(PROBLEMS, error)]
