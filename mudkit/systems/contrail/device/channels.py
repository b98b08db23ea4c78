"""Keys of channels, as their sender manages them (Contrail 3.3).

A channel is a port of a sender with all endpoints that have a filter there. Its key has epochs:

* a new epoch begins when the last one has lasted for ``renew_us``, when a receiver has left, when an item is
  for a receiver that joined after something was encrypted in the last one, and after a start of the module,
  whose store may have forgotten epochs. So no receiver reads items older than its filter, and none that has
  left reads newer ones;
* the key is sent to a receiver with the first item that it gets in an epoch.

The key is that of the port, whatever the filters select. A receiver could read every item of the epoch,
including those that its filter leaves out, if a relay delivered them. So a narrower filter saves bytes, but
keeps no secret from a friend that the relay helps. A secret from some receivers needs its own port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from typing import Final

import msgspec

from mudkit.systems.contrail.crypto import Secret
from mudkit.systems.contrail.device.core import Core, KeyUse
from mudkit.systems.contrail.items import Endpoint

__all__ = ["KEPT_EPOCHS", "Channel"]

KEPT_EPOCHS: Final = 16
"""Number of keys of a channel that are kept, at both ends."""


class _State(msgspec.Struct):
    seq: int
    epoch: int
    began_us: int = 0
    is_used: bool = False
    renew: bool = False
    """Whether the next item begins a new epoch."""
    least: dict[str, int] = {}
    """First epoch that a receiver may read, by endpoint."""


class _EpochKey(msgspec.Struct, frozen=True):
    key: bytes
    holders: list[str] = []
    """Endpoints that were sent the key."""


class Channel:
    """The channel of a port."""

    def __init__(self, core: Core, port: str) -> None:
        self._core, self._store, self.port = core, core.store, port
        self._state = self._store.get(f"channel {port}", _State) or _State(core.first, core.first)
        self._state.seq = max(self._state.seq, core.first)

    @property
    def epoch(self) -> int:
        """The last epoch that has begun."""
        return self._state.epoch

    def settle(self, receivers: Collection[Endpoint]) -> None:
        """Set the endpoints that have a filter at the port now."""
        state, names = self._state, {_name(each) for each in receivers}
        if names == set(state.least):
            return
        if set(state.least) - names:
            state.renew = True
        fresh = self.epoch + 1 if state.is_used or state.renew else max(self.epoch, 1)
        state.least = {name: state.least.get(name, fresh) for name in sorted(names)}
        self._keep()

    def renew(self) -> None:
        """Begin a new epoch with the next item."""
        self._state.renew = True
        self._keep()

    def forget(self, device: str) -> None:
        """Remove a device from the receivers and holders, and begin a new epoch with the next item."""
        least = {name: each for name, each in self._state.least.items() if not _is_of(name, device)}
        has_changed = len(least) < len(self._state.least)
        self._state.least = least
        for key, kept in self._store.items(self._keys, _EpochKey):
            holders = [name for name in kept.holders if not _is_of(name, device)]
            if len(holders) < len(kept.holders):
                has_changed = True
                self._store.put(key, _EpochKey(kept.key, holders))
        if has_changed:
            self.renew()

    def next_seq(self) -> int:
        """Return the next sequence number; a number has one content only."""
        self._state.seq += 1
        self._keep()
        return self._state.seq

    def can_read(self, epoch: int, receivers: Collection[Endpoint]) -> bool:
        """Return whether all these may have the key of an epoch that is still kept."""
        least = self._state.least
        return self._key(epoch) is not None and all(least[_name(each)] <= epoch for each in receivers)

    def epoch_for(self, receivers: Collection[Endpoint]) -> int:
        """Return the epoch of a new item for these: the last one, or a new one that begins with it."""
        if not self._is_due(receivers):
            return self.epoch
        state, epoch = self._state, max(self.epoch, self._core.first) + 1
        self._put(epoch, _EpochKey(bytes(self._core.new_key(self.port, epoch))))
        self._store.delete(self._name(epoch - KEPT_EPOCHS))
        state.epoch, state.began_us, state.is_used, state.renew = epoch, self._core.now_us, False, False
        self._keep()
        return epoch

    def use(self, epoch: int, receivers: Collection[Endpoint]) -> tuple[Secret, list[Endpoint]]:
        """Return the key of an epoch, and which of these have to be sent it; they count as holders then."""
        kept = self._key(epoch)
        assert kept is not None  # can_read, or epoch_for has begun it
        lacking = [each for each in receivers if _name(each) not in kept.holders]
        if lacking:
            self._put(epoch, _EpochKey(kept.key, [*kept.holders, *map(_name, lacking)]))
        if epoch == self.epoch and not self._state.is_used:
            self._state.is_used = True
            self._keep()
        return Secret(kept.key), lacking

    def holdings(self, devices: Set[str]) -> Iterator[tuple[int, Secret, list[Endpoint]]]:
        """Iterate over the epochs whose keys these devices hold: epoch, key, endpoints."""
        for key, kept in self._store.items(self._keys, _EpochKey):
            holders = [holder for holder in map(_endpoint, kept.holders) if holder[0] in devices]
            if holders:
                yield int(key.removeprefix(self._keys)), Secret(kept.key), holders

    def lacks(self, epoch: int, receivers: Collection[Endpoint]) -> None:
        """Note that the key of an epoch has not reached these."""
        kept = self._key(epoch)
        if kept is not None and receivers:
            names = {_name(each) for each in receivers}
            self._put(epoch, _EpochKey(kept.key, [each for each in kept.holders if each not in names]))

    def _is_due(self, receivers: Collection[Endpoint]) -> bool:
        """Return whether an item for these begins a new epoch."""
        state, settings = self._state, self._core.settings
        if self.epoch <= self._core.first:
            return True
        kept, age_us = self._key(self.epoch), self._core.now_us - state.began_us
        if settings.renewal is None or kept is None:
            is_over = age_us >= settings.renew_us
            return state.renew or is_over or not self.can_read(self.epoch, receivers)
        to, holders = {device for device, _ in receivers}, {each.split("\n")[0] for each in kept.holders}
        return bool(settings.renewal(KeyUse(to, holders, age_us / 1e6, settings.renew_us / 1e6)))

    def _keep(self) -> None:
        self._store.put(f"channel {self.port}", self._state)

    def _key(self, epoch: int) -> _EpochKey | None:
        return self._store.get(self._name(epoch), _EpochKey)

    def _put(self, epoch: int, key: _EpochKey) -> None:
        self._store.put(self._name(epoch), key)

    @property
    def _keys(self) -> str:
        return f"channel key {self.port}\n"

    def _name(self, epoch: int) -> str:
        return f"{self._keys}{epoch:012d}"


def _name(endpoint: Endpoint) -> str:
    return "\n".join(endpoint)


def _endpoint(name: str) -> Endpoint:
    device, port = name.split("\n")
    return device, port


def _is_of(name: str, device: str) -> bool:
    return name.split("\n")[0] == device
