"""What all figures share: plotly's plain template without the button that uploads a figure."""

from __future__ import annotations

from typing import Any, Final

import plotly.graph_objects as go
import plotly.io as pio

__all__ = ["CONFIG", "template"]

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "plotlyServerURL": "",
    "showEditInChartStudio": False,
    "showLink": False,
    "showSendToCloud": False,
}
"""For those who draw with a configuration of their own (widgets, pages): nothing leaves this machine."""

_UPLOADS: Final = ["sendChartToCloud", "sendDataToCloud", "editInChartStudio"]
"""Buttons of plotly's toolbar, as its versions call them."""


def template() -> go.layout.Template:
    """Give the template of all figures; who shows one with a configuration of plotly's own has no button."""
    made = go.layout.Template(pio.templates["simple_white"])
    made.layout.modebar.remove = _UPLOADS
    return made
