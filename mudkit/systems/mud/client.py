"""The client's machine: what an application calls, and what the network brings (Mobius 2, 4, 5).

It is put together from parts, each with its rules at its head: the local store, writes, reads, continuous
reads, and the connection over which they ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from zlib import crc32

from mudkit.errors import MudkitError
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
from mudkit.systems.mud.asking import Asking, asked_of
from mudkit.systems.mud.cache import Cache
from mudkit.systems.mud.connection import RETRY, Connection
from mudkit.systems.mud.holding import holdings
from mudkit.systems.mud.local import Local
from mudkit.systems.mud.planning import Planner
from mudkit.systems.mud.policies import PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.prefetching import LOOK, Prefetching
from mudkit.systems.mud.problems import from_json
from mudkit.systems.mud.queries import tables_of
from mudkit.systems.mud.shipped import Shelf, Shipped, ShippedReads, ShippedWrites
from mudkit.systems.mud.tables import Table
from mudkit.systems.mud.watching import HEARTBEAT, HELLO, Watching
from mudkit.systems.mud.writing import DUE, Writing
from mudkit.tokens import Claims

__all__ = ["ClientMachine", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What a client is, and whom it knows.

    Parameters
    ----------
    netid, app : str
    token : str or None
    gateways : sequence of str
    server : str
        A notification server.
    most_rows : int
        Of committed records in its store.
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
    server: str
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
        self._store = ports.store
        self.local = Local(ports.store, settings.most_rows)
        self._connection = Connection(endpoint, settings.token, settings.gateways, first)
        self._shelves: list[Shelf] = []
        self._writing = Writing(
            ports, self.local, self._connection, self._write_policy(settings.write_policy),
            lambda now_us: self._asking.settled(now_us), lambda write: self._asking.is_before(write),
        )  # fmt: skip
        self._cache, self._planner = Cache(self.local), Planner()
        self._asking = Asking(
            self.local, self._cache, self._planner, self._connection,
            self._read_policy(settings.read_policy),
            self._writing.release, self._writing.go_on,
        )  # fmt: skip
        self._prefetching = None
        if settings.prefetch_policy is not None:
            self._prefetching = Prefetching(
                self._cache, self._planner, settings.prefetch_policy, self._asking.fetch
            )
        self._watching = Watching(ports, self.local, self._connection, settings.server, self._shelves)

    def _read_policy(self, policy: ReadPolicy | Shipped | None) -> ReadPolicy | None:
        if not isinstance(policy, Shipped):
            return policy
        self._shelves.append(Shelf(self._store, "read"))
        return ShippedReads(self._shelves[-1], cast("ReadPolicy | None", policy.until))

    def _write_policy(self, policy: WritePolicy | Shipped) -> WritePolicy:
        if not isinstance(policy, Shipped):
            return policy
        self._shelves.append(Shelf(self._store, "write"))
        return ShippedWrites(self._shelves[-1], cast("WritePolicy | None", policy.until))

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not self._connection.life:
            self._connection.life = self.local.next_number("life")
            began = self._writing.go_on(now_us)
            return [*began, *self._handle(now_us, event)]
        return self._handle(now_us, event)

    def _handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
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
                return self._connection.up() if self._connection.is_up else ()
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
                return (Complete(op_id, {each.kind: each.describe() for each in self._shelves}),)
            case "pending":
                return (Complete(op_id, [dict(each) for _, each in sorted(self.local.writes.items())]),)
            case "held":
                name, reader = arguments["table"], arguments["reader"]
                auth = {} if self._cache.claims is None else self._cache.claims.auth
                return (Complete(op_id, list(holdings(self.local, name, reader, auth, now_us))),)
        return self._administer(op_id, operation, arguments)

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
            Table.created(name, "", properties, 0)  # what cannot be is refused here

        def answered(last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]) -> Sequence[Effect]:
            if "error" in last:
                return (Complete(op_id, error=from_json(last["error"])),)
            if last["table"] is None:
                self.local.forget(name)
            else:
                self.local.learn(last["table"])
            return (Complete(op_id),)

        what = {"op": operation, "name": name, "properties": properties}
        return self._connection.ask(lambda: what, answered)
