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


def make_messages(*rows, content="{}"):
    """Build a message table from rows of (source, target, sent, ended, fate, kind, key)."""
    return pd.DataFrame(
        [
            ("s", source, target, at(sent), at(ended), 120, fate, kind, key, content)
            for source, target, sent, ended, fate, kind, key in rows
        ],
        columns=MESSAGES.names,
    )


def make_incidents(*rows):
    """Build an incident table from rows of (device, second, incident)."""
    return pd.DataFrame(
        [(name, at(t), incident, None, None) for name, t, incident in rows], columns=INCIDENTS.names
    )


RUN = make_messages(
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


def get_arrows(figure, fate):
    """Return the arrows of a fate as a list of (x, y) of their points, and their trace."""
    (result,) = [trace for trace in figure.data if trace.name == fate and len(trace.x) > 1]
    x, y = (
        np.array([np.nan if value is None else value for value in axis], float)
        for axis in (result.x, result.y)
    )
    return [(x[a : a + 5], y[a : a + 5]) for a in range(0, len(x), 6)], result


def get_labels(figure):
    return [note.text for note in figure.layout.annotations]


def test_arrows_connect_sender_and_receiver_at_their_times():
    arrows, result = get_arrows(figures.message_diagram(RUN), "arrived")
    ends = [(x[0], x[-1], round(y[0], 3), round(y[-1], 3)) for x, y in arrows]
    assert ends == [(0, 1, 0, 0.18), (1, 2, 0.2, 0.36), (0, 2, 2.4, 2.7)]
    assert result.marker.symbol == "arrow"
    assert list(result.marker.size[:6]) == [0, 0, 0, 0, 11, 0]


def test_fates_differ_by_dash_mark_and_colour():
    others = make_messages(
        ("server", "jane", 1.5, 1.6, "not let in", "ack", "n4"),
        ("john", "server", 1.6, 1.7, "queue full", "sync", "n5"),
    )
    figure = figures.message_diagram(pd.concat([RUN, others]))
    looks = {trace.name: trace for trace in figure.data if trace.name in FATES}
    assert set(looks) == set(FATES)
    assert len({(look.line.dash, look.marker.symbol) for look in looks.values()}) == len(FATES)
    assert len({look.line.color for look in looks.values()}) == len(FATES)
    counts = {trace.name for trace in figure.data if trace.showlegend is None}
    assert {"arrived: 3", "cut: 1", "under way: 1"} <= counts


@pytest.mark.parametrize(
    ("fate", "x", "y"),
    [
        ("cut", (1, 1 - 0.58), (0.5, 0.9)),
        ("lost", (1, 1.73), (1.3, 1.5)),
        ("no link", (0, 0.17), (1, 1)),  # level, although the failure is noticed later
        ("nobody there", (0, 0.17), (1.25, 1.25)),
        ("under way", (2, 2 - 0.45), (2.8, 2.8)),
        ("repeated", (1, 2), (1.9, 2.2)),
    ],
)
def test_arrow_ends_depend_on_the_fate(fate, x, y):
    ((places, times),), _ = get_arrows(figures.message_diagram(RUN), fate)
    assert (places[0], places[-1]) == pytest.approx(x)
    assert (times[0], times[-1]) == pytest.approx(y)


def test_message_to_its_sender_is_an_arc():
    ((x, _),), _ = get_arrows(
        figures.message_diagram(make_messages(("a", "a", 0, 1, "arrived", "tick", None))), "arrived"
    )
    assert x[0] == pytest.approx(0)
    assert x[-1] == pytest.approx(0)
    assert x[2] == pytest.approx(0.3)


def test_hover_text_is_complete_and_escaped():
    figure = figures.message_diagram(
        make_messages(("a", "<b>", 0, 0.02, "arrived", "<i>", "k&1"), content='{"x": "<script>"}')
    )
    hover_text = get_arrows(figure, "arrived")[1].text[0]
    for part in ("&lt;i&gt; 120 B, arrived", "a → &lt;b&gt;", "2008-05-18 08:00:05.000 UTC", "08:00:05.020",
                 "20.0 ms later", "key k&amp;1", "&lt;script&gt;"):  # fmt: skip
        assert part in hover_text, part
    assert list(figure.layout.xaxis.ticktext) == ["<b>a</b>", "<b>&lt;b&gt;</b>"]


def test_labels_show_kind_and_size_up_to_a_maximum():
    assert {"send 120 B", "message 120 B", "sync 120 B"} <= set(get_labels(figures.message_diagram(RUN)))
    few, many = (
        make_messages(*[("a", "b", t, t + 0.5, "arrived", "send", None) for t in range(number)])
        for number in (MAX_LABELS, MAX_LABELS + 1)
    )
    assert len(get_labels(figures.message_diagram(few))) > MAX_LABELS / 2
    assert get_labels(figures.message_diagram(many)) == []
    assert "the pointer shows" in figures.message_diagram(many).layout.title.subtitle.text
    crowd = make_messages(
        *[("a", "b", 0.001 * t, 0.001 * t + 0.5, "arrived", "send", None) for t in range(30)]
    )
    assert 1 < len(get_labels(figures.message_diagram(crowd))) < 30


def test_labels_of_a_narrow_figure_do_not_overlap():
    lanes = ("ann", "relay", "bob", "cy")
    first = [(name, "relay", 0, 0.116, "arrived", None, None) for name in ("ann", "bob", "cy")]
    figure = figures.message_diagram(make_messages(*first), lanes=lanes)
    lane_px = (590 - figure.layout.margin.l - figure.layout.margin.r) / len(lanes)
    spans = []
    for label in figure.layout.annotations:
        wide, high = text_px(label.text)
        left = (
            label.x * lane_px + label.xshift - {"left": 0, "center": wide / 2, "right": wide}[label.xanchor]
        )
        down_px = label.y * 300 - label.yshift
        spans.append((left, left + wide, down_px, high))
    assert len(spans) >= 2
    for label, other in combinations(spans, 2):
        is_level = abs(label[2] - other[2]) < label[3]
        assert not (is_level and label[0] < other[1] and other[0] < label[1])


def test_label_without_room_takes_the_spot_of_another_that_has_two():
    rows = [
        ("ann", "relay", 0, 1, "arrived", "send", None),
        ("bob", "relay", 8, 9.22, "arrived", "ping", None),
        ("relay", "bob", 9.22, 9.74, "arrived", "deliver", None),
        ("bob", "relay", 9.74, 10, "arrived", "delivered", None),
    ]
    figure = figures.message_diagram(make_messages(*rows), lanes=("ann", "relay", "bob"))
    assert get_labels(figure) == ["send 120 B", "ping 120 B", "deliver 120 B", "delivered 120 B"]


def test_lanes_are_ordered_by_messages_or_as_given():
    def list_lanes(**options):
        return [text[3:-4] for text in figures.message_diagram(RUN, **options).layout.xaxis.ticktext]

    assert list_lanes() == ["jane", "server", "john"]
    assert list_lanes(lanes=["john", "other"]) == ["john", "other", "jane", "server"]
    assert list_lanes(devices=["john"], kinds=["sync"]) == ["john", "server"]


@pytest.mark.parametrize(
    ("options", "number"),
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
def test_windows_and_filters_select_messages(options, number):
    assert figures.message_diagram(RUN, **options).layout.title.subtitle.text.startswith(f"{number} message")


def test_key_is_searched_in_the_content():
    table = make_messages(("a", "b", 0, 1, "arrived", "k", None), content='{"item": "n7(+"}')
    assert figures.message_diagram(table, key="n7(+").layout.title.subtitle.text.startswith("1 message,")


def test_error_of_an_empty_window_counts_other_messages():
    with pytest.raises(TraceContentError) as caught:
        figures.message_diagram(RUN, start=at(60), end=at(70), devices=["nobody"], key="n1")
    text = str(caught.value)
    # The message in flight is still in flight a minute later.
    for part in (
        "2008-05-18 08:01:05 UTC",
        "08:01:15 UTC",
        "devices nobody",
        "key n1",
        "8 outside it",
        "1 messages in",
    ):
        assert part in text, part


def test_first_messages_of_too_many_are_drawn():
    table = make_messages(
        *[("a", "b", t, t + 0.5, "arrived", "send", None) for t in range(MAX_MESSAGES + 10)]
    )
    figure = figures.message_diagram(table.sample(frac=1, random_state=1), end=at(3000))
    assert "the first 400 of 410 messages" in figure.layout.title.subtitle.text
    arrows, _ = get_arrows(figure, "arrived")
    assert len(arrows) == MAX_MESSAGES
    assert arrows[-1][1][0] == pytest.approx((MAX_MESSAGES - 1) / 60)
    assert figure.layout.yaxis.title.text.endswith(", min")
    assert max(figure.layout.yaxis.range) < 450 / 60  # the axis ends with the last drawn message
    assert len(figure.data) < 20


def test_time_axis_runs_down_in_seconds_or_clock_time():
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


def test_single_moment_has_an_axis_of_one_second():
    table = make_messages(("jane", None, 0, 0, "nobody there", "query", None))
    low, high = sorted(figures.message_diagram(table).layout.yaxis.range)
    assert (low, high) == (pytest.approx(-0.05), pytest.approx(1.05))


def get_spans(figure, name):
    (result,) = [trace for trace in figure.data if trace.name == name]
    x, y = list(result.x), list(result.y)
    return [(x[a], *(round(float(value), 2) for value in y[a : a + 2])) for a in range(0, len(x), 3)]


def test_incidents_are_drawn_on_their_lane():
    table = make_incidents(
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
    assert get_spans(figure, "link down") == [(0, 0.8, 1.6), (1, 2.5, bottom)]
    assert get_spans(figure, "not running") == [(2, 1.45, 1.75)]
    assert {"link down", "link up", "killed", "restarted", "moved"} <= set(get_labels(figure))
    assert "off" not in get_labels(figure)
    (marks,) = [trace for trace in figure.data if trace.name == "incidents"]
    assert "<b>moved</b>, jane" in "".join(marks.text)


def test_link_down_before_the_window_is_down_in_it():
    figure = figures.message_diagram(
        RUN,
        make_incidents(("jane", -50, "link down"), ("john", -60, "off"), ("john", -50, "on")),
        start=at(1),
    )
    top, bottom = (round(value, 2) for value in sorted(figure.layout.yaxis.range))
    assert get_spans(figure, "link down") == [(0, top, bottom)]
    assert not [trace for trace in figure.data if trace.name in ("not running", "incidents")]


def test_tilted_lane_names_enlarge_the_top_margin():
    def get_margin(name):
        rows = [(f"{name}-{number}", f"{name}-{number + 1}", number, number + 0.5) for number in range(6)]
        return figures.message_diagram(
            make_messages(*((*row, "arrived", "send", None) for row in rows))
        ).layout.margin.t

    assert get_margin("a-server-with-a-long-name") > get_margin("a") + 50


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("text", ["short", "x" * 2000])
def test_radiator_pushes_list_contexts_and_pushes(compress, text):
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1), chain=1.0, compress=compress)
    clients = [
        Client(lab.device(name), server, attributes={"p2p_enabled": True}) for name in ("ann", "bob", "cy")
    ]
    lab.run(seconds=2)
    clients[0].propagate_context(Context({"ann"}, {"text": text})).result()
    lab.run(seconds=2)
    result = figures.radiator_pushes(lab.frame("messages"))
    rows = result[["kind", "source", "target"]].values.tolist()
    assert rows == [["context", "ann", "radiator"], ["push", "radiator", "bob"], ["push", "bob", "cy"]]


def test_diagram_of_a_lab_has_messages_and_incidents():
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(1))
    Client(lab.device("ann"), server)
    lab.run(seconds=2)
    lab.faults.kill("ann")
    lab.faults.restart("ann")
    Client(lab.device("bob"), server)
    lab.run(seconds=2)
    assert len(lab.frame("incidents"))
    figure = figures.message_diagram(lab, lanes=["radiator"])
    tables = lab.frame("messages"), lab.frame("incidents")
    assert figure.to_json() == figures.message_diagram(*tables, lanes=["radiator"]).to_json()
    assert figure.to_json() != figures.message_diagram(tables[0], lanes=["radiator"]).to_json()
