"""mudkit on Spark's executors: the package as a zip file, and functions over many items."""

from __future__ import annotations

import sys
import traceback
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import mudkit
from mudkit.checks import check_arguments
from mudkit.errors import EnvironmentProblem, MudkitError, SimulationProblem
from mudkit.files import work_folder
from mudkit.pipeline._progress import progress

EXECUTORS_NEED = ("numpy", "pandas", "pyarrow", "scipy", "google-re2", "sqlglot", "msgspec", "shapely")
"""Packages that mudkit's jobs import on executors of other machines."""


def package_folder() -> Path:
    """Return the folder that mudkit is imported from."""
    return Path(mudkit.__file__).parent


def write_package(folder: Path) -> Path:
    """Write mudkit's Python files as ``mudkit.zip``, with the same bytes for the same files."""
    package = package_folder()
    path = folder / "mudkit.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*.py")):
            # A fixed date, so that the bytes depend on the files alone.
            entry = zipfile.ZipInfo(f"mudkit/{file.relative_to(package).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return path


class _Provided:
    """Sessions (of classic ones the shared contexts) whose executors can import this mudkit."""

    def __init__(self) -> None:
        self.known: weakref.WeakSet[Any] = weakref.WeakSet()
        self.checked: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those whose executors can run functions."""


_PROVIDED = _Provided()


def record_mudkit(spark: SparkSession) -> None:
    """Record that the executors of a session can import this mudkit."""
    _PROVIDED.known.add(_place_of(spark))


def check_workers(spark: SparkSession) -> None:
    """Raise EnvironmentProblem if the Python of a session's workers cannot run functions; checked once."""
    if _place_of(spark) not in _PROVIDED.known and _place_of(spark) not in _PROVIDED.checked:
        _version_there(spark)
        _PROVIDED.checked.add(_place_of(spark))


def provide(spark: SparkSession) -> None:
    """Send mudkit, without its dependencies, to executors that cannot import this version of it.

    A session of :func:`mudkit.pipeline.session` has it from the start. Another one is checked once, by a
    small job; it raises EnvironmentProblem if the Python of the workers lacks packages.
    """
    if _place_of(spark) in _PROVIDED.known:
        return
    if _version_there(spark) != mudkit.__version__:
        spark.addArtifacts(str(write_package(work_folder())), pyfile=True)
    record_mudkit(spark)


def _place_of(spark: Any) -> Any:
    """Return the receiver of files: the context of a classic session, or a session of Spark Connect."""
    return getattr(spark, "_sc", spark)


def _version_there(spark: SparkSession) -> str:
    """Ask an executor for its version of mudkit; empty if it has none."""

    # A nested function is pickled by value, so the executor imports nothing for it.
    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys

        import pyarrow

        try:
            version = str(importlib.import_module("mudkit").__version__)
        except ImportError:
            version = ""
        # A reused Python must not keep a version that is about to be replaced.
        for name in [module for module in sys.modules if module.partition(".")[0] == "mudkit"]:
            del sys.modules[name]
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"version": [version] * len(batch)})

    try:
        return str(spark.range(0, 1, 1, 1).mapInArrow(ask, "version STRING").collect()[0][0])
    except Exception as error:
        problem = _worker_problem(spark, str(error))
        if problem is None:
            raise
        raise problem from error


def _worker_problem(spark: Any, text: str) -> EnvironmentProblem | None:
    """Return the error for workers whose Python is missing, another one, or lacks packages.

    None for another text.
    """
    signs = ("ModuleNotFoundError", "ImportError", "Cannot run program", "PYTHON_VERSION_MISMATCH")
    lines = [line.strip() for line in text.splitlines() if any(sign in line for sign in signs)]
    if not lines:
        return None
    python = getattr(getattr(spark, "_sc", None), "pythonExec", None)
    return EnvironmentProblem(
        "The Python of this session's workers cannot run functions of mudkit.",
        where="workers of Spark" if python is None else f"Python of the workers: {python}",
        found=lines[-1][:_SHOWN],
        expected=f"Python {sys.version_info[0]}.{sys.version_info[1]} with {', '.join(EXECUTORS_NEED)}",
        remedy=f"set PYSPARK_PYTHON={sys.executable} before the session starts, or stop it and let "
        "mudkit.pipeline.session() start one",
    )


dumps: Callable[[Any], bytes] = cloudpickle.dumps

_WAVE_BYTES = 16 << 20
_WAVE_ITEMS = 1024
_SHOWN = 200
_RESULT = "number BIGINT, failed BOOLEAN, result BINARY"
_SCHEMA = pa.schema([("number", pa.int64()), ("failed", pa.bool_()), ("result", pa.binary())])


