"""Simulator: one spool on a presorted list of events, without a kernel (Last hop 4).

On-line forwarding without expirations, half of what a comparison plays, is computed from the times alone.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from heapq import heappop, heappush
from typing import Annotated, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from mudkit import words
from mudkit.checks import Range, check_arguments, number, whole_number
from mudkit.display import Displayed, View
from mudkit.sources.outages import Outages, outages_of
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push, PushSpool, policy_of
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, Message, Ranked, Take
from mudkit.systems.lasthop.spool.spool import Spool
from mudkit.systems.lasthop.study.scenario import CHANGE, SWITCH, Drawn, Expiration, Scenario
from mudkit.wire import Value

words.add_labels(
    {
        "waste": words.Label("wasted", "% of what was forwarded", 100.0),
        "loss": words.Label("lost", "% of what could be read", 100.0),
        "waste_and_loss": words.Label("waste plus loss", "points", 100.0),
    }
)

_T = TypeVar("_T")
_R = TypeVar("_R")
Parameter: TypeAlias = Value | Forwarding | Push | Outages | Expiration
"""Value of a parameter of :func:`simulate`."""


class Map(Protocol):
    """Function that maps runs: the built-in ``map``, or ``pipeline.spread(spark)``."""

    def __call__(self, function: Callable[[_T], _R], items: Iterable[_T], /) -> Iterable[_R]:
        """Apply a function to items, in their order."""


class Spooling(Protocol):
    """A spool as :func:`play` uses it."""

    @property
    def device(self) -> Ranked:
        """Messages on the device."""

    @property
    def is_up(self) -> bool:
        """True while there is a link."""

    @property
    def due_us(self) -> int:
        """Time at which :meth:`timeout` is due."""

    def notification(self, now_us: int, identity: Hashable, rank: float, expires_us: int) -> None:
        """Add a message, or change its rank."""

    def is_on_device(self, identity: Hashable) -> bool:
        """Return whether a message is on the device."""

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Record a change of the link."""

    def read(self, now_us: int, max_messages: float) -> list[Message]:
        """Read the best messages, and return them."""

    def read_offline(self, at_us: int, identities: Iterable[Hashable], requested: float) -> None:
        """Record an earlier read without a link, and how many messages it requested."""

    def timeout(self, now_us: int) -> None:
        """Drop expired messages."""


SpoolFactory = Callable[[Take, Take], Spooling]
"""Function that builds a spool from its ``forward`` and ``retract`` callbacks."""
MAX_DIRECT_MESSAGES: Final = 100_000
"""At most as many messages as a spool holds without eviction, whatever waits."""
_MAX_CACHED: Final = 4
"""Cached pairs of scenario and seed; each takes about 2 MB a year."""


