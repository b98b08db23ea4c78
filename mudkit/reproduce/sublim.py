"""Rows of SUBLIM: decisions of the PICU policy (S1, S3), and state that follows a roaming subscriber (S2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.processes import spread_out
from mudkit.reproduce.row import Figure, Measured, Required, Row, Say
from mudkit.sources.streams import Stream
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber, Verdict
from mudkit.systems.sublim._policy.actions import Every, Keep, Remember, SetField, Summary
from mudkit.systems.sublim.messages import Published, StateTransferAck
from mudkit.systems.sublim.study import picu, picu_function, shared_timestamp_policy

__all__ = ["ROWS"]

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


def starved(per_patient: bool, patients: int = 4, minutes: int = 60) -> int:
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
    figures = {
        "share of situations that are right": right / (2 * len(SITUATIONS)),
        "share of messages on which rules and function agree": agree / count,
        "messages": count,
        "share of messages that are sent": sent / count,
        "patients starved by a limit for each": starved(per_patient=True),
        "patients starved by one Timestamp": starved(per_patient=False),
    }
    parameters = {"seeds": 0, "situations": len(SITUATIONS), "patients": len(_MINE)}
    return Measured({name: Figure.of([value]) for name, value in figures.items()}, parameters)


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
    return Measured({name: Figure.of(per_s) for name, per_s in rates.items()}, parameters)


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
    policy = picu(patients)
    variables: Any = policy.variables
    begin = time.process_time()
    for number in range(decisions):
        message, automatic = cases[number % len(cases)]
        variables = policy.decide(message, variables, automatic, 1e9 + number * gap_s).variables
    return decisions / (time.process_time() - begin)


_S: Final = 1_000_000
_STEP_DEG: Final = 0.001
"""Distance of two access points in degrees of latitude: 111 m."""
_POINTS: Final = 3
_CRASHES: Final = (
    "before commit",
    "after commit",
    "packed, not gone",
    "unpacked, still wanted",
    "decided, not in the queue",
    "numbered, not kept",
)
_LIMIT_S: Final = 60
_SUM: Final = "state.sum + coalesce(state.battery, 0)"

POLICY: Final = Policy(
    "all kinds of state",
    [
        Rule(
            "message.kind = 'count'",
            [
                Remember({"count": "coalesce(state.count, 0) + 1", "sum": _SUM}),
                SetField({"count": "state.count", "saw": "state.battery"}),
            ],
            "counts, and adds up what it saw of the battery",
        ),
        Rule(
            "message.kind = 'limit'",
            [Every(_LIMIT_S, "message.patient"), Keep(("number", "patient"))],
            "limits",
        ),
        Rule(None, [Summary(_LIMIT_S, ("pulse",), "message.patient")], "sums up"),
    ],
    variables={"sum": 0},
)
"""Policy whose state depends on all earlier messages and on automatic variables."""


class Roamed(NamedTuple):
    """Result of a walk, compared with a server that never failed.

    `lost` messages are missing, `repeated` ones are duplicates or out of order. A message counts as published
    when the publish server has it. `wrong_states` is 1 when the final state differs or is not at exactly one
    access point.
    """

    handovers: int
    crashes: int
    published: int
    sent: int
    lost: int
    repeated: int
    wrong_states: int


@dataclass(frozen=True)
class Roaming:
    """Parameters of a walk with faults.

    A move takes `every_s` on average. `crashes` kill an access point or the publish server at critical
    points. `mangled_share` of all messages is lost, as much duplicated and as much delayed.
    """

    moves: int = 10
    messages: int = 60
    every_s: float = 20.0
    crashes: int = 12
    mangled_share: float = 0.1

    def run(self, seed: int) -> Roamed:
        """Run one walk."""
        return _Walk(self, seed).run()


class _Walk:
    def __init__(self, roaming: Roaming, seed: int) -> None:
        self.roaming = roaming
        self.draws = Stream(seed, "sublim roaming")
        self.lab = Lab(seed, record_messages=False)
        self.world = self.lab.world
        self.world.on_failure = raise_failure
        self.net = PublishServer(self.lab)
        self.points = [
            AccessPoint(self.lab, self.net, at=(number * _STEP_DEG, 0.0), range_m=80.0)
            for number in range(_POINTS)
        ]
        self.device = self.lab.device("doctor", link="wifi", at=(0.0, 0.0), battery_j=50_000.0)
        self.doctor = Subscriber(self.device, self.net, report_s=5.0, change_share=0.0)
        self.names = [*(point.name for point in self.points), "publish-server"]
        self.transfers: set[int] = set()
        self.crossed = 0

    def run(self) -> Roamed:
        """Run the walk, then five minutes without faults."""
        roaming = self.roaming
        self.doctor.set_policy(POLICY).result()
        length_us = round(roaming.moves * roaming.every_s * _S)
        self.world.on_fate = self._fate
        share = roaming.mangled_share
        self.lab.faults.messages(loss_share=share, repeat_share=share, delay_share=share, delay_s=8.0)
        for number, at_us in enumerate(self._moments("publish", roaming.messages, length_us)):
            self.world.ask_at(at_us, self._publish, number)
        for number, at_us in enumerate(self._moments("move", roaming.moves, length_us)):
            self.world.at(at_us, self._move, number)
        for number, at_us in enumerate(self._moments("crash", roaming.crashes, length_us)):
            self.world.at(at_us, self._crash, number)
        for number, at_us in enumerate(self._moments("cut", roaming.moves // 2, length_us)):
            self.world.at(at_us, self._cut, number)
        self.world.run(self.world.now_us + length_us)
        self.lab.faults.messages()
        for name in self.names:
            self.lab.faults.kill(name, at="nowhere")
            self.lab.faults.restart(name)
        self.lab.run(minutes=5)
        return self._compared()

    def _moments(self, what: str, count: int, length_us: int) -> Sequence[int]:
        draws = Stream(self.draws.seed, f"sublim roaming {what}").uniform(0, np.arange(count))
        return [self.world.now_us + int(share * length_us) for share in np.sort(draws)]

    def _draw(self, what: int, number: int, most: int) -> int:
        return int(self.draws.integers(what, number, 0, most))

    def _publish(self, number: int) -> None:
        message = {
            "number": number,
            "kind": ("count", "limit", "sum")[self._draw(1, number, 3)],
            "patient": self._draw(2, number, 3),
            "pulse": 40 + self._draw(3, number, 60),
        }
        self.net.publish(message)

    def _move(self, number: int) -> None:
        self.device.measured("loc", (self._draw(4, number, _POINTS) * _STEP_DEG, 0.0))

    def _crash(self, number: int) -> None:
        name = self.names[self._draw(5, number, len(self.names))]
        self.lab.faults.kill(name, at=_CRASHES[self._draw(6, number, len(_CRASHES))])
        later_us = (1 + self._draw(7, number, 30)) * _S
        self.world.at(self.world.now_us + later_us, self.lab.faults.restart, name)

    def _cut(self, number: int) -> None:
        self.lab.faults.cut("doctor", minutes=(1 + self._draw(8, number, 20)) / 60)

    def _fate(self, transfer: Any, fate: str) -> None:
        message = transfer.message
        if isinstance(message, StateTransferAck) and fate == "arrived":
            self.transfers.add(message.epoch)

    def _compared(self) -> Roamed:
        received = self.doctor.read().result()
        batteries = {message["number"]: message.get("saw") for message in received if "saw" in message}
        variables: Mapping[str, Any] = POLICY.variables
        expected = []
        publisher: Any = self.net.installed
        published = [message for _, message in publisher.store.items("message ", Published)]
        for message in published:
            battery = batteries.get(message.body["number"])
            automatic = {} if battery is None else {"battery": battery}
            verdict = POLICY.decide(message.body, variables, automatic, message.at_s)
            variables = verdict.variables
            if verdict.out is not None:
                expected.append(verdict.out)
        states = [state for point in self.points if (state := point.state("doctor")) is not None]
        is_equal = len(states) == 1 and states[0]["variables"] == variables
        numbers = [message["number"] for message in received]
        servers: Any = [publisher, *(point.installed for point in self.points)]
        lost = sum(message not in received for message in expected)
        extra = len(received) - len(expected) + lost
        return Roamed(
            handovers=len(self.transfers),
            crashes=sum(server.session - 1 for server in servers),
            published=len(published),
            sent=len(expected),
            lost=lost,
            repeated=extra + (numbers != sorted(numbers)),
            wrong_states=int(not is_equal),
        )


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
    figures = {name.replace("_", " "): Figure.of([value]) for name, value in total._asdict().items()}
    parameters = {
        "seeds": f"0–{len(runs) - 1}",
        "access points": _POINTS,
        "moves": roaming.moves,
        "crashes asked for": roaming.crashes,
        "mangled share": roaming.mangled_share,
    }
    return Measured(figures, parameters)


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
