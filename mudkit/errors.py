"""Errors of mudkit: each states where it occurred, what was found, what was expected, and a remedy.

Each kind is a :class:`MudkitError` and a builtin exception, so that callers may catch either.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "AccessDenied",
    "ContextProblem",
    "EnvironmentProblem",
    "FailureWarning",
    "InputMissing",
    "MessageExpired",
    "MudkitError",
    "OperationCancelled",
    "OperationLost",
    "OperationTimeout",
    "OutageEndedWarning",
    "OutboxFull",
    "OutputExists",
    "OutputProblem",
    "ParameterError",
    "PredicateError",
    "PropagationProblem",
    "ReentrantRun",
    "ScheduledCallFailed",
    "SimulationProblem",
    "StoreError",
    "TableProblem",
    "TokenExpired",
    "TraceContentError",
    "TraceFormatError",
]


class MudkitError(Exception):
    """An error with fields.

    Parameters
    ----------
    summary : str
        What went wrong, in one sentence.
    found, expected, remedy : str, optional
    where : str, optional
        The file, parameter or place that the error is about.
    """

    def __init__(
        self,
        summary: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
        where: str | None = None,
    ) -> None:
        self.summary = summary
        self.found = found
        self.expected = expected
        self.remedy = remedy
        self.where = where
        lines = [summary]
        for label, text in (
            ("where", where),
            ("found", found),
            ("expected", expected),
            ("to do", remedy),
        ):
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark's workers, test runners), and the fields must survive.
        fields = {name: getattr(self, name) for name in ("found", "expected", "remedy", "where")}
        return _rebuild, (type(self), self.summary, fields)


def brief(value: object, length: int = 120) -> str:
    """Return the beginning of a value's repr; its type if the repr fails or is nested too deeply.

    Parameters
    ----------
    value : object
    length : int
        Maximum number of characters.
    """
    try:
        return repr(value)[:length]
    except Exception:  # RecursionError included, and what a user's __repr__ raises
        return f"a value of type {type(value).__name__} that cannot be printed"


def did_you_mean(
    given: object,
    known: Iterable[str],
    otherwise: str | None = None,
    *,
    synonyms: Mapping[str, Iterable[str]] | None = None,
) -> str | None:
    """Return a remedy that names the known words nearest to a given one; ``otherwise`` when none is near.

    A word is near if it or one of its ``synonyms`` has nearly the same spelling, or if it contains all parts
    of the given one (``cells_zoom`` for ``zoom``). A synonym has no other near words.

    Parameters
    ----------
    given : object
        The unknown word.
    known : iterable of str
        Words that are accepted.
    otherwise : str, optional
    synonyms : mapping of str to iterable of str, optional
        Other spellings of known words.
    """
    words = list(known)
    spellings: dict[str, list[str]] = {}
    for word in words:
        for spelling in (word, *(synonyms or {}).get(word, ())):
            spellings.setdefault(spelling.lower(), []).append(word)
    text = given.lower() if isinstance(given, str) else ""
    near = spellings.get(text, [])
    if not near:
        # No spelling is near a text of three times its length, and difflib would read all of the text first.
        is_comparable = len(text) <= 3 * max(map(len, spellings), default=0)
        close = difflib.get_close_matches(text, spellings, n=3) if is_comparable else []
        near = [word for spelling in close for word in spellings[spelling]]
        parts = set(text.split("_"))
        near += [word for word in words if parts <= set(word.lower().split("_"))]
    return f"did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else otherwise


def listed(known: Iterable[str], otherwise: str = "none") -> str:
    """Return the first twenty known words as text; ``otherwise`` when there is none.

    Parameters
    ----------
    known : iterable of str
    otherwise : str
    """
    words = list(known)
    return (", ".join(words[:20]) + (", …" if len(words) > 20 else "")) or otherwise


def _rebuild(kind: type[MudkitError], summary: str, fields: dict[str, Any]) -> MudkitError:
    """Rebuild an error from its parts, as pickle requires."""
    return kind(summary, **fields)


class EnvironmentProblem(MudkitError, RuntimeError):
    """Something that mudkit needs on this machine is missing or wrong."""


class InputMissing(MudkitError, FileNotFoundError):
    """A file or folder that was named is not there."""


class TraceFormatError(MudkitError, ValueError):
    """A file is not in the format that was asked for, or in none that mudkit knows."""


class TraceContentError(MudkitError, ValueError):
    """A trace was read, but what it holds cannot be used as asked."""


class ParameterError(MudkitError, ValueError):
    """A parameter is unknown, of the wrong type or out of range."""


class FailureWarning(UserWarning):
    """A machine, or a function or callback of a user, has failed in a lab; the lab has gone on.

    Parameters
    ----------
    errors : sequence of Exception
        The first exceptions; their notes say where and when.
    count : int
        Number of all exceptions.
    """

    def __init__(self, errors: Sequence[Exception], count: int) -> None:
        self.errors = tuple(errors)
        self.count = count
        first = errors[0]
        notes = "; ".join(getattr(first, "__notes__", ()))
        more = f" and {count - 1:,} more" if count > 1 else ""
        super().__init__(
            f"Something has failed, and the lab has gone on: {type(first).__name__}: {first}\n"
            f"    {notes}{more}\n    See lab.problems."
        )

    def __reduce__(self) -> tuple[type[FailureWarning], tuple[Sequence[Exception], int]]:
        return type(self), (self.errors, self.count)


class OutageEndedWarning(UserWarning):
    """Waiting for an operation ran virtual time past the end of an outage that a user had injected."""


class SimulationProblem(MudkitError, RuntimeError):
    """A run cannot continue: virtual time stands still, or a machine violated its contract."""


class OperationTimeout(MudkitError, TimeoutError):
    """An operation was not answered within its virtual time."""


class NoNetwork(MudkitError, ConnectionError):
    """A device without a network was not to wait for one."""


class OperationLost(MudkitError, RuntimeError):
    """The machine that was asked was killed before it answered: it may have done it, or not."""


class OperationCancelled(MudkitError, RuntimeError):
    """The application has cancelled the operation: it has no effect."""


class ReentrantRun(MudkitError, RuntimeError):
    """A callback called ``run`` while virtual time was running."""


class ScheduledCallFailed(MudkitError, RuntimeError):
    """A call that was scheduled in a lab raised an exception, which is the cause of this error."""


class PredicateError(MudkitError, ValueError):
    """A predicate cannot be read, bound or evaluated.

    Parameters
    ----------
    summary : str
        What went wrong, in one sentence.
    text : str, optional
        The predicate's text.
    at : tuple of int, optional
        First and last character of ``text`` that the error is about; the message marks them with carets.
    found, expected, remedy, where : str, optional
        As in :class:`MudkitError`; with ``text``, ``where`` is the marked text.
    """

    def __init__(
        self,
        summary: str,
        *,
        text: str | None = None,
        at: tuple[int, int] | None = None,
        found: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
        where: str | None = None,
    ) -> None:
        self.text = text
        self.at = at
        if text is not None:
            where = _marked(text, at)
        super().__init__(summary, found=found, expected=expected, remedy=remedy, where=where)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("found", "expected", "remedy")}
        shown = {"where": self.where} if self.text is None else {"text": self.text, "at": self.at}
        return _rebuild, (type(self), self.summary, fields | shown)


_SHOWN = 70
"""Characters of a predicate that an error shows."""


def _marked(text: str, at: tuple[int, int] | None) -> str:
    """Show a text on one line, with carets under a place."""
    line = "".join(c if c.isprintable() else " " for c in text)
    if at is None:
        return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
    first = max(0, min(at[0], len(line)))
    begin = max(0, first - _SHOWN // 2)
    shown = line[begin : begin + _SHOWN]
    before, after = "…" if begin else "", "…" if begin + _SHOWN < len(line) else ""
    carets = "^" * max(1, min(at[1] + 1 - first, _SHOWN - (first - begin)))
    return f"{before}{shown}{after}\n{' ' * (12 + len(before) + first - begin)}{carets}"


class AccessDenied(MudkitError, PermissionError):
    """The user may not do this; nothing has been read or written."""


class TokenExpired(AccessDenied):
    """A token is not valid any more: another one of the same user will do."""


class ContextProblem(MudkitError, LookupError):
    """A context lacks an attribute that a function or predicate reads."""


class PropagationProblem(MudkitError, RuntimeError):
    """A function that decides how contexts propagate failed or returned a value of another kind."""


class TableProblem(MudkitError, LookupError):
    """There is no such table, or there is one already."""


class OutboxFull(MudkitError, RuntimeError):
    """More waits to be sent than a machine keeps."""


class MessageExpired(MudkitError, TimeoutError):
    """A message expired while it waited to be sent, or before its server had acknowledged it."""


class StoreError(MudkitError, ValueError):
    """A store of a machine holds what this version of mudkit cannot read."""


class OutputExists(MudkitError, FileExistsError):
    """The place to write to holds something else already."""


class OutputProblem(MudkitError, OSError):
    """Output could not be written (read-only folder, full disk)."""
