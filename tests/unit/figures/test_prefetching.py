"""Waste and loss of prefetching, and lifecycles of messages."""

import pandas as pd
import pytest

from mudkit import figures
from mudkit.figures.prefetching import MIN_PERCENT, _caption, _day_ticks
from mudkit.figures.times import HOUR_US

PARAMETERS = {
    "event_frequency": 32.0, "user_frequency": 2.0, "max": 8, "threshold": 0.0, "expiration": None,
    "expiring_share": 1.0, "outage": 0.9, "outages_per_day": 12.0, "policy": "buffer", "prefetch_limit": 16,
    "expiration_threshold_s": None, "days": 365, "reads_cv": 0.1, "seeds": [1, 2, 3],
}  # fmt: skip


def make_sweep():
    """Return a sweep of two limits and two outage shares with three seeds."""
    limits, outages = [1, 16], [0.0, 0.5]
    rows = [
        {"prefetch_limit": limit, "outage": outage, "seed": seed, "waste": 0.1 * seed, "loss": 0.0004 * seed, "best": 50}
        for limit in limits for outage in outages for seed in (1, 2, 3)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    table.attrs["parameters"] = PARAMETERS | {"prefetch_limit": limits, "outage": outages}
    return table


def test_days_have_ticks_at_their_beginning_but_at_most_ten():
    assert _day_ticks(12 * HOUR_US, 59 * HOUR_US) == {}, "less than two days are hours"
    ticks = _day_ticks(49 * HOUR_US, 121 * HOUR_US)
    assert ticks == {"tickvals": [72, 96, 120], "ticktext": ["day 4", "day 5", "day 6"]}
    assert _day_ticks(0, 40 * 24 * HOUR_US)["tickvals"] == [24 * day for day in range(0, 41, 5)]


def get_named_traces(figure):
    return [trace for trace in figure.data if trace.name is not None and trace.x[0] is not None]


def test_lines_are_medians_with_lowest_and_highest_seed():
    figure = figures.waste_and_loss_by_limit(make_sweep(), title="A title")
    traces = get_named_traces(figure)
    for line in traces:
        assert list(line.x) == [1, 16]
        is_loss = line.line.dash == "dash"
        assert list(line.y) == pytest.approx([0.1 if is_loss else 20] * 2)
        if not is_loss:
            assert [*line.error_y.array, *line.error_y.arrayminus] == pytest.approx([10] * 4)
    assert len({line.name for line in traces}) == 2
    assert all("median" not in line.hovertemplate and "customdata" in line.hovertemplate for line in traces)
    assert len({(line.line.color, line.line.dash) for line in traces}) == len(traces)
    assert len({line.marker.symbol for line in traces}) == len(traces)
    weights = {line.name: sum(int(line.line.color[at : at + 2], 16) for at in (1, 3, 5)) for line in traces}
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert figure.layout.title.text == "A title"
    assert figure.layout.xaxis.title.text
    assert "%" in figure.layout.yaxis.title.text
    [caption] = [note.text.replace("<br>", " ") for note in figure.layout.annotations]
    assert caption.startswith("32 messages a day; ")
    assert "medians of 3 seeds" in caption
    assert "365 days" in caption


def test_table_without_parameters_is_drawn():
    bare = make_sweep()
    bare.attrs = {}
    assert get_named_traces(figures.waste_and_loss_by_limit(bare))


@pytest.mark.parametrize(
    ("settings", "caption"),
    [
        ({}, "32 messages a day; 2 reads a day; reads of at most 8; outages 90 % of the time, exponential, 12 a day"),
        ({"outage": 0.0}, "no outages; nothing expires; policy buffer, prefetch limit 16"),
        ({"outage": {"share": 0.5, "per_day": 4.0, "distribution": "fixed", "cv": 1.0}}, "outages 50 % of the time, fixed, 4 a day"),
        ({"max": None}, "reads of all there is"),
        ({"expiration": 3600.0}, "expiration times exponential, mean 1 h"),
        ({"expiration": {"mean_s": 60.0, "law": "normal"}, "expiring_share": 0.5}, "normal, mean 1 min, for 50 % of the messages"),
        ({"threshold": 0.25}, "ranks of 0.25 and more"),
        ({"policy": "on-line", "prefetch_limit": None}, "policy on-line; spread"),
        ({"policy": {"kind": "buffer", "prefetch_limit": "learnt"}}, "policy buffer, prefetch limit learnt"),
        ({"expiration_threshold_s": 7200.0}, "expiration threshold 2 h"),
    ],
)  # fmt: skip
def test_caption_describes_parameters(settings, caption):
    assert caption in _caption(PARAMETERS | settings)


POINTS = [(1, 0.0, 0.8), (16, 0.003, 0.01), (64, 0.0108, 0.0)]


def get_lines(figure):
    return {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}


def test_limit_curve_has_points_and_the_present_setting():
    figure = figures.limit_curve(POINTS, (16, 0.003, 0.01), title="a year")
    result = get_lines(figure)
    assert result["waste"] == ([1, 16, 64], [MIN_PERCENT, 0.3, 1.08])
    assert result["loss"] == ([1, 16, 64], [80.0, 1.0, MIN_PERCENT])
    assert result["waste now"] == ([16], [0.3])
    assert result["loss now"] == ([16], [1.0])
    assert figure.data[0].customdata[0] == 0.0, "the pointer shows what it is"
    assert figure.layout.title.text == "a year"
    assert "%" in figure.layout.yaxis.title.text


def test_policy_without_limit_is_a_horizontal_line():
    result = get_lines(figures.limit_curve(POINTS, (None, 0.5, 0.0), title=""))
    assert result["waste now"] == ([1, 64], [50.0, 50.0])
    assert result["loss now"] == ([1, 64], [MIN_PERCENT, MIN_PERCENT])
    assert get_lines(figures.limit_curve([], (None, 0.5, 0.0), title=""))["waste now"] == ([], [])


def test_update_limit_curve_replaces_the_curve():
    figure = figures.limit_curve(POINTS, (16, 0.003, 0.01), title="a")
    figures.update_limit_curve(figure, POINTS[:2], (1, 0.5, 0.25), title="b")
    assert get_lines(figure) == get_lines(figures.limit_curve(POINTS[:2], (1, 0.5, 0.25), title="b"))
    assert figure.layout.title.text == "b"


NEVER_US = 1 << 62


def make_lifecycles(*rows):
    """Build a lifecycle table from rows of (came, expires, forwarded, read) in hours; None: never."""
    columns = ["came_us", "expires_us", "forwarded_us", "read_us"]
    values = [
        [
            hours * HOUR_US if hours is not None else NEVER_US if name == "expires_us" else -1
            for name, hours in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    result = pd.DataFrame(values, columns=columns)
    return result.assign(message=range(len(result)), rank=0.5)


ONLINE = make_lifecycles(
    (0, None, 1, 4), (1, None, 1, 4), (2, None, 2, 10), (3, 5, 3, None), (6, None, 6, None)
)


RULE = make_lifecycles(
    (0, None, 2, 4), (1, None, None, None), (2, None, 3, None), (3, 5, 3, None), (6, None, None, None)
)


EVENTS = {
    "reads_us": [4 * HOUR_US, 10 * HOUR_US],
    "switches_us": [5 * HOUR_US, 6 * HOUR_US],
    "starts_up": True,
}


def draw_lifecycles(**options):
    tables = {"on-line": ONLINE, "rule": RULE}
    return figures.message_lifecycles(
        tables, ONLINE, **EVENTS, **{"until_us": 12 * HOUR_US, "title": "some"} | options
    )


def get_points(figure, name, panel=""):
    (trace,) = [trace for trace in figure.data if trace.name == name and trace.yaxis == f"y{panel}"]
    return list(zip(trace.x, trace.y, strict=True))


def test_message_fates_are_compared_with_online():
    assert figures.message_fates(ONLINE, ONLINE).tolist() == ["read", "read", "read", "wasted", "wasted"]
    assert figures.message_fates(RULE, ONLINE).tolist() == [
        "read",
        "lost",
        "wasted and lost",
        "wasted",
        "neither",
    ]


def test_lifecycles_have_a_line_per_message():
    figure = draw_lifecycles()
    assert [item.text for item in figure.layout.annotations] == ["on-line", "rule"]
    assert get_points(figure, "waits at the server", "2")[:3] == [(0, 0), (2, 0), (None, None)]
    assert get_points(figure, "on the device, and read", "2") == [(2, 0), (4, 0), (None, None)]
    assert get_points(figure, "on the device for nothing: waste", "2") == [
        (3, 2),
        (12, 2),
        (None, None),
        (3, 3),
        (5, 3),
        (None, None),
    ]
    assert get_points(figure, "read", "2") == [(4, 0)]
    assert get_points(figure, "expires", "2") == [(5, 3)]
    assert get_points(figure, "lost: read on-line, not here", "2") == [(4, 1), (10, 2)]
    assert not any(item.name.startswith("lost") and item.yaxis == "y" for item in figure.data)
    legend = [item.name for item in figure.data if item.showlegend]
    assert len(legend) == len(set(legend)) == 6, "each name stands in the legend once"


def test_outages_are_grey_and_reads_dotted_in_each_panel():
    figure = draw_lifecycles()
    for panel in ("", "2"):
        shapes = [shape for shape in figure.layout.shapes if shape.xref == f"x{panel}"]
        assert [(shape.x0, shape.x1) for shape in shapes if shape.type == "rect"] == [(5, 6)]
        assert [shape.x0 for shape in shapes if shape.type == "line"] == [4, 10]
    down = figures.message_lifecycles(
        {"rule": RULE}, ONLINE, **EVENTS | {"starts_up": False}, until_us=12 * HOUR_US, title=""
    )
    assert [(shape.x0, shape.x1) for shape in down.layout.shapes if shape.type == "rect"] == [(0, 5), (6, 12)]


def test_lifecycles_of_a_period_are_clipped():
    figure = draw_lifecycles(from_us=8 * HOUR_US)
    assert figure.layout.xaxis.range == (8, 12)
    assert get_points(figure, "waits at the server", "2") == [
        (8, 0),
        (8, 0),
        (None, None),
        (8, 1),
        (12, 1),
        (None, None),
    ]
    assert get_points(figure, "on the device for nothing: waste", "2") == [(8, 0), (12, 0), (None, None)]
    assert get_points(figure, "lost: read on-line, not here", "2") == [(10, 0)]
    assert len(draw_lifecycles(from_us=11 * HOUR_US, until_us=12 * HOUR_US).layout.shapes) == 0


def test_lifecycles_count_the_messages_that_are_left_out():
    assert draw_lifecycles().layout.title.subtitle.text == ""
    note = draw_lifecycles(from_us=8 * HOUR_US).layout.title.subtitle.text
    assert note == "2 of 5 messages; the others are on no device in this time"


def test_lifecycles_of_many_messages_are_sampled():
    many = make_lifecycles(*[(k, None, k + 1, None if k % 3 else k + 5) for k in range(100)])
    online = many.assign(read_us=many["came_us"] + 5 * HOUR_US)
    figure = figures.message_lifecycles(
        {"a": many, "b": online}, online, reads_us=[], switches_us=[], starts_up=True, until_us=36 * HOUR_US,
        max_messages=20, title="T",
    )  # fmt: skip
    assert figure.layout.title.subtitle.text.startswith("20 of ")
    waits = [trace for trace in figure.data if trace.name == "waits at the server"]
    assert [sum(x is None for x in trace.x) for trace in waits] == [20, 20]
    assert figure.layout.height < 700, "one screen"
    few = figures.message_lifecycles(
        {"a": many[:10], "b": online[:10]}, online[:10], until_us=36 * HOUR_US, title="T"
    )  # fmt: skip
    assert few.layout.height < figure.layout.height, "each message has a line of its own"
    wasted = [trace for trace in figure.data if trace.name.startswith("on the device for nothing")]
    assert sum(x is None for x in wasted[0].x) >= 10, "what goes wrong is among them"


def test_limit_curve_marks_one_per_cent():
    figure = figures.limit_curve(POINTS, (16, 0.003, 0.01), title="")
    (line,) = figure.layout.shapes
    assert (line.y0, line.y1) == (1.0, 1.0)
