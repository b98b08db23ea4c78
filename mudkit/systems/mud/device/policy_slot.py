"""Shipped policies on a device: acceptance, storage, fallback, and evaluation (Mobius 6).

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
from mudkit.predicates.values import point
from mudkit.systems.mud.policies.artefact import FEATURES, OWN, Artefact
from mudkit.systems.mud.policies.policies import NEVER, Cached, ReadPolicy, WritePolicy
from mudkit.systems.mud.policies.utility import Query
from mudkit.units import US_PER_S, distance_km, solar_time
from mudkit.wire import Fields

_P = TypeVar("_P", bound=ReadPolicy | WritePolicy, covariant=True)


@check_arguments(types=False)
@dataclass(frozen=True)
class ShippedPolicy(Generic[_P]):
    """Read or write policy that follows the one shipped by the cloud.

    Parameters
    ----------
    fallback : ReadPolicy or WritePolicy, optional
        Policy until the first one arrives; by default the utility of a read or write decides.
    """

    fallback: _P | None = None


class PolicySlot:
    """Shipped artefacts of one kind on a device: the one in use, and durably the one before."""

    def __init__(self, store: Store, kind: Literal["read", "write"]) -> None:
        self._store = store
        self.kind = kind
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
                self._store.put(f"policy {self.kind} before", self.in_use.document)
            self._store.put(f"policy {self.kind} in use", document)
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
        document = self._store.get(f"policy {self.kind} {which}")
        if document is None:
            return None
        try:
            return self._check_artefact(document)
        except ParameterError as error:
            self.refused.append(str(error))
            return None

    def _check_artefact(self, document: Fields) -> Artefact:
        """Return the artefact of a document; raise ParameterError if it is malformed or of another kind."""
        artefact = Artefact.from_document(document)
        if artefact.kind != self.kind:
            raise ParameterError(
                "The policy is of another kind.", where="kind", found=artefact.kind, expected=self.kind
            )
        return artefact


class ShippedReads:
    """Read policy that evaluates the artefact in a slot; ``until`` decides before there is one.

    It also decides what the artefact leaves to the device's own policy.
    """

    def __init__(self, slot: PolicySlot, until: ReadPolicy | None) -> None:
        self._slot = slot
        self._until = until

    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.ReadPolicy`; based on the table's last answer."""
        artefact = self._slot.in_use
        if artefact is None or artefact.root == OWN:
            return self._decide_alone(query, context, cache)
        last = next((cached for cached in reversed(cache) if cached.query.table == query.table), None)
        if last is None:
            return "remote"
        values = _features(_place_of_query(query, context), context, 0.0) | {
            "age": last.age_s,
            "held": last.records,
        }
        cached = _features(_place_of_query(last.query, last.context), context, last.age_s)
        values |= {f"cached_{name}": cached[name] for name in ("lat", "lon", "hour")}
        values |= {"distance": _distance_km(values), "density": _density(artefact, values)}
        where = artefact.decide([values[name] for name in artefact.features])
        if where == OWN:
            return self._decide_alone(query, context, cache)
        return "local" if where == "local" else "remote"

    def _decide_alone(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """Decide by the device's own policy; None: the utility of the read does."""
        return None if self._until is None else self._until.decide(query, context, cache)


class ShippedWrites:
    """Write policy that evaluates the artefact in a slot; ``until`` decides before there is one."""

    def __init__(self, slot: PolicySlot, until: WritePolicy) -> None:
        self._slot = slot
        self._until = until

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.WritePolicy`."""
        artefact = self._slot.in_use
        if artefact is None:
            return self._until.delay(write, context)
        values = _NOTHING_CACHED | _features(point(context.get("loc")), context, 0.0)
        values["density"] = _density(artefact, values)
        delay = artefact.decide([values[name] for name in artefact.features])
        return NEVER if isinstance(delay, str) else delay


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
