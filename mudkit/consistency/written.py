"""Histories written down: the text of :mod:`mudkit.consistency.notation` for operations of any origin.

A column is no longer a millisecond: what happened at two times stands in two columns, in that order, so
everything that a model looks at is kept, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mudkit.consistency.operation import Content, Operation, Outcome, content_text

__all__ = ["numbered", "text_of"]

_READS: Final = {"uncommitted": "u", "committed": "c", "committed_wio": "o"}


def numbered(operations: Sequence[Operation]) -> list[Operation]:
    """Call the values 1, 2, … in the order in which they were written; what nobody wrote comes last."""
    ordered = sorted(operations, key=lambda each: not each.is_write)
    values = [each.content.value for each in ordered]
    values += [
        content.value for each in ordered for content in (each.expected, each.found) if content is not None
    ]
    names = {value: f"{number}" for number, value in enumerate(dict.fromkeys(v for v in values if v), 1)}

    def named(content: Content) -> Content:
        return content._replace(value=names.get(content.value or ""))

    return [
        replace(
            each,
            content=named(each.content),
            expected=each.expected and named(each.expected),
            found=each.found and named(each.found),
        )
        for each in operations
    ]


def text_of(operations: Sequence[Operation]) -> str:
    """Write a history in the notation; values are numbered in the order in which they were invoked.

    Reads that were never answered or were refused count for no model and are left out.

    Parameters
    ----------
    operations : sequence of Operation
        The operations in the order in which they were invoked.

    Returns
    -------
    str
        Lines of one client stand together; it has several where its operations are under way at once.
    """
    shown = numbered([each for each in operations if each.is_write or each.outcome is Outcome.OK])
    has_one_key = len({each.key for each in shown}) <= 1
    bodies = [_body(each, "" if has_one_key else f"({each.key})") for each in shown]
    tokens = _placed(shown, bodies, 2 + max((len(each.client) for each in shown), default=0))
    lines: dict[str, list[str]] = {}
    for each, (column, token) in zip(shown, tokens, strict=True):
        mine = lines.setdefault(each.client, [])
        free = next((at for at, line in enumerate(mine) if len(line) < column), len(mine))
        before = mine[free] if free < len(mine) else f"{each.client}:"
        mine[free : free + 1] = [before.ljust(column) + token]
    return "\n".join(line for mine in lines.values() for line in mine)


def _body(each: Operation, key: str) -> str:
    if not each.is_write:
        return f"{_READS.get(each.type or '', 'r')}{key}{each.content}"
    text = str(each.content)
    letter, text = ("d", text[1:]) if each.content.value is None else ("w", text)
    if each.expected is not None:
        text = f"{each.expected}>{text}"
    elif each.type == "conditional" or each.outcome is Outcome.CONFLICT:
        text = f"?>{text}"
    if each.outcome is Outcome.CONFLICT:
        text += f"!{content_text(each.found)}"
    return letter + key + text + {Outcome.FAILED: "#", Outcome.PENDING: "…"}.get(each.outcome, "")


def _placed(operations: Sequence[Operation], bodies: Sequence[str], first: int) -> list[tuple[int, str]]:
    """Give each operation its column and its token, so that all events stand in their order."""
    events = [(each.invoked_us, place, False) for place, each in enumerate(operations)]
    events += [
        (each.answered_us, place, True)
        for place, each in enumerate(operations)
        if each.answered_us is not None
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
            column = places[place][0] + len(body) - 1  # nothing happened meanwhile
        else:
            start = places[place][0]
            column = max(column + 1, start + len(body) + 1)
            places[place] = start, f"[{body}".ljust(column - start) + "]"
    return places
