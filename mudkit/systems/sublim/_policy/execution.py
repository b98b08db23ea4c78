"""A message on its way through the actions of a rule, and what actions are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.predicates.expression import Expression
from mudkit.systems.arguments import is_storable
from mudkit.systems.sublim._policy.limits import MAX_BOOKS_BYTES
from mudkit.systems.sublim._policy.message import thawed
from mudkit.systems.sublim._policy.problems import PolicyError
from mudkit.systems.sublim._policy.state import State, Tables
from mudkit.wire import Fields, Value

__all__ = [
    "KEY_LETTERS",
    "NUMBER",
    "Doing",
    "Step",
    "check_at_least",
    "check_name",
    "check_seconds",
    "check_values",
    "checked_names",
    "key_of",
    "value_of",
]

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
