"""Shipped policies on a device: acceptance, storage, fallback, and evaluation (Mobius 6).

There is a slot for each kind of policy that an app follows, and one for each table with a policy of its own.

=========  ===========================================================================================
shipped    a valid artefact of the slot's kind with a higher version takes effect, and the previous
           one is stored beside it; anything else is refused and changes nothing
restart    the artefact in use is read again; if it is damaged, the previous one is used; if that is
           damaged, too, the device's own policy
=========  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.events import Store
from mudkit.predicates.areas import area_of
from mudkit.predicates.containment import contains
from mudkit.predicates.values import point
from mudkit.systems.mud.policies.artefact import FEATURES, OWN, PREFETCH_EVERY_S, Artefact, Kind
from mudkit.systems.mud.policies.policies import (
    NEVER,
    Cached,
    Expected,
    PrefetchPolicy,
    ReadPolicy,
    WritePolicy,
)
from mudkit.systems.mud.policies.utility import Query
from mudkit.units import US_PER_S, covered_share, distance_km, solar_time
from mudkit.wire import Fields

_P = TypeVar("_P", bound=ReadPolicy | WritePolicy | PrefetchPolicy, covariant=True)


@check_arguments(types=False)
@dataclass(frozen=True)
class ShippedPolicy(Generic[_P]):
    """Read, write or prefetch policy that follows the one shipped by the cloud.

    Parameters
    ----------
    fallback : ReadPolicy, WritePolicy or PrefetchPolicy, optional
        Policy until the first one arrives; by default the utility of a read or write decides, and nothing is
        fetched.
    """

    fallback: _P | None = None


class PolicySlot:
    """Shipped artefacts of one slot of a device: the one in use, and durably the one before.

    ``name`` is its kind, or its kind and table (:attr:`Artefact.slot`).
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name
        self.refused: list[str] = []
        """Reasons for which artefacts are not in use."""
        self.in_use = self._load_stored("in use") or self._load_stored("before")

    @property
    def version(self) -> int:
        """Version in use; 0: none."""
        return 0 if self.in_use is None else self.in_use.version

    def accept(self, document: Fields) -> None:
        """Use and store a shipped artefact if it is valid and newer; else record why it is refused."""
        try:
            artefact = self._check_artefact(document)
            if self.in_use is not None and artefact.document == self.in_use.document:
                return
            if artefact.version <= self.version:
                raise ParameterError(
                    "The policy is not newer than the one in use.",
                    where="version",
                    found=str(artefact.version),
                    expected=f"more than {self.version}",
                    remedy="give it a higher version with Artefact.from_document(document).renewed(version)",
                )
            if self.in_use is not None:
                self._store.put(f"policy {self.name} before", self.in_use.document)
            self._store.put(f"policy {self.name} in use", document)
        except ParameterError as error:
            self.refused.append(str(error))
            return
        self.in_use = artefact

    def describe(self) -> Fields:
        """Return what is in use, and the reasons of refusals."""
        digest = None if self.in_use is None else self.in_use.document["sha256"]
        return {"version": self.version, "sha256": digest, "refused": list(self.refused)}

    def _load_stored(self, which: str) -> Artefact | None:
        """Return a stored artefact, ``in use`` or ``before``; None: there is none, or it is damaged.

        Damage is added to the reasons of refusals.
        """
        document = self._store.get(f"policy {self.name} {which}")
        if document is None:
            return None
        try:
            return self._check_artefact(document)
        except ParameterError as error:
            self.refused.append(str(error))
            return None

    def _check_artefact(self, document: Fields) -> Artefact:
        """Return the artefact of a document; raise ParameterError if it is malformed or of another slot."""
        artefact = Artefact.from_document(document)
        if artefact.slot != self.name:
            raise ParameterError(
                "The policy is of another kind or table.",
                where="kind, table",
                found=artefact.slot,
                expected=self.name,
            )
        return artefact


