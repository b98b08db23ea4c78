"""Bugs that are put into MUD on purpose: a campaign that does not catch them says nothing of one without.

Four are those of ``consistency.md``; they and whatever else breaks a history must be caught by the checker of
histories. What breaks continuous reads, conditional writes or policies, no history shows: there a promise
must be broken that :class:`mudkit.verify.campaign.judge.Judgement` asks for. A run that ends in an error has
caught nothing.

A gateway here has no queue whose order anything depends on: the client sends a record's writes one after
another, and lets a ``committed_wio`` read and a write wait for each other. That order is what is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.errors import MudkitError
from mudkit.events import Effect, SetTimer
from mudkit.systems.mud import Conflict
from mudkit.systems.mud.device.connection import RETRY, Watch
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.read_path import ReadPath
from mudkit.systems.mud.device.write_path import ReadOrder, WritePath
from mudkit.systems.mud.messages import DataUpdate, Row, Write
from mudkit.systems.mud.servers import backend
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.processor import Handle, Matching, Processor
from mudkit.systems.mud.tables import replica as copy
from mudkit.systems.mud.tables.table import Table
from mudkit.verify.campaign.judge import play

__all__ = ["BUGS", "Bug", "Catch", "hunt"]

_MOST_WORDS: Final = 400


@dataclass(frozen=True)
class Bug:
    """A bug, and how it is seeded.

    Parameters
    ----------
    name : str
    breaks : str
        What goes wrong.
    swaps : tuple of (object, str, callable)
        A class or module, what it has by which name, and what is put there instead.
    in_histories : bool
        Whether the checker of histories must catch it.
    seed : int
        A run that caught it, tried first: few runs of a hundred catch some of them.
    """

    name: str
    breaks: str
    swaps: tuple[tuple[Any, str, Callable[..., Any]], ...]
    in_histories: bool = True
    seed: int = 0

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Seed the bug in this process."""
        with ExitStack() as after:
            for owner, name, instead in self.swaps:
                after.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, instead)
            yield


@dataclass(frozen=True)
class Catch:
    """A run that has caught a bug.

    Parameters
    ----------
    seed : int
    promise : str
        The promise that was broken: a model of the checker, or what
        :class:`~mudkit.verify.campaign.judge.Judgement` asks.
    words : str
    operations : int or None
        The operations of the smallest contradiction that the checker found; None: it was not the checker.
    """

    seed: int
    promise: str
    words: str
    operations: int | None

    def __str__(self) -> str:
        if self.operations is None:
            return f"seed {self.seed}, not so: {self.promise}: {self.words}"
        plural = "s" if self.operations > 1 else ""
        return f"seed {self.seed}, {self.operations} operation{plural}: {self.words}"


def hunt(bug: Bug, seeds: Sequence[int]) -> Catch | None:
    """Seed a bug, and play runs until one of them catches it; None: none has.

    Parameters
    ----------
    bug : Bug
    seeds : sequence of int
        A run each.
    """
    with bug.seeded():
        for seed in (bug.seed, *seeds):
            try:
                one_run = play(seed)
            except Exception:  # an error breaks no promise
                continue
            if bug.in_histories and one_run.illegal:
                least = min(one_run.illegal, key=lambda verdict: len(verdict.explanation.operations))
                return Catch(seed, least.model, str(least)[:_MOST_WORDS], len(least.explanation.operations))
            if not bug.in_histories and one_run.broken:
                promise, words = next(iter(one_run.broken.items()))
                return Catch(seed, promise, words[:_MOST_WORDS], None)
    return None


# -- what is put there instead

_fail, _write, _sent = WritePath._fail, WritePath.write, RetransmitTimer.sent
_scope = backend._scope
_register, _update, _match = ContinuousReads._register, Processor._update, Matching.match


def _keeps_conflicts(
    self: WritePath, write: PendingWrite, error: MudkitError, row: Row | None
) -> Sequence[Effect]:
    if not isinstance(error, Conflict):
        return _fail(self, write, error, row)
    self._under_way.add(write.number)  # its caller knows: it is not sent again
    return self._complete(write, None if row is None else row.ver, error)


def _sends_at_once(
    self: WritePath, now_us: int, op_id: int, asked: Write, context: Mapping[str, Any]
) -> Sequence[Effect]:
    """Send a blind write, whatever of its record is under way."""
    effects = _write(self, now_us, op_id, asked, context)
    if asked.type == "blind":
        self._new.add(self._local.writes.last_seq)
    return [*effects, *self.advance(now_us)]


def _takes_whatever_comes(self: Incoming[Any], item: StreamItem[Any]) -> Sequence[Any]:
    self.last_seq = item.seq
    return (item.body,)


