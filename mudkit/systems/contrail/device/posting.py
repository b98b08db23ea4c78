"""What goes to the providers of a device, and the calls that wait for what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mudkit.events import CancelTimer, Complete, SetTimer
from mudkit.systems.contrail.device.channels import Channel
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.device.outbox import Outbox
from mudkit.systems.contrail.items import Endpoint

__all__ = ["PUSH", "TAKEN", "Posting", "Waiting"]

PUSH: Final = "push"

TAKEN: Final = ("ok", "obsolete")


@dataclass
class Waiting:
    """A call that waits for the answers of providers."""

    op_id: int
    to: list[Endpoint] | None
    """Whom it is for; None: for whoever is in a group."""
    nobody: Any
    """Its result when there is nobody left whom it is for."""
    left: set[int] = field(default_factory=set)
    answers: dict[Endpoint, str] = field(default_factory=dict)


class Posting:
    """Sends through the outboxes, each of one provider, and settles calls by their answers.

    Parameters
    ----------
    core : Core
        What all parts of the module share.
    outboxes : sequence of Outbox
        One of each provider.
    """

    def __init__(self, core: Core, outboxes: Sequence[Outbox]) -> None:
        self._core, self._outboxes = core, outboxes
        self._channels: dict[str, Channel] = {}
        self._open: dict[int, Waiting] = {}
        self._batches: Counter[str] = Counter()

    def _send(
        self,
        port: str,
        message: Mapping[str, Any],
        call: Waiting | None,
        outboxes: Sequence[Outbox],
        named: Collection[int] = (),
    ) -> None:
        for outbox in outboxes:
            what = {"kind": "send", "message": message}
            number = outbox.add(what, is_named=outbox.relay in named, is_own=call is None)
            if call is not None:
                call.left.add(outbox.relay)
                self._open[number] = call
        self._batches[port] += 1
        state = self._core.store.get(f"port {port}")
        if self._batches[port] >= (1 if state is None else state["batch"]):
            self.flush()
        elif self._batches.total() == 1:
            self._core.effects.append(SetTimer(PUSH, self._core.settings.push_timeout_us))

    def flush(self) -> None:
        """Send everything that waits, of all ports."""
        if self._batches:
            self._batches.clear()
            self._core.effects.append(CancelTimer(PUSH))
        for outbox in self._outboxes:
            outbox.flush()

    def flush_left(self) -> None:
        """Send what another life has left, or what waited for the network."""
        if not self._batches:
            self.flush()

    def answered(self, relay: int, number: int, results: Any) -> None:
        """Take the answer of a provider."""
        sent = self._outboxes[relay].answered(number, results)
        if sent is None:
            return
        outcomes = results or ()
        call = self._open.pop(number, None)
        if call is None:
            if sent.get("message", {}).get("kind") == "key":  # the key of one item goes each time
                self._refused(sent["message"], outcomes)
            return
        call.left.discard(relay)
        for device, port, answer in outcomes:
            if call.answers.get((device, port)) not in TAKEN:
                call.answers[device, port] = answer
        self._settle(call)

    def _refused(self, message: Mapping[str, Any], outcomes: Sequence[Sequence[str]]) -> None:
        lacking = [(device, port) for device, port, answer in outcomes if answer not in TAKEN]
        self._channel(message["port"]).lacks(message["slot"], lacking)

    def failed(self, relay: int, number: int) -> None:
        """Take note that a provider is not there; the others have to do."""
        self._outboxes[relay].failed(number)
        call = self._open.get(number)
        if call is not None and call.answers:
            self._settle(call)

    def _settle(self, call: Waiting) -> None:
        more = any(self._outboxes[relay].is_reached for relay in call.left)
        result = call.nobody if call.to == [] else self._decide(call, more)
        if result is None:
            return
        self._drop(call)
        is_error = isinstance(result, BaseException)
        self._core.effects.append(
            Complete(call.op_id, None if is_error else result, result if is_error else None)
        )

    def _decide(self, call: Waiting, more: bool) -> Any:
        """Give the result of a call from its best answers so far; None: not yet, there may be ``more``."""
        raise NotImplementedError

    def _drop(self, call: Waiting) -> None:
        for number in [each for each, other in self._open.items() if other is call]:
            del self._open[number]

    def _channel(self, port: str) -> Channel:
        if port not in self._channels:
            self._channels[port] = Channel(self._core, port)
        return self._channels[port]
