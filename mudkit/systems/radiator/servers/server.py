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
from collections.abc import Sequence
from hashlib import blake2s
from itertools import pairwise
from typing import Final

from msgspec import UNSET, Struct

from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, ParameterError, brief
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
from mudkit.systems.radiator import operations
from mudkit.systems.radiator.aggregation.joining import RETRY_US, aggregates
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import engine_for_many
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.messages import (
    FROM_CLIENTS,
    PUSHES,
    ContextFields,
    DeliveryAck,
    Identify,
    Propagate,
    Push,
    Refused,
    Register,
    Registered,
    Taken,
    Unknown,
    Unreachable,
    Unregister,
    Unregistered,
    odd,
    read,
)
from mudkit.systems.radiator.packing import check_size, pack
from mudkit.systems.radiator.servers.chains import chains
from mudkit.systems.radiator.servers.server_link import ServerLink
from mudkit.systems.radiator.servers.settings import Settings
from mudkit.systems.radiator.servers.table import Known, Numbers, Owed, Row

__all__ = ["ServerMachine"]

AGAIN_US: Final = 5_000_000
AGAIN_US_PER_HOP: Final = 1_000_000
AGAIN_US_PER_BYTE: Final = 400
"""Nothing is sent again while it may still be on its way: through a chain, over a slow link."""
_AGAIN: Final = "again"
_DUE: Final = "due"
DOUBT_US: Final = 120_000_000
"""So long a peer is believed who says that another cannot be reached."""
_MAX_INCARNATIONS: Final = 64
"""Incarnations of a client whose contexts are known again."""
_MAX_AHEAD: Final = 256
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
        self._engine = engine_for_many(settings.aggregability, settings.retention_us, echo=settings.echo)
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

    def overview(self) -> View:
        """Return its clients and what waits for them, as a display shows it."""
        rows = (
            (name, row.device, self._is_there(row), len(self._engine.waiting(name)))
            for name, row in self._rows.items()
        )
        columns = ("client", "device", "reached", "waiting")
        facts = {
            "clients": len(self._rows),
            "contexts": self._arrived,
            "aggregates": self._aggregates,
            "messages sent": self._link.messages_sent,
            "dropped": self._engine.dropped or None,
            "failures": self._engine.problems.count or None,
        }
        return View("", facts, [first_rows(columns, rows, len(self._rows))])

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us = now_us
        effects = self._decide(event)
        failed = [
            Record("incidents", {"incident": "failed", "detail": str(problem)})
            for problem in self._engine.problems.news()
        ]
        return [*effects, *failed, *self._timers()]

    def _decide(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received():
                return self._received(event)
            case SendFailed():
                return self._failed(event)
            case TimerFired(name=ServerLink.TIMER):
                return self._link.fired(self._now_us)
            case TimerFired(name=name) if name == _DUE:
                self._due_us = math.inf
                return self._propagate(self._engine.fire(self._now_us))
            case TimerFired(name=name) if name == _AGAIN:
                return self._again()
            case Call(op_id=op_id):
                try:
                    return (Complete(op_id, self._call(event)),)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
        return ()

    def _call(self, call: Call) -> dict[str, bool] | dict[str, int]:
        match call.operation:
            case operations.Clients():
                return {name: self._is_there(row) for name, row in self._rows.items()}
            case operations.Waiting():
                return {name: len(self._engine.waiting(name)) for name in self._rows}
            case operations.Counts():
                return {
                    "contexts": self._arrived,
                    "aggregates": self._aggregates,
                    "messages_sent": self._link.messages_sent,
                    "bytes_sent": self._link.bytes_sent,
                    "dropped": self._engine.dropped,
                    "failures": self._engine.problems.count,
                }
        raise ParameterError(
            "There is no such operation.", found=brief(call.name), expected="clients, waiting, counts"
        )

    # -- clients

    def _received(self, event: Received) -> Sequence[Effect]:
        """Take what a client may say, of itself."""
        message, source = read(event, FROM_CLIENTS), event.source
        if message is None or message.device != event.sender:
            return odd(event)
        match message:
            case Register():
                return self._register(source, message)
            case Unregister():
                return self._unregister(source, message)
        row = self._rows.get(message.client)
        if row is None or row.device != message.device:
            return self._tell(source, Unknown())
        effects = self._shows_life(message.client, row)
        match message:
            case Propagate():
                effects += self._context(row, message)
            case DeliveryAck(client=client, aggregate=aggregate):
                self._delivered(client, row, aggregate)
            case Unreachable():
                effects += self._unreachable(message)
        return effects

    def _register(self, source: str, message: Register) -> Sequence[Effect]:
        client, device, attributes = message.client, message.device, message.attributes
        row = self._rows.get(client)
        if row is not None and row.device != device and row.is_there:
            return self._tell(source, Refused(message.incarnation, message.turn, row.device))
        asked = self._identify(source, message)
        if asked:
            return asked
        if row is not None and row.device != device:
            self._remove(client)
            row = None
        another = True if self._known[client, device].is_another else UNSET
        effects = list(self._tell(source, Registered(message.incarnation, message.turn, another)))
        if row is None:
            self._entries += 1
            row = self._rows[client] = Row(self._entries, device, source, self._now_us)
            self._at[source] = client
        elif row.address != source:
            self._at.pop(row.address, None)
            row.address, self._at[source] = source, client
        row.p2p_enabled = bool(attributes.get("p2p_enabled", False))
        effects += self._shows_life(client, row)
        if attributes != row.attributes:  # a phone that is only back changes nothing of what waits
            row.attributes = attributes
            effects += self._propagate(self._engine.register(self._now_us, client, attributes))
        return effects

    def _unregister(self, source: str, message: Unregister) -> Sequence[Effect]:
        asked = self._identify(source, message)
        if asked:
            return asked
        row = self._rows.get(message.client)
        if row is not None and row.device == message.device:
            self._remove(message.client)
        return self._tell(source, Unregistered(message.incarnation, message.turn))

    def _identify(self, source: str, message: Register | Unregister) -> Sequence[Effect]:
        """Take note of who registers or unregisters, unless it may be a late copy; then it is asked."""
        key = message.client, message.device
        known = self._known.get(key)
        if known is not None and (known.incarnation != message.incarnation or known.turn > message.turn):
            if known.challenge is None or message.challenge != known.challenge:
                known.challenge = known.challenge or self._entropy(4).hex()
                return self._tell(source, Identify(message.incarnation, message.turn, known.challenge))
            known = Known(message.incarnation, message.turn, is_another=True, numbers=known.numbers)
            row = self._rows.get(message.client)
            if row is not None and row.device == message.device:
                row.is_there = False  # another store has nothing of what came: what is owed goes to it anew
        if known is None:
            known = Known(message.incarnation, message.turn)
        self._known[key] = known
        known.is_another |= message.another is True
        known.turn = message.turn
        known.oldest = message.incarnation if message.oldest is UNSET else message.oldest
        for each in list(known.numbers)[:-_MAX_INCARNATIONS]:
            del known.numbers[each]
        numbers = known.numbers.setdefault(known.oldest, Numbers())
        numbers.last_seq = max(numbers.last_seq, message.first - 1)
        return ()

    def _shows_life(self, client: str, row: Row) -> list[Effect]:
        row.heard_us = self._now_us
        row.doubted_until_us = 0
        if row.is_there:
            return []
        row.is_there = True
        return [effect for aggregate in row.owed for effect in self._push(aggregate, [client])]

    def _remove(self, client: str) -> None:
        self._owing.discard(client)
        row = self._rows.pop(client)
        self._at.pop(row.address, None)
        for numbers in self._known[client, row.device].numbers.values():
            numbers.early.clear()
        self._engine.unregister(self._now_us, client)

    def _context(self, row: Row, message: Propagate) -> Sequence[Effect]:
        client, seq = message.client, message.seq
        known = self._known[client, row.device]
        whose = known.incarnation if message.incarnation is UNSET else message.incarnation
        is_named = message.incarnation is not UNSET
        if is_named is not known.is_another or whose not in (known.incarnation, known.oldest):
            return self._tell(row.address, Unknown())
        numbers = known.numbers.setdefault(whose, Numbers())
        numbers.last_seq = max(numbers.last_seq, message.first - 1)
        if numbers.last_seq < seq <= numbers.last_seq + _MAX_AHEAD:
            numbers.early[seq] = message.context.context()
        taken = []
        while numbers.last_seq + 1 in numbers.early:
            numbers.last_seq += 1
            taken.append(numbers.early.pop(numbers.last_seq))
        if numbers.early:
            ahead = {each: early for each, early in numbers.early.items() if each > numbers.last_seq}
            numbers.early = ahead
        effects: list[Effect] = []
        if seq <= numbers.last_seq:
            effects += self._tell(row.address, Taken(numbers.last_seq, message.incarnation))
        for context in taken:
            self._arrived += 1
            arrived = Message(self._arrived, client, self._now_us, context)
            effects += self._propagate(self._engine.take(self._now_us, arrived))
        return effects

    def _delivered(self, client: str, row: Row, aggregate: str) -> None:
        row.owed.pop(aggregate, None)
        if not row.owed:
            self._owing.discard(client)

    def _unreachable(self, message: Unreachable) -> Sequence[Effect]:
        """Hear that a client could not pass an aggregate on; it may say so of the next of its chain, once."""
        row = self._rows.get(message.who)
        owed = None if row is None else row.owed.get(message.aggregate)
        if row is None or owed is None or (message.client, message.who) not in pairwise(owed.chain):
            return ()
        chain, owed.chain = owed.chain, ()
        if row.address == message.address:
            row.doubted_until_us = self._now_us + DOUBT_US
        return self._go_on(message.aggregate, chain[chain.index(message.who) + 1 :])

    # -- propagation

    def _propagate(self, entries: Sequence[Entry]) -> Sequence[Effect]:
        effects: list[Effect] = []
        join, now_us = self._settings.join, self._now_us
        going = [each for entry in entries for each in aggregates(self._engine, entry, now_us, join, _fields)]
        for entry, context in going:
            self._aggregates += 1
            aggregate = self._aggregate_id()
            for client in entry.recipients:
                self._rows[client].owed[aggregate] = Owed(context, 0)
            self._owing.update(entry.recipients)
            there = [client for client in entry.recipients if self._is_there(self._rows[client])]
            can_pass = {client: self._rows[client].p2p_enabled for client in there}
            settings, engine = self._settings, self._engine
            contexts, failed = engine.contexts.__getitem__, engine.problems.add
            for chain in chains(there, settings.chain, can_pass, contexts, settings.chainability, failed):
                effects += self._push(aggregate, chain)
        return effects

    def _aggregate_id(self) -> str:
        """Give an id that no peer can guess: what it pushed under it would be taken for the aggregate."""
        number = self._aggregates
        mark = blake2s(number.to_bytes(8, "big"), key=self._secret, digest_size=4).hexdigest()
        return f"{mark} {number}"

    def _push(self, aggregate: str, chain: Sequence[str]) -> Sequence[Effect]:
        """Send an aggregate to the first of a chain, with the names and addresses of the others."""
        first, *others = (self._rows[client] for client in chain)
        rest = [(client, row.address) for client, row in zip(chain[1:], others, strict=True)]
        sent = pack(Push(aggregate, first.owed[aggregate].context, rest), self._settings.compress)
        effects = self._link.send(self._now_us, first.address, sent)
        again_us = self._link.free_us + AGAIN_US + len(sent) * AGAIN_US_PER_BYTE
        whole = tuple(chain)
        for hop, row in enumerate((first, *others)):
            owed = row.owed[aggregate]
            owed.again_us = again_us + hop * (AGAIN_US_PER_HOP + len(sent) * AGAIN_US_PER_BYTE)
            owed.chain = whole
        return effects

    def _failed(self, event: SendFailed) -> Sequence[Effect]:
        """Find that something did not reach a client: it is away, and the next of its chain is tried."""
        client = self._at.get(event.to)
        if client is not None:
            self._rows[client].is_there = False
        push = read(event, PUSHES)
        return () if push is None else self._go_on(push.aggregate, [each for each, _ in push.chain])

    def _go_on(self, aggregate: str, rest: Sequence[str]) -> Sequence[Effect]:
        """Send an aggregate to those of a chain whom it has not reached."""
        rows = {client: self._rows[client] for client in rest if client in self._rows}
        there = [each for each, row in rows.items() if aggregate in row.owed and self._is_there(row)]
        return self._push(aggregate, there) if there else ()

    def _is_there(self, row: Row) -> bool:
        """Say whether something is sent to a client now."""
        return row.is_there and row.doubted_until_us <= self._now_us

    def _again(self) -> Sequence[Effect]:
        self._is_again_set = False
        effects: list[Effect] = []
        for client in sorted(self._owing, key=lambda each: self._rows[each].number):
            row = self._rows[client]
            if self._now_us - row.heard_us > self._settings.silence_us:
                self._remove(client)
                effects += self._tell(row.address, Unknown())  # if it lives, it registers again
            elif self._is_there(row):
                for aggregate in [each for each, owed in row.owed.items() if owed.again_us <= self._now_us]:
                    effects += self._push(aggregate, [client])
        return effects

    def _tell(self, to: str, message: Struct) -> Sequence[Effect]:
        return self._link.send(self._now_us, to, pack(message, self._settings.compress))

    def _timers(self) -> Sequence[Effect]:
        """Set the timers for what waits in the engine, and for what is owed."""
        effects: list[Effect] = []
        due_us = self._engine.due_us
        if due_us != self._due_us:
            self._due_us = due_us
            wait_us = due_us - self._now_us
            if due_us < math.inf:
                effects.append(SetTimer(_DUE, int(wait_us) if wait_us > 0 else RETRY_US))
            else:
                effects.append(CancelTimer(_DUE))
        if not self._is_again_set and self._owing:
            self._is_again_set = True
            effects.append(SetTimer(_AGAIN, AGAIN_US))
        return effects


def _fields(context: Context) -> ContextFields:
    """Return an aggregate as it is sent.

    Raises
    ------
    ParameterError
        It is too large.
    """
    fields = ContextFields.of(context)
    check_size("context", pack(fields, compress=False))
    return fields
