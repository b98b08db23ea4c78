"""Row R5 of Radiator: 60,000 clients on one core, beside literal Algorithm 3, and a streaming query's lag."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit import trace
from mudkit.reproduce.harness import memory_mb
from mudkit.reproduce.radiator import CLIENTS, client_name, draw_messages
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.systems.radiator import (
    Aggregability,
    ClientArrays,
    ClientLists,
    Context,
    Groups,
    Message,
    Shares,
    Volume,
    aggregability,
    broadcast,
    cell,
    distance_km,
    joins,
)
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

_Engine = TypeVar("_Engine", Groups, ClientLists, ClientArrays)
_NEAR: Final = 20
_FAR: Final = 50
_HOUR_US: Final = 3_600_000_000
_PER_S: Final = 60_000.0
_JOIN: Final = partial(joins.mean, of=("speed_kmh",))
_FUNCTION: Final = Aggregability(
    lambda sender, zone: Volume(_NEAR if sender == zone else _FAR),
    key=lambda receiver: receiver["zone"],
    sender_key=lambda sender: sender["zone"],
)
_WITHOUT_A_KEY: Final = Aggregability(
    lambda sender, receiver: Volume(_NEAR if sender["zone"] == receiver["zone"] else _FAR)
)


def measure_scale(
    say: Say = say_nothing,
    *,
    engines: Mapping[str, Any] | None = None,
    stream: Mapping[str, Any] | None = None,
) -> Measured:
    """Measure row R5, with settings of :func:`measure_engines` and :func:`measure_stream`."""
    one = measure_engines(say, **engines or {})
    other = measure_stream(say, **stream or {})
    return Measured({**one.quantities, **other.quantities}, {**one.parameters, **other.parameters})


R5: Final = Row(
    name="R5",
    source="Radiator 5.2",
    paper="60,000 clients, each with a message a second; no rate of the server survives. Here also what "
    "a function without a key costs, which is asked for each receiver; and how far the query on a "
    "stream lags behind a trace that is played to it.",
    required=(
        Required("messages/s into 5 groups", "at least", 50_000),
        Required("messages/s into 100 groups", "at least", 2_500),
        Required("MB more after all messages than after a tenth", "at most", 100),
        Required("times as fast as Algorithm 3 literally, without a key", "at least", 5),
        Required("longest lag behind the stream over its bound", "at most", 1),
        Required("files of the trace behind the stream", "at most", 2),
        Required("share of the time that batches take", "below", 1),
        Required("lag at the end beside that in the middle", "at most", 1.25),
    ),
    measure=measure_scale,
    minutes=2.8,
    is_speed=True,
)


def measure_engines(
    say: Say = say_nothing,
    *,
    clients: int = CLIENTS,
    many: int = 1_000_000,
    few: int = 50_000,
    literal: int = 5,
    unkeyed: int = 50,
    beside: int = 2000,
    runs: int = 3,
) -> Measured:
    """Measure the engines of one process.

    Messages: `many` into 5 groups, `few` into 100, `literal` by literal Algorithm 3, `unkeyed` to a function
    without a key, and twice as many of these beside Algorithm 3 to `beside` clients. All but the first are
    measured `runs` times.
    """
    say(f"{many} messages into 5 groups")
    engine = _engine(5, clients)
    first = max(many // 10 - 7, 1)  # ends where messages are pending
    stream = draw_messages(many, 1, per_s=_PER_S, clients=clients, zones=5)
    rates, bytes_sent, max_waiting = [], 0, 0
    early_mb = 0.0
    for part in itertools.count():
        batch = list(itertools.islice(stream, first))
        if not batch:
            break
        rate, sent = _time(engine, batch)
        rates.append(rate)
        bytes_sent += sent
        max_waiting = max(max_waiting, sum(len(engine.waiting(client_name(zone))) for zone in range(5)))
        early_mb = memory_mb()[0] if part == 0 else early_mb
    grown_mb = memory_mb()[0] - early_mb

    def drawn(count: int, seed: int, zones: int = 5) -> list[Message]:
        return list(draw_messages(count, seed, per_s=_PER_S, clients=clients, zones=zones))

    hundred, plain = [], []
    for run in range(runs):
        say(f"100 groups, run {run + 1} of {runs}")
        hundred.append(_time(_engine(100, clients), drawn(few, run, zones=100))[0])
    for run in range(runs):
        say(f"Algorithm 3 literally, run {run + 1} of {runs}")
        lists = _fill(ClientLists(_FUNCTION, _HOUR_US, echo=True), clients)
        plain.append(_time(lists, drawn(literal, run))[0])
    without_key, times = [], []
    for run in range(runs):
        say(f"without a key, run {run + 1} of {runs}")
        arrays = _fill(ClientArrays(_WITHOUT_A_KEY, _HOUR_US, echo=True), clients)
        without_key.append(_time(arrays, drawn(unkeyed, run))[0])
        messages = list(draw_messages(2 * unkeyed, run, per_s=_PER_S, clients=beside, zones=5))
        fast, _ = _time(_fill(ClientArrays(_WITHOUT_A_KEY, _HOUR_US, echo=True), beside), messages)
        slow, _ = _time(_fill(ClientLists(_WITHOUT_A_KEY, _HOUR_US, echo=True), beside), messages)
        times.append(fast / slow)
    quantities = {
        "messages/s into 5 groups": Quantity.of(rates),
        "messages/s into 100 groups": Quantity.of(hundred),
        "messages/s of Algorithm 3 literally": Quantity.of(plain),
        "messages/s without a key": Quantity.of(without_key),
        "times as fast as Algorithm 3 literally, without a key": Quantity.of(times),
        "MB more after all messages than after a tenth": Quantity.of([grown_mb]),
        "messages that wait at the most": Quantity.of([max_waiting]),
        "bytes of aggregates, each counted once": Quantity.of([bytes_sent]),
    }
    parameters: dict[str, Any] = {
        "clients": clients,
        "messages": {
            "5 groups": many,
            "100 groups": few,
            "literally": literal,
            "without a key": f"{unkeyed}; beside Algorithm 3 {2 * unkeyed} to {beside} clients",
        },
        "function": f"Volume({_NEAR}) in one's own zone, else Volume({_FAR}); keys of both are declared",
        "join": "mean speed and box, gzip at level 6, once for each batch of a group",
        "echo": True,
        "time": "of the processor, one core; drawing the messages is not counted",
    }
    return Measured(quantities, parameters)


def _engine(zones: int, clients: int) -> Groups:
    """Return an engine with echo and windows of an hour, and clients spread over the zones."""
    return _fill(Groups(_FUNCTION, _HOUR_US, echo=True), clients, zones)


def _fill(engine: _Engine, clients: int, zones: int = 5) -> _Engine:
    """Register clients in the engine, in turn in each zone, and return the engine."""
    for number in range(clients):
        engine.register(0, client_name(number), {"zone": number % zones})
    return engine


def _time(engine: Groups | ClientLists | ClientArrays, messages: Sequence[Message]) -> tuple[float, int]:
    """Return messages per second of CPU time, and the bytes of the aggregates."""
    began_s = time.process_time()
    sent_bytes = sum(aggregate.size_bytes for aggregate in broadcast(engine, messages, _JOIN))
    return len(messages) / (time.process_time() - began_s), sent_bytes


KM: Final = 5.0
"""Side of the cells by which receivers are grouped."""
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
    """Return the volume: 1, and one more per kilometre to the middle of the receiver's cell."""
    return Volume(1 + int(distance_km(sender["loc"], place.centre)))


