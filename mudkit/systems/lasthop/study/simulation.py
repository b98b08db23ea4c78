"""The simulator: the spool on a presorted list of events, without a kernel (Last hop 4)."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Protocol, TypeAlias, TypeVar

from mudkit.sources.outages import Outages, outages_of
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push, PushSpool, policy_of
from mudkit.systems.lasthop.spool.ranked import Message, Ranked, Take
from mudkit.systems.lasthop.spool.spool import Spool
from mudkit.systems.lasthop.study.best import online
from mudkit.systems.lasthop.study.scenario import SWITCH, Drawn, Expiration, Scenario
from mudkit.wire import Value

__all__ = [
    "Begin",
    "Map",
    "Outcome",
    "Parameter",
    "Simulated",
    "beginning",
    "expected_waste",
    "most_of",
    "play",
    "simulate",
]

_T = TypeVar("_T")
_R = TypeVar("_R")
Parameter: TypeAlias = Value | Forwarding | Push | Outages | Expiration
"""Parameter of :func:`simulate`."""


class Map(Protocol):
    """Function that spreads runs: the built-in ``map``, or ``pipeline.spread(spark)``."""

    def __call__(self, function: Callable[[_T], _R], items: Iterable[_T], /) -> Iterable[_R]:
        """Apply a function to items, in their order."""


class Spooling(Protocol):
    """A spool as :func:`play` uses it."""

    @property
    def device(self) -> Ranked:
        """Messages on the device."""

    @property
    def is_up(self) -> bool:
        """Whether there is a link."""

    @property
    def due_us(self) -> int:
        """When :meth:`timeout` is to be called next."""

    def notification(self, now_us: int, identity: Hashable, rank: float, expires_us: int) -> None:
        """Take a message."""

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Note a change of the link."""

    def read(self, now_us: int, most: float) -> list[Message]:
        """Return the best messages."""

    def read_offline(self, at_us: int, identities: Iterable[Hashable]) -> None:
        """Note what was read without a link."""

    def timeout(self, now_us: int) -> None:
        """Let expire what expires."""


Begin = Callable[[Take, Take], Spooling]
"""Makes a spool from the functions that take what is forwarded and what is retracted."""
_KEPT: Final = 4
"""So many scenarios and seeds with what on-line forwarding makes of them: each takes about 2 MB a year."""


@dataclass(frozen=True)
class Outcome:
    """Messages that a policy forwarded and that were read.

    Parameters
    ----------
    forwarded_ids, read_ids : tuple
        Numbers of messages, in the order in which they were forwarded and read.
    """

    forwarded_ids: tuple[Hashable, ...]
    read_ids: tuple[Hashable, ...]

    @property
    def waste(self) -> float:
        """Forwarded and never read, over forwarded; 0 when nothing was."""
        if not self.forwarded_ids:
            return 0.0
        return len(set(self.forwarded_ids) - set(self.read_ids)) / len(self.forwarded_ids)


@dataclass(frozen=True)
class Simulated:
    """A run: the policy and, on the very same events, the on-line policy.

    Parameters
    ----------
    outcome, online : Outcome
    parameters : mapping
        All that the figures depend on.
    """

    outcome: Outcome
    online: Outcome
    parameters: Mapping[str, Parameter]

    @property
    def waste(self) -> float:
        """Forwarded and never read, over forwarded."""
        return self.outcome.waste

    @property
    def loss(self) -> float:
        """Read under the on-line policy but not under this one, over read under the on-line policy."""
        best = set(self.online.read_ids)
        return len(best - set(self.outcome.read_ids)) / len(best) if best else 0.0

    @property
    def forwarded(self) -> int:
        """How many were forwarded."""
        return len(self.outcome.forwarded_ids)

    @property
    def read(self) -> int:
        """How many were read."""
        return len(self.outcome.read_ids)

    @property
    def forwarded_ids(self) -> tuple[Hashable, ...]:
        """Which."""
        return self.outcome.forwarded_ids

    @property
    def read_ids(self) -> tuple[Hashable, ...]:
        """Which."""
        return self.outcome.read_ids


def expected_waste(*, user_frequency: float, max: float, event_frequency: float) -> float:  # noqa: A002
    """Return the waste of the on-line policy by overflow (Last hop 4.2): ``1 - uf * Max / ef``, at least 0.

    Parameters
    ----------
    user_frequency, event_frequency : float
        A day.
    max : float
        Messages at a time.

    Examples
    --------
    >>> expected_waste(user_frequency=1, max=4, event_frequency=32)
    0.875
    """
    reads = number("user_frequency", user_frequency, 0.0, 1e4) * most_of(max)
    arrivals = number("event_frequency", event_frequency, 0.0, 1e6)
    return 0.0 if reads >= arrivals else 1.0 - reads / arrivals


