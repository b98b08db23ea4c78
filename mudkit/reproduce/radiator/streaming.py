"""R5, on a stream: how far the query lags behind a trace that is played to it."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit import trace
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.radiator import Context, Shares, Volume, aggregability, cell, distance_km, joins
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

__all__ = ["Played", "bound_s", "by_distance", "events_of", "measure", "play", "write_events"]

KM: Final = 5.0
"""Side of the cells by which receivers are alike."""
RETENTION_S: Final = 600.0
_EVENTS: Final = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("number", pa.int64()),
        ("client", pa.string()),
        ("kind", pa.string()),
        ("text", pa.string()),
    ]
)


@aggregability(key=lambda receiver: cell(receiver["loc"], km=KM))
def by_distance(sender: Context, place: Any) -> Volume:
    """Hold messages: one for each kilometre to the middle of the receiver's cell, and one more."""
    return Volume(1 + int(distance_km(sender["loc"], place.centre)))


@dataclass(frozen=True)
class Played:
    """What playing a trace to a query gave.

    Parameters
    ----------
    lags_s : ndarray of float64, shape (aggregates,)
        The time of each aggregate from when the events let it go until it was written, in seconds; in the
        order of the former.
    behind_s : ndarray of float64, shape (aggregates,)
        How much, for each aggregate, more of the trace had been read by then, in seconds of the trace.
    durations_s : list of float
        How long each batch took, in seconds.
    events, receipts : int
        The number of events that came in, and of receipts that went out: each aggregate counts once for each
        recipient.
    busy : float
        The share of the time between two files that a batch takes, from the second batch on; from 1 on the
        lag grows for ever.
    bound_s : float
        As of :func:`bound_s`.
    """

    lags_s: NDArray[np.float64]
    behind_s: NDArray[np.float64]
    durations_s: list[float]
    events: int
    receipts: int
    busy: float
    bound_s: float

    @property
    def growth(self) -> float:
        """Mean lag of the last third of the aggregates beside that of the middle third."""
        third = len(self.lags_s) // 3
        return float(np.mean(self.lags_s[-third:]) / np.mean(self.lags_s[third:-third]))


def events_of(positions: pa.Table) -> pa.Table:
    """Make each device a client that registers with its first position and propagates all of them.

    Parameters
    ----------
    positions : Table
        As of :mod:`mudkit.trace.schema`.

    Returns
    -------
    Table
        The columns of ``mudkit.pipeline.streaming.EVENTS``, in order.
    """
    ordered = positions.sort_by([("ts", "ascending"), ("device", "ascending")])
    names, places = (
        ordered["device"].to_pylist(),
        zip(ordered["lat"].to_pylist(), ordered["lon"].to_pylist(), strict=True),
    )
    known: set[str] = set()
    rows: list[tuple[int, str, str, str]] = []
    for t_us, device, place in zip(epoch_us(ordered["ts"]).tolist(), names, places, strict=True):
        attributes = {"loc": place}
        if device not in known:
            known.add(device)
            rows.append((t_us, device, "register", json.dumps(attributes)))
        context = {"people": [device], "span_us": None, "attributes": attributes}
        rows.append((t_us, device, "context", json.dumps(context)))
    t_us, devices, kinds, cells = zip(*rows, strict=True)
    columns = [pa.array(t_us, _EVENTS.field("ts").type), range(len(rows)), devices, kinds, cells]
    return pa.table([pa.array(column) for column in columns], schema=_EVENTS)


def write_events(events: pa.Table, folder: Path, every_s: float) -> list[int]:
    """Write events as files, one for each so long a time; give the end of each (µs)."""
    folder.mkdir(parents=True)
    t_us = epoch_us(events["ts"])
    every_us = round(every_s * US_PER_S)
    numbers = (t_us - t_us[0]) // every_us
    ends = []
    for number in np.unique(numbers).tolist():
        first, past = np.searchsorted(numbers, [number, number + 1])
        file = folder / f"{number:06}.parquet"
        pq.write_table(events.slice(first, past - first), file)
        os.utime(file, (number, number))  # the source takes files in this order
        ends.append(int(t_us[0]) + (number + 1) * every_us)
    return ends


def play(
    spark: Any, events: pa.Table, place: Path, *, every_s: float, speed: float, shares: int = 2
) -> Played:
    """Run a query over events that come as files, a batch each, and say how it would keep up with them.

    The batches run one after the other and each is timed. The lag is what these durations make of a source
    in which a file is there when its time is over: a batch begins when its file is there and the batch before
    is done. Nobody waits for files meanwhile.

    Parameters
    ----------
    spark : SparkSession
    events : Table
        As :func:`events_of` gives them.
    place : Path
        A folder for the files and the query.
    every_s : float
        How much of the trace is in a file, in seconds of the trace.
    speed : float
        How much faster than it happened the trace is played.
    shares : int
        The number of parts into which the receivers are divided.
    """
    from mudkit.pipeline import streaming

    ends = write_events(events, place / "events", every_s)
    start = Shares(by_distance, joins.bounding_box, RETENTION_S, echo=True)
    source = streaming.event_stream(spark, place / "events")
    streamed = streaming.aggregate_stream(source, start, place / "query", shares=shares)
    gone = streamed.aggregates.select("ts", "watermark_ts", "recipients").toArrow().sort_by("ts")
    durations_s = [batch.duration_s for batch in streamed.batches]
    done_s = _done(ends, durations_s, speed)
    # A batch is known by where the watermark was.
    done_by = {_t_us(batch.watermark_ts): at for batch, at in zip(streamed.batches, done_s, strict=True)}
    went_us, watermark_us = epoch_us(gone["ts"]), epoch_us(gone["watermark_ts"])
    written_s = np.array([done_by[t_us] for t_us in watermark_us.tolist()])
    usual_s = statistics.fmean(durations_s[1:])
    return Played(
        written_s - went_us / US_PER_S / speed,
        (watermark_us - went_us) / US_PER_S,
        durations_s,
        len(events),
        sum(map(len, gone["recipients"].to_pylist())),
        usual_s * speed / every_s,
        bound_s(durations_s, every_s, speed),
    )


