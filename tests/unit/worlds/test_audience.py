"""Moving audience: readers notified of each write, and bytes and energy of each method."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mudkit.units import distance_km
from mudkit.worlds import Audience
from mudkit.worlds.audience import _Run

AUDIENCE = Audience(readers=25)


@pytest.fixture(scope="module")
def runs():
    return {method: AUDIENCE.run(3, method) for method in Audience.METHODS}


def is_notified(table):
    return table["change"] == "upsert"


def test_readers_move_identically_with_all_methods(runs):
    columns = ["write", "reader", "age", "lat", "lon", "is_intended"]
    tables = [run.readers[columns] for run in runs.values()]
    assert all(table.equals(tables[0]) for table in tables)
    assert len(tables[0]) == AUDIENCE.readers * AUDIENCE.writes
    assert tables[0].groupby("reader")["lat"].nunique().min() > 1


def test_intended_readers_are_adult_and_near(runs):
    table = runs["predicate"].readers
    km = distance_km(AUDIENCE.lat, AUDIENCE.lon, table["lat"], table["lon"])
    is_intended = (km <= AUDIENCE.reach_km) & (table["age"] >= AUDIENCE.adult_years)
    assert is_intended.tolist() == table["is_intended"].tolist()
    assert 0 < is_intended.sum() < len(is_intended)


def test_predicate_notifies_readers_reported_as_near(runs):
    table = runs["predicate"].readers
    assert is_notified(table).tolist() == table["is_known_near"].tolist()
    assert (table["is_known_near"] != table["is_intended"]).any(), "what they said is old"


def test_readers_who_leave_receive_a_removal(runs):
    table = runs["predicate"].readers.sort_values("write")
    was_notified = table.assign(had=is_notified(table)).groupby("reader")["had"].shift(fill_value=False)
    has_left = was_notified & ~table["is_known_near"]
    assert has_left.any()
    assert (table["change"] == "remove").tolist() == has_left.tolist()
    assert set(table.loc[has_left, "state"]) <= {"removed"}


def test_list_notifies_the_same_readers_at_each_write(runs):
    table = runs["list"].readers
    first = set(table[(table["write"] == 1) & table["is_intended"]]["reader"])
    for _, part in table.groupby("write"):
        assert set(part[is_notified(part)]["reader"]) == first
    assert is_notified(runs["everyone"].readers).all()


def test_predicate_costs_upload_and_everyone_download(runs):
    up, down = (
        {
            method: run.lab.bill().query(f"device != 'jane' and direction == '{direction}'")["bytes"].sum()
            for method, run in runs.items()
        }
        for direction in ("up", "down")
    )
    assert up["predicate"] > 3 * up["everyone"]
    assert down["everyone"] > 3 * down["list"]


def test_the_last_change_that_reaches_a_reader_counts():
    """A reader who is notified of a write, and then that it has lost sight of it, has a removal."""
    changes, reader = {"ann": []}, {"ann": {"age": 40, "loc": (AUDIENCE.lat, AUDIENCE.lon)}}
    run = SimpleNamespace(
        audience=AUDIENCE, method="everyone", reported=reader, names=[], ages={"ann": 40}, rows=[],
        changes=changes, _data=lambda: reader,
        lab=SimpleNamespace(world=SimpleNamespace(now_us=0), run=lambda **_: None),
        jane=SimpleNamespace(write=lambda *_, **__: changes["ann"].extend(["upsert", "remove"])),
    )  # fmt: skip
    _Run.write(run, 1)
    (row,) = run.rows
    assert row[-2] == "remove"


def test_states_agree_with_changes_and_intention(runs):
    for run in runs.values():
        table = run.readers
        assert set(table["state"]) <= set(Audience.STATES)
        assert (
            table["state"].isin(["intended, not notified", "neither", "removed"]) == ~is_notified(table)
        ).all()
        assert (table["state"] == "notified, not intended").sum() == (
            is_notified(table) & ~table["is_intended"]
        ).sum()
    states = runs["everyone"].readers.set_index(["write", "reader"])["state"]
    assert "notified again" not in set(states.loc[1])
    assert "notified for the first time" in set(states.loc[1])


def test_measures_count_notifications_and_charge_reader_devices_only(runs):
    for run in runs.values():
        table, bill, measures = run.readers, run.lab.bill(), run.measures()
        assert measures["notified"] == is_notified(table).sum()
        assert measures["notified_intended"] + measures["missed_intended"] == table["is_intended"].sum()
        devices = bill[bill["device"].str.startswith("reader")]
        assert measures["up_bytes"] + measures["down_bytes"] == devices["bytes"].sum() < bill["bytes"].sum()
        assert measures["reader_bytes"] == pytest.approx(devices["bytes"].sum() / len(table))
        assert measures["reader_j"] == pytest.approx(devices["radio_mj"].sum() / 1000 / len(table))


def test_predicate_saves_bytes_only_with_few_intended_readers():
    cost = {
        (years, method): Audience(8, 6.0, 9.0, years, 2, article_bytes=20_000).run(1, method).measures()
        for years in (65, 10)
        for method in ("predicate", "everyone")
    }
    bytes_ = {key: measures["reader_bytes"] for key, measures in cost.items()}
    assert bytes_[65, "predicate"] < bytes_[65, "everyone"]
    assert bytes_[10, "predicate"] > bytes_[10, "everyone"]
