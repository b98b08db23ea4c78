"""Readings of a record's history: which write each operation saw.

Versions mostly determine it. Where a value was written twice, or a version belongs to a write that was never
answered, there are several readings, and a history satisfies a model if one of them does.

A write that was never answered may have taken effect or not. In a reading it did if some operation saw it; an
unseen one changes nothing, since removing it from a view leaves the view legal.

Rejected writes that were seen violate definition 3 of Mobius's appendix A, yet its protocol produces them: an
uncommitted read returns the client's own pending write (4.2), which may be rejected later. Only this client
has seen it, only until the rejection, and until then its reads did not fall back behind it. A model that
retracts removes the write and the reads of it, and checks the rest (:func:`set_aside`).

A blind write that was never sent may be absorbed by a later one of its client: both are answered at once with
one version. The earlier one comes directly before the later one, so that nobody sees it but its own client's
uncommitted reads: it has no version in a reading, and is left out where nobody saw it, which changes nothing.

A device that is restored from a backup reads again what is pending there, until that is rejected again. In a
history it is another client after the restore, which makes these writes again at the time of the restore.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final, NamedTuple

from mudkit.checks import check_arguments
from mudkit.consistency.history import History
from mudkit.consistency.operation import WITHOUT_EFFECT, Content, Kind, Operation, Outcome, precedes

INITIAL: Final = -1
"""Index of the initial content, before the first write."""


@dataclass
class Reading:
    """History of a record in which every observation is resolved to a write; operations are known by index.

    Attributes
    ----------
    operations : list of Operation
        Operations with an effect or an answer, in the order in which they were invoked.
    saw : list of int or None
        The write that each operation saw, or ``INITIAL``; ``None``: it observes nothing.
    versions : list of int or None
        Versions of the writes that have an effect.
    effective : list of bool
        True for writes with an effect; a conflict observes but has none.
    avoids : list of (int, int)
        Conflicts for which the content found is unknown, and the write that they did not find.
    expects : list of (int, int)
        Conflicts, and the write that they expected in vain, if it has an effect: their client knew it, so it
        comes before them.
    """

    operations: list[Operation]
    saw: list[int | None]
    versions: list[int | None]
    effective: list[bool]
    avoids: list[tuple[int, int]] = field(default_factory=list)
    expects: list[tuple[int, int]] = field(default_factory=list)

    @property
    def writes(self) -> list[int]:
        """Indices of the writes with an effect."""
        return [place for place, effective in enumerate(self.effective) if effective]


class Refused(Enum):
    """Treatment of a rejected write that an operation saw."""

    HAS_NO_EFFECT = auto()
    """It cannot have been seen: the definitions of views."""
    SET_ASIDE = auto()
    """It is removed together with what its own client read of it before the rejection."""
    IS_A_WRITE = auto()
    """It is a write like others: the session guarantees, which have no views."""


REFUSED: Final = "saw a refused write"
"""Kind of the anomaly of a rejected write that was seen: it has no effect."""


@dataclass(frozen=True)
class Anomaly:
    """Observation that no view can contain."""

    kind: str
    operations: tuple[Operation, ...]
    words: str


_NO_WRITE: Final = -2
"""Index for no write at all: the content to be observed did not exist."""


_UNWRITTEN: Final = "read without its write"


_EXHAUSTED: Final = -3


class _Sight(NamedTuple):
    """Observation of a write: an operation saw it, or is a conflict and expected it in vain."""

    place: int
    is_seen: bool
    content: Content


class Record:
    """History of one record, in the order of invocation, with the reads of some types.

    Attributes
    ----------
    anomaly : Anomaly or None
        Observation that makes every reading impossible.
    """

    def __init__(
        self, operations: Iterable[Operation], reads: frozenset[str | None], refused: Refused
    ) -> None:
        self.operations = _without_versions_of_absorbed(
            [
                operation
                for operation in operations
                if operation.is_write or (operation.outcome is Outcome.OK and operation.type in reads)
            ]
        )
        self.refused = refused
        self._by_version: dict[int, int] = {}
        self._by_value: dict[str | None, list[int]] = {}
        self._unversioned: list[int] = []
        self._choices: list[tuple[list[int], list[_Sight]]] = []
        """For each write to be determined: the possible writes, and the observations of it."""
        self.anomaly = self._build_index() or self._find_choices()

    def _build_index(self) -> Anomaly | None:
        """Index the writes by value and by version.

        Return an anomaly if two have the same version, else None.
        """
        for place, operation in enumerate(self.operations):
            if not operation.is_write:
                continue
            self._by_value.setdefault(operation.content.value, []).append(place)
            version = operation.content.version
            if operation.outcome in WITHOUT_EFFECT:  # its version is not valid
                continue
            if version is None:
                self._unversioned.append(place)
            elif version in self._by_version:
                twice = self.operations[self._by_version[version]], operation
                return Anomaly(
                    "one version twice",
                    twice,
                    f"{twice[0]} and {twice[1]} both became version {version}, so versions give no order.",
                )
            else:
                self._by_version[version] = place
        return None

    def candidates(self, content: Content) -> list[int]:
        """Return the writes that may have left a content, and ``INITIAL`` if it may be the initial one."""
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
            if place in self._unknown_version
        ]

    @cached_property
    def _unknown_version(self) -> frozenset[int]:
        """Writes without a known version."""
        return frozenset(self._unversioned)

    def _sights(self) -> Iterator[_Sight]:
        """Yield what operations saw, or expected in vain, in the order of the operations."""
        for place, operation in enumerate(self.operations):
            if operation.kind is Kind.READ:
                yield _Sight(place, True, operation.content)
            elif operation.outcome is Outcome.CONFLICT:
                if operation.actual is not None:
                    yield _Sight(place, True, operation.actual)
                if operation.expected is not None:
                    yield _Sight(place, False, operation.expected)
            elif operation.expected is not None and operation.outcome is not Outcome.FAILED:
                yield _Sight(place, True, operation.expected)

    def _find_choices(self) -> Anomaly | None:
        """Find for each observation the writes that it may be of; return an anomaly if one has none."""
        shared: dict[int, int] = {}
        sights = list(self._sights())
        for sight in sights:
            if not self._must_see(sight):
                continue
            version = sight.content.version
            writes = [write for write in self.candidates(sight.content) if write != sight.place]
            if version is not None and version in shared:  # all observations of a version are of one write
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
            self._choices.append((writes if writes and is_certain else [*writes, _NO_WRITE], [sight]))
        return None

    def _must_see(self, sight: _Sight) -> bool:
        """Return whether the observed content must have existed."""
        return sight.is_seen and self.operations[sight.place].outcome is not Outcome.PENDING

    def _unwritten(self, sights: list[_Sight]) -> Anomaly:
        """Return the anomaly of observations that no write explains."""
        operation = self.operations[sights[0].place]
        operations = tuple(self.operations[sight.place] for sight in sights)
        if len(operations) > 1 and all(self.candidates(sight.content) for sight in sights):
            return Anomaly(
                "one version twice",
                operations,
                f"Version {sights[0].content.version} was seen with contents that no single write left.",
            )
        kind = (
            "replaced what nobody wrote"
            if operation.outcome is Outcome.OK and operation.is_write
            else _UNWRITTEN
        )
        return Anomaly(kind, operations, f"Nobody wrote what {operation} saw: {sights[0].content}.")

    def orphans(self) -> set[int]:
        """Return the operations that saw, or were to replace, what was never written."""
        return {
            sight.place
            for sight in self._sights()
            if sight.is_seen and not set(self.candidates(sight.content)) - {sight.place}
        }

    def _fits(self, sight: _Sight, write: int) -> bool:
        """Return whether an observation may be of a write, which is not its own."""
        return write != sight.place and write in self.candidates(sight.content)

    def readings(self) -> Iterator[Reading | Anomaly | None]:
        """Yield all readings, an anomaly for an impossible one, and None for a choice that leads to none.

        The caller checks its time budget at every item.
        """
        for chosen in self._choice_combinations():
            if chosen is None:
                yield None
                continue
            saw: dict[int, int] = {}
            expected: dict[int, int] = {}
            given: dict[int, int] = {}
            for write, (_, sights) in zip(chosen, self._choices, strict=True):
                for sight in sights:
                    known = write if self._refers_to(sight, write) else _NO_WRITE
                    (saw if sight.is_seen else expected)[sight.place] = known
                    if known in self._unknown_version and sight.content.version is not None:
                        given[known] = sight.content.version
            reading = self._reading(saw, expected, given)
            yield reading
            if isinstance(reading, Reading):
                for some in self._unseen_writes(reading, len(reading.avoids)):
                    yield self._reading(saw, expected, given, some)

    def _choice_combinations(self) -> Iterator[list[int] | None]:
        """Yield combinations of choices in order; None for each choice that contradicts those before it.

        A write has one version, and a version one write. Contradictions are pruned at once: with two dozen
        versions of writes that were never answered there are too many combinations to try.
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
                if len(chosen) == len(ways):  # this combination is done
                    write, version = chosen.pop(), bound.pop()
                    if version is not None:
                        del versions[write], writes[version]
                write = next(ways[-1], _EXHAUSTED)
                if write == _EXHAUSTED:
                    ways.pop()
                    continue
                version = self._implied_version(len(chosen), write)
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

    def _implied_version(self, place: int, write: int) -> int | None:
        """Return the version that a choice implies for a write of unknown version.

        None if it implies none.
        """
        sights = self._choices[place][1]
        if write not in self._unknown_version or not any(self._refers_to(sight, write) for sight in sights):
            return None
        return sights[0].content.version

    def _refers_to(self, sight: _Sight, write: int) -> bool:
        """Return whether an observation refers to a write, if that is what it found."""
        return self._must_see(sight) or self._fits(sight, write)

    def _unseen_writes(self, reading: Reading, most: int) -> Iterator[tuple[int, ...]]:
        """Yield sets of unseen writes that may explain conflicts without a found content."""
        present = {operation.id for operation in reading.operations}
        pending = [
            place
            for place, operation in enumerate(self.operations)
            if operation.is_write and operation.outcome is Outcome.PENDING and operation.id not in present
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
        """Return the reading in which each operation saw the given write, or the anomaly that it has."""
        operations = self.operations
        removed = set_aside(operations, saw) if self.refused is Refused.SET_ASIDE else frozenset()
        if isinstance(removed, Anomaly):
            return removed
        effective = {
            place
            for place, operation in enumerate(operations)
            if operation.is_write and operation.outcome is Outcome.OK
        } | (set(unseen) - removed)
        seeing = [
            place
            for place in saw
            if place not in removed
            and (place in effective or operations[place].outcome is not Outcome.PENDING)
        ]
        is_lenient = self.refused is Refused.IS_A_WRITE
        for place in seeing:
            write = saw[place]
            has_effect = write == INITIAL or (
                write != _NO_WRITE
                and write not in removed
                and operations[write].outcome not in WITHOUT_EFFECT
            )
            if not is_lenient and not has_effect:
                return self._effectless_anomaly(place, write)
            if write >= 0 and write not in effective:  # it was seen, so it took effect
                effective.add(write)
                if write in saw:
                    seeing.append(write)
        for place, write in expected.items():
            has_effect = write == INITIAL or write in effective
            if has_effect and saw.get(place) == write and not is_lenient and place not in removed:
                return self._false_conflict(place, write)
        return self._renumbered(saw, expected, given, effective, removed)

    def _effectless_anomaly(self, place: int, write: int) -> Anomaly:
        """Return the anomaly of seeing a write without effect, or none at all."""
        operation = self.operations[place]
        if write == _NO_WRITE:
            return Anomaly(
                "replaced what nobody wrote", (operation,), f"Nobody wrote what {operation} was to replace."
            )
        other = self.operations[write]
        return Anomaly(
            REFUSED,
            (other, operation),
            f"{operation} saw what {other} wrote, which was refused: it has no effect on the "
            "record, so no operation of a view can see it.",
        )

    def _false_conflict(self, place: int, write: int) -> Anomaly:
        """Return the anomaly of a conflict that found what it expected."""
        operation = self.operations[place]
        others = () if write == INITIAL else (self.operations[write],)
        return Anomaly(
            "false conflict",
            (*others, operation),
            f"{operation} was refused although it found what it expected.",
        )

    def _renumbered(
        self,
        saw: dict[int, int],
        expected: dict[int, int],
        given: dict[int, int],
        effective: set[int],
        removed: frozenset[int],
    ) -> Reading:
        """Return the reading without operations that have neither effect nor answer."""
        avoiding = {
            place: write
            for place, write in expected.items()
            if place not in saw and place not in removed and (write == INITIAL or write in effective)
        }
        kept = [
            place
            for place, operation in enumerate(self.operations)
            if place in effective or (place not in removed and operation.outcome is not Outcome.PENDING)
        ]
        new = {INITIAL: INITIAL, _NO_WRITE: INITIAL} | {place: number for number, place in enumerate(kept)}
        reading = Reading([], [], [], [])
        for place in kept:
            operation = self.operations[place]
            version = operation.content.version
            is_effective = place in effective
            reading.operations.append(operation)
            reading.saw.append(new[saw[place]] if place in saw else None)
            reading.effective.append(is_effective)
            reading.versions.append(
                (given.get(place) if version is None else version) if is_effective else None
            )
        reading.avoids.extend((new[place], new[write]) for place, write in avoiding.items())
        reading.expects.extend(
            (new[place], new[write])
            for place, write in expected.items()
            if place not in removed and write in effective
        )
        return reading


def _without_versions_of_absorbed(operations: Sequence[Operation]) -> list[Operation]:
    """Return operations in which absorbed writes have no version; those that nobody saw are left out."""
    last: dict[tuple[str, int | None, int | None], int] = {}
    earlier: set[int] = set()
    for place, operation in enumerate(operations):
        content = operation.content
        if operation.outcome is Outcome.OK and operation.type == "blind" and content.version is not None:
            answer = operation.client, content.version, operation.answered_us
            if answer in last:
                earlier.add(last[answer])
            last[answer] = place
    if not earlier:
        return list(operations)
    seen = {
        (operation.client, operation.content.value)
        for operation in operations
        if operation.kind is Kind.READ and operation.content.version is None
    }
    kept: list[Operation] = []
    for place, operation in enumerate(operations):
        if place not in earlier:
            kept.append(operation)
        elif (operation.client, operation.content.value) in seen:
            kept.append(replace(operation, content=Content(operation.content.value)))
    return kept


def set_aside(operations: Sequence[Operation], saw: Mapping[int, int]) -> frozenset[int] | Anomaly:
    """Return the rejected writes that were seen, and the reads of them by their own clients before that.

    A write that was never answered and was to replace one of them cannot have taken effect either.
    """
    rejected = {place for place, operation in enumerate(operations) if operation.outcome in WITHOUT_EFFECT}
    has_grown = True
    while has_grown:
        has_grown = False
        for place, write in saw.items():
            operation = operations[place]
            if (
                write in rejected
                and place not in rejected
                and operation.outcome is Outcome.PENDING
                and operation.client == operations[write].client
            ):
                rejected.add(place)
                has_grown = True
    removed: set[int] = set()
    first: dict[tuple[int, str | None], int] = {}
    for place, write in saw.items():
        operation = operations[place]
        if operation.kind is not Kind.READ or write not in rejected:
            continue
        other = operations[write]
        is_own = (
            operation.client == other.client and operation.content.version is None
        )  # a rejected write has no version
        if (
            not is_own
            or precedes(other, operation, write < place)
            or precedes(operation, other, place < write)
        ):
            return _seen_too_far(operation, other)
        before = operations[first.setdefault((write, operation.type), place)]
        if (operation.answered_us or 0) < (before.answered_us or 0):
            first[write, operation.type] = place
        removed |= {place, write}
    for place in first.values():  # later reads of the write follow the read answered first
        anomaly = _read_back(operations, place, saw)
        if anomaly is not None:
            return anomaly
    return frozenset(removed)


def _seen_too_far(operation: Operation, other: Operation) -> Anomaly:
    """Return the anomaly of seeing a refused write other than from its own client while it waited."""
    how = "not while its own client was waiting for the answer"
    return Anomaly(
        REFUSED, (other, operation), f"{operation} saw what {other} wrote, which was refused, {how}."
    )


def _read_back(operations: Sequence[Operation], place: int, saw: Mapping[int, int]) -> Anomaly | None:
    """Return the anomaly of a later read of the client that returned something older; or None.

    Only reads before the rejection count.
    """
    read, write = operations[place], saw[place]
    until_us = operations[write].answered_us
    for later, seen in saw.items():
        operation = operations[later]
        if (
            operation.kind is Kind.READ
            and operation.client == read.client
            and operation.type == read.type
            and precedes(read, operation, place < later)
            and operation.answered_us is not None
            and (until_us is None or operation.answered_us < until_us)
            and (seen < write or operations[seen].client != read.client)
        ):
            return Anomaly(
                "pending write lost",
                (operations[write], read, operation),
                f"{operation} no longer returned the pending write that {read} had returned, before it was "
                "refused.",
            )
    return None


@check_arguments(types=False)
def seen_writes(history: History) -> dict[tuple[str, int, str], Operation]:
    """Return the write that each operation observed, by operation id: returned by a read, or replaced.

    Operations are missing if they saw the initial content, what was never written, or what several writes may
    have left.

    Parameters
    ----------
    history : History
        Any history.
    """
    seen: dict[tuple[str, int, str], Operation] = {}
    for part in history.records.values():
        types = frozenset(operation.type for operation in part if not operation.is_write)
        record = Record(part, types, Refused.IS_A_WRITE)
        for place, operation in enumerate(record.operations):
            content = operation.content if not operation.is_write else operation.expected
            if operation.outcome is Outcome.CONFLICT:
                content = operation.actual
            if content is None:
                continue
            writes = set(record.candidates(content)) - {place}
            if len(writes) == 1 and min(writes) >= 0:
                seen[operation.id] = record.operations[min(writes)]
    return seen
