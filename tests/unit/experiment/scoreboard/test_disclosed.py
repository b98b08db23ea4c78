"""Where readers are and what they want is found at whom the system tells it, and nowhere else."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.scoreboard import disclosed, play
from mudkit.experiment.tasks import FRIENDS_NEARBY, NEWS

NEAR = FRIENDS_NEARBY.over(devices=6, hours=0.5)
BOTH = ["places", "wants"]


def shares(entry):
    return disclosed(entry).set_index("party")


@pytest.fixture(scope="module")
def contrail():
    return play(NEAR, ADAPTERS["Contrail"], 1, name="Contrail")


@pytest.mark.parametrize("name", ["MUD", "Last hop", "Radiator", "SUBLIM"])
def test_where_servers_choose_they_know_and_devices_do_not(name):
    result = shares(play(NEAR, ADAPTERS[name], 1, name=name))
    assert (result.loc["servers", BOTH] == 1.0).all()
    assert (result.loc["another device", BOTH] == 0.0).all()


def test_where_senders_choose_they_know_and_servers_do_not(contrail):
    result = shares(contrail)
    assert (result.loc["servers", BOTH] == 0.0).all()
    assert (result.loc["another device", BOTH] == 1.0).all()


def test_the_same_search_finds_what_a_relay_holds(contrail):
    held, testbed = contrail.lab.trace.held, contrail.testbed
    rows = contrail.lab.frame("positions").query("device == @testbed.phones[0]")
    lat, lon = rows[["lat", "lon"]].iloc[0]
    friends = [testbed.about(phone)["friends"] for phone in testbed.phones]
    longest = max(friends, key=len)
    held.note("contrail-gateway", "contrail", "received", {"loc": (lat, lon)}, 0)
    held.note("contrail-gateway", "contrail", "stored", gzip.compress(longest.encode()), 0)
    result = shares(contrail).loc["servers"]
    assert result["places"] == pytest.approx(1 / 6)
    assert result["wants"] == sum(each in longest for each in friends) / 6 < 1.0


def test_who_sends_to_everyone_needs_to_know_nothing():
    result = shares(play(NEWS.over(devices=4, hours=3.0), ADAPTERS["to everyone"], 1, name="all"))
    assert (result["wants"] == 0.0).all()
    assert np.isnan(result["places"]).all()


def test_a_feed_that_filters_knows_what_its_readers_want():
    result = shares(play(NEWS.over(devices=3, hours=2.0), ADAPTERS["Contrail"], 1, name="Contrail"))
    assert result.loc["another device", "wants"] == 1.0


def test_an_entry_that_keeps_nothing_says_so():
    entry = play(NEAR, ADAPTERS["to everyone"], 1, name="all", held=False)
    with pytest.raises(ParameterError, match="held=True"):
        disclosed(entry)
