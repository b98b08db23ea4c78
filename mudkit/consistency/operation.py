"""Operations: what a client asked of a record, when, and what it was told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["NOTHING", "WITHOUT_EFFECT", "Content", "Kind", "Operation", "Outcome", "content_text", "precedes"]


class Kind(StrEnum):
    """Kind of an operation; a delete is a write of nothing."""

    READ = "read"
    WRITE = "write"


class Outcome(StrEnum):
    """Outcome of an operation."""

    OK = "ok"
    """Answered: a read has returned, a write is committed."""
    CONFLICT = "conflict"
    """A conditional write that found another version than the one it was to replace: it has no effect."""
    FAILED = "failed"
    """Refused for another reason (no access, not valid): it has no effect."""
    PENDING = "pending"
    """Never answered: a write may have taken effect or not, a read has returned nothing."""


WITHOUT_EFFECT: Final = (Outcome.CONFLICT, Outcome.FAILED)
"""Outcomes of writes that were refused."""


class Content(NamedTuple):
    """Content of a record.

    Parameters
    ----------
    value : str or None
        Name of the write; None: no record, or, with a version, a value that was not recorded.
    version : int or None
        Position in the order of the record's writes, from 1; 0: before the first. None: unknown.
    """

    value: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        value = "0" if self.value is None else self.value
        return value if self.version is None else f"{value}@{self.version}"


NOTHING: Final = Content(None, 0)
"""What stands in a record before anybody writes it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a client on a record: an invocation and a response (Mobius, appendix A).

    Parameters
    ----------
    client : str
    op_id : int
        Number that is unique among this client's operations on the record.
    key : str
        Key of the record; each record is a consistency domain of its own.
    kind : Kind
    invoked_us, answered_us : int
        Virtual time, µs; a write is answered when its callback is called, not when it stands in the
        client's own store. ``answered_us`` is None: never answered.
    content : Content
        Content that was written, or that the read returned.
    type : str or None
        Type of a read (``uncommitted``, ``committed``, ``committed_wio``) or of a write (``blind``,
        ``conditional``).
    outcome : Outcome
    expected : Content or None
        Content that a conditional write replaces; None: a blind write, or unknown.
    found : Content or None
        Content that a conflict found instead; None: unknown.
    """

    client: str
    op_id: int
    key: str
    kind: Kind
    invoked_us: int
    answered_us: int | None
    content: Content = NOTHING
    type: str | None = None
    outcome: Outcome = Outcome.OK
    expected: Content | None = None
    found: Content | None = None

    @property
    def id(self) -> tuple[str, int, str]:
        """Identifier that is unique in a history; a read of several records is one operation of each."""
        return self.client, self.op_id, self.key

    @property
    def is_write(self) -> bool:
        """True for a write, whatever its outcome."""
        return self.kind is Kind.WRITE

    @property
    def what(self) -> str:
        """Operation in the notation of histories, such as ``w(x)1@3``."""
        letter, content = "w" if self.is_write else "r", str(self.content)
        if self.is_write and self.content.value is None:
            letter, content = "d", content[1:]
        text = f"{letter}({self.key}){'' if self.expected is None else f'{self.expected}>'}{content}"
        if self.outcome is Outcome.CONFLICT:
            text += f"!{content_text(self.found)}"
        return text + {Outcome.FAILED: "#", Outcome.PENDING: "…"}.get(self.outcome, "")

    def __str__(self) -> str:
        return f"{self.client} {self.what}"


def content_text(content: Content | None) -> str:
    """Write what a conflict has found; of most only the version is known."""
    if content is None:
        return ""
    return f"@{content.version}" if content.value is None and content.version else str(content)


def precedes(first: Operation, then: Operation, is_listed_before: bool) -> bool:
    """Say whether one operation was over when another one of its client was invoked.

    An answer and an invocation at one time stand in the order in which the operations were invoked.
    """
    if first.answered_us is None or first.answered_us > then.invoked_us:
        return False
    return first.answered_us < then.invoked_us or is_listed_before
