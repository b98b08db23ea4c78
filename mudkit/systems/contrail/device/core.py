"""What the parts of a module share: its store, its keys, its friends, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Final

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

__all__ = ["IDENTITY", "PROBLEMS", "Core", "KeyUse", "Settings"]

PROBLEMS: Final = "problems"
"""The application that is told of what was wrong."""
IDENTITY: Final = "identity"
"""The application that is told of this device's public keys, when they are new."""
_BITS: Final = 32
"""Of a number within a life: what a device counts goes on above all that it counted before it was wiped."""


@dataclass(frozen=True)
class KeyUse:
    """What a rule of renewal is told, before an item is encrypted.

    Parameters
    ----------
    to : set of str
        Devices that the item goes to.
    holders : set of str
        Devices that were sent the key that is in use.
    age_s, lasts_s : float
        How long that has been used, and how long a key is used at most.
    """

    to: Set[str]
    holders: Set[str]
    age_s: float
    lasts_s: float


@dataclass(frozen=True)
class Settings:
    """What a module is given.

    Parameters
    ----------
    device : str
    relays : sequence of sequence of (str, (float, float) or None)
        The gateways of each cloud provider: address, and place in degrees.
    directory : Directory
    friends : sequence of str
        When it begins; later its own.
    shows_friends : bool
        Whether relays know the white-list.
    is_encrypted : bool
    is_combined : bool
        Whether one connection pushes and pulls.
    renew_us : int
        How long the key of a channel is used.
    push_timeout_us : int
        How long a batch that does not fill waits.
    renewal : callable, optional
        Says whether an item begins a new key, in place of the rule of channels.
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


class Core:
    """What the parts of a module share.

    Parameters
    ----------
    ports : Ports
    settings : Settings
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self.store, self.settings, self.me = ports.store, settings, settings.device
        self.now_us = 0
        self.effects: list[Effect] = []
        seed = self.store.get("identity")
        if seed is None:
            seed = ports.entropy(2 * KEY_BYTES)
            before = settings.directory.get(self.me)
            self.store.put("identity", seed)
            self.store.put("life", 0 if before is None else before.life + 1)
            self.store.put("friends", sorted(settings.friends))
        self._entropy, self._seed = ports.entropy, Secret(seed)
        self.friends: set[str] = set(self.store.get("friends"))
        life = int(self.store.get("life") or 0)
        self.first = life << _BITS
        """What it counts begins after this."""
        self.cipher: Cipher = (
            Sealing(self.me, self._seed, settings.directory, life)
            if settings.is_encrypted
            else Plain(self.me, life)
        )
        self._met: dict[str, PublicKeys] = {}
        self._changes = 0

    def befriend(self, device: str, *, is_friend: bool) -> None:
        """Take a device on to the white-list, or off."""
        (self.friends.add if is_friend else self.friends.discard)(device)
        self.store.put("friends", sorted(self.friends))
        self._changes = 0  # look again

    def begun_anew(self) -> list[str]:
        """Give the friends that have other keys since they were met: they have lost everything they had."""
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
            before = self.store.get(f"met {device}")
            if before != mark:
                self.store.put(f"met {device}", mark)
                devices += [device] * (before is not None)
        return devices

    def next_number(self) -> int:
        """Give a number that nothing else on this device has had or will have."""
        number = int(self.store.get("number") or self.first) + 1
        self.store.put("number", number)
        return number

    def new_key(self, port: str, epoch: int) -> Secret:
        """Make the key of a channel."""
        return channel_key(self._entropy, self._seed, port, epoch)

    def count(self, what: str) -> None:
        """Count something that was dropped."""
        counts = self.store.get("counts") or {}
        self.store.put("counts", counts | {what: counts.get(what, 0) + 1})

    def problem(self, what: str, error: MudkitError, incident: str = "dropped") -> None:
        """Count it, write it down, and tell who wants to know.

        Parameters
        ----------
        what : str
        error : MudkitError
        incident : {'dropped', 'failed', 'begun anew'}
            What the incidents call it: something that came was not taken, a function of a user has failed, or
            a friend has other keys.
        """
        self.count(what)
        detail = f"{what}: {type(error).__name__}: {error}"
        self.effects += [
            Record("incidents", {"incident": incident, "detail": detail}),
            Notify(PROBLEMS, error),
        ]
