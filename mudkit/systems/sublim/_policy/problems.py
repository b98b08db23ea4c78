"""What is wrong with a policy, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from mudkit.errors import MudkitError

__all__ = ["Path", "Places", "PolicyError"]

Path: TypeAlias = tuple[str | int, ...]
"""Keys and places in lists that lead to a part of a policy, from its root."""


class PolicyError(MudkitError, ValueError):
    """A policy cannot be read, or may not be set.

    Parameters
    ----------
    summary : str
    line : int, optional
        The line of the text that the policy was read from; the first is 1.
    found, expected, remedy, where : str, optional
        As in :class:`mudkit.errors.MudkitError`.
    """

    def __init__(self, summary: str, *, line: int | None = None, **fields: str | None) -> None:
        super().__init__(summary, **fields)
        self.line = line

    def __reduce__(self) -> tuple[partial[PolicyError], tuple[str]]:
        texts = {name: getattr(self, name) for name in ("found", "expected", "remedy", "where")}
        return partial(PolicyError, line=self.line, **texts), (self.summary,)


class Places:
    """Says where in a policy something stands.

    Parameters
    ----------
    source : str
        What the policy was read from.
    lines : mapping of Path to int, optional
        Lines of its parts; without, a place is said by its path.
    """

    def __init__(self, source: str = "", lines: Mapping[Path, int] | None = None) -> None:
        self.source = source
        self.lines = lines or {}

    def line(self, path: Path) -> int | None:
        """Give the line of a part, or of the nearest part around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def where(self, path: Path) -> str:
        """Say where a part stands."""
        line = self.line(path)
        named = ".".join(_name(each) for each in path)
        place = f"{self.source}, line {line}" if self.source else f"line {line}"
        parts: Sequence[str] = [place, named] if line is not None else [self.source, named]
        return ": ".join(part for part in parts if part)

    def error(self, path: Path, summary: str, **fields: str | None) -> PolicyError:
        """Make the error about a part."""
        return PolicyError(summary, line=self.line(path), where=self.where(path), **fields)

    @contextmanager
    def at(self, path: Path) -> Iterator[None]:
        """Say of errors that come up meanwhile where they belong."""
        try:
            yield
        except PolicyError as error:
            if error.where is not None:
                raise
            raise self.error(
                path, error.summary, found=error.found, expected=error.expected, remedy=error.remedy
            ) from None
        except MudkitError as error:
            shown = f"{self.where(path)}\n            {error.where}" if error.where else self.where(path)
            raise PolicyError(
                error.summary,
                line=self.line(path),
                where=shown,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from error


def _name(part: str | int) -> str:
    return f"{part + 1}" if isinstance(part, int) else str(part)