def bound_s(durations_s: Sequence[float], every_s: float, speed: float) -> float:
    """Give what no lag may be longer than when the query keeps up.

    An aggregate waits for the end of its own file and of the next, which brings the watermark, and then for
    the batch of that one and of the one before, both as long as the longest.

    Parameters
    ----------
    durations_s : sequence of float
        How long each batch took, in seconds.
    every_s, speed : float
        As of :func:`play`.
    """
    return 2 * every_s / speed + 2 * max(durations_s)


def _t_us(ts: str | None) -> int:
    return 0 if ts is None else int(pa.scalar(ts).cast(_EVENTS.field("ts").type).value)


def _done(ends_us: Sequence[int], durations_s: Sequence[float], speed: float) -> list[float]:
    """Say when each batch is done; the last one, which has no file, begins with the end of the one before."""
    free_s, done = 0.0, []
    there = [end_us / US_PER_S / speed for end_us in ends_us]
    for at_s, duration_s in zip([*there, 0.0], durations_s, strict=True):
        free_s = max(free_s, at_s) + duration_s
        done.append(free_s)
    return done


def measure(
    say: Say = say_nothing,
    *,
    source: str | os.PathLike[str] | None = None,
    cars: int = 188,
    hours: float = 0.5,
    every_s: float = 60.0,
    speed: float = 1.0,
    shares: int = 2,
) -> Measured:
    """Measure the lag of the streaming engine behind a trace.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    source : path-like, optional
        A trace that :func:`mudkit.trace.load` can load, for instance the recorded taxis; by default one is
        generated.
    cars : int
        The number of cars of the generated trace.
    hours : float
        How much of the trace is played, in hours from the middle of its first day.
    every_s, speed, shares
        As of :func:`play`.

    Returns
    -------
    Measured
        ``longest lag behind the stream over its bound`` (as of :class:`Played`), ``lag at the end beside
        that in the middle`` (1: it does not grow), ``share of the time that batches take`` (below 1: it keeps
        up), ``files of the trace behind the stream`` (in its own time, at the most: two is the rule),
        ``s of lag behind the stream`` (of all aggregates: median, lowest, highest), ``s, a batch of the
        stream``, ``events/s into the stream``.
    """
    say("a trace for the stream")
    loaded = trace.generate(cars, 1) if source is None else trace.load(source)
    positions = loaded.positions
    t_us = epoch_us(positions["ts"])
    first_us = int(t_us.min()) + 12 * 3600 * US_PER_S
    keep = (t_us >= first_us) & (t_us < first_us + round(hours * 3600 * US_PER_S))
    events = events_of(positions.filter(pa.array(keep)))
    say(f"{len(events):,} events through the stream")
    from mudkit.pipeline import (
        session,  # loads Spark
        stop,
    )
    from mudkit.pipeline._session import running

    is_own = not running()
    with tempfile.TemporaryDirectory(prefix="mudkit-stream-") as place:
        try:
            played = play(session(), events, Path(place), every_s=every_s, speed=speed, shares=shares)
        finally:
            if is_own:
                stop()
    later_s = played.durations_s[1:]
    figures = {
        "longest lag behind the stream over its bound": Figure.of([played.lags_s.max() / played.bound_s]),
        "lag at the end beside that in the middle": Figure.of([played.growth]),
        "share of the time that batches take": Figure.of([played.busy]),
        "files of the trace behind the stream": Figure.of([played.behind_s.max() / every_s]),
        "s of lag behind the stream": Figure.of(played.lags_s.tolist()),
        "s, a batch of the stream": Figure.of(later_s),
        "events/s into the stream": Figure.of([played.events / sum(later_s)]),
    }
    parameters = {
        "stream": f"{'generated' if source is None else Path(source).name}: {len(events):,} events in "
        f"{hours:g} h, a file for each {every_s:g} s, played {speed:g} times as fast; a lag is bounded "
        "by two files and two of the longest batches",
        "function of the stream": f"Volume(1 + km to the middle of the receiver's cell of {KM:g} km), "
        "bounding boxes, echo",
        "query": f"local[*], {shares} shares, {len(played.durations_s)} batches, the first one apart; "
        f"{played.receipts:,} receipts",
    }
    return Measured(figures, parameters)
