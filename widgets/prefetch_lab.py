"""PrefetchLab: one device and one topic, with every parameter of the simulator under a control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import signature
from typing import Any, Final, NamedTuple

import ipywidgets

from mudkit import figures, words
from mudkit.checks import check_arguments
from mudkit.errors import MudkitError, ParameterError, did_you_mean
from mudkit.systems.lasthop import LEARNT, Expiration, Forwarding, Scenario, simulate
from mudkit.systems.lasthop.spool.policies import Kind
from mudkit.widgets.panel import STALE, Figure, Panel, alert

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_TIMES: Final = (_MINUTE, 10 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 16 * _HOUR, _DAY, 2 * _DAY,
                 5 * _DAY, 10 * _DAY, 30 * _DAY)  # fmt: skip
_SHARES: Final = tuple(step / 20 for step in range(21))
_LIMITS: Final = tuple(1 << step for step in range(15))
"""Prefetch limits of the curve."""
_NO_LIMIT: Final = ("on-line", "on-demand", "rate", "predict")
"""Kinds of policies without a prefetch limit."""
_LEARNT_SETTINGS: Final = ("prefetch_limit", "expiration_threshold_s", "delay_s")
"""Controls of what a policy can learn."""
_POLICY_SETTINGS: Final = (*_LEARNT_SETTINGS, "remembers_reads")
"""Controls that are settings of a policy."""
_COLUMNS: Final = (
    (
        "event_frequency",
        "expiration",
        "law",
        "expiring_share",
        "threshold",
        "days",
        "seed",
        "remembers_reads",
    ),
    ("user_frequency", "reads_cv", "max", "outage", "outages_per_day", "policy", *_LEARNT_SETTINGS),
)  # fmt: skip
"""Names of the controls in both columns."""
_STYLE: Final = {"description_width": "10.5em"}
_LAYOUT: Final = {"width": "auto"}
_COLUMN: Final = {"flex": "1 1 0", "min_width": "0", "max_width": "26em"}
"""Layout of a column; two fit side by side at 1024 px beside an open file browser."""


class _Slider(NamedTuple):
    """Label, values and format of a slider; values that are text come before numbers or after them."""

    label: str
    values: tuple[float | str, ...]
    """Numbers in order, with words before or after them: ``learnt``, and a word for None."""
    format: Callable[[float], str]


_SLIDERS: Final = {
    "event_frequency": _Slider("messages a day", tuple(float(1 << step) for step in range(9)), words.number),
    "expiration": _Slider("expiration", (*_TIMES, "never"), words.duration),
    "expiring_share": _Slider("share that expires", _SHARES, words.percent),
    "threshold": _Slider("lowest rank wanted", _SHARES, words.number),
    "user_frequency": _Slider("reads a day", tuple(2.0**step for step in range(-2, 6)), words.number),
    "reads_cv": _Slider("spread of reads", _SHARES, words.percent),
    "max": _Slider("messages a read", (1, 2, 4, 8, 16, 32, 64, "all"), words.number),
    "outage": _Slider("time without a link", (*_SHARES[:-1], 0.98, 1.0), words.percent),
    "outages_per_day": _Slider("outages a day", (0.25, 0.5, 1.0, 2.0, 4.0, 12.0, 24.0, 48.0), words.number),
    "prefetch_limit": _Slider("prefetch limit", (LEARNT, 0, *_LIMITS), words.number),
    "expiration_threshold_s": _Slider("prefetch if it lasts", ("any time", LEARNT, *_TIMES), words.duration),
    "delay_s": _Slider("prefetch delay", ("none", LEARNT, *_TIMES), words.duration),
}
_CHOICES: Final = {
    "policy": ("policy", ("on-line", "on-demand", "buffer", "rate", "unified", "predict")),
    "law": ("law of expiration", ("exponential", "uniform", "normal")),
}

_FEW_LIMITS: Final = (1, 4, 16, 64, 1024, 16_384)
_HEIGHT_PX: Final = 300
"""Height of the curve: it fits below the controls on a screen of 768 px."""
_PREVIEW_EVENTS: Final = 1_500
"""Events of each run of a preview, about 8 ms."""
_PAUSE_S: Final = 1.0
"""Time without a change after which all days are simulated, for runs of up to :data:`_YEAR_EVENTS` events.
Longer runs wait in proportion, because a change must wait for the current run."""
_YEAR_EVENTS: Final = 25_000


class _Answer(NamedTuple):
    """Measures of a simulation: shares of waste and loss, and counts of messages."""

    waste: float
    loss: float
    forwarded: int
    read: int


class _Sample(NamedTuple):
    """Simulated results, all of the same number of days."""

    days: int
    now: _Answer
    points: list[figures.LimitPoint]


@check_arguments(types=False)
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
        ``expiration_threshold_s``, ``delay_s`` and ``remembers_reads`` (of the policy). What has no effect is
        disabled.
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
        self.controls = _controls(parameters)
        self._given = _parameters(self.controls)
        self.problem, self.status = ipywidgets.HTML(), ipywidgets.HTML()
        self.figure = Figure(figures.limit_curve([], (None, 0.0, 0.0), title=""))
        self.figure.update_layout(height=_HEIGHT_PX)
        self._show(self._preview())
        for control in self.controls.values():
            control.observe(self._on_change, names="value")
        self._schedule_all()
        columns = [
            ipywidgets.VBox([self.controls[name] for name in names], layout=_COLUMN) for names in _COLUMNS
        ]
        super().__init__([ipywidgets.HBox(columns), self.problem, self.status, self.figure])
        self.add_class("mudkit-prefetch-lab")

    def finish(self) -> None:
        """Simulate all remaining days now."""
        for _ in self._rest:
            pass

    # -- simulation

    def _on_change(self, change: dict[str, Any]) -> None:
        """Handle a changed control: show a preview, and schedule all days."""
        if self._is_changing:
            return
        if self._call is not None:
            self._call.cancel()
        self._rest = iter(())
        if change["owner"] is self.controls["policy"] and change["new"] == "unified":
            self._is_changing = True
            for name in _LEARNT_SETTINGS:
                self.controls[name].value = LEARNT
            self._is_changing = False
        try:
            self._given = _parameters(self.controls)
            sample = self._preview()
        except MudkitError as error:
            self.problem.value = alert(STALE, error)
            return
        self.problem.value = ""
        self._show(sample)
        self._schedule_all()

    def _preview(self) -> _Sample:
        """Simulate as many days as take a moment."""
        days = max(1, int(_PREVIEW_EVENTS / self._events_per_day()))
        return self._sample(min(int(self._given["days"]), days), _FEW_LIMITS)

    def _all(self) -> Iterator[None]:
        """Simulate all days, one run at a time, then show them."""
        days = int(self._given["days"])
        self._answer(days)
        yield
        for limit in _LIMITS:
            self._answer(days, limit)
            yield
        self._show(self._sample(days, _LIMITS))

    def _sample(self, days: int, curve_limits: Sequence[int]) -> _Sample:
        """Simulate the current setting and the curves, which include the current limit."""
        limit = self._limit()
        limits = sorted({*curve_limits, *([] if limit is None else [limit])})
        points: list[figures.LimitPoint] = [(limit, *self._answer(days, limit)[:2]) for limit in limits]
        return _Sample(days, self._answer(days), points)

    def _limit(self) -> int | None:
        """Return the prefetch limit of the current policy, or None if it has none to draw."""
        policy = self._given["policy"]
        has_limit = policy.kind not in _NO_LIMIT and policy.prefetch_limit not in (LEARNT, 0)
        return policy.prefetch_limit if has_limit else None

    def _events_per_day(self) -> float:
        """Return the events that a simulated day has on average."""
        given = self._given
        switches = 2 * given["outages_per_day"] if 0.0 < given["outage"] < 1.0 else 0.0
        return float(given["event_frequency"] + given["user_frequency"] + switches)

    def _answer(self, days: int, limit: int | None = None) -> _Answer:
        """Simulate the current setting, or the policy of the curve with a limit."""
        given, policy = self._given | {"days": days}, self._given["policy"]
        if limit is not None:
            kind: Kind = "buffer" if policy.kind in _NO_LIMIT else policy.kind
            given["policy"] = replace(policy, kind=kind, prefetch_limit=limit)
        return self._play(tuple(given.items()))

    def _schedule_all(self) -> None:
        """Schedule the simulation of all days; without a running event loop, :meth:`finish` does it."""
        self._rest = self._all()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        pause_s = _PAUSE_S * max(1.0, self._given["days"] * self._events_per_day() / _YEAR_EVENTS)
        self._call = loop.call_later(pause_s, self._step, loop)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        """Simulate one run of all days, and schedule the next."""
        for _ in self._rest:
            self._call = loop.call_later(0.0, self._step, loop)
            return

    # -- display

    def _show(self, sample: _Sample) -> None:
        """Update status, figure and controls for a sample."""
        now, limit, kind = sample.now, self._limit(), self._given["policy"].kind
        days = f"{sample.days:,} day{'s' if sample.days != 1 else ''}"
        _disable_unused(self.controls, self._given)
        self.status.value = (
            f"<div role='status'><b>Waste {100 * now.waste:.2f} %, loss {100 * now.loss:.2f} %</b>: "
            f"{now.forwarded:,} forwarded, {now.read:,} read, in {days}.</div>"
        )
        level = "" if limit is not None else f"; dashed: {kind}"
        title = f"{'buffer' if kind in _NO_LIMIT else kind} with each limit{level}, {days}"
        with self.figure.batch_update():
            figures.update_limit_curve(self.figure, sample.points, (limit, now.waste, now.loss), title=title)


def _played(parameters: tuple[tuple[str, Any], ...]) -> _Answer:
    """Simulate with some parameters, and return the measures."""
    run = simulate(**dict(parameters))
    return _Answer(run.waste, run.loss, run.forwarded, run.read)


def _controls(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Build the controls, by the names of ``simulate``'s parameters and of the settings of policies."""
    given: dict[str, Any] = {
        name: parameter.default for name, parameter in signature(simulate).parameters.items()
    }
    given |= {"outage": 0.5, "policy": "buffer", "prefetch_limit": 16}
    if unknown := set(parameters) - set(given):
        raise ParameterError(
            "There is no such parameter.",
            where="parameters",
            found=", ".join(sorted(unknown)),
            expected=", ".join(given),
            remedy=did_you_mean(min(unknown), given),
        )
    given |= parameters
    simulate(**given | {"days": min(given["days"], 1)})
    Scenario(days=given["days"])
    settings = {name: given.pop(name) for name in _POLICY_SETTINGS if given.get(name) is not None}
    policy = Forwarding.of(given["policy"], **settings)
    expiration = given["expiration"]
    if isinstance(expiration, int | float):
        expiration = Expiration(expiration)
    given |= {name: getattr(policy, name) for name in _POLICY_SETTINGS} | {"policy": policy.kind}
    given |= {
        "expiration": expiration and expiration.mean_s,
        "law": getattr(expiration, "law", "exponential"),
    }
    controls = {name: _slider(slider, given[name]) for name, slider in _SLIDERS.items()}
    for name, (label, options) in _CHOICES.items():
        shown = {"description": label, "style": _STYLE, "layout": _LAYOUT}
        controls[name] = ipywidgets.Dropdown(options=options, value=given[name], **shown)
    for name in ("days", "seed"):
        controls[name] = ipywidgets.IntText(value=given[name], description=name, style=_STYLE, layout=_LAYOUT)
    controls["remembers_reads"] = ipywidgets.Checkbox(
        value=given["remembers_reads"], description="remember reads in outages", style=_STYLE, layout=_LAYOUT
    )
    return controls


