"""Figures inside of other widgets: whoever asks for their state gets what is drawn."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from mudkit import figures

__all__ = ["Figure"]


class Figure(go.FigureWidget):  # type: ignore[misc]
    """A figure whose state is what it shows, also within a box.

    plotly tells a browser of each change, and keeps as the state what the figure was made with, until it is
    shown by itself; in a box it never is. A browser that asks for the state instead (the page is opened anew,
    or the connection to the kernel breaks and comes back, as on a machine that is busy) would draw that:
    nothing, for a figure that was made empty and filled afterwards.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._config = {**figures.PLOTLY_CONFIG, "responsive": True}

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """See :class:`ipywidgets.Widget`."""
        state = super().get_state(key, drop_defaults)
        layout = getattr(self, "_layout_obj", None)
        if layout is not None:
            now = {"_widget_data": self._data, "_widget_layout": layout._props}
            for name in now.keys() & state.keys():
                state[name] = self.trait_metadata(name, "to_json")(now[name], self)
        return state
