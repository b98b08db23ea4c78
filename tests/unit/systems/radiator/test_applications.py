"""Applications on a generated fleet and on the recorded taxis."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc
import pytest

from mudkit import Lab, trace
from mudkit.errors import ParameterError
from mudkit.systems.radiator import APPLICATIONS, friends_nearby, joins, play


@pytest.fixture(scope="module")
def commuters():
    lab = Lab(seed=4, messages=False)
    lab.fleet(40, mobility="commute", every_s=60)
    lab.run(hours=1.5)
    return lab.trace.table("positions")


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
        of_messages = played.heard.groupby("receiver")["messages"].sum()
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
    assert played.heard["value"].min() >= 3


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


def test_on_the_recorded_taxis(cabspotting):
    positions = trace.load(cabspotting).positions
    first = pc.min(positions["ts"]).as_py()
    hour = positions.filter(pc.less(positions["ts"], first + dt.timedelta(hours=1)))
    cabs = sorted(set(hour["device"].to_pylist()))
    played = play(APPLICATIONS["noise map"], hour, watch=cabs[:1], every_s=300)
    assert not played.problems
    assert played.aggregates["recipients"].sum() > len(cabs)
    assert len(played.heard) > 20
    assert (played.heard["value"] >= 45).all()
    assert played.received["sender"].nunique() > 50


def test_a_device_that_is_not_there(commuters):
    with pytest.raises(ParameterError, match="'nobody'"):
        play(APPLICATIONS["traffic"], commuters, watch=["nobody"])
