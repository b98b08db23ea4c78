"""Radiator's server: it keeps the clients, lets aggregates go and propagates them (Radiator 3, 4.2).

Its rules:

============  ======================================================================================
register      into the table; from the device that is there it overwrites; of another device that is
              alive it is refused
unregister    out of the table, with all that waits
context       the next of its client: taken, for all who are registered (Algorithm 3); an old one is
              confirmed again; one that is too early will come again; of nobody known: register first
got           the aggregate is no longer owed
unreachable   a member of a chain could not pass it on: the next one is tried, the dead one is away
failed        the same, where the server itself could not
anything      is a sign of life: what is owed to a client that was away goes to it directly
timer due     the function is applied anew, and what has waited long enough goes
timer again   what is owed and overdue is sent again, directly; who has been silent for too long while
              something is owed is removed
============  ======================================================================================

All of it is in memory (Radiator 4.2): a server that begins anew tells its clients to register again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Notify,
    Ports,
    Received,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.radiator.chains import Chainability, chains
from mudkit.systems.radiator.client_arrays import for_many
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.joining import join_problem, joined
from mudkit.systems.radiator.joins import Join
from mudkit.systems.radiator.literal import Entry
from mudkit.systems.radiator.packing import pack, unpack
from mudkit.systems.radiator.pending import Message
from mudkit.systems.radiator.server_link import ServerLink
from mudkit.systems.radiator.table import Owed, Row
from mudkit.systems.radiator.thresholds import Aggregability

__all__ = ["PROBLEMS", "ServerMachine", "Settings"]

PROBLEMS: Final = "problems"
"""The application that is told of functions that fail."""
AGAIN_US: Final = 5_000_000
AGAIN_US_PER_HOP: Final = 1_000_000
AGAIN_US_PER_BYTE: Final = 400
"""Nothing is sent again while it may still be on its way: through a chain, over a slow link."""
_AGAIN: Final = "again"
_DUE: Final = "due"
_RETRY_US: Final = 60_000_000
"""A join that failed is tried again so long after, if nothing comes before."""


@dataclass(frozen=True)
class Settings:
    """How a server decides and sends.

    Parameters
    ----------
    aggregability : Aggregability
    join : callable
    chain : float
        The share k of the peers that one chain has at most; 0: no chains.
    chainability : callable or None
    compress, echo : bool
    retention_us, silence_us : int
        No message waits for longer; who is silent for longer while something is owed is removed.
    link_kbps : float or None
    """

    aggregability: Aggregability
    join: Join
    chain: float
    chainability: Chainability | None
    compress: bool
    echo: bool
    retention_us: int
    silence_us: int
    link_kbps: float | None


class ServerMachine:
    """The machine of the server.

    Parameters
    ----------
    ports : Ports
    settings : Settings
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._settings = settings
        self._engine = for_many(settings.aggregability, settings.retention_us, echo=settings.echo)
        self._link = ServerLink(settings.link_kbps)
        self._rows: dict[str, Row] = {}
        self._owing: set[str] = set()
        """Clients that are owed something."""
        self._entries = 0
        self._at: dict[str, str] = {}  # client by address
        self._last: dict[tuple[str, str], int] = {}  # number of the last context, by client and device
        self._life = ports.entropy(4).hex()
        self._arrived = self._aggregates = 0
        self._due_us: float = math.inf
        self._is_again_set = False
        self._now_us = 0
        self._effects: list[Effect] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us, self._effects = now_us, []
        match event:
            case Received(source=source, message=bytes() as sent):
                self._received(source, unpack(sent))
            case SendFailed(to=to, message=bytes() as sent):
                self._failed(to, unpack(sent))
            case TimerFired(name=ServerLink.TIMER):
                self._effects += self._link.fired(now_us)
            case TimerFired(name=name) if name == _DUE:
                self._due_us = math.inf
                self._propagate(self._engine.fire(now_us))
            case TimerFired(name=name) if name == _AGAIN:
                self._again()
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                try:
                    self._effects.append(Complete(op_id, self._call(operation, arguments)))
                except MudkitError as error:
                    self._effects.append(Complete(op_id, error=error))
        self._effects += [Notify(PROBLEMS, problem) for problem in self._engine.problems.news()]
        self._set_timers()
        return self._effects

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        match operation:
            case "clients":
                return {name: row.is_there for name, row in self._rows.items()}
            case "waiting":
                return {name: len(self._engine.waiting(name)) for name in self._rows}
            case "counts":
                return {
                    "contexts": self._arrived, "aggregates": self._aggregates,
                    "messages_sent": self._link.messages_sent, "bytes_sent": self._link.bytes_sent,
                    "dropped": self._engine.dropped, "failures": self._engine.problems.count,
                }  # fmt: skip
        raise ParameterError(
            "There is no such operation.", found=repr(operation), expected="clients, waiting, counts"
        )

    # -- clients

    def _received(self, source: str, message: dict[str, Any]) -> None:
        client, kind = message["client"], message["kind"]
        if kind == "register":
            self._register(source, message)
            return
        row = self._rows.get(client)
        if row is None or row.device != message["device"]:
            if kind != "unregister":
                self._tell(source, {"kind": "unknown"})
            return
        if kind == "unregister":
            self._remove(client)
            return
        self._shows_life(client, row, source)
        if kind == "context":
            self._context(client, row, message)
        elif kind == "got":
            row.owed.pop(message["aggregate"], None)
            if not row.owed:
                self._owing.discard(client)
        elif kind == "unreachable":
            self._broken(message["who"], message["address"], message["aggregate"], message["rest"])

    def _register(self, source: str, message: dict[str, Any]) -> None:
        client, device, attributes = message["client"], message["device"], message["attributes"]
        row = self._rows.get(client)
        if row is not None and row.device != device:
            if row.is_there:
                self._tell(source, {"kind": "refused", "device": row.device})
                return
            self._remove(client)
            row = None
        self._tell(source, {"kind": "registered"})
        if row is None:
            self._entries += 1
            row = self._rows[client] = Row(self._entries, device, source, self._now_us)
            self._at[source] = client
        row.p2p_enabled = bool(attributes.get("p2p_enabled", False))
        self._shows_life(client, row, source)
        if attributes != row.attributes:  # a phone that is only back changes nothing of what waits
            row.attributes = attributes
            self._propagate(self._engine.register(self._now_us, client, attributes))

    def _shows_life(self, client: str, row: Row, source: str) -> None:
        row.heard_us = self._now_us
        if row.address != source:
            self._at.pop(row.address, None)
            row.address, self._at[source] = source, client
        if not row.is_there:
            row.is_there = True
            for aggregate in row.owed:
                self._push(aggregate, [client])

    def _remove(self, client: str) -> None:
        self._owing.discard(client)
        self._at.pop(self._rows.pop(client).address, None)
        self._engine.unregister(self._now_us, client)

    def _context(self, client: str, row: Row, message: dict[str, Any]) -> None:
        key, number = (client, row.device), message["number"]
        last = max(self._last.get(key, 0), message["first"] - 1)
        is_next = number == last + 1
        self._last[key] = last + is_next
        if number <= self._last[key]:
            self._tell(row.address, {"kind": "taken", "number": number})
        if is_next:
            self._arrived += 1
            context = Context.read(message["context"])
            taken = Message(self._arrived, client, self._now_us, context)
            self._propagate(self._engine.take(self._now_us, taken))

    # -- propagation

    def _propagate(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            context = self._joined(entry)
            if context is None:
                self._engine.put_back(entry, self._now_us + _RETRY_US)
                continue
            self._aggregates += 1
            aggregate = f"{self._life} {self._aggregates}"
            for client in entry.recipients:
                self._rows[client].owed[aggregate] = Owed(context, 0)
            self._owing.update(entry.recipients)
            there = [client for client in entry.recipients if self._rows[client].is_there]
            can_pass = {client: self._rows[client].p2p_enabled for client in there}
            settings = self._settings
            for chain in chains(
                there, settings.chain, can_pass, self._engine.contexts.__getitem__, settings.chainability
            ):
                self._push(aggregate, chain)

    def _joined(self, entry: Entry) -> dict[str, Any] | None:
        """Give the aggregate as it is sent, None where that fails."""
        try:
            described = joined(self._settings.join, entry).describe()
            pack(described, compress=False)
        except Exception as error:
            self._engine.problems.add(join_problem(error, self._settings.join, entry))
            return None
        return described

    def _push(self, aggregate: str, chain: Sequence[str]) -> None:
        """Send an aggregate to the first of a chain, with the names and addresses of the others."""
        first, *others = (self._rows[client] for client in chain)
        rest = [[client, row.address] for client, row in zip(chain[1:], others, strict=True)]
        context = first.owed[aggregate].context
        push = {"kind": "push", "aggregate": aggregate, "context": context, "chain": rest}
        sent = pack(push, self._settings.compress)
        self._effects += self._link.send(self._now_us, first.address, sent)
        again_us = self._link.free_us + AGAIN_US + len(sent) * AGAIN_US_PER_BYTE
        for hop, row in enumerate((first, *others)):
            row.owed[aggregate].again_us = again_us + hop * (AGAIN_US_PER_HOP + len(sent) * AGAIN_US_PER_BYTE)

    def _failed(self, to: str, message: dict[str, Any]) -> None:
        if message["kind"] == "push":
            rest = [client for client, _ in message["chain"]]
            self._broken(self._at.get(to, ""), to, message["aggregate"], rest)
        elif to in self._at:
            self._rows[self._at[to]].is_there = False

    def _broken(self, dead: str, address: str, aggregate: str, rest: Sequence[str]) -> None:
        """Leave a dead member out, and try the next of its chain."""
        row = self._rows.get(dead)
        if row is not None and row.address == address:
            row.is_there = False
        owed = [each for each in rest if each in self._rows and aggregate in self._rows[each].owed]
        if there := [each for each in owed if self._rows[each].is_there]:
            self._push(aggregate, there)

    def _again(self) -> None:
        self._is_again_set = False
        for client in sorted(self._owing, key=lambda each: self._rows[each].number):
            row = self._rows[client]
            if self._now_us - row.heard_us > self._settings.silence_us:
                self._remove(client)
            elif row.is_there:
                for aggregate in [each for each, owed in row.owed.items() if owed.again_us <= self._now_us]:
                    self._push(aggregate, [client])

    def _tell(self, to: str, message: dict[str, Any]) -> None:
        self._effects += self._link.send(self._now_us, to, pack(message, self._settings.compress))

    def _set_timers(self) -> None:
        due_us = self._engine.due_us
        if due_us != self._due_us:
            self._due_us = due_us
            wait_us = due_us - self._now_us
            is_set = due_us < math.inf
            timer = (
                SetTimer(_DUE, int(wait_us) if wait_us > 0 else _RETRY_US) if is_set else CancelTimer(_DUE)
            )
            self._effects.append(timer)
        if not self._is_again_set and self._owing:
            self._is_again_set = True
            self._effects.append(SetTimer(_AGAIN, AGAIN_US))
