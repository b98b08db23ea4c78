"""Pools of deliveries: sums, draws and intervals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.experiment import ADAPTERS, NEWS, scoreboard
from mudkit.report.verdicts import DRAWS, TaskPool

SYSTEMS = ["a", "b"]


class Board:
    """Tables of a scoreboard, as a pool reads them."""

    systems = SYSTEMS

    def __init__(self, deliveries, bills, runs):
        self.deliveries, self.bills, self.runs = deliveries, bills, runs


def make_board(outcomes, *, feed_kb=0.0):
    """Return the tables of runs; an outcome is seed, phone, item and the fates with a and b."""
    rows = [
        (system, seed, f"phone-{phone:05d}", f"item {item}", fate, 1.0 + item if fate == "useful" else np.nan)
        for seed, phone, item, *fates in outcomes
        for system, fate in zip(SYSTEMS, fates, strict=True)
    ]
    deliveries = pd.DataFrame(rows, columns=["system", "seed", "device", "item", "fate", "latency_s"])
    places = {(seed, f"phone-{phone:05d}") for seed, phone, *_ in outcomes}
    seeds = sorted({seed for seed, _ in places})
    devices = sorted({device for _, device in places})
    bills = [
        (system, seed, device, 1.0, 2.0, 4.0) for system in SYSTEMS for seed in seeds for device in devices
    ]
    bills += [(system, seed, "feed-00000", feed_kb, 0.0, 0.0) for system in SYSTEMS for seed in seeds]
    columns = ["system", "seed", "device", "up_kb", "down_kb", "radio_j"]
    runs = pd.DataFrame(
        [(s, seed, 7.0) for s in SYSTEMS for seed in seeds], columns=["system", "seed", "server_kb"]
    )
    return Board(
        *(table.assign(task="t") for table in (deliveries, pd.DataFrame(bills, columns=columns), runs))
    )


_FATES = st.sampled_from(["useful", "late", "stale", "unopened", "lost"])
_OUTCOMES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5), _FATES, _FATES),
    min_size=1,
    max_size=30,
    unique_by=lambda row: row[:3],
)


@given(_OUTCOMES, st.booleans())
def test_values_are_pooled_and_lie_in_their_intervals(outcomes, is_recorded):
    board = make_board(outcomes, feed_kb=5.0)
    pool = TaskPool.of(board, "t", is_recorded=is_recorded)
    for row, system in enumerate(SYSTEMS):
        mine = board.deliveries[board.deliveries["system"] == system]
        useful = mine[mine["fate"] == "useful"]
        paid = board.bills[board.bills["system"] == system]
        assert pool.value("useful_share")[row] == pytest.approx(len(useful) / len(mine))
        assert pool.value("latency_s")[row] == pytest.approx(useful["latency_s"].median(), nan_ok=True)
        kb = paid["up_kb"].sum() + paid["down_kb"].sum()
        assert pool.sums["kb"][row] == pytest.approx(kb)
    assert (pool.deliveries == len({row[1:3] for row in outcomes})) or not is_recorded
    value, low, high = pool.interval("useful_share", 0.95)
    assert (low >= 0).all()
    assert (low <= value).all()
    assert (value <= high).all()
    assert (high <= 1 + 1e-12).all()
    assert pool.drawn["useful"].shape == (DRAWS, 2)
    assert (pool.drawn["useful"] <= pool.drawn["wanted"]).all()


def test_systems_of_a_draw_share_its_deliveries():
    outcomes = [(seed, phone, item, *["useful" if item % 2 else "lost"] * 2)
                for seed in range(5) for phone in range(4) for item in range(6)]  # fmt: skip
    drawn = TaskPool.of(make_board(outcomes), "t").drawn
    assert (drawn["useful"][:, 0] == drawn["useful"][:, 1]).all()


def test_repeated_runs_of_a_recording_are_no_more_deliveries():
    """Five equal runs of one recording know no more than one run."""

    def pool(seeds):
        outcomes = [
            (seed, phone, item, "useful" if (phone + item) % 3 else "lost", "lost")
            for seed in range(seeds)
            for phone in range(5)
            for item in range(12)
        ]
        return TaskPool.of(make_board(outcomes), "t", is_recorded=True)

    once, often = pool(1), pool(5)
    assert once.deliveries == often.deliveries == 60
    assert once.readers == often.readers == 5
    widths = [
        high[0] - low[0] for _, low, high in (part.interval("useful_share", 0.95) for part in (once, often))
    ]
    assert widths[0] == pytest.approx(widths[1], rel=0.15)


def test_few_phones_widen_an_interval():
    """All that one phone wanted is lost: other phones may be like it."""

    def width(phones):
        outcomes = [
            (seed, phone, item, "lost" if phone == 0 else "useful", "lost")
            for seed in range(5)
            for phone in range(phones)
            for item in range(40 // phones)
        ]
        _, low, high = TaskPool.of(make_board(outcomes), "t").interval("useful_share", 0.95)
        return high[0] - low[0]

    assert width(2) > 2 * width(20)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_one_run_of_one_phone_is_not_certain(is_recorded):
    """The deliveries are drawn again: the interval is as wide as that of a binomial share."""
    outcomes = [(0, 0, item, "useful" if item % 2 else "lost", "lost") for item in range(40)]
    _, low, high = TaskPool.of(make_board(outcomes), "t", is_recorded=is_recorded).interval(
        "useful_share", 0.95
    )
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * math.sqrt(0.5 * 0.5 / 40), rel=0.1)


def test_nothing_wanted_has_no_share():
    board = make_board([(0, 0, 0, "unwanted", "unwanted"), (1, 0, 0, "unwanted", "unwanted")])
    pool = TaskPool.of(board, "t")
    assert pool.deliveries == 0
    for measure in ("useful_share", "j_per_useful", "latency_s"):
        assert np.isnan(np.array(pool.interval(measure, 0.95))).all()
    assert (pool.value("wasted_share") == 1.0).all()


@pytest.mark.soak
def test_intervals_of_five_seeds_cover_fresh_seeds():
    """100 draws of five of 80 seeds, against 80 other seeds: coverage of the 95 % interval."""
    task = NEWS.over(devices=4, hours=6.0)
    board = scoreboard([task], {"SUBLIM": ADAPTERS["SUBLIM"]}, range(160), privacy=False)
    fresh = board.runs[board.runs["seed"] >= 80]
    share = fresh["useful"].sum() / fresh["wanted_count"].sum()
    generator = np.random.default_rng(1)
    hits, widths = 0, []
    for _ in range(100):
        chosen = generator.choice(80, 5, replace=False)
        some = Board(
            *(part[part["seed"].isin(chosen)] for part in (board.deliveries, board.bills, board.runs))
        )
        some.systems = board.systems
        _, low, high = TaskPool.of(some, task.name).interval("useful_share", 0.95)
        hits += bool(low[0] <= share <= high[0])
        widths.append(high[0] - low[0])
    assert 90 <= hits <= 99, (hits, np.mean(widths))


@pytest.mark.parametrize(
    ("fates", "feed_kb", "next_system"),
    [
        # b brings 98 of 100, and pays 30 kB a delivery to a's 3: a is cheaper by nine tenths
        ([("useful", "useful")] * 100, {"a": 0.0, "b": 27.0}, ("b", 0.9)),
        ([("useful", "useful")] * 96 + [("useful", "lost")] * 4, {"a": 0.0, "b": 27.0}, None),  # too few of b
    ],
)
def test_saving_is_measured_against_the_next_system(fates, feed_kb, next_system):
    board = make_board([(0, 0, item, *of_both) for item, of_both in enumerate(fates)])
    is_phone = board.bills["device"] != "feed-00000"
    board.bills.loc[is_phone, "up_kb"] = board.bills["system"].map(feed_kb) + 1.0
    saving = TaskPool.of(board, "t").saving(0, "kb")
    assert saving == next_system or (saving[0], pytest.approx(saving[1])) == next_system
