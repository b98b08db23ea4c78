"""How densely places are written to: by hand, from the days before, and from other devices only."""

import numpy as np
import pyarrow as pa
import pytest
from learning_traces import START_US, labelled_reads, written

from mudkit.errors import ParameterError
from mudkit.learning import Tree, evaluate_reads
from mudkit.learning.density import CELL_DEG, WrittenPlaces, densities
from mudkit.learning.features import read_features
from mudkit.learning.pairs import Pairs

HOUR_US = 3_600_000_000
# At the equator and the meridian, in hour 9 of two days and once in hour 10; far north once.
POSITIONS = written([("a", 545, 1), ("a", 550, 1), ("b", 1985, 1), ("a", 601, 1), ("c", 545, 900)])
NUMBERS = {"a": 0, "b": 1}


def at(table, days, hour, km=1.0):
    here = np.array([START_US + int((24 * days + hour) * HOUR_US)]), np.array([km / 111.195]), np.array([0.0])
    return (
        densities(table, *here) if table is not None else WrittenPlaces.of(POSITIONS, NUMBERS).before(*here)
    )[0]


def test_the_table_is_the_mean_over_days():
    table = WrittenPlaces.of(POSITIONS, NUMBERS).table()
    assert [at(table, 0, hour) for hour in (8.99, 9, 9.99, 10, 11)] == [0, 1.5, 1.5, 0.5, 0]
    assert at(table, 30, 9.5) == 1.5  # whatever the day
    assert (at(table, 0, 9, km=900), at(table, 0, 9, km=500)) == (0.5, 0)


def test_while_learning_a_read_knows_the_days_before_its_own():
    assert np.isnan(at(None, 0, 9.5))  # though two points are written that day, before it and after it
    assert [at(None, days, 9.5) for days in (1, 2, 3)] == [2, 1.5, 1]
    assert at(None, 1, 10.5) == 1


def test_of_other_devices_and_earlier_days_only():
    labels, reads = labelled_reads(devices=4, days=2)
    names = sorted(set(reads["device"].to_pylist()))
    minute = [60.0 * hour for hour in range(48)]
    pairs = Pairs.of(labels, reads, written([(name, each, 1) for name in [*names, "car"] for each in minute]))
    assert set(pairs.written.device.tolist()) == {-1, 0, 1, 2, 3}
    assert set(pairs.of_devices(np.array([1, 2])).written.device.tolist()) == {-1, 1, 2}
    begins_us = START_US + 24 * HOUR_US
    assert pairs.before(begins_us).written.day.max() < begins_us // (24 * HOUR_US)
    assert Pairs.of(labels, reads).written is None


def test_cells_are_rounded_down_everywhere():
    south = written([("a", 545, -1)])
    table = WrittenPlaces.of(south, NUMBERS).table()
    assert [*table.cells] == [(-1, 0)]
    assert table.at(-0.01, 0.01, 9.0) == 1
    assert table.at(0.01, 0.01, 9.0) == 0
    assert table.cell_deg == CELL_DEG


def each_in_a_cell_of_its_own(devices=24):
    """Reads that are stale early where cars write, and late elsewhere; nothing but the density tells."""
    labels, reads = labelled_reads(devices=devices, days=6)
    number = np.array([int(name[-2:]) for name in reads["device"].to_pylist()])
    cell = np.random.default_rng(5).permutation(devices)
    for name, values in (("lat", 30.025 + 0.1 * cell[number]), ("lon", np.full(len(number), 0.0))):
        reads = reads.set_column(reads.column_names.index(name), name, pa.array(values))
    points = np.full(len(labels), 10)
    labels = labels.set_column(labels.column_names.index("points"), "points", pa.array(points))
    rows = [
        (f"car-{each}", 60 * hour + each, 111.195 * (30.025 + 0.1 * cell[each]))
        for each in range(1, devices, 2)
        for hour in range(6 * 24)
    ]
    return labels, reads, written(rows)


@pytest.mark.soak
def test_a_tree_finds_what_depends_on_the_density():
    labels, reads, positions = each_in_a_cell_of_its_own()
    policies = [Tree(features=features) for features in ("extended", "dense")]
    for folds in ("device", "time"):
        plain, dense = evaluate_reads(labels, reads, policies, positions=positions, folds=folds)["cost"]
        if folds == "device":
            assert dense < 0.7 * plain
        assert dense < 0.2
    assert str(policies[1]) == "tree, latency, dense features"
    with pytest.raises(ParameterError, match="positions"):
        evaluate_reads(labels, reads, policies)


def test_a_read_that_is_learnt_from_and_one_that_is_decided_for_know_different_things():
    labels, reads = labelled_reads(devices=4, days=3)
    place = [each[0].as_py() for each in (reads["lat"], reads["lon"])]
    positions = written([("car", 60.0 * hour, 1) for hour in range(72)])
    for name, value in zip(("lat", "lon"), place, strict=True):
        positions = positions.set_column(
            positions.column_names.index(name), positions.schema.field(name), [[value] * len(positions)]
        )
    pairs = Pairs.of(labels, reads, positions)
    learnt = Tree(features="dense").learn(pairs, pairs.missing >= 1)
    assert len(learnt.density.cells) == 1
    running, shipped = (read_features(pairs, "dense", each)[:, -1] for each in (None, learnt.density))
    first_day = pairs.t_us[pairs.read] < START_US + 24 * HOUR_US
    assert np.isnan(running[first_day]).all()
    assert not np.isnan(shipped).any()
    assert set(np.unique(running[~first_day])) == set(np.unique(shipped)) == {0, 1}
