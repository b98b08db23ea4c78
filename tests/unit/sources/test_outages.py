import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, lognorm

from mudkit.errors import ParameterError
from mudkit.sources.outages import DISTRIBUTIONS, FOREVER_US, PERIODS, OutageLog, Outages, outages_of
from mudkit.sources.streams import Stream, device_number

US = 1_000_000
DAY_US = 86_400 * US
FLEET = [f"d{i}" for i in range(4000)]
LAWS = [
    Outages(0.3),
    Outages(0.3, distribution="fixed"),
    Outages(0.3, distribution="lognormal"),
    Outages(0.3, distribution="lognormal", cv=2.0),
]


def is_down(switching, t_us):
    """Return which devices are down at a moment, from their periods."""
    ends_us, block = np.zeros((len(switching.starts_up), 1), dtype=np.int64), 0
    index = np.full(len(switching.starts_up), -1)
    while (index < 0).any():
        period_ends_us = ends_us[:, -1:] + np.cumsum(switching.periods_us(block), axis=1)
        result = (period_ends_us > t_us).argmax(axis=1) + PERIODS * block
        index = np.where((index < 0) & (period_ends_us[:, -1] > t_us), result, index)
        ends_us, block = period_ends_us, block + 1
    return switching.starts_up == (index % 2 == 1)


@pytest.mark.parametrize("outages", LAWS, ids=repr)
def test_run_is_stationary_from_its_start(outages):
    switching = outages.switching(7, FLEET)
    for hours in (0, 0.5, 6):
        assert is_down(switching, round(hours * 3600 * US)).mean() == pytest.approx(0.3, abs=0.025)
    # The mean residual life is E[L^2] / (2 E[L]).
    cv = outages.describe()["cv"]
    first_s = switching.periods_us(0)[switching.starts_up, 0] / US
    assert first_s.mean() == pytest.approx(outages.mean_up_s * (1 + cv**2) / 2, rel=0.08 if cv < 2 else 0.35)


@pytest.mark.parametrize("outages", LAWS, ids=repr)
def test_long_run_cycles_and_downtime(outages):
    switching = outages.switching(7, FLEET)
    lengths_us = np.concatenate([switching.periods_us(block) for block in range(1, 6)], axis=1)
    up = switching.starts_up[:, None] == (np.arange(lengths_us.shape[1]) % 2 == 0)
    assert lengths_us[~up].sum() / lengths_us.sum() == pytest.approx(0.3, abs=0.01)
    assert DAY_US / lengths_us.mean() == pytest.approx(2 * 12, rel=0.02)
    cv = outages.describe()["cv"]
    for kind in (up, ~up):
        assert lengths_us[kind].std() / lengths_us[kind].mean() == pytest.approx(cv, rel=0.1, abs=1e-6)


def test_periods_follow_their_distribution():
    lengths_s = Outages(0.3).switching(7, FLEET).periods_us(1)[:, 0] / US
    up = Outages(0.3).switching(7, FLEET).starts_up
    assert kstest(lengths_s[up] / 5040, "expon").pvalue > 0.001
    assert kstest(lengths_s[~up] / 2160, "expon").pvalue > 0.001
    outages = Outages(0.5, distribution="lognormal", cv=0.7)
    sigma2 = np.log(1 + 0.7**2)
    law = lognorm(np.sqrt(sigma2), scale=3600 * np.exp(-sigma2 / 2))
    assert kstest(outages.switching(7, FLEET).periods_us(1)[:, 3] / US, law.cdf).pvalue > 0.001


def test_periods_of_one_device_match_its_stream():
    number = device_number("d9")
    switching = Outages(0.3).switching(5, FLEET[:10])
    assert switching.starts_up[9] == (Stream(5, "outage first").uniform(number, 0) >= 0.3)
    for block in (0, 3):
        for k in range(PERIODS):
            up = switching.starts_up[9] == (k % 2 == 0)
            mean_us = (0.7 if up else 0.3) * 7200 * US
            length_us = Stream(5, "outage period").exponential(number, block * PERIODS + k, mean_us)
            assert abs(switching.periods_us(block)[9, k] - length_us) <= 1


