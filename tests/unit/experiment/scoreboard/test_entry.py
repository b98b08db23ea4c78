"""An entry: same task for all, and measures that the trace gives again."""

from __future__ import annotations

from functools import partial
from statistics import median, quantiles

import pytest

from mudkit import trace
from mudkit.errors import ParameterError
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.compositions import COMPOSITIONS
from mudkit.experiment.scoreboard import MEASURES, play
from mudkit.experiment.scoreboard.entry import BATTERY_J
from mudkit.experiment.tasks import APP, NEWS, TASKS, TRAFFIC, Testbed
from mudkit.experiment.tasks.task import SETTLE_S
from mudkit.fleet.battery import BASE_MW
from mudkit.sources.workloads import Poisson
from mudkit.units import distance_km

_SMALL = {
    "traffic alerts": {"devices": 8, "hours": 0.5},
    "friends nearby": {"devices": 8, "hours": 0.5},
    "ward telemetry": {"devices": 3, "hours": 0.1},
    "news with ranks": {"devices": 6, "hours": 8.0},
    "photo sharing": {"devices": 6, "hours": 6.0},
}
small = {name: TASKS[name].over(**changes) for name, changes in _SMALL.items()}


@pytest.fixture(scope="module")
def entries():
    """One run of each system and task."""
    return {
        (task, system): play(small[task], make, seed=2, name=system, messages=False)
        for task in small
        for system, make in ADAPTERS.items()
    }


@pytest.mark.parametrize("task", small)
def test_all_systems_are_given_the_same(entries, task):
    of_task = [entry for (name, _), entry in entries.items() if name == task]
    assert len({entry.digest for entry in of_task}) == 1
    assert len({entry.testbed.wanted for entry in of_task}) == 1
    assert of_task[0].digest != play(small[task], ADAPTERS["SUBLIM"], seed=3, messages=False).digest


@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", small)
def test_a_system_does_a_task(entries, task, system):
    entry = entries[task, system]
    result = entry.measures()
    assert list(result) == list(MEASURES)
    assert entry.testbed.wanted > 0
    assert result["useful"] > 0
    assert result["server_kb"] > 0
    assert result["server_events"] > 0


@pytest.mark.parametrize(
    ("task", "system", "seed"),
    [
        ("news with ranks", "Last hop", 0),  # a message of a read is lost
        ("news with ranks", "Last hop", 1),  # the hello of the desk to which items go up
        ("news with ranks", "SUBLIM", 1),
        ("ward telemetry", "to everyone", 1),  # what is sent all the time put off what was lost
    ],
)
def test_what_was_lost_and_can_be_sent_again_is_of_use_all_the_same(task, system, seed):
    with_loss, without = (
        play(
            small[task].over(loss_share=share), ADAPTERS[system], seed, messages=False, held=False
        ).measures()
        for share in (0.05, 0.0)
    )
    assert with_loss["useful"] >= 0.97 * without["useful"] > 0


