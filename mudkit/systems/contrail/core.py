"""What the parts of a module share: its store, its keys, its friends, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from mudkit.errors import MudkitError
from mudkit.events import Effect, Notify, Ports
from mudkit.systems.contrail.crypto import KEY_BYTES, Cipher, Directory, Plain, Sealing, Secret, channel_key

__all__ = ["PROBLEMS", "Core", "KeyUse", "Settings"]

PROBLEMS: Final = "problems"
"""The application that is told of what was wrong."""


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
        Of each cloud provider the gateways: address, and place in degrees.
    directory : mapping of str to PublicKeys
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
            self.store.put("identity", seed)
            self.store.put("friends", sorted(settings.friends))
        self._entropy, self._seed = ports.entropy, Secret(seed)
        self.friends: set[str] = set(self.store.get("friends"))
        self.cipher: Cipher = (
            Sealing(self.me, self._seed, settings.directory) if settings.is_encrypted else Plain(self.me)
        )

    def befriend(self, device: str, *, is_friend: bool) -> None:
        """Take a device on to the white-list, or off."""
        (self.friends.add if is_friend else self.friends.discard)(device)
        self.store.put("friends", sorted(self.friends))

    def next_number(self) -> int:
        """Give a number that nothing else on this device has had or will have."""
        number = int(self.store.get("number") or 0) + 1
        self.store.put("number", number)
        return number

    def new_key(self, port: str, epoch: int) -> Secret:
        """Make the key of a channel."""
        return channel_key(self._entropy, self._seed, port, epoch)

    def count(self, what: str) -> None:
        """Count something that was dropped."""
        counts = self.store.get("counts") or {}
        self.store.put("counts", counts | {what: counts.get(what, 0) + 1})

    def problem(self, what: str, error: MudkitError) -> None:
        """Count it, and tell who wants to know."""
        self.count(what)
        self.effects.append(Notify(PROBLEMS, error))
