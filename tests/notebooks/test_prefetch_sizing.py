"""Report prefetch_sizing, run without any file and on user logs."""

from __future__ import annotations

import re

import pytest
from report_pages import manifest, page, read_html, table

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
    """Write three days of hourly messages, half of them better, read twice a day, the second time offline."""
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


def test_example_runs_without_any_file(example):
    assert {p.stem for p in (example / "data").iterdir()} == {
        "settings",
        "policies",
        "by_weight",
        "by_limit",
        "by_threshold",
    }
    assert "Messages and reads are generated" in page(example)
    metadata = manifest(example)
    assert (metadata["inputs"], metadata["parameters"]["days"]) == ({}, 6)
    assert metadata["headline"].startswith("Prefetch ")


def test_recommendation_matches_the_saved_tables(example):
    settings = table(example, "settings")
    best = settings.loc[(settings["waste"] + settings["loss"]).idxmin()]
    text = page(example)
    assert f"Prefetch up to {best['limit']:,.0f} messages" in text
    waste, loss = (
        float(share)
        for share in re.search(
            r"With it ([\d.]+) %.*? is wasted and ([\d.]+) %.*? could be read is lost", text
        ).groups()
    )
    assert (waste, loss) == pytest.approx((100 * best["waste"], 100 * best["loss"]), abs=0.51)
    policies = table(example, "policies").set_index("policy")
    assert policies.loc["recommended", "waste"] == pytest.approx(best["waste"])
    assert policies.loc["all at once", "loss"] == 0.0
    assert policies.loc["only when asked", "waste"] == 0.0
    assert policies["cost_percent"].idxmin() == "recommended"


def test_page_works_offline_and_has_its_figures(example):
    html = read_html(example)
    assert html.count('class="mudkit-figure"') == 3
    assert "mudkit report prefetch_sizing" in html


def test_user_logs_are_reported(logs, folder):
    """Read 8 of 12 messages that arrive before an offline read; a lower limit wastes less than it loses."""
    report = run_report("prefetch_sizing", logs, build=folder / "own", progress=False)
    text = page(report)
    assert "Prefetch up to 7 messages." in text
    assert "Nothing expires" in text
    assert "no more than 67 % of the messages can be read" in text
    assert "Links are those of the log of outages." in text
    html = read_html(report)
    assert "arrivals.csv, reads.csv, outages.csv · 2.96 days · 72 messages · 6 reads" in html
    assert html.count('class="mudkit-figure"') == 2, "there is no threshold to draw"
    metadata = manifest(report)
    assert set(metadata["inputs"]) == {"arrivals", "reads", "outages"}


@pytest.mark.soak
def test_unordered_line_is_reported(logs, folder):
    bad = folder / "bad.csv"
    bad.write_text(f"time\n{T0}\n{T0 + 9}\n{T0 + 5}\n")
    with pytest.raises(TraceContentError) as caught:  # before the report runs
        run_report("prefetch_sizing", logs | {"reads": str(bad)}, build=folder / "bad", progress=False)
    assert caught.value.where == "bad.csv, line 4"
    assert "not in order" in caught.value.summary
    assert "at or after the one before" in caught.value.expected
