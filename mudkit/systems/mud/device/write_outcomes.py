"""Outcomes of a client's writes: what they make of the local store, and of the calls (Mobius 4.2).

=================  ==================================================================================
committed          the version of the store is stored; the next write of the record is based on it. An
                   answer that comes before that of an earlier write of the record waits for it
conflict           the pending write is removed and the store's version is stored, if it is visible;
                   conditional writes based on it conflict, too
refused            the write is removed, with the reason; conditional writes based on it conflict
batch              one outcome is that of all parts
token has expired  the write stays
=================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import UNSET

from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import Complete, Effect, Record, Store
from mudkit.systems.mud.device.connection import error_in
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.device.parts import error_of_part, record_part
from mudkit.systems.mud.device.planning import Planner
from mudkit.systems.mud.device.write_requests import WriteRequests
from mudkit.systems.mud.messages.parts import Row, decode_error
from mudkit.systems.mud.messages.requests import RequestRefused, WriteOutcome, WriteResult
from mudkit.systems.mud.result import Conflict
from mudkit.systems.mud.tables.changes import change_record
from mudkit.systems.mud.tables.records import value_hash
from mudkit.wire import Fields, as_wire

_MANY_CONFLICTS: Final = 10
"""Conflicts of one record in a row that are an incident: a loop of merges which never comes through."""


class _Decided(NamedTuple):
    """Write with the outcome of its call: its version, and the record after changes; None: no such."""

    write: PendingWrite
    version: int | None
    data: Fields | None = None


class WriteOutcomes:
    """Outcomes of one client's writes, and the calls that they complete."""

    def __init__(self, store: Store, local: Local, requests: WriteRequests, planner: Planner) -> None:
        self._store = store
        self._local = local
        self._requests = requests
        self._planner = planner
        self._calls: dict[int, list[int]] = {}
        """Calls by sequence number, first those whose writes were absorbed; they end with the machine."""
        self._early_answers: dict[int, WriteOutcome | RequestRefused] = {}
        """Answers that came before that of an earlier write of their records."""
        self._conflicts: dict[tuple[str, str], int] = {}
        """Conflicts in a row of this start, by table and key."""

    def add_call(self, seq: int, op_id: int) -> None:
        """Add a call that the outcome of a write, or of the batch that begins with it, completes."""
        self._calls.setdefault(seq, []).append(op_id)

    def find_write(self, op_id: int) -> PendingWrite | None:
        """Return the write that one call alone has made, the first of its batch; None: there is no such."""
        seq = next((seq for seq, calls in self._calls.items() if calls == [op_id]), 0)
        return self._local.writes.get(seq)

    def find_awaited(self, op_id: int) -> PendingWrite | None:
        """Return the write whose outcome a call waits for, which may have absorbed its own; None: none."""
        seq = next((seq for seq, calls in self._calls.items() if op_id in calls), 0)
        return self._local.writes.get(seq)

    def forget_early_answers(self) -> None:
        """Forget the answers that came early: their log is gone.

        Their writes are pending without a request, and are sent again behind the writes before them.
        """
        for seq in self._early_answers:
            self._requests.settle(seq)
        self._early_answers.clear()

    def receive(self, now_us: int, seq: int, answer: WriteOutcome | RequestRefused) -> Sequence[Effect]:
        """Complete a write with its outcome (stage 2), and remove it.

        :meth:`WriteRequests.advance` sends what that unblocks. The outcome of a write that is not the head is
        kept until those before it have theirs. A write whose token has expired stays pending.
        """
        write = self._local.writes[seq]
        if isinstance(answer, WriteOutcome) and answer.read_interval_ms is not UNSET:
            self._planner.record_read_interval(write.name, answer.read_interval_ms)
        parts = self._local.parts_of(write)
        error = error_in(answer)
        problem = None if error is None else decode_error(error)
        head = self._local.oldest_write(write.name, write.key)
        assert head is not None
        if isinstance(problem, TokenExpired):
            self._requests.await_token(write)
            return ()
        if head.seq != seq:
            self._early_answers[seq] = answer
            return ()
        self._requests.settle(seq)
        place = answer.place if isinstance(answer, WriteOutcome) else UNSET
        if problem is not None and place is UNSET:
            effects = self.fail(now_us, write, problem, None)
        elif problem is not None:
            refused = parts[place or 0]
            effects = self.fail(now_us, refused, _error_of_write(problem, refused), None)
        elif isinstance(answer, WriteOutcome) and answer.ver is not UNSET:
            results = [answer, *(answer.others or ())]
            effects = self._complete_calls(
                [
                    self._store_committed(now_us, part, result)
                    for part, result in zip(parts, results, strict=True)
                ]
            )
        else:
            assert isinstance(answer, WriteOutcome)
            effects = self._store_conflict(now_us, parts[place or 0], answer)
        effects = [*effects]
        for part in parts:
            if (head := self._local.oldest_write(part.name, part.key)) is None:
                continue
            if (early := self._early_answers.pop(head.seq, None)) is not None:
                effects += self.receive(now_us, head.seq, early)
            else:
                self._requests.check_again(head)
        return effects

    def fail(self, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None) -> Sequence[Effect]:
        """Remove a write, and complete its calls with an error.

        The conditional writes based on it are removed, too, with a Conflict, and their requests withdrawn; a
        blind one stays, and follows none. ``row`` is the version of the back end, None: none is known.
        """
        version = None if row is None else row.ver
        parts = self._remove_unsuccessful(write)
        effects = [
            *self._complete_calls(
                [_Decided(part, version if part.seq == write.seq else None) for part in parts], error
            )
        ]
        for part in parts:
            effects += self._fail_following(now_us, part, error, row if part.seq == write.seq else None)
        return effects

    # -- inside

    def _store_committed(self, now_us: int, write: PendingWrite, result: WriteResult) -> _Decided:
        """Store the version that the back end has assigned, and remove the write; complete no call.

        The next write of the record is based on that version.
        """
        name, key, ver = write.name, write.key, result.ver
        assert ver is not UNSET
        row = self._build_row(now_us, write, result, ver)
        self._store_version(name, row, result)
        self._store.crash_point("held, still pending")
        self._local.remove_write(write)
        self._conflicts.pop((name, key), None)
        following = self._local.oldest_write(name, key)
        if following is not None and following.after == write.seq:
            base = None if row.data is None else row
            # Its version is one of this table, not of a later one of the name.
            self._local.change_write(following, after=None, replaces=ver, base=base, table=row.table)
        return _Decided(write, ver, None if write.changes is None else row.data)

    def _build_row(self, now_us: int, write: PendingWrite, answer: WriteResult, ver: int) -> HeldRow:
        """Build the version that the store has assigned to a write.

        Without a row in the answer, the store has changed the version that the write is based on.
        """
        assert answer.lsn is not UNSET
        assert answer.table is not UNSET
        data, predicate = write.data, write.predicate
        if isinstance(answer.row, Row):
            data, predicate = answer.row.data, answer.row.predicate
        elif write.changes is not None and write.base is not None:
            data = change_record(write.base.data, write.changes, "")
            predicate = write.base.predicate
        elif data is None and (current := self._local.held_row(write.name, write.key)) is not None:
            predicate = current.predicate  # who could not see the record does not see its deletion
        return HeldRow(write.key, ver, data, predicate, answer.lsn, answer.table, now_us)

    def _store_conflict(self, now_us: int, write: PendingWrite, answer: WriteOutcome) -> Sequence[Effect]:
        """Store the back end's version if it is visible, else evict the record; fail the write with Conflict.

        The tenth conflict of a record in a row is recorded as an incident.
        """
        name, key = write.name, write.key
        row = answer.conflict if isinstance(answer.conflict, Row) else None
        if row is None:
            self._local.evict(name, key)
            self._record_seen(name, answer)
        elif answer.table is not UNSET:
            self._store_version(name, HeldRow.of(row, answer.table, now_us), answer)
        count = self._conflicts[name, key] = self._conflicts.get((name, key), 0) + 1
        warned: tuple[Effect, ...] = ()
        if count == _MANY_CONFLICTS:
            detail = f"{count} writes of the record {key!r} of the table {name!r} in a row were in conflict"
            warned = (Record("incidents", {"incident": "conflicts in a row", "detail": detail}),)
        summary = "The record is not the one that this write was to replace."
        shown = "no visible record" if row is None else f"version {row.ver}"
        if row is None and write.replaces == 0:  # there is one
            summary, shown = "There is a record of this key that you may not see.", "a hidden record"
        conflict = Conflict(
            summary, where=f"table {name!r}, key {key!r}", found=shown,
            expected=f"version {write.replaces}" if write.replaces else "no record",
            store=_conflict_fields(row), local=_conflict_fields(write), base=_conflict_fields(write.base),
            remedy=_remedy(row, count),
        )  # fmt: skip
        return *warned, *self.fail(now_us, write, _error_of_write(conflict, write), row)

    def _store_version(self, name: str, row: HeldRow, answer: WriteResult) -> None:
        """Store the version of an outcome, and up to where the outcome has shown the partition."""
        self._local.hold_told(name, row)
        self._record_seen(name, answer)

    def _record_seen(self, name: str, answer: WriteResult) -> None:
        """Store up to which log position an outcome has shown the partition."""
        if answer.table is not UNSET and answer.partition is not UNSET and answer.lsn is not UNSET:
            self._local.record_seen(name, answer.table, answer.partition, answer.lsn)

    def _fail_following(
        self, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None
    ) -> Sequence[Effect]:
        """Do as :meth:`fail` to the conditional write based on one that was removed with an error."""
        following = self._local.oldest_write(write.name, write.key)
        if following is None or following.after != write.seq:
            return ()
        if following.type == "blind":
            self._local.change_write(following, after=None)
            return ()
        error = Conflict(
            "The write that this one is based on has failed.",
            found=error.summary,
            where=f"table {write.name!r}, key {write.key!r}",
            store=_conflict_fields(row),
            local=_conflict_fields(following),
            base=_conflict_fields(following.base),
            remedy="merge the records and write again",
        )
        error = _error_of_write(error, following)
        self._early_answers.pop(following.seq, None)
        effects = [*self._requests.withdraw(now_us, following.request_seq)]
        parts = self._remove_unsuccessful(following)
        effects += self._complete_calls([_Decided(part, None) for part in parts], error)
        for part in parts:
            effects += self._fail_following(now_us, part, error, row if part.seq == following.seq else None)
        return effects

    def _remove_unsuccessful(self, write: PendingWrite) -> list[PendingWrite]:
        """Remove a write, or its batch, and return the parts.

        :meth:`WriteRequests.advance` checks what comes next.
        """
        parts = self._local.parts_of(write)
        for part in parts:
            self._local.remove_write(part)
            if part.batch is not None and (head := self._local.oldest_write(part.name, part.key)) is not None:
                self._requests.check_again(head)
        return parts

    def _complete_calls(
        self, decided: Sequence[_Decided], error: MudkitError | None = None
    ) -> Sequence[Effect]:
        """Complete the calls of a write and of those that it has absorbed, or that of the parts of a batch.

        Empty for a write of an earlier start, whose callers are gone.
        """
        first, effects = decided[0].write, list[Effect]()
        self._requests.forget(first.request_seq)
        for op_id in self._calls.pop(first.request_seq, ()):
            if first.batch is not None:
                effects += [build_part_record(op_id, one.write, one.version, one.data) for one in decided]
                versions = None if error is not None else [one.version for one in decided]
                effects.append(Complete(op_id, versions, error))
                continue
            _, version, data = decided[0]
            hashed = {} if data is None else {"value_hash": value_hash(data)}
            effects += (
                Record("operations", {"op_id": op_id, "version": version, **hashed}),
                Complete(op_id, version, error),
            )
        return effects


def build_part_record(
    op_id: int, write: PendingWrite, version: int | None, data: Fields | None = None
) -> Record:
    """Build the effect that records a part of a batch; ``data`` is the record after changes."""
    hashed = None if write.changes is not None else partial(value_hash, write.data)
    if data is not None:
        hashed = partial(value_hash, data)
    return record_part(op_id, write.key, write.type, write.data, write.changes, version, hashed)


def _error_of_write(error: MudkitError, write: PendingWrite) -> MudkitError:
    """Return the error of a write, with its place in its batch if it has one."""
    if write.batch is None:
        return error
    first, last = write.batch
    return error_of_part(error, write.seq - first + 1, last - first + 1, write.key)


def _remedy(row: Row | None, count: int) -> str:
    """Return what to do after a conflict with a row, None: with one that is not visible, or with none."""
    if row is None:
        return "write under another key: no merge helps with a record that is hidden from you, or gone"
    if count < _MANY_CONFLICTS:
        return "merge the records and write again"
    return f"wait before you write again: {count} conflicts in a row; others write this record, too"


def _conflict_fields(version: PendingWrite | HeldRow | Row | None) -> Fields | None:
    """Return a version as applications see it in a conflict; None stays None."""
    return None if version is None else as_wire(version)
