"""Chains of recipients (Radiator 3.2): pushes of the server, and hops between peers.

Chains are built for each aggregate. The paper's formula for the number of pushes is lost; this is a
reconstruction. With n ``p2p_enabled`` recipients and a share k, chains have ``s = max(1, floor(k·n))``
members, and the server pushes once per chain (``ceil(n / s)`` chains) and once per other recipient. Figure 2
(five recipients, one of them not ``p2p_enabled``, k = 50 %) gives the paper's three pushes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mudkit.errors import ParameterError, PropagationProblem, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.functions import build_problem

Chainability: TypeAlias = Callable[[Context, Context], bool | float]
"""Function of two clients' contexts: how well they fit into one chain; higher is better, 0 or False: not."""


def divide_into_chains(
    recipients: Sequence[str],
    share: float,
    can_pass: Mapping[str, bool],
    contexts: Callable[[str], Context],
    chainability: Chainability | None = None,
    failed: Callable[[PropagationProblem], None] = lambda problem: None,
) -> list[list[str]]:
    """Divide recipients of an aggregate into chains; one that peers cannot reach is a chain of its own.

    Without a chainability, chains follow the order of the recipients; with it, each continues with the one
    that fits its last member best. ``failed`` is called with the problem of a pair for which it fails.
    """
    alone = [[client] for client in recipients if not (share and can_pass[client])]
    peers = [client for client in recipients if share and can_pass[client]]
    size = max(1, math.floor(share * len(peers) + 1e-9))
    if chainability is None:
        return [*alone, *(peers[first : first + size] for first in range(0, len(peers), size))]
    linked: list[list[str]] = []
    left = dict.fromkeys(peers)
    while left:
        chain = [next(iter(left))]
        del left[chain[0]]
        while left and len(chain) < size:
            last = contexts(chain[-1])
            fits = dict.fromkeys(left, 0.0)
            for client in left:
                try:
                    fits[client] = _check_score(chainability(last, contexts(client)))
                except Exception as error:
                    failed(_build_pair_problem(error, chainability, chain[-1], client))
            best = max(fits, key=fits.__getitem__)
            if not fits[best] > 0:
                break
            chain.append(best)
            del left[best]
        linked.append(chain)
    return [*alone, *linked]


def _check_score(given: float) -> float:
    """Return what a chainability returned as a float; raise a ParameterError for what is no number."""
    is_number = isinstance(given, bool | int | float | np.bool_ | np.integer | np.floating)
    if not is_number or math.isnan(given):
        raise ParameterError(
            "It gave no number.", found=brief(given, 200), expected="True or False, or a number"
        )
    return float(given)


def _build_pair_problem(
    error: Exception, chainability: Chainability, last: str, other: str
) -> PropagationProblem:
    """Return the problem that the chainability of two clients has failed."""
    name = getattr(chainability, "__qualname__", type(chainability).__name__)
    return build_problem(
        f"The chainability {name}",
        error,
        where=f"{name}, of {last!r} and {other!r}",
        expected="True or False, or a number",
        remedy="the two are taken not to belong into one chain",
    )
