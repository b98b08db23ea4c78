"""Client module of a device (Contrail 4.1).

=========  =========================================================================================
call       operations of applications on ports, items, filters, groups and friends; errors complete
           the call
link       outboxes and pull components of all providers follow it
context    choose the nearest gateways; evaluate the rules of groups
message    from gateways of the providers only; anything else is dropped
deliver    process the messages of other modules, then request the next page
answer     of a push: remove it from the outbox, complete calls
restart    of this module, a friend or a storage: send white-list, groups, filters and keys again,
           because the store of one side may be a backup
timers     polling, push timeout, retransmission
=========  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.notices import Notices
from mudkit.delivery.session import rollback_incident
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
from mudkit.systems.contrail import messages
from mudkit.systems.contrail.device.connection import PULL, RETRY, ProviderOutbox, PullComponent
from mudkit.systems.contrail.device.filters import Filters, Groups, InstalledFilters, question_listener
from mudkit.systems.contrail.device.module_state import (
    IDENTITY,
    NUMBER_BITS,
    FriendChange,
    ModuleState,
    PortState,
    Settings,
)
from mudkit.systems.contrail.device.receiving import ItemInbox, Receiving
from mudkit.systems.contrail.device.sending import PUSH, Sending
from mudkit.systems.contrail.items import KeysChanged, Metadata
from mudkit.systems.contrail.messages import (
    DEVICE_FROM_GATEWAY,
    Deliver,
    Filled,
    Membership,
    OpenQueue,
    Probe,
    Pull,
    Push,
    PushAnswer,
    Withdraw,
)
from mudkit.systems.receiving import record_dropped
from mudkit.units import distance_km

MAX_STORAGE_INCARNATIONS: Final = 64
"""Number of incarnations of a provider's storages that are stored."""


