"""Ward: patients, walking doctors, and the evaluation of policies."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mudkit.units import KM_PER_DEGREE
from mudkit.worlds import Ward, pulses
from mudkit.worlds.ward import POLICIES, _Shift

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


def test_devices_use_edge_beyond_the_range_of_all_access_points():
    """The docstring of `Ward`: four access points in the square, and the range of their Wi-Fi in metres."""
    shift = _Shift(Ward(patients=1, doctors=1, edge_m=400.0, range_m=90.0), 1, "no policy")
    # The access points are 100 m from the middle, to the north and south and to the east and west.
    places = {"at one": 100.0, "within": 189.0, "beyond": 191.0, "between": 0.0}
    for name, north_m in places.items():
        shift.lab.device(name, at=(north_m / 1000 / KM_PER_DEGREE, 0.1 / KM_PER_DEGREE), link="wifi")
    shift.names = list(places)
    for _ in range(2):
        shift._roam(None)
        networks = [shift.lab.devices[name].network for name in shift.names]
        assert networks == ["wifi", "wifi", "edge", "edge"]


def test_alarm_is_shown_once_to_each_doctor_within_its_time():
    """The docstring of `WardRun.alarms`."""
    shift = _Shift(SMALL, 3, "no policy")
    shift.offsets_s = [0.0] * 5
    shift.pulses = {1: np.array([60, 60, 40, 40, 60, 60])}
    ((patient, from_s, until_s),) = shift._all_alarms()
    assert (patient, from_s, until_s) == (1, 2 * SMALL.every_s, 4 * SMALL.every_s)
    rows = [
        ("doctor-1", 2, 11.0, 40, 0),  # of another patient
        ("doctor-1", 1, 11.5, 60, 0),  # not low
        ("doctor-1", 1, 9.0, 40, 0),  # of an earlier alarm
        ("doctor-1", 1, 14.0, 40, 0),
        ("doctor-1", 1, 12.0, 40, 0),
        ("doctor-2", 1, 20.5, 40, 0),  # too late
    ]
    shown = pd.DataFrame(rows, columns=["doctor", "patient", "at_s", "pulse", "ecg_bytes"])
    alarms = shift._alarms(shown).set_index("doctor")["shown_s"]
    assert alarms["doctor-1"] == 12.0
    assert np.isnan(alarms["doctor-2"])


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


def test_pulses_without_an_alarm_are_never_below_51():
    ward = Ward(hours=24.0, alarms_per_day=0.0)
    assert min(int(pulses(ward, 1, patient).min()) for patient in range(1, 40)) == 51


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
