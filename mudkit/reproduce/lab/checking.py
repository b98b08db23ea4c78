"""F6: how long the checker takes for a long history, and how long a history its general search decides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mudkit.consistency import MODELS, Content, History, Kind, Model, Operation, Status, check
from mudkit.consistency.deciding import record_of
from mudkit.consistency.models import Form
from mudkit.consistency.record import Reading
from mudkit.consistency.search import Budget, OverBudgetError, search
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.sources.streams import Stream

__all__ = [
    "MISTAKE",
    "ONE_VIEW",
    "PORCUPINE",
    "VIEWS",
    "measure",
    "stored",
    "with_mistake",
    "without_versions",
]

VIEWS: Final = tuple(model for model in MODELS.values() if model.form is not Form.WRITE_ORDER)
ONE_VIEW: Final = tuple(model for model in VIEWS if model.form is Form.ONE_VIEW)
MISTAKE: Final = ", a mistake in it"
PORCUPINE: Final = (
    "not measured here. Porcupine (Go) decides linearizability without versions; its README "
    "(github.com/anishathalye/porcupine) gives no time by length, but says that it is generally 1,000 to "
    "10,000 times faster than Knossos on histories of etcd; its issue 6 is about 400 events, too slow for it"
)
"""The peer for linearizability, and what it has published."""

_BEHIND: Final = 20
_STEP_US: Final = 10


def stored(
    operations: int, *, clients: int = 50, writes: float = 0.3, is_latest: bool = True, seed: int = 1
) -> History:
    """Make the history of a store: clients with several operations under way write and read one record.

    Parameters
    ----------
    operations : int
        The number of operations.
    clients : int
        The number of clients.
    writes : float
        The share of the operations that are writes.
    is_latest : bool
        Whether reads return the latest version, as linearizability asks; else one that is up to 20 behind,
        but not behind what their client has written or read before.
    seed : int
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
    """Let the last client read, after everything else, what had been written first."""
    first = next(each for each in history if each.is_write)
    last_us = max(each.answered_us or 0 for each in history)
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
    return max((each.content for each in history if each.is_write), key=lambda content: content.version or 0)


def without_versions(history: History) -> History:
    """Forget the versions; values still tell the writes apart."""
    return History(replace(each, content=Content(each.content.value)) for each in history)


def _decided_s(history: History, model: Model, within_s: float) -> float | None:
    """Measure the general search alone; None: it did not decide."""
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
    """Find the largest size whose histories, legal and with a mistake, are both decided in time."""
    best = 0
    for size in sizes:
        say(f"{model.name}: the search, {size:,} operations without versions")
        legal = without_versions(stored(size, clients=clients, is_latest=model.real_time, seed=seed))
        if _decided_s(legal, model, within_s) is None:
            break
        wrong = without_versions(
            with_mistake(stored(size, clients=clients, is_latest=model.real_time, seed=seed))
        )
        if _decided_s(wrong, model, within_s) is None:
            break
        best = size
    return best


def measure(
    say: Say = say_nothing,
    *,
    operations: int = 100_000,
    clients: int = 50,
    few: int = 4,
    sizes: Sequence[int] = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400),
    within_s: float = 10.0,
    seeds: Sequence[int] = (1, 2, 3),
) -> Measured:
    """Measure row F6.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    operations, clients : int
        How many operations of how many clients the long histories, with versions, have.
    few : int
        The number of clients of the histories without versions.
    sizes : sequence of int
        The numbers of operations of the histories without versions, ascending.
    within_s : float
        The time in which the search has to decide, in seconds.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figures: dict[str, Figure] = {}
    right = total = 0
    for model in ONE_VIEW:
        times: dict[str, list[float]] = {"": [], MISTAKE: []}
        for seed in seeds:
            legal = stored(operations, clients=clients, is_latest=model.real_time, seed=seed)
            for name, history in (("", legal), (MISTAKE, with_mistake(legal))):
                say(f"{model.name}: {operations:,} operations with versions{name}, seed {seed}")
                began_s = time.perf_counter()
                verdict = check(history, model.name)
                times[name].append(time.perf_counter() - began_s)
                right += verdict.status is (Status.ILLEGAL if name else Status.OK)
                total += 1
        figures |= {f"s, {model.name}{name}": Figure.of(values) for name, values in times.items()}
    figures["share of right verdicts"] = Figure.of([right / total])
    figures["operations with versions"] = Figure.of([operations])
    for model in VIEWS:
        values = [_largest(model, sizes, few, within_s, seed, say) for seed in seeds]
        figures[f"operations the search decides, {model.name}"] = Figure.of(values)
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
    return Measured(figures, parameters)
