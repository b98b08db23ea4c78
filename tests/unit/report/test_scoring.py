"""What the report scoreboard says is what the scoreboard's tables say."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit import words
from mudkit.experiment import ADAPTERS, CANNOT, LABELS, NEWS, TASKS, TRAFFIC, front, orders, scoreboard
from mudkit.report import scoring

SMALL = [NEWS.over(devices=4, hours=3.0), TRAFFIC.over(devices=4, hours=0.3)]
SOME = {name: ADAPTERS[name] for name in ("to everyone", "Contrail", "SUBLIM")}


@pytest.fixture(scope="module")
def compared():
    return scoreboard(SMALL, SOME, seeds=[1, 2])


@pytest.mark.soak
def test_tasks_are_told(compared):
    table = scoring.asked(list(TASKS.values()))
    assert list(table["task"]) == list(TASKS)
    assert table["question"].str.endswith(".").all()
    assert {"wants", "devices", "hours", "seen"} <= set(table.columns)


def test_how_much_was_compared(compared):
    said = scoring.same(compared)
    assert said.startswith("**12 runs**: 2 tasks, 3 systems, 2 seeds; ")
    wanted = compared.runs[compared.runs["system"] == "SUBLIM"]["wanted"].sum()
    assert f"{wanted:,} pairs" in said
    assert "saw the same devices" in said
    other = pd.concat([compared.runs.assign(digest="x").head(1), compared.runs.tail(-1)])
    bad = type(compared)(other, *(pd.DataFrame(), "to everyone"), *[pd.DataFrame()] * 3)
    assert "**not the same**" in scoring.same(bad)


def test_who_is_not_beaten(compared):
    fronts = {
        task: front(compared.table(task).reset_index(), "j_per_useful", "useful_share")
        for task in compared.tasks
    }
    said = scoring.unbeaten(fronts, compared.systems)
    for task, table in fronts.items():
        names = [name for name in compared.systems if name in set(table.loc[table["is_best"], "system"])]
        assert f"- {task}: **{', '.join(names)}**" in said
    of_all = fronts[NEWS.name].assign(is_best=[True, False, False])
    assert "Not beaten in any task: **to everyone**" in scoring.unbeaten({"a": of_all}, compared.systems)
    other = of_all.assign(is_best=[False, True, False])
    assert "Nobody is unbeaten" in scoring.unbeaten({"a": of_all, "b": other}, compared.systems)


def test_measures_are_written_with_their_intervals(compared):
    table = scoring.as_text(compared.measured(NEWS.name)).set_index("measure")
    assert list(table.columns) == list(SOME)
    rows = compared.measured(NEWS.name).set_index(["system", "measure"])
    row = rows.loc[("SUBLIM", "down_kb")]
    places = words.decimals([row["mean"], row["low"], row["high"]])
    assert table.loc[LABELS["down_kb"], "SUBLIM"] == (
        f"{words.number(row['mean'], places)} ({words.interval(row['low'], row['high'], places)})"
    )
    one = scoreboard(SMALL[:1], {"SUBLIM": SOME["SUBLIM"]}, seeds=[1], privacy=False)
    assert not scoring.as_text(one.measured(NEWS.name))["SUBLIM"].str.contains("to").any()


def test_results_do_not_cross_zero(compared):
    differences = scoring.all_differences(compared, 0.95)
    assert set(differences["task"]) == {NEWS.name, TRAFFIC.name}
    wanted = differences[
        differences["measure"].eq("down_kb")
        & ((differences["difference_low"] > 0) | (differences["difference_high"] < 0))
    ]
    table = scoring.results(differences, ["down_kb"])
    assert list(zip(table["task"], table["system"], strict=True)) == list(
        zip(wanted["task"], wanted["system"], strict=True)
    )
    assert len(scoring.results(differences, list(LABELS))) > len(table)
    assert scoring.results(
        differences.assign(difference_low=float("nan"), difference_high=float("nan")), ["down_kb"]
    ).empty


def test_all_tasks_are_kept(compared):
    table = scoring.all_measured(compared, 0.95)
    assert len(table) == 2 * 3 * len(LABELS)
    assert table.columns[0] == "task"


def test_who_knows_what(compared):
    table = scoring.privacy(compared).set_index(["task", "system"])
    assert table.loc[(TRAFFIC.name, "SUBLIM"), "place known to servers"] == 1.0
    assert table.loc[(TRAFFIC.name, "Contrail"), "place known to another device"] == 1.0
    assert table.loc[(NEWS.name, "Contrail"), "items read by servers"] == 0.0
    assert table.loc[(NEWS.name, "to everyone"), "and not for it, by a phone"] > 0
    written = scoring.in_percent(scoring.privacy(compared)).set_index(["task", "system"])
    assert written.loc[(TRAFFIC.name, "SUBLIM"), "place known to servers"] == "100 %"
    assert written.loc[(NEWS.name, "SUBLIM"), "place known to servers"] == "–"


def test_what_cannot_be_said(compared):
    table = scoring.cannot(compared, CANNOT)
    assert len(table) == sum(task in CANNOT[system] for task in compared.tasks for system in SOME)
    assert (TRAFFIC.name, "Contrail") in set(zip(table["task"], table["system"], strict=True))


def test_every_measure_is_explained():
    assert scoring.meanings().count("\n") == len(LABELS) - 1


@pytest.mark.soak
def test_pairs_say_whether_the_order_matters():
    named = ["writer predicates and a daily limit", "a rate limit and sealing"]
    tried = orders(named)
    table = scoring.pairs(tried).set_index("put together")
    assert list(table.index) == named
    assert table["order"].eq("matters").all()
    assert table.loc[named[0], "keep most"] == "MUD, then Last hop (3 of 3)"
    same = tried.assign(held=True)
    assert scoring.pairs(same)["order"].eq("has made no difference").all()
    assert scoring.pairs(orders([])).empty
