"""An application on a trace: every device tells where it is, and what goes to whom becomes tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mudkit.errors import ParameterError
from mudkit.sources.parameters import number
from mudkit.systems.radiator.applications import Application
from mudkit.systems.radiator.broadcast import broadcast
from mudkit.systems.radiator.client_arrays import for_many
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.pending import Message
from mudkit.systems.radiator.places import distance_km

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Played", "play"]


@dataclass(frozen=True)
class Played:
    """What came of an application on a trace.

    Parameters
    ----------
    aggregates : pandas.DataFrame
        A row for each that went: ``ts, messages, people, recipients, size_bytes, wait_s`` (the mean of its
        messages at the server).
    cells : pandas.DataFrame
        What those who are watched have got, where the join tells cells: ``ts, receiver, lat, lon, value,
        count`` (count is NaN where the join gives none).
    received : pandas.DataFrame
        What those who are watched have got of each message: ``ts, receiver, sender, lat, lon, age_s``: where
        it was sent, and how old it was when it went.
    problems : list
        Of the application's functions.
    """

    aggregates: pd.DataFrame
    cells: pd.DataFrame
    received: pd.DataFrame
    problems: list[Any]


def play(
    application: Application,
    positions: Any,
    *,
    watch: Collection[str] = (),
    every_s: float = 60.0,
    max_retention_s: float = 3600.0,
) -> Played:
    """Let the devices of a trace use an application, each of them as sender and as receiver.

    Parameters
    ----------
    application : Application
    positions : pyarrow.Table or object with ``positions``
        Columns device, ts, lat, lon and perhaps speed_mps, as a lab's trace and
        :class:`mudkit.trace.Loaded` have them. Without a speed it is that since the report before.
    watch : collection of str
        Devices whose receptions are kept.
    every_s : float
        A device tells something so often at the most.
    max_retention_s : float

    Raises
    ------
    ParameterError
        There are no positions, or a device to be watched is not among them.
    """
    import pandas as pd

    number("every_s", every_s, 0.0, 1e9)
    retention_us = round(number("max_retention_s", max_retention_s, 1e-6, 1e9) * 1e6)
    frame = (
        getattr(positions, "positions", positions).to_pandas().sort_values(["ts", "device"], kind="stable")
    )
    names = set(frame["device"].unique())
    if not names or not set(watch) <= names:
        raise ParameterError(
            "There are no such devices in these positions.", where="watch", found=", ".join(map(repr, watch)),
            expected=", ".join(sorted(names)[:10]) or "positions",
        )  # fmt: skip
    since = pd.to_datetime(frame["ts"], utc=True) - pd.Timestamp(0, tz="UTC")
    times_us = (since // pd.Timedelta(microseconds=1)).to_numpy(np.int64)
    start_us = int(times_us[0])
    engine = for_many(application.aggregability, retention_us, echo=True)
    for first in frame.drop_duplicates("device").itertuples():
        engine.register(0, str(first.device), {"loc": [first.lat, first.lon]})
    told = _told(application, frame, (times_us - start_us).tolist(), round(every_s * 1e6))
    last_us = int(times_us[-1]) - start_us
    aggregates, cells, received = [], [], []
    watched = set(watch)
    for gone in broadcast(engine, told, application.join, until_us=last_us + retention_us):
        waits_s = [(gone.gone_us - each.arrived_us) / 1e6 for each in gone.batch]
        people = len({name for each in gone.batch for name in each.context.people})
        aggregates.append(
            (
                gone.gone_us,
                len(gone.batch),
                people,
                len(gone.recipients),
                gone.size_bytes,
                float(np.mean(waits_s)),
            )
        )
        for receiver in sorted(watched.intersection(gone.recipients)):
            for lat, lon, value, *count in gone.context.get("cells", ()):
                cells.append((gone.gone_us, receiver, lat, lon, value, *(count or (float("nan"),))))
            for each, wait_s in zip(gone.batch, waits_s, strict=True):
                received.append((gone.gone_us, receiver, each.sender, *each.context["loc"], wait_s))
    tables = [
        pd.DataFrame(rows, columns=["ts", *columns])
        for rows, columns in (
            (aggregates, ("messages", "people", "recipients", "size_bytes", "wait_s")),
            (cells, ("receiver", "lat", "lon", "value", "count")),
            (received, ("receiver", "sender", "lat", "lon", "age_s")),
        )
    ]
    for table in tables:
        table["ts"] = pd.to_datetime(table["ts"] + start_us, unit="us", utc=True)
    return Played(tables[0], tables[1], tables[2], list(engine.problems))


def _told(application: Application, frame: Any, times_us: list[int], every_us: int) -> Iterator[Message]:
    """Give what the devices tell, in time."""
    last: dict[str, tuple[int, tuple[float, float]]] = {}
    told_us: dict[str, int] = {}
    count = 0
    speeds = frame["speed_mps"].to_numpy(np.float64) if "speed_mps" in frame else np.full(len(frame), np.nan)
    columns = zip(frame["device"], times_us, frame["lat"], frame["lon"], speeds, strict=True)
    for device, now_us, lat, lon, speed_mps in columns:
        loc = (float(lat), float(lon))
        before_us, before = last.get(device, (now_us, loc))
        last[device] = now_us, loc
        if device in told_us and now_us - told_us[device] < every_us:
            continue
        speed_kmh = 3.6 * float(speed_mps)
        if np.isnan(speed_kmh):
            if now_us == before_us:
                continue
            speed_kmh = distance_km(before, loc) / ((now_us - before_us) / 3.6e9)
        attributes: Mapping[str, Any] | None = application.sense(device, loc, speed_kmh)
        told_us[device] = now_us
        if attributes is not None:
            context = Context(frozenset((device,)), dict(attributes), (now_us, now_us))
            yield Message(count, device, now_us, context)
            count += 1
