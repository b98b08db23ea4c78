"""The busiest stretch of a trace, played to receivers who stand still: what they know and what it costs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mudkit import figures, words
from mudkit.report.joined_messages import Sizes
from mudkit.report.joining import cell_km
from mudkit.report.page import Answer
from mudkit.systems.radiator import Application, Context, Played, Time, Volume, aggregability, play
from mudkit.systems.radiator.thresholds import Threshold
from mudkit.trace import profile
from mudkit.trace.schema import epoch_us
from mudkit.trace.summaries import Distributed, Rows, select, summarise
from mudkit.units import US_PER_S, distance_km

if TYPE_CHECKING:
    import folium
    import pandas as pd
    from numpy.typing import NDArray

MAX_PLAYED: Final = 2_500_000
"""Messages that are played times those that wait meanwhile; a stretch with more is shortened."""
_MAX_CELLS: Final = 5000
"""Cells in all pictures of the map; a page stays under 6 MB."""
_MOMENTS: Final = 40
_LENGTHS_AT_ONCE: Final = 4
"""Lengths of a stretch that are counted in a pass over the positions."""
_LONG_S: Final = 600
_NAMED: Final = {"where most happens": 0.0, "between": 0.5, "at the edge": 0.95}
"""Receivers that are found by density, and the share of the messages that lie nearer to the first one."""
_TOLD: Final = {"speed": "speed, km/h", "devices": "devices in a cell"}
_LABELS: Final = {"received_bytes": "received, kB", "other_delay_s": "mean delay of others, s"}


def busiest_positions(positions: Rows, minutes: float, interval_s: int) -> tuple[pa.Table, float]:
    """Return the positions of the busiest stretch of time, and its minutes; it starts at a multiple of these.

    It is halved while to play it would take too long: each message is compared with all that wait.
    """
    lengths_us = [round(minutes * 60e6)]
    while lengths_us[-1] >= 2 * US_PER_S:
        lengths_us.append(lengths_us[-1] // 2)
    length_us, first_us = next(
        (length_us, first_us)
        for length_us, first_us, messages in _busiest(positions, lengths_us)
        if messages**2 * min(interval_s * US_PER_S / length_us, 1.0) <= MAX_PLAYED or length_us < 2 * US_PER_S
    )
    chosen = select(positions, partial(_is_between, first_us, first_us + length_us))
    return chosen.collect() if isinstance(chosen, Distributed) else chosen, length_us / 60e6


def _busiest(positions: Rows, lengths_us: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield lengths of time, with the begin of the busiest stretch of each, and its positions."""
    for at in range(0, len(lengths_us), _LENGTHS_AT_ONCE):
        some = tuple(lengths_us[at : at + _LENGTHS_AT_ONCE])
        counts = summarise(positions, {"counts": partial(profile.stretches, some)})["counts"].to_pandas()
        for length_us in some:
            of = counts[counts["length_us"] == length_us]
            number, rows = of.loc[of["rows"].idxmax(), ["number", "rows"]].tolist()
            yield length_us, number * length_us, rows


def _is_between(first_us: int, past_us: int, positions: pa.Table) -> NDArray[np.bool_]:
    """Return which positions lie in a stretch of time; its end does not belong to it."""
    t_us = epoch_us(positions["ts"])
    return (t_us >= first_us) & (t_us < past_us)


def named_places(
    positions: pa.Table, zoom: int, given: Mapping[str, str] | None = None
) -> dict[str, tuple[float, float]]:
    """Return places of receivers who stand still: those given as ``lat,lon``, or three found by density.

    These are the middles of cells: of the one with the most messages, and of those so far from it that half
    of the messages, and 95 % of them, are nearer to it; fewer, if these are the same cell.
    """
    if given:
        return {name: _place(text) for name, text in given.items()}
    lat, lon = (positions[name].to_numpy() for name in ("lat", "lon"))
    x, y = figures.tiles(zoom, lat, lon)
    cells, which, counts = np.unique(np.stack([x, y]), axis=1, return_inverse=True, return_counts=True)
    edges = figures.tile_bounds(zoom, *cells)
    middles = (edges["south"] + edges["north"]) / 2, (edges["west"] + edges["east"]) / 2
    most = int(counts.argmax())
    far_km = distance_km(middles[0], middles[1], middles[0][most], middles[1][most])[which.ravel()]
    order = np.argsort(far_km, kind="stable")
    places: dict[str, tuple[float, float]] = {}
    for name, share in _NAMED.items():
        at = int(which.ravel()[order[int(share * (len(order) - 1))]])
        place = (float(middles[0][at]), float(middles[1][at]))
        if place not in places.values():
            places[name] = place
    return places


def _place(text: str) -> tuple[float, float]:
    """Parse ``lat,lon``."""
    lat, _, lon = text.partition(",")
    return float(lat), float(lon)