def simulate(
    *,
    event_frequency: float = 32.0,
    user_frequency: float = 2.0,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: float = 0.0,
    expiration: float | Expiration | None = None,
    expiring_share: float = 1.0,
    outage: float | Outages = 0.0,
    outages_per_day: float = 12.0,
    policy: str | Forwarding | Push = "unified",
    prefetch_limit: int | str | None = None,
    expiration_threshold_s: float | str | None = None,
    days: int = 365,
    reads_cv: float = 0.1,
    seed: int = 0,
) -> Simulated:
    """Run a policy and the on-line policy on the same events.

    Parameters
    ----------
    event_frequency, user_frequency : float
        Arrivals and reads a day.
    max : int or None
        Messages at a time; 0: nothing is read. None: all.
    threshold : float
        Ranks are uniform from 0 to 1; lower ones than this are not acceptable.
    expiration : float, Expiration or None
        A number of seconds: the mean of an exponential distribution. None: nothing expires.
    expiring_share : float
        The share of the messages that expire, from 0 to 1.
    outage : float or Outages
        Share of time without a link, 1: all of it. Periods are exponential.
    outages_per_day : float
        The paper does not say, and results depend on it: see :class:`~mudkit.sources.outages.Outages`.
    policy : str, Forwarding or Push
        ``push`` is what a push service does.
    prefetch_limit : int or 'learnt', optional
        The limit of the policy, where that is given by its kind.
    expiration_threshold_s : float or 'learnt', optional
        The same.
    days : int
    reads_cv : float
        How far the number of reads a day varies, see :class:`~mudkit.systems.lasthop.Scenario`.
    seed : int

    Raises
    ------
    ParameterError
        There is no such policy, or a value is of the wrong kind or out of range.

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
    most = most_of(max)
    lasting = None if expiration is None else Expiration.of(expiration)
    scenario = Scenario(event_frequency, user_frequency, outage, lasting, expiring_share, days, reads_cv)
    threshold = number("threshold", threshold, -1e9, 1e9)
    seed = whole_number("seed", seed, -(1 << 63), (1 << 63) - 1)
    drawn, online = _best(scenario, seed, most, threshold)
    outcome = online if policy.kind == "on-line" else play(drawn, beginning(policy, threshold), most)
    described: dict[str, Parameter] = {
        **scenario.describe(),
        "max": max,
        "threshold": threshold,
        "policy": policy,
        "seed": seed,
    }
    return Simulated(outcome, online, described)


@lru_cache(maxsize=_KEPT)
def _best(scenario: Scenario, seed: int, most: float, threshold: float) -> tuple[Drawn, Outcome]:
    """Give the events, and the best service that there is: sweeps and sliders ask for it again and again."""
    drawn = scenario.draw(seed)
    known = online(drawn, threshold, most)
    if known is not None:
        return drawn, Outcome(tuple(known[0]), tuple(known[1]))
    return drawn, play(drawn, beginning(Forwarding("on-line"), threshold), most)


def beginning(policy: Forwarding | Push, threshold: float) -> Begin:
    """Give what :func:`play` begins with."""
    return partial(PushSpool if isinstance(policy, Push) else Spool, threshold, policy)  # type: ignore[arg-type]


def most_of(max_: float | None) -> float:
    """Check how many messages are read at a time; None: all."""
    if max_ is None:
        return math.inf
    if max_ == math.inf:
        return math.inf
    return whole_number("max", max_, 0, 1 << 31)


def play(
    drawn: Drawn,
    begin: Begin,
    most: float,
) -> Outcome:
    """Run all events through one spool.

    The link has neither latency nor limit, so the device holds what the spool knows it to hold; only of what
    is read while the link is down the spool learns when it is up again.

    Parameters
    ----------
    drawn : Drawn
    begin : callable
        Makes the spool from the functions that take what is forwarded and what is retracted.
    most : float
        Messages at a time.
    """
    forwarded: list[Message] = []
    read: list[Message] = []
    spool = begin(forwarded.append, _nothing)
    spool.network(0, is_up=drawn.starts_up)
    offline: list[tuple[int, list[Hashable]]] = []
    notification, network = spool.notification, spool.network
    ranks, expires_us = drawn.ranks.tolist(), drawn.expires_us.tolist()
    with _uncollected():
        for at_us, what in zip(*drawn.timeline, strict=True):
            if what >= 0:
                notification(at_us, what, ranks[what], expires_us[what])
            elif what == SWITCH:
                if offline:
                    for read_us, identities in offline:
                        spool.read_offline(read_us, identities)
                    offline.clear()
                network(at_us, is_up=not spool.is_up)
            elif spool.is_up:
                read += spool.read(at_us, most)
            else:
                spool.timeout(at_us)  # the device lets expire what expires, too
                taken = spool.device.take(most)
                read += taken
                offline.append((at_us, [each.identity for each in taken]))
    return Outcome(tuple([each.identity for each in forwarded]), tuple([each.identity for each in read]))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Spare Python the search for cycles: a year makes 50,000 objects and none."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _nothing(message: Message) -> None:
    """Ranks do not change here."""
