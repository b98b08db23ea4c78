"""What has gone wrong with the programmer's functions: each problem once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mudkit.errors import PropagationProblem

__all__ = ["Problems"]

_MOST: Final = 1000


class Problems:
    """Problems by function, sender and receiver; of many only the first, and how many there were."""

    def __init__(self) -> None:
        self._found: dict[str, PropagationProblem] = {}
        self._new: list[PropagationProblem] = []
        self.count = 0
        """Failures in all, the repeated ones included."""

    def __iter__(self) -> Iterator[PropagationProblem]:
        """Go through those that are kept, in the order in which they came."""
        return iter(self._found.values())

    def add(self, problem: PropagationProblem) -> None:
        """Take note of one."""
        self.count += 1
        text = str(problem)
        if text not in self._found and len(self._found) < _MOST:
            self._found[text] = problem
            self._new.append(problem)

    def news(self) -> list[PropagationProblem]:
        """Give those that nobody has been given yet."""
        new, self._new = self._new, []
        return new
