"""One example of every kind of figure and map, in about the size of chapters and reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mudkit import Lab, figures, units
from mudkit.consistency import History, check
from mudkit.fleet.load import LOAD_COLUMNS
from mudkit.learning import FixedRule
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim._policy.actions import Drop, Every, Keep
from mudkit.systems.sublim._policy.policy import decision_table

HOUR_US = 3_600_000_000
NEVER_US = 1 << 62
T0 = pd.Timestamp("2008-05-18 08:00:05", tz="UTC")

_FORKED = "ann: w1   w1>2  r2   r2\nbob:      w1>3  r3\ncy:       r1"
_PARAMETERS = {
    "event_frequency": 32.0, "user_frequency": 2.0, "max": 8, "threshold": 0.0, "expiration": None,
    "expiring_share": 1.0, "outage": 0.9, "outages_per_day": 12.0, "policy": "buffer", "prefetch_limit": 16,
    "expiration_threshold_s": None, "days": 365, "reads_cv": 0.1, "seeds": [1, 2, 3],
}  # fmt: skip


@cache
def random() -> np.random.Generator:
    """Return the generator of all examples; each starts from the same seed."""
    return np.random.default_rng(5)


@cache
def lab() -> Lab:
    """Return a lab in which messages arrive, are cut, and wait for a link."""
    gallery_lab = Lab(seed=4)
    relay = Relay(gallery_lab)
    ann, bob = (Client(gallery_lab.device(name), relay) for name in ("ann", "bob"))
    for number in range(4):
        ann.send("bob", f"hello {number}")
        gallery_lab.run(minutes=2)
    gallery_lab.faults.cut("bob")
    ann.send("bob", "are you there?")
    bob.send("ann", "no")
    gallery_lab.run(minutes=20)
    gallery_lab.faults.mend("bob")
    gallery_lab.run(minutes=10)
    return gallery_lab


def links(days: int = 0) -> pd.DataFrame:
    """Return links of eight phones: over an hour and a half, or on sparse days across two years."""
    generator = np.random.default_rng(5)
    rows = []
    begins = [T0 + pd.Timedelta(days=float(day)) for day in np.linspace(0, 700, days or 1).round()]
    for begin in begins:
        for number in range(8):
            at = begin
            for turn in range(6):
                rows.append((f"phone{number}", at, turn % 2 == 0, 400.0 * (turn + 1) * (number + 1) ** 2))
                at += pd.Timedelta(minutes=float(generator.exponential(10)))
    return pd.DataFrame(rows, columns=["device", "ts", "up", "down_kbps"])


def positions(n: int = 4000) -> pa.Table:
    """Return places on the streets of a city."""
    generator = np.random.default_rng(7)
    along = generator.uniform(-0.05, 0.05, n)
    street = generator.integers(-8, 9, n) * 0.006
    is_east = generator.random(n) < 0.5
    return pa.table(
        {
            "lat": 37.76 + np.where(is_east, street, along),
            "lon": -122.42 + np.where(is_east, along, street) * 1.25,
            "weight": np.ones(n),
        }
    )


def boxes() -> pa.Table:
    """Return cells with a speed, some without."""
    generator = np.random.default_rng(3)
    lat, lon = (part.ravel() for part in np.meshgrid(np.arange(9) * 0.009, np.arange(12) * 0.0114))
    speed = 30 + 25 * np.sin(lat * 60) + generator.normal(0, 3, len(lat))
    speed[::17] = np.nan
    edges = units.box_bounds(37.72 + lat, -122.48 + lon, 1.0)._asdict()
    return pa.table({**edges, "lat": 37.72 + lat, "lon": -122.48 + lon, "speed": speed})


def _heard() -> pd.DataFrame:
    generator = np.random.default_rng(2)
    n = 400
    t_s = generator.uniform(0, 1800, n)
    return pd.DataFrame(
        {
            "t_s": t_s, "receiver": np.where(generator.random(n) < 0.7, "near by", "far away"),
            "lat": 37.72 + 0.009 * generator.integers(0, 9, n),
            "lon": -122.48 + 0.0114 * generator.integers(0, 12, n),
            "messages": generator.integers(1, 9, n), "speed_kmh": generator.uniform(0, 60, n),
            "reported_s": t_s - generator.uniform(0, 300, n), "km": 1.0,
        }
    )  # fmt: skip


def _ground() -> pd.DataFrame:
    return positions().to_pandas()


def _rule_table() -> tuple[pd.DataFrame, list[str]]:
    policy = Policy(
        "p",
        [
            Rule("message.pulse > 50", Drop(), "well"),
            Rule("state.battery < 25", [Every(300, variable="sent"), Keep(("pulse",))], "low"),
            Rule("state.battery >= 50", [], "a name that is far too long for the scale beside it"),
        ],
    )
    messages = {"calm": {"pulse": 70}, "alarm": {"pulse": 40, "ecg": b"0123"}, "weak": {"pulse": 45}}
    states = {f"{level}": {"battery": level} for level in range(0, 101, 5)}
    return decision_table(policy, messages, states), [rule.name for rule in policy.rules]


def tree_nodes() -> pd.DataFrame:
    """Return the nodes of a tree of four levels."""
    rows: list[list[Any]] = []
    tests = [("age", 300.0), ("hour", 9.309), ("distance", 1.72), ("density", 54.3), ("weekday", 4.5)]

    def add(parent: int, is_right: bool, depth: int, examples: int) -> int:
        node = len(rows)
        rows.append([node, parent, is_right, "", 0.0, "local" if is_right else "remote", examples, 1])
        if depth < 4 and examples > 60:
            left = int(examples * (0.7 if is_right else 0.35))
            rows[node][3], rows[node][4] = tests[(node + depth) % len(tests)]
            rows[node][7] = add(node, False, depth + 1, left) + add(node, True, depth + 1, examples - left)
        return int(rows[node][7])

    add(-1, False, 0, 12_345)
    columns = ["node", "parent", "is_right", "feature", "threshold", "action", "examples", "leaves"]
    return pd.DataFrame(rows, columns=columns)


def _decided() -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(1)
    n = 120
    decisions = generator.choice(
        ["sent whole", "sent in part", "held back", "dropped"], n, p=[0.2, 0.2, 0.3, 0.3]
    )
    table = pd.DataFrame(
        {
            "t_s": np.sort(generator.uniform(0, 1800, n)),
            "lane": [f"patient {number}" for number in generator.integers(1, 6, n)],
            "decision": decisions, "text": "a pulse", "is_alarm": generator.random(n) < 0.1,
        }
    )  # fmt: skip
    return {"with state": table, "without state": table.assign(what="sent whole")}


def _lives(policy: int) -> pd.DataFrame:
    generator = np.random.default_rng(9)
    arrived_h = np.sort(generator.uniform(0, 72, 40))
    is_read = generator.random(40) < (0.9 - 0.4 * policy)
    frame = pd.DataFrame({"came_us": arrived_h * HOUR_US})
    frame["expires_us"] = np.where(generator.random(40) < 0.3, (arrived_h + 20) * HOUR_US, NEVER_US)
    frame["forwarded_us"] = (arrived_h + 1) * HOUR_US
    frame["read_us"] = np.where(is_read, (arrived_h + 8) * HOUR_US, -1)
    return frame.astype("int64").assign(message=range(40), rank=0.5)


def _sweep(x: str, values: list[float], by: str, others: list[float]) -> pd.DataFrame:
    rows = [
        {
            x: x_value, by: other, "seed": seed,
            "waste": min(1.0, 0.002 * (k + 1) ** 2 * seed), "loss": 0.4 * other / (k + 1) ** 3 * seed / 3,
        }
        for k, x_value in enumerate(values) for other in others for seed in (1, 2, 3)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    table["loss"] = table["loss"] / max(1.0, table["loss"].max())
    table.attrs["parameters"] = _PARAMETERS | {x: values, by: others}
    return table


def _shares(names: list[str]) -> pd.DataFrame:
    n = len(names)
    sent, stale = np.linspace(0.1, 0.95, n), 0.3 * np.linspace(1, 0, n) ** 2
    return pd.DataFrame(
        {
            "policy": names, "sent_share": sent, "stale_share": stale,
            "sent_share_low": sent - 0.03, "sent_share_high": np.minimum(sent + 0.03, 1.0),
            "stale_share_low": np.maximum(stale - 0.02, 0.0), "stale_share_high": stale + 0.02,
        }
    )  # fmt: skip


def _waste(names: list[str], name: str) -> pd.DataFrame:
    n = len(names)
    waste, loss = np.linspace(0.0, 0.6, n), np.linspace(0.4, 0.0, n)
    table = pd.DataFrame({name: names, "waste": waste, "loss": loss})
    for measure in ("waste", "loss"):
        table[f"{measure}_low"] = np.maximum(table[measure] - 0.03, 0)
        table[f"{measure}_high"] = table[measure] + 0.05
    return table


def _systems(n: int = 7) -> pd.DataFrame:
    """Return systems of which several lie close together."""
    names = ["to everyone", "relay", "MUD, cached", "Contrail", "Radiator", "Sublim", "Last hop"][:n]
    x = [9.1, 4.0, 3.9, 1.2, 1.25, 1.3, 0.0][:n]
    y = [0.99, 0.98, 0.97, 0.7, 0.71, 0.72, 0.0][:n]
    is_best = [True, False, True, True, True, True, True][:n]
    return pd.DataFrame({"system": names, "j": x, "share": y, "is_best": is_best})


def _fates() -> pd.DataFrame:
    """Return the fates of wanted items in two tasks, with parts too small for a label."""
    rows = [("news", "to everyone", 0.6, 0.02, 0.08, 0.2, 0.1), ("news", "MUD", 0.9, 0, 0, 0, 0.1),
            ("alerts", "to everyone", 1, 0, 0, 0, 0), ("alerts", "MUD", 0.5, 0.25, 0.25, 0, 0)]  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "system", "useful", "late", "stale", "unopened", "lost"])


def _regimes() -> pd.DataFrame:
    """Return a map of two ways to look by twelve ways to write."""
    who = [
        "nothing to judge",
        "not even the bound",
        "only the bound",
        "a tree at some price",
        "a tree as it is learnt",
    ]
    rows = [
        (when, minutes, f"{cars} cars {written}, {places}", who[(number + minutes // 10) % 5], 1.5 * minutes**0.5, 1.0 + number / 6)
        for when in ("all day", "in peaks")
        for number, (cars, written, places) in enumerate(
            (cars, written, places)
            for cars in ("few", "many")
            for written in ("by day", "at night", "all the time")
            for places in ("dense", "sparse")
        )
        for minutes in (5, 15, 30, 60, 120, 240)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["when", "every_min", "writing", "who", "bound", "tree"])
    return table.astype({"who": pd.CategoricalDtype(who, ordered=True)})


def _hours(days: list[float]) -> pd.DataFrame:
    generator = np.random.default_rng(8)
    start = [
        pd.Timestamp("2008-05-17") + pd.Timedelta(days=float(day), hours=hour)
        for day in days
        for hour in range(24)
    ]
    counts = generator.poisson(300, len(start))
    return pd.DataFrame({"start": start, "positions": counts, "reads": counts // 7})


def _reads() -> pd.DataFrame:
    generator = np.random.default_rng(6)
    places = positions(3000).to_pandas()
    return places.assign(is_local=generator.random(3000) < 0.6, is_stale=generator.random(3000) < 0.08)


def _bucketed() -> pd.DataFrame:
    generator = np.random.default_rng(6)
    cells = boxes().to_pandas()[["lat", "lon"]]
    parts = [
        cells.assign(
            bucket_ts=T0.floor("h") + pd.Timedelta(hours=hour),
            positions=generator.poisson(20 + hour, len(cells)),
        )
        for hour in range(12)
    ]
    return pd.concat(parts, ignore_index=True)


def long_history() -> History:
    """Return a history of 300 operations in which one client sees an older value again."""
    ann = "ann: w1@1 w2@2 " + "r2@2 " * 200 + "r1@1"
    return History.parse("\n".join([ann, "bob: " + "r2@2 " * 60, "cyd: " + "r2@2 " * 36]))


def _radio() -> pd.DataFrame:
    starts = [0, 2, 4, 20, 300, 302, 306, 322]
    states = ["idle", "promotion", "active", "tail", "idle", "promotion", "active", "tail"]
    ends = [*starts[1:], 400]
    power = [10.0, 500.0, 800.0, 460.0, 10.0, 500.0, 800.0, 460.0]
    return pd.DataFrame(
        {
            "start": [T0 + pd.Timedelta(seconds=t) for t in starts],
            "end": [T0 + pd.Timedelta(seconds=t) for t in ends], "state": states, "power_mw": power,
        }
    )  # fmt: skip


def _exposure() -> pd.DataFrame:
    generator = np.random.default_rng(4)
    n = 200
    away = np.arange(n) // 25 % 3 == 2
    return pd.DataFrame(
        {
            "at": [T0 + pd.Timedelta(minutes=3 * k) for k in range(n)],
            "lat": 30.3 + generator.normal(0, 0.004, n) + 0.03 * away,
            "lon": -97.7 + generator.normal(0, 0.004, n) + 0.02 * away,
            "is_away": away, "is_sent": away & (generator.random(n) < 0.6),
        }
    )  # fmt: skip


def _swept() -> pd.DataFrame:
    """Return a sweep in which one system is cheaper below a share of outages, and the other above it."""
    return pd.DataFrame(
        [
            {"outage": share, "system": system, "seed": seed, "radio_j": level + slope * share + seed}
            for system, level, slope in (("direct", 20.0, 100.0), ("relay", 50.0, 20.0))
            for share in (0.0, 0.2, 0.4, 0.6)
            for seed in range(3)
        ]
    )


def _fleet() -> figures.Fleet:
    generator = np.random.default_rng(4)
    place = positions(6000).to_pandas()
    minutes = np.sort(generator.integers(0, 180, 6000))
    table = pa.table(
        {
            "device": [f"cab{number}" for number in generator.integers(0, 60, 6000)],
            "ts": pa.array([T0 + pd.Timedelta(minutes=int(m)) for m in minutes], pa.timestamp("us", "UTC")),
            "lat": place["lat"], "lon": place["lon"],
        }
    )  # fmt: skip
    down = pa.table(
        {
            "device": [f"cab{number}" for number in range(0, 60, 4)],
            "ts": pa.array([T0] * 15, pa.timestamp("us", "UTC")), "up": [False] * 15,
        }
    )  # fmt: skip
    return figures.Fleet.from_tables(table, down)


def _days(learnt: str) -> pd.DataFrame:
    """Return a week whose policy is learnt after the first day, and changes after the fourth."""
    draw, own = random(), learnt == "own rule"
    return pd.DataFrame(
        {
            "day": range(1, 8),
            "reports": ["while driving"] * 3 + ["at any time"] * 4,
            "policy_in_use": ["own rule", *[learnt] * 3, *["own rule" if own else "distance and age"] * 3],
            "sent_share": draw.uniform(0.8, 0.95, 7) if own else [0.85, *draw.uniform(0.4, 0.7, 6)],
            "stale_share": draw.uniform(0.0, 0.04, 7) if own else [0.0, 0.05, 0.05, 0.3, 0.1, 0.04, 0.05],
            "radio_j": draw.uniform(6_000, 7_000, 7),
        }
    )


def _server_load() -> pd.DataFrame:
    """Return an hour of two servers, one of which is flooded for ten minutes."""
    start = pd.date_range("2010-03-01T13:00", periods=60, freq="min", tz="UTC")
    rows = []
    for number, minute in enumerate(start):
        flood = 20 <= number < 30
        rows.append(
            ("store", minute, 50, 12 * flood, 1.0 if flood else 0.4, 9.0 * flood, 30.0 * flood, 30 * flood)
        )
        rows.append(("relay", minute, 50, 0, 0.2, 0.0, 0.0, 0))
    return pd.DataFrame(rows, columns=list(LOAD_COLUMNS))


def _growth() -> pd.DataFrame:
    rows = [(name, n, n * per) for name, per in (("the index", 0.002), ("one by one", 0.05), ("the paper", 0.1))
            for n in (10, 100, 1000, 10_000)]  # fmt: skip
    return pd.DataFrame(rows, columns=["way", "subscriptions", "ms"])


def _answer_boxes() -> pd.DataFrame:
    rows = [
        ("what is asked", 1.0, 0.5, 4.0, True),
        ("answer of 08:10", -1.0, 0.0, 6.0, False),
        ("answer of 08:20", 2.5, 1.0, 3.0, False),
    ]
    return pd.DataFrame(rows, columns=["name", "x_km", "y_km", "box_km", "is_requested"])


def _signals() -> dict[str, list[float]]:
    t = np.arange(0, 4, 1 / 200)
    whole = np.sin(2 * np.pi * 1.2 * t) ** 15
    return {"whole, 200 a second": list(whole), "12 a second": list(whole[::16])}


def _latencies() -> pd.DataFrame:
    generator = np.random.default_rng(3)
    parts = [
        pd.DataFrame({"system": name, "latency_s": generator.lognormal(mean, 1.5, 60)})
        for name, mean in (("relay", 0.0), ("Contrail", 2.0), ("Last hop", 5.0))
    ]
    return pd.concat(parts)


def _compared() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "measure": ["sent, %", "delay, s", "stale, %"], "this": [41.0, 12.5, 0.4], "this_low": [38.0, 10.1, 0.0],
            "this_high": [44.0, 15.0, 1.1], "other": [45.2, 12.0, 99.7], "other_low": [43.0, 9.0, 99.0],
            "other_high": [47.4, 14.8, 100.0],
        }
    )  # fmt: skip


def _measures() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "way": ["every message", "aggregated by distance", "one a minute"],
            "share": [100.0, 61.2, 0.0], "kb": [12_345.0, 410.0, 7.7], "is_broken": [False, True, False],
        }
    )  # fmt: skip


_PLACES = {"x": "j", "y": "share", "labels": ("J", "useful, share"), "title": "What came, and its price"}
_POINTS = [(1, 0.0, 0.8), (4, 0.001, 0.2), (16, 0.003, 0.01), (64, 0.0108, 0.0), (1024, 0.3, 0.0)]

FIGURES: dict[str, Callable[[], Any]] = {
    "answer_boxes": lambda: figures.answer_boxes(
        _answer_boxes(), title="Which answer holds the box", missing_point=(-3.0, 2.0, "in no answer")
    ),
    "bar_panels": lambda: figures.bar_panels(
        _measures(), {"share": "useful, % of what was wanted", "kb": "sent to the phones, kB"}, title="Three ways", y="way"
    ),
    "cache_hits": lambda: figures.cache_hits(_reads(), title="Answered locally"),
    "cells_over_time": lambda: figures.cells_over_time(_bucketed(), title="Positions in cells"),
    "crossover": lambda: figures.crossover(_swept(), x="outage", y="radio_j", title="Energy by outage"),
    "decisions": lambda: figures.decisions(_decided(), title="Half an hour", marked={"with state": 7}),
    "frontier": lambda: figures.frontier(
        _shares([f"t{k}" for k in range(7)]), _shares(["b1", "b2", "b3"]).assign(stale_share=[0.2, 0.1, 0.0]),
        _shares(["always ask", "15 minutes", "never ask"]), title="Sent and stale", max_stale_share=0.3,
    ),
    "server_load": lambda: figures.server_load(_server_load()),
    "learning_days": lambda: figures.learning_days(
        {"own rule": _days("own rule"), "the cloud learns": _days("age")},
        max_stale_share=0.15,
        title="A week of a cloud that learns",
    ),
    "growth": lambda: figures.growth(_growth(), title="Time to find the readers of a record", x="subscriptions", y="ms", by="way"),
    "histogram": lambda: figures.histogram(
        pd.DataFrame({"from_s": [0, 1, 2, 4, 8], "to_s": [1, 2, 4, 8, 16], "reads": [3, 40, 77, 20, 1]}),
        title="Gaps between reads", unit="seconds",
    ),
    "history": lambda: figures.history(check(History.parse(_FORKED), "fork-sequential")),
    "history, illegal": lambda: figures.history(
        check(History.parse("ann: [w1@1  ] w2@2\nann:    r1@1\nbob:            r2@2 r1@1   r2@2"), "sequential")
    ),
    "history, long": lambda: figures.history(check(long_history(), "sequential")),
    "fleet": lambda: _fleet().figure(_fleet().busiest_us()),
    "knowledge": lambda: figures.knowledge(
        _heard(), _ground(), [("near by", 600.0), ("far away", 600.0)], value="speed_kmh", label="km/h",
        title="What is known",
    ),
    "latencies": lambda: figures.latencies(
        _latencies(), {"relay": 70, "Contrail": 90, "Last hop": 200}, title="How soon it comes"
    ),
    "limit_curve": lambda: figures.limit_curve(_POINTS, (16, 0.003, 0.01), title="buffer with each limit, 365 days"),
    "link_strip": lambda: figures.link_strip(links()),
    "link_strip, sparse days": lambda: figures.link_strip(links(18)),
    "location_exposure": lambda: figures.location_exposure(
        _exposure(), (30.27, -97.73, 30.33, -97.67), title="A day of a child"
    ),
    "message_diagram": lambda: figures.message_diagram(lab()),
    "message_lifecycles": lambda: figures.message_lifecycles(
        {"the rule": _lives(1), "a fixed limit of 16": _lives(0)}, _lives(0),
        reads_us=[k * 8 * HOUR_US for k in range(9)], switches_us=[10 * HOUR_US, 20 * HOUR_US, 50 * HOUR_US],
        starts_up=True, until_us=72 * HOUR_US, title="The same messages under three policies",
    ),
    "fates": lambda: figures.fates(
        _fates(),
        {"useful": "in time", "late": "late", "stale": "stale", "unopened": "never opened", "lost": "lost"},
        title="What became of what was wanted",
    ),
    "pareto": lambda: figures.pareto(_systems(), **_PLACES),
    "policy_scatter": lambda: figures.policy_scatter(
        _shares(["never ask", "15 minutes", "tree", "always ask", "bound: nobody sends less"]),
        title="Queries sent against stale answers",
    ),
    "radio_timeline": lambda: figures.radio_timeline(_radio()),
    "side_by_side": lambda: figures.side_by_side(
        _compared(), ("18 May", "21 May"), title="95 % intervals of both runs"
    ),
    "regime_map": lambda: figures.regime_map(_regimes(), title="Who can save how much"),
    "rows_over_time": lambda: figures.rows_over_time(_hours([0, 1, 2]), title="Rows over time", tz="UTC"),
    "rows_over_time, sparse days": lambda: figures.rows_over_time(
        _hours(list(np.linspace(0, 700, 18).round())), title="Rows over time", tz="UTC"
    ),
    "rule_firing": lambda: figures.rule_firing(*_rule_table(), title="Which rule fires", x="battery, %"),
    "joining_grid": lambda: figures.joining_grid(
        pd.DataFrame(
            [(zoom, km, length_s, left, 500 * km, length_s < 300 or km < 1) for zoom, km, lefts in
             ((15, 0.995, (0.4, 0.123)), (14, 1.99, (0.2, 0.06))) for length_s, left in zip((60, 300), lefts, strict=True)],
            columns=["cells_zoom", "cell_km", "interval_s", "bytes_left_share", "position_error_m", "keeps_limits"],
        ),
        best=(15, 300), title="What is left by interval and cell",
    ),
    "rule_search": lambda: figures.rule_search(
        pd.DataFrame(
            [(km, age, 60.0 - 9 * km - age / 3, km * age / 300, km * age < 40) for km in (1.0, 2.0, 4.0)
             for age in (5.0, 15.0, 30.0)],
            columns=["km", "minutes", "fresh_share", "stale_share", "is_allowed"],
        ).assign(fresh_share=lambda table: table["fresh_share"] / 100),
        rule=FixedRule(1.0, 15.0), best=FixedRule(2.0, 15.0), title="Rules that were tried",
    ),
    "sensitivity": lambda: figures.sensitivity(
        pd.DataFrame(
            [("as assumed", "age", 0.2, 0.15, 0.25), ("window 4 h", "tree", 0.4, 0.33, 0.46), ("box 10 km", "age", 0.1, 0.07, 0.14)],
            columns=["assumed", "family", "fresh_share", "fresh_share_low", "fresh_share_high"],
        ),
        recommended="age", title="What is recommended with other assumptions",
    ),
    "signals": lambda: figures.signals(_signals(), hz=200, title="A pulse of 72", y="millivolt", seconds=3.0),
    "tradeoff": lambda: figures.tradeoff(
        _waste(["1", "4", "16", "64", "256"], "limit"), x="limit", best="16", title="The limit", unit="messages"
    ),
    "tree": lambda: figures.tree(tree_nodes(), title="The tree for stale answers at 4"),
    "waste_and_loss": lambda: figures.waste_and_loss(
        pd.concat(
            _waste(["on-line", "on-demand", "buffer"], "policy").assign(condition=name)
            for name in ("generated", "recorded", "shuffled")
        ),
        title="Waste and loss",
    ),
    "waste_and_loss_by_limit": lambda: figures.waste_and_loss_by_limit(
        _sweep("prefetch_limit", [1, 4, 16, 64, 256, 1024], "outage", [0.1, 0.5, 0.9])
    ),
}  # fmt: skip
"""Plotly figures by name; the part after a comma distinguishes examples of the same kind."""

MAPS: dict[str, Callable[[], Any]] = {
    "area_map": lambda: figures.area_map(
        pa.table(
            {
                "lat": positions(60)["lat"], "lon": positions(60)["lon"],
                "state": (["has it", "waits", "may not see it"] * 20),
            }
        ),
        "state", area=(37.76, -122.42, 3.0), states=["has it", "waits", "may not see it"],
        title="Who has the record", positions=positions(),
    ),
    "cell_map": lambda: figures.cell_map(boxes(), "speed", label="km/h", positions=positions()),
    "cell_slides": lambda: figures.knowledge_map(
        _heard(), _ground(), ["near by", "far away"], value="speed_kmh", label="km/h", every_s=300.0,
        until_s=1800.0, first_s=600.0,
    ),
    "density_map": lambda: figures.density_map(positions()),
    "heat_map": lambda: figures.heat_map(positions(800), positions()),
}  # fmt: skip
