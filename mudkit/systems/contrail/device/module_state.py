"""State shared by the components of a module: store, keys, friends and clock.

Sequence numbers are scoped to generations of the module: those of one are above all of earlier ones, because
the store may be a backup. Friends notice a start in the directory of public keys:

=============================  =====================================================================
new keys                       :attr:`FriendChange.WIPED`: the friend was wiped or replaced
same keys, no later generation :attr:`FriendChange.WIPED`: the directory was lost, and its store is a backup
same keys, later generation    :attr:`FriendChange.RESTARTED`: it may have lost filters and keys, which are
                               sent again; filters it no longer knows are removed
unchanged, after a start of    :attr:`FriendChange.MET`: filters and keys are sent again, because this store
this module                    may not know which of them the friend has
=============================  =====================================================================
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
    KeyDirectory,
    Plain,
    PublicKeys,
    Sealing,
    Secret,
    channel_key,
    digest,
)

PROBLEMS: Final = "problems"
"""Receiver of notifications of errors outside calls."""
IDENTITY: Final = "identity"
"""Receiver of notifications of this device's public keys."""
NUMBER_BITS: Final = 32
"""Bits of a number within a generation; the generation is in the bits above."""


@dataclass(frozen=True)
class KeyUse:
    """State of a channel key before an item is encrypted, for a renewal rule.

    Parameters
    ----------
    to : set of str
        Receiving devices of the item.
    holders : set of str
        Devices that were sent the current key.
    age_s, lifetime_s : float
        Age and maximum age of the current key, in seconds.
    """

    to: Set[str]
    holders: Set[str]
    age_s: float
    lifetime_s: float


@dataclass(frozen=True)
class Settings:
    """Settings of a module; see :class:`~mudkit.systems.contrail.Module`."""

    device: str
    relays: Sequence[Sequence[tuple[str, tuple[float, float] | None]]]
    """Gateways of each cloud provider: address, and place in degrees."""
    directory: KeyDirectory
    friends: Sequence[str]
    """Initial white-list; the store keeps the current one."""
    shows_friends: bool
    is_encrypted: bool
    is_combined: bool
    renew_us: int
    push_timeout_us: int
    renewal: Callable[[KeyUse], bool] | None = None


class PortState(msgspec.Struct, frozen=True):
    """Parameters of an open port (Contrail 4.1)."""

    polling_us: int
    idle_us: int
    batch: int
    asks: bool
    """The application accepts or rejects filters."""
    listens: bool = False
    """The application is notified of items."""


class FriendChange(Enum):
    """Change of a friend in the directory of public keys; see the table above."""

    WIPED = "wiped"
    RESTARTED = "restarted"
    MET = "met"


class _KnownFriend(msgspec.Struct, frozen=True):
    """Digest of the keys and generation that a friend had in the directory at the last look-up."""

    keys: bytes
    generation: int = msgspec.field(name="start")


class ModuleState:
    """State shared by the components of a module.

    Making it begins a generation, durably: each start of the machine makes one.
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self.machine_ports, self.store = ports, ports.store
        self.settings, self.me = settings, settings.device
        self.now_us = 0
        """Time of the event that is being handled."""
        seed, registered = self.store.get("identity", bytes), settings.directory.get(self.me)
        known = [] if registered is None else [registered.generation]
        if seed is None:
            seed = ports.entropy(2 * KEY_BYTES)
            self.store.put("identity", seed)
            self.store.put("friends", sorted(settings.friends))
        else:
            known.append(self.store.get("start", int) or 0)
        generation = max(known, default=-1) + 1
        self.store.put("start", generation)
        self._entropy, self._seed = ports.entropy, Secret(seed)
        self.friends = set(self.store.get("friends", list[str]) or ())
        self.first = generation << NUMBER_BITS
        """Lower bound of the numbers of this generation."""
        self.cipher: Cipher = (
            Sealing(self.me, self._seed, settings.directory)
            if settings.is_encrypted
            else Plain(self.me, self._seed)
        )
        self.public = msgspec.structs.replace(
            self.cipher.public, generation=generation, last_number=self.store.get("number", int) or 0
        )
        self._met: dict[str, PublicKeys] = {}
        self._changes = 0

    def befriend(self, device: str, *, is_friend: bool) -> None:
        """Add a device to the white-list, or remove it."""
        (self.friends.add if is_friend else self.friends.discard)(device)
        self.store.put("friends", sorted(self.friends))
        self._changes = 0  # look up all friends again

    def detect_friend_changes(self) -> list[tuple[str, FriendChange]]:
        """Return the friends that changed in the directory since the last call, and store what was seen."""
        changes = self.settings.directory.changes
        if changes == self._changes:
            return []
        self._changes, changed = changes, list[tuple[str, FriendChange]]()
        for device in sorted(self.friends):
            keys, known = self.settings.directory.get(device), self._met.get(device)
            if keys is None or known is keys:
                continue
            self._met[device] = keys
            met = _KnownFriend(digest(keys.agreement + keys.signing), keys.generation)
            before = self.store.get(f"met {device}", _KnownFriend)
            self.store.put(f"met {device}", met)
            if before == met:
                changed += [(device, FriendChange.MET)] * (known is None and self.first > 0)
            elif before is not None:
                is_later = before.keys == met.keys and before.generation < met.generation
                changed.append((device, FriendChange.RESTARTED if is_later else FriendChange.WIPED))
        return changed

    def former_friends(self) -> list[str]:
        """Return the devices that were friends and are none now; what they were sent is withdrawn again."""
        met = [key.removeprefix("met ") for key in self.store.keys("met ")]
        return [device for device in met if device not in self.friends]

    def port(self, name: str) -> PortState | None:
        """Return the parameters of an open port; None: it is not open."""
        return self.store.get(f"port {name}", PortState)

    def ports(self) -> dict[str, PortState]:
        """Return the open ports by name."""
        return {key.removeprefix("port "): port for key, port in self.store.items("port ", PortState)}

    def take_number(self) -> int:
        """Reserve a number that no message or item of this device has had, also in earlier starts."""
        number = max(self.store.get("number", int) or 0, self.first) + 1
        self.store.put("number", number)
        return number

    def derive_channel_key(self, port: str, epoch: int) -> Secret:
        """Derive the new key of a channel for an epoch."""
        return channel_key(self._entropy, self._seed, port, epoch)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of dropped messages and of other problems, by reason."""
        return self.store.get("counts", dict[str, int]) or {}

    def count(self, reason: str) -> None:
        """Count a dropped message, or another problem, under a reason; see :attr:`counts`."""
        counts = self.counts
        self.store.put("counts", counts | {reason: counts.get(reason, 0) + 1})

    def report_problem(self, reason: str, error: MudkitError, incident: str = "dropped") -> list[Effect]:
        """Count an error, record it as an incident and notify applications."""
        self.count(reason)
        detail = f"{reason}: {type(error).__name__}: {error}"
        return [Record("incidents", {"incident": incident, "detail": detail}), Notify(PROBLEMS, error)]
