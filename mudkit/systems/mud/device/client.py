"""The client's machine: what an application calls, and what the network brings (Mobius 2, 4, 5).

It is put together from parts, each with its rules at its head: the local store, writes, reads, continuous
reads, and the connection over which they ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.session import rolled_back
from mudkit.delivery.stream import StreamItem
from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, ParameterError, TokenExpired
from mudkit.events import (
    Call,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Ports,
    Received,
    SendFailed,
    TimerFired,
)
from mudkit.systems.mud import messages
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.connection import (
    RETRY,
    Administering,
    Answer,
    Connection,
    PendingAsk,
    Query,
    Registering,
    Telling,
    Writing,
    error_in,
)
from mudkit.systems.mud.device.continuous_reads import HEARTBEAT, HELLO, ContinuousReads
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.planning import Planner
from mudkit.systems.mud.device.policy_slot import PolicySlot, ShippedPolicy, ShippedReads, ShippedWrites
from mudkit.systems.mud.device.read_path import LOOK, Prefetching, ReadPath, asked_of
from mudkit.systems.mud.device.write_path import DUE, ReadOrder, WritePath
from mudkit.systems.mud.messages import (
    CLIENT_FROM_GATEWAY,
    CLIENT_FROM_NOTIFICATION_SERVER,
    Administered,
    AdministrationRequest,
    Alter,
    AlterRequest,
    Create,
    CreateRequest,
    Drop,
    DropRequest,
    Held,
    Identify,
    Operation,
    Outcome,
    Pending,
    Policies,
    Read,
    Redirect,
    Refused,
    Register,
    Renew,
    Restarted,
    Unregister,
    UpdateData,
    Welcome,
    Write,
    decode_error,
)
from mudkit.systems.mud.policies.policies import PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.records import plain
from mudkit.systems.mud.tables.table import Table, check_name
from mudkit.systems.receiving import dropped
from mudkit.tokens import Claims, claimed
from mudkit.wire import Fields

__all__ = ["ClientMachine", "Settings"]


_Asked = TypeVar("_Asked", Write, Read, Register)


@dataclass(frozen=True)
class Settings:
    """What a client is, and whom it knows.

    Parameters
    ----------
    netid, app : str
    token : str or None
    gateways : sequence of str
    servers : sequence of str
        Those for notifications; the first one knows who is responsible.
    max_rows : int
        The number of committed records in its store.
    read_policy : ReadPolicy, ShippedPolicy or None
        None: the utility of each read decides.
    write_policy : WritePolicy or ShippedPolicy
    prefetch_policy : PrefetchPolicy or None
        None: nothing is fetched before it is asked for.
    """

    netid: str
    app: str
    token: str | None
    gateways: Sequence[str]
    servers: Sequence[str]
    max_rows: int
    read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None
    write_policy: WritePolicy | ShippedPolicy[WritePolicy]
    prefetch_policy: PrefetchPolicy | None


class ClientMachine:
    """One app's client on a device.

    Parameters
    ----------
    ports : Ports
    settings : Settings
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        endpoint = f"{settings.netid}/{settings.app}"
        first = crc32(settings.netid.encode()) % len(settings.gateways)
        self._ports, self._store = ports, ports.store
        self._gateways, self._servers = settings.gateways, settings.servers
        self._policy_slots: list[PolicySlot] = []
        self.local = Local(ports, settings.max_rows)
        self._connection = Connection(
            endpoint, _latest(ports.store.get("token", str), settings.token), settings.gateways, first
        )
        self._connection.start = self.local.start
        order = ReadOrder(self.local)
        self._writes = WritePath(
            ports, self.local, self._connection, self._write_policy(settings.write_policy), order
        )
        self._cache, self._planner = Cache(self.local), Planner()
        self._reads = ReadPath(
            self.local,
            self._cache,
            self._planner,
            self._connection,
            self._read_policy(settings.read_policy),
            self._writes,
            order,
        )
        self._prefetching = None
        if settings.prefetch_policy is not None:
            self._prefetching = Prefetching(self._cache, self._planner, settings.prefetch_policy, self._reads)
        self._watching = ContinuousReads(
            ports, self.local, self._connection, settings.servers, self._policy_slots
        )

    def _read_policy(self, policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None) -> ReadPolicy | None:
        if not isinstance(policy, ShippedPolicy):
            return policy
        self._policy_slots.append(PolicySlot(self._store, "read"))
        return ShippedReads(self._policy_slots[-1], policy.until)

    def _write_policy(self, policy: WritePolicy | ShippedPolicy[WritePolicy]) -> WritePolicy:
        if not isinstance(policy, ShippedPolicy):
            return policy
        self._policy_slots.append(PolicySlot(self._store, "write"))
        return ShippedWrites(self._policy_slots[-1], policy.until)

    def overview(self) -> View:
        """Return what it holds and waits for, as a display shows it."""
        local, readings = self.local, self._watching.readings()
        claims = self._connection.claimed
        return View(
            "",
            {
                "user": None if claims is None else claims.user,
                "records held": local.row_count,
                "pending writes": len(local.writes),
                "cached answers": self._cache.size,
                "continuous reads": len(readings),
            },
            [
                first_rows(
                    ("table", "key", "write", "record"),
                    ((item.name, item.key, item.type, item.data or "delete") for item in local.writes),
                    len(local.writes),
                    "Pending writes",
                ),
                first_rows(
                    ("handle", "table", "predicate", "records"),
                    ((item.handle, item.name, item.predicate.text, len(item.held)) for item in readings),
                    len(readings),
                    "Continuous reads",
                ),
            ],
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not self._connection.incarnation:
            return [*self._begin(now_us), *self.handle(now_us, event)]
        match event:
            case Call(op_id=op_id, operation=operation):
                try:
                    return self._call(now_us, op_id, operation)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
            case Received(source=source) if source in self._gateways:
                return self._answered(now_us, event)
            case Received(source=source) if source in self._servers:
                return self._notified(now_us, event)
            case Received():
                return dropped(event)
            case LinkUp(network=network):
                self._planner.link_up(network)
                cleared, asks = self._connection.up()
                sent = self._resend(now_us, asks)
                return [*cleared, *sent, *self._watching.greet(now_us), *self._look(now_us)]
            case LinkDown():
                self._planner.link_down(now_us)
                return [*self._connection.down(), *self._watching.down()]
            case SendFailed(to=to):
                return self._connection.failed(now_us, to)
            case TimerFired(name=name):
                return self._timer(now_us, name)
            case ContextChanged(context=context):
                self._reads.context = context
        return ()

    def _begin(self, now_us: int) -> Sequence[Effect]:
        """Draw the incarnation of this start, and send what waits since the last one."""
        self._connection.incarnation = self.local.writes.incarnation
        return self._writes.advance(now_us)

    def _timer(self, now_us: int, name: str) -> Sequence[Effect]:
        match name:
            case t if t == RETRY:
                return self._overdue(now_us)
            case t if t == DUE:
                return self._writes.advance(now_us)
            case t if t == LOOK:
                return self._look(now_us)
            case t if t == HEARTBEAT:
                return self._watching.heartbeat(now_us)
        return ()

    # -- what applications ask

    def _call(self, now_us: int, op_id: int, asked: Operation) -> Sequence[Effect]:
        match asked:
            case Write():
                asked = self._named(asked)
                self._reads.check_access(now_us, asked.table)
                return self._writes.write(now_us, op_id, asked, self._reads.context)
            case Read():
                return self._read(now_us, op_id, self._named(asked))
            case Register():
                asked = self._named(asked)
                self._reads.check_access(now_us, asked.table)
                return self._watching.register(now_us, op_id, asked)
            case UpdateData():
                return self._watching.change(now_us, op_id, asked)
            case Unregister():
                return self._watching.unregister(now_us, op_id, asked)
            case Policies():
                return (Complete(op_id, {each.kind: each.describe() for each in self._policy_slots}),)
            case Pending():
                return (Complete(op_id, self._writes.pending()),)
            case Renew():
                return self._renew(now_us, op_id, asked.token)
            case Held():
                auth = {} if self._cache.claims is None else self._cache.claims.auth
                name = check_name(asked.table)
                return (Complete(op_id, list(self.local.holdings(name, asked.reader, auth, now_us))),)
            case Create() | Alter() | Drop():
                return self._connection.ask(now_us, *_administering(op_id, asked))
        raise TypeError(f"{type(asked).__name__} is no operation of a client of MUD tables")

    def _named(self, asked: _Asked) -> _Asked:
        """Return an operation whose table has a proper name."""
        if type(asked.table) is str and asked.table in self.local.tables:
            return asked
        return replace(asked, table=check_name(asked.table))

    def _renew(self, now_us: int, op_id: int, token: str) -> Sequence[Effect]:
        """Use another token of the same user from now on, and send the writes that waited for it."""
        new, old = claimed(token), self._connection.claimed
        if new is None or old is None or (new.app, new.user) != (old.app, old.user):
            raise ParameterError(
                "A token is renewed by another one of the same app and user.",
                where="token",
                found=_shown(new),
                expected=_shown(old),
                remedy="somebody else, or who has had no token, gets a client of its own",
            )
        new.check(now_us / 1e6, self._connection.netid)
        self._store.put("token", token)
        self._connection.use(token)
        return [*self._writes.renewed(now_us), Complete(op_id)]

    def _read(self, now_us: int, op_id: int, asked: Read) -> Sequence[Effect]:
        effects = self._reads.read(now_us, op_id, asked)
        if self._prefetching is not None:
            # What is never answered from here need not be fetched.
            is_only_remote = asked.aggregate is not None or bool(tables_of(asked.predicate))
            if not is_only_remote:
                self._prefetching.asked(now_us, asked_of(asked))
        return effects

    def _look(self, now_us: int) -> Sequence[Effect]:
        return () if self._prefetching is None else self._prefetching.look(now_us, self._reads.context)

    # -- what the network brings

    def _notified(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Process a message of a notification server."""
        match CLIENT_FROM_NOTIFICATION_SERVER.decode(event.message):
            case Welcome() as welcome:
                return self._watching.welcome(now_us, welcome)
            case Identify(endpoint=endpoint, nonce=nonce) if endpoint == self._connection.endpoint:
                return self._watching.identify(now_us, nonce)
            case Redirect(to=to):
                return self._watching.redirected(now_us, to)
            case StreamItem() as item:
                return self._watching.stream(now_us, event.source, item)
        return dropped(event)

    def _answered(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Process a message of a gateway, and send what waited for room."""
        answer = CLIENT_FROM_GATEWAY.decode(event.message)
        if isinstance(answer, Restarted):
            return self._restarted(now_us, answer)
        if answer is None or not self._connection.fits(answer):
            return dropped(event)
        self._planner.used(now_us)
        if isinstance(answer, messages.Complete | Outcome | Administered) and isinstance(
            answer.claims, Claims
        ):
            self._cache.claims = answer.claims
        ask = self._connection.take(answer)
        if ask is None:
            return ()
        effects = [*self._connection.answered(now_us, ask), *self._processed(now_us, ask, answer)]
        while (waiting := self._connection.queued()) is not None:
            effects += self._resend(now_us, (waiting,))
        return effects

    def _restarted(self, now_us: int, answer: Restarted) -> Sequence[Effect]:
        """Forget what the back end's log no longer has, and send again what is under way."""
        connection = self._connection
        if not connection.knows(answer.id) or answer.before != connection.start:
            return ()
        lost = self.local.go_back(answer.start, answer.shared)
        connection.start = answer.start
        effects, asks = connection.again(now_us)
        incident = (
            (rolled_back("back end of MUD tables", f"{lost} of what this client has read"),) if lost else ()
        )
        return [*incident, *effects, *self._resend(now_us, asks)]

    def _processed(self, now_us: int, ask: PendingAsk, answer: Answer) -> Sequence[Effect]:
        """Process the whole answer to a request."""
        match ask.work:
            case Query() as query:
                return self._reads.answered(now_us, query, ask, answer)
            case Writing(number=number):
                return self._written(now_us, number, answer)
            case Registering() as work:
                return self._watching.registered(now_us, work, ask, answer)
            case Telling() as work:
                return self._watching.told(work, answer)
            case Administering() as work:
                return self._administered(work, answer)

    def _written(self, now_us: int, number: int, answer: Answer) -> Sequence[Effect]:
        assert isinstance(answer, Outcome | Refused)
        effects = self._writes.answered(now_us, number, answer)
        error = error_in(answer)
        if error is not None and error.kind == TokenExpired.__name__:
            others = self._reads.refuse(now_us, decode_error(error))
        else:
            others = self._reads.settled(now_us)
        return [*effects, *others, *self._writes.advance(now_us)]

    def _administered(self, work: Administering, answer: Answer) -> Sequence[Effect]:
        error = error_in(answer)
        if error is not None:
            return (Complete(work.op_id, error=decode_error(error)),)
        assert isinstance(answer, Administered)
        if isinstance(answer.table, Table):
            self.local.learn(answer.table)
        elif answer.dropped is not UNSET:
            self.local.forget(work.request.name, answer.dropped + 1)
        return (Complete(work.op_id),)

    def _overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit what should have been answered by now."""
        timer = self._connection.timer
        is_hello_late = HELLO in timer.overdue(now_us)
        effects = [*self._resend(now_us, self._connection.overdue(now_us))]
        if is_hello_late:
            effects += self._watching.hello(now_us)
        return [*effects, *timer.fired(now_us)]

    def _resend(self, now_us: int, asks: Sequence[PendingAsk]) -> Sequence[Effect]:
        """Send requests as they are by now."""
        effects: list[Effect] = []
        for ask in filter(self._connection.may_send, asks):
            match ask.work:
                case Query() as query:
                    ask.request = self._reads.request(query)
                case Writing(number=number):
                    ask.request = self._writes.request(number)
                case Registering() | Telling() as work:
                    ask.request = self._watching.request(work)
            effects += self._connection.send(now_us, ask)
        return effects


def _administering(op_id: int, asked: Create | Alter | Drop) -> tuple[Administering, AdministrationRequest]:
    """Build the request to create, alter or drop a table; what cannot be is refused here."""
    request: AdministrationRequest
    match asked:
        case Create():
            name = Table.created(asked.table, "", asked.properties, 0).name
            request = CreateRequest(name, _plain(asked.properties))
        case Alter():
            name = check_name(asked.table)
            Table(name, "").altered(asked.properties, 0)
            request = AlterRequest(name, _plain(asked.properties))
        case Drop():
            request = DropRequest(check_name(asked.table), {})
    return Administering(op_id, request), request


def _plain(properties: Fields) -> Fields:
    return {name: value and plain(value) for name, value in properties.items()}


def _shown(claims: Claims | None) -> str:
    return "no token" if claims is None else f"app {claims.app!r}, user {claims.user!r}"


def _latest(kept: str | None, given: str | None) -> str | None:
    """Give the token that is valid for longer: the renewed one, unless a newer one was given since."""
    renewed, new = claimed(kept), claimed(given)
    if renewed is None or new is None or (renewed.app, renewed.user) != (new.app, new.user):
        return given
    return kept if renewed.expires_s > new.expires_s else given
