"""The client module of a device (Contrail 4.1).

=========  =========================================================================================
call       of an application: ports, items, filters, groups, friends; a problem is the answer
link       outboxes and pulls of all providers follow it
context    the nearest gateways; the groups whose rules it is about
messages   of a gateway of its providers; anything else is dropped
deliver    messages of other modules are taken; then the next page is asked for
start      of this module, of a friend's, or of a storage: white-list, groups, filters and keys are sent
           again, because the store of one of them may be older than the others remember
sent       a provider has answered a push
timers     polling, pushing, retransmission
=========  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.session import rolled_back
from mudkit.display import View, first_rows
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
from mudkit.predicates.values import point
from mudkit.systems.contrail import operations
from mudkit.systems.contrail.device.core import BITS, IDENTITY, Change, Core, PortState, Settings
from mudkit.systems.contrail.device.filters import Filters, Groups, InstalledFilters, decisions
from mudkit.systems.contrail.device.outbox import RETRY, Outbox
from mudkit.systems.contrail.device.pull import PULL, Pull
from mudkit.systems.contrail.device.receiving import Inbox, Receiving
from mudkit.systems.contrail.device.sending import PUSH, Sending
from mudkit.systems.contrail.items import KeysChanged, Metadata
from mudkit.systems.contrail.messages import (
    DEVICE_FROM_GATEWAY,
    Deliver,
    Filled,
    Join,
    Membership,
    Send,
    Sent,
    Withdraw,
)
from mudkit.systems.contrail.messages import Pull as Ask
from mudkit.systems.receiving import dropped
from mudkit.units import distance_km

__all__ = ["MAX_STARTS", "ModuleMachine"]

MAX_STARTS: Final = 64
"""Starts of the storages of a provider that are remembered."""


class ModuleMachine:
    """The module of a device, which all its applications share."""

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._ports, self._settings = ports, settings
        self._context: Metadata = {}
        self._is_awake = False

    def overview(self) -> View:
        """Return friends, filters and what waits, as a display shows it."""
        if not self._is_awake:
            return View("")
        ports, filters = self._inbox.ports(), self._installed.items()
        return View(
            "",
            {
                "friends": sorted(self._core.friends),
                "filters installed": len(filters),
                "waiting to be sent": sum(map(len, self._outboxes)),
            },
            [
                first_rows(("port", "received and not taken"), ports.items(), len(ports)),
                first_rows(
                    ("filter", "port", "on", "remote port"),
                    (
                        (slot, kept.port, kept.to or f"group {kept.group}", kept.remote)
                        for slot, kept in filters
                    ),
                    len(filters),
                ),
            ],
        )

    def received(self, port: str) -> int:
        """Return the number of items of a port that its application has not taken."""
        return self._inbox.ports().get(port, 0) if self._is_awake else 0

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects: list[Effect] = []
        if not self._is_awake:  # not in the constructor: only what an event has stored is kept
            self._is_awake = True
            self._build()
            self._core.now_us = now_us
            effects += self._wake()
        self._core.now_us = now_us
        effects += self._follow_friends()
        match event:
            case Call(op_id=op_id):
                try:
                    effects += self._call(op_id, event)
                except MudkitError as error:
                    effects.append(Complete(op_id, error=error))
            case Received():
                effects += self._received(event)
            case SendFailed(to=to):
                effects += self._failed(to, event)
            case TimerFired(name=name):
                effects += self._fired(name)
            case LinkUp() | LinkDown():
                effects += self._linked(is_up=isinstance(event, LinkUp))
            case ContextChanged(context=context):
                effects += self._moved(context)
        return effects

    def _build(self) -> None:
        core = self._core = Core(self._ports, self._settings)
        relays = range(len(self._settings.relays))
        self._outboxes = [Outbox(core, relay) for relay in relays]
        self._pulls = [Pull(core, relay) for relay in relays]
        self._filters, self._installed, self._groups = Filters(core), InstalledFilters(core), Groups(core)
        self._inbox = Inbox(core)
        self._sending = Sending(core, self._filters, self._installed, self._outboxes)
        self._receiving = Receiving(core, self._filters, self._installed, self._groups, self._inbox)

    def _wake(self) -> list[Effect]:
        """Continue what a former process has stored."""
        effects: list[Effect] = [Notify(IDENTITY, self._core.public)]
        effects += self._resend_state() if self._core.first else self._show_friends()
        self._choose_gateways()
        return [*effects, *self._set_pulls()]

    # -- applications

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        match call.operation:
            case operations.Publish(port=port) as asked:
                self._port(port)
                return self._sending.publish(op_id, asked)
            case operations.Install(to=to, port=port) as asked:
                self._check_target(to)
                self._port(port)
                return self._sending.install(op_id, asked)
            case operations.Remove(slot=slot):
                return self._sending.remove(op_id, slot)
            case operations.Receive(port=port, numbers=numbers):
                self._port(port)
                return [*self._inbox.taken(port, numbers), *self._inbox.receive(port, op_id)]
            case operations.ReceiveAll(port=port, numbers=numbers):
                self._port(port)
                return [*self._inbox.taken(port, numbers), Complete(op_id, self._inbox.all(port))]
            case operations.Counts():
                return [Complete(op_id, self._core.counts)]
            case operations.Public():
                return [Complete(op_id, self._core.public)]
        return [*self._command(call), Complete(op_id)]

    def _command(self, call: Call) -> Sequence[Effect]:
        """Execute a call without a result."""
        match call.operation:
            case operations.Open() as asked:
                return self._open(asked)
            case operations.Configure(port=port, polling_us=polling_us, idle_us=idle_us, batch=batch):
                changed = replace(self._port(port), polling_us=polling_us, idle_us=idle_us, batch=batch)
                self._core.store.put(f"port {port}", changed)
                return self._set_pulls()
            case operations.Listen(port=port):
                self._core.store.put(f"port {port}", replace(self._port(port), listens=True))
                return self._inbox.hand_over(port, again=True)
            case operations.Taken(port=port, numbers=numbers):
                return self._inbox.taken(port, numbers)
            case operations.Follow():
                return ()  # every event does
            case operations.Decide(key=key, accepted=accepted):
                return self._filters.decide(key, accepted=accepted)
            case operations.Befriend(device=device, is_friend=is_friend):
                return self._befriend(device, is_friend=is_friend)
            case operations.Join(group=group, rule=rule):
                changes, effects = self._groups.join(group, rule, self._context)
                joins = self._groups.is_member(group)
                return [*effects, *self._tell_membership(group, joins=joins)] if changes else effects
            case operations.Leave(group=group):
                return self._tell_membership(group, joins=False) if self._groups.leave(group) else ()
        raise ParameterError(
            "There is no such operation.",
            found=repr(call.name),
            expected="one of mudkit.systems.contrail.operations",
        )

    def _open(self, asked: operations.Open) -> list[Effect]:
        before = self._core.port(asked.port)
        listens = before is not None and before.listens
        state = PortState(asked.polling_us, asked.idle_us, asked.batch, asked.asks, listens)
        self._core.store.put(f"port {asked.port}", state)
        effects = self._set_pulls()
        if not asked.asks:
            for question in self._filters.undecided(asked.port):
                effects += self._filters.decide(question.key, accepted=True)
        return [*effects, *self._ask_about_filters(asked.port)]

    def _port(self, name: str) -> PortState:
        port = self._core.port(name)
        if port is None:
            raise ParameterError(
                "This port is not open.",
                where="port",
                found=repr(name),
                expected=", ".join(self._core.ports()) or "one that was opened",
            )
        return port

    def _ask_about_filters(self, port: str) -> list[Effect]:
        return [Notify(decisions(port), question) for question in self._filters.undecided(port)]

    def _check_target(self, device: str | None) -> None:
        """Refuse a filter on a device that would not answer: only friends communicate."""
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

    def _befriend(self, device: str, *, is_friend: bool) -> list[Effect]:
        effects: list[Effect] = []
        if is_friend == (device in self._core.friends):
            return effects
        if not is_friend:
            effects += self._sending.unfriend(device)
            self._filters.forget(source=device)
            self._receiving.forget(device)
        self._core.befriend(device, is_friend=is_friend)
        if self._settings.shows_friends:
            effects += self._show_friends()
        return [*effects, *self._sending.group_filters_again()]

    def _resend_state(self) -> list[Effect]:
        """Send providers and friends all state again: one side may have lost it."""
        effects = self._show_friends()
        for group in self._groups.joined():
            effects += self._tell_membership(group, joins=True)
        for device in self._core.former_friends():
            effects += self._sending.withdraw(device)
        return [*effects, *self._sending.flush()]

    def _follow_friends(self) -> list[Effect]:
        """Send friends again what they, or this device, may have lost."""
        effects, changed = list[Effect](), self._core.changed_friends()
        for friend, change in changed:
            if change is Change.ANEW:
                effects += self._begun_anew(friend)
            elif change is Change.RESTARTED:
                effects += self._restarted(friend)
        again = {friend for friend, change in changed if change is not Change.ANEW}
        return [*effects, *self._sending.again(again)] if again else effects

    def _restarted(self, device: str) -> list[Effect]:
        """Forget the filters that a friend has lost: its store may be an old one."""
        keys = self._settings.directory[device]
        after, up_to = keys.last_number, keys.start << BITS
        numbers = (*self._filters.numbers(device), *self._receiving.seqs(device))
        lost = [number for number in numbers if after < number <= up_to]
        self._filters.forget_between(device, after, up_to)
        what = f"it does not know what it has sent from number {min(lost, default=0)} on"
        return [rolled_back(device, what)] if lost else []

    def _begun_anew(self, device: str) -> list[Effect]:
        """Start anew with a friend whose device was wiped: it has lost filters and keys."""
        self._filters.forget_numbers(device)
        self._receiving.forget(device)
        self._receiving.forget_numbers(device)
        error = KeysChanged(
            "A friend has other keys: its device was wiped, or is another one.",
            where=device,
            found="keys that it did not have before",
            expected="the keys that it was met with",
            remedy="nothing, if that is so: its filters here are gone, this device's filters are sent again",
        )
        effects = self._sending.replaced(device)
        return [*effects, *self._core.problem("friends that have begun anew", error, "begun anew")]

    def _show_friends(self) -> list[Effect]:
        friends = sorted(self._core.friends) if self._settings.shows_friends else None
        effects: list[Effect] = []
        for outbox in self._outboxes:
            join = Join(self._core.me, self._core.next_number(), friends)
            effects += outbox.add(join, is_own=True, replaces="white-list")
        return [*effects, *self._sending.flush()]

    def _tell_membership(self, group: str, *, joins: bool) -> list[Effect]:
        """Tell providers that this device has joined a group or left it; the group's filters go with it."""
        if not joins:
            self._filters.forget(group=group)
        effects: list[Effect] = []
        for outbox in self._outboxes:
            membership = Membership(self._core.me, self._core.next_number(), group, joins)
            effects += outbox.add(membership, is_own=True, replaces=f"group {group}")
        return [*effects, *self._sending.flush()]

    # -- providers

    def _received(self, event: Received) -> Sequence[Effect]:
        relay = self._relay_of(event.source)
        if relay is None:
            return dropped(event)
        match DEVICE_FROM_GATEWAY.decode(event.message):
            case Deliver() as page:
                return self._delivered(relay, page)
            case Filled():
                return self._pulls[relay].filled()
            case Sent() as answer:
                effects = self._sending.answered(relay, answer)
                effects += self._follow_storages(relay, answer.starts)
                if self._settings.is_combined:  # one connection does both (Contrail 4.1)
                    for pull in self._pulls:
                        effects += pull.early()
                return effects
        return dropped(event)

    def _delivered(self, relay: int, page: Deliver) -> list[Effect]:
        pull, effects = self._pulls[relay], self._receiving.known()
        effects += self._follow_storages(relay, [page.start] if isinstance(page.start, str) else UNSET)
        messages, more = pull.came(page)
        effects += more
        for message in messages:
            effects += self._receiving.take(message)
        if not pull.is_asleep and self._settings.is_combined:
            effects += self._sending.flush()
        return effects

    def _follow_storages(self, relay: int, starts: Collection[str] | UnsetType) -> list[Effect]:
        """Send a provider all state again if a storage has started again: its store may be old."""
        key = f"starts {relay}"
        known = self._core.store.get(key, list[str]) or []
        new = [] if isinstance(starts, UnsetType) else [start for start in starts if start not in known]
        if not new:
            return []
        self._core.store.put(key, [*known, *new][-MAX_STARTS:])
        return [
            *self._resend_state(),
            *self._sending.again(self._core.friends & set(self._settings.directory)),
        ]

    def _failed(self, to: str, event: SendFailed) -> list[Effect]:
        relay = self._relay_of(to)
        match event.message:
            case Ask() if relay is not None:
                return self._pulls[relay].failed()
            case (Send() | Join() | Membership() | Withdraw()) as push if relay is not None:
                return self._sending.failed(relay, push.number)
        return []

    def _fired(self, name: str) -> Sequence[Effect]:
        if name == PUSH:
            return self._sending.flush()
        if name.startswith(RETRY):
            return self._outboxes[int(name.removeprefix(RETRY))].again()
        pull = self._pulls[int(name.removeprefix(PULL))]
        was_asleep, effects = pull.is_asleep, pull.fired()
        if was_asleep and not pull.is_asleep and self._settings.is_combined:
            effects += self._sending.flush()
        return effects

    def _linked(self, *, is_up: bool) -> list[Effect]:
        effects: list[Effect] = []
        for outbox, pull in zip(self._outboxes, self._pulls, strict=True):
            effects += [*pull.link(is_up=is_up), *outbox.link(is_up=is_up)]
        return effects

    def _moved(self, context: Metadata) -> list[Effect]:
        self._context = context
        self._choose_gateways()
        changes, effects = self._groups.moved(context)
        for group, joins in changes:
            effects += self._tell_membership(group, joins=joins)
        return effects

    def _choose_gateways(self) -> None:
        """Choose the nearest gateway of each provider; without a place, the first."""
        loc = point(self._context.get("loc"))
        for relay, gateways in enumerate(self._settings.relays):
            nearest = gateways[0][0]
            if loc is not None:
                placed = [
                    (float(distance_km(*loc, place[0], place[1])), each)
                    for each, place in gateways
                    if place is not None
                ]
                nearest = min(placed)[1] if placed else nearest
            self._outboxes[relay].gateway = self._pulls[relay].gateway = nearest

    def _set_pulls(self) -> list[Effect]:
        """Set the smallest polling interval and the largest idle timeout of all ports."""
        opened, effects = self._core.ports().values(), list[Effect]()
        for pull in self._pulls:
            pull.interval_us = min((each.polling_us for each in opened), default=None)
            pull.idle_us = max((each.idle_us for each in opened), default=0)
            effects += pull.settle()
        return effects

    def _relay_of(self, address: str) -> int | None:
        for relay, gateways in enumerate(self._settings.relays):
            if any(address == each for each, _ in gateways):
                return relay
        return None
