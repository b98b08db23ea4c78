"""An application run on a trace: each device reports its position; receptions become tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.display import shows_fields
from mudkit.errors import ContextProblem, ParameterError, PropagationProblem, brief
from mudkit.systems.radiator import joins
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import engine_for_many
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.functions import Problems, build_problem
from mudkit.systems.radiator.messages import pack
from mudkit.systems.radiator.places import distance_km
from mudkit.systems.radiator.study.applications import Application
from mudkit.systems.radiator.study.broadcast import Aggregate, broadcast
from mudkit.units import distance_km as distances_km

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from mudkit.trace import Loaded

Place = tuple[float, float]
"""Latitude and longitude, degrees."""
Track = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Positions of a device: ascending seconds, latitudes and longitudes."""


class ReceivedCell(NamedTuple):
    """Cell of an aggregate at a receiver: a row of :func:`received_cells`, without the distance."""

    t_s: float
    receiver: str
    aggregate: int
    lat: float
    lon: float
    km: float
    value: float
    messages: int
    reported_s: float


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class Played:
    """Result of running an application on a trace; one row per line below.

    Parameters
    ----------
    aggregates : pandas.DataFrame
        Aggregate: ``ts, messages, people, recipients, size_bytes, wait_s`` (mean wait at the server).
    cells : pandas.DataFrame
        Watched receiver, aggregate and cell, in order of time: ``t_s`` (since the first position),
        ``receiver, aggregate, lat, lon`` (centre), ``km`` (side), ``value, messages, reported_s`` (mean time
        of the messages), ``distance_km`` (from the receiver at that time). If the join returns no cells, the
        value is the number of people in cells of 1 km.
    received : pandas.DataFrame
        Watched receiver and message: ``ts, receiver, sender, lat, lon`` (of the sender) and ``age_s`` when it
        was sent on.
    sent : pandas.DataFrame
        Watched receiver: ``receiver, aggregates, messages, bytes`` (gzip, without addresses).
    problems : list of PropagationProblem
        Problems of the application's functions. A device that fails to sense sends nothing; an aggregate from
        which no cells can be derived has no rows in ``cells``.
    """

    aggregates: pd.DataFrame
    cells: pd.DataFrame
    received: pd.DataFrame
    sent: pd.DataFrame
    problems: list[PropagationProblem]


