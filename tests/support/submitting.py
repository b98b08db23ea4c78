"""Smallest machines with submissions: a publisher of texts, and a server that lists them in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mudkit.delivery.submission import (
    PendingSubmission,
    Refusal,
    Submission,
    Submissions,
    SubmitAck,
    SubmitHello,
    Submitter,
    SubmitUnknown,
    SubmitWelcome,
)
from mudkit.errors import MessageExpired
from mudkit.events import Call, Effect, Event, Ports, Received


class Put(msgspec.Struct, frozen=True, tag_field="operation", tag="put"):
    """Submit a text that expires after a time; None: never."""

    text: str
    lifetime_us: int | None = None


class Text(msgspec.Struct, frozen=True):
    """Text that is submitted, and the time at which it expires."""

    text: str
    expires_us: int | None


class PendingText(PendingSubmission[Text], frozen=True):
    """Text in the outbox."""


class TextPublisher:
    """Publisher of texts."""

    def __init__(self, ports: Ports, name: str, server: str) -> None:
        self.submitter = Submitter(ports, name, server, PendingText)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Call(op_id=op_id, operation=Put(text=text, lifetime_us=lifetime_us)):
                expires_us = None if lifetime_us is None else now_us + lifetime_us
                name = self.submitter.next_name
                return self.submitter.submit(now_us, op_id, Text(text, expires_us), name, expires_us)
            case Received(message=SubmitWelcome() | SubmitAck() | SubmitUnknown() as message):
                return self.submitter.receive(now_us, message)
        return self.submitter.handle(now_us, event)


class TextServer:
    """Server that lists the texts that it has taken; it refuses those that begin with "bad", or have expired."""

    def __init__(self, ports: Ports) -> None:
        self.store = ports.store
        self.submissions = Submissions(ports)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        if not isinstance(event, Received):
            return ()
        message: Any = event.message
        if not isinstance(message, SubmitHello | Submission) or message.device != event.sender:
            return ()
        answer, is_new = self.submissions.receive(event.source, message)
        if not is_new:
            return answer
        body: Text = message.body
        refusal = None
        if body.text.startswith("bad"):
            refusal = Refusal("It is bad.")
        elif body.expires_us is not None and body.expires_us <= now_us:
            refusal = Refusal.of(MessageExpired("It is late."))
        else:
            place = (self.store.get("place", int) or 0) + 1
            self.store.put("place", place)
            name = self.submissions.submission_name(message)
            self.store.put(f"in {place:09d}", [message.device, name, body.text])
        return [*answer, *self.submissions.settle(event.source, message, refusal)]
