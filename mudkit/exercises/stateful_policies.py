"""The exercise of chapter 07: write a policy for the ward that holds no alarm back.

PICU's limit of one message in five minutes also stops alarms. What the policy must do is said here by what
may be sent and what must be, not by another policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pandas as pd
import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.errors import MudkitError
from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.systems.sublim import FunctionPolicy, Policy, PolicyError, Verdict, validate
from mudkit.systems.sublim._policy.verdict import STOPPED

__all__ = ["EXERCISE"]

_SAMPLES: Final = 400
_ECG: Final = bytes(range(200)) * 2
_LOW_PULSE, _LOW_BATTERY, _CHARGED, _POOR_KBPS, _EVERY_S = 50, 25, 75, 500, 300
_LEAST_SAMPLES: Final = _SAMPLES // 16


class _Step(NamedTuple):
    """A message, and the state of the doctor's device when it is published."""

    after_s: int
    patient: int
    pulse: int | None
    has_ecg: bool
    battery: int | None
    kbps: int | None
    display_px: int

    @property
    def message(self) -> dict[str, Any]:
        ecg = {"ecg": _ECG} if self.has_ecg else {}
        return {"patient": self.patient} | ({} if self.pulse is None else {"pulse": self.pulse}) | ecg

    @property
    def automatic(self) -> dict[str, Any]:
        context = {"battery": self.battery, "bandwidth_kbps": self.kbps, "display_px": self.display_px}
        return {name: value for name, value in context.items() if value is not None}

    def __str__(self) -> str:
        pulse = "no pulse" if self.pulse is None else f"pulse {self.pulse}"
        battery = "on a charger" if self.battery is None else f"battery {self.battery} %"
        link = "link without limit" if self.kbps is None else f"{self.kbps:,} kbit/s"
        ecg = "" if self.has_ecg else ", no ecg"
        return f"patient {self.patient}, {pulse}{ecg} ({battery}, {link}, {self.display_px} px)"


@dataclass(frozen=True)
class _Scenario:
    patients: tuple[int, ...]
    steps: tuple[_Step, ...]

    def __str__(self) -> str:
        listed = " and ".join(map(str, self.patients))
        at_s, steps = 0, []
        for step in self.steps:
            at_s += step.after_s
            steps.append(f"after {at_s} s {step}")
        return f"the doctor has patient{'s' * (len(self.patients) > 1)} {listed}; {'; '.join(steps)}."


class _Judge:
    """What must hold, message by message."""

    def __init__(self, patients: tuple[int, ...]) -> None:
        self._patients = patients
        self._sent_s: dict[int, int] = {}
        """When something of a patient was sent last."""
        self._limited_s: dict[int, int] = {}
        """The same, of what was no alarm, on a low battery."""

    def problem(self, now_s: int, step: _Step, verdict: Verdict) -> str | None:
        """Say what is wrong with a decision."""
        if verdict.outcome == STOPPED:
            return f"the policy is stopped: {verdict.problem}."
        out, whose = verdict.out, f"patient {step.patient}"
        is_mine = step.patient in self._patients
        is_alarm = step.pulse is not None and step.pulse < _LOW_PULSE
        is_low = step.battery is not None and step.battery < _LOW_BATTERY
        if not is_mine and not is_alarm:
            return (
                None if out is None else f"{whose} is none of the doctor's and not in danger, and is shown."
            )
        if is_low and not is_alarm:
            since_s = now_s - self._limited_s.get(step.patient, -_EVERY_S)
            if out is not None and since_s < _EVERY_S:
                return f"with {step.battery} % left, {whose} is shown again after {since_s} s."
            if out is None and now_s - self._sent_s.get(step.patient, -_EVERY_S) < _EVERY_S:
                return None
        if out is None:
            what = "the alarm" if is_alarm else "a message"
            return f"{what} of {whose} is not sent."
        self._sent_s[step.patient] = now_s
        if is_low and not is_alarm:
            self._limited_s[step.patient] = now_s
        return _content(step, out, is_low)


def _content(step: _Step, out: Mapping[str, Any], is_low: bool) -> str | None:
    """Say what is wrong with what is sent."""
    for name in ("patient", "pulse"):
        if out.get(name) != step.message.get(name):
            return f"{name} {step.message.get(name)!r} comes as {out.get(name)!r}."
    if is_low:
        more = sorted(set(out) - {"patient", "pulse"})
        return f"with {step.battery} % left, {', '.join(more)} is sent, too." if more else None
    if not step.has_ecg:
        return None
    ecg = out.get("ecg")
    if not isinstance(ecg, bytes):
        return f"with {_left(step)}, the electrocardiogram is not sent."
    if len(ecg) > step.display_px:
        return f"the electrocardiogram has {len(ecg)} samples for {step.display_px} pixels."
    is_poor = step.kbps is not None and step.kbps < _POOR_KBPS
    if is_poor or (step.battery is not None and step.battery <= _CHARGED):
        if not _LEAST_SAMPLES <= len(ecg) <= _SAMPLES // 2:
            return (
                f"with {_left(step)}, {len(ecg)} of {_SAMPLES} samples are sent; it is to be a half to a "
                "sixteenth."
            )
    elif len(ecg) != min(_SAMPLES, step.display_px):
        return f"with {_left(step)}, only {len(ecg)} of {_SAMPLES} samples are sent."
    return None


