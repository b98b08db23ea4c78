"""Engines of pending queues in the state of a query: taken through a batch of events in the order of time.

Nothing here knows what the events are about; :mod:`mudkit.pipeline.streaming` has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

__all__ = ["WRITTEN", "Engine", "Event", "Gone", "Keeper", "Start"]

WRITTEN: Final = (
    "t_us BIGINT, numbers ARRAY<BIGINT>, recipients ARRAY<STRING>, aggregate STRING, problem STRING, "
    "watermark_us BIGINT"
)
"""Columns of what a keeper gives."""
_WAITING: Final = "t_us BIGINT, number BIGINT, client STRING, kind STRING, text STRING"

_dumps: Callable[[Any], bytes] = cloudpickle.dumps


class Event(NamedTuple):
    """Something that has happened, for all shares to know.

    Parameters
    ----------
    t_us : int
    number : int
        The number of the event among all; those of the same time are taken in its order.
    client, kind, text : str
        What the engine is given: who it is, one of its kinds of event, and the JSON that belongs to it.
    """

    t_us: int
    number: int
    client: str
    kind: str
    text: str


Gone: TypeAlias = tuple[int, Sequence[int], Sequence[str], str | None, str | None]
"""When (µs), the numbers of the messages, the recipients, the aggregate; or, instead of it, a problem."""


class Engine(Protocol):
    """What holds the queues of a share of the receivers. It has no clock."""

    @property
    def due_us(self) -> float:
        """When :meth:`fire` is next to be called, infinity: not by itself."""
        ...

    def handle(self, event: Event) -> Iterable[Gone]:
        """Take an event, and give what goes by it."""
        ...

    def fire(self, now_us: int) -> Iterable[Gone]:
        """Give what goes by time alone."""
        ...

    def kept(self) -> object:
        """Give all that has to outlast a batch; it is pickled."""
        ...


Start: TypeAlias = Callable[[int, int, Any], Engine]
"""Makes the engine of a share: which one, of how many, and what was kept (None: it is the first time)."""


class Keeper(StatefulProcessor):
    """Brings the engine of a share from the state, through a batch, and back.

    Parameters
    ----------
    start : callable
    shares : int
    """

    def __init__(self, start: Start, shares: int) -> None:
        self._start, self._shares = start, shares

    def init(self, handle: Any) -> None:
        """See :class:`StatefulProcessor`, also for what follows."""
        self._handle = handle
        self._engine = handle.getValueState("engine", "kept BINARY")
        self._waiting = handle.getListState("waiting", _WAITING)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Take what has come."""
        came = [Event(row.t_us, row.number, row.client, row.kind, row.text) for row in rows]
        return self._advance(key[0], came, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Go on though nothing has come."""
        return self._advance(key[0], [], timerValues.getCurrentWatermarkInMs())

    def _advance(self, share: int, came: Sequence[Event], watermark_ms: int) -> Iterator[Row]:
        """Take everything up to the watermark; give what goes."""
        until_us = watermark_ms * 1000
        waiting = sorted([*(Event(*row) for row in self._waiting.get()), *came], key=_moment)
        is_due = [event for event in waiting if event.t_us <= until_us]
        rest = waiting[len(is_due) :]
        kept = cloudpickle.loads(self._engine.get()[0]) if self._engine.exists() else None
        engine = self._start(share, self._shares, kept)
        gone = _through(engine, is_due, until_us)
        self._engine.update((_dumps(engine.kept()),))
        if rest:
            self._waiting.put(rest)
        elif len(waiting) > len(came):
            self._waiting.clear()
        self._set_timer(min(engine.due_us, rest[0].t_us if rest else math.inf))
        for t_us, numbers, recipients, aggregate, problem in gone:
            yield Row(
                t_us=t_us,
                numbers=list(numbers),
                recipients=list(recipients),
                aggregate=aggregate,
                problem=problem,
                watermark_us=until_us,
            )

    def _set_timer(self, next_us: float) -> None:
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        if next_us < math.inf:
            self._handle.registerTimer(-int(-next_us // 1000))


def _through(engine: Engine, events: Iterable[Event], until_us: int) -> list[Gone]:
    """Take events and the engine's timers in the order of time."""
    gone: list[Gone] = []
    for event in events:
        while (due_us := engine.due_us) < event.t_us:
            gone += engine.fire(int(due_us))
        gone += engine.handle(event)
    while (due_us := engine.due_us) <= until_us:
        gone += engine.fire(int(due_us))
    return gone


def _moment(event: Event) -> tuple[int, int]:
    return event.t_us, event.number
