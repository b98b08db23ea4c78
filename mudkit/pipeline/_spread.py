"""A function over many items on Spark, one item a task, with the manners of ``map``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from mudkit.errors import MudkitError, SimulationProblem
from mudkit.pipeline._progress import progress
from mudkit.pipeline.launch.shipping import provide

__all__ = ["spread"]

_dumps: Callable[[Any], bytes] = cloudpickle.dumps

_WAVE_BYTES = 16 << 20
_WAVE_ITEMS = 1024
_SHOWN = 200
_RESULT = "number BIGINT, failed BOOLEAN, result BINARY"
_SCHEMA = pa.schema([("number", pa.int64()), ("failed", pa.bool_()), ("result", pa.binary())])


def spread(spark: SparkSession, description: str = "spread") -> Callable[..., Iterator[Any]]:
    """Return a ``map`` that runs on Spark: for histories, scenarios, seeds.

    ``list(spread(spark)(function, items))`` is ``list(map(function, items))``, as ``experiment.compare(…,
    map=pipeline.spread(spark))`` takes it. Function, items and results travel by cloudpickle, so closures and
    functions of a notebook's cells will do; a function from a file of your own must be importable by the
    executors as well (``spark.addArtifacts(file, pyfile=True)``).

    Items go in waves of up to 1024, or 16 MB when pickled: one task each, and the results of a wave come when
    all of it is done. Nothing runs before the first result is asked for. Ctrl-C cancels what runs.

    Parameters
    ----------
    spark : SparkSession
        The session, of either kind.
    description : str
        What the bar says in front.

    Returns
    -------
    callable
        ``(function, *iterables)`` to an iterator over the results, in order. An exception of the function
        comes back as itself, at its place in that order, with a note that names the item; further items of
        its wave have run by then. One that cannot be pickled comes as a :class:`SimulationProblem`.
    """

    def spread_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        if not iterables:
            raise TypeError("a map needs at least one iterable")
        code = _dumps(function)
        return _results(spark, description, code, zip(*iterables, strict=False))

    return spread_map


def _results(
    spark: SparkSession, description: str, code: bytes, items: Iterator[tuple[Any, ...]]
) -> Iterator[Any]:
    numbers = count()
    for wave in _waves(items):
        with progress(spark, description):
            table = _run(spark, code, [payload for _, payload in wave])
        results = table.sort_by("number")
        for (shown, _), failed, result in zip(wave, results["failed"], results["result"], strict=True):
            number = next(numbers)
            if failed.as_py():
                raise _error(result.as_py(), number, shown)
            yield cloudpickle.loads(result.as_py())


def _waves(items: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[str, bytes]]]:
    """Divide items into what goes at once; each with what an error says of it, and pickled."""
    wave: list[tuple[str, bytes]] = []
    size = 0
    for item in items:
        shown = repr(item[0] if len(item) == 1 else item)
        payload = _dumps(item)
        if wave and (size + len(payload) > _WAVE_BYTES or len(wave) == _WAVE_ITEMS):
            yield wave
            wave, size = [], 0
        wave.append((shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…", payload))
        size += len(payload)
    if wave:
        yield wave


def _run(spark: SparkSession, code: bytes, payloads: list[bytes]) -> pa.Table:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = {"number": number, **_one(code, payloads[number])}
                yield from pa.Table.from_pylist([row], schema=_SCHEMA).to_batches()

    provide(spark)
    numbers = spark.range(0, len(payloads), 1, len(payloads))
    return numbers.mapInArrow(run, _RESULT).toArrow()


def _one(code: bytes, payload: bytes) -> dict[str, Any]:
    """Call the function on one item, in a task."""
    try:
        function, arguments = cloudpickle.loads(code), cloudpickle.loads(payload)
        return {"failed": False, "result": _dumps(function(*arguments))}
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        try:
            outcome = _dumps((error, text))
            cloudpickle.loads(outcome)  # some can be pickled, but not be made again
        except Exception:
            outcome = _dumps((None, text))
        return {"failed": True, "result": outcome}


def _error(outcome: bytes, number: int, shown: str) -> BaseException:
    error, text = cloudpickle.loads(outcome)
    if error is None:
        return SimulationProblem(
            "A function that was spread met an error that cannot be sent back.",
            where=f"item {number}: {shown}",
            found=text.strip().splitlines()[-1],
            expected="a result, or an error that can be pickled",
            remedy=f"what the task said:\n{text}",
        )
    assert isinstance(error, BaseException)
    error.add_note(f"item {number}: {shown}")
    if not isinstance(error, MudkitError):
        error.add_note(f"in a task of Spark:\n{text}")
    return error
