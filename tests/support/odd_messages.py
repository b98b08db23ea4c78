"""Malformed messages for the machines of a lab: random, mutated, and from unauthorised senders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from mudkit import Lab
from mudkit.events import Received, Record
from mudkit.wire import as_wire

_WORDS = ["", "x", "ann", "bob", "eve", "\n", "\u0000", "2" * 600, "-1", "none"]


@contextmanager
def record_received(lab: Lab) -> Iterator[dict[Any, list[Received]]]:
    """Record the messages that each machine of a lab receives, by process."""
    received: dict[Any, list[Received]] = defaultdict(list)
    world, handle = lab.world, type(lab.world)._handle

    def record_and_handle(self: Any, process: Any, event: Any) -> None:
        if type(event) is Received and self is world:
            received[process].append(Received(event.source, as_wire(event.message), event.host))
        handle(self, process, event)

    type(world)._handle = record_and_handle
    try:
        yield received
    finally:
        type(world)._handle = handle


def draw_value(draw: Random, depth: int = 3) -> Any:
    """Draw any JSON value, including bytes."""
    kind = draw.randrange(8 if depth else 6)
    if kind == 6:
        return [draw_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 7:
        return {draw.choice(_WORDS): draw_value(draw, depth - 1) for _ in range(draw.randrange(4))}
    return [
        None,
        draw.random() < 0.5,
        draw.choice([0, -1, 1, 2, 7, 1 << 40, 1 << 63, -(1 << 62)]),
        draw.choice([0.0, -1.5, 1e308, 1e-320]),
        draw.choice(_WORDS),
        draw.randbytes(draw.randrange(40)),
    ][kind]


def mutate(draw: Random, message: Any) -> Any:
    """Change a part of a message, at any depth."""
    if isinstance(message, dict) and message and draw.random() < 0.9:
        name = draw.choice(list(message))
        changed = dict(message)
        choice = draw.random()
        if choice < 0.2:
            del changed[name]
        elif choice < 0.3:
            changed[draw.choice(_WORDS)] = changed.pop(name)
        elif choice < 0.6:
            changed[name] = draw_value(draw)
        else:
            changed[name] = mutate(draw, message[name])
        return changed
    if isinstance(message, list) and message and draw.random() < 0.9:
        index = draw.randrange(len(message))
        return [*message[:index], mutate(draw, message[index]), *message[index + 1 :]]
    if isinstance(message, bytes) and message and draw.random() < 0.7:
        index = draw.randrange(len(message))
        return type(message)(message[:index] + bytes([draw.randrange(256)]) + message[index + 1 :])
    if isinstance(message, int) and not isinstance(message, bool) and draw.random() < 0.5:
        return message + draw.choice([-1, 1, 1000])
    return draw_value(draw)


class DictCodec:
    """Codec of systems whose messages are dictionaries."""

    @staticmethod
    def unpack(message: Any) -> Any:
        return message

    @staticmethod
    def pack(message: Any) -> Any:
        return message


def bombard(
    lab: Lab, received: dict[Any, list[Received]], count: int, seed: int, codec: Any = DictCodec
) -> Counter[str]:
    """Send random and mutated messages to every machine that has received any, from known and other sources.

    Returns the number of messages by kind of machine; fails if a machine raises.
    """
    draw, sent = Random(seed), Counter()
    all_events = [event for events in received.values() for event in events]
    for process, events in received.items():
        for _ in range(count):
            event = draw.choice(events if draw.random() < 0.7 else all_events)
            if draw.random() < 0.2:
                message = draw_value(draw)
            elif draw.random() < 0.1:
                message = mutate(draw, event.message)
            else:
                message = mutate(draw, codec.unpack(event.message))
                if draw.random() < 0.2:
                    message = mutate(draw, message)
                message = codec.pack(message)
            lab.world._handle(process, Received(event.source, message, event.host))
            sent[type(process.machine).__name__] += 1
    problems = lab.problems
    assert problems.empty, problems["detail"].iloc[0]
    return sent


def forge(lab: Lab, received: dict[Any, list[Received]], host: str = "eve") -> Counter[str]:
    """Replay all received messages to every machine from another host, and check that they are dropped.

    ``host`` is a device of the lab that is not part of the system. Returns the number by kind of machine.
    """
    counts: Counter[str] = Counter()
    for process, events in received.items():
        for event in events:
            effects = process.machine.handle(lab.world.now_us, Received(f"{host}/x", event.message, host))
            unexpected = [
                effect
                for effect in effects
                if type(effect) is not Record or effect.row["incident"] != "dropped"
            ]
            assert not unexpected, (
                f"{type(process.machine).__name__}: {event.message!r} from {host}: {unexpected}"
            )
            assert not process.store.is_dirty, (
                f"{type(process.machine).__name__}: {event.message!r} from {host}"
            )
            counts[type(process.machine).__name__] += 1
    return counts


def list_leaves(message: Any) -> Iterator[Any]:
    """Yield the single values in a message."""
    if isinstance(message, dict):
        for value in message.values():
            yield from list_leaves(value)
    elif isinstance(message, list | tuple):
        for value in message:
            yield from list_leaves(value)
    else:
        yield message


def cross_message(draw: Random, message: Any, pool: dict[type, list[Any]]) -> Any:
    """Replace a value of a message by a value of the same type from another, which keeps it plausible."""
    if isinstance(message, dict) and message:
        name = draw.choice(list(message))
        return {**message, name: cross_message(draw, message[name], pool)}
    if isinstance(message, list | tuple) and message:
        index = draw.randrange(len(message))
        return [*message[:index], cross_message(draw, message[index], pool), *message[index + 1 :]]
    result = pool.get(type(message))
    return draw.choice(result) if result else message


def cross(
    lab: Lab, received: dict[Any, list[Received]], count: int, seed: int, codec: Any = DictCodec
) -> Counter[str]:
    """Do as :func:`bombard`, with messages of which one or two values are from other messages."""
    draw, sent = Random(seed), Counter()
    pool: dict[type, list[Any]] = defaultdict(list)
    for event in (event for events in received.values() for event in events):
        for leaf in list_leaves(codec.unpack(event.message)):
            pool[type(leaf)].append(leaf)
    for process, events in received.items():
        for _ in range(count):
            event = draw.choice(events)
            message = cross_message(draw, codec.unpack(event.message), pool)
            if draw.random() < 0.5:
                message = cross_message(draw, message, pool)
            lab.world._handle(process, Received(event.source, codec.pack(message), event.host))
            sent[type(process.machine).__name__] += 1
    problems = lab.problems
    assert problems.empty, problems["detail"].iloc[0]
    return sent


@contextmanager
def garble_messages(lab: Lab, seed: int, copies: int = 2, codec: Any = DictCodec) -> Iterator[Counter[str]]:
    """Precede each message of a lab by garbled copies of itself, which reach machines that wait for it.

    Yields the number of copies by kind of machine.
    """
    draw, sent = Random(seed), Counter()
    pool: dict[type, list[Any]] = defaultdict(list)
    world, handle = lab.world, type(lab.world)._handle

    def garble_and_handle(self: Any, process: Any, event: Any) -> None:
        if type(event) is Received and self is world and process.machine is not None:
            original = codec.unpack(as_wire(event.message))
            for leaf in list_leaves(original):
                if len(pool[type(leaf)]) < 10_000:
                    pool[type(leaf)].append(leaf)
            for _ in range(copies):
                message = original
                for _ in range(draw.randrange(1, 3)):
                    is_likely = draw.random() < 0.6
                    message = cross_message(draw, message, pool) if is_likely else mutate(draw, message)
                handle(self, process, Received(event.source, codec.pack(message), event.host))
                sent[type(process.machine).__name__] += 1
        handle(self, process, event)

    type(world)._handle = garble_and_handle
    try:
        yield sent
    finally:
        type(world)._handle = handle
