"""Report prefetch_sizing, run without any file and on user logs."""

from __future__ import annotations

import json
import math

import pytest
from report_pages import manifest, page, read_html, table

from mudkit.report import run_report
from mudkit.report.parameters import preset

pytestmark = pytest.mark.notebook
T0 = 1_700_000_000
SMALL = {"days": 16, "draws": 2, "outage": 0.5}


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


def summary(report):
    return json.loads((report / "summary.json").read_text(encoding="utf-8"))


def test_example_runs_without_any_file(example):
    assert {p.stem for p in (example / "data").iterdir()} == {
        "settings",
        "policies",
        "by_price",
        "by_limit",
        "by_threshold",
    }
    assert "Messages and reads are generated" in page(example)
    metadata = manifest(example)
    assert (metadata["inputs"], metadata["parameters"]["days"]) == ({}, 16)
    assert metadata["headline"].startswith("Send all messages at once")


def test_recommendation_matches_the_saved_tables(example):
    measured = {measure["name"]: measure for measure in summary(example)["measures"]}
    settings = table(example, "settings")
    settings = settings[settings["threshold_s"] == 0.0]
    assert measured["chosen_limit"]["value"] == settings.loc[settings["cost_per_day"].idxmin(), "limit"]
    assert measured["recommendation"]["value"] in page(example)
    policies = table(example, "policies").set_index("policy")
    assert policies.index[0] == measured["setting"]["value"]
    limit = measured["prefetch_limit"]["value"]
    scored = table(example, "by_limit").set_index("limit").loc[math.inf if limit is None else limit]
    for name in ("waste", "loss", "empty_read_share", "cost_per_day"):
        assert measured[name]["value"] == pytest.approx(scored[name])
        ends = [
            None if math.isnan(scored[f"{name}{end}"]) else scored[f"{name}{end}"]
            for end in ("_low", "_high")
        ]
        assert [measured[name]["low"], measured[name]["high"]] == pytest.approx(ends)
    assert measured["delay_s"]["value"] == pytest.approx(60 * scored["delay_min"])
    assert policies["waste"].iloc[0] == pytest.approx(scored["waste"])
    assert policies.loc["all at once", "loss"] == 0.0
    assert policies.loc["only when asked", "waste"] == 0.0
    assert (
        measured["empty_read_share_without"]["value"] == policies.loc["only when asked", "empty_read_share"]
    )
    assert len(table(example, "by_price")) == 9


def test_page_works_offline_and_has_its_figures(example):
    html = read_html(example)
    assert html.count('class="mudkit-figure"') == 3
    assert "mudkit report prefetch_sizing" in html


def test_user_logs_are_reported(logs, folder):
    """Six reads of three days are too few for a recommendation, but the page shows what they say."""
    report = run_report("prefetch_sizing", logs, build=folder / "own", progress=False)
    text = page(report)
    assert "Too little to recommend a limit: 6 reads, where 30 are needed." in text
    assert "On these events it costs least to prefetch up to" in text
    assert "Nothing expires" in text
    assert "the 6 reads of the whole log can show at most 67 % of its messages" in text
    assert "Links are those of the log of outages." in text
    html = read_html(report)
    assert "arrivals.csv, reads.csv, outages.csv · 2.96 days · 72 messages · 6 reads" in html
    assert html.count('class="mudkit-figure"') == 2, "there is no threshold to draw"
    metadata = manifest(report)
    assert set(metadata["inputs"]) == {"arrivals", "reads", "outages"}


@pytest.mark.soak
def test_unordered_rows_are_sorted_and_counted(logs, folder):
    rows = (folder / "reads.csv").read_text().splitlines()
    shuffled = folder / "shuffled.csv"
    shuffled.write_text("\n".join([rows[0], *rows[:0:-1]]) + "\n")
    report = run_report(
        "prefetch_sizing", logs | {"reads": str(shuffled)}, build=folder / "bad", progress=False
    )
    assert "5 rows of the logs were out of order" in page(report)


@pytest.mark.soak
def test_report_without_any_link(folder):
    report = run_report(
        "prefetch_sizing", {"days": 16, "draws": 1, "outage": 1.0}, build=folder / "never", progress=False
    )
    assert "No setting helps: there is never a link, and every message is lost." in page(report)
    assert (table(report, "policies")["loss"] == 1.0).all()
