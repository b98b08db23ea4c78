"""PropagationMap: the traffic known to a near and a far listener, under any aggregability function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import ipywidgets

from mudkit import figures, words
from mudkit.checks import check_arguments
from mudkit.errors import MudkitError, ParameterError
from mudkit.systems.radiator import People, Time, Volume, distance_km
from mudkit.widgets.panel import STALE, Figure, Panel, alert
from mudkit.worlds import Traffic

if TYPE_CHECKING:
    import pandas as pd

METHODS: Final[dict[str, Callable[[int], Callable[..., Any]]]] = {
    "after a number of messages": lambda amount: lambda sender, receiver: Volume(amount),
    "after messages of a number of cars": lambda amount: lambda sender, receiver: People(amount),
    "after a number of seconds": lambda amount: lambda sender, receiver: Time(seconds=amount),
    "more messages with distance": lambda amount: (
        lambda sender, receiver: Volume(1 + int(amount * distance_km(sender["loc"], receiver["loc"])))
    ),
}
"""Aggregability functions by the amount: messages, cars, seconds, or messages per kilometre."""
_MAX_AMOUNT: Final = 120
_LIMITS: Final = (0.0, 60.0)
_STEPS: Final = 60


@check_arguments(types=False)
class PropagationMap(Panel):
    """Change how far messages are aggregated and in which cells; two maps over time follow.

    The server's rules (Radiator 3.1) are applied to the same contexts at each change, without a network;
    results are kept. Everything works from the keyboard: arrow keys move amount and time. Invalid values
    show an error and leave the picture unchanged.

    Parameters
    ----------
    traffic : Traffic
    seed : int
    functions : mapping of str to callable, optional
        Further aggregability functions, by name.
    method : str, optional
        Initial choice, one of :data:`METHODS` or of ``functions``; by default the last of :data:`METHODS`.
    amount : int
        Amount, from 1 to 120; not used by ``functions``.
    cell_km : float
        Side of the cells, in km.
    max_retention_s : float
        Maximum time that a message waits, in seconds.

    Attributes
    ----------
    method, cells : ipywidgets.Dropdown
    amount, time : ipywidgets.IntSlider
    status, problem : ipywidgets.HTML
        Messages, bytes and delay of each listener; the error, if any.
    figure : Figure

    Raises
    ------
    ParameterError
        The method is unknown, or a value is invalid.
    """

    def __init__(
        self,
        traffic: Traffic,
        seed: int = 0,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        method: str | None = None,
        amount: int = 1,
        cell_km: float = 1.0,
        max_retention_s: float = 300.0,
    ) -> None:
        self._traffic, self._max_retention_s, self._own = traffic, max_retention_s, dict(functions or {})
        self._reports = traffic.reports(seed)
        self._play = lru_cache(maxsize=256)(self._played)
        names = [*METHODS, *self._own]
        method = [*METHODS][-1] if method is None else method
        if method not in names or not 1 <= amount <= _MAX_AMOUNT:
            raise ParameterError(
                "There is no such method of aggregation.",
                where="method, amount",
                found=f"{method!r}, {amount}",
                expected=f"one of {', '.join(names)}, and an amount from 1 to {_MAX_AMOUNT}",
            )
        wide = {"description_width": "initial"}
        self.method = ipywidgets.Dropdown(
            options=names, value=method, description="messages go", style=wide, layout={"width": "27em"}
        )
        self.amount = ipywidgets.IntSlider(
            value=amount, min=1, max=_MAX_AMOUNT, description="amount", tooltip="arrow keys move it"
        )
        sides = sorted({0.5, 1.0, 2.0, cell_km})
        self.cells = ipywidgets.Dropdown(
            options=[(f"{side:g} km", side) for side in sides],
            value=cell_km,
            description="cells of",
            layout={"width": "14em"},
        )
        end_s = 60 * traffic.minutes + max_retention_s
        self._step_s = end_s / _STEPS
        self.time = ipywidgets.IntSlider(
            value=round(30 * traffic.minutes / self._step_s),
            min=0,
            max=_STEPS,
            readout=False,
            description="time",
            tooltip="arrow keys move it",
            layout={"flex": "1 1 auto", "width": "auto"},
        )
        play = ipywidgets.Play(min=0, max=_STEPS, value=self.time.value, interval=400)
        ipywidgets.jslink((play, "value"), (self.time, "value"))
        self._clock = ipywidgets.Label(layout={"flex": "0 0 auto"})
        self.status, self.problem = ipywidgets.HTML(), ipywidgets.HTML()
        self._heard, sent = self._play(method, amount, cell_km)
        self.figure = Figure(
            figures.knowledge(
                self._heard.table,
                self._reports,
                self._shown(),
                value="speed_kmh",
                label="km/h",
                limits=_LIMITS,
            )
        )
        self._show_totals(sent)
        for control in (self.method, self.amount, self.cells):
            control.observe(self._on_change, names="value")
        self.time.observe(self._on_move, names="value")
        super().__init__(
            [
                ipywidgets.HBox([self.method, self.cells]),
                self.amount,
                self.problem,
                self.status,
                ipywidgets.HBox([play, self.time, self._clock]),
                self.figure,
            ]
        )
        self.add_class("mudkit-propagation-map")

    def _played(self, method: str, amount: int, cell_km: float) -> tuple[figures.ReceivedCells, pd.DataFrame]:
        """Replay the contexts under a function; return what both listeners know, and the messages sent."""
        function = METHODS[method](amount) if method in METHODS else self._own[method]
        heard, sent = self._traffic.play(
            self._reports, function, cell_km=cell_km, max_retention_s=self._max_retention_s
        )
        return figures.ReceivedCells(heard), sent

    def _on_change(self, change: dict[str, Any]) -> None:
        """Handle a changed control: show the new result, or the error."""
        self.amount.disabled = self.method.value not in METHODS
        amount = 1 if self.amount.disabled else self.amount.value
        try:
            self._heard, sent = self._play(self.method.value, amount, self.cells.value)
        except MudkitError as error:
            self.problem.value = alert(STALE, error)
            return
        self.problem.value = ""
        self._show_totals(sent)
        self._on_move(change)

    def _on_move(self, change: dict[str, Any]) -> None:
        """Handle a moved time: show what is known at it."""
        self._clock.value = words.duration(self._shown()[0][1])
        figures.update_knowledge(self.figure, self._heard, self._shown())

    def _shown(self) -> list[tuple[str, float]]:
        """Return each listener with the time that is shown."""
        t_s = self.time.value * self._step_s
        return [(Traffic.NEAR, t_s), (Traffic.FAR, t_s)]

    def _show_totals(self, sent: pd.DataFrame) -> None:
        """Show the totals of the whole run."""
        self._clock.value = words.duration(self._shown()[0][1])
        parts = []
        for row in sent.to_dict("records"):
            table = self._heard.table
            rows = table[table["receiver"] == row["receiver"]]
            delay_s = ((rows["t_s"] - rows["reported_s"]) * rows["messages"]).sum() / max(
                rows["messages"].sum(), 1
            )
            parts.append(
                f"<b>{row['receiver']}</b> gets {row['messages']} messages in {row['aggregates']} "
                f"aggregates, {words.size(row['bytes'])}, mean delay {delay_s:.0f} s"
            )
        self.status.value = f"<div role='status'>{'; '.join(parts)}.</div>"
