"""Density of writes by place: the table, earlier days only, and other devices."""

import numpy as np
import pyarrow as pa
import pytest
from learning_traces import START_US, build_labelled_reads, build_positions

from mudkit.errors import ParameterError
from mudkit.learning import Tree, evaluate_reads
from mudkit.learning.density import CELL_DEG, WrittenPlaces, densities
from mudkit.learning.features import read_features
from mudkit.learning.pairs import Pairs

HOUR_US = 3_600_000_000
# At the equator and the meridian, in hour 9 of two days and once in hour 10; once far north.
POSITIONS = build_positions([("a", 545, 1), ("a", 550, 1), ("b", 1985, 1), ("a", 601, 1), ("c", 545, 900)])
NUMBERS = {"a": 0, "b": 1}


def look_up_density(table, days, hour, km=1.0):
    query = (
        np.array([START_US + int((24 * days + hour) * HOUR_US)]),
        np.array([km / 111.195]),
        np.array([0.0]),
    )
    return (
        densities(table, *query) if table is not None else WrittenPlaces.of(POSITIONS, NUMBERS).before(*query)
    )[0]


def test_density_table_is_the_mean_over_days():
    table = WrittenPlaces.of(POSITIONS, NUMBERS).table()
    assert [look_up_density(table, 0, hour) for hour in (8.99, 9, 9.99, 10, 11)] == [0, 1.5, 1.5, 0.5, 0]
    assert look_up_density(table, 30, 9.5) == 1.5  # on any day
    assert (look_up_density(table, 0, 9, km=900), look_up_density(table, 0, 9, km=500)) == (0.5, 0)


def test_training_uses_only_densities_of_earlier_days():
    assert np.isnan(look_up_density(None, 0, 9.5))  # despite two points written that day, before and after
    assert [look_up_density(None, days, 9.5) for days in (1, 2, 3)] == [2, 1.5, 1]
    assert look_up_density(None, 1, 10.5) == 1


def test_folds_exclude_writes_of_tested_devices_and_days():
    labels, reads = build_labelled_reads(devices=4, days=2)
    names = sorted(set(reads["device"].to_pylist()))
    minutes = [60.0 * hour for hour in range(48)]
    pairs = Pairs.of(
        labels, reads, build_positions([(name, minute, 1) for name in [*names, "car"] for minute in minutes])
    )
    assert set(pairs.written.device.tolist()) == {-1, 0, 1, 2, 3}
    assert set(pairs.of_devices(np.array([1, 2])).written.device.tolist()) == {-1, 1, 2}
    start_us = START_US + 24 * HOUR_US
    assert pairs.before_day(start_us).written.day.max() < start_us // (24 * HOUR_US)
    assert Pairs.of(labels, reads).written is None


def test_cells_round_down_south_of_the_equator():
    south = build_positions([("a", 545, -1)])
    table = WrittenPlaces.of(south, NUMBERS).table()
    assert [*table.cells] == [(-1, 0)]
    assert table.at(-0.01, 0.01, 9.0) == 1
    assert table.at(0.01, 0.01, 9.0) == 0
    assert table.cell_deg == CELL_DEG


def make_separate_cells(devices=24):
    """Return reads that turn stale early where cars write and late elsewhere; only density tells which."""
    labels, reads = build_labelled_reads(devices=devices, days=6)
    number = np.array([int(name[-2:]) for name in reads["device"].to_pylist()])
    cell = np.random.default_rng(5).permutation(devices)
    for name, values in (("lat", 30.025 + 0.1 * cell[number]), ("lon", np.full(len(number), 0.0))):
        reads = reads.set_column(reads.column_names.index(name), name, pa.array(values))
    points = np.full(len(labels), 10)
    labels = labels.set_column(labels.column_names.index("points"), "points", pa.array(points))
    rows = [
        (f"car-{car}", 60 * hour + car, 111.195 * (30.025 + 0.1 * cell[car]))
        for car in range(1, devices, 2)
        for hour in range(6 * 24)
    ]
    return labels, reads, build_positions(rows)


@pytest.mark.soak
def test_tree_learns_from_the_density():
    labels, reads, positions = make_separate_cells()
    policies = [Tree(features=features) for features in ("extended", "dense")]
    for folds in ("device", "time"):
        plain, dense = evaluate_reads(labels, reads, policies, positions=positions, folds=folds)["cost"]
        if folds == "device":
            assert dense < 0.7 * plain
        assert dense < 0.2
    assert str(policies[1]) == "tree, latency, dense features"
    with pytest.raises(ParameterError, match="positions"):
        evaluate_reads(labels, reads, policies)


def test_density_in_training_differs_from_the_exported_table():
    labels, reads = build_labelled_reads(devices=4, days=3)
    location = [column[0].as_py() for column in (reads["lat"], reads["lon"])]
    positions = build_positions([("car", 60.0 * hour, 1) for hour in range(72)])
    for name, value in zip(("lat", "lon"), location, strict=True):
        positions = positions.set_column(
            positions.column_names.index(name), positions.schema.field(name), [[value] * len(positions)]
        )
    pairs = Pairs.of(labels, reads, positions)
    learnt = Tree(features="dense").learn(pairs, pairs.missing >= 1)
    assert len(learnt.density.cells) == 1
    running, shipped = (read_features(pairs, "dense", density)[:, -1] for density in (None, learnt.density))
    first_day = pairs.t_us[pairs.read] < START_US + 24 * HOUR_US
    assert np.isnan(running[first_day]).all()
    assert not np.isnan(shipped).any()
    assert set(np.unique(running[~first_day])) == set(np.unique(shipped)) == {0, 1}
