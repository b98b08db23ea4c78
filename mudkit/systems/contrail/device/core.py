"""State that the parts of a module share: store, keys, friends and clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
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

__all__ = ["BITS", "IDENTITY", "PROBLEMS", "Core", "KeyUse", "PortState", "Settings"]

PROBLEMS: Final = "problems"
"""Application that is notified of errors that concern no call."""
IDENTITY: Final = "identity"
"""Application that is notified of this device's public keys when they are new."""
BITS: Final = 32
"""Numbers of an incarnation are above all numbers of the incarnations before."""


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


class Core:
    """State that the parts of a module share.

    Attributes
    ----------
    now_us : int
        Time of the event that is being handled.
    first : int
        Numbers of this incarnation begin after it.
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self.machine_ports, self.store = ports, ports.store
        self.settings, self.me = settings, settings.device
        self.now_us = 0
        seed = self.store.get("identity", bytes)
        if seed is None:
            seed = ports.entropy(2 * KEY_BYTES)
            before = settings.directory.get(self.me)
            self.store.put("identity", seed)
            self.store.put("life", 0 if before is None else before.life + 1)
            self.store.put("friends", sorted(settings.friends))
        self._entropy, self._seed = ports.entropy, Secret(seed)
        self.friends = set(self.store.get("friends", list[str]) or ())
        life = self.store.get("life", int) or 0
        self.first = life << BITS
        self.cipher: Cipher = (
            Sealing(self.me, self._seed, settings.directory, life)
            if settings.is_encrypted
            else Plain(self.me, life)
        )
        self._met: dict[str, PublicKeys] = {}
        self._changes = 0

    def befriend(self, device: str, *, is_friend: bool) -> None:
        """Add a device to the white-list, or remove it."""
        (self.friends.add if is_friend else self.friends.discard)(device)
        self.store.put("friends", sorted(self.friends))
        self._changes = 0  # look again

    def replaced_friends(self) -> list[str]:
        """Return the friends that have other keys than when they were met: they have lost their state."""
        changes = self.settings.directory.changes
        if changes == self._changes:
            return []
        self._changes, devices = changes, []
        for device in sorted(self.friends):
            keys = self.settings.directory.get(device)
            if keys is None or self._met.get(device) is keys:
                continue
            self._met[device] = keys
            mark = digest(keys.agreement + keys.signing + keys.life.to_bytes(8, "big"))
            before = self.store.get(f"met {device}", bytes)
            if before != mark:
                self.store.put(f"met {device}", mark)
                devices += [device] * (before is not None)
        return devices

    def port(self, name: str) -> PortState | None:
        """Return an open port."""
        return self.store.get(f"port {name}", PortState)

    def ports(self) -> dict[str, PortState]:
        """Return the open ports by name."""
        return {key.removeprefix("port "): port for key, port in self.store.items("port ", PortState)}

    def next_number(self) -> int:
        """Return a number that is unique on this device."""
        number = (self.store.get("number", int) or self.first) + 1
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
