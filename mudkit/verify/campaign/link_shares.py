"""Shares of a device's link, followed in what the service of the device receives and sends.

The guide's rule: while several apps are attached, each may have 16 unanswered messages or 16 kB of them; its
next ones wait. So a message of an app leaves at once, unless the app has used up its own share, and no more
than a share of each other app is before it on the link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mudkit.events import Event, LinkDown, Received, size_bytes
from mudkit.systems.mud.device.attachment import app_at
from mudkit.systems.mud.messages.parts import app_of
from mudkit.wire import as_wire, wire_fields

MAX_MESSAGES: Final = 16
"""Unanswered messages of an app on the link."""
MAX_BYTES: Final = 16 * 1024
"""Bytes of these, unless it is a single message."""
_OPEN_US: Final = 60_000_000
"""Time since its last transmission after which a message without an answer does not count any more."""
_REQUESTS: Final = ("ask", "asks")
_ENDS: Final = ("complete", "outcome", "administered", "refused", "restarted")
"""Kinds of the messages that end the answer to a request; an error ends it, too."""


@dataclass
class _Open:
    """Message of an app without an answer, and the requests in it that have none."""

    open_ids: set[str]
    size_bytes: int
    sent_us: int


@dataclass
class _Waiting:
    """Message that an app has passed to the service, and that has not left."""

    ids: set[str]
    size_bytes: int
    is_judged: bool


class LinkShares:
    """Messages of the apps of a device since a start of its service.

    What breaks the rule is added to ``problems``. ``counts`` has the number of messages that were judged
    while another app had used up its share.
    """

    def __init__(self, device: str, problems: list[str], counts: Counter[str]) -> None:
        self._device, self._problems, self._counts = device, problems, counts
        self._now_us = 0
        self._open: dict[str, list[_Open]] = {}
        """By app, as are the messages that wait, in order."""
        self._waiting: dict[str, list[_Waiting]] = {}
        self._readers: dict[tuple[str, str], set[str]] = {}
        """Apps that have asked each query."""

    def observe(self, now_us: int, event: Event, sent: Sequence[Any]) -> None:
        """Follow an event of the service, and the messages that it sends, both as they are.

        Their sizes are those on the link, where a struct may omit what a mapping of it has.
        """
        if now_us > self._now_us:
            self._judge_waiting()
            self._now_us = now_us
        if isinstance(event, LinkDown):
            self._open.clear()
            self._waiting.clear()
        elif isinstance(event, Received):
            self._receive(app_at(event.source), event.message)
        for message in sent:
            fields = wire_fields(message)
            for part in fields["parts"] if fields["kind"] == "asks of apps" else (message,):
                if wire_fields(part)["kind"] in _REQUESTS:
                    self._send(part)

    def _receive(self, app: str | None, received: Any) -> None:
        """Add a message of an app to those that wait; take the end of an answer from the open ones."""
        message = as_wire(received)
        if app is None:
            if message["kind"] in _ENDS or message.get("error") is not None:
                for one in self._open.get(app_of(message.get("id", "").rpartition(" ")[0]), ()):
                    one.open_ids.discard(message["id"])
            return
        if message["kind"] not in _REQUESTS or message["client"] != f"{self._device}/{app}":
            return
        ids = _ids_of(message)
        if any(one.open_ids & ids for one in self._open.get(app, ())):
            return  # a retransmission
        waiting = self._waiting.setdefault(app, [])
        added = _Waiting(ids, size_bytes(received), not self._may_follow(app, message))
        places = [place for place, other in enumerate(waiting) if ids >= other.ids]
        waiting[:] = [other for place, other in enumerate(waiting) if place not in places]
        waiting.insert(places[0] if places else len(waiting), added)

    def _may_follow(self, app: str, message: Mapping[str, Any]) -> bool:
        """Return whether a message is a read that another app has asked, whose answer it may wait for."""
        what = message.get("what", {})
        if what.get("op") != "read":
            return False
        readers = self._readers.setdefault((what["name"], str(what.get("predicate"))), set())
        readers.add(app)
        return len(readers) > 1

    def _send(self, sent: Any) -> None:
        """Follow a message of an app that leaves, and judge what is before it if it leaves first."""
        message = as_wire(sent)
        app, ids = app_of(message["client"]), _ids_of(message)
        mine = self._open.setdefault(app, [])
        if ids <= {identity for one in mine for identity in one.open_ids}:
            for one in mine:
                if one.open_ids & ids:
                    one.sent_us = self._now_us
            return  # a retransmission
        for one in mine:
            one.open_ids -= ids  # sent again with others
        waiting = self._waiting.get(app, [])
        waiting[:] = [other for other in waiting if not other.ids <= ids]
        for other in self._open:
            if other != app:
                self._judge_before(app, other)
        mine[:] = [one for one in mine if one.open_ids]
        mine.append(_Open(ids, size_bytes(sent), self._now_us))

    def _judge_before(self, app: str, other: str) -> None:
        """Add a problem if more than a share of another app is before a message of an app."""
        sizes = [
            one.size_bytes
            for one in self._open[other]
            if one.open_ids and self._now_us < one.sent_us + _OPEN_US
        ]
        self._counts["messages beside a flood, judged"] += bool(self._waiting.get(other))
        if len(sizes) > MAX_MESSAGES or (len(sizes) > 1 and sum(sizes) > MAX_BYTES):
            self._problems.append(
                f"{self._device}: {len(sizes)} messages of {other}, {sum(sizes)} bytes, before one of {app}"
            )

    def _judge_waiting(self) -> None:
        """Add a problem for each app of which a message has waited for this moment, and need not.

        It may be behind reads that wait for the answer to another app's, or for room like itself.
        """
        for app, waiting in self._waiting.items():
            judged = next((place for place, one in enumerate(waiting) if one.is_judged), None)
            if judged is None:
                continue
            size = max(one.size_bytes for one in waiting[: judged + 1])
            sizes = [one.size_bytes for one in self._open.get(app, ()) if one.open_ids]
            if not sizes or (len(sizes) < MAX_MESSAGES and sum(sizes) + size <= MAX_BYTES):
                self._problems.append(
                    f"{self._device}: a message of {app} waits, though only {len(sizes)} are on the link"
                )


def _ids_of(message: Mapping[str, Any]) -> set[str]:
    """Return the identifiers of the requests in a message of an app."""
    return {ask["id"] for ask in message["asks"]} if message["kind"] == "asks" else {message["id"]}
