"""History of each message of a run: when it came, was forwarded and was read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from mudkit.checks import Range, check_arguments
from mudkit.display import Displayed, View, frame_table
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.spool.ranked import Message, Ranked, Take
from mudkit.systems.lasthop.study.scenario import DAY_US, Drawn, Scenario
from mudkit.systems.lasthop.study.simulation import SpoolFactory, play, read_limit, spool_factory

if TYPE_CHECKING:
    import pandas as pd


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Lifelines(Displayed):
    """Policies on the same events, message by message.

    Parameters
    ----------
    drawn : Drawn
    tables : mapping of str to pandas.DataFrame
        Result of :func:`message_lifecycles` for each policy.
    best : pandas.DataFrame
        The same for the on-line policy, against which loss is counted; where it reads nothing for want of a
        link, for one with a link at all times.
    until_us : int
        End of the events.
    """

    drawn: Drawn
    tables: Mapping[str, pd.DataFrame]
    best: pd.DataFrame
    until_us: int

    def table(self) -> pd.DataFrame:
        """Return ``policy, forwarded, read, waste, loss``, one row per policy."""
        import pandas as pd

        could_read = self.best["read_us"] >= 0
        rows = []
        for name, table in self.tables.items():
            is_forwarded, is_read = table["forwarded_us"] >= 0, table["read_us"] >= 0
            wasted, lost = (is_forwarded & ~is_read).sum(), (could_read & ~is_read).sum()
            counts = int(is_forwarded.sum()), int(is_read.sum())
            rows.append((name, *counts, wasted / max(counts[0], 1), lost / max(int(could_read.sum()), 1)))
        return pd.DataFrame(rows, columns=["policy", "forwarded", "read", "waste", "loss"])

    def _view(self) -> View:
        """Return the counts of events and the table of policies for a display."""
        counts = {"messages": len(self.drawn.arrivals_us), "reads": len(self.drawn.reads_us)}
        return View("Lifelines", counts, [frame_table(self.table())])


@check_arguments
def lifelines(
    scenario: Scenario,
    policies: Mapping[str, Forwarding | Push],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    seed: Annotated[int, Range(-(1 << 63), (1 << 63) - 1)] = 0,
) -> Lifelines:
    """Run policies on the same events, and keep the history of each message, for a figure.

    Parameters
    ----------
    scenario : Scenario
        A scenario of a few days: every message is kept.
    policies : mapping of str to Forwarding or Push
    max : int or None
        Messages per read; None: unlimited.
    seed : int
        Seed of the events.

    Returns
    -------
    Lifelines
        :func:`mudkit.figures.message_lifecycles` draws it.
    """
    drawn = scenario.draw(seed)
    max_messages = read_limit(max)
    tables = {
        name: message_lifecycles(drawn, spool_factory(policy, 0.0), max_messages)
        for name, policy in policies.items()
    }
    online = spool_factory(Forwarding("on-line"), 0.0)
    best = message_lifecycles(drawn, online, max_messages)
    if not (best["read_us"] >= 0).any():
        always = replace(drawn, switches_us=drawn.switches_us[:0], starts_up=True)
        best = message_lifecycles(always, online, max_messages)
    return Lifelines(drawn, tables, best, scenario.days * DAY_US)


@check_arguments
def message_lifecycles(drawn: Drawn, make_spool: SpoolFactory, max_messages: float) -> pd.DataFrame:
    """Run all events through one spool, and return the history of each message.

    Parameters
    ----------
    drawn, make_spool, max_messages
        As for :func:`play`.

    Returns
    -------
    DataFrame
        One row per message, in order of arrival: ``message``, ``rank``, ``came_us``, ``expires_us``
        (:data:`~mudkit.systems.lasthop.spool.ranked.FOREVER_US`: never), ``forwarded_us`` and ``read_us``
        (-1: never).
    """
    import pandas as pd

    watched: list[_WatchedSpool] = []

    def make_watched(forward: Take, retract: Take) -> _WatchedSpool:
        """Build the spool that :func:`play` uses, and keep it."""
        watched.append(_WatchedSpool(make_spool, forward, retract))
        return watched[0]

    outcome = play(drawn, make_watched, max_messages)
    count = len(drawn.arrivals_us)
    read_us = dict(zip(outcome.read_ids, np.repeat(drawn.reads_us, outcome.per_read).tolist(), strict=True))
    columns = {"forwarded_us": watched[0].forwarded_us, "read_us": read_us}
    return pd.DataFrame(
        {
            "message": np.arange(count),
            "rank": drawn.ranks,
            "came_us": drawn.arrivals_us,
            "expires_us": drawn.expires_us,
        }
        | {name: [times.get(number, -1) for number in range(count)] for name, times in columns.items()}
    )


class _WatchedSpool:
    """A spool of a policy that records when it forwards each message, for :func:`play`."""

    def __init__(self, make_spool: SpoolFactory, forward: Take, retract: Take) -> None:
        self.forwarded_us: dict[Hashable, int] = {}
        self._now_us = 0

        def record_forwarded(message: Message) -> None:
            """Record the time at which a message is forwarded, and forward it."""
            self.forwarded_us[message.identity] = self._now_us
            forward(message)

        self._spool = make_spool(record_forwarded, retract)

    @property
    def device(self) -> Ranked:
        """Messages on the device."""
        return self._spool.device

    @property
    def is_up(self) -> bool:
        """True while there is a link."""
        return self._spool.is_up

    @property
    def due_us(self) -> int:
        """Time at which :meth:`timeout` is due."""
        return self._spool.due_us

    def notification(self, now_us: int, identity: Hashable, rank: float, expires_us: int) -> None:
        """Add a message, or change its rank, after timeouts that were due before it."""
        self.timeout(now_us)
        self._spool.notification(now_us, identity, rank, expires_us)

    def is_on_device(self, identity: Hashable) -> bool:
        """Return whether a message is on the device."""
        return self._spool.is_on_device(identity)

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Record a change of the link, after timeouts that were due before it."""
        self.timeout(now_us)
        self._spool.network(now_us, is_up=is_up)

    def read(self, now_us: int, max_messages: float) -> list[Message]:
        """Read the best messages, after timeouts that were due before it."""
        self.timeout(now_us)
        return self._spool.read(now_us, max_messages)

    def read_offline(self, at_us: int, identities: Iterable[Hashable], requested: float) -> None:
        """Record an earlier read without a link, and how many messages it requested."""
        self._spool.read_offline(at_us, identities, requested)

    def timeout(self, now_us: int) -> None:
        """Drop expired messages, each at its time."""
        while self._spool.due_us <= now_us:
            self._now_us = self._spool.due_us
            self._spool.timeout(self._now_us)
        self._now_us = now_us
