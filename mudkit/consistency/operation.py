"""Operations: what a client requested of a record, when, and the response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mudkit.checks import check_arguments


class Kind(StrEnum):
    """Kind of an operation; a delete is a write of nothing."""

    READ = "read"
    WRITE = "write"


class Outcome(StrEnum):
    """Outcome of an operation."""

    OK = "ok"
    """Answered: a read returned, a write is committed."""
    CONFLICT = "conflict"
    """Conditional write that did not find the version it expected: it has no effect."""
    FAILED = "failed"
    """Rejected for another reason (no access, invalid): it has no effect."""
    PENDING = "pending"
    """Never answered: a write may have taken effect or not, a read returned nothing."""


WITHOUT_EFFECT: Final = (Outcome.CONFLICT, Outcome.FAILED)
"""Outcomes of rejected writes."""


class Content(NamedTuple):
    """Content of a record.

    Parameters
    ----------
    value : str or None
        Value, which identifies the write. ``None``: the record does not exist, or, with a version, its value
        is unknown.
    version : int or None
        Position in the order of the record's writes, from 1; 0: before the first write. ``None``: unknown.
    """

    value: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        value = "0" if self.value is None else self.value
        return value if self.version is None else f"{value}@{self.version}"


NOTHING: Final = Content(None, 0)
"""Content of a record before its first write."""


@check_arguments(types=False)
@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of a client on a record: an invocation and a response (Mobius, appendix A).

    Parameters
    ----------
    client : str
        Name of the client.
    op_id : int
        Unique among the operations of this client on this record.
    key : str
        Key of the record; each record is a consistency domain of its own.
    kind : Kind
        Read or write.
    invoked_us, answered_us : int
        Virtual time, µs. A write is answered when its callback is called, not when it is in the client's own
        store. ``answered_us`` is ``None`` for an operation that was never answered.
    content : Content
        Content that was written, or that the read returned.
    type : str or None
        Type of a read (``uncommitted``, ``committed``, ``committed_wio``) or of a write (``blind``,
        ``conditional``).
    outcome : Outcome
        Result of the operation.
    expected : Content or None
        Content that a conditional write was to replace. ``None``: a blind write, or unknown.
    actual : Content or None
        Content of the record at a conflict. ``None``: unknown.
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
    actual: Content | None = None

    @property
    def id(self) -> tuple[str, int, str]:
        """Identifier that is unique in a history; a read of several records is one operation for each."""
        return self.client, self.op_id, self.key

    @property
    def is_write(self) -> bool:
        """True for writes, whatever their outcome."""
        return self.kind is Kind.WRITE

    @property
    def label(self) -> str:
        """Text of the operation in the notation: ``w(x)1@3``."""
        letter, content = "w" if self.is_write else "r", str(self.content)
        if self.is_write and self.content.value is None:
            letter, content = "d", content[1:]
        text = f"{letter}({self.key}){'' if self.expected is None else f'{self.expected}>'}{content}"
        if self.outcome is Outcome.CONFLICT:
            text += f"!{content_text(self.actual)}"
        return text + {Outcome.FAILED: "#", Outcome.PENDING: "…"}.get(self.outcome, "")

    def __str__(self) -> str:
        return f"{self.client} {self.label}"


def content_text(content: Content | None) -> str:
    """Return the text of the content at a conflict; often only its version is known."""
    if content is None:
        return ""
    return f"@{content.version}" if content.value is None and content.version else str(content)


def precedes(first: Operation, then: Operation, is_listed_before: bool) -> bool:
    """Return whether an operation was answered before another one of its client was invoked.

    At equal times the order of invocation decides.
    """
    if first.answered_us is None or first.answered_us > then.invoked_us:
        return False
    return first.answered_us < then.invoked_us or is_listed_before
