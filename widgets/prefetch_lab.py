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
from mudkit.systems.lasthop.spool.policies import Kind
from mudkit.widgets.figure import Figure
from mudkit.widgets.panel import LAST, Panel, alert
from mudkit.widgets.prefetch_controls import (
    COLUMN,
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
_HEIGHT_PX: Final = 300
"""Height of the curve: it fits below the controls on a screen of 768 px."""
_PREVIEW_EVENTS: Final = 1_500
"""Events of each run of a preview, about 8 ms; the marks and all points of the curves have the same days."""
_PATIENCE_S: Final = 1.0
_YEAR_EVENTS: Final = 25_000
"""So long after the last change all days follow, one run at a time, and longer where runs have more events: a
change then waits for the run that is under way."""


class _Answer(NamedTuple):
    waste: float
    loss: float
    forwarded: int
    read: int


class _Sample(NamedTuple):
    """Simulated results, all of the same number of days."""

    days: int
    now: _Answer
    points: list[figures.LimitPoint]


class PrefetchLab(Panel):
    """Change any parameter of :func:`~mudkit.systems.lasthop.simulate`; waste, loss and their curves follow.

    While a control moves, a preview of few virtual days is drawn; the status and the title give their number.
    When nothing has changed for a moment, all days are simulated, one run at a time; a change cancels the
    remaining runs. Results are cached. Marks, curves and status always have the same number of days. All
    controls work from the keyboard. On invalid input the widget shows the error and keeps the figure.

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
        The error, if any; waste, loss, messages forwarded and read, and the number of days.
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
        self.figure.update_layout(height=_HEIGHT_PX)
        self._show(self._preview())
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self._later()
        columns = [
            ipywidgets.VBox([self.controls[name] for name in names], layout=COLUMN) for names in COLUMNS
        ]
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
            sample = self._preview()
        except MudkitError as error:
            self.problem.value = alert(LAST, error)
            return
        self.problem.value = ""
        self._show(sample)
        self._later()

    def _preview(self) -> _Sample:
        """Simulate as many days as take a moment."""
        days = max(1, int(_PREVIEW_EVENTS / self._a_day()))
        return self._sample(min(int(self._given["days"]), days), _FEW_LIMITS)

    def _all(self) -> Iterator[None]:
        """Simulate all days, one run at a time, then show them."""
        days = int(self._given["days"])
        self._answer(days)
        yield
        for limit in LIMITS:
            self._answer(days, limit)
            yield
        self._show(self._sample(days, LIMITS))

    def _sample(self, days: int, curve_limits: Sequence[int]) -> _Sample:
        """Simulate the current setting and the curves, which include the current limit."""
        limit = self._limit()
        at = sorted({*curve_limits, *([] if limit is None else [limit])})
        points: list[figures.LimitPoint] = [(each, *self._answer(days, each)[:2]) for each in at]
        return _Sample(days, self._answer(days), points)

    def _limit(self) -> int | None:
        """Return the prefetch limit of the current policy, or None if it has none to draw."""
        policy = self._given["policy"]
        has_limit = policy.kind not in NO_LIMIT and policy.prefetch_limit not in (LEARNT, 0)
        return policy.prefetch_limit if has_limit else None

    def _a_day(self) -> float:
        given = self._given
        switches = 2 * given["outages_per_day"] if 0.0 < given["outage"] < 1.0 else 0.0
        return float(given["event_frequency"] + given["user_frequency"] + switches)

    def _answer(self, days: int, limit: int | None = None) -> _Answer:
        """Play what is set, or the curve's policy with some limit."""
        given, policy = self._given | {"days": days}, self._given["policy"]
        if limit is not None:
            kind: Kind = "buffer" if policy.kind in NO_LIMIT else policy.kind
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

    def _show(self, sample: _Sample) -> None:
        now, limit, kind = sample.now, self._limit(), self._given["policy"].kind
        days = f"{sample.days:,} day{'s' if sample.days != 1 else ''}"
        disable(self.controls, self._given)
        self.status.value = (
            f"<div role='status'><b>Waste {100 * now.waste:.2f} %, loss {100 * now.loss:.2f} %</b>: "
            f"{now.forwarded:,} forwarded, {now.read:,} read, in {days}.</div>"
        )
        level = "" if limit is not None else f"; dashed: {kind}"
        title = f"{'buffer' if kind in NO_LIMIT else kind} with each limit{level}, {days}"
        with self.figure.batch_update():
            figures.update_limit_curve(self.figure, sample.points, (limit, now.waste, now.loss), title=title)


def _played(parameters: tuple[tuple[str, Any], ...]) -> _Answer:
    run = simulate(**dict(parameters))
    return _Answer(run.waste, run.loss, run.forwarded, run.read)
