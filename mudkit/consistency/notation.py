"""Text notation of histories: one line for each client, time from left to right.

::

    ann:  w1            r2
    bob:      [w2    ]      r1

The position of a text is its time: a column is a millisecond. ``w2`` in brackets lasts from one bracket to
the other, and its result may stand by the second one (``[w1>2   !3]``); without brackets an operation lasts
from its first letter to its last. A client may have several lines, for concurrent operations. A line that
begins with ``#`` is a comment.

========  ==============================================================================================
``w1``    writes the value 1; ``d`` deletes
``r1``    reads, and 1 is returned; ``r0``: the record does not exist. ``u1``, ``c1`` and ``o1`` are reads of
          type ``uncommitted``, ``committed`` and ``committed_wio`` (in order)
``w1>2``  writes 2 on condition that the value is 1; ``w0>2``: that the record does not exist; ``w?>2``: on an
          unknown condition
``w1>2!`` the same with a conflict; ``w1>2!3``: because the value was 3
``w1#``   rejected for another reason, without effect
``w1…``   never answered (also ``w1...``): it may have taken effect or not
``w1@3``  became version 3; ``r1@3``, ``w1@3>2@4``, ``r0@0`` likewise
``w(k)1`` of the record k; otherwise of x
========  ==============================================================================================

:func:`text_of` writes histories of any origin in this notation. There the columns show only the order of
events, which is all that a model depends on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mudkit.consistency.operation import Content, Kind, Operation, Outcome, content_text
from mudkit.errors import TraceFormatError

US_PER_COLUMN: Final = 1_000

_READ_TYPES: Final = {"r": None, "u": "uncommitted", "c": "committed", "o": "committed_wio"}
_READ_LETTERS: Final = {"uncommitted": "u", "committed": "c", "committed_wio": "o"}
_NOT_AN_OPERATION: Final = "This is not an operation."
_CONTENT: Final = r"[A-Za-z0-9_]*(?:@\d+)?"
_TOKEN: Final = re.compile(r"\[[^\[\]]*\]|\S+")
_BODY: Final = re.compile(
    rf"(?P<op>[wdruco])(?:\((?P<key>[^()\s]+)\))?(?:(?P<expected>\?|{_CONTENT})>)?(?P<content>{_CONTENT})"
    rf"(?:(?P<refused>#)|(?P<conflict>!)(?P<found>{_CONTENT}))?(?P<open>…|\.\.\.)?"
)


def operations_of(text: str) -> list[Operation]:
    """Parse a history.

    Raises
    ------
    TraceFormatError
        The text is not in the notation.
    """
    tokens: list[tuple[str, int, int, str, str]] = []
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole.rstrip()
        if not line or line.lstrip().startswith("#"):
            continue
        client, colon, rest = line.partition(":")
        if not colon or not client.strip():
            raise _error(
                "This is not a line of a history.",
                f"line {number}",
                line.strip() or whole,
                "a client's name, a colon and its operations",
            )
        offset = len(client) + 1
        for match in _TOKEN.finditer(rest):
            first, last = offset + match.start(), offset + match.end() - 1
            where = f"line {number}, column {first + 1}"
            tokens.append((client.strip(), first, last, match[0], where))
    tokens.sort(key=lambda token: token[1])
    counts: dict[str, int] = defaultdict(int)
    operations = []
    for client, first, last, token, where in tokens:
        counts[client] += 1
        operations.append(_operation(client, counts[client], first, last, token, where))
    return operations


def _operation(client: str, op_id: int, first: int, last: int, token: str, where: str) -> Operation:
    """Return the operation of a token, from its first to its last column; TraceFormatError if that fails."""
    body = re.sub(r"\s+", "", token[1:-1]) if token[0] == "[" and token[-1] == "]" else token
    match = _BODY.fullmatch(body)
    if match is None:
        raise _error(_NOT_AN_OPERATION, where, body or token, "w1, r1, w1>2, w1>2!3, w1@3, d, w1… and so on")
    is_write = match["op"] in "wd"
    content, expected, conflict = _content(match["content"]), match["expected"], match["conflict"]
    bad = None
    if match["op"] == "w" and content.value is None:
        bad = "the value that it writes (0 stands for no record: d deletes)"
    elif match["op"] == "d" and content.value is not None:
        bad = "nothing or a version after d"
    elif not is_write and (match["content"] == "" or expected is not None or conflict or match["refused"]):
        bad = "r and what was returned"
    elif (conflict and expected is None) or expected == "":
        bad = "what a conditional write expects, as in w1>2!"
    if bad:
        raise _error(_NOT_AN_OPERATION, where, body or token, bad)
    outcome = Outcome.OK
    if conflict or match["refused"]:
        outcome = Outcome.CONFLICT if conflict else Outcome.FAILED
    elif match["open"]:
        outcome = Outcome.PENDING
    return Operation(
        client=client,
        op_id=op_id,
        key=match["key"] or "x",
        kind=Kind.WRITE if is_write else Kind.READ,
        invoked_us=first * US_PER_COLUMN,
        answered_us=None if match["open"] else last * US_PER_COLUMN,
        content=content,
        outcome=outcome,
        type=_READ_TYPES[match["op"]] if not is_write else "blind" if expected is None else "conditional",
        expected=None if expected in (None, "?") else _content(expected),
        actual=_content(match["found"]) if match["found"] else None,
    )


def _content(text: str) -> Content:
    """Parse a value and a version, ``1@3``; ``0`` and nothing are no record."""
    value, at, version = text.partition("@")
    return Content(None if value in ("", "0") else value, int(version) if at else None)


def _error(summary: str, where: str, text: str, expected: str) -> TraceFormatError:
    """Return the error for a text that is not in the notation."""
    return TraceFormatError(
        summary,
        where=where,
        found=repr(text),
        expected=expected,
        remedy="the notation is described in mudkit.consistency.notation",
    )


def number_values(operations: Sequence[Operation]) -> list[Operation]:
    """Rename values to 1, 2, … in the order of their writes; values never written come last."""
    ordered = sorted(operations, key=lambda operation: not operation.is_write)
    values = [operation.content.value for operation in ordered]
    values += [
        content.value
        for operation in ordered
        for content in (operation.expected, operation.actual)
        if content is not None
    ]
    names = {value: f"{number}" for number, value in enumerate(dict.fromkeys(v for v in values if v), 1)}

    def renamed(content: Content) -> Content:
        return content._replace(value=names.get(content.value or ""))

    return [
        replace(
            operation,
            content=renamed(operation.content),
            expected=operation.expected and renamed(operation.expected),
            actual=operation.actual and renamed(operation.actual),
        )
        for operation in operations
    ]


def text_of(operations: Sequence[Operation]) -> str:
    """Return the text of a history; values are numbered in the order of their writes.

    Reads that were never answered or were rejected affect no model and are left out. The lines of a client
    are adjacent; it has several if its operations overlap.
    """
    shown = number_values(
        [operation for operation in operations if operation.is_write or operation.outcome is Outcome.OK]
    )
    has_one_key = len({operation.key for operation in shown}) <= 1
    bodies = [_body(operation, "" if has_one_key else f"({operation.key})") for operation in shown]
    tokens = _place_tokens(shown, bodies, 2 + max((len(operation.client) for operation in shown), default=0))
    lines: dict[str, list[str]] = {}
    for operation, (column, token) in zip(shown, tokens, strict=True):
        own = lines.setdefault(operation.client, [])
        free = next((at for at, line in enumerate(own) if len(line) < column), len(own))
        before = own[free] if free < len(own) else f"{operation.client}:"
        own[free : free + 1] = [before.ljust(column) + token]
    return "\n".join(line for own in lines.values() for line in own)


def _body(operation: Operation, key: str) -> str:
    """Return the token of an operation, without its extent in time."""
    if not operation.is_write:
        return f"{_READ_LETTERS.get(operation.type or '', 'r')}{key}{operation.content}"
    text = str(operation.content)
    letter, text = ("d", text[1:]) if operation.content.value is None else ("w", text)
    if operation.expected is not None:
        text = f"{operation.expected}>{text}"
    elif operation.type == "conditional" or operation.outcome is Outcome.CONFLICT:
        text = f"?>{text}"
    if operation.outcome is Outcome.CONFLICT:
        text += f"!{content_text(operation.actual)}"
    return letter + key + text + {Outcome.FAILED: "#", Outcome.PENDING: "…"}.get(operation.outcome, "")


def _place_tokens(
    operations: Sequence[Operation], bodies: Sequence[str], first: int
) -> list[tuple[int, str]]:
    """Return the column and token of each operation; columns keep the order of all events."""
    events = [(operation.invoked_us, place, False) for place, operation in enumerate(operations)]
    events += [
        (operation.answered_us, place, True)
        for place, operation in enumerate(operations)
        if operation.answered_us is not None
    ]
    events.sort()
    column = first - 2
    places: list[tuple[int, str]] = [(0, "")] * len(operations)
    for number, (_, place, is_answer) in enumerate(events):
        body = bodies[place]
        if not is_answer:
            column += 2
            places[place] = column, body
        elif events[number - 1] == (operations[place].invoked_us, place, False):
            column = places[place][0] + len(body) - 1  # no event in between
        else:
            start = places[place][0]
            column = max(column + 1, start + len(body) + 1)
            places[place] = start, f"[{body}".ljust(column - start) + "]"
    return places
