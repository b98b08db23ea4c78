"""Execution of a rule's actions on a message, and the expressions in them, compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, TypeAlias

from mudkit.errors import brief
from mudkit.predicates import Language
from mudkit.predicates.expressions import Expression
from mudkit.systems.sublim._policy.state import State, Tables
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

MAX_BOOKS_BYTES: Final = 131_072
"""All books of a policy as JSON: beyond, they delete their oldest keys, but stop no message."""
KEY_LETTERS: Final = 40
"""Maximum length of a key in books; a longer or non-ASCII value is replaced by its hash."""


class Execution:
    """Message and state on which the actions of the rule that fires work.

    Expressions read ``message`` as it was published; actions change ``out``, which is sent, and ``state``.
    """

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


def compile_value(given: Value, language: Language) -> Callable[[Execution], Value]:
    """Return a function that evaluates a value of an action: a constant, or an expression if it is a text."""
    if not isinstance(given, str):
        return lambda execution: given
    expression = Expression(given, language=language)
    evaluate, constants = expression.evaluate, expression.constants
    return lambda execution: evaluate(
        constants, execution.tables, execution.message, execution.state.all, execution.clock
    )


def compile_key(per: str | None, language: Language) -> Callable[[Execution], str]:
    """Return a function that returns the key of a message in books: short, distinct per value of ``per``."""
    if per is None:
        return lambda execution: "all"
    if not isinstance(per, str):
        raise PolicyError(
            "The key of a limit must be an expression.", found=brief(per), expected="'message.patient'"
        )
    value = compile_value(per, language)

    def key(execution: Execution) -> str:
        """Return the value as text; its hash if it is too long to be a key."""
        written = repr(value(execution))
        if len(written) <= KEY_LETTERS and written.isascii():
            return written
        return f"#{hashlib.blake2b(written.encode(), digest_size=16).hexdigest()}"

    return key
