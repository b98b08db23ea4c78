"""What the widgets have in common: a box in which lists keep their keys, alerts, and objects of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import anywidget
import ipywidgets

from mudkit.errors import MudkitError, ParameterError

__all__ = ["LAST", "Panel", "alert", "read_object"]

LAST: Final = "This cannot be; below is the last that could."
"""What an alert says above a picture that stays."""
_MOST_SHOWN: Final = 80


class _Page(anywidget.AnyWidget):
    """Keys of lists; alternative texts, text colour and width of figures, in the page around a panel.

    JupyterLab takes keys for its notebook: ``b`` adds a cell, ``x`` cuts one, arrow keys go to another. It
    leaves them alone on what has the attribute (of Lumino, on which it is built). plotly draws text in the
    grey of the template; the rules take it to the colour of JupyterLab's theme, also when that changes.
    """

    _esm = """
    function render({ el }) {
      el.style.display = "none";
      const keep = ({ target }) => {
        if (target.matches?.(".mudkit-panel select")) target.dataset.lmSuppressShortcuts = "true";
      };
      document.addEventListener("focusin", keep);
      const describe = () => {
        for (const plot of document.querySelectorAll(".js-plotly-plot")) {
          const text = plot.layout?.meta?.alt, drawing = plot.querySelector("svg.main-svg");
          if (!text || !drawing || drawing.getAttribute("aria-label") === text) continue;
          drawing.setAttribute("role", "img");
          drawing.setAttribute("aria-label", text);
        }
      };
      const watch = new MutationObserver(describe);
      let width = 0;
      const fit = new ResizeObserver(([{ contentRect }]) => {
        if (contentRect.width === width) return;
        width = contentRect.width;
        window.dispatchEvent(new Event("resize"));  // which plotly listens to
      });
      const begin = () => {
        const panel = el.closest(".mudkit-panel");
        if (panel) {
          watch.observe(panel, { childList: true, subtree: true });
          fit.observe(panel);
        }
        describe();
      };
      const frame = requestAnimationFrame(begin);
      return () => {
        document.removeEventListener("focusin", keep);
        cancelAnimationFrame(frame);
        watch.disconnect();
        fit.disconnect();
      };
    }
    export default { render };
    """
    _css = """
    .jp-Notebook .js-plotly-plot text[style*="fill: rgb(123, 123, 123)"] {
      fill: var(--jp-content-font-color1) !important;
    }
    """


class Panel(ipywidgets.VBox):  # type: ignore[misc]
    """A box of controls that all work from the keyboard, in JupyterLab, too.

    Parameters
    ----------
    children : sequence of ipywidgets.Widget
    """

    def __init__(self, children: Sequence[ipywidgets.Widget]) -> None:
        super().__init__([*children, _Page()])
        self.add_class("mudkit-panel")


def alert(what: str, error: MudkitError) -> str:
    """Say that something cannot be, and why, as HTML that is read aloud."""
    return f"<div role='alert'><b>{what}</b><pre>{escape(str(error))}</pre></div>"


def read_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Read an object of JSON that somebody has typed.

    Parameters
    ----------
    name : str
        What it is.
    text, example : str

    Raises
    ------
    ParameterError
        It is none.
    """
    expected, what_came = f"an object of JSON, for instance {example}", text[:_MOST_SHOWN]
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:  # the latter of thousands of brackets
        raise ParameterError(
            f"The {name} cannot be read.", where=name, found=f"{what_came!r}: {error}", expected=expected
        ) from None
    if not isinstance(given, dict):
        raise ParameterError(
            f"The {name} is no object.", where=name, found=repr(what_came), expected=expected
        )
    return given
