"""Rows of SUBLIM: decisions of the PICU policy (S1, S3), and state that follows a roaming subscriber (S2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from mudkit.processes import spread_out
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say
from mudkit.sources.streams import Stream
from mudkit.systems.sublim import Verdict
from mudkit.systems.sublim.study import picu, picu_function, shared_timestamp_policy
from mudkit.verify.roaming import POINTS, Roamed, Roaming

_ECG: Final = bytes(1_000)
_MINE: Final = (1, 2, 3, 4)
_LIVE: Final = 100
_LIVE_GAP_S: Final = 3.1
"""Gap between messages at which one patient is due again and nearly all others are not."""
_Case: TypeAlias = tuple[dict[str, Any], dict[str, Any]]

SITUATIONS: Final[tuple[tuple[dict[str, Any], dict[str, Any], str], ...]] = (
    ({"patient": 1, "pulse": 70}, {"battery": 100, "display_px": 2000}, "pulse, ecg 1000"),
    ({"patient": 1, "pulse": 70}, {"battery": 76, "display_px": 400}, "pulse, ecg 400"),
    ({"patient": 1, "pulse": 70}, {"display_px": 400}, "pulse, ecg 400"),
    ({"patient": 1, "pulse": 70}, {"battery": 75}, "pulse, ecg 500"),
    ({"patient": 1, "pulse": 70}, {"battery": 50}, "pulse, ecg 250"),
    ({"patient": 1, "pulse": 70}, {"battery": 25}, "pulse, ecg 167"),
    ({"patient": 1, "pulse": 70}, {"battery": 25, "display_px": 100}, "pulse, ecg 100"),
    ({"patient": 1, "pulse": 70}, {"battery": 24}, "pulse"),
    ({"patient": 1, "pulse": 70}, {"battery": 100, "bandwidth_kbps": 499}, "pulse, ecg 125"),
    ({"patient": 1, "pulse": 70}, {"battery": 30, "bandwidth_kbps": 100}, "pulse, ecg 125"),
    ({"patient": 1, "pulse": 70}, {"battery": 10, "bandwidth_kbps": 100}, "pulse"),
    ({"patient": 1, "pulse": 70}, {"battery": 100, "bandwidth_kbps": 500}, "pulse, ecg 1000"),
    ({"patient": 9, "pulse": 70}, {"battery": 100}, "nothing"),
    ({"patient": 9, "pulse": 50}, {"battery": 100}, "nothing"),
    ({"patient": 9, "pulse": 49}, {"battery": 100}, "pulse, ecg 1000"),
    ({"patient": 9, "pulse": 49}, {"battery": 24}, "pulse"),
    ({"patient": 9, "pulse": 49}, {"battery": 60, "bandwidth_kbps": 499}, "pulse, ecg 125"),
)
"""Message (with an electrocardiogram of 1,000 samples), automatic variables, and what R1 to R4 deliver."""


def decision(verdict: Verdict) -> str:
    """Describe what is sent, as in :data:`SITUATIONS`."""
    out = verdict.out
    if out is None:
        return "nothing"
    parts = [name for name in ("pulse",) if name in out]
    ecg = out.get("ecg")
    if isinstance(ecg, bytes | str):
        parts.append(f"ecg {len(ecg)}")
    return ", ".join(parts)


def cases(count: int, seed: int = 0) -> Iterator[tuple[dict[str, Any], dict[str, Any], float]]:
    """Draw messages, automatic variables and times, with missing values and values of other types."""
    step = np.arange(count)

    def drawn(name: str, values: list[Any]) -> list[Any]:
        places = Stream(seed, f"sublim {name}").integers(0, step, 0, len(values)).tolist()
        return [values[place] for place in places]

    missing = object()
    fields = {
        "patient": drawn("patient", [*range(1, 9), *range(1, 9), 2.5, "3", True, None, missing]),
        "pulse": drawn("pulse", [*range(40, 61), 49.9, 50.0, "low", None, 1 << 60, missing]),
        "ecg": drawn("ecg", [bytes(n) for n in (0, 1, 7, 250, 1250)] + [None, "text", 5, missing]),
    }
    variables = {
        "battery": drawn("battery", [*range(0, 101, 5), 24.9, 25.1, 74.9, 75.1, missing]),
        "bandwidth_kbps": drawn("bandwidth", [0, 100, 499, 499.9, 500, 501, 40_000, missing]),
        "display_px": drawn("display", [1, 100, 320, 480, 2000, missing]),
    }
    now_s = 1e9 + np.cumsum(Stream(seed, "sublim time").exponential(0, step, 20.0))
    for place in range(count):
        yield (
            {name: values[place] for name, values in fields.items() if values[place] is not missing},
            {name: values[place] for name, values in variables.items() if values[place] is not missing},
            float(now_s[place]),
        )


def count_starved(per_patient: bool, patients: int = 4, minutes: int = 60) -> int:
    """Count the patients of whom a doctor with an empty battery receives nothing.

    Each patient's monitor publishes every ten seconds, in turn.
    """
    policy = (picu if per_patient else shared_timestamp_policy)(range(1, patients + 1))
    variables: Any = policy.variables
    seen = set()
    for step in range(minutes * 6 * patients):
        patient, now_s = step % patients + 1, step * 10.0 / patients
        verdict = policy.decide(
            {"patient": patient, "pulse": 70, "ecg": b""}, variables, {"battery": 10}, now_s
        )
        variables = verdict.variables
        if verdict.out is not None:
            seen.add(patient)
    return patients - len(seen)


def measure_rules(say: Say, count: int = 10_000) -> Measured:
    """Measure row S1: deliveries by situation, and agreement of rules and function on random messages."""
    rules, same = picu(_MINE), picu_function(_MINE)
    right = 0
    for message, automatic, expected in SITUATIONS:
        for policy in (rules, same):
            verdict = policy.decide({**message, "ecg": _ECG}, policy.variables, automatic, 1e9)
            right += decision(verdict) == expected
    agree = sent = 0
    ours: Any = rules.variables
    theirs: Any = same.variables
    for message, automatic, now_s in cases(count):
        one = rules.decide(message, ours, automatic, now_s)
        other = same.decide(message, theirs, automatic, now_s)
        ours, theirs = one.variables, other.variables
        agree += one.out == other.out and ours.get("sent", {}) == theirs.get("sent", {})
        sent += one.out is not None
    quantities = {
        "share of situations that are right": right / (2 * len(SITUATIONS)),
        "share of messages on which rules and function agree": agree / count,
        "messages": count,
        "share of messages that are sent": sent / count,
        "patients starved by a limit for each": count_starved(per_patient=True),
        "patients starved by one Timestamp": count_starved(per_patient=False),
    }
    parameters = {"seeds": 0, "situations": len(SITUATIONS), "patients": len(_MINE)}
    return Measured({name: Quantity.of([value]) for name, value in quantities.items()}, parameters)


S1: Final = Row(
    name="S1",
    source="SUBLIM 5",
    paper="PICU, rules R1 to R4; its figure is lost, and with it how one Timestamp is meant for several "
    "patients: it starves all but one.",
    required=(
        Required("share of situations that are right", "at least", 1),
        Required("share of messages on which rules and function agree", "at least", 1),
        Required("messages", "at least", 10_000),
        Required("patients starved by a limit for each", "at most", 0),
        Required("patients starved by one Timestamp", "at least", 3),
    ),
    measure=measure_rules,
    minutes=0.02,
)


def measure_speed(say: Say, decisions: int = 20_000, runs: int = 5) -> Measured:
    """Measure row S3: decisions of PICU as rules per second of CPU time.

    Once over situations of all rules in turn, and once with 100 live keys of the rate limit.
    """
    drawn: list[_Case] = [
        (
            {"patient": number % 16, "pulse": 40 + number % 50, "ecg": bytes(1_250)},
            {
                "battery": float(number * 7 % 101),
                "bandwidth_kbps": (180.0, 40_000.0)[number % 3 > 0],
                "display_px": 480,
            },
        )
        for number in range(997)
    ]
    live: list[_Case] = [
        ({"patient": patient, "pulse": 70, "ecg": bytes(1_250)}, {"battery": 10.0, "display_px": 480})
        for patient in range(_LIVE)
    ]
    rates: dict[str, list[float]] = {"decisions/s": [], f"decisions/s with {_LIVE} live keys": []}
    for run in range(runs):
        say(f"run {run + 1} of {runs}")
        rates["decisions/s"].append(_rate(range(1, 13), drawn, decisions, 1.0))
        rates[f"decisions/s with {_LIVE} live keys"].append(_rate(range(_LIVE), live, decisions, _LIVE_GAP_S))
    parameters = {"decisions": decisions, "runs": runs, "bytes of an electrocardiogram": 1_250, "rules": 5}
    return Measured({name: Quantity.of(per_s) for name, per_s in rates.items()}, parameters)


S3: Final = Row(
    name="S3",
    source="SUBLIM 4",
    paper="None: policies are compiled, so that the server handles any number of them efficiently.",
    required=(
        Required("decisions/s", "at least", 20_000),
        Required("decisions/s with 100 live keys", "at least", 20_000),
    ),
    measure=measure_speed,
    minutes=0.1,
    is_speed=True,
)


def _rate(patients: Iterable[float], cases: Sequence[_Case], decisions: int, gap_s: float) -> float:
    """Return decisions per second of processor time; the cases take turns, `gap_s` apart in virtual time."""
    policy = picu(patients)
    variables: Any = policy.variables
    begin = time.process_time()
    for number in range(decisions):
        message, automatic = cases[number % len(cases)]
        variables = policy.decide(message, variables, automatic, 1e9 + number * gap_s).variables
    return decisions / (time.process_time() - begin)


def measure_roaming(say: Say, handovers: int = 1_000, roaming: Roaming | None = None) -> Measured:
    """Measure row S2: walks until there were `handovers`."""
    roaming = roaming or Roaming()
    runs: list[Roamed] = []
    batch = max(handovers // (2 * roaming.moves), 1)
    with spread_out(part=5) as map_:
        while sum(run.handovers for run in runs) < handovers:
            seeds = range(len(runs), len(runs) + batch)
            runs += map_(Roaming.run, [roaming] * len(seeds), seeds)
            say(f"{sum(run.handovers for run in runs)} of {handovers} handovers")
    total = Roamed(*(sum(column) for column in zip(*runs, strict=True)))
    quantities = {name.replace("_", " "): Quantity.of([value]) for name, value in total._asdict().items()}
    parameters = {
        "seeds": f"0–{len(runs) - 1}",
        "access points": POINTS,
        "moves": roaming.moves,
        "crashes asked for": roaming.crashes,
        "mangled share": roaming.mangled_share,
    }
    return Measured(quantities, parameters)


S2: Final = Row(
    name="S2",
    source="SUBLIM 3",
    paper="Servers on access points serve those who are attached to them; how the state follows who "
    "walks on is not said.",
    required=(
        Required("handovers", "at least", 1_000),
        Required("crashes", "at least", 500),
        Required("lost", "at most", 0),
        Required("repeated", "at most", 0),
        Required("wrong states", "at most", 0),
    ),
    measure=measure_roaming,
    minutes=0.5,
)


ROWS: Final = (S1, S2, S3)
