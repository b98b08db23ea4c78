"""Chains of recipients (Radiator 3.2): who gets a message from the server, and who passes it on to whom.

Built anew for each aggregate. The formula for the number of pushes is lost; it is reconstructed: with n
recipients that can be reached by their peers and a share k, chains have ``s = max(1, floor(k·n))`` members,
and the server pushes once for each of the ``ceil(n / s)`` chains and for each other recipient. For the five
recipients of Figure 2, one of them not ``p2p_enabled``, k = 50 % gives its three pushes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mudkit.errors import ParameterError, PropagationProblem, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.problems import failure

__all__ = ["Chainability", "chains"]

Chainability: TypeAlias = Callable[[Context, Context], bool | float]
"""Of two clients' contexts: whether, or how well (more is better), they belong into one chain; 0 or False:
not at all."""


def chains(
    recipients: Sequence[str],
    share: float,
    can_pass: Mapping[str, bool],
    contexts: Callable[[str], Context],
    chainability: Chainability | None = None,
    failed: Callable[[PropagationProblem], None] = lambda problem: None,
) -> list[list[str]]:
    """Divide the recipients of one aggregate into chains; whom no peer can reach is a chain of its own.

    Parameters
    ----------
    recipients : sequence of str
    share : float
        The largest share of the recipients that can be reached by their peers that one chain has: k, 0.01 for
        1 %. 0: no chains.
    can_pass : mapping of str to bool
        Whether each can be reached by its peers and is alive.
    contexts : callable
        Gives the context of a client, for the chainability.
    chainability : callable, optional
        Without, they are chained in the order in which they come. With it, each chain begins with the first
        that is in none yet, and goes on with the one that belongs best with its last; where none does, it
        ends.
    failed : callable
        Told of a chainability that raises, or gives no number: the pair does not belong into one chain.
    """
    alone = [[each] for each in recipients if not (share and can_pass[each])]
    peers = [each for each in recipients if share and can_pass[each]]
    size = max(1, math.floor(share * len(peers) + 1e-9))
    if chainability is None:
        return [*alone, *(peers[first : first + size] for first in range(0, len(peers), size))]
    made: list[list[str]] = []
    left = dict.fromkeys(peers)
    while left:
        chain = [next(iter(left))]
        del left[chain[0]]
        while left and len(chain) < size:
            last = contexts(chain[-1])
            fits = dict.fromkeys(left, 0.0)
            for each in left:
                try:
                    fits[each] = _number(chainability(last, contexts(each)))
                except Exception as error:
                    failed(_problem(error, chainability, chain[-1], each))
            best = max(fits, key=fits.__getitem__)
            if not fits[best] > 0:
                break
            chain.append(best)
            del left[best]
        made.append(chain)
    return [*alone, *made]


def _number(given: float) -> float:
    is_number = isinstance(given, bool | int | float | np.bool_ | np.integer | np.floating)
    if not is_number or math.isnan(given):
        raise ParameterError(
            "It gave no number.", found=brief(given, 200), expected="True or False, or a number"
        )
    return float(given)


def _problem(error: Exception, chainability: Chainability, last: str, each: str) -> PropagationProblem:
    name = getattr(chainability, "__qualname__", type(chainability).__name__)
    return failure(
        f"The chainability {name}",
        error,
        where=f"{name}, of {last!r} and {each!r}",
        expected="True or False, or a number",
        remedy="the two are taken not to belong into one chain",
    )
