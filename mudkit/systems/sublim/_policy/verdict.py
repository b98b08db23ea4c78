"""What a policy decided about a message, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from mudkit.events import size_bytes
from mudkit.predicates import Predicate
from mudkit.systems.sublim._policy.state import Beyond, State
from mudkit.wire import Fields, Value

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DROPPED",
    "HELD",
    "MAX_MESSAGE_BYTES",
    "SENT",
    "STOPPED",
    "Explanation",
    "Seen",
    "Verdict",
    "values_of",
]

MAX_MESSAGE_BYTES: Final = 262_144
"""Of a message that a policy makes, as it is sent."""

SENT: Final = "sent"
DROPPED: Final = "dropped"
HELD: Final = "held back"
"""Dropped because the last one is not long enough ago, or a window is not over."""
STOPPED: Final = "stopped"
"""Dropped because the policy failed or went beyond a limit; the state is as it was before."""


class Verdict(NamedTuple):
    """A decision.

    Parameters
    ----------
    outcome : str
        One of :data:`SENT`, :data:`DROPPED`, :data:`HELD`, :data:`STOPPED`.
    out : dict or None
        What is sent.
    rule : int or None
        Which rule fired, from 0; None: none did, or the policy is a function.
    variables : mapping
        The manual variables from now on; the same object as before when nothing changed.
    problem : str or None
        Why it was stopped, or held back.
    """

    outcome: str
    out: dict[str, Value] | None
    rule: int | None
    variables: Fields
    problem: str | None = None

    @classmethod
    def of(
        cls,
        outcome: str,
        out: dict[str, Value] | None,
        rule: int | None,
        state: State,
        before: Fields,
        problem: str | None = None,
    ) -> Verdict:
        """Make a verdict, if it keeps to the limits.

        Raises
        ------
        Beyond
        """
        if out is not None:
            check_message(out)
        if not state.is_changed:
            return cls(outcome, out, rule, before, problem)
        state.check()
        return cls(outcome, out, rule, state.variables, problem)


def check_message(out: Value) -> None:
    """Refuse a message that is none or too large; what rules make of one that was published can be sent.

    Raises
    ------
    Beyond
    """
    if not isinstance(out, dict):
        raise Beyond(f"the message is {type(out).__name__}; it is a mapping or nothing")
    taken = size_bytes(out)
    if taken > MAX_MESSAGE_BYTES:
        raise Beyond(f"a message of {taken} bytes; a policy may send {MAX_MESSAGE_BYTES}")


class Seen(NamedTuple):
    """What one rule saw.

    Parameters
    ----------
    number : int
        The number of the rule, from 0.
    name, when : str
    truth : bool or None
        None is NULL.
    values : dict of str to object
        The values that it saw, by name with its scope; a list by its lookup.
    """

    number: int
    name: str
    when: str | None
    truth: bool | None
    values: dict[str, Value]


class Explanation(NamedTuple):
    """Why a subscriber gets a message, or does not.

    Parameters
    ----------
    verdict : Verdict
    seen : list of Seen
        The rules up to the one that fired.
    """

    verdict: Verdict
    seen: list[Seen]

    def table(self) -> pd.DataFrame:
        """Give the rules as a table: ``rule, when, holds, saw``."""
        import pandas as pd

        rows = [
            (
                each.name,
                each.when or "always",
                "NULL" if each.truth is None else str(each.truth).upper(),
                _written(each.values),
            )
            for each in self.seen
        ]
        return pd.DataFrame(rows, columns=["rule", "when", "holds", "saw"])

    def __str__(self) -> str:
        fired = next((each for each in self.seen if each.number == self.verdict.rule), None)
        why = "no rule fires" if fired is None else f"{fired.name} ({_written(fired.values) or 'always'})"
        verdict = self.verdict
        parts = [verdict.problem] if verdict.outcome == STOPPED else [why, verdict.problem]
        return f"{verdict.outcome}: {'; '.join(part for part in parts if part)}"


def values_of(predicate: Predicate, scopes: Mapping[str, Fields]) -> dict[str, Value]:
    """Give the values that a predicate sees, by scope and name."""
    values = {}
    for scope, names in predicate.names().items():
        for name in sorted(names):
            value: Value = scopes.get(scope, {})
            for part in name.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            values[f"{scope}.{name}"] = f"{len(value)} bytes" if isinstance(value, bytes) else value
    return values


def _written(values: Fields) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values.items())
