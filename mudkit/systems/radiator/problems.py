"""What has gone wrong with the programmer's functions: each problem once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mudkit.errors import MudkitError, PropagationProblem

__all__ = ["Problems", "failure", "text_of"]

_MOST: Final = 1000
_MAX_SHOWN: Final = 500
"""Letters of what a function has raised."""


def failure(what: str, error: Exception, *, where: str, expected: str, remedy: str) -> PropagationProblem:
    """Say that a function of the programmer's has failed.

    Parameters
    ----------
    what : str
        The function, with its name.
    error : Exception
        What it raised, or what is said of what it gave.
    where : str
        The client whose contexts it concerns.
    expected : str
        What the function was expected to give, if the error does not say it.
    remedy : str
        What becomes of it.
    """
    came: str | None = None
    if isinstance(error, MudkitError):
        summary, came, expected = error.summary, error.found, error.expected or expected
    else:
        summary = text_of(error)
    return PropagationProblem(
        f"{what} has failed: {summary}", where=where, found=came, expected=expected, remedy=remedy
    )


def text_of(error: Exception) -> str:
    """Give its kind and its text, in so far as it has one."""
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
    except Exception:  # that fails, too
        return type(error).__name__


class Problems:
    """Problems by function, sender and receiver; of many only the first, and how many there were."""

    def __init__(self) -> None:
        self._by_text: dict[str, PropagationProblem] = {}
        self._new: list[PropagationProblem] = []
        self.count = 0
        """Failures in all, the repeated ones included."""

    def __iter__(self) -> Iterator[PropagationProblem]:
        """Go through those that are kept, in the order in which they came."""
        return iter(self._by_text.values())

    def add(self, problem: PropagationProblem) -> None:
        """Take note of one."""
        self.count += 1
        text = str(problem)
        if text not in self._by_text and len(self._by_text) < _MOST:
            self._by_text[text] = problem
            self._new.append(problem)

    def news(self) -> list[PropagationProblem]:
        """Give those that nobody has been given yet."""
        new, self._new = self._new, []
        return new
