"""Which write each operation saw, where that is beyond doubt: for figures."""

from __future__ import annotations

from mudkit.consistency.history import History
from mudkit.consistency.operation import Operation, Outcome
from mudkit.consistency.reading import Refused
from mudkit.consistency.record import Record

__all__ = ["seen_writes"]


def seen_writes(history: History) -> dict[tuple[str, int, str], Operation]:
    """Return the write that each operation observed, by operation id: returned by a read, or replaced.

    Operations are missing if they observed the initial content, a content that no operation wrote, or one
    that several writes may have left.

    Parameters
    ----------
    history : History
        Any history.
    """
    seen: dict[tuple[str, int, str], Operation] = {}
    for part in history.records.values():
        types = frozenset(each.type for each in part if not each.is_write)
        record = Record(part, types, Refused.IS_A_WRITE)
        for place, each in enumerate(record.operations):
            content = each.content if not each.is_write else each.expected
            if each.outcome is Outcome.CONFLICT:
                content = each.found
            if content is None:
                continue
            writes = set(record.candidates(content)) - {place}
            if len(writes) == 1 and min(writes) >= 0:
                seen[each.id] = record.operations[min(writes)]
    return seen
