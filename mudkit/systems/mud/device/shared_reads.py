"""Equal reads of several apps of a device (Mobius 6): the cloud answers one, and the others get its answer.

A read follows an equal one of another app that is in flight. It gets that answer if it may see the same
records: the table has no writer predicates, the read names neither ``auth`` nor a ``lookup``, and the table
admits the app by a token that the cloud has verified. Otherwise it is sent when that answer has come. A read
of the latest versions follows none: an answer may be older than its call.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from mudkit.errors import MudkitError
from mudkit.systems.mud.messages.requests import Ask, Part, PartsComplete, ReadRequest, Request
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims


class _Leader(Struct):
    """Read in flight that others follow; ``parts`` are those of its answer so far, by partition."""

    app: str
    key: bytes
    parts: dict[int, Part] = field(default_factory=dict)
    followers: dict[str, tuple[str, Ask]] = field(default_factory=dict)


class SharedReads:
    """Reads in flight of the apps of a device.

    ``verified`` has, by app, the claims that the cloud has verified; None: the app has no token.
    """

    def __init__(self, verified: Mapping[str, Claims | None]) -> None:
        self._verified = verified
        self._leaders: dict[str, _Leader] = {}
        """By the identifier of the request."""
        self._leading: dict[bytes, str] = {}
        """Identifier of the request that the next equal one follows."""

    def follow(self, app: str, ask: Ask) -> bool:
        """Add a read to the followers of an equal one of another app; True: it is not to be sent.

        False: it follows none. A retransmission follows none from now on.
        """
        for leader in self._leaders.values():
            if leader.followers.pop(ask.id, None) is not None:
                return False
        if ask.id in self._leaders or not _can_share(ask.what):
            return False
        followed = self._leaders.get(self._leading.get(_key_of(ask), ""))
        if followed is None or followed.app == app:
            return False
        followed.followers[ask.id] = app, ask
        return True

    def lead(self, app: str, ask: Ask) -> None:
        """Note that a request was sent, so that equal ones of other apps follow it."""
        if ask.id not in self._leaders and _can_share(ask.what):
            key = _key_of(ask)
            if key not in self._leading:
                self._leaders[ask.id], self._leading[key] = _Leader(app, key), ask.id

    def receive_part(self, part: Part) -> None:
        """Store a part of the answer to a read in flight."""
        leader = self._leaders.get(part.id)
        if leader is not None:
            leader.parts[part.place] = part

    def receive_end(
        self, now_us: int, identity: str, complete: PartsComplete | None
    ) -> tuple[list[tuple[str, Part | PartsComplete]], list[tuple[str, Ask]]]:
        """End a read in flight; return the answers for the apps that follow it, and the requests to send now.

        Those are of the apps that follow it and may not have its answer. ``complete`` None: the read was not
        answered.
        """
        leader = self._leaders.pop(identity, None)
        if leader is None:
            return [], []
        if self._leading.get(leader.key) == identity:
            del self._leading[leader.key]
        answers: list[tuple[str, Part | PartsComplete]] = []
        asks: list[tuple[str, Ask]] = []
        for follower, (app, ask) in leader.followers.items():
            if complete is None or not self._may_see(now_us, app, complete.table):
                asks.append((app, ask))
                continue
            answers += [(app, replace(part, id=follower)) for part in leader.parts.values()]
            answers.append((app, replace(complete, id=follower, claims=self._verified[app])))
        return answers, asks

    def clear(self) -> None:
        """Forget all reads: the apps send them again over the next link."""
        self._leaders.clear()
        self._leading.clear()

    def _may_see(self, now_us: int, app: str, table: Table) -> bool:
        """Return whether an app sees the same records of a table as each other app that it admits."""
        if table.writer_predicates is not False or app not in self._verified:
            return False
        claims = self._verified[app]
        if claims is not None and claims.expires_s <= now_us / 1e6:
            return False
        try:
            table.check_access(claims)
        except MudkitError:
            return False
        return True


def _can_share(what: Request) -> bool:
    """Return whether all apps with access to the table get the same answer to a request."""
    if not isinstance(what, ReadRequest) or what.latest:
        return False
    text = "" if what.predicate is None else what.predicate.text.lower()  # functions have names in any case
    return "auth" not in text and "lookup" not in text


def _key_of(ask: Ask) -> bytes:
    """Return a key that equal reads have in common."""
    assert isinstance(ask.what, ReadRequest)
    start = None if ask.log_incarnation is UNSET else ask.log_incarnation
    return encode([replace(ask.what, table=None, seen_lsns={}), start])