@pytest.mark.parametrize("outages", LAWS, ids=repr)
def test_devices_are_independent_of_each_other(outages):
    whole, part = outages.switching(7, FLEET[:20]), outages.switching(7, [FLEET[11], FLEET[3]])
    assert (whole.starts_up[[11, 3]] == part.starts_up).all()
    for block in (2, 0, 1):
        assert (whole.periods_us(block)[[11, 3]] == part.periods_us(block)).all()
    # Lengths are uncorrelated with the next one and with those of other devices.
    fleet = outages.switching(7, FLEET)
    lengths = fleet.periods_us(1)[fleet.starts_up].astype(float)
    if outages.distribution != "fixed":
        assert abs(np.corrcoef(lengths[:, 4], lengths[:, 5])[0, 1]) < 0.08
        assert abs(np.corrcoef(lengths[:-1, 4], lengths[1:, 4])[0, 1]) < 0.08


@pytest.mark.parametrize("law", DISTRIBUTIONS)
@pytest.mark.parametrize("share", [0, 1.0])
def test_share_of_zero_or_one_never_switches(share, law):
    switching = Outages(share, distribution=law).switching(7, FLEET[:50])
    assert (switching.starts_up == (share == 0)).all()
    assert (switching.periods_us(0) == FOREVER_US).all()
    assert np.cumsum(switching.periods_us(0), axis=1).min() > 0


@pytest.mark.parametrize("law", DISTRIBUTIONS)
def test_periods_last_at_least_a_microsecond(law):
    switching = Outages(1e-9, per_day=86_400, distribution=law, cv=10).switching(7, FLEET[:200])
    assert switching.periods_us(0).min() == 1
    assert switching.periods_us(0).dtype == np.int64


def test_describe_states_the_outages():
    assert Outages(0.2).describe() == {
        "share": 0.2,
        "per_day": 12.0,
        "distribution": "exponential",
        "cv": 1.0,
        "mean_up_s": 5760.0,
        "mean_down_s": 1440.0,
    }
    assert Outages(0.2, distribution="lognormal", cv=3).describe()["cv"] == 3
    assert Outages(0.2, distribution="fixed", cv=3).describe()["cv"] == 0
    assert Outages(0).describe() == {"share": 0.0}


def test_outages_of_accepts_a_share():
    assert outages_of(0.2) == Outages(0.2)
    assert outages_of(1) == Outages(1.0)
    assert outages_of(LAWS[1]) is LAWS[1]


_PERIODS = st.lists(st.tuples(st.integers(-50, 200), st.integers(0, 60)), max_size=40)


@given(st.lists(_PERIODS, min_size=1, max_size=3))
def test_recorded_outages_are_those_of_the_log(drawn):
    logs = [[(begin * US, (begin + length) * US) for begin, length in periods] for periods in drawn]
    log = OutageLog(logs, length_s=150)
    switching = log.switching(3, [f"d{i}" for i in range(len(logs))])
    for second in range(0, 260, 7):
        t_us = second * US
        expected = [any(begin <= t_us < end for begin, end in periods) for periods in logs]
        assert is_down(switching, t_us).tolist() == expected
    down_s = sum(any(b <= s * US < e for b, e in periods) for periods in logs for s in range(150))
    assert log.share == pytest.approx(down_s / 150 / len(logs))


def test_log_of_outages_is_checked():
    with pytest.raises(ParameterError, match="ends before it begins"):
        OutageLog([[(2 * US, US)]], length_s=10)
    with pytest.raises(ParameterError, match="too few devices"):
        OutageLog([[]], length_s=10).switching(1, ["a", "b"])
