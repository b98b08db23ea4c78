"""The master of the back end, as far as a server has heard.

The naming machine alone decides it (:mod:`~mudkit.systems.mud.servers.elections`). Each server that uses the
back end has a durable copy: of two, that with the higher epoch counts. Nothing is sent in a cloud whose back
end has no standby.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.events import Effect, Ports, Send
from mudkit.systems.mud.messages.standbys import (
    Mastership,
    MastershipRequest,
    MastershipTaken,
    SuspectStore,
)

KEY: Final = "mastership"


class KnownMaster:
    """Mastership of the ``stores``, of which the first one is the master at first.

    ``naming`` is the address of the naming machine.
    """

    def __init__(self, ports: Ports, naming: str, stores: Sequence[str]) -> None:
        self._store, self._naming, self._stores = ports.store, naming, frozenset(stores)
        installed = Mastership(0, 0, 0, stores[0], list(stores))
        self.present = self._store.get(KEY, Mastership) or installed

    @property
    def address(self) -> str:
        """Address of the master."""
        return self.present.master

    @property
    def has_standbys(self) -> bool:
        """True if another store may become the master."""
        return len(self._stores) > 1

    def take(self, source: str, mastership: Mastership) -> Sequence[Effect] | None:
        """Store a mastership of a higher epoch, and acknowledge it to the naming machine.

        None: it is of other stores. Who has sent a lower one is sent the higher one.
        """
        if not self._stores.issuperset(mastership.members):
            return None
        if mastership.epoch < self.present.epoch:
            return (Send(source, self.present),)
        if mastership.epoch > self.present.epoch:
            self.present = mastership
            self._store.put(KEY, mastership)
        return (Send(source, MastershipTaken(mastership.epoch)),) if source == self._naming else ()

    def ask(self, source: str) -> Sequence[Effect]:
        """Ask a store, which acts as the master although another one is known, for what it knows."""
        return (Send(source, MastershipRequest()),)

    def suspect(self, store: str | None = None) -> Sequence[Effect]:
        """Report a store that does not answer to the naming machine; None: the master."""
        if not self.has_standbys:
            return ()
        return (Send(self._naming, SuspectStore(store or self.address, self.present)),)
