import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mudkit.sources.streams import Stream

numbers = st.integers(-(2**63), 2**63 - 1)
seeds = st.integers()
addresses = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=50)

METHODS = {
    "uniform": lambda s, d, t: s.uniform(d, t, -2.0, 3.0),
    "normal": lambda s, d, t: s.normal(d, t, 1.0, 2.0),
    "cut": lambda s, d, t: s.normal(d, t, within=1.0),
    "exponential": lambda s, d, t: s.exponential(d, t, 3.0),
    "integers": lambda s, d, t: s.integers(d, t, -5, 12),
    "chance": lambda s, d, t: s.chance(d, t, 0.3),
    "pair": lambda s, d, t: s.pair(d, t)[1],
}
method = st.sampled_from(sorted(METHODS)).map(METHODS.__getitem__)


@given(seeds, addresses, method)
def test_array_draw_equals_single_draws(seed, address, draw):
    stream = Stream(seed, "one")
    device, step = np.array(address, dtype=np.int64).T
    together = draw(stream, device, step)
    assert together.tolist() == [draw(stream, d, t).item() for d, t in address]


@given(seeds, addresses, method, st.randoms(use_true_random=False))
def test_draws_are_independent_of_order_and_other_devices(seed, address, draw, random):
    device, step = np.array(address, dtype=np.int64).T
    alone = draw(Stream(seed, "x"), device, step)
    subset = random.sample(range(len(address)), random.randint(1, len(address)))
    assert np.array_equal(draw(Stream(seed, "x"), device[subset], step[subset]), alone[subset])
    extended = np.concatenate([[17, 4], device]), np.concatenate([[1, 2], step])
    assert np.array_equal(draw(Stream(seed, "x"), *extended)[2:], alone)


@given(seeds, st.text(), addresses)
def test_values_are_in_their_ranges(seed, name, address):
    stream = Stream(seed, name)
    device, step = np.array(address, dtype=np.int64).T
    u = stream.uniform(device, step)
    assert np.all((u >= 0) & (u < 1))
    assert np.all(u * 2**53 == np.floor(u * 2**53))
    assert np.all(np.abs(stream.normal(device, step, within=0.5)) <= 0.5)
    assert np.all(stream.exponential(device, step) >= 0)


@given(seeds, numbers, numbers, st.integers(-(2**40), 2**40), st.integers(1, 2**32))
def test_integers_are_in_their_range(seed, device, step, low, size):
    assert low <= Stream(seed, "range").integers(device, step, low, low + size) < low + size


@given(seeds, numbers, numbers, st.floats(0, 1), st.floats(0, 1))
def test_chance_is_monotonic_in_its_share(seed, device, step, one, other):
    lower, higher = sorted((one, other))
    stream = Stream(seed, "share")
    assert stream.chance(device, step, higher) or not stream.chance(device, step, lower)
