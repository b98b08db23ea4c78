"""The client module of a device (Contrail 4.1): what it is asked and told, and which of its parts does it.

=========  =========================================================================================
call       of an application: ports, items, filters, groups, friends; a problem is the answer
link       outboxes and pulls of all providers begin and end with it
context    the nearest gateways; the groups whose rules it is about
messages   of a gateway of its providers; others are dropped, and so is what makes no sense
deliver    what others have sent is taken; then the next page is asked for
sent       a provider's answer to what was pushed
timers     polling, pushing, trying again
=========  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import AccessDenied, MudkitError, ParameterError, did_you_mean, listed
from mudkit.events import (
    Call,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    SendFailed,
    TimerFired,
)
from mudkit.systems.contrail.device.core import IDENTITY, Core, Settings
from mudkit.systems.contrail.device.filters import Filters
from mudkit.systems.contrail.device.groups import Groups
from mudkit.systems.contrail.device.inbox import Inbox
from mudkit.systems.contrail.device.installed_filters import Asked
from mudkit.systems.contrail.device.outbox import RETRY, Outbox
from mudkit.systems.contrail.device.posting import PUSH
from mudkit.systems.contrail.device.pull import PULL, Pull
from mudkit.systems.contrail.device.receiving import Receiving, decisions
from mudkit.systems.contrail.device.sending import Sending
from mudkit.systems.contrail.messages.devices import Filled, Page, Sent
from mudkit.systems.contrail.problems import KeysChanged
from mudkit.systems.receiving import Accepts, dropped
from mudkit.units import distance_km

__all__ = ["ModuleMachine"]

_OF_GATEWAYS: Final = Accepts(Page, Filled, Sent)


class ModuleMachine:
    """The module of a device, which all its applications share.

    Parameters
    ----------
    ports : Ports
    settings : Settings
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._ports, self._settings = ports, settings
        self._context: Mapping[str, Any] = {}
        self._is_awake = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not self._is_awake:  # not when it is made: only what an event has stored is kept
            self._wake()
        effects = self._core.effects = []
        self._core.now_us = now_us
        if not self._is_awake:
            self._is_awake = True
            self._wake_up()
        for friend in self._core.begun_anew():
            self._meet_again(friend)
        match event:
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                try:
                    self._call(op_id, operation, arguments)
                except MudkitError as error:
                    effects.append(Complete(op_id, error=error))
            case Received(source=source, message=message):
                relay = self._relay_of(source)
                if relay is None or not _OF_GATEWAYS(message):
                    return [*effects, *dropped(event)]
                self._received(relay, message)
            case SendFailed(to=to, message=message):
                self._failed(to, message)
            case TimerFired(name=name):
                self._fired(name)
            case LinkUp() | LinkDown():
                self._linked(is_up=isinstance(event, LinkUp))
            case ContextChanged(context=context):
                self._moved(context)
        return effects

    def _wake(self) -> None:
        core = self._core = Core(self._ports, self._settings)
        relays = range(len(self._settings.relays))
        self._outboxes = [Outbox(core, relay) for relay in relays]
        self._pulls = [Pull(core, relay) for relay in relays]
        self._filters, self._asked, self._groups = Filters(core), Asked(core), Groups(core)
        self._inbox = Inbox(core)
        self._sending = Sending(core, self._filters, self._asked, self._outboxes)
        self._receiving = Receiving(core, self._filters, self._asked, self._groups, self._inbox)

    def _wake_up(self) -> None:
        """Take up what another life has left."""
        if self._core.store.get("joined") is None:
            self._core.store.put("joined", True)
            self._core.effects.append(Notify(IDENTITY, self._core.cipher.public))
            self._show_friends()
        self._choose_gateways()
        self._set_pulls()
        for name in self._port_names():
            self._ask_about_filters(name)
            self._inbox.hand_over(name)

    # -- applications

    def _call(self, op_id: int, operation: str, arguments: Mapping[str, Any]) -> None:
        result: Any = None
        match operation:
            case "open":
                self._open(**arguments)
            case "listen":
                self._change_port(arguments["port"], {"listens": True})
                self._inbox.hand_over(arguments["port"], again=True)
            case "configure":
                self._change_port(**arguments)
            case "publish":
                self._port(arguments["port"])
                self._sending.publish(op_id, **arguments)
                return
            case "install":
                self._check_target(arguments["to"])
                self._port(arguments["port"])
                self._sending.install(op_id, **arguments)
                return
            case "remove":
                self._sending.remove(op_id, arguments["slot"])
                return
            case "receive":
                self._port(arguments["port"])
                self._inbox.taken(**arguments)
                self._inbox.receive(arguments["port"], op_id)
                return
            case "receive all":
                self._port(arguments["port"])
                self._inbox.taken(**arguments)
                result = self._inbox.all(arguments["port"])
            case "taken":
                self._inbox.taken(**arguments)
            case "decide":
                self._filters.decide(**arguments)
            case "befriend":
                self._befriend(**arguments)
            case "join":
                self._membership(
                    arguments["group"],
                    self._groups.join(arguments["group"], arguments["rule"], self._context),
                    joins=self._groups.is_member(arguments["group"]),
                )
            case "leave":
                self._membership(arguments["group"], self._groups.leave(arguments["group"]), joins=False)
            case "counts":
                result = dict(self._core.store.get("counts") or {})
            case "public":
                result = self._core.cipher.public
            case _:
                raise ParameterError("There is no such operation.", found=repr(operation))
        self._core.effects.append(Complete(op_id, result))

    def _open(self, port: str, parameters: Mapping[str, Any], asks: bool) -> None:
        before = self._core.store.get(f"port {port}") or {"listens": False}
        self._core.store.put(f"port {port}", {**before, **parameters, "asks": asks})
        self._set_pulls()
        if not asks:
            for question in list(self._filters.undecided(port)):
                self._filters.decide(question["key"], accepted=True)
        self._ask_about_filters(port)

    def _change_port(self, port: str, parameters: Mapping[str, Any]) -> None:
        self._core.store.put(f"port {port}", {**self._port(port), **parameters})
        self._set_pulls()

    def _port(self, name: str) -> dict[str, Any]:
        port: dict[str, Any] | None = self._core.store.get(f"port {name}")
        if port is None:
            raise ParameterError(
                "This port is not open.",
                where="port",
                found=repr(name),
                expected=", ".join(self._port_names()) or "one that was opened",
            )
        return port

    def _port_names(self) -> list[str]:
        return [key.removeprefix("port ") for key, _ in self._core.store.items("port ")]

    def _ask_about_filters(self, port: str) -> None:
        for question in self._filters.undecided(port):
            self._core.effects.append(Notify(decisions(port), question))

    def _check_target(self, device: str | None) -> None:
        """Refuse to ask somebody who would not answer: all that is sent goes from friend to friend."""
        if device is None:
            return
        if device not in self._settings.directory:
            known = sorted(self._settings.directory)
            raise ParameterError(
                "There is no such device.",
                where="to",
                found=repr(device),
                expected=listed(known),
                remedy=did_you_mean(device, known),
            )
        if device not in self._core.friends:
            raise AccessDenied(
                "This device is no friend.",
                where="to",
                found=repr(device),
                expected=", ".join(sorted(self._core.friends)) or "none yet",
                remedy="befriend it first",
            )

    # -- friends and groups

    def _befriend(self, device: str, is_friend: bool) -> None:
        if is_friend == (device in self._core.friends):
            return
        if not is_friend:
            self._sending.unfriend(device)
            self._filters.forget(source=device)
            self._receiving.forget(device)
        self._core.befriend(device, is_friend=is_friend)
        if self._settings.shows_friends:
            self._show_friends()
        for slot, asked in self._asked.items():
            if asked["group"] is not None:
                self._sending.again(slot)

    def _meet_again(self, device: str) -> None:
        """Begin anew with a friend whose device was wiped: it has neither filters nor keys any more."""
        self._filters.forget(source=device)
        self._receiving.forget(device)
        self._sending.anew(device)
        self._core.problem(
            "friends that have begun anew",
            KeysChanged(
                "A friend has other keys: its device was wiped, or is another one.",
                where=device,
                found="keys that it did not have before",
                expected="the keys that it was met with",
                remedy="nothing, if that is so: its filters here are gone, "
                "this device's filters are sent again",
            ),
            "begun anew",
        )

    def _show_friends(self) -> None:
        friends = sorted(self._core.friends) if self._settings.shows_friends else None
        for outbox in self._outboxes:
            outbox.add({"kind": "join", "friends": friends}, is_own=True, replaces="white-list")
        self._sending.flush()

    def _membership(self, group: str, changes: bool, *, joins: bool) -> None:
        """Tell providers that this device is in a group, or has left it; filters of the group go with it."""
        if not changes:
            return
        if not joins:
            self._filters.forget(group=group)
        for outbox in self._outboxes:
            message = {"kind": "group", "group": group, "joins": joins}
            outbox.add(message, is_own=True, replaces=f"group {group}")
        self._sending.flush()

    # -- providers

    def _received(self, relay: int, message: Any) -> None:
        match message:
            case {"kind": "deliver"}:
                pull = self._pulls[relay]
                self._receiving.known()
                for each in pull.came(message):
                    self._receiving.take(each)
                if not pull.is_asleep and self._settings.is_combined:
                    self._sending.flush()
            case {"kind": "filled"}:
                self._pulls[relay].filled()
            case {"kind": "sent", "number": number, "results": results}:
                self._sending.answered(relay, number, results)
                self._go_with_pushes()

    def _failed(self, to: str, message: Any) -> None:
        relay = self._relay_of(to)
        if relay is None:
            return
        if message["kind"] == "pull":
            self._pulls[relay].failed()
        elif message["kind"] != "bye":
            self._sending.failed(relay, message["number"])

    def _fired(self, name: str) -> None:
        if name == PUSH:
            self._sending.flush()
        elif name.startswith(RETRY):
            self._outboxes[int(name.removeprefix(RETRY))].again()
        elif name.startswith(PULL):
            pull = self._pulls[int(name.removeprefix(PULL))]
            was_asleep = pull.is_asleep
            pull.fired()
            if was_asleep and not pull.is_asleep and self._settings.is_combined:
                self._sending.flush()

    def _go_with_pushes(self) -> None:
        """Fetch what waits, too, when something was pushed, if one connection does both (Contrail 4.1)."""
        if self._settings.is_combined:
            for pull in self._pulls:
                pull.early()

    def _linked(self, *, is_up: bool) -> None:
        for outbox, pull in zip(self._outboxes, self._pulls, strict=True):
            pull.is_up = is_up
            pull.settle()
            outbox.link(is_up=is_up)
        if is_up:
            self._sending.flush_left()

    def _moved(self, context: Mapping[str, Any]) -> None:
        self._context = context
        self._choose_gateways()
        for group, joins in list(self._groups.moved(context)):
            self._membership(group, changes=True, joins=joins)

    def _choose_gateways(self) -> None:
        """Take the nearest gateway of each provider; without a place, the first."""
        loc = self._context.get("loc")
        for relay, gateways in enumerate(self._settings.relays):
            nearest = gateways[0][0]
            if loc is not None:
                placed = [
                    (float(distance_km(loc[0], loc[1], place[0], place[1])), each)
                    for each, place in gateways
                    if place is not None
                ]
                nearest = min(placed)[1] if placed else nearest
            self._outboxes[relay].gateway = self._pulls[relay].gateway = nearest

    def _set_pulls(self) -> None:
        """Poll as often as the most impatient application wants, wait as long as the most patient."""
        opened = [kept for _, kept in self._core.store.items("port ")]
        for pull in self._pulls:
            pull.interval_us = min((each["polling_us"] for each in opened), default=None)
            pull.idle_us = max((each["idle_us"] for each in opened), default=0)
            pull.settle()

    def _relay_of(self, address: str) -> int | None:
        for relay, gateways in enumerate(self._settings.relays):
            if any(address == each for each, _ in gateways):
                return relay
        return None
