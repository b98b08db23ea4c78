"""Counts of the rows of a source, and the errors that only all of its rows show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from mudkit.trace.clean import CleanTables, check_moves, check_plausible
from mudkit.trace.formats import Segment
from mudkit.trace.options import LoadPlan
from mudkit.trace.parse import Parsed, check_parsed, parsed_batches

MAX_SAMPLED_FILES = 8
"""Files of a folder that are sampled before Spark starts."""

MIN_DECISIVE_ROWS = 100_000
"""Rows of a sample that decides alone if none of them can be used."""


@dataclass
class Tally:
    """Counts of parsed and cleaned rows; those of the parts of a source add up.

    Attributes
    ----------
    parsed, positions, reads, devices : int
        Rows that could be read; positions, reads and devices with positions after cleaning.
    bad, rejected : Counter
        Rows that could not be read, and rows that cleaning set aside, by reason.
    """

    parsed: int = 0
    positions: int = 0
    reads: int = 0
    devices: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, counts: Mapping[str, Any]) -> Tally:
        """Return the counts of a mapping of the attributes, as JSON keeps it."""
        return cls(**{**counts, "bad": Counter(counts["bad"]), "rejected": Counter(counts["rejected"])})

    @property
    def rows(self) -> int:
        """Number of rows of the source."""
        return self.parsed + self.bad.total()

    @property
    def aside(self) -> dict[str, int]:
        """Number of rows set aside by reason, most frequent first."""
        return dict(sorted((self.bad + self.rejected).items(), key=lambda item: (-item[1], item[0])))

    def add_parsed(self, parsed: Parsed) -> None:
        """Count a parsed batch."""
        self.parsed += len(parsed.good)
        self.bad.update(parsed.bad["reason"].to_pylist())

    def add_cleaned(self, tables: CleanTables) -> None:
        """Count the cleaned rows of whole devices."""
        self.positions += len(tables.positions)
        self.reads += len(tables.reads)
        self.devices += len(tables.positions["device"].unique())
        self.rejected.update(tables.rejected["reason"].to_pylist())

    def add(self, other: Tally) -> None:
        """Add the counts of another part."""
        for name in ("parsed", "positions", "reads", "devices", "bad", "rejected"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def check_parsed(self, plan: LoadPlan, kind: str = "rows") -> None:
        """Raise the errors of :func:`mudkit.trace.parse.check_parsed`."""
        check_parsed(plan, self.rows, self.bad, kind)

    def check_cleaned(self, plan: LoadPlan) -> None:
        """Raise an error if most positions contradict each other, or if no device has more than one."""
        if plan.options.table == "positions":
            check_plausible(plan.source, self.parsed, self.rejected)
            check_moves(plan.source, self.positions, self.devices, self.aside)


def check_source(plan: LoadPlan) -> None:
    """Raise the errors of :func:`mudkit.trace.parse.check_parsed` for the first rows of up to eight files.

    A sample may differ from the rest. Unless it is large and has no usable row, all rows are read before the
    error is raised.
    """
    files = plan.source.files()
    sampled = files[:: -(-len(files) // MAX_SAMPLED_FILES)]
    sample = _count(batch for file in sampled for batch in islice(_batches(plan, [Segment(file)]), 1))
    if sample.rows >= MIN_DECISIVE_ROWS and not sample.parsed:
        sample.check_parsed(plan, "sampled rows")
    elif not sample.rows or 2 * sample.bad.total() > sample.rows:
        _count(_batches(plan)).check_parsed(plan)
    pa.default_memory_pool().release_unused()  # blocks of a large file, which Arrow would keep


def _batches(plan: LoadPlan, parts: Sequence[Segment] | None = None) -> Iterable[Parsed]:
    """Iterate over the batches that hold rows."""
    return (batch for batch in parsed_batches(plan, parts) if len(batch.good) or len(batch.bad))


def _count(batches: Iterable[Parsed]) -> Tally:
    """Count the rows, and the bad ones by reason, of some parsed batches."""
    tally = Tally()
    for parsed in batches:
        tally.add_parsed(parsed)
    return tally
