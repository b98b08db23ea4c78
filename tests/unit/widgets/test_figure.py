"""A figure in a box gives its state as it is drawn, to a browser that asks for it late."""

from __future__ import annotations

import comm
import ipywidgets

from mudkit.experiment import Traffic
from mudkit.widgets import PropagationMap, ViewsExplorer
from mudkit.widgets.panel import Figure


def test_what_was_added_after_it_was_made_is_in_its_state():
    figure = Figure()
    box = ipywidgets.VBox([figure])
    figure.add_scatter(x=[1, 2], y=[3, 4])
    with figure.batch_update():
        figure.data[0].y = [5, 6]
        figure.layout.title.text = "new"
    box._repr_mimebundle_()
    state = figure.get_state()
    assert [list(trace["y"]) for trace in state["_widget_data"]] == [[5, 6]]
    assert state["_widget_layout"]["title"] == {"text": "new"}
    assert figure.get_state("_widget_layout").keys() == {"_widget_layout"}


def test_a_browser_gets_a_figure_with_what_it_shows_when_it_first_hears_of_it(monkeypatch):
    """A browser that still loads plotly.js drops what comes afterwards."""
    opened = []
    create = comm.create_comm

    def create_comm(**arguments):
        opened.append(arguments["data"]["state"])
        return create(**arguments)

    monkeypatch.setattr(comm, "create_comm", create_comm)
    explorer = ViewsExplorer("ann: w1 w2\nbob: r1")
    (state,) = [each for each in opened if "_widget_data" in each]
    assert len(state["_widget_data"]) == len(explorer.figure.data) > 0
    assert state["_widget_layout"]["title"]["text"] == explorer.figure.layout.title.text
    assert state["_config"]["showSendToCloud"] is False
    opened.clear()
    Figure(data=[{"y": [1]}])._repr_mimebundle_()
    assert [len(each["_widget_data"]) for each in opened if "_widget_data" in each] == [1]


def test_a_browser_that_was_not_ready_gets_the_state_when_it_asks(monkeypatch):
    figure = Figure(data=[{"y": [1]}])
    sent = []
    monkeypatch.setattr(figure, "_send", lambda message, buffers=None: sent.append(message["state"]))
    figure._handle_custom_msg({"type": "state"}, [])
    figure._handle_custom_msg({"type": "else"}, [])
    assert [each.keys() for each in sent] == [{"_widget_data", "_widget_layout"}]


def test_plotly_is_loaded_within_the_time_that_anywidget_gives_a_module():
    state = Figure().get_state()
    assert len(state["_esm"]) < 3_000
    assert "FigureModel" in state["_bundle"]


def test_of_the_widgets_too():
    explorer = ViewsExplorer("ann: w1 w2\nbob: r1")
    explorer.text.value = "ann: w1 w2 w3\nbob: r1 r2"
    marks = explorer.figure.layout.annotations
    state = explorer.figure.get_state()
    assert len(state["_widget_data"]) == len(explorer.figure.data) > 0
    assert [each["text"] for each in state["_widget_layout"]["annotations"]] == [each.text for each in marks]
    known = PropagationMap(Traffic(5, 6.0), 3)
    known.time.value = known.time.max
    answer = known.figure.get_state()["_widget_data"][1]["x"]
    assert list(answer) == list(known.figure.data[1].x)
