"""Tables and displays: content, escaping, and special values."""

import datetime
import math
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from html_tables import Outline
from hypothesis import given
from hypothesis import strategies as st

import mudkit
from mudkit.display import (
    MAX_CELL,
    MAX_COLUMNS,
    Branch,
    Cell,
    Displayed,
    Event,
    Table,
    View,
    frame_table,
    lanes,
    one_line,
    show,
    tree,
)
from mudkit.errors import ParameterError


def render(value: object, **options: object) -> Outline:
    html = show(value, **options)._repr_html_()
    for forbidden in ("<style", "<script", " id="):
        assert forbidden not in html
    return Outline(html)


RUNS = pd.DataFrame(
    {
        "policy": ["rule", "tree"],
        "sent_share": [0.92, 0.82],
        "sent_share_low": [0.91, 0.80],
        "sent_share_high": [0.93, 0.84],
        "size_bytes": [41_200, 37_000],
    }
)


def test_units_are_in_headings_and_intervals_after_values() -> None:
    text = repr(show(RUNS, "Policies"))
    assert text.splitlines()[:3] == [
        "Policies",
        "policy  sent, % of reads  size, kB",
        "rule       92 (91 to 93)      41.2",
    ]
    assert render(RUNS).tags.count("tr") == 3


def test_best_values_are_marked_by_more_than_colour() -> None:
    html = show(RUNS, best={"sent_share": "low"})._repr_html_()
    assert html.count("●") == 1
    assert "<b>● 82</b>" in html
    latencies = pd.DataFrame({"system": ["a", "b", "c"], "latency_s": [2.01, 2.04, 5055.0]})
    html = show(latencies, best={"latency_s": "low"})._repr_html_()
    assert html.count("<b>● 2</b>") == 2, "values that look alike are marked alike"
    alike = show(latencies[:2].assign(latency_s=[5055.1, 5055.2]), best={"latency_s": "low"})._repr_html_()
    assert "●" not in alike


def test_row_headings_have_a_scope() -> None:
    html = show(RUNS)._repr_html_()
    assert html.count("scope='col'") == 3
    assert html.count("scope='row'") == 2


@given(st.text(max_size=50))
def test_content_is_escaped(text: str) -> None:
    outline = render(pd.DataFrame({text or "a": [text], "b": [{text: text}]}), caption=text)
    assert {*outline.tags} <= {
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "br",
        "span",
        "p",
        "wbr",
    }


def test_hostile_and_long_content_is_escaped_and_shortened() -> None:
    html = show([{"a": "<script>alert(1)</script>", "b": "😀" * 10_000}])._repr_html_()
    assert "&lt;script&gt;" in html
    assert html.count("😀") == MAX_CELL - 1


def test_surplus_columns_are_named_below_the_table() -> None:
    frame = pd.DataFrame([range(200)], columns=[f"c{number}" for number in range(200)])
    outline = render(frame)
    assert outline.tags.count("td") + outline.tags.count("th") == 2 * MAX_COLUMNS
    assert "c7, c8, c9, c10, c11, c12, c13, c14 and 185 more" in "".join(outline.words)


def test_long_words_may_be_broken_and_short_ones_may_not() -> None:
    """Break words without CSS that JupyterLab removes as unknown."""
    html = show([{"key": "k" * 60, "state": "arrived"}])._repr_html_()
    assert "<wbr>".join(["k" * 12] * 5) in html
    assert "white-space:nowrap'>arrived</td>" in html
    assert "anywhere" not in html


def test_short_names_stay_on_one_line_and_texts_wrap() -> None:
    html = show([{"system": "to everyone", "what": "a sentence of some words", "use": 1.0}])._repr_html_()
    assert re.search("<th scope='row' style='[^']*white-space:nowrap[^']*'>to everyone</th>", html)
    assert re.search("<td style='(?![^']*nowrap)[^']*'>a sentence of some words</td>", html)


