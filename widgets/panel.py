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
    """Keys of lists, names of sliders and buttons; alternative texts, text colour and width of figures.

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
      const buttons = { "fa-play": "play", "fa-pause": "pause", "fa-stop": "stop", "fa-retweet": "repeat" };
      const set = (element, name, value) => {
        if (element.getAttribute(name) !== value) element.setAttribute(name, value);
      };
      // ipywidgets names neither; what a slider shows as its value is a text beside it.
      const name = panel => {
        for (const slider of panel.querySelectorAll(".widget-slider, .widget-hslider")) {
          const handle = slider.querySelector(".noUi-handle");
          const label = slider.querySelector(".widget-label");
          const readout = slider.querySelector(".widget-readout");
          if (!handle) continue;
          set(handle, "aria-label", label?.textContent || "value");
          if (readout) {
            set(handle, "aria-valuetext", readout.textContent);
            set(readout, "aria-label", `${label?.textContent || "value"}, typed`);
            set(readout, "role", "textbox");
          }
        }
        for (const button of panel.querySelectorAll(".widget-play button")) {
          const icon = [...button.firstElementChild?.classList ?? []].find(each => each in buttons);
          if (icon) set(button, "aria-label", buttons[icon]);
        }
      };
      const describe = () => {
        const panel = el.closest(".mudkit-panel");
        if (panel) name(panel);
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
          watch.observe(panel, { childList: true, subtree: true, characterData: true });
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
    .mudkit-panel .noUi-handle:focus-visible, .mudkit-panel .widget-readout:focus-visible,
    .mudkit-panel button:focus-visible, .mudkit-panel input:focus-visible, .mudkit-panel select:focus-visible,
    .mudkit-panel textarea:focus-visible {
      outline: 2px solid var(--jp-brand-color1, currentColor) !important;
      outline-offset: 1px;
    }
    .mudkit-panel .noUi-handle { border-color: var(--jp-content-font-color2); }
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
