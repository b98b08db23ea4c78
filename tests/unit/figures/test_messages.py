"""Message diagrams."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from mudkit import Lab, figures
from mudkit.errors import TraceContentError
from mudkit.figures.labels import text_px
from mudkit.figures.messages import MAX_LABELS, MAX_MESSAGES
from mudkit.systems.radiator import Client, Context, Server, Volume
from mudkit.trace.schema import FATES, INCIDENTS, MESSAGES

T0 = pd.Timestamp("2008-05-18 08:00:05", tz="UTC")


def at(second):
    return pd.NaT if second is None else T0 + pd.Timedelta(seconds=second)


def messages(*rows, content="{}"):
    """Rows of (source, target, sent, ended, fate, kind, key)."""
    return pd.DataFrame(
        [
            ("s", source, target, at(sent), at(ended), 120, fate, kind, key, content)
            for source, target, sent, ended, fate, kind, key in rows
        ],
        columns=MESSAGES.names,
    )


def incidents(*rows):
    """Rows of (device, second, incident)."""
    return pd.DataFrame([(name, at(t), what, None, None) for name, t, what in rows], columns=INCIDENTS.names)


RUN = messages(
    ("jane", "server", 0, 0.18, "arrived", "send", "n1"),
    ("server", "john", 0.2, 0.36, "arrived", "deliver", "n1"),
    ("server", "jane", 0.5, 0.9, "cut", "ack", "n1"),
    ("jane", "server", 1.0, 1.4, "no link", "send", "n2"),
    ("jane", None, 1.25, 1.25, "nobody there", "query", None),
    ("server", "john", 1.3, 1.5, "lost", "deliver", "n2"),
    ("server", "john", 1.9, 2.2, "repeated", "deliver", "n2"),
    ("jane", "john", 2.4, 2.7, "arrived", None, None),
    ("john", "server", 2.8, None, "under way", "sync", "n3"),
)


def trace(figure, fate):
    """The arrows of a fate: a list of (x, y) of their points."""
    (result,) = [one for one in figure.data if one.name == fate and len(one.x) > 1]
    x, y = (
        np.array([np.nan if value is None else value for value in axis], float)
        for axis in (result.x, result.y)
    )
    return [(x[a : a + 5], y[a : a + 5]) for a in range(0, len(x), 6)], result


def texts(figure):
    return [one.text for one in figure.layout.annotations]


def test_an_arrow_goes_from_sender_and_sent_to_receiver_and_ended():
    arrows, result = trace(figures.message_diagram(RUN), "arrived")
    ends = [(x[0], x[-1], round(y[0], 3), round(y[-1], 3)) for x, y in arrows]
    assert ends == [(0, 1, 0, 0.18), (1, 2, 0.2, 0.36), (0, 2, 2.4, 2.7)]
    assert result.marker.symbol == "arrow"
    assert list(result.marker.size[:6]) == [0, 0, 0, 0, 11, 0]


def test_fates_differ_by_dash_and_mark_and_colour():
    figure = figures.message_diagram(RUN)
    looks = {one.name: one for one in figure.data if one.name in FATES}
    assert set(looks) == set(FATES)
    assert len({(look.line.dash, look.marker.symbol) for look in looks.values()}) == len(FATES)
    assert len({look.line.color for look in looks.values()}) == len(FATES)
    counts = {one.name for one in figure.data if one.showlegend is None}
    assert {"arrived: 3", "cut: 1", "under way: 1"} <= counts


@pytest.mark.parametrize(
    ("fate", "x", "y"),
    [
        ("cut", (1, 1 - 0.58), (0.5, 0.9)),
        ("lost", (1, 1.73), (1.3, 1.5)),
        ("no link", (0, 0.17), (1, 1)),  # level, though it was known only later
        ("nobody there", (0, 0.17), (1.25, 1.25)),
        ("under way", (2, 2 - 0.45), (2.8, 2.8)),
        ("repeated", (1, 2), (1.9, 2.2)),
    ],
)
def test_where_the_others_end(fate, x, y):
    ((places, times),), _ = trace(figures.message_diagram(RUN), fate)
    assert (places[0], places[-1]) == pytest.approx(x)
    assert (times[0], times[-1]) == pytest.approx(y)


def test_a_message_to_oneself_is_a_bow():
    ((x, _),), _ = trace(
        figures.message_diagram(messages(("a", "a", 0, 1, "arrived", "tick", None))), "arrived"
    )
    assert x[0] == pytest.approx(0)
    assert x[-1] == pytest.approx(0)
    assert x[2] == pytest.approx(0.3)


def test_the_pointer_shows_everything_and_texts_cannot_be_markup():
    figure = figures.message_diagram(
        messages(("a", "<b>", 0, 0.02, "arrived", "<i>", "k&1"), content='{"x": "<script>"}')
    )
    answer = trace(figure, "arrived")[1].text[0]
    for part in ("&lt;i&gt; 120 B, arrived", "a → &lt;b&gt;", "2008-05-18 08:00:05.000 UTC", "08:00:05.020",
                 "20.0 ms later", "key k&amp;1", "&lt;script&gt;"):  # fmt: skip
        assert part in answer, part
    assert list(figure.layout.xaxis.ticktext) == ["<b>a</b>", "<b>&lt;b&gt;</b>"]


def test_labels_say_kind_and_size_until_there_are_too_many():
    assert {"send 120 B", "message 120 B", "sync 120 B"} <= set(texts(figures.message_diagram(RUN)))
    few, many = (
        messages(*[("a", "b", t, t + 0.5, "arrived", "send", None) for t in range(number)])
        for number in (MAX_LABELS, MAX_LABELS + 1)
    )
    assert len(texts(figures.message_diagram(few))) > MAX_LABELS / 2
    assert texts(figures.message_diagram(many)) == []
    assert "the pointer shows" in figures.message_diagram(many).layout.title.subtitle.text
    crowd = messages(*[("a", "b", 0.001 * t, 0.001 * t + 0.5, "arrived", "send", None) for t in range(30)])
    assert 1 < len(texts(figures.message_diagram(crowd))) < 30


def test_labels_of_a_narrow_figure_stand_apart():
    lanes = ("ann", "relay", "bob", "cy")
    first = [(name, "relay", 0, 0.116, "arrived", None, None) for name in ("ann", "bob", "cy")]
    figure = figures.message_diagram(messages(*first), lanes=lanes)
    lane_px = (590 - figure.layout.margin.l - figure.layout.margin.r) / len(lanes)
    spans = []
    for one in figure.layout.annotations:
        wide, high = text_px(one.text, one.font.size)
        left = one.x * lane_px + one.xshift - {"left": 0, "center": wide / 2, "right": wide}[one.xanchor]
        down_px = one.y * 300 - one.yshift
        spans.append((left, left + wide, down_px, high))
    assert len(spans) >= 2
    for one, other in combinations(spans, 2):
        is_level = abs(one[2] - other[2]) < one[3]
        assert not (is_level and one[0] < other[1] and other[0] < one[1])


def test_lanes_stand_in_the_order_of_the_messages_or_as_asked():
    def names(**how):
        return [text[3:-4] for text in figures.message_diagram(RUN, **how).layout.xaxis.ticktext]

    assert names() == ["jane", "server", "john"]
    assert names(lanes=["john", "other"]) == ["john", "other", "jane", "server"]
    assert names(devices=["john"], kinds=["sync"]) == ["john", "server"]


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ({"start": at(1), "end": at(2)}, 4),
        ({"start": at(1.45), "end": at(1.95)}, 2),  # one began before, one ends after
        ({"start": "2008-05-18 08:00:07.6"}, 2),
        ({"start": pd.Timestamp("2008-05-18 10:00:07.6", tz="Europe/Paris")}, 2),
        ({"devices": ["john"]}, 5),
        ({"key": "n1"}, 3),
        ({"kinds": ["send", "sync"]}, 3),
        ({"kinds": ["send"], "key": "n2", "devices": ["jane"]}, 1),
    ],
)
def test_windows_and_filters(how, number):
    assert figures.message_diagram(RUN, **how).layout.title.subtitle.text.startswith(f"{number} message")


def test_a_key_may_stand_in_the_content():
    table = messages(("a", "b", 0, 1, "arrived", "k", None), content='{"item": "n7(+"}')
    assert figures.message_diagram(table, key="n7(+").layout.title.subtitle.text.startswith("1 message,")


def test_a_window_without_messages_says_what_there_is():
    with pytest.raises(TraceContentError) as caught:
        figures.message_diagram(RUN, start=at(60), end=at(70), devices=["nobody"], key="n1")
    text = str(caught.value)
    # The one that is under way still is a minute later.
    for part in (
        "2008-05-18 08:01:05 UTC",
        "08:01:15 UTC",
        "devices nobody",
        "key n1",
        "8 outside it",
        "1 messages in",
    ):
        assert part in text, part


def test_too_many_messages():
    table = messages(*[("a", "b", t, t + 0.5, "arrived", "send", None) for t in range(MAX_MESSAGES + 10)])
    figure = figures.message_diagram(table.sample(frac=1, random_state=1), end=at(3000))
    assert "the first 400 of 410 messages" in figure.layout.title.subtitle.text
    arrows, _ = trace(figure, "arrived")
    assert len(arrows) == MAX_MESSAGES
    assert arrows[-1][1][0] == pytest.approx((MAX_MESSAGES - 1) / 60)
    assert figure.layout.yaxis.title.text.endswith(", min")
    assert max(figure.layout.yaxis.range) < 450 / 60  # it ends with what is drawn
    assert len(figure.data) < 20


def test_time_runs_downwards_in_seconds_then_by_the_clock():
    axis = figures.message_diagram(RUN).layout.yaxis
    assert axis.title.text == "virtual time since 08:00:05, s"
    assert axis.range[0] > axis.range[1]
    assert (
        figures.message_diagram(RUN, start=at(0.25)).layout.yaxis.title.text
        == "virtual time since 08:00:05.250, s"
    )
    axis = figures.message_diagram(RUN, end=at(3600)).layout.yaxis
    assert axis.title.text == "virtual time, UTC"
    assert axis.range[0].startswith("2008-05-18T09:0")


def test_a_single_moment_is_drawn_as_the_begin_of_a_second():
    one = messages(("jane", None, 0, 0, "nobody there", "query", None))
    low, high = sorted(figures.message_diagram(one).layout.yaxis.range)
    assert (low, high) == (pytest.approx(-0.05), pytest.approx(1.05))


def stretch(figure, name):
    (result,) = [one for one in figure.data if one.name == name]
    x, y = list(result.x), list(result.y)
    return [(x[a], *(round(float(value), 2) for value in y[a : a + 2])) for a in range(0, len(x), 3)]


def test_incidents_stand_on_their_lane():
    table = incidents(
        ("jane", 0.8, "link down"),
        ("jane", 1.6, "link up"),
        ("john", 1.45, "killed"),
        ("john", 1.75, "restarted"),
        ("jane", 2, "moved"),
        ("stranger", 1, "off"),
        ("server", 2.5, "link down"),
    )
    figure = figures.message_diagram(RUN, table)
    bottom = round(figure.layout.yaxis.range[0], 2)
    assert stretch(figure, "link down") == [(0, 0.8, 1.6), (1, 2.5, bottom)]
    assert stretch(figure, "not running") == [(2, 1.45, 1.75)]
    assert {"link down", "link up", "killed", "restarted", "moved"} <= set(texts(figure))
    assert "off" not in texts(figure)
    (marks,) = [one for one in figure.data if one.name == "incidents"]
    assert "<b>moved</b>, jane" in "".join(marks.text)


def test_a_link_that_went_down_before_the_window_is_down_in_it():
    figure = figures.message_diagram(
        RUN, incidents(("jane", -50, "link down"), ("john", -60, "off"), ("john", -50, "on")), start=at(1)
    )
    top, bottom = (round(value, 2) for value in sorted(figure.layout.yaxis.range))
    assert stretch(figure, "link down") == [(0, top, bottom)]
    assert not [one for one in figure.data if one.name in ("not running", "incidents")]


def test_names_that_are_tilted_do_not_lie_on_the_title():
    def margin(name):
        rows = [(f"{name}-{number}", f"{name}-{number + 1}", number, number + 0.5) for number in range(6)]
        return figures.message_diagram(
            messages(*((*row, "arrived", "send", None) for row in rows))
        ).layout.margin.t

    assert margin("a-server-with-a-long-name") > margin("a") + 50


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("words", ["short", "x" * 2000])
def test_contexts_and_pushes(compress, words):
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1), chain=1.0, compress=compress)
    clients = [
        Client(lab.device(name), server, attributes={"p2p_enabled": True}) for name in ("ann", "bob", "cy")
    ]
    lab.run(seconds=2)
    clients[0].propagate_context(Context({"ann"}, {"text": words})).result()
    lab.run(seconds=2)
    result = figures.radiator_pushes(lab.frame("messages"))
    rows = result[["kind", "source", "target"]].values.tolist()
    assert rows == [["context", "ann", "radiator"], ["push", "radiator", "bob"], ["push", "bob", "cy"]]


def test_a_lab_is_drawn_with_its_messages_and_incidents():
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1))
    Client(lab.device("ann"), server)
    lab.run(seconds=2)
    lab.faults.kill("ann")
    lab.faults.restart("ann")
    Client(lab.device("bob"), server)
    lab.run(seconds=2)
    assert len(lab.frame("incidents"))
    drawn = figures.message_diagram(lab, lanes=["radiator"])
    tables = lab.frame("messages"), lab.frame("incidents")
    assert drawn.to_json() == figures.message_diagram(*tables, lanes=["radiator"]).to_json()
    assert drawn.to_json() != figures.message_diagram(tables[0], lanes=["radiator"]).to_json()
