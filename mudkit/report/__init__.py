"""Reports: a template run with checked parameters, as offline HTML with its data and a manifest."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.report import caching, in_words, propagating, scoring
    from mudkit.report.run import ReportFailed, keep_page, run_report
    from mudkit.report.tables import bounded, keep
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "ReportFailed",
    "bounded",
    "caching",
    "in_words",
    "keep",
    "keep_page",
    "propagating",
    "run_report",
    "scoring",
]
