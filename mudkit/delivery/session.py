"""Identity across restarts: incarnations, hellos, and the lineage of a log.

A store may be older than its peers remember: it was wiped, or restored from a backup. Neither the machine
nor its peers can know that in advance, so no name is used twice: an incarnation is drawn at every start of a
machine, and the name of an item is (incarnation, number). A restart, a wipe and a restore look alike.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from mudkit.events import Entropy, Ports, Record

_KEY: Final = "incarnation"
_BYTES: Final = 4
_MAX_STARTS: Final = 64
"""Starts of a log that its lineage contains."""

Lineage: TypeAlias = dict[str, int]
"""First sequence number of each start of a log's machine after the first start, by incarnation, in order."""


def store_incarnation(ports: Ports) -> str:
    """Return the identifier of a store, drawn at the first call and kept there: a restore copies it.

    Durable numbers that continue after a restart are scoped to it: epochs, reports and policies of SUBLIM,
    and the facts of last hop. A wiped device restarts them at 1 under another identifier, and a peer
    recognises a restore by numbers that decrease. Call it inside ``handle``, so that it is committed with the
    event.
    """
    kept = ports.store.get(_KEY, str)
    if kept is None:
        kept = ports.entropy(_BYTES).hex()
        ports.store.put(_KEY, kept)
    return kept


class Incarnation:
    """Identifier of one start of a machine: no other start has it, whatever is in the store."""

    __slots__ = ("_id", "_ports")

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._id: str | None = None

    @property
    def id(self) -> str:
        """Eight hexadecimal digits, drawn at the first use."""
        if self._id is None:
            self._id = self._ports.entropy(_BYTES).hex()
        return self._id


def shared_seq(mine: Lineage, last_seq: int, theirs: Lineage, their_last_seq: int) -> int:
    """Return the last sequence number up to which two copies of a log are equal.

    The first start of a log is in no lineage; ``last_seq`` is the last number of a copy.
    """
    first_reads = [*_firsts_after_common(mine, theirs), *_firsts_after_common(theirs, mine)]
    return min(last_seq, their_last_seq, *(first - 1 for first in first_reads))


def _firsts_after_common(lineage: Lineage, other: Lineage) -> list[int]:
    """Return the first sequence numbers of the starts behind the last one that both lineages have."""
    first_reads: list[int] = []
    for start, first in lineage.items():
        first_reads = [] if start in other else [*first_reads, first]
    return first_reads


def _segments(lineage: Lineage, last_seq: int) -> list[tuple[str, int, int]]:
    """Return the starts of a log (empty: the first), each with its first and last sequence number."""
    starts, firsts = ["", *lineage], [1, *lineage.values()]
    return list(zip(starts, firsts, [*(first - 1 for first in firsts[1:]), last_seq], strict=True))


def start_of(lineage: Lineage, seq: int) -> str:
    """Return the start of a log that has assigned a sequence number (empty: the first)."""
    return next((start for start, first in reversed(lineage.items()) if first <= seq), "")


def taken_by_start(lineage: Lineage, last_seq: int, taken: dict[str, int]) -> dict[str, int]:
    """Return the last sequence number that a follower has taken of each start of a log.

    It has taken those up to ``last_seq`` in this lineage, and what ``taken`` says in former ones.
    """
    known = dict(taken)
    for start, first, last in _segments(lineage, last_seq):
        if min(last, last_seq) >= first:
            known[start] = max(min(last, last_seq), known.get(start, 0))
    return dict(list(known.items())[-_MAX_STARTS:])


def resume_seq(shared: int, taken: dict[str, int], lineage: Lineage, last_seq: int) -> int:
    """Return the last sequence number up to which a follower has taken all of a log.

    A log that was restored from an older and then from a newer backup has entries again that the follower
    took before: after the last number ``shared`` with its last lineage.
    """
    for start, _, last in _segments(lineage, last_seq):
        shared = max(shared, min(taken.get(start, 0), last))
        if shared < last:
            break
    return shared


