"""Checker of declarative policies, applied when a policy is set.

===============  =======================================================================================
unknown name     a rule reads a variable that is neither automatic nor set by any rule, or looks up in a list
                 that does not exist
unreachable      the conditions of earlier rules, or its own, leave no situation in which a rule fires
contradiction    two rules hold in the same situations and act differently; or the actions of one rule undo
                 each other
more on less     on a lower battery, all else equal, more is sent: more fields, longer ones, more often; with
                 a witness (:mod:`~mudkit.systems.sublim.check.charge`)
not checked      a warning: the conditions distinguish too many situations to try all; or it depends on
                 unknown values whether more is sent on a lower battery
===============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.systems.sublim._policy.actions import (
    Call,
    Compress,
    Drop,
    Every,
    Forget,
    Keep,
    Remember,
    Resize,
    SetField,
    Summary,
)
from mudkit.systems.sublim._policy.message import RATIO
from mudkit.systems.sublim._policy.policy import Policy, Rule
from mudkit.systems.sublim._policy.state import AUTOMATIC
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.systems.sublim.check.cases import TRUE, Atom, Situations, expressions_of
from mudkit.systems.sublim.check.charge import more_on_less

UNKNOWN: Final = "unknown name"
UNREACHABLE: Final = "unreachable"
CONTRADICTION: Final = "contradiction"
MORE_ON_LESS: Final = "more on less"
NOT_CHECKED: Final = "not checked"


class Finding(NamedTuple):
    """Mistake that the checker has found in a rule, or what it could not check.

    Parameters
    ----------
    kind : str
        ``"unknown name"``, ``"unreachable"``, ``"contradiction"``, ``"more on less"`` or ``"not checked"``.
    rule : int
        Index of the rule, from 0.
    line : int or None
        Line in the policy's text; None if it has none.
    text : str
    """

    kind: str
    rule: int
    line: int | None
    text: str

    @property
    def is_error(self) -> bool:
        """True if a policy with this finding is refused."""
        return self.kind != NOT_CHECKED


@check_arguments
def findings(policy: Policy) -> list[Finding]:
    """Return the findings about a policy, in the order of the rules; none if the policy is correct.

    Parameters
    ----------
    policy : Policy
    """
    all_findings = [
        *_find_unknown_names(policy),
        *_find_contradicting_actions(policy),
        *_find_unreachable(policy),
        *_find_more_on_less(policy),
    ]
    return sorted(all_findings, key=lambda finding: (finding.rule, finding.kind))


@check_arguments
def validate(policy: Policy) -> Policy:
    """Return the policy if the checker finds no error.

    Parameters
    ----------
    policy : Policy

    Raises
    ------
    PolicyError
        The checker has found errors, all of which it lists.
    """
    errors = [finding for finding in findings(policy) if finding.is_error]
    if errors:
        first = errors[0]
        raise PolicyError(
            f"The policy is refused: {first.kind}.",
            line=first.line,
            where=policy.places.where(("rules", first.rule)),
            found="; ".join(f"{finding.kind}: {finding.text}" for finding in errors),
            expected="rules that can all fire, agree, and send no more on a lower battery",
        )
    return policy


def _build_finding(policy: Policy, kind: str, rule: int, text: str, part: str = "when") -> Finding:
    """Return a finding about a part of a rule, with its line and the name of the rule."""
    line = policy.places.line(("rules", rule, part))
    return Finding(kind, rule, line, f"{policy.rules[rule].name}: {text}")


# -- names


def _find_unknown_names(policy: Policy) -> Iterator[Finding]:
    """Yield each variable, list or field that a rule reads and that nothing defines."""
    known = {*AUTOMATIC, *policy.variables}
    for rule in policy.rules:
        for action in rule.actions:
            if isinstance(action, Remember):
                known |= action.values.keys()
            elif isinstance(action, Every | Summary) and action.variable:
                known.add(action.variable)
    for number, rule in enumerate(policy.rules):
        for part, names, tables in _names_read(policy, number, rule):
            for name in sorted(names):
                if name.split(".")[0] not in known:
                    detail = f"there is no state.{name}; there are {', '.join(sorted(known))}"
                    yield _build_finding(policy, UNKNOWN, number, detail, part)
            for table in sorted(tables - known):
                yield _build_finding(
                    policy, UNKNOWN, number, f"there is no list {table!r} to look up in", part
                )
        if policy.message:
            yield from _find_unknown_fields(policy, number, rule)


def _find_unknown_fields(policy: Policy, number: int, rule: Rule) -> Iterator[Finding]:
    """Yield each field that an action of a rule reads and that messages do not have."""
    created: set[str] = set()
    for action in rule.actions:
        read: tuple[str, ...] = ()
        if isinstance(action, Keep):
            read = action.fields
        elif isinstance(action, Compress | Resize):
            read = (action.field,)
        elif isinstance(action, Summary):
            read = action.of
        for name in read:
            if name not in policy.message and name not in created:
                detail = f"a message has no field {name!r}; it has {', '.join(policy.message)}"
                yield _build_finding(policy, UNKNOWN, number, detail, "do")
        if isinstance(action, SetField):
            created |= action.values.keys()
        elif isinstance(action, Compress | Resize):
            created.add(action.field + RATIO)
        elif isinstance(action, Call):
            return  # it may have made any field


def _names_read(policy: Policy, number: int, rule: Rule) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield part, variables and lists that the condition and each expression of a rule read."""
    predicate = policy.predicate(number)
    if predicate is not None:
        tables = Atom(predicate.form.root, predicate.constants).tables()
        yield "when", predicate.names()["state"], tables
    for action in rule.actions:
        for expression in expressions_of(action, policy.language):
            tables = Atom(expression.root, expression.constants).tables()
            yield "do", expression.names()["state"], tables


