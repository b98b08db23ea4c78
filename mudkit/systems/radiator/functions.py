"""User functions: checks of their signatures before use, and records of their failures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from mudkit.errors import MudkitError, ParameterError, PropagationProblem, brief

_MAX_PROBLEMS: Final = 1000
_MAX_SHOWN: Final = 500
"""Maximum letters of a function's exception."""


def check_function(where: str, function: object, arguments: Sequence[str]) -> None:
    """Raise a ParameterError if a function cannot be called with these positional arguments and no others."""
    if not callable(function):
        raise ParameterError(
            "This is no function.",
            where=where,
            found=brief(function, 120),
            expected=f"a function of {' and '.join(arguments)}",
        )
    is_partial = isinstance(function, partial)
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        # Some builtins have no signature: a ValueError, too.
        if isinstance(error, ValueError) and not is_partial:
            return
        name = function_name(function)
        raise ParameterError(
            f"This function cannot be called as it will be: {error}.",
            where=where,
            found=name,
            expected=f"a function of {' and '.join(arguments)}",
            remedy=f"set what it takes besides, and only that, with functools.partial({name}, …)",
        ) from None


def function_name(function: object) -> str:
    """Return the name of a function or of the function in a partial."""
    function = getattr(function, "func", function)
    return str(getattr(function, "__name__", type(function).__name__))


def build_problem(
    what: str, error: Exception, *, where: str, expected: str, remedy: str
) -> PropagationProblem:
    """Return the problem that the user function ``what`` has failed for the clients named in ``where``."""
    shown: str | None = None
    if isinstance(error, MudkitError):
        summary, shown, expected = error.summary, error.found, error.expected or expected
    else:
        summary = error_text(error)
    return PropagationProblem(
        f"{what} has failed: {summary}", where=where, found=shown, expected=expected, remedy=remedy
    )


def error_text(error: Exception) -> str:
    """Return the type and the text of an exception; the type alone if its ``__str__`` fails."""
    try:
        return f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
    except Exception:
        return type(error).__name__


class Problems:
    """Distinct problems of user functions, bounded in number, and the count of all failures."""

    def __init__(self) -> None:
        self._by_text: dict[str, PropagationProblem] = {}
        self._unreported: list[PropagationProblem] = []
        self.count = 0
        """Number of failures, repeated ones included."""

    def __iter__(self) -> Iterator[PropagationProblem]:
        """Iterate over the kept problems in order of first occurrence."""
        return iter(self._by_text.values())

    def add(self, problem: PropagationProblem) -> None:
        """Record a problem; repeated ones are only counted."""
        self.count += 1
        text = str(problem)
        if text not in self._by_text and len(self._by_text) < _MAX_PROBLEMS:
            self._by_text[text] = problem
            self._unreported.append(problem)

    def take_new(self) -> list[PropagationProblem]:
        """Return the problems added since the last call of this method."""
        new, self._unreported = self._unreported, []
        return new
