"""Matching load, and the time per record as it grows."""

import numpy as np
import pytest

from mudkit.worlds.matching import (
    MATCHING_METHODS,
    PAPER_CURVE,
    READ_PREDICATES,
    MatchingLoad,
    matching_times,
    paper_messages_per_s,
)


def test_paper_curve_gives_messages_per_second():
    assert paper_messages_per_s(1) == 5000
    assert round(paper_messages_per_s(1000)) == 69


@pytest.mark.parametrize("shape", READ_PREDICATES)
def test_same_seed_draws_the_same_load(shape):
    a, b, c = (list(MatchingLoad(50, 3, seed, shape).draw()) for seed in (1, 1, 2))
    assert a == b != c
    assert MatchingLoad(50, 3, 1, shape).records(5) == MatchingLoad(50, 3, 1, shape).records(5)
    assert len({name for name, *_ in a}) == 50


@pytest.mark.parametrize("shape", READ_PREDICATES)
def test_places_are_spread_over_a_square_of_one_degree(shape):
    records = MatchingLoad(50, 3, 1, shape).records(500)
    degrees = np.array([(record["lat"], record["lon"]) for record in records])
    assert degrees.min() >= 0
    assert degrees.max() <= 1
    assert (np.ptp(degrees, axis=0) > 0.8).all()
    assert (degrees.std(axis=0) > 0.15).all()


@pytest.mark.parametrize(
    ("subscriptions", "topics", "shape"), [(200, 20, "box"), (20_000, 20, "box"), (3000, 9, "ranges")]
)
def test_records_match_about_five_subscriptions(subscriptions, topics, shape):
    load = MatchingLoad(subscriptions, topics, shape=shape)
    matches = load.index().match_many(load.records(2000))
    assert 4.5 < sum(map(len, matches)) / 2000 < 5.5


@pytest.mark.parametrize("shape", READ_PREDICATES)
def test_all_methods_find_the_same_matches(shape):
    table = matching_times([50, 400], topics=4, records=30, shape=shape)
    measured = table[table["method"] != PAPER_CURVE]
    assert list(table["method"]) == 2 * [*MATCHING_METHODS, PAPER_CURVE]
    assert (measured["agreement"] == 1).all()
    assert measured["matched"].gt(0).all()
    assert list(measured.loc[measured["method"] == MATCHING_METHODS[0], "scanned"]) == [50, 400]
