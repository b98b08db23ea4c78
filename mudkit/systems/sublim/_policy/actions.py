"""Actions of a rule: executed in order, until one of them drops the message.

===========  =========================================================================================
drop         do not send the message
keep         send only these fields
set          set a field
compress     reduce a field, see :func:`~mudkit.systems.sublim.compress`
resize       reduce a field to a number of pixels, see :func:`~mudkit.systems.sublim.resize`
remember     set a manual variable
forget       remove a manual variable
every        send at most one message per interval; drop the others
summary      send count, minimum, maximum and mean of fields over a window, with the first message after it
call         call a registered method
===========  =========================================================================================

Values are numbers, booleans, lists, or expressions of the predicate language as text (``"message.pulse"``,
``"'a text'"``).

``every`` and ``summary`` keep books per value of an expression, in a manual variable: by default one of their
own, which no other action and no expression can name. Their time is that of publication, so the result does
not depend on which access point decides, or when.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Final, TypeAlias, TypeGuard

from mudkit.checks import is_storable
from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.predicates.expressions import Expression
from mudkit.systems.sublim._policy.function import Watched
from mudkit.systems.sublim._policy.message import compress, method_of, resize, thaw, thaw_fields
from mudkit.systems.sublim._policy.state import State, Tables, check_bytes
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

MAX_KEYS: Final = 1_000
"""Keys in the books of a rate limit or a summary; beyond, the oldest is deleted."""
MAX_BOOKS_BYTES: Final = 131_072
"""All books of a policy as JSON: beyond, they delete their oldest keys, but stop no message."""

NUMBER: Final = (int, float)
KEY_LETTERS: Final = 40
"""Maximum length of a key in books; a longer or non-ASCII value is replaced by its hash."""


class Execution:
    """State of a message during the actions of a rule."""

    __slots__ = ("clock", "hold_reason", "message", "out", "room_bytes", "state", "tables")

    def __init__(
        self,
        message: Fields,
        state: State,
        clock: Fields,
        tables: Tables,
        room_bytes: int = MAX_BOOKS_BYTES,
    ) -> None:
        self.message = message
        self.out: dict[str, Value] = dict(message)
        self.state = state
        self.clock = clock
        self.tables = tables
        self.hold_reason: str | None = None
        """Reason a rate limit or a window drops it."""
        self.room_bytes = room_bytes
        """Capacity of the books of one rate limit or summary."""


Step: TypeAlias = Callable[[Execution], bool]
"""Executes one action; False: the message is dropped."""


def value_of(given: Value, language: Language) -> Callable[[Execution], Value]:
    """Compile a constant or an expression."""
    if not isinstance(given, str):
        return lambda execution: given
    expression = Expression(given, language=language)
    evaluate, constants = expression.evaluate, expression.constants
    return lambda execution: evaluate(
        constants, execution.tables, execution.message, execution.state.all, execution.clock
    )


def key_of(per: str | None, language: Language) -> Callable[[Execution], str]:
    """Compile the key under which a message is counted: short, and distinct per value of the expression."""
    if per is None:
        return lambda execution: "all"
    if not isinstance(per, str):
        raise PolicyError(
            "The key of a limit must be an expression.", found=brief(per), expected="'message.patient'"
        )
    value = value_of(per, language)

    def key(execution: Execution) -> str:
        written = repr(value(execution))
        if len(written) <= KEY_LETTERS and written.isascii():
            return written
        return f"#{hashlib.blake2b(written.encode(), digest_size=16).hexdigest()}"

    return key


def check_name(what: str, given: Value) -> str:
    """Raise PolicyError unless a value is an identifier."""
    if not isinstance(given, str) or not given.isidentifier():
        raise PolicyError(f"{what} takes a name.", found=brief(given), expected="letters, digits, _")
    return given


def check_names(what: str, given: Value) -> tuple[str, ...]:
    """Return a list of identifiers as a tuple, or raise PolicyError."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise PolicyError(f"{what} takes a list of names.", found=brief(given), expected="[patient, pulse]")
    return tuple(check_name(what, name) for name in given)


