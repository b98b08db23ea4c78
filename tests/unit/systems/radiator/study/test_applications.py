"""Applications on a generated fleet and on the recorded taxis."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc
import pytest

from mudkit import Lab, figures, trace
from mudkit.errors import ParameterError
from mudkit.systems.radiator import (
    APPLICATIONS,
    Aggregability,
    Time,
    distance_km,
    friends_nearby,
    joins,
    play,
)


@pytest.fixture(scope="module")
def commuters():
    lab = Lab(seed=4, record_messages=False)
    lab.fleet(40, mobility="commute", every_s=60)
    lab.run(hours=1.5)
    return lab.trace.table("positions")


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_message_is_received_by_all_once(name, commuters):
    played = play(APPLICATIONS[name], commuters, watch=["phone-00000", "phone-00007"], every_s=120)
    assert not played.problems
    assert len(played.aggregates) > 3
    for receiver, rows in played.received.groupby("receiver"):
        assert not rows.duplicated(["sender", "age_s", "ts"]).any(), receiver
    counts = played.received["receiver"].value_counts()
    assert counts.nunique() == 1, "both got all, sooner or later"
    if name in ("traffic", "noise map"):
        message_counts = played.cells.groupby("receiver")["messages"].sum()
        assert (message_counts == counts).all(), "the cells are of all messages"
    assert (played.aggregates["messages"] > 1).any()


def test_traffic_waits_for_five_minutes(commuters):
    played = play(APPLICATIONS["traffic"], commuters, every_s=60)
    assert played.aggregates["wait_s"].max() <= 300
    assert played.aggregates["recipients"].unique().tolist() == [40]
    assert played.aggregates["ts"].diff().dropna().dt.total_seconds().min() >= 300


def test_popular_spots_need_twenty_people_and_omit_small_cells(commuters):
    application = replace(APPLICATIONS["popular spots"], join=partial(joins.count_per_cell, least=3, km=8.0))
    played = play(application, commuters, watch=["phone-00000"])
    assert played.aggregates["people"].min() == 20, "a message adds one, so none waits for more"
    assert played.cells["value"].min() >= 3


def test_noise_of_the_receivers_own_place_arrives_sooner(commuters):
    played = play(APPLICATIONS["noise map"], commuters, watch=["phone-00000"], every_s=300)
    waits = played.received["age_s"]
    assert waits[waits < 90].size
    assert waits[waits > 600].size


def test_nearby_friends_are_received_sooner(commuters):
    names = sorted(set(commuters["device"].to_pylist()))[:12]
    positions = commuters.filter([name in names for name in commuters["device"].to_pylist()])
    friends = {names[0]: frozenset(names[1:4])}
    played = play(friends_nearby(friends), positions, watch=names[:2], every_s=300)
    assert not played.problems
    ages = played.received[played.received["receiver"] == names[0]].set_index("sender")["age_s"]
    assert ages[list(names[1:4])].max() <= 300
    assert ages.drop(names[1:4]).max() > 300


def render_map(played, positions, receivers, label):
    frame = positions.select(["lat", "lon"]).to_pandas()
    until_s = float(played.cells["t_s"].max())
    chart = figures.knowledge_map(
        played.cells, frame, receivers, value="value", label=label, every_s=until_s / 8, until_s=until_s
    )
    return chart.get_root().render()


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("name", [*APPLICATIONS, "friends nearby"])
def test_maps_show_near_and_far_receivers_over_time(name, commuters):
    """Check that a near and a far receiver receive the same in the end, and that the map has a slider."""
    names = sorted(set(commuters["device"].to_pylist()))
    places = {"near": (30.27, -97.74), "far": (31.0, -97.74)}
    friends = {"near": frozenset(names), "far": frozenset(names)}
    application = APPLICATIONS.get(name) or friends_nearby(friends)
    if name == "popular spots":  # forty people are too few for the default cells
        application = replace(application, join=partial(joins.count_per_cell, least=3, km=8.0))
    played = play(application, commuters, stationary=places, every_s=300)
    assert not played.problems
    cells = played.cells
    assert cells.groupby("receiver")["messages"].sum().nunique() == 1 or name == "popular spots"
    assert (cells["t_s"] >= cells["reported_s"] - 0.05).all()
    assert cells["distance_km"][cells["receiver"] == "far"].min() > 20
    assert played.sent["receiver"].tolist() == ["far", "near"]
    assert played.sent["messages"].nunique() == 1
    assert played.sent["bytes"].min() > 0
    html = render_map(played, commuters, ("near", "far"), application.quantity)
    assert "mudkitMap.slides(" in html
    assert '"far"' in html
    if name in ("noise map", "friends nearby"):  # their functions depend on the place
        ages = (cells["t_s"] - cells["reported_s"]).groupby(cells["receiver"]).mean()
        assert ages["near"] < ages["far"]


@pytest.mark.soak
def test_distance_uses_the_receivers_position_at_reception(commuters):
    name = commuters["device"][0].as_py()
    played = play(APPLICATIONS["noise map"], commuters, watch=[name], every_s=300)
    track = commuters.filter(pc.equal(commuters["device"], name)).to_pandas().sort_values("ts")
    row = played.cells.iloc[-1]
    start = commuters["ts"].to_pandas().min()
    last = track[(track["ts"] - start).dt.total_seconds() <= row["t_s"]].iloc[-1]
    assert row["distance_km"] == pytest.approx(
        distance_km((last["lat"], last["lon"]), (row["lat"], row["lon"])), abs=1e-6
    )


def test_noise_map_runs_on_recorded_taxis(cabspotting):
    positions = trace.load(cabspotting).positions
    first = pc.min(positions["ts"]).as_py()
    hour = positions.filter(pc.less(positions["ts"], first + dt.timedelta(hours=1)))
    cabs = sorted(set(hour["device"].to_pylist()))
    played = play(APPLICATIONS["noise map"], hour, watch=cabs[:1], every_s=300)
    assert not played.problems
    assert played.aggregates["recipients"].sum() > len(cabs)
    assert len(played.cells) > 20
    assert (played.cells["value"] >= 45).all()
    assert played.received["sender"].nunique() > 50
    assert "mudkitMap.slides(" in render_map(played, hour, cabs[:1], "noise, dB")


@pytest.mark.parametrize("options", [{"watch": ["nobody"]}, {"stationary": {"phone-00000": (30.0, -97.0)}}])
def test_unknown_and_duplicate_devices_are_refused(commuters, options):
    with pytest.raises(ParameterError, match=r"'nobody'|'phone-00000'"):
        play(APPLICATIONS["traffic"], commuters, **options)


def test_function_without_a_key_is_called_per_receiver(commuters):
    """Run an application without a declared key."""

    def near_sooner(sender, receiver):
        return Time(seconds=60 if distance_km(sender["loc"], receiver["loc"]) < 3 else 600)

    application = replace(APPLICATIONS["traffic"], aggregability=Aggregability(near_sooner))
    played = play(application, commuters, watch=["phone-00000"], every_s=600)
    assert not played.problems
    assert played.received["age_s"].max() <= 600
    assert played.aggregates["recipients"].min() < 40, "not everybody gets the same"
