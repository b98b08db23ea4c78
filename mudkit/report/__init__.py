"""Reports: a template run with checked parameters, as offline HTML with its data and a manifest."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.report import (
        assuming,
        batching,
        caching,
        joined_early,
        joined_maps,
        joined_messages,
        joined_ways,
        knowing,
        ordering,
        playing,
        prefetch_events,
        prefetching,
        profiling,
        propagating,
        scenario,
        scoring,
    )
    from mudkit.report.comparing import RunComparison, compare_runs
    from mudkit.report.defects import find_defects
    from mudkit.report.page import Answer, FirstScreen, Measure
    from mudkit.report.run import ReportFailed, headline, run_report, save_page
    from mudkit.report.source import TraceSource, open_source
    from mudkit.report.stays import find_stays
    from mudkit.report.summary import Summary, SummaryError, read_summary
    from mudkit.report.tables import FilteredTable, save_cells, save_table
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Answer",
    "FilteredTable",
    "FirstScreen",
    "Measure",
    "ReportFailed",
    "RunComparison",
    "Summary",
    "SummaryError",
    "TraceSource",
    "assuming",
    "batching",
    "caching",
    "compare_runs",
    "find_defects",
    "find_stays",
    "headline",
    "joined_early",
    "joined_maps",
    "joined_messages",
    "joined_ways",
    "knowing",
    "open_source",
    "ordering",
    "playing",
    "prefetch_events",
    "prefetching",
    "profiling",
    "propagating",
    "read_summary",
    "run_report",
    "save_cells",
    "save_page",
    "save_table",
    "scenario",
    "scoring",
]
