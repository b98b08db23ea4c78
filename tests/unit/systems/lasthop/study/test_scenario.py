"""Events drawn from a scenario: arrivals, reads, expirations, and outages."""

import numpy as np
import pytest

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import READ, SWITCH, Drawn, Expiration, Scenario

DAY = 86_400_000_000


def test_arrivals_are_poisson():
    drawn = Scenario(32.0, days=3650).draw(1)
    gaps = np.diff(drawn.arrivals_us) / DAY * 32
    assert gaps.mean() == pytest.approx(1, abs=0.02)
    assert gaps.std() == pytest.approx(1, abs=0.02)
    assert drawn.arrivals_us[-1] < 3650 * DAY
    assert (drawn.expires_us == FOREVER_US).all()
    assert drawn.ranks.min() < 0.001
    assert 0.999 < drawn.ranks.max() < 1


@pytest.mark.parametrize("reads_per_day", [0.25, 0.5, 2.0, 32.0])
def test_reads_have_their_frequency_and_happen_by_day(reads_per_day):
    reads = Scenario(user_frequency=reads_per_day, days=2000).draw(3).reads_us
    assert len(reads) / 2000 == pytest.approx(reads_per_day, rel=0.02)
    assert (np.diff(reads) >= 0).all()
    hours = reads % DAY / 3.6e9
    assert ((hours >= 6.5) | (hours < 0.5)).all()  # a late riser may read after midnight


def test_half_a_read_a_day_is_one_every_other_day():
    days = Scenario(user_frequency=0.5, days=100, reads_cv=0.0).draw(1).reads_us // DAY
    assert set(np.diff(days)) <= {1, 2, 3}
    assert len(days) == 50


def test_reads_per_day_have_their_coefficient_of_variation():
    for spread in (0.0, 0.1, 0.5):
        reads = Scenario(user_frequency=32.0, days=4000, reads_cv=spread).draw(2).reads_us
        counts = np.bincount((reads - 3 * 3_600_000_000) // DAY, minlength=4000)
        assert counts.std() / 32 == pytest.approx(spread, abs=0.015)


@pytest.mark.parametrize("law", ["exponential", "uniform", "normal"])
def test_expiration_times_have_their_mean(law):
    drawn = Scenario(32.0, expiration=Expiration(3600.0, law), expiring_share=0.5, days=1000).draw(1)
    has_expiration = drawn.expires_us < FOREVER_US
    assert has_expiration.mean() == pytest.approx(0.5, abs=0.02)
    lifetimes_s = (drawn.expires_us - drawn.arrivals_us)[has_expiration] / 1e6
    assert lifetimes_s.min() > 0
    assert lifetimes_s.mean() == pytest.approx(3600, rel=0.03)
    spread = {"exponential": 1, "uniform": 1 / np.sqrt(3), "normal": 0.25}[law]
    assert lifetimes_s.std() / 3600 == pytest.approx(spread, rel=0.04)


def test_link_is_down_for_its_share():
    drawn = Scenario(outages=Outages(0.9, per_day=12), days=1000).draw(5)
    times = np.concatenate([[0], drawn.switches_us, [1000 * DAY]])
    periods = np.diff(times)
    up = periods[0 if drawn.starts_up else 1 :: 2].sum() / (1000 * DAY)
    assert up == pytest.approx(0.1, abs=0.01)
    assert len(drawn.switches_us) / 2000 == pytest.approx(12, rel=0.05)


@pytest.mark.parametrize(("share", "is_up"), [(0.0, True), (1.0, False)])
def test_no_outage_and_total_outage_never_change(share, is_up):
    drawn = Scenario(outages=Outages(share)).draw(1)
    assert len(drawn.switches_us) == 0
    assert drawn.starts_up is is_up


def test_seed_determines_the_events():
    one, two, three = (Scenario(outages=Outages(0.5), days=30).draw(seed) for seed in (1, 1, 2))
    assert one.timeline == two.timeline != three.timeline


def test_changed_parameter_does_not_affect_other_draws():
    one = Scenario(outages=Outages(0.5), days=30).draw(1)
    two = Scenario(outages=Outages(0.9), user_frequency=9.0, days=30).draw(1)
    assert (one.arrivals_us == two.arrivals_us).all()
    assert (one.ranks == two.ranks).all()


def test_simultaneous_link_changes_come_first_and_reads_last():
    five = np.array([5])
    drawn = Drawn(np.array([4, 5]), np.array([9, 9]), np.array([0.1, 0.2]), five, five, True)
    assert drawn.timeline == ([4, 5, 5, 5], [0, SWITCH, 1, READ])


def test_frequencies_of_zero_draw_no_events():
    drawn = Scenario(0.0, 0.0, days=5).draw(1)
    assert len(drawn.arrivals_us) == len(drawn.reads_us) == 0
    assert drawn.timeline == ([], [])


def test_describe_returns_the_settings():
    settings = Scenario(outages=Outages(0.5), expiration=Expiration(60.0)).describe()
    assert settings["outages"]["per_day"] == 12
    assert settings["expiration"] == {"mean_s": 60.0, "law": "exponential", "share": 1.0}
    assert settings["reads_cv"] == 0.1
