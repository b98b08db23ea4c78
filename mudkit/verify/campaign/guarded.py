"""A table with a rule of who may write, which all clients of a run write to: each record is its owner's.

Nobody but the owner may replace or delete a record, whatever the faults, and a read shows no older version of
one than its client was told of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from mudkit.errors import AccessDenied, TokenExpired
from mudkit.systems.mud import Client
from mudkit.verify.campaign.work import error_of

GUARDED: Final = "guarded"
"""Name of the table."""
GUARDED_STEPS: Final = ("claim", "look")
_RULE: Final = "old IS NULL OR auth.user = old.owner"
_KEYS: Final = ("a", "h", "q")
_NOBODY: Final = "nobody"
"""Owner of what a client without a user writes, which nobody may replace."""


@dataclass(frozen=True)
class _Claim:
    """Write or delete of a key by a client, in the name of its user; ``value`` None: a delete."""

    client: str
    user: str
    key: str
    value: str | None
    operation: Any


@dataclass(frozen=True)
class _Look:
    """Read by a client, with the versions that it was told of before, and how often it had lost its state."""

    client: str
    known: Mapping[str, int]
    losses: int
    operation: Any


class Guarded:
    """Claims and looks of the clients of a run, on a table with a rule; in some runs only.

    ``users`` are those of the clients' tokens; ``log`` has the entries of the back end by position.
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        users: Mapping[str, str | None],
        log: Mapping[int, Any],
        draw: Random,
    ) -> None:
        self._clients, self._users, self._log, self._draw = clients, users, log, draw
        self._claims: list[_Claim] = []
        self._looks: list[_Look] = []
        self._known: dict[str, dict[str, int]] = {name: {} for name in clients}
        """Highest version of each key that a client was told of, by its name."""
        self._losses = dict.fromkeys(clients, 0)
        self.is_used = draw.random() < 0.25

    def begin(self) -> None:
        """Create the table."""
        next(iter(self._clients.values())).create(GUARDED, write_rule=_RULE).result()

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if the table is not used."""
        many = self._draw.randint(10, 40) if self.is_used else 0
        return [(self._draw.randint(0, end_us), self._draw.choice(GUARDED_STEPS)) for _ in range(many)]

    def act(self, step: str) -> None:
        """Execute a step of :data:`GUARDED_STEPS` as one of the clients."""
        name, key = self._draw.choice(list(self._clients)), self._draw.choice(_KEYS)
        if step == "look":
            self._look(name)
        else:
            self._claim(name, key)

    def record_loss(self, name: str) -> None:
        """Record that a device was wiped or restored: its client has forgotten what it was told."""
        if name in self._known:
            self._known[name] = {}
            self._losses[name] += 1

    def replaced(self) -> list[str]:
        """Return in words which records were replaced or deleted by others than their owners."""
        problems: list[str] = []
        rows = self._rows()
        before: dict[str, Any] = {}
        preceding: dict[tuple[str, int], Any] = {}
        for row in rows:
            old, new = before.get(row["key"]), row["data"]
            preceding[row["key"], row["ver"]] = old
            before[row["key"]] = new
            if (
                old is not None
                and new is not None
                and (old["owner"] == _NOBODY or old["owner"] != new["owner"])
            ):
                problems.append(f"{old} was replaced by {new}")
        values = {row["data"]["v"] for row in rows if row["data"] is not None}
        owners = {(row["key"], row["data"]["owner"]) for row in rows if row["data"] is not None}
        for claim in self._claims:
            if claim.operation.status == "ok":
                old = preceding.get((claim.key, claim.operation.result()))
                if claim.value is None and old is not None and old["owner"] != claim.user:
                    problems.append(f"{old} was deleted by {claim.user}")
            elif claim.operation.status == "failed":
                error = error_of(claim.operation)
                if claim.value in values:
                    problems.append(f"{claim.value!r} was refused, {error!r}, and was committed")
                others = any(key == claim.key and _is_other(owner, claim.user) for key, owner in owners)
                if not isinstance(error, TokenExpired) and not (isinstance(error, AccessDenied) and others):
                    problems.append(
                        f"{claim.user} was refused {claim.key}, of which nobody else was the owner"
                    )
        return problems

    def outdated(self) -> list[str]:
        """Return in words which reads showed older versions than their clients had been told of."""
        deleted: dict[str, int] = {}
        for row in self._rows():
            if row["data"] is None:
                deleted[row["key"]] = max(row["ver"], deleted.get(row["key"], 0))
        problems: list[str] = []
        for look in self._looks:
            if look.operation.status != "ok" or look.losses != self._losses[look.client]:
                continue
            result = look.operation.result()
            for key, least in look.known.items():
                if key not in result.versions and not result.is_complete:
                    continue  # the answer says that records may be missing
                if key not in result.versions and self._was_deleting(look, key):
                    continue  # a delete that a later write absorbs is never committed
                shown = result.versions.get(key, deleted.get(key, 0))
                if shown is not None and shown < least:
                    problems.append(f"{look.client} was told of version {least} of {key}, and reads {shown}")
        return problems

    def _was_deleting(self, look: _Look, key: str) -> bool:
        """Return whether a delete by the same client was pending at some time while it looked."""
        end_us = look.operation.responded_us
        return any(
            (claim.client, claim.key, claim.value) == (look.client, key, None)
            and claim.operation.invoked_us <= end_us
            and (
                claim.operation.responded_us is None
                or claim.operation.responded_us >= look.operation.invoked_us
            )
            for claim in self._claims
        )

    def _claim(self, name: str, key: str) -> None:
        """Write or delete a record as a client, in the name of its user."""
        client, user = self._clients[name], self._users[name] or _NOBODY
        value = None if self._draw.random() < 0.25 else f"{name} claims {len(self._claims)}"
        if value is None:
            operation = client.delete(GUARDED, key)
        else:
            operation = client.write(GUARDED, key, {"owner": user, "v": value})
        self._claims.append(_Claim(name, user, key, value, operation))
        losses = self._losses[name]

        def record_version(done: Any) -> None:
            if done.status == "ok" and losses == self._losses[name]:
                known = self._known[name]
                known[key] = max(done.result(), known.get(key, 0))

        operation.add_done_callback(record_version)

    def _look(self, name: str) -> None:
        """Read the table as a client, of any age."""
        operation = self._clients[name].read(GUARDED)
        self._looks.append(_Look(name, dict(self._known[name]), self._losses[name], operation))

    def _rows(self) -> list[Any]:
        """Return the versions of the table in the log, in order."""
        return [
            entry["row"] for _, entry in sorted(self._log.items())
            if entry["op"] == "row" and entry["name"] == GUARDED
        ]  # fmt: skip


def _is_other(owner: str, user: str) -> bool:
    """Return whether a user may not replace a record of an owner."""
    return owner == _NOBODY or owner != user
