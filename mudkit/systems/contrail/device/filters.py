"""Filters (Contrail 3.1, 3.2): received ones and what they match, installed ones, and groups of publishers.

==========  ========================================================================================
received    from a friend: stored; the application decides if it wants to, otherwise accepted;
            refused if it is not of the language or exceeds a limit
duplicate   of an older number: dropped and counted
removed     matches nothing any more
group       valid while this device is a member; it may come again as it was
==========  ========================================================================================

``MAX_FILTERS`` of a device match at one port, ``MAX_OF_DEVICE`` in all. Tombstones of filters (removed,
expired, rejected, refused) are bounded to the last ``MAX_OF_DEVICE`` of a device: a filter that is older than
those forgotten counts as obsolete. Filters of groups that were left are bounded to the same number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from mudkit.errors import ParameterError, PredicateError
from mudkit.events import Effect, Notify
from mudkit.predicates import Language, Predicate
from mudkit.predicates.exchange import from_json, to_json
from mudkit.systems.contrail.device.core import Core, PortState
from mudkit.systems.contrail.items import Endpoint, Metadata
from mudkit.systems.contrail.messages import Filter
from mudkit.systems.receiving import Count
from mudkit.wire import Value

__all__ = [
    "CONTEXT",
    "ITEM",
    "MAX_EXPIRED",
    "MAX_FILTERS",
    "MAX_OF_DEVICE",
    "MAX_TEXT",
    "Filters",
    "Groups",
    "InstalledFilter",
    "InstalledFilters",
    "PredicateJson",
    "Question",
    "acceptances",
    "decisions",
    "parsed",
]

ITEM: Final = Language(("item",))
"""Filters are about the metadata of an item."""
CONTEXT: Final = Language(("context",))
"""Rules of groups are about the context of a device."""
MAX_TEXT: Final = 4096
"""Limit of a filter, in characters."""
MAX_FILTERS: Final = 100
MAX_OF_DEVICE: Final = 1000
MAX_EXPIRED: Final = 1000
"""Number of expired installed filters whose late items are accepted."""
_MATCHING: Final = ("accepted", "asked")

PredicateJson: TypeAlias = dict[str, Value]
"""A predicate as :mod:`mudkit.predicates.exchange` writes it."""


def acceptances(port: str) -> str:
    """Return the application that is notified of filters accepted at a port."""
    return f"filters accepted at {port}"


def decisions(port: str) -> str:
    """Return the application that decides about filters at a port."""
    return f"filters at {port}"


class Question(msgspec.Struct, frozen=True):
    """A received filter, for the application of its port.

    Parameters
    ----------
    key : str
        Its key, for the decision.
    filter : Predicate
    who : str
        The device that installed it.
    """

    key: str
    filter: Predicate
    who: str


class SentFilter(msgspec.Struct, frozen=True):
    """Content of a filter's message; None: the filter is removed."""

    predicate: PredicateJson | None
    item_expires_us: Count | None


class _Received(msgspec.Struct, frozen=True):
    """A received filter in the store."""

    port: str
    source: Endpoint
    slot: int
    number: int
    predicate: PredicateJson | None
    group: str | None
    expires_us: int | None
    item_expires_us: int | None
    state: Literal["asked", "accepted", "rejected", "refused", "removed", "expired", "left"]

    @property
    def key(self) -> str:
        """Its key in the store."""
        return f"filter {self.port}\n{self.source[0]}\n{self.source[1]}\n{self.slot:012d}"

    def become(
        self, state: Literal["accepted", "rejected", "refused", "removed", "expired", "left"]
    ) -> _Received:
        """Return it in another state; without its predicate if it is over."""
        kept = self.predicate if state in ("accepted", "rejected", "refused") else None
        return msgspec.structs.replace(self, state=state, predicate=kept)


