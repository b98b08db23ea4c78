"""A forwarding policy that is a plain function: what it is told, and what it may choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Final, NamedTuple

from mudkit.errors import ParameterError, brief
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, Message, Ranked
from mudkit.systems.lasthop.spool.statistics import Habits
from mudkit.units import US_PER_S
from mudkit.wire import Value

__all__ = ["Item", "Situation", "chosen"]

_EXPECTED: Final = "items of situation.waiting, each once"


class Item(NamedTuple):
    """A message, as passed to a forwarding rule.

    Parameters
    ----------
    identity : hashable
    rank : float
    arrived_s, expires_s : float
        Times; infinity: it does not expire.
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
    waiting, device : Ranked
    habits : Habits

    Attributes
    ----------
    now_s : float
    threshold : float
        Messages of a lower rank are not acceptable.
    read_at_a_time : float
        How many messages were read at a time of late, on average; 0 before the first read.
    between_reads_s : float
        Mean waking time between reads of late; 0 before the second.
    """

    def __init__(
        self, now_us: int, threshold: float, waiting: Ranked, device: Ranked, habits: Habits
    ) -> None:
        self.now_s = now_us / US_PER_S
        self.threshold = threshold
        self.read_at_a_time = habits.read_at_a_time
        self.between_reads_s = habits.between_reads_us / US_PER_S
        self._waiting, self._device = waiting, device

    # Long queues are made ready only for who looks at them.

    @cached_property
    def waiting(self) -> tuple[Item, ...]:
        """What waits at the spool, the highest rank first."""
        return _items(self._waiting)

    @cached_property
    def device(self) -> tuple[Item, ...]:
        """What lies on the device, the highest rank first."""
        return _items(self._device)


def chosen(
    rule: Callable[[Situation], Iterable[Item]], situation: Situation, waiting: Ranked
) -> list[Message]:
    """Ask a rule which messages go now, in their order.

    Raises
    ------
    ParameterError
        It chooses what does not wait.
    """
    answer: Iterable[Item] | Value = rule(situation)
    if not isinstance(answer, Iterable):
        raise ParameterError(
            "A rule gives what is to go.", where="rule", found=brief(answer), expected=_EXPECTED
        )
    items = list(answer)
    known = {message.identity: message for message in waiting} if items else {}
    messages: list[Message] = []
    for item in items:
        message = known.pop(item.identity, None) if isinstance(item, Item) else None
        if message is None:
            raise ParameterError(
                "A rule has chosen what does not wait.", where="rule", found=brief(item), expected=_EXPECTED
            )
        messages.append(message)
    return messages


def _items(queue: Ranked) -> tuple[Item, ...]:
    if not queue.size:
        return ()
    return tuple(
        Item(
            each.identity,
            each.rank,
            each.arrived_us / US_PER_S,
            math.inf if each.expires_us >= FOREVER_US else each.expires_us / US_PER_S,
        )
        for each in queue
    )