def test_only_the_first_rows_of_a_long_table_are_shown() -> None:
    large = pd.DataFrame({"x": np.arange(1_000_000)})
    outline = render(large, rows=5)
    assert outline.tags.count("tr") == 6
    assert "The first 5 of 1,000,000 rows." in outline.words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "–"),
        (math.inf, "∞"),
        (None, "–"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (pd.NaT, "–"),
        (pd.NA, "–"),
        (pd.Timestamp("2008-05-17"), "2008-05-17"),
        (datetime.timedelta(minutes=90), "1 h 30 min"),
        ({"a": [1, 2.5]}, "a: 1, 2.5"),
        (b"abc", "3 B of bytes"),
        ("text", "text"),
        (12345, "12,345"),
    ],
)
def test_special_values_are_formatted(value: object, text: str) -> None:
    assert text in render(pd.DataFrame({"x": pd.Series([value, "other"], dtype=object)})).words
    assert text in render({"x": value}).words


def test_midnight_keeps_its_time_beside_other_times() -> None:
    midnight, noon = pd.Timestamp("2008-05-17"), pd.Timestamp("2008-05-18 12:00")
    assert "2008-05-17 00:00:00" in render(pd.DataFrame({"first": [midnight, noon, pd.NaT]})).words
    assert "00:00" not in render(pd.DataFrame({"first": [midnight, pd.NaT]})).words


@pytest.mark.parametrize("value", [pd.DataFrame(), pd.DataFrame({"a": []}), {}, []])
def test_empty_tables_state_no_rows(value: object) -> None:
    assert "No rows." in render(value).words


def test_arrow_tables_series_and_indexed_frames_are_shown() -> None:
    assert "5" in render(pa.table({"a": [5]})).words
    assert {"a", "5"} <= {*render(pd.Series([5], name="a")).words}
    assert "value" in render(pd.Series([5])).words, "without a name"
    assert "key" in render(pd.DataFrame({"a": [5]}, index=pd.Index(["k"], name="key"))).words


def test_duplicate_column_names_are_numbered() -> None:
    assert {"a", "a (2)"} <= {*render(pd.DataFrame([[1, 2]], columns=["a", "a"])).words}


def test_columns_can_be_selected_and_labelled() -> None:
    assert repr(show(RUNS, columns=["size_bytes"], labels={"size_bytes": "data"})).startswith("data")


@pytest.mark.parametrize(
    ("value", "options", "pattern"),
    [
        (RUNS, {"columns": ["size"]}, "no such column"),
        *((value, {}, "Expected a table") for value in (3, "text", None, object(), [1, 2])),
    ],
)
def test_invalid_arguments_raise_error(value: object, options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ParameterError, match=pattern):
        show(value, **options)


@pytest.mark.parametrize(
    ("html", "part"),
    [
        (show([{"x": 1}], "A million rows")._repr_html_(), "min-width:7em"),
        (show([{"x": 1}], "word " * 40)._repr_html_(), "min-width:22em"),
        (View("History", text="ann: w1\nbob: w2").html(), "white-space:pre'"),
        (View("Predicate", text="a = 1").html(), "white-space:pre-wrap'"),
        (one_line([1] * 20) + "<", "1, 1<"),
        (one_line([1] * 21) + "<", "1, …<"),
    ],
)
def test_captions_texts_and_lists_have_their_layout(html: str, part: str) -> None:
    assert part in html


def test_numbers_are_right_aligned() -> None:
    html = Table(["name", ("size", "kB")], [["a", 1], ["b", 2.5]]).html()
    assert html.count("text-align:right") == 3
    assert Table(["name", "n"], [["a", Cell("1", "0 to 2", is_best=True)]]).text().endswith("● 1 (0 to 2)")


class Thing(Displayed):
    """An object with a display."""

    def _view(self) -> View:
        return View("Thing", {"size": self.size, "empty": ""}, [frame_table(RUNS)], ["A note."])


def test_display_has_a_line_and_an_html_page() -> None:
    thing = Thing()
    thing.size = "<big>"
    assert repr(thing) == "<Thing: size <big>>"
    outline = Outline(thing._repr_html_())
    assert {"Thing", "<big>", "A note.", "rule"} <= {word.strip() for word in outline.words}
    assert "empty" not in outline.words
    assert repr(show(thing, "Caption")).startswith("Caption\n<Thing")


def test_partly_initialized_object_has_a_display() -> None:
    assert repr(Thing()).startswith("<Thing: not readable: AttributeError")
    assert "not readable" in Thing()._repr_html_()


def test_no_other_module_writes_tables() -> None:
    package = Path(mudkit.__file__).parent
    modules = [
        str(path.relative_to(package))
        for path in [*package.rglob("*.py"), *package.rglob("*.js"), *(package / "widgets").glob("*.py")]
        if path.name != "display.py" and re.search(r"<(table|thead|tbody|tr|td|th)\b[ >]", path.read_text())
    ]
    assert modules == []


