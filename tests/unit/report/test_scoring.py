"""Report scoreboard: answers computed from the scoreboard's tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from mudkit.display import show
from mudkit.experiment import ADAPTERS, FATES, MEASURES, NEWS, TASKS, TRAFFIC, Scoreboard, scoreboard
from mudkit.report import scoring
from mudkit.report.scoring import ScoreStudy, order_table, try_orders

SMALL = [NEWS.over(devices=4, hours=3.0), TRAFFIC.over(devices=4, hours=0.3)]
SOME = {name: ADAPTERS[name] for name in ("to everyone", "Contrail", "SUBLIM")}


@pytest.fixture(scope="module")
def study():
    return ScoreStudy(scoreboard(SMALL, SOME, seeds=[1, 2]), SMALL, "j_per_useful", 0.95)


def make_study(rows, *, seeds=5, task=NEWS):
    """Return a study of runs that are equal for all seeds; a row is system, useful, wanted, J."""
    runs = pd.DataFrame(
        [
            {
                "task": task.name,
                "system": system,
                "seed": seed,
                "digest": "same",
                "wanted_count": wanted_count,
                **dict.fromkeys(MEASURES, 0.0),
                "useful": float(useful),
                "useful_share": useful / wanted_count if wanted_count else math.nan,
                "unopened": float(wanted_count - useful),
                "radio_j": float(energy_j),
                "j_per_useful": energy_j / useful if useful else math.nan,
            }
            for system, useful, wanted_count, energy_j in rows
            for seed in range(seeds)
        ]
    )
    board = Scoreboard(runs, pd.DataFrame(), rows[0][0], *[pd.DataFrame()] * 3)
    return ScoreStudy(board, [task], "j_per_useful", 0.95)


def test_cheapest_of_equally_useful_systems_is_recommended():
    rows = [("to everyone", 100, 100, 900), ("MUD", 99, 100, 300), ("SUBLIM", 90, 100, 100)]
    screen = make_study(rows).first_screen()
    assert screen.headline == "Use MUD for news with ranks: 99 % is in time, for 3.03 J each."
    assert "least radio energy" in screen.reason
    assert "same in 100 % of 1,000 resamples" in screen.reason
    assert screen.tiles[0][0] == "99 %"
    assert screen.tiles[1] == (
        "3.03 J",
        "of radio energy for each delivery in time; 9 J with “to everyone” in every task",
    )
    assert screen.tiles[2][0] == "1 %"
    assert "never opened" in screen.tiles[2][1]


def test_choice_that_depends_on_seeds_is_reported_as_close():
    study = make_study([("MUD", 100, 100, 300), ("SUBLIM", 100, 100, 300)])
    runs = study.board.runs
    runs.loc[runs["system"] == "SUBLIM", "radio_j"] = [100.0, 700.0, 100.0, 700.0, 5.0]
    row = study.uses.iloc[0]
    assert 0 < row["certain_share"] < 0.8
    assert {row["system"], row["runner_up"]} == {"MUD", "SUBLIM"}
    assert any("the choice is close" in warning for warning in study.first_screen().warnings)


@pytest.mark.parametrize("wanted_count", [0, 10])
def test_nothing_is_recommended_without_deliveries(wanted_count):
    study = make_study([("to everyone", 0, wanted_count, 5), ("MUD", 0, wanted_count, 3)], seeds=1)
    assert study.first_screen().headline.startswith("No system can be recommended")
    assert "No system fits" in study.use_answer().title
    assert "nothing was delivered" in study.task_answer(NEWS.name).title
    assert "–" in show(study.use_table(), labels=study.use_labels())._repr_html_()
    assert study.fates_answer().title == "Nothing was delivered in time"


def test_fates_add_up_to_wanted_deliveries(study):
    fates = study.fates
    assert np.allclose(fates[list(FATES)].sum(axis=1), 1.0)
    runs = study.board.runs
    assert (runs[list(FATES)].sum(axis=1) == runs["wanted_count"]).all()
    for name in FATES:
        assert fates[name].between(0, 1).all()


def test_shares_of_a_page_agree(study):
    """Check that the table, the figure of fates and the recommendation divide the same sums."""
    for task in study.board.tasks:
        shown = study.measures(task).set_index("system")["useful_share"]
        parts = study.fates[study.fates["task"] == task].set_index("system")["useful"]
        assert np.allclose(shown, parts)
        use = study.uses.set_index("task").loc[task]
        assert use["useful_share"] == pytest.approx(parts[use["system"]])


def test_six_measures_are_shown_with_valid_intervals(study):
    for task in study.board.tasks:
        table = study.measures(task)
        measures = [name for name in table.columns[1:] if not name.endswith(("_low", "_high"))]
        assert len(measures) == len(scoring.MEASURE_LABELS) == 6
        assert (table["useful_share_low"].dropna() >= 0).all()
        assert (table["useful_share_high"].dropna() <= 1).all()
        for name in measures:
            assert (table[f"{name}_low"].dropna() >= 0).all()
        html = show(table, labels=scoring.MEASURE_LABELS, best=scoring.BEST)._repr_html_()
        assert html.count("<th scope='col'") <= 7


def test_first_screen_describes_the_comparison(study):
    description = study.first_screen().source
    assert description.startswith("2 tasks · 3 systems · 2 seeds · 12 runs · 4 phones · ")
    wanted_count = study.board.runs.query("system == 'SUBLIM'")["wanted_count"].sum()
    assert f"{wanted_count:,} wanted deliveries" in description
    assert any("2 seeds" in warning for warning in study.first_screen().warnings)


def test_undominated_points_are_on_the_front(study):
    for task in study.board.tasks:
        points = study.points(task).dropna()
        pairs = [(-row.in_time_percent, row.j_per_useful) for row in points.itertuples()]
        for (late, energy_j), is_best in zip(pairs, points["is_best"], strict=True):
            is_dominated = any(a <= late and b <= energy_j and (a, b) != (late, energy_j) for a, b in pairs)
            assert is_best != is_dominated


def test_privacy_table_counts_knowledge_of_relays_and_servers(study):
    table = study.privacy().set_index(["task", "system"])
    assert table.loc[(TRAFFIC.name, "SUBLIM"), "places_share"] == 1.0
    assert table.loc[(TRAFFIC.name, "Contrail"), "places_by_others_share"] == 1.0
    assert table.loc[(NEWS.name, "to everyone"), "items_not_for_it"] > 0
    known = study.known().set_index("system")
    assert known.loc["Contrail", "items_read"] == 0.0
    assert known.loc["SUBLIM", "items_read"] == table["items_read"].xs("SUBLIM", level="system").sum()
    assert study.known_answer().title == "Only Contrail keeps items from servers"


def test_clear_differences_exclude_zero(study):
    table = study.clear_differences()
    assert ((table["difference_low"] > 0) | (table["difference_high"] < 0)).all()
    assert set(table["measure"]) <= set(scoring.MEASURE_LABELS.values())
    assert set(study.differences()["task"]) == {NEWS.name, TRAFFIC.name}
    assert len(study.all_measures()) == 2 * 3 * len(MEASURES)


def test_differences_of_shares_are_in_points():
    table = make_study([("to everyone", 100, 100, 900), ("MUD", 80, 100, 300)]).clear_differences()
    row = table.set_index("measure").loc["in time, % of wanted"]
    assert row[["baseline", "mean", "difference"]].tolist() == pytest.approx([100.0, 80.0, -20.0])


def test_tasks_are_described(study):
    table = study.task_table()
    assert list(table["task"]) == [task.name for task in SMALL]
    assert {"predicate", "devices", "hours", "outage"} <= set(table.columns)
    assert set(table["task"]) <= set(TASKS)
    assert len(scoring.measure_meanings()) == len(MEASURES)
    assert (TRAFFIC.name, "Contrail") in set(
        zip(*(study.cannot()[name] for name in ("task", "system")), strict=True)
    )


@pytest.mark.soak
def test_order_table_tells_whether_the_order_matters():
    orders = try_orders(2, 0)
    table = order_table(orders)
    count = int((table["order"] == "matters").sum())
    assert f"matters in {count} of {len(table)} pairs" in scoring.order_answer(table, 2).title
    assert order_table(orders.assign(is_kept=True))["order"].eq("makes no difference").all()
    assert order_table(try_orders(0, 0)).empty


def test_long_lists_of_orders_are_shortened_with_a_count():
    assert scoring._shortened("MUD, then Last hop (3 of 3)") == "MUD, then Last hop (3 of 3)"
    many = "; ".join(["SUBLIM, then Contrail, at an access point", "Contrail, then SUBLIM"] * 2)
    assert scoring._shortened(f"{many} (2 of 2)") == (
        "SUBLIM, then Contrail, at an access point and 3 more (2 of 2)"
    )
