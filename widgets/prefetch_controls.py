"""A control for each parameter of the simulator of the last hop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final, NamedTuple

import ipywidgets

from mudkit import words
from mudkit.errors import ParameterError, did_you_mean
from mudkit.systems.lasthop import LEARNT, Expiration, Forwarding, Scenario, simulate

__all__ = ["COLUMN", "COLUMNS", "LIMITS", "NO_LIMIT", "OF_POLICY", "controls_of", "disable", "parameters_of"]

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_TIMES: Final = (_MINUTE, 10 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 16 * _HOUR, _DAY, 2 * _DAY,
                 5 * _DAY, 10 * _DAY, 30 * _DAY)  # fmt: skip
_SHARES: Final = tuple(step / 20 for step in range(21))
LIMITS: Final = tuple(1 << step for step in range(15))
"""Of the curve."""
NO_LIMIT: Final = ("on-line", "on-demand", "rate")
"""Kinds of policies that know no prefetch limit."""
OF_POLICY: Final = ("prefetch_limit", "expiration_threshold_s", "delay_s")
"""Controls that are settings of a policy."""
COLUMNS: Final = (
    ("event_frequency", "expiration", "law", "expiring_share", "threshold", "days", "seed"),
    ("user_frequency", "reads_cv", "max", "outage", "outages_per_day", "policy", *OF_POLICY),
)
"""Names of the controls as they stand."""
_STYLE: Final = {"description_width": "10.5em"}
_LAYOUT: Final = {"width": "auto"}
COLUMN: Final = {"flex": "1 1 0", "min_width": "0", "max_width": "26em"}
"""Two columns stand beside each other at 1024 px with an open file browser."""


class _Slider(NamedTuple):
    label: str
    values: tuple[float | str, ...]
    """Numbers in order; words before or after them: ``learnt``, and what stands for None."""
    written: Callable[[float], str]


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
    "prefetch_limit": _Slider("prefetch limit", (LEARNT, 0, *LIMITS), words.number),
    "expiration_threshold_s": _Slider("prefetch if it lasts", ("any time", LEARNT, *_TIMES), words.duration),
    "delay_s": _Slider("prefetch delay", ("none", LEARNT, *_TIMES), words.duration),
}
_CHOICES: Final = {
    "policy": ("policy", ("on-line", "on-demand", "buffer", "rate", "unified")),
    "law": ("law of expiration", ("exponential", "uniform", "normal")),
}


def controls_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make a control for each parameter.

    Parameters
    ----------
    parameters : mapping
        The parameters of :func:`~mudkit.systems.lasthop.simulate`; the outage as a share.

    Returns
    -------
    dict of str to ipywidgets.Widget
        The widgets, by the names of these parameters, and ``law`` (of expirations),
        ``expiration_threshold_s`` and ``delay_s`` (of the policy).

    Raises
    ------
    ParameterError
        One cannot be used, or there is no such.
    """
    given: dict[str, Any] = {name: each.default for name, each in signature(simulate).parameters.items()}
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
    settings = {name: given.pop(name) for name in OF_POLICY if given.get(name) is not None}
    policy = Forwarding.of(given["policy"], **settings)
    expiration = given["expiration"]
    if isinstance(expiration, int | float):
        expiration = Expiration(expiration)
    given |= {name: getattr(policy, name) for name in OF_POLICY} | {"policy": policy.kind}
    given |= {
        "expiration": expiration and expiration.mean_s,
        "law": getattr(expiration, "law", "exponential"),
    }
    made = {name: _slider(slider, given[name]) for name, slider in _SLIDERS.items()}
    for name, (label, options) in _CHOICES.items():
        shown = {"description": label, "style": _STYLE, "layout": _LAYOUT}
        made[name] = ipywidgets.Dropdown(options=options, value=given[name], **shown)
    for name in ("days", "seed"):
        made[name] = ipywidgets.IntText(value=given[name], description=name, style=_STYLE, layout=_LAYOUT)
    return made


def parameters_of(controls: Mapping[str, Any]) -> dict[str, Any]:
    """Read the controls.

    Returns
    -------
    dict
        What :func:`~mudkit.systems.lasthop.simulate` takes, its policy made.

    Raises
    ------
    ParameterError
        Something cannot be.
    """
    given = {name: control.value for name, control in controls.items()}
    for name, slider in _SLIDERS.items():
        if given[name] in slider.values and isinstance(given[name], str) and given[name] != LEARNT:
            given[name] = None
    law = given.pop("law")
    settings = {name: given.pop(name) for name in OF_POLICY}
    if given["expiration"] is not None:
        given["expiration"] = Expiration(given["expiration"], law)
    given["policy"] = Forwarding(given["policy"], **settings)
    Scenario(days=given["days"])
    return given


def disable(controls: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Disable what has no effect now."""
    expires = given["expiration"] is not None
    for name, is_used in (
        ("law", expires),
        ("expiring_share", expires),
        ("expiration_threshold_s", expires),
        ("prefetch_limit", given["policy"].kind not in NO_LIMIT),
        ("outages_per_day", 0.0 < given["outage"] < 1.0),
    ):
        controls[name].disabled = not is_used


def _slider(slider: _Slider, value: Any) -> Any:
    """Make a slider; a value that is not among its values is put in its place."""
    values = list(slider.values)
    if value is None:
        value = next(each for each in values if isinstance(each, str) and each != LEARNT)
    if value not in values:
        after = (place for place, each in enumerate(values) if not isinstance(each, str) and each > value)
        behind = 1 + max(place for place, each in enumerate(values) if not isinstance(each, str))
        values.insert(next(after, behind), value)
    options = [(each if isinstance(each, str) else slider.written(each), each) for each in values]
    return ipywidgets.SelectionSlider(
        options=options, value=value, description=slider.label, style=_STYLE, layout=_LAYOUT
    )
