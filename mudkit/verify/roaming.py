"""Random walks of a SUBLIM subscriber between access points that crash, on a network that loses messages.

The result is compared with a server that never failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.sources.streams import Stream
from mudkit.systems.sublim import AccessPoint, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Every, Keep, Remember, SetField, Summary
from mudkit.systems.sublim.messages import PublishedMessage, StateTransferAck

_S: Final = 1_000_000
_STEP_DEG: Final = 0.001
"""Distance of two access points in degrees of latitude: 111 m."""
POINTS: Final = 3
"""Number of access points, in a row."""
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
        """Run one walk, drawn by a seed; return its counts, compared with a server that never failed."""
        return _Walk(self, seed).run()


class _Walk:
    """One walk of one seed."""

    def __init__(self, roaming: Roaming, seed: int) -> None:
        self.roaming = roaming
        self.draws = Stream(seed, "sublim roaming")
        self.lab = Lab(seed, record_messages=False)
        self.world = self.lab.world
        self.world.on_failure = raise_failure
        self.net = PublishServer(self.lab)
        self.points = [
            AccessPoint(self.lab, self.net, at=(number * _STEP_DEG, 0.0), range_m=80.0)
            for number in range(POINTS)
        ]
        self.device = self.lab.device("doctor", link="wifi", at=(0.0, 0.0), battery_j=50_000.0)
        self.doctor = Subscriber(self.device, self.net, report_s=5.0, change_share=0.0)
        self.names = [*(point.name for point in self.points), "publish-server"]
        self.transfers: set[int] = set()

    def run(self) -> Roamed:
        """Run the walk, then five minutes without faults."""
        roaming = self.roaming
        self.doctor.set_policy(POLICY).result()
        length_us = round(roaming.moves * roaming.every_s * _S)
        self.world.on_fate = self._record_handover
        share = roaming.mangled_share
        self.lab.faults.messages(loss_share=share, repeat_share=share, delay_share=share, delay_s=8.0)
        for number, at_us in enumerate(self._moments("publish", roaming.messages, length_us)):
            self.world.schedule_call(at_us, self._publish, number)
        for number, at_us in enumerate(self._moments("move", roaming.moves, length_us)):
            self.world.schedule_action(at_us, self._move, number)
        for number, at_us in enumerate(self._moments("crash", roaming.crashes, length_us)):
            self.world.schedule_action(at_us, self._crash, number)
        for number, at_us in enumerate(self._moments("cut", roaming.moves // 2, length_us)):
            self.world.schedule_action(at_us, self._cut, number)
        self.world.run(self.world.now_us + length_us)
        self.lab.faults.messages()
        for name in self.names:
            self.lab.faults.kill(name, at="nowhere")
            self.lab.faults.restart(name)
        self.lab.run(minutes=5)
        return self._compare()

    def _moments(self, what: str, count: int, length_us: int) -> Sequence[int]:
        """Return drawn times within the walk, in microseconds, in order."""
        draws = Stream(self.draws.seed, f"sublim roaming {what}").uniform(0, np.arange(count))
        return [self.world.now_us + int(share * length_us) for share in np.sort(draws)]

    def _draw(self, what: int, number: int, most: int) -> int:
        """Return a drawn number below ``most``; the same for the same purpose ``what`` and ``number``."""
        return int(self.draws.integers(what, number, 0, most))

    def _publish(self, number: int) -> None:
        """Publish a message with the content drawn for ``number``, which is the same each time."""
        message = {
            "number": number,
            "kind": ("count", "limit", "sum")[self._draw(1, number, 3)],
            "patient": self._draw(2, number, 3),
            "pulse": 40 + self._draw(3, number, 60),
        }
        self.net.publish(message)

    def _move(self, number: int) -> None:
        """Move the subscriber to a drawn access point."""
        self.device.set_measured("loc", (self._draw(4, number, POINTS) * _STEP_DEG, 0.0))

    def _crash(self, number: int) -> None:
        """Kill a drawn server at its next critical point, and schedule its restart."""
        name = self.names[self._draw(5, number, len(self.names))]
        self.lab.faults.kill(name, at=_CRASHES[self._draw(6, number, len(_CRASHES))])
        later_us = (1 + self._draw(7, number, 30)) * _S
        self.world.schedule_action(self.world.now_us + later_us, self.lab.faults.restart, name)

    def _cut(self, number: int) -> None:
        """Cut the subscriber off for some seconds."""
        self.lab.faults.cut("doctor", minutes=(1 + self._draw(8, number, 20)) / 60)

    def _record_handover(self, transfer: Any, fate: str) -> None:
        """Record a transfer of state that arrived, which is a handover."""
        message = transfer.message
        if isinstance(message, StateTransferAck) and fate == "arrived":
            self.transfers.add(message.epoch)

    def _compare(self) -> Roamed:
        """Compare what was received and stored with what the policy decides on a server that never failed."""
        received = self.doctor.read().result()
        batteries = {message["number"]: message.get("saw") for message in received if "saw" in message}
        variables: Mapping[str, Any] = POLICY.variables
        expected = []
        publisher: Any = self.net.installed
        published = [message for _, message in publisher.store.items("message ", PublishedMessage)]
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
            crashes=sum(server.start_number - 1 for server in servers),
            published=len(published),
            sent=len(expected),
            lost=lost,
            repeated=extra + (numbers != sorted(numbers)),
            wrong_states=int(not is_equal),
        )
