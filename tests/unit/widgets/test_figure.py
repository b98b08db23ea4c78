"""State of a widget's figure, complete when a browser opens or requests it."""

from __future__ import annotations

import comm
import ipywidgets

from mudkit.widgets import PropagationMap, ViewsExplorer
from mudkit.widgets.panel import Figure
from mudkit.worlds import Traffic


def test_state_includes_later_additions():
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


def test_figure_is_opened_with_its_complete_state(monkeypatch):
    """Send the state on opening: a browser that still loads plotly.js drops later messages."""
    states = []
    create = comm.create_comm

    def create_comm(**arguments):
        states.append(arguments["data"]["state"])
        return create(**arguments)

    monkeypatch.setattr(comm, "create_comm", create_comm)
    explorer = ViewsExplorer("ann: w1 w2\nbob: r1")
    (state,) = [item for item in states if "_widget_data" in item]
    assert len(state["_widget_data"]) == len(explorer.figure.data) > 0
    assert state["_widget_layout"]["title"]["text"] == explorer.figure.layout.title.text
    assert state["_config"]["showSendToCloud"] is False
    states.clear()
    Figure(data=[{"y": [1]}])._repr_mimebundle_()
    assert [len(item["_widget_data"]) for item in states if "_widget_data" in item] == [1]


def test_state_is_sent_on_request(monkeypatch):
    figure = Figure(data=[{"y": [1]}])
    sent = []
    monkeypatch.setattr(figure, "_send", lambda message, buffers=None: sent.append(message["state"]))
    figure._handle_custom_msg({"type": "else"}, [])
    assert sent == []
    figure._handle_custom_msg({"type": "state"}, [])
    assert [state.keys() for state in sent] == [{"_widget_data", "_widget_layout"}]


def test_widget_module_is_small_and_plotly_a_separate_bundle():
    state = Figure().get_state()
    assert len(state["_esm"]) < 3_000
    assert "FigureModel" in state["_bundle"]


def test_state_of_figures_in_widgets_is_current():
    explorer = ViewsExplorer("ann: w1 w2\nbob: r1")
    explorer.text.value = "ann: w1 w2 w3\nbob: r1 r2"
    marks = explorer.figure.layout.annotations
    state = explorer.figure.get_state()
    assert len(state["_widget_data"]) == len(explorer.figure.data) > 0
    assert [annotation["text"] for annotation in state["_widget_layout"]["annotations"]] == [
        annotation.text for annotation in marks
    ]
    propagation = PropagationMap(Traffic(5, 6.0), 3)
    propagation.time.value = propagation.time.max
    x = propagation.figure.get_state()["_widget_data"][1]["x"]
    assert list(x) == list(propagation.figure.data[1].x)
