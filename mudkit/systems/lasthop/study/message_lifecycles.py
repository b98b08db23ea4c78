"""What became of each message, and when: the same events, seen message by message."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from mudkit.systems.lasthop.spool.ranked import Message, Ranked, Take
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import Begin, play

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["message_lifecycles"]


def message_lifecycles(drawn: Drawn, begin: Begin, most: float) -> pd.DataFrame:
    """Run all events through one spool and return the history of each message.

    Parameters
    ----------
    drawn : Drawn
    begin : callable
        Makes the spool from the functions that take what is forwarded and what is retracted.
    most : float
        Messages at a time.

    Returns
    -------
    DataFrame
        A row a message, in the order in which they came: ``message``, ``rank``, ``came_us``, ``expires_us``
        (:data:`~mudkit.systems.lasthop.spool.ranked.FOREVER_US`: never), ``forwarded_us`` and ``read_us``
        (-1: never).
    """
    import pandas as pd

    watched: list[_Watched] = []

    def watch(forward: Take, retract: Take) -> _Watched:
        watched.append(_Watched(begin, forward, retract))
        return watched[0]

    outcome = play(drawn, watch, most)
    count = len(drawn.arrivals_us)
    columns = {"forwarded_us": watched[0].forwarded_us, "read_us": watched[0].read_us}
    missing = [each for each in outcome.read_ids if each not in watched[0].read_us]
    # What is read after the link has gone for good is told to nobody: each read took as much as it could.
    since_us = drawn.switches_us[-1] if len(drawn.switches_us) else -1
    for at_us in drawn.reads_us[drawn.reads_us >= since_us].tolist():
        while missing and list(columns["read_us"].values()).count(at_us) < most:
            columns["read_us"][missing.pop(0)] = at_us
    return pd.DataFrame(
        {
            "message": np.arange(count),
            "rank": drawn.ranks,
            "came_us": drawn.arrivals_us,
            "expires_us": drawn.expires_us,
        }
        | {name: [times.get(each, -1) for each in range(count)] for name, times in columns.items()}
    )


class _Watched:
    """A spool, and when what happened to it."""

    def __init__(self, begin: Begin, forward: Take, retract: Take) -> None:
        self.forwarded_us: dict[Hashable, int] = {}
        self.read_us: dict[Hashable, int] = {}
        self._now_us = 0

        def noted(message: Message) -> None:
            self.forwarded_us[message.identity] = self._now_us
            forward(message)

        self._spool = begin(noted, retract)

    @property
    def device(self) -> Ranked:
        return self._spool.device

    @property
    def is_up(self) -> bool:
        return self._spool.is_up

    @property
    def due_us(self) -> int:
        return self._spool.due_us

    def notification(self, now_us: int, identity: Hashable, rank: float, expires_us: int) -> None:
        self.timeout(now_us)
        self._spool.notification(now_us, identity, rank, expires_us)

    def network(self, now_us: int, *, is_up: bool) -> None:
        self.timeout(now_us)
        self._spool.network(now_us, is_up=is_up)

    def read(self, now_us: int, most: float) -> list[Message]:
        self.timeout(now_us)
        taken = self._spool.read(now_us, most)
        self.read_us |= {message.identity: now_us for message in taken}
        return taken

    def read_offline(self, at_us: int, identities: Iterable[Hashable]) -> None:
        identities = list(identities)
        self.read_us |= dict.fromkeys(identities, at_us)
        self._spool.read_offline(at_us, identities)

    def timeout(self, now_us: int) -> None:
        """Let expire what expires, each at its time."""
        while self._spool.due_us <= now_us:
            self._now_us = self._spool.due_us
            self._spool.timeout(self._now_us)
        self._now_us = now_us
