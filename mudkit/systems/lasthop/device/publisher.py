"""Publisher on a device: what it publishes waits in an outbox until the server has acknowledged it (2, 3.1).

Transition rules:

==============  ====================================================================================
publish (call)  store the message in the outbox under the next number; send it if there is a link
rerank (call)   the same with a change of a rank
server          acknowledged or refused: complete the call; other rules are those of
                :mod:`mudkit.delivery.submission`
timer           retransmit; withdraw messages that have expired in the outbox, and fail their calls
==============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.submission import PendingSubmission, Submitter
from mudkit.display import View
from mudkit.errors import ParameterError, brief
from mudkit.events import Call, Complete, Effect, Event, Ports, Received
from mudkit.systems.lasthop.messages import (
    CountSubmissions,
    ForPublisher,
    Publication,
    Publish,
    PublishedMessage,
    RankUpdate,
    Rerank,
)
from mudkit.systems.receiving import record_dropped

_ACCEPTED: Final = ForPublisher()


class _PendingPublication(PendingSubmission[Publication], frozen=True):
    """Publication in the outbox."""


class PublisherMachine:
    """Machine of the publisher on the device ``me``, for the server at an address."""

    def __init__(self, ports: Ports, me: str, server: str) -> None:
        self._server = server
        self._submitter = Submitter(ports, me, server, _PendingPublication)

    def overview(self) -> View:
        """Return a display of the server and the counts of submissions."""
        return View("", {"server": self._server, **self._submitter.counts()})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle an event, see :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id):
                return self._call(now_us, op_id, event)
            case Received(source=source):
                message = _ACCEPTED.decode(event.message) if source == self._server else None
                if message is None:
                    return record_dropped(event)
                return self._submitter.receive(now_us, message)
        return self._submitter.handle(now_us, event)

    def _call(self, now_us: int, op_id: int, call: Call) -> Sequence[Effect]:
        """Carry out an operation of the application; return its effects."""
        match call.operation:
            case Publish() as publish:
                return self._publish(now_us, op_id, publish)
            case Rerank() as rerank:
                return self._rerank(now_us, op_id, rerank)
            case CountSubmissions():
                return (Complete(op_id, self._submitter.counts()),)
        error = ParameterError(
            "There is no such operation.", found=brief(call.name), expected="publish, rerank, submissions"
        )
        return (Complete(op_id, error=error),)

    def _publish(self, now_us: int, op_id: int, publish: Publish) -> Sequence[Effect]:
        """Submit a message; the result of the operation is its identity."""
        until_us = None if publish.expires_us is None else now_us + publish.expires_us
        message = PublishedMessage(
            publish.topic, publish.rank, publish.content, now_us, until_us, publish.item
        )
        identity = publish.item or f"{publish.topic} {self._submitter.next_name}"
        return self._submitter.submit(now_us, op_id, message, identity, until_us)

    def _rerank(self, now_us: int, op_id: int, rerank: Rerank) -> Sequence[Effect]:
        """Submit a change of a rank."""
        return self._submitter.submit(now_us, op_id, RankUpdate(rerank.topic, rerank.identity, rerank.rank))
