"""Channel keys at the sender (Contrail 3.3).

A channel is a port of a sender with all endpoints that have a filter there. Its key has epochs. A new epoch
begins

* when the current one is older than ``renew_us``;
* when a receiver has left, so that it cannot read newer items;
* when an item is for a receiver that joined after something was encrypted in the current epoch, so that it
  cannot read items older than its filter;
* after a start of the module, whose store may be a backup.

The key is sent to a receiver with its first item of an epoch.

All filters of a port share its key. A receiver could read every item of the epoch, including those that its
filter excludes, if a relay delivered them. A narrow filter saves bytes but hides nothing from a friend that
colludes with the relay; a secret from some receivers needs its own port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from typing import Final

import msgspec

from mudkit.systems.contrail.crypto import Secret
from mudkit.systems.contrail.device.module_state import KeyUse, ModuleState
from mudkit.systems.contrail.items import Endpoint

KEPT_EPOCHS: Final = 16
"""Number of channel keys that sender and receiver store."""


class _ChannelState(msgspec.Struct):
    """Durable state of a channel: last sequence number, current epoch, and what its receivers may read."""

    seq: int
    epoch: int
    began_us: int = 0
    is_used: bool = False
    renew: bool = False
    """The next item begins a new epoch."""
    first_epochs: dict[str, int] = msgspec.field(default_factory=dict, name="least")
    """First epoch that a receiver may read, by endpoint."""


class _EpochKey(msgspec.Struct, frozen=True):
    """Stored key of one epoch, with the endpoints that were sent it."""

    key: bytes
    holders: list[str] = []
    """Endpoints to which the key was sent."""


class Channel:
    """Channel of a port: its keys by epoch, and which receivers may read which epochs."""

    def __init__(self, module: ModuleState, port: str) -> None:
        self._module, self._store, self.port = module, module.store, port
        self._state = self._store.get(f"channel {port}", _ChannelState) or _ChannelState(
            module.first, module.first
        )
        self._state.seq = max(self._state.seq, module.first)

    @property
    def epoch(self) -> int:
        """Current epoch."""
        return self._state.epoch

    def set_receivers(self, receivers: Collection[Endpoint]) -> None:
        """Update the endpoints that have a filter at the port; one that left causes a new epoch."""
        state, names = self._state, set(map(_endpoint_name, receivers))
        if names == set(state.first_epochs):
            return
        if set(state.first_epochs) - names:
            state.renew = True
        fresh = self.epoch + 1 if state.is_used or state.renew else max(self.epoch, 1)
        state.first_epochs = {name: state.first_epochs.get(name, fresh) for name in sorted(names)}
        self._store_state()

    def renew(self) -> None:
        """Begin a new epoch with the next item."""
        self._state.renew = True
        self._store_state()

    def forget(self, device: str) -> None:
        """Remove a device from the receivers and holders, and begin a new epoch with the next item."""
        first_epochs = {
            name: first
            for name, first in self._state.first_epochs.items()
            if _parse_endpoint(name)[0] != device
        }
        has_changed = len(first_epochs) < len(self._state.first_epochs)
        self._state.first_epochs = first_epochs
        for key, kept in self._store.items(self._key_prefix, _EpochKey):
            holders = [name for name in kept.holders if _parse_endpoint(name)[0] != device]
            if len(holders) < len(kept.holders):
                has_changed = True
                self._store.put(key, _EpochKey(kept.key, holders))
        if has_changed:
            self.renew()

    def take_seq(self) -> int:
        """Reserve the next sequence number; a number is used for one content."""
        self._state.seq += 1
        self._store_state()
        return self._state.seq

    def can_read(self, epoch: int, receivers: Collection[Endpoint]) -> bool:
        """Return whether the key of an epoch is still stored and all receivers may read it."""
        first_epochs = self._state.first_epochs
        return self._stored_key(epoch) is not None and all(
            first_epochs[_endpoint_name(receiver)] <= epoch for receiver in receivers
        )

    def choose_epoch(self, receivers: Collection[Endpoint]) -> int:
        """Return the epoch of a new item: the current one, or a new one with a new key, if that is due."""
        if not self._is_new_epoch_due(receivers):
            return self.epoch
        state, epoch = self._state, max(self.epoch, self._module.first) + 1
        self._store_key(epoch, _EpochKey(bytes(self._module.derive_channel_key(self.port, epoch))))
        self._store.delete(self._place_of_key(epoch - KEPT_EPOCHS))
        state.epoch, state.began_us, state.is_used, state.renew = epoch, self._module.now_us, False, False
        self._store_state()
        return epoch

    def use_key(self, epoch: int, receivers: Collection[Endpoint]) -> tuple[Secret, list[Endpoint]]:
        """Return the key of an epoch and the receivers that lack it; mark these as holders."""
        kept = self._stored_key(epoch)
        assert kept is not None  # after can_read or choose_epoch
        lacking = [receiver for receiver in receivers if _endpoint_name(receiver) not in kept.holders]
        if lacking:
            self._store_key(epoch, _EpochKey(kept.key, [*kept.holders, *map(_endpoint_name, lacking)]))
        if epoch == self.epoch and not self._state.is_used:
            self._state.is_used = True
            self._store_state()
        return Secret(kept.key), lacking

    def held_keys(self, devices: Set[str]) -> Iterator[tuple[int, Secret, list[Endpoint]]]:
        """Iterate over (epoch, key, endpoints) for the keys that some devices hold."""
        for key, kept in self._store.items(self._key_prefix, _EpochKey):
            holders = [holder for holder in map(_parse_endpoint, kept.holders) if holder[0] in devices]
            if holders:
                yield int(key.removeprefix(self._key_prefix)), Secret(kept.key), holders

    def mark_undelivered(self, epoch: int, receivers: Collection[Endpoint]) -> None:
        """Record that the key of an epoch did not reach some receivers; it is sent to them again."""
        kept = self._stored_key(epoch)
        if kept is not None and receivers:
            names = set(map(_endpoint_name, receivers))
            self._store_key(epoch, _EpochKey(kept.key, [name for name in kept.holders if name not in names]))

    def _is_new_epoch_due(self, receivers: Collection[Endpoint]) -> bool:
        """Return whether an item for the receivers begins a new epoch."""
        state, settings = self._state, self._module.settings
        if self.epoch <= self._module.first:
            return True
        kept, age_us = self._stored_key(self.epoch), self._module.now_us - state.began_us
        if settings.renewal is None or kept is None:
            is_over = age_us >= settings.renew_us
            return state.renew or is_over or not self.can_read(self.epoch, receivers)
        to, holders = {device for device, _ in receivers}, {_parse_endpoint(name)[0] for name in kept.holders}
        return bool(settings.renewal(KeyUse(to, holders, age_us / 1e6, settings.renew_us / 1e6)))

    def _store_state(self) -> None:
        """Store the state of the channel, after each change."""
        self._store.put(f"channel {self.port}", self._state)

    def _stored_key(self, epoch: int) -> _EpochKey | None:
        """Return the key of an epoch; None: it is too old, or never was."""
        return self._store.get(self._place_of_key(epoch), _EpochKey)

    def _store_key(self, epoch: int, key: _EpochKey) -> None:
        """Store the key of an epoch with its holders."""
        self._store.put(self._place_of_key(epoch), key)

    @property
    def _key_prefix(self) -> str:
        """Prefix of the store keys of all epochs' keys."""
        return f"channel key {self.port}\n"

    def _place_of_key(self, epoch: int) -> str:
        """Return the store key of an epoch's key."""
        return f"{self._key_prefix}{epoch:012d}"


def _endpoint_name(endpoint: Endpoint) -> str:
    """Return an endpoint as one text, as the store has it."""
    return "\n".join(endpoint)


def _parse_endpoint(name: str) -> Endpoint:
    """Return the endpoint that :func:`_endpoint_name` has made a text of."""
    device, port = name.split("\n")
    return device, port
