"""PrefetchLab: one device and one topic, with every parameter of the simulator under a control."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import ipywidgets

from mudkit import figures
from mudkit.errors import MudkitError
from mudkit.systems.lasthop import LEARNT, Forwarding, simulate
from mudkit.widgets.figure import Figure
from mudkit.widgets.panel import LAST, Panel, alert
from mudkit.widgets.prefetch_controls import (
    COLUMNS,
    LIMITS,
    NO_LIMIT,
    OF_POLICY,
    controls_of,
    disable,
    parameters_of,
)

__all__ = ["PrefetchLab"]

_FEW_LIMITS: Final = (1, 4, 16, 64, 1024, 16_384)
_POINT_EVENTS: Final = 4_000
_CURVE_EVENTS: Final = 400
"""What is played at once: about 20 ms for where one stands, and 4 ms for each point of the curve."""
_PATIENCE_S: Final = 1.0
_YEAR_EVENTS: Final = 25_000
"""So long after the last change all days follow, one run at a time, and longer where runs have more events: a
change then waits for the run that is under way."""


class _Answer(NamedTuple):
    waste: float
    loss: float
    forwarded: int
    read: int


class _Shown(NamedTuple):
    """What is in the figure, and of how many days."""

    now: _Answer
    of_now: int
    points: list[figures.LimitPoint]
    of_points: int


class PrefetchLab(Panel):
    """Change any parameter of :func:`~mudkit.systems.lasthop.simulate`; waste, loss and their curves follow.

    At once it plays as many virtual days as take a moment, and says how many. When nothing has changed for
    a moment it plays all that are wanted, a run at a time; a change in between drops what is not done. What
    it has played it knows. All of it works from the keyboard. What cannot be is told, and the picture stays.

    Parameters
    ----------
    **parameters
        Parameters of ``simulate``; the outage as a share.

    Attributes
    ----------
    controls : dict of str to ipywidgets.Widget
        The widgets, by the names of ``simulate``'s parameters, and ``law`` (of expirations),
        ``expiration_threshold_s`` and ``delay_s`` (of the policy). What has no effect is disabled.
    problem, status : ipywidgets.HTML
        What cannot be; waste, loss, messages forwarded and read, and of how many days.
    figure : Figure

    Raises
    ------
    ParameterError
        A parameter cannot be used.
    """

    def __init__(self, **parameters: Any) -> None:
        self._play = lru_cache(maxsize=4096)(_played)
        self._is_changing = False
        self._call: asyncio.TimerHandle | None = None
        self._rest: Iterator[None] = iter(())
        self.controls = controls_of(parameters)
        self._given = parameters_of(self.controls)
        self.problem, self.status = ipywidgets.HTML(), ipywidgets.HTML()
        self.figure = Figure(figures.limit_curve([], (None, 0.0, 0.0), title=""))
        self._show(self._some())
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self._later()
        columns = [ipywidgets.VBox([self.controls[name] for name in names]) for names in COLUMNS]
        super().__init__([ipywidgets.HBox(columns), self.problem, self.status, self.figure])
        self.add_class("mudkit-prefetch-lab")

    def finish(self) -> None:
        """Play all days that are wanted, now."""
        for _ in self._rest:
            pass

    # -- what is played

    def _changed(self, change: dict[str, Any]) -> None:
        if self._is_changing:
            return
        if self._call is not None:
            self._call.cancel()
        self._rest = iter(())
        if change["owner"] is self.controls["policy"] and change["new"] == "unified":
            self._is_changing = True
            for name in OF_POLICY:
                self.controls[name].value = LEARNT
            self._is_changing = False
        try:
            self._given = parameters_of(self.controls)
            shown = self._some()
        except MudkitError as error:
            self.problem.value = alert(LAST, error)
            return
        self.problem.value = ""
        self._show(shown)
        self._later()

    def _some(self) -> _Shown:
        """Play what takes a moment."""
        return self._days(self._of(_POINT_EVENTS), self._of(_CURVE_EVENTS), _FEW_LIMITS)

    def _all(self) -> Iterator[None]:
        """Play all days, a run at a time."""
        days = int(self._given["days"])
        self._answer(days)
        yield
        self._show(self._days(days, self._of(_CURVE_EVENTS), _FEW_LIMITS))
        for limit in LIMITS:
            self._answer(days, limit)
            yield
        self._show(self._days(days, days, LIMITS))

    def _days(self, of_now: int, of_points: int, at: Sequence[int]) -> _Shown:
        now = self._answer(of_now)
        self._tell(now, of_now)  # before the curve: it is what is looked at first
        points: list[figures.LimitPoint] = [(limit, *self._answer(of_points, limit)[:2]) for limit in at]
        return _Shown(now, of_now, points, of_points)

    def _of(self, events: int) -> int:
        """Give how many days have about so many events, at most those that are wanted."""
        return min(int(self._given["days"]), max(1, int(events / self._a_day())))

    def _a_day(self) -> float:
        given = self._given
        switches = 2 * given["outages_per_day"] if 0.0 < given["outage"] < 1.0 else 0.0
        return float(given["event_frequency"] + given["user_frequency"] + switches)

    def _answer(self, days: int, limit: int | None = None) -> _Answer:
        """Play what is set, or the curve's policy with some limit."""
        given, policy = self._given | {"days": days}, self._given["policy"]
        if limit is not None:
            kind = "buffer" if policy.kind in NO_LIMIT else policy.kind
            given["policy"] = Forwarding(kind, limit, policy.expiration_threshold_s, policy.delay_s)
        return self._play(tuple(given.items()))

    def _later(self) -> None:
        """Play the rest when nothing changes for a moment; without a running kernel, when it is asked for."""
        self._rest = self._all()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        patience_s = _PATIENCE_S * max(1.0, self._given["days"] * self._a_day() / _YEAR_EVENTS)
        self._call = loop.call_later(patience_s, self._step, loop)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in self._rest:
            self._call = loop.call_later(0.0, self._step, loop)
            return

    # -- what is shown

    def _tell(self, now: _Answer, days: int) -> None:
        self.status.value = (
            f"<div role='status'><b>Waste {100 * now.waste:.2f} %, loss {100 * now.loss:.2f} %</b>: "
            f"{now.forwarded:,} forwarded, {now.read:,} read, in {_count(days)}.</div>"
        )

    def _show(self, shown: _Shown) -> None:
        now, policy = shown.now, self._given["policy"]
        disable(self.controls, self._given)
        has_limit = policy.kind not in NO_LIMIT and policy.prefetch_limit not in (LEARNT, 0)
        at = (policy.prefetch_limit if has_limit else None, now.waste, now.loss)
        of = "buffer" if policy.kind in NO_LIMIT else policy.kind
        level = "" if has_limit else f"; dashed: {policy.kind}, {_count(shown.of_now)}"
        title = f"{of} with each limit, {_count(shown.of_points)}{level}"
        with self.figure.batch_update():
            figures.update_limit_curve(self.figure, shown.points, at, title=title)


def _played(parameters: tuple[tuple[str, Any], ...]) -> _Answer:
    run = simulate(**dict(parameters))
    return _Answer(run.waste, run.loss, run.forwarded, run.read)


def _count(days: int) -> str:
    return f"{days:,} day{'s' if days != 1 else ''}"