def _parameters(controls: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``simulate`` that the controls show; raise ParameterError if invalid."""
    given = {name: control.value for name, control in controls.items()}
    for name, slider in _SLIDERS.items():
        if given[name] in slider.values and isinstance(given[name], str) and given[name] != LEARNT:
            given[name] = None
    law = given.pop("law")
    settings = {name: given.pop(name) for name in _POLICY_SETTINGS}
    settings["remembers_reads"] &= given["policy"] != "on-line"
    if given["policy"] == "predict":
        settings |= {"prefetch_limit": LEARNT, "expiration_threshold_s": None}
    if given["expiration"] is not None:
        given["expiration"] = Expiration(given["expiration"], law)
    given["policy"] = Forwarding(given["policy"], **settings)
    Scenario(days=given["days"])
    return given


def _disable_unused(controls: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Disable the controls without effect."""
    expires = given["expiration"] is not None
    for name, is_used in (
        ("law", expires),
        ("expiring_share", expires),
        ("expiration_threshold_s", expires and given["policy"].kind != "predict"),
        ("prefetch_limit", given["policy"].kind not in _NO_LIMIT),
        ("remembers_reads", given["policy"].kind != "on-line"),
        ("outages_per_day", 0.0 < given["outage"] < 1.0),
    ):
        controls[name].disabled = not is_used


def _slider(slider: _Slider, value: Any) -> Any:
    """Build a slider; a value between its values is inserted."""
    values = list(slider.values)
    if value is None:
        value = next(word for word in values if isinstance(word, str) and word != LEARNT)
    if value not in values:
        numbers = [(place, number) for place, number in enumerate(values) if not isinstance(number, str)]
        after = (place for place, number in numbers if number > value)
        values.insert(next(after, 1 + numbers[-1][0]), value)
    options = [(choice if isinstance(choice, str) else slider.format(choice), choice) for choice in values]
    return ipywidgets.SelectionSlider(
        options=options, value=value, description=slider.label, style=_STYLE, layout=_LAYOUT
    )
