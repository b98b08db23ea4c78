"""What a device says of itself is what the tree was learnt from."""

import numpy as np
import pytest
from learning_traces import labelled_reads

from mudkit.fleet.store import MemoryStore
from mudkit.learning.density import CELL_DEG
from mudkit.learning.features import FEATURE_SETS, WRITE_FEATURES, read_features, write_features
from mudkit.learning.pairs import Pairs
from mudkit.systems.mud.device.policy_slot import PolicySlot, ShippedReads, ShippedWrites
from mudkit.systems.mud.policies.artefact import Artefact, Density
from mudkit.systems.mud.policies.policies import Cached, Query

PAIRS = Pairs.of(*labelled_reads(devices=4, days=2))
CLOCK_US = 1_000_000_000_000_000


def shelf_of(kind, name, threshold, actions, **more):
    """It says the first action up to the threshold, and the second over it, or when nothing is known."""
    shelf = PolicySlot(MemoryStore(), kind)
    shelf.accept(
        Artefact.create(kind, 1, [name], [[0, threshold, 1, 2, 2], [0], [1]], actions, **more).document
    )
    assert not shelf.refused
    return shelf


def moment(row):
    """What a device knows at the moment of a row: its place and its clocks."""
    return {
        "loc": (float(PAIRS.lat[row]), float(PAIRS.lon[row])),
        "clock_us": CLOCK_US,
        "now_us": int(PAIRS.t_us[row]) - CLOCK_US,
    }


QUERY = Query("t", None, "committed", {}, None)


def beside(value):
    room = max(1e-5 * abs(value), 1e-6)
    return value - room, value + room


@pytest.mark.parametrize(("column", "name"), [*enumerate(FEATURE_SETS["extended"])])
def test_of_a_read(column, name):
    known = read_features(PAIRS, "extended")
    for pair in np.random.default_rng(0).choice(len(PAIRS.read), 20, replace=False).tolist():
        q, p = int(PAIRS.read[pair]), int(PAIRS.cached[pair])
        cached = Cached(QUERY, float(PAIRS.age_s[pair]), {"loc": moment(p)["loc"]}, int(PAIRS.points[p]))
        for threshold, wanted in zip(beside(float(known[pair, column])), ("remote", "local"), strict=True):
            shelf = shelf_of("read", name, threshold, ["local", "remote"])
            assert ShippedReads(shelf, None).decide(QUERY, moment(q), [cached]) == wanted, (name, threshold)


TABLE = Density(
    CELL_DEG,
    {
        (row, column): tuple(float(hour * (1 + row % 3)) for hour in range(24))
        for row in range(595, 605)
        for column in range(-1950, -1930)
    },
)


def test_a_read_knows_the_density_that_was_learnt():
    known = read_features(PAIRS, "dense", TABLE)[:, -1]
    assert len(np.unique(known)) > 10
    for pair in np.random.default_rng(1).choice(len(PAIRS.read), 40, replace=False).tolist():
        context = moment(int(PAIRS.read[pair]))
        for threshold, wanted in zip(beside(float(known[pair])), ("remote", "local"), strict=True):
            shelf = shelf_of("read", "density", threshold, ["local", "remote"], density=TABLE)
            assert ShippedReads(shelf, None).decide(QUERY, context, [Cached(QUERY, 5.0, {})]) == wanted
    nowhere = {"clock_us": CLOCK_US, "now_us": 0}
    assert ShippedReads(shelf, None).decide(QUERY, nowhere, [Cached(QUERY, 5.0, {})]) == "remote"


@pytest.mark.parametrize(("column", "name"), [*enumerate(WRITE_FEATURES)])
def test_of_a_write(column, name):
    known = write_features(PAIRS.t_us, PAIRS.lat, PAIRS.lon)
    for row in range(0, len(known), 9):
        for threshold, wanted in zip(beside(float(known[row, column])), ("never", 600), strict=True):
            shelf = shelf_of("write", name, threshold, [600, "never"])
            assert ShippedWrites(shelf, None).delay({}, moment(row)) == wanted, (name, threshold)


@pytest.mark.parametrize("name", ["hour", "weekday", "cached_hour", "held", "lat", "distance"])
def test_what_a_device_does_not_know_is_unknown(name):
    shelf = shelf_of("read", name, 1e9, ["local", "remote"])
    assert ShippedReads(shelf, None).decide(QUERY, {"now_us": 5}, [Cached(QUERY, 5.0, {})]) == "remote"
