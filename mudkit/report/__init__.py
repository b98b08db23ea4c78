"""Reports: a template run with checked parameters, as offline HTML with its data and a manifest."""

from mudkit.report.run import ReportFailed, keep_page, run_report

__all__ = ["ReportFailed", "keep_page", "run_report"]