@check_arguments
def play(
    application: Application,
    positions: pd.DataFrame | pa.Table | Loaded,
    *,
    watch: Collection[str] = (),
    stationary: Mapping[str, Place] | None = None,
    every_s: Annotated[float, Range(0.0, 1e9)] = 60.0,
    max_retention_s: Annotated[float, Range(1e-6, 1e9)] = 3600.0,
) -> Played:
    """Run an application on all devices of a trace, each as sender and receiver.

    Parameters
    ----------
    application : Application
    positions : pyarrow.Table, pandas.DataFrame or object with ``positions``
        Columns device, ts, lat, lon and optionally speed_mps, as in :class:`mudkit.trace.Loaded`. Without a
        speed, it is computed from the previous position.
    watch : collection of str
        Devices whose receptions are kept.
    stationary : mapping of str to (float, float), optional
        Additional receivers that stand still, with their places (degrees); they are watched, too.
    every_s : float
        Minimum interval between reports of a device.
    max_retention_s : float
        Maximum time that a message waits.

    Raises
    ------
    ParameterError
        There are no positions, a watched device has none, or a standing receiver has some.
    """
    import pandas as pd

    retention_us = round(max_retention_s * 1e6)
    frame = _as_frame(positions).sort_values(["ts", "device"], kind="stable", ignore_index=True)
    names, stationary = set(frame["device"].unique()), dict(stationary or {})
    if not names or not set(watch) <= names or names & stationary.keys():
        raise ParameterError(
            "There are no such devices in these positions.",
            where="watch, stationary",
            found=", ".join(map(repr, [*watch, *stationary])),
            expected=f"watch: of {', '.join(sorted(names)[:10]) or 'none'}; stationary: others",
        )
    since = pd.to_datetime(frame["ts"], utc=True) - pd.Timestamp(0, tz="UTC")
    times_us = np.array(since // pd.Timedelta(microseconds=1), dtype=np.int64)
    start_us = int(times_us[0])
    times_us -= start_us
    engine = engine_for_many(application.aggregability, retention_us, echo=True)
    firsts = frame.drop_duplicates("device")
    for name, lat, lon in zip(firsts["device"], firsts["lat"], firsts["lon"], strict=True):
        engine.register(0, str(name), {"loc": [float(lat), float(lon)]})
    for name, place in stationary.items():
        engine.register(0, name, {"loc": list(place)})
    events = _sense_reports(application, frame, times_us.tolist(), round(every_s * 1e6), engine.problems)
    watched = {*watch, *stationary}
    sums = {name: [0, 0, 0] for name in sorted(watched)}
    aggregates: list[tuple[float, ...]] = []
    cells: list[ReceivedCell] = []
    received: list[tuple[int, str, str, float, float, float]] = []
    until_us = int(times_us[-1]) + retention_us
    for aggregate in broadcast(engine, events, application.join, until_us=until_us):
        waits_s = [(aggregate.sent_us - message.arrived_us) / 1e6 for message in aggregate.batch]
        people = len({name for message in aggregate.batch for name in message.context.people})
        aggregates.append(
            (
                aggregate.sent_us,
                len(aggregate.batch),
                people,
                len(aggregate.recipients),
                aggregate.size_bytes,
                float(np.mean(waits_s)),
            )
        )
        for receiver in sorted(watched.intersection(aggregate.recipients)):
            more = (1, len(aggregate.batch), aggregate.size_bytes)
            sums[receiver] = [now + plus for now, plus in zip(sums[receiver], more, strict=True)]
            cells += _cells_or_problem(application, aggregate, receiver, sums[receiver][0], engine.problems)
            for message, wait_s in zip(aggregate.batch, waits_s, strict=True):
                received.append(
                    (aggregate.sent_us, receiver, message.sender, *_place_of(message.context), wait_s)
                )
    tracks = {name: _track_of(frame, times_us, name) for name in watched - stationary.keys()}
    for_columns = ["ts", "messages", "people", "recipients", "size_bytes", "wait_s"]
    tables = [
        pd.DataFrame(aggregates, columns=for_columns),
        pd.DataFrame(received, columns=["ts", "receiver", "sender", "lat", "lon", "age_s"]),
    ]
    for each_table in tables:
        each_table["ts"] = pd.to_datetime(each_table["ts"] + start_us, unit="us", utc=True)
    return Played(
        tables[0],
        received_cells(cells, tracks | {name: _still_track(place) for name, place in stationary.items()}),
        tables[1],
        pd.DataFrame(
            [[name, *three] for name, three in sums.items()],
            columns=["receiver", "aggregates", "messages", "bytes"],
        ),
        list(engine.problems),
    )


def _cells_or_problem(
    application: Application, aggregate: Aggregate, receiver: str, number: int, problems: Problems
) -> list[ReceivedCell]:
    """Return the rows of the cells of an aggregate; if there can be none, record the problem."""
    context = aggregate.context
    try:
        if context.get("cells") is None:
            context = joins.count_per_cell([message.context for message in aggregate.batch])
        return cells_of_aggregate(aggregate.sent_us / 1e6, receiver, number, context)
    except Exception as error:
        where = f"{application.name}, receiver {receiver!r}"
        remedy = "it is not among what was heard"
        problems.add(
            build_problem(
                "What the join tells", error, where=where, expected="cells, or places", remedy=remedy
            )
        )
        return []


def _place_of(context: Context) -> Place:
    """Return the place of a context; NaN if it has none."""
    try:
        lat, lon = context["loc"]
        return float(lat), float(lon)
    except (ContextProblem, TypeError, ValueError):
        return math.nan, math.nan


def cells_of_aggregate(t_s: float, receiver: str, aggregate: int, context: Context) -> list[ReceivedCell]:
    """Return a row of :func:`received_cells` for each cell of a receiver's ``aggregate``-th aggregate."""
    km = context["km"]
    return [
        ReceivedCell(t_s, receiver, aggregate, lat, lon, km, value, count, reported_s)
        for lat, lon, value, count, reported_s in context["cells"]
    ]


def received_cells(rows: list[ReceivedCell], tracks: Mapping[str, Track]) -> pd.DataFrame:
    """Return rows of cells as the table :attr:`Played.cells`, with distances from the tracks."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=ReceivedCell._fields).sort_values(
        ["t_s", "aggregate"], ignore_index=True
    )
    table["distance_km"] = np.nan
    for name, those in table.groupby("receiver"):
        t_s, lat, lon = tracks[str(name)]
        at = np.maximum(np.searchsorted(t_s, those["t_s"], side="right") - 1, 0)
        table.loc[those.index, "distance_km"] = distances_km(those["lat"], those["lon"], lat[at], lon[at])
    return table


def _track_of(frame: pd.DataFrame, times_us: NDArray[np.int64], name: str) -> Track:
    """Return the positions of a device as a track, in seconds; ``times_us`` has the time of each row."""
    own = (frame["device"] == name).to_numpy()
    return times_us[own] / 1e6, frame["lat"].to_numpy()[own], frame["lon"].to_numpy()[own]


def _still_track(place: Place) -> Track:
    """Return the track of a receiver that stands still."""
    return np.zeros(1), np.array([place[0]]), np.array([place[1]])


def _as_frame(positions: object) -> pd.DataFrame:
    """Return positions as a DataFrame, or raise ParameterError if they are no table of positions."""
    import pandas as pd

    table = getattr(positions, "positions", positions)
    converted = getattr(table, "to_pandas", None)
    frame = converted() if callable(converted) else table
    columns = list(frame.columns) if isinstance(frame, pd.DataFrame) else None
    missing = {"device", "ts", "lat", "lon"}.difference(columns or ())
    if missing or not isinstance(frame, pd.DataFrame):
        raise ParameterError(
            f"The positions lack columns: {', '.join(sorted(missing))}.",
            where="positions",
            found=brief(positions) if columns is None else ", ".join(map(str, columns)) or "no columns",
            expected="a table with device, ts, lat and lon, or an object with one as its positions",
            remedy="take lab.trace.positions, or what mudkit.trace.load returns",
        )
    return frame


def _sense_reports(
    application: Application, frame: pd.DataFrame, times_us: list[int], every_us: int, problems: Problems
) -> Iterator[Message]:
    """Yield the messages in which devices report what they sense, in order of time."""
    last: dict[str, tuple[int, tuple[float, float]]] = {}
    reported_us: dict[str, int] = {}
    count = 0
    speeds = frame["speed_mps"].to_numpy(np.float64) if "speed_mps" in frame else np.full(len(frame), np.nan)
    columns = zip(frame["device"], times_us, frame["lat"], frame["lon"], speeds, strict=True)
    for device, now_us, lat, lon, speed_mps in columns:
        loc = (float(lat), float(lon))
        before_us, before = last.get(device, (now_us, loc))
        last[device] = now_us, loc
        if device in reported_us and now_us - reported_us[device] < every_us:
            continue
        speed_kmh = 3.6 * float(speed_mps)
        if np.isnan(speed_kmh):
            if now_us == before_us:
                continue
            speed_kmh = distance_km(before, loc) / ((now_us - before_us) / 3.6e9)
        reported_us[device] = now_us
        try:
            attributes = application.sense(device, loc, speed_kmh)
            if attributes is None:
                continue
            context = Context(frozenset((device,)), dict(attributes), (now_us, now_us))
            pack(context.to_dict(), compress=False)  # fails here if it cannot be encoded
        except Exception as error:
            where = f"{application.name}, device {device!r}"
            expected = "a mapping, or None"
            problems.add(
                build_problem(
                    "What senses", error, where=where, expected=expected, remedy="the device says nothing"
                )
            )
            continue
        yield Message(count, device, now_us, context)
        count += 1
