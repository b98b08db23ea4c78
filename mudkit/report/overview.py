"""All reports at once, and a page that leads to those that are there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mudkit.report.parameters import preset
from mudkit.report.run import run_report
from mudkit.report.schemas import TEMPLATES

__all__ = ["run_all", "write_index"]


def run_all(
    *,
    named: str = "sample",
    build: str | os.PathLike[str] = "reports/build",
    force: bool = False,
    progress: bool = True,
) -> Path:
    """Run every report with a preset, and make the page that leads to them.

    Parameters
    ----------
    named : str
        The name of the preset; each report has one of this name.
    build, force, progress
        As for :func:`mudkit.report.run_report`.

    Returns
    -------
    Path
        The overview's ``index.html``.

    Raises
    ------
    InputMissing
        A report has no such preset; none has run then.
    ReportFailed, OutputProblem
        Reports before this one are there, the page is as it was.
    """
    given = {name: preset(name, named) for name in TEMPLATES}
    for name, values in given.items():
        run_report(name, values, build=build, force=force, progress=progress)
    return write_index(build)


def write_index(build: str | os.PathLike[str]) -> Path:
    """Write ``index.html``: of each report in a folder the newest, with what it was made of.

    Raises
    ------
    OutputProblem
    """
    from nbformat.v4 import new_markdown_cell, new_notebook  # loading this takes longer than loading mudkit

    from mudkit.report.html import export_html

    build = Path(build).expanduser()
    newest: dict[str, tuple[str, Path, dict[str, Any]]] = {}
    for file in build.glob("*/manifest.json"):
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            name, started = str(manifest["report"]), str(manifest["started"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no report's
        if (started, file.parent) > newest.get(name, ("", build))[:2] and (
            file.parent / "report.html"
        ).is_file():
            newest[name] = (started, file.parent, manifest)
    lines = ["# Reports", "", "Of each the newest; every folder has its data and a manifest besides.", ""]
    for name, (started, folder, manifest) in sorted(newest.items()):
        made_of = [str(each["name"]) for each in manifest.get("inputs", {}).values()]
        of = f" of {', '.join(made_of)}" if made_of else ""
        lines.append(f"- **[{name}]({folder.name}/report.html)**{of}, {started[:16].replace('T', ' ')} UTC")
    export_html(
        new_notebook(cells=[new_markdown_cell("\n".join(lines))]), build / "index.html", title="Reports"
    )
    return build / "index.html"
