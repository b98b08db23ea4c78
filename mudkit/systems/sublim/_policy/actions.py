"""What a rule does with a message: actions, one after the other, until one of them drops it.

===========  =========================================================================================
drop         the message is not sent
keep         only these fields are sent
set          a field gets a value
compress     a field becomes smaller, see :func:`~mudkit.systems.sublim._policy.message.compress`
resize       a field becomes no longer than a number of pixels
remember     a manual variable gets a value
forget       a manual variable is removed
every        at most one message in so many seconds; the others are dropped
summary      count, least, greatest and mean of fields over a window of so many seconds, sent with the
             first message after it
call         a method that was registered
===========  =========================================================================================

Values are numbers, truth values, lists, or expressions of the one language as text (``"message.pulse"``,
``"'a text'"``).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Final, TypeAlias, TypeGuard

from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.predicates.expression import Expression
from mudkit.systems.arguments import is_storable
from mudkit.systems.sublim._policy.function import Watched
from mudkit.systems.sublim._policy.message import compress, method_of, resize, thawed, thawed_fields
from mudkit.systems.sublim._policy.state import State, Tables, checked_bytes
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

__all__ = [
    "ACTIONS",
    "KEY_LETTERS",
    "MAX_BOOKS_BYTES",
    "MAX_KEYS",
    "NUMBER",
    "Action",
    "Call",
    "Compress",
    "Doing",
    "Drop",
    "Every",
    "Forget",
    "Keep",
    "Remember",
    "Resize",
    "SetField",
    "Step",
    "Summary",
    "action_of",
    "check_at_least",
    "check_name",
    "check_seconds",
    "check_values",
    "checked_names",
    "described",
    "key_of",
    "value_of",
]

MAX_KEYS: Final = 1_000
"""For so many values of ``per`` a rate limit or a summary keeps books; beyond, it forgets the oldest."""
MAX_BOOKS_BYTES: Final = 131_072
"""Of all books of a policy, as JSON: they forget their oldest keys, and stop no message for want of room."""

NUMBER: Final = (int, float)
KEY_LETTERS: Final = 40
"""Of a key of books at most; a longer value, or one that JSON writes longer, is told by its hash."""


class Doing:
    """A message on its way through the actions of a rule.

    Parameters
    ----------
    message : mapping
        As it was published.
    state : State
    """

    __slots__ = ("clock", "held", "message", "out", "room_bytes", "state", "tables")

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
        self.held: str | None = None
        """Why it is dropped for coming too soon."""
        self.room_bytes = room_bytes
        """Of the books of one rate limit or summary."""


Step: TypeAlias = Callable[[Doing], bool]
"""Does one action; false: the message is dropped."""


def value_of(given: Value, language: Language) -> Callable[[Doing], Value]:
    """Make what gives a value: a constant as it is, an expression as it is computed."""
    if not isinstance(given, str):
        return lambda doing: given
    expression = Expression(given, language=language)
    evaluate, constants = expression.evaluate, expression.constants
    return lambda doing: evaluate(constants, doing.tables, doing.message, doing.state.all, doing.clock)


def key_of(per: str | None, language: Language) -> Callable[[Doing], str]:
    """Make what gives the key under which a message is counted: short, and another one for each value."""
    if per is None:
        return lambda doing: "all"
    if not isinstance(per, str):
        raise PolicyError(
            "What a limit is per is an expression.", found=brief(per), expected="'message.patient'"
        )
    value = value_of(per, language)

    def key(doing: Doing) -> str:
        written = repr(value(doing))
        if len(written) <= KEY_LETTERS and written.isascii():
            return written
        return f"#{hashlib.blake2b(written.encode(), digest_size=16).hexdigest()}"

    return key


def check_name(what: str, given: Value) -> str:
    """Refuse what is no name."""
    if not isinstance(given, str) or not given.isidentifier():
        raise PolicyError(f"{what} takes a name.", found=brief(given), expected="letters, digits, _")
    return given


def checked_names(what: str, given: Value) -> tuple[str, ...]:
    """Refuse what is no list of names."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise PolicyError(f"{what} takes a list of names.", found=brief(given), expected="[patient, pulse]")
    return tuple(check_name(what, each) for each in given)


