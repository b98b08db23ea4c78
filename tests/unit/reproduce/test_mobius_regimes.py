"""The grid of rows M4-map and M5-map: all its cells, and traces that are what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.reproduce.mobius_regimes import (
    ALL_LOOKS,
    CARS,
    EVERY_MIN,
    PEAKS_H,
    PLACES,
    READERS,
    REGIMES,
    WHEN,
    WRITTEN,
    Looks,
    Regime,
    Writing,
    cars_of_towns,
)
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

PEAKS = Looks(30, "in peaks")
OFTEN = Looks(15, "all day")


def local_hours(table):
    return (epoch_us(table["ts"]) / US_PER_S / 3600 - 6.0) % 24


def test_the_map_has_every_way_to_look_by_every_way_to_write():
    assert len(REGIMES) == len(EVERY_MIN) * len(WHEN) * len(CARS) * len(WRITTEN) * len(PLACES) == 144
    assert len({str(regime) for regime in REGIMES}) == len(REGIMES)
    assert str(REGIMES[0]) == "5 min all day; few cars by day, dense"


@pytest.mark.parametrize("looks", ALL_LOOKS, ids=str)
def test_people_look_as_often_as_the_regime_says(looks):
    _, reads = Regime(looks, Writing("few", "by day", "sparse")).trace(3)
    expected = READERS * looks.days * looks.per_day
    assert len(reads) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert looks.days * looks.per_day <= 3 * 64


def test_peaks_have_all_looks():
    hours = local_hours(Regime(PEAKS, Writing("few", "by day", "dense")).trace(3)[1])
    inside = [(hours >= begin) & (hours <= begin + length) for begin, length in PEAKS_H]
    assert np.logical_or(*inside).all()
    assert all(span.any() for span in inside)


def test_cars_write_at_the_hours_of_the_regime():
    by_day, at_night, always = (
        local_hours(Regime(OFTEN, Writing("many", written, "dense")).trace(3)[0]) for written in WRITTEN
    )
    assert np.mean((by_day > 6) & (by_day < 22)) > 0.9
    assert np.mean((at_night < 10) | (at_night > 18)) > 0.9
    counts = np.histogram(always, bins=6, range=(0, 24))[0]
    assert counts.min() > 0.03 * counts.sum()


@pytest.mark.parametrize(
    ("cars", "places", "by_town"),
    [(30, "dense", (30,)), (30, "sparse", (22, 6, 1, 1)), (300, "sparse", (226, 56, 14, 4))],
)
def test_a_sparse_town_has_a_quarter_of_the_cars_of_the_one_before(cars, places, by_town):
    assert cars_of_towns(cars, places) == by_town
    assert sum(by_town) == cars


def test_readers_write_nothing_and_are_the_same_whoever_writes():
    positions, reads = Regime(OFTEN, Writing("few", "by day", "dense")).trace(3)
    _, others = Regime(OFTEN, Writing("many", "at night", "dense")).trace(3)
    assert reads.equals(others)
    assert not set(positions["device"].to_pylist()) & set(reads["device"].to_pylist())
    assert len(set(reads["device"].to_pylist())) == READERS
    assert not reads.equals(Regime(OFTEN, Writing("few", "by day", "dense")).trace(4)[1])


def test_readers_are_where_their_last_trip_took_them():
    """They are at home each morning, and somewhere else in the course of a working day."""
    _, reads = Regime(Looks(5, "all day"), Writing("few", "by day", "dense")).trace(3)
    frame = reads.to_pandas().sort_values("ts")
    places = frame.groupby("device")[["lat", "lon"]]
    assert (places.nunique() > 1).all().all()
    steps_deg = places.diff().abs().max(axis=1)
    assert steps_deg.max() < 0.5
    assert (steps_deg < 0.01).mean() > 0.8  # at home, or at work: most looks are near the one before


def test_readers_of_a_sparse_regime_live_in_each_town():
    _, reads = Regime(PEAKS, Writing("few", "by day", "sparse")).trace(3)
    corners = reads.to_pandas().groupby("device")[["lat", "lon"]].mean().round(0)
    assert len(corners.drop_duplicates()) >= 4
