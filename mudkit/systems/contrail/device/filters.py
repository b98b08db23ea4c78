"""The filters that others have installed on this device, and what they match (Contrail 3.1, 3.2).

==========  ========================================================================================
comes       from a friend: kept; the application decides, if it wants to, else it is accepted;
            what is not of the language or over the limit is refused
again       of an older number: dropped and counted
removed     it matches nothing any more
group       as long as this device is a member; it may come again as it was
==========  ========================================================================================

Of a device ``MOST_FILTERS`` match at one port, and ``MOST_OF_DEVICE`` in all. What is remembered of others
(taken back, expired, rejected, refused; of groups that were left) is bounded as well: of the first, the last
``MOST_OF_DEVICE``, and a filter that is older than those forgotten is taken for an obsolete one; of the
second the last as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mudkit.errors import ParameterError, PredicateError
from mudkit.events import Notify
from mudkit.predicates import Language, Predicate
from mudkit.predicates.exchange import from_json, to_json
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.items import Endpoint
from mudkit.systems.receiving import Count

__all__ = ["ITEM", "MOST_FILTERS", "MOST_OF_DEVICE", "MOST_TEXT", "Filters", "acceptances", "parsed"]

ITEM: Final = Language(("item",))
"""A filter names the metadata of an item."""
MOST_TEXT: Final = 4096
"""Characters of a filter."""
MOST_FILTERS: Final = 100
"""Of one device at one port."""
MOST_OF_DEVICE: Final = 1000
_MATCH: Final = ("accepted", "asked")


def acceptances(port: str) -> str:
    """Name the application that is told of the filters that are accepted at a port."""
    return f"filters accepted at {port}"


class _Sent(msgspec.Struct, frozen=True):
    """What is sealed in a filter's message: only its receiver can look at it, and does so when it comes."""

    predicate: str | dict[str, Any] | None
    item_expires_us: Count | None


