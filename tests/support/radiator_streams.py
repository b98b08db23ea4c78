"""Random stories of Radiator's clients as events, and what an engine for all receivers makes of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from mudkit.systems.radiator import (
    ClientLists,
    Context,
    Message,
    People,
    Shares,
    Time,
    Volume,
    aggregability,
)

S = 1_000_000
RETENTION_S = 600.0
CLIENTS = ("ann", "bob", "cy", "dan", "eve", "fay")


class ClientEvent(NamedTuple):
    t_us: int
    number: int
    client: str
    kind: str
    text: str | None


@aggregability(key=lambda receiver: receiver["cell"])
def by_cell(sender: Context, cell: int) -> Volume:
    return Volume(1 + 2 * abs(sender.get("cell", 9) - cell))


@aggregability(key=lambda receiver: receiver.get("cell", 0) // 2)
def mixed(sender: Context, half: int) -> Any:
    kind = (sender.get("cell", 0) + half) % 4
    return (Volume(3), People(2 + half), Time(seconds=90), Volume(lambda s, r: 1 + len(s.people) + r))[kind]


@aggregability(key=lambda receiver: receiver.get("cell", 0))
def timed(sender: Context, cell: int) -> Time:
    return Time(seconds=30 * (1 + cell) + sender.get("cell", 0))


@aggregability(key=lambda receiver: receiver.get("cell", 0))
def failing(sender: Context, cell: int) -> Any:
    if sender["cell"] == 3:
        raise ZeroDivisionError("three")
    return (None, Volume(2), People(2), Time(seconds=20))[(sender["cell"] + cell) % 4]


FUNCTIONS = (by_cell, mixed, timed, failing)


def story(steps: Any) -> list[ClientEvent]:
    """Make events of (kind, seconds after the one before, client, its cell or None)."""
    begin = [("register", 0, place, 1) for place in range(4)]
    events, t_us = [], 0
    for number, (kind, wait_s, who, cell) in enumerate([*begin, *steps]):
        t_us += wait_s * S
        client = CLIENTS[who]
        attributes = {} if cell is None else {"cell": cell}
        context = {"people": [client], "span_us": None, "attributes": attributes}
        answer = {"register": json.dumps(attributes), "context": json.dumps(context)}.get(kind)
        events.append(ClientEvent(t_us, number, client, kind, answer))
    return events


def random_steps(chance: Any, count: int) -> list[Any]:
    """Give steps without Hypothesis, for the few large inputs of a query."""
    kinds = ["context"] * 7 + ["register", "unregister", "tick"]
    waits, cells = [0, 1, 5, 20, 61], [None, 0, 1, 2, 3]
    return [
        (chance.choice(kinds), chance.choice(waits), chance.randrange(len(CLIENTS)), chance.choice(cells))
        for _ in range(count)
    ]


def by_one_engine(
    function: Any, events: Any, until_us: int, make: Any = ClientLists, *, echo: bool = False
) -> Any:
    """Give how often each (moment, receiver, numbers) goes from an engine for all, and how often functions failed."""
    engine = make(function, round(RETENTION_S * S), echo=echo)
    gone: Counter[tuple[int, str, tuple[int, ...]]] = Counter()

    def went(now_us: int, entries: Any) -> None:
        for entry in entries:
            numbers = tuple(message.number for message in entry.batch)
            gone.update((now_us, client, numbers) for client in entry.recipients)

    for event in [*events, None]:
        t_us = until_us if event is None else event.t_us
        while engine.due_us < t_us or (event is None and engine.due_us == t_us):
            now_us = int(engine.due_us)
            went(now_us, engine.fire(now_us))
        if event is None:
            break
        is_in = event.client in engine.clients
        if event.kind == "register":
            went(t_us, engine.register(t_us, event.client, json.loads(event.text)))
        elif event.kind == "unregister" and is_in:
            engine.unregister(t_us, event.client)
        elif event.kind == "context" and is_in:
            context = Context.from_dict(json.loads(event.text)).with_span(t_us)
            went(t_us, engine.take(t_us, Message(event.number, event.client, t_us, context)))
    return gone, engine.problems.count


class Worlds:
    """Several inputs in one query, each with its own clients and function: client ``3/ann`` is ann of the third."""

    def __init__(self, functions: Any, share: int = 0, of: int = 1, kept: Any = None) -> None:
        self.functions, self.share, self.of = functions, share, of
        self.engines = {world: self.make(world, each) for world, each in (kept or {}).items()}

    def __call__(self, share: int, of: int, kept: Any) -> Worlds:
        return Worlds(self.functions, share, of, kept)

    def make(self, world: str, kept: Any = None) -> Any:
        function = self.functions[int(world) % len(self.functions)]
        return Shares(function, max_retention_s=RETENTION_S)(self.share, self.of, kept)

    @property
    def due_us(self) -> float:
        return min((engine.due_us for engine in self.engines.values()), default=float("inf"))

    def handle(self, event: Any) -> list[Any]:
        world, _, client = event.client.partition("/")
        if world not in self.engines:
            self.engines[world] = self.make(world)
        return self.named(world, self.engines[world].handle(event._replace(client=client)))

    def fire(self, now_us: int) -> list[Any]:
        result = []
        for world, engine in self.engines.items():
            if engine.due_us <= now_us:
                result += self.named(world, engine.fire(now_us))
        return result

    def named(self, world: str, gone: Any) -> list[Any]:
        return [
            (t_us, numbers, [f"{world}/{client}" for client in recipients], aggregate, problem)
            for t_us, numbers, recipients, aggregate, problem in gone
        ]

    def kept(self) -> Any:
        return {world: engine.kept() for world, engine in self.engines.items()}
