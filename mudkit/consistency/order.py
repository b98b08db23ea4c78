"""Which operations must come before which in a view, by time and by version."""

from __future__ import annotations

from typing import Final, NamedTuple

from mudkit.consistency.models import Model
from mudkit.consistency.operation import precedes
from mudkit.consistency.reading import Reading

__all__ = ["BEFORE", "INVOKED", "KNOWN", "REAL_TIME", "VERSION", "Edge", "must_precede"]

KNOWN: Final = "was known to the client of"
BEFORE: Final = "was over before its client invoked"
INVOKED: Final = "was invoked by its client before"
REAL_TIME: Final = "was over before another client invoked"
VERSION: Final = "has an older version than"


class Edge(NamedTuple):
    """One node comes before another, and why; with the two operations by which, if they are others."""

    first: int
    then: int
    why: str
    by: tuple[int, int] | None = None


def must_precede(reading: Reading, model: Model) -> list[int]:
    """Give for each operation those that come before it in every view that has both, as a set of bits.

    Written for the search: it takes a time that grows with the square of the operations.
    """
    operations = reading.operations
    before = [0] * len(operations)
    for then, later in enumerate(operations):
        for first, earlier in enumerate(operations):
            if first == then:
                continue
            versions = reading.versions[first], reading.versions[then]
            if earlier.client == later.client:
                holds = precedes(earlier, later, first < then) or (
                    model.invocation_order and first < then and (earlier.is_write or later.is_write)
                )
            else:
                holds = (
                    model.real_time
                    and earlier.answered_us is not None
                    and earlier.answered_us < later.invoked_us
                )
            if holds or (versions[0] is not None and versions[1] is not None and versions[0] < versions[1]):
                before[then] |= 1 << first
    for place, write in reading.expects:
        before[place] |= 1 << write
    return before
