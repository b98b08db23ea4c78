"""Comparison of two finished runs: verdicts, headline, page, and limits."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from report_pages import read_html
from report_summaries import assert_valid, write_run

from mudkit.errors import OutputProblem, ParameterError, TraceContentError
from mudkit.report import Measure, SummaryError, compare_runs, overview, read_summary

SENT = Measure("sent_share", 0.50, "share", "Reads that ask the server.", 0.45, 0.55)
DELAY = Measure("delay_s", 60.0, "s", "Median delay of a write.", 50.0, 75.0)
PHONES = Measure("phones", 60, "", "Phones that read.")
ADVICE = Measure("recommendation", "ask after 10 min", "", "What to do.")


def change(measure, **fields):
    return Measure(**(measure.document() | fields))


def compare(folder, this, other, **details):
    """Compare two runs with these measures; ``details`` are of the other run."""
    runs = [
        write_run(folder, details.get("report", "cache_policy"), this, name="20260301T101500Z"),
        write_run(
            folder, **{"report": "cache_policy", "measures": other, "name": "20260302T101500Z"} | details
        ),
    ]
    return compare_runs(*runs, build=folder)


BASE = [ADVICE, SENT, DELAY, PHONES]


def test_changes_are_those_beyond_the_interval_of_the_difference(tmp_path):
    other = [
        change(ADVICE, value="ask after 5 min"),
        change(SENT, value=0.6, low=0.57, high=0.63),
        change(DELAY, value=66.0),
        change(PHONES, value=40),
    ]
    comparison = compare(tmp_path, BASE, other)
    rows = comparison.table.set_index("measure")
    assert rows["verdict"].to_dict() == {
        "recommendation": "different",
        "sent_share": "changed",
        "delay_s": "within chance",
        "phones": "no interval",
    }
    # Zou and Donner (2008), by hand: −0.1 less √(0.05² + 0.03²), and plus the same.
    assert rows.loc[
        "sent_share", ["difference", "difference_low", "difference_high"]
    ].tolist() == pytest.approx([-0.1, -0.1583095, -0.0416905])
    assert rows.loc["phones", "difference"] == 20
    assert comparison.headline == (
        "1 of 2 measures with intervals changed by more than chance: sent share −10.0 points (−15.8 to −4.2). "
        "They recommend different things."
    )


@pytest.fixture
def without_figure(monkeypatch):
    """Leave the figure of intervals out of the page, which takes half of its time."""
    monkeypatch.setattr("mudkit.report.comparing._Pair._drawn", lambda self: [])


HEADLINES = {
    "nothing changed": (
        BASE,
        BASE,
        "None of the 2 measures with intervals changed by more than chance. Both runs",
    ),
    "one measure": ([SENT], [SENT], "The one measure with an interval did not change by more than chance."),
    "one that changed": (
        [SENT],
        [change(SENT, value=0.1, low=0.05, high=0.2)],
        "The one measure with an interval changed by more than chance: sent share +40.0 points (28.8 to 47.1).",
    ),
    "no interval": ([PHONES], [PHONES], "No measure has an interval, so a difference may be chance."),
    "no measure in common": ([SENT], [PHONES], "The two runs have no number in common."),
    "no measure at all": ([], [], "The two runs have no number in common."),
    "no value": ([change(SENT, value=None)], [SENT], "The two runs have no number in common."),
    "another recommendation alone": (
        [ADVICE],
        [change(ADVICE, value="never ask")],
        "The two runs have no number in common. They recommend different things.",
    ),
}


@pytest.mark.usefixtures("without_figure")
@pytest.mark.parametrize("name", HEADLINES)
def test_headline_follows_from_the_table(tmp_path, name):
    this, other, headline = HEADLINES[name]
    comparison = compare(tmp_path, this, other)
    assert comparison.headline.startswith(headline)
    summary = read_summary(comparison.folder)
    assert summary.headline == comparison.headline
    assert_valid(summary)
    assert comparison.headline in BeautifulSoup(read_html(comparison.folder), "html.parser").get_text()


@pytest.mark.parametrize("other", [change(SENT, definition="Something else."), change(SENT, unit="min")])
def test_another_definition_or_unit_is_named_and_never_called_a_change(tmp_path, other):
    comparison = compare(tmp_path, [SENT], [change(other, value=0.9, low=0.88, high=0.92)])
    assert comparison.table["verdict"].tolist() == ["defined differently"]
    html = read_html(comparison.folder)
    assert "Defined differently in the two runs: sent share." in html
    sentences = comparison.above({"sent_share": 0.1})
    assert len(sentences) == 1


def test_interval_that_does_not_hold_its_value_is_none(tmp_path):
    comparison = compare(tmp_path, [change(SENT, low=0.6, high=0.7)], [change(SENT, value=0.51)])
    assert comparison.table["verdict"].tolist() == ["no interval"]


def test_page_names_what_differs_and_what_the_difference_assumes(tmp_path):
    comparison = compare(
        tmp_path, BASE, BASE, period="2010-03-04/2010-03-07", completeness=0.8, sha256="c" * 64
    )
    html = read_html(comparison.folder)
    assert "The runs differ in completeness, period" in " ".join(sorted_heading(html))
    assert "below 90 % of what others wrote, and below 80 %" in html
    assert "assume that the two runs are independent" in html
    assert "cccccccccccc" in html
    saved = pd.read_parquet(comparison.folder / "data" / "compared.parquet")
    assert saved["what"].tolist() == ["completeness", "period", "SHA-256 of trace"] or set(saved["what"]) == {
        "completeness",
        "period",
        "SHA-256 of trace",
    }
    table = pd.read_csv(comparison.folder / "data" / "measures.csv")
    assert table["measure"].tolist() == [measure.name for measure in BASE]


def test_runs_of_files_with_one_name_differ_in_their_content(tmp_path):
    """The checksum of a file is in the table, but no name of it in the heading."""
    comparison = compare(tmp_path, BASE, BASE, sha256="c" * 64)
    saved = pd.read_parquet(comparison.folder / "data" / "compared.parquet")
    assert saved["what"].tolist() == ["SHA-256 of trace"]
    assert "The runs differ in the content of their files" in sorted_heading(read_html(comparison.folder))


def sorted_heading(html):
    """Return the headings of a page with the names of the one about differences in order."""
    headings = [heading.get_text() for heading in BeautifulSoup(html, "html.parser").find_all("h2")]
    return [
        f"The runs differ in {', '.join(sorted(text.removeprefix('The runs differ in ').split(', ')))}"
        if text.startswith("The runs differ in ")
        else text
        for text in headings
    ]


@pytest.mark.usefixtures("without_figure")
@pytest.mark.parametrize(
    ("details", "labels"),
    [
        ({"period": "2010-03-04/2010-03-07"}, None),
        ({"trace": "buses.csv", "sha256": "c" * 64}, ("cabs.csv", "buses.csv")),
        ({"trace": "old/cabs.csv", "sha256": "c" * 64}, ("cabs.csv", "old/cabs.csv")),
        ({"cells_zoom": 9}, ("cells_zoom 14", "cells_zoom 9")),
        ({"cells_zoom": 9, "tz": "Asia/Tokyo"}, None),
        ({"version": "0.2.0"}, ("mudkit 0.3.0", "mudkit 0.2.0")),
        ({"where": "lat > 3 AND lon < 99999 AND device LIKE 'a%'"}, None),
    ],
)
def test_runs_are_named_by_what_alone_differs(tmp_path, details, labels):
    html = read_html(compare(tmp_path, BASE, BASE, **details).folder)
    line = BeautifulSoup(html, "html.parser").find("p", class_="read").get_text()
    this, other = labels or ("This run", "The other run")
    assert line.startswith(f"{this} against {other} · ")


def test_another_version_of_mudkit_is_named(tmp_path):
    comparison = compare(tmp_path, BASE, [*BASE, change(PHONES, name="cars")], version="0.2.0")
    html = read_html(comparison.folder)
    assert "The runs are of mudkit 0.3.0 and 0.2.0: a change may be one of mudkit." in html
    assert "In one run only: cars." in html
    assert comparison.table.set_index("measure").loc["cars", "verdict"] == "in the other run only"


def test_equal_runs_are_called_so(tmp_path):
    html = read_html(compare(tmp_path, BASE, BASE).folder)
    assert "Both runs have the same parameters, inputs and versions." in html
    assert "The runs differ in nothing" in html


def test_parameter_that_an_older_version_lacks_counts_as_its_default(tmp_path):
    runs = [write_run(tmp_path, "cache_policy", BASE, name=name) for name in ("1", "2")]
    manifest = json.loads((runs[1] / "manifest.json").read_text())
    del manifest["parameters"]["where"], manifest["parameters"]["period"]
    (runs[1] / "manifest.json").write_text(json.dumps(manifest))
    comparison = compare_runs(*runs, build=tmp_path)
    assert pd.read_parquet(comparison.folder / "data" / "compared.parquet").empty


def test_runs_of_different_reports_or_areas_are_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"different reports(?s:.)*a run of propagation"):
        compare(tmp_path, BASE, BASE, report="cache_policy") and compare_runs(
            tmp_path / "cache_policy-20260301T101500Z", write_run(tmp_path, "propagation", []), build=tmp_path
        )
    far = write_run(
        tmp_path / "far", "cache_policy", BASE, cells=[(30.3, -97.7)], sha256="c" * 64, trace="buses.csv"
    )
    with pytest.raises(TraceContentError, match=r"different areas(?s:.)*buses\.csv(?s:.)*km between them"):
        compare_runs(tmp_path / "cache_policy-20260301T101500Z", far, build=tmp_path)
    comparison = next(tmp_path.glob("compare-*"))
    with pytest.raises(ParameterError, match=r"different reports(?s:.)*if it is a comparison"):
        compare_runs(comparison, comparison, build=tmp_path)
    with pytest.raises(SummaryError):
        compare_runs(tmp_path, comparison, build=tmp_path)


def test_parts_of_one_trace_may_lie_apart(tmp_path):
    assert compare(tmp_path, BASE, BASE, cells=[(30.3, -97.7)], where="lat < 33").folder.is_dir()


def test_runs_without_a_map_are_compared_with_a_warning(tmp_path):
    html = read_html(compare(tmp_path, BASE, BASE, cells=(), sha256="c" * 64).folder)
    assert "Whether both traces are of one area is not known" in html


def test_page_of_the_same_runs_is_kept(tmp_path):
    first = compare(tmp_path, BASE, BASE)
    runs = sorted(tmp_path.glob("cache_policy-*"))
    assert compare_runs(*runs, build=tmp_path).folder == first.folder
    assert compare_runs(*reversed(runs), build=tmp_path).folder != first.folder
    (first.folder / "report.html").unlink()
    assert compare_runs(*runs, build=tmp_path).folder != first.folder


def test_stopped_comparison_leaves_nothing(tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mudkit.report.html.export_html", stop)
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, BASE, BASE)
    assert not [place for place in tmp_path.iterdir() if "compare" in place.name]
    (tmp_path / "file").touch()
    with pytest.raises(OutputProblem):
        compare_runs(*sorted(tmp_path.glob("cache_policy-*")), build=tmp_path / "file")


def test_differences_above_their_limit_are_named(tmp_path):
    other = [ADVICE, change(SENT, value=0.54), change(DELAY, value=90.0), change(PHONES, name="cars")]
    comparison = compare(tmp_path, BASE, other)
    assert comparison.above({"sent_share": 0.05, "delay_s": 30.0}) == []
    limits = {"sent_share": 0.03, "delay_s": 29.0, "phones": 9.0, "bikes": 1.0}
    assert comparison.above(limits) == [
        "delay_s differs by 30 s, more than 29 s",
        "phones cannot be judged: it is in this run only",
        "bikes cannot be judged: it is in neither run",
    ]
    (by_chance,) = comparison.within_chance(limits)
    assert by_chance.startswith(
        "sent_share differs by 0.04, more than 0.03, but the interval of the difference contains 0: -0.0"
    )


def test_index_names_comparisons_and_summarises_all_reports(tmp_path):
    comparison = compare(tmp_path, BASE, BASE)
    (sorted(tmp_path.glob("cache_policy-*"))[1] / "report.html").touch()
    overview.write_index(tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert "What differs between two runs of cache_policy?" in text
    document = json.loads((tmp_path / "summary.json").read_text())
    assert list(document["reports"]) == ["cache_policy", "compare-cache_policy"]
    listed = document["reports"]["cache_policy"]
    assert listed["folder"] == "cache_policy-20260302T101500Z"
    assert listed["measures"] == [measure.document() for measure in BASE]
    assert document["reports"]["compare-cache_policy"]["headline"] == comparison.headline
    with pytest.raises(SummaryError, match=r"several reports(?s:.)*cache_policy"):
        read_summary(tmp_path)


def test_measure_of_a_case_is_named_with_it(tmp_path):
    cases = [change(SENT, name="photo_sharing.sent_share"), change(SENT, name="news.sent_share", value=0.46)]
    comparison = compare(tmp_path, cases, cases)
    assert_valid(read_summary(comparison.folder))
    assert "photo sharing, sent share" in read_html(comparison.folder)


def test_comparison_shows_itself(tmp_path):
    comparison = compare(tmp_path, BASE, BASE)
    assert "sent_share" in comparison._repr_html_()
    assert comparison.headline[:20] in repr(comparison)


def test_texts_of_a_run_are_escaped_on_the_page(tmp_path):
    texts = [change(ADVICE, value="<img src=x>"), change(SENT, definition="<script>alert(1)</script>")]
    html = read_html(compare(tmp_path, texts, texts, headline="<img src=y>.").folder)
    assert "<img src=" not in html
    assert "<script>alert" not in html


@pytest.mark.parametrize(
    ("report", "name", "value", "shown"),
    [
        ("propagation", "thresholds", [1, 30], "1,30"),
        ("cache_policy", "columns", {"lat": "y"}, "lat=y"),
        ("cache_policy", "where", "speed_mps > 3", "speed_mps > 3"),
        ("cache_policy", "completeness", 0.8, "0.8"),
    ],
)
def test_differing_parameters_are_shown_as_they_are_given(tmp_path, report, name, value, shown):
    comparison = compare(tmp_path, BASE, BASE, report=report, **{name: value})
    rows = pd.read_parquet(comparison.folder / "data" / "compared.parquet").set_index("what")
    assert rows.loc[name].tolist()[-1] == shown
