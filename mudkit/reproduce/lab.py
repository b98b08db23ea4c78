"""Rows of the lab itself without Spark: the kernel (F1), predicates (F5) and the consistency checker (F6).

The rows on Spark, F2 to F4, are in :mod:`mudkit.reproduce.lab_spark`.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any, Final

import numpy as np

from mudkit.consistency import MODELS, Content, History, Kind, Model, Operation, Status, check
from mudkit.consistency.deciding import record_of
from mudkit.consistency.models import Form
from mudkit.consistency.record import Reading
from mudkit.consistency.search import Budget, OverBudgetError, search
from mudkit.events import Effect, Event, LinkUp, Make, Ports, Received, Send, SetTimer, TimerFired
from mudkit.fleet import World
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.reproduce.harness import Task, answer_of, memory_mb
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.sources.streams import Stream

EVERY_S: Final = 600
_US: Final = 1_000_000


class Reporter:
    """Machine that reports its place to a server every ten minutes, first after `offset_us`."""

    def __init__(self, offset_us: int) -> None:
        self._offset_us = offset_us
        self._number = 0

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Send a report and set the timer of the next one when it fires.

        Set the first one when the link is up.
        """
        kind = type(event)
        if kind is TimerFired:
            self._number += 1
            report = {
                "kind": "report",
                "number": self._number,
                "lat": 30.2672,
                "lon": -97.7431,
                "speed_mps": 12.5,
            }
            return Send("server", report), SetTimer("report", EVERY_S * _US)
        return (SetTimer("report", self._offset_us),) if kind is LinkUp else ()


class Collector:
    """Machine that acknowledges reports."""

    def __init__(self, ports: Ports) -> None:
        self._address = ports.address

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Acknowledge a report that is received; other events have no effect."""
        if type(event) is Received:
            return (Send(event.source, {"kind": "seen", "number": event.message["number"]}),)
        return ()


def _reporter(number: int, devices: int) -> Make:
    """Spread the first reports over ten minutes."""
    return lambda ports: Reporter(number * EVERY_S * _US // devices)


def reports(devices: int, hours: float, seed: int = 1) -> tuple[World, int]:
    """Run devices on LTE that report; return the world and the number of handled timers and messages."""
    world = World(seed)
    world.add_server("server").install("reports", Collector)
    for number in range(devices):
        world.add_device(f"device-{number}", "lte").install("reports", _reporter(number, devices))
    world.run(int(hours * 3600 * _US) + 60 * _US)
    return world, world.handled - devices - 1  # without the LinkUp of each host


def hold_fleet(devices: int, hours: int, seed: int) -> dict[str, float]:
    """Run a commuting, reporting fleet with a position a minute; return its memory, time and counts."""
    before, _ = memory_mb()
    began_s = time.perf_counter()
    lab = Lab(seed, record_messages=False)
    fleet = lab.fleet(devices, mobility="commute", link="lte", every_s=60.0)
    lab.server("server").install("reports", Collector)
    for number, device in enumerate(fleet):
        device.install("reports", _reporter(number, devices))
    lab.run(hours=hours)
    _, peak = memory_mb()
    return {
        "before": before,
        "peak": peak,
        "s": time.perf_counter() - began_s,
        "handled": lab.world.handled,
        "positions": sum(len(piece) for piece in lab.trace.pieces("positions")),
        "messages": int(lab.bill()["messages"].sum()),
    }


def measure_kernel(
    say: Say = say_nothing,
    *,
    devices: int = 1000,
    hours: int = 12,
    repeats: int = 9,
    fleet: int = 10_000,
    fleet_hours: int = 24,
    seeds: Sequence[int] = (1, 2),
) -> Measured:
    """Measure row F1: the speed in this process, the memory in processes of their own."""
    speeds = []
    for number in range(repeats):
        say(f"{devices:,} devices, {hours} virtual hours, {number + 1} of {repeats}")
        began_s = time.perf_counter()
        _, handled = reports(devices, hours)
        speeds.append(handled / (time.perf_counter() - began_s))
    answers = []
    task = Task("runs the large fleet")
    for seed in seeds:
        say(f"{fleet:,} devices, {fleet_hours} virtual hours, seed {seed}")
        answers.append(answer_of(hold_fleet, fleet, fleet_hours, seed, task=task))
    quantities = {
        "handled events/s": Quantity.of(speeds),
        "MB at the peak, large fleet": Quantity.of(answer["peak"] for answer in answers),
        "MB before": Quantity.of(answer["before"] for answer in answers),
        "positions": Quantity.of(answer["positions"] for answer in answers),
        "messages": Quantity.of(answer["messages"] for answer in answers),
        "s for the large fleet": Quantity.of(answer["s"] for answer in answers),
    }
    parameters = {
        "speed": f"{devices:,} devices on LTE, {hours} virtual hours, a report each {EVERY_S} s and its "
        "acknowledgement; sizes of JSON, radio and bill included; setting up included",
        "memory": f"{fleet:,} commuting devices, {fleet_hours} virtual hours, positions each minute, "
        f"a report each {EVERY_S} s and its acknowledgement",
        "seeds": list(seeds),
        "repeats": repeats,
    }
    return Measured(quantities, parameters)


F1: Final = Row(
    name="F1",
    source="the lab",
    paper="None: how many events of devices the kernel handles, and how large a fleet it holds.",
    required=(
        Required("handled events/s", "at least", 200_000),
        Required("MB at the peak, large fleet", "below", 1000),
        # A fleet of 10,000 in a day: a report every ten minutes and a position every minute.
        Required("positions", "at least", 10_000 * 24 * 60),
        Required("messages", "at least", 10_000 * (24 * 6 - 1) * 2),
    ),
    measure=measure_kernel,
    minutes=1.0,
    is_speed=True,
)


PLAIN: Final = "topic = 'sports' AND price BETWEEN :low AND :high"
"""First example of the language, for which the row has requirements."""

NEAR: Final = "topic = :topic AND price BETWEEN :low AND :high AND within_km(loc, receiver.loc, :km)"
"""Longer example that also uses the reader's place."""

