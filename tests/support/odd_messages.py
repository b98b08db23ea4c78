"""Odd messages for the machines of a lab: random, mutated, and from who may not send them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from mudkit import Lab
from mudkit.events import Received, Record

__all__ = ["bombard", "forge", "overhear"]

_WORDS = ["", "x", "ann", "bob", "eve", "\n", "\u0000", "2" * 600, "-1", "none"]


@contextmanager
def overhear(lab: Lab) -> Iterator[dict[Any, list[Received]]]:
    """Keep what each machine of a lab receives meanwhile, by its process."""
    heard: dict[Any, list[Received]] = defaultdict(list)
    world, handle = lab.world, type(lab.world)._handle

    def listening(self: Any, process: Any, event: Any) -> None:
        if type(event) is Received and self is world:
            heard[process].append(event)
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
        None, draw.random() < 0.5, draw.choice([0, -1, 1, 2, 7, 1 << 40, 1 << 63, -(1 << 62)]),
        draw.choice([0.0, -1.5, 1e308, 1e-320]), draw.choice(_WORDS), draw.randbytes(draw.randrange(40)),
    ][kind]  # fmt: skip


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


def bombard(lab: Lab, heard: dict[Any, list[Received]], count: int, seed: int) -> Counter[str]:
    """Let every machine that has heard something receive random and mutated messages, from those it knows and others.

    Gives how many were sent by the kind of machine; fails where one raises.
    """
    draw, sent = Random(seed), Counter()
    everything = [event for events in heard.values() for event in events]
    for process, events in heard.items():
        for _ in range(count):
            event = draw.choice(events if draw.random() < 0.7 else everything)
            message = anything(draw) if draw.random() < 0.2 else mutated(draw, event.message)
            if draw.random() < 0.2:
                message = mutated(draw, message)
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
