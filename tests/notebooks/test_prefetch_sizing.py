"""The report prefetch_sizing, run for real: without any file, and on logs of one's own."""

from __future__ import annotations

import json
import re

import nbformat
import pyarrow.parquet as pq
import pytest

from mudkit.errors import TraceContentError
from mudkit.report import run_report
from mudkit.report.parameters import preset

pytestmark = pytest.mark.notebook
T0 = 1_700_000_000
SMALL = {"days": 6, "draws": 2, "outage": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sizing")


@pytest.fixture(scope="module")
def example(folder):
    return run_report(
        "prefetch_sizing", preset("prefetch_sizing", "sample") | SMALL, build=folder / "build", progress=False
    )


@pytest.fixture(scope="module")
def logs(folder):
    """Three days of a message an hour, half of them better, read twice a day, the second time without a link."""
    arrivals = [f"{T0 + 3600 * hour},{hour % 2}" for hour in range(72)]
    reads = [T0 + 86_400 * day + 3600 * hour + 60 for day in range(3) for hour in (12, 22)]
    outages = [f"{T0 + 86_400 * day + 3600 * 21},{T0 + 86_400 * day + 3600 * 23}" for day in range(3)]
    for name, header, rows in (
        ("arrivals", "time,rank", arrivals),
        ("reads", "time", reads),
        ("outages", "begin,end", outages),
    ):
        (folder / f"{name}.csv").write_text("\n".join([header, *map(str, rows)]) + "\n")
    return {name: str(folder / f"{name}.csv") for name in ("arrivals", "reads", "outages")}


def words(report):
    """Give all that the report says, without marks."""
    notebook = nbformat.read(report / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.get("text")
    return " ".join(
        each["data"]["text/markdown"] for each in outputs if "text/markdown" in each.get("data", {})
    )


def test_an_example_runs_without_any_file(example):
    assert {p.stem for p in (example / "data").iterdir()} == {
        "settings",
        "policies",
        "by_weight",
        "by_limit",
        "by_threshold",
    }
    said = words(example)
    assert "A generated example" in said
    assert "no link for 50% of the time" in said
    manifest = json.loads((example / "manifest.json").read_text())
    assert (manifest["inputs"], manifest["parameters"]["days"]) == ({}, 6)


def test_what_is_said_is_what_was_found(example):
    table = pq.read_table(example / "data" / "settings.parquet").to_pandas()
    best = table.loc[table["cost"].idxmin()]
    limit, waste, loss = re.search(
        r"limit: ([\d,]+) messages.*?([\d.]+)% are wasted.*?([\d.]+)% are lost", words(example)
    ).groups()
    assert int(limit.replace(",", "")) == best["limit"]
    assert (float(waste), float(loss)) == pytest.approx((100 * best["waste"], 100 * best["loss"]), abs=0.051)
    policies = pq.read_table(example / "data" / "policies.parquet").to_pandas().set_index("policy")
    assert policies.loc["recommended", "waste"] == pytest.approx(best["waste"])
    assert policies.loc["all at once (on-line)", "loss"] == 0.0
    assert policies.loc["only when asked (on-demand)", "waste"] == 0.0


def test_the_page_needs_no_network_and_has_its_figures(example):
    html = (example / "report.html").read_text()
    assert html.count('class="mudkit-figure"') == 2
    assert "Traceback" not in html
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)


def test_logs_of_ones_own(logs, folder):
    """12 messages lie on the device at a read without a link; the best 8 of them suffice, as Max is 8."""
    report = run_report("prefetch_sizing", logs, build=folder / "own", progress=False)
    said = words(report)
    assert "72 messages and 6 reads" in said.replace("*", "")
    assert "None expires" in said
    assert "no more than 67% of them can be read" in said
    assert "By the log of outages there was no link for 8." in said
    assert "Prefetch limit: 8 messages" in said
    assert "Nothing expires in these logs" in said
    manifest = json.loads((report / "manifest.json").read_text())
    assert set(manifest["inputs"]) == {"arrivals", "reads", "outages"}


@pytest.mark.soak
def test_a_bad_line_is_told(logs, folder):
    bad = folder / "bad.csv"
    bad.write_text(f"time\n{T0}\n{T0 + 9}\n{T0 + 5}\n")
    with pytest.raises(TraceContentError) as caught:  # before anything runs
        run_report("prefetch_sizing", logs | {"reads": str(bad)}, build=folder / "bad", progress=False)
    assert caught.value.where == "bad.csv, line 4"
    assert "not in order" in caught.value.summary
    assert "at or after the one before" in caught.value.expected
