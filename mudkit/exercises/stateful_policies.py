"""Exercise of chapter 07: write a policy for the ward that does not hold back alarms.

PICU's limit of one message in five minutes also stops alarms. The judge states what may and what must be
sent, and has no reference policy.
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
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario
from mudkit.systems.sublim import FunctionPolicy, Policy, PolicyError, Verdict, validate
from mudkit.systems.sublim._policy.verdict import STOPPED

_SAMPLES: Final = 400
_ECG: Final = bytes(range(200)) * 2
_LOW_PULSE, _LOW_BATTERY, _CHARGED, _POOR_KBPS, _EVERY_S = 50, 25, 75, 500, 300
_MIN_SAMPLES: Final = _SAMPLES // 16


class _Step(NamedTuple):
    """Message, and the state of the doctor's device at its publication."""

    after_s: float
    patient: int
    pulse: int | None
    has_ecg: bool
    battery: int | None
    kbps: int | None
    display_px: int

    @property
    def message(self) -> dict[str, Any]:
        """Message that is published."""
        ecg = {"ecg": _ECG} if self.has_ecg else {}
        return {"patient": self.patient} | ({} if self.pulse is None else {"pulse": self.pulse}) | ecg

    @property
    def automatic(self) -> dict[str, Any]:
        """Automatic variables of the device; those without a limit are missing."""
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
    """Patients of the doctor, and the steps of the story."""

    patients: tuple[int, ...]
    steps: tuple[_Step, ...]

    def __str__(self) -> str:
        listed = " and ".join(map(str, self.patients))
        at_s, steps = 0.0, []
        for step in self.steps:
            at_s += step.after_s
            steps.append(f"after {at_s:g} s {step}")
        return f"the doctor has patient{'s' * (len(self.patients) > 1)} {listed}; {'; '.join(steps)}."


class _Judge:
    """Check of each decision against what may and must be sent."""

    def __init__(self, patients: tuple[int, ...]) -> None:
        self._patients = patients
        self._sent_s: dict[int, float] = {}
        """Time of the last message about each patient."""
        self._limited_s: dict[int, float] = {}
        """The same, of messages on a low battery that were not alarms."""

    def problem(self, now_s: float, step: _Step, verdict: Verdict) -> str | None:
        """Judge the next decision; return its problem in words, None if it has none.

        Messages are recorded as sent.
        """
        if verdict.outcome == STOPPED:
            return f"the policy is stopped: {verdict.problem}."
        out, whose = verdict.out, f"patient {step.patient}"
        is_mine = step.patient in self._patients
        is_alarm = step.pulse is not None and step.pulse < _LOW_PULSE
        is_low = step.battery is not None and step.battery < _LOW_BATTERY
        if not is_mine and not is_alarm:
            return None if out is None else f"{whose} is not the doctor's and not in danger, but is shown."
        if is_low and not is_alarm:
            since_s = now_s - self._limited_s.get(step.patient, -_EVERY_S)
            if out is not None and since_s < _EVERY_S:
                return f"with {step.battery} % left, {whose} is shown again after {since_s:g} s."
            if out is None and now_s - self._sent_s.get(step.patient, -_EVERY_S) < _EVERY_S:
                return None
        if out is None:
            kind = "the alarm" if is_alarm else "a message"
            return f"{kind} of {whose} is not sent."
        self._sent_s[step.patient] = now_s
        if is_low and not is_alarm:
            self._limited_s[step.patient] = now_s
        return _content(step, out, is_low)


def _content(step: _Step, out: Mapping[str, Any], is_low: bool) -> str | None:
    """Return the problem of the content that is sent, in words, or None."""
    for name in ("patient", "pulse"):
        if out.get(name) != step.message.get(name):
            return f"{name} {step.message.get(name)!r} is sent as {out.get(name)!r}."
    if is_low:
        more = sorted(set(out) - {"patient", "pulse"})
        return f"with {step.battery} % left, {', '.join(more)} is sent as well." if more else None
    if not step.has_ecg:
        return None
    ecg = out.get("ecg")
    if not isinstance(ecg, bytes):
        return f"with {_left(step)}, the electrocardiogram is not sent."
    if not _is_whole(ecg):
        return (
            f"with {_left(step)}, the {len(ecg)} samples that are sent are not the whole electrocardiogram."
        )
    if len(ecg) > step.display_px:
        return f"the electrocardiogram has {len(ecg)} samples for {step.display_px} pixels."
    is_poor = step.kbps is not None and step.kbps < _POOR_KBPS
    if is_poor or (step.battery is not None and step.battery <= _CHARGED):
        if not _MIN_SAMPLES <= len(ecg) <= _SAMPLES // 2:
            return (
                f"with {_left(step)}, {len(ecg)} of {_SAMPLES} samples are sent; expected a half to a "
                "sixteenth."
            )
    elif len(ecg) != min(_SAMPLES, step.display_px):
        return f"with {_left(step)}, only {len(ecg)} of {_SAMPLES} samples are sent."
    return None


