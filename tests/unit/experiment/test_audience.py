"""The moving audience: who is told at each write, by what readers said last, and what each way costs."""

from __future__ import annotations

import pytest

from mudkit.experiment import Audience
from mudkit.units import distance_km

AUDIENCE = Audience(readers=25)


@pytest.fixture(scope="module")
def runs():
    return {way: AUDIENCE.run(3, way) for way in Audience.METHODS}


def is_told(table):
    return table["change"] == "upsert"


def test_everybody_moves_alike_whatever_the_way(runs):
    columns = ["write", "reader", "age", "lat", "lon", "is_intended"]
    tables = [run.readers[columns] for run in runs.values()]
    assert all(table.equals(tables[0]) for table in tables)
    assert len(tables[0]) == AUDIENCE.readers * AUDIENCE.writes
    assert tables[0].groupby("reader")["lat"].nunique().min() > 1


def test_meant_are_those_who_are_old_enough_and_near(runs):
    table = runs["predicate"].readers
    km = distance_km(AUDIENCE.lat, AUDIENCE.lon, table["lat"], table["lon"])
    meant = (km <= AUDIENCE.reach_km) & (table["age"] >= AUDIENCE.adult_years)
    assert meant.tolist() == table["is_intended"].tolist()
    assert 0 < meant.sum() < len(meant)


def test_the_predicate_tells_those_who_said_that_they_are_near(runs):
    table = runs["predicate"].readers
    assert is_told(table).tolist() == table["is_known_near"].tolist()
    assert (table["is_known_near"] != table["is_intended"]).any(), "what they said is old"


def test_what_was_told_is_taken_back_from_who_went_away(runs):
    table = runs["predicate"].readers.sort_values("write")
    had = table.assign(had=is_told(table)).groupby("reader")["had"].shift(fill_value=False)
    gone = had & ~table["is_known_near"]
    assert gone.any()
    assert (table["change"] == "remove").tolist() == gone.tolist()
    assert set(table.loc[gone, "state"]) <= {"removed"}


def test_a_list_tells_the_same_at_each_write_and_nobody_says_where_it_is(runs):
    table = runs["list"].readers
    first = set(table[(table["write"] == 1) & table["is_intended"]]["reader"])
    for _, part in table.groupby("write"):
        assert set(part[is_told(part)]["reader"]) == first
    assert is_told(runs["everyone"].readers).all()


def test_only_a_predicate_costs_bytes_upwards(runs):
    up, down = (
        {
            way: run.lab.bill().query(f"device != 'jane' and direction == '{to}'")["bytes"].sum()
            for way, run in runs.items()
        }
        for to in ("up", "down")
    )
    assert up["predicate"] > 3 * up["everyone"]
    assert down["everyone"] > 3 * down["list"]


def test_states_say_what_happened(runs):
    for run in runs.values():
        table = run.readers
        assert set(table["state"]) <= set(Audience.STATES)
        assert (
            table["state"].isin(["intended, not notified", "neither", "removed"]) == ~is_told(table)
        ).all()
        assert (table["state"] == "notified, not intended").sum() == (
            is_told(table) & ~table["is_intended"]
        ).sum()
    states = runs["everyone"].readers.set_index(["write", "reader"])["state"]
    assert "notified again" not in set(states.loc[1])
    assert "notified for the first time" in set(states.loc[1])


def test_measures_count_who_was_told_and_charge_the_devices_of_readers_alone(runs):
    for run in runs.values():
        table, bill, measures = run.readers, run.lab.bill(), run.measures()
        assert measures["notified"] == is_told(table).sum()
        assert measures["notified_intended"] + measures["missed_intended"] == table["is_intended"].sum()
        devices = bill[bill["device"].str.startswith("reader")]
        assert measures["up_bytes"] + measures["down_bytes"] == devices["bytes"].sum() < bill["bytes"].sum()
        assert measures["reader_bytes"] == pytest.approx(devices["bytes"].sum() / len(table))
        assert measures["reader_j"] == pytest.approx(devices["radio_mj"].sum() / 1000 / len(table))


def test_a_predicate_saves_bytes_where_few_are_meant_and_costs_some_where_all_are():
    cost = {
        (years, way): Audience(8, 6.0, 9.0, years, 2, article_bytes=20_000).run(1, way).measures()
        for years in (65, 10)
        for way in ("predicate", "everyone")
    }
    bytes_ = {key: measures["reader_bytes"] for key, measures in cost.items()}
    assert bytes_[65, "predicate"] < bytes_[65, "everyone"]
    assert bytes_[10, "predicate"] > bytes_[10, "everyone"]
