"""Reports: a template run with checked parameters, as offline HTML with its data and a manifest."""

from mudkit.report.run import ReportFailed, run_report

__all__ = ["ReportFailed", "run_report"]
