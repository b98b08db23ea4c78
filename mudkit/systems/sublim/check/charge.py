"""Policies that send more on a lower battery, all else equal: refused, with a witness.

A policy is tried in contexts (:mod:`~mudkit.systems.sublim.check.contexts`) at each critical battery level.
It sends more at one of two levels if it sends everything that it sends at the other, each field at least as
long and at least as often, and something in addition, longer or more often. The error shows both levels, and
what is sent. What cannot be tried is accepted, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mudkit.predicates.python import compile_tree
from mudkit.predicates.values import EVERY_KIND
from mudkit.systems.sublim._policy.actions import (
    Action,
    Call,
    Compress,
    Drop,
    Every,
    Resize,
    Summary,
)
from mudkit.systems.sublim._policy.execution import Execution
from mudkit.systems.sublim._policy.message import RATIO
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim._policy.state import State, Tables
from mudkit.systems.sublim.check.cases import expressions_of, parse_expression
from mudkit.systems.sublim.check.contexts import BATTERY, Context, Contexts
from mudkit.wire import Fields, Value

_LINK: Final = ("bandwidth_kbps", "display_px")
_SHOWN: Final = 60
_MAX_PAIRS: Final = 200_000
"""Pairs of battery levels to compare, over all contexts."""


class Sends(NamedTuple):
    """Length of each field that a policy sends for one message, bytes (None: nothing), and its rate limits.

    A rate limit is an interval in seconds for each value of an expression, or for all messages together
    (None).
    """

    lengths: dict[str, int] | None
    limits: tuple[tuple[float, str | None], ...] = ()

    def is_more(self, other: Sends) -> bool:
        """Return whether it sends more than ``other`` in some respect, and less in none."""
        if self.lengths is None:
            return False
        return other.lengths is None or (self._is_at_least(other) and not other._is_at_least(self))

    def _is_at_least(self, other: Sends) -> bool:
        """Return whether it sends each field at least as long as ``other`` does, and at least as often."""
        mine, theirs = self.lengths or {}, other.lengths or {}
        return all(mine.get(name, -1) >= length for name, length in theirs.items()) and all(
            any(seconds <= longer and coarser in (None, per) for longer, coarser in other.limits)
            for seconds, per in self.limits
        )

    def __str__(self) -> str:
        if self.lengths is None:
            return "nothing"
        fields = ", ".join(
            f"{name} ({length})" if length > 1 else name for name, length in self.lengths.items()
        )
        often = "".join(
            f", at most every {seconds:g} s" + ("" if per is None else f" per {per}")
            for seconds, per in self.limits
        )
        return f"{fields or 'no field'}{often}"


class ChargeFinding(NamedTuple):
    """Rule that sends more on a lower battery or, as a warning, why this could not be decided."""

    rule: int
    text: str
    is_error: bool = False
    lower: float = 0.0
    higher: float = 0.0
    context: Context | None = None


def more_on_less(policy: Policy) -> Iterator[ChargeFinding]:
    """Yield where a policy sends more on a lower battery, once per pair of rules; then what is unsure."""
    contexts = Contexts(policy)
    if not any(BATTERY in atom.names() for atom in (*contexts.conditions, *contexts.computed)):
        return
    trial = _Trials(policy, contexts)
    yield from trial.find_more_on_less()
    yield from trial.find_unsure()


class _Trials:
    """Trials of one policy in contexts at all critical battery levels, and what they leave unsure."""

    def __init__(self, policy: Policy, contexts: Contexts) -> None:
        self._policy = policy
        self._contexts = contexts
        self._levels = contexts.levels
        self._computes = [_computes_with_battery(policy, number) for number in range(len(policy.rules))]
        self._reported: set[tuple[int, int]] = set()
        self._left = _MAX_PAIRS
        self._noted: set[tuple[int, int]] = set()
        self._unsure: dict[int, str] = {}
        self._open = {
            number: atom
            for number, atom in enumerate(contexts.conditions)
            if not (atom.is_simple or atom.is_lookup)
        }
        self._seen: dict[int, set[bool]] = {number: set() for number in self._open}
        names = policy.language.scopes.names
        self._evaluators = {
            number: compile_tree(atom.node, names, kind=EVERY_KIND) for number, atom in self._open.items()
        }

    def find_more_on_less(self) -> Iterator[ChargeFinding]:
        """Yield a finding for each pair of rules that sends more on the lower of two battery levels."""
        groups: dict[tuple[tuple[int, ...], tuple[str, ...]], tuple[Context, list[int]]] = {}
        for context in self._contexts.draw_distinguished():
            fires = [self._firing_rule(context, level) for level in self._levels]
            self._try_conditions(context)
            if len(set(fires)) > 1 or self._computes[fires[0]]:
                groups.setdefault((tuple(fires), self._contexts.shared_values(context)), (context, fires))
        for base, fires in groups.values():
            for context in self._contexts.draw_variants(base):
                if self._left <= 0:
                    self._unsure.setdefault(0, "there is too much to compare")
                    return
                yield from self._compare_levels(context, fires)

    def find_unsure(self) -> Iterator[ChargeFinding]:
        """Yield a warning for each rule about which the trials could not decide."""
        if not self._contexts.is_whole:
            self._unsure.setdefault(0, "the conditions tell too many contexts apart; some were drawn")
        for number, seen in self._seen.items():
            atom = self._open[number]
            if len(seen) < 2 and atom.names() != {BATTERY}:
                names = ", ".join(sorted(".".join((scope, *path)) for scope, path in atom.names()))
                self._unsure.setdefault(0, f"a condition on {names} was tried one way only")
        for rule, why in self._unsure.items():
            yield ChargeFinding(rule, f"whether it sends more on a lower battery is not known: {why}")

    def _compare_levels(self, context: Context, fires: list[int]) -> Iterator[ChargeFinding]:
        """Yield a finding for each pair of rules of which the one at the lower battery level sends more.

        ``fires`` has the number of the rule at each level; -1: none.
        """
        tried: list[tuple[float, int, Sends]] = []
        for level, rule in zip(self._levels, fires, strict=True):
            if tried and tried[-1][1] == rule and not self._computes[rule]:
                continue
            sends = self._try_rule(context, rule, level)
            if sends is not None and not (tried and tried[-1][1:] == (rule, sends)):
                tried.append((level, rule, sends))
        self._left -= len(tried) * (len(tried) + 10)
        for place, (lower, less, at_less) in enumerate(tried):
            for higher, more, at_more in tried[place + 1 :]:
                if (less, more) not in self._reported and less >= 0:
                    self._note_unsure(less, more, at_less, at_more)
                    if at_less.is_more(at_more):
                        self._reported.add((less, more))
                        yield self._build_finding(context, (lower, less, at_less), (higher, more, at_more))

    def _build_finding(
        self, context: Context, low: tuple[float, int, Sends], high: tuple[float, int, Sends]
    ) -> ChargeFinding:
        """Return the finding about two levels; ``low`` and ``high`` are level, rule, and what it sends."""
        where = "where no rule fires" if high[1] < 0 else f"where {self._policy.rules[high[1]].name!r} fires"
        given = (
            ", ".join(f"{name} {_describe_value(value)}" for name, value in context.message.items())
            or "no field"
        )
        text = (
            f"it sends more on a battery of {low[0]:g} than of {high[0]:g}, {where}: of a message with "
            f"{given} it sends {low[2]} on {low[0]:g} and {high[2]} on {high[0]:g}"
        )
        return ChargeFinding(low[1], text, True, low[0], high[0], context)

    def _note_unsure(self, less: int, more: int, at_less: Sends, at_more: Sends) -> None:
        """Note, once for two rules, that they reduce a field by values of which only some were tried.

        ``less`` and ``more`` are the rules that fire with less and with more charge.
        """
        if (less, more) in self._noted:
            return
        self._noted.add((less, more))
        for field in sorted((at_less.lengths or {}).keys() & (at_more.lengths or {}).keys()):
            mine, theirs = (_uncertain_reductions(self._policy, number, field) for number in (less, more))
            if mine != theirs and less != more:
                self._unsure.setdefault(less, f"{' and '.join(mine or theirs)} was tried with some values")

    def _try_conditions(self, context: Context) -> None:
        """Note which truths the conditions have that are not simple; one that never varies is unsure."""
        for number in list(self._evaluators):
            for level in (0.0, 50.0, 100.0):
                state = {**context.variables, **context.automatic, "battery": level}
                constants = self._open[number].constants
                truth = self._evaluators[number](
                    constants, Tables(state), context.message, state, {"now_s": context.now_s}
                )
                if isinstance(truth, bool):
                    self._seen[number].add(truth)
            if len(self._seen[number]) == 2:
                del self._evaluators[number]

    def _firing_rule(self, context: Context, level: float) -> int:
        """Return the index, from 0, of the rule that fires in a context at a battery level; -1: none does."""
        fired = self._policy.fires(
            context.message, context.variables, {**context.automatic, "battery": level}, context.now_s
        )
        return -1 if fired is None else fired

    def _limit_key(self, per: str | None) -> str | None:
        """Return the expression by which a limit counts; None if it has one value for all messages."""
        if per is None:
            return None
        names = parse_expression(per, self._policy.language).names()
        changes = {name.split(".")[0] for name in names["state"]} & {*self._contexts.changed, *_LINK}
        return " ".join(per.split()) if names["message"] or names["clock"] or changes else None

    def _try_rule(self, context: Context, number: int, level: float) -> Sends | None:
        """Return what a rule sends, regardless of its limits; None if that cannot be decided."""
        if number < 0:
            return Sends(None)
        automatic = {**context.automatic, "battery": level}
        state = State(context.variables, automatic, context.now_s)
        execution = Execution(context.message, state, {"now_s": context.now_s}, Tables(state.all))
        limits = []
        for action, step in zip(self._policy.rules[number].actions, self._policy.steps(number), strict=True):
            if isinstance(action, Drop):
                return Sends(None)
            if isinstance(action, Every | Summary):
                limits.append((float(action.seconds), self._limit_key(action.per)))
                continue
            if isinstance(action, Call):
                self._unsure.setdefault(number, f"nobody knows what {action.name!r} makes of a message")
                return None
            if not _is_computable(self._policy, action, execution):
                self._unsure.setdefault(number, "an action computes with what is not there")
                return None
            try:
                step(execution)
            except Exception as error:  # the policy would be stopped
                self._unsure.setdefault(number, f"{action.NAME} fails: {error}")
                return None
        return Sends(_field_lengths(execution.out, context.message), tuple(limits))


def _computes_with_battery(policy: Policy, number: int) -> bool:
    """Return whether an action of a rule computes with the battery level."""
    return any(
        "battery" in expression.names()["state"]
        for action in policy.rules[number].actions
        for expression in expressions_of(action, policy.language)
    )


def _is_computable(policy: Policy, action: Action, execution: Execution) -> bool:
    """Return whether the ratio or number of pixels of an action is a number."""
    if not isinstance(action, Compress | Resize):
        return True
    for expression in expressions_of(action, policy.language):
        value = expression.evaluate(
            expression.constants, execution.tables, execution.message, execution.state.all, execution.clock
        )
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
    return True


def _uncertain_reductions(policy: Policy, number: int, field: str) -> tuple[str, ...]:
    """Return the reductions of a field by a rule that depend on more than the battery."""
    unknown = []
    for action in policy.rules[number].actions if number >= 0 else ():
        if isinstance(action, Compress | Resize) and action.field == field:
            for expression in expressions_of(action, policy.language):
                names = expression.names()
                if names["message"] or names["clock"] or names["state"] - {"battery"}:
                    unknown.append(f"{action.NAME} by {expression.text}")
    return tuple(unknown)


def _field_lengths(out: Fields, message: Fields) -> dict[str, int]:
    """Return the length of each field that is sent, without the ratios that compression adds."""
    return {
        name: _length(value)
        for name, value in out.items()
        if name in message or not (name.endswith(RATIO) and name.removesuffix(RATIO) in out)
    }


def _length(value: Value) -> int:
    """Return the length of a value: of contents and texts; of others the number of values in it."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Mapping):
        return 1 + sum(map(_length, value.values()))
    return 1 + sum(map(_length, value)) if isinstance(value, list | tuple) else 1


def _describe_value(value: Value) -> str:
    """Return a value for the text of a finding, a long one by its length."""
    if isinstance(value, bytes):
        return f"of {len(value)} bytes"
    if isinstance(value, str) and len(value) > 20:
        return f"of {len(value)} letters"
    return repr(value)[:_SHOWN]
