"""Odd messages for the machines of a lab: random, mutated, and from who may not send them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from mudkit import Lab
from mudkit.events import Received, Record
from mudkit.wire import as_wire

__all__ = ["bombard", "cross", "crossed", "forge", "garbled", "leaves", "mutated", "overhear"]

_WORDS = ["", "x", "ann", "bob", "eve", "\n", "\u0000", "2" * 600, "-1", "none"]


@contextmanager
def overhear(lab: Lab) -> Iterator[dict[Any, list[Received]]]:
    """Keep what each machine of a lab receives meanwhile, by its process."""
    heard: dict[Any, list[Received]] = defaultdict(list)
    world, handle = lab.world, type(lab.world)._handle

    def listening(self: Any, process: Any, event: Any) -> None:
        if type(event) is Received and self is world:
            heard[process].append(Received(event.source, as_wire(event.message), event.host))
        handle(self, process, event)

    type(world)._handle = listening
    try:
        yield heard
    finally:
        type(world)._handle = handle


def anything(draw: Random, depth: int = 3) -> Any:
    """Draw what JSON, bytes included, can hold."""
    kind = draw.randrange(8 if depth else 6)
    if kind == 6:
        return [anything(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 7:
        return {draw.choice(_WORDS): anything(draw, depth - 1) for _ in range(draw.randrange(4))}
    return [
        None,
        draw.random() < 0.5,
        draw.choice([0, -1, 1, 2, 7, 1 << 40, 1 << 63, -(1 << 62)]),
        draw.choice([0.0, -1.5, 1e308, 1e-320]),
        draw.choice(_WORDS),
        draw.randbytes(draw.randrange(40)),
    ][kind]


def mutated(draw: Random, message: Any) -> Any:
    """Change something of a message, at any depth."""
    if isinstance(message, dict) and message and draw.random() < 0.9:
        name = draw.choice(list(message))
        changed = dict(message)
        what = draw.random()
        if what < 0.2:
            del changed[name]
        elif what < 0.3:
            changed[draw.choice(_WORDS)] = changed.pop(name)
        elif what < 0.6:
            changed[name] = anything(draw)
        else:
            changed[name] = mutated(draw, message[name])
        return changed
    if isinstance(message, list) and message and draw.random() < 0.9:
        place = draw.randrange(len(message))
        return [*message[:place], mutated(draw, message[place]), *message[place + 1 :]]
    if isinstance(message, bytes) and message and draw.random() < 0.7:
        place = draw.randrange(len(message))
        return type(message)(message[:place] + bytes([draw.randrange(256)]) + message[place + 1 :])
    if isinstance(message, int) and not isinstance(message, bool) and draw.random() < 0.5:
        return message + draw.choice([-1, 1, 1000])
    return anything(draw)


class Plain:
    """Codec of systems whose messages are dictionaries."""

    @staticmethod
    def unpack(message: Any) -> Any:
        return message

    @staticmethod
    def pack(message: Any) -> Any:
        return message


def bombard(
    lab: Lab, heard: dict[Any, list[Received]], count: int, seed: int, codec: Any = Plain
) -> Counter[str]:
    """Let every machine that has heard something receive random and mutated messages, from those it knows and others.

    Gives how many were sent by the kind of machine; fails where one raises.
    """
    draw, sent = Random(seed), Counter()
    everything = [event for events in heard.values() for event in events]
    for process, events in heard.items():
        for _ in range(count):
            event = draw.choice(events if draw.random() < 0.7 else everything)
            if draw.random() < 0.2:
                message = anything(draw)
            elif draw.random() < 0.1:
                message = mutated(draw, event.message)
            else:
                message = mutated(draw, codec.unpack(event.message))
                if draw.random() < 0.2:
                    message = mutated(draw, message)
                message = codec.pack(message)
            lab.world._handle(process, Received(event.source, message, event.host))
            sent[type(process.machine).__name__] += 1
    problems = lab.problems
    assert problems.empty, problems["detail"].iloc[0]
    return sent


def forge(lab: Lab, heard: dict[Any, list[Received]], host: str = "eve") -> Counter[str]:
    """Let every machine receive what it has heard again, word for word, from another host: nothing may come of it.

    ``host`` is a device of the lab that was never part of the system. Gives how many were tried, by kind of machine.
    """
    tried: Counter[str] = Counter()
    for process, events in heard.items():
        for event in events:
            effects = process.machine.handle(lab.world.now_us, Received(f"{host}/x", event.message, host))
            wrong = [
                each for each in effects if type(each) is not Record or each.row["incident"] != "dropped"
            ]
            assert not wrong, f"{type(process.machine).__name__}: {event.message!r} from {host}: {wrong}"
            assert not process.store.is_dirty, (
                f"{type(process.machine).__name__}: {event.message!r} from {host}"
            )
            tried[type(process.machine).__name__] += 1
    return tried


def leaves(message: Any) -> Iterator[Any]:
    """Give the single values in a message."""
    if isinstance(message, dict):
        for each in message.values():
            yield from leaves(each)
    elif isinstance(message, list | tuple):
        for each in message:
            yield from leaves(each)
    else:
        yield message


def crossed(draw: Random, message: Any, pool: dict[type, list[Any]]) -> Any:
    """Put something of another message, of the same type, into a place of a message: it stays likely."""
    if isinstance(message, dict) and message:
        name = draw.choice(list(message))
        return {**message, name: crossed(draw, message[name], pool)}
    if isinstance(message, list | tuple) and message:
        place = draw.randrange(len(message))
        return [*message[:place], crossed(draw, message[place], pool), *message[place + 1 :]]
    result = pool.get(type(message))
    return draw.choice(result) if result else message


def cross(
    lab: Lab, heard: dict[Any, list[Received]], count: int, seed: int, codec: Any = Plain
) -> Counter[str]:
    """Do as :func:`bombard` does, with messages of which one or two places hold what stands in others."""
    draw, sent = Random(seed), Counter()
    pool: dict[type, list[Any]] = defaultdict(list)
    for event in (event for events in heard.values() for event in events):
        for leaf in leaves(codec.unpack(event.message)):
            pool[type(leaf)].append(leaf)
    for process, events in heard.items():
        for _ in range(count):
            event = draw.choice(events)
            message = crossed(draw, codec.unpack(event.message), pool)
            if draw.random() < 0.5:
                message = crossed(draw, message, pool)
            lab.world._handle(process, Received(event.source, codec.pack(message), event.host))
            sent[type(process.machine).__name__] += 1
    problems = lab.problems
    assert problems.empty, problems["detail"].iloc[0]
    return sent


@contextmanager
def garbled(lab: Lab, seed: int, copies: int = 2, codec: Any = Plain) -> Iterator[Counter[str]]:
    """Let each message of a lab meanwhile be preceded by garbled copies of itself: what waits for it gets them.

    Gives how many there were, by kind of machine.
    """
    draw, sent = Random(seed), Counter()
    pool: dict[type, list[Any]] = defaultdict(list)
    world, handle = lab.world, type(lab.world)._handle

    def garbling(self: Any, process: Any, event: Any) -> None:
        if type(event) is Received and self is world and process.machine is not None:
            heard = codec.unpack(as_wire(event.message))
            for leaf in leaves(heard):
                if len(pool[type(leaf)]) < 10_000:
                    pool[type(leaf)].append(leaf)
            for _ in range(copies):
                message = heard
                for _ in range(draw.randrange(1, 3)):
                    is_likely = draw.random() < 0.6
                    message = crossed(draw, message, pool) if is_likely else mutated(draw, message)
                handle(self, process, Received(event.source, codec.pack(message), event.host))
                sent[type(process.machine).__name__] += 1
        handle(self, process, event)

    type(world)._handle = garbling
    try:
        yield sent
    finally:
        type(world)._handle = handle
