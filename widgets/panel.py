"""Base of all widgets: a box with working keys and names, figures, alerts, and parsing of JSON objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import anywidget
import ipywidgets
import plotly.graph_objects as go
import traitlets

from mudkit import figures
from mudkit.errors import MudkitError, ParameterError

STALE: Final = "These values are invalid; below is the last valid result."
"""Heading of an alert above a result that stays."""
_ASSETS: Final = Path(__file__).parent / "assets"
_MAX_SHOWN: Final = 80
_NOT_SHOWN: Final = "<p><i>A widget: run this cell, after those above it, to see it.</i></p>"
"""Output of a panel in a notebook that is not trusted, or that stands where there are no widgets."""


class _Page(anywidget.AnyWidget):
    """Script and styles of a panel: keys, accessible names, alternative texts and width of figures.

    JupyterLab handles keys for its notebook: ``b`` adds a cell, ``x`` cuts one, arrow keys go to another. It
    ignores them on elements with the attribute of Lumino that is set here. The colour of a figure's text is
    the matter of the extension in ``data/jupyter``, as not every chapter has a widget.
    """

    _esm = _ASSETS / "panel.js"
    _css = _ASSETS / "panel.css"


class Panel(ipywidgets.VBox):  # type: ignore[misc]
    """Box whose controls work from the keyboard, also in JupyterLab."""

    def __init__(self, children: Sequence[ipywidgets.Widget]) -> None:
        super().__init__([*children, _Page()])
        self.add_class("mudkit-panel")

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return {**super()._repr_mimebundle_(**kwargs), "text/html": _NOT_SHOWN}


class Figure(go.FigureWidget):  # type: ignore[misc]
    """Figure whose widget state is its current content, also within a box.

    plotly opens a figure empty, sends each change, and keeps the initial content as the state until the
    figure is displayed by itself, which never happens in a box. A busy browser drops changes that arrive
    before plotly.js is loaded, and a reloaded page requests the state: both would draw nothing. Therefore a
    figure is opened when a box first refers to it, with its content at that time.

    anywidget gives up on a model whose module takes more than two seconds to load, as plotly.js does on a
    slow machine. Therefore the module is small, and loads plotly.js once for all figures of a page; if the
    figure has changed by then, the module requests its state.
    """

    _esm = _ASSETS / "figure.js"
    _bundle = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._config = {**figures.PLOTLY_CONFIG, "responsive": True}
        self.on_msg(self._answer)

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Send the state to a browser that has missed changes."""
        if content == {"type": "state"}:
            self.send_state({"_widget_data", "_widget_layout"})

    def open(self) -> None:
        """Do nothing yet: :attr:`model_id` opens the figure when a box is displayed."""

    @property
    def model_id(self) -> str:
        """Identity of the model in the browser, which receives the state at the first access."""
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
            content = {"_widget_data": self._data, "_widget_layout": layout._props}
            for name in content.keys() & state.keys():
                state[name] = self.trait_metadata(name, "to_json")(content[name], self)
        return state


def guide(text: str) -> ipywidgets.HTML:
    """Return an explanation of controls, which is left out where a panel is a picture."""
    html = ipywidgets.HTML(text)
    html.add_class("mudkit-guide")
    return html


def alert(heading: str, error: MudkitError) -> str:
    """Return an error as HTML that screen readers announce."""
    return f"<div role='alert'><b>{heading}</b><pre>{escape(str(error))}</pre></div>"


def read_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Parse a JSON object; raise ParameterError if the text is not one."""
    expected, shown = f"a JSON object, for instance {example}", text[:_MAX_SHOWN]
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:  # the latter with thousands of brackets
        raise ParameterError(
            f"The {name} cannot be read.", where=name, found=f"{shown!r}: {error}", expected=expected
        ) from None
    if not isinstance(parsed, dict):
        raise ParameterError(
            f"The {name} is not a JSON object.", where=name, found=repr(shown), expected=expected
        )
    return parsed