class Filters:
    """The filters on this device.

    Parameters
    ----------
    core : Core
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._live: dict[str, dict[str, tuple[Predicate, dict[str, Any]]]] = {}
        self._known: dict[str, dict[str, tuple[str, int]]] = {}
        """By device the keys of all its filters, with their states and numbers."""
        for key, kept in core.store.items("filter "):
            self._note(key, kept)

    def take(self, source: Endpoint, port: str, slot: int, number: int, *, sent: bytes,
             group: str | None, expires_us: int | None, is_asked: bool) -> dict[str, Any] | None:  # fmt: skip
        """Take a filter that came; give what the application is asked, if it is.

        Raises
        ------
        ValueError
            It is no filter.
        PredicateError
            It is not of the language; it is kept as refused.
        ParameterError
            It is too long, or one too many.
        """
        key = _key(port, source, slot)
        before = self._core.store.get(key)
        last = self._passed(source[0]) if before is None else before["number"]
        if last >= number:
            is_same = before is not None and last == number
            self._core.count("duplicate filters" if is_same else "obsolete filters")
            return None
        filters = msgspec.json.decode(sent, type=_Sent)
        kept = {
            "number": number,
            "state": "removed",
            "predicate": filters.predicate,
            "group": group,
            "expires_us": expires_us,
            "item_expires_us": filters.item_expires_us,
            "from": list(source),
        }
        self._keep(key, kept)
        if filters.predicate is None:
            return None
        kept["state"] = "refused"
        try:
            predicate = parsed(filters.predicate)
            self._check_number(source[0], port)
        except (PredicateError, ParameterError):
            self._keep(key, kept)
            raise
        if before is not None and before["predicate"] == filters.predicate:
            self._keep(key, {**kept, "state": before["state"]})  # it was decided already
            return None
        kept["state"] = "asked" if is_asked else "accepted"
        self._keep(key, kept)
        self._tell(key, kept)
        return _question(key, kept, predicate) if is_asked else None

    def _check_number(self, device: str, port: str) -> None:
        for each in self._live:
            list(self._of(each))  # what has expired does not count
        keys = [key for key, (state, _) in self._known[device].items() if state in _MATCH]
        here = sum(key.startswith(f"filter {port}\n") for key in keys)
        if here >= MOST_FILTERS or len(keys) >= MOST_OF_DEVICE:
            raise ParameterError(
                "There are too many filters of this device.",
                where=port,
                found=f"{here + 1} of {device} here, {len(keys) + 1} in all",
                expected=f"at most {MOST_FILTERS} here, {MOST_OF_DEVICE} in all",
                remedy="remove some of them",
            )

    def undecided(self, port: str) -> Iterator[dict[str, Any]]:
        """Give what the application of a port has not decided yet."""
        for key, kept in self._core.store.items(f"filter {port}\n"):
            if kept["state"] == "asked":
                yield _question(key, kept, parsed(kept["predicate"]))

    def decide(self, key: str, *, accepted: bool) -> None:
        """Take the application's decision; nothing happens when the filter is gone meanwhile."""
        kept = self._core.store.get(key)
        if kept is not None and kept["state"] == "asked":
            kept = {**kept, "state": "accepted" if accepted else "rejected"}
            self._keep(key, kept)
            self._tell(key, kept)

    def _tell(self, key: str, kept: Mapping[str, Any]) -> None:
        """Tell the application of a port that somebody has a filter there from now on."""
        if kept["state"] == "accepted":
            question = _question(key, kept, parsed(kept["predicate"]))
            self._core.effects.append(
                Notify(acceptances(key.removeprefix("filter ").split("\n")[0]), question)
            )

    def forget(self, *, source: str | None = None, group: str | None = None) -> None:
        """Remove the filters of a device, or those that came by a group.

        Those of a group may come again as they were, when this device joins it again.
        """
        for key, kept in self._core.store.items("filter "):
            gone = {**kept, "state": "removed", "predicate": None}
            if kept["from"][0] == source:
                self._keep(key, gone)
            elif group is not None and kept["group"] == group and kept["predicate"] is not None:
                self._keep(key, {**gone, "state": "left", "number": kept["number"] - 1})

    def receivers(self, port: str) -> set[Endpoint]:
        """Give everybody who has an accepted filter at a port."""
        return {tuple(kept["from"]) for _, kept in self._of(port)}

    def match(self, port: str, metadata: Mapping[str, Any]) -> dict[Endpoint, int | None]:
        """Give who has asked for an item with these metadata, and when it expires for them.

        A filter that raises matches nothing; that is reported, and the others go on.
        """
        destinations: dict[Endpoint, int | None] = {}
        for predicate, kept in self._of(port):
            try:
                matches = predicate(metadata)
            except PredicateError as error:
                self._core.problem("filters that raised", error, "failed")
                continue
            if matches:
                endpoint = tuple(kept["from"])
                lasts_us = kept["item_expires_us"]
                until_us = None if lasts_us is None else self._core.now_us + lasts_us
                before_us = destinations.get(endpoint, until_us)
                if before_us is None or until_us is None:
                    destinations[endpoint] = None
                else:
                    destinations[endpoint] = max(before_us, until_us)
        return destinations

    def _of(self, port: str) -> Iterator[tuple[Predicate, dict[str, Any]]]:
        now_us = self._core.now_us
        for key, (predicate, kept) in list(self._live.get(port, {}).items()):
            if kept["expires_us"] is not None and kept["expires_us"] <= now_us:
                self._keep(key, {**kept, "state": "expired", "predicate": None})
            elif kept["state"] == "accepted":
                yield predicate, kept

    def _keep(self, key: str, kept: dict[str, Any]) -> None:
        self._core.store.put(key, kept)
        self._note(key, kept)
        if kept["state"] not in _MATCH:
            self._bound(kept["from"][0], is_left=kept["state"] == "left")

    def _bound(self, device: str, *, is_left: bool) -> None:
        """Forget the oldest of too many filters that match nothing."""
        known = self._known[device]
        gone = sorted(
            (number, key)
            for key, (state, number) in known.items()
            if state not in _MATCH and (state == "left") == is_left
        )
        for number, key in gone[: max(len(gone) - MOST_OF_DEVICE, 0)]:
            self._core.store.delete(key)
            del known[key]
            if not is_left:
                self._core.store.put(f"passed {device}", max(number, self._passed(device)))

    def _passed(self, device: str) -> int:
        """Give the number up to which a device's filters that are not known have been forgotten."""
        return self._core.store.get(f"passed {device}") or 0

    def _note(self, key: str, kept: dict[str, Any]) -> None:
        live = self._live.setdefault(key.removeprefix("filter ").split("\n")[0], {})
        live.pop(key, None)
        self._known.setdefault(kept["from"][0], {})[key] = kept["state"], kept["number"]
        if kept["state"] in _MATCH:
            try:
                live[key] = parsed(kept["predicate"]), kept
            except PredicateError:  # of a function that this process does not have
                self._core.count("filters that cannot be read")


def parsed(sent: Any) -> Predicate:
    """Make the predicate of a filter, from its text or from what was sent.

    Raises
    ------
    PredicateError, ParameterError
    """
    text = sent["text"] if isinstance(sent, Mapping) else sent
    if isinstance(text, str) and len(text) > MOST_TEXT:
        raise ParameterError(
            "This filter is too long.",
            where="filter",
            found=f"{len(text):,} characters",
            expected=f"at most {MOST_TEXT:,}",
        )
    if isinstance(sent, Mapping):
        made = from_json(sent, ITEM)
        assert made is not None
        return made
    if isinstance(sent, Predicate):
        return parsed(to_json(sent))
    return Predicate.parse(sent, language=ITEM)


def _key(port: str, source: Endpoint, slot: int) -> str:
    return f"filter {port}\n{source[0]}\n{source[1]}\n{slot:012d}"


def _question(key: str, kept: Mapping[str, Any], predicate: Predicate) -> dict[str, Any]:
    return {"key": key, "filter": predicate, "who": kept["from"][0], "group": kept["group"]}