class PolicySlots:
    """All slots of an app on a device."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slots: dict[str, PolicySlot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def follow(self, kind: Kind) -> None:
        """Follow the policies of a kind; those of tables that were stored are read again."""
        self._slots[kind] = PolicySlot(self._store, kind)
        for key in self._store.keys(f"policy {kind} of "):
            name = key.removeprefix("policy ").removesuffix(" in use").removesuffix(" before")
            if name not in self._slots:
                self._slots[name] = PolicySlot(self._store, name)

    def in_use(self, kind: str, table: str) -> Artefact | None:
        """Return the artefact that decides for a table: its own one, or that for all tables."""
        own = self._slots.get(f"{kind} of {table}")
        return self._slots[kind].in_use if own is None or own.in_use is None else own.in_use

    def accept(self, name: str, document: Fields) -> None:
        """Pass a shipped artefact to its slot; no effect if the app does not follow policies of its kind."""
        if name.partition(" ")[0] in self._slots:
            self._slots.setdefault(name, PolicySlot(self._store, name)).accept(document)

    def versions(self) -> dict[str, int]:
        """Return the version in use of each slot."""
        return {name: slot.version for name, slot in self._slots.items()}

    def describe(self) -> Fields:
        """Return what each slot has in use, and the reasons of refusals."""
        return {name: slot.describe() for name, slot in self._slots.items()}


class ShippedReads:
    """Read policy that evaluates the artefact for the table; ``until`` decides before there is one.

    It also decides what the artefact leaves to the device's own policy.
    """

    def __init__(self, slots: PolicySlots, until: ReadPolicy | None) -> None:
        self._slots = slots
        self._until = until

    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.ReadPolicy`; based on the last answer.

        Of a query without an area it is the last one that is certain to have all its records, of another
        one the table's last one.
        """
        artefact = self._slots.in_use("read", query.table)
        if artefact is None or artefact.root == OWN:
            return self._decide_alone(query, context, cache)
        last = _last_answer(query, cache)
        if last is None:
            return "remote"
        values = _features(_place_of_query(query, context), context, 0.0) | {
            "age": last.age_s,
            "held": last.records,
            **_features_of_area(query, last.query, context),
        }
        cached = _features(_place_of_query(last.query, last.context), context, last.age_s)
        values |= {f"cached_{name}": cached[name] for name in ("lat", "lon", "hour")}
        values |= {"distance": _distance_km(values), "density": _density(artefact, values)}
        where = artefact.decide([values.get(name) for name in artefact.features])
        if where == OWN:
            return self._decide_alone(query, context, cache)
        return "local" if where == "local" else "remote"

    def _decide_alone(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """Decide by the device's own policy; None: the utility of the read does."""
        return None if self._until is None else self._until.decide(query, context, cache)


class ShippedWrites:
    """Write policy that evaluates the artefact for the table; ``until`` decides before there is one.

    It also decides what the artefact leaves to the device's own policy.
    """

    def __init__(self, slots: PolicySlots, until: WritePolicy) -> None:
        self._slots = slots
        self._until = until

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.WritePolicy`."""
        artefact = self._slots.in_use("write", str(write.get("name")))
        if artefact is None or artefact.root == OWN:
            return self._until.delay(write, context)
        values = _NOTHING_CACHED | _features(point(context.get("loc")), context, 0.0)
        values["density"] = _density(artefact, values)
        delay = artefact.decide([values[name] for name in artefact.features])
        if delay == OWN:
            return self._until.delay(write, context)
        return NEVER if isinstance(delay, str) else delay


class ShippedPrefetches:
    """Prefetch policy that evaluates the artefact for the table of each query.

    ``until`` decides about tables without one, and about those whose artefact leaves it to the device.
    """

    def __init__(self, slots: PolicySlots, until: PrefetchPolicy | None) -> None:
        self._slots = slots
        self._until = until

    @property
    def every_s(self) -> float:
        """See :class:`~mudkit.systems.mud.policies.policies.PrefetchPolicy`."""
        return PREFETCH_EVERY_S if self._until is None else min(PREFETCH_EVERY_S, self._until.every_s)

    def select(self, expected: Sequence[Expected], context: Fields) -> Sequence[Query]:
        """See :class:`~mudkit.systems.mud.policies.policies.PrefetchPolicy`."""
        selected: list[Query] = []
        left: list[Expected] = []
        for read in expected:
            artefact = self._slots.in_use("prefetch", read.query.table)
            if artefact is None or artefact.root == OWN:
                left.append(read)
            elif self._is_due(artefact, read, context):
                selected.append(read.query)
        return selected if self._until is None else [*selected, *self._until.select(left, context)]

    def _is_due(self, artefact: Artefact, read: Expected, context: Fields) -> bool:
        """Return whether an artefact says that a query is to be fetched; it does not about unknown ones.

        What was fetched since the last decision is not fetched again.
        """
        text = None if read.query.predicate is None else read.query.predicate.text
        if text not in artefact.queries:
            return False
        loc = point(context.get("loc"))
        values = _features(loc or point((0.0, 0.0)), context, 0.0)  # without a place, by UTC
        if loc is None:
            values |= {"lat": None, "lon": None}
        values |= {"query": float(artefact.queries.index(text)), "since": read.since_s}
        return artefact.decide([values.get(name) for name in artefact.features]) == "fetch"


_NOTHING_CACHED: dict[str, float | None] = dict.fromkeys(FEATURES)


def _place_of_query(query: Query, context: Fields) -> tuple[float, float] | None:
    """Return the place of a query: that of the reader's data, or else of the device."""
    return point(query.reader.get("loc")) or point(context.get("loc"))


def _features(place: tuple[float, float] | None, context: Fields, age_s: float) -> dict[str, float | None]:
    """Return place and time of a query ``age_s`` ago; hours are those of mean solar time."""
    lat, lon = place or (None, None)
    hour = weekday = None
    clock_us, now_us = context.get("clock_us"), context.get("now_us")
    if lon is not None and isinstance(clock_us, int | float) and isinstance(now_us, int | float):
        t_us = clock_us + now_us - round(age_s * US_PER_S)
        hours, weekdays = solar_time(t_us, lon)
        hour, weekday = float(hours), float(weekdays)
    return {"lat": lat, "lon": lon, "hour": hour, "weekday": weekday}


def _last_answer(query: Query, cache: Sequence[Cached]) -> Cached | None:
    """Return the last cached answer of the table that a policy decides about; None: there is none."""
    answers = [cached for cached in cache if cached.query.table == query.table]
    if area_of(query.predicate) is None:
        whole = [cached for cached in answers if contains(cached.query.predicate, query.predicate)]
        answers = whole or answers
    return answers[-1] if answers else None


def _features_of_area(query: Query, cached: Query, context: Fields) -> dict[str, float | None]:
    """Return the size of the area of a query, its window, and the share of it that a cached one covers.

    Of a query without an area, the share is 1 if the cached one is certain to have all its records, else 0.
    """
    area, other = area_of(query.predicate), area_of(cached.predicate)
    now_us = context.get("now_us")
    if area is None:
        return {"covered": float(contains(cached.predicate, query.predicate))}
    covered = None if other is None else float(covered_share(*area[:3], *other[:3]))
    window_s = area.window_s(now_us / US_PER_S) if isinstance(now_us, int | float) else None
    return {"box": area.box_km, "window": window_s, "covered": covered}


def _density(artefact: Artefact, values: Mapping[str, float | None]) -> float | None:
    """Return the write rate of a place and hour by the table of an artefact; None: unknown."""
    lat, lon, hour = values["lat"], values["lon"], values["hour"]
    if artefact.density is None or lat is None or lon is None or hour is None:
        return None
    return artefact.density.at(lat, lon, hour)


def _distance_km(values: Mapping[str, float | None]) -> float | None:
    """Return the distance from the place of the cached answer; None: a place is unknown."""
    lat, lon, cached_lat, cached_lon = (values[name] for name in ("lat", "lon", "cached_lat", "cached_lon"))
    if lat is None or lon is None or cached_lat is None or cached_lon is None:
        return None
    return float(distance_km(lat, lon, cached_lat, cached_lon))
