"""Servers of MUD tables in one process, for one-to-one messages (Mobius 7.4).

They are those of a cloud in a lab, with all messages between them as there; only links and virtual time are
left out: each message is carried at once, and what leaves the servers is acknowledged for its device.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from mudkit.delivery.stream import StreamAck, StreamItem
from mudkit.events import Received, Record, Send
from mudkit.fleet.host import Process
from mudkit.lab import Lab
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.messages.notifications import Hello, Tell, Welcome
from mudkit.systems.mud.messages.requests import (
    Ask,
    ContinuousReadAck,
    PartsComplete,
    RegisterRequest,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.tables.records import SentPredicate

APP: Final = "chat"
TEXT: Final = "See you at noon, at the corner of Fifth Street."
_PREDICATE: Final = "recipient = :name"
_MESSAGE_US: Final = 200
"""Virtual time between two messages: only its order counts."""


class Times(NamedTuple):
    """Seconds for a message, the middle one of many: at all servers, and at gateway and processor alone."""

    all_s: float
    alone_s: float


class MessagingServers:
    """Gateway, processor, back end and notification server, with as many tables as subscribers need.

    A table has ``partitions`` partitions, each of ``a_partition`` subscribers. Each of these is the only
    reader of the messages to it. ``has_sessions`` False: the notification server has none, and each
    notification is acknowledged in its place.
    """

    def __init__(
        self, subscribers: int, a_partition: int, partitions: int, *, has_sessions: bool = True
    ) -> None:
        self.a_partition = a_partition
        self._lab = lab = Lab(seed=1)
        self._cloud = cloud = Cloud(lab, gateways=1, processors=1, replicas=0, notification_servers=1)
        (self._gateway,), (self._processor,) = cloud.gateways, cloud.processors
        (self._notifier,) = cloud.notification_servers
        self._per_table = a_partition * partitions
        creator = Client(lab.device("creator"), cloud, app=APP, token=lab.token(user="creator", app=APP))
        split = [_partition(number) for number in range(1, partitions)]
        for number in range(-(-subscribers // self._per_table)):
            creator.create(f"messages {number}", split=split).result()
        lab.run(minutes=1)
        self._now_us = lab.world.now_us
        servers = [host for host in lab.world.hosts.values() if host.link is None]
        self._machines: dict[str, Process] = {
            process.address: process for server in servers for process in server.processes
        }
        if not has_sessions:
            del self._machines[self._notifier]
        self._has_sessions = has_sessions
        self._arrived: list[Any] = []
        """Messages for devices, without notifications."""
        self._notified = 0
        self._spent_s: dict[str, float] = {}
        self._writer = lab.token(user="writer", app=APP)
        self._writes = 0
        self.subscribers = 0

    def subscribe(self, predicate: SentPredicate | None = None) -> None:
        """Register the continuous read of the next subscriber: by default of the messages to it."""
        number = self.subscribers
        self.subscribers += 1
        name, incarnation = _name(number), f"{number:016x}"
        token = self._lab.token(user=name, app=APP)
        session = f"{self._notifier} {self._now_us}.{number}"
        if self._has_sessions:
            hello = Hello(
                endpoint=f"{name}/{APP}",
                session=None,
                is_new=True,
                policies={},
                incarnation=incarnation,
                seq=1,
                tokens={APP: token},
            )
            self._carry(self._notifier, name, hello)
            session = self._take(Welcome)[0].session
        register = RegisterRequest(
            name=self._table(number),
            handle=_handle(number),
            reader={},
            data_seq=1,
            request=1,
            session=session,
            predicate=predicate or SentPredicate(_PREDICATE, [name]),
            since_lsns={},
            delivered=[],
            sync_us=None,
            table=None,
        )
        identity = f"{name}/{APP} {incarnation}.1"
        self._carry(self._gateway, name, Ask(identity, f"{name}/{APP}", token, register))
        self._take(ContinuousReadAck, PartsComplete)

    def time_messages(self, count: int, seed: int) -> Times:
        """Send messages to random subscribers, one after the other, and time each."""
        rng = random.Random(seed)
        writes = [self._build_write(rng.randrange(self.subscribers)) for _ in range(count)]
        before, times = self._notified, []
        for write in writes:
            self._now_us += _MESSAGE_US
            self._spent_s.clear()
            started = time.perf_counter()
            self._carry(self._gateway, "writer", write)
            all_s = time.perf_counter() - started
            times.append((all_s, self._spent_s[self._gateway] + self._spent_s[self._processor]))
            (outcome,) = self._take(WriteOutcome)
            assert isinstance(outcome.ver, int), outcome
        assert self._notified == before + count, "each message has one reader"
        return Times(*map(statistics.median, zip(*times, strict=True)))

    def _table(self, subscriber: int) -> str:
        """Return the name of the table of a subscriber."""
        return f"messages {subscriber // self._per_table}"

    def _build_write(self, recipient: int) -> Ask:
        """Build the request that sends a message: a record in the partition of its recipient."""
        self._writes += 1
        number, incarnation = self._writes, "writer"
        partition = recipient % self._per_table // self.a_partition
        write = WriteRequest(
            name=self._table(recipient),
            table=None,
            key=f"{_partition(partition)}{number}",
            type="blind",
            data={"recipient": _name(recipient), "text": TEXT},
            predicate=None,
            reader={},
            replaces=0,
            number=number,
            first=number,
            incarnation=incarnation,
        )
        return Ask(f"writer/{APP} {incarnation}.{number}", f"writer/{APP}", self._writer, write)

    def _carry(self, to: str, device: str, message: Any) -> None:
        """Carry a message of a device to a server, and all that follows from it."""
        machines, spent_s, clock = self._machines, self._spent_s, time.perf_counter
        queue = deque([(to, f"{device}/mud", message)])
        while queue:
            to, source, message = queue.popleft()
            process = machines.get(to)
            if process is None:
                if isinstance(message, StreamItem):
                    body = message.body
                    self._notified += isinstance(body, Tell) and body.change is not UNSET
                    queue.append((source, to, StreamAck(message.stream, message.seq)))
                else:
                    self._arrived.append(message)
                continue
            event = Received(source, message, source.partition("/")[0])
            machine = process.machine
            assert machine is not None
            started = clock()
            effects = machine.handle(self._now_us, event)
            if process.store.is_dirty:
                process.store.commit()
            spent_s[to] = spent_s.get(to, 0.0) + clock() - started
            for effect in effects:
                if isinstance(effect, Send):
                    queue.append((effect.to, to, effect.message))
                assert not isinstance(effect, Record), effect

    def _take(self, *kinds: type) -> list[Any]:
        """Return what has arrived at devices, which must be a message of each kind."""
        arrived, self._arrived = self._arrived, []
        assert [type(message) for message in arrived] == list(kinds), arrived
        return arrived


def add_to_index(index: SubscriptionIndex, number: int) -> None:
    """Add the continuous read of a subscriber to an index, as a processor does."""
    reader = {"app": APP, "user": _name(number)}
    identity = f"{_name(number)}/{APP}", _handle(number)
    index.add(identity, Predicate(_PREDICATE, name=_name(number)), receiver={}, auth=reader)


def _handle(subscriber: int) -> str:
    """Return the handle of a subscriber's continuous read, the first one of its incarnation."""
    return f"{subscriber:016x} 1"


def _name(subscriber: int) -> str:
    """Return the name of a subscriber, its device and its user."""
    return f"reader-{subscriber}"


def _partition(number: int) -> str:
    """Return the first key of a partition."""
    return f"{number:06d} "


def rates(times: Iterable[Times]) -> tuple[Sequence[float], Sequence[float]]:
    """Return messages a second of several runs: of all servers, and of gateway and processor alone."""
    runs = list(times)
    return [1 / run.all_s for run in runs], [1 / run.alone_s for run in runs]
