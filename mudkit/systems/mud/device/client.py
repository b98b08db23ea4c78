"""The client's machine: what an application calls, and what the network brings (Mobius 2, 4, 5).

It is put together from parts, each with its rules at its head: the local store, writes, reads, continuous
reads, and the connection over which they ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from zlib import crc32

from mudkit.delivery.session import incarnation
from mudkit.errors import MudkitError, ParameterError
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
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.connection import RETRY, Connection
from mudkit.systems.mud.device.continuous_reads import HEARTBEAT, HELLO, ContinuousReads
from mudkit.systems.mud.device.holding import holdings
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.planning import Planner
from mudkit.systems.mud.device.policy_slot import PolicySlot, Shipped, ShippedReads, ShippedWrites
from mudkit.systems.mud.device.prefetching import LOOK, Prefetching
from mudkit.systems.mud.device.read_path import ReadPath, asked_of
from mudkit.systems.mud.device.write_path import DUE, WritePath
from mudkit.systems.mud.messages import CLIENT_FROM_GATEWAY, CLIENT_FROM_NOTIFICATION_SERVER
from mudkit.systems.mud.policies.policies import PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.problems import from_json
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.records import plain
from mudkit.systems.mud.tables.table import Table, check_name
from mudkit.systems.receiving import Accepts, dropped
from mudkit.tokens import Claims, claimed
from mudkit.wire import as_wire

__all__ = ["ClientMachine", "Settings"]

_NOBODY: Final[Accepts[Any]] = Accepts()


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
    most_rows : int
        The number of committed records in its store.
    read_policy : ReadPolicy, Shipped or None
        None: the utility of each read decides.
    write_policy : WritePolicy or Shipped
    prefetch_policy : PrefetchPolicy or None
        None: nothing is fetched before it is asked for.
    """

    netid: str
    app: str
    token: str | None
    gateways: Sequence[str]
    servers: Sequence[str]
    most_rows: int
    read_policy: ReadPolicy | Shipped | None
    write_policy: WritePolicy | Shipped
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
        self._accepts: dict[str, Accepts[Any]] = {
            **dict.fromkeys(settings.gateways, CLIENT_FROM_GATEWAY),
            **dict.fromkeys(settings.servers, CLIENT_FROM_NOTIFICATION_SERVER),
        }
        self.local = Local(ports.store, settings.most_rows)
        self._connection = Connection(
            endpoint, _latest(ports.store.get("token"), settings.token), settings.gateways, first
        )
        self._policy_slots: list[PolicySlot] = []
        self._writing = WritePath(
            ports,
            self.local,
            self._connection,
            self._write_policy(settings.write_policy),
            lambda now_us: self._asking.settled(now_us),
            lambda write: self._asking.is_before(write),
            lambda now_us, error: self._asking.refuse(now_us, error),
        )
        self._cache, self._planner = Cache(self.local), Planner()
        self._asking = ReadPath(
            self.local,
            self._cache,
            self._planner,
            self._connection,
            self._read_policy(settings.read_policy),
            self._writing.release,
            self._writing.go_on,
        )
        self._prefetching = None
        if settings.prefetch_policy is not None:
            self._prefetching = Prefetching(
                self._cache, self._planner, settings.prefetch_policy, self._asking.fetch
            )
        self._watching = ContinuousReads(
            ports, self.local, self._connection, settings.servers, self._policy_slots
        )

    def _read_policy(self, policy: ReadPolicy | Shipped | None) -> ReadPolicy | None:
        if not isinstance(policy, Shipped):
            return policy
        self._policy_slots.append(PolicySlot(self._store, "read"))
        return ShippedReads(self._policy_slots[-1], cast("ReadPolicy | None", policy.until))

    def _write_policy(self, policy: WritePolicy | Shipped) -> WritePolicy:
        if not isinstance(policy, Shipped):
            return policy
        self._policy_slots.append(PolicySlot(self._store, "write"))
        return ShippedWrites(self._policy_slots[-1], cast("WritePolicy | None", policy.until))

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if isinstance(event, Received):
            event = Received(event.source, as_wire(event.message), event.host)
        self._connection.now_us = now_us
        if not self._connection.life:
            self._connection.life = self._ports.entropy(4).hex()
            self._connection.incarnation = incarnation(self._ports)
            began = self._writing.go_on(now_us)
            return [*began, *self._handle(now_us, event)]
        return self._handle(now_us, event)

    def _handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Received() if not self._accepts.get(event.source, _NOBODY)(event.message):
                return dropped(event)
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                try:
                    return self._call(now_us, op_id, operation, arguments)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
            case Received(source=source, message={"kind": "stream"} as message):
                return self._watching.stream(source, message)
            case Received(message={"kind": "welcome", "session": session}):
                return self._watching.welcome(session)
            case Received(message={"kind": "redirect", "to": to}):
                return self._watching.redirected(to)
            case Received(message={"id": _} as message):
                if not self._connection.fits(message):
                    return dropped(event)
                self._planner.used(now_us)
                if message.get("claims") is not None:
                    self._cache.claims = Claims(**message["claims"])
                return self._connection.take({**message, "now_us": now_us})
            case LinkUp(network=network):
                self._planner.link_up(network)
                return [*self._connection.up(), *self._watching.hello(), *self._look(now_us)]
            case LinkDown():
                self._planner.link_down(now_us)
                return [*self._connection.down(), *self._watching.down()]
            case SendFailed(to=to):
                return self._connection.failed(to)
            case TimerFired(name=name):
                return self._timer(now_us, name)
            case ContextChanged(context=context):
                self._asking.context = context
        return ()

    def _timer(self, now_us: int, name: str) -> Sequence[Effect]:
        match name:
            case t if t == RETRY:
                return self._connection.fired()
            case t if t == DUE:
                return self._writing.go_on(now_us)
            case t if t == LOOK:
                return self._look(now_us)
            case t if t == HELLO:
                return self._watching.hello()
            case t if t == HEARTBEAT:
                return self._watching.heartbeat()
        return ()

    def _call(
        self, now_us: int, op_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> Sequence[Effect]:
        if "table" in arguments and operation != "create":
            arguments = {**arguments, "table": check_name(arguments["table"])}
        match operation:
            case "write" | "delete":
                self._asking.check_access(now_us, arguments["table"])
                return self._writing.write(now_us, op_id, arguments, self._asking.context)
            case "read":
                return self._read(now_us, op_id, arguments)
            case "register":
                self._asking.check_access(now_us, arguments["table"])
                return self._watching.register(now_us, op_id, arguments)
            case "update_data":
                return self._watching.change(op_id, arguments)
            case "unregister":
                return self._watching.unregister(op_id, arguments)
            case "policies":
                return (Complete(op_id, {each.kind: each.describe() for each in self._policy_slots}),)
            case "pending":
                return (Complete(op_id, self._writing.pending()),)
            case "renew":
                return self._renew(now_us, op_id, arguments["token"])
            case "held":
                name, reader = arguments["table"], arguments["reader"]
                auth = {} if self._cache.claims is None else self._cache.claims.auth
                return (Complete(op_id, list(holdings(self.local, name, reader, auth, now_us))),)
        return self._administer(op_id, operation, arguments)

    def _renew(self, now_us: int, op_id: int, token: str) -> Sequence[Effect]:
        """Show another token of the same user from now on: what waits for it goes."""
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
        return [*self._writing.go_on(now_us), Complete(op_id)]

    def _read(self, now_us: int, op_id: int, arguments: Mapping[str, Any]) -> Sequence[Effect]:
        effects = self._asking.read(now_us, op_id, arguments)
        # What is never answered from here need not be fetched.
        is_only_remote = arguments["aggregate"] is not None or bool(tables_of(arguments["predicate"]))
        if self._prefetching is not None and not is_only_remote:
            self._prefetching.asked(now_us, asked_of(arguments))
        return effects

    def _look(self, now_us: int) -> Sequence[Effect]:
        return () if self._prefetching is None else self._prefetching.look(now_us, self._asking.context)

    def _administer(self, op_id: int, operation: str, arguments: Mapping[str, Any]) -> Sequence[Effect]:
        name, properties = arguments["table"], dict(arguments.get("properties", {}))
        if operation == "create":
            name = Table.created(name, "", properties, 0).name  # what cannot be is refused here
        elif operation == "alter":
            Table(name, "").altered(properties, 0)  # what no table can become is, too

        def answered(last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]) -> Sequence[Effect]:
            if "error" in last:
                return (Complete(op_id, error=from_json(last["error"])),)
            if last["table"] is None:
                self.local.forget(name, last["dropped"] + 1)
            else:
                self.local.learn(last["table"])
            return (Complete(op_id),)

        sent = {each: value and plain(value) for each, value in properties.items()}
        what = {"op": operation, "name": name, "properties": sent}
        return self._connection.ask(lambda: what, answered)


def _shown(claims: Claims | None) -> str:
    return "no token" if claims is None else f"app {claims.app!r}, user {claims.user!r}"


def _latest(kept: str | None, given: str | None) -> str | None:
    """Give the token that is valid for longer: the renewed one, unless a newer one was given since."""
    renewed, new = claimed(kept), claimed(given)
    if renewed is None or new is None or (renewed.app, renewed.user) != (new.app, new.user):
        return given
    return kept if renewed.expires_s > new.expires_s else given
