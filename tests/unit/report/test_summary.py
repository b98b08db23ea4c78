"""Summary of a report: reading it back, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report_summaries import write_run

from mudkit.errors import InputMissing
from mudkit.report import Measure, Summary, SummaryError, read_summary
from mudkit.report.page import UNITS

MEASURES = [
    Measure("recommendation", "keep the rule", "", "What to do."),
    Measure("sent_share", 0.5, "share", "Reads that ask the server.", 0.4, 0.6),
    Measure("age_min", None, "min", "Age of the best rule."),
]


def test_summary_is_read_back(tmp_path):
    folder = write_run(tmp_path, "cache_policy", MEASURES, headline="Keep the rule.")
    for place in (folder, str(folder), folder / "summary.json"):
        summary = read_summary(place)
        assert isinstance(summary, Summary)
        assert (summary.report, summary.headline) == ("cache_policy", "Keep the rule.")
        assert list(summary.measures.values()) == MEASURES
        assert summary["sent_share"].high == 0.6
        assert summary.manifest["versions"]["mudkit"]
    assert "sent_share" in summary._repr_html_()


def test_numbers_of_numpy_and_what_is_not_finite_are_written_as_json():
    measure = Measure("phones", np.int64(3), "", "Phones.", np.float32(2.5), float("inf"))
    document = json.loads(json.dumps(measure.document()))
    assert (document["value"], document["low"], document["high"]) == (3, 2.5, None)


def test_unknown_measure_is_named_with_those_that_exist(tmp_path):
    summary = read_summary(write_run(tmp_path, "cache_policy", MEASURES))
    with pytest.raises(
        SummaryError, match=r"no measure 'sent_shar'(?s:.)*age_min(?s:.)*did you mean 'sent_share'"
    ):
        summary["sent_shar"]


def break_summary(folder, change):
    """Change the document of a summary, or write a text in its place."""
    file = folder / "summary.json"
    if isinstance(change, str):
        file.write_text(change)
    else:
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))


DAMAGED = {
    "no JSON": ("{", "is damaged"),
    "no object": ("[1]", "is damaged(?s:.)*list instead of an object"),
    "a newer format": (lambda document: document.update(format=2), "newer version(?s:.)*format 2"),
    "a foreign format": (lambda document: document.pop("format"), "not a summary that mudkit wrote"),
    "no headline": (lambda document: document.pop("headline"), "damaged(?s:.)*headline: None"),
    "no measures": (lambda document: document.pop("measures"), "damaged(?s:.)*measures: None"),
    "a measure that is none": (
        lambda document: document["measures"].append(3),
        "damaged(?s:.)*the measure 3",
    ),
    "a repeated name": (
        lambda document: document["measures"].append(document["measures"][1]),
        "damaged(?s:.)*two measures named 'sent_share'",
    ),
    "a name with blanks": (
        lambda document: document["measures"][1].update(name="Sent share"),
        "'Sent share'",
    ),
    "no unit": (lambda document: document["measures"][1].pop("unit"), "no unit of sent_share"),
    "a text as an end": (lambda document: document["measures"][1].update(low="a"), "low of sent_share: 'a'"),
    "a truth as a value": (
        lambda document: document["measures"][1].update(value=True),
        "value of sent_share: True",
    ),
    "several reports": (
        lambda document: document.update(reports={"cache_policy": {}}),
        "summary of several reports",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_summary_is_refused_in_words(tmp_path, name):
    change, message = DAMAGED[name]
    folder = write_run(tmp_path, "cache_policy", MEASURES)
    break_summary(folder, change)
    with pytest.raises(SummaryError, match=message) as caught:
        read_summary(folder)
    assert caught.value.expected
    assert caught.value.remedy


def test_infinite_value_is_refused(tmp_path):
    folder = write_run(tmp_path, "cache_policy", MEASURES)
    text = (folder / "summary.json").read_text().replace("0.5", "Infinity")
    break_summary(folder, text)
    with pytest.raises(SummaryError, match="value of sent_share: inf"):
        read_summary(folder)


def test_later_version_may_add_to_a_measure(tmp_path):
    folder = write_run(tmp_path, "cache_policy", MEASURES)
    break_summary(folder, lambda document: document["measures"][1].update(samples=9))
    assert read_summary(folder)["sent_share"] == MEASURES[1]


def test_folder_without_summary_is_refused_by_what_it_is(tmp_path):
    with pytest.raises(SummaryError, match="not the folder of a finished report"):
        read_summary(tmp_path)
    with pytest.raises(InputMissing, match="no folder of a report"):
        read_summary(tmp_path / "nothing")
    folder = write_run(tmp_path, "cache_policy", MEASURES, version="0.2.0")
    (folder / "summary.json").unlink()
    with pytest.raises(
        SummaryError, match=r"before there were summaries(?s:.)*mudkit 0.2.0(?s:.)*run the report again"
    ):
        read_summary(folder)


def test_units_are_different():
    assert len(set(UNITS)) == len(UNITS)
