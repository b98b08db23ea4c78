"""A task made of logs: devices move, write, read and lose their network as recorded."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from mudkit import words
from mudkit.checks import Range, check_arguments, number
from mudkit.errors import TraceContentError
from mudkit.experiment.tasks import SETTLE_S, Task
from mudkit.scenario import Scenario
from mudkit.sources.outages import OutageLog, Outages
from mudkit.sources.replay import Replay
from mudkit.sources.workloads import Moments
from mudkit.trace.logs import check_overlap
from mudkit.trace.schema import epoch_us, timestamps
from mudkit.units import US_PER_S, box_bounds, distance_km, in_box

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_BIN_S: Final = 900
"""Step in which stretches of the logs are compared."""
_LEAD_US: Final = 60 * US_PER_S
"""Time of a run before the stretch."""
_NO_READS_KM: Final = -1.0
"""Radius of a phone that reads nothing: no item is within it."""


class LoggedItem(NamedTuple):
    """Item of a log: its sender's place in the fleet, and times in µs since the start of the run."""

    sender: int
    t_us: int
    loc: tuple[float, float]
    rank: float
    size_bytes: int
    expires_s: float


class LoggedRead(NamedTuple):
    """Read of a log, and the positions in :attr:`ItemLog.items` of what it asks for."""

    phone: int
    t_us: int
    requested: tuple[int, ...]


@dataclass(frozen=True)
class Times:
    """Workload of recorded moments: ``device`` is a place in the fleet."""

    device: tuple[int, ...]
    t_us: tuple[int, ...]

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments of a run, whatever the seed; see :class:`~mudkit.sources.workloads.Workload`."""
        device, t_us = np.array(self.device, dtype=np.int64), np.array(self.t_us, dtype=np.int64)
        is_inside = (t_us < length_us) & (device < len(devices))
        return Moments(device[is_inside], t_us[is_inside])

    def describe(self) -> dict[str, Any]:
        """Return the number of moments."""
        return {"recorded": len(self.t_us)}


@dataclass(frozen=True)
class ItemLog:
    """Recorded items and reads of a task; see :class:`~mudkit.experiment.tasks.Recording`.

    Attributes
    ----------
    names : tuple of str
        Names in the logs of the phones, in the order of the fleet.
    start : str
        Begin of the stretch, ISO 8601 in UTC; a run begins a minute before, in which phones subscribe.
    hours : float
        Length of the stretch.
    items : tuple of LoggedItem
        By time.
    reads : tuple of LoggedRead
        By time.
    devices_found, items_found, reads_found : int
        Devices of the trace, and items and reads of the stretch, before any were left out.
    step : int
        Every such item of a device is in the task; 1: all.
    foreseen_share : float
        Share of the wanted pairs of an item and a phone whose circle held the item's place when it was
        published: what a system that chooses by place then can know.
    """

    names: tuple[str, ...]
    start: str
    hours: float
    items: tuple[LoggedItem, ...]
    reads: tuple[LoggedRead, ...]
    devices_found: int
    items_found: int
    reads_found: int
    step: int
    foreseen_share: float
    _by_key: Mapping[tuple[int, int], LoggedItem] = field(init=False, repr=False)
    _wanting: Mapping[tuple[int, int], frozenset[int]] = field(init=False, repr=False)
    _looks: Mapping[int, tuple[list[int], list[frozenset[tuple[int, int]]]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts: dict[int, int] = {}
        keys = []
        for item in self.items:
            counts[item.sender] = counts.get(item.sender, 0) + 1
            keys.append((item.sender, counts[item.sender]))
        wanting: dict[tuple[int, int], set[int]] = {key: set() for key in keys}
        looks: dict[int, tuple[list[int], list[frozenset[tuple[int, int]]]]] = {}
        for read in self.reads:
            times_us, requests = looks.setdefault(read.phone, ([], []))
            times_us.append(read.t_us)
            requests.append(frozenset(keys[row] for row in read.requested))
            for row in read.requested:
                wanting[keys[row]].add(read.phone)
        object.__setattr__(self, "_by_key", dict(zip(keys, self.items, strict=True)))
        object.__setattr__(self, "_wanting", {key: frozenset(phones) for key, phones in wanting.items()})
        object.__setattr__(self, "_looks", looks)

    @property
    def wanted_count(self) -> int:
        """Pairs of an item and a phone that wants it."""
        return sum(map(len, self._wanting.values()))

    def limits(self, sender: int, number: int) -> tuple[int, float | None]:
        """Return an item's size in bytes and the time in seconds for which it is of use; None: for ever."""
        item = self._by_key[sender, number]
        return item.size_bytes, item.expires_s

    def wanted_by(self, sender: int, number: int) -> Collection[int]:
        """Return the phones of which a read asks for a sender's item."""
        return self._wanting[sender, number]

    def requested(self, phone: int, now_us: int) -> Collection[tuple[int, int]]:
        """Return sender and number of the items for which the last read of a phone until now asks."""
        times_us, requests = self._looks.get(phone, ([], []))
        last = bisect_right(times_us, now_us)
        return requests[last - 1] if last else frozenset()

    def metadata(
        self, seed: int, sender: str, number: int, loc: tuple[float, float] | None
    ) -> Mapping[str, Any]:
        """Return the place and the rank of an item; ``sender`` ends in its place in the fleet."""
        item = self._by_key[int(sender.rpartition("-")[2]), number]
        return {"loc": item.loc, "rank": item.rank}


