"""The trace of a report that stays on Spark: opened there, with the same counts as one in memory."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mudkit import words
from mudkit.files import work_folder
from mudkit.report.selection import Selection
from mudkit.report.source import TraceSource, check_reads, count_rows, name_of, no_rows_aside
from mudkit.trace.logs import no_reads
from mudkit.trace.options import Options

if TYPE_CHECKING:
    import pandas as pd


def open_on_spark(
    trace: str,
    reads: str,
    options: Options,
    log_options: Options,
    selection: Selection,
    *,
    needs_reads: bool,
    work: str | os.PathLike[str] | None,
) -> TraceSource:
    """Open the trace of a report on Spark: see :func:`mudkit.report.source.open_source`."""
    from mudkit.pipeline.summaries import open_rows  # it loads Spark

    opened = open_rows(
        trace,
        Path(work) if work is not None else work_folder(),
        options,
        reads=reads,
        log_options=log_options,
        predicate=selection.predicate,
        selects_reads=not selection.missing_in_reads(),
        period=selection.period,
    )
    name = opened.name if isinstance(opened.name, str) else name_of(opened.name)
    source = TraceSource(
        name,
        opened.positions,
        opened.reads,
        no_rows_aside(),
        options.tz,
        aside=opened.aside,
        selected=selection.describe(needs_reads=needs_reads),
        selected_from=opened.seen,
        computed_on=opened.where,
    )
    seen = Counter(opened.seen)
    kept = Counter(positions=source.count, reads=source.read_count if needs_reads else 0)
    selection.refuse_empty(kept, seen, needs_reads=needs_reads)
    aside = source.aside_counts
    is_known = (aside["device"] != "") | (not selection)
    rows = count_rows(
        kept,
        seen,
        selection,
        needs_reads=needs_reads,
        log_aside=opened.log_aside,
        known=_by_reason(aside[is_known]),
        unknown=_by_reason(aside[~is_known]),
        of_others=int(opened.seen["rejected"] - aside["rows"].sum()),
    )
    if needs_reads:
        if not source.read_count:
            raise no_reads(str(reads or trace), words.count(source.count, "position"))
        first_us, last_us = source.read_ends_us
        ends_us = (source.first_us, source.last_us), (first_us, last_us)
        check_reads(*ends_us, source.longest_window_s, reads or trace)
    return source.changed(rows=rows)


def _by_reason(aside: pd.DataFrame) -> dict[str, int]:
    """Sum rows that were set aside by reason."""
    return {str(reason): int(rows) for reason, rows in aside.groupby("reason")["rows"].sum().items()}
