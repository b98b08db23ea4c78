"""Rows M1, M2 and M2-scaling of Mobius 7.4: one-to-one messages through the servers, and how they scale."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, Final

from mudkit.fleet import ServerProfile
from mudkit.lab import Lab
from mudkit.predicates import SubscriptionIndex
from mudkit.reproduce.harness import Task, answer_of, memory_mb
from mudkit.reproduce.mobius import CURVE, PARTITIONS, measure_one_by_one
from mudkit.reproduce.mud_servers import APP, MessagingServers, add_to_index, rates
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.systems.mud import Client, Cloud

THROUGH_SERVERS: Final = (1, 10, 100, 1000)
"""Subscriptions a partition with which messages go through the servers."""
PARTITIONS_A_TABLE: Final = 100
"""Partitions of a table: a continuous read is registered for all of its table's."""
A_PARTITION: Final = 10
"""Subscriptions a partition, as in Figure 6."""
STEPS: Final = (10, 100, 1000, 10_000, 100_000, 1_000_000)
"""Numbers of subscribers at which memory and messages/s are measured."""


def measure_messages(
    say: Say = say_nothing,
    *,
    subscriptions: Sequence[int] = THROUGH_SERVERS,
    partitions: Sequence[int] = PARTITIONS,
    messages: int = 2000,
    runs: int = 5,
) -> Measured:
    """Measure row M1: messages through the servers, and predicates evaluated one by one."""
    quantities: dict[str, Quantity] = {}
    for many in subscriptions:
        say(f"messages through the servers, {many:,} subscriptions in a partition")
        servers = MessagingServers(many, many, 1)
        for _ in range(many):
            servers.subscribe()
        servers.time_messages(messages // 10 + 1, 0)
        everywhere, alone = rates(servers.time_messages(messages, run) for run in range(1, runs + 1))
        quantities |= {
            f"messages/s, gateway and processor, {many:,} a partition": Quantity.of(alone),
            f"messages/s, all servers in one process, {many:,} a partition": Quantity.of(everywhere),
        }
    quantities |= measure_one_by_one(say, partitions, 2 * runs + 1)
    parameters = {
        "messages a run": messages,
        "runs": runs,
        "time of a message": "the middle one of a run, wall clock",
        "servers": "1 gateway, 1 processor, 1 back end, 1 notification server; stores in memory",
        "writers": "one, whose token is verified once",
        "read predicate": "recipient = :name",
    }
    return Measured(quantities, parameters)


M1: Final = Row(
    name="M1",
    source="Mobius 7.4, Fig. 5",
    paper="About 5,000 messages/s at one subscription a partition, which a server persists, matches and "
    "forwards; a linear fall, about 70,000 predicate evaluations/s. The figure is lost; by its words, "
    f"messages/s by subscriptions a partition: {CURVE}.",
    required=(
        Required("messages/s, gateway and processor, 1 a partition", "at least", 5000),
        Required("messages/s, gateway and processor, 1,000 a partition", "at least", 5000),
        Required("evaluations/s one by one", "within", 70_000, 14_000),
        # A linear fall: the time of a message grows in proportion to what is evaluated for it.
        Required("power of subscriptions in the time of a message", "within", 1, 0.1, is_shape=True),
    ),
    measure=measure_messages,
    minutes=1.5,
    is_speed=True,
    known="predicates are compiled here; and the servers find the reader of a message by an index, so that "
    "messages/s through them do not fall as evaluations one by one do",
)


def hold_subscribers(steps: Sequence[int], messages: int, runs: int) -> list[dict[str, Any]]:
    """Register subscribers up to each of some numbers; return memory and messages/s at each."""
    servers = MessagingServers(max(steps), A_PARTITION, PARTITIONS_A_TABLE, has_sessions=False)
    gc.collect()
    before_mb, _ = memory_mb()
    answers = []
    for many in steps:
        while servers.subscribers < many:
            servers.subscribe()
        gc.collect()
        resident_mb, _ = memory_mb()
        servers.time_messages(messages // 10 + 1, 0)
        _, alone = rates(servers.time_messages(messages, run) for run in range(1, runs + 1))
        answers.append({"held": many, "mb": resident_mb - before_mb, "rates": alone})
    return answers


def hold_index(subscribers: int) -> float:
    """Add the same subscriptions to the index alone, one for each table; return their memory in MB."""
    indices: list[SubscriptionIndex] = []
    gc.collect()
    before_mb, _ = memory_mb()
    for number in range(subscribers):
        if number % (A_PARTITION * PARTITIONS_A_TABLE) == 0:
            indices.append(SubscriptionIndex())
        add_to_index(indices[-1], number)
    gc.collect()
    resident_mb, _ = memory_mb()
    return resident_mb - before_mb


def measure_subscribers(
    say: Say = say_nothing,
    *,
    steps: Sequence[int] = STEPS,
    messages: int = 1000,
    runs: int = 5,
) -> Measured:
    """Measure row M2: the servers and the index alone, each in a process of its own.

    The memory of few subscribers is too little to tell.
    """
    say(f"{max(steps):,} subscribers, {A_PARTITION} a partition")
    answers = answer_of(hold_subscribers, list(steps), messages, runs, task=Task("holds the subscribers"))
    say(f"{max(steps):,} subscriptions in the index alone")
    index_mb: float = answer_of(hold_index, max(steps), task=Task("holds the subscriptions"))
    quantities: dict[str, Quantity] = {}
    for answer in answers:
        name = f"messages/s, gateway and processor, {answer['held']:,} subscribers"
        quantities[name] = Quantity.of(answer["rates"])
    bytes_each = [answer["mb"] * 1e6 / answer["held"] for answer in answers]
    middle = {answer["held"]: Quantity.of(answer["rates"]).median for answer in answers}
    quantities |= {
        f"bytes a subscriber, {answer['held']:,} subscribers": Quantity.of([kept])
        for answer, kept in zip(answers, bytes_each, strict=True)
        if answer["held"] >= min(10_000, max(steps))
    }
    quantities |= {
        "subscribers held": Quantity.of([answers[-1]["held"]]),
        "bytes a subscriber": Quantity.of([bytes_each[-1]]),
        "bytes a subscription in the index alone": Quantity.of([index_mb * 1e6 / max(steps)]),
        "times what the index alone keeps": Quantity.of([answers[-1]["mb"] / index_mb]),
        "messages/s, gateway and processor": Quantity.of(answers[-1]["rates"]),
        "times fewer messages/s than with the fewest": Quantity.of([middle[min(steps)] / middle[max(steps)]]),
    }
    parameters = {
        "subscriptions a partition": A_PARTITION,
        "partitions a table": PARTITIONS_A_TABLE,
        "messages a run": messages,
        "runs": runs,
        "time of a message": "the middle one of a run, wall clock",
        "read predicate": "recipient = :name",
        "memory": "of the process, which grows with what the processor keeps",
    }
    return Measured(quantities, parameters)


M2: Final = Row(
    name="M2",
    source="Mobius 7.1 and 7.4, Fig. 6",
    paper="About 1,000,000 subscriptions, ten a partition, before 16 GB are used up.",
    required=(
        Required("subscribers held", "at least", 1_000_000),
        Required("times what the index alone keeps", "at most", 2),
        Required("messages/s, gateway and processor", "at least", 5000),
    ),
    measure=measure_subscribers,
    minutes=9.0,
    is_speed=True,
)


_EVENT_US: Final = 10_000.0
"""Time of a processor for a message that arrives: far more than links and other servers take."""
_WRITERS: Final = 16
"""Writers for each processor: enough that it is never idle."""


def played_messages_per_s(processors: int, partitions: int, *, is_hot: bool, seconds: float) -> float:
    """Return messages a virtual second through processors that take time, which all writers keep busy.

    Each partition has a reader. ``is_hot``: all messages are for one of them.
    """
    lab = Lab(seed=2)
    for number in range(1, processors + 1):
        lab.server(f"mud-processor-{number}", profile=ServerProfile(event_us=_EVENT_US))
    cloud = Cloud(lab, gateways=1, processors=processors, replicas=0, notification_servers=1)

    def join(name: str) -> Client:
        """Return the client of a new device."""
        device = lab.device(name, link="wifi")
        return Client(device, cloud, app=APP, token=lab.token(user=name, app=APP))

    changes: list[Any] = []
    readers = [join(f"reader-{number}") for number in range(partitions)]
    readers[0].create("messages", split=[f"{number:03d} " for number in range(1, partitions)]).result()
    for number, reader in enumerate(readers):
        text = f"recipient = 'reader-{number}'"
        reader.read("messages", text, type="continuous", callback=changes.append).result()

    def write(writer: Client, place: int, number: int) -> None:
        """Send a message, and the next one when it is answered."""
        recipient = 0 if is_hot else (place + number) % partitions
        key = f"{recipient:03d} {place} {number}"
        operation = writer.write("messages", key, {"recipient": f"reader-{recipient}"}, type="blind")
        operation.add_done_callback(lambda _: write(writer, place, number + 1))

    for place in range(_WRITERS * processors):
        write(join(f"writer-{place}"), place, 0)
    lab.run(seconds=2.0)
    before = len(changes)
    lab.run(seconds=seconds)
    return (len(changes) - before) / seconds


def measure_scaling(
    say: Say = say_nothing, *, processors: Sequence[int] = (1, 2, 4), seconds: float = 10.0
) -> Measured:
    """Measure row M2-scaling, in virtual time: it depends on no machine."""
    partitions = 2 * max(processors)
    quantities: dict[str, Quantity] = {}
    for is_hot, what in ((False, "even"), (True, "hot partition")):
        per_s = []
        for many in processors:
            say(f"{many} processors, {what}")
            per_s.append(played_messages_per_s(many, partitions, is_hot=is_hot, seconds=seconds))
            quantities[f"messages/s, {many} processors, {what}"] = Quantity.of([per_s[-1]])
        times = per_s[-1] / per_s[0] / (processors[-1] / processors[0])
        quantities[f"share of linear scaling, {what}"] = Quantity.of([times])
    parameters = {
        "processors": list(processors),
        "partitions": partitions,
        "ms of a processor for a message that arrives": _EVENT_US / 1000,
        "writers a processor": _WRITERS,
        "virtual seconds": seconds,
        "seed": 2,
    }
    return Measured(quantities, parameters)


M2_SCALING: Final = Row(
    name="M2-scaling",
    source="Mobius 7.4",
    paper="The design scales linearly by partitioning data and subscriptions across servers; a hot partition "
    "overwhelms its server. No figures.",
    required=(
        Required("share of linear scaling, even", "at least", 0.8),
        Required("share of linear scaling, hot partition", "below", 0.5),
    ),
    measure=measure_scaling,
    minutes=0.5,
)


ROWS: Final = (M1, M2, M2_SCALING)
