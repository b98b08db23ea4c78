"""The operations of one record, and the readings that its history has.

Each is looked at by its version and its value: the writes that it may have seen are few, mostly one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

from mudkit.consistency.anomaly import REFUSED, Anomaly
from mudkit.consistency.operation import WITHOUT_EFFECT, Content, Kind, Operation, Outcome
from mudkit.consistency.reading import INITIAL, Reading, Refused
from mudkit.consistency.retraction import set_aside

__all__ = ["Record"]


_NONE: Final = -2
"""Stands for no write at all: what would have to be seen was not there."""


_UNWRITTEN: Final = "read without its write"


_NO_MORE: Final = -3


class _Sight(NamedTuple):
    """An operation looks at a write: it saw it, or it is a conflict and expected it in vain."""

    place: int
    is_seen: bool
    content: Content


class Record:
    """A record's history, with the reads that count.

    Parameters
    ----------
    operations : iterable of Operation
        All of one record, in the order in which they were invoked.
    reads : set of str or None
        The types of the reads that count.
    refused : Refused
        What to do about writes that were refused and seen all the same.

    Attributes
    ----------
    anomaly : Anomaly or None
        What makes every reading impossible.
    """

    def __init__(
        self, operations: Iterable[Operation], reads: frozenset[str | None], refused: Refused
    ) -> None:
        self.operations = [
            each
            for each in operations
            if each.is_write or (each.outcome is Outcome.OK and each.type in reads)
        ]
        self.refused = refused
        self._by_version: dict[int, int] = {}
        self._by_value: dict[str | None, list[int]] = {}
        self._unversioned: list[int] = []
        self._choices: list[tuple[list[int], list[_Sight]]] = []
        """Of each thing to be settled: the writes it may be, and who looks at it."""
        self.anomaly = self._index() or self._look()

    def _index(self) -> Anomaly | None:
        for place, each in enumerate(self.operations):
            if not each.is_write:
                continue
            self._by_value.setdefault(each.content.value, []).append(place)
            version = each.content.version
            if each.outcome in WITHOUT_EFFECT:  # whatever it says, it became no version
                continue
            if version is None:
                self._unversioned.append(place)
            elif version in self._by_version:
                twice = self.operations[self._by_version[version]], each
                return Anomaly(
                    "one version twice",
                    twice,
                    f"{twice[0]} and {twice[1]} both became version {version}: the versions are no order.",
                )
            else:
                self._by_version[version] = place
        return None

    def candidates(self, content: Content) -> list[int]:
        """Give the writes that may have left a content, and ``INITIAL`` if nobody need have."""
        value, version = content
        if version is None:
            writes = self._by_value.get(value, [])
            return [INITIAL, *writes] if value is None else list(writes)
        if version == 0:
            return [INITIAL] if value is None else []
        if version in self._by_version:
            place = self._by_version[version]
            known = self.operations[place].content.value
            return [place] if value in (None, known) else []
        return [
            place
            for place in (self._unversioned if value is None else self._by_value.get(value, []))
            if place in self._loose
        ]

    @cached_property
    def _loose(self) -> frozenset[int]:
        """The writes of which no version is known."""
        return frozenset(self._unversioned)

    def _sights(self) -> Iterator[_Sight]:
        for place, each in enumerate(self.operations):
            if each.kind is Kind.READ:
                yield _Sight(place, True, each.content)
            elif each.outcome is Outcome.CONFLICT:
                if each.found is not None:
                    yield _Sight(place, True, each.found)
                if each.expected is not None:
                    yield _Sight(place, False, each.expected)
            elif each.expected is not None and each.outcome is not Outcome.FAILED:
                yield _Sight(place, True, each.expected)

    def _look(self) -> Anomaly | None:
        """Find what each operation may have looked at; one that saw what nobody wrote is an anomaly."""
        shared: dict[int, int] = {}
        sights = list(self._sights())
        for sight in sights:
            if not self._must_see(sight):
                continue
            version = sight.content.version
            writes = [write for write in self.candidates(sight.content) if write != sight.place]
            if version is not None and version in shared:  # a version is of one write, whoever looks at it
                before, seers = self._choices[shared[version]]
                writes = [write for write in before if write in writes]
                self._choices[shared[version]] = writes, [*seers, sight]
            else:
                if version is not None:
                    shared[version] = len(self._choices)
                self._choices.append((writes, [sight]))
            if not writes:
                return self._unwritten(self._choices[-1 if version is None else shared[version]][1])
        for sight in sights:
            if self._must_see(sight):
                continue
            if sight.content.version in shared:
                self._choices[shared[sight.content.version]][1].append(sight)
                continue
            writes = [write for write in self.candidates(sight.content) if write != sight.place]
            is_certain = sight.content.version in (None, 0) or sight.content.version in self._by_version
            self._choices.append((writes if writes and is_certain else [*writes, _NONE], [sight]))
        return None

    def _must_see(self, sight: _Sight) -> bool:
        """Say whether what an operation looks at must have been there."""
        return sight.is_seen and self.operations[sight.place].outcome is not Outcome.PENDING

    def _unwritten(self, sights: list[_Sight]) -> Anomaly:
        each = self.operations[sights[0].place]
        operations = tuple(self.operations[sight.place] for sight in sights)
        if len(operations) > 1 and all(self.candidates(sight.content) for sight in sights):
            return Anomaly(
                "one version twice",
                operations,
                f"Version {sights[0].content.version} was seen with contents that no one write left.",
            )
        kind = "replaced what nobody wrote" if each.outcome is Outcome.OK and each.is_write else _UNWRITTEN
        return Anomaly(kind, operations, f"Nobody wrote what {each} saw: {sights[0].content}.")

    def orphans(self) -> set[int]:
        """Give the operations that saw what nobody wrote, or, never answered, were to replace it."""
        return {
            sight.place
            for sight in self._sights()
            if sight.is_seen and not set(self.candidates(sight.content)) - {sight.place}
        }

    def _fits(self, sight: _Sight, write: int) -> bool:
        return write != sight.place and write in self.candidates(sight.content)

    # -- readings

    def readings(self) -> Iterator[Reading | Anomaly | None]:
        """Give all readings; one that cannot be is an anomaly, and None a choice that leads to none.

        Who has no time to wait for all looks at it whenever there is something.
        """
        for chosen in self._chosen():
            if chosen is None:
                yield None
                continue
            saw: dict[int, int] = {}
            expected: dict[int, int] = {}
            given: dict[int, int] = {}
            for write, (_, sights) in zip(chosen, self._choices, strict=True):
                for sight in sights:
                    known = write if self._is_of(sight, write) else _NONE
                    (saw if sight.is_seen else expected)[sight.place] = known
                    if known in self._loose and sight.content.version is not None:
                        given[known] = sight.content.version
            reading = self._reading(saw, expected, given)
            yield reading
            if isinstance(reading, Reading):
                for some in self._unseen(reading, len(reading.avoids)):
                    yield self._reading(saw, expected, given, some)

    def _chosen(self) -> Iterator[list[int] | None]:
        """Give what may be chosen together, in order; None for each choice that contradicts those before it.

        A write has one version, and a version one write. What contradicts that is left at once: there are
        more ways than can be tried where two dozen versions are of writes that were never answered.
        """
        chosen: list[int] = []
        ways: list[Iterator[int]] = []
        bound: list[int | None] = []
        versions: dict[int, int] = {}
        writes: dict[int, int] = {}
        while True:
            if len(chosen) == len(self._choices):
                yield chosen
            else:
                ways.append(iter(self._choices[len(chosen)][0]))
            while ways:
                if len(chosen) == len(ways):  # that way has been followed to its end
                    write, version = chosen.pop(), bound.pop()
                    if version is not None:
                        del versions[write], writes[version]
                write = next(ways[-1], _NO_MORE)
                if write == _NO_MORE:
                    ways.pop()
                    continue
                version = self._binds(len(chosen), write)
                if version is not None and (write in versions or version in writes):
                    if versions.get(write) != version or writes.get(version) != write:
                        yield None
                        continue
                    version = None
                if version is not None:
                    versions[write], writes[version] = version, write
                chosen.append(write)
                bound.append(version)
                break
            else:
                return

    def _binds(self, place: int, write: int) -> int | None:
        """Give the version that a choice gives to a write of which none is known."""
        sights = self._choices[place][1]
        if write not in self._loose or not any(self._is_of(sight, write) for sight in sights):
            return None
        return sights[0].content.version

    def _is_of(self, sight: _Sight, write: int) -> bool:
        """Say whether an operation looks at a write, if that is what was there."""
        return self._must_see(sight) or self._fits(sight, write)

    def _unseen(self, reading: Reading, most: int) -> Iterator[tuple[int, ...]]:
        """Give writes that nobody saw, by which conflicts may be explained that do not say."""
        there = {each.id for each in reading.operations}
        pending = [
            place
            for place, each in enumerate(self.operations)
            if each.is_write and each.outcome is Outcome.PENDING and each.id not in there
        ]
        for size in range(1, min(most, len(pending)) + 1):
            yield from itertools.combinations(pending, size)

    def _reading(
        self,
        saw: dict[int, int],
        expected: dict[int, int],
        given: dict[int, int],
        unseen: tuple[int, ...] = (),
    ) -> Reading | Anomaly:
        operations = self.operations
        gone = set_aside(operations, saw) if self.refused is Refused.SET_ASIDE else frozenset()
        if isinstance(gone, Anomaly):
            return gone
        effective = {
            place for place, each in enumerate(operations) if each.is_write and each.outcome is Outcome.OK
        } | (set(unseen) - gone)
        seeing = [
            place
            for place in saw
            if place not in gone and (place in effective or operations[place].outcome is not Outcome.PENDING)
        ]
        is_lenient = self.refused is Refused.IS_A_WRITE
        for place in seeing:
            write = saw[place]
            has_effect = write == INITIAL or (
                write != _NONE and write not in gone and operations[write].outcome not in WITHOUT_EFFECT
            )
            if not is_lenient and not has_effect:
                return self._no_effect(place, write)
            if write >= 0 and write not in effective:  # seen, so it took effect
                effective.add(write)
                if write in saw:
                    seeing.append(write)
        for place, write in expected.items():
            is_there = write == INITIAL or write in effective
            if is_there and saw.get(place) == write and not is_lenient and place not in gone:
                return self._false(place, write)
        return self._numbered(saw, expected, given, effective, gone)

    def _no_effect(self, place: int, write: int) -> Anomaly:
        each = self.operations[place]
        if write == _NONE:
            return Anomaly("replaced what nobody wrote", (each,), f"Nobody wrote what {each} was to replace.")
        other = self.operations[write]
        return Anomaly(
            REFUSED,
            (other, each),
            f"{each} saw what {other} wrote, and that write was refused: as an operation of the record it "
            "has no effect, so no view in which it stands lets anybody see it.",
        )

    def _false(self, place: int, write: int) -> Anomaly:
        each = self.operations[place]
        others = () if write == INITIAL else (self.operations[write],)
        return Anomaly(
            "false conflict", (*others, each), f"{each} was refused although it found what it expected."
        )

    def _numbered(
        self,
        saw: dict[int, int],
        expected: dict[int, int],
        given: dict[int, int],
        effective: set[int],
        gone: frozenset[int],
    ) -> Reading:
        """Leave out what has no effect and no answer, and number the rest."""
        avoiding = {
            place: write
            for place, write in expected.items()
            if place not in saw and place not in gone and (write == INITIAL or write in effective)
        }
        kept = [
            place
            for place, each in enumerate(self.operations)
            if place in effective or (place not in gone and each.outcome is not Outcome.PENDING)
        ]
        new = {INITIAL: INITIAL, _NONE: INITIAL} | {place: number for number, place in enumerate(kept)}
        reading = Reading([], [], [], [])
        for place in kept:
            each = self.operations[place]
            version = each.content.version
            is_effective = place in effective
            reading.operations.append(each)
            reading.saw.append(new[saw[place]] if place in saw else None)
            reading.effective.append(is_effective)
            reading.versions.append(
                (given.get(place) if version is None else version) if is_effective else None
            )
        reading.avoids.extend((new[place], new[write]) for place, write in avoiding.items())
        reading.expects.extend(
            (new[place], new[write])
            for place, write in expected.items()
            if place not in gone and write in effective
        )
        return reading
