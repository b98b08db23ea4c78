"""ViewsExplorer: edit a history and see which models it satisfies, and its views."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.checks import check_arguments
from mudkit.consistency import MODELS, History, Operation, Outcome, Status, Verdict, check
from mudkit.display import Cell, Table
from mudkit.errors import MudkitError, ParameterError
from mudkit.widgets.panel import Figure, Panel, alert, guide

_MARK: Final = {Status.OK: "✓", Status.ILLEGAL: "✗", Status.UNKNOWN: "?"}
_HINT: Final = "ann:  w1             r2\nbob:       [w2  ]       r1"
_NOTATION: Final = (
    "A line per client, a column per millisecond. <code>w1</code> writes 1, <code>r1</code> reads it, "
    "<code>r0</code> finds no record, <code>[w1 &nbsp; ]</code> has this duration, <code>w1&gt;2</code> "
    "replaces 1 by 2, <code>w1&gt;2!</code> was refused, <code>w1…</code> or <code>w1...</code> was never "
    "answered, <code>r1@3</code> is version 3, <code>w?&gt;2</code> has an unknown condition, "
    "<code>w(k)1</code> is of record k."
)


@check_arguments(types=False)
class ViewsExplorer(Panel):
    """Edit a history; verdict, figure and views follow each key.

    Invalid input shows an error and leaves the picture unchanged. Everything works from the keyboard: Tab
    leaves the text, arrow keys choose a model and step through the views.

    Parameters
    ----------
    history : str
        The history in the notation of :mod:`mudkit.consistency.notation`.
    model : str
        One of :data:`mudkit.consistency.MODELS`.
    reads : sequence of str, optional
        Types of the reads to check; by default those that guarantee the model.
    seconds : float
        Approximate real time for the verdicts after a change, in seconds; later verdicts are UNKNOWN.

    Attributes
    ----------
    text : ipywidgets.Textarea
    model, record : ipywidgets.Dropdown
        The record is shown if there are several.
    step : ipywidgets.IntSlider
        Number of operations placed in each view.
    problem, verdict, views, table : ipywidgets.HTML
        The error, if any; the verdict; the views; the verdict of every model.
    figure : Figure

    Raises
    ------
    ParameterError
        There is no such model, or the time is not positive.
    """

    def __init__(
        self,
        history: str = "",
        model: str = "fork-sequential",
        *,
        reads: Sequence[str] | None = None,
        seconds: float = 1.0,
    ) -> None:
        if not seconds > 0:
            raise ParameterError(
                "The time is not positive.", where="seconds", found=repr(seconds), expected="seconds over 0"
            )
        self._reads, self._seconds = reads, seconds
        self._is_changing = False
        self._history = History()
        self._shown = check(self._history, model)
        self._statuses: dict[str, Status] = {}
        self.text = ipywidgets.Textarea(
            value=history,
            placeholder=_HINT,
            description="history",
            rows=max(5, history.count("\n") + 2),
            layout={"width": "98%"},
            continuous_update=True,
        )
        self.text.add_class("mudkit-history")
        self.model = ipywidgets.Dropdown(options=list(MODELS), value=model, description="model")
        self.record = ipywidgets.Dropdown(options=[], description="record")
        self.step = ipywidgets.IntSlider(
            value=0, min=0, max=0, description="placed", tooltip="operations of each view; arrow keys step"
        )
        self.problem, self.verdict, self.views, self.table = (ipywidgets.HTML() for _ in range(4))
        self.figure = Figure()
        self.text.observe(self._on_write, names="value")
        self.model.observe(self._on_choose, names="value")
        self.record.observe(self._on_choose, names="value")
        self.step.observe(self._on_step, names="value")
        self._on_write({"new": history})
        # columns of a history must be aligned
        style = "<style>.mudkit-history textarea {font-family: monospace; white-space: pre}</style>"
        choices = ipywidgets.HBox([self.model, self.record, self.step])
        notation = guide(style + _NOTATION)
        super().__init__(
            [notation, self.text, self.problem, choices, self.verdict, self.figure, self.views, self.table]
        )

    def _on_write(self, change: dict[str, Any]) -> None:
        """Handle a changed history: check it, or show the error."""
        try:
            history = History.parse(str(change["new"]))
        except MudkitError as error:
            self.problem.value = alert(
                "This is not a valid history; the result below is of the last valid one.", error
            )
            return
        self.problem.value = ""
        self._history = history
        self._is_changing = True
        key = self.record.value
        self.record.options = history.keys
        self.record.value = key if key in history.keys else next(iter(history.keys), None)
        self.record.layout.display = "" if len(history.keys) > 1 else "none"
        self._is_changing = False
        self._statuses = {}
        self._check()

    def _on_choose(self, change: dict[str, Any]) -> None:
        """Handle the choice of a record or a model: check again."""
        if not self._is_changing:
            if change["owner"] is self.record:
                self._statuses = {}
            self._check()

    def _on_step(self, change: dict[str, Any]) -> None:
        """Handle a moved step: show the views up to it."""
        if not self._is_changing:
            self.figure.layout.shapes = self._cover()
            self.views.value = self._views_html()

    def _check(self) -> None:
        """Check the chosen record; a verdict and its explanation each have a time limit."""
        part, key = self._history, self.record.value
        self._shown = check(part, self.model.value, key=key, reads=self._reads, within_s=self._seconds / 4)
        for name in MODELS:
            if name not in self._statuses and name != self._shown.model:
                limit_s = self._seconds / (4 * len(MODELS))
                self._statuses[name] = check(part, name, key=key, reads=self._reads, within_s=limit_s).status
        self._statuses[self._shown.model] = self._shown.status
        views = self._views()
        was_at_end = self.step.value == self.step.max
        self._is_changing = True
        self.step.max = max(map(len, views.values()), default=0)
        self.step.value = self.step.max if was_at_end else min(self.step.value, self.step.max)
        self.step.disabled = not views
        self._is_changing = False
        self.verdict.value = _verdict(self._shown)
        self.views.value = self._views_html()
        self.table.value = _table(self._statuses, self._shown.model)
        self._draw()

    def _views(self) -> dict[str, tuple[Operation, ...]]:
        """Return the views of the record; none unless the model is satisfied."""
        if self._shown.status is not Status.OK or self._shown.key is None:
            return {}
        return dict(self._shown.views.get(self._shown.key, {}))

    def _draw(self) -> None:
        """Update the figure in place, because a new widget would send plotly.js again."""
        picture = figures.history(self._shown)
        if any(trace.yaxis == "y2" for trace in picture.data):
            picture.layout.xaxis2.range = [-0.6, self.step.max - 0.4]
        else:  # the browser keeps axes that are not hidden
            picture.update_layout(
                xaxis2={"visible": False}, yaxis={"domain": [0, 1]}, yaxis2={"visible": False}
            )
        picture.layout.shapes = self._cover()
        picture.layout.title.subtitle.text = ""  # repeated in the verdict above
        layout = picture.layout.to_plotly_json()
        if self.figure.data:
            del layout["template"]  # long, and set already
        self.figure.data = ()
        self.figure.add_traces(picture.data)
        with self.figure.batch_update():
            self.figure.update_layout(layout, overwrite=True)

    def _cover(self) -> list[dict[str, Any]]:
        """Return shapes that cover the operations not placed yet."""
        if not self._views() or self.step.value == self.step.max:
            return []
        return [
            {
                "type": "rect", "xref": "x2", "yref": "y2 domain", "x0": self.step.value - 0.5,
                "x1": self.step.max - 0.4, "y0": 0, "y1": 1, "fillcolor": "#7b7b7b", "opacity": 0.75,
                "line": {"width": 0}, "layer": "above",
            }
        ]  # fmt: skip

    def _views_html(self) -> str:
        """Return the views up to the step as HTML; empty without views."""
        views = self._views()
        if not views:
            return ""
        rows = [
            (client, _line(view, self.step.value), _content_after(view[: self.step.value]))
            for client, view in views.items()
        ]
        return Table(("view of", "operations: placed ▸ not yet placed", "record after them"), rows).html()


def _short(operation: Operation) -> str:
    """Return an operation without its key."""
    return str(operation).replace(f"({operation.key})", "", 1)


def _line(view: Sequence[Operation], placed: int) -> Cell:
    """Return a view as a cell: placed operations, then the others."""
    names = [_short(operation) for operation in view]
    rest = f"▸ {', '.join(names[placed:])}" if placed < len(names) else ""
    return Cell(rest, strong=", ".join(names[:placed]))


def _content_after(placed: Sequence[Operation]) -> str:
    """Return the content of the record after some operations."""
    for operation in reversed(placed):
        if operation.is_write and operation.outcome in (Outcome.OK, Outcome.PENDING):
            return "nothing" if operation.content.value is None else str(operation.content)
    return "nothing"


def _verdict(verdict: Verdict) -> str:
    """Return a verdict as HTML."""
    model = MODELS[verdict.model]
    more = "" if verdict.explanation.is_smallest else " (The time did not suffice to find fewer operations.)"
    return (
        f"<div role='status'><b>{_MARK[verdict.status]} {verdict.status}</b> ({escape(verdict.model)}): "
        f"{escape(verdict.explanation.text)}{more}<br><i>{escape(model.description)}</i></div>"
    )


def _table(statuses: dict[str, Status], chosen: str) -> str:
    """Return the verdicts of all models as HTML, the chosen one marked."""
    rows = [
        (
            Cell("", strong=name) if name == chosen else name,
            f"{_MARK[statuses[name]]} {statuses[name]}",
            Cell(model.description),
        )
        for name, model in MODELS.items()
    ]
    return Table(("model", "verdict", "requirement"), rows).html()
