"""Ward: patients, walking doctors, and the evaluation of policies."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.worlds import Ward, pulses
from mudkit.worlds.ward import POLICIES

SMALL = Ward(patients=4, doctors=2, hours=0.15, every_s=5.0, alarms_per_day=200.0, outage=0.0, range_m=120.0)


@pytest.fixture(scope="module")
def rounds():
    return {name: SMALL.run(3, name) for name in POLICIES}


@pytest.mark.soak
def test_runs_with_same_seed_are_identical(rounds):
    again = SMALL.run(3, "stateful")
    assert again.shown.equals(rounds["stateful"].shown)
    assert again.measures() == rounds["stateful"].measures()
    assert not SMALL.run(4, "stateful").shown.equals(again.shown)


def test_all_policies_see_the_same_alarms(rounds):
    first = rounds["no policy"].alarms[["patient", "doctor", "from_s", "until_s"]]
    assert len(first) > 0
    for run in rounds.values():
        assert run.alarms[["patient", "doctor", "from_s", "until_s"]].equals(first)


def test_policies_limit_messages_to_assigned_patients(rounds):
    everything, stateless, stateful = (rounds[name].shown for name in ("no policy", "stateless", "stateful"))
    assert set(everything["patient"]) == {1, 2, 3, 4}
    assigned = {f"doctor-{number + 1}": SMALL.patients_of(number) for number in range(2)}
    for shown in (stateless, stateful):
        normal = shown[shown["pulse"] >= 50]
        assert all(row.patient in assigned[row.doctor] for row in normal.itertuples())
        assert len(normal) > 0
    assert len(everything) > len(stateless)
    assert (stateful["ecg_bytes"] <= SMALL.display_px).all()
    assert (stateless["ecg_bytes"] == 1250).all()


def test_alarms_arrive_within_a_second_without_outages(rounds):
    for name in ("no policy", "stateless", "stateful"):
        assert rounds[name].measures()["missed_share"] == 0
        assert rounds[name].measures()["alarm_s"] < 1


def test_fewer_bytes_extend_battery_life(rounds):
    by_name = {name: run.measures() for name, run in rounds.items()}
    megabytes = [by_name[name]["megabytes"] for name in ("no policy", "stateless", "stateful")]
    assert megabytes == sorted(megabytes, reverse=True)
    hours = [by_name[name]["battery_h"] for name in ("no policy", "stateless", "stateful")]
    assert hours == sorted(hours)


def test_empty_battery_ends_the_run():
    ward = Ward(
        patients=2, doctors=1, hours=0.2, every_s=10.0, battery_j=60.0, outage=0.0, alarms_per_day=0.0
    )
    run = ward.run(1, "no policy")
    assert 0 < run.hours["doctor-1"] < 0.2
    assert run.shown["at_s"].max() <= run.hours["doctor-1"] * 3600 + 5
    assert len(run.alarms) == 0
    assert run.measures()["missed_share"] == 0


def test_missed_alarms_are_late_or_after_an_empty_battery():
    ward = Ward(6, 1, 0.3, 20.0, 400.0, 1.0, outage=0.0, battery_j=200.0)
    run = ward.run(1, "stateful")
    empty_h = run.hours["doctor-1"]
    assert empty_h < 0.3
    shares = run.alarm_shares()
    assert shares["late_share"] > 0
    assert shares["off_share"] == (run.alarms["from_s"] >= 3600 * empty_h).mean() > 0
    assert shares["missed_share"] == pytest.approx(shares["late_share"] + shares["off_share"])
    assert run.measures().items() >= shares.items()
    assert run.alarm_shares(empty_h)["off_share"] == 0
    assert set(run.alarm_shares(0.0).values()) == {0.0}


def test_pulses_are_low_in_alarms_only():
    ward = Ward(patients=1, hours=24.0)
    result = pulses(ward, 1, 1)
    low = result < 50
    assert len(result) == 24 * 360
    assert 0.005 < low.mean() < 0.2
    assert result[low].min() >= 35
    assert result[low].max() <= 48
    assert np.array_equal(result, pulses(ward, 1, 1))
    assert not np.array_equal(result, pulses(ward, 1, 2))
