import hashlib

import numpy as np
import pytest

from mudkit.sources.streams import Stream, device_number, philox4x32

# Random123 1.14, tests/kat_vectors: philox4x32 with 10 rounds; counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def parse_words(text):
    return [int(word, 16) for word in text.split()]


def compute_philox(counter, key):
    """Run the rounds of the paper on Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, result):
    out = philox4x32(
        tuple(np.array([word], np.uint64) for word in parse_words(counter)), tuple(parse_words(key))
    )
    assert [int(word[0]) for word in out] == parse_words(result)


def test_philox_of_an_array_under_one_key():
    rng = np.random.default_rng(1)
    counters = rng.integers(0, 2**32, (4, 100), dtype=np.uint64)
    before = counters.copy()
    out = np.array(philox4x32(tuple(counters), (5, 6)))
    assert out.T.tolist() == [compute_philox(counter, (5, 6)) for counter in counters.T.tolist()]
    assert np.array_equal(counters, before)


@pytest.mark.parametrize(("device", "step"), [(0, 0), (3, 5), (2**40 + 1, 2**63 + 7), (-1, -2)])
def test_draw_is_philox_of_device_and_step_keyed_by_seed_and_name(device, step):
    digest = hashlib.blake2b(b"7\0home", digest_size=8, person=b"mudkit.stream").digest()
    key = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
    d, s = device % 2**64, step % 2**64
    w = compute_philox([d % 2**32, d >> 32, s % 2**32, s >> 32], key)
    first, second = Stream(7, "home").words(device, step)
    assert (int(first), int(second)) == (w[0] | w[1] << 32, w[2] | w[3] << 32)
    assert float(Stream(7, "home").uniform(device, step)) == (int(first) >> 11) / 2**53


def test_draws_depend_on_seed_name_device_and_step():
    draws = [
        Stream(seed, name).uniform(device, step).item()
        for seed in (0, 1, -1, 10**30)
        for name in ("", "a", "b")
        for device in (0, 1, 2**32)
        for step in (0, 1, 2**32)
    ]
    assert len(set(draws)) == len(draws)
    assert Stream(1, "2x").uniform(0, 0) != Stream(12, "x").uniform(0, 0)


def test_shapes_broadcast():
    stream = Stream(1, "shape")
    grid = stream.normal(np.arange(3)[:, None], np.arange(4))
    assert grid.shape == (3, 4)
    assert grid[2, 3] == stream.normal(2, 3)
    assert stream.uniform(np.arange(0), 5).shape == (0,)
    assert stream.uniform([], []).shape == (0,)
    assert stream.exponential(1, 1, mean=[1.0, 2.0]).shape == (2,)


def test_bits_of_uniform_draws_are_balanced():
    k = Stream(1, "bits").uniform(np.arange(100_000), 0) * 2**53
    bits = ((k.astype(np.uint64)[:, None] >> np.arange(53, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 0.01


def test_uniform_and_pair_agree_and_the_pair_is_independent():
    stream = Stream(3, "pair")
    first, second = stream.pair(np.arange(50_000), 1)
    assert np.array_equal(first, stream.uniform(np.arange(50_000), 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


def test_uniform_stays_below_high_when_the_sum_rounds():
    u = Stream(1, "edge").uniform(np.arange(1000), 0, 1.0, np.nextafter(1.0, 2.0))
    assert np.all(u == 1.0)


@pytest.mark.parametrize("argument", ["device", "step"])
def test_neighbours_are_not_correlated(argument):
    n = np.arange(100_000)
    u = Stream(1, "neighbours").uniform(*((n, 0) if argument == "device" else (0, n)))
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02
    assert abs(u.mean() - 0.5) < 0.005


def test_moments_of_distributions():
    stream, device = Stream(11, "moments"), np.arange(200_000)
    z = stream.normal(device, 0, 3.0, 2.0)
    assert abs(z.mean() - 3.0) < 0.03
    assert abs(z.std() - 2.0) < 0.03
    assert abs(np.mean(np.abs(z - 3.0) < 2.0) - 0.6827) < 0.005
    e = stream.exponential(device, 1, 5.0)
    assert e.min() >= 0
    assert abs(e.mean() - 5.0) < 0.06
    assert abs(np.mean(e > 5.0) - np.exp(-1)) < 0.005
    assert abs(stream.chance(device, 2, 0.2).mean() - 0.2) < 0.004
    assert not stream.chance(device, 2, 0.0).any()
    assert stream.chance(device, 2, 1.0).all()
    counts = np.bincount(stream.integers(device, 3, 0, 6), minlength=6)
    assert len(counts) == 6
    assert np.abs(counts / len(device) - 1 / 6).max() < 0.005


def test_truncated_normal():
    z = Stream(11, "cut").normal(np.arange(200_000), 0, 10.0, 2.0, within=1.5)
    assert z.min() >= 7.0
    assert z.max() <= 13.0
    assert np.mean(z > 12.99) < 0.01
    assert abs(np.mean(np.abs(z - 10.0) < 2.0) - 0.6827 / 0.8664) < 0.005
    assert np.array_equal(Stream(11, "cut").normal([1, 2], 0, 5.0, 1.0, within=0.0), [5.0, 5.0])


def test_extreme_words_give_finite_numbers(monkeypatch):
    ends = np.array([0, 2**64 - 1], np.uint64)
    monkeypatch.setattr(Stream, "words", lambda *_: (ends, ends))
    stream = Stream(0, "ends")
    assert stream.uniform(0, 0).tolist() == [0.0, 1 - 2**-53]
    assert np.all(np.isfinite(stream.normal(0, 0)))
    assert np.all(np.isfinite(stream.exponential(0, 0)))
    assert stream.integers(0, 0, -3, 4).tolist() == [-3, 3]


def test_integers_cover_wide_ranges():
    drawn = Stream(0, "wide").integers(np.arange(1000), 0, -(2**31), 2**31)
    assert drawn.min() < -(2**30)
    assert drawn.max() > 2**30
    assert Stream(0, "wide").integers(5, 5, 9, 10) == 9


def test_device_number():
    assert device_number("jane-phone") != device_number("jane-phone2")
    digest = hashlib.blake2b("é".encode(), digest_size=8).digest()
    assert device_number("é") == int.from_bytes(digest, "little")
    assert Stream(1, "x").uniform(device_number("é"), 0).shape == ()
