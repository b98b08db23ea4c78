"""Judgement of a run of the campaign by the back end's log and the checker, not by the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from math import inf
from typing import Any, Final

from mudkit.consistency import Content, History, Kind, Operation, Outcome, Status, Verdict, check
from mudkit.errors import AccessDenied, ParameterError, TableProblem, TokenExpired
from mudkit.predicates import Aggregates, Predicate
from mudkit.systems.mud import Change, Conflict
from mudkit.systems.mud.messages.parts import PORT
from mudkit.systems.mud.tables.records import value_hash
from mudkit.verify.campaign.campaign import BURST_S, PROBE, Campaign
from mudkit.verify.campaign.faults import ROGUE
from mudkit.verify.campaign.holdings import list_wrong_rows
from mudkit.verify.campaign.neighbours import THIEF
from mudkit.verify.campaign.observers import WriteAnswer
from mudkit.verify.campaign.read_problems import (
    is_match,
    is_shown_to,
    list_first_state_problems,
    list_shown_problems,
    list_watch_problems,
    list_window_problems,
)
from mudkit.verify.campaign.work import (
    AGGREGATE,
    COUNTS,
    MAIN,
    MAX_AGE_S,
    SIDE,
    Watch,
    WriteRecord,
    error_of,
)
from mudkit.wire import as_wire

PROMISED: Final = {
    "committed": ("sequential", "monotonic-reads", "read-your-writes"),
    "committed_wio": ("sequential-wio", "monotonic-reads", "read-your-writes"),
    "uncommitted": ("fork-sequential-retracted",),
}
"""Guarantees of the read types (Mobius, table 3). Uncommitted reads: as far as it holds if a write is refused
that its own client has read; see :mod:`mudkit.consistency.record`."""

MAX_EVENTS: Final = 200_000
"""Ten times the events of a long run; a run with more does not come to rest."""


@dataclass(frozen=True)
class RepeatedWrite:
    """Write that a restored device has pending again, because its backup had; no delete.

    ``client`` is the identity of the device after the restore. ``answer`` is the first answer since then;
    None: there was none before the next wipe or restore.
    """

    client: str
    table: str
    key: str
    type: str
    value: str
    value_hash: str
    restored_us: int
    answer: WriteAnswer | None


class Judgement:
    """Judgement of a run that has ended."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.counts = campaign.faults.counts + campaign.trials.counts + campaign.counts + campaign.away.counts
        self.counts += campaign.standby_faults.counts
        """Occurrences of faults, of judged trials, and of verdicts of the checker."""
        self.problems: list[str] = []
        """Violations of guarantees, in words."""
        self.broken: dict[str, str] = {}
        """Violated guarantees, each with the first violation."""
        self.illegal: list[Verdict] = []
        """Verdicts on histories that violate a guarantee of the read types."""
        log = campaign.work.log
        last = campaign.stores.store.get("lsn")
        entries = [log[lsn] for lsn in sorted(log) if lsn <= last and log[lsn]["op"] == "row"]
        rows = [entry["row"] for entry in entries if entry["name"] == MAIN]
        self._tables: dict[str, int] = {}
        """Number of the table in which each value was committed."""
        self._predicates: dict[str, Any] = {}
        """Writer predicate of each committed value."""
        self._repeated_writes = list(self._list_repeated_writes())
        self._created: list[int] = []
        """Numbers of the successive tables :data:`SIDE`, in order."""
        self._record_rows([log[lsn] for lsn in sorted(log) if lsn <= last])
        self._history = self._judged_history(rows)
        side = [entry["row"] for entry in entries if entry["name"] == SIDE]
        promises: dict[str, Callable[[], None]] = {
            "each write is applied once, and answered accordingly": lambda: self._judge_writes(rows),
            "increments are in the sum once each": self._judge_increments,
            "a batch is seen as a whole or not at all": self._judge_batches,
            "a table that is dropped and created again loses no writes": lambda: self._judge_side(side),
            "a write that was never sent has the version of the one that absorbed it": lambda: (
                self._judge_absorbed(rows)
            ),
            "writes that have waited for a network or a delay leave together": self._judge_together,
            "delayed writes leave with those of another app": self._judge_left_behind,
            "an app that floods delays itself, not the other apps of its device": self._judge_shares,
            "pending writes are sent": self._judge_pending,
            "lost messages are retransmitted under other traffic": self._judge_bursts,
            "sessions need a token, and messages grow with the operations": self._judge_trials,
            "reads show only records visible to the reader": self._judge_shown,
            "a pending write is read at once on its own device, under every policy": self._judge_own_reads,
            "no read shows an older version than its device was told of": self._judge_pushed,
            "an answer that is complete has each record that matches": lambda: self._judge_complete(rows),
            "a table shows no record of a dropped table of the same name": self._judge_tables,
            "no machine drops a message of another": self._judge_dropped,
            "shipped policies are followed": self._judge_policies,
            "all reads are answered, and the system comes to rest": self._judge_rest,
            "reads have the guarantees of their types": self._judge_history,
            "continuous reads are notified of each change once": lambda: self._judge_watches(rows),
            "continuous reads show what is committed, or pending on their device": self._judge_applications,
            "continuous reads of aggregates are notified when these change": lambda: self._judge_tallies(
                rows
            ),
            "a window shows the first of the records that its reader may see": lambda: self._judge_windows(
                rows
            ),
            "a table on the device has at once and exactly what its app has written": self._judge_drafts,
            "nothing of a table on the device is sent": self._judge_drafts_sent,
            "a lookup joins tables on the device with those of the cloud": self._judge_joined,
            "tombstones are collected, and deleted records do not come back": self._judge_collected,
            "nobody replaces or deletes what a rule keeps for its owner": self._judge_replaced,
            "no read shows an older version than its client was told of": self._judge_outdated,
            "no app sees what only another one may see": self._judge_seen,
            "the apps of a device keep to the budget of its store": self._judge_stores,
            "an app's reads do not end with those of another app of its device": self._judge_missed,
            "a replica answers while the back end is down": self._judge_away,
            "a table exists as soon as its creation is answered": self._judge_creations,
            "a master that dies is replaced by a store that has all": self._judge_take_overs,
            "a processor has the rows of its partitions, and no others": self._judge_holdings,
        }
        since_us = campaign.stores.rolled_back_us
        if since_us is not None:
            kept = (
                self._judge_pending, self._judge_dropped, self._judge_rest, self._judge_trials,
                self._judge_together, self._judge_left_behind, self._judge_seen, self._judge_stores,
                self._judge_shares, self._judge_drafts, self._judge_drafts_sent,
                self._judge_take_overs, self._judge_holdings,
            )  # fmt: skip
            promises = {promise: judge for promise, judge in promises.items() if judge in kept}
            promises["writes acknowledged after a restore are kept"] = lambda: self._judge_since(
                rows, since_us
            )
            promises["a restored back end serves reads, writes and continuous reads"] = self._judge_probe
        for promise, judge in promises.items():
            known = len(self.problems)
            judge()
            if self.problems[known:]:
                self.broken[promise] = self.problems[known]

    @property
    def counterexample(self) -> tuple[int, str] | None:
        """Number of operations in uncommitted reads that contradict definition 3 by the letter, and which.

        A refused write is not among them, only the reads before its refusal.
        """
        verdict = check(self._history, "fork-sequential", reads=["uncommitted"], within_s=1.0)
        if verdict.status is not Status.ILLEGAL:
            return None
        operations = verdict.explanation.operations
        return len(operations), f"{verdict}: {'; '.join(map(str, operations))}"

    def _judged_history(self, rows: list[dict[str, Any]]) -> History:
        """Return the history of table :data:`MAIN`.

        A write that was refused after its caller had died is left out, with its own device's reads of it: it
        has no answer, so that the checker cannot know that it had no effect.

        A restored device is another client, which has made the writes again that were pending in its backup
        and were refused since then. Until then its uncommitted reads show them (Mobius 4.2: a pending version
        is fresh). They have values of their own, so that only this client's reads are reads of them. A delete
        needs none: the reads of such a client begin with no record, too.
        """
        campaign = self.campaign
        committed = {row["data"]["v"] for row in rows if row["data"] is not None}
        unanswered = {
            (self._identity(write.client, write.operation.start_number), write.operation.op_id)
            for write in campaign.work.writes
            if write.operation.status == "open"
            and write.value
            and write.value not in committed
            and not self._is_pending(write)
        }
        history = campaign.lab.history()
        history = history[history["table"] == MAIN]
        lives = list(zip(history["client"], history["session"], strict=True))
        clients = [self._identity(name, session) for name, session in lives]
        devices = dict(zip(clients, history["client"], strict=True))
        repeated = [
            write
            for write in self._repeated_writes
            if write.table == MAIN
            and (write.answer.is_refusal if write.answer else write.value not in committed)
        ]
        operations = [self._build_operation(number, write) for number, write in enumerate(repeated, start=1)]
        hashes = {(write.client, write.value_hash) for write in repeated}
        for operation in History.from_table(history.assign(client=clients)):
            content = operation.content
            if (operation.client, content.value) in hashes and content.version is None:
                operation = replace(operation, content=Content(f"{content.value} again"))
            operations.append(operation)
        left_out = {
            (devices[operation.client], operation.content.value)
            for operation in operations
            if (operation.client, operation.op_id) in unanswered
        }
        return History(
            operation
            for operation in operations
            if operation.content.version is not None
            or (devices.get(operation.client), operation.content.value) not in left_out
        )

    def _build_operation(self, number: int, write: RepeatedWrite) -> Operation:
        """Return the operation of a write that a restored device has made again, and that was refused."""
        lab = self.campaign.lab
        end_us = lab.world.now_us if write.answer is None else write.answer.at_us
        return Operation(
            client=write.client,
            op_id=-number,  # unlike all numbers of calls
            kind=Kind.WRITE,
            key=write.key,
            invoked_us=lab.start_us + write.restored_us,
            answered_us=lab.start_us + end_us,
            content=Content(f"{write.value_hash} again"),
            type=write.type,
            outcome=Outcome.FAILED,
        )

    def _list_repeated_writes(self) -> Iterator[RepeatedWrite]:
        """Yield the writes that restored devices had pending again.

        A conditional write that is based on a pending one is refused with it, and gets no answer itself.
        """
        for name, losses in self.campaign.losses.items():
            given = self.campaign.write_answers(name)
            ends_us = [*(loss.at_us for loss in losses[1:]), self.campaign.lab.world.now_us]
            for number, (loss, end_us) in enumerate(zip(losses, ends_us, strict=True), start=1):
                answers: dict[int, WriteAnswer] = {}
                for write_id, write in loss.pending.items():
                    since = [one for one in given.get(write_id, ()) if loss.at_us < one.at_us <= end_us]
                    answer = since[0] if since else None
                    before = answers.get(write.get("after", 0))
                    if answer is None and write["type"] == "conditional" and before and before.is_refusal:
                        answer = before
                    if answer is not None:
                        answers[write["number"]] = answer
                    hashed = value_hash(write["data"])
                    if hashed is not None:
                        yield RepeatedWrite(
                            client=_identity_after(name, number),
                            table=write["name"],
                            key=write["key"],
                            type=write["type"],
                            value=write["data"]["v"],
                            value_hash=hashed,
                            restored_us=loss.at_us,
                            answer=answer,
                        )

    def _is_pending_again(self, client: str, value: str, now_us: int) -> bool:
        """Return whether a client may wait for the answer to a value's write again, after a restore."""
        return any(
            write.client == client
            and write.value == value
            and (write.answer is None or now_us <= write.answer.at_us)
            for write in self._repeated_writes
        )

    def _identity(self, name: str, session: int) -> str:
        """Return the identity of a client; after a wipe it is another client, with guarantees of its own."""
        losses = self.campaign.losses.get(name, ())
        return _identity_after(name, sum(session > loss.start_number for loss in losses))

    def _record_rows(self, entries: list[dict[str, Any]]) -> None:
        """Record the table and the writer predicate of each value."""
        numbers: dict[str, int] = {}
        for entry in entries:
            if entry["op"] == "table":
                table = entry["table"]
                numbers[table["name"]] = table["number"]
                if table["name"] == SIDE and table["number"] == entry["lsn"]:
                    self._created.append(table["number"])
            elif entry["op"] == "row" and entry["row"]["data"] is not None and entry["name"] != COUNTS:
                value = entry["row"]["data"]["v"]
                self._tables[value] = numbers[entry["name"]]
                self._predicates[value] = entry["row"]["predicate"]

    def _judge_holdings(self) -> None:
        """Add a problem for each row that a processor lacks, or holds without need."""
        campaign = self.campaign
        self.problems += list_wrong_rows(campaign.cloud, campaign.lab.world, campaign.stores.master)

    def _judge_dropped(self) -> None:
        """Add a problem for each message of the cloud or its clients that was dropped as invalid."""
        incidents = self.campaign.lab.frame("incidents")
        for row in incidents[incidents["incident"] == "dropped"].itertuples():
            if str(row.detail).endswith((f"/{ROGUE}", f"/{PORT}-{THIEF}")):
                continue
            self.problems.append(f"{row.device} dropped {row.detail}")

    def _judge_bursts(self) -> None:
        """Add a problem unless writes whose messages were lost were sent again in time."""
        for burst in self.campaign.bursts:
            if burst.duration_s is None:
                self.problems.append(
                    f"a write of {burst.client} whose messages were lost was not retransmitted within "
                    f"{BURST_S:g} s, with a read every {burst.every_s:g} s"
                )

    def _judge_trials(self) -> None:
        """Add the problems that trials found."""
        self.problems += self.campaign.trials.problems

    def _judge_shown(self) -> None:
        """Add a problem if reads or conflicts show what is hidden from the reader, whose data is constant."""
        work = self.campaign.work
        for read in work.reads:
            if read.status == "ok" and read.result().aggregates is None:
                self._judge_values(read, [record["v"] for record in read.result().records.values()])
        for write in work.writes:
            error = error_of(write.operation) if write.operation.status == "failed" else None
            if isinstance(error, Conflict) and error.store is not None:
                match error.store["data"]:
                    case {"v": str(value)}:
                        self._judge_values(write.operation, [value])

    def _judge_own_reads(self) -> None:
        """Add a problem unless a device has answered reads of its pending writes by itself (Mobius 4.2)."""
        for write, read in self.campaign.work.own_reads:
            if read.status != "ok":
                continue  # killed, or without a valid token; reads without an answer are judged elsewhere
            values = [record["v"] for record in read.result().records.values()]
            if values != [write.value] or read.responded_us > read.invoked_us:
                self.problems.append(f"{write.client} has read {values} of its own {write.value!r}: {read}")

    def _judge_pushed(self) -> None:
        """Add a problem if what a continuous read was told is followed by an older version (Mobius 4.1)."""
        notified: dict[str, list[tuple[int, str, int]]] = {}
        for watch in self.campaign.work.watches:
            if watch.table == MAIN and watch.client not in self.campaign.losses:
                changes = zip(watch.notified, watch.notified_us, strict=True)
                notified.setdefault(watch.client, []).extend(
                    (at_us, change.key, change.version)
                    for change, at_us in changes
                    if not isinstance(change, dict) and change.kind == "upsert"
                )
        for read in self.campaign.work.reads:
            if read.status != "ok" or read.call.named_arguments["table"] != MAIN:
                continue
            for key, version in read.result().versions.items():
                if version is None:
                    continue
                for at_us, told_key, told_version in notified.get(read.process.host.name, ()):
                    if at_us < read.invoked_us and told_key == key and told_version > version:
                        self.problems.append(f"{read} shows version {version} of {key} after {told_version}")

    def _judge_complete(self, rows: list[dict[str, Any]]) -> None:
        """Check that complete answers have the records that matched for longer than their age.

        They come from the back end, whose copy is never old.
        """
        if self.campaign.cloud.replicas:
            return
        for read in self.campaign.work.range_reads:
            if read.status != "ok" or not read.result().is_complete:
                continue
            self.counts["complete answers, judged"] += 1
            known = {row["key"]: row for row in rows if row["ts_us"] <= read.responded_us}
            since_us = read.invoked_us - MAX_AGE_S * 1e6
            predicate = read.call.named_arguments["predicate"]
            for key, row in known.items():
                is_old = row["ts_us"] < since_us and row["data"] is not None and row["predicate"] is None
                if is_old and predicate({**row["data"], "key": key}) and key not in read.result().records:
                    self.problems.append(f"{read} of {predicate} lacks {row}, and says that it is complete")

    def _judge_values(self, operation: Any, values: list[str]) -> None:
        """Add a problem unless each of the values that an operation shows is visible to its reader."""
        data = operation.call.named_arguments["reader"]
        for value in values:
            predicate = self._predicates.get(value)
            if predicate is not None and not Predicate.restore(**predicate)({}, receiver=data):
                self.problems.append(f"{operation} shows {value!r}, which is hidden from {data}")

    def _judge_tables(self) -> None:
        """Add a problem if a client that has seen a table is shown an older one of the same name.

        A value that is pending on the device that reads it belongs to no table yet.
        """
        newest: dict[tuple[str, str], int] = {}
        work = self.campaign.work
        operations = (*work.reads, *(write.operation for write in work.writes))
        answered = [operation for operation in operations if operation.status == "ok"]
        written = {id(write.operation): write.value for write in work.writes}
        answered_us = {write.value: write.operation.responded_us for write in work.writes}
        for operation in sorted(answered, key=lambda operation: (operation.responded_us, operation.op_id)):
            arguments = operation.call.named_arguments
            client = self._identity(operation.process.host.name, operation.start_number)
            table = client, arguments["table"]
            is_read = operation.call.name == "read"
            records = (operation.result().records or {}).values() if is_read else ()
            if is_read and arguments["table"] == SIDE and _has_seen_latest(operation):
                created = sum(
                    creation.status == "ok" and creation.responded_us < operation.invoked_us
                    for creation in work.creations
                )
                newest[table] = max(newest.get(table, 0), self._created[created - 1] if created else 0)
            values = [str(record["v"]) for record in records] if is_read else [written[id(operation)]]
            for value in values:
                until_us = answered_us[value] or operation.responded_us
                may_be_pending = until_us >= operation.responded_us or self._is_pending_again(
                    client, value, operation.responded_us
                )
                if arguments["type"] == "uncommitted" and may_be_pending:
                    continue
                number = self._tables.get(value, newest.get(table, 0))
                if is_read and number < newest.get(table, 0):
                    self.problems.append(f"{operation} of {client} shows {value!r} of a dropped table")
                newest[table] = max(number, newest.get(table, 0))

    def _judge_rest(self) -> None:
        """Add problems: reads without answer, requests that are sent for ever, too many events."""
        for synced in self.campaign.work.reads_awaited:
            if not synced.done():
                self.problems.append(f"{synced} of {synced.call.named_arguments} never came")
        for name, requests in self.campaign.at_rest.items():
            if requests:
                self.problems.append(f"{name} still sends {dict(requests)}")
        for read in self.campaign.work.reads:
            if not read.done():
                self.problems.append(f"{read} of {read.call.named_arguments} was never answered")
        if (events := self.campaign.lab.world.handled) > MAX_EVENTS:
            self.problems.append(f"{events:,} events were handled")

    def _judge_writes(self, rows: list[dict[str, Any]]) -> None:
        """Add a problem unless each write was committed once or never, as its answer says, and in time."""
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        self._judge_bases(rows)
        previous = _previous(rows)
        for value, count in times.items():
            if count > 1:
                self.problems.append(f"{value!r} was committed {count} times")
        for write in self.campaign.work.writes:
            if write.table != MAIN:
                continue
            key, kind, value, operation = write.key, write.kind, write.value, write.operation
            if operation.status == "ok":
                row = at.get((key, operation.result()))
                if self._absorber(write) is not None:
                    pass  # see :meth:`_judge_absorbed`
                elif row is None or (row["data"] or {"v": ""})["v"] != value:
                    self.problems.append(
                        f"{value!r} of {key} was acknowledged as {operation.result()}, and is {row}"
                    )
                elif kind == "conditional" and value:
                    expected, before = self.campaign.replaces[value], previous[row["lsn"]]
                    is_insert = expected == 0 and (before is None or before["data"] is None)
                    if (0 if before is None else before["ver"]) != expected and not is_insert:
                        self.problems.append(f"{value!r} of {key} must replace {expected}, and is {row}")
            elif operation.status == "failed" and value and times[value]:
                self.problems.append(f"{value!r} of {key} failed ({error_of(operation)}), and was committed")
            elif operation.status == "failed" and self._is_expired(write):
                pass
            elif operation.status == "failed" and kind == "conditional":
                self._judge_conflict(key, operation, rows)
            elif operation.status == "failed" and kind == "blind":
                self.problems.append(f"a blind write failed: {error_of(operation)}")
            elif not operation.done() and not self._is_pending(write):
                self.problems.append(f"{kind} write {value!r} of {key} was never answered")
        for value, name in sorted(self.campaign.must_commit.items()):
            # Both, if its outcome was lost, and the token had expired when it was sent again.
            is_pending = any((write["data"] or {}).get("v") == value for write in self.campaign.pending[name])
            if not times[value] and not is_pending:
                self.problems.append(
                    f"{value!r} was stored by a device, and was neither committed nor is it pending"
                )
        collected = (
            lsn
            for lsn, entry in self.campaign.work.log.items()
            if entry["op"] == "collect" and entry["name"] == MAIN
        )
        first_collected = min(collected, default=inf)
        for row in rows:
            before = previous[row["lsn"]]
            is_next = row["ver"] == 1 + (0 if before is None else before["ver"])
            is_over_hidden = before is not None and before["predicate"] is not None
            is_deleted = before is None or before["data"] is None
            is_over_collected = is_deleted and row["lsn"] > first_collected
            if not is_next and not ((is_over_hidden or is_over_collected) and row["ver"] == row["lsn"]):
                self.problems.append(f"version {row['ver']} of {row['key']} follows {before}")

    def _judge_since(self, rows: list[dict[str, Any]], since_us: int) -> None:
        """Add problems with writes since the back end was restored; earlier ones may be lost."""
        times = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        for write in self.campaign.work.writes:
            operation, value = write.operation, write.value
            if write.table != MAIN or operation.invoked_us <= since_us:
                continue
            if operation.status == "ok":
                row = at.get((write.key, operation.result()))
                given = self._absorber(write) or write
                if row is None or (row["data"] or {"v": ""})["v"] != given.value:
                    self.problems.append(f"{value!r} was acknowledged after a restore, and is {row}")
            elif not operation.done() and not self._is_pending(write):
                self.problems.append(f"{value!r} was never answered after a restore")
            if value and times[value] > 1:
                self.problems.append(f"{value!r} was committed {times[value]} times")

    def _judge_probe(self) -> None:
        """Add problems with what was written and read after the back end's restore and the faults' end."""
        for name, values in self.campaign.probe.items():
            if values != [PROBE]:
                self.problems.append(f"after a restore, {name} found {values}, and {PROBE!r} was written")

    def _judge_bases(self, rows: list[dict[str, Any]]) -> None:
        """Add a problem unless each committed conditional write replaces the record that its client had."""
        kinds = {write.value: write.kind for write in self.campaign.work.writes}
        previous = _previous(rows)
        for row in rows:
            value = None if row["data"] is None else row["data"]["v"]
            if value is None or kinds[value] != "conditional":
                continue
            before, base = previous[row["lsn"]], self.campaign.bases[value]
            replaced = None if before is None or before["data"] is None else before["data"]["v"]
            if replaced != base:
                self.problems.append(f"{value!r} must replace {base!r}, and replaced {replaced!r}")

    def _is_expired(self, write: WriteRecord) -> bool:
        """Return whether a device refused a write because its client's token had expired."""
        is_expired = isinstance(error_of(write.operation), TokenExpired)
        return is_expired and self.campaign.has_expired(write.client, write.operation.invoked_us)

    def _is_pending(self, write: WriteRecord) -> bool:
        """Return whether a write is listed as pending, or one that may have absorbed it."""
        values = {write.value, *(later.value for later in self._blind_writes_after(write))}
        return any(
            pending["key"] == write.key
            and pending["name"] == write.table
            and (pending["data"] or {"v": ""})["v"] in values
            for pending in self.campaign.pending[write.client]
        )

    def _blind_writes_after(self, write: WriteRecord) -> list[WriteRecord]:
        """Return the writes that may have absorbed a write: later blind ones, up to a conditional one.

        They are of the same record, and of the same start of the client.
        """
        work = self.campaign.work
        later = [
            other
            for other in work.writes[work.writes.index(write) + 1 :]
            if (other.client, other.table, other.key) == (write.client, write.table, write.key)
            and other.operation.start_number == write.operation.start_number
            and other.operation.responded_us != other.operation.invoked_us  # else the device refused it
        ]
        return list(takewhile(lambda other: other.kind == "blind", later)) if write.kind == "blind" else []

    def _absorber(self, write: WriteRecord) -> WriteRecord | None:
        """Return the last write that was answered with one, at once and with the same version, if any was."""
        answer = write.operation.result(), write.operation.responded_us
        with_it = [
            other
            for other in self._blind_writes_after(write)
            if other.operation.status == "ok"
            and (other.operation.result(), other.operation.responded_us) == answer
        ]
        return with_it[-1] if with_it else None

    def _judge_absorbed(self, rows: list[dict[str, Any]]) -> None:
        """Add a problem if a write with the version of another one was committed, or if this one was not."""
        times = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        at = {(row["key"], row["ver"]): row for row in rows}
        for write in self.campaign.work.writes:
            operation, value = write.operation, write.value
            if write.table != MAIN or operation.status != "ok":
                continue
            absorber = self._absorber(write)
            if absorber is None:
                continue
            self.counts["absorbed writes, judged"] += 1
            row = at.get((write.key, operation.result()))
            if row is None or (row["data"] or {"v": ""})["v"] != absorber.value:
                self.problems.append(f"{value!r} has the version of {absorber.value!r}, which is {row}")
            if value and times[value]:
                self.problems.append(f"{value!r} was committed, and has the version of {absorber.value!r}")

    def _judge_together(self) -> None:
        """Add a problem if writes that waited for a link or a timer took more messages than needed."""
        for name in self.campaign.clients:
            self.problems += self.campaign.sent_apart(name)

    def _judge_left_behind(self) -> None:
        """Check that delayed writes leave with those of another app whose delay is over."""
        for problem in self.campaign.neighbours.left_behind():
            self.counts["delayed writes of two apps, judged"] += 1
            self.problems += [] if problem is None else [problem]

    def _judge_shares(self) -> None:
        """Check that no app has more than its share of the link, and none waits that has less."""
        for name in self.campaign.clients:
            self.problems += self.campaign.share_problems(name)
            self.counts += self.campaign.share_counts(name)

    def _judge_increments(self) -> None:
        """Add a problem unless the sum has each acknowledged amount once, and others only if unanswered."""
        campaign = self.campaign
        rows = [as_wire(row) for _, row in campaign.stores.store.items(f"row\n{COUNTS}\n")]
        total = rows[0]["data"]["n"] if rows else 0
        amounts: dict[str, int] = {"ok": 0, "open": 0, "failed": 0}
        for by, operation in campaign.work.increments:
            amounts[operation.status] += by
        if total & amounts["ok"] != amounts["ok"] or total & ~(amounts["ok"] | amounts["open"]):
            words = ", ".join(f"{status} {amount:b}" for status, amount in amounts.items())
            self.problems.append(f"the sum of the increments is {total:b}, in binary; {words}")

    def _judge_batches(self) -> None:
        """Check that no read has a part of a batch, nor the log."""
        self.problems += self.campaign.batches.apart()

    def _judge_drafts(self) -> None:
        """Add what devices answered that is not in their drafts."""
        self.problems += self.campaign.drafts.problems

    def _judge_drafts_sent(self) -> None:
        """Add the messages that have something of the drafts."""
        self.problems += [f"{message} has a draft" for message in self.campaign.drafts.sent]

    def _judge_joined(self) -> None:
        """Add the joins of drafts and records of the cloud that show too much, or lack something."""
        self.problems += self.campaign.drafts.unjoined()

    def _judge_pending(self) -> None:
        """Add a problem unless devices list all stored writes, each held back or after one that is."""
        for name, listed in self.campaign.pending.items():
            process, *_ = self.campaign.lab.world.hosts[name].processes
            stored = [write for _, write in process.store.items("write ")]
            if [write["number"] for write in stored] != [write["number"] for write in listed]:
                self.problems.append(f"{name} has stored {stored}, and lists {listed}")
            has_expired = self.campaign.has_expired(name, self.campaign.lab.world.now_us)
            heads: dict[tuple[str, str], Any] = {}
            for write in listed:
                reason = heads.setdefault((write["name"], write["key"]), write)["held"]
                if reason != "policy" and not (reason == "token" and has_expired):
                    self.problems.append(f"{name} still has the pending write {write}")

    def _judge_policies(self) -> None:
        """Add a problem unless shipped policies are stored, and all followers have the latest version.

        A restored generator may have lost earlier ones.
        """
        campaign = self.campaign
        restored_us = campaign.rolled_back_us.get(campaign.cloud.generator.split("/")[0])
        store = campaign.lab.world.at_address[campaign.cloud.generator].store
        kept = {body["policy"]: body["document"]["version"] for _, body in store.items("policy ")}
        for ship in campaign.work.ships:
            newest = kept.get(ship.kind, 0)
            is_lost = restored_us is not None and ship.operation.invoked_us <= restored_us
            if ship.operation.status != "open" and newest < ship.version and not is_lost:
                self.problems.append(f"{ship.operation} of version {ship.version}, and {newest} is stored")
        for name, policies in campaign.policies.items():
            for kind, policy in policies.items():
                newest = kept.get(kind, 0)
                is_latest = policy["version"] == newest or (restored_us and policy["version"] > newest)
                if not is_latest or policy["refused"]:
                    self.problems.append(f"{name} has {policy} for {kind}s, and {kept} were shipped")

    def _judge_side(self, rows: list[dict[str, Any]]) -> None:
        """Add violations of the guarantees that hold for a table that is dropped and created again."""
        times: Counter[str] = Counter(row["data"]["v"] for row in rows if row["data"] is not None)
        self._judge_bases(rows)
        for write in self.campaign.work.writes:
            if write.table != SIDE or not write.value:
                continue
            count, operation = times[write.value], write.operation
            is_absorbed = operation.status == "ok" and self._absorber(write) is not None
            if count > 1 or (operation.status == "ok" and count != 1 - is_absorbed):
                self.problems.append(f"{write.value!r} was acknowledged, and was committed {count} times")
            elif operation.status == "failed":
                error = error_of(operation)
                if count or not isinstance(error, AccessDenied | Conflict | ParameterError | TableProblem):
                    self.problems.append(
                        f"{write.value!r} failed ({error!r}), and was committed {count} times"
                    )
            elif not operation.done() and not self._is_pending(write):
                self.problems.append(f"write {write.value!r} of {SIDE} was never answered")
        for watch in self.campaign.work.watches:
            if watch.table == SIDE:
                self._judge_order(watch)

    def _judge_tallies(self, rows: list[dict[str, Any]]) -> None:
        """Add a problem unless the last aggregates are those of the last records, and all in turn differ."""
        aggregates = Aggregates(AGGREGATE)
        final = {row["key"]: row for row in rows}
        for tally in self.campaign.work.tallies:
            if any(former == later for former, later in pairwise(tally.notified)):
                self.problems.append(f"the same aggregates come twice: {tally.notified}")
            is_over = tally.lost_us is not None or tally.client in self.campaign.expires_us
            if is_over or tally.operation.status != "ok":
                continue
            predicate, data = Predicate(tally.text or "TRUE"), tally.reader_data[0].data
            records = [
                row["data"]
                for row in final.values()
                if row["data"] is not None
                and predicate(row["data"])
                and (row["predicate"] is None or Predicate.restore(**row["predicate"])({}, receiver=data))
            ]
            expected = aggregates.result(aggregates.of(records))
            if tally.notified[-1:] != [expected]:
                self.problems.append(f"{tally.client} has {tally.notified[-1:]}, the records {expected}")

    def _judge_windows(self, rows: list[dict[str, Any]]) -> None:
        """Add a problem unless each window keeps its limit, and has the first records at the end."""
        final = {row["key"]: row for row in rows}
        for window in self.campaign.work.windows:
            selection = window.selection
            assert selection is not None
            assert selection.limit is not None
            where = f"window {window.text!r}, {selection} of {window.client}"
            self._judge_order(window)
            self.problems += list_window_problems(window, rows, where)
            shown: dict[str, int] = {}
            for change in window.notified:
                if isinstance(change, dict):
                    break
                if change.kind == "upsert":
                    shown[change.key] = change.version
                else:
                    shown.pop(change.key, None)
                if len(shown) > selection.limit:
                    self.problems.append(f"{where} shows {shown}")
            reader = window.reader_data[-1]
            is_known = reader.operation is None or reader.operation.status == "ok"
            is_over = window.lost_us is not None or window.client in self.campaign.expires_us
            if is_over or not is_known or window.operation.status != "ok":
                continue
            may_see = {
                key: (row["data"], row["ver"])
                for key, row in final.items()
                if is_match(window, row) and is_shown_to(row, reader)
            }
            expected = selection.cut(may_see)
            if shown != expected:
                self.problems.append(f"{where} shows {shown}, and the first of its records are {expected}")

    def _judge_applications(self) -> None:
        """Add a problem unless applications show what their devices have, and mark as pending what is."""
        for watch in self.campaign.work.watches:
            if watch.table == MAIN:
                self.problems += list_shown_problems(self.campaign, watch)

    def _judge_collected(self) -> None:
        """Add the problems of collected tombstones."""
        self.problems += self.campaign.returned

    def _judge_replaced(self) -> None:
        """Add the guarded records that others than their owners replaced."""
        self.problems += self.campaign.guarded.replaced()

    def _judge_away(self) -> None:
        """Add the reads that were not answered while the back end was down."""
        self.problems += self.campaign.away.problems

    def _judge_take_overs(self) -> None:
        """Add the masters that nobody has replaced in time, and those with an old copy."""
        self.problems += self.campaign.stores.problems + self.campaign.standby_faults.problems

    def _judge_creations(self) -> None:
        """Add the reads of created tables that were refused because there is none."""
        self.problems += self.campaign.creations.unknown()

    def _judge_outdated(self) -> None:
        """Add the reads that showed older versions than their clients knew."""
        self.problems += self.campaign.guarded.outdated()

    def _judge_seen(self) -> None:
        """Add what other apps saw of the bank's records."""
        self.problems += self.campaign.neighbours.seen()

    def _judge_stores(self) -> None:
        """Add the devices whose apps held more records than the budget."""
        self.problems += self.campaign.neighbours.above_budget

    def _judge_missed(self) -> None:
        """Add what the bank's reads were not notified of."""
        self.problems += self.campaign.neighbours.missed()

    def _judge_order(self, watch: Watch) -> None:
        """Add a problem unless versions ascend, and no notification follows the end.

        A version that becomes hidden or visible when the reader's data changes comes once more, as the other
        kind of change; in the table that is altered also with other columns than a device knew. After a
        pending change, what was there before may follow; if that is no record, since the table was dropped
        before the read began, the versions of the next table.
        """
        last: dict[str, Change] = {}
        for place, change in enumerate(watch.notified):
            if isinstance(change, dict):
                if place != len(watch.notified) - 1:
                    self.problems.append(f"a continuous read was notified after its end: {watch.notified}")
                return
            before = last.get(change.key)
            if before is not None:
                if place in watch.corrections and change.version <= before.version:
                    if watch.table == SIDE and not change.version:
                        del last[change.key]
                    continue
                is_same = change.kind == before.kind and (
                    watch.table != SIDE or change.record == before.record
                )
                if change.version < before.version or (change.version == before.version and is_same):
                    self.problems.append(
                        f"a continuous read was notified of {change} after version {before.version}"
                    )
            last[change.key] = change

    def _judge_conflict(self, key: str, operation: Any, rows: list[dict[str, Any]]) -> None:
        """Add a problem unless another version existed at some time while the write was in flight."""
        error = error_of(operation)
        if not isinstance(error, Conflict) or error.local is None:
            self.problems.append(f"a conditional write failed: {error!r}")
        elif "based on" not in error.summary:
            of_key = [row for row in rows if row["key"] == key and row["ts_us"] <= operation.responded_us]
            before = [row for row in of_key if row["ts_us"] < operation.invoked_us]
            states = [*before[-1:], *of_key[len(before) :]] if before else [None, *of_key]
            expected = error.local["replaces"]
            matches = [
                (row["ver"] if row else 0) == expected
                or (expected == 0 and (row is None or row["data"] is None))
                for row in states
            ]
            if all(matches):
                self.problems.append(
                    f"a conditional write of {key} that replaces {expected!r} met a false conflict"
                )

    def _judge_history(self) -> None:
        """Add a problem unless the reads of each type satisfy the models that it promises."""
        for kind, models in PROMISED.items():
            for model in models:
                verdict = check(self._history, model, reads=[kind])
                self.counts[f"{kind} {model} {verdict.status}"] += 1
                if verdict.status is Status.ILLEGAL:
                    self.illegal.append(verdict)
                    self.problems.append(f"{kind} reads are not {model}: {verdict}")

    def _judge_watches(self, rows: list[dict[str, Any]]) -> None:
        """Add problems with the notifications of each continuous read of the main table."""
        for watch in self.campaign.work.watches:
            if watch.table == MAIN:
                self._judge_order(watch)
                self.problems += list_watch_problems(self.campaign, watch, rows)
                self.problems += list_first_state_problems(self.campaign, watch, rows)


def _previous(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any] | None]:
    """Return for each entry of the log, by number, the version that it replaces.

    None where it replaces none.
    """
    last: dict[str, dict[str, Any]] = {}
    previous: dict[int, dict[str, Any] | None] = {}
    for row in rows:
        before = last.get(row["key"])
        previous[row["lsn"]] = before if before is None or before["ver"] < row["ver"] else None
        last[row["key"]] = row
    return previous


def _identity_after(name: str, losses: int) -> str:
    """Return the identity of a client after some wipes and restores of its device."""
    return f"{name} after wipe {losses}" if losses else name


def _has_seen_latest(read: Any) -> bool:
    """Return whether a read has seen the table as it is at the back end.

    One that only pending writes have answered has not asked for it (Mobius 4.2: a pending version is fresh).
    """
    source = read.result().source
    return bool(read.call.named_arguments["latest"]) and not (source and set(source.values()) == {"local"})


def play(seed: int) -> Judgement:
    """Run the campaign of a seed to its end, and judge it; violations are in the judgement, not raised."""
    campaign = Campaign(seed)
    campaign.run()
    return Judgement(campaign)
