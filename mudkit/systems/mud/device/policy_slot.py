"""Policies that the cloud ships: what a device takes, keeps, falls back to, and decides by (Mobius 6).

Rules:

=========  ===========================================================================================
shipped    whole, for what it decides, and of a higher version: it takes effect, and the one before is
           kept beside it; anything else is refused, and what is in use stays so
restart    what was in use is read again; is it damaged, the one before counts; is that, too, the
           device's own policy
=========  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from mudkit.errors import ParameterError
from mudkit.events import Store
from mudkit.predicates.values import point
from mudkit.systems.mud.policies.artefact import FEATURES, Artefact
from mudkit.systems.mud.policies.policies import NEVER, Asked, Cached, Now, ReadPolicy, WritePolicy
from mudkit.units import US_PER_S, distance_km, solar_time
from mudkit.wire import Fields

__all__ = ["PolicySlot", "ShippedPolicy", "ShippedReads", "ShippedWrites"]

_P = TypeVar("_P", bound=ReadPolicy | WritePolicy, covariant=True)


@dataclass(frozen=True)
class ShippedPolicy(Generic[_P]):
    """Read or write policy that follows the one shipped by the cloud.

    Parameters
    ----------
    until : ReadPolicy or WritePolicy, optional
        What counts until one has come; by default a read's utility decides, and writes go at once.
    """

    until: _P | None = None


class PolicySlot:
    """The artefacts of one kind that a device keeps.

    Parameters
    ----------
    store : Store
    kind : {'read', 'write'}
    """

    def __init__(self, store: Store, kind: Literal["read", "write"]) -> None:
        self._store = store
        self.kind = kind
        self.refused: list[str] = []
        """Why something that came or was kept is not in use."""
        self.in_use = self._kept("in use") or self._kept("before")

    @property
    def version(self) -> int:
        """The version in use; 0: none."""
        return 0 if self.in_use is None else self.in_use.version

    def take(self, document: Fields) -> None:
        """Take what was shipped, if it can be used."""
        try:
            artefact = self._read(document)
            if self.in_use is not None and artefact.document == self.in_use.document:
                return
            if artefact.version <= self.version:
                raise ParameterError(
                    "This policy is not newer than the one in use.",
                    where="version",
                    found=str(artefact.version),
                    expected=f"more than {self.version}",
                )
        except ParameterError as error:
            self.refused.append(str(error))
            return
        if self.in_use is not None:
            self._store.put(f"policy {self.kind} before", self.in_use.document)
        self._store.put(f"policy {self.kind} in use", document)
        self.in_use = artefact

    def describe(self) -> Fields:
        """Say what is in use, and what was not taken."""
        digest = None if self.in_use is None else self.in_use.document["sha256"]
        return {"version": self.version, "sha256": digest, "refused": list(self.refused)}

    def _kept(self, which: str) -> Artefact | None:
        document = self._store.get(f"policy {self.kind} {which}")
        if document is None:
            return None
        try:
            return self._read(document)
        except ParameterError as error:
            self.refused.append(str(error))
            return None

    def _read(self, document: Fields) -> Artefact:
        artefact = Artefact.read(document)
        if artefact.kind != self.kind:
            raise ParameterError(
                "This policy decides something else.", where="kind", found=artefact.kind, expected=self.kind
            )
        return artefact


class ShippedReads:
    """The read policy that a slot holds.

    Parameters
    ----------
    slot : PolicySlot
    until : ReadPolicy or None
    """

    def __init__(self, slot: PolicySlot, until: ReadPolicy | None) -> None:
        self._slot = slot
        self._until = until

    def decide(
        self, query: Asked, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.ReadPolicy`: by the last answer."""
        artefact = self._slot.in_use
        if artefact is None:
            return None if self._until is None else self._until.decide(query, context, cache)
        last = next((each for each in reversed(cache) if each.asked.table == query.table), None)
        if last is None:
            return "remote"
        said = _said(_place(query, context), context, 0.0) | {"age": last.age_s, "held": last.records}
        there = _said(_place(last.asked, last.context), context, last.age_s)
        said |= {f"cached_{name}": there[name] for name in ("lat", "lon", "hour")}
        said |= {"distance": _distance_km(said), "density": _density(artefact, said)}
        where = artefact.decide([said[name] for name in artefact.features])
        return "local" if where == "local" else "remote"


class ShippedWrites:
    """The write policy that a slot holds.

    Parameters
    ----------
    slot : PolicySlot
    until : WritePolicy or None
    """

    def __init__(self, slot: PolicySlot, until: WritePolicy | None) -> None:
        self._slot = slot
        self._until = Now() if until is None else until

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.WritePolicy`."""
        artefact = self._slot.in_use
        if artefact is None:
            return self._until.delay(write, context)
        said = _NOTHING_CACHED | _said(point(context.get("loc")), context, 0.0)
        said["density"] = _density(artefact, said)
        delay = artefact.decide([said[name] for name in artefact.features])
        return NEVER if isinstance(delay, str) else delay


_NOTHING_CACHED: dict[str, float | None] = dict.fromkeys(FEATURES)


def _place(query: Asked, context: Fields) -> tuple[float, float] | None:
    """Tell where somebody asked: where the reader says, or else where the device was."""
    return point(query.reader.get("loc")) or point(context.get("loc"))


def _said(place: tuple[float, float] | None, context: Fields, age_s: float) -> dict[str, float | None]:
    """Say where and when something was, ``age_s`` before now; hours are those of mean solar time."""
    lat, lon = place or (None, None)
    hour = weekday = None
    clock_us, now_us = context.get("clock_us"), context.get("now_us")
    if lon is not None and isinstance(clock_us, int | float) and isinstance(now_us, int | float):
        t_us = clock_us + now_us - round(age_s * US_PER_S)
        hours, weekdays = solar_time(t_us, lon)
        hour, weekday = float(hours), float(weekdays)
    return {"lat": lat, "lon": lon, "hour": hour, "weekday": weekday}


def _density(artefact: Artefact, said: Mapping[str, float | None]) -> float | None:
    lat, lon, hour = said["lat"], said["lon"], said["hour"]
    if artefact.density is None or lat is None or lon is None or hour is None:
        return None
    return artefact.density.at(lat, lon, hour)


def _distance_km(said: Mapping[str, float | None]) -> float | None:
    lat, lon, cached_lat, cached_lon = (said[name] for name in ("lat", "lon", "cached_lat", "cached_lon"))
    if lat is None or lon is None or cached_lat is None or cached_lon is None:
        return None
    return float(distance_km(lat, lon, cached_lat, cached_lon))
