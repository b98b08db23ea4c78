"""What a client can answer by itself: what it holds, and the queries of which it holds the answer.

A query is complete here if its keys are all held, or if an earlier query of the same reader, which the cloud
has answered, contains it and nothing of that was let go since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from mudkit.errors import PredicateError
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite, Version
from mudkit.systems.mud.device.planning import Answerable
from mudkit.systems.mud.policies.policies import Asked, Cached
from mudkit.systems.mud.tables.queries import asks_for_keys_only, contains, tables_of_sent
from mudkit.systems.mud.tables.replica import is_visible, record_of
from mudkit.tokens import Claims
from mudkit.wire import Fields

__all__ = ["Cache", "Held"]

_KEPT_QUERIES: Final = 64
_PENDING_AGE_US: Final = -1
_NOBODY: Final[Mapping[str, str]] = {}


class Held(msgspec.Struct, frozen=True):
    """An answer from here.

    Parameters
    ----------
    versions : dict of str to mapping
        Rows and pending writes, by key.
    quality : Answerable
    """

    versions: dict[str, Version]
    quality: Answerable


@dataclass(frozen=True)
class _Complete:
    """A query that the cloud has answered whole."""

    asked: Asked
    at_us: int
    context: Fields
    versions: Mapping[str, int]
    """Of the answer, by key."""
    losses: Counter[int]
    """How many records of each partition had been let go until then."""


class Cache:
    """The answers that a client holds.

    Parameters
    ----------
    local : Local
    """

    def __init__(self, local: Local) -> None:
        self._local = local
        self._answered: list[_Complete] = []
        self.claims: Claims | None = None
        """What the cloud has verified of this client."""

    def note(
        self,
        now_us: int,
        asked: Asked,
        context: Fields,
        versions: Mapping[str, int],
        losses: Counter[int],
    ) -> tuple[float, bool] | None:
        """Take note that the cloud has answered a query whole.

        Returns
        -------
        tuple or None
            How long the answer before had been held, in seconds, and whether it was another one.
        """
        before = next((each for each in self._answered if each.asked == asked), None)
        self._answered = [each for each in self._answered if each is not before][-(_KEPT_QUERIES - 1) :]
        self._answered.append(_Complete(asked, now_us, dict(context), versions, losses))
        return None if before is None else ((now_us - before.at_us) / 1e6, before.versions != versions)

    @property
    def size(self) -> int:
        """Number of answers held."""
        return len(self._answered)

    def answered(self, now_us: int) -> list[Cached]:
        """List what the cloud has answered, as policies see it."""
        return [
            Cached(each.asked, (now_us - each.at_us) / 1e6, each.context, len(each.versions))
            for each in self._answered
        ]

    def find(self, now_us: int, asked: Asked, keys: list[str] | None, *, latest: bool) -> Held | None:
        """Give what a read would be answered with from here; None: that cannot be said.

        Parameters
        ----------
        now_us : int
        asked : Asked
        keys : list of str or None
            The only keys that can match.
        latest : bool
            Whether only pending writes will do.
        """
        candidates = self._known(asked, keys)
        if latest:
            candidates = {
                key: version for key, version in candidates.items() if isinstance(version, PendingWrite)
            }
        is_named = keys is not None
        is_all = is_named and asks_for_keys_only(asked.predicate)
        try:
            versions = {
                key: version
                for key, version in candidates.items()
                if self.matches(asked, version, is_named=is_named, is_all=is_all)
            }
        except PredicateError:
            return None
        age_s, completeness, bias = _PENDING_AGE_US / 1e6, 1.0, 0.0
        # Of named keys also those count that match no more: that they do not is as old as they are.
        relevant = versions if keys is None else candidates
        if keys is None or len(candidates) < len(keys):
            age_s, completeness, bias = self._quality(now_us, asked, keys, relevant)
            if latest:
                completeness, bias = 0.0, 0.0  # others may have written records since
        for version in relevant.values():
            if isinstance(version, HeldRow):
                age_s = max(age_s, (now_us - version.held_us) / 1e6)
        return Held(versions, Answerable(age_s, completeness, bias))

    def _known(self, asked: Asked, keys: list[str] | None) -> dict[str, Version]:
        """Return what is held of some keys, or of the whole table: the latest, or the latest committed."""
        name, local = asked.table, self._local
        is_latest = asked.type == "uncommitted"
        candidates = [row.key for row in local.rows(name)] if keys is None else keys
        if keys is None and is_latest:
            candidates = [*candidates, *local.pending_keys(name)]
        versions: dict[str, Version] = {}
        for key in candidates:
            version = (local.latest(name, key) if is_latest else None) or local.row(name, key)
            if version is not None:
                versions[key] = version
        return versions

    def _quality(
        self, now_us: int, asked: Asked, keys: list[str] | None, held: Iterable[str]
    ) -> tuple[float, float, float]:
        """Give age, completeness and bias of what is held of a query whose keys are not all held."""
        kept = self._by_partition(asked.table, held)
        containing = [each for each in self._answered if self._contains(each.asked, asked)]
        best = max(containing, key=lambda each: (-self._lost(each).total(), each.at_us), default=None)
        if best is not None:
            lost, age_s = self._lost(best), (now_us - best.at_us) / 1e6
        elif keys is not None:
            lost, age_s = self._by_partition(asked.table, set(keys) - set(held)), 0.0
        else:
            return 0.0, 0.0, 0.0
        missing = lost.total()
        if not missing:
            return age_s, 1.0, 0.0
        shares = [kept[place] / (kept[place] + lost[place]) for place in kept.keys() | lost.keys()]
        return age_s, kept.total() / (kept.total() + missing), max(shares) - min(shares)

    def _lost(self, answered: _Complete) -> Counter[int]:
        """Count what was let go of a table since a query of it was answered, by partition."""
        return self._local.losses[answered.asked.table] - answered.losses

    def _by_partition(self, name: str, keys: Iterable[str]) -> Counter[int]:
        return Counter(self._local.partition_of(name, key) for key in keys)

    def _contains(self, larger: Asked, smaller: Asked) -> bool:
        return (
            larger.table == smaller.table
            and larger.reader == smaller.reader
            and contains(larger.predicate, smaller.predicate)
        )

    def may_match(self, asked: Asked, row: HeldRow) -> bool:
        """Say whether a committed version can have been among what the cloud gave a reader before."""
        try:
            return self.matches(asked, row)
        except PredicateError:
            return True

    def matches(
        self, asked: Asked, version: Version, *, is_named: bool = False, is_all: bool = False
    ) -> bool:
        """Say whether a reader asks for a version, and may see it.

        Parameters
        ----------
        asked : Asked
        version : HeldRow or PendingWrite
        is_named : bool
            Whether its key is asked for: then also that it is gone is an answer.
        is_all : bool
            Whether nothing but its key is asked for.

        Raises
        ------
        PredicateError
            The reader's predicate cannot be evaluated, or the writer's of a committed version not here.
        """
        auth = _NOBODY if self.claims is None else self.claims.auth
        table = self._local.tables.get(asked.table)
        writer = version.predicate
        if writer is not None:
            if isinstance(version, HeldRow) and tables_of_sent(writer):
                raise PredicateError("Who may see this record only the cloud can say.", text=writer.text)
            if not is_visible(version, asked.reader, auth, table):
                return False
        if version.data is None:
            return is_named
        if is_all or asked.predicate is None:
            return True
        return asked.predicate(record_of(version, table), receiver=asked.reader, auth=auth) is True