class Filters:
    """The filters that other devices have installed on this device."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._matching: dict[str, dict[str, tuple[Predicate, _Received]]] = {}
        """Filters that match or may be accepted, by port and key."""
        self._known: dict[str, dict[str, _Received]] = {}
        """All filters, by device and key."""
        for _, kept in core.store.items("filter ", _Received):
            self._note(kept)

    def take(self, came: Filter, sent: bytes, port: PortState | None) -> list[Effect]:
        """Store a received filter.

        Parameters
        ----------
        came : Filter
        sent : bytes
            Its content, decrypted.
        port : PortState or None
            The port that it is for; None: not open.

        Raises
        ------
        msgspec.MsgspecError
            The content is not a filter.
        PredicateError
            It is not of the language; it is stored as refused.
        ParameterError
            It exceeds a limit; it is stored as refused.
        """
        core, source = self._core, (came.source, came.port)
        number, to_port = came.number, came.to[0].port
        key = f"filter {to_port}\n{source[0]}\n{source[1]}\n{came.slot:012d}"
        before = self._known.get(source[0], {}).get(key)
        last = self._passed(source[0]) if before is None else before.number
        if last >= number:
            is_same = before is not None and last == number
            core.count("duplicate filters" if is_same else "obsolete filters")
            return []
        content = msgspec.json.decode(sent, type=SentFilter)
        kept = _Received(
            to_port, source, came.slot, number, content.predicate, came.group, came.expires_us,
            content.item_expires_us, "asked",
        )  # fmt: skip
        self._keep(kept.become("removed"))
        if content.predicate is None:
            return []
        try:
            parsed(content.predicate)
            self._check_number(source[0], to_port)
        except (PredicateError, ParameterError):
            self._keep(kept.become("refused"))
            raise
        if before is not None and before.predicate == content.predicate:  # it was decided already
            self._keep(msgspec.structs.replace(kept, state=before.state))
            return []
        is_asked = port is None or port.asks
        kept = kept if is_asked else kept.become("accepted")
        self._keep(kept)
        if not is_asked:
            return self._accepted(kept)
        return [] if port is None else [Notify(decisions(to_port), _question(kept))]

    def _check_number(self, device: str, port: str) -> None:
        for each in self._matching:
            list(self._of(each))  # what has expired does not count
        matching = [each for each in self._known[device].values() if each.state in _MATCHING]
        here = sum(each.port == port for each in matching)
        if here >= MAX_FILTERS or len(matching) >= MAX_OF_DEVICE:
            raise ParameterError(
                "There are too many filters of this device.",
                where=port,
                found=f"{here + 1} of {device} here, {len(matching) + 1} in all",
                expected=f"at most {MAX_FILTERS} here, {MAX_OF_DEVICE} in all",
                remedy="remove some of them",
            )

    def undecided(self, port: str) -> list[Question]:
        """Return the filters that the application of a port has to decide about."""
        kept = self._core.store.items(f"filter {port}\n", _Received)
        return [_question(each) for _, each in kept if each.state == "asked"]

    def decide(self, key: str, *, accepted: bool) -> list[Effect]:
        """Accept or reject a filter, if it is still there."""
        kept = self._core.store.get(key, _Received)
        if kept is None or kept.state != "asked":
            return []
        kept = kept.become("accepted" if accepted else "rejected")
        self._keep(kept)
        return self._accepted(kept) if accepted else []

    def _accepted(self, kept: _Received) -> list[Effect]:
        return [Notify(acceptances(kept.port), _question(kept))]

    def forget(self, *, source: str | None = None, group: str | None = None) -> None:
        """Remove the filters of a device, or those of a group.

        Those of a group may come again as they were, when this device joins it again.
        """
        for _, kept in self._core.store.items("filter ", _Received):
            if kept.source[0] == source:
                self._keep(kept.become("removed"))
            elif group is not None and kept.group == group and kept.predicate is not None:
                self._keep(msgspec.structs.replace(kept.become("left"), number=kept.number - 1))

    def numbers(self, device: str) -> list[int]:
        """Return the numbers of the filters of a device."""
        return [kept.number for kept in self._known.get(device, {}).values()]

    def forget_between(self, device: str, after: int, up_to: int) -> None:
        """Remove the filters of a device with these numbers: it has lost them."""
        for kept in list(self._known.get(device, {}).values()):
            if after < kept.number <= up_to:
                self._keep(kept.become("removed"))

    def forget_numbers(self, device: str) -> None:
        """Forget the filters of a device that has begun anew, and their numbers."""
        for key, kept in self._known.pop(device, {}).items():
            self._matching[kept.port].pop(key, None)
            self._core.store.delete(key)
        self._core.store.delete(f"passed {device}")

    def receivers(self, port: str) -> set[Endpoint]:
        """Return all endpoints with an accepted filter at a port."""
        return {kept.source for _, kept in self._of(port)}

    def match(self, port: str, metadata: Metadata) -> tuple[dict[Endpoint, int | None], list[Effect]]:
        """Return the endpoints whose filters match, with the time until which they want the item.

        A filter that raises matches nothing; it is reported.
        """
        destinations: dict[Endpoint, int | None] = {}
        effects: list[Effect] = []
        for predicate, kept in self._of(port):
            try:
                matches = predicate(metadata)
            except PredicateError as error:
                effects += self._core.problem("filters that raised", error, "failed")
                continue
            if matches:
                lasts_us = kept.item_expires_us
                until_us = None if lasts_us is None else self._core.now_us + lasts_us
                before_us = destinations.get(kept.source, until_us)
                is_open = before_us is None or until_us is None
                destinations[kept.source] = None if is_open else max(before_us or 0, until_us or 0)
        return destinations, effects

    def _of(self, port: str) -> Iterator[tuple[Predicate, _Received]]:
        """Iterate over the accepted filters of a port that have not expired."""
        now_us = self._core.now_us
        for predicate, kept in list(self._matching.get(port, {}).values()):
            if kept.expires_us is not None and kept.expires_us <= now_us:
                self._keep(kept.become("expired"))
            elif kept.state == "accepted":
                yield predicate, kept

    def _keep(self, kept: _Received) -> None:
        self._core.store.put(kept.key, kept)
        self._note(kept)
        if kept.state not in _MATCHING:
            self._evict(kept.source[0], is_left=kept.state == "left")

    def _evict(self, device: str, *, is_left: bool) -> None:
        """Forget the oldest of too many filters that match nothing."""
        known = self._known[device]
        over = sorted(
            (each.number, key)
            for key, each in known.items()
            if each.state not in _MATCHING and (each.state == "left") == is_left
        )
        for number, key in over[: max(len(over) - MAX_OF_DEVICE, 0)]:
            self._core.store.delete(key)
            del known[key]
            if not is_left:
                self._core.store.put(f"passed {device}", max(number, self._passed(device)))

    def _passed(self, device: str) -> int:
        """Return the number up to which unknown filters of a device are obsolete."""
        return self._core.store.get(f"passed {device}", int) or 0

    def _note(self, kept: _Received) -> None:
        matching = self._matching.setdefault(kept.port, {})
        matching.pop(kept.key, None)
        self._known.setdefault(kept.source[0], {})[kept.key] = kept
        if kept.state in _MATCHING and kept.predicate is not None:
            try:
                matching[kept.key] = parsed(kept.predicate), kept
            except PredicateError:  # of a function that this process does not have
                self._core.count("filters that cannot be read")


def parsed(sent: str | Predicate | PredicateJson) -> Predicate:
    """Return the predicate of a filter: from its text, from JSON, or as it is.

    Raises
    ------
    PredicateError, ParameterError
    """
    if isinstance(sent, Predicate):
        return parsed(to_json(sent) or {})
    text = sent if isinstance(sent, str) else sent.get("text")
    if isinstance(text, str) and len(text) > MAX_TEXT:
        raise ParameterError(
            "This filter is too long.",
            where="filter",
            found=f"{len(text):,} characters",
            expected=f"at most {MAX_TEXT:,}",
        )
    if isinstance(sent, str):
        return Predicate.parse(sent, language=ITEM)
    predicate = from_json(sent, ITEM)
    assert predicate is not None
    return predicate


def _question(kept: _Received) -> Question:
    return Question(kept.key, parsed(kept.predicate or {}), kept.source[0])


class InstalledFilter(msgspec.Struct, frozen=True):
    """A filter that this device has installed on others.

    Parameters
    ----------
    port : str
    to, group : str or None
        The device or the group that it is installed on.
    remote : str
        The port there.
    predicate : dict or None
        None: it is being removed.
    item_expires_us, expires_us : int or None
        Time for which items are wanted; when the filter ends.
    """

    port: str
    to: str | None
    group: str | None
    remote: str
    predicate: PredicateJson | None = None
    item_expires_us: int | None = None
    expires_us: int | None = None


class InstalledFilters:
    """Filters that this device has installed: it accepts items and keys of their targets (Contrail 3.3)."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._all: dict[int, InstalledFilter] = {
            int(key.removeprefix("asked ")): kept for key, kept in core.store.items("asked ", InstalledFilter)
        }

    def add(self, slot: int, installed: InstalledFilter) -> None:
        """Store a filter; forget the oldest of too many expired ones."""
        self._all[slot] = installed
        self._core.store.put(f"asked {slot:012d}", installed)
        over = sorted(
            (each.expires_us, other)
            for other, each in self._all.items()
            if each.expires_us is not None and each.expires_us <= self._core.now_us
        )
        for _, other in over[: max(len(over) - MAX_EXPIRED, 0)]:
            self.remove(other)

    def get(self, slot: int) -> InstalledFilter | None:
        """Return an installed filter."""
        return self._all.get(slot)

    def remove(self, slot: int) -> None:
        """Forget a filter: items that match it are not accepted any more."""
        self._all.pop(slot, None)
        self._core.store.delete(f"asked {slot:012d}")

    def items(self) -> list[tuple[int, InstalledFilter]]:
        """Return all installed filters with their numbers."""
        return list(self._all.items())

    def has(self, port: str, device: str, remote: str) -> bool:
        """Return whether an own port has a filter on a device's port, or on that port of a group."""
        return any(
            each.port == port and each.remote == remote and each.to in (None, device)
            for each in self._all.values()
        )