@dataclass(frozen=True)
class StreamRun:
    """Result of playing a trace to a query."""

    lags_s: NDArray[np.float64]
    """By aggregate, in order of release: time from its release by the events until it was written."""
    behind_s: NDArray[np.float64]
    """By aggregate: how much more of the trace had been read by then, in seconds of the trace."""
    durations_s: list[float]
    """Duration of each batch."""
    events: int
    receipts: int
    """Number of aggregates, counted once a recipient."""
    busy: float
    """Share of the time between two files that a batch takes, without the first; from 1 the lag grows."""
    bound_s: float
    """See :func:`bound_s`."""

    @property
    def growth(self) -> float:
        """Mean lag of the last third of the aggregates over that of the middle third."""
        third = len(self.lags_s) // 3
        return float(np.mean(self.lags_s[-third:]) / np.mean(self.lags_s[third:-third]))


def events_of(positions: pa.Table) -> pa.Table:
    """Convert positions to events: a device registers with its first position and propagates all."""
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
    """Write events as files that span `every_s` each; return their ends (µs)."""
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
) -> StreamRun:
    """Run a query over events in files, a batch each, and compute its lag from the durations of batches.

    Batches run back to back. The lag assumes a source in which a file arrives when its time is over, played
    `speed` times as fast as it happened: a batch starts when its file has arrived and the batch before has
    ended.
    """
    from mudkit.pipeline import streaming

    ends = write_events(events, place / "events", every_s)
    start = Shares(by_distance, joins.bounding_box, RETENTION_S, echo=True)
    source = streaming.event_stream(spark, place / "events")
    streamed = streaming.aggregate_stream(source, start, place / "query", shares=shares)
    released = streamed.aggregates.select("ts", "watermark_ts", "recipients").toArrow().sort_by("ts")
    durations_s = [batch.duration_s for batch in streamed.batches]
    done_s = _done_s(ends, durations_s, speed)
    # The watermark identifies a batch.
    done_by = {_t_us(batch.watermark_ts): at for batch, at in zip(streamed.batches, done_s, strict=True)}
    released_us, watermark_us = epoch_us(released["ts"]), epoch_us(released["watermark_ts"])
    written_s = np.array([done_by[t_us] for t_us in watermark_us.tolist()])
    mean_s = statistics.fmean(durations_s[1:])
    return StreamRun(
        written_s - released_us / US_PER_S / speed,
        (watermark_us - released_us) / US_PER_S,
        durations_s,
        len(events),
        sum(map(len, released["recipients"].to_pylist())),
        mean_s * speed / every_s,
        bound_s(durations_s, every_s, speed),
    )