def check_values(what: str, given: Value) -> None:
    """Refuse what are no values by name."""
    if not isinstance(given, Mapping) or not given:
        raise PolicyError(f"{what} takes values by name.", found=brief(given), expected="{name: value}")
    for name, value in given.items():
        check_name(what, name)
        if isinstance(value, Mapping) or not is_storable(thawed(value)):
            raise PolicyError(
                f"{what} cannot give {name} this value.",
                found=brief(value),
                expected="a finite number, a truth value, a list, or an expression as text",
            )


def check_seconds(given: Value) -> None:
    """Refuse what is no length of time."""
    if isinstance(given, bool) or not isinstance(given, NUMBER) or not 0 < given < 1e9:
        raise PolicyError("This is no length of time.", found=brief(given), expected="seconds, over 0")


def check_at_least(what: str, given: Value, least: float) -> None:
    """Refuse a number below the least; an expression is computed later."""
    if isinstance(given, str):
        return
    if isinstance(given, bool) or not isinstance(given, NUMBER) or not least <= given < 1e9:
        raise PolicyError(
            f"This is no {what}.", found=brief(given), expected=f"at least {least:g}, or an expression"
        )


_ENTRY_BYTES: Final = 2 * KEY_LETTERS + 45
"""Of a key and a time in books, as JSON, at most: each letter of a key may need another one before it."""
_SUMMED_BYTES: Final = 110
"""Of four numbers over a window, and what stands around them."""


@dataclass(frozen=True)
class Every:
    """Send at most one message in so many seconds, of each value of an expression.

    Parameters
    ----------
    seconds : float
        The least time between two that are sent, by the times of publication.
    per : str, optional
        An expression, for instance ``"message.patient"``; without, all messages share one limit.
    variable : str, optional
        The manual variable in which it keeps when the last was sent; by default one of its own. Rules that
        name the same variable share one limit, and have to agree on it.
    """

    seconds: float
    per: str | None = None
    variable: str | None = None
    NAME: ClassVar = "every"

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if self.variable is not None:
            check_name("variable", self.variable)

    def compiled(self, language: Language, variable: str) -> Step:
        """Build the step that keeps its books in a variable."""
        keyed, seconds = key_of(self.per, language), self.seconds

        def step(doing: Doing) -> bool:
            state, key = doing.state, keyed(doing)
            sent, now_s = _books(state, variable), state.now_s
            last_s = sent.get(key)
            if isinstance(last_s, NUMBER) and now_s - last_s < seconds:
                doing.held = f"the last of {key} was sent {now_s - last_s:g} s ago, less than {seconds:g}"
                return False
            kept = dict(sent)
            kept.pop(key, None)
            over = itertools.takewhile(lambda each: not _is_within(now_s, each[1], seconds), kept.items())
            for other, _ in list(over):  # the oldest come first: nobody need look at all of them
                del kept[other]
            kept[key] = now_s
            state.set_books(variable, _newest(kept, doing.room_bytes, _ENTRY_BYTES))
            return True

        return step


