"""Exercise of chapter 00: accept each message once and in order.

A relay retransmits a message until it is acknowledged, and the network repeats and delays messages. A device
must accept each message once, in the order in which its sender sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit.exercises.judging import DeliveryFaults, Exercise, PieceError, PlayedScenario, new_lab
from mudkit.fleet.link import Transfer
from mudkit.systems.store_and_forward import Client, ClientMachine, Relay
from mudkit.systems.store_and_forward.messages import Deliver
from mudkit.wire import as_wire

_FAULTS_US: Final = {
    "twice": (0, 50_000),
    "lost": (),
    "late": (3_000_000,),
    "late and twice": (3_000_000, 6_000_000),
}
"""Faults of a delivery: the delays, in µs, after which it arrives."""


class _Scenario(NamedTuple):
    """Receivers of the messages, and the faults of the first deliveries to bob in order."""

    receivers: Sequence[str]
    deliveries: Sequence[str]

    def __str__(self) -> str:
        sent = "one message" if len(self.receivers) == 1 else f"{len(self.receivers)} messages, one a second,"
        faults = [
            f"delivery {number} comes {fault}" if fault != "lost" else f"delivery {number} is lost"
            for number, fault in enumerate(self.deliveries, start=1)
            if fault != "well"
        ]
        receivers = ", then ".join(self.receivers)
        return f"ann sends {sent} to {receivers}; {', '.join(faults) or 'nothing goes wrong'}."


def _play(piece: Callable[..., Any], scenario: _Scenario) -> PlayedScenario:
    """Run a scenario with a receiver that uses the function; return the outcome."""
    lab = new_lab()
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name, "edge"), relay) for name in ("ann", "cy"))

    class Machine(ClientMachine):
        def is_next(self, seen: int, message: Deliver) -> bool:
            return bool(piece(seen, as_wire(message)))

    bob = Client(lab.device("bob", "edge"), relay, Machine)

    def is_to_bob(transfer: Transfer) -> bool:
        return isinstance(transfer.message, Deliver) and transfer.to == bob.installed.address

    lab.run(seconds=3)
    lab.world.fault_hook = DeliveryFaults(_FAULTS_US, scenario.deliveries, is_to_bob)
    sent = [f"message {number}" for number, to in enumerate(scenario.receivers, start=1) if to == "bob"]
    try:
        for number, to in enumerate(scenario.receivers, start=1):
            ann.send(to, f"message {number}")
            lab.run(seconds=1)
        lab.run(seconds=60)
        inbox = [message["text"] for message in bob.read().result()]
    except PieceError as error:
        return PlayedScenario(str(scenario), str(error), lab, _LANES)
    return PlayedScenario(str(scenario), _problem(sent, inbox), lab, _LANES)


_LANES: Final = ("ann", "relay", "bob", "cy")


def _problem(sent: list[str], inbox: list[str]) -> str | None:
    """Return how an inbox differs from what was sent, in words, or None."""
    if inbox == sent:
        return None
    twice = sorted({text for text in inbox if inbox.count(text) > 1})
    missing = [text for text in sent if text not in inbox]
    if twice:
        problem = f"{', '.join(twice)} entered the inbox more than once"
    elif missing:
        problem = f"{', '.join(missing)} never entered the inbox, although the relay delivered it repeatedly"
    else:
        problem = "the order is not that in which they were sent"
    return f"{problem}. bob's inbox: {', '.join(inbox) or 'empty'}."


EXERCISE: Final = Exercise(
    signature="take(seen, message) -> bool, where seen is the number of the last message of this sender in "
    "the inbox (0: none), and message has its 'number' and 'after', the number of the message before it",
    property="Each message that ann sends to bob enters his inbox once, in order.",
    scenarios=st.builds(
        _Scenario,
        st.lists(st.sampled_from(["bob", "cy"]), min_size=1, max_size=4),
        st.lists(st.sampled_from(["well", *_FAULTS_US]), max_size=6),
    ),
    play=_play,
    returns="True or False",
)
