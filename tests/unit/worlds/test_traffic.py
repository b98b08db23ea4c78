"""Traffic: contexts depend only on the seed, and the fleet agrees with the rules alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import figures, trace
from mudkit.errors import ParameterError, PropagationProblem
from mudkit.sources.replay import Replay
from mudkit.systems.radiator import Volume, distance_km
from mudkit.worlds import Traffic

TRAFFIC = Traffic(cars=5, minutes=6.0)


def by_distance(sender, receiver):
    return Volume(1 + int(distance_km(sender["loc"], receiver["loc"])))


@pytest.fixture(scope="module")
def reports():
    return TRAFFIC.reports(3)


def test_reports_are_ordered_and_depend_only_on_the_seed(reports):
    pd.testing.assert_frame_equal(reports, TRAFFIC.reports(3))
    assert not reports.equals(TRAFFIC.reports(4))
    assert reports["t_s"].is_monotonic_increasing
    assert reports["t_s"].is_unique, "cars do not speak in chorus"
    assert reports.groupby("car").size().tolist() == [6] * 5


def test_cars_in_the_jam_report_a_quarter_of_their_speed():
    free, jam = Traffic(5, 6.0, jam_km=0.0).reports(3), Traffic(5, 6.0, jam_km=1000.0).reports(3)
    is_jam = jam["t_s"].between(120, 240, inclusive="left")
    assert np.allclose(jam.loc[is_jam, "speed_kmh"], free.loc[is_jam, "speed_kmh"] / 4, atol=0.06)
    assert jam.loc[~is_jam, "speed_kmh"].equals(free.loc[~is_jam, "speed_kmh"])


def test_listeners_are_in_the_middle_and_20_km_away(reports):
    listeners = TRAFFIC.listeners(reports)
    assert distance_km(listeners[Traffic.NEAR], listeners[Traffic.FAR]) == pytest.approx(20.0, abs=0.01)
    assert listeners[Traffic.NEAR] == TRAFFIC.middle(reports)


@pytest.mark.parametrize("settings", [{}, {"chain": 0.5, "echo": True}])
def test_each_report_arrives_once_on_the_fleet(reports, settings):
    drive = TRAFFIC.run(3, by_distance, max_retention_s=100.0, **settings)
    sums = drive.cells.groupby("receiver")["messages"].sum()
    own = 0 if settings.get("echo") else 6
    assert sums.to_dict() == {Traffic.NEAR: 30, Traffic.FAR: 30} | {
        f"car-{i:05d}": 30 - own for i in range(5)
    }
    assert drive.counts["contexts"] == 30
    numbers = drive.cells["aggregate"].drop_duplicates()
    assert numbers.tolist() == list(range(1, len(numbers) + 1)), "in the order in which they arrive"
    near_s, far_s = drive.delays(1.0)
    assert 0 < near_s < far_s < 100
    measures = drive.measures(1.0)
    assert (measures["near_delay_s"], measures["far_delay_s"]) == (near_s, far_s)
    assert near_s < measures["mean_delay_s"] < far_s
    assert measures["server_kb"] == drive.counts["bytes_sent"] / 1000
    assert measures["phones_kb"] > 0
    with pytest.raises(ParameterError, match="near_km"):
        drive.measures(float("nan"))


def test_play_agrees_with_the_fleet(reports):
    fleet = TRAFFIC.run(3, by_distance, max_retention_s=100.0).cells
    cells, sent = TRAFFIC.play(reports, by_distance, max_retention_s=100.0)
    for name in (Traffic.NEAR, Traffic.FAR):
        on_fleet, played = fleet[fleet["receiver"] == name], cells[cells["receiver"] == name]
        columns = ["lat", "lon", "messages", "speed_kmh", "reported_s", "distance_km"]
        assert on_fleet[columns].round(6).values.tolist() == played[columns].round(6).values.tolist()
        assert (on_fleet["t_s"].to_numpy() - played["t_s"].to_numpy()).max() < 1.0, "the network's latency"
    assert sent["messages"].tolist() == [30, 30]
    assert (
        sent["aggregates"].tolist()
        == cells.groupby("receiver")["aggregate"].max()[[Traffic.NEAR, Traffic.FAR]].tolist()
    )
    assert (sent["bytes"] > 0).all()


def test_play_keeps_the_clock_and_every_report(reports):
    later = reports.assign(t_s=reports["t_s"] + 100.0)
    times = [
        TRAFFIC.play(given, by_distance, max_retention_s=100.0)[0][["t_s", "reported_s"]].to_numpy()
        for given in (reports, later)
    ]
    assert times[1] == pytest.approx(times[0] + 100.0)
    again = pd.concat([later, later.tail(1).assign(t_s=later["t_s"].max() + 0.4)], ignore_index=True)
    _, sent = TRAFFIC.play(again, by_distance, max_retention_s=100.0)
    assert sent["messages"].tolist() == [31, 31], "also what a car reports within a second"


def test_failing_threshold_functions_are_reported(reports):
    with pytest.raises(PropagationProblem, match="ZeroDivisionError"):
        TRAFFIC.play(reports, lambda sender, receiver: 1 / 0)
    with pytest.raises(PropagationProblem, match="no usable threshold") as caught:
        TRAFFIC.run(3, lambda sender, receiver: Volume(-1), max_retention_s=100.0)
    assert caught.value.expected


def test_cars_without_reports_are_receivers():
    """Replay a car whose speed is unknown."""
    ts = pd.to_datetime(["2020-01-01 00:00", "2020-01-01 00:02"] * 2, utc=True)
    table = pd.DataFrame({"device": ["a", "a", "b", "b"], "ts": ts, "lat": 30.0, "lon": [-97.0, -97.02] * 2})
    table.loc[table["device"] == "b", "ts"] += pd.Timedelta(hours=2)
    traffic = Traffic(2, 3.0, mobility=Replay(pa.Table.from_pandas(table, preserve_index=False)), jam_km=0.0)
    reports = traffic.reports(1)
    assert reports["car"].unique().tolist() == ["car-00000"]
    assert reports["speed_kmh"].max() == pytest.approx(57.8, abs=0.2)
    drive = traffic.run(1, by_distance)
    assert drive.cells["receiver"].nunique() == 3, "all but the one who says it"


def test_recorded_taxis_are_replayed(cabspotting):
    """Replay the evening with the most reports; the near listener receives them sooner than the far one."""
    taxis = Replay(trace.load(cabspotting, format="cabspotting"), "2008-05-23T04:30")
    traffic = Traffic(cars=40, minutes=6.0, mobility=taxis, jam_km=0.0)
    reports = traffic.reports(1)
    assert reports["car"].nunique() > 30
    assert reports["lat"].between(37.0, 38.5).all()
    assert reports["speed_kmh"].between(0.0, 150.0).mean() > 0.99
    cells, sent = traffic.play(reports, by_distance)
    assert sent["messages"].tolist() == [len(reports)] * 2
    late_s = (cells["t_s"] - cells["reported_s"]).groupby(cells["receiver"]).mean()
    assert late_s[Traffic.NEAR] < late_s[Traffic.FAR]
    options = {"value": "speed_kmh", "label": "km/h", "every_s": 30.0, "until_s": 660.0}
    html = figures.knowledge_map(cells, reports, (Traffic.NEAR, Traffic.FAR), **options).get_root().render()
    assert "mudkitMap.slides(" in html
    assert Traffic.FAR in html


def test_traces_without_speeds_are_refused():
    ts = pd.to_datetime(["2020-01-01 00:00", "2020-01-01 02:00"], utc=True)
    table = pd.DataFrame({"device": "a", "ts": ts, "lat": 30.0, "lon": [-97.0, -97.02]})
    gap = Replay(pa.Table.from_pandas(table, preserve_index=False))
    with pytest.raises(ParameterError, match="No car reports a speed"):
        Traffic(cars=1, minutes=2.0, mobility=gap).reports(1)