def check_values(what: str, given: Value) -> None:
    """Raise PolicyError unless a value is a mapping of names to values that an action can set."""
    if not isinstance(given, Mapping) or not given:
        raise PolicyError(f"{what} takes values by name.", found=brief(given), expected="{name: value}")
    for name, value in given.items():
        check_name(what, name)
        if isinstance(value, Mapping) or not is_storable(thaw(value)):
            raise PolicyError(
                f"{what} cannot give {name} this value.",
                found=brief(value),
                expected="a finite number, a truth value, a list, or an expression as text",
            )


def check_seconds(given: Value) -> None:
    """Raise PolicyError unless a value is a positive duration."""
    if isinstance(given, bool) or not isinstance(given, NUMBER) or not 0 < given < 1e9:
        raise PolicyError("Expected a duration.", found=brief(given), expected="seconds, over 0")


def check_at_least(what: str, given: Value, minimum: float) -> None:
    """Raise PolicyError for a number below a minimum; an expression is evaluated later."""
    if isinstance(given, str):
        return
    if isinstance(given, bool) or not isinstance(given, NUMBER) or not minimum <= given < 1e9:
        raise PolicyError(
            f"Invalid {what}.", found=brief(given), expected=f"at least {minimum:g}, or an expression"
        )


_ENTRY_BYTES: Final = 2 * KEY_LETTERS + 45
"""Upper bound of a key and a time in books as JSON; each character of a key may be escaped."""
_SUMMED_BYTES: Final = 110
"""Upper bound of the four numbers of a window and their punctuation."""


@dataclass(frozen=True)
class Every:
    """Send at most one message per interval and value of ``per``; rules with the same variable share it."""

    seconds: float
    per: str | None = None
    variable: str | None = None
    NAME: ClassVar = "every"

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if self.variable is not None:
            check_name("variable", self.variable)

    def compile(self, language: Language, variable: str) -> Step:
        keyed, seconds = key_of(self.per, language), self.seconds

        def step(execution: Execution) -> bool:
            state, key = execution.state, keyed(execution)
            sent, now_s = _books(state, variable), state.now_s
            last_s = sent.get(key)
            if isinstance(last_s, NUMBER) and now_s - last_s < seconds:
                execution.hold_reason = (
                    f"the last of {key} was sent {now_s - last_s:g} s ago, less than {seconds:g}"
                )
                return False
            kept = dict(sent)
            kept.pop(key, None)
            over = itertools.takewhile(lambda entry: not _is_within(now_s, entry[1], seconds), kept.items())
            for other, _ in list(over):  # the oldest come first
                del kept[other]
            kept[key] = now_s
            state.set_action_variable(variable, _newest(kept, execution.room_bytes, _ENTRY_BYTES))
            return True

        return step


@dataclass(frozen=True)
class Summary:
    """Send ``{count, min, max, mean}`` of each field ``of`` over a window, for each value of ``per``.

    The first message after the end of the window carries the summary, and starts the next window. Rules that
    name the same variable share its windows.
    """

    seconds: float
    of: tuple[str, ...]
    per: str | None = None
    variable: str | None = None
    NAME: ClassVar = "summary"

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if self.variable is not None:
            check_name("variable", self.variable)
        object.__setattr__(self, "of", check_names("of", self.of))

    def compile(self, language: Language, variable: str) -> Step:
        keyed, seconds, of = key_of(self.per, language), self.seconds, self.of
        entry_bytes = _ENTRY_BYTES + sum(len(name) + _SUMMED_BYTES for name in of)

        def step(execution: Execution) -> bool:
            state, key = execution.state, keyed(execution)
            windows, now_s = dict(_books(state, variable)), state.now_s
            window = _window(windows.pop(key, None))
            is_over = window is not None and now_s - window[0] >= seconds
            since_s, before = (now_s, {}) if is_over or window is None else window
            updated: dict[str, Value] = {"since_s": since_s}
            for name in of:
                updated[name] = _add(before.get(name), execution.message.get(name))
            windows[key] = updated
            state.set_action_variable(variable, _newest(windows, execution.room_bytes, entry_bytes))
            if window is None or not is_over:
                execution.hold_reason = (
                    f"the window of {key} began {now_s - since_s:g} s ago, less than {seconds:g}"
                )
                return False
            execution.out.update({name: _sum(window[1].get(name)) for name in of})
            return True

        return step


