"""Radiator's server: it keeps the clients, lets aggregates go and propagates them (Radiator 3, 4.2).

Its rules:

============  ======================================================================================
register      into the table; from the device that is there it overwrites; of another device that is
              alive it is refused; of another incarnation, or an older turn, it has to give a challenge
              back first: a late copy of what a device has said long ago changes nothing
unregister    out of the table, with all that waits; a challenge as with register
context       the next of its client: taken, with those that wait for it, for all who are registered
              (Algorithm 3); an old one is confirmed again; one that is too early waits; of nobody known,
              or of another incarnation: register first
got           the aggregate is no longer owed
unreachable   a member of a chain could not pass it on to the next: the one after that is tried; to
              the next nothing is sent until it shows life, or two minutes later by the server itself
failed        the same, where the server itself could not; the dead one is away
anything      is a sign of life: what is owed to a client that was away goes to it directly
timer due     the function is applied anew, and what has waited long enough goes
timer again   what is owed and overdue is sent again, directly; who has been silent for too long while
              something is owed is removed
odd           what no client sends, or one in the name of another device, is dropped and recorded
============  ======================================================================================

All of it is in memory (Radiator 4.2): a server that begins anew tells its clients to register again. What
peers say of others is believed as far as it concerns the chain in which they are, and of whom they were to
pass it on to; that one has to wait for two minutes, and loses nothing by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2s
from itertools import pairwise
from typing import Any, Final

from msgspec import UNSET

from mudkit.errors import MudkitError, ParameterError
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Ports,
    Received,
    Record,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.radiator.aggregation.joining import aggregate_of
from mudkit.systems.radiator.engines.client_arrays import for_many
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.messages import (
    FROM_CLIENTS,
    DeliveryAck,
    Propagate,
    Register,
    Unreachable,
    Unregister,
    odd,
    read,
)
from mudkit.systems.radiator.packing import pack, unpack
from mudkit.systems.radiator.servers.chains import chains
from mudkit.systems.radiator.servers.server_link import ServerLink
from mudkit.systems.radiator.servers.settings import Settings
from mudkit.systems.radiator.servers.table import Known, Owed, Row

__all__ = ["ServerMachine"]

AGAIN_US: Final = 5_000_000
AGAIN_US_PER_HOP: Final = 1_000_000
AGAIN_US_PER_BYTE: Final = 400
"""Nothing is sent again while it may still be on its way: through a chain, over a slow link."""
_AGAIN: Final = "again"
_DUE: Final = "due"
_RETRY_US: Final = 60_000_000
"""A join that failed is tried again so long after, if nothing comes before."""
DOUBT_US: Final = 120_000_000
"""So long a peer is believed who says that another cannot be reached."""
_MOST_AHEAD: Final = 256
"""Of a client, contexts are kept that are so far ahead of the one that is missing."""


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
        self._known: dict[tuple[str, str], Known] = {}  # by client and device
        self._entropy = ports.entropy
        self._secret = ports.entropy(16)
        self._arrived = self._aggregates = 0
        self._due_us: float = math.inf
        self._is_again_set = False
        self._now_us = 0
        self._effects: list[Effect] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us, self._effects = now_us, []
        match event:
            case Received():
                self._received(event)
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
        self._effects += [
            Record("incidents", {"incident": "failed", "detail": str(problem)})
            for problem in self._engine.problems.news()
        ]
        self._set_timers()
        return self._effects

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        match operation:
            case "clients":
                return {name: self._is_there(row) for name, row in self._rows.items()}
            case "waiting":
                return {name: len(self._engine.waiting(name)) for name in self._rows}
            case "counts":
                return {
                    "contexts": self._arrived,
                    "aggregates": self._aggregates,
                    "messages_sent": self._link.messages_sent,
                    "bytes_sent": self._link.bytes_sent,
                    "dropped": self._engine.dropped,
                    "failures": self._engine.problems.count,
                }
        raise ParameterError(
            "There is no such operation.", found=repr(operation), expected="clients, waiting, counts"
        )

    # -- clients

    def _received(self, event: Received) -> None:
        """Take what a client may say, of itself."""
        message, source = read(event, FROM_CLIENTS), event.source
        if message is None or message.device != event.sender:
            self._effects += odd(event)
            return
        match message:
            case Register():
                self._register(source, message)
                return
            case Unregister():
                self._unregister(source, message)
                return
        row = self._rows.get(message.client)
        if row is None or row.device != message.device:
            self._tell(source, {"kind": "unknown"})
            return
        self._shows_life(message.client, row)
        match message:
            case Propagate():
                self._context(row, message)
            case DeliveryAck(client=client, aggregate=aggregate):
                self._got(client, row, aggregate)
            case Unreachable():
                self._unreachable(message)

    def _register(self, source: str, message: Register) -> None:
        client, device, attributes = message.client, message.device, message.attributes
        row = self._rows.get(client)
        if row is not None and row.device != device and row.is_there:
            self._answer(source, "refused", message, device=row.device)
            return
        if not self._is_alive(source, message):
            return
        if row is not None and row.device != device:
            self._remove(client)
            row = None
        another = {"another": True} if self._known[client, device].is_another else {}
        self._answer(source, "registered", message, **another)
        if row is None:
            self._entries += 1
            row = self._rows[client] = Row(self._entries, device, source, self._now_us)
            self._at[source] = client
        elif row.address != source:
            self._at.pop(row.address, None)
            row.address, self._at[source] = source, client
        row.p2p_enabled = bool(attributes.get("p2p_enabled", False))
        self._shows_life(client, row)
        if attributes != row.attributes:  # a phone that is only back changes nothing of what waits
            row.attributes = attributes
            self._propagate(self._engine.register(self._now_us, client, attributes))

    def _unregister(self, source: str, message: Unregister) -> None:
        if not self._is_alive(source, message):
            return
        row = self._rows.get(message.client)
        if row is not None and row.device == message.device:
            self._remove(message.client)
        self._answer(source, "unregistered", message)

    def _is_alive(self, source: str, message: Register | Unregister) -> bool:
        """Take note of who registers or unregisters, unless it may be a late copy; then it is asked."""
        key = message.client, message.device
        known = self._known.get(key)
        if known is not None and (known.incarnation != message.incarnation or known.turn > message.turn):
            if known.challenge is None or message.challenge != known.challenge:
                known.challenge = known.challenge or self._entropy(4).hex()
                self._answer(source, "identify", message, challenge=known.challenge)
                return False
            known = Known(message.incarnation, message.turn, 0, is_another=True)
            row = self._rows.get(message.client)
            if row is not None and row.device == message.device:
                row.is_there = False  # another store has nothing of what came: what is owed goes to it anew
        if known is None:
            known = Known(message.incarnation, message.turn, 0)
        self._known[key] = known
        known.is_another |= message.another is True
        known.turn, known.last = message.turn, max(known.last, message.first - 1)
        return True

    def _shows_life(self, client: str, row: Row) -> None:
        row.heard_us = self._now_us
        row.doubted_until_us = 0
        if not row.is_there:
            row.is_there = True
            for aggregate in row.owed:
                self._push(aggregate, [client])

    def _remove(self, client: str) -> None:
        self._owing.discard(client)
        row = self._rows.pop(client)
        self._at.pop(row.address, None)
        self._known[client, row.device].early.clear()
        self._engine.unregister(self._now_us, client)

    def _context(self, row: Row, message: Propagate) -> None:
        client, number = message.client, message.number
        known = self._known[client, row.device]
        whose = {"incarnation": known.incarnation} if known.is_another else {}
        if message.incarnation != whose.get("incarnation", UNSET):
            self._tell(row.address, {"kind": "unknown"})
            return
        known.last = max(known.last, message.first - 1)
        if known.last < number <= known.last + _MOST_AHEAD:
            known.early[number] = message.context.context()
        taken = []
        while known.last + 1 in known.early:
            known.last += 1
            taken.append(known.early.pop(known.last))
        if known.early:
            known.early = {each: early for each, early in known.early.items() if each > known.last}
        if number <= known.last:
            self._tell(row.address, {"kind": "taken", "number": known.last, **whose})
        for context in taken:
            self._arrived += 1
            arrived = Message(self._arrived, client, self._now_us, context)
            self._propagate(self._engine.take(self._now_us, arrived))

    def _got(self, client: str, row: Row, aggregate: str) -> None:
        row.owed.pop(aggregate, None)
        if not row.owed:
            self._owing.discard(client)

    def _unreachable(self, message: Unreachable) -> None:
        """Hear that a client could not pass an aggregate on; it may say so of the next of its chain, once."""
        row = self._rows.get(message.who)
        owed = None if row is None else row.owed.get(message.aggregate)
        if row is None or owed is None or (message.client, message.who) not in pairwise(owed.chain):
            return
        chain, owed.chain = owed.chain, ()
        if row.address == message.address:
            row.doubted_until_us = self._now_us + DOUBT_US
        self._go_on(message.aggregate, chain[chain.index(message.who) + 1 :])

    # -- propagation

    def _propagate(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            context = aggregate_of(self._settings.join, entry, self._engine.problems)
            if context is None:
                self._engine.put_back(entry, self._now_us + _RETRY_US)
                continue
            self._aggregates += 1
            aggregate = self._aggregate_id()
            for client in entry.recipients:
                self._rows[client].owed[aggregate] = Owed(context, 0)
            self._owing.update(entry.recipients)
            there = [client for client in entry.recipients if self._is_there(self._rows[client])]
            can_pass = {client: self._rows[client].p2p_enabled for client in there}
            settings, engine = self._settings, self._engine
            for chain in chains(
                there,
                settings.chain,
                can_pass,
                engine.contexts.__getitem__,
                settings.chainability,
                engine.problems.add,
            ):
                self._push(aggregate, chain)

    def _aggregate_id(self) -> str:
        """Give an id that no peer can guess: what it pushed under it would be taken for the aggregate."""
        number = self._aggregates
        mark = blake2s(number.to_bytes(8, "big"), key=self._secret, digest_size=4).hexdigest()
        return f"{mark} {number}"

    def _push(self, aggregate: str, chain: Sequence[str]) -> None:
        """Send an aggregate to the first of a chain, with the names and addresses of the others."""
        first, *others = (self._rows[client] for client in chain)
        rest = [[client, row.address] for client, row in zip(chain[1:], others, strict=True)]
        context = first.owed[aggregate].context
        push = {"kind": "push", "aggregate": aggregate, "context": context, "chain": rest}
        sent = pack(push, self._settings.compress)
        self._effects += self._link.send(self._now_us, first.address, sent)
        again_us = self._link.free_us + AGAIN_US + len(sent) * AGAIN_US_PER_BYTE
        whole = tuple(chain)
        for hop, row in enumerate((first, *others)):
            owed = row.owed[aggregate]
            owed.again_us = again_us + hop * (AGAIN_US_PER_HOP + len(sent) * AGAIN_US_PER_BYTE)
            owed.chain = whole

    def _failed(self, to: str, message: Mapping[str, Any]) -> None:
        """Find that something did not reach a client: it is away, and the next of its chain is tried."""
        client = self._at.get(to)
        if client is not None:
            self._rows[client].is_there = False
        if message["kind"] == "push":
            self._go_on(message["aggregate"], [each for each, _ in message["chain"]])

    def _go_on(self, aggregate: str, rest: Sequence[str]) -> None:
        """Send an aggregate to those of a chain whom it has not reached."""
        there = []
        for client in rest:
            row = self._rows.get(client)
            if row is not None and aggregate in row.owed and self._is_there(row):
                there.append(client)
        if there:
            self._push(aggregate, there)

    def _is_there(self, row: Row) -> bool:
        """Say whether something is sent to a client now."""
        return row.is_there and row.doubted_until_us <= self._now_us

    def _again(self) -> None:
        self._is_again_set = False
        for client in sorted(self._owing, key=lambda each: self._rows[each].number):
            row = self._rows[client]
            if self._now_us - row.heard_us > self._settings.silence_us:
                self._remove(client)
                self._tell(row.address, {"kind": "unknown"})  # if it lives, it registers again
            elif self._is_there(row):
                for aggregate in [each for each, owed in row.owed.items() if owed.again_us <= self._now_us]:
                    self._push(aggregate, [client])

    def _answer(self, to: str, kind: str, message: Register | Unregister, **fields: Any) -> None:
        """Answer who registers or unregisters, in its turn."""
        turn = {"incarnation": message.incarnation, "turn": message.turn}
        self._tell(to, {"kind": kind, **turn, **fields})

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
