"""Histories drawn by hand: a line a client, time from left to right.

::

    ann:  w1            r2
    bob:      [w2    ]      r1

Where a text stands is when it happens: a column is a millisecond. ``w2`` in brackets is under way from one
bracket to the other, and its end may stand by the second one (``[w1>2   !3]``); without brackets, it goes
from its first letter to its last. A client may have several lines,
for operations that are under way at once. A line that begins with ``#`` is a comment.

========  ==============================================================================================
``w1``    writes the value 1; ``d`` deletes
``r1``    reads, and 1 is returned; ``r0``: there is no record. ``u1``, ``c1`` and ``o1`` are reads whose
          type is ``uncommitted``, ``committed`` and ``committed_wio`` (in order)
``w1>2``  writes 2 on condition that 1 stands there; ``w0>2``: that there is no record; ``w?>2``: on a
          condition that was not written down
``w1>2!`` the same, and it was a conflict; ``w1>2!3``: because 3 stood there
``w1#``   refused for another reason, without effect
``w1…``   never answered (also ``w1...``): it may have taken effect or not
``w1@3``  became version 3; ``r1@3``, ``w1@3>2@4``, ``r0@0`` likewise
``w(k)1`` of the record k; without, of x
========  ==============================================================================================
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from mudkit.consistency.operation import Content, Kind, Operation, Outcome
from mudkit.errors import TraceFormatError

__all__ = ["US_PER_COLUMN", "operations_of"]

US_PER_COLUMN: Final = 1_000

_READS: Final = {"r": None, "u": "uncommitted", "c": "committed", "o": "committed_wio"}
_CONTENT: Final = r"[A-Za-z0-9_]*(?:@\d+)?"
_TOKEN: Final = re.compile(r"\[[^\[\]]*\]|\S+")
_BODY: Final = re.compile(
    rf"(?P<op>[wdruco])(?:\((?P<key>[^()\s]+)\))?(?:(?P<expected>\?|{_CONTENT})>)?(?P<content>{_CONTENT})"
    rf"(?:(?P<refused>#)|(?P<conflict>!)(?P<found>{_CONTENT}))?(?P<open>…|\.\.\.)?"
)


def operations_of(text: str) -> list[Operation]:
    """Read a history.

    Raises
    ------
    TraceFormatError
        Something cannot be read.
    """
    written: list[tuple[str, int, int, str, str]] = []
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole.rstrip()
        if not line or line.lstrip().startswith("#"):
            continue
        client, colon, rest = line.partition(":")
        if not colon or not client.strip():
            raise _refused(number, whole, line.strip(), "a client's name, a colon and its operations")
        offset = len(client) + 1
        for match in _TOKEN.finditer(rest):
            first, last = offset + match.start(), offset + match.end() - 1
            where = f"line {number}, column {first + 1}"
            written.append((client.strip(), first, last, match[0], where))
    written.sort(key=lambda each: each[1])
    counts: dict[str, int] = defaultdict(int)
    operations = []
    for client, first, last, token, where in written:
        counts[client] += 1
        operations.append(_operation(client, counts[client], first, last, token, where))
    return operations


def _operation(client: str, op_id: int, first: int, last: int, token: str, where: str) -> Operation:
    body = re.sub(r"\s+", "", token[1:-1]) if token[0] == "[" and token[-1] == "]" else token
    match = _BODY.fullmatch(body)
    if match is None:
        raise _refused(where, token, body, "w1, r1, w1>2, w1>2!3, w1@3, d, w1… and so on")
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
        raise _refused(where, token, body, bad)
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
        type=_READS[match["op"]] if not is_write else "blind" if expected is None else "conditional",
        expected=None if expected in (None, "?") else _content(expected),
        found=_content(match["found"]) if match["found"] else None,
    )


def _content(text: str) -> Content:
    value, at, version = text.partition("@")
    return Content(None if value in ("", "0") else value, int(version) if at else None)


def _refused(where: int | str, token: str, found: str, expected: str) -> TraceFormatError:
    return TraceFormatError(
        "This is no operation." if isinstance(where, str) else "This is no line of a history.",
        where=where if isinstance(where, str) else f"line {where}",
        found=repr(found if found else token),
        expected=expected,
        remedy="mudkit.consistency.notation has the whole notation",
    )
