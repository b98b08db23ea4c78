"""Traces whose best cache policy is known by construction, and fresh traces of the same process.

Written without a look at the search of ``mudkit.learning`` or the report that uses it. All but the bursts follow
one rule: what an answer holds changes by known amounts, so a cached answer is complete until a known age (its
*life*, by place and hour) or within a known distance. As waiting costs nothing, the best policy asks only when
the cached answer has become stale. Only the scale of the limits is fitted, on another trace of the process: writes
are not quite regular, and some stale answers are allowed.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa
from cache_oracle import US, Decide, label, score
from numpy.typing import NDArray

from mudkit.report.source import TraceSource
from mudkit.trace.schema import POSITIONS, timestamps, with_read_ids

ALL = ("always ask", "age", "distance and age", "time of day", "age by hour", "tree")
TRACES = (
    *("age stream",) * 4,
    *("age bursts",) * 2,
    *("distance",) * 6,
    *("hour, quiet nights",) * 2,
    *("hour, quiet days",) * 2,
    *("hour, a life by hour",) * 2,
    *("place",) * 4,
    *("tree above the bar",) * 10,
    *("tree below the bar",) * 5,
    *("nothing",) * 3,
)
BAR = 0.02
"""Advantage of a tree in fresh answers, as a share of the reads, that justifies it."""

MONDAY_US = int(dt.datetime(2021, 3, 1, tzinfo=dt.UTC).timestamp()) * US
DAY_S, HOUR_S, MIN_S = 86_400, 3_600, 60
KM = 1 / 111.195
HORIZON_S, WINDOW_S = 3 * HOUR_S, 24 * HOUR_S
SHIFTS = {"day": (9.0, 19.0), "night": (22.25, 29.75)}
"""Hours in which a device may read: a device has one shift a day, and reads of two shifts are never in a pair."""
REGIMES = {"day": (7.5, 20.5), "night": (20.5, 31.5)}
"""Hours of the writes around each shift; all static points are written again at 7:30, when nothing is read."""
BUSY_MIN, FOREVER = 6.0, np.inf
MIN_GAP_S = 9 * MIN_S
"""Shortest time between two reads of a device, longer than the life of an answer where much is written."""
MIN_READS, MAX_READS = 1500, 3200
SIZES = ((10, 20), (10, 12), (12, 8), (15, 10), (20, 5), (24, 4), (32, 5), (40, 3), (60, 3))
POINTS = 28_000
THETAS = np.array([0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2])

Tables = tuple[pa.Table, pa.Table]


@dataclass(frozen=True)
class Planted:
    """A trace, its limits, its best policy, and the families that a recommendation may come from."""

    name: str
    kind: str
    positions: pa.Table
    reads: pa.Table
    completeness: float
    max_stale: float
    horizon_s: float
    decide: Decide
    families: frozenset[str]
    draw: Callable[[int], Tables]

    def fresh(self, seed: int) -> Planted:
        """Draw a trace of the same process on other days, with other devices."""
        positions, reads = self.draw(seed)
        return replace(self, positions=positions, reads=reads)

    def source(self) -> TraceSource:
        """Return the trace as a report opens it."""
        counts = {"what": ["positions", "reads"], "rows": [len(self.positions), len(self.reads)]}
        return TraceSource(f"{self.name}.csv", self.positions, self.reads, pd.DataFrame(counts), "UTC")


def planted_traces(seed: int) -> list[Planted]:
    """Draw the 40 traces."""
    return [planted_trace(seed, number) for number in range(len(TRACES))]


@functools.lru_cache(maxsize=16)
def planted_trace(seed: int, number: int) -> Planted:
    """Draw one of the 40 traces; its process is independent of the others. Tests share the last ones."""
    name = TRACES[number]
    kind = name.split()[0].strip(",")
    rng = np.random.default_rng([seed, number])
    make = {"age bursts": _bursts, "distance": _road}.get(name, _districts)
    process, max_stale, families = make(rng, name)
    positions, reads = process.draw(seed=1000 * seed + number)
    trace = Planted(
        name=f"{number:02d} {name}",
        kind=kind,
        positions=positions,
        reads=reads,
        completeness=process.completeness,
        max_stale=max_stale,
        horizon_s=process.horizon_s,
        decide=process.decide(1.0),
        families=frozenset(families),
        draw=lambda seed: process.draw(seed=10_000_000 + seed),
    )
    return replace(trace, decide=process.decide(_fitted_scale(trace, process.decide)))


def _fitted_scale(planted: Planted, decide: Callable[[float], Decide]) -> float:
    """Return the scale with most fresh answers on two other traces, and fewer stale ones than allowed by a tenth.

    Without this margin the best policy would exceed the limit on every second fresh trace.
    """
    fresh, stale = np.zeros(len(THETAS)), np.zeros(len(THETAS))
    for seed in (1, 2):
        other = planted.fresh(5_000_000 + seed)
        labelled = label(other.positions, other.reads, planted.horizon_s)
        shares = [score(labelled, labelled.decisions(decide(x)), planted.completeness) for x in THETAS]
        fresh += [share.fresh / 2 for share in shares]
        stale += [share.stale / 2 for share in shares]
    return float(THETAS[np.argmax(np.where(stale <= 0.9 * planted.max_stale, fresh, stale - 2))])


# -- districts: a life of answers by place and shift


@dataclass(frozen=True)
class Districts:
    """Districts with static points and a stream of new ones, whose rate depends on the district and the hour.

    ``lives_min`` and ``mix`` (share of the devices' days) are by district, then day and night. A cached answer is
    stale when more than ``allowed`` points are new, of as many in a day in each district and at any time.
    """

    lives_min: NDArray[np.float64]
    mix: NDArray[np.float64]
    devices: int
    days: int
    reads_a_day: int
    extra_gap_s: float
    min_gap_s: float
    completeness: float
    allowed: float
    noise: float
    lat: float
    lon: float
    steady: float = 0.0
    """Share of its days that a device spends as its first one; the others are drawn."""
    horizon_s: float = HORIZON_S

    @property
    def centres(self) -> NDArray[np.float64]:
        """Latitudes and longitudes: 40 km apart, on both sides of each other."""
        number = np.arange(len(self.lives_min))
        return np.stack([self.lat + 40 * KM * (number % 2), self.lon + 40 * KM * (number // 2)], axis=1)

    def decide(self, scale: float) -> Decide:
        """Return the policy that answers locally within the life of the answer at this place and hour."""
        centres, lives_s = self.centres, self.lives_min * MIN_S * scale

        def local(age_s, distance_km, hour, lat, lon, weekday):
            far = np.hypot(lat[:, None] - centres[:, 0], lon[:, None] - centres[:, 1])
            night = (hour >= REGIMES["day"][1]) | (hour < REGIMES["day"][0])
            return age_s <= lives_s[far.argmin(axis=1), night.astype(int)]

        return local

    def draw(self, seed: int) -> Tables:
        """Draw positions and reads; seeds differ in days and devices."""
        rng = np.random.default_rng([seed, 77])
        first_day = 7 * int(rng.integers(0, 200))
        writes, total = [], round(self.allowed / (1 - self.completeness))
        for number, (lat, lon) in enumerate(self.centres):
            solar_s = []
            for day in range(-1, self.days + 1):
                streamed = 0
                for (a, b), life_min in zip(REGIMES.values(), self.lives_min[number], strict=True):
                    rows = round(self.allowed * 60 * (b - a) / life_min)
                    share = (np.arange(rows) + rng.random()) / max(rows, 1)
                    share = np.where(rng.random(rows) < self.noise, rng.random(rows), share)
                    solar_s.append(day * DAY_S + HOUR_S * (a + (b - a) * share))
                    streamed += rows
                static = rng.uniform(0, 300, max(total - streamed, 0))
                solar_s.append(day * DAY_S + HOUR_S * REGIMES["day"][0] + static)
            t_s = np.concatenate(solar_s) - lon * 240
            spread = rng.normal(0, 0.4 * KM, (2, len(t_s)))
            writes.append((f"sensor-{number}", t_s, lat + spread[0], lon + spread[1]))
        visits = []
        for device in range(self.devices):
            cells = rng.choice(self.mix.size, self.days, p=self.mix.ravel())
            cells = np.where(rng.random(self.days) < self.steady, cells[0], cells)
            for day, cell in enumerate(cells.tolist()):
                number, shift = divmod(cell, 2)
                a, b = (HOUR_S * hour for hour in list(SHIFTS.values())[shift])
                gaps = self.min_gap_s + rng.exponential(self.extra_gap_s, self.reads_a_day)
                t_s = np.cumsum(gaps)
                t_s = a + rng.uniform(0, max(b - a - t_s[-1], 600)) + t_s
                t_s = day * DAY_S + t_s[t_s < b] - self.centres[number, 1] * 240
                visits.append(
                    (f"reader-{seed}-{device:02d}", t_s, *_near(rng, self.centres[number], len(t_s)))
                )
        return _tables(rng, first_day, writes, visits, box_km=10.0, window_s=WINDOW_S)


def _districts(rng: np.random.Generator, name: str) -> tuple[Districts, float, tuple[str, ...]]:
    """Draw districts in which the lives of answers differ as the name says."""
    kind = name.split()[0].strip(",")
    number = 1 if kind in ("age", "hour", "nothing") else int(rng.choice([2, 2, 3]))
    sizes = [(devices, days) for devices, days in SIZES if number * (days + 2) * 650 <= POINTS]
    devices, days = sizes[rng.integers(len(sizes))]
    reads_a_day = int(np.clip(rng.uniform(MIN_READS, MAX_READS) / (devices * days), 9, 24))
    gap_s = min(rng.uniform(14, 22) * MIN_S, 7 * HOUR_S / reads_a_day)
    min_gap_s = 30.0 if kind == "age" else MIN_GAP_S
    max_stale = float(rng.choice([0.03, 0.05, 0.08]))
    lives, mix = np.full((number, 2), BUSY_MIN), np.full((number, 2), 0.5 / number)
    families: tuple[str, ...] = ("tree",)
    if kind == "age":
        gap_s = min(gap_s, rng.uniform(6, 12) * MIN_S)
        lives[:] = rng.uniform(14.4, 40)
        families = ("age",)
    elif kind == "hour":
        quiet = 0 if "days" in name else 1
        lives[0, quiet] = FOREVER
        mix[0] = rng.dirichlet([20, 20])
        families = ("time of day", "age by hour")
        if "life" in name:
            lives[0, 1 - quiet] = rng.uniform(25, 45)
    elif kind == "place":
        lives[0] = FOREVER
    elif kind == "tree":
        above = "above" in name
        counts = _reads_within(gap_s - min_gap_s, min_gap_s)
        lives, mix = _draw_tree(rng, number, counts, max_stale, above)
        families = families if above else ALL[:-1]
    else:
        families = ("always ask",)
    busiest = sum(60 * (b - a) / lives[:, shift] for shift, (a, b) in enumerate(REGIMES.values())).max()
    completeness = next(c for c in (0.95, 0.98, 0.99, 0.996) if busiest <= 1.02 / (1 - c))
    most = min(1125, POINTS // (number * (days + 2)))
    allowed = min(12, int(most * (1 - completeness))) + 0.5
    process = Districts(
        lives_min=lives,
        mix=mix,
        devices=devices,
        days=days,
        reads_a_day=reads_a_day,
        extra_gap_s=gap_s - min_gap_s,
        min_gap_s=min_gap_s,
        completeness=completeness,
        allowed=allowed,
        noise=float(rng.choice([0.0, 0.1, 0.2])),
        lat=float(rng.uniform(-45, 55)),
        lon=float(rng.uniform(-170, 170)),
    )
    return process, max_stale, families


def _draw_tree(
    rng: np.random.Generator, number: int, counts: NDArray[np.float64], max_stale: float, above: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw lives by district and shift that gain clearly more, or clearly less, than the bar over any rule."""
    while True:
        lives = rng.choice([BUSY_MIN, 25.0, 50.0, 100.0, FOREVER], (number, 2), p=[0.3, 0.2, 0.15, 0.15, 0.2])
        mix = rng.dirichlet(np.full(2 * number, 8.0)).reshape(number, 2)
        if not above:
            lives[1:] = lives[0]
            lives[-1, rng.integers(2)] = rng.choice([BUSY_MIN, 25.0, 50.0])
            mix[-1] *= 0.2
            mix /= mix.sum()
        gain = _fluid_gain(lives, mix, counts, max_stale)
        # Below the bar also for a rule that keeps clear of the limit, by chance or with a margin.
        careful = _fluid_gain(lives, mix, counts, max_stale / 3)
        if gain >= 3 * BAR if above else 0.1 * BAR <= gain <= careful <= 0.5 * BAR:
            return lives, mix


def _reads_within(extra_gap_s: float, min_gap_s: float) -> NDArray[np.float64]:
    """Return the mean number of reads in the minutes 0 to the horizon after a read."""
    rng = np.random.default_rng(5)
    times = np.cumsum(min_gap_s + rng.exponential(extra_gap_s, (2000, 30)), axis=1)
    return np.array(
        [(times <= MIN_S * minute).sum(axis=1).mean() for minute in range(HORIZON_S // MIN_S + 1)]
    )


def _fluid_gain(
    lives: NDArray[np.float64], mix: NDArray[np.float64], counts: NDArray[np.float64], max_stale: float
) -> float:
    """Return the advantage in fresh answers of all lives over the best pair of age limits, by day and by night."""
    alive = counts[np.minimum(lives, len(counts) - 1).astype(int)]
    planted = (mix * alive / (1 + alive)).sum()
    fresh, stale = (np.zeros((2, len(counts))) for _ in range(2))
    for shift in range(2):
        good = np.minimum(counts, alive[:, shift, None])
        fresh[shift] = (mix[:, shift, None] * good / (1 + counts)).sum(axis=0)
        stale[shift] = (mix[:, shift, None] * (counts - good) / (1 + counts)).sum(axis=0)
    allowed = stale[0][:, None] + stale[1] <= max_stale
    return float(planted - np.where(allowed, fresh[0][:, None] + fresh[1], 0.0).max())


# -- bursts: everything changes at moments that nothing announces


@dataclass(frozen=True)
class Bursts:
    """Each device in an area of its own, where all sources write about once in a period."""

    period_min: float
    devices: int
    days: int
    reads_a_day: int
    gap_s: float
    max_stale: float
    lat: float
    lon: float
    completeness: float = 0.9
    horizon_s: float = 2.0 * HOUR_S

    def decide(self, scale: float) -> Decide:
        """Return an age limit: a share ``age / period`` of the answers of that age is stale."""
        age = np.linspace(0, 1, 2001)
        rate = self.period_min * MIN_S / self.gap_s
        stale = rate * age**2 / 2 / (1 + rate * age)
        limit_s = self.period_min * MIN_S * age[np.searchsorted(stale, self.max_stale)] * scale
        return lambda age_s, distance_km, hour, lat, lon, weekday: age_s <= limit_s

    def draw(self, seed: int) -> Tables:
        """Draw positions and reads; seeds differ in days, devices and areas."""
        rng = np.random.default_rng([seed, 78])
        first_day = 7 * int(rng.integers(0, 200))
        period_s, writes, visits = self.period_min * MIN_S, [], []
        cells = rng.choice(400, self.devices, replace=False)
        for device, cell in enumerate(cells.tolist()):
            centre = np.array([self.lat + 15 * KM * (cell // 20), self.lon + 15 * KM * (cell % 20)])
            gaps = rng.uniform(0.8, 1.2, int(1.3 * (self.days + 1) * DAY_S / period_s)) * period_s
            t_s = np.repeat(np.cumsum(gaps) - DAY_S / 2, 3) + rng.uniform(0, 20, 3 * len(gaps))
            t_s = t_s[t_s < (self.days + 1) * DAY_S]
            writes.append((f"sensor-{device}", t_s, *_near(rng, centre, len(t_s))))
            for day in range(self.days):
                t_s = day * DAY_S + rng.uniform(3, 19) * HOUR_S
                t_s = t_s + np.cumsum(1.0 + rng.exponential(self.gap_s - 1, self.reads_a_day))
                visits.append((f"reader-{seed}-{device:02d}", t_s, *_near(rng, centre, len(t_s))))
        return _tables(rng, first_day, writes, visits, box_km=10.0, window_s=2 * self.period_min * MIN_S)


def _bursts(rng: np.random.Generator, name: str) -> tuple[Bursts, float, tuple[str, ...]]:
    """Draw a period and a rate of reads; with many reads in a period an age limit is worth much."""
    devices, days = [(10, 12), (12, 8), (20, 5), (24, 4)][rng.integers(4)]
    period_min, max_stale = float(rng.uniform(60, 90)), float(rng.choice([0.1, 0.12]))
    reads_a_day = int(rng.uniform(MIN_READS, MAX_READS) / (devices * days))
    lat, lon = rng.uniform(-45, 55), rng.uniform(-170, 170)
    gap_s = period_min * MIN_S / rng.uniform(14, 20)
    process = Bursts(period_min, devices, days, reads_a_day, gap_s, max_stale, float(lat), float(lon))
    return process, max_stale, ("age",)


# -- a road: answers depend on the place alone


@dataclass(frozen=True)
class Road:
    """A road from west to east with static sources, each written once in a night; devices read by day.

    Stays and trips have random lengths and speeds, so that age says little about distance.
    """

    devices: int
    days: int
    reads_a_day: int
    gap_s: float
    stay_min: float
    box_km: float
    completeness: float
    sources_per_km: float
    noise: float
    lat: float
    lon: float
    length_km: float = 40.0
    horizon_s: float = HORIZON_S

    def decide(self, scale: float) -> Decide:
        """Return a distance limit: the share of the points that a shift of the box loses."""
        limit_km = (1 - self.completeness) * self.box_km * scale
        return lambda age_s, distance_km, hour, lat, lon, weekday: distance_km <= limit_km

    def draw(self, seed: int) -> Tables:
        """Draw positions and reads; seeds differ in days and devices."""
        rng = np.random.default_rng([seed, 79])
        first_day = 7 * int(rng.integers(0, 200))
        km_east = KM / np.cos(np.radians(self.lat))
        east_km = (np.arange(int(self.sources_per_km * self.length_km)) + 0.5) / self.sources_per_km
        fixed = np.random.default_rng([round(1000 * self.length_km * self.sources_per_km), 80])
        at = fixed.random(len(east_km)) * self.length_km
        east_km = np.where(fixed.random(len(east_km)) < self.noise, at, east_km)
        writes = []
        for day in range(-1, self.days + 1):
            t_s = day * DAY_S + 3 * HOUR_S + rng.uniform(0, 600, len(east_km)) - self.lon * 240
            writes.append(("meter", t_s, np.full(len(t_s), self.lat), self.lon + east_km * km_east))
        visits = []
        for device in range(self.devices):
            for day in range(self.days):
                t_s = np.cumsum(30.0 + rng.exponential(self.gap_s - 30, self.reads_a_day))
                t_s = 8 * HOUR_S + rng.uniform(0, max(12 * HOUR_S - t_s[-1], 600)) + t_s
                t_s = t_s[t_s < 20 * HOUR_S]
                x_km = np.interp(t_s, *self._track(rng)) + rng.normal(0, 0.02, len(t_s))
                lat = self.lat + rng.normal(0, 0.02 * KM, len(t_s))
                t_s = day * DAY_S + t_s - self.lon * 240
                visits.append((f"reader-{seed}-{device:02d}", t_s, lat, self.lon + x_km * km_east))
        return _tables(rng, first_day, writes, visits, box_km=self.box_km, window_s=WINDOW_S)

    def _track(self, rng: np.random.Generator) -> tuple[list[float], list[float]]:
        """Draw times and kilometres of a day: stays and trips in turn."""
        first, last = self.box_km, self.length_km - self.box_km
        t_s, x_km = [7.0 * HOUR_S], [rng.uniform(first, last)]
        while t_s[-1] < 21 * HOUR_S:
            t_s.append(t_s[-1] + rng.exponential(self.stay_min * MIN_S))
            x_km.append(x_km[-1])
            x = x_km[-1] + rng.choice([-1, 1]) * (1.0 + rng.exponential(4.0))
            x = abs(x - first) + first
            x = float(np.clip(last - abs(last - x), first, last))
            t_s.append(t_s[-1] + abs(x - x_km[-1]) / rng.uniform(8, 50) * HOUR_S + 1)
            x_km.append(x)
        return t_s, x_km


def _road(rng: np.random.Generator, name: str) -> tuple[Road, float, tuple[str, ...]]:
    """Draw a road."""
    devices, days = SIZES[rng.integers(len(SIZES))]
    reads_a_day = int(np.clip(rng.uniform(MIN_READS, MAX_READS) / (devices * days), 9, 40))
    process = Road(
        devices=devices,
        days=days,
        reads_a_day=reads_a_day,
        gap_s=min(rng.uniform(6, 12) * MIN_S, 11 * HOUR_S / reads_a_day),
        stay_min=float(rng.uniform(25, 50)),
        box_km=float(rng.choice([4.0, 6.0])),
        completeness=float(rng.choice([0.7, 0.8, 0.85])),
        sources_per_km=float(min(30, POINTS // (40 * (days + 2)))),
        noise=float(rng.choice([0.0, 0.1, 0.2])),
        lat=float(rng.uniform(-45, 55)),
        lon=float(rng.uniform(-170, 170)),
    )
    return process, float(rng.choice([0.03, 0.05, 0.08])), ("distance and age",)


# -- tables of the trace format


def _near(rng: np.random.Generator, centre: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Draw latitudes and longitudes within some hundred metres of a centre."""
    return np.asarray(centre)[:, None] + rng.normal(0, 0.2 * KM, (2, rows))


def _tables(rng, first_day, writes, visits, box_km, window_s) -> Tables:
    """Build positions and reads from (device, seconds since the first day, latitudes, longitudes)."""
    tables = []
    for parts in (writes, visits):
        t_us = np.concatenate([np.round(t_s * 1e6).astype(np.int64) for _, t_s, _, _ in parts])
        table = {
            "device": np.repeat([name for name, *_ in parts], [len(t_s) for _, t_s, _, _ in parts]),
            "ts": timestamps(MONDAY_US + first_day * DAY_S * US + t_us),
            "lat": np.concatenate([lat for *_, lat, _ in parts]),
            "lon": np.concatenate([lon for *_, lon in parts]),
        }
        tables.append(pa.table(table).sort_by([("ts", "ascending"), ("device", "ascending")]))
    positions, reads = tables
    positions = positions.append_column("speed_mps", pa.nulls(len(positions), pa.float64())).cast(POSITIONS)
    reads = reads.append_column("box_km", pa.array(np.full(len(reads), box_km)))
    reads = reads.append_column("window_s", pa.array(np.full(len(reads), float(window_s))))
    return positions, with_read_ids(reads.append_column("origin", pa.array(["recorded"] * len(reads))))
