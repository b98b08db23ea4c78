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

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Final, TypeAlias, TypeGuard

from mudkit.checks import is_storable
from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.systems.sublim._policy.execution import KEY_LETTERS, Execution, Step, compile_key, compile_value
from mudkit.systems.sublim._policy.function import RunLimit
from mudkit.systems.sublim._policy.message import compress, find_method, resize, thaw, thaw_fields
from mudkit.systems.sublim._policy.state import State, check_bytes
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

MAX_KEYS: Final = 1_000
"""Keys in the books of a rate limit or a summary; beyond, the oldest is deleted."""

NUMBER: Final = (int, float)


def check_name(what: str, given: Value) -> str:
    """Return an identifier unchanged; raise PolicyError for any other value."""
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
    """Raise PolicyError for a number below ``minimum``; an expression is evaluated later."""
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
        """Return the step that drops a message within the interval; ``variable`` holds its books."""
        keyed, seconds = compile_key(self.per, language), self.seconds

        def step(execution: Execution) -> bool:
            """Drop the message if one with this key was sent within the interval; else note its time."""
            state, key = execution.state, keyed(execution)
            sent, now_s = _read_books(state, variable), state.now_s
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
            state.set_action_variable(variable, _keep_newest(kept, execution.room_bytes, _ENTRY_BYTES))
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
        """Return the step that adds messages to a window; ``variable`` holds its books."""
        keyed, seconds, of = compile_key(self.per, language), self.seconds, self.of
        entry_bytes = _ENTRY_BYTES + sum(len(name) + _SUMMED_BYTES for name in of)

        def step(execution: Execution) -> bool:
            """Add the message to the window of its key; drop it unless the window before is over."""
            state, key = execution.state, keyed(execution)
            windows, now_s = dict(_read_books(state, variable)), state.now_s
            window = _read_window(windows.pop(key, None))
            is_over = window is not None and now_s - window[0] >= seconds
            since_s, before = (now_s, {}) if is_over or window is None else window
            updated: dict[str, Value] = {"since_s": since_s}
            for name in of:
                updated[name] = _add_to_summary(before.get(name), execution.message.get(name))
            windows[key] = updated
            state.set_action_variable(variable, _keep_newest(windows, execution.room_bytes, entry_bytes))
            if window is None or not is_over:
                execution.hold_reason = (
                    f"the window of {key} began {now_s - since_s:g} s ago, less than {seconds:g}"
                )
                return False
            execution.out.update({name: _summarise(window[1].get(name)) for name in of})
            return True

        return step


def _read_books(state: State, variable: str) -> Fields:
    """Return the books in a variable; empty if the policy itself has stored another value there."""
    books = state.variables.get(variable)
    return books if isinstance(books, Mapping) else {}


def _read_window(value: Value) -> tuple[float, Fields] | None:
    """Return start and sums of a window; None if the policy itself has stored another value there."""
    since_s = value.get("since_s") if isinstance(value, Mapping) else None
    return (since_s, value) if isinstance(value, Mapping) and isinstance(since_s, NUMBER) else None


def _is_within(now_s: float, at_s: Value, seconds: float) -> bool:
    """Return whether a time in books is less than an interval ago."""
    return isinstance(at_s, NUMBER) and now_s - at_s < seconds