def _is_whole(ecg: bytes) -> bool:
    """Return whether each sample lies among those near its place in the whole electrocardiogram."""
    length = _SAMPLES / max(len(ecg), 1)
    near = (_ECG[max(int((i - 1) * length), 0) : int((i + 2) * length) + 1] for i in range(len(ecg)))
    return all(min(samples) <= sample <= max(samples) for sample, samples in zip(ecg, near, strict=True))


def _left(step: _Step) -> str:
    """Return battery and link of a step in words."""
    battery = "a charger" if step.battery is None else f"{step.battery} % left"
    return f"{battery} and a link {'without limit' if step.kbps is None else f'of {step.kbps:,} kbit/s'}"


@lru_cache(maxsize=64)
def _policy(piece: Callable[..., Any], patients: tuple[int, ...]) -> Policy | FunctionPolicy:
    """Return the policy for a doctor; cached, because parsing it takes longer than a scenario."""
    policy = piece(list(patients))
    if isinstance(policy, str):
        policy = Policy.from_yaml(policy if "\n" in policy else policy + "\n")
    if isinstance(policy, Policy):
        return validate(policy)
    if isinstance(policy, FunctionPolicy):
        return policy
    raise PieceError(f"it returns {policy!r:.80}; expected a policy.")


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Decide all steps by the policy until one has a problem; return the outcome."""
    story = str(scenario)
    try:
        policy = _policy(piece, scenario.patients)
    except PieceError as error:
        return PlayedScenario(story, str(error))
    except PolicyError as error:
        return PlayedScenario(story, f"the policy is refused: {error}")
    except MudkitError as error:
        return PlayedScenario(story, f"the policy cannot be read: {error}")
    judge, rows = _Judge(scenario.patients), []
    variables: Mapping[str, Any] = policy.variables
    now_s = 0.0
    for number, step in enumerate(scenario.steps):
        now_s += step.after_s
        verdict = policy.decide(step.message, variables, step.automatic, now_s)
        variables = verdict.variables
        rows.append(_row(now_s, step, verdict))
        problem = judge.problem(now_s, step, verdict)
        if problem is not None:
            return PlayedScenario(
                story, f"{problem}{_why(policy, verdict)}", picture=partial(_drawn, rows, number)
            )
    return PlayedScenario(story, None)


def _why(policy: Policy | FunctionPolicy, verdict: Verdict) -> str:
    """Return in words which rule fired; empty for a policy that is a function."""
    if isinstance(policy, FunctionPolicy):
        return ""
    if verdict.rule is None:
        return " No rule fires."
    return f" Rule {verdict.rule + 1} fires: {policy.rules[verdict.rule].name}."


def _row(now_s: float, step: _Step, verdict: Verdict) -> tuple[Any, ...]:
    """Return a decision as a row of the picture."""
    decision = str(verdict.outcome)
    if verdict.out is not None:
        decision = "sent whole" if verdict.out == step.message else "sent in part"
    is_alarm = step.pulse is not None and step.pulse < _LOW_PULSE
    return now_s, f"patient {step.patient}", decision, f"{step}: {decision}", is_alarm


def _drawn(rows: list[tuple[Any, ...]], wrong: int) -> go.Figure:
    """Draw the decisions so far, the wrong one marked."""
    table = pd.DataFrame(rows, columns=["t_s", "lane", "decision", "text", "is_alarm"])
    name = "your policy"
    return figures.decisions({name: table}, title=FAILURE_TITLE, marked={name: wrong})


EXERCISE: Final = Exercise(
    signature="ward_policy(patients) -> a policy: YAML text, a Policy, or a function with @policy, for a "
    "doctor with a list of patients; a message has patient, and mostly pulse and ecg",
    property="Of other doctors' patients only alarms (a pulse below 50) are shown. Each alarm is sent at "
    "once. Below 25 % of battery only patient and pulse are sent; of a patient who is not in danger, one "
    "message is sent every five minutes, and the first one after that. Otherwise the electrocardiogram is "
    "sent as well: a half to a sixteenth of it at 75 % or less or below 500 kbit/s, else all of it, and "
    "never more samples than pixels.",
    scenarios=st.builds(
        _Scenario,
        st.sampled_from([(1, 2), (1,), (1, 2)]),
        st.lists(
            st.builds(
                _Step,
                st.sampled_from([10.0, 20.0, 299.9375, 300.0]),  # exact in binary, as sums of times must be
                st.sampled_from([1, 2, 7, 2]),
                st.sampled_from([72, 49, 50, None]),
                st.sampled_from([True, True, True, False]),
                st.sampled_from([90, 20, 24, 10, 60, 20, 25, 24, 75, 76, None]),
                st.sampled_from([40_000, 499, 500, None]),
                st.sampled_from([1_000, 150]),
            ),
            min_size=1,
            max_size=12,  # long enough for two messages about a patient on a low battery
        ).map(tuple),
    ),
    play=_play,
)
