"""ViewsExplorer: edit a history, choose a model, see verdict and views change at once."""

from __future__ import annotations

import html
from typing import Any, Final

import ipywidgets
import plotly.graph_objects as go

from mudkit.consistency import MODELS, History, Verdict, check
from mudkit.errors import MudkitError
from mudkit.figures.history import history

__all__ = ["ViewsExplorer"]

_TYPES: Final = ("uncommitted", "committed", "committed_wio")
_SECONDS: Final = 2.0
_MONOSPACE: Final = "<style>.mudkit-history textarea {font-family: monospace}</style>"
"""Where a text stands is when it happens, so its columns must be as wide as each other."""


class ViewsExplorer(ipywidgets.VBox):  # type: ignore[misc]
    """Try histories out.

    The text is a history in the notation of :mod:`mudkit.consistency.notation`; whatever is changed in it is
    checked as soon as the text is left (Tab), and when another model is chosen. The slider takes the arrow
    keys and shows the history operation by operation, as far as it has come. All reads count, whatever their
    type, and a check takes two seconds at most.

    Parameters
    ----------
    text : str
        The history to begin with.
    model : str
        The model to begin with.

    Attributes
    ----------
    text : ipywidgets.Textarea
    model : ipywidgets.Dropdown
    step : ipywidgets.IntSlider
        How many operations of the history count, from the first one invoked.
    figure : plotly.graph_objects.FigureWidget
    verdict : mudkit.consistency.Verdict or None
        Of what is shown; None: the text cannot be read.

    Raises
    ------
    ParameterError
        There is no such model.
    """

    def __init__(self, text: str, model: str = "fork-sequential") -> None:
        check(History(), model)
        self.verdict: Verdict | None = None
        self._history = History()
        wide = {"width": "98%"}
        self.text = ipywidgets.Textarea(
            value=text, continuous_update=False, rows=max(4, text.count("\n") + 2), layout=wide,
            description="history", tooltip="leave it with Tab to check it",
        )  # fmt: skip
        self.text.add_class("mudkit-history")
        self.model = ipywidgets.Dropdown(options=list(MODELS), value=model, description="model")
        self.step = ipywidgets.IntSlider(
            min=0, max=0, description="step", tooltip="arrow keys move it", layout={"width": "60%"}
        )
        self._answer = ipywidgets.HTML()
        self.figure = go.FigureWidget()
        self.text.observe(self._edited, names="value")
        self.model.observe(self._checked, names="value")
        self.step.observe(self._checked, names="value")
        self._edited()
        super().__init__(
            [
                ipywidgets.HTML(_MONOSPACE),
                self.text,
                ipywidgets.HBox([self.model, self.step]),
                self._answer,
                self.figure,
            ]
        )

    def _edited(self, change: dict[str, Any] | None = None) -> None:
        """Read the text; as long as it cannot be read, say why, and leave the figure as it was."""
        try:
            self._history = History.of(self.text.value)
        except MudkitError as error:
            self.verdict = None
            self._answer.value = f"<pre>{html.escape(str(error))}</pre>"
            return
        many = len(self._history)
        moves = self.step.value != many
        self.step.max = many
        self.step.value = many  # which checks it, if it moves
        if not moves:
            self._checked()

    def _checked(self, change: dict[str, Any] | None = None) -> None:
        shown = History(self._history.operations[: self.step.value])
        self.verdict = check(shown, self.model.value, reads=_TYPES, within_s=_SECONDS)
        words = html.escape(MODELS[self.model.value].words)
        told = html.escape(str(self.verdict.explanation))
        self._answer.value = f"<b>{self.verdict.status}</b> {told}<br><i>{words}</i>"
        drawn = history(self.verdict)
        with self.figure.batch_update():
            self.figure.data = ()
            self.figure.layout = drawn.layout
            self.figure.add_traces(list(drawn.data))
