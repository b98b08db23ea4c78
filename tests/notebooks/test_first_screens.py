"""Every number of a report's first screen is in its summary.json, at the rounding that is shown."""

from __future__ import annotations

import pytest
from first_screens import first_screen, missing_numbers, numbers_in
from report_summaries import assert_valid

from mudkit.report import read_summary, run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES

EXCEPTIONS = {
    r"\(95 %\)": "the confidence of all intervals",
    r"(for|from where|but|and)? ?95 % of (all|the) positions": "the quantile that an error is defined by",
    r"Another kind of policy is recommended with: .*?\.(?=\s|$)": "names of assumptions; data/sensitivity has them",
    r"The policy of this page exceeds .*?\)\.": "a share for each assumption; data/sensitivity has them",
    r"it must surely give more than \d( points?)?": "the bar for a tree, a constant of the method",
    r"no policy surely answers \d %": "the bar for any policy, a constant of the method",
    r"\d+ kinds of defects": "how many kinds of defects are looked for, a constant of the method",
    r"in 20 hours or more": "when a day is called whole, a constant of the method",
    r"it becomes: .*?\)\.": "settings at other prices; data/prices has them",
    r"in \d+ periods a day": "the default of outages_per_day",
    r"2 points (less in time than the best|that a choice)": "the bar for systems, a constant of the method",
    r"of 1,000 draws": "the number of draws, a constant of the method",
    r"(10 points less in time than the best )instead of 2": "the bars for systems, constants of the method",
    r"not firm below \d+": "the least deliveries of a firm verdict, a constant of the method",
}  # fmt: skip
"""Patterns of texts whose numbers are not in summary.json, with the reason."""
RUNS = [
    *((report, "sample") for report in TEMPLATES),
    ("cache_policy", "rule_is_best"),
    ("cache_policy", "nothing_helps"),
]


@pytest.mark.soak
@pytest.mark.notebook
@pytest.mark.spark
@pytest.mark.parametrize(("report", "preset_name"), RUNS)
def test_first_screen_has_no_number_that_its_summary_lacks(report, preset_name, tmp_path):
    folder = run_report(report, preset(report, preset_name), build=tmp_path, progress=False)
    assert len(list(numbers_in(first_screen(folder)))) > 8, "the text is read"
    assert missing_numbers(folder, EXCEPTIONS) == []
    assert_valid(read_summary(folder))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("54.2 % of 6,107 reads", [("share", 0.542), ("count", 6107)]),
        ("50.4 to 58.1 % and 3.5 points (2.5 to 4.4) fewer",
         [("share", 0.504), ("share", 0.581), ("share", 0.035), ("share", 0.025), ("share", 0.044)]),
        ("25 min 57 s, 2 d 2 h, 12 min", [("s", 1557), ("s", 180_000), ("s", 720)]),
        ("60.6 · 21.1 J and 4.09 km", [("J", 60.6), ("J", 21.1), ("m", 4090)]),
        ("from 1 March 2010, 12:30 to 5 March 2010: 1.03 MB", [("B", 1.03e6)]),
    ],
)  # fmt: skip
def test_numbers_of_a_text_are_read_with_their_units(text, expected):
    read = [(number.dimension, number.value) for number in numbers_in(text)]
    assert [name for name, _ in read] == [name for name, _ in expected]
    assert [value for _, value in read] == pytest.approx([value for _, value in expected])