def _registers_once(self: ContinuousReads, now_us: int, watch: Watch) -> Sequence[Effect]:
    return () if watch.request else _register(self, now_us, watch)


def _is_told_everyone(
    self: Matching, row: Row, table: Table
) -> tuple[list[Handle], dict[Handle, MudkitError]]:
    """Match a version as if its writer showed it to every reader."""
    return _match(self, replace(row, predicate=None), table)


def _takes_every_word(self: Processor, message: DataUpdate) -> Sequence[Effect]:
    reading = self._readings.get((message.endpoint, message.handle))
    if reading is not None:
        reading.data_seq = -1
    return _update(self, message)


def _is_put_off(self: RetransmitTimer[Any], now_us: int, key: Any, size_bytes: int = 0) -> Sequence[Effect]:
    """Postpone the deadlines of all requests with each that is sent."""
    effects = _sent(self, now_us, key, size_bytes)
    if self.name != RETRY:
        return effects
    self._set_us = now_us + 10_000_000
    for each in self._waiting.values():
        each.due_us = self._set_us
    return (SetTimer(RETRY, 10_000_000),)


def _gives_up(self: WritePath, write: PendingWrite, error: MudkitError) -> Sequence[Effect]:
    """Remove a write that an expired token has held up."""
    return _fail(self, write, error, None)


BUGS: Final = (
    Bug(
        "a dropped last-seen version",
        "a replica that lags behind shows what was overwritten before, to who has seen that",
        ((Local, "seen", lambda self, name: {}),),
        seed=20,
    ),
    Bug(
        "an unordered gateway queue",
        "writes of one record overtake each other",
        ((WritePath, "write", _sends_at_once),),
        seed=1,
    ),
    Bug(
        "a repeated blind write",
        "a write that is sent again is decided again",
        ((BackEnd, "_results", lambda self, client: {}),),
        seed=4,
    ),
    Bug(
        "a conflict that keeps the pending write",
        "uncommitted reads still give what was refused",
        ((WritePath, "_fail", _keeps_conflicts),),
        seed=9,
    ),
    Bug(
        "a read in order that does not wait for writes",
        "committed_wio reads miss what their client has written before",
        ((ReadPath, "_before", lambda self, query: []),),
    ),
    Bug(
        "writes that do not wait for a read in order",
        "committed_wio reads show what their client has written after",
        ((ReadOrder, "blocks", lambda self, write: False),),
        seed=1,
    ),
    Bug(
        "conditional writes that always succeed",
        "what another has written is overwritten unseen",
        ((backend, "_replaces", lambda write, row: True),),
        in_histories=False,
    ),
    Bug(
        "conditional writes that never find their version",
        "conflicts with nobody",
        ((backend, "_replaces", lambda write, row: row is None),),
        in_histories=False,
    ),
    Bug(
        "a stream that takes whatever comes",
        "what notification servers tell comes twice, or is missed",
        ((Incoming, "take", _takes_whatever_comes),),
        in_histories=False,
        seed=24,
    ),
    Bug(
        "a new session that registers nothing again",
        "continuous reads end unsaid when a notification server has forgotten them",
        ((ContinuousReads, "_register", _registers_once),),
        in_histories=False,
    ),
    Bug(
        "a processor that does not say that it was restarted",
        "continuous reads end unsaid when a processor has forgotten them",
        ((ContinuousReads, "_heard", lambda self, *given: ()),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "a reader's word that counts because it came last",
        "who has said since what hides a record from him is told of it",
        ((Processor, "_update", _takes_every_word),),
        in_histories=False,
        seed=5766,
    ),
    Bug(
        "a timer that traffic puts off",
        "what was lost waits until nothing else is asked",
        ((RetransmitTimer, "sent", _is_put_off),),
        in_histories=False,
    ),
    Bug(
        "a wiped device that is taken for what it was",
        "its writes are answered with what came of others",
        ((backend, "_scope", lambda incarnation, writer: _scope("the same", writer)),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "rows of a dropped table that are held",
        "a table shows what was in another of its name",
        ((Local, "forget", lambda self, name, since: None),),
        in_histories=False,
        seed=38,
    ),
    Bug(
        "writes that end with their token",
        "a write that was to wait for another token is gone",
        ((WritePath, "_hold_back", _gives_up),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "rows that everyone sees",
        "writer predicates are not asked for what is there already",
        ((copy, "is_visible", lambda row, reader, auth, table, tables=None: True),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "changes that everyone is told",
        "writer predicates are not asked for what is written",
        ((Matching, "match", _is_told_everyone),),
        in_histories=False,
        seed=5,
    ),
)
"""All of them; the first four are those of ``consistency.md``."""