def test_cell_has_lines_and_marks() -> None:
    cells = [Cell("a<b\nc", strong="v1"), Cell("x", is_faint=True, is_code=True), Cell("y", edge="#123456")]
    html = Table(["one"], [[cells]]).html()
    assert "<b>v1</b> a&lt;b<br>c" in html
    assert html.count("<div style=") == html.count("</div>") == 2
    assert "solid #123456" in html
    assert Table(["one"], [[cells]]).text() == "one\nv1 a<b; c; x; y"
    Outline(html)


def test_pictures_are_images_with_an_alternative_text() -> None:
    """Embed images: JupyterLab keeps only the text of an inline SVG in an untrusted notebook."""
    leaf = Branch("local", "40 %")
    for picture in (
        tree(Branch("age up to 5 min?", "", leaf, Branch("<b>", "", leaf, leaf)), "A tree of <3 leaves"),
        lanes(
            [Event("ann", "w<1", 0, 1), Event("<bob>", "r1", 1, 2, is_open=True)], [(0, 1), (1, 0)], "<lanes>"
        ),
    ):
        outline = Outline(picture)
        assert outline.tags == ["img"]
        svg = Outline(decode_svg(picture))
        assert {*svg.tags} <= {"svg", "text", "rect", "line", "path"}
        assert " id=" not in picture
        assert "alt='A tree of &lt;3 leaves'" in picture or "alt='&lt;lanes&gt;'" in picture
    assert decode_svg(lanes([], [], "none")).startswith("<svg")


def decode_svg(picture: str) -> str:
    """Return the SVG within an image."""
    data = re.search(r"base64,([^']*)'", picture)
    assert data is not None
    return b64decode(data[1]).decode()


def test_nested_values_and_odd_texts_are_bounded() -> None:
    deep: list[object] = []
    deep.append(deep)
    for value in (deep, {"a": {"b": {"c": {"d": {"e": 1}}}}}, 10**5000, "\ud800" * 100, range(10**9)):
        text = one_line(value)
        assert len(text) <= MAX_CELL
        text.encode()


def test_overlapping_events_of_a_lane_are_stacked():
    events = [Event("ann", "w1", 0, 3, is_open=True), Event("ann", "r1", 2, 3), Event("bob", "r2", 1, 1)]
    picture = decode_svg(lanes(events, [(0, 1)], "three"))
    tops = [int(top) for top in re.findall(r"<rect x='[0-9.]+' y='([0-9]+)'", picture)]
    assert len(set(tops)) == 3
    assert tops == sorted(tops)
    assert picture.count(">ann<") == picture.count(">bob<") == 1


def test_lines_do_not_cross_boxes() -> None:
    picture = decode_svg(lanes([Event("ann", "w1", 0, 1), Event("ann", "r1", 3, 3)], [], "two"))
    boxes = [
        (float(x), float(x) + float(width))
        for x, width in re.findall(r"<rect x='([\d.]+)' y='[\d.]+' width='([\d.]+)'", picture)
    ]
    lines = [
        tuple(map(float, ends)) for ends in re.findall(r"<line x1='([\d.]+)' .*? x2='([\d.]+)'", picture)
    ]
    assert len(boxes) == 2
    assert lines
    for x1, x2 in lines:
        assert all(x2 <= left or right <= x1 for left, right in boxes)


CHARACTER_WIDTH = 0.55 * 13
"""Width of a character of 13 px in the fonts of systems, about, in px."""


def list_attributes(picture: str, tag: str) -> list[dict[str, str]]:
    """Return the attributes of the elements of a kind; of a text also its words."""
    elements = re.findall(rf"<{tag} ([^>]*)>([^<]*)", picture)
    return [{**dict(re.findall(r"([\w-]+)='([^']*)'", of)), "words": words} for of, words in elements]


def assert_holds(picture: str) -> None:
    """Check that all boxes, lines and words of a picture are within it."""
    (svg,) = list_attributes(picture, "svg")
    width, height = float(svg["width"]), float(svg["height"])
    for box in list_attributes(picture, "rect"):
        assert 0 <= float(box["x"]) < float(box["x"]) + float(box["width"]) <= width
        assert 0 <= float(box["y"]) < float(box["y"]) + float(box["height"]) <= height
    for line in list_attributes(picture, "line"):
        assert 0 <= float(line["x1"]) < float(line["x2"]) <= width
    for text in list_attributes(picture, "text"):
        before = {"start": 0.0, "middle": 0.5}[text["text-anchor"]]
        left = float(text["x"]) - before * CHARACTER_WIDTH * len(text["words"])
        assert 0 <= left < left + CHARACTER_WIDTH * len(text["words"]) <= width
        assert 0 <= float(text["y"]) <= height