class ModuleMachine:
    """Machine of a module, shared by all applications of a device."""

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._ports, self._settings = ports, settings
        self._context: Metadata = {}
        self._is_awake = False

    def overview(self) -> View:
        """Return friends, filters and queue lengths for a display."""
        if not self._is_awake:
            return View("")
        ports, filters = self._inbox.ports(), self._installed.items()
        return View(
            "",
            {
                "friends": sorted(self._module.friends),
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

    def count_unread(self, port: str) -> int:
        """Return the number of items of a port that its application has not processed."""
        return self._inbox.ports().get(port, 0) if self._is_awake else 0

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects: list[Effect] = []
        if not self._is_awake:  # the constructor must not store: only events commit
            self._is_awake = True
            self._build_components()
            self._module.now_us = now_us
            effects += self._restore()
        self._module.now_us = now_us
        effects += self._follow_friends()
        match event:
            case Call(op_id=op_id):
                try:
                    effects += self._call(op_id, event)
                except MudkitError as error:
                    effects.append(Complete(op_id, error=error))
            case Received():
                effects += self._receive(event)
            case SendFailed(to=to):
                effects += self._handle_send_failed(to, event)
            case TimerFired(name=name):
                effects += self._handle_timer(name)
            case LinkUp() | LinkDown():
                effects += self._apply_link_state(is_up=isinstance(event, LinkUp))
            case ContextChanged(context=context):
                effects += self._follow_context(context)
        return effects

    def _build_components(self) -> None:
        """Build the components of the module from the store."""
        module = self._module = ModuleState(self._ports, self._settings)
        relays = range(len(self._settings.relays))
        self._outboxes = [ProviderOutbox(module, relay) for relay in relays]
        self._pulls = [PullComponent(module, relay) for relay in relays]
        self._filters, self._installed, self._groups = (
            Filters(module),
            InstalledFilters(module),
            Groups(module),
        )
        self._inbox = ItemInbox(module)
        self._sending = Sending(module, self._filters, self._installed, self._outboxes)
        self._receiving = Receiving(module, self._filters, self._installed, self._groups, self._inbox)

    def _restore(self) -> list[Effect]:
        """Continue from the store at the first event of a start, and send what a peer may have lost."""
        effects: list[Effect] = [Notify(IDENTITY, self._module.public), *self._filters.repeat_notices()]
        effects += self._resend_state() if self._module.first else self._send_white_list()
        self._choose_gateways()
        return [*effects, *self._set_pull_parameters()]

    # -- applications

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        """Execute a call of an application; return its effects, with a Complete unless it waits."""
        match call.operation:
            case messages.Publish(port=port) as operation:
                self._opened_port(port)
                return self._sending.publish(op_id, operation)
            case messages.InstallFilter(to=to, port=port) as operation:
                self._check_target(to)
                self._opened_port(port)
                return self._sending.install(op_id, operation)
            case messages.RemoveFilter(slot=slot):
                return self._sending.remove(op_id, slot)
            case messages.ReceiveItem(port=port, numbers=numbers):
                self._opened_port(port)
                return [*self._inbox.delete(port, numbers), *self._inbox.receive_item(port, op_id)]
            case messages.ReceiveAll(port=port, numbers=numbers):
                self._opened_port(port)
                return [*self._inbox.delete(port, numbers), Complete(op_id, self._inbox.receive_all(port))]
            case messages.GetCounts():
                return [Complete(op_id, self._module.counts)]
            case messages.GetPublicKeys():
                return [Complete(op_id, self._module.public)]
        return [*self._command(call), Complete(op_id)]

    def _command(self, call: Call) -> Sequence[Effect]:
        """Execute a call without a result, which completes at once."""
        match call.operation:
            case messages.OpenPort() as operation:
                return self._open_port(operation)
            case messages.ConfigurePort(port=port, polling_us=polling_us, idle_us=idle_us, batch=batch):
                changed = replace(
                    self._opened_port(port), polling_us=polling_us, idle_us=idle_us, batch=batch
                )
                self._module.store.put(f"port {port}", changed)
                return self._set_pull_parameters()
            case messages.Listen(port=port):
                self._module.store.put(f"port {port}", replace(self._opened_port(port), listens=True))
                return self._inbox.hand_over(port, again=True)
            case messages.DeleteItems(port=port, numbers=numbers):
                return self._inbox.delete(port, numbers)
            case messages.FollowFriends():
                return ()  # done at each event
            case messages.DecideFilter(key=key, accepted=accepted):
                return self._filters.decide(key, accepted=accepted)
            case messages.Befriend(device=device, is_friend=is_friend):
                return self._change_friend(device, is_friend=is_friend)
            case messages.JoinGroup(group=group, rule=rule):
                changes, effects = self._groups.join(group, rule, self._context)
                joins = self._groups.is_member(group)
                return [*effects, *self._send_membership(group, joins=joins)] if changes else effects
            case messages.LeaveGroup(group=group):
                return self._send_membership(group, joins=False) if self._groups.leave(group) else ()
        raise ParameterError(
            "There is no such operation.",
            found=repr(call.name),
            expected="an operation of mudkit.systems.contrail.messages",
        )

    def _open_port(self, operation: messages.OpenPort) -> list[Effect]:
        """Store the parameters of a port; ask its application about undecided filters, or accept them."""
        before = self._module.port(operation.port)
        listens = before is not None and before.listens
        state = PortState(operation.polling_us, operation.idle_us, operation.batch, operation.asks, listens)
        self._module.store.put(f"port {operation.port}", state)
        effects = self._set_pull_parameters()
        if not operation.asks:
            for question in self._filters.undecided(operation.port):
                effects += self._filters.decide(question.key, accepted=True)
        undecided = self._filters.undecided(operation.port)
        return [*effects, *(Notify(question_listener(operation.port), question) for question in undecided)]

    def _opened_port(self, name: str) -> PortState:
        """Return the parameters of a port; raise ParameterError if it is not open."""
        port = self._module.port(name)
        if port is None:
            raise ParameterError(
                "This port is not open.",
                where="port",
                found=repr(name),
                expected=", ".join(self._module.ports()) or "one that was opened",
            )
        return port

    def _check_target(self, device: str | None) -> None:
        """Raise ParameterError if a device is unknown, AccessDenied if it is no friend."""
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
        if device not in self._module.friends:
            raise AccessDenied(
                "This device is no friend.",
                where="to",
                found=repr(device),
                expected=", ".join(sorted(self._module.friends)) or "none yet",
                remedy="befriend it first",
            )

    # -- friends and groups

    def _change_friend(self, device: str, *, is_friend: bool) -> list[Effect]:
        """Add a friend, or remove one with all filters and messages in both directions."""
        effects: list[Effect] = []
        if is_friend == (device in self._module.friends):
            return effects
        if not is_friend:
            effects += self._sending.unfriend(device)
            self._filters.forget(source=device)
            self._receiving.forget(device)
        self._module.befriend(device, is_friend=is_friend)
        if self._settings.shows_friends:
            effects += self._send_white_list()
        return [*effects, *self._sending.resend_group_filters()]

    def _resend_state(self) -> list[Effect]:
        """Send providers white-list, groups, withdrawals and messages again; one side may have lost them."""
        effects = self._send_white_list()
        for group in self._groups.joined_groups():
            effects += self._send_membership(group, joins=True)
        for device in self._module.former_friends():
            effects += self._sending.withdraw(device)
        return [*effects, *self._sending.flush()]

    def _follow_friends(self) -> list[Effect]:
        """Process changes of friends in the directory; send state again that one side may have lost."""
        effects, changed = list[Effect](), self._module.detect_friend_changes()
        for friend, change in changed:
            if change is FriendChange.WIPED:
                effects += self._handle_wiped_friend(friend)
            elif change is FriendChange.RESTARTED:
                effects += self._handle_restarted_friend(friend)
        again = {friend for friend, change in changed if change is not FriendChange.WIPED}
        return [*effects, *self._sending.resend(again)] if again else effects

    def _handle_restarted_friend(self, device: str) -> list[Effect]:
        """Remove the filters that a restarted friend has lost; report a store that was rolled back."""
        keys = self._settings.directory[device]
        after, up_to = keys.last_number, keys.generation << NUMBER_BITS
        numbers = (*self._filters.filter_numbers(device), *self._receiving.last_seqs(device))
        lost = [number for number in numbers if after < number <= up_to]
        self._filters.remove_between(device, after, up_to)
        what = f"it does not know what it has sent from number {min(lost, default=0)} on"
        return [rollback_incident(device, what)] if lost else []

    def _handle_wiped_friend(self, device: str) -> list[Effect]:
        """Delete the state of a friend whose device was wiped, and send it filters again."""
        self._filters.forget_device(device)
        self._receiving.forget(device)
        self._receiving.forget_numbers(device)
        error = KeysChanged(
            "A friend has other keys: its device was wiped, or is another one.",
            where=device,
            found="keys that it did not have before",
            expected="the keys that it was met with",
            remedy="nothing, if that is so: its filters here are gone, this device's filters are sent again",
        )
        effects = self._sending.replace_device(device)
        return [*effects, *self._module.report_problem("friends that have begun anew", error, "begun anew")]

    def _send_white_list(self) -> list[Effect]:
        """Create the queue of this device at each provider, with the white-list if providers may know it."""
        friends = sorted(self._module.friends) if self._settings.shows_friends else None
        effects: list[Effect] = []
        for outbox in self._outboxes:
            join = OpenQueue(self._module.me, self._module.take_number(), friends)
            effects += outbox.add(join, is_own=True, replaces="white-list")
        return [*effects, *self._sending.flush()]

    def _send_membership(self, group: str, *, joins: bool) -> list[Effect]:
        """Send providers a membership in a group; remove the filters of a group that was left."""
        if not joins:
            self._filters.forget(group=group)
        effects: list[Effect] = []
        for outbox in self._outboxes:
            membership = Membership(self._module.me, self._module.take_number(), group, joins)
            effects += outbox.add(membership, is_own=True, replaces=f"group {group}")
        return [*effects, *self._sending.flush()]

    # -- providers

    def _receive(self, event: Received) -> Sequence[Effect]:
        """Handle a message of a gateway; drop and record a message of anyone else."""
        relay = self._relay_index(event.source)
        if relay is None:
            return record_dropped(event)
        match DEVICE_FROM_GATEWAY.decode(event.message):
            case Deliver() as page:
                return self._receive_page(relay, page)
            case Filled():
                return self._pulls[relay].receive_filled()
            case PushAnswer() as answer:
                effects = self._sending.receive_answer(relay, answer)
                effects += self._resend_to_new_storages(relay, answer.storage_incarnations)
                if self._settings.is_combined:  # one connection does both (Contrail 4.1)
                    for pull in self._pulls:
                        effects += pull.request_page_early()
                return effects
        return record_dropped(event)

    def _receive_page(self, relay: int, page: Deliver) -> list[Effect]:
        """Process the messages of a page, and request the next one."""
        pull, effects = self._pulls[relay], self._receiving.retry_unknown()
        effects += self._resend_to_new_storages(
            relay, [page.storage_incarnation] if isinstance(page.storage_incarnation, str) else UNSET
        )
        messages, more = pull.receive_page(page)
        effects += more
        for message in messages:
            effects += self._receiving.receive(message)
        if not pull.is_asleep and self._settings.is_combined:
            effects += self._sending.flush()
        return effects

    def _resend_to_new_storages(self, relay: int, incarnations: Collection[str] | UnsetType) -> list[Effect]:
        """Send a provider all state again if a storage has restarted, perhaps from a backup."""
        key = f"starts {relay}"
        known = self._module.store.get(key, list[str]) or []
        new = [] if isinstance(incarnations, UnsetType) else [one for one in incarnations if one not in known]
        if not new:
            return []
        self._module.store.put(key, [*known, *new][-MAX_STORAGE_INCARNATIONS:])
        return [
            *self._resend_state(),
            *self._sending.resend(self._module.friends & set(self._settings.directory)),
        ]

    def _handle_send_failed(self, to: str, event: SendFailed) -> list[Effect]:
        """Mark the provider of a message that could not be sent as unreachable."""
        relay = self._relay_index(to)
        match event.message:
            case Pull() | Probe() if relay is not None:
                return self._pulls[relay].handle_send_failed()
            case (Push() | OpenQueue() | Membership() | Withdraw()) as push if relay is not None:
                return self._sending.handle_send_failed(relay, push.number)
        return []

    def _handle_timer(self, name: str) -> Sequence[Effect]:
        """Flush, retransmit or poll, by the name of the timer."""
        if name == PUSH:
            return self._sending.flush()
        if name == Notices.TIMER:
            self._filters.notices.clear()
            return ()
        if name.startswith(RETRY):
            return self._outboxes[int(name.removeprefix(RETRY))].retransmit()
        pull = self._pulls[int(name.removeprefix(PULL))]
        was_asleep, effects = pull.is_asleep, pull.handle_timer()
        if was_asleep and not pull.is_asleep and self._settings.is_combined:
            effects += self._sending.flush()
        return effects

    def _apply_link_state(self, *, is_up: bool) -> list[Effect]:
        """Notify outboxes and pull components that the link is up or down."""
        return [
            effect
            for outbox, pull in zip(self._outboxes, self._pulls, strict=True)
            for effect in (*pull.follow_link(is_up=is_up), *outbox.follow_link(is_up=is_up))
        ]

    def _follow_context(self, context: Metadata) -> list[Effect]:
        """Choose gateways for a new place; join and leave groups by their rules."""
        self._context = context
        self._choose_gateways()
        changes, effects = self._groups.follow_context(context)
        for group, joins in changes:
            effects += self._send_membership(group, joins=joins)
        return effects

    def _choose_gateways(self) -> None:
        """Choose the nearest gateway of each provider; the first one if the place is unknown."""
        loc = point(self._context.get("loc"))
        for relay, gateways in enumerate(self._settings.relays):
            nearest = gateways[0][0]
            if loc is not None:
                placed = [
                    (float(distance_km(*loc, place[0], place[1])), address)
                    for address, place in gateways
                    if place is not None
                ]
                nearest = min(placed)[1] if placed else nearest
            self._outboxes[relay].gateway = self._pulls[relay].gateway = nearest

    def _set_pull_parameters(self) -> list[Effect]:
        """Set the smallest polling interval and the largest idle timeout of all ports."""
        opened, effects = self._module.ports().values(), list[Effect]()
        for pull in self._pulls:
            pull.interval_us = min((port.polling_us for port in opened), default=None)
            pull.idle_us = max((port.idle_us for port in opened), default=0)
            effects += pull.schedule_request()
        return effects

    def _relay_index(self, address: str) -> int | None:
        """Return the index of the provider of a gateway; None: no provider of this module has it."""
        for relay, gateways in enumerate(self._settings.relays):
            if address in dict(gateways):
                return relay
        return None
