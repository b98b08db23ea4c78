"""Which rule of a policy fires for which message and state, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mudkit.events import size_bytes
from mudkit.wire import Fields

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.systems.sublim._policy.policy import Policy

__all__ = ["decision_table"]


def decision_table(
    policy: Policy,
    messages: Mapping[str, Fields],
    states: Mapping[str, Fields],
    variables: Fields | None = None,
    now_s: float = 0.0,
) -> pd.DataFrame:
    """Decide about each message in each state, none of them after another; nothing is changed.

    Parameters
    ----------
    policy : Policy
    messages : mapping of str to mapping
        The messages, by the name under which each is shown.
    states : mapping of str to mapping
        Automatic variables, by the name under which they are shown.
    variables : mapping, optional
        Manual ones; by default those with which the policy begins.
    now_s : float
        When all of them are published, seconds since 1970.

    Returns
    -------
    pandas.DataFrame
        ``message, state, rule, name, outcome, fields, bytes``: the number of the rule from 1 (0: none fires),
        its name, one of :mod:`~mudkit.systems.sublim._policy.deciding`'s outcomes, and the names and the size
        of what is sent; nothing and 0 when it is not.
    """
    import pandas as pd

    kept = policy.variables if variables is None else variables
    rows = []
    for message, body in messages.items():
        for state, automatic in states.items():
            verdict = policy.decide(body, kept, automatic, now_s)
            rule = -1 if verdict.rule is None else verdict.rule
            name = policy.rules[rule].name if rule >= 0 else "no rule"
            out = verdict.out or {}
            size = size_bytes(out) if out else 0
            rows.append((message, state, rule + 1, name, verdict.outcome, ", ".join(out), size))
    columns = ["message", "state", "rule", "name", "outcome", "fields", "bytes"]
    return pd.DataFrame(rows, columns=columns)
