"""What is wrong with a policy that can be read: the checker, asked when a policy is set.

===============  =======================================================================================
unknown name     a rule looks at a variable that is neither automatic nor set by anybody, or looks up in a
                 list that there is not
unreachable      no situation is left for a rule: those before it, or its own condition, take all
contradiction    two rules hold in the same situations and do something else; or the actions of one rule
                 undo each other
more on less     on a lower battery, all else equal, more is sent: more fields, longer ones, more often; with
                 a witness (:mod:`~mudkit.systems.sublim.check.charge`)
not checked      the conditions tell too many situations apart to look at all, or it depends on what nobody
                 knows before whether more is sent on a lower battery (warnings)
===============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.arguments import check_arguments
from mudkit.predicates import tree
from mudkit.predicates.expression import Expression
from mudkit.predicates.values import Constant
from mudkit.systems.sublim._policy.actions import (
    Action,
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
from mudkit.systems.sublim.check.cases import TRUE, Situations, given_expressions
from mudkit.systems.sublim.check.charge import more_on_less

__all__ = [
    "CONTRADICTION",
    "MORE_ON_LESS",
    "NOT_CHECKED",
    "UNKNOWN",
    "UNREACHABLE",
    "Finding",
    "checked",
    "findings",
]

UNKNOWN: Final = "unknown name"
UNREACHABLE: Final = "unreachable"
CONTRADICTION: Final = "contradiction"
MORE_ON_LESS: Final = "more on less"
NOT_CHECKED: Final = "not checked"


class Finding(NamedTuple):
    """Something that the checker has found.

    Parameters
    ----------
    kind : str
        One of the constants of this module.
    rule : int
        The number of the rule, from 0.
    line : int or None
        The line in the policy's text; None: it has none.
    text : str
    """

    kind: str
    rule: int
    line: int | None
    text: str

    @property
    def is_error(self) -> bool:
        """Whether a policy with it is refused."""
        return self.kind != NOT_CHECKED


@check_arguments
def findings(policy: Policy) -> list[Finding]:
    """Check a policy.

    Parameters
    ----------
    policy : Policy
        Policy to check.

    Returns
    -------
    list of Finding
        The findings in the order of the rules; empty: nothing is wrong with it.
    """
    all_findings = [*_unknown(policy), *_undone(policy), *_by_situation(policy), *_by_charge(policy)]
    return sorted(all_findings, key=lambda each: (each.rule, each.kind))


@check_arguments
def checked(policy: Policy) -> Policy:
    """Return the policy if the checker finds no error.

    Parameters
    ----------
    policy : Policy
        Policy to check.

    Raises
    ------
    PolicyError
        With all that was found.
    """
    errors = [each for each in findings(policy) if each.is_error]
    if errors:
        first = errors[0]
        raise PolicyError(
            f"The policy is refused: {first.kind}.",
            line=first.line,
            where=policy.places.where(("rules", first.rule)),
            found="; ".join(f"{each.kind}: {each.text}" for each in errors),
            expected="rules that can all fire, agree, and send no more on a lower battery",
        )
    return policy


def _finding(policy: Policy, kind: str, rule: int, text: str, part: str = "when") -> Finding:
    line = policy.places.line(("rules", rule, part))
    return Finding(kind, rule, line, f"{policy.rules[rule].name}: {text}")


# -- names


def _unknown(policy: Policy) -> Iterator[Finding]:
    known = {*AUTOMATIC, *policy.variables}
    for rule in policy.rules:
        for action in rule.actions:
            if isinstance(action, Remember):
                known |= action.values.keys()
            elif isinstance(action, Every | Summary) and action.variable:
                known.add(action.variable)
    for number, rule in enumerate(policy.rules):
        for part, names, tables in _looked_at(policy, number, rule):
            for name in sorted(names):
                if name.split(".")[0] not in known:
                    detail = f"there is no state.{name}; there are {', '.join(sorted(known))}"
                    yield _finding(policy, UNKNOWN, number, detail, part)
            for table in sorted(tables - known):
                yield _finding(policy, UNKNOWN, number, f"there is no list {table!r} to look up in", part)
        if policy.message:
            yield from _unknown_fields(policy, number, rule)


def _unknown_fields(policy: Policy, number: int, rule: Rule) -> Iterator[Finding]:
    made: set[str] = set()
    for action in rule.actions:
        looked: tuple[str, ...] = ()
        if isinstance(action, Keep):
            looked = action.fields
        elif isinstance(action, Compress | Resize):
            looked = (action.field,)
        elif isinstance(action, Summary):
            looked = action.of
        for name in looked:
            if name not in policy.message and name not in made:
                detail = f"a message has no field {name!r}; it has {', '.join(policy.message)}"
                yield _finding(policy, UNKNOWN, number, detail, "do")
        if isinstance(action, SetField):
            made |= action.values.keys()
        elif isinstance(action, Compress | Resize):
            made.add(action.field + RATIO)
        elif isinstance(action, Call):
            return  # it may have made any field


def _looked_at(policy: Policy, number: int, rule: Rule) -> Iterator[tuple[str, set[str], set[str]]]:
    predicate = policy.predicate(number)
    if predicate is not None:
        yield "when", predicate.names()["state"], _tables(predicate.form.root, predicate.constants)
    for action in rule.actions:
        for expression in _expressions(policy, action):
            yield "do", expression.names()["state"], _tables(expression.root, expression.constants)


def _expressions(policy: Policy, action: Action) -> Iterator[Expression]:
    return (Expression(each, language=policy.language) for each in given_expressions(action))


def _tables(root: tree.Node, constants: tuple[Constant, ...]) -> set[str]:
    tables = set()
    for node in tree.walk(root):
        if isinstance(node, tree.Call) and node.function.name == "lookup":
            table = node.args[0]
            name = constants[table.slot] if isinstance(table, tree.Constant) else None
            if isinstance(name, str):
                tables.add(name)
    return tables


# -- actions of one rule


def _undone(policy: Policy) -> Iterator[Finding]:
    for number, rule in enumerate(policy.rules):
        kept: set[str] | None = None
        touched: dict[str, str] = {}
        for place, action in enumerate(rule.actions):
            if isinstance(action, Drop) and any(
                isinstance(each, Keep | SetField | Compress | Resize | Every | Summary)
                for each in rule.actions
            ):
                yield _finding(policy, CONTRADICTION, number, "it drops what it prepares to send", "do")
            if isinstance(action, Drop) and place < len(rule.actions) - 1:
                yield _finding(policy, UNREACHABLE, number, "nothing after drop is done", "do")
            if isinstance(action, Keep):
                kept = set(action.fields) if kept is None else kept & set(action.fields)
            if isinstance(action, SetField) and kept is not None:
                kept |= action.values.keys()
            if isinstance(action, Call):
                kept = None  # it may have made any field
            if isinstance(action, Compress | Resize) and kept is not None and action.field not in kept:
                detail = f"{action.NAME} is about {action.field!r}, which is not kept"
                yield _finding(policy, CONTRADICTION, number, detail, "do")
            names: tuple[str, ...] = ()
            if isinstance(action, Remember | Forget):
                names = tuple(action.values) if isinstance(action, Remember) else action.names
            for name in names:
                if touched.get(name, action.NAME) != action.NAME:
                    detail = f"it remembers and forgets {name!r}"
                    yield _finding(policy, CONTRADICTION, number, detail, "do")
                touched[name] = action.NAME


def _by_charge(policy: Policy) -> Iterator[Finding]:
    for each in more_on_less(policy):
        yield _finding(policy, MORE_ON_LESS if each.is_error else NOT_CHECKED, each.rule, each.text)


# -- situations


def _by_situation(policy: Policy) -> Iterator[Finding]:
    predicates = [policy.predicate(number) for number in range(len(policy.rules))]
    situations = Situations(predicates)
    if situations.count is None:
        detail = "the conditions tell too many situations apart; rules after it may be unreachable"
        yield _finding(policy, NOT_CHECKED, 0, detail)
        return
    holds = [situations.truths(number) == TRUE for number in range(len(policy.rules))]
    fires = np.full(situations.count, -1)
    for number, rows in enumerate(holds):
        free = rows & (fires == -1)
        if not rows.any():
            yield _finding(policy, UNREACHABLE, number, "its condition can never be TRUE")
        elif not free.any():
            yield _taken(policy, number, holds)
        fires[free] = number


def _taken(policy: Policy, number: int, holds: list[NDArray[np.bool_]]) -> Finding:
    for earlier in range(number):
        if (holds[earlier] == holds[number]).all():
            if policy.rules[earlier].actions == policy.rules[number].actions:
                break
            detail = f"it holds exactly when {policy.rules[earlier].name!r} does, which does something else"
            return _finding(policy, CONTRADICTION, number, detail)
    first = [each for each in range(number) if (holds[each] & holds[number]).any()]
    names = " or ".join(repr(policy.rules[each].name) for each in first)
    return _finding(policy, UNREACHABLE, number, f"{names} always comes before it")
