"""The picture of messages between server and device shows each where it was, and what became of it."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.time.message_lifecycles import fates, message_lifecycles

HOUR_US = 3_600_000_000
NEVER_US = 1 << 62


def table(*rows):
    """Rows of (came, expires, forwarded, read) in hours; None: never."""
    columns = ["came_us", "expires_us", "forwarded_us", "read_us"]
    made = [
        [
            each * HOUR_US if each is not None else NEVER_US if name == "expires_us" else -1
            for name, each in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    result = pd.DataFrame(made, columns=columns)
    return result.assign(message=range(len(result)), rank=0.5)


ONLINE = table((0, None, 1, 4), (1, None, 1, 4), (2, None, 2, 10), (3, 5, 3, None), (6, None, 6, None))
RULE = table(
    (0, None, 2, 4), (1, None, None, None), (2, None, 3, None), (3, 5, 3, None), (6, None, None, None)
)
EVENTS = {
    "reads_us": [4 * HOUR_US, 10 * HOUR_US],
    "switches_us": [5 * HOUR_US, 6 * HOUR_US],
    "starts_up": True,
}


def drawn(**more):
    tables = {"on-line": ONLINE, "rule": RULE}
    return message_lifecycles(tables, ONLINE, **EVENTS, **{"until_us": 12 * HOUR_US, "title": "some"} | more)


def points(figure, name, panel=""):
    (trace,) = [each for each in figure.data if each.name == name and each.yaxis == f"y{panel}"]
    return list(zip(trace.x, trace.y, strict=True))


def test_fates():
    assert fates(ONLINE, ONLINE).tolist() == ["read", "read", "read", "wasted", "wasted"]
    assert fates(RULE, ONLINE).tolist() == ["read", "lost", "wasted and lost", "wasted", "neither"]


def test_each_message_has_its_line():
    figure = drawn()
    assert [each.text for each in figure.layout.annotations] == ["on-line", "rule"]
    assert points(figure, "waits at the server", "2")[:3] == [(0, 0), (2, 0), (None, None)]
    assert points(figure, "on the device, and read", "2") == [(2, 0), (4, 0), (None, None)]
    assert points(figure, "on the device for nothing: waste", "2") == [
        (3, 2),
        (12, 2),
        (None, None),
        (3, 3),
        (5, 3),
        (None, None),
    ]
    assert points(figure, "read", "2") == [(4, 0)]
    assert points(figure, "expires", "2") == [(5, 3)]
    assert points(figure, "lost: read on-line, not here", "2") == [(4, 1), (10, 2)]
    assert not any(each.name.startswith("lost") and each.yaxis == "y" for each in figure.data)


def test_outages_are_grey_and_reads_dotted_in_each_panel():
    figure = drawn()
    for panel in ("", "2"):
        shapes = [each for each in figure.layout.shapes if each.xref == f"x{panel}"]
        assert [(each.x0, each.x1) for each in shapes if each.type == "rect"] == [(5, 6)]
        assert [each.x0 for each in shapes if each.type == "line"] == [4, 10]
    down = message_lifecycles(
        {"rule": RULE}, ONLINE, **EVENTS | {"starts_up": False}, until_us=12 * HOUR_US, title=""
    )
    assert [(each.x0, each.x1) for each in down.layout.shapes if each.type == "rect"] == [(0, 5), (6, 12)]


def test_a_part_of_the_time_shows_what_happens_in_it():
    figure = drawn(from_us=8 * HOUR_US)
    assert figure.layout.xaxis.range == (8, 12)
    assert points(figure, "waits at the server", "2") == [
        (8, 0),
        (8, 0),
        (None, None),
        (8, 1),
        (12, 1),
        (None, None),
    ]
    assert points(figure, "on the device for nothing: waste", "2") == [(8, 0), (12, 0), (None, None)]
    assert points(figure, "lost: read on-line, not here", "2") == [(10, 0)]
    assert len(drawn(from_us=11 * HOUR_US, until_us=12 * HOUR_US).layout.shapes) == 0


def test_each_name_stands_in_the_legend_once():
    named = [each.name for each in drawn().data if each.showlegend]
    assert len(named) == len(set(named)) == 6


def test_a_table_must_have_its_columns():
    with pytest.raises(ParameterError, match="read_us"):
        message_lifecycles({"rule": RULE.drop(columns="read_us")}, ONLINE, **EVENTS, until_us=1, title="")
