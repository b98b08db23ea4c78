"""Readings of a record's history: which write each operation saw, settled.

Versions settle it mostly. Where a value was written twice, or a version belongs to a write that was never
answered, there are several readings, and a history meets a model when one of them does.

A write that was never answered may have taken effect or not. It did in a reading when something saw it; one
that nothing saw changes nothing, since taking it out of a view leaves the view legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from mudkit.consistency.operation import Operation

__all__ = ["INITIAL", "Reading", "Refused"]

INITIAL: Final = -1
"""Stands for what was there before the first write."""


@dataclass
class Reading:
    """A record's history with everything that was seen settled.

    Parameters
    ----------
    operations : list of Operation
        Those with an effect or an answer, in the order in which they were invoked.
    saw : list of int or None
        The place of the write that each operation saw, or ``INITIAL``; None: it looks at nothing.
    versions : list of int or None
        The versions of the writes that have an effect.
    effective : list of bool
        Which are writes with an effect; a conflict sees, and has none.
    avoids : list of (int, int)
        Conflicts of which it is not known what they found, by place, and the write that they did not find.
    expects : list of (int, int)
        Conflicts, by place, and the write that they expected in vain, if it has an effect: their client knew
        it, so it comes before them.
    """

    operations: list[Operation]
    saw: list[int | None]
    versions: list[int | None]
    effective: list[bool]
    avoids: list[tuple[int, int]] = field(default_factory=list)
    expects: list[tuple[int, int]] = field(default_factory=list)

    @property
    def writes(self) -> list[int]:
        """The places of the writes with an effect."""
        return [place for place, effective in enumerate(self.effective) if effective]


class Refused(Enum):
    """What to do about a write that was refused and that somebody saw all the same."""

    HAS_NO_EFFECT = auto()
    """Nobody can have seen it: the definitions of views."""
    SET_ASIDE = auto()
    """It is left out with what its own client read of it before it knew."""
    IS_A_WRITE = auto()
    """It has a place among the writes like others: the session guarantees, which know no views."""