@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", small)
def test_measures_come_from_the_trace(entries, task, system, tmp_path):
    entry = entries[task, system]
    folder = entry.lab.trace.to_parquet(tmp_path / "trace")
    bill, all_rows = (trace.read_table(folder, name).to_pylist() for name in ("bill", "deliveries"))
    rows = [row for row in all_rows if row["system"] == APP]
    useful = [row for row in rows if row["status"] == "read"]
    phones = [row for row in bill if row["device"].startswith("phone-")]
    radio_j = sum(row["radio_mj"] for row in phones) / 1000
    seconds = entry.task.scenario.hours * 3600 + SETTLE_S
    came = [row for row in rows if row["delivered"] is not None]
    lags = sorted((row["delivered"] - row["created"]).total_seconds() for row in useful)
    ages = [(row["read"] - row["created"]).total_seconds() for row in useful]
    kb = sum(row["bytes"] for row in bill) / 1000
    expected = {
        "useful": len(useful),
        "useful_share": len(useful) / entry.testbed.wanted,
        "lost": sum(row["delivered"] is None for row in rows),
        "stale": sum(row["status"] == "expired" for row in came),
        "wasted": sum(row["status"] != "read" for row in came),
        "latency_s": median(lags),
        "latency_p95_s": quantiles(lags, n=20, method="inclusive")[-1] if lags[1:] else lags[0],
        "age_s": median(ages),
        "up_kb": sum(row["bytes"] for row in bill if row["direction"] == "up") / 1000,
        "down_kb": sum(row["bytes"] for row in bill if row["direction"] == "down") / 1000,
        "messages": sum(row["messages"] for row in bill),
        "wakeups": sum(row["wakeups"] for row in phones),
        "radio_j": radio_j,
        "battery_h": BATTERY_J / (radio_j / seconds / entry.task.scenario.devices + BASE_MW / 1000) / 3600,
        "kb_per_useful": kb / len(useful),
        "j_per_useful": radio_j / len(useful),
    }
    result = entry.measures()
    assert set(result) - set(expected) == {"server_events", "server_kb"}, "servers are on no bill"
    assert {name: result[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("task", ["news with ranks", "photo sharing"])
def test_what_last_hop_has_prefetched_is_on_the_phone(entries, task):
    entry = entries[task, "Last hop"]
    rows = entry.lab.deliveries()
    came = {
        (row.item, row.receiver): row.delivered
        for row in rows[(rows["system"] == "last hop") & rows["delivered"].notna()].itertuples()
    }
    ours = entry.deliveries[entry.deliveries["delivered"].notna()]
    assert {(row.item, row.receiver): row.delivered for row in ours.itertuples()} == came
    assert "read" in set(ours["status"])
    assert task != "news with ranks" or entry.measures()["wasted"] > 0, "some is never read"


@pytest.mark.parametrize("system", [*ADAPTERS, *COMPOSITIONS])
def test_nobody_is_sent_what_she_has_published(system, monkeypatch):
    came = []
    monkeypatch.setattr(Testbed, "arrived", lambda testbed, phone, item: came.append((phone, item)))
    make = (ADAPTERS | COMPOSITIONS)[system]
    play(TRAFFIC.over(devices=6, hours=0.3, outage=0.0), make, seed=4, held=False)
    assert came, "also what a system has held back until then"
    assert not [each for each in came if each[1].startswith(f"{each[0]} ")]


def test_what_waits_for_nobody_at_radiators_server_is_billed_in_the_end(entries):
    entry = entries["friends nearby", "Radiator"]
    online = entries["friends nearby", "to everyone"]
    came, most = (int(each.deliveries["delivered"].notna().sum()) for each in (entry, online))
    assert came > 0.9 * most > 0


def test_contrail_keeps_its_connections_open_if_it_is_told_to():
    task = small["ward telemetry"]
    polls = play(task, ADAPTERS["Contrail"], seed=2).measures()
    pushes = play(task, partial(ADAPTERS["Contrail"], polling_interval_ms=0), seed=2)
    result = pushes.measures()
    assert pushes.system == "Contrail"
    assert result["latency_s"] < 1.0 < polls["latency_s"] < 60.0
    assert result["useful_share"] > 0.9
    assert result["messages"] < 20 * polls["messages"]


@pytest.mark.parametrize("changes", [{"battery_j": 150.0}, {"queries": Poisson(per_day=4)}])
def test_what_no_task_uses_is_refused(changes):
    (name,) = changes
    with pytest.raises(ParameterError, match=f"does not use {name}"):
        TRAFFIC.over(**changes)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_have_names(name):
    assert play(small["ward telemetry"], COMPOSITIONS[name], seed=2, held=False).system


def test_a_run_is_a_function_of_its_seed():
    one, again = (play(small["traffic alerts"], ADAPTERS["MUD"], seed=5).measures() for _ in range(2))
    assert one == again


def test_who_wants_an_item_is_judged_where_everybody_is():
    entry = play(TRAFFIC.over(devices=10, hours=0.5), ADAPTERS["to everyone"], seed=4)
    where = dict(list(entry.lab.frame("positions").groupby("device")))
    rows = entry.deliveries
    created = rows.groupby("item")["created"].first()
    near, far = set(), set()
    for item, at in created.items():
        for phone in entry.testbed.phones:
            before = where[phone][where[phone]["ts"] <= at]
            here = before.iloc[-1]
            km = float(distance_km(*entry.testbed.items[item].about["loc"], here["lat"], here["lon"]))
            if (
                phone != entry.testbed.items[item].sender and abs(km - 3.0) > 0.9
            ):  # since it was seen it moved
                (near if km < 3.0 else far).add((item, phone))
    wanting = {
        (item, phone)
        for item in created.index
        for phone in entry.testbed.phones
        if phone != entry.testbed.items[item].sender and entry.testbed.is_for(item, phone)
    }
    assert near
    assert far
    assert near <= wanting
    assert not far & wanting


def test_a_reader_reads_so_many_in_one_go():
    entry = play(NEWS.over(devices=3, hours=24.0), ADAPTERS["to everyone"], seed=1)
    read = entry.deliveries[entry.deliveries["status"] == "read"]
    assert read.groupby(["receiver", "read"]).size().max() == NEWS.most
