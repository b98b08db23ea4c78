"""An entry: same task for all, and measures that the trace gives again."""

from __future__ import annotations

import math

import pytest

from mudkit import trace
from mudkit.experiment.scoreboard import APP, ENTRANTS, MEASURES, NEWS, TASKS, TRAFFIC, play
from mudkit.experiment.scoreboard.entry import BATTERY_J
from mudkit.fleet.battery import BASE_MW

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
        for system, make in ENTRANTS.items()
    }


@pytest.mark.parametrize("task", small)
def test_all_systems_are_given_the_same(entries, task):
    of_task = [entry for (name, _), entry in entries.items() if name == task]
    assert len({entry.digest for entry in of_task}) == 1
    assert len({entry.stage.wanted for entry in of_task}) == 1
    assert of_task[0].digest != play(small[task], ENTRANTS["SUBLIM"], seed=3, messages=False).digest


@pytest.mark.parametrize("system", ENTRANTS)
@pytest.mark.parametrize("task", small)
def test_a_system_does_a_task(entries, task, system):
    entry = entries[task, system]
    found = entry.measures()
    assert list(found) == list(MEASURES)
    assert entry.stage.wanted > 0
    came_to_nothing = found["useful"] == 0
    assert not came_to_nothing or (system == "Contrail" and task == "ward telemetry")


@pytest.mark.parametrize("system", ENTRANTS)
@pytest.mark.parametrize("task", small)
def test_measures_come_from_the_trace(entries, task, system, tmp_path):
    entry = entries[task, system]
    folder = entry.lab.trace.to_parquet(tmp_path / "trace")
    bill, all_rows = (trace.read_table(folder, name).to_pylist() for name in ("bill", "deliveries"))
    rows = [row for row in all_rows if row["system"] == APP]
    useful = [row for row in rows if row["status"] == "read"]
    phones = [row for row in bill if row["device"].startswith("phone-")]
    radio_j = sum(row["radio_mj"] for row in phones) / 1000
    seconds = entry.task.scenario.hours * 3600
    came = [row for row in rows if row["delivered"] is not None]
    lags = sorted((row["delivered"] - row["created"]).total_seconds() for row in useful)
    median = math.nan if not lags else (lags[(len(lags) - 1) // 2] + lags[len(lags) // 2]) / 2
    expected = {
        "useful": len(useful),
        "useful_share": len(useful) / entry.stage.wanted,
        "lost": sum(row["delivered"] is None for row in rows),
        "stale": sum(row["status"] == "expired" for row in came),
        "wasted": sum(row["status"] != "read" for row in came),
        "latency_s": median,
        "up_kb": sum(row["bytes"] for row in bill if row["direction"] == "up") / 1000,
        "down_kb": sum(row["bytes"] for row in bill if row["direction"] == "down") / 1000,
        "messages": sum(row["messages"] for row in bill),
        "wakeups": sum(row["wakeups"] for row in phones),
        "radio_j": radio_j,
        "battery_h": BATTERY_J / (radio_j / seconds / entry.task.scenario.devices + BASE_MW / 1000) / 3600,
    }
    found = entry.measures()
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)


def test_a_run_is_a_function_of_its_seed():
    one, again = (play(small["traffic alerts"], ENTRANTS["MUD"], seed=5).measures() for _ in range(2))
    assert one == again


def test_who_wants_an_item_is_judged_where_everybody_is():
    entry = play(TRAFFIC.over(devices=10, hours=0.5), ENTRANTS["to everyone"], seed=4)
    where = entry.lab.frame("positions")
    assert len(where) > 0
    shown = entry.deliveries[entry.deliveries["status"] == "read"]
    assert len(shown) > 0
    assert (shown["latency_s"] < TRAFFIC.scenario.expires_s).all()


def test_a_reader_reads_so_many_in_one_go():
    entry = play(NEWS.over(devices=3, hours=24.0), ENTRANTS["to everyone"], seed=1)
    read = entry.deliveries[entry.deliveries["status"] == "read"]
    assert read.groupby(["receiver", "read"]).size().max() == NEWS.most
