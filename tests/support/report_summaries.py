"""Summaries of reports: finished runs that are written by hand, and what must hold of all of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mudkit.report import Measure, Summary
from mudkit.report.page import UNITS
from mudkit.report.parameters import check
from mudkit.report.summary import write_summary
from mudkit.report.tables import save_table

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "reports.md"


def write_run(
    build: Path,
    report: str,
    measures: Sequence[Measure],
    *,
    name: str = "20260301T101500Z",
    headline: str = "Keep the rule.",
    version: str = "0.3.0",
    sha256: str = "a" * 64,
    cells: Sequence[tuple[float, float]] = ((37.7, -122.4), (37.8, -122.5)),
    **parameters: Any,
) -> Path:
    """Write the folder of a finished run without page: summary, manifest, and the cells of a map."""
    folder = build / f"{report}-{name}"
    (folder / "data").mkdir(parents=True)
    values = check(report, {"trace": "cabs.csv"} | parameters)
    inputs = {"trace": {"name": Path(values["trace"]).name, "sha256": sha256}}
    manifest = {
        "report": report,
        "parameters": values,
        "inputs": inputs,
        "template_sha256": "b" * 64,
        "versions": {"python": "3.11.7", "mudkit": version},
        "headline": headline,
        "started": "2026-03-01T10:15:00+00:00",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    write_summary(
        folder, report, {"headline": headline, "measures": [measure.document() for measure in measures]}
    )
    if cells:
        save_table(pd.DataFrame(cells, columns=["lat", "lon"]), "cells", folder / "data")
    return folder


def assert_valid(summary: Summary) -> None:
    """Check names, units, ranges and intervals of the measures of a run."""
    assert summary.headline.endswith("."), summary.headline
    for name, measure in summary.measures.items():
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name), name
        assert measure.unit in UNITS, (name, measure.unit)
        assert measure.definition.endswith("."), name
        assert len(measure.definition) <= 300, name
        if isinstance(measure.value, str):
            assert measure.unit == "", name
            assert measure.value, name
        ends = [end for end in (measure.low, measure.value, measure.high) if isinstance(end, int | float)]
        assert ends == sorted(ends), (name, ends)
        assert (measure.low is None) == (measure.high is None), name
        assert all(math.isfinite(end) for end in ends), name
        if measure.unit == "share":
            least = -1 if name.endswith("_difference") else 0
            assert all(least <= end <= 1 for end in ends), (name, ends)


def documented() -> dict[str, list[tuple[str, str]]]:
    """Return the names and units of measures that the guide lists, by report."""
    table = GUIDE.read_text(encoding="utf-8").split("<!-- measures -->")[1]
    listed: dict[str, list[tuple[str, str]]] = {}
    for report, name, unit in re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE):
        listed.setdefault(report, []).append((name, unit.strip()))
    return listed
