"""What Radiator's rules let go, and when, without a network: Algorithm 3 on contexts that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mudkit.errors import PropagationProblem
from mudkit.systems.radiator import Aggregability, ClientLists, Context, Entry, Message

__all__ = ["released"]


def released(
    said: Sequence[tuple[int, str, Context]],
    attributes: Mapping[str, Mapping[str, Any]],
    receivers: Sequence[str],
    aggregability: Callable[..., Any] | Aggregability,
    longest_s: float,
    problems: list[PropagationProblem] | None = None,
) -> Iterator[tuple[int, Entry]]:
    """Give each aggregate with the moment at which it goes, until nothing waits.

    Parameters
    ----------
    said : sequence of (int, str, Context)
        When, µs, by whom, and what; in order.
    attributes : mapping of str to mapping
        Of all clients, as at their registration.
    receivers : sequence of str
        For whom it is followed what waits; what is not asked for costs no time.
    aggregability : callable
    longest_s : float
        No message waits for longer.
    problems : list, optional
        What goes wrong with the function is put there.
    """
    function = aggregability if isinstance(aggregability, Aggregability) else Aggregability(aggregability)
    lists = ClientLists(function, round(longest_s * 1e6))
    for name, given in attributes.items():
        if name in receivers:
            lists.register(0, name, given)
        else:
            lists.contexts.register(name, given)
    for number, (t_us, sender, context) in enumerate(said, start=1):
        yield from _fired(lists, t_us)
        message = Message(number, sender, t_us, context.at(t_us))
        yield from ((t_us, entry) for entry in lists.take(t_us, message))
    yield from _fired(lists, math.inf)
    if problems is not None:
        problems += lists.problems


def _fired(lists: ClientLists, until_us: float) -> Iterator[tuple[int, Entry]]:
    """Let go what is due before a moment."""
    while lists.due_us < until_us:
        due_us = int(lists.due_us)
        yield from ((due_us, entry) for entry in lists.fire(due_us))
