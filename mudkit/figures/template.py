"""What all figures share: plotly's plain template; and the configuration of pages, which upload nothing."""

from __future__ import annotations

from typing import Any, Final

import plotly.graph_objects as go
import plotly.io as pio

__all__ = ["CONFIG", "template"]

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False, "plotlyServerURL": "", "showEditInChartStudio": False, "showLink": False,
    "showSendToCloud": False,
}  # fmt: skip
"""For pages, which draw with a configuration of their own: nothing leaves this machine."""


def template() -> go.layout.Template:
    """Give the template of all figures."""
    return go.layout.Template(pio.templates["simple_white"])
