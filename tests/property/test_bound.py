"""Bound of the sends, compared with an exhaustive search over all schedules."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.learning import bound
from mudkit.learning.bound import divide_budget, fewest_sends
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay


def build_pairs(devices, horizon):
    """Build the pairs of devices, each with a matrix of which read is stale from which earlier one."""
    device, read, cached, stale, base = [], [], [], [], 0
    for number, matrix in enumerate(devices):
        n = len(matrix)
        device += [number] * n
        for q in range(n):
            for p in range(max(0, q - horizon), q):
                read.append(base + q)
                cached.append(base + p)
                stale.append(matrix[q][p])
        base += n
    read = np.array(read, np.int64)
    zeros = np.zeros(len(read))
    pairs = Pairs(
        device=np.array(device, np.int64),
        ids=np.arange(len(devices)),
        **dict.fromkeys(("t_us", "lat", "lon", "points", "box_km", "window_s"), np.zeros(len(device))),
        first=np.searchsorted(read, np.arange(base + 1)),
        read=read,
        cached=np.array(cached, np.int64),
        missing=np.array(stale, np.int64),
        completeness=zeros,
        age_s=zeros,
        distance_km=zeros,
    )
    return pairs, np.array(stale, bool)


def matrices():
    def draw_matrix(n):
        return st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)

    return st.lists(st.integers(1, 5).flatmap(draw_matrix), min_size=1, max_size=3)


def min_sends(devices, horizon, budget):
    """Return the fewest sends over all ways to send or serve each read."""
    fronts = []
    for matrix in devices:
        front = {}
        for sent in product([True, False], repeat=len(matrix)):
            last, stales, sends, possible = None, 0, 0, True
            for q, is_sent in enumerate(sent):
                if is_sent:
                    last, sends = q, sends + 1
                elif last is None or q - last > horizon:
                    possible = False
                else:
                    stales += matrix[q][last]
            if possible:
                front[stales] = min(sends, front.get(stales, 99))
        fronts.append(front)
    return min(
        sum(sends for _, sends in choice)
        for choice in product(*(front.items() for front in fronts))
        if sum(stales for stales, _ in choice) <= budget
    )


@given(matrices(), st.integers(1, 4), st.integers(0, 8))
def test_bound_equals_the_best_schedule(devices, horizon, budget):
    pairs, stale = build_pairs(devices, horizon)
    served = fewest_sends(pairs, stale, pairs.devices(), budget)
    local = served[served != SENT]
    assert stale[local].sum() <= budget
    assert (served == SENT).sum() == min_sends(devices, horizon, budget)
    # The schedule is feasible: each local answer is from the last send before it.
    last = None
    for read, pair in enumerate(served.tolist()):
        if pair == SENT:
            last = read
        else:
            assert (pairs.read[pair], pairs.cached[pair]) == (read, last)


@given(matrices(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_replay_serves_from_the_last_send(devices, horizon, random):
    pairs, stale = build_pairs(devices, horizon)
    decision = np.array([random.random() < 0.6 for _ in stale], bool)
    served = replay(pairs, decision)
    pair_index = dict(
        zip(zip(pairs.read.tolist(), pairs.cached.tolist(), strict=True), range(len(stale)), strict=True)
    )
    base = 0
    for matrix in devices:
        last = None
        for q in range(base, base + len(matrix)):
            pair = pair_index.get((q, last))
            if pair is not None and decision[pair]:
                assert served[q] == pair
            else:
                assert served[q] == SENT
                last = q
        base += len(matrix)


def device_of_equal_steps(reads, horizon, fresh):
    """Build the pairs of one device; an answer is stale when it is more than ``fresh`` reads old."""
    count = np.minimum(np.arange(reads), horizon)
    first = np.concatenate([[0], np.cumsum(count)])
    read = np.repeat(np.arange(reads), count)
    cached = read - count[read] + np.arange(len(read)) - first[read]
    zeros, of_pair = np.zeros(reads), np.zeros(len(read))
    pairs = Pairs(
        device=np.zeros(reads, np.int64),
        ids=np.arange(1),
        **dict.fromkeys(("t_us", "lat", "lon", "points", "box_km", "window_s"), zeros),
        first=first,
        read=read,
        cached=cached,
        **dict.fromkeys(("missing", "completeness", "age_s", "distance_km"), of_pair),
    )
    return pairs, read - cached > fresh


def test_bound_of_a_device_with_many_reads_takes_little_memory(scaled):
    """Bound 100,000 reads in 200 MB: tables of reads by stale answers would take 360 MB (scale.md)."""
    reads, fresh, budget = scaled(100_000, 30_000), 20, 300
    pairs, stale = device_of_equal_steps(reads, 24, fresh)
    tracemalloc.start()
    served = fewest_sends(pairs, stale, pairs.devices(), budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * reads
    # A run answers twenty fresh; stale answers make some of them longer.
    sends = np.count_nonzero(served == SENT)
    assert stale[served[served != SENT]].sum() <= budget
    assert sends == -(-(reads - budget) // (fresh + 1))


@given(matrices(), st.integers(1, 4), st.integers(0, 8))
def test_layers_that_are_computed_again_lead_to_the_same_schedule(devices, horizon, budget):
    pairs, stale = build_pairs(devices, horizon)
    usual = fewest_sends(pairs, stale, pairs.devices(), budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound, "_FEW_READS", 0)
        patch.setattr(bound, "_MAX_CELLS", 1)
        assert np.array_equal(fewest_sends(pairs, stale, pairs.devices(), budget), usual)


TABLES = st.lists(st.lists(st.integers(0, 4), min_size=0, max_size=7), min_size=1, max_size=60)


@given(TABLES, st.integers(0, 80))
def test_budget_divided_by_savings_saves_as_much_as_any_division(drops, budget):
    """Compare with dynamic programming over all devices: it is exact, and its time is quadratic."""
    tables = [np.cumsum([40, *(-drop for drop in of), -1]).astype(np.int32) for of in drops]
    by_saving = bound._divide_by_saving(tables, budget)
    exactly = bound._divide_exactly(tables, budget)
    sends = [sum(int(table[of]) for table, of in zip(tables, exactly, strict=True))]
    if by_saving is not None:
        assert sum(by_saving) <= budget
        sends.append(sum(int(table[of]) for table, of in zip(tables, by_saving, strict=True)))
    assert len(set(sends)) == 1


def test_budget_of_many_devices_is_divided_in_time_in_proportion_to_them(monkeypatch):
    """Divide among 20,000 devices without the table of all of them, which would take 10,000,000,000 sums."""
    monkeypatch.setattr(bound, "_divide_exactly", only_small(bound._divide_exactly))
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(20_000):
        drops = rng.integers(0, 3, int(rng.integers(1, 12)))
        tables.append(np.cumsum([60, *-np.append(drops, 1)]).astype(np.int32))
    spent = divide_budget(tables, 50_000)
    assert sum(spent) == 50_000


def only_small(divide):
    """Return a function that divides among a few devices, and refuses more."""

    def divide_few(tables, budget):
        assert len(tables) <= 2048
        return divide(tables, budget)

    return divide_few
