"""Decision of a policy about a message, and its explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from mudkit.events import size_bytes
from mudkit.predicates import Predicate
from mudkit.systems.sublim._policy.state import LimitExceeded, State
from mudkit.wire import Fields, Value

if TYPE_CHECKING:
    import pandas as pd

MAX_MESSAGE_BYTES: Final = 262_144
"""Message that a policy sends, as encoded."""

SENT: Final = "sent"
DROPPED: Final = "dropped"
HELD: Final = "held back"
"""Dropped by a rate limit, or added to the window of a summary."""
STOPPED: Final = "stopped"
"""Dropped because the policy failed or exceeded a limit; the state is unchanged."""


class Verdict(NamedTuple):
    """Decision about one message.

    Parameters
    ----------
    outcome : str
        ``"sent"``, ``"dropped"``, ``"held back"`` or ``"stopped"``.
    out : dict or None
    rule : int or None
        Index of the rule that fired; None: none did, or the policy is a function.
    variables : mapping
        Manual variables after the decision; the same object as before if unchanged.
    problem : str or None
        Reason it was stopped or held back.
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
        """Return a verdict with the variables of ``state``.

        Raises
        ------
        LimitExceeded
            The message or the variables exceed a limit.
        """
        if out is not None:
            check_message(out)
        if not state.is_changed:
            return cls(outcome, out, rule, before, problem)
        state.check()
        return cls(outcome, out, rule, state.variables, problem)


def check_message(out: Value) -> None:
    """Raise LimitExceeded if a message is not a mapping, or is too large."""
    if not isinstance(out, dict):
        raise LimitExceeded(f"the message is {type(out).__name__}; it is a mapping or nothing")
    taken = size_bytes(out)
    if taken > MAX_MESSAGE_BYTES:
        raise LimitExceeded(f"a message of {taken} bytes; a policy may send {MAX_MESSAGE_BYTES}")


class EvaluatedRule(NamedTuple):
    """Rule as evaluated for a message: its truth (None is NULL), and the values that its condition read."""

    number: int
    name: str
    when: str | None
    truth: bool | None
    values: dict[str, Value]


class Explanation(NamedTuple):
    """Reason why a subscriber gets a message, or does not.

    Parameters
    ----------
    verdict : Verdict
    seen : list of EvaluatedRule
        The rules up to the one that fired.
    """

    verdict: Verdict
    seen: list[EvaluatedRule]

    def table(self) -> pd.DataFrame:
        """Return the rules as a table: ``rule, when, holds, saw``."""
        import pandas as pd

        rows = [
            (
                rule.name,
                rule.when or "always",
                "NULL" if rule.truth is None else str(rule.truth).upper(),
                _write_values(rule.values),
            )
            for rule in self.seen
        ]
        return pd.DataFrame(rows, columns=["rule", "when", "holds", "saw"])

    def __str__(self) -> str:
        fired = next((rule for rule in self.seen if rule.number == self.verdict.rule), None)
        why = (
            "no rule fires" if fired is None else f"{fired.name} ({_write_values(fired.values) or 'always'})"
        )
        verdict = self.verdict
        parts = [verdict.problem] if verdict.outcome == STOPPED else [why, verdict.problem]
        return f"{verdict.outcome}: {'; '.join(part for part in parts if part)}"


def values_read_by(predicate: Predicate, scopes: Mapping[str, Fields]) -> dict[str, Value]:
    """Return the values that a predicate reads, by scope and name: for explanations."""
    values = {}
    for scope, names in predicate.names().items():
        for name in sorted(names):
            value: Value = scopes.get(scope, {})
            for part in name.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            values[f"{scope}.{name}"] = f"{len(value)} bytes" if isinstance(value, bytes) else value
    return values


def _write_values(values: Fields) -> str:
    """Return values as text for an explanation."""
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values.items())
