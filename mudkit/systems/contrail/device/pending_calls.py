"""Calls of applications that wait for answers of providers: items and filters on their way (Contrail 3.5).

==================  ================================================================================
completed           when a provider has accepted the message for all receivers, or all reachable
                    providers have answered
unreachable         a call does not wait for a provider that cannot be reached, if another answered
no receivers left   completed at once, because the devices are no friends any more
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mudkit.errors import AccessDenied, MudkitError
from mudkit.events import Complete, Effect
from mudkit.systems.contrail.device.connection import ProviderOutbox
from mudkit.systems.contrail.device.filters import InstalledFilter, InstalledFilters
from mudkit.systems.contrail.items import Backlogged, Endpoint, Published, QueueFull

ACCEPTED: Final = ("ok", "obsolete")
"""Outcomes of a provider that settle a message for an endpoint."""

_Result: TypeAlias = Published | Backlogged | MudkitError | int


@dataclass(eq=False)
class PendingCall:
    """A call that waits for answers of providers."""

    op_id: int
    to: list[Endpoint] | None
    """Receivers; None: members of a group."""
    left: set[int] = field(default_factory=set)
    """Indices of the providers that have not answered."""
    answers: dict[Endpoint, str] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class Publication(PendingCall):
    """The publication of an item."""

    is_uploaded: bool
    """The body was sent to a provider."""


@dataclass(eq=False, kw_only=True)
class Installation(PendingCall):
    """The installation, replacement or removal of a filter."""

    slot: int
    installed: InstalledFilter
    is_new: bool


def build_installation(
    op_id: int, slot: int, installed: InstalledFilter, *, is_new: bool = False
) -> Installation:
    """Return the call that installs, replaces or removes a filter on its device or group."""
    to = None if installed.to is None else [(installed.to, installed.remote)]
    return Installation(op_id, to, slot=slot, installed=installed, is_new=is_new)


class PendingCalls:
    """Calls that wait for answers, by the numbers of their messages in the outboxes."""

    def __init__(self, me: str, installed: InstalledFilters, outboxes: Sequence[ProviderOutbox]) -> None:
        self._me = me
        self._installed, self._outboxes = installed, outboxes
        self._open: dict[int, PendingCall] = {}
        """Calls by message number."""

    def add(self, number: int, relay: int, call: PendingCall) -> None:
        """Record that a call waits for the answer of a provider to a message."""
        call.left.add(relay)
        self._open[number] = call

    def get(self, number: int) -> PendingCall | None:
        """Return the call that waits for the answer to a message; None: the module sent it by itself."""
        return self._open.get(number)

    def record_answer(self, number: int, relay: int, results: Iterable[tuple[str, str, str]]) -> list[Effect]:
        """Record what a provider answered for each endpoint; complete the call if its result is known."""
        call = self._open.pop(number)
        call.left.discard(relay)
        for device, port, done in results:
            if call.answers.get((device, port)) not in ACCEPTED:
                call.answers[device, port] = done
        return self._complete_if_known(call)

    def complete_if_unreachable(self, message_number: int) -> list[Effect]:
        """Complete the call of a message if one provider has answered, and no other one can be reached."""
        call = self._open.get(message_number)
        return self._complete_if_known(call) if call is not None and call.answers else []

    def remove_receiver(self, device: str) -> list[Effect]:
        """Remove a device from the receivers of all calls; complete those whose result this decides."""
        effects: list[Effect] = []
        for call in dict.fromkeys(self._open.values()):
            left = [receiver for receiver in call.to or () if receiver[0] != device]
            if call.to is None or len(left) == len(call.to):
                continue
            call.to = left
            if not left or call.answers:
                effects += self._complete_if_known(call)
        return effects

    def withdraw(self, call: PendingCall) -> None:
        """Record that a call waits for none of its messages any more, because they are sent anew."""
        self._forget(call)
        call.left.clear()

    def complete_without_receivers(self, call: PendingCall) -> list[Effect]:
        """Complete a call whose receivers are gone."""
        call.to = []
        return self._complete_if_known(call)

    def _complete_if_known(self, call: PendingCall) -> list[Effect]:
        """Complete a call if its result is known."""
        is_more = any(self._outboxes[relay].is_reached for relay in call.left)
        result = _result_without_receivers(call) if call.to == [] else self._result(call, is_more)
        if result is None:
            return []
        self._forget(call)
        if isinstance(result, MudkitError):
            return [Complete(call.op_id, error=result)]
        return [Complete(call.op_id, result)]

    def _result(self, call: PendingCall, is_more: bool) -> _Result | None:
        """Return the result of a call; None: further answers are expected."""
        if isinstance(call, Installation):
            if call.to is None or any(answer in ACCEPTED for answer in call.answers.values()):
                return call.slot
            return None if is_more else self._refuse_installation(call)
        receivers = tuple(call.to or ())
        taken = tuple(receiver for receiver in receivers if call.answers.get(receiver) in ACCEPTED)
        if len(taken) == len(receivers):
            return Published(receivers, isinstance(call, Publication) and call.is_uploaded)
        full = tuple(receiver for receiver in receivers if receiver not in taken)
        return None if is_more else Backlogged(full, taken)

    def _refuse_installation(self, call: Installation) -> MudkitError:
        """Delete a new filter that no provider accepted; return the error of its call."""
        device = str(call.installed.to)
        if call.is_new:
            self._installed.remove(call.slot)
        if "stranger" not in call.answers.values():
            return QueueFull(
                "The queue of this device is full.", where=device, remedy="try again when it has connected"
            )
        return AccessDenied(
            "A relay has refused this filter: the device does not know this one.",
            where=device,
            found=f"a filter from {self._me}",
            expected="one from a friend of that device",
            remedy="ask its user to make this device a friend",
        )

    def _forget(self, call: PendingCall) -> None:
        """Remove a call from those that wait."""
        for number in [number for number, waiting in self._open.items() if waiting is call]:
            del self._open[number]


def _result_without_receivers(call: PendingCall) -> _Result:
    """Return the result of a call that has no receiver left."""
    if not isinstance(call, Installation):
        return Published((), uploaded=False)
    if call.installed.predicate is None:
        return call.slot
    return AccessDenied(
        "This device is no friend any more.",
        where="to",
        found=repr(call.installed.to),
        expected="a friend until a relay has the filter",
        remedy="befriend it again first",
    )