@dataclass(frozen=True)
class Summary:
    """Send a summary of a window in the place of its messages.

    Nothing happens by itself: the summary goes out with the first message that comes when the window is over,
    and this message begins the next window.

    Parameters
    ----------
    seconds : float
        Length of a window, by the times of publication.
    of : tuple of str
        Fields with numbers: each becomes ``{count, min, max, mean}`` over the window.
    per : str, optional
        An expression, for instance ``"message.patient"``: a window each.
    variable : str, optional
        The manual variable in which it keeps the window so far; by default one of its own. Rules that name
        the same variable share one window, and have to agree on it.
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
        object.__setattr__(self, "of", checked_names("of", self.of))

    def compiled(self, language: Language, variable: str) -> Step:
        """Build the step that keeps its books in a variable."""
        keyed, seconds, of = key_of(self.per, language), self.seconds, self.of
        entry_bytes = _ENTRY_BYTES + sum(len(name) + _SUMMED_BYTES for name in of)

        def step(doing: Doing) -> bool:
            state, key = doing.state, keyed(doing)
            windows, now_s = dict(_books(state, variable)), state.now_s
            window = _window(windows.pop(key, None))
            is_over = window is not None and now_s - window[0] >= seconds
            since_s, before = (now_s, {}) if is_over or window is None else window
            seen: dict[str, Value] = {"since_s": since_s}
            for name in of:
                seen[name] = _added(before.get(name), doing.message.get(name))
            windows[key] = seen
            state.set_books(variable, _newest(windows, doing.room_bytes, entry_bytes))
            if window is None or not is_over:
                doing.held = f"the window of {key} began {now_s - since_s:g} s ago, less than {seconds:g}"
                return False
            doing.out.update({name: _summed(window[1].get(name)) for name in of})
            return True

        return step


def _books(state: State, variable: str) -> Fields:
    """Give what is kept by key; what the policy put there itself is no such thing."""
    books = state.variables.get(variable)
    return books if isinstance(books, Mapping) else {}


def _window(value: Value) -> tuple[float, Fields] | None:
    """Return when a window began, and its sums; None for what the policy put there itself."""
    since_s = value.get("since_s") if isinstance(value, Mapping) else None
    return (since_s, value) if isinstance(value, Mapping) and isinstance(since_s, NUMBER) else None


def _is_within(now_s: float, at_s: Value, seconds: float) -> bool:
    return isinstance(at_s, NUMBER) and now_s - at_s < seconds


def _newest(kept: dict[str, Value], room_bytes: int, entry_bytes: int) -> dict[str, Value]:
    most = max(min(MAX_KEYS, room_bytes // entry_bytes), 1)
    return kept if len(kept) <= most else dict(list(kept.items())[-most:])


def _added(earlier: Value, value: Value) -> list[float] | None:
    """Add a value to ``[count, least, greatest, sum]``; what is no number does not count."""
    if not isinstance(value, NUMBER) or isinstance(value, bool) or not abs(value) < 1e300:
        return earlier if _is_summed(earlier) else None
    if not _is_summed(earlier):
        return [1, value, value, value]
    count, least, greatest, total = earlier
    return [count + 1, min(least, value), max(greatest, value), total + value]


def _is_summed(kept: Value) -> TypeGuard[list[float]]:
    return isinstance(kept, list) and len(kept) == 4 and all(isinstance(each, NUMBER) for each in kept)


def _summed(kept: Value) -> dict[str, Value]:
    if not _is_summed(kept):
        return {"count": 0, "min": None, "max": None, "mean": None}
    count, least, greatest, total = kept
    return {"count": count, "min": least, "max": greatest, "mean": total / count}


@dataclass(frozen=True)
class Drop:
    """Do not send the message."""

    NAME: ClassVar = "drop"

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        return lambda doing: False


@dataclass(frozen=True)
class Keep:
    """Send only these fields.

    Parameters
    ----------
    fields : tuple of str
    """

    fields: tuple[str, ...]
    NAME: ClassVar = "keep"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", checked_names("keep", self.fields))

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        kept = self.fields

        def step(doing: Doing) -> bool:
            out = doing.out
            doing.out = {name: out[name] for name in kept if name in out}
            return True

        return step


@dataclass(frozen=True)
class SetField:
    """Give fields of the message values.

    Parameters
    ----------
    values : mapping of str to object
    """

    values: Fields
    NAME: ClassVar = "set"

    def __post_init__(self) -> None:
        check_values("set", self.values)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        made = [(name, value_of(each, language)) for name, each in self.values.items()]

        def step(doing: Doing) -> bool:
            doing.out.update({name: value(doing) for name, value in made})
            return True

        return step


@dataclass(frozen=True)
class Compress:
    """Make a field smaller.

    Parameters
    ----------
    field : str
    ratio : float or str
        How many times, or an expression for it.
    """

    field: str
    ratio: float | str
    NAME: ClassVar = "compress"

    def __post_init__(self) -> None:
        check_name("compress", self.field)
        check_at_least("ratio", self.ratio, 1.0)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        field, ratio = self.field, value_of(self.ratio, language)

        def step(doing: Doing) -> bool:
            compress(doing.out, field, ratio(doing))
            return True

        return step


@dataclass(frozen=True)
class Resize:
    """Make a field no longer than the display is wide.

    Parameters
    ----------
    field : str
    pixels : float or str
        An expression; by default what the device says of itself.
    """

    field: str
    pixels: float | str = "state.display_px"
    NAME: ClassVar = "resize"

    def __post_init__(self) -> None:
        check_name("resize", self.field)
        check_at_least("pixels", self.pixels, 1.0)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        field, pixels = self.field, value_of(self.pixels, language)

        def step(doing: Doing) -> bool:
            resize(doing.out, field, pixels(doing))
            return True

        return step


@dataclass(frozen=True)
class Remember:
    """Set manual variables; setting an automatic one does nothing.

    Parameters
    ----------
    values : mapping of str to object
    """

    values: Fields
    NAME: ClassVar = "remember"

    def __post_init__(self) -> None:
        check_values("remember", self.values)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        made = [(name, value_of(each, language)) for name, each in self.values.items()]

        def step(doing: Doing) -> bool:
            for name, value in [(name, value(doing)) for name, value in made]:
                doing.state.set_property(name, value)
            return True

        return step


@dataclass(frozen=True)
class Forget:
    """Remove manual variables; removing an automatic one does nothing.

    Parameters
    ----------
    names : tuple of str
    """

    names: tuple[str, ...]
    NAME: ClassVar = "forget"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names("forget", self.names))

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""

        def step(doing: Doing) -> bool:
            for name in self.names:
                doing.state.remove_property(name)
            return True

        return step


@dataclass(frozen=True)
class Call:
    """Call a method that was registered.

    Parameters
    ----------
    name : str
        As it was given to :func:`~mudkit.systems.sublim._policy.message.method`.
    """

    name: str
    NAME: ClassVar = "call"

    def __post_init__(self) -> None:
        method_of(self.name)

    def compiled(self, language: Language) -> Step:
        """Make the step that does it."""
        called = method_of(self.name)

        def step(doing: Doing) -> bool:
            with Watched():
                made = called(thawed_fields(doing.out), thawed_fields(doing.state.all))
            if made is None:
                return False
            doing.out = thawed_fields(made)
            checked_bytes(doing.out, "the message")
            return True

        return step


Action: TypeAlias = Drop | Keep | SetField | Compress | Resize | Remember | Forget | Every | Summary | Call

ACTIONS: Final[dict[str, Callable[..., Action]]] = {
    each.NAME: each
    for each in (Drop, Keep, SetField, Compress, Resize, Remember, Forget, Every, Summary, Call)
}
"""The actions of rules, by the names that they have in YAML."""
_PLAIN: Final = {"keep": "fields", "set": "values", "remember": "values", "forget": "names", "call": "name"}
"""Actions of one parameter are written without its name."""


def action_of(name: str, given: Value) -> Action:
    """Make an action of its name and what stands after it.

    Raises
    ------
    PolicyError
    """
    if name not in ACTIONS:
        raise PolicyError("There is no such action.", found=brief(name), expected=", ".join(ACTIONS))
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
    if unknown := [each for each in given if each not in known]:
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


def described(action: Action) -> Value:
    """Give an action as :func:`action_of` takes it, as JSON can hold it."""
    if isinstance(action, Drop):
        return "drop"
    if action.NAME in _PLAIN:
        return {action.NAME: thawed(getattr(action, _PLAIN[action.NAME]))}
    fields = {name: thawed(getattr(action, name)) for name in action.__dataclass_fields__ if name != "NAME"}
    return {action.NAME: {name: value for name, value in fields.items() if value is not None}}
