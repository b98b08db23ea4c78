"""What parties could read is found in what they held, also when it is packed, and not when it is encrypted."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.experiment.scoreboard import ENTRANTS, FRIENDS_NEARBY, NEWS, play, readable
from mudkit.experiment.scoreboard.readable import _Held

NEAR = FRIENDS_NEARBY.over(devices=6, hours=0.5)


def shares(entry):
    return readable(entry).set_index("party")


@pytest.fixture(scope="module")
def contrail():
    return play(NEAR, ENTRANTS["Contrail"], 1, name="Contrail")


@pytest.mark.parametrize("name", ["MUD", "Radiator", "SUBLIM"])
def test_who_matches_on_the_server_must_read_there(name):
    found = shares(play(NEAR, ENTRANTS[name], 1, name=name))
    assert (found.loc["servers"] == 1.0).all(), "also Radiator, whose messages are packed"
    assert found.loc["other devices", "contents"] < (1.0 if name == "Radiator" else 0.2)
    assert (found.loc["other devices", ["phone_places", "wants"]] == 0.0).all()


def test_a_relay_reads_nothing_and_who_filters_reads_the_filters(contrail):
    found = shares(contrail)
    assert (found.loc["servers"] == 0.0).all()
    assert (found.loc["other devices", ["phone_places", "wants"]] == 1.0).all()
    assert found.loc["other devices", "contents"] < 0.5


def test_the_same_search_finds_what_an_open_relay_holds(contrail):
    """All is found as soon as a server holds it."""
    held, stage = contrail.lab.trace.held, contrail.stage
    lat, lon = contrail.lab.frame("positions").query("device == @stage.phones[0]")[["lat", "lon"]].iloc[0]
    held.note("contrail-gateway", "contrail", "received", {"loc": (lat, lon)}, 0)
    held.note("contrail-gateway", "contrail", "stored", gzip.compress(stage.items[0].content.encode()), 0)
    friends = [stage.about(phone)["friends"] for phone in stage.phones]
    longest = max(friends, key=len)
    held.note("contrail-gateway", "contrail", "stored", longest, 0)
    found = shares(contrail).loc["servers"]
    assert found["contents"] == pytest.approx(1 / len(stage.items))
    assert found["phone_places"] == pytest.approx(1 / 6)
    assert found["wants"] == sum(each in longest for each in friends) / 6 < 1.0


def test_to_everyone_is_to_everyone():
    found = shares(play(NEWS.over(devices=4, hours=3.0), ENTRANTS["to everyone"], 1, name="all"))
    assert (found["contents"] == 1.0).all(), "a phone that does not want an item holds it"
    assert (found["wants"] == 0.0).all()
    assert np.isnan(found[["item_places", "phone_places"]].to_numpy()).all()


def test_what_is_packed_is_read_and_what_only_looks_so_is_kept():
    packed = [gzip.compress(b"the secret 1.25 -2.5"), zlib.compress(b"another"), b"\x1f\x8b broken"]
    held = _Held(packed)
    assert held.has(b"the secret")
    assert held.has(b"another")
    assert held.has(b"broken")
    assert held.has_place((1.25, -2.5))
    assert not held.has_place((1.25, 2.5))
    assert not held.has(b"the secret another")


def test_an_entry_that_keeps_nothing_says_so():
    entry = play(NEAR, ENTRANTS["to everyone"], 1, name="all", held=False)
    with pytest.raises(ParameterError, match="held=True"):
        readable(entry)
