"""The bound equals the best of all schedules, found here by trying every one."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, fewest_sends, replay


def pairs_of(devices, horizon):
    """Pairs of devices with so many reads, each with a random matrix of who is stale from whom."""
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
    nothing = np.zeros(len(read))
    pairs = Pairs(
        device=np.array(device, np.int64),
        **dict.fromkeys(("t_us", "lat", "lon", "points", "window_s"), np.zeros(len(device))),
        first=np.searchsorted(read, np.arange(base + 1)),
        read=read,
        cached=np.array(cached, np.int64),
        missing=np.array(stale, np.int64),
        completeness=nothing,
        age_s=nothing,
        distance_km=nothing,
    )
    return pairs, np.array(stale, bool)


def matrices():
    def one(n):
        return st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)

    return st.lists(st.integers(1, 5).flatmap(one), min_size=1, max_size=3)


def best_of_all(devices, horizon, budget):
    """Fewest sends over every way to send or serve each read."""
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
def test_bound_is_the_best_of_all_schedules(devices, horizon, budget):
    pairs, stale = pairs_of(devices, horizon)
    served = fewest_sends(pairs, stale, pairs.devices(), budget)
    local = served[served != SENT]
    assert stale[local].sum() <= budget
    assert (served == SENT).sum() == best_of_all(devices, horizon, budget)
    # The schedule can be played: each local answer comes from the last send before it.
    last = None
    for read, pair in enumerate(served.tolist()):
        if pair == SENT:
            last = read
        else:
            assert (pairs.read[pair], pairs.cached[pair]) == (read, last)


@given(matrices(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_replay_serves_from_the_last_send(devices, horizon, random):
    pairs, stale = pairs_of(devices, horizon)
    decision = np.array([random.random() < 0.6 for _ in stale], bool)
    served = replay(pairs, decision)
    of = dict(
        zip(zip(pairs.read.tolist(), pairs.cached.tolist(), strict=True), range(len(stale)), strict=True)
    )
    base = 0
    for matrix in devices:
        last = None
        for q in range(base, base + len(matrix)):
            pair = of.get((q, last))
            if pair is not None and decision[pair]:
                assert served[q] == pair
            else:
                assert served[q] == SENT
                last = q
        base += len(matrix)