# -- actions of one rule


def _find_contradicting_actions(policy: Policy) -> Iterator[Finding]:
    """Yield each action of a rule that another action of it undoes or makes useless."""
    for number, rule in enumerate(policy.rules):
        kept: set[str] | None = None
        touched: dict[str, str] = {}
        for place, action in enumerate(rule.actions):
            if isinstance(action, Drop) and any(
                isinstance(other, Keep | SetField | Compress | Resize | Every | Summary)
                for other in rule.actions
            ):
                yield _build_finding(policy, CONTRADICTION, number, "it drops what it prepares to send", "do")
            if isinstance(action, Drop) and place < len(rule.actions) - 1:
                yield _build_finding(policy, UNREACHABLE, number, "nothing after drop is done", "do")
            if isinstance(action, Keep):
                kept = set(action.fields) if kept is None else kept & set(action.fields)
            if isinstance(action, SetField) and kept is not None:
                kept |= action.values.keys()
            if isinstance(action, Call):
                kept = None  # it may have made any field
            if isinstance(action, Compress | Resize) and kept is not None and action.field not in kept:
                detail = f"{action.NAME} is about {action.field!r}, which is not kept"
                yield _build_finding(policy, CONTRADICTION, number, detail, "do")
            names: tuple[str, ...] = ()
            if isinstance(action, Remember | Forget):
                names = tuple(action.values) if isinstance(action, Remember) else action.names
            for name in names:
                if touched.get(name, action.NAME) != action.NAME:
                    detail = f"it remembers and forgets {name!r}"
                    yield _build_finding(policy, CONTRADICTION, number, detail, "do")
                touched[name] = action.NAME


def _find_more_on_less(policy: Policy) -> Iterator[Finding]:
    """Yield each rule that sends more on a lower battery, or of which this is not known."""
    for more in more_on_less(policy):
        yield _build_finding(policy, MORE_ON_LESS if more.is_error else NOT_CHECKED, more.rule, more.text)


# -- situations


def _find_unreachable(policy: Policy) -> Iterator[Finding]:
    """Yield each rule that fires in no situation, with the reason."""
    predicates = [policy.predicate(number) for number in range(len(policy.rules))]
    situations = Situations(predicates)
    if situations.count is None:
        detail = "the conditions tell too many situations apart; rules after it may be unreachable"
        yield _build_finding(policy, NOT_CHECKED, 0, detail)
        return
    holds = [situations.truths(number) == TRUE for number in range(len(policy.rules))]
    fires = np.full(situations.count, -1)
    for number, rows in enumerate(holds):
        free = rows & (fires == -1)
        if not rows.any():
            yield _build_finding(policy, UNREACHABLE, number, "its condition can never be TRUE")
        elif not free.any():
            yield _explain_unreachable(policy, number, holds)
        fires[free] = number


def _explain_unreachable(policy: Policy, number: int, holds: list[NDArray[np.bool_]]) -> Finding:
    """Return why a rule never fires although its condition may hold: earlier rules come first."""
    for earlier in range(number):
        if (holds[earlier] == holds[number]).all():
            if policy.rules[earlier].actions == policy.rules[number].actions:
                break
            detail = f"it holds exactly when {policy.rules[earlier].name!r} does, which does something else"
            return _build_finding(policy, CONTRADICTION, number, detail)
    overlapping = [earlier for earlier in range(number) if (holds[earlier] & holds[number]).any()]
    names = " or ".join(repr(policy.rules[earlier].name) for earlier in overlapping)
    return _build_finding(policy, UNREACHABLE, number, f"{names} always comes before it")
