"""What a device has to tell the server, in order, until the server has heard it."""

from __future__ import annotations

from typing import Final

import msgspec

from mudkit.delivery.outbox import Outbox
from mudkit.events import Ports
from mudkit.systems.lasthop.messages import Fact, HasRead

__all__ = ["EventLog"]

_EMPTY_READS: Final = 16
"""Of a topic; older ones are in no moving average any more."""


class _Kept(msgspec.Struct, frozen=True):
    fact: Fact


class EventLog:
    """Numbered facts: subscriptions, what was read, what was let go. They outlive the machine.

    Parameters
    ----------
    ports : Ports
    """

    def __init__(self, ports: Ports) -> None:
        self._outbox = Outbox(ports, _Kept, "fact")
        self.base_seq = self._outbox.last_seq
        """Number of the last fact when the machine started."""

    @property
    def is_empty(self) -> bool:
        """Whether the server has heard of all."""
        return not len(self._outbox)

    @property
    def last_seq(self) -> int:
        """Number of the last fact; 0 before the first."""
        return self._outbox.last_seq

    @property
    def first_seq(self) -> int:
        """Number of the first fact that the server has not acknowledged."""
        return self._outbox.first_seq

    def add(self, fact: Fact) -> int:
        """Note a fact, and give its number.

        Raises
        ------
        OutboxFull
            There are too many that the server has not heard of.
        """
        seq = self._outbox.add(_Kept(fact))
        if _is_empty_read(fact):
            same = [
                each
                for each, kept in self._outbox.items()
                if _is_empty_read(kept.fact) and kept.fact.topic == fact.topic
            ]
            for each in same[:-_EMPTY_READS]:
                self._outbox.ack(each)
        return seq

    def acked(self, seq: int) -> list[int]:
        """Forget what the server has heard, and say which those are."""
        return [each for each, _ in self._outbox.acked(seq)]

    def as_sent(self) -> list[tuple[int, Fact]]:
        """Give all of them as they are sent: number and fact."""
        return [(seq, kept.fact) for seq, kept in self._outbox.items()]


def _is_empty_read(fact: Fact) -> bool:
    return isinstance(fact, HasRead) and not fact.ids
