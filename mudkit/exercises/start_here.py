"""The exercise of chapter 00: say which message is the next one.

A relay delivers a message again until it hears that it has come, and a network repeats and delays messages. A
device must take each message once, and in the order in which its sender sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mudkit.exercises.judging import Exercise, PieceError, Played
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab
from mudkit.systems.store_and_forward import Client, ClientMachine, Relay
from mudkit.systems.store_and_forward.messages import Deliver
from mudkit.wire import as_wire

__all__ = ["EXERCISE"]

_TROUBLES: Final = {
    "twice": (0, 50_000),
    "lost": (),
    "late": (3_000_000,),
    "late and twice": (3_000_000, 6_000_000),
}
"""What happens to a delivery: after which delays, in µs, it is handed over."""


class _Scenario(NamedTuple):
    """Whom messages are for, and what happens to the first deliveries to bob, one after the other."""

    receivers: Sequence[str]
    deliveries: Sequence[str]

    def __str__(self) -> str:
        sent = "one message to" if len(self.receivers) == 1 else "a message a second to"
        troubles = [
            f"delivery {number} comes {what}" if what != "lost" else f"delivery {number} is lost"
            for number, what in enumerate(self.deliveries, start=1)
            if what != "well"
        ]
        return f"ann sends {sent} {', '.join(self.receivers)}; {', '.join(troubles) or 'nothing goes wrong'}."


def _play(piece: Callable[..., Any], scenario: _Scenario) -> Played:
    lab = Lab(seed=1)
    lab.world.on_failure = raise_failure  # a piece that raises has not passed
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name, "edge"), relay) for name in ("ann", "cy"))

    class Machine(ClientMachine):
        def is_next(self, seen: int, message: Deliver) -> bool:
            return bool(piece(seen, as_wire(message)))

    bob = Client(lab.device("bob", "edge"), relay, Machine)
    deliveries = 0

    def fault_hook(transfer: Transfer) -> Sequence[int]:
        nonlocal deliveries
        if not isinstance(transfer.message, Deliver) or transfer.to != bob.installed.address:
            return (0,)
        deliveries += 1
        what = scenario.deliveries[deliveries - 1] if deliveries <= len(scenario.deliveries) else "well"
        return _TROUBLES.get(what, (0,))

    lab.run(seconds=3)
    lab.world.fault_hook = fault_hook
    sent = [f"message {number}" for number, to in enumerate(scenario.receivers, start=1) if to == "bob"]
    try:
        for number, to in enumerate(scenario.receivers, start=1):
            ann.send(to, f"message {number}")
            lab.run(seconds=1)
        lab.run(seconds=60)
        inbox = [message["text"] for message in bob.read().result()]
    except PieceError as error:
        return Played(str(scenario), str(error), lab, _LANES)
    return Played(str(scenario), _problem(sent, inbox), lab, _LANES)


_LANES: Final = ("ann", "relay", "bob", "cy")


def _problem(sent: list[str], inbox: list[str]) -> str | None:
    if inbox == sent:
        return None
    twice = sorted({text for text in inbox if inbox.count(text) > 1})
    missing = [text for text in sent if text not in inbox]
    if twice:
        what = f"{', '.join(twice)} came into the inbox more than once"
    elif missing:
        what = f"{', '.join(missing)} never came into the inbox, although it was delivered again and again"
    else:
        what = "the order is not that in which they were sent"
    return f"{what}. bob's inbox: {', '.join(inbox) or 'empty'}."


EXERCISE: Final = Exercise(
    signature="take(seen, message) -> bool, where seen is the number of the last message of this sender in "
    "the inbox (0: none), and message has its 'number' and 'after', that of the one sent here before it",
    property="Each message that ann sends to bob comes into his inbox once, and in order.",
    scenarios=st.builds(
        _Scenario,
        st.lists(st.sampled_from(["bob", "cy"]), min_size=1, max_size=4),
        st.lists(st.sampled_from(["well", *_TROUBLES]), max_size=6),
    ),
    play=_play,
    returns="True or False",
)
