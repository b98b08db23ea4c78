"""Contexts to try a policy on: messages, variables and times that its rules distinguish.

The values of a name are the critical values of the atoms that contain it: its constants, values below,
between and above them, and NULL. A name that only actions compute with has a plausible value: present, and
positive if it is a number. The contents of fields that are compressed or resized are long, and as short as
the ratios and widths: there rounding makes equal what otherwise differs. Manual variables have their initial
values, and values that the policy itself sets when it is run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from mudkit.predicates import tree
from mudkit.predicates.values import Point
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
    Atom,
    Cases,
    Name,
    Other,
    RandomChoices,
    atoms,
    critical_values,
    expressions_of,
)
from mudkit.wire import Fields, Value

BATTERY: Final[Name] = ("state", ("battery",))
_MAX_CONTEXTS: Final = 2_000
"""Contexts to try; if there are more, as many are drawn."""
_MIN_CONTEXTS: Final = 40
_MAX_CONDITIONS: Final = 200_000
"""Conditions to evaluate: of rules, contexts and battery levels."""
_MAX_COMPUTED: Final = 60
"""Values of names that only actions read, per context that conditions distinguish."""
_MAX_LEVELS: Final = 160
_STATES: Final = 8
_STEPS: Final = 120
_NUMBERS: Final = (1.0, 10.0, 60.0, 1000.0)
_LENGTHS: Final = (64, 4_096)
_MAX_LENGTH: Final = 200_000
_BEGIN_S: Final = 1_767_225_600.0
_HOUR_S: Final = 3_600.0
_OTHER: Final = "another_field"
_PLAUSIBLE: Final = {"bandwidth_kbps": (56.0, 500.0, 5_000.0), "display_px": (320.0, 1_080.0)}


class Context(NamedTuple):
    """Input of a decision, without the battery."""

    message: Fields
    variables: Fields
    automatic: Mapping[str, float]
    now_s: float


class Contexts:
    """Contexts in which the checker tries a policy; ``is_whole`` is False if some were left out.

    ``conditions`` are the atoms of all rules, ``computed`` the expressions of actions, ``levels`` the battery
    levels to try, ``changed`` the manual variables that the policy changes.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._actions = [action for rule in policy.rules for action in rule.actions]
        predicates = [policy.predicate(number) for number in range(len(policy.rules))]
        self.conditions = [
            atom
            for predicate in predicates
            if predicate is not None
            for atom in atoms(predicate.form.root, predicate.constants)
        ]
        self.computed = [
            Atom(expression.root, expression.constants)
            for action in self._actions
            for expression in expressions_of(action, policy.language)
        ]
        self._in_conditions = {name for atom in self.conditions for name in atom.names()}
        self._in_actions = {name for atom in self.computed for name in atom.names()}
        read = {path[0] for scope, path in self._in_conditions if scope == "message"}
        written = {name for action in self._actions if isinstance(action, SetField) for name in action.values}
        self._missing = sorted(written - read)
        """Fields that rules set, and that a message may lack."""
        self.levels = _battery_levels(self.conditions, self.computed, policy.variables)
        self.is_whole = len(self.levels) <= _MAX_LEVELS
        self.levels = self.levels[:: -(-len(self.levels) // _MAX_LEVELS)]
        self.states: list[Fields] = [policy.variables]
        self.changed = self._changed_variables()
        if self._read_variables() & self.changed:
            self.states = self._find_reached_states()

    def draw_distinguished(self) -> Iterator[Context]:
        """Yield the contexts that the conditions of rules distinguish: all, or random ones if too many."""
        affordable = _MAX_CONDITIONS // (len(self.levels) * len(self._policy.rules))
        limit = max(min(affordable, _MAX_CONTEXTS), _MIN_CONTEXTS)
        yield from self._draw_contexts(self._in_conditions, limit, RandomChoices("told apart"), self.states)

    def draw_variants(self, context: Context) -> Iterator[Context]:
        """Yield a context with other values of what only actions read, and other lengths of the contents."""
        rest = self._in_actions - self._in_conditions
        yield from self._draw_contexts(
            rest, _MAX_COMPUTED, RandomChoices("computed with"), [context.variables], context
        )

    def shared_values(self, context: Context) -> tuple[str, ...]:
        """Return the values in a context that both conditions and actions read, as text."""
        names = sorted(self._in_conditions & self._in_actions)
        return (repr(context.variables), *(repr(_value_at(context, name)) for name in names))

    def _read_variables(self) -> set[str]:
        """Return the names of the variables and lists that conditions or actions read."""
        names = {path[0] for scope, path in self._in_conditions | self._in_actions if scope == "state"}
        return {*names, *(table for atom in (*self.conditions, *self.computed) for table in atom.tables())}

    def _changed_variables(self) -> set[str]:
        """Return the names of the manual variables that actions set or remove."""
        names: set[str] = set()
        for action in self._actions:
            if isinstance(action, Remember):
                names |= action.values.keys()
            elif isinstance(action, Forget):
                names |= set(action.names)
            elif isinstance(action, Every | Summary) and action.variable:
                names.add(action.variable)
        return names

    def _find_reached_states(self) -> list[Fields]:
        """Return the initial state, and others that the policy reaches when it decides random messages."""
        policy, draw, read = self._policy, RandomChoices("reached"), sorted(self._read_variables())
        reached: dict[str, Fields] = {}
        if any(isinstance(action, Call) for action in self._actions):
            return self.states  # a user's method is not called by the checker
        names = self._in_conditions | self._in_actions
        state: Fields = policy.variables
        reached[repr([state.get(name) for name in read])] = state
        for step, context in enumerate(
            itertools.islice(self._draw_contexts(names, _STEPS, draw, [policy.variables]), _STEPS)
        ):
            automatic = {**context.automatic, "battery": draw.choice(self.levels)}
            state = policy.decide(context.message, state, automatic, context.now_s + 60.0 * step).variables
            if len(reached) < _STATES:
                reached.setdefault(repr([state.get(name) for name in read]), state)
        return list(reached.values())

    def _draw_contexts(
        self,
        names: set[Name],
        limit: int,
        draw: RandomChoices,
        states: Sequence[Fields],
        base: Context | None = None,
    ) -> Iterator[Context]:
        """Yield at most ``limit`` contexts with combinations of the values of ``names``.

        Manual variables are those of ``states``. What conditions read and ``names`` lacks is as in ``base``;
        the rest of a message is plausible. With a ``base``, contents are tried with other lengths, too, and
        without fields that rules set and no condition reads. ``is_whole`` gets False if some were left out.
        """
        values = {
            name: self._values_to_try(name)
            for name in sorted(names)
            if name[0] != "state" or name[1] in (("bandwidth_kbps",), ("display_px",))
        }
        lengths = self._content_lengths() if base is not None else [_LENGTHS[0]]
        missing = [[], self._missing] if base is not None and self._missing else [[]]
        sizes: dict[Name | str, int] = {
            "state": len(states), "length": len(lengths), "missing": len(missing),
            **{name: len(choices) for name, choices in values.items()},
        }  # fmt: skip
        cases = Cases(sizes, limit)
        self.is_whole = self.is_whole and cases.is_whole
        for state, length, left_out, *places in cases.draw(draw):
            given = {name: values[name][place] for name, place in zip(values, places, strict=True)}
            given |= {("message", (name,)): None for name in missing[left_out]}
            yield self._build_context(states[state], lengths[length], given, base)

    def _build_context(
        self, state: Fields, length: int, given: Mapping[Name, Value], base: Context | None
    ) -> Context:
        """Return a context with the given values; the others are as in ``base``, or plausible."""
        message = self._build_message(length)
        automatic: dict[str, float] = {"bandwidth_kbps": 500.0, "display_px": 480.0}
        now_s = _BEGIN_S
        if base is not None:
            fixed = {path[0] for scope, path in self._in_conditions if scope == "message"}
            message |= {name: value for name, value in base.message.items() if name in fixed}
            message = {
                name: value for name, value in message.items() if name not in fixed or name in base.message
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
                _set_field(message, path, value)
        return Context(message, state, automatic, now_s)

    def _build_message(self, length: int) -> dict[str, Value]:
        """Return a message with a plausible value in each field; contents have this length."""
        kinds = dict(self._policy.message) or self._guess_kinds()
        samples: dict[str, Value] = {
            "number": 60.0,
            "boolean": True,
            "point": {"lat": 0.0, "lon": 0.0},
            "struct": {},
            "bytes": bytes(length),
            "string": "x" * length,
        }
        return {name: samples[kind] for name, kind in kinds.items()}

    def _guess_kinds(self) -> dict[str, str]:
        """Return the fields of messages with their kinds, as actions and conditions use them.

        One more field, which no rule names, is among them.
        """
        kinds = {
            path[0]: "number"
            for scope, path in sorted(self._in_conditions | self._in_actions)
            if scope == "message"
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

    def _content_lengths(self) -> list[int]:
        """Return the lengths of contents to try: long, and around the ratios and widths of the actions."""
        sized = [action for action in self._actions if isinstance(action, Resize | Compress)]
        if not sized:
            return [_LENGTHS[0]]
        computed = [
            float(number) for atom in self.computed for number in atom.constant_values() if _is_number(number)
        ]
        widths = [action.pixels for action in sized if isinstance(action, Resize)]
        ratios = [action.ratio for action in sized if isinstance(action, Compress)]
        numbers = [*computed, *(float(width) for width in widths if _is_number(width))]
        longest = min(2.0 * max(numbers, default=0.0), _MAX_LENGTH)
        # Contents as short as a ratio or a width: one reduces them to a single byte, the other not at all.
        numbers += [float(ratio) for ratio in ratios if _is_number(ratio)]
        short = {int(number) for number in numbers if 1 <= number < _LENGTHS[0]}
        return [*_LENGTHS, *([int(longest)] if longest > _LENGTHS[-1] else []), *sorted(short)]

    def _values_to_try(self, name: Name) -> list[Value]:
        """Return the values of a name to try: critical ones of its conditions, or else plausible ones."""
        scope, path = name
        around = [atom for atom in self.conditions if name in atom.names()]
        constants = [value for atom in around for value in atom.constant_values()]
        kind = self._policy.message.get(path[0]) if scope == "message" and len(path) == 1 else None
        if not around:
            return self._plausible_values(scope, path, kind)
        values: list[Value] = [value for value in critical_values(constants) if not isinstance(value, Other)]
        if not all(atom.is_simple for atom in around):
            values += _NUMBERS if kind in (None, "number") else ()
            values += ["x"] if kind == "string" else []
            values += [True, False] if kind in (None, "boolean") else []
            values += _points_near_and_far(constants)
            values += self._list_members(around)
        if any(isinstance(atom.node, tree.Name) for atom in around):
            values += [True, False]
        if scope == "clock":
            values = [_BEGIN_S + hour * _HOUR_S for hour in (*range(24), *range(36, 180, 24))]
            values += [value for value in constants if _is_number(value) and value > 1e6]
        if scope == "state":
            values = [value for value in values if value is None or (_is_number(value) and value >= 0)]
        matching = [value for value in values if _is_of_kind(value, kind)]
        if all(value is None for value in matching):
            matching += self._plausible_values(scope, path, kind)
        return list({(type(value).__name__, repr(value)): value for value in matching}.values())

    def _plausible_values(self, scope: str, path: tuple[str, ...], kind: str | None) -> list[Value]:
        """Return values for a name that no condition reads: present, and positive if numbers."""
        if scope == "clock":
            return [_BEGIN_S]
        if scope == "state":
            return list(_PLAUSIBLE.get(path[0], _NUMBERS))
        if kind in ("string", "bytes", "boolean", "point", "struct"):
            return [self._build_message(_LENGTHS[0])[path[0]]]
        if any(isinstance(atom.node, tree.Name) and (scope, path) in atom.names() for atom in self.computed):
            return [60.0, "x" * _LENGTHS[0]]
        return list(_NUMBERS)

    def _list_members(self, around: Sequence[Atom]) -> list[Value]:
        """Return members of the lists in which these atoms look up."""
        members: list[Value] = []
        for table in sorted({table for atom in around for table in atom.tables()}):
            for state in self.states:
                values = state.get(table)
                if isinstance(values, list):
                    members += [item for item in values[:3] if isinstance(item, int | float | str)]
        return members


def _value_at(context: Context, name: Name) -> Value:
    """Return the value of a name in a context; None if it is absent."""
    scope, path = name
    value: Value = {
        "message": context.message,
        "state": context.automatic,
        "clock": {"now_s": context.now_s},
    }[scope]
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _set_field(message: dict[str, Value], path: tuple[str, ...], value: Value) -> None:
    """Set a field of a message; None removes it."""
    for part in path[:-1]:
        known = message.get(part)
        inner = dict(known) if isinstance(known, Mapping) else {}
        message[part] = inner
        message = inner
    message.pop(path[-1], None)
    if value is not None:
        message[path[-1]] = value


def _battery_levels(conditions: Sequence[Atom], computed: Sequence[Atom], variables: Fields) -> list[float]:
    """Return the critical battery levels, per cent; every integer if a condition computes with the level."""
    in_conditions = [atom for atom in conditions if BATTERY in atom.names()]
    in_actions = [atom for atom in computed if BATTERY in atom.names()]
    levels = {0.0, 50.0, 100.0}
    numbers = {float(value) for atom in in_actions for value in atom.constant_values() if _is_number(value)}
    if not all(atom.is_simple for atom in in_conditions):
        numbers |= {float(value) for value in variables.values() if _is_number(value)}
        levels |= {float(level) for level in range(101)}
    if in_actions:
        levels |= {10.0 * tenth for tenth in range(11)}
    levels |= {number for number in numbers if 0.0 <= number <= 100.0}
    for value in {
        float(value) for atom in in_conditions for value in atom.constant_values() if _is_number(value)
    }:
        levels |= {value, value - 0.1, value + 0.1, value - 1.0, value + 1.0}
    return sorted({round(level, 6) for level in levels})


def _is_of_kind(value: Value, kind: str | None) -> bool:
    """Return whether a value fits a declared kind of field; None always does."""
    if value is None or kind in (None, "struct"):
        return True
    if kind == "number":
        return _is_number(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, Mapping) if kind == "point" else isinstance(value, str)


def _is_number(value: Value) -> TypeGuard[float]:
    """Return whether a value is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _points_near_and_far(constants: Sequence[Value]) -> list[Value]:
    """Return places near to, and far from, the constant places of a condition."""
    places = [(value.lat, value.lon) for value in constants if isinstance(value, Point)]
    numbers = [value for value in constants if _is_number(value)]
    places += [
        (lat, lon) for lat, lon in itertools.pairwise(numbers) if abs(lat) <= 90.0 and abs(lon) <= 180.0
    ]
    far = [(-lat, lon - math.copysign(180.0, lon)) for lat, lon in places]
    return [{"lat": float(lat), "lon": float(lon)} for lat, lon in (*places, *far)]
