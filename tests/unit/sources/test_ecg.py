"""Electrocardiograms of the dynamical model."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.sources.ecg import ECG_HZ, _beats, decode_ecg, ecg_loss_percent, ecg_mv, encode_ecg
from mudkit.systems.sublim import compress, expand


def find_beats(line):
    """Return the index of each R wave: the one peak over 0.6 mV of a beat."""
    return [n for n in range(1, len(line) - 1) if line[n] > 0.6 and line[n - 1] < line[n] >= line[n + 1]]


@pytest.mark.parametrize("bpm", [40, 72, 120])
def test_heart_rate_matches_bpm(bpm):
    line = ecg_mv(bpm, 30)
    assert len(line) == 30 * ECG_HZ
    assert (line.min(), line.max()) == pytest.approx((-0.4, 1.2))
    gaps_s = np.diff(find_beats(line)) / ECG_HZ
    assert 60 / gaps_s.mean() == pytest.approx(bpm, rel=0.03)
    assert 0 < gaps_s.std() < 0.1 * gaps_s.mean()


def test_zero_spread_gives_even_beats():
    gaps = np.diff(find_beats(ecg_mv(60, 20, spread_bpm=0.0)))
    assert gaps.max() - gaps.min() <= 1
    assert gaps.mean() == pytest.approx(ECG_HZ, abs=1)


@pytest.mark.parametrize("seconds", [0.1, 256.0, 3600.0])
def test_length_of_a_beat_is_drawn_up_to_the_end(seconds):
    """Four values a second, and the next one, between which the last moment lies."""
    lengths_s = _beats(60.0, seconds, 0, 1.0)
    assert len(lengths_s) >= 4 * seconds + 1
    assert lengths_s.mean() == pytest.approx(1.0, abs=0.01)


def test_beats_have_p_q_s_and_t_waves():
    """Check that Q and S lie below the line around R, P before and T after it above."""
    line = ecg_mv(60, 10, spread_bpm=0.0)
    at = find_beats(line)[4]
    around = line[at - ECG_HZ // 2 : at + ECG_HZ // 2]
    r = ECG_HZ // 2
    q, s = around[r - 20 : r].min(), around[r : r + 20].min()
    rest = np.median(around)
    assert q < rest - 0.05
    assert s < rest - 0.1
    assert around[r - 60 : r - 25].max() > rest + 0.02
    assert around[r + 40 : r + 110].max() > rest + 0.05


def test_ecg_is_deterministic_and_returned_as_a_copy():
    assert np.array_equal(ecg_mv(72, 5, seed=1), ecg_mv(72, 5, seed=1))
    assert not np.array_equal(ecg_mv(72, 5, seed=1), ecg_mv(72, 5, seed=2))
    samples = ecg_mv(72, 5, seed=1)
    samples[:] = 0  # a copy, not the cached array
    assert ecg_mv(72, 5, seed=1).max() > 1


def test_encoding_is_accurate_to_a_hundredth_of_a_millivolt():
    line = ecg_mv(72, 5)
    assert np.abs(decode_ecg(encode_ecg(line)) - line).max() <= 0.0051
    assert encode_ecg(np.array([-9.0, -1.0, 1.55, 9.0])) == bytes([0, 0, 255, 255])


def test_compression_loss_matches_the_docstring():
    """Check the figures in the docstring of mudkit.sources.ecg_loss_percent."""
    whole = encode_ecg(ecg_mv(72, 10))
    loss_percent = {
        ratio: ecg_loss_percent(whole, expand(compress({"e": whole}, "e", ratio)["e"], len(whole)))
        for ratio in (2, 4, 6, 8)
    }
    assert [round(percent) for percent in loss_percent.values()] == [4, 13, 26, 39]
    assert ecg_loss_percent(whole, whole) == 0.0
    assert ecg_loss_percent(bytes([9, 9]), bytes([8, 9])) == 0.0