def _left(step: _Step) -> str:
    battery = "a charger" if step.battery is None else f"{step.battery} % left"
    return f"{battery} and a link {'without limit' if step.kbps is None else f'of {step.kbps:,} kbit/s'}"


@lru_cache(maxsize=64)
def _policy(piece: Callable[..., Any], patients: tuple[int, ...]) -> Policy | FunctionPolicy:
    """Ask for the policy, once for each doctor: reading it takes longer than a scenario."""
    given = piece(list(patients))
    if isinstance(given, str):
        given = Policy.from_yaml(given if "\n" in given else given + "\n")
    if isinstance(given, Policy):
        return validate(given)
    if isinstance(given, FunctionPolicy):
        return given
    raise PieceError(f"it returns {given!r:.80}, which is no policy.")


def _play(piece: Callable[..., Any], scenario: _Scenario) -> Played:
    story = str(scenario)
    try:
        policy = _policy(piece, scenario.patients)
    except PieceError as error:
        return Played(story, str(error))
    except PolicyError as error:
        return Played(story, f"the policy is refused: {error}")
    except MudkitError as error:
        return Played(story, f"the policy cannot be read: {error}")
    judge, rows = _Judge(scenario.patients), []
    variables: Mapping[str, Any] = policy.variables
    now_s = 0
    for number, step in enumerate(scenario.steps):
        now_s += step.after_s
        verdict = policy.decide(step.message, variables, step.automatic, float(now_s))
        variables = verdict.variables
        rows.append(_row(now_s, step, verdict))
        problem = judge.problem(now_s, step, verdict)
        if problem is not None:
            return Played(story, f"{problem}{_why(policy, verdict)}", picture=partial(_drawn, rows, number))
    return Played(story, None)


def _why(policy: Policy | FunctionPolicy, verdict: Verdict) -> str:
    if isinstance(policy, FunctionPolicy):
        return ""
    if verdict.rule is None:
        return " No rule fires."
    return f" Rule {verdict.rule + 1} fires: {policy.rules[verdict.rule].name}."


def _row(now_s: int, step: _Step, verdict: Verdict) -> tuple[Any, ...]:
    what = str(verdict.outcome)
    if verdict.out is not None:
        what = "sent whole" if verdict.out == step.message else "sent in part"
    is_alarm = step.pulse is not None and step.pulse < _LOW_PULSE
    return float(now_s), f"patient {step.patient}", what, f"{step}: {what}", is_alarm


def _drawn(rows: list[tuple[Any, ...]], wrong: int) -> go.Figure:
    table = pd.DataFrame(rows, columns=["t_s", "lane", "decision", "text", "is_alarm"])
    name = "your policy"
    return figures.decisions({name: table}, title="The smallest scenario that fails", marked={name: wrong})


EXERCISE: Final = Exercise(
    signature="ward_policy(patients) -> a policy: YAML text, a Policy, or a function with @policy, for a "
    "doctor with a list of patients; a message has patient, and mostly pulse and ecg",
    property="Of others' patients only alarms (a pulse below 50) are shown. Each alarm is sent at once. "
    "Below 25 % of battery only patient and pulse are sent, and of a patient who is not in danger "
    "at most every five minutes, but then the next message. Else the electrocardiogram comes, "
    "too: a half to a sixteenth of it with at most 75 % or below 500 kbit/s, else all of it, and "
    "never more samples than pixels.",
    scenarios=st.builds(
        _Scenario,
        st.sampled_from([(1, 2), (1,), (1, 2)]),
        st.lists(
            st.builds(
                _Step,
                st.sampled_from([10, 20, 280, 300]),
                st.sampled_from([1, 2, 7, 2]),
                st.sampled_from([72, 44, 50, None]),
                st.sampled_from([True, True, True, False]),
                st.sampled_from([90, 20, 24, 10, 60, 20, 25, 24, 75, 76, None]),
                st.sampled_from([40_000, 180, 500, None]),
                st.sampled_from([1_000, 150]),
            ),
            min_size=1,
            max_size=12,  # long enough that something comes twice to a low battery
        ).map(tuple),
    ),
    play=_play,
)
