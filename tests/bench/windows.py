"""Work of a processor for each change of 100,000 records: a window of 20 beside all that matches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from compare import compare

from mudkit.systems.mud.tables.selection import Selection

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from mud_changes import WatchedRecords

RECORDS, CHANGES = 100_000, 1000


def measure_rows() -> Iterator[dict[str, object]]:
    """Compare a continuous read with a limit with the same read without."""
    window = WatchedRecords(RECORDS, Selection(None, "n", is_descending=True, limit=20))
    everything = WatchedRecords(RECORDS)
    yield compare(
        f"window of 20 of {RECORDS:,} records, {CHANGES:,} changes",
        lambda: window.take(*window.draw_changes(CHANGES)),
        "the same without a limit",
        lambda: everything.take(*everything.draw_changes(CHANGES)),
    )
