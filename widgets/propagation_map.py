"""PropagationMap: what two listeners know of the traffic, near and far, under any aggregability function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import ipywidgets

from mudkit import figures, words
from mudkit.errors import MudkitError, ParameterError
from mudkit.experiment import Traffic
from mudkit.systems.radiator import People, Time, Volume, distance_km
from mudkit.widgets.figure import Figure
from mudkit.widgets.panel import LAST, Panel, alert

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["WAYS", "PropagationMap"]

WAYS: Final[dict[str, Callable[[int], Callable[..., Any]]]] = {
    "until so many messages wait": lambda amount: lambda sender, receiver: Volume(amount),
    "until they are of so many cars": lambda amount: lambda sender, receiver: People(amount),
    "until so many seconds have passed": lambda amount: lambda sender, receiver: Time(seconds=amount),
    "the farther, the more messages": lambda amount: (
        lambda sender, receiver: Volume(1 + int(amount * distance_km(sender["loc"], receiver["loc"])))
    ),
}
"""What the aggregability function gives, by its amount: messages, cars, seconds, messages a kilometre."""
_MOST: Final = 120
_LIMITS: Final = (0.0, 60.0)
_STEPS: Final = 60


class PropagationMap(Panel):
    """Change how far messages are aggregated and in which cells; two maps over time follow.

    The server's rules (Radiator 3.1) are applied to the same contexts at each change, without a network;
    results are kept. Everything works from the keyboard: arrow keys move amount and time. Invalid values
    show an error and leave the picture unchanged.

    Parameters
    ----------
    traffic : Traffic
    seed : int
    own : mapping of str to callable, optional
        Aggregability functions of one's own, by what they are called.
    way : str, optional
        What is chosen at first: of :data:`WAYS` or of one's own; without it, the farther, the more.
    amount : int
        The amount, from 1 to 120; one's own functions have none.
    cell_km : float
        Side of the cells.
    longest_s : float
        No message waits for longer.

    Attributes
    ----------
    way, cells : ipywidgets.Dropdown
    amount, time : ipywidgets.IntSlider
    status, problem : ipywidgets.HTML
        What each listener has got, in how many bytes, and how late; what cannot be.
    figure : Figure

    Raises
    ------
    ParameterError
        There is no such way, or a value cannot be used.
    """

    def __init__(
        self,
        traffic: Traffic,
        seed: int = 0,
        *,
        own: Mapping[str, Callable[..., Any]] | None = None,
        way: str | None = None,
        amount: int = 1,
        cell_km: float = 1.0,
        longest_s: float = 300.0,
    ) -> None:
        self._traffic, self._longest_s, self._own = traffic, longest_s, dict(own or {})
        self._said = traffic.said(seed)
        self._play = lru_cache(maxsize=256)(self._played)
        names = [*WAYS, *self._own]
        way = [*WAYS][-1] if way is None else way
        if way not in names or not 1 <= amount <= _MOST:
            raise ParameterError(
                "There is no such way to aggregate.",
                where="way, amount",
                found=f"{way!r}, {amount}",
                expected=f"one of {', '.join(names)}, and an amount from 1 to {_MOST}",
            )
        wide = {"description_width": "initial"}
        self.way = ipywidgets.Dropdown(
            options=names, value=way, description="messages go", style=wide, layout={"width": "27em"}
        )
        self.amount = ipywidgets.IntSlider(
            value=amount, min=1, max=_MOST, description="amount", tooltip="arrow keys move it"
        )
        sides = sorted({0.5, 1.0, 2.0, cell_km})
        self.cells = ipywidgets.Dropdown(
            options=[(f"{side:g} km", side) for side in sides],
            value=cell_km,
            description="cells of",
            layout={"width": "14em"},
        )
        end_s = 60 * traffic.minutes + longest_s
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
        self._heard, sent = self._play(way, amount, cell_km)
        self.figure = Figure(
            figures.knowledge(
                self._heard.table, self._said, self._shown(), value="speed_kmh", label="km/h", limits=_LIMITS
            )
        )
        self._tell(sent)
        for control in (self.way, self.amount, self.cells):
            control.observe(self._changed, names="value")
        self.time.observe(self._moved, names="value")
        super().__init__(
            [
                ipywidgets.HBox([self.way, self.cells]),
                self.amount,
                self.problem,
                self.status,
                ipywidgets.HBox([play, self.time, self._clock]),
                self.figure,
            ]
        )
        self.add_class("mudkit-propagation-map")

    def _played(self, way: str, amount: int, cell_km: float) -> tuple[figures.ReceivedCells, pd.DataFrame]:
        function = WAYS[way](amount) if way in WAYS else self._own[way]
        heard, sent = self._traffic.play(self._said, function, cell_km=cell_km, longest_s=self._longest_s)
        return figures.ReceivedCells(heard), sent

    def _changed(self, change: dict[str, Any]) -> None:
        self.amount.disabled = self.way.value not in WAYS
        amount = 1 if self.amount.disabled else self.amount.value
        try:
            self._heard, sent = self._play(self.way.value, amount, self.cells.value)
        except MudkitError as error:
            self.problem.value = alert(LAST, error)
            return
        self.problem.value = ""
        self._tell(sent)
        self._moved(change)

    def _moved(self, change: dict[str, Any]) -> None:
        self._clock.value = words.duration(self._shown()[0][1])
        figures.update_knowledge(self.figure, self._heard, self._shown())

    def _shown(self) -> list[tuple[str, float]]:
        t_s = self.time.value * self._step_s
        return [(Traffic.NEAR, t_s), (Traffic.FAR, t_s)]

    def _tell(self, sent: pd.DataFrame) -> None:
        """Say what came of it over the whole time."""
        self._clock.value = words.duration(self._shown()[0][1])
        parts = []
        for row in sent.to_dict("records"):
            table = self._heard.table
            rows = table[table["receiver"] == row["receiver"]]
            late_s = ((rows["t_s"] - rows["said_s"]) * rows["messages"]).sum() / max(
                rows["messages"].sum(), 1
            )
            parts.append(
                f"<b>{row['receiver']}</b> gets {row['messages']} messages in {row['aggregates']} "
                f"aggregates, {words.size(row['bytes'])}, {late_s:.0f} s late on average"
            )
        self.status.value = f"<div role='status'>{'; '.join(parts)}.</div>"
