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
def test_every_message_goes_to_all_once(name, commuters):
    played = play(APPLICATIONS[name], commuters, watch=["phone-00000", "phone-00007"], every_s=120)
    assert not played.problems
    assert len(played.aggregates) > 3
    for receiver, rows in played.received.groupby("receiver"):
        assert not rows.duplicated(["sender", "age_s", "ts"]).any(), receiver
    counts = played.received["receiver"].value_counts()
    assert counts.nunique() == 1, "both got all, sooner or later"
    if name in ("traffic", "noise map"):
        of_messages = played.cells.groupby("receiver")["messages"].sum()
        assert (of_messages == counts).all(), "the cells are of all messages"
    assert (played.aggregates["messages"] > 1).any()


def test_traffic_waits_for_five_minutes(commuters):
    played = play(APPLICATIONS["traffic"], commuters, every_s=60)
    assert played.aggregates["wait_s"].max() <= 300
    assert played.aggregates["recipients"].unique().tolist() == [40]
    assert played.aggregates["ts"].diff().dropna().dt.total_seconds().min() >= 300


def test_popular_spots_are_of_twenty_people_and_leave_out_the_few(commuters):
    wide = replace(APPLICATIONS["popular spots"], join=partial(joins.count_per_cell, least=3, km=8.0))
    played = play(wide, commuters, watch=["phone-00000"])
    assert played.aggregates["people"].min() >= 20
    assert played.cells["value"].min() >= 3


def test_the_noise_of_ones_own_place_comes_sooner(commuters):
    played = play(APPLICATIONS["noise map"], commuters, watch=["phone-00000"], every_s=300)
    waits = played.received["age_s"]
    assert waits[waits < 90].size
    assert waits[waits > 600].size


def test_friends_near_by_are_told_at_once(commuters):
    names = sorted(set(commuters["device"].to_pylist()))[:12]
    few = commuters.filter([name in names for name in commuters["device"].to_pylist()])
    friends = {names[0]: frozenset(names[1:4])}
    played = play(friends_nearby(friends), few, watch=names[:2], every_s=300)
    assert not played.problems
    mine = played.received[played.received["receiver"] == names[0]].set_index("sender")["age_s"]
    assert mine[list(names[1:4])].max() <= 300
    assert mine.drop(names[1:4]).max() > 300


def drawn(played, ground, receivers, tells):
    frame = ground.select(["lat", "lon"]).to_pandas()
    until_s = float(played.cells["t_s"].max())
    made = figures.knowledge_map(
        played.cells, frame, receivers, value="value", label=tells, every_s=until_s / 8, until_s=until_s
    )
    return made.get_root().render()


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("name", [*APPLICATIONS, "friends nearby"])
def test_each_is_drawn_over_time_near_by_and_far_away(name, commuters):
    """Who stands in the middle and who far away get the same in the end; a map has a slider for both."""
    names = sorted(set(commuters["device"].to_pylist()))
    stand = {"near": (30.27, -97.74), "far": (31.0, -97.74)}
    friends = {"near": frozenset(names), "far": frozenset(names)}
    application = APPLICATIONS.get(name) or friends_nearby(friends)
    if name == "popular spots":  # forty people are few for a town
        application = replace(application, join=partial(joins.count_per_cell, least=3, km=8.0))
    played = play(application, commuters, stationary=stand, every_s=300)
    assert not played.problems
    heard = played.cells
    assert heard.groupby("receiver")["messages"].sum().nunique() == 1 or name == "popular spots"
    assert (heard["t_s"] >= heard["reported_s"] - 0.05).all()
    assert heard["distance_km"][heard["receiver"] == "far"].min() > 20
    assert played.sent["receiver"].tolist() == ["far", "near"]
    assert played.sent["messages"].nunique() == 1
    assert played.sent["bytes"].min() > 0
    answer = drawn(played, commuters, ("near", "far"), application.quantity)
    assert "mudkitMap.slides(" in answer
    assert '"far"' in answer
    if name in ("noise map", "friends nearby"):  # their functions look at the place
        ages = (heard["t_s"] - heard["reported_s"]).groupby(heard["receiver"]).mean()
        assert ages["near"] < ages["far"]


@pytest.mark.soak
def test_where_a_receiver_was_when_it_heard(commuters):
    name = commuters["device"][0].as_py()
    played = play(APPLICATIONS["noise map"], commuters, watch=[name], every_s=300)
    own = commuters.filter(pc.equal(commuters["device"], name)).to_pandas().sort_values("ts")
    row = played.cells.iloc[-1]
    start = commuters["ts"].to_pandas().min()
    last = own[(own["ts"] - start).dt.total_seconds() <= row["t_s"]].iloc[-1]
    assert row["distance_km"] == pytest.approx(
        distance_km((last["lat"], last["lon"]), (row["lat"], row["lon"])), abs=1e-6
    )


def test_on_the_recorded_taxis(cabspotting):
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
    assert "mudkitMap.slides(" in drawn(played, hour, cabs[:1], "noise, dB")


@pytest.mark.parametrize("wrong", [{"watch": ["nobody"]}, {"stationary": {"phone-00000": (30.0, -97.0)}}])
def test_a_device_that_is_not_there_or_is_already(commuters, wrong):
    with pytest.raises(ParameterError, match=r"'nobody'|'phone-00000'"):
        play(APPLICATIONS["traffic"], commuters, **wrong)


def test_a_function_without_a_key_is_asked_for_each(commuters):
    """An application of one's own need not declare what it looks at."""

    def near_sooner(sender, receiver):
        return Time(seconds=60 if distance_km(sender["loc"], receiver["loc"]) < 3 else 600)

    own = replace(APPLICATIONS["traffic"], aggregability=Aggregability(near_sooner))
    played = play(own, commuters, watch=["phone-00000"], every_s=600)
    assert not played.problems
    assert played.received["age_s"].max() <= 600
    assert played.aggregates["recipients"].min() < 40, "not everybody gets the same"