@check_arguments(types=False)
@dataclass(frozen=True)
class Outcome:
    """Messages that a policy forwarded and that were read.

    Parameters
    ----------
    forwarded_ids, read_ids : tuple
        Numbers of messages, in the order in which they were forwarded and read.
    per_read : tuple of int
        Number of messages that each read showed; equal runs are compared without it.
    """

    forwarded_ids: tuple[Hashable, ...]
    read_ids: tuple[Hashable, ...]
    per_read: tuple[int, ...] = field(default=(), compare=False)

    @property
    def waste(self) -> float:
        """Share of forwarded messages that were never read; 0 if none was forwarded."""
        if not self.forwarded_ids:
            return 0.0
        return len(set(self.forwarded_ids) - set(self.read_ids)) / len(self.forwarded_ids)


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Simulated(Displayed):
    """A run of a policy, and of the on-line policy on the same events.

    Parameters
    ----------
    outcome, online : Outcome
        Results of the policy and of the on-line policy.
    parameters : mapping
    readable_ids : tuple, optional
        Messages among which loss is counted. None: those read under the on-line policy. Where a link that is
        never up lets it read nothing, they are those that a link would have shown.
    """

    outcome: Outcome
    online: Outcome
    parameters: Mapping[str, Parameter]
    readable_ids: tuple[Hashable, ...] | None = None

    @property
    def waste(self) -> float:
        """Share of forwarded messages that were never read."""
        return self.outcome.waste

    @property
    def loss(self) -> float:
        """Share of the messages read under the on-line policy that were not read under this one.

        1 if there is never a link while something could be read: the paper, which measures policies against
        each other only, counts 0 there (4.2).
        """
        best = set(self.online.read_ids if self.readable_ids is None else self.readable_ids)
        return len(best - set(self.outcome.read_ids)) / len(best) if best else 0.0

    @property
    def forwarded(self) -> int:
        """Number of forwarded messages."""
        return len(self.outcome.forwarded_ids)

    @property
    def read(self) -> int:
        """Number of read messages."""
        return len(self.outcome.read_ids)

    @property
    def forwarded_ids(self) -> tuple[Hashable, ...]:
        """Forwarded messages, in order."""
        return self.outcome.forwarded_ids

    @property
    def read_ids(self) -> tuple[Hashable, ...]:
        """Read messages, in order."""
        return self.outcome.read_ids

    def _view(self) -> View:
        """Return counts and shares for a display."""
        shares = {"waste": words.percent(self.waste), "loss": words.percent(self.loss)}
        return View("Simulated", {"forwarded": f"{self.forwarded:,}", "read": f"{self.read:,}", **shares})


@check_arguments
def expected_waste(
    *,
    user_frequency: Annotated[float, Range(0.0, 1e4)],
    max: float | None,  # noqa: A002
    event_frequency: Annotated[float, Range(0.0, 1e6)],
) -> float:
    """Return the waste of the on-line policy by overflow (Last hop 4.2): ``1 - uf * Max / ef``, at least 0.

    Parameters
    ----------
    user_frequency, event_frequency : float
        Reads and arrivals a day.
    max : float or None
        Messages per read; None: unlimited.

    Examples
    --------
    >>> expected_waste(user_frequency=1, max=4, event_frequency=32)
    0.875
    """
    reads = user_frequency * read_limit(max)
    return 0.0 if reads >= event_frequency else 1.0 - reads / event_frequency


@check_arguments
def simulate(
    *,
    event_frequency: float = 32.0,
    user_frequency: float = 2.0,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: Annotated[float, Range(-1e9, 1e9)] = 0.0,
    expiration: float | Expiration | None = None,
    expiring_share: float = 1.0,
    outage: float | Outages = 0.0,
    outages_per_day: float = 12.0,
    policy: str | Forwarding | Push = "unified",
    prefetch_limit: int | str | None = None,
    expiration_threshold_s: float | str | None = None,
    days: int = 365,
    reads_cv: float = 0.1,
    seed: Annotated[int, Range(-(1 << 63), (1 << 63) - 1)] = 0,
) -> Simulated:
    """Run a policy and the on-line policy on the same events.

    Parameters
    ----------
    event_frequency, user_frequency : float
        Arrivals and reads a day.
    max : int or None
        Messages per read; 0: nothing is read; None: unlimited.
    threshold : float
        Lowest acceptable rank; ranks are uniform from 0 to 1.
    expiration : float, Expiration or None
        Mean of an exponential distribution in seconds, or a distribution. None: nothing expires.
    expiring_share : float
        Share of the messages that expire, from 0 to 1.
    outage : float or Outages
        Share of time without a link, from 0 to 1. Periods are exponential.
    outages_per_day : float
        The paper does not state it, and results depend on it: see :class:`~mudkit.sources.outages.Outages`.
    policy : str, Forwarding or Push
        ``push`` is a push service.
    prefetch_limit, expiration_threshold_s : optional
        As for :class:`~mudkit.systems.lasthop.Forwarding`, if the policy is given by its kind.
    days : int
    reads_cv : float
        Variation of the number of reads a day, see :class:`~mudkit.systems.lasthop.Scenario`.
    seed : int
        Seed of all random streams.

    Raises
    ------
    ParameterError
        The policy is unknown, or a value is of the wrong kind or out of range.

    Examples
    --------
    >>> simulate(max=4, user_frequency=1, policy="on-line", days=30).waste > 0.8
    True
    """
    if not isinstance(outage, Outages):
        per_day = number("outages_per_day", outages_per_day, 0.001, 86_400.0)
        outage = outages_of(outage, per_day)
    given = {"prefetch_limit": prefetch_limit, "expiration_threshold_s": expiration_threshold_s}
    policy = policy_of(policy, **{name: value for name, value in given.items() if value is not None})
    max_messages = read_limit(max)
    lasting = None if expiration is None else Expiration.of(expiration)
    scenario = Scenario(event_frequency, user_frequency, outage, lasting, expiring_share, days, reads_cv)
    drawn, online, readable = _events_and_best(scenario, seed, max_messages, threshold)
    outcome = (
        online if policy.kind == "on-line" else play(drawn, spool_factory(policy, threshold), max_messages)
    )
    described: dict[str, Parameter] = {
        **scenario.describe(),
        "max": max,
        "threshold": threshold,
        "policy": policy,
        "seed": seed,
    }
    return Simulated(outcome, online, described, readable)


