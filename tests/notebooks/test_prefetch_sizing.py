"""The report prefetch_sizing, run for real: without any file, and on logs of one's own."""

from __future__ import annotations

import re

import pytest
from report_pages import html_of, manifest, page, table

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


def test_an_example_runs_without_any_file(example):
    assert {p.stem for p in (example / "data").iterdir()} == {
        "settings",
        "policies",
        "by_weight",
        "by_limit",
        "by_threshold",
    }
    assert "Messages and reads are generated" in page(example)
    made_by = manifest(example)
    assert (made_by["inputs"], made_by["parameters"]["days"]) == ({}, 6)
    assert made_by["headline"].startswith("Prefetch ")


def test_the_recommendation_is_recomputed_from_the_data_beside_the_page(example):
    settings = table(example, "settings")
    best = settings.loc[(settings["waste"] + settings["loss"]).idxmin()]
    said = page(example)
    assert f"Prefetch up to {best['limit']:,.0f} messages" in said
    waste, loss = (
        float(share)
        for share in re.search(
            r"With it ([\d.]+) %.*? is wasted and ([\d.]+) %.*? could be read is lost", said
        ).groups()
    )
    assert (waste, loss) == pytest.approx((100 * best["waste"], 100 * best["loss"]), abs=0.51)
    policies = table(example, "policies").set_index("policy")
    assert policies.loc["recommended", "waste"] == pytest.approx(best["waste"])
    assert policies.loc["all at once", "loss"] == 0.0
    assert policies.loc["only when asked", "waste"] == 0.0
    assert policies["cost_percent"].idxmin() == "recommended"


def test_the_page_needs_no_network_is_small_and_has_its_figures(example):
    html = html_of(example)
    assert html.count('class="mudkit-figure"') == 3
    assert "mudkit report prefetch_sizing" in html


def test_logs_of_ones_own(logs, folder):
    """Of 12 messages that come before a read without a link 8 are read; one fewer wastes less than it loses."""
    report = run_report("prefetch_sizing", logs, build=folder / "own", progress=False)
    said = page(report)
    assert "Prefetch up to 7 messages." in said
    assert "Nothing expires" in said
    assert "no more than 67 % of the messages can be read" in said
    assert "Links are those of the log of outages." in said
    html = html_of(report)
    assert "arrivals.csv, reads.csv, outages.csv · 2.96 days · 72 messages · 6 reads" in html
    assert html.count('class="mudkit-figure"') == 2, "there is no threshold to draw"
    made_by = manifest(report)
    assert set(made_by["inputs"]) == {"arrivals", "reads", "outages"}


@pytest.mark.soak
def test_a_bad_line_is_told(logs, folder):
    bad = folder / "bad.csv"
    bad.write_text(f"time\n{T0}\n{T0 + 9}\n{T0 + 5}\n")
    with pytest.raises(TraceContentError) as caught:  # before anything runs
        run_report("prefetch_sizing", logs | {"reads": str(bad)}, build=folder / "bad", progress=False)
    assert caught.value.where == "bad.csv, line 4"
    assert "not in order" in caught.value.summary
    assert "at or after the one before" in caught.value.expected
