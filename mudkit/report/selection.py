"""The part of a trace that a report is about: the rows of a period for which a predicate holds."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mudkit import words
from mudkit.display import one_line
from mudkit.errors import ParameterError, TraceContentError
from mudkit.predicates import Predicate
from mudkit.trace import Loaded
from mudkit.trace.folder import columns_language, select
from mudkit.trace.schema import POSITIONS, READS
from mudkit.units import zone

_PERIOD: Final = "two ISO dates or times, the earlier first, such as 2008-05-17/2008-05-24"
_PREDICATE_LETTERS: Final = 120


@dataclass(frozen=True)
class Selection:
    """Rows that a report keeps; by default all.

    A predicate names columns of positions: ``device, ts, lat, lon, speed_mps``. If it names only those that
    reads have, too, it selects both tables; with ``speed_mps`` it selects positions, and all reads stay.
    Reads are selected after a rule has derived them, so a hole that a predicate makes starts no trip.

    Attributes
    ----------
    predicate : Predicate or None
    period : (datetime, datetime) or None
        Begin, and end, which does not belong to it.
    written : str
        The period as it was given.
    """

    predicate: Predicate | None = None
    period: tuple[dt.datetime, dt.datetime] | None = None
    written: str = ""

    @classmethod
    def parse(cls, where: str = "", period: str = "", tz: str = "UTC") -> Selection:
        """Read the parameters ``where`` and ``period`` of a report.

        Raises
        ------
        PredicateError
            ``where`` is not a predicate over the columns of positions.
        ParameterError
            ``period`` is no period.
        """
        predicate = Predicate.parse(where, language=columns_language(POSITIONS)) if where.strip() else None
        return cls(predicate, parse_period(period, tz) if period.strip() else None, period.strip())

    def __bool__(self) -> bool:
        return self.predicate is not None or self.period is not None

    def of(self, loaded: Loaded) -> Loaded:
        """Return the rows of a trace that are kept; what was set aside stays as it is."""
        if not self:
            return loaded
        positions = self._rows(loaded.positions, self.predicate)
        return replace(loaded, positions=positions, reads=self.of_reads(loaded.reads))

    def of_reads(self, reads: pa.Table) -> pa.Table:
        """Return the reads that are kept."""
        return self._rows(reads, None if self.missing_in_reads() else self.predicate)

    def describe(self, *, needs_reads: bool = False) -> str:
        """Return what is selected, in words, also whether of reads; empty for all."""
        parts = [f"from {self.written.replace('/', ' to ')}"] if self.period else []
        parts += [f"where {one_line(self.predicate.text, _PREDICATE_LETTERS)}"] if self.predicate else []
        selected = f"only rows {', '.join(parts)}" if parts else ""
        if needs_reads and (missing := self.missing_in_reads()):
            selected += f" (reads have no {words.listing(missing)}: the predicate keeps them all)"
        return selected

    def refuse_empty(self, kept: Counter[str], seen: Counter[str], *, needs_reads: bool) -> None:
        """Raise an error if nothing is left of the positions, or of the reads that are needed."""
        for name in ("positions", "reads") if needs_reads else ("positions",):
            if self and seen[name] and not kept[name]:
                given = [f"period={self.written}"] if self.period else []
                given += [f"where={self.predicate.text}"] if self.predicate else []
                raise TraceContentError(
                    f"The selection leaves no {name.removesuffix('s')}.",
                    where=" and ".join(given),
                    found=f"0 of {seen[name]:,} {name}",
                    expected="at least one",
                    remedy="check the selection; `mudkit trace profile FILE` shows the first and the last "
                    "time, and in a predicate ts is seconds since 1970",
                )

    def _rows(self, table: pa.Table, predicate: Predicate | None) -> pa.Table:
        """Return the rows of the period that a predicate selects; None selects all."""
        if self.period is not None:
            begin, end = (pa.scalar(time, table["ts"].type) for time in self.period)
            is_within = pc.and_(pc.greater_equal(table["ts"], begin), pc.less(table["ts"], end))
            table = table.filter(is_within)
        return table if predicate is None else select(table, predicate)

    def missing_in_reads(self) -> list[str]:
        """Return the columns that the predicate names and reads do not have; then it keeps all reads."""
        named = self.predicate.names()["record"] if self.predicate else set()
        return sorted(named - set(READS.names))


def parse_period(text: str, tz: str) -> tuple[dt.datetime, dt.datetime]:
    """Read a period ``BEGIN/END`` of ISO dates or times; times without a zone are local to ``tz``.

    Raises
    ------
    ParameterError
        The text is no period, or ends before it begins.
    """
    try:
        begin, end = (dt.datetime.fromisoformat(part.strip()) for part in text.split("/"))
    except ValueError:
        raise _no_period(text) from None
    local = zone(tz)
    begin, end = (time if time.tzinfo else time.replace(tzinfo=local) for time in (begin, end))
    if not begin < end:
        raise _no_period(text)
    return begin, end


def _no_period(text: str) -> ParameterError:
    """Return the error for a text that is no period."""
    return ParameterError(
        "This is not a period.",
        where="period",
        found=repr(text),
        expected=_PERIOD,
        remedy="write BEGIN/END; times without a zone are local to tz, and END does not belong to it",
    )
