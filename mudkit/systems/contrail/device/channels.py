"""The keys of channels: who may have which, as their sender sees it (Contrail 3.3).

A channel is a port of a sender and everybody who has a filter there. Its key has epochs:

* a new epoch begins when the last one has lasted for long, when somebody has left, and when an item is for
  somebody who came after something was encrypted in the last one: so nobody reads what is older than the own
  filter, and nobody who has left reads what is newer;
* the key goes to a receiver with the first item that it gets in an epoch, and to nobody else.

The key is that of the port, whatever the filters say: who has it could read every item of the epoch, those
too that the own filter leaves out, if a relay handed them over. So a narrower filter saves bytes; it is no
secret from a friend whom the relay helps. What only some may read needs a port of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from mudkit.systems.contrail.crypto import Secret
from mudkit.systems.contrail.device.core import Core, KeyUse
from mudkit.systems.contrail.items import Endpoint

__all__ = ["KEPT_EPOCHS", "Channel"]

KEPT_EPOCHS: Final = 16
"""So many keys of a channel are kept, at both of its ends."""


class Channel:
    """The channel of a port.

    Parameters
    ----------
    core : Core
    port : str
    """

    def __init__(self, core: Core, port: str) -> None:
        self._core, self.port = core, port
        self._state: dict[str, Any] = core.store.get(f"channel {port}") or {
            "seq": core.first,
            "epoch": core.first,
            "began_us": 0,
            "is_used": False,
            "renew": False,
            "least": {},
        }

    @property
    def epoch(self) -> int:
        """The last one that has begun."""
        return int(self._state["epoch"])

    def settle(self, receivers: Collection[Endpoint]) -> None:
        """Take note of who has a filter at the port now."""
        least, names = self._state["least"], {_name(each) for each in receivers}
        if names == set(least):
            return
        if set(least) - names:
            self._state["renew"] = True
        next_epoch = self.epoch + 1
        fresh = next_epoch if self._state["is_used"] or self._state["renew"] else max(self.epoch, 1)
        self._state["least"] = {name: least.get(name, fresh) for name in sorted(names)}
        self._keep()

    def renew(self) -> None:
        """Begin a new epoch with the next item."""
        self._state["renew"] = True
        self._keep()

    def forget(self, device: str) -> None:
        """Take a device for somebody who was never here, and begin a new epoch with the next item."""
        gone = [name for name in self._state["least"] if name.split("\n")[0] == device]
        self._state["least"] = {name: each for name, each in self._state["least"].items() if name not in gone}
        for key, kept in self._core.store.items(self._keys):
            holders = [name for name in kept["holders"] if name.split("\n")[0] != device]
            if len(holders) < len(kept["holders"]):
                gone.append(key)
                self._core.store.put(key, {**kept, "holders": holders})
        if gone:
            self.renew()

    def next_seq(self) -> int:
        """Give the number of an item; it comes again with the same content only."""
        self._state["seq"] += 1
        self._keep()
        return int(self._state["seq"])

    def can_read(self, epoch: int, receivers: Collection[Endpoint]) -> bool:
        """Say whether all these may have the key of an epoch, and it is still kept."""
        least = self._state["least"]
        is_kept = self._core.store.get(self._key(epoch)) is not None
        return is_kept and all(least[_name(each)] <= epoch for each in receivers)

    def epoch_for(self, receivers: Collection[Endpoint]) -> int:
        """Give the epoch for an item that goes to these: the last one, or a new one if it has to be."""
        state = self._state
        if not self._is_due(receivers):
            return self.epoch
        epoch = self.epoch + 1
        key = self._core.new_key(self.port, epoch)
        self._core.store.put(self._key(epoch), {"key": bytes(key), "holders": []})
        self._core.store.delete(self._key(epoch - KEPT_EPOCHS))
        state |= {"epoch": epoch, "began_us": self._core.now_us, "is_used": False, "renew": False}
        self._keep()
        return epoch

    def use(self, epoch: int, receivers: Collection[Endpoint]) -> tuple[Secret, list[Endpoint]]:
        """Give the key of an epoch, and who of these has to be sent it; then they count as having it."""
        kept = self._core.store.get(self._key(epoch))
        lacking = [each for each in receivers if _name(each) not in kept["holders"]]
        if lacking:
            holders = [*kept["holders"], *map(_name, lacking)]
            self._core.store.put(self._key(epoch), {**kept, "holders": holders})
        if epoch == self.epoch and not self._state["is_used"]:
            self._state["is_used"] = True
            self._keep()
        return Secret(kept["key"]), lacking

    def lacks(self, epoch: int, receivers: Collection[Endpoint]) -> None:
        """Take note that the key of an epoch has not reached these."""
        kept = self._core.store.get(self._key(epoch))
        if kept is not None and receivers:
            names = {_name(each) for each in receivers}
            holders = [each for each in kept["holders"] if each not in names]
            self._core.store.put(self._key(epoch), {**kept, "holders": holders})

    def _is_due(self, receivers: Collection[Endpoint]) -> bool:
        """Say whether an item that goes to these begins a new epoch."""
        state, settings = self._state, self._core.settings
        kept, age_us = self._core.store.get(self._key(self.epoch)), self._core.now_us - state["began_us"]
        if settings.renewal is None or kept is None:
            is_over = age_us >= settings.renew_us
            return state["renew"] or is_over or not self.can_read(self.epoch, receivers)
        to, holders = {each[0] for each in receivers}, {each.split("\n")[0] for each in kept["holders"]}
        return bool(settings.renewal(KeyUse(to, holders, age_us / 1e6, settings.renew_us / 1e6)))

    def _keep(self) -> None:
        self._core.store.put(f"channel {self.port}", self._state)

    @property
    def _keys(self) -> str:
        return f"channel key {self.port}\n"

    def _key(self, epoch: int) -> str:
        return f"{self._keys}{epoch:012d}"


def _name(endpoint: Endpoint) -> str:
    return "\n".join(endpoint)
