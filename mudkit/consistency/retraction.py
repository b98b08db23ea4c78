"""What Mobius's protocol keeps where it breaks the definition: refused writes are set aside.

An uncommitted read returns the client's own pending write (Mobius 4.2). When that is a conditional write and
it fails later, the read has returned a write that has no effect, and by definition 3 of appendix A no view
has room for it. But only the client itself has seen the write, only until it was told, and until then its
reads did not fall back behind it. So the write and what was read of it are a dead end at the side of the
client's view, and everything else is fork-sequential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudkit.consistency.anomaly import REFUSED, Anomaly
from mudkit.consistency.operation import WITHOUT_EFFECT, Kind, Operation, Outcome, precedes

__all__ = ["set_aside"]


def set_aside(operations: Sequence[Operation], saw: Mapping[int, int]) -> frozenset[int] | Anomaly:
    """Find the refused writes that were seen, and what their own clients read of them before they knew.

    A write that was never answered and was to replace one of them cannot have taken effect either.
    """
    doomed = {place for place, each in enumerate(operations) if each.outcome in WITHOUT_EFFECT}
    grows = True
    while grows:
        grows = False
        for place, write in saw.items():
            each = operations[place]
            if (
                write in doomed
                and place not in doomed
                and each.outcome is Outcome.PENDING
                and each.client == operations[write].client
            ):
                doomed.add(place)
                grows = True
    gone: set[int] = set()
    first: dict[tuple[int, str | None], int] = {}
    for place, write in saw.items():
        each = operations[place]
        if each.kind is not Kind.READ or write not in doomed:
            continue
        other = operations[write]
        is_mine = each.client == other.client and each.content.version is None  # it never had a global one
        if not is_mine or precedes(other, each, write < place) or precedes(each, other, place < write):
            return _seen_too_far(each, other)
        before = operations[first.setdefault((write, each.type), place)]
        if (each.answered_us or 0) < (before.answered_us or 0):
            first[write, each.type] = place
        gone |= {place, write}
    for place in first.values():  # what comes after any read of the write comes after the one answered first
        anomaly = _read_back(operations, place, saw)
        if anomaly is not None:
            return anomaly
    return frozenset(gone)


def _seen_too_far(each: Operation, other: Operation) -> Anomaly:
    how = "not while its own client was waiting for the answer"
    return Anomaly(REFUSED, (other, each), f"{each} saw what {other} wrote, which was refused, {how}.")


def _read_back(operations: Sequence[Operation], place: int, saw: Mapping[int, int]) -> Anomaly | None:
    """Find a later read of the client that returned something older before it knew."""
    read, write = operations[place], saw[place]
    until_us = operations[write].answered_us
    for later, seen in saw.items():
        each = operations[later]
        if (
            each.kind is Kind.READ
            and each.client == read.client
            and each.type == read.type
            and precedes(read, each, place < later)
            and each.answered_us is not None
            and (until_us is None or each.answered_us < until_us)
            and (seen < write or operations[seen].client != read.client)
        ):
            return Anomaly(
                "pending write lost",
                (operations[write], read, each),
                f"{each} no longer returned the pending write that {read} had returned, before it was "
                "refused.",
            )
    return None
