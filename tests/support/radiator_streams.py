"""Random stories of Radiator's clients as events, and the releases of one engine for all receivers."""

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
def by_time(sender: Context, cell: int) -> Time:
    return Time(seconds=30 * (1 + cell) + sender.get("cell", 0))


@aggregability(key=lambda receiver: receiver.get("cell", 0))
def failing(sender: Context, cell: int) -> Any:
    if sender["cell"] == 3:
        raise ZeroDivisionError("three")
    return (None, Volume(2), People(2), Time(seconds=20))[(sender["cell"] + cell) % 4]


FUNCTIONS = (by_cell, mixed, by_time, failing)


def build_events(steps: Any) -> list[ClientEvent]:
    """Build events from (kind, seconds since the previous one, client, its cell or None)."""
    registrations = [("register", 0, number, 1) for number in range(4)]
    events, t_us = [], 0
    for number, (kind, wait_s, index, cell) in enumerate([*registrations, *steps]):
        t_us += wait_s * S
        client = CLIENTS[index]
        attributes = {} if cell is None else {"cell": cell}
        context = {"people": [client], "span_us": None, "attributes": attributes}
        answer = {"register": json.dumps(attributes), "context": json.dumps(context)}.get(kind)
        events.append(ClientEvent(t_us, number, client, kind, answer))
    return events


def random_steps(chance: Any, count: int) -> list[Any]:
    """Draw steps without Hypothesis, for the few large inputs of a query."""
    kinds = ["context"] * 7 + ["register", "unregister", "tick"]
    waits, cells = [0, 1, 5, 20, 61], [None, 0, 1, 2, 3]
    return [
        (chance.choice(kinds), chance.choice(waits), chance.randrange(len(CLIENTS)), chance.choice(cells))
        for _ in range(count)
    ]


def release_by_one_engine(
    function: Any, events: Any, until_us: int, make: Any = ClientLists, *, echo: bool = False
) -> Any:
    """Count the releases (moment, receiver, numbers) of one engine for all, and the failures of functions."""
    engine = make(function, round(RETENTION_S * S), echo=echo)
    releases: Counter[tuple[int, str, tuple[int, ...]]] = Counter()

    def count_releases(now_us: int, entries: Any) -> None:
        for entry in entries:
            numbers = tuple(message.number for message in entry.batch)
            releases.update((now_us, client, numbers) for client in entry.recipients)

    for event in [*events, None]:
        t_us = until_us if event is None else event.t_us
        while engine.due_us < t_us or (event is None and engine.due_us == t_us):
            now_us = int(engine.due_us)
            count_releases(now_us, engine.fire(now_us))
        if event is None:
            break
        is_in = event.client in engine.clients
        if event.kind == "register":
            count_releases(t_us, engine.register(t_us, event.client, json.loads(event.text)))
        elif event.kind == "unregister" and is_in:
            engine.unregister(t_us, event.client)
        elif event.kind == "context" and is_in:
            context = Context.from_dict(json.loads(event.text)).with_span(t_us)
            count_releases(t_us, engine.take(t_us, Message(event.number, event.client, t_us, context)))
    return releases, engine.problems.count


class Worlds:
    """Several inputs in one query, each with its own clients and function: ``3/ann`` is ann of input 3."""

    def __init__(self, functions: Any, share: int = 0, of: int = 1, kept: Any = None) -> None:
        self.functions, self.share, self.of = functions, share, of
        self.engines = {world: self.create_engine(world, state) for world, state in (kept or {}).items()}

    def __call__(self, share: int, of: int, kept: Any) -> Worlds:
        return Worlds(self.functions, share, of, kept)

    def create_engine(self, world: str, kept: Any = None) -> Any:
        function = self.functions[int(world) % len(self.functions)]
        return Shares(function, max_retention_s=RETENTION_S)(self.share, self.of, kept)

    @property
    def due_us(self) -> float:
        return min((engine.due_us for engine in self.engines.values()), default=float("inf"))

    def handle(self, event: Any) -> list[Any]:
        world, _, client = event.client.partition("/")
        if world not in self.engines:
            self.engines[world] = self.create_engine(world)
        return self.prefix_clients(world, self.engines[world].handle(event._replace(client=client)))

    def fire(self, now_us: int) -> list[Any]:
        result = []
        for world, engine in self.engines.items():
            if engine.due_us <= now_us:
                result += self.prefix_clients(world, engine.fire(now_us))
        return result

    def prefix_clients(self, world: str, releases: Any) -> list[Any]:
        return [
            (t_us, numbers, [f"{world}/{client}" for client in recipients], aggregate, problem)
            for t_us, numbers, recipients, aggregate, problem in releases
        ]

    def state(self) -> Any:
        return {world: engine.state() for world, engine in self.engines.items()}
