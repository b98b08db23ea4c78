"""Requests of a client's pending writes: which may leave, when, and in which messages (Mobius 4.2, 7.3).

=================  ==================================================================================
head of a record   sent as soon as nothing blocks it, with the writes of the record that wait behind it:
                   each names the one that it follows. A write made after a committed_wio read waits for
                   its answer: the read must not see it
batch              its parts are one request, which is sent when each of them is the head of its record
due                a delay is over: all delayed writes go in the same message, except those that stay
                   until a read needs them; so do those of the other apps of the device
link is up         what waited for it goes in as few messages as fit the window
token has expired  the write stays, listed as held, until there is a valid token
=================  ==================================================================================
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import UNSET

from mudkit.events import Effect, Send, SetTimer
from mudkit.systems.mud.device.attachment import SERVICE, DelayOver
from mudkit.systems.mud.device.connection import Connection, PendingAsk, Writing
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.new_writes import build_part
from mudkit.systems.mud.device.planning import Planner
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.messages.requests import WriteRequest
from mudkit.systems.mud.policies.policies import NEVER

DUE: Final = "due"
"""Timer of delayed writes."""


class WriteRequests:
    """Requests of one client's writes, by the sequence number of each write.

    The head of a record, its oldest pending write, is sent, and with it those that wait behind it. A head
    that is not in flight is delayed by the policy, blocked by a read, or blocked by its token; each is
    checked again when that changes, so that the cost of an answer does not grow with the number of pending
    writes.
    """

    def __init__(self, local: Local, connection: Connection, planner: Planner, order: ReadOrder) -> None:
        self._local = local
        self._connection = connection
        self._planner = planner
        self._order = order
        self._asks: dict[int, PendingAsk] = {}
        """Requests that the connection has, sent or not."""
        self._unsent: set[int] = set()
        """Writes of this start that were never sent: no server has them, nor the network."""
        self._unchecked: set[int] = {local.writes[seq].request_seq for seq in local.oldest_seqs()}
        """Requests that :meth:`advance` has to check: of heads, unless they were removed since."""
        self._delayed: list[tuple[int, int]] = []
        """Heads that are not due, ordered by due time: ``(due_us, seq)``."""
        self._blocked: set[int] = set()
        self._without_token: set[int] = set()
        self.shares_device = False
        """True if other apps of the device have writes, too."""

    # -- state of single writes

    def is_unsent(self, seq: int) -> bool:
        """Return whether a write was made in this start, and never sent."""
        return seq in self._unsent

    def is_requested(self, seq: int) -> bool:
        """Return whether the connection has the request of a write."""
        return seq in self._asks

    def check_again(self, head: PendingWrite) -> None:
        """Add a write to those that the next :meth:`advance` checks: it is the head of its record now."""
        self._unchecked.add(head.request_seq)

    def check_earlier(self, seq: int) -> None:
        """Add a head to those that the next :meth:`advance` checks: it is due earlier than before."""
        self._delayed = [delayed for delayed in self._delayed if delayed[1] != seq]
        self._unchecked.add(seq)

    def settle(self, seq: int) -> None:
        """Forget the request of a write, which is answered."""
        del self._asks[seq]

    def forget(self, seq: int) -> None:
        """Forget that a write was never sent: it is removed."""
        self._unsent.discard(seq)

    def withdraw(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Remove the request of a write that needs no answer any more, and its delay."""
        self._delayed = [delayed for delayed in self._delayed if delayed[1] != seq]
        ask = self._asks.pop(seq, None)
        return () if ask is None else self._connection.withdraw(now_us, ask)

    # -- what may leave

    def send_new(self, now_us: int, write: PendingWrite, *, is_head: bool) -> Sequence[Effect]:
        """Add a write that was just stored; :meth:`advance` if it is a head.

        Most heads go at once, as there: nothing else is to be checked, no delay or read keeps them back, and
        no write is behind them.
        """
        self._unsent.add(write.seq)
        if not is_head:
            return ()
        if (
            self._unchecked
            or self._delayed
            or write.due_us is not None
            or write.batch is not None
            or self._order.blocks(write)
        ):
            self._unchecked.add(write.seq)
            return self.advance(now_us)
        ask = self._add_request(write)
        return self.send(now_us, (ask,)) if self._connection.is_up else ()

    def advance(self, now_us: int) -> Sequence[Effect]:
        """Send the unchecked and due heads that nothing blocks, and what may follow them (stage 2).

        If one's delay is over, all delayed writes go with it, also those whose delay is not; the service is
        notified if other apps of the device have writes.
        """
        while self._delayed and self._delayed[0][0] <= now_us:
            self._unchecked.add(self._delayed.pop(0)[1])
        heads: list[PendingWrite] = []
        is_due = False
        for seq in sorted(self._unchecked):
            write = self._admit_or_keep(now_us, seq)
            if write is not None:
                heads.append(write)
                is_due |= write.due_us is not None
        self._unchecked.clear()
        if not is_due:
            return self._send_heads(now_us, heads, are_due=False)
        reported = (Send(SERVICE, DelayOver()),) if self.shares_device else ()
        heads += self._take_delayed()  # a delay is over: the delayed writes go in the same message
        return [*reported, *self._send_heads(now_us, heads, are_due=True)]

    def send_delayed(self, now_us: int) -> Sequence[Effect]:
        """Send all delayed writes, due or not: the delay of another app's writes is over."""
        return self._send_heads(now_us, self._take_delayed(), are_due=True)

    def send_unblocked(self, now_us: int) -> Sequence[Effect]:
        """Check again all writes that waited for the answers of reads; send those that nothing blocks now."""
        self._unchecked |= self._blocked
        self._blocked.clear()
        return self.advance(now_us)

    def send_with_new_token(self, now_us: int) -> Sequence[Effect]:
        """Check again the writes that waited for another token, after it has come; send them."""
        self._unchecked |= self._without_token
        self._without_token.clear()
        return self.advance(now_us)

    def release(self, now_us: int, seqs: Collection[int]) -> Sequence[Effect]:
        """Send writes that the policy delays, because a read waits for them."""
        self._delayed = [delayed for delayed in self._delayed if delayed[1] not in seqs]
        for seq in seqs:
            write = self._local.writes[seq]
            if write.due_us is None:
                continue
            self._local.change_write(write, due_us=None)
            head = self._local.oldest_write(write.name, write.key)
            if head is not None and head.seq == seq and write.request_seq not in self._asks:
                self._unchecked.add(write.request_seq)
        return self.advance(now_us)

    def await_token(self, write: PendingWrite) -> None:
        """Keep a write pending until there is a valid token; its request is over.

        :meth:`advance` checks a head again, for there may be a token by now. One that waits behind another
        write of its record goes with that one.
        """
        del self._asks[write.seq]
        head = self._local.oldest_write(write.name, write.key)
        if head is not None and head.seq == write.seq:
            for part in self._local.parts_of(write):
                self._local.change_write(part, lacks_token=True)
            self._unchecked.add(write.seq)

    # -- messages

    def send(self, now_us: int, asks: Iterable[PendingAsk]) -> Sequence[Effect]:
        """Send requests of writes, built as of now, in as few messages as possible.

        Nothing is sent without a link; what the window has no room for is queued in the connection.
        """
        return self._connection.send_writes(now_us, asks, self._build_sent)

    def add_following(self, now_us: int) -> None:
        """Add the requests of writes that wait behind a write whose request the connection has.

        They are not sent here; call this before the requests are sent over a new link.
        """
        requested = [self._local.writes[seq] for seq in sorted(self._asks)]
        heads = (part for write in requested for part in self._local.parts_of(write))
        for last in {(write.name, write.key): write for write in heads}.values():
            self._add_behind(now_us, last, are_due=False)

    def build_request(self, seq: int) -> WriteRequest:
        """Build the request of a pending write as of now."""
        writes = self._local.writes
        write, named, first = writes[seq], writes.item_id(seq), writes.item_id(writes.first_seq)
        follows = None if write.after is None or write.after not in writes else writes.item_id(write.after)
        return WriteRequest(
            name=write.name, table=write.table, key=write.key, type=write.type, data=write.data,
            predicate=write.predicate, reader=write.reader, replaces=write.replaces, number=named.number,
            first=first.number if first.incarnation == named.incarnation else 1,
            incarnation=named.incarnation,
            follows=UNSET if follows is None else follows.number, absorbed=write.absorbed or UNSET,
            may_write=UNSET if write.may_write is None else write.may_write,
            changes=UNSET if write.changes is None else write.changes,
            asks_read_interval=True if self._planner.weighs_writes(write.name) else UNSET,
            others=[build_part(part) for part in self._local.parts_of(write)[1:]] or UNSET,
        )  # fmt: skip

    # -- inside

    def _take_delayed(self) -> list[PendingWrite]:
        """Remove all heads from those that are delayed, and return them by sequence number."""
        waiting, self._delayed = sorted(seq for _, seq in self._delayed), []
        return [self._local.writes[seq] for seq in waiting]

    def _send_heads(self, now_us: int, heads: Iterable[PendingWrite], *, are_due: bool) -> Sequence[Effect]:
        """Send heads and the writes of their records that may follow; set the timer of delayed ones."""
        asks: list[PendingAsk] = []
        for write in heads:
            asks.append(self._add_request(write))
            for part in self._local.parts_of(write):
                asks += self._add_behind(now_us, part, are_due=are_due)
        effects = self.send(now_us, asks) if self._connection.is_up else ()
        if self._delayed:
            return [*effects, SetTimer(DUE, self._delayed[0][0] - now_us)]
        return effects

    def _admit_or_keep(self, now_us: int, seq: int) -> PendingWrite | None:
        """Return a head if it may be sent now; else keep it among those that the same thing blocks.

        None: it is blocked, was removed, or the connection has its request.
        """
        write = None if seq in self._asks else self._local.writes.get(seq)
        if write is None or (write.batch is not None and not self._are_heads(write)):
            return None
        if self._order.blocks(write):
            self._blocked.add(seq)
        elif write.due_us == NEVER:
            pass  # until a read needs it
        elif write.due_us is not None and write.due_us > now_us:
            insort(self._delayed, (write.due_us, seq))
        elif self.lacks_token(now_us, write):
            self._without_token.add(seq)
        else:
            return write
        return None

    def _are_heads(self, write: PendingWrite) -> bool:
        """Return whether all parts of the batch of a head are heads; else it is checked again when one is."""
        heads = [self._local.oldest_write(part.name, part.key) for part in self._local.parts_of(write)]
        return all(head is not None and head.batch == write.batch for head in heads)

    def _add_request(self, write: PendingWrite) -> PendingAsk:
        """Add the request of a write to the connection, without sending it; it waits for no token now."""
        if write.lacks_token:
            for part in self._local.parts_of(write):
                self._local.change_write(part, lacks_token=False)
        ask = self._asks[write.seq] = self._connection.add_request(Writing(write.seq))
        return ask

    def _add_behind(self, now_us: int, write: PendingWrite, *, are_due: bool) -> list[PendingAsk]:
        """Add the requests of the writes behind one of a record, up to the first that may not go with it.

        Return them; they are not sent. They may go with it if they were made in the same incarnation, nothing
        blocks them, and they are no batch, which waits for all of its records; ``are_due``: also those whose
        delay is not over.
        """
        asks: list[PendingAsk] = []
        item_id = self._local.writes.item_id
        for following in self._local.writes_after(write):
            if (
                following.seq in self._asks
                or following.batch is not None
                or item_id(following.seq).incarnation != item_id(write.seq).incarnation
                or self._order.blocks(following)
                or following.due_us == NEVER
                or (following.due_us is not None and following.due_us > now_us and not are_due)
                or self.lacks_token(now_us, following)
            ):
                break
            asks.append(self._add_request(following))
        return asks

    def lacks_token(self, now_us: int, write: PendingWrite) -> bool:
        """Return whether a write was returned for its expired token, and that of now has expired, too."""
        return write.lacks_token and self._connection.has_expired(now_us)

    def _build_sent(self, ask: PendingAsk) -> WriteRequest:
        """Build the request of a write that is sent now; nothing absorbs it from now on."""
        assert isinstance(ask.work, Writing)
        self._unsent.discard(ask.work.seq)
        return self.build_request(ask.work.seq)