@check_arguments(types=False)
def spread(spark: SparkSession, description: str = "spread") -> Callable[..., Iterator[Any]]:
    """Return a ``map`` that runs on Spark: for histories, scenarios, seeds.

    ``list(spread(spark)(function, items))`` equals ``list(map(function, items))``; for instance
    ``experiment.compare(…, map=pipeline.spread(spark))``. Function, items and results are pickled by
    cloudpickle, so closures and functions of notebook cells work; executors must be able to import functions
    of your own files (``spark.addArtifacts(file, pyfile=True)``).

    Items are sent in waves of up to 1024, or 16 MB when pickled, one task an item. The results of a wave are
    available when all of it is done. Nothing runs before the first result is requested. Ctrl-C cancels the
    running wave.

    Parameters
    ----------
    spark : SparkSession
        The session, of either kind.
    description : str
        Label of the progress bar.

    Returns
    -------
    callable
        ``(function, *iterables)`` to an iterator over the results, in order. An exception of the function is
        raised at its place in that order, with a note that names the item; further items of its wave have
        run by then. One that cannot be pickled is raised as :class:`SimulationProblem`.
    """

    def spread_map(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        if not iterables:
            raise TypeError("a map needs at least one iterable")
        code = dumps(function)
        return _results(spark, description, code, zip(*iterables, strict=False))

    return spread_map


def _results(
    spark: SparkSession, description: str, code: bytes, items: Iterator[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield the results in the order of the items, a wave at a time.

    Raise the error of the first that failed.
    """
    numbers = count()
    for wave in _waves(items):
        with progress(spark, description):
            table = _run_wave(spark, code, [payload for _, payload in wave])
        results = table.sort_by("number")
        for (shown, _), failed, result in zip(wave, results["failed"], results["result"], strict=True):
            yield result_of(failed.as_py(), result.as_py(), f"item {next(numbers)}: {shown}")


def _waves(items: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[str, bytes]]]:
    """Divide items into waves; of each item its representation for errors, and its pickle."""
    wave: list[tuple[str, bytes]] = []
    size = 0
    for item in items:
        shown = repr(item[0] if len(item) == 1 else item)
        payload = dumps(item)
        if wave and (size + len(payload) > _WAVE_BYTES or len(wave) == _WAVE_ITEMS):
            yield wave
            wave, size = [], 0
        wave.append((shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…", payload))
        size += len(payload)
    if wave:
        yield wave


def _run_wave(spark: SparkSession, code: bytes, payloads: list[bytes]) -> pa.Table:
    """Run a pickled function on pickled items, one task each.

    Return ``number, failed, result`` in any order.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = {"number": number, **_one(code, payloads[number])}
                yield from pa.Table.from_pylist([row], schema=_SCHEMA).to_batches()

    provide(spark)
    numbers = spark.range(0, len(payloads), 1, len(payloads))
    return numbers.mapInArrow(run, _RESULT).toArrow()


def _one(code: bytes, payload: bytes) -> dict[str, Any]:
    """Call the function on one item in a task; return its result or error, pickled."""
    return outcome_of(lambda: cloudpickle.loads(code)(*cloudpickle.loads(payload)))


def outcome_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Return what a call in a task returns or raises, as ``failed, result``, the result pickled."""
    try:
        return {"failed": False, "result": dumps(call())}
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        try:
            outcome = dumps((error, text))
            cloudpickle.loads(outcome)  # some can be pickled but not unpickled
        except Exception:
            outcome = dumps((None, text))
        return {"failed": True, "result": outcome}


def result_of(failed: bool, result: bytes, item: str) -> Any:
    """Return what a call in a task returned, or raise its error with a note that names the item."""
    value = cloudpickle.loads(result)
    if not failed:
        return value
    error, text = value
    if error is None:
        raise SimulationProblem(
            "A function that was spread met an error that cannot be sent back.",
            where=item,
            found=text.strip().splitlines()[-1],
            expected="a result, or an error that can be pickled",
            remedy=f"what the task said:\n{text}",
        )
    assert isinstance(error, BaseException)
    error.add_note(item)
    if not isinstance(error, MudkitError):
        error.add_note(f"in a task of Spark:\n{text}")
    raise error


def merged_batches(batches: Iterable[pa.RecordBatch], least_rows: int) -> Iterator[pa.Table]:
    """Merge batches into tables of at least `least_rows` rows; the last one may have fewer.

    Larger tables are counted faster, and nearly ordered by time, so they are sorted faster, too.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= least_rows:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
