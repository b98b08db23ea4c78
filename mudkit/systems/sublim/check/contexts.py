"""Contexts in which a policy is tried: messages, variables and times between which its rules tell apart.

What a name may be follows from the constants that stand beside it: each of them, what lies below, between and
above, and NULL. A name that only an action computes with is sensible: it is there, and a number of its is
positive. Manual variables are those with which a policy begins, and those to which it comes by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from mudkit.predicates import tree
from mudkit.predicates.expression import Expression
from mudkit.sources.streams import Stream
from mudkit.systems.sublim._policy.actions import (
    Call,
    Compress,
    Every,
    Forget,
    Keep,
    Remember,
    Resize,
    SetField,
    Summary,
)
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim.check.cases import (
    _MAX_LEVELS,
    Atom,
    Name,
    Other,
    _is_number,
    _points,
    atoms,
    battery_levels,
    critical,
    given_expressions,
    is_of_kind,
    is_plain,
)
from mudkit.wire import Fields, Value

__all__ = [
    "Context",
    "Contexts",
]

_T = TypeVar("_T")

_AT_ONCE: Final = 1024
_MOST: Final = 2_000
"""Contexts that are tried; of more, so many are drawn."""
_LEAST: Final = 40
_MAX_CONDITIONS: Final = 200_000
"""Conditions that are evaluated: of rules, contexts and charges."""
_MAX_COMPUTED: Final = 60
"""Of values that only actions look at, for each context that conditions tell apart."""
_STATES: Final = 8
_STEPS: Final = 120
_NUMBERS: Final = (1.0, 10.0, 60.0, 1000.0)
_LENGTHS: Final = (64, 4_096)
_LONGEST: Final = 200_000
_BEGIN_S: Final = 1_767_225_600.0
_HOUR_S: Final = 3_600.0
_OTHER: Final = "another_field"
_SENSIBLE: Final = {"bandwidth_kbps": (56.0, 500.0, 5_000.0), "display_px": (320.0, 1_080.0)}


class Context(NamedTuple):
    """What a decision depends on, the battery left out."""

    message: Fields
    variables: Fields
    automatic: Mapping[str, float]
    now_s: float


class _Draw:
    """What is drawn for a policy is the same at every check."""

    def __init__(self, name: str) -> None:
        self._stream, self._step = Stream(0, f"contexts of a policy, {name}"), 0
        self._words: list[int] = []

    def choice(self, values: Sequence[_T]) -> _T:
        """Draw one of some."""
        if not self._words:
            steps = np.arange(self._step, self._step + _AT_ONCE)
            self._step += _AT_ONCE
            self._words = self._stream.words(0, steps)[0].tolist()
        return values[self._words.pop() % len(values)]


class Contexts:
    """The contexts of a policy.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    conditions : list of Atom
        The conditions of all rules.
    computed : list of Atom
        What actions compute.
    changed : set of str
        Manual variables that the policy changes.
    is_whole : bool
        Whether none was left out.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._actions = [action for rule in policy.rules for action in rule.actions]
        predicates = [policy.predicate(number) for number in range(len(policy.rules))]
        self.conditions = [
            atom for each in predicates if each is not None for atom in atoms(each.form.root, each.constants)
        ]
        expressions = [
            Expression(text, language=policy.language)
            for action in self._actions
            for text in given_expressions(action)
        ]
        self.computed = [Atom(each.root, each.constants) for each in expressions]
        self._in_conditions = {name for atom in self.conditions for name in atom.names()}
        self._in_actions = {name for atom in self.computed for name in atom.names()}
        looked = {path[0] for scope, path in self._in_conditions if scope == "message"}
        made = {name for each in self._actions if isinstance(each, SetField) for name in each.values}
        self._missing = sorted(made - looked)
        """Fields that rules set, and a message need not have."""
        self.levels = battery_levels(self.conditions, self.computed, policy.variables)
        self.is_whole = len(self.levels) <= _MAX_LEVELS
        self.levels = self.levels[:: -(-len(self.levels) // _MAX_LEVELS)]
        self.states: list[Fields] = [policy.variables]
        self.changed = self._changed()
        if self._looked_at() & self.changed:
            self.states = self._reached()

    def distinguished(self) -> Iterator[Context]:
        """Give the contexts that conditions can tell apart."""
        affordable = _MAX_CONDITIONS // (len(self.levels) * len(self._policy.rules))
        yield from self._drawn(
            self._in_conditions, max(min(affordable, _MOST), _LEAST), _Draw("told apart"), self.states
        )

    def computed_with(self, context: Context) -> Iterator[Context]:
        """Give a context with all that only actions look at, and with contents of some lengths."""
        rest = self._in_actions - self._in_conditions
        yield from self._drawn(rest, _MAX_COMPUTED, _Draw("computed with"), [context.variables], context)

    def shared(self, context: Context) -> tuple[str, ...]:
        """Give what both conditions and actions look at."""
        names = sorted(self._in_conditions & self._in_actions)
        return (repr(context.variables), *(repr(_at(context, each)) for each in names))

    def _looked_at(self) -> set[str]:
        """Give the manual variables on which a decision depends."""
        names = {path[0] for scope, path in self._in_conditions | self._in_actions if scope == "state"}
        return {*names, *(table for atom in (*self.conditions, *self.computed) for table in atom.tables())}

    def _changed(self) -> set[str]:
        """Give those that the policy changes."""
        names: set[str] = set()
        for action in self._actions:
            if isinstance(action, Remember):
                names |= action.values.keys()
            elif isinstance(action, Forget):
                names |= set(action.names)
            elif isinstance(action, Every | Summary) and action.variable:
                names.add(action.variable)
        return names

    def _reached(self) -> list[Fields]:
        """Give states to which the policy comes by itself."""
        policy, draw, looked = self._policy, _Draw("reached"), sorted(self._looked_at())
        reached: dict[str, Fields] = {}
        if any(isinstance(each, Call) for each in self._actions):
            return self.states  # nobody calls a user's method for a look
        names = self._in_conditions | self._in_actions
        state: Fields = policy.variables
        reached[repr([state.get(each) for each in looked])] = state
        for step, context in enumerate(
            itertools.islice(self._drawn(names, _STEPS, draw, [policy.variables]), _STEPS)
        ):
            automatic = {**context.automatic, "battery": draw.choice(self.levels)}
            state = policy.decide(context.message, state, automatic, context.now_s + 60.0 * step).variables
            if len(reached) < _STATES:
                reached.setdefault(repr([state.get(each) for each in looked]), state)
        return list(reached.values())

    def _drawn(
        self,
        names: set[Name],
        most: int,
        draw: _Draw,
        states: Sequence[Fields],
        base: Context | None = None,
    ) -> Iterator[Context]:
        choices: list[tuple[Name, list[Value]]] = [
            (name, self._values(name))
            for name in sorted(names)
            if name[0] != "state" or name[1] in (("bandwidth_kbps",), ("display_px",))
        ]
        lengths = self._lengths() if base is not None else [_LENGTHS[0]]
        missing = [[], self._missing] if base is not None and self._missing else [[]]
        sizes = [len(states), len(lengths), len(missing), *(len(values) for _, values in choices)]
        if math.prod(sizes) <= most:
            drawn: Iterable[Iterable[int]] = itertools.product(*map(range, sizes))
        else:
            self.is_whole = False
            drawn = ([draw.choice(range(size)) for size in sizes] for _ in range(most))
        for state, length, left_out, *places in drawn:
            given = {name: values[place] for (name, values), place in zip(choices, places, strict=True)}
            given |= {("message", (name,)): None for name in missing[left_out]}
            yield self._context(states[state], lengths[length], given, base)

    def _context(
        self, state: Fields, length: int, given: Mapping[Name, Value], base: Context | None
    ) -> Context:
        message = self._message(length)
        automatic: dict[str, float] = {"bandwidth_kbps": 500.0, "display_px": 480.0}
        now_s = _BEGIN_S
        if base is not None:
            fixed = {path[0] for scope, path in self._in_conditions if scope == "message"}
            message |= {name: value for name, value in base.message.items() if name in fixed}
            message = {
                name: each for name, each in message.items() if name not in fixed or name in base.message
            }
            automatic, now_s = dict(base.automatic), base.now_s
        for (scope, path), value in given.items():
            if scope == "clock":
                now_s = value if isinstance(value, int | float) else now_s
            elif scope == "state":
                automatic.pop(path[0], None)
                if isinstance(value, int | float):
                    automatic[path[0]] = value
            else:
                _put(message, path, value)
        return Context(message, state, automatic, now_s)

    def _message(self, length: int) -> dict[str, Value]:
        kinds = dict(self._policy.message) or self._guessed()
        samples: dict[str, Value] = {
            "number": 60.0,
            "boolean": True,
            "point": {"lat": 0.0, "lon": 0.0},
            "struct": {},
            "bytes": bytes(length),
            "string": "x" * length,
        }
        return {name: samples[kind] for name, kind in kinds.items()}

    def _guessed(self) -> dict[str, str]:
        """Guess the fields of a message that a policy does not declare, and one that it does not name."""
        kinds = {
            path[0]: "number" for scope, path in self._in_conditions | self._in_actions if scope == "message"
        }
        for action in self._actions:
            if isinstance(action, Keep):
                kinds = {**dict.fromkeys(action.fields, "string"), **kinds}
            elif isinstance(action, Summary):
                kinds |= dict.fromkeys(action.of, "number")
        for action in self._actions:
            if isinstance(action, Compress | Resize):
                kinds[action.field] = "bytes"
        return {**kinds, _OTHER: "string"}

    def _lengths(self) -> list[int]:
        sized = [each for each in self._actions if isinstance(each, Resize | Compress)]
        if not sized:
            return [_LENGTHS[0]]
        numbers = [
            float(each.pixels)
            for each in sized
            if isinstance(each, Resize) and not isinstance(each.pixels, str)
        ]
        numbers += [each for atom in self.computed for each in atom.values() if _is_number(each)]
        longest = min(2.0 * max(numbers, default=0.0), _LONGEST)
        return [*_LENGTHS, *([int(longest)] if longest > _LENGTHS[-1] else [])]

    def _values(self, name: Name) -> list[Value]:
        scope, path = name
        around = [atom for atom in self.conditions if name in atom.names()]
        constants = [value for atom in around for value in atom.values()]
        kind = self._policy.message.get(path[0]) if scope == "message" and len(path) == 1 else None
        if not around:
            return self._sensible(scope, path, kind)
        values: list[Value] = [each for each in critical(constants) if not isinstance(each, Other)]
        if not all(atom.is_simple for atom in around):
            values += _NUMBERS if kind in (None, "number") else ()
            values += ["x"] if kind == "string" else []
            values += [True, False] if kind in (None, "boolean") else []
            values += _points(constants)
            values += self._listed(around)
        if any(isinstance(atom.node, tree.Name) for atom in around):
            values += [True, False]
        if scope == "clock":
            values = [_BEGIN_S + hour * _HOUR_S for hour in (*range(24), *range(36, 180, 24))]
            values += [each for each in constants if _is_number(each) and each > 1e6]
        if scope == "state":
            values = [each for each in values if each is None or (_is_number(each) and each >= 0)]
        right = [each for each in values if is_of_kind(each, kind)]
        if all(each is None for each in right):
            right += self._sensible(scope, path, kind)
        return list({(type(each).__name__, repr(each)): each for each in right}.values())

    def _sensible(self, scope: str, path: tuple[str, ...], kind: str | None) -> list[Value]:
        if scope == "clock":
            return [_BEGIN_S]
        if scope == "state":
            return list(_SENSIBLE.get(path[0], _NUMBERS))
        if kind in ("string", "bytes", "boolean", "point", "struct"):
            return [self._message(_LENGTHS[0])[path[0]]]
        if any(isinstance(each.node, tree.Name) and (scope, path) in each.names() for each in self.computed):
            return [60.0, "x" * _LENGTHS[0]]
        return list(_NUMBERS)

    def _listed(self, around: Sequence[Atom]) -> list[Value]:
        members: list[Value] = []
        for table in {table for atom in around for table in atom.tables()}:
            for state in self.states:
                values = state.get(table)
                members += [each for each in values[:3] if is_plain(each)] if isinstance(values, list) else []
        return members


def _at(context: Context, name: Name) -> Value:
    scope, path = name
    value: Value = {
        "message": context.message,
        "state": context.automatic,
        "clock": {"now_s": context.now_s},
    }[scope]
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _put(message: dict[str, Value], path: tuple[str, ...], value: Value) -> None:
    """Give a field a value; without one it is not there."""
    for part in path[:-1]:
        known = message.get(part)
        inner = dict(known) if isinstance(known, Mapping) else {}
        message[part] = inner
        message = inner
    message.pop(path[-1], None)
    if value is not None:
        message[path[-1]] = value
