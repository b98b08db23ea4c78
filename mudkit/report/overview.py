"""All reports at once, and a page that leads to those that have run."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from mudkit.files import output_path, staged_file
from mudkit.report.parameters import preset
from mudkit.report.run import headline, run_report
from mudkit.report.schemas import TEMPLATES
from mudkit.report.summary import FILE_NAME, FORMAT, SummaryError, read_summary

_QUESTIONS: Final = {
    "trace_profile": "What does the trace hold, and how clean is it?",
    "cache_policy": "What could a cache on the devices save, and with which policy?",
    "prefetch_sizing": "How many messages should a device have before any is asked for?",
    "propagation": "How much traffic is left when messages of a place are joined?",
    "scoreboard": "Which system fits which task?",
    "reproduce": "Which figures of the papers does mudkit reproduce?",
}
"""Question that each report answers."""


def run_all(
    *,
    named: str = "sample",
    build: str | os.PathLike[str] = "reports/build",
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Run every report with the preset ``named``, and write the page that leads to them.

    A report without such a preset stops all before one has run; a failed one leaves those before it.
    """
    given = {name: preset(name, named) for name in TEMPLATES}
    for name, values in given.items():
        run_report(name, values, build=build, force=force, progress=progress)
    return write_index(build)


@dataclass(frozen=True)
class _Entry:
    """A report that has run."""

    folder: Path
    started: dt.datetime
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the report."""
        return str(self.manifest["report"])

    @property
    def headline(self) -> str:
        """Headline of the run, or that it has none."""
        return str(self.manifest.get("headline", "") or "No headline.")

    def about(self) -> str:
        """Return what it was made of, when, and where it lies."""
        inputs = [str(given["name"]) for given in self.manifest.get("inputs", {}).values()]
        written = f"{self.started.astimezone(dt.UTC):%-d %B %Y, %H:%M} UTC"
        return " · ".join([*inputs, written, f"{self.folder.name}/report.html"])


def write_index(build: str | os.PathLike[str]) -> Path:
    """Write ``index.html``: of each report the newest run, with its question, headline, date and path.

    ``summary.json`` beside it has the headline and the measures of each of them by its name.
    """
    from nbformat.v4 import (
        new_code_cell,  # loading this takes longer than loading mudkit
        new_markdown_cell,
        new_notebook,
        new_output,
    )

    from mudkit.report.html import export_html

    build = output_path(build)
    newest: dict[str, _Entry] = {}
    for file in sorted(build.glob("*/manifest.json")):
        entry = _entry(file)
        if entry and (entry.name not in newest or entry.started >= newest[entry.name].started):
            newest[entry.name] = entry
    listed = [name for name in _QUESTIONS if name in newest]
    listed += sorted(set(newest) - set(listed))
    items = [_item(newest[name]) for name in listed]
    if (build / "book" / "index.html").is_file():
        items.append(
            _link("The chapters", "book/index.html", "All chapters of the course, with their figures.")
        )
    missing = [name for name in TEMPLATES if name not in newest]
    text = "The newest run of each report. Its folder holds the data and a manifest, too."
    if missing:
        text += "\n\nNot run yet: " + ", ".join(f"`mudkit report {name} --preset sample`" for name in missing)
    cells = [new_markdown_cell(f"# Reports\n\n{text}")]
    if items:
        data = {"text/html": f"<ul class='reports'>{''.join(items)}</ul>", "text/plain": ", ".join(listed)}
        cells.insert(1, new_code_cell("", outputs=[new_output("display_data", data)]))
    export_html(new_notebook(cells=cells), build / "index.html", title="Reports")
    with staged_file(build / FILE_NAME) as staging:
        summaries = {name: _summarised(newest[name].folder) for name in listed}
        staging.write_text(
            json.dumps({"format": FORMAT, "reports": summaries}, indent=2) + "\n", encoding="utf-8"
        )
    return build / "index.html"


def _entry(manifest: Path) -> _Entry | None:
    """Return the report of a manifest; None if it is not a report's, or the page is missing."""
    try:
        values = json.loads(manifest.read_text(encoding="utf-8"))
        started = dt.datetime.fromisoformat(values["started"])
        entry = _Entry(manifest.parent, started if started.tzinfo else started.replace(tzinfo=dt.UTC), values)
        entry.name, entry.about()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if (entry.folder / "report.html").is_file() else None


def _summarised(folder: Path) -> dict[str, Any]:
    """Return the folder's name, headline and measures; no measures if it has no summary."""
    try:
        summary = read_summary(folder)
    except SummaryError:
        return {"folder": folder.name, "headline": headline(folder), "measures": []}
    measures = [measure.document() for measure in summary.measures.values()]
    return {"folder": folder.name, "headline": summary.headline, "measures": measures}


def _item(entry: _Entry) -> str:
    """Return the list item of a run, as HTML."""
    compared = entry.name.removeprefix("compare-")
    question = (
        f"What differs between two runs of {compared}?"
        if compared != entry.name
        else _QUESTIONS.get(entry.name, entry.name.replace("_", " "))
    )
    return _link(
        question, f"{entry.folder.name}/report.html", entry.headline, f"{entry.name} · {entry.about()}"
    )


def _link(question: str, path: str, headline: str, about: str = "") -> str:
    """Return a list item with a link, its headline, and a note, as HTML."""
    soft = f"<p class='soft'>{escape(about)}</p>" if about else ""
    return (
        f"<li class='say'><h2><a href='{escape(path)}'>{escape(question)}</a></h2>"
        f"<p>{escape(headline)}</p>{soft}</li>"
    )