@dataclass(frozen=True)
class PlayedStretch:
    """The busiest stretch of a trace, played message by message to receivers who stand still."""

    run: Played
    positions: pa.Table
    places: Mapping[str, tuple[float, float]]
    quantity: str
    zoom: int
    interval_s: int
    sizes: Sizes
    tz: str

    @property
    def labels(self) -> dict[str, str]:
        """Headings of the table."""
        return _LABELS

    def table(self) -> pd.DataFrame:
        """Return what each receiver got, and how old it was: of the cells around, and of all others."""
        import pandas as pd

        received = self.run.received
        x, y = figures.tiles(self.zoom, received["lat"].to_numpy(), received["lon"].to_numpy())
        rows = []
        for name, (lat, lon) in self.places.items():
            own_x, own_y = figures.tiles(self.zoom, [lat], [lon])
            of = (received["receiver"] == name).to_numpy()
            near = of & _is_beside((x, y), (own_x[0], own_y[0]), self.zoom)
            filled = self.run.cells.loc[self.run.cells["receiver"] == name, "messages"]
            joined = int((filled > 1).sum())
            of_cells = (len(filled) - joined) * self.sizes.message_bytes + joined * self.sizes.aggregate_bytes
            rows.append(
                {
                    "receiver": name,
                    "latitude": f"{lat:.4f}",
                    "longitude": f"{lon:.4f}",
                    "messages_around": int(near.sum()),
                    "other_messages": int((of & ~near).sum()),
                    "received_bytes": of_cells,
                    "other_delay_s": float(received["age_s"][of & ~near].mean()),
                }
            )
        return pd.DataFrame(rows)

    def answer(self, table: pd.DataFrame, minutes: float, wanted_minutes: float) -> Answer:
        """Return what reaches the places in a stretch of some minutes, as a heading."""
        when = _span(self.positions, self.tz)
        devices = self.positions["device"].to_pandas().nunique()
        messages = words.count(len(self.positions), "message")
        length, requested = (words.duration(60 * of) for of in (minutes, wanted_minutes))
        shorter = (
            f" Only {length} of the {requested} asked for (`played_minutes`) are played: each message is "
            "compared with all that wait, and more would take too long."
            if minutes < wanted_minutes
            else ""
        )
        text = (
            "This is another way than those above, to show what an application can do with joined messages: "
            "receivers who stand still get each message of their own cell and of the cells beside it at "
            "once, and all others joined, those of different devices, too, every "
            f"{words.duration(self.interval_s)}. Played message by message: {when}, the busiest stretch of "
            f"{length}, with {messages} of {words.count(devices, 'device')}.{shorter} The bytes are all that "
            "a receiver gets, surroundings and others, by the sizes and cells of this page. "
            "The map shows what each of them knows; its clock counts from the beginning of the stretch."
        )
        if not len(self.run.received):
            return Answer("Nothing is reported in the busiest stretch", text)
        ordered = table.sort_values("received_bytes", ascending=False)
        most, least = ordered.iloc[0], ordered.iloc[-1]
        within, size = f"Within {self._length()}", words.size(most["received_bytes"])
        if most["received_bytes"] == least["received_bytes"] and len(table) > 1:
            title = f"{within}, each place receives {size}"
        elif len(table) == 1:
            title = f"{within}, a receiver {_at(most)} gets {size}"
        else:
            other = words.size(least["received_bytes"])
            title = f"{within}, a receiver {_at(most)} gets {size}, one {_at(least)} {other}"
        return Answer(title, text)

    def _length(self) -> str:
        """Return the time from the first to the last position in words, in whole minutes if it is long."""
        t_us = epoch_us(self.positions["ts"])
        length_s = max(math.ceil((t_us.max() - t_us.min()) / US_PER_S), 1)
        return words.duration(length_s if length_s < _LONG_S else 60 * math.ceil(length_s / 60))

    def map(self) -> folium.Map | None:
        """Draw what the receivers know over time; None without a reported cell."""
        cells = self.run.cells
        if not len(cells):
            return None
        shown = len(self.places) * len(cells.groupby(["lat", "lon"]))
        last_s = float(cells["t_s"].max())
        pictures_ = max(min(_MOMENTS, _MAX_CELLS // shown), 1)
        return figures.knowledge_map(
            cells,
            self.positions.select(["lat", "lon"]).to_pandas(),
            tuple(self.places),
            value="value",
            label=_TOLD[self.quantity],
            every_s=last_s / pictures_,
            until_s=last_s,
            first_s=last_s / 2,
        )


def _at(row: pd.Series) -> str:
    """Return the name of a receiver, as it follows a verb."""
    name = str(row["receiver"])
    return name if name in _NAMED else f"at {name}"


def _span(positions: pa.Table, tz: str) -> str:
    """Return day and time of some positions in words."""
    import pandas as pd

    t_us = epoch_us(positions["ts"])
    begin, end = (
        pd.Timestamp(int(at), unit="us", tz="UTC").tz_convert(tz) for at in (t_us.min(), t_us.max())
    )
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%A, %-d %B %Y, %H:%M:%S}"
    return f"{begin:%A, %-d %B %Y, %H:%M:%S} to {until} ({tz})"


def _is_beside(
    tiles: tuple[NDArray[np.int64], NDArray[np.int64]], own: tuple[int, int], zoom: int
) -> NDArray[np.bool_]:
    """Return which tiles are a tile or touch it, also across the date line."""
    apart = np.abs(tiles[0] - own[0])
    return np.asarray((np.minimum(apart, 2**zoom - apart) <= 1) & (np.abs(tiles[1] - own[1]) <= 1))


def play_stretch(
    positions: pa.Table,
    quantity: str,
    places: Mapping[str, tuple[float, float]],
    *,
    zoom: int,
    interval_s: int,
    sizes: Sizes,
    tz: str,
) -> PlayedStretch:
    """Send positions to receivers who stand still: what is around them at once, all else joined.

    A receiver gets a message for each cell and interval, or an aggregate if several were sent there.
    """
    if quantity == "speed":
        positions = positions.filter(positions["speed_mps"].is_valid())
    else:  # no speed is computed, which would leave out the first position of a device
        at = positions.column_names.index("speed_mps")
        positions = positions.set_column(at, "speed_mps", pa.array(np.zeros(len(positions))))
    run = play(
        _application(positions, quantity, places, zoom, interval_s),
        positions,
        stationary=dict(places),
        every_s=0.0,
        max_retention_s=float(max(interval_s, 3600)),
    )
    run.cells["km"] = [cell_km(zoom, lat) for lat in run.cells["lat"]]
    return PlayedStretch(run, positions, places, quantity, zoom, interval_s, sizes, tz)


def _application(
    positions: pa.Table,
    quantity: str,
    places: Mapping[str, tuple[float, float]],
    zoom: int,
    interval_s: int,
) -> Application:
    """Return the application: the cells of the page, at once for receivers beside a message."""
    lat, lon = (
        np.append(positions[name].to_numpy(), [place[at] for place in places.values()])
        for at, name in enumerate(("lat", "lon"))
    )
    columns = figures.tiles(zoom, lat, lon)
    tiles = dict(zip(zip(lat.tolist(), lon.tolist(), strict=True), zip(*columns, strict=True), strict=True))
    edges = figures.tile_bounds(zoom, *columns)
    middles = zip(
        ((edges["south"] + edges["north"]) / 2).round(6).tolist(),
        ((edges["west"] + edges["east"]) / 2).round(6).tolist(),
        strict=True,
    )
    middle_of = dict(zip(zip(*columns, strict=True), middles, strict=True))
    stationary = {tiles[place] for place in places.values()}
    at_places = set(places.values())

    def tile(context: Context) -> tuple[int, int]:
        return tiles[tuple(context["loc"])]

    def of_receiver(context: Context) -> Hashable:
        return tile(context) if tuple(context["loc"]) in at_places else None

    beside = {
        (sender, receiver)
        for receiver in stationary
        for sender in middle_of
        if _is_beside((np.array([sender[0]]), np.array([sender[1]])), receiver, zoom)[0]
    }

    @aggregability(key=of_receiver, sender_key=tile)
    def around_at_once(sender: tuple[int, int], receiver: tuple[int, int] | None) -> Threshold:
        return Volume(1) if (sender, receiver) in beside else Time(seconds=interval_s)

    def join(contexts: Sequence[Context]) -> Context:
        by_tile: dict[tuple[int, int], list[Context]] = {}
        for context in contexts:
            by_tile.setdefault(tile(context), []).append(context)
        cells = [
            [*middle_of[place], _value(here, quantity), len(here), _mean_time_s(here)]
            for place, here in sorted(by_tile.items())
        ]
        spans = [context.span_us or (0, 0) for context in contexts]
        span = (min(begin for begin, _ in spans), max(end for _, end in spans))
        return Context(frozenset(), {"cells": cells, "km": 1.0}, span)

    def sense(name: str, loc: tuple[float, float], speed_kmh: float) -> dict[str, Any]:
        return {"loc": loc, "speed_kmh": speed_kmh} if quantity == "speed" else {"loc": loc}

    return Application(quantity, around_at_once, join, sense, _TOLD[quantity])


def _value(contexts: Sequence[Context], quantity: str) -> float:
    """Return the mean speed in km/h, or how many different people some contexts name."""
    if quantity == "speed":
        return round(float(np.mean([context["speed_kmh"] for context in contexts])), 1)
    return float(len(frozenset().union(*(context.people for context in contexts))))


def _mean_time_s(contexts: Sequence[Context]) -> float:
    """Return the mean middle of the contexts' time spans, in seconds."""
    return round(float(np.mean([sum(context.span_us or (0, 0)) / 2e6 for context in contexts])), 1)