def _books(state: State, variable: str) -> Fields:
    """Return the books in a variable; empty if the policy itself has stored another value there."""
    books = state.variables.get(variable)
    return books if isinstance(books, Mapping) else {}


def _window(value: Value) -> tuple[float, Fields] | None:
    """Return start and sums of a window; None if the policy itself has stored another value there."""
    since_s = value.get("since_s") if isinstance(value, Mapping) else None
    return (since_s, value) if isinstance(value, Mapping) and isinstance(since_s, NUMBER) else None


def _is_within(now_s: float, at_s: Value, seconds: float) -> bool:
    return isinstance(at_s, NUMBER) and now_s - at_s < seconds


def _newest(kept: dict[str, Value], room_bytes: int, entry_bytes: int) -> dict[str, Value]:
    most = max(min(MAX_KEYS, room_bytes // entry_bytes), 1)
    return kept if len(kept) <= most else dict(list(kept.items())[-most:])


def _add(earlier: Value, value: Value) -> list[float] | None:
    """Add a value to ``[count, min, max, sum]``; ignore one that is not a number."""
    if not isinstance(value, NUMBER) or isinstance(value, bool) or not abs(value) < 1e300:
        return earlier if _is_summed(earlier) else None
    if not _is_summed(earlier):
        return [1, value, value, value]
    count, minimum, maximum, total = earlier
    return [count + 1, min(minimum, value), max(maximum, value), total + value]


def _is_summed(kept: Value) -> TypeGuard[list[float]]:
    return isinstance(kept, list) and len(kept) == 4 and all(isinstance(number, NUMBER) for number in kept)


def _sum(kept: Value) -> dict[str, Value]:
    if not _is_summed(kept):
        return {"count": 0, "min": None, "max": None, "mean": None}
    count, minimum, maximum, total = kept
    return {"count": count, "min": minimum, "max": maximum, "mean": total / count}


def _values_of(given: Fields, language: Language) -> Callable[[Execution], dict[str, Value]]:
    """Compile values by name."""
    values = [(name, value_of(value, language)) for name, value in given.items()]
    return lambda execution: {name: value(execution) for name, value in values}


def _reduction(
    reduce: Callable[[dict[str, Value], str, Value], object], field: str, amount: Callable[[Execution], Value]
) -> Step:
    def step(execution: Execution) -> bool:
        reduce(execution.out, field, amount(execution))
        return True

    return step


@dataclass(frozen=True)
class Drop:
    """Do not send the message."""

    NAME: ClassVar = "drop"

    def compile(self, language: Language) -> Step:
        return lambda execution: False


@dataclass(frozen=True)
class Keep:
    """Send only these fields."""

    fields: tuple[str, ...]
    NAME: ClassVar = "keep"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", check_names("keep", self.fields))

    def compile(self, language: Language) -> Step:
        kept = self.fields

        def step(execution: Execution) -> bool:
            out = execution.out
            execution.out = {name: out[name] for name in kept if name in out}
            return True

        return step


@dataclass(frozen=True)
class SetField:
    """Set fields of the message."""

    values: Fields
    NAME: ClassVar = "set"

    def __post_init__(self) -> None:
        check_values("set", self.values)

    def compile(self, language: Language) -> Step:
        values = _values_of(self.values, language)

        def step(execution: Execution) -> bool:
            execution.out.update(values(execution))
            return True

        return step


@dataclass(frozen=True)
class Compress:
    """Compress a field by a ratio, a number or an expression."""

    field: str
    ratio: float | str
    NAME: ClassVar = "compress"

    def __post_init__(self) -> None:
        check_name("compress", self.field)
        check_at_least("ratio", self.ratio, 1.0)

    def compile(self, language: Language) -> Step:
        return _reduction(compress, self.field, value_of(self.ratio, language))


@dataclass(frozen=True)
class Resize:
    """Reduce a field to a number of pixels, a number or an expression; by default the display's width."""

    field: str
    pixels: float | str = "state.display_px"
    NAME: ClassVar = "resize"

    def __post_init__(self) -> None:
        check_name("resize", self.field)
        check_at_least("pixels", self.pixels, 1.0)

    def compile(self, language: Language) -> Step:
        return _reduction(resize, self.field, value_of(self.pixels, language))


@dataclass(frozen=True)
class Remember:
    """Set manual variables; setting an automatic one has no effect."""

    values: Fields
    NAME: ClassVar = "remember"

    def __post_init__(self) -> None:
        check_values("remember", self.values)

    def compile(self, language: Language) -> Step:
        values = _values_of(self.values, language)

        def step(execution: Execution) -> bool:
            for name, value in values(execution).items():
                execution.state.set_property(name, value)
            return True

        return step


@dataclass(frozen=True)
class Forget:
    """Remove manual variables; removing an automatic one has no effect."""

    names: tuple[str, ...]
    NAME: ClassVar = "forget"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", check_names("forget", self.names))

    def compile(self, language: Language) -> Step:
        def step(execution: Execution) -> bool:
            for name in self.names:
                execution.state.remove_property(name)
            return True

        return step


@dataclass(frozen=True)
class Call:
    """Call a method registered by :func:`~mudkit.systems.sublim.method`."""

    name: str
    NAME: ClassVar = "call"

    def __post_init__(self) -> None:
        method_of(self.name)

    def compile(self, language: Language) -> Step:
        called = method_of(self.name)

        def step(execution: Execution) -> bool:
            with Watched():
                result = called(thaw_fields(execution.out), thaw_fields(execution.state.all))
            if result is None:
                return False
            execution.out = thaw_fields(result)
            check_bytes(execution.out, "the message")
            return True

        return step


Action: TypeAlias = Drop | Keep | SetField | Compress | Resize | Remember | Forget | Every | Summary | Call

ACTIONS: Final[dict[str, Callable[..., Action]]] = {
    kind.NAME: kind
    for kind in (Drop, Keep, SetField, Compress, Resize, Remember, Forget, Every, Summary, Call)
}
"""Action types by their names in YAML."""
_PLAIN: Final = {"keep": "fields", "set": "values", "remember": "values", "forget": "names", "call": "name"}
"""Actions of one parameter, which YAML writes without its name."""


def action_of(name: str, given: Value) -> Action:
    """Return the action of a name and the value after it in YAML."""
    if name not in ACTIONS:
        raise PolicyError("Unknown action.", found=brief(name), expected=", ".join(ACTIONS))
    kind = ACTIONS[name]
    if name == "drop":
        if given is not None:
            raise PolicyError("drop takes nothing.", found=brief(given), expected="drop alone")
        return Drop()
    if name in _PLAIN:
        return kind(given)
    known = list(signature(kind).parameters)
    if not isinstance(given, Mapping):
        raise PolicyError(
            f"{name} takes parameters by name.", found=brief(given), expected=f"{{{', '.join(known)}}}"
        )
    if unknown := [parameter for parameter in given if parameter not in known]:
        raise PolicyError(
            f"{name} has no parameter {unknown[0]!r}.", found=brief(unknown[0]), expected=", ".join(known)
        )
    try:
        return kind(**given)
    except TypeError:
        raise PolicyError(
            f"A parameter of {name} is missing.",
            found=", ".join(map(str, given)) or "none",
            expected=", ".join(known),
        ) from None


def describe(action: Action) -> Value:
    """Return an action as :func:`action_of` reads it, as JSON."""
    if isinstance(action, Drop):
        return "drop"
    if action.NAME in _PLAIN:
        return {action.NAME: thaw(getattr(action, _PLAIN[action.NAME]))}
    fields = {name: thaw(getattr(action, name)) for name in action.__dataclass_fields__ if name != "NAME"}
    return {action.NAME: {name: value for name, value in fields.items() if value is not None}}
