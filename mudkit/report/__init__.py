"""Reports: a template run with checked parameters, as offline HTML with its data and a manifest."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.report import batching, caching, prefetching, profiling, propagating, scoring
    from mudkit.report.page import Answer, FirstScreen, Measure
    from mudkit.report.run import ReportFailed, headline, run_report, save_page
    from mudkit.report.source import TraceSource, open_source
    from mudkit.report.tables import save_table
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Answer",
    "FirstScreen",
    "Measure",
    "ReportFailed",
    "TraceSource",
    "batching",
    "caching",
    "headline",
    "open_source",
    "prefetching",
    "profiling",
    "propagating",
    "run_report",
    "save_page",
    "save_table",
    "scoring",
]