def _keep_newest(kept: dict[str, Value], room_bytes: int, entry_bytes: int) -> dict[str, Value]:
    """Return the newest entries of books that fit into their room, at most MAX_KEYS."""
    most = max(min(MAX_KEYS, room_bytes // entry_bytes), 1)
    return kept if len(kept) <= most else dict(list(kept.items())[-most:])


def _add_to_summary(earlier: Value, value: Value) -> list[float] | None:
    """Return ``[count, min, max, sum]`` with a value added; None: there is no number yet.

    A value that is not a number changes nothing.
    """
    if not isinstance(value, NUMBER) or isinstance(value, bool) or not abs(value) < 1e300:
        return earlier if _is_summed(earlier) else None
    if not _is_summed(earlier):
        return [1, value, value, value]
    count, minimum, maximum, total = earlier
    return [count + 1, min(minimum, value), max(maximum, value), total + value]


def _is_summed(kept: Value) -> TypeGuard[list[float]]:
    """Return whether a value in books is ``[count, min, max, sum]``; a policy may have stored another."""
    return isinstance(kept, list) and len(kept) == 4 and all(isinstance(number, NUMBER) for number in kept)


def _summarise(kept: Value) -> dict[str, Value]:
    """Return the summary of a field that a message carries; of no values, count 0 and None."""
    if not _is_summed(kept):
        return {"count": 0, "min": None, "max": None, "mean": None}
    count, minimum, maximum, total = kept
    return {"count": count, "min": minimum, "max": maximum, "mean": total / count}


def _compile_values(given: Fields, language: Language) -> Callable[[Execution], dict[str, Value]]:
    """Return a function that evaluates named values of an action: constants and expressions."""
    values = [(name, compile_value(value, language)) for name, value in given.items()]
    return lambda execution: {name: value(execution) for name, value in values}


def _compile_reduction(
    reduce: Callable[[dict[str, Value], str, Value], object], field: str, amount: Callable[[Execution], Value]
) -> Step:
    """Return the step that reduces a field (compress, resize) by an amount that each message determines."""

    def step(execution: Execution) -> bool:
        """Reduce the field of the message to be sent."""
        reduce(execution.out, field, amount(execution))
        return True

    return step


@dataclass(frozen=True)
class Drop:
    """Do not send the message."""

    NAME: ClassVar = "drop"

    def compile(self, language: Language) -> Step:
        """Return the step that drops each message."""
        return lambda execution: False


@dataclass(frozen=True)
class Keep:
    """Send only these fields."""

    fields: tuple[str, ...]
    NAME: ClassVar = "keep"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", check_names("keep", self.fields))

    def compile(self, language: Language) -> Step:
        """Return the step that removes all other fields."""
        kept = self.fields

        def step(execution: Execution) -> bool:
            """Remove the fields that are not kept from the message to be sent."""
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
        """Return the step that sets the fields."""
        values = _compile_values(self.values, language)

        def step(execution: Execution) -> bool:
            """Set the fields of the message to be sent."""
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
        """Return the step that compresses the field."""
        return _compile_reduction(compress, self.field, compile_value(self.ratio, language))


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
        """Return the step that resizes the field."""
        return _compile_reduction(resize, self.field, compile_value(self.pixels, language))


@dataclass(frozen=True)
class Remember:
    """Set manual variables; setting an automatic one has no effect."""

    values: Fields
    NAME: ClassVar = "remember"

    def __post_init__(self) -> None:
        check_values("remember", self.values)

    def compile(self, language: Language) -> Step:
        """Return the step that sets the variables."""
        values = _compile_values(self.values, language)

        def step(execution: Execution) -> bool:
            """Set the manual variables of the subscriber."""
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
        """Return the step that removes the variables."""

        def step(execution: Execution) -> bool:
            """Remove the manual variables of the subscriber."""
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
        find_method(self.name)

    def compile(self, language: Language) -> Step:
        """Return the step that calls the method, with a limit on its run time."""
        called = find_method(self.name)

        def step(execution: Execution) -> bool:
            """Replace the message to be sent by what the method returns; None drops it."""
            with RunLimit():
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


def build_action(name: str, given: Value) -> Action:
    """Return the action with a name of :data:`ACTIONS`, from the value that follows the name in YAML."""
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
    """Return an action as JSON, from which :func:`build_action` builds it again."""
    if isinstance(action, Drop):
        return "drop"
    if action.NAME in _PLAIN:
        return {action.NAME: thaw(getattr(action, _PLAIN[action.NAME]))}
    fields = {name: thaw(getattr(action, name)) for name in action.__dataclass_fields__ if name != "NAME"}
    return {action.NAME: {name: value for name, value in fields.items() if value is not None}}
