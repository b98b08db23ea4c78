"""Progress bar of Spark's tasks, for work that takes longer than a second."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from pyspark.sql import SparkSession

from mudkit.checks import check_arguments
from mudkit.pipeline.failures import explained
from mudkit.progress import is_enabled

_PATIENCE_S = 1.0
_PERIOD_S = 0.2
_FAREWELL_S = 5.0

_thread = threading.local()


@check_arguments(types=False)
@contextlib.contextmanager
def progress(spark: SparkSession, description: str) -> Iterator[None]:
    """Show the progress of Spark's tasks while the body runs.

    The bar appears after one second and disappears with the body. Its total grows as stages start. Inside
    another `progress` of the same thread nothing more is shown. A `KeyboardInterrupt` in the body cancels the
    jobs that it started.

    Parameters
    ----------
    spark : SparkSession
        The session, of either kind.
    description : str
        Label of the bar.

    Raises
    ------
    EnvironmentProblem
        In place of Spark's error, if Java or a worker ended, or memory or the scratch disk was full.
    """
    if getattr(_thread, "inside", False):
        yield
        return
    tag = f"mudkit-{uuid.uuid4().hex}"
    tagged = _quietly(spark.addTag, tag)
    bar = _Bar(_source(spark), description) if is_enabled() else None
    _thread.inside = True
    try:
        with explained():
            yield
    except KeyboardInterrupt:
        if tagged:
            _quietly(spark.interruptTag, tag)
        raise
    finally:
        _thread.inside = False
        if bar is not None:
            _quietly(bar.close)
        if tagged:
            _quietly(spark.removeTag, tag)


def _quietly(function: Callable[..., object], *arguments: object) -> bool:
    """Call a function and ignore its errors; return whether there was none."""
    try:
        function(*arguments)
    except Exception:
        return False
    return True


class _Source(Protocol):
    """Source of the numbers of tasks."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of finished and of known tasks."""
        ...

    def close(self) -> None: ...


def _source(spark: SparkSession) -> _Source:
    """Return the source of task numbers for a session, of Spark Connect or a classic one."""
    return _Connect(spark) if "connect" in type(spark).__module__.split(".") else _Classic(spark)


class _Classic:
    """Source that polls the running stages of a classic session.

    The classic API has no other progress than the context's status tracker, so this is the only place outside
    the session's start that uses ``sparkContext``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tracker: Any = None
        self._open: set[int] = set()
        self._counts: dict[int, tuple[int, int]] = {}

    def counts(self) -> tuple[int, int]:
        """Return the numbers of finished and of known tasks, over all stages seen so far."""
        if self._tracker is None:
            self._tracker = self._spark.sparkContext.statusTracker()
        active = set(self._tracker.getActiveStageIds())
        for stage in self._open | active:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._counts[stage] = (info.numCompletedTasks, info.numTasks)
        self._open = active  # a stage that ended has been polled once more, for its last number
        return _sums(self._counts.values())

    def close(self) -> None:
        """Do nothing: a classic session has nothing to end."""


class _Connect:
    """Source that receives counts from a Connect client, in the thread that waits for the answer."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._counts: dict[str | None, tuple[int, int]] = {}
        _quietly(spark.registerProgressHandler, self._receive_progress)

    def _receive_progress(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Record a report of Spark Connect; an error must not disturb the query."""
        _quietly(self._record_counts, list(stages or ()), operation_id)

    def _record_counts(self, stages: list[Any], operation_id: str | None) -> None:
        """Replace the numbers of tasks of an operation; a report without stages changes nothing."""
        if stages:
            self._counts[operation_id] = _sums((s.num_completed_tasks, s.num_tasks) for s in stages)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of finished and of known tasks, over all operations."""
        return _sums(list(self._counts.values()))

    def close(self) -> None:
        """Unregister from the session."""
        _quietly(self._spark.removeProgressHandler, self._receive_progress)


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sums of the first and of the second numbers."""
    done = known = 0
    for one_done, one_known in pairs:
        done, known = done + one_done, known + one_known
    return done, known


class _Bar:
    """Progress bar drawn from its own thread, because the work blocks the caller's."""

    def __init__(self, source: _Source, description: str) -> None:
        self._source = source
        self._description = description
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mudkit-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Remove the bar, waiting a short time for its thread."""
        self._over.set()
        self._thread.join(_FAREWELL_S)
        self._source.close()

    def _run(self) -> None:
        """Draw the bar after a moment's patience, and update it until the end.

        It stands still after an error.
        """
        drawn: Any = None
        try:
            over = self._over.wait(_PATIENCE_S)
            while not over:
                done, known = self._source.counts()
                if drawn is None and known:
                    drawn = _draw_bar(self._description, known)
                if drawn is not None:
                    _update(drawn, done, known)
                over = self._over.wait(_PERIOD_S)
        except Exception:  # an error of the bar must not disturb the work: it stands still
            self._over.wait()
        finally:
            if drawn is not None:
                _quietly(_remove_bar, drawn)


def _draw_bar(description: str, known: int) -> Any:
    """Draw a bar of tqdm for a notebook or a terminal, and return it."""
    # Imported late, so that only long work pays for it.
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no monitor thread, which tqdm would never end

    return Bar(
        total=known,
        desc=description,
        leave=False,
        dynamic_ncols=True,
        mininterval=0,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} tasks [{elapsed}]",
    )


def _update(drawn: Any, done: int, known: int) -> None:
    """Show the numbers of finished and of known tasks."""
    drawn.n, drawn.total = done, known
    box = getattr(drawn, "container", None)
    if box is not None:  # tqdm's notebook bar would restart its clock with a new total
        box.children[1].max = known
    drawn.refresh()


def _remove_bar(drawn: Any) -> None:
    """Remove a bar from the screen, as complete."""
    drawn.n = drawn.total  # tqdm would leave an unfinished bar in a notebook, in red
    drawn.close()
