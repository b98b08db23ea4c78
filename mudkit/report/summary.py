"""The summary of a report: headline and figures of its first screen, as ``summary.json`` holds them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows
from mudkit.errors import MudkitError, did_you_mean
from mudkit.files import existing_path
from mudkit.report.page import Measure

FILE_NAME: Final = "summary.json"
FORMAT: Final = 1
_PART: Final = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_PART}(\.{_PART})*")
"""Names of measures: snake_case; a dot separates the case that one of several measures is of."""


class SummaryError(MudkitError, ValueError):
    """A folder has no summary of a report that this version of mudkit can read."""


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Summary(Displayed):
    """Headline and measures of a report that has run.

    Attributes
    ----------
    folder : Path
        Folder of the report.
    report : str
        Name of the report, for instance ``cache_policy``.
    headline : str
        Recommendation or finding in a sentence; empty without one.
    measures : mapping of str to Measure
        Measures by name, in the order of the page.
    manifest : mapping
        Parameters, inputs, versions and start of the run; empty if its manifest is missing.

    Examples
    --------
    >>> read_summary("reports/build/cache_policy-20260301T101500Z")["sent_share"].value  # doctest: +SKIP
    0.41
    """

    folder: Path
    report: str
    headline: str
    measures: Mapping[str, Measure]
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Measure:
        """Return a measure by name.

        Raises
        ------
        SummaryError
            There is no such measure.
        """
        if name not in self.measures:
            raise SummaryError(
                f"The report {self.report} has no measure {name!r}.",
                where=str(self.folder / FILE_NAME),
                found=repr(name),
                expected=", ".join(self.measures) or "no name: this report has no measures",
                remedy=did_you_mean(name, self.measures, "docs/guides/reports.md lists the measures"),
            )
        return self.measures[name]

    def _view(self) -> View:
        rows = [
            (measure.name, measure.value, measure.low, measure.high, measure.unit)
            for measure in self.measures.values()
        ]
        table = first_rows(("measure", "value", "low", "high", "unit"), rows, len(rows))
        return View("Summary", {"report": self.report, "headline": self.headline}, [table])


def write_summary(folder: Path, report: str, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``: ``headline`` and ``measures`` as the first screen gives them."""
    document = {"format": FORMAT, "report": report, **summary}
    (folder / FILE_NAME).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


@check_arguments(types=False)
def read_summary(folder: str | os.PathLike[str]) -> Summary:
    """Read the summary of a report that has run.

    Parameters
    ----------
    folder : path-like
        Folder of the report, or its ``summary.json``.

    Returns
    -------
    Summary

    Raises
    ------
    InputMissing
        There is no such folder.
    SummaryError
        The folder is not that of a finished report, its report was made before there were summaries, or the
        file is damaged or of a newer version.
    """
    place = existing_path(folder, "folder of a report")
    place = place.parent if place.is_file() and place.name == FILE_NAME else place
    file = place / FILE_NAME
    if not file.is_file():
        manifest = _manifest(place)
        raise SummaryError(
            "This report was made before there were summaries."
            if manifest
            else "This is not the folder of a finished report.",
            where=str(place),
            found=f"a report of mudkit {manifest.get('versions', {}).get('mudkit', 'of an unknown version')}"
            if manifest
            else ("a file" if place.is_file() else "no summary.json"),
            expected=f"a folder with {FILE_NAME}, such as reports/build/cache_policy-20260301T101500Z",
            remedy="run the report again, with the command at the end of its page"
            if manifest
            else "name the folder that `mudkit report` prints; if its name ends in .failed, the run failed",
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(file, f"{type(document).__name__} instead of an object")
    version = document.get("format")
    if version != FORMAT:
        is_newer = isinstance(version, int) and version > FORMAT
        raise SummaryError(
            "This summary was written by a newer version of mudkit."
            if is_newer
            else "This is not a summary that mudkit wrote.",
            where=str(file),
            found=f"format {version!r}",
            expected=f"format {FORMAT}",
            remedy="install that version, or run the report again with this one",
        )
    if "reports" in document:
        raise SummaryError(
            "This is the summary of several reports.",
            where=str(file),
            found=", ".join(map(str, document["reports"])),
            expected="the folder of one report",
            remedy="name one of the folders in it",
        )
    texts = {name: document.get(name) for name in ("report", "headline")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise _damaged(file, f"{name}: {value!r}")
    if not isinstance(document.get("measures"), list):
        raise _damaged(file, f"measures: {document.get('measures')!r}")
    measures: dict[str, Measure] = {}
    for given in document["measures"]:
        measure = _measure(given, file)
        if measure.name in measures:
            raise _damaged(file, f"two measures named {measure.name!r}")
        measures[measure.name] = measure
    return Summary(place, str(texts["report"]), str(texts["headline"]), measures, _manifest(place))


def _measure(given: Any, file: Path) -> Measure:
    """Check an entry of a summary, and return the measure; raise SummaryError if it is damaged."""
    if not isinstance(given, dict):
        raise _damaged(file, f"the measure {given!r}")
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _damaged(file, f"a measure named {name!r}")
    if missing := {"value", "unit", "definition"} - given.keys():
        raise _damaged(file, f"no {', '.join(sorted(missing))} of {name}")
    for text in ("unit", "definition"):
        if not isinstance(given[text], str):
            raise _damaged(file, f"{text} of {name}: {given[text]!r}")
    for number in ("value", "low", "high"):
        value = given.get(number)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not (value is None or is_number or (number == "value" and isinstance(value, str))):
            raise _damaged(file, f"{number} of {name}: {value!r}")
    known = {declared.name for declared in fields(Measure)}  # a later version may tell more
    return Measure(**{key: value for key, value in given.items() if key in known})


def _manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a report; empty if there is none that can be read."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("report"), str) else {}


def _damaged(file: Path, found: str) -> SummaryError:
    """Return the error for a damaged summary."""
    return SummaryError(
        "The summary of a report is damaged.",
        where=str(file),
        found=found[:200],
        expected="the file as mudkit wrote it",
        remedy="run the report again, with the command at the end of its page",
    )