def test_lanes_hold_what_they_show_and_boxes_their_words() -> None:
    events = [Event("ann", "w1", 0, 1), Event("bob", "r = 5 of ann", 2, 2), Event("a long name", "r2", 3, 5)]
    picture = decode_svg(lanes(events, [(0, 1)], "three"))
    assert_holds(picture)
    boxes = list_attributes(picture, "rect")
    for box, event in zip(boxes, events, strict=True):
        assert float(box["width"]) > CHARACTER_WIDTH * len(event.text)
    lefts = [float(box["x"]) for box in boxes]
    step = (lefts[1] - lefts[0]) / 2  # two columns
    assert step > 0
    assert lefts[2] - lefts[1] == step


def test_arrows_bend_in_the_middle_and_have_symmetric_heads() -> None:
    """Draw one along a lane, and one to another lane."""
    events = [Event("ann", "w1", 0, 0), Event("ann", "r1", 3, 3), Event("bob", "r1", 5, 5)]
    for then in (1, 2):
        picture = decode_svg(lanes(events, [(0, then)], "arrow"))
        (path,) = (attributes["d"] for attributes in list_attributes(picture, "path"))
        points = [complex(*map(float, point)) for point in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]
        begin, *bend, end, one, again, other, last = points
        assert end == again == last
        assert [point.real for point in bend] == [(begin.real + end.real) / 2] * (then == 1)
        back = (bend[0] if bend else begin) - end  # a curve ends in the direction of its middle
        sides = [(side - end) / back for side in (one, other)]
        assert abs(sides[0] - sides[1].conjugate()) < 0.01
        assert 0 < abs(sides[0]) < 0.5


@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0)])
def test_arrow_to_another_lane_leads_from_edge_to_edge(first: int, then: int) -> None:
    """It crosses neither box: it begins at the edge on the side of the other, and ends at the nearer one."""
    events = [Event("ann", "w1", 0, 0), Event("bob", "r1", 2, 2)]
    picture = decode_svg(lanes(events, [(first, then)], "arrow"))
    edges = [
        (float(box["y"]), float(box["y"]) + float(box["height"])) for box in list_attributes(picture, "rect")
    ]
    (path,) = (attributes["d"] for attributes in list_attributes(picture, "path"))
    begin_y, end_y = [float(y) for _, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)][:2]
    is_down = then > first
    assert (begin_y, end_y) == (edges[first][is_down], edges[then][not is_down])


def test_answers_of_a_tree_are_below_their_question_and_notes_beside_it() -> None:
    leaf = Branch("ask", "40 % of the reads")
    root = Branch("age up to 5 min?", "", Branch("near?", "a note", leaf, leaf), leaf)
    picture = decode_svg(tree(root, "tree"))
    assert_holds(picture)
    texts = {text["words"]: text for text in list_attributes(picture, "text")}
    near, note = texts["near?"], texts["a note"]
    assert note["y"] == near["y"]
    assert float(note["x"]) > float(near["x"]) + CHARACTER_WIDTH * len("near?")
    questions = {float(texts[question]["x"]) for question in ("age up to 5 min?", "near?")}
    begins = {float(path["d"][1:].split(" ")[0]) for path in list_attributes(picture, "path")}
    assert len(begins) == len(questions) == 2
    for question, begin in zip(sorted(questions), sorted(begins), strict=True):
        assert question < begin < question + CHARACTER_WIDTH * len("near?")


@pytest.mark.parametrize(
    "values", [[math.nan] * 3, [math.inf, -math.inf, 1.5], [0.0, -0.0, 1e-12], [1e300, 2, 3]]
)
def test_columns_of_extreme_numbers_have_no_exponent(values: list[float]) -> None:
    text = repr(show(pd.DataFrame({"name": ["a", "b", "c"], "x_share": values, "mixed": ["a", 1, None]})))
    assert not re.search(r"\d(e|E)[+-]?\d|nan|inf", text)
