"""Identity across restarts: incarnations, hellos, and the lineage of a log.

A store may be older than its peers remember: it was wiped, or restored from a backup. Neither the machine
nor its peers can know that in advance, so no name is used twice: an incarnation is drawn at every start of a
machine, and the name of an item is (incarnation, number). A restart, a wipe and a restore look alike. The
words are those of ``docs/words-of-the-code.md``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from mudkit.events import Entropy, Ports, Record

_KEY: Final = "incarnation"
"""Store key of the identifier of a store."""
_BYTES: Final = 4
_MAX_INCARNATIONS: Final = 64
"""Incarnations of a log that its lineage contains."""

Lineage: TypeAlias = dict[str, int]
"""First position of each incarnation of a log after the first, in order; the first one is named ``""``."""


def store_id(ports: Ports) -> str:
    """Return the identifier of a store, drawn at the first call; a restore copies it, a wipe ends it.

    Durable numbers that continue after a restart are scoped to it: epochs, reports and policies of SUBLIM,
    and the facts of last hop. A wiped device restarts them at 1 under another identifier, and a peer
    recognises a restore by numbers that decrease. Call it inside ``handle``, so that it is committed with the
    event.
    """
    stored = ports.store.get(_KEY, str)
    if stored is None:
        stored = ports.entropy(_BYTES).hex()
        ports.store.put(_KEY, stored)
    return stored


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


def shared_lsn(mine: Lineage, last_lsn: int, theirs: Lineage, their_last_lsn: int) -> int:
    """Return the last position up to which two copies of a log, mine and theirs, are equal.

    The first incarnation of a log is in no lineage; ``last_lsn`` is the last position of a copy.
    """
    first_lsns = [*_first_lsns_after_common(mine, theirs), *_first_lsns_after_common(theirs, mine)]
    return min(last_lsn, their_last_lsn, *(first - 1 for first in first_lsns))


def _first_lsns_after_common(lineage: Lineage, other: Lineage) -> list[int]:
    """Return the first positions of the incarnations behind the last one that both lineages have."""
    first_lsns: list[int] = []
    for incarnation, first in lineage.items():
        first_lsns = [] if incarnation in other else [*first_lsns, first]
    return first_lsns


def _segments(lineage: Lineage, last_lsn: int) -> list[tuple[str, int, int]]:
    """Return the incarnations of a log, each with its first and last position."""
    incarnations, firsts = ["", *lineage], [1, *lineage.values()]
    return list(zip(incarnations, firsts, [*(first - 1 for first in firsts[1:]), last_lsn], strict=True))


def incarnation_at(lineage: Lineage, lsn: int) -> str:
    """Return the incarnation of a log that has assigned a position."""
    return next((incarnation for incarnation, first in reversed(lineage.items()) if first <= lsn), "")


def taken_by_incarnation(lineage: Lineage, last_lsn: int, taken: dict[str, int]) -> dict[str, int]:
    """Return the last position that a follower has taken of each incarnation of a log.

    It has taken those up to ``last_lsn`` in this lineage, and what ``taken`` says in former ones.
    """
    known = dict(taken)
    for incarnation, first, last in _segments(lineage, last_lsn):
        if min(last, last_lsn) >= first:
            known[incarnation] = max(min(last, last_lsn), known.get(incarnation, 0))
    return dict(list(known.items())[-_MAX_INCARNATIONS:])


def resume_lsn(shared: int, taken: dict[str, int], lineage: Lineage, last_lsn: int) -> int:
    """Return the last position up to which a follower has taken all of a log.

    A log that was restored from an older and then from a newer backup has entries again that the follower
    took before: after the last position ``shared`` with its last lineage.
    """
    for incarnation, _, last in _segments(lineage, last_lsn):
        shared = max(shared, min(taken.get(incarnation, 0), last))
        if shared < last:
            break
    return shared


class Follower(msgspec.Struct):
    """Position of a follower of a log, by which it recognises one that was restored from a backup.

    ``lineage`` and ``last_lsn`` are the log's as last heard (None: never). A lineage does not show whether it
    is the present one: a store may be restored from any backups in any order, and messages of one incarnation
    may arrive after those of the next. So another lineage counts only in the answer to a question: the
    follower sends its ``nonce`` (:meth:`open_question`), and the present incarnation returns it with its
    lineage.
    """

    lineage: Lineage = {}
    last_lsn: int | None = msgspec.field(name="last_seq", default=None)
    nonce: str | None = None

    def accept_lineage(self, lineage: Lineage, last_lsn: int, nonce: str | None = None) -> bool:
        """Adopt what a message says of the log and return True; False if it may be a late copy.

        Then ask the log, with :meth:`open_question`. ``nonce`` is that of the question which the message
        answers. The first message of all counts without one.
        """
        is_answer = nonce is not None and nonce == self.nonce
        if lineage == self.lineage:
            self.last_lsn = max(self.last_lsn or 0, last_lsn)
        elif is_answer or (self.last_lsn is None and not self.lineage and self.nonce is None):
            self.lineage, self.last_lsn = lineage, last_lsn
        else:
            return False
        if is_answer:
            self.nonce = None
        return True

    def open_question(self, entropy: Entropy) -> str:
        """Return the nonce of the open question to the log; draw one if there is none."""
        if self.nonce is None:
            self.nonce = entropy(_BYTES).hex()
        return self.nonce


def last_incarnation(lineage: Lineage) -> str:
    """Return the present incarnation of a log; empty: the first one."""
    return next(reversed(lineage)) if lineage else ""


def continue_lineage(lineage: Lineage, last_lsn: int, incarnation: str) -> Lineage:
    """Return the lineage of a log that another incarnation continues after a position."""
    return dict([*[*lineage.items()][1 - _MAX_INCARNATIONS :], (incarnation, last_lsn + 1)])


def last_lsn_of(lineage: Lineage, incarnation: str, last_lsn: int) -> int:
    """Return the last position of an incarnation in the log that ends at ``last_lsn``; 0: it is unknown."""
    first_lsns = list(lineage.values())
    if incarnation and incarnation not in lineage:
        return 0
    later = first_lsns[list(lineage).index(incarnation) + 1 :] if incarnation else first_lsns
    return min((first - 1 for first in later), default=last_lsn)


def rollback_incident(who: str, lost: str) -> Record:
    """Build the row of ``incidents`` for a store that is older than its peer remembers."""
    return Record("incidents", {"incident": "rolled back", "detail": f"{who}: {lost}"})


class HelloVerdict(Enum):
    """Verdict on a hello: whether it is accepted, ignored, or its sender is asked for another one."""

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

    def judge_hello(
        self, incarnation: str, seq: int, nonce: str | None = None, *, is_elsewhere: bool = False
    ) -> HelloVerdict:
        """Return the verdict on a hello, and change nothing: :meth:`accept_hello` accepts it.

        ``nonce`` is that of the question it answers. ``is_elsewhere``: another device has the address that
        the hello comes from. It may have moved there since the hello was sent, so the hello needs a nonce.
        """
        if incarnation == self.incarnation and seq <= self.seq:
            return HelloVerdict.STALE
        is_answer = nonce is not None and nonce == self.nonce
        is_known = incarnation == self.incarnation or (not self.incarnation and self.nonce is None)
        return HelloVerdict.NEWS if is_answer or (is_known and not is_elsewhere) else HelloVerdict.STRANGER

    def accept_hello(self, incarnation: str, seq: int) -> None:
        """Store a hello as the last one; an open question is answered by it."""
        self.incarnation, self.seq, self.nonce = incarnation, seq, None

    def open_question(self, entropy: Entropy) -> str:
        """Return the nonce of the open question to the device; draw one if there is none."""
        if self.nonce is None:
            self.nonce = entropy(_BYTES).hex()
        return self.nonce