class Follower(msgspec.Struct):
    """Position of a follower of a log, by which it recognises one that was restored from a backup.

    ``lineage`` and ``last_seq`` are the log's as last heard (None: never). A lineage does not show whether it
    is the present one: a store may be restored from any backups in any order, and messages of one start may
    arrive after those of the next. So another lineage counts only in the answer to a question: the follower
    sends its ``nonce`` (:meth:`ask`), and the present start returns it with its lineage.
    """

    lineage: Lineage = {}
    last_seq: int | None = None
    nonce: str | None = None

    def hear(self, lineage: Lineage, last_seq: int, nonce: str | None = None) -> bool:
        """Return whether a message is from the log as it is now; if not, :meth:`ask`.

        ``nonce`` is that of the question it answers. The first message of all counts without one.
        """
        is_answer = nonce is not None and nonce == self.nonce
        if lineage == self.lineage:
            self.last_seq = max(self.last_seq or 0, last_seq)
        elif is_answer or (self.last_seq is None and not self.lineage and self.nonce is None):
            self.lineage, self.last_seq = lineage, last_seq
        else:
            return False
        if is_answer:
            self.nonce = None
        return True

    def ask(self, entropy: Entropy) -> str:
        """Return the nonce of the open question; draw one if there is none."""
        if self.nonce is None:
            self.nonce = entropy(_BYTES).hex()
        return self.nonce


def last_start(lineage: Lineage) -> str:
    """Return the incarnation of the last start of a log; empty: it is the first start."""
    return next(reversed(lineage), "")


def continued(lineage: Lineage, last_seq: int, incarnation: str) -> Lineage:
    """Return the lineage of a log that another start continues after a sequence number."""
    return dict([*[*lineage.items()][1 - _MAX_STARTS :], (incarnation, last_seq + 1)])


def shared_since(lineage: Lineage, start: str, last_seq: int) -> int:
    """Return the last sequence number of a ``start`` (empty: the first) in the log; 0: it is unknown."""
    first_reads = list(lineage.values())
    if start and start not in lineage:
        return 0
    later = first_reads[list(lineage).index(start) + 1 :] if start else first_reads
    return min((first - 1 for first in later), default=last_seq)


def rolled_back(who: str, lost: str) -> Record:
    """Build the row of ``incidents`` for a store that is older than its peer remembers."""
    return Record("incidents", {"incident": "rolled back", "detail": f"{who}: {lost}"})


class Heard(Enum):
    """Verdict on a hello."""

    NEWS = "news"
    """Newer than the last one: it says where the device is."""
    STALE = "stale"
    """Older than the last one of the same incarnation: ignored."""
    STRANGER = "stranger"
    """Hello of another incarnation, or without the required nonce: a restarted device, or a late message.
    Ask for another hello with a nonce."""


class Peer(msgspec.Struct):
    """State of a device as known from its last hello; ``incarnation`` is empty before the first.

    ``nonce`` is what the next hello of another incarnation, or the answer to a question, has to carry; a late
    copy cannot.
    """

    incarnation: str = ""
    seq: int = 0
    nonce: str | None = None

    def hear(
        self, incarnation: str, seq: int, nonce: str | None = None, *, is_elsewhere: bool = False
    ) -> Heard:
        """Return the verdict on a hello, without accepting it.

        ``nonce`` is that of the question it answers. ``is_elsewhere``: another device has the address that
        the hello comes from. It may have moved there since the hello was sent, so the hello needs a nonce.
        """
        if incarnation == self.incarnation and seq <= self.seq:
            return Heard.STALE
        is_answer = nonce is not None and nonce == self.nonce
        is_known = incarnation == self.incarnation or (not self.incarnation and self.nonce is None)
        return Heard.NEWS if is_answer or (is_known and not is_elsewhere) else Heard.STRANGER

    def take(self, incarnation: str, seq: int) -> None:
        """Accept a hello as the last one."""
        self.incarnation, self.seq, self.nonce = incarnation, seq, None

    def ask(self, entropy: Entropy) -> str:
        """Return the nonce of the open question; draw one if there is none."""
        if self.nonce is None:
            self.nonce = entropy(_BYTES).hex()
        return self.nonce
