"""Figures inside of other widgets: a browser gets what is drawn, in one message."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import traitlets

from mudkit import figures

__all__ = ["Figure"]


class Figure(go.FigureWidget):  # type: ignore[misc]
    """A figure whose state is what it shows, also within a box.

    plotly opens a figure empty, sends each change, and keeps as the state what the figure was made with,
    until it is shown by itself; in a box it never is. A busy browser drops changes that come before it has
    loaded plotly.js, and one that opens the page anew asks for the state: both would draw nothing. So a
    figure is opened when a box first names it, with what it shows by then.

    anywidget gives up on a model whose module takes more than two seconds to load; plotly.js does on a slow
    machine. The module is therefore small, and loads plotly.js once for all figures of a page; if the figure
    has changed by then, it asks for its state.
    """

    _esm = """
    export default () => {
      let drawing;
      return {
        initialize({ model }) {
          let isBehind = false;
          for (const change of ["addTraces", "deleteTraces", "restyle", "relayout", "update"])
            model.on(`change:_py2js_${change}`, () => { isBehind = true; });
          const load = () => {
            const text = new Blob([model.get("_bundle")], { type: "text/javascript" });
            return import(URL.createObjectURL(text));
          };
          const catchUp = () => new Promise(resolve => {
            model.on("change:_widget_data change:_widget_layout", resolve);
            model.send({ type: "state" });
            setTimeout(resolve, 5000);  // the kernel may be gone
          });
          drawing = (globalThis.mudkitPlotly ??= load()).then(async bundle => {
            if (isBehind) await catchUp();
            const figure = bundle.default();
            figure.initialize({ model });
            return figure;
          });
        },
        async render({ model, el }) {
          return (await drawing).render({ model, el });
        },
      };
    };
    """
    _bundle = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._config = {**figures.PLOTLY_CONFIG, "responsive": True}
        self.on_msg(self._answer)

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Send the state to a browser that was not ready for the changes so far."""
        if content == {"type": "state"}:
            self.send_state({"_widget_data", "_widget_layout"})

    def open(self) -> None:
        """Wait: a box asks for the model's identity when it is shown."""

    @property
    def model_id(self) -> str:
        """Identity of the model in the browser, which gets the state at the first call."""
        super().open()
        return str(super().model_id)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        super().open()
        return super()._repr_mimebundle_(**kwargs)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """See :class:`ipywidgets.Widget`."""
        state = super().get_state(key, drop_defaults)
        layout = getattr(self, "_layout_obj", None)
        if layout is not None:
            now = {"_widget_data": self._data, "_widget_layout": layout._props}
            for name in now.keys() & state.keys():
                state[name] = self.trait_metadata(name, "to_json")(now[name], self)
        return state
