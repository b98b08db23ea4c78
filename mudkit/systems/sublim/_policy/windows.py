"""Actions over time: at most one message in so many seconds, and the summary of a window.

Both keep books in a manual variable, by the value of an expression: by default in one of their own, which no
other action and no expression can name. Time is that of publication, so it does not matter which access point
decides, or when.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeGuard

from mudkit.predicates import Language
from mudkit.systems.sublim._policy.execution import (
    KEY_LETTERS,
    NUMBER,
    Doing,
    Step,
    check_name,
    check_seconds,
    checked_names,
    key_of,
)
from mudkit.systems.sublim._policy.limits import MAX_KEYS
from mudkit.systems.sublim._policy.state import State
from mudkit.wire import Fields, Value

__all__ = ["Every", "Summary"]

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
