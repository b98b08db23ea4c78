"""Bugs seeded into MUD, to show that the campaign finds bugs.

The first four are those of ``consistency.md``. Bugs that affect histories must be found by the checker of
histories. Bugs in continuous reads, conditional writes and policies do not show in a history: they must
violate another guarantee of :class:`mudkit.verify.campaign.judge.Judgement`. A run that ends in an exception
finds nothing.

Gateways have no queue whose order matters: each write of a record names the one that it follows, and
``committed_wio`` reads and writes wait for each other. The bug of the gateway queue removes that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud.device import cache, fair_shares, joined_reads, joined_writes
from mudkit.systems.mud.device.cache import Cache, CachedAnswer
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.fair_shares import FairShares
from mudkit.systems.mud.device.greeting import Greeting
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.own_reads import OwnReads
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.own_writes import OwnWrites
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.device.read_path import ReadPath
from mudkit.systems.mud.device.read_records import ReadRecords
from mudkit.systems.mud.device.registrations import Registrations
from mudkit.systems.mud.device.service import DeviceService
from mudkit.systems.mud.device.shared_reads import SharedReads
from mudkit.systems.mud.device.store_budget import StoreBudget
from mudkit.systems.mud.device.write_outcomes import WriteOutcomes
from mudkit.systems.mud.device.write_path import WritePath
from mudkit.systems.mud.device.write_requests import WriteRequests
from mudkit.systems.mud.servers import committed_log, decided_writes, gateway, notifications
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.decided_writes import DecidedWrites
from mudkit.systems.mud.servers.leases import Leases
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.matching import Matching
from mudkit.systems.mud.servers.naming import Naming
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.served_reads import ServedReads
from mudkit.systems.mud.servers.store_server import _RecordingStore
from mudkit.systems.mud.servers.table_followers import TableFollowers
from mudkit.systems.mud.tables import replica as copy
from mudkit.verify.campaign import replacements
from mudkit.verify.campaign.judge import play

_MAX_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Bug:
    """Bug, and how it is seeded."""

    name: str
    breaks: str
    """Its effect, in words."""
    swaps: tuple[tuple[Any, str, Any], ...]
    """Class or module, name of an attribute, and the replacement."""
    in_histories: bool = True
    """True if the checker of histories must find it."""
    seed: int = 0
    """A run that finds it, tried first, because few runs of a hundred find some of them."""

    @contextmanager
    def inject(self) -> Iterator[None]:
        """Seed the bug in this process while the body runs; its attributes are put back at the end."""
        with ExitStack() as after:
            for owner, name, instead in self.swaps:
                after.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, instead)
            yield


@dataclass(frozen=True)
class Catch:
    """Run that found a bug."""

    seed: int
    promise: str
    """Violated guarantee: a model of the checker, or another one of the judgement."""
    words: str
    operations: int | None
    """Number of operations of the smallest contradiction; None: not found by the checker."""

    def __str__(self) -> str:
        if self.operations is None:
            return f"seed {self.seed}, violated: {self.promise}: {self.words}"
        plural = "s" if self.operations > 1 else ""
        return f"seed {self.seed}, {self.operations} operation{plural}: {self.words}"


def hunt(bug: Bug, seeds: Sequence[int]) -> Catch | None:
    """Seed a bug and run seeds until one finds it; return None if none does."""
    with bug.inject():
        for seed in (bug.seed, *seeds):
            try:
                one_run = play(seed)
            except Exception:  # an exception is not a finding
                continue
            if bug.in_histories and one_run.illegal:
                smallest = min(one_run.illegal, key=lambda verdict: len(verdict.explanation.operations))
                contradicting = len(smallest.explanation.operations)
                return Catch(seed, smallest.model, str(smallest)[:_MAX_CHARACTERS], contradicting)
            if not bug.in_histories and one_run.broken:
                promise, words = next(iter(one_run.broken.items()))
                return Catch(seed, promise, words[:_MAX_CHARACTERS], None)
    return None


BUGS: Final = (
    Bug(
        "a dropped last-seen version",
        "a lagging replica shows overwritten records to a client that has seen newer ones",
        ((Local, "seen_lsns", lambda self, name: {}),),
        seed=16,
    ),
    Bug(
        "an unordered gateway queue",
        "writes of one record overtake each other",
        (
            (WritePath, "write", replacements.send_at_once),
            (WriteRequests, "build_request", replacements.follow_nothing),
        ),
        seed=1,
    ),
    Bug(
        "a repeated blind write",
        "a retransmitted write is decided again",
        ((DecidedWrites, "_results", lambda self, client: {}),),
        seed=6,
    ),
    Bug(
        "a conflict that keeps the pending write",
        "uncommitted reads still return a refused write",
        ((WriteOutcomes, "fail", replacements.keep_conflict),),
    ),
    Bug(
        "a read in order that does not wait for writes",
        "committed_wio reads miss earlier writes of their client",
        ((ReadPath, "_earlier_writes", lambda self, query: []),),
    ),
    Bug(
        "writes that do not wait for a read in order",
        "committed_wio reads show later writes of their client",
        ((ReadOrder, "blocks", lambda self, write: False),),
        seed=10,
    ),
    Bug(
        "conditional writes that always succeed",
        "unseen writes of others are overwritten",
        ((decided_writes, "_may_replace", lambda write, row: True),),
        in_histories=False,
    ),
    Bug(
        "conditional writes that never find their version",
        "conflicts without a concurrent write",
        ((decided_writes, "_may_replace", lambda write, row: row is None),),
        in_histories=False,
    ),
    Bug(
        "a stream that accepts items in any order",
        "notifications are duplicated or missed",
        ((Incoming, "take", replacements.accept_any_item),),
        in_histories=False,
        seed=6,
    ),
    Bug(
        "a new session without repeated registrations",
        "continuous reads end silently when a notification server has lost them",
        ((Registrations, "request", replacements.register_once),),
        in_histories=False,
    ),
    Bug(
        "a processor that does not announce its restart",
        "continuous reads end silently when a processor has lost them",
        ((ContinuousReads, "_record_generation", lambda self, *given: ()),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "reader data that is valid because it arrived last",
        "a reader is notified of a record that its latest data hides",
        ((ServedReads, "replace_reader_data", replacements.accept_any_data),),
        in_histories=False,
        seed=266,
    ),
    Bug(
        "a timer that traffic postpones",
        "lost messages are not retransmitted while there is other traffic",
        ((RetransmitTimer, "start", replacements.postpone_all),),
        in_histories=False,
    ),
    Bug(
        "a wiped device that keeps its identity",
        "its writes are answered with results of earlier ones",
        ((decided_writes, "_results_key", replacements.name_the_same_results),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "rows of a dropped table that stay cached",
        "a table shows records of a dropped table of the same name",
        ((Local, "forget_tables", lambda self, name, since: None),),
        in_histories=False,
        seed=38,
    ),
    Bug(
        "writes that are discarded with their token",
        "a write that must wait for a new token is lost",
        ((WriteOutcomes, "receive", replacements.discard_without_token),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "rows that are visible to everyone",
        "writer predicates are not evaluated on reads",
        ((copy, "is_visible", lambda row, reader, auth, table, tables=None: True),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "changes that everyone is notified of",
        "writer predicates are not evaluated on writes",
        ((Matching, "match", replacements.notify_everyone),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "changes that do not wait for an application",
        "an application that was started again misses changes of its continuous reads",
        ((ReadNotices, "emit", replacements.emit_at_once),),
        in_histories=False,
        seed=24,
    ),
    Bug(
        "changes beyond the bound that are dropped",
        "an application that was away for long misses changes of its continuous reads",
        ((ContinuousReads, "_pause", lambda self, now_us, read: ()),),
        in_histories=False,
        seed=70,
    ),
    Bug(
        "aggregates of the beginning only",
        "continuous reads of aggregates are not notified of changes",
        ((ServedReads, "_send_aggregates", lambda self, *given: ()),),
        in_histories=False,
    ),
    Bug(
        "tombstones that are kept",
        "what deleted records leave is never collected",
        ((BackEnd, "_collect_tombstones", lambda self, now_us: ()),),
        in_histories=False,
        seed=46,
    ),
    Bug(
        "versions that begin again",
        "a record has versions again that it had before its tombstone was collected",
        ((committed_log, "_collected_key", replacements.name_another_position),),
        in_histories=False,
        seed=46,
    ),
    Bug(
        "a session without a token",
        "another machine gets the notifications of an app",
        (
            (notifications, "is_of_service", lambda source: True),
            (notifications, "_is_allowed", lambda *given: True),
        ),
        in_histories=False,
        seed=10,
    ),
    Bug(
        "a gateway that believes any token",
        "an app reads what only another one may read, with that one's token",
        ((gateway, "_check_app", lambda claims, app: None),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a service that forwards all to its first app",
        "another app of the device misses changes of its continuous reads",
        ((Greeting, "_concerned", lambda self, body: list(self._apps)[:1]),),
        in_histories=False,
        seed=8,
    ),
    Bug(
        "an answer for every app that asks the same",
        "an app reads what only another one may read, because both ask at once",
        ((SharedReads, "_may_see", lambda self, *given: True),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "an app that ends the heartbeats of its device",
        "continuous reads of an app end silently with those of another one",
        ((Greeting, "attach", replacements.end_for_all),),
        in_histories=False,
        seed=51,
    ),
    Bug(
        "a timeout that does not adapt to the link",
        "requests over a slow link are sent many times",
        ((RetransmitTimer, "start", replacements.wait_1_s),),
        in_histories=False,
        seed=12,
    ),
    Bug(
        "a registration of all continuous reads for each of them",
        "messages grow with the square of the number of continuous reads",
        (
            (Greeting, "attach", replacements.greet_for_each),
            (ContinuousReads, "receive_session", replacements.register_all),
        ),
        in_histories=False,
        seed=23,
    ),
    Bug(
        "a session that ends although its client is reached",
        "over a slow link, sessions end before their registrations are sent, one after another",
        ((NotificationServer, "_is_late", replacements.wait_as_for_a_lost_client),),
        in_histories=False,
        seed=2559,
    ),
    Bug(
        "a write that absorbs one that was sent",
        "a write has the version of an earlier one, and is lost",
        ((WritePath, "_can_absorb", replacements.absorb_what_was_sent),),
        in_histories=False,
    ),
    Bug(
        "a chain that is applied in any order",
        "a write of a record overtakes an earlier one that the network has lost",
        ((decided_writes, "_base_on_followed", replacements.apply_out_of_order),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "increments that are applied at each arrival",
        "an increment that was sent again counts twice",
        ((DecidedWrites, "write", replacements.apply_changes_again),),
        in_histories=False,
        seed=42,
    ),
    Bug(
        "joined increments of which the last one counts",
        "increments that were never sent are acknowledged, and are not in the sum",
        ((joined_writes, "compose", lambda first, then: then),),
        in_histories=False,
    ),
    Bug(
        "a batch whose parts are decided one by one",
        "a batch is stored in part, as a part of it is refused",
        ((DecidedWrites, "_apply_writes", replacements.apply_until_refused),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a batch that is told part by part",
        "a continuous read shows a part of a batch",
        ((ServedReads, "match", replacements.match_parts_alone),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a message for each write",
        "writes that have waited for a network leave one by one",
        ((Connection, "send_writes", replacements.send_one_by_one),),
        in_histories=False,
    ),
    Bug(
        "a message for each app",
        "writes of several apps that have waited for a network leave one after another",
        ((DeviceService, "_send_all", replacements.send_all_at_once),),
        in_histories=False,
        seed=13,
    ),
    Bug(
        "a delay for each app",
        "delayed writes of an app stay when those of another one leave",
        ((WriteRequests, "send_delayed", lambda self, now_us: ()),),
        in_histories=False,
        seed=10,
    ),
    Bug(
        "an app without a share of the link",
        "an app that floods fills the link before the requests of another app",
        ((FairShares, "offer", lambda self, now_us, app, message: [message]),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a share of the link without bytes",
        "an app that floods with large messages fills the link before the requests of another app",
        ((fair_shares, "size_bytes", lambda message: 0),),
        in_histories=False,
        seed=17,
    ),
    Bug(
        "a share of the link that is never freed",
        "requests of an app wait although its earlier ones are answered",
        ((FairShares, "settle", lambda self, *given: []),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a share of the link that retransmissions leave",
        "requests of an app that are sent again for longer than a minute are not in its share",
        ((FairShares, "offer", replacements.offer_without_renewal),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "a share of the link for all apps",
        "requests of an app wait behind those of another app that floods",
        (
            (FairShares, "offer", replacements.offer_in_one_queue),
            (FairShares, "settle", replacements.settle_in_one_queue),
        ),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a table on the device that is in memory",
        "what an app has written on its device is gone after a kill",
        ((OwnTables, "_put_row", replacements.keep_in_memory),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a table on the device that stays when it is wiped",
        "what an app has written on a device is there after its wipe",
        ((MemoryStore, "wipe", replacements.wipe_all_but_own_tables),),
        in_histories=False,
        seed=75,
    ),
    Bug(
        "a write on the device that nobody is told of",
        "continuous reads of a table on the device do not show what its app writes",
        ((OwnReads, "deliver_writes", lambda self, *given: ()),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a batch on the device whose parts are committed one by one",
        "a table on the device has a part of a batch, as a part of it is refused",
        ((OwnTables, "_build_row", replacements.commit_row_at_once),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "conditional writes on the device that always succeed",
        "a write replaces another version on the device than it names",
        ((OwnTables, "_build_row", replacements.build_row_unconditionally),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a lookup on the device that the cloud is asked",
        "the cloud hears of a table on the device",
        ((joined_reads, "restrict", lambda predicate, keeps: predicate),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a lookup that finds nothing in the cloud",
        "records on the device are not joined with those of the cloud",
        ((joined_reads._Tables, "look_up", replacements.look_up_on_the_device),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a budget for each app",
        "the apps of a device store more than its budget",
        ((StoreBudget, "record_use", lambda self, app, use: None),),
        in_histories=False,
        seed=13,
    ),
    Bug(
        "a rule that nobody judges",
        "everybody replaces and deletes what a rule keeps for its owner",
        ((decided_writes, "check_may_write", lambda *given: None),),
        in_histories=False,
    ),
    Bug(
        "a rule that does not concern deletes",
        "everybody deletes what a rule keeps for its owner",
        ((decided_writes, "check_may_write", replacements.check_writes_only),),
        in_histories=False,
    ),
    Bug(
        "reads that forget what their client was told of",
        "a read shows an older version than its client was told of",
        ((Local, "seen_lsns", lambda self, name: {}),),
        in_histories=False,
    ),
    Bug(
        "a policy that decides about pending writes",
        "a device does not show its own writes without a network",
        ((CachedAnswer, "is_pending", property(lambda cached: False)),),
        in_histories=False,
        seed=11,
    ),
    Bug(
        "own writes that are shown once they are committed",
        "an application does not show what it has written itself and waits on its device",
        ((OwnWrites, "pending_in", lambda self, stored, key: None),),
        in_histories=False,
        seed=31,
    ),
    Bug(
        "pending records that stay when the store has decided",
        "an application shows as pending what was refused or lost",
        ((ReadRecords, "follow_own", replacements.keep_pending),),
        in_histories=False,
        seed=17,
    ),
    Bug(
        "pushed records that are not held",
        "a read shows an older version than a continuous read of the same device was told of",
        ((ContinuousReads, "_store_delivered", lambda self, *given: None),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "an answer that contains any other",
        "a read of more than the device has asked for is answered by it, and says that it is complete",
        ((Cache, "_contains_query", lambda self, larger, smaller: larger.table == smaller.table),),
        in_histories=False,
        seed=25,
    ),
    Bug(
        "a rest that is not asked for",
        "an answer that the device has a part of says that it is complete",
        ((cache, "remainder", lambda query, by: Predicate("key = ''")),),
        in_histories=False,
        seed=140,
    ),
    Bug(
        "a first state that is told too early",
        "an application draws its first screen without records that exist",
        ((Registrations, "begin_live", replacements.notify_synced_early),),
        in_histories=False,
        seed=16,
    ),
    Bug(
        "a window that pulls nothing in",
        "a record that leaves a window leaves it short",
        ((ServedReads, "tell", replacements.send_one_change),),
        in_histories=False,
        seed=9,
    ),
    Bug(
        "a dead notification server that keeps its range",
        "its devices are told nothing any more",
        ((Naming, "_replace_silent", lambda self, now_us: ()),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a device that stays with a server that does not answer",
        "a device is told nothing any more, although its server was replaced",
        ((Greeting, "_record_miss", lambda self: None),),
        in_histories=False,
        seed=103,
    ),
    Bug(
        "a replaced processor that no device hears of",
        "its continuous reads are told nothing any more",
        ((NotificationServer, "_end_generation", lambda self, now_us, processor: ()),),
        in_histories=False,
        seed=55,
    ),
    Bug(
        "a dead processor that keeps its partitions",
        "requests about them are not answered any more",
        ((Ranges, "suspect", replacements.suspect_no_processor),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "a processor that keeps what was moved away",
        "a continuous read is told the same change by two processors, or of none",
        ((Processor, "_follow_assignments", lambda self, now_us, was_serving: ()),),
        in_histories=False,
        seed=514,
    ),
    Bug(
        "a processor that keeps the rows of what was moved away",
        "it has rows that it need not have, and they grow old",
        ((copy.TableReplica, "discard_rows_besides", lambda self, holding: None),),
        in_histories=False,
        seed=266,
    ),
    Bug(
        "a processor that misses what was written before a partition moved to it",
        "it follows the entries of the partition, but does not request its rows",
        ((LogFollower, "_has_all_rows", lambda self: True),),
        in_histories=False,
        seed=165,
    ),
    Bug(
        "a creation that is answered before the gateways know it",
        "a gateway tells a client that there is no table although its creation was answered",
        (
            (
                TableFollowers,
                "send_when_acknowledged",
                lambda self, now_us, identity, answer, lineage: (answer,),
            ),
        ),
        in_histories=False,
        seed=9,
    ),
    Bug(
        "a gateway that waits for the back end",
        "no read is answered while the back end is down",
        ((gateway, "UNANSWERED_US", 10**15),),
        in_histories=False,
        seed=26,
    ),
    Bug(
        "a read that always goes to the same replica",
        "a read is not answered while its replica is down with the back end",
        ((Processor, "_choose_address", replacements.choose_first_replica),),
        in_histories=False,
        seed=155,
    ),
    Bug(
        "a write that is acknowledged before the standbys have it",
        "a write that was acknowledged is lost with the master",
        ((Leases, "keep", replacements.keep_for_nobody),),
        in_histories=False,
        seed=294,
    ),
    Bug(
        "results of writes that are not copied",
        "a write that the former master has carried out is carried out again by the next one",
        ((_RecordingStore, "take_change", replacements.take_change_without_results),),
        in_histories=False,
        seed=145,
    ),
)
"""All seeded bugs; the first four are those of ``consistency.md``."""