@dataclass(frozen=True)
class _Radii:
    """Profiles: the radius around a phone that covers the boxes of its reads."""

    km: tuple[float, ...]

    def __call__(self, seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
        return [{"km": self.km[row]} for row in range(len(phones))]


@check_arguments(types=False)
def recorded_task(
    positions: pa.Table,
    reads: pa.Table,
    writes: pa.Table | None = None,
    outages: pa.Table | None = None,
    *,
    name: str = "this trace",
    devices: Annotated[int, Range(2, 10_000)] = 8,
    hours: float = 3.0,
    max_items: Annotated[int, Range(1, 1_000_000)] = 400,
    size_bytes: int = 300,
    link: str = "lte",
    outage: float | Outages = 0.1,
) -> Task:
    """Return the task in which devices do what logs say, in the busiest stretch of the logs.

    An item is wanted by each other device of which a read in the stretch asks for it: by box and window, and
    before it expires. What a system knows when an item is published is where each phone is, and how far its
    reads reach: the circle around their box. Without an expiration of its own an item is of use for the
    longest window of a read.

    Parameters
    ----------
    positions : pyarrow.Table
        Moves (:data:`mudkit.trace.schema.POSITIONS`).
    reads : pyarrow.Table
        Reads (:data:`mudkit.trace.schema.READS`).
    writes : pyarrow.Table, optional
        Items: ``device, ts``; ``lat, lon, rank, size_bytes, expires`` with null where not known. None: each
        position is an item.
    outages : pyarrow.Table, optional
        Periods without a network: ``device, begin, end``. None: they are drawn (``outage``).
    name : str
        Name of the task.
    devices : int
        Most phones: those that read and write most in the stretch.
    hours : float
        Length of the stretch: where reads times items are most.
    max_items : int
        Most items; of more, every second, third, … one of each device is used.
    size_bytes : int
        Size of an item whose log does not say.
    link : str
        Link of the phones.
    outage : float or Outages
        Outages, if there is no log of them.

    Returns
    -------
    Task
        Its ``recording`` (:class:`ItemLog`) says what was chosen.

    Raises
    ------
    TraceContentError
        Times or devices of the logs do not meet, fewer than two devices are left, or no read asks for an
        item of another device.
    ParameterError
        An argument is not usable.
    """
    number("hours", hours, 0.01, 1e4)
    moves, looks = _frame(positions), _frame(reads)
    known = set(moves["device"])
    items = _items(moves, None if writes is None else writes.to_pandas(), known, size_bytes)
    looks = _of_known(looks, known, "reads")
    check_overlap(_ends(moves["t_us"]), _ends(looks["t_us"]), "reads")
    begin_us, length_us = _stretch(looks["t_us"], items["t_us"], hours)
    end_us, zero_us = begin_us + length_us, begin_us - _LEAD_US
    items, looks = (rows[rows["t_us"].between(begin_us, end_us - 1)] for rows in (items, looks))
    names = _busiest(items, looks, devices)
    counts = len(items), len(looks)
    rows = {device: row for row, device in enumerate(names)}
    items, looks = (
        table[table["device"].isin(names)].assign(row=lambda part: part["device"].map(rows))
        for table in (items, looks)
    )
    step = max(math.ceil(len(items) / max_items), 1)
    items = items.sort_values(["t_us", "row"], kind="stable")
    items = items[(items.groupby("row").cumcount() + items["row"]) % step == 0].reset_index(drop=True)
    looks = looks.sort_values(["t_us", "row"], kind="stable").reset_index(drop=True)
    window_s = float(looks["window_s"].max()) if len(looks) else 1.0
    logged = [
        LoggedItem(
            int(item["row"]),
            int(item["t_us"]) - zero_us,
            (float(item["lat"]), float(item["lon"])),
            float(item["rank"]),
            int(item["size_bytes"]),
            min(max((item["expires_us"] - item["t_us"]) / US_PER_S, 1e-6), window_s),
        )
        for item in items.to_dict("records")
    ]
    requests = _requests(items, looks, window_s)
    boxes = looks.groupby("row")["box_km"].max()
    # The circle around a box.
    radii = [
        float(boxes[row]) / math.sqrt(2) if row in boxes.index else _NO_READS_KM for row in range(len(names))
    ]
    log = ItemLog(
        tuple(names),
        _moment(begin_us).isoformat(),
        length_us / US_PER_S / 3600,
        tuple(logged),
        tuple(
            LoggedRead(int(row), int(t_us) - zero_us, requested)
            for row, t_us, requested in zip(looks["row"], looks["t_us"], requests, strict=True)
        ),
        len(known),
        *counts,
        step,
        _foreseen_share(moves, names, items, looks, requests, radii),
    )
    if not log.wanted_count:
        raise TraceContentError(
            "No read asks for an item of another device.",
            where=f"{words.duration(length_us / US_PER_S)} from {log.start}",
            found=f"{words.count(len(items), 'item')} and {words.count(len(looks), 'read')} of "
            f"{words.count(len(names), 'device')}",
            expected="a read that asks for the place and time of an item that another device wrote",
            remedy="take a larger box or window (box_km, window_s), more devices or more hours",
        )
    return Task(
        name,
        "Who reads gets what others wrote within the box and the window of the read.",
        "within_km(item.loc, me.loc, me.km)",
        Scenario(
            devices=len(names),
            hours=(end_us - zero_us) / US_PER_S / 3600,
            link=link,
            outage=outage if outages is None else _outage_log(outages, names, known, zero_us, end_us),
            mobility=_replay(moves, names, zero_us, end_us),
            items=Times(tuple(item.sender for item in logged), tuple(item.t_us for item in logged)),
            reads=Times(tuple(read.phone for read in log.reads), tuple(read.t_us for read in log.reads)),
            size_bytes=size_bytes,
            expires_s=window_s,
            start=_moment(zero_us).isoformat(),
        ),
        log.metadata,
        _Radii(tuple(radii)),
        is_shown=False,
        renew_km=max(max(radii) / 10, 0.05),
        recording=log,
    )


def _frame(table: pa.Table) -> pd.DataFrame:
    """Return a table with ``t_us`` for ``ts``, by device and time."""
    names = [name for name in ("device", "lat", "lon", "box_km", "window_s") if name in table.column_names]
    frame: pd.DataFrame = table.select(names).to_pandas()
    frame["device"] = frame["device"].astype(str)
    return frame.assign(t_us=epoch_us(table["ts"])).sort_values(["device", "t_us"], kind="stable")


def _of_known(rows: pd.DataFrame, known: Collection[str], what: str) -> pd.DataFrame:
    """Return the rows of devices of the trace; TraceContentError without any."""
    kept = rows[rows["device"].isin(known)]
    if len(kept):
        return kept
    others = sorted(set(rows["device"]))
    raise TraceContentError(
        f"The {what} are of other devices than the trace.",
        where=what,
        found=f"{words.listing(others, 3)} in the log, {words.listing(sorted(known), 3)} in the trace"
        if others
        else "no row",
        expected="the same names of devices in all logs",
        remedy="rename the devices in one of them",
    )


def _ends(times_us: Any) -> tuple[int, int]:
    """Return the first and the last time."""
    return int(times_us.min()), int(times_us.max())


def _items(
    moves: pd.DataFrame, writes: pd.DataFrame | None, known: Collection[str], size_bytes: int
) -> pd.DataFrame:
    """Return ``device, t_us, lat, lon, rank, size_bytes, expires_us`` of all items of known devices."""
    never = np.inf
    if writes is None:
        return moves.assign(rank=0.0, size_bytes=size_bytes, expires_us=never)
    import pandas as pd

    items = writes.assign(device=writes["device"].astype(str))
    items = _of_known(items, known, "writes").reset_index(drop=True)

    def column(name: str, otherwise: float) -> pd.Series:
        given = items[name] if name in items else pd.Series(np.nan, index=items.index)
        return given.astype("float64").fillna(otherwise)

    t_us = items["ts"].to_numpy("datetime64[us]").astype(np.int64)
    check_overlap(_ends(moves["t_us"]), _ends(t_us), "writes", "writes")
    lat, lon = column("lat", np.nan), column("lon", np.nan)
    for device, rows in items.groupby("device"):
        mine = moves[moves["device"] == device]
        last = np.searchsorted(mine["t_us"], t_us[rows.index], side="right") - 1
        here = mine.iloc[np.maximum(last, 0)]
        lat[rows.index] = lat[rows.index].fillna(pd.Series(here["lat"].to_numpy(), index=rows.index))
        lon[rows.index] = lon[rows.index].fillna(pd.Series(here["lon"].to_numpy(), index=rows.index))
    expires_us: Any = np.full(len(items), never)
    if "expires" in items:
        has_end = items["expires"].notna().to_numpy()
        ends = items.loc[has_end, "expires"].to_numpy("datetime64[us]").astype(np.int64)
        expires_us[has_end] = ends
    return pd.DataFrame(
        {
            "device": items["device"],
            "t_us": t_us,
            "lat": lat,
            "lon": lon,
            "rank": column("rank", 0.0),
            "size_bytes": column("size_bytes", size_bytes).clip(lower=1).astype(int),
            "expires_us": expires_us,
        }
    )


def _stretch(reads_us: pd.Series, items_us: pd.Series, hours: float) -> tuple[int, int]:
    """Return begin and length of the stretch in which reads times items are most."""
    both = (int(min(reads_us.min(), items_us.min())), int(max(reads_us.max(), items_us.max())) + 1)
    length_us = min(round(hours * 3600 * US_PER_S), both[1] - both[0])
    step_us = _BIN_S * US_PER_S
    starts = np.arange(both[0], max(both[1] - length_us, both[0]) + 1, step_us)
    reads, items = (np.sort(times.to_numpy()) for times in (reads_us, items_us))

    def inside(times: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(times, starts + length_us) - np.searchsorted(times, starts)

    return int(starts[int((inside(reads).astype(float) * inside(items)).argmax())]), length_us


def _busiest(items: pd.DataFrame, looks: pd.DataFrame, devices: int) -> list[str]:
    """Return the devices with the largest shares of reads and items, by name."""
    shares = [table["device"].value_counts() / max(len(table), 1) for table in (looks, items)]
    score = shares[0].add(shares[1], fill_value=0.0)
    chosen = sorted(sorted(score.index, key=lambda name: (-score[name], name))[:devices])
    if len(chosen) < 2:
        raise TraceContentError(
            "Fewer than two devices of the trace read or write in one stretch.",
            where="devices",
            found=words.listing(chosen) or "none",
            expected="at least two devices",
            remedy="name a trace of more devices, or a longer stretch (hours)",
        )
    return chosen


def _requests(items: pd.DataFrame, looks: pd.DataFrame, window_s: float) -> list[tuple[int, ...]]:
    """Return for each read the positions of the items of others for which it asks."""
    t_us, lat, lon, row = (items[name].to_numpy() for name in ("t_us", "lat", "lon", "row"))
    until_us = np.minimum(items["expires_us"].to_numpy(), t_us + window_s * US_PER_S)
    requests = []
    for read in looks.to_dict("records"):
        box = box_bounds(read["lat"], read["lon"], read["box_km"])
        now_us = read["t_us"]
        is_requested = (
            (t_us <= now_us) & (t_us >= now_us - read["window_s"] * US_PER_S) & (until_us >= now_us)
        )
        is_requested &= (row != read["row"]) & in_box(lat, lon, box)
        requests.append(tuple(np.flatnonzero(is_requested).tolist()))
    return requests


def _foreseen_share(
    moves: pd.DataFrame,
    names: Sequence[str],
    items: pd.DataFrame,
    looks: pd.DataFrame,
    requests: Sequence[Sequence[int]],
    radii: Sequence[float],
) -> float:
    """Return the share of wanted pairs whose item was published around the last position of the phone."""
    by_phone: dict[int, set[int]] = {}
    for phone, rows in zip(looks["row"].tolist(), requests, strict=True):
        by_phone.setdefault(phone, set()).update(rows)
    count = sum(map(len, by_phone.values()))
    foreseen = 0
    for phone, chosen in by_phone.items():
        mine = moves[moves["device"] == names[phone]]
        theirs = items.iloc[sorted(chosen)]
        last = np.searchsorted(mine["t_us"].to_numpy(), theirs["t_us"].to_numpy(), side="right") - 1
        here = mine.iloc[np.maximum(last, 0)]
        away_km = distance_km(
            *(table[name].to_numpy() for table in (here, theirs) for name in ("lat", "lon"))
        )
        foreseen += int((away_km <= radii[phone]).sum())
    return foreseen / count if count else math.nan


def _replay(moves: pd.DataFrame, names: Sequence[str], begin_us: int, end_us: int) -> Replay:
    """Return the moves of the chosen devices, from the last report before the stretch to the first after it.

    Where there is none, a device stands where it is first, or last, known.
    """
    import pandas as pd

    until_us = end_us + round(SETTLE_S * US_PER_S)
    parts = []
    for name in names:
        mine = moves[moves["device"] == name]
        t_us = mine["t_us"].to_numpy()
        first = max(int(np.searchsorted(t_us, begin_us, side="right")) - 1, 0)
        last = min(int(np.searchsorted(t_us, until_us)), len(mine) - 1)
        part = mine.iloc[first : last + 1]
        ends_us = [min(begin_us, int(t_us[first])) - 1, max(until_us, int(t_us[last])) + 1]
        parts += [part.iloc[[0]].assign(t_us=ends_us[0]), part, part.iloc[[-1]].assign(t_us=ends_us[1])]
    whole = pd.concat(parts, ignore_index=True)
    table = pa.table(
        {
            "device": pa.array(whole["device"], pa.string()),
            "ts": timestamps(whole["t_us"].to_numpy(np.int64)),
            "lat": whole["lat"].to_numpy(np.float64),
            "lon": whole["lon"].to_numpy(np.float64),
        }
    )
    return Replay(table, _moment(begin_us))


def _moment(t_us: int) -> dt.datetime:
    """Return microseconds since 1970 as a datetime in UTC."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t_us)


def _outage_log(
    outages: pa.Table, names: Sequence[str], known: Collection[str], begin_us: int, end_us: int
) -> OutageLog:
    """Return the outages of the chosen devices since the begin of the run."""
    log: pd.DataFrame = outages.to_pandas()
    log = log.assign(device=log["device"].astype(str))
    log = _of_known(log, known, "outages")
    times = np.column_stack(
        [log[name].to_numpy("datetime64[us]").astype(np.int64) - begin_us for name in ("begin", "end")]
    )
    device = log["device"].to_numpy()
    return OutageLog([times[device == name] for name in names], (end_us - begin_us) / US_PER_S)