_RECORD: Final[dict[str, Any]] = {"topic": "sports", "price": 7, "loc": (30.27, -97.74)}
_READER: Final[dict[str, Any]] = {"loc": (30.28, -97.74)}
_WRITER: Final = "receiver.age >= 21 AND within_km(receiver.loc, sender.loc, 1.6)"


def measure_predicates(
    say: Say = say_nothing, *, texts: int = 300, calls: int = 20_000, runs: int = 7
) -> Measured:
    """Measure row F5: new and known texts, and calls."""
    bounds: dict[str, Any] = {"low": 5, "high": 10}
    reach: dict[str, Any] = bounds | {"topic": "sports", "km": 5.0}
    plain, near, writer = Predicate(PLAIN, **bounds), Predicate(NEAR, **reach), Predicate(_WRITER)
    place = {"loc": (30.27, -97.74)}
    assert plain(_RECORD) is True
    assert near(_RECORD, receiver=_READER) is True
    many = range(calls)
    structures = _structures()
    say("new texts")
    quantities = {
        # Each is parsed, checked, compiled and called once. Parts of AND and OR are compiled once for each
        # structure, independent of names, so a new text may consist of known parts.
        "µs for a new text of a new structure": _us(
            runs,
            lambda: list(islice(structures, texts // 3)),
            lambda text: Predicate(text, **bounds)(_RECORD),
        ),
        "µs for a new text": _us(
            runs, lambda: _renamed(PLAIN, texts), lambda text: Predicate(text, **bounds)(_RECORD)
        ),
        "µs for a new text, near the reader": _us(
            runs,
            lambda: _renamed(NEAR, texts),
            lambda text: Predicate(text, **reach)(_RECORD, receiver=_READER),
        ),
        "µs for a new text of a known shape": _us(
            runs,
            lambda: [f"price < 5 AND topic = '{_fresh()}'" for _ in range(texts)],
            lambda text: Predicate(text)(_RECORD),
        ),
    }
    say("known texts")
    quantities |= {
        "µs for a known shape with new :parameters": _us(
            runs, lambda: many, lambda i: Predicate(PLAIN, low=i, high=i + 5)
        ),
        "µs for a known shape with new :parameters, near the reader": _us(
            runs, lambda: many, lambda i: Predicate(NEAR, topic="news", low=i, high=i + 5, km=5.0)
        ),
        "µs for a text that is cached": _us(runs, lambda: many, lambda i: Predicate("topic = 'sports'")),
        "µs to bind a writer predicate": _us(runs, lambda: many, lambda i: writer.bind(sender=place)),
    }
    say("records")
    quantities |= {
        "µs a record": _us(runs, lambda: many, lambda i: plain(_RECORD)),
        "µs a record and reader, near the reader": _us(
            runs, lambda: many, lambda i: near(_RECORD, receiver=_READER)
        ),
    }
    parameters = {
        "predicate": PLAIN,
        "near the reader": NEAR,
        "texts a run": texts,
        "calls a run": calls,
        "runs": runs,
        "threads": 1,
    }
    return Measured(quantities, parameters)


F5: Final = Row(
    name="F5",
    source="the lab",
    paper="None: a predicate is parsed and compiled once a text.",
    required=(
        Required("µs for a new text", "below", 500),
        Required("µs for a new text of a new structure", "below", 500),
        Required("µs for a known shape with new :parameters", "below", 10),
        Required("µs for a known shape with new :parameters, near the reader", "below", 10),
        Required("µs a record", "below", 3),
    ),
    measure=measure_predicates,
    minutes=0.1,
    is_speed=True,
)


def _us(runs: int, items: Callable[[], Iterable[Any]], call: Callable[[Any], object]) -> Quantity:
    """Time a call for each item of a run, in µs, the call of the lambda included."""
    times = []
    for _ in range(runs):
        whole = list(items())
        started = time.perf_counter()
        for item in whole:
            call(item)
        times.append((time.perf_counter() - started) / len(whole) * 1e6)
    return Quantity.of(times)


def _fresh() -> str:
    """Return a name that no predicate of this process has used, so that nothing about it is cached."""
    return f"t{uuid.uuid4().hex[:12]}"


def _structures() -> Iterator[str]:
    """Yield texts about as long as :data:`PLAIN`, each of another structure, in random order."""
    compare, both = ("=", "<>", "<", "<=", ">", ">="), ("AND", "OR")
    every = list(product(compare, both, compare, both, compare))
    random.Random(1).shuffle(every)
    for a, one, b, other, c in every:
        yield f"topic {a} 'sports' {one} price {b} :low {other} cost {c} :high"


def _renamed(text: str, many: int) -> list[str]:
    """Return copies of a predicate's text, each with another unused name in place of ``topic``."""
    return [text.replace("topic =", f"{_fresh()} =", 1) for _ in range(many)]


VIEWS: Final = tuple(model for model in MODELS.values() if model.form is not Form.WRITE_ORDER)
ONE_VIEW: Final = tuple(model for model in VIEWS if model.form is Form.ONE_VIEW)
MISTAKE: Final = ", a mistake in it"
PORCUPINE: Final = (
    "not measured here. Porcupine (Go) decides linearizability without versions; its README "
    "(github.com/anishathalye/porcupine) gives no time by length, but says that it is generally 1,000 to "
    "10,000 times faster than Knossos on histories of etcd; its issue 6 is about 400 events, too slow for it"
)
"""The peer for linearizability, and its published figures."""

_BEHIND: Final = 20
_STEP_US: Final = 10


def store_history(
    operations: int, *, clients: int = 50, writes: float = 0.3, is_latest: bool = True, seed: int = 1
) -> History:
    """Generate a history of one record, with several concurrent operations of each client.

    Reads return the latest version, or one up to 20 behind but not before those their client has seen.
    """
    stream, steps = Stream(seed, "checking"), np.arange(operations)
    who, kind, age, early, late = (stream.uniform(number, steps).tolist() for number in range(5))
    wide_us = 2 * clients * _STEP_US
    version, entries = 0, []
    seen, last_us = [0] * clients, [0] * clients
    for number in range(operations):
        client = int(who[number] * clients)
        effect_us = wide_us + number * _STEP_US
        begin_us = max(last_us[client] + 1, effect_us - int(early[number] * wide_us))
        last_us[client] = begin_us
        is_write = kind[number] < writes
        if is_write:
            version += 1
            seen[client] = version
        elif not is_latest:
            seen[client] = max(seen[client], version - int(age[number] * _BEHIND))
        else:
            seen[client] = version
        value = f"v{seen[client]}" if seen[client] else None
        entries.append(
            Operation(
                f"client-{client}",
                number,
                "k",
                Kind.WRITE if is_write else Kind.READ,
                begin_us,
                effect_us + int(late[number] * wide_us),
                Content(value, seen[client]),
            )
        )
    return History(entries)


def with_mistake(history: History) -> History:
    """Append reads of the newest and then of the first version by the last client."""
    first = next(operation for operation in history if operation.is_write)
    last_us = max(operation.answered_us or 0 for operation in history)
    reads = [
        replace(
            history.operations[-1],
            kind=Kind.READ,
            op_id=1_000_000_000 + number,
            content=content,
            invoked_us=last_us + 1 + 2 * number,
            answered_us=last_us + 2 + 2 * number,
        )
        for number, content in enumerate((_newest(history), first.content))
    ]
    return History([*history, *reads])


def _newest(history: History) -> Content:
    """Return what the write with the highest version wrote; raises ValueError where none wrote."""
    return max(
        (operation.content for operation in history if operation.is_write),
        key=lambda content: content.version or 0,
    )


def without_versions(history: History) -> History:
    """Remove the versions; values still identify the writes."""
    return History(replace(operation, content=Content(operation.content.value)) for operation in history)


def _time_decision(history: History, model: Model, within_s: float) -> float | None:
    """Time the general search alone, in seconds; None: not decided in time."""
    reading = next(record_of(history.operations, frozenset({None}), model).readings())
    assert isinstance(reading, Reading)
    began_s = time.perf_counter()
    try:
        search(reading, model, Budget(within_s, len(history)))
    except OverBudgetError:
        return None
    took_s = time.perf_counter() - began_s
    return took_s if took_s <= within_s else None


def _largest(model: Model, sizes: Sequence[int], clients: int, within_s: float, seed: int, say: Say) -> int:
    """Return the largest size whose histories, legal and with a mistake, are both decided in time."""
    best = 0
    for size in sizes:
        say(f"{model.name}: the search, {size:,} operations without versions")
        legal = store_history(size, clients=clients, is_latest=model.real_time, seed=seed)
        if any(
            _time_decision(without_versions(history), model, within_s) is None
            for history in (legal, with_mistake(legal))
        ):
            break
        best = size
    return best


def measure_checker(
    say: Say = say_nothing,
    *,
    operations: int = 100_000,
    clients: int = 50,
    few: int = 4,
    sizes: Sequence[int] = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400),
    within_s: float = 10.0,
    seeds: Sequence[int] = (1, 2, 3),
) -> Measured:
    """Measure row F6: long histories with versions, and the largest without that the search decides."""
    quantities: dict[str, Quantity] = {}
    right = total = 0
    for model in ONE_VIEW:
        times: dict[str, list[float]] = {"": [], MISTAKE: []}
        for seed in seeds:
            legal = store_history(operations, clients=clients, is_latest=model.real_time, seed=seed)
            for name, history in (("", legal), (MISTAKE, with_mistake(legal))):
                say(f"{model.name}: {operations:,} operations with versions{name}, seed {seed}")
                began_s = time.perf_counter()
                verdict = check(history, model.name)
                times[name].append(time.perf_counter() - began_s)
                right += verdict.status is (Status.ILLEGAL if name else Status.OK)
                total += 1
        quantities |= {f"s, {model.name}{name}": Quantity.of(values) for name, values in times.items()}
    quantities["share of right verdicts"] = Quantity.of([right / total])
    quantities["operations with versions"] = Quantity.of([operations])
    for model in VIEWS:
        values = [_largest(model, sizes, few, within_s, seed, say) for seed in seeds]
        quantities[f"operations the search decides, {model.name}"] = Quantity.of(values)
    parameters = {
        "with versions": f"one record, {clients} clients with several operations under way, 30 % writes; "
        f"reads up to {_BEHIND} versions behind, for linearizable the latest; a mistake: the newest version "
        "and then the first one is read at the end, and the explanation is made small as well",
        "search": f"the same without versions, {few} clients; the largest of {', '.join(map(str, sizes))} "
        f"operations at which a legal history and one with a mistake are both decided within {within_s:g} s; "
        "the search alone, which check tries last",
        "peer": PORCUPINE,
        "seeds": list(seeds),
    }
    return Measured(quantities, parameters)


F6: Final = Row(
    name="F6",
    source="the lab",
    paper="None: how long a history of what devices saw may be.",
    required=(
        *(
            Required(f"s, {model.name}{mistake}", "below", 10)
            for model in ONE_VIEW
            for mistake in ("", MISTAKE)
        ),
        Required("operations with versions", "at least", 100_000),
        Required("share of right verdicts", "at least", 1),
    ),
    measure=measure_checker,
    minutes=6.2,
    is_speed=True,
)


ROWS: Final = (F1, F5, F6)