class _Membership(msgspec.Struct, frozen=True):
    rule: str | None
    is_in: bool


class Groups:
    """The groups of publishers that this device is in (Contrail 3.4.3): by its own word, or by a rule."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._all = {
            key.removeprefix("group "): kept for key, kept in core.store.items("group ", _Membership)
        }

    def is_member(self, group: str) -> bool:
        """Return whether this device is in a group."""
        return group in self._all and self._all[group].is_in

    def joined(self) -> list[str]:
        """Return the groups that this device is in."""
        return [group for group in self._all if self.is_member(group)]

    def join(self, group: str, rule: str | None, context: Metadata) -> tuple[bool, list[Effect]]:
        """Join a group, or follow its rule from now on; return whether the membership has changed."""
        is_in, effects = (True, list[Effect]()) if rule is None else self._evaluate(rule, context)
        return self._set(group, _Membership(rule, is_in)), effects

    def leave(self, group: str) -> bool:
        """Leave a group; return whether this device was a member."""
        was_member = self.is_member(group)
        self._all.pop(group, None)
        self._core.store.delete(f"group {group}")
        return was_member

    def moved(self, context: Metadata) -> tuple[list[tuple[str, bool]], list[Effect]]:
        """Evaluate all rules; return the groups that this device joins (True) and leaves."""
        changes, effects = list[tuple[str, bool]](), list[Effect]()
        for group, kept in list(self._all.items()):
            if kept.rule is not None:
                joins, more = self._evaluate(kept.rule, context)
                effects += more
                if self._set(group, _Membership(kept.rule, joins)):
                    changes.append((group, joins))
        return changes, effects

    def _set(self, group: str, membership: _Membership) -> bool:
        before = self.is_member(group)
        self._all[group] = membership
        self._core.store.put(f"group {group}", membership)
        return before != membership.is_in

    def _evaluate(self, rule: str, context: Metadata) -> tuple[bool, list[Effect]]:
        try:
            return bool(Predicate.parse(rule, language=CONTEXT)(context)), []
        except PredicateError as error:
            return False, self._core.problem("rules of groups that raised", error)
