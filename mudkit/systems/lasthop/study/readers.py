"""The reader's view of a run: messages wasted and lost, reads that miss something, and delays.

==========  ==============================================================================================
wasted      forwarded, and never read (Last hop 4)
lost        read under on-line forwarding, and not under the policy (Last hop 4)
empty       a read without a link that showed fewer messages than it asked for, while an acceptable message
            that had arrived and had not expired was not on the device
delay       from the read that would have shown a message, had there always been a link, to the read that
            showed it; 0 if it was shown earlier, since better ones were missing
==========  ==============================================================================================

Messages count for the day on which they arrived, reads for the day on which they happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.spool.ranked import Take
from mudkit.systems.lasthop.spool.spool import Spool
from mudkit.systems.lasthop.study.scenario import DAY_US, Drawn
from mudkit.systems.lasthop.study.simulation import (
    Outcome,
    Spooling,
    play,
    play_best,
    play_linked,
    readable_ids,
    spool_factory,
)

COUNTS: Final = ("wasted", "forwarded", "lost", "readable", "empty", "reads", "delay_h", "seen")
"""Counts by day: events, and the sum of delays in hours."""

_MAX_VIEWS: Final = 8
"""Views that a reader remembers: of a long log each has megabytes."""

Days: TypeAlias = Literal["all", "odd", "even"]
"""Days that count, from the first one, which is odd: two halves of a log have none in common."""


@dataclass(frozen=True)
class ReaderView:
    """View that a reader has of a policy, message by message and read by read.

    ``wasted``, ``forwarded``, ``lost`` and ``readable`` have an item per message, ``empty`` has one per read;
    ``delay_us`` is -1 for messages without a delay.
    """

    drawn: Drawn
    wasted: NDArray[np.bool_]
    forwarded: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    readable: NDArray[np.bool_]
    empty: NDArray[np.bool_]
    delay_us: NDArray[np.int64]

    def by_day(self, days: Days = "all") -> NDArray[np.float64]:
        """Return the counts of :data:`COUNTS`, a row per day that counts."""
        drawn = self.drawn
        last_us = max(drawn.arrivals_us.max(initial=0), drawn.reads_us.max(initial=0))
        count = int(last_us) // DAY_US + 1
        arrived, read = drawn.arrivals_us // DAY_US, drawn.reads_us // DAY_US
        has_delay = self.delay_us >= 0
        delay_h = np.where(has_delay, self.delay_us, 0) / 3600e6
        of_messages = (self.wasted, self.forwarded, self.lost, self.readable)
        columns = [np.bincount(arrived, weights=marked, minlength=count) for marked in of_messages]
        columns += [
            np.bincount(read, weights=self.empty, minlength=count),
            np.bincount(read, minlength=count),
        ]
        columns += [np.bincount(arrived, weights=value, minlength=count) for value in (delay_h, has_delay)]
        first, step = (1 if days == "even" else 0), (1 if days == "all" else 2)
        return np.stack(columns, axis=1).astype(np.float64)[first::step]

    def delays_s(self, days: Days = "all") -> NDArray[np.float64]:
        """Return the delays of the messages that arrived on the days that count, in seconds."""
        counts = self.delay_us >= 0
        if days != "all":
            counts &= self.drawn.arrivals_us // DAY_US % 2 == (days == "even")
        return np.asarray(self.delay_us[counts] / 1e6, dtype=np.float64)


def _without_limit(policy: Forwarding) -> Forwarding:
    """Return the policy with the least prefetch limit: it names those that differ in the limit only."""
    return replace(policy, prefetch_limit=0)


class Reader:
    """Reader of the events of one run, and what the best service would have given her."""

    def __init__(self, drawn: Drawn, threshold: float, max_messages: float) -> None:
        self._drawn, self._threshold, self._max = drawn, threshold, max_messages
        self._views: dict[Forwarding | Push, ReaderView] = {}
        self._idle_limits: dict[Forwarding, int] = {}
        """Lowest prefetch limit known to keep nothing back, by the policy without its limit."""
        self.online = play_best(drawn, threshold, max_messages)
        self._readable = self._mask_of(readable_ids(drawn, self.online, threshold, max_messages))
        self._shown_us = self._read_us(play_linked(drawn, threshold, max_messages))
        acceptable = drawn.ranks >= threshold
        self._arrived = np.searchsorted(drawn.arrivals_us[acceptable], drawn.reads_us, side="right")
        self._arrived -= np.searchsorted(np.sort(drawn.expires_us[acceptable]), drawn.reads_us, side="right")
        switched = np.searchsorted(drawn.switches_us, drawn.reads_us, side="right")
        self._is_down = (switched % 2 == 0) != drawn.starts_up

    @classmethod
    def of(cls, drawn: Drawn, threshold: float, max_messages: float) -> Reader:
        """Return the reader of these events with these limits; made once, and kept with the events."""
        key = threshold, max_messages
        if key not in drawn.readers:
            drawn.readers[key] = cls(drawn, threshold, max_messages)
        return drawn.readers[key]

    def view(self, policy: Forwarding | Push) -> ReaderView:
        """Return what she sees under a policy; the last few are remembered.

        A prefetch limit that keeps nothing back is as good as any higher one, which is not run again.
        """
        if isinstance(policy, Forwarding) and isinstance(policy.prefetch_limit, int):
            idle = self._idle_limits.get(_without_limit(policy), policy.prefetch_limit)
            policy = replace(policy, prefetch_limit=min(policy.prefetch_limit, idle))
        view = self._views.pop(policy, None)
        if view is None:
            view = self.see(self._play(policy))
        self._views[policy] = view
        if len(self._views) > _MAX_VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def _play(self, policy: Forwarding | Push) -> Outcome:
        """Run the events under a policy, and remember its prefetch limit if that keeps nothing back."""
        spools: list[Spooling] = []

        def make_spool(forward: Take, retract: Take) -> Spooling:
            spools.append(spool_factory(policy, self._threshold)(forward, retract))
            return spools[0]

        outcome = play(self._drawn, make_spool, self._max)
        if (
            isinstance(policy, Forwarding)
            and policy.kind == "buffer"
            and isinstance(policy.prefetch_limit, int)
            and isinstance(spools[0], Spool)
            and not spools[0].is_limited
        ):
            self._idle_limits[_without_limit(policy)] = policy.prefetch_limit
        return outcome

    def see(self, outcome: Outcome) -> ReaderView:
        """Return what she saw under the policy with this outcome, on the same events."""
        drawn = self._drawn
        forwarded, read_us = self._mask_of(outcome.forwarded_ids), self._read_us(outcome)
        is_read = read_us >= 0
        shown = np.array(outcome.per_read, dtype=np.int64)
        expired = np.searchsorted(np.sort(drawn.expires_us[is_read]), drawn.reads_us, side="right")
        unread = self._arrived - (np.cumsum(shown) - shown - expired)
        empty = self._is_down & (shown < self._max) & (unread > shown)
        delay_us = np.maximum(read_us - self._shown_us, 0)
        delay_us[~is_read | (self._shown_us < 0)] = -1
        return ReaderView(
            drawn, forwarded & ~is_read, forwarded, self._readable & ~is_read, self._readable, empty, delay_us
        )

    def _mask_of(self, numbers: Sequence[Hashable]) -> NDArray[np.bool_]:
        """Return an array that is True at the numbers of these messages."""
        marked = np.zeros(len(self._drawn.arrivals_us), dtype=np.bool_)
        marked[np.array(numbers, dtype=np.int64)] = True
        return marked

    def _read_us(self, outcome: Outcome) -> NDArray[np.int64]:
        """Return when each message was read; -1: never."""
        read_us = np.full(len(self._drawn.arrivals_us), -1, dtype=np.int64)
        read_us[np.array(outcome.read_ids, dtype=np.int64)] = np.repeat(
            self._drawn.reads_us, outcome.per_read
        )
        return read_us
