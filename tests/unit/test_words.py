"""Numbers in words: digits, units, and bounds."""

import ast
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mudkit
from mudkit import words

MINUS = "−"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (84.3219, "84.3"),
        (1399177, "1,399,177"),
        (46900.0, "46,900"),
        (0.00123, "0.00123"),
        (1e-9, "<0.000001"),
        (-2.5, f"{MINUS}2.5"),
        (-1e-12, f">{MINUS}0.000001"),
        (1e20, "100,000,000,000,000,000,000"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, f"{MINUS}∞"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert words.number(value) == text


@given(st.floats())
def test_no_number_has_an_exponent(value: float) -> None:
    assert "e" not in words.number(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_only_zero_is_shown_as_zero(value: float) -> None:
    assert (words.number(value) == "0") == (value == 0)


def test_decimals_suit_the_largest_value_without_common_zeros() -> None:
    assert words.decimals([100.0, 92.0, 79.0]) == 0
    assert words.decimals([1.25, 0.5]) == 2
    assert words.decimals([41.2, 37.0]) == 1
    assert words.decimals([]) == words.decimals([math.nan, 0.0]) == 0


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.00197, "0.2 %"),
        (0.0000001, "<0.1 %"),
        (0.99996, ">99.9 %"),
        (0.9995, ">99.9 %"),
        (0.996, "99.6 %"),
        (0.8234, "82 %"),
        (0.05, "5 %"),
        (1.2, "120 %"),
        (-0.05, f"{MINUS}5 %"),
        (math.nan, "–"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert words.percent(share) == text


@given(st.floats(min_value=0, max_value=1))
def test_percent_is_0_or_100_only_for_exact_shares(share: float) -> None:
    text = words.percent(share)
    assert (text == "0 %") == (share == 0)
    assert text != "100 %" or share == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (4.2, "4.2 s"),
        (59.99, "1 min"),
        (61, "1 min 1 s"),
        (7500, "2 h 5 min"),
        (4556, "1 h 16 min"),
        (3599.8, "1 h"),
        (86_399, "1 d"),
        (3600, "1 h"),
        (86_400 * 3 + 60, "3 d"),
        (-90, f"{MINUS}1 min 30 s"),
        (math.inf, "for ever"),
        (math.nan, "–"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (512, "512 B"), (999.9, "1 kB"), (44_600, "44.6 kB"), (4.8e6, "4.8 MB")]
)
def test_size(size: float, text: str) -> None:
    assert words.size(size) == text


def test_distances() -> None:
    shown = [words.distance(km) for km in (0, 0.0155, 0.25, 0.99996, 1.25, -0.5)]
    assert shown == ["0 km", "15.5 m", "250 m", "1 km", "1.25 km", "−500 m"]


def test_spans_of_equal_figures_have_one() -> None:
    assert words.span(0.61, 1.0, words.percent) == "61 to 100 %"
    assert words.span(0.6101, 0.6102, words.percent) == "61 %"
    assert words.span(0.5, 20.0, words.distance) == "500 m to 20 km"


def test_differences_have_a_sign() -> None:
    assert words.difference(3) == "+3 points"
    assert words.difference(-1) == f"{MINUS}1 point"
    assert words.difference(0) == "no difference"
    assert words.difference(-2.5, "kB") == f"{MINUS}2.5 kB"


def test_counts_and_lists() -> None:
    assert words.count(1, "day") == "1 day"
    assert words.count(2000, "box", "boxes") == "2,000 boxes"
    assert words.count(1.0, "day") == "1 day"
    assert words.count(0.9996, "day") == "1 day"
    assert words.count(4.512, "day") == "4.51 days"
    assert words.listing("abcdefg", 3) == "a, b, c and 4 more"
    assert words.interval(81, 88.25) == "81.0 to 88.2"


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("size_bytes", ("size", "kB", 1e-3)),
        ("t_us", ("t", "s", 1e-6)),
        ("late_share", ("late", "%", 100.0)),
        ("reads_per_day", ("reads", "a day", 1.0)),
        ("energy_mj", ("energy", "J", 1e-3)),
        ("wakeups", ("wake-ups", "", 1.0)),
        ("name_of_it", ("name of it", "", 1.0)),
        ("_s", (" s", "", 1.0)),
    ],
)
def test_labels(column: str, label: tuple[str, str, float]) -> None:
    result = words.label(column)
    assert (result.words, result.unit, result.scale) == label


def test_label_of_a_column_is_stated_once() -> None:
    """A label that only one of several modules brings would depend on what was imported."""
    texts = [file.read_text(encoding="utf-8") for file in Path(mudkit.__file__).parent.rglob("*.py")]
    stated = [
        column.value
        for text in texts
        if "add_labels" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).removeprefix("words.") == "add_labels"
        for labels in call.args
        if isinstance(labels, ast.Dict)
        for column in labels.keys
        if isinstance(column, ast.Constant)
    ]
    assert len(stated) > 20
    assert [column for column, times in Counter(stated).items() if times > 1] == []
    code = "from mudkit import words; print(*words._labels)"
    known = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert {*stated}.isdisjoint(known.stdout.split())


def test_column_has_one_label() -> None:
    words.add_labels({"wakeups": words.Label("wake-ups")})
    with pytest.raises(ValueError, match="wakeups has the label 'wake-ups', not 'starts'"):
        words.add_labels({"wakeups": words.Label("starts")})
    assert words.label("wakeups").words == "wake-ups"


def test_capitalise_changes_the_first_letter_alone() -> None:
    assert [words.capitalise(text) for text in ("to all MUD phones", "", "é")] == [
        "To all MUD phones",
        "",
        "É",
    ]
