"""Forwarding policies (Last hop 4): their settings, what a spool learns for them, and rules as functions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from mudkit.checks import check_arguments, fits, number, one_of, whole_number
from mudkit.errors import ParameterError, brief
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, Message, Ranked
from mudkit.units import US_PER_S
from mudkit.wire import Value

Kind: TypeAlias = Literal["on-line", "on-demand", "buffer", "rate", "unified", "predict", "rule"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
LEARNT: Final = "learnt"
"""Setting that the spool learns from past reads and ranks."""
_MAX_READS: Final = 8
"""Window of the moving averages: the paper says "several past user reads" (4.2)."""
_MAX_ARRIVALS: Final = 64
_MAX_FALLS: Final = 64
_WAKING_SHARE: Final = 16.5 / 24
"""Share of a day in which reads come: two reads a day are 8 hours apart, as in the paper (4.3)."""
_MIN_FALLS: Final = 4
"""Number of rank drops before messages are delayed for them."""
_EXPECTED: Final = "items of situation.waiting, each once"


@check_arguments(types=False)
@dataclass(frozen=True)
class Forwarding:
    """A forwarding policy.

    Parameters
    ----------
    kind : {'on-line', 'on-demand', 'buffer', 'rate', 'unified', 'predict', 'rule'}
        ``on-line`` forwards at once; ``on-demand`` on a read only; ``buffer`` while the device has fewer
        messages than the prefetch limit; ``rate`` as many as are read; ``unified`` is Figure 7: given by its
        name, as in ``policy="unified"``, it learns all settings, ``Forwarding("unified")`` the prefetch limit
        only; ``predict`` is ours: by the hours of past reads it prefetches what will probably be read before
        it expires, for as many reads as outages have
        (:mod:`~mudkit.systems.lasthop.spool.predictor`); ``rule`` calls a function, in simulations.
    prefetch_limit : int or 'learnt'
        Maximum number of messages on the device. Learnt: twice the moving average of the messages per read.
        (The figure takes the number that was requested, which is useless when that is unlimited.) A read
        without a link counts with what it could have used: what it requested, or what waits at the server if
        that is less. With what it found the limit would fall in each outage, to nothing in long ones.
    expiration_threshold_s : float, 'learnt' or None
        Messages that expire sooner are not prefetched. Learnt: mean waking time between reads. None: all are.
    delay_s : float, 'learnt' or None
        Delay before a message may be prefetched, in case its rank drops. Learnt: the time within which nine
        of ten recent drops happened. None: no delay.
    rule : callable, optional
        Called with a :class:`~mudkit.systems.lasthop.Situation` after each event while the link is up;
        returns the items to forward now.
    remembers_reads : bool
        A read without a link is made up for when the link is back, ahead of all prefetching: as many messages
        as it requested are forwarded. ``READ`` of Figure 7 leaves them in ``outgoing``, but Figure 2 cannot
        have had this: its on-demand policy would lose far less. Not for ``on-line``, which forwards all.

    Raises
    ------
    ParameterError
        The kind is unknown, a number is out of range, or a rule is missing or not allowed; ``on-line`` is to
        remember reads.
    """

    kind: Kind = "unified"
    prefetch_limit: int | str = LEARNT
    expiration_threshold_s: float | str | None = None
    delay_s: float | str | None = None
    rule: Callable[[Situation], Iterable[Item]] | None = None
    remembers_reads: bool = False

    def __post_init__(self) -> None:
        one_of("policy", self.kind, KINDS, "There is no such forwarding policy.")
        if not (callable(self.rule) if self.kind == "rule" else self.rule is None):
            raise ParameterError(
                "A policy of the kind 'rule' has a rule, and no other has.",
                where="rule",
                found=brief(self.rule),
                expected="a function" if self.kind == "rule" else "None",
            )
        if self.kind == "predict":
            self._check_predicted()
        if self.prefetch_limit != LEARNT:
            whole_number("prefetch_limit", self.prefetch_limit, 0, 1 << 31)
        for name in ("expiration_threshold_s", "delay_s"):
            given = getattr(self, name)
            if given is not None and given != LEARNT:
                number(name, given, 0.0, 1e10)
        remembers, has_reads = self.remembers_reads, self.kind != "on-line"
        if not fits(remembers, bool) or (remembers and not has_reads):
            raise ParameterError(
                "A policy remembers reads or does not; 'on-line' has none: it forwards everything at once.",
                where="remembers_reads",
                found=brief(remembers),
                expected="True or False" if has_reads else "False",
            )

    def _check_predicted(self) -> None:
        """Refuse settings that the policy ``predict`` has no use for."""
        for name, default in (("prefetch_limit", LEARNT), ("expiration_threshold_s", None)):
            given = getattr(self, name)
            if given != default:
                raise ParameterError(
                    "The policy 'predict' finds this itself.",
                    where=name,
                    found=brief(given),
                    expected=f"{default!r}, or another policy",
                )

    @classmethod
    def of(cls, given: str | Forwarding, **settings: int | float | str | None) -> Forwarding:
        """Return ``given`` if it is a policy, else build one of this kind; Figure 7 learns unset values."""
        if isinstance(given, Forwarding):
            if settings:
                raise ParameterError(
                    "The policy has settings of its own.",
                    where=", ".join(settings),
                    found=brief(settings),
                    expected="these in the policy",
                    remedy="dataclasses.replace(policy, ...) changes them",
                )
            return given
        if given == "unified":
            settings = {"expiration_threshold_s": LEARNT, "delay_s": LEARNT, **settings}
        return cls(given, **settings)  # type: ignore[arg-type]


class Habits:
    """Moving averages of reads, arrivals and rank drops of one subscription, over bounded windows."""

    def __init__(self) -> None:
        self._reads: deque[int] = deque(maxlen=_MAX_READS)
        self._demands: deque[int] = deque(maxlen=_MAX_READS)
        """Messages that recent reads could use, each more than it took if there was no link."""
        self._read_times_us: deque[int] = deque(maxlen=_MAX_READS)
        self._arrivals_us: deque[int] = deque(maxlen=_MAX_ARRIVALS)
        self._falls_us: deque[int] = deque(maxlen=_MAX_FALLS)

    def record_read(self, now_us: int, messages: int, demand: float = 0) -> None:
        """Record a read of some messages; without a link, also how many it could have used."""
        self._reads.append(messages)
        self._demands.append(max(messages, int(demand)))
        self._read_times_us.append(now_us)

    @property
    def reads(self) -> list[tuple[int, int, int]]:
        """Time and number of messages of recent reads, and how many they could use."""
        return list(zip(self._read_times_us, self._reads, self._demands, strict=True))

    def record_arrival(self, now_us: int) -> None:
        """Record the arrival of a message of acceptable rank."""
        self._arrivals_us.append(now_us)

    def record_fall(self, after_us: int) -> None:
        """Record the time from the arrival of a message to the drop of its rank below the threshold."""
        self._falls_us.append(after_us)

    @property
    def read_at_a_time(self) -> float:
        """Mean number of messages that a read can use; 0 before the first read."""
        return sum(self._demands) / len(self._demands) if self._demands else 0.0

    @property
    def between_reads_us(self) -> int:
        """Mean waking time between reads; 0 before the second."""
        times = self._read_times_us
        if len(times) < 2:
            return 0
        return round((times[-1] - times[0]) / (len(times) - 1) * _WAKING_SHARE)

    @property
    def share_read(self) -> float:
        """Messages read per arrival, at most 1; 1 before both rates are known."""
        reads, arrivals = self._read_times_us, self._arrivals_us
        if len(reads) < 2 or len(arrivals) < 2 or reads[-1] == reads[0] or arrivals[-1] == arrivals[0]:
            return 1.0
        read = sum(list(self._demands)[1:]) / (reads[-1] - reads[0])
        arriving = (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])
        return min(read / arriving, 1.0)

    @property
    def delay_us(self) -> int:
        """Time within which nine of ten rank drops happened; 0 while few were seen."""
        if len(self._falls_us) < _MIN_FALLS:
            return 0
        return sorted(self._falls_us)[len(self._falls_us) * 9 // 10]


class Item(NamedTuple):
    """A message, as passed to a forwarding rule.

    Parameters
    ----------
    identity : hashable
        Name of the message.
    rank : float
    arrived_s, expires_s : float
        Times in seconds; an infinite expiration: never.
    """

    identity: Hashable
    rank: float
    arrived_s: float
    expires_s: float


class Situation:
    """State of a spool, as passed to a forwarding rule.

    Parameters
    ----------
    now_us : int
    threshold : float
        Lowest acceptable rank.
    waiting, device : Ranked
        Queues of the spool and of the device.
    habits : Habits
        Moving averages.

    Attributes
    ----------
    now_s : float
        Current time in seconds.
    read_at_a_time : float
        Mean number of messages in recent reads; 0 before the first read.
    between_reads_s : float
        Mean waking time between recent reads; 0 before the second.
    """

    def __init__(
        self, now_us: int, threshold: float, waiting: Ranked, device: Ranked, habits: Habits
    ) -> None:
        self.now_s = now_us / US_PER_S
        self.threshold = threshold
        self.read_at_a_time = habits.read_at_a_time
        self.between_reads_s = habits.between_reads_us / US_PER_S
        # Queues may be long: items are built when a rule reads them.
        self._waiting, self._device = waiting, device

    @cached_property
    def waiting(self) -> tuple[Item, ...]:
        """Messages that may be forwarded, the highest rank first: not those that are held or delayed."""
        return _items_of(self._waiting)

    @cached_property
    def device(self) -> tuple[Item, ...]:
        """Messages on the device, the highest rank first."""
        return _items_of(self._device)


def apply_rule(
    rule: Callable[[Situation], Iterable[Item]], situation: Situation, waiting: Ranked
) -> list[Message]:
    """Return the messages that a rule forwards now, in its order; raise ParameterError for other items."""
    answer: Iterable[Item] | Value = rule(situation)
    if not isinstance(answer, Iterable):
        raise ParameterError(
            "A rule returns the items to forward.", where="rule", found=brief(answer), expected=_EXPECTED
        )
    items = list(answer)
    known = {message.identity: message for message in waiting} if items else {}
    messages: list[Message] = []
    for item in items:
        message = known.pop(item.identity, None) if isinstance(item, Item) else None
        if message is None:
            raise ParameterError(
                "A rule chose an item that is not waiting.",
                where="rule",
                found=brief(item),
                expected=_EXPECTED,
            )
        messages.append(message)
    return messages


def _items_of(queue: Ranked) -> tuple[Item, ...]:
    """Return the messages of a queue as a rule sees them, the highest rank first."""
    if not queue.size:
        return ()
    return tuple(
        Item(
            message.identity,
            message.rank,
            message.arrived_us / US_PER_S,
            math.inf if message.expires_us >= FOREVER_US else message.expires_us / US_PER_S,
        )
        for message in queue
    )