def bound_s(durations_s: Sequence[float], every_s: float, speed: float) -> float:
    """Return the upper bound of the lag of a query that keeps up.

    An aggregate waits for the end of its own file and of the next, which advances the watermark, then for the
    batches of both, at most as long as the longest.
    """
    return 2 * every_s / speed + 2 * max(durations_s)


def _t_us(ts: str | None) -> int:
    """Return a timestamp's text in µs since 1970; 0 for None."""
    return 0 if ts is None else int(pa.scalar(ts).cast(_EVENTS.field("ts").type).value)


def _done_s(ends_us: Sequence[int], durations_s: Sequence[float], speed: float) -> list[float]:
    """Return the end of each batch; the last one has no file and starts when the one before ends."""
    done_s: list[float] = []
    arrivals_s = [end_us / US_PER_S / speed for end_us in ends_us]
    for arrival_s, duration_s in zip([*arrivals_s, 0.0], durations_s, strict=True):
        done_s.append(max(arrival_s, done_s[-1] if done_s else 0.0) + duration_s)
    return done_s


def measure_stream(
    say: Say = say_nothing,
    *,
    source: str | os.PathLike[str] | None = None,
    cars: int = 188,
    hours: float = 0.5,
    every_s: float = 60.0,
    speed: float = 1.0,
    shares: int = 2,
) -> Measured:
    """Measure the lag of a streaming query behind a generated trace, or one that `trace.load` reads."""
    say("a trace for the stream")
    loaded = trace.generate(cars, 1) if source is None else trace.load(source)
    positions = loaded.positions
    t_us = epoch_us(positions["ts"])
    first_us = int(t_us.min()) + 12 * 3600 * US_PER_S
    keep = (t_us >= first_us) & (t_us < first_us + round(hours * 3600 * US_PER_S))
    events = events_of(positions.filter(pa.array(keep)))
    say(f"{len(events):,} events through the stream")
    from mudkit.pipeline import session, stop  # loads Spark
    from mudkit.pipeline._session import running

    is_own = not running()
    with tempfile.TemporaryDirectory(prefix="mudkit-stream-") as place:
        try:
            played = play(session(), events, Path(place), every_s=every_s, speed=speed, shares=shares)
        finally:
            if is_own:
                stop()
    later_s = played.durations_s[1:]
    quantities = {
        "longest lag behind the stream over its bound": Quantity.of([played.lags_s.max() / played.bound_s]),
        "lag at the end beside that in the middle": Quantity.of([played.growth]),
        "share of the time that batches take": Quantity.of([played.busy]),
        "files of the trace behind the stream": Quantity.of([played.behind_s.max() / every_s]),
        "s of lag behind the stream": Quantity.of(played.lags_s.tolist()),
        "s, a batch of the stream": Quantity.of(later_s),
        "events/s into the stream": Quantity.of([played.events / sum(later_s)]),
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
    return Measured(quantities, parameters)


ROWS: Final = (R5,)
