"""Features on the device: equal to those that the tree was trained with."""

import numpy as np
import pytest
from learning_traces import build_labelled_reads

from mudkit.fleet.store import MemoryStore
from mudkit.learning.density import CELL_DEG
from mudkit.learning.features import FEATURE_SETS, WRITE_FEATURES, read_features, write_features
from mudkit.learning.pairs import Pairs
from mudkit.systems.mud.device.policy_slot import PolicySlots, ShippedReads, ShippedWrites
from mudkit.systems.mud.policies.artefact import Artefact, Density
from mudkit.systems.mud.policies.policies import Cached
from mudkit.systems.mud.policies.utility import Query

PAIRS = Pairs.of(*build_labelled_reads(devices=4, days=2))
CLOCK_US = 1_000_000_000_000_000


def make_slots(kind, name, threshold, actions, **more):
    """Return slots that decide the first action up to the threshold, and else, or if unknown, the second."""
    slots = PolicySlots(MemoryStore())
    slots.follow(kind)
    nodes = [[0, threshold, 1, 2, 2], [0], [1]]
    slots.accept(kind, Artefact.create(kind, 1, [name], nodes, actions, **more).document)
    assert slots.versions() == {kind: 1}
    return slots


def make_context(row):
    """Return the context of a device at a row: its place and its clocks."""
    return {
        "loc": (float(PAIRS.lat[row]), float(PAIRS.lon[row])),
        "clock_us": CLOCK_US,
        "now_us": int(PAIRS.t_us[row]) - CLOCK_US,
    }


QUERY = Query("t", None, "committed", {}, None)


def compute_neighbours(value):
    room = max(1e-5 * abs(value), 1e-6)
    return value - room, value + room


@pytest.mark.parametrize(("column", "name"), [*enumerate(FEATURE_SETS["extended"])])
def test_read_features_on_device_match_training(column, name):
    known = read_features(PAIRS, "extended")
    for pair in np.random.default_rng(0).choice(len(PAIRS.read), 20, replace=False).tolist():
        q, p = int(PAIRS.read[pair]), int(PAIRS.cached[pair])
        cached = Cached(
            QUERY, float(PAIRS.age_s[pair]), {"loc": make_context(p)["loc"]}, int(PAIRS.points[p])
        )
        for threshold, expected in zip(
            compute_neighbours(float(known[pair, column])), ("remote", "local"), strict=True
        ):
            slots = make_slots("read", name, threshold, ["local", "remote"])
            assert ShippedReads(slots, None).decide(QUERY, make_context(q), [cached]) == expected, (
                name,
                threshold,
            )


TABLE = Density(
    CELL_DEG,
    {
        (row, column): tuple(float(hour * (1 + row % 3)) for hour in range(24))
        for row in range(595, 605)
        for column in range(-1950, -1930)
    },
)


def test_density_on_device_matches_training():
    known = read_features(PAIRS, "dense", TABLE)[:, -1]
    assert len(np.unique(known)) > 10
    for pair in np.random.default_rng(1).choice(len(PAIRS.read), 40, replace=False).tolist():
        context = make_context(int(PAIRS.read[pair]))
        for threshold, expected in zip(
            compute_neighbours(float(known[pair])), ("remote", "local"), strict=True
        ):
            slots = make_slots("read", "density", threshold, ["local", "remote"], density=TABLE)
            assert ShippedReads(slots, None).decide(QUERY, context, [Cached(QUERY, 5.0, {})]) == expected
    nowhere = {"clock_us": CLOCK_US, "now_us": 0}
    assert ShippedReads(slots, None).decide(QUERY, nowhere, [Cached(QUERY, 5.0, {})]) == "remote"


@pytest.mark.parametrize(("column", "name"), [*enumerate(WRITE_FEATURES)])
def test_write_features_on_device_match_training(column, name):
    known = write_features(PAIRS.t_us, PAIRS.lat, PAIRS.lon)
    for row in range(0, len(known), 9):
        for threshold, expected in zip(
            compute_neighbours(float(known[row, column])), ("never", 600), strict=True
        ):
            slots = make_slots("write", name, threshold, [600, "never"])
            assert ShippedWrites(slots, None).delay({}, make_context(row)) == expected, (name, threshold)


@pytest.mark.parametrize("name", ["hour", "weekday", "cached_hour", "held", "lat", "distance"])
def test_missing_context_gives_unknown_features(name):
    slots = make_slots("read", name, 1e9, ["local", "remote"])
    assert ShippedReads(slots, None).decide(QUERY, {"now_us": 5}, [Cached(QUERY, 5.0, {})]) == "remote"
