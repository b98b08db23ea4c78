"""Row S2: a subscriber walks between access points that die and come back, beside one that never failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.processes import spread_out
from mudkit.reproduce.row import Figure, Measured, Say
from mudkit.sources.streams import Stream
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Every, Keep, Remember, SetField, Summary
from mudkit.systems.sublim.messages import Published, StateTransferAck

__all__ = ["Roamed", "Roaming", "measure", "roam"]

_S: Final = 1_000_000
_STEP_DEG: Final = 0.001
"""Degrees of latitude between two access points: 111 m."""
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
"""What it remembers depends on all that happened before, and on automatic variables."""


class Roamed(NamedTuple):
    """What came of a walk.

    Parameters
    ----------
    handovers, crashes, published, sent : int
        A message is published when the server has it: if it dies before, it is as if nobody had said it.
    lost, repeated : int
        Messages that a server which never failed would have sent: those that are not there, and those that
        are there more than once or in another order.
    wrong_states : int
        1 when the state at the end is another one, or is not at exactly one access point; else 0.
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
    """A walk with faults.

    Parameters
    ----------
    moves : int
        The number of moves from one access point to the next.
    messages : int
        The number of messages that are published.
    every_s : float
        The mean time between two moves, in seconds.
    crashes : int
        How many times an access point or the publish server is killed, at the points where it hurts.
    mangled_share : float
        The share of all messages, those between servers included, that are lost, repeated, or late.
    """

    moves: int = 10
    messages: int = 60
    every_s: float = 20.0
    crashes: int = 12
    mangled_share: float = 0.1

    def run(self, seed: int) -> Roamed:
        """Walk once."""
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
        """Let it happen, and let it settle."""
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
        return [self.world.now_us + int(each * length_us) for each in np.sort(draws)]

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
        got = self.doctor.read().result()
        saw = {each["number"]: each.get("saw") for each in got if "saw" in each}
        variables: Mapping[str, Any] = POLICY.variables
        wanted = []
        published = [each for _, each in self.net.installed.store.items("message ", Published)]  # type: ignore[attr-defined]
        for each in published:
            battery = saw.get(each.body["number"])
            automatic = {} if battery is None else {"battery": battery}
            verdict = POLICY.decide(each.body, variables, automatic, each.at_s)
            variables = verdict.variables
            if verdict.out is not None:
                wanted.append(verdict.out)
        states = [state for point in self.points if (state := point.state("doctor")) is not None]
        is_equal = len(states) == 1 and states[0]["variables"] == variables
        numbers = [each["number"] for each in got]
        made: Any = [self.net.installed, *(point.installed for point in self.points)]
        crashes = sum(each.session - 1 for each in made)
        lost = sum(each not in got for each in wanted)
        extra = len(got) - len(wanted) + lost
        return Roamed(
            handovers=len(self.transfers),
            crashes=crashes,
            published=len(published),
            sent=len(wanted),
            lost=lost,
            repeated=extra + (numbers != sorted(numbers)),
            wrong_states=int(not is_equal),
        )


def roam(seed: int, roaming: Roaming | None = None) -> Roamed:
    """Walk once; for a pool of processes."""
    return (roaming or Roaming()).run(seed)


def measure(say: Say, handovers: int = 1_000, roaming: Roaming | None = None) -> Measured:
    """Walk until there were so many handovers.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    handovers : int
        How many handovers there must be before the measurement ends.
    roaming : Roaming, optional
    """
    roaming = roaming or Roaming()
    runs: list[Roamed] = []
    batch = max(handovers // (2 * roaming.moves), 1)
    with spread_out(part=5) as many:
        while sum(each.handovers for each in runs) < handovers:
            seeds = range(len(runs), len(runs) + batch)
            runs += many(roam, seeds, [roaming] * len(seeds))
            say(f"{sum(each.handovers for each in runs)} of {handovers} handovers")
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
