"""FleetMap: devices moving over time, with a slider and a play button."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ipywidgets
import pyarrow as pa

from mudkit import figures
from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.fleet.coverage import AccessPoint
from mudkit.units import US_PER_S
from mudkit.widgets.panel import Figure, Panel


@check_arguments(types=False)
class FleetMap(Panel):
    """Map of a moving fleet that shows which devices have a link.

    Arrow keys and the play button move the slider.

    Parameters
    ----------
    positions : pyarrow.Table
        Positions of a trace.
    links : pyarrow.Table, optional
        Links of a trace: a device's state holds until its next row. Devices without a link are orange
        crosses.
    tz : str
        Time zone of the times shown.
    step_s : float
        Time between two frames, in seconds.
    access_points : iterable of AccessPoint
        Drawn with their ranges: those of a lab are ``lab.access_points.values()``.

    Attributes
    ----------
    slider : ipywidgets.IntSlider
        Number of the frame.
    figure : Figure

    Raises
    ------
    TraceContentError, ParameterError
        There are no positions, the table of links lacks a column, or the step is not positive.
    """

    def __init__(
        self,
        positions: pa.Table,
        links: pa.Table | None = None,
        *,
        tz: str = "UTC",
        step_s: float = 300.0,
        access_points: Iterable[AccessPoint] = (),
    ) -> None:
        if not step_s > 0:
            raise ParameterError(
                "The step is not positive.", where="step_s", found=str(step_s), expected="over 0 s"
            )
        self._fleet = figures.Fleet.from_tables(positions, links, tz, access_points)
        self._first_us, last_us = self._fleet.span_us()
        self._step_us = round(step_s * US_PER_S)
        steps = max(1, (last_us - self._first_us) // self._step_us)
        busiest = min(steps, (self._fleet.busiest_us() - self._first_us) // self._step_us)
        self.figure = Figure(self._fleet.figure(self._first_us))
        self.slider = ipywidgets.IntSlider(
            value=busiest,
            min=0,
            max=steps,
            readout=False,
            layout={"flex": "1 1 auto", "width": "auto"},
            description="time",
            tooltip="arrow keys move it",
        )
        play = ipywidgets.Play(min=0, max=steps, value=busiest, interval=200)
        self._label = ipywidgets.Label(layout={"flex": "0 0 auto"})
        ipywidgets.jslink((play, "value"), (self.slider, "value"))
        self.slider.observe(self._on_move, names="value")
        self._on_move({"new": self.slider.value})
        super().__init__([ipywidgets.HBox([play, self.slider, self._label]), self.figure])

    def _on_move(self, change: dict[str, Any]) -> None:
        """Handle a moved slider: show the fleet at its moment."""
        t_us = self._first_us + int(change["new"]) * self._step_us
        self._label.value = self._fleet.format_moment(t_us)
        self._fleet.move(self.figure, t_us)
