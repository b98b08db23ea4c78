"""Scoreboard: systems by any two measures, for all devices or one of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import ipywidgets

from mudkit import figures, words
from mudkit.checks import check_arguments
from mudkit.display import Align, Cell, Table
from mudkit.errors import MudkitError, ParameterError
from mudkit.experiment import DEVICE_MEASURES, GAINS, LABELS, MEASURES, pareto_front
from mudkit.experiment import Scoreboard as Measured
from mudkit.widgets.panel import STALE, Figure, Panel, alert

if TYPE_CHECKING:
    import pandas as pd

_ALL: Final = "all devices"


@check_arguments(types=False)
class Scoreboard(Panel):
    """Choose a task, a device and two measures; the Pareto front and the table of measures follow.

    All devices: means over the seeds. One device: values of the first seed. Everything works from the
    keyboard. Invalid values show an error and leave the figure unchanged.

    Parameters
    ----------
    measured : mudkit.experiment.Scoreboard
    x, y : str
        Initial measures of the axes.

    Attributes
    ----------
    task, device, x, y : ipywidgets.Dropdown
        The device's options are those of the task, phones before feeds.
    problem, status, table : ipywidgets.HTML
        The error, if any; the systems on the front; measures by system, the best value with a dot.
    figure : Figure

    Raises
    ------
    ParameterError
        There is no such measure, or both are equal.
    """

    def __init__(self, measured: Measured, x: str = "j_per_useful", y: str = "useful_share") -> None:
        for name in (x, y):
            if name not in MEASURES:
                raise ParameterError(
                    "There is no such measure.", where="x, y", found=repr(name), expected=", ".join(MEASURES)
                )
        self._measured = measured
        self._is_changing = False
        options = [(LABELS[name], name) for name in MEASURES]
        self.task = _chooser("task", measured.tasks, measured.tasks[0])
        self.device = _chooser("device", self._devices(), _ALL)
        self.x, self.y = _chooser("across", options, x), _chooser("up", options, y)
        self.problem, self.status, self.table = (ipywidgets.HTML() for _ in range(3))
        points, texts = self._points()
        self.figure = Figure(figures.pareto(points, **texts))
        self._show_texts(points)
        self.task.observe(lambda _: self._on_choose(), names="value")
        for control in (self.device, self.x, self.y):
            control.observe(lambda _: self._show(), names="value")
        super().__init__([
            self.task, self.device, self.x, self.y, self.problem, self.status,
            self.figure, self.table,
        ])  # fmt: skip
        self.add_class("mudkit-scoreboard")

    # -- controls

    def _devices(self) -> list[str]:
        """Return the devices of the task."""
        devices = self._measured.devices
        if not len(devices):
            return [_ALL]
        rows = devices[devices["task"] == self.task.value]
        rows = rows.sort_values("is_phone", ascending=False, kind="stable")
        return [_ALL, *(str(name) for name in rows["device"].unique())]

    def _update_devices(self) -> None:
        """Offer the devices of the task; a device that it lacks is replaced by all devices."""
        names, chosen = self._devices(), self.device.value
        self._is_changing = True
        self.device.options = names
        self.device.value = chosen if chosen in names else _ALL
        self._is_changing = False

    def _on_choose(self) -> None:
        """Handle the choice of a task."""
        self._update_devices()
        self._show()

    def _show(self) -> None:
        """Update figure and texts, or show the error."""
        if self._is_changing:
            return
        try:
            points, texts = self._points()
        except MudkitError as error:
            self.problem.value = alert(STALE, error)
            return
        self.problem.value = ""
        figures.update_pareto(self.figure, points, **texts)
        self._show_texts(points)

    # -- display

    def _values(self) -> pd.DataFrame:
        """Return the measures (columns) of each system (rows)."""
        if self.device.value == _ALL:
            return self._measured.table(self.task.value).reset_index()
        kept = self._measured.devices
        rows = kept[(kept["task"] == self.task.value) & (kept["device"] == self.device.value)]
        values: pd.DataFrame = rows[["system", *DEVICE_MEASURES]].reset_index(drop=True)
        return values

    def _points(self) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Return the front of the two measures, and the texts of the figure."""
        x, y, of = self.x.value, self.y.value, self.device.value
        texts = {"x": x, "y": y, "labels": (LABELS[x], LABELS[y]), "title": f"{self.task.value}, {of}"}
        return pareto_front(self._values(), x, y), texts

    def _show_texts(self, points: pd.DataFrame) -> None:
        """Update the status and the table of measures."""
        best = ", ".join(escape(str(name)) for name in points.loc[points["is_best"], "system"])
        seeds = self._measured.runs["seed"].nunique()
        of = f"mean of {seeds} seed{'s' if seeds != 1 else ''}"
        if self.device.value != _ALL:
            kept = self._measured.devices
            rows = kept[(kept["task"] == self.task.value) & (kept["device"] == self.device.value)]
            of = f"first seed, {int(rows['wanted_count'].iloc[0])} items wanted"
        axes = f"{LABELS[self.x.value]}; {LABELS[self.y.value]}"
        self.status.value = (
            f"<div role='status'><b>On the Pareto front: {best or 'none'}</b> ({escape(axes)}; {of}).</div>"
        )
        self.table.value = _table(self._values())


def _chooser(description: str, options: Any, value: str) -> Any:
    """Build a drop-down list."""
    return ipywidgets.Dropdown(
        options=options,
        value=value,
        description=description,
        style={"description_width": "4em"},
        layout={"width": "44em"},
    )


def _table(values: pd.DataFrame) -> str:
    """Return measures as HTML, the best of each marked unless all are equal."""
    rows = []
    for name in (measure for measure in MEASURES if measure in values.columns):
        column = values[name]
        best = column.max() if name in GAINS else column.min()
        has_best = column.nunique() > 1
        places = words.decimals(column)
        rows.append(
            [
                LABELS[name],
                *(
                    Cell(words.number(value, places), is_best=bool(value == best and has_best))
                    for value in column
                ),
            ]
        )
    systems = [str(name) for name in values["system"]]
    right: list[Align] = ["right"] * len(systems)
    return Table(["measure", *systems], rows, align=["left", *right]).html()
