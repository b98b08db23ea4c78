"""Afternoon of chapter 05: sender filters, places sent by the phone, and data readable by servers."""

import pytest

from mudkit.errors import ParameterError
from mudkit.experiment import Afternoon, album_keys, contrail_scenarios, interest_costs

PLAN = Afternoon(hours=0.7, area_km=2.0, roam_km=5.0)
SEED = 7


@pytest.fixture(scope="module")
def runs():
    return {method: PLAN.run(SEED, method) for method in ("sender", "in clear", "all", "cloud")}


def test_sender_filters_send_only_places_outside_the_area(runs):
    for method in ("sender", "in clear"):
        places = runs[method].places
        assert places["is_sent"].equals(places["is_away"])
        assert 0 < places["is_away"].sum() < len(places) == 42
    for method in ("all", "cloud"):
        assert runs[method].places["is_sent"].all()


def test_all_methods_use_the_same_paths(runs):
    paths = [run.places[["lat", "lon"]].to_numpy().tolist() for run in runs.values()]
    assert all(path == paths[0] for path in paths)


def test_data_readable_by_servers_depends_on_the_method(runs):
    read = {method: run.measures() for method, run in runs.items()}
    shares = {method: (row["outside_read_share"], row["inside_read_share"]) for method, row in read.items()}
    assert shares == {"sender": (0, 0), "in clear": (1, 0), "all": (0, 0), "cloud": (1, 1)}
    assert [method for method, row in read.items() if row["filter_read"]] == ["in clear", "cloud"]
    assert read["sender"]["child_kb"] < read["all"]["child_kb"]
    assert read["sender"]["child_radio_j"] < read["all"]["child_radio_j"]


def test_relay_guesses_from_traffic_or_with_inverted_filter_from_silence(runs):
    guesses = runs["sender"].relay_guesses()
    assert guesses["by traffic"] == 1 > guesses["always at home"]
    inverted = PLAN.run(SEED, predicate=PLAN.inside)
    assert (inverted.places["is_sent"] != inverted.places["is_away"]).all()
    assert inverted.relay_guesses()["by silence"] > 0.9


def test_sender_filters_save_energy_only_with_few_interested_friends():
    few, many = (interest_costs(share, 1, items=8, filter_polling_s=120.0) for share in (0.0, 1.0))
    assert few["sender filters"]["uploads"] == 0
    assert many["sender filters"]["uploads"] == many["all is sent"]["uploads"] == 8
    assert few["sender filters"]["sender_j"] < few["all is sent"]["sender_j"]
    assert many["sender filters"]["sender_j"] > many["all is sent"]["sender_j"]


def test_wishes_and_the_interval_of_polls_are_those_that_are_given(monkeypatch):
    """Shares are of items, from 0 to 1; seconds become milliseconds of the ports."""
    passed_on = {}
    monkeypatch.setattr(
        contrail_scenarios,
        "_interest",
        lambda filters, polling_ms, *rest: passed_on.update({polling_ms: filters}),
    )
    interest_costs(0.25, 1, friends=2, filter_polling_s=2.0)
    assert passed_on.pop(2000.0) == ["wish_0 < 0.25", "wish_1 < 0.25"]
    assert list(passed_on.values()) == [["wish_0 IS NOT NULL"] * 2]
    with pytest.raises(ParameterError, match="share"):
        interest_costs(1.5, 1)


def test_album_key_changes_when_a_friend_joins_or_leaves():
    keys = album_keys(SEED).set_index("event")
    assert keys["key"].tolist() == ["1", "2", "3"]
    assert keys["bob_keys"].tolist() == ["1", "1, 2", "1, 2"]
    assert keys["ann_keys"].tolist() == ["none", "2", "2, 3"]
