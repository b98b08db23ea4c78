"""Base of all widgets: a box with working keys and names, figures, alerts, and parsing of JSON objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import anywidget
import ipywidgets
import plotly.graph_objects as go
import traitlets

from mudkit import figures
from mudkit.errors import MudkitError, ParameterError

STALE: Final = "These values are invalid; below is the last valid result."
"""Heading of an alert above a result that stays."""
_MAX_SHOWN: Final = 80
_NOT_SHOWN: Final = "<p><i>A widget: run this cell, after those above it, to see it.</i></p>"
"""Output of a panel in a notebook that is not trusted, or that stands where there are no widgets."""


class _Page(anywidget.AnyWidget):
    """Script and styles of a panel: keys, accessible names, alternative texts and width of figures.

    JupyterLab handles keys for its notebook: ``b`` adds a cell, ``x`` cuts one, arrow keys go to another. It
    ignores them on elements with the attribute of Lumino that is set here. The colour of a figure's text is
    the matter of the extension in ``data/jupyter``, as not every chapter has a widget.
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
      // ipywidgets gives these no names; a slider shows its value as text beside it.
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
        window.dispatchEvent(new Event("resize"));  // plotly listens to it
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
    .mudkit-panel .noUi-handle:focus-visible, .mudkit-panel .widget-readout:focus-visible,
    .mudkit-panel button:focus-visible, .mudkit-panel input:focus-visible, .mudkit-panel select:focus-visible,
    .mudkit-panel textarea:focus-visible {
      outline: 2px solid var(--jp-brand-color1, currentColor) !important;
      outline-offset: 1px;
    }
    .mudkit-panel .noUi-handle { border-color: var(--jp-content-font-color2); }
    /* Without its kernel: one sentence in place of a broken link beside each control. */
    .mudkit-panel .jupyter-widgets-disconnected::before { content: none; }
    .mudkit-panel.jupyter-widgets-disconnected::before {
      content: "Saved result. To use the controls, run this cell, after those above it.";
      font: italic var(--jp-content-font-size1, 14px) / 1.5 var(--jp-content-font-family, sans-serif);
      color: var(--jp-content-font-color1, inherit);
      padding: 2px 0 6px;
    }
    .mudkit-panel.jupyter-widgets-disconnected
      :is(.widget-inline-hbox:not(.widget-html), .widget-button, .widget-play) {
      opacity: 0.55;
      pointer-events: none;
    }
    """


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