@lru_cache(maxsize=_MAX_CACHED)
def _events_and_best(
    scenario: Scenario, seed: int, max_messages: float, threshold: float
) -> tuple[Drawn, Outcome, tuple[Hashable, ...]]:
    """Return events, result of the on-line policy and readable messages; cached for sweeps and sliders."""
    drawn = scenario.draw(seed)
    online = play_best(drawn, threshold, max_messages)
    return drawn, online, readable_ids(drawn, online, threshold, max_messages)


def play_best(drawn: Drawn, threshold: float, max_messages: float) -> Outcome:
    """Run on-line forwarding, the best possible service, on some events."""
    direct = play_online(drawn, threshold, max_messages)
    return direct or play(drawn, spool_factory(Forwarding("on-line"), threshold), max_messages)


def play_linked(drawn: Drawn, threshold: float, max_messages: float) -> Outcome:
    """Run on-line forwarding as if there were always a link: what each read could have shown."""
    always = replace(drawn, switches_us=np.empty(0, dtype=np.int64), starts_up=True)
    return play_best(always, threshold, max_messages)


def readable_ids(
    drawn: Drawn, online: Outcome, threshold: float, max_messages: float
) -> tuple[Hashable, ...]:
    """Return the messages among which loss is counted (:class:`Simulated`)."""
    return online.read_ids or play_linked(drawn, threshold, max_messages).read_ids


def spool_factory(policy: Forwarding | Push, threshold: float) -> SpoolFactory:
    """Return a function that builds the spool of a policy."""
    if isinstance(policy, Push):
        return partial(PushSpool, threshold, policy)
    return partial(Spool, threshold, policy)


def read_limit(max_: float | None) -> float:
    """Return the messages per read for ``max`` (None: infinite); raise ParameterError if it is invalid."""
    if max_ is None:
        return math.inf
    if max_ == math.inf:
        return math.inf
    return whole_number("max", max_, 0, 1 << 31)


