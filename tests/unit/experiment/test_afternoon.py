"""The afternoon of chapter 05: who filters, what leaves the phone, and what servers can read."""

import pytest

from mudkit.experiment import Afternoon, album_keys, interest_costs

PLAN = Afternoon(hours=0.7, area_km=2.0, roam_km=5.0)
SEED = 7


@pytest.fixture(scope="module")
def runs():
    return {way: PLAN.run(SEED, way) for way in ("sender", "in clear", "all", "cloud")}


def test_only_places_outside_leave_the_phone_of_a_sender_that_filters(runs):
    for way in ("sender", "in clear"):
        places = runs[way].places
        assert places["is_sent"].equals(places["is_away"])
        assert 0 < places["is_away"].sum() < len(places) == 42
    for way in ("all", "cloud"):
        assert runs[way].places["is_sent"].all()


def test_all_walk_the_same_way(runs):
    walked = [run.places[["lat", "lon"]].to_numpy().tolist() for run in runs.values()]
    assert all(walk == walked[0] for walk in walked)


def test_what_servers_could_read(runs):
    read = {way: run.measures() for way, run in runs.items()}
    shares = {way: (row["outside_read_share"], row["inside_read_share"]) for way, row in read.items()}
    assert shares == {"sender": (0, 0), "in clear": (1, 0), "all": (0, 0), "cloud": (1, 1)}
    assert [way for way, row in read.items() if row["filter_read"]] == ["in clear", "cloud"]
    assert read["sender"]["child_kb"] < read["all"]["child_kb"]
    assert read["sender"]["child_radio_j"] < read["all"]["child_radio_j"]


def test_the_relay_guesses_from_traffic_and_with_the_filter_turned_round_from_silence(runs):
    guesses = runs["sender"].relay_guesses()
    assert guesses["by traffic"] > 0.9 > guesses["always at home"]
    turned = PLAN.run(SEED, predicate=PLAN.inside)
    assert (turned.places["is_sent"] != turned.places["is_away"]).all()
    assert turned.relay_guesses()["by silence"] > 0.9


def test_few_who_are_interested_save_energy_and_many_cost_it():
    few, many = (interest_costs(share, 1, items=8, filter_polling_s=120.0) for share in (0.0, 1.0))
    assert few["sender filters"]["uploads"] == 0
    assert many["sender filters"]["uploads"] == many["all is sent"]["uploads"] == 8
    assert few["sender filters"]["sender_j"] < few["all is sent"]["sender_j"]
    assert many["sender filters"]["sender_j"] > many["all is sent"]["sender_j"]


def test_a_key_changes_when_a_friend_comes_or_goes():
    keys = album_keys(SEED).set_index("event")
    assert keys["key"].tolist() == ["1", "2", "3"]
    assert keys["bob_keys"].tolist() == ["1", "1, 2", "1, 2"]
    assert keys["ann_keys"].tolist() == ["none", "2", "2, 3"]
