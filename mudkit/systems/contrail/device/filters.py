"""Filters (Contrail 3.1, 3.2): received ones, installed ones, and groups of publishers.

A received filter has a state:

==========  ========================================================================================
asked       waits for the decision of the application
accepted    by the application, or because the application leaves the decision to the module
rejected    by the application
refused     not of the filter language, or above a limit
removed     by its device, or because that device is no friend any more
expired     its lifetime is over
left        this device left the group of the filter, which can be received again unchanged
==========  ========================================================================================

A filter with a number that is not above the last one of its slot is a duplicate or obsolete: dropped and
counted.

A device can have ``MAX_FILTERS`` matching filters at a port and ``MAX_OF_DEVICE`` in all. Its tombstones
(rejected, refused, removed, expired) are bounded by ``MAX_OF_DEVICE``: a filter older than the evicted ones
is obsolete. Filters of groups that were left are bounded by the same number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from mudkit.delivery.notices import Notices
from mudkit.errors import ParameterError, PredicateError
from mudkit.events import Effect, Notify
from mudkit.predicates import Language, Predicate
from mudkit.predicates.exchange import from_json, to_json
from mudkit.systems.contrail.device.module_state import ModuleState, PortState
from mudkit.systems.contrail.items import Endpoint, Metadata
from mudkit.systems.contrail.messages import Filter
from mudkit.systems.receiving import Count
from mudkit.wire import Value

ITEM: Final = Language(("item",))
"""Language of filters: predicates over the metadata of an item."""
CONTEXT: Final = Language(("context",))
"""Language of group rules: predicates over the context of a device."""
MAX_TEXT: Final = 4096
"""Maximum length of a filter, in characters."""
MAX_FILTERS: Final = 100
MAX_OF_DEVICE: Final = 1000
MAX_EXPIRED: Final = 1000
"""Number of expired installed filters that still accept late items."""
_MATCHING: Final = ("accepted", "asked")

PredicateJson: TypeAlias = dict[str, Value]
"""A predicate as :mod:`mudkit.predicates.exchange` writes it."""


def acceptance_listener(port: str) -> str:
    """Return the name of the callback that gets the filters accepted at a port."""
    return f"filters accepted at {port}"


def question_listener(port: str) -> str:
    """Return the name of the callback that decides on filters at a port."""
    return f"filters at {port}"


class Question(msgspec.Struct, frozen=True):
    """A filter of the device ``who``, which the application of its port accepts or rejects."""

    key: str
    filter: Predicate
    who: str


class SentFilter(msgspec.Struct, frozen=True):
    """Sealed content of a filter message; predicate None: the filter is removed."""

    predicate: PredicateJson | None
    item_expires_us: Count | None


class _StoredFilter(msgspec.Struct, frozen=True):
    """A received filter in the store, in one of the states of the table above."""

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
        """Key in the store."""
        return f"filter {self.port}\n{self.source[0]}\n{self.source[1]}\n{self.slot:012d}"

    def with_state(
        self, state: Literal["accepted", "rejected", "refused", "removed", "expired", "left"]
    ) -> _StoredFilter:
        """Return the filter in another state; one that is removed, expired or left has no predicate."""
        kept = self.predicate if state in ("accepted", "rejected", "refused") else None
        return msgspec.structs.replace(self, state=state, predicate=kept)


def _acceptance_notice(kept: _StoredFilter) -> Notify:
    """Return the notification of an accepted filter for the application of its port."""
    return Notify(acceptance_listener(kept.port), _build_question(kept))


class Filters:
    """Filters that other devices installed on this device: they decide which items leave it."""

    def __init__(self, module: ModuleState) -> None:
        self._module = module
        self.notices = Notices(module.store, _StoredFilter)
        """Filters of whose acceptance the application is notified."""
        self._matching: dict[str, dict[str, tuple[Predicate, _StoredFilter]]] = {}
        """Accepted and undecided filters by port and key."""
        self._known: dict[str, dict[str, _StoredFilter]] = {}
        """All filters by device and key."""
        for _, kept in module.store.items("filter ", _StoredFilter):
            self._add_to_index(kept)

    def receive(self, message: Filter, plain: bytes, port: PortState | None) -> list[Effect]:
        """Store a received filter, and ask the application about it or accept it.

        Raise MsgspecError if ``plain`` is no filter. One that is refused is stored as such; then
        PredicateError or ParameterError is raised.
        """
        module, source = self._module, (message.source, message.port)
        number, to_port = message.number, message.to[0].port
        key = f"filter {to_port}\n{source[0]}\n{source[1]}\n{message.slot:012d}"
        before = self._known.get(source[0], {}).get(key)
        last = self._watermark(source[0]) if before is None else before.number
        if last >= number:
            is_same = before is not None and last == number
            module.count("duplicate filters" if is_same else "obsolete filters")
            return []
        content = msgspec.json.decode(plain, type=SentFilter)
        kept = _StoredFilter(
            to_port, source, message.slot, number, content.predicate, message.group, message.expires_us,
            content.item_expires_us, "asked",
        )  # fmt: skip
        self._store(kept.with_state("removed"))
        if content.predicate is None:
            return []
        try:
            parse_filter(content.predicate)
            self._check_limits(source[0], to_port)
        except (PredicateError, ParameterError):
            self._store(kept.with_state("refused"))
            raise
        if before is not None and before.predicate == content.predicate:  # already decided
            self._store(msgspec.structs.replace(kept, state=before.state))
            return []
        is_asked = port is None or port.asks
        kept = kept if is_asked else kept.with_state("accepted")
        self._store(kept)
        if not is_asked:
            return self._notify_accepted(kept)
        return [] if port is None else [Notify(question_listener(to_port), _build_question(kept))]

    def _check_limits(self, device: str, port: str) -> None:
        """Mark expired filters; raise ParameterError if a device has too many at a port or in all."""
        for name in self._matching:
            list(self._iterate_accepted(name))  # expires filters
        matching = [kept for kept in self._known[device].values() if kept.state in _MATCHING]
        here = sum(kept.port == port for kept in matching)
        if here >= MAX_FILTERS or len(matching) >= MAX_OF_DEVICE:
            raise ParameterError(
                "There are too many filters of this device.",
                where=port,
                found=f"{here + 1} of {device} here, {len(matching) + 1} in all",
                expected=f"at most {MAX_FILTERS} here, {MAX_OF_DEVICE} in all",
                remedy="remove some of them",
            )

    def undecided(self, port: str) -> list[Question]:
        """Return the filters of a port that wait for a decision of the application."""
        filters = self._module.store.items(f"filter {port}\n", _StoredFilter)
        return [_build_question(kept) for _, kept in filters if kept.state == "asked"]

    def decide(self, key: str, *, accepted: bool) -> list[Effect]:
        """Accept or reject a filter, as the application decided; do nothing if it is no longer undecided."""
        kept = self._module.store.get(key, _StoredFilter)
        if kept is None or kept.state != "asked":
            return []
        kept = kept.with_state("accepted" if accepted else "rejected")
        self._store(kept)
        return self._notify_accepted(kept) if accepted else []

    def _notify_accepted(self, kept: _StoredFilter) -> list[Effect]:
        """Store and return the notification of an accepted filter; a kill before the callback repeats it."""
        return [self.notices.add(kept), _acceptance_notice(kept)]

    def repeat_notices(self) -> list[Effect]:
        """Notify applications again of filters that were accepted before a kill."""
        return [*self.notices.repeat(_acceptance_notice)]

    def forget(self, *, source: str | None = None, group: str | None = None) -> None:
        """Remove the filters of a former friend, or of a group that was left and can be joined again."""
        for _, kept in self._module.store.items("filter ", _StoredFilter):
            if kept.source[0] == source:
                self._store(kept.with_state("removed"))
            elif group is not None and kept.group == group and kept.predicate is not None:
                self._store(msgspec.structs.replace(kept.with_state("left"), number=kept.number - 1))

    def filter_numbers(self, device: str) -> list[int]:
        """Return the numbers of the stored filters of a device."""
        return [kept.number for kept in self._known.get(device, {}).values()]

    def remove_between(self, device: str, after: int, up_to: int) -> None:
        """Remove the filters of a device with numbers in (``after``, ``up_to``]: it has lost them."""
        for kept in list(self._known.get(device, {}).values()):
            if after < kept.number <= up_to:
                self._store(kept.with_state("removed"))

    def forget_device(self, device: str) -> None:
        """Delete the filters and numbers of a device that was wiped."""
        for key, kept in self._known.pop(device, {}).items():
            self._matching[kept.port].pop(key, None)
            self._module.store.delete(key)
        self._module.store.delete(f"passed {device}")

    def receivers(self, port: str) -> set[Endpoint]:
        """Return all endpoints with an accepted filter at a port."""
        return {kept.source for _, kept in self._iterate_accepted(port)}

    def match(self, port: str, metadata: Metadata) -> tuple[dict[Endpoint, int | None], list[Effect]]:
        """Return the endpoints whose filters match, with the expiry of the item there.

        Report filters that raise.
        """
        destinations: dict[Endpoint, int | None] = {}
        effects: list[Effect] = []
        for predicate, kept in self._iterate_accepted(port):
            try:
                matches = predicate(metadata)
            except PredicateError as error:
                effects += self._module.report_problem("filters that raised", error, "failed")
                continue
            if matches:
                lasts_us = kept.item_expires_us
                until_us = None if lasts_us is None else self._module.now_us + lasts_us
                before_us = destinations.get(kept.source, until_us)
                is_open = before_us is None or until_us is None
                destinations[kept.source] = None if is_open else max(before_us or 0, until_us or 0)
        return destinations, effects

    def _iterate_accepted(self, port: str) -> Iterator[tuple[Predicate, _StoredFilter]]:
        """Iterate over the accepted filters of a port; those that have expired are marked, durably."""
        now_us = self._module.now_us
        for predicate, kept in list(self._matching.get(port, {}).values()):
            if kept.expires_us is not None and kept.expires_us <= now_us:
                self._store(kept.with_state("expired"))
            elif kept.state == "accepted":
                yield predicate, kept

    def _store(self, kept: _StoredFilter) -> None:
        """Store a filter in its new state, update the index, and evict old tombstones."""
        self._module.store.put(kept.key, kept)
        self._add_to_index(kept)
        if kept.state not in _MATCHING:
            self._evict_tombstones(kept.source[0], is_left=kept.state == "left")

    def _evict_tombstones(self, device: str, *, is_left: bool) -> None:
        """Evict the oldest tombstones of a device, or its oldest filters of groups that were left."""
        known = self._known[device]
        over = sorted(
            (kept.number, key)
            for key, kept in known.items()
            if kept.state not in _MATCHING and (kept.state == "left") == is_left
        )
        for number, key in over[: max(len(over) - MAX_OF_DEVICE, 0)]:
            self._module.store.delete(key)
            del known[key]
            if not is_left:
                self._module.store.put(f"passed {device}", max(number, self._watermark(device)))

    def _watermark(self, device: str) -> int:
        """Return the highest number of an evicted tombstone of a device: filters up to it are obsolete."""
        return self._module.store.get(f"passed {device}", int) or 0

    def _add_to_index(self, kept: _StoredFilter) -> None:
        """Update the parsed filters in memory; count one that this process cannot parse."""
        matching = self._matching.setdefault(kept.port, {})
        matching.pop(kept.key, None)
        self._known.setdefault(kept.source[0], {})[kept.key] = kept
        if kept.state in _MATCHING and kept.predicate is not None:
            try:
                matching[kept.key] = parse_filter(kept.predicate), kept
            except PredicateError:  # it calls a function that this process lacks
                self._module.count("filters that cannot be read")


def parse_filter(source: str | Predicate | PredicateJson) -> Predicate:
    """Parse a filter from text, JSON or a predicate; raise PredicateError or ParameterError."""
    if isinstance(source, Predicate):
        return parse_filter(to_json(source) or {})
    text = source if isinstance(source, str) else source.get("text")
    if isinstance(text, str) and len(text) > MAX_TEXT:
        raise ParameterError(
            "This filter is too long.",
            where="filter",
            found=f"{len(text):,} characters",
            expected=f"at most {MAX_TEXT:,}",
        )
    if isinstance(source, str):
        return Predicate.parse(source, language=ITEM)
    predicate = from_json(source, ITEM)
    assert predicate is not None
    return predicate


def _build_question(kept: _StoredFilter) -> Question:
    """Return the question about a filter for its application."""
    return Question(kept.key, parse_filter(kept.predicate or {}), kept.source[0])


class InstalledFilter(msgspec.Struct, frozen=True):
    """A filter that this device installed, on a device (``to``) or a group."""

    port: str
    to: str | None
    group: str | None
    remote: str
    """Port on the other device."""
    predicate: PredicateJson | None = None
    """None: the filter is being removed."""
    item_expires_us: int | None = None
    """Time for which a matching item is useful."""
    expires_us: int | None = None
    """End of the filter."""


class InstalledFilters:
    """Filters that this device installed; it accepts items and keys of their targets only (3.3)."""

    def __init__(self, module: ModuleState) -> None:
        self._module = module
        self._all: dict[int, InstalledFilter] = {
            int(key.removeprefix("asked ")): kept
            for key, kept in module.store.items("asked ", InstalledFilter)
        }

    def add(self, slot: int, installed: InstalledFilter) -> None:
        """Store a filter; evict the oldest expired ones."""
        self._all[slot] = installed
        self._module.store.put(f"asked {slot:012d}", installed)
        over = sorted(
            (kept.expires_us, other)
            for other, kept in self._all.items()
            if kept.expires_us is not None and kept.expires_us <= self._module.now_us
        )
        for _, other in over[: max(len(over) - MAX_EXPIRED, 0)]:
            self.remove(other)

    def get(self, slot: int) -> InstalledFilter | None:
        """Return an installed filter by its number; None: there is none. It may have expired."""
        return self._all.get(slot)

    def remove(self, slot: int) -> None:
        """Delete a filter: matching items are not accepted any more."""
        self._all.pop(slot, None)
        self._module.store.delete(f"asked {slot:012d}")

    def items(self) -> list[tuple[int, InstalledFilter]]:
        """Return all installed filters by number."""
        return list(self._all.items())

    def has_filter_on(self, port: str, device: str, remote: str) -> bool:
        """Return whether a port has a filter on a remote port of a device or of a group."""
        return any(
            kept.port == port and kept.remote == remote and kept.to in (None, device)
            for kept in self._all.values()
        )


class _StoredMembership(msgspec.Struct, frozen=True):
    """Rule of a group (None: joined for good), and whether this device is a member now."""

    rule: str | None
    is_in: bool


class Groups:
    """Groups of publishers that this device joined or follows by a rule (Contrail 3.4.3)."""

    def __init__(self, module: ModuleState) -> None:
        self._module = module
        self._all = {
            key.removeprefix("group "): kept for key, kept in module.store.items("group ", _StoredMembership)
        }

    def is_member(self, group: str) -> bool:
        """Return whether this device is a member of a group."""
        return group in self._all and self._all[group].is_in

    def joined_groups(self) -> list[str]:
        """Return the groups of which this device is a member."""
        return [group for group in self._all if self.is_member(group)]

    def join(self, group: str, rule: str | None, context: Metadata) -> tuple[bool, list[Effect]]:
        """Join a group, or be a member while its rule is true; return whether the membership changed."""
        is_in, effects = (True, list[Effect]()) if rule is None else self._evaluate_rule(rule, context)
        return self._store_membership(group, _StoredMembership(rule, is_in)), effects

    def leave(self, group: str) -> bool:
        """Leave a group; return whether the membership changed."""
        was_member = self.is_member(group)
        self._all.pop(group, None)
        self._module.store.delete(f"group {group}")
        return was_member

    def follow_context(self, context: Metadata) -> tuple[list[tuple[str, bool]], list[Effect]]:
        """Evaluate all rules; return the groups that this device joins (True) or leaves (False)."""
        changes, effects = list[tuple[str, bool]](), list[Effect]()
        for group, kept in list(self._all.items()):
            if kept.rule is not None:
                joins, more = self._evaluate_rule(kept.rule, context)
                effects += more
                if self._store_membership(group, _StoredMembership(kept.rule, joins)):
                    changes.append((group, joins))
        return changes, effects

    def _store_membership(self, group: str, membership: _StoredMembership) -> bool:
        """Store a rule with its membership; return whether the membership changed."""
        before = self.is_member(group)
        self._all[group] = membership
        self._module.store.put(f"group {group}", membership)
        return before != membership.is_in

    def _evaluate_rule(self, rule: str, context: Metadata) -> tuple[bool, list[Effect]]:
        """Return whether a rule is true in a context; one that raises is false, and reported."""
        try:
            return bool(Predicate.parse(rule, language=CONTEXT)(context)), []
        except PredicateError as error:
            return False, self._module.report_problem("rules of groups that raised", error)
