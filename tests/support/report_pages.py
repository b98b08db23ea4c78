"""Files of a report: its outputs, tables, manifest, and a page that needs no network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pyarrow.parquet as pq

MAX_PAGE_BYTES = 6_000_000


def page(report: Path) -> str:
    """Return the text of all outputs, after a check that none is an error or a warning."""
    notebook = nbformat.read(report / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.get("text")
    return " ".join(output["data"].get("text/plain", "") for output in outputs if "data" in output)


def table(report: Path, name: str) -> pd.DataFrame:
    """Return a table from the data folder."""
    return pq.read_table(report / "data" / f"{name}.parquet").to_pandas()


def manifest(report: Path) -> dict[str, Any]:
    """Return the manifest of the run."""
    return json.loads((report / "manifest.json").read_text())


def read_html(report: Path) -> str:
    """Return the page without line-break marks, after a check that it is small, loads nothing and has no error."""
    html = (report / "report.html").read_text(encoding="utf-8")
    assert "Traceback" not in html
    assert len(html) < MAX_PAGE_BYTES
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)
    return re.sub("<wbr/?>", "", html).replace("\xa0", " ").replace("&nbsp;", " ")
