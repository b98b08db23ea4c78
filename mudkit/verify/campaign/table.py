"""The table of transitions by faults: how often each happened while a fault was in effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from mudkit.events import (
    Effect,
    Event,
    Host,
    Machine,
    Make,
    Network,
    Ports,
    Received,
    Send,
    SendFailed,
)
from mudkit.tokens import Authority, Claims
from mudkit.verify.campaign.client import ClientSeen
from mudkit.verify.campaign.cloud import (
    BackEndSeen,
    GatewaySeen,
    GeneratorSeen,
    NotificationServerSeen,
    ProcessorSeen,
    ReplicaSeen,
)
from mudkit.wire import as_wire

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cells", "SeenHost", "SeenNetwork"]

_Each = TypeVar("_Each")

Cells = Counter[tuple[str, tuple[str, ...]]]
"""How often a transition happened with these faults in effect."""

_SEEN: Final[Mapping[str, Callable[[], Any]]] = {
    "ClientMachine": ClientSeen,
    "Gateway": GatewaySeen,
    "Processor": ProcessorSeen,
    "BackEnd": BackEndSeen,
    "Replica": ReplicaSeen,
    "NotificationServer": NotificationServerSeen,
    "Generator": GeneratorSeen,
}


class _SeenMachine:
    """A machine, and who looks on."""

    def __init__(self, machine: Machine, store: Any, note: Callable[[str], None], seen: Any) -> None:
        self._machine = machine
        self._store = store
        self._note = note
        self._seen = seen

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects = self._machine.handle(now_us, event)
        seen = self._seen.names(_as_wire(event), list(map(_as_wire, effects)), self._store.is_dirty)
        for name in seen:
            self._note(name)
        return effects


def _as_wire(each: _Each) -> _Each:
    """Return an event or effect with its message as a mapping."""
    if isinstance(each, Received | Send | SendFailed):
        return replace(each, message=as_wire(each.message))
    return each


class SeenHost:
    """A host on which all machines are looked at.

    Parameters
    ----------
    host : Host
    note : callable
        Told the name of each transition.
    """

    def __init__(self, host: Host, note: Callable[[str], None]) -> None:
        self._host = host
        self._note = note
        self.name = host.name

    def install(self, system: str, make: Make, **named: Any) -> Any:
        """See :class:`mudkit.events.Host`."""

        def made(ports: Ports) -> Machine:
            machine = make(ports)
            seen = _SEEN.get(type(machine).__name__)
            return machine if seen is None else _SeenMachine(machine, ports.store, self._note, seen())

        return self._host.install(system, made, **named)


class _Remembers(Authority):
    """An authority that reads each token once: the same is shown thousands of times."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._known: dict[Any, Claims] = {}

    def decode(self, token: Any) -> Claims:
        """See :class:`mudkit.tokens.Authority`."""
        if token not in self._known:
            self._known[token] = self._authority.decode(token)
        return self._known[token]


class SeenNetwork:
    """A lab in which all machines of servers are looked at; see :class:`SeenHost`."""

    def __init__(self, network: Network, note: Callable[[str], None]) -> None:
        self._network = network
        self._note = note
        self.authority = _Remembers(network.authority)

    @property
    def devices(self) -> Mapping[str, Host]:
        """See :class:`mudkit.events.Network`."""
        return self._network.devices

    @property
    def start_us(self) -> int:
        """See :class:`mudkit.events.Network`."""
        return self._network.start_us

    @property
    def problems(self) -> pd.DataFrame:
        """See :class:`mudkit.events.Network`."""
        return self._network.problems

    def server(self, name: str) -> SeenHost:
        """See :class:`mudkit.events.Network`."""
        return SeenHost(self._network.server(name), self._note)