@check_arguments
def play(drawn: Drawn, make_spool: SpoolFactory, max_messages: float) -> Outcome:
    """Run all events through one spool.

    The link has neither latency nor limit, so spool and device share a queue. Reads without a link are
    reported when it is up again, and the device learns then of changes of ranks. The run ends with the last
    event: what expires later makes no room.

    Parameters
    ----------
    drawn : Drawn
    make_spool : callable
        Builds the spool from its ``forward`` and ``retract`` callbacks.
    max_messages : float
        Messages per read.
    """
    forwarded: list[Message] = []
    read: list[Message] = []
    per_read: list[int] = []
    spool = make_spool(forwarded.append, lambda message: None)  # the spool has taken it off the device
    spool.network(0, is_up=drawn.starts_up)
    offline: list[tuple[int, list[Hashable]]] = []
    unknown: list[tuple[int, float]] = []
    """Changed ranks of messages on the device, which does not know of them without a link."""
    changed, changed_ranks = drawn.changed.tolist(), drawn.changed_ranks.tolist()
    notification, network = spool.notification, spool.network
    ranks, expires_us = drawn.ranks.tolist(), drawn.expires_us.tolist()
    with _without_collector():
        for at_us, what in zip(*drawn.timeline, strict=True):
            if what >= 0:
                notification(at_us, what, ranks[what], expires_us[what])
            elif what == SWITCH:
                if offline:
                    spool.timeout(at_us)
                    for read_us, identities in offline:
                        spool.read_offline(read_us, identities, max_messages)
                    offline.clear()
                for number, rank in unknown:
                    notification(at_us, number, rank, expires_us[number])
                unknown.clear()
                network(at_us, is_up=not spool.is_up)
            elif what <= CHANGE:
                number, rank = changed[CHANGE - what], changed_ranks[CHANGE - what]
                if spool.is_up or not spool.is_on_device(number):
                    notification(at_us, number, rank, expires_us[number])
                else:
                    unknown.append((number, rank))
            elif spool.is_up:
                taken = spool.read(at_us, max_messages)
                read += taken
                per_read.append(len(taken))
            else:
                spool.timeout(at_us)  # messages expire on the device, too
                taken = spool.device.take(max_messages)
                read += taken
                per_read.append(len(taken))
                offline.append((at_us, [message.identity for message in taken]))
    return Outcome(
        tuple([message.identity for message in forwarded]),
        tuple([message.identity for message in read]),
        tuple(per_read),
    )


def play_online(drawn: Drawn, threshold: float, max_messages: float) -> Outcome | None:
    """Run on-line forwarding without a spool; None if something expires or changes, or the spool could evict.

    A message is forwarded when it comes, or by rank when the link is up again; a read takes the best.
    """
    is_plain = not len(drawn.changes_us) and not (drawn.expires_us < FOREVER_US).any()
    if len(drawn.ranks) > MAX_DIRECT_MESSAGES or not is_plain:
        return None
    arrivals_us, ranks, switches_us = drawn.arrivals_us, drawn.ranks, drawn.switches_us
    # At equal times the link changes before arrivals.
    switched = np.searchsorted(switches_us, arrivals_us, side="right")
    waits = (switched % 2 == 1) == drawn.starts_up
    arrival_us = np.where(waits, np.append(switches_us, FOREVER_US)[switched], arrivals_us)
    acceptable = np.flatnonzero((ranks >= threshold) & (arrival_us < FOREVER_US))
    # Waiting messages precede arrivals at the switch, by rank; arrivals on a link keep their order.
    among_waiting = np.where(waits, -ranks, 0.0)[acceptable]
    order = np.lexsort((among_waiting, ~waits[acceptable], arrival_us[acceptable]))
    forwarded = acceptable[order]
    # At equal times reads come last.
    known = np.searchsorted(arrival_us[forwarded], drawn.reads_us, side="right").tolist()
    numbers, by_rank = forwarded.tolist(), (-ranks[forwarded]).tolist()
    heap: list[tuple[float, int]] = []
    read: list[int] = []
    per_read: list[int] = []
    begin = 0
    for until in known:
        for place in range(begin, until):
            heappush(heap, (by_rank[place], numbers[place]))
        begin = until
        per_read.append(int(min(max_messages, len(heap))))
        read += [heappop(heap)[1] for _ in range(per_read[-1])]
    return Outcome(tuple(numbers), tuple(read), tuple(per_read))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable garbage collection: a year allocates 50,000 objects and no cycle."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()
