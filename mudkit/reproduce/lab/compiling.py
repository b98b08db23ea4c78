"""F5: what making and calling a predicate costs."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from typing import Any, Final

from mudkit.predicates import Predicate
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["NEAR", "PLAIN", "measure"]

PLAIN: Final = "topic = 'sports' AND price BETWEEN :low AND :high"
"""The language's first example: what is required is required of it."""

NEAR: Final = "topic = :topic AND price BETWEEN :low AND :high AND within_km(loc, receiver.loc, :km)"
"""A longer one that looks at the reader's place, too."""

_RECORD: Final[dict[str, Any]] = {"topic": "sports", "price": 7, "loc": (30.27, -97.74)}
_READER: Final[dict[str, Any]] = {"loc": (30.28, -97.74)}
_WRITER: Final = "receiver.age >= 21 AND within_km(receiver.loc, sender.loc, 1.6)"


def measure(say: Say = say_nothing, *, texts: int = 300, calls: int = 20_000, runs: int = 7) -> Measured:
    """Measure row F5.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    texts : int
        The number of new texts that are parsed in a run.
    calls : int
        How often everything else is called in a run.
    runs : int
    """
    bounds: dict[str, Any] = {"low": 5, "high": 10}
    reach: dict[str, Any] = bounds | {"topic": "sports", "km": 5.0}
    plain, near, writer = Predicate(PLAIN, **bounds), Predicate(NEAR, **reach), Predicate(_WRITER)
    place = {"loc": (30.27, -97.74)}
    assert plain(_RECORD) is True
    assert near(_RECORD, receiver=_READER) is True
    many = range(calls)
    structures = _structures()
    say("new texts")
    figures = {
        # Each is parsed, checked, compiled and called for the first time. What AND and OR combine is compiled
        # once for each structure of a part, whatever its names: a new text may consist of known parts.
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
    figures |= {
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
    figures |= {
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
    return Measured(figures, parameters)


def _us(runs: int, items: Callable[[], Iterable[Any]], call: Callable[[Any], object]) -> Figure:
    """Time a call for each item of a run, in microseconds; the call of the lambda counts."""
    times = []
    for _ in range(runs):
        whole = list(items())
        started = time.perf_counter()
        for item in whole:
            call(item)
        times.append((time.perf_counter() - started) / len(whole) * 1e6)
    return Figure.of(times)


def _fresh() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def _structures() -> Iterator[str]:
    """Give texts about as long as :data:`PLAIN`, no two of one structure, in an order without order."""
    compare, both = ("=", "<>", "<", "<=", ">", ">="), ("AND", "OR")
    every = list(product(compare, both, compare, both, compare))
    random.Random(1).shuffle(every)
    for a, one, b, other, c in every:
        yield f"topic {a} 'sports' {one} price {b} :low {other} cost {c} :high"


def _renamed(text: str, many: int) -> list[str]:
    return [text.replace("topic =", f"{_fresh()} =", 1) for _ in range(many)]
