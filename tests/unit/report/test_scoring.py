"""Report scoreboard: answers computed from the scoreboard's tables."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from mudkit.display import show
from mudkit.experiment import ADAPTERS, FATES, MEASURES, NEWS, PHOTOS, TASKS, TRAFFIC, Scoreboard, scoreboard
from mudkit.experiment.order_checks import SAME_AS_FIRST
from mudkit.report import scored_measures, scoring
from mudkit.report.growing import Growth, grow
from mudkit.report.knowing import KNOWN_LABELS, known_answer, list_known, sum_known
from mudkit.report.ordering import order_answer, order_table, shortened, try_orders
from mudkit.report.scoring import ScoreStudy

SMALL = [NEWS.over(devices=4, hours=3.0), TRAFFIC.over(devices=4, hours=0.3)]
SOME = {name: ADAPTERS[name] for name in ("to everyone", "Contrail", "SUBLIM")}


@pytest.fixture(scope="module")
def study():
    return ScoreStudy(scoreboard(SMALL, SOME, seeds=[1, 2]), SMALL, "j_per_useful", 0.95)


def make_study(rows, *, seeds=5, task=NEWS, phones=10):
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
    keys = [(system, seed) for system, *_ in rows for seed in range(seeds)]
    counts = {system: (useful, wanted_count, energy_j) for system, useful, wanted_count, energy_j in rows}
    deliveries = pd.DataFrame(
        [
            {
                "task": task.name,
                "system": system,
                "seed": seed,
                "device": f"phone-{number % phones:05d}",
                "item": f"item {number}",
                "fate": "useful" if number < counts[system][0] else "unopened",
                "latency_s": 1.0 if number < counts[system][0] else math.nan,
            }
            for system, seed in keys
            for number in range(counts[system][1])
        ],
        columns=["task", "system", "seed", "device", "item", "fate", "latency_s"],
    )
    bills = pd.DataFrame(
        [
            {
                "task": task.name,
                "system": system,
                "seed": seed,
                "device": f"phone-{phone:05d}",
                "up_kb": 0.0,
                "down_kb": 1.0,
                "radio_j": counts[system][2] / phones,
            }
            for system, seed in keys
            for phone in range(phones)
        ]
    )
    nothing = [pd.DataFrame()] * 3
    board = Scoreboard(runs, pd.DataFrame(), rows[0][0], *nothing, deliveries, bills)
    return ScoreStudy(board, [task], "j_per_useful", 0.95)


def test_cheapest_of_equally_useful_systems_is_recommended():
    rows = [("to everyone", 100, 100, 900), ("MUD", 99, 100, 300), ("SUBLIM", 90, 100, 100)]
    screen = make_study(rows).first_screen()
    assert screen.headline == (
        "Use MUD for news with ranks (99 % of what was wanted in time, 3.03 J for each, 66 % less than "
        "the next cheapest that brings about as much, “to everyone”)."
    )
    assert "least radio energy" in screen.reason
    assert "500 wanted deliveries of 50 phones" in screen.reason
    assert screen.tiles[0][0] == "99 %"
    assert screen.tiles[1] == (
        "3.03 J",
        "of radio energy for each delivery in time; 9 J with “to everyone”",
    )
    assert screen.tiles[2][0] == "1 %"
    assert screen.tiles[0][1] == "of what was wanted is in time"
    assert screen.tiles[2][1] == (
        "of what was wanted for news with ranks was still unopened when its run ended, so it is not settled"
    )
    assert "The fleet has 40 phones (`devices`)." in screen.assumption
    assert (
        "If a system may bring 10 points less in time than the best instead of 2, the choice becomes SUBLIM for "
        "news with ranks (90 % in time for 1.11 J each)." in screen.assumption
    )
    assert any(warning.startswith("News with ranks: MUD cannot express all") for warning in screen.warnings)


def test_first_screen_speaks_of_the_tasks_that_it_names():
    """Two firm tasks and one with few deliveries: its figures and counts are of the firm ones."""
    parts = [
        make_study([("to everyone", *of_baseline), ("MUD", *of_mud)], task=task)
        for task, of_baseline, of_mud in (
            (NEWS, (100, 100, 900), (100, 100, 300)),
            (TRAFFIC, (60, 60, 500), (30, 60, 500)),
            (PHOTOS, (6, 6, 90), (6, 6, 30)),
        )
    ]
    tables = [
        pd.concat([getattr(part.board, name) for part in parts], ignore_index=True)
        for name in ("runs", "deliveries", "bills")
    ]
    runs, deliveries, bills = tables
    board = Scoreboard(runs, pd.DataFrame(), "to everyone", *[pd.DataFrame()] * 3, deliveries, bills)
    screen = ScoreStudy(board, [NEWS, TRAFFIC, PHOTOS], "j_per_useful", 0.95).first_screen()
    assert "830 wanted deliveries" in screen.source
    where = f"({NEWS.name} · {TRAFFIC.name})"
    assert screen.tiles[0] == ("100 % · 100 %", f"of what was wanted is in time {where}")
    assert screen.tiles[1] == (
        "3 · 8.33 J",
        f"of radio energy for each delivery in time; 9 · 8.33 J with “to everyone” {where}",
    )
    assert screen.headline.startswith(
        f"Use MUD for {NEWS.name} (100 % of what was wanted in time, 3 J for each, 67 % less than the "
        f"next cheapest that brings about as much, “to everyone”); “to everyone” for "
        f"{TRAFFIC.name} (100 % of what was wanted in time, 8.33 J for each)."
    )
    assert f"Nothing firm can be said of {PHOTOS.name}: 30 deliveries are too few." in screen.headline
    assert "That rests on 300 to 500 wanted deliveries a task" in screen.reason
    assert "the choice stays the same for each task" in screen.assumption
    assert "draws of runs, phones and deliveries from these 5 runs of one setting, " in screen.reason


def join_studies(parts):
    """Return one study of several of :func:`make_study`."""
    runs, deliveries, bills = (
        pd.concat([getattr(part.board, name) for part in parts], ignore_index=True)
        for name in ("runs", "deliveries", "bills")
    )
    board = Scoreboard(runs, pd.DataFrame(), "to everyone", *[pd.DataFrame()] * 3, deliveries, bills)
    return ScoreStudy(board, [part.given[0] for part in parts], "j_per_useful", 0.95)


def test_looser_bar_is_tried_in_each_task():
    same = make_study([("to everyone", 100, 100, 900), ("MUD", 99, 100, 300)])
    other = make_study([("to everyone", 100, 100, 900), ("MUD", 90, 100, 300)], task=TRAFFIC)
    screen = join_studies([same, other]).first_screen()
    assert f"the choice becomes MUD for {TRAFFIC.name} (90 % in time for 3.33 J each)." in screen.assumption


def test_reason_for_what_was_missed_is_of_the_tasks_that_missed_something():
    news = make_study([("to everyone", 60, 100, 900)])
    alerts = make_study([("to everyone", 60, 60, 500)], task=TRAFFIC)
    study = join_studies([news, alerts])
    assert study.first_screen().tiles[2] == (
        "40 %",
        "of what was wanted for news with ranks was still unopened when its run ended, so it is not settled",
    )
    answer = study.fates_answer()
    assert answer.title == (
        f"With the system named at the top this is in time: 60 % for {NEWS.name} and 100 % for {TRAFFIC.name}"
    )
    assert answer.text.startswith(
        "News with ranks: 60.0 % in time and 40.0 % never opened. Traffic alerts: 100 % in time. A run ends"
    )


def test_reason_that_is_not_the_main_one_of_each_task_is_said_to_be_of_all():
    news, alerts = make_study([("MUD", 60, 100, 900)]), make_study([("MUD", 50, 60, 500)], task=TRAFFIC)
    news.board.runs["unopened"], news.board.runs["lost"] = 0.0, 40.0
    tile = join_studies([news, alerts]).first_screen().tiles[2]
    assert "the main reason for not being in time, over these tasks together" in tile[1]


def test_each_system_is_explained():
    table = make_study([(name, 100, 100, 900) for name in ADAPTERS]).system_table()
    assert table["system"].tolist() == list(ADAPTERS)
    assert table["what it does"].str.endswith(".").all()
    assert "…" not in show(table)._repr_html_()


def test_open_verdict_is_open_everywhere():
    """Few deliveries: neither table, heading nor summary recommends what the headline leaves open."""
    study = make_study([("to everyone", 6, 6, 90), ("MUD", 6, 6, 30)])
    row = study.use_table().iloc[0]
    assert row["system"] == "open (MUD is ahead)"
    assert math.isnan(row["certain_share"])
    assert study.task_answer(NEWS.name).title == (
        "News with ranks: open, 30 deliveries are too few; MUD is ahead"
    )
    measures = {entry.name: entry.value for entry in study.first_screen().measures}
    assert measures["news_with_ranks.recommended"] is None
    assert measures["news_with_ranks.ahead"] == "MUD"


def test_share_of_what_was_opened_stands_beside_what_was_in_time():
    study = make_study([("MUD", 60, 100, 300)])
    screen = study.first_screen()
    assert "100 % of what was settled in time, 60 % of what was wanted in time" in screen.headline
    assert screen.tiles[0] == ("100 %", "of what was wanted, and settled when the run ended, is in time")
    assert "A run ends soon after its last item." in screen.reason
    assert "100 % of what was settled in time" in study.task_answer(NEWS.name).title
    settled = make_study([("MUD", 99, 100, 300)]).first_screen()
    assert settled.tiles[0] == ("99 %", "of what was wanted is in time")
    assert "A run ends" not in settled.reason


def test_share_without_what_was_never_opened_counts_what_was_lost():
    """Count 60 of 100 in time, 30 never opened and 10 lost: what is lost was not opened either."""
    study = make_study([("MUD", 60, 100, 300)])
    study.board.runs["unopened"], study.board.runs["lost"] = 30.0, 10.0
    use = study.uses.iloc[0]
    assert use["opened_share"] == pytest.approx(60 / 70)
    assert "86 % of what was settled in time" in study.first_screen().headline
    assert study.fates_answer().text.startswith(
        "News with ranks: 60.0 % in time, 30.0 % never opened and 10.0 % lost. A run ends"
    )


def test_system_with_the_same_deliveries_is_not_said_to_be_beaten_in_them():
    """Equal in time at three times the cost: no better in either measure, and worse in one."""
    text = make_study([("to everyone", 100, 100, 900), ("MUD", 100, 100, 300)]).task_answer(NEWS.name).text
    assert text.endswith(
        "“to everyone” is no better than another system in either radio energy or deliveries in time, and "
        "worse in at least one."
    )


def test_costs_are_rounded_alike_in_text_and_tables():
    """A table whose largest cost has three digits shows whole numbers: so do texts from ten on."""
    study = make_study([("to everyone", 100, 100, 17_440), ("MUD", 100, 100, 2112)])
    assert "21 J for each" in study.first_screen().headline
    assert study.first_screen().tiles[1][0] == "21 J"
    row = study.use_table().iloc[0]
    assert (row["cost_j"], row["baseline_j"]) == (21, 174)
    measures = scoring.round_costs(study.measures(NEWS.name), ["j_per_useful"])
    assert measures["j_per_useful"].tolist() == [174, 21]
    assert measures["j_per_useful_low"].tolist() == measures["j_per_useful_low"].round().tolist()


def test_row_of_differences_has_one_number_of_decimals():
    assert scoring._alike((2.4, 179.6, 177.2, 161.04, 198.0)) == ("2.4", "179.6", "177.2 (161.0 to 198.0)")
    assert scoring._alike((3.97, 3.47, -0.5, -1.0, -0.1)) == ("4.0", "3.5", "−0.5 (−1.0 to −0.1)")
    table = make_study([("to everyone", 100, 100, 900), ("MUD", 90, 100, 300)]).noticeable_differences()
    assert table.columns.tolist() == ["task", "system", "measure", "baseline", "value", "difference"]
    assert table["difference"].str.endswith(")").all()


def test_parts_in_words_add_up_to_the_whole():
    shares = {"useful": 0.60571, "late": 0.0, "stale": 0.00457, "unopened": 0.37943, "lost": 0.01029}
    text = scoring._parts(shares)
    assert text == "60.6 % in time, 0.5 % stale, 37.9 % never opened and 1.0 % lost"
    tiny = scoring._parts({"useful": 0.9998, "late": 0.0, "stale": 0.0, "unopened": 0.0, "lost": 0.0002})
    assert tiny == "100 % in time and <0.1 % lost"


GROWN = Growth("a task", "to everyone", "SUBLIM", 16, (60.0, 75.0), (45.0, 40.0), (1.0, 0.85))


def test_fleet_from_which_a_system_loses_is_computed():
    assert GROWN.crossing_devices == 28  # 15 J less at 16 phones, 5 J more at 32
    text = GROWN.describe("j_per_useful")
    assert "it takes 45 J (100 % in time) for a delivery, SUBLIM 40 J (85 % in time)" in text
    assert "from about 28 phones on, by a straight line between both fleets, SUBLIM takes less" in text
    assert (
        "That is no reason to switch: with 32 phones SUBLIM brings 15 points less in time than “to everyone”, "
        "more than the 2 points that a choice may bring less." in text
    )
    near = replace(GROWN, shares=(1.0, 0.99)).describe("j_per_useful")
    assert "SUBLIM brings 1 point less in time than “to everyone”, within the 2 points" in near
    above = replace(GROWN, shares=(0.9, 0.95)).describe("j_per_useful")
    assert "With 32 phones SUBLIM brings no less in time than “to everyone”." in above
    still = replace(GROWN, larger_cost=(45.0, 46.0))
    assert still.crossing_devices is None
    assert "still takes less" in still.describe("j_per_useful")
    recorded = replace(GROWN, larger_cost=None)
    assert "passes that of SUBLIM (75 J) at 20 phones at the earliest" in recorded.describe("j_per_useful")
    assert "with this fleet SUBLIM brings 15 points less in time" in recorded.describe("j_per_useful")
    alone = replace(GROWN, rival="")
    assert "No system that sends to fewer comes within 10 points" in alone.describe("j_per_useful")


def test_measures_of_a_larger_fleet_are_those_of_its_sentence():
    """`GROWN` brings all in time, and its rival, that sends to fewer, 85 %: 15 points less."""
    study = SimpleNamespace(cost="j_per_useful")
    measures = {measure.name: measure for measure in scored_measures._of_growth(study, "news", GROWN)}
    assert measures["news.larger_in_time_share"].value == 1.0
    assert measures["news.larger_rival_in_time_share"].value == 0.85
    assert measures["news.larger_rival_fewer_share"].value == pytest.approx(0.15)
    assert measures["news.larger_devices"].value == 32


def test_larger_fleet_is_run_where_everyone_gets_everything():
    task = TRAFFIC.over(devices=6, hours=0.3)
    systems = {name: ADAPTERS[name] for name in ("to everyone", "SUBLIM")}
    board = scoreboard([task, SMALL[0]], systems, seeds=[1, 2])
    study = ScoreStudy(board, [task, SMALL[0]], "j_per_useful", 0.95)
    grown = grow(study.pools, study.given, "j_per_useful", [1, 2])
    chosen = dict(zip(study.uses["task"], study.uses["system"], strict=True))
    assert set(grown) == {name for name, system in chosen.items() if system == "to everyone"}
    for name, growth in grown.items():
        pool = study.pools[name]
        assert growth.cost[0] == pool.value("j_per_useful")[pool.systems.index("to everyone")]
        assert growth.larger_cost is None or growth.larger_cost[0] > 0


def test_differences_that_nobody_would_notice_are_not_listed():
    """The latency of MUD is 0.03 s longer in every delivery: clear, and nothing."""
    study = make_study([("to everyone", 100, 100, 900), ("MUD", 100, 100, 890)])
    rows = study.board.deliveries
    rows.loc[rows["system"] == "MUD", "latency_s"] += 0.03
    assert study.differences().set_index("measure").loc["latency_s", "difference_low"] > 0
    assert study.noticeable_differences().empty


def test_choice_that_depends_on_runs_is_close_and_not_firm():
    study = make_study([("MUD", 100, 100, 300), ("SUBLIM", 100, 100, 300)])
    bills = study.board.bills
    of_sublim = bills["system"] == "SUBLIM"
    bills.loc[of_sublim, "radio_j"] = bills.loc[of_sublim, "seed"].map({0: 10, 1: 70, 2: 10, 3: 70, 4: 0.5})
    row = study.uses.iloc[0]
    assert 0 < row["certain_share"] < 0.8
    assert {row["system"], row["runner_up"]} == {"MUD", "SUBLIM"}
    assert row["verdict"] == "close"
    screen = study.first_screen()
    assert screen.headline.startswith("No recommendation is firm: ")
    assert "is close behind" in screen.headline
    assert any("the choice is close" in warning for warning in screen.warnings)
    assert study.use_answer().title == "No system clearly fits"


def test_verdict_on_few_deliveries_is_not_firm():
    """One clear winner in every run: five seeds agree, but 30 deliveries say little."""
    study = make_study([("to everyone", 6, 6, 90), ("MUD", 6, 6, 30)])
    row = study.uses.iloc[0]
    assert (row["system"], row["deliveries"], row["verdict"]) == ("MUD", 30, "few deliveries")
    screen = study.first_screen()
    assert screen.headline == (
        "No recommendation is firm: MUD is ahead for news with ranks, but 30 deliveries are too few."
    )
    assert any("rests on 30 deliveries" in warning for warning in screen.warnings)


@pytest.mark.parametrize("seeds", [1, 5])
def test_choice_of_one_phone_is_uncertain(seeds):
    """In each run a single phone makes a system the best: seeds alone would be certain."""
    study = make_study([("MUD", 100, 100, 300), ("SUBLIM", 100, 100, 300)], seeds=seeds)
    bills = study.board.bills
    of_sublim = bills["system"] == "SUBLIM"
    bills.loc[of_sublim, "radio_j"] = np.where(bills.loc[of_sublim, "device"] == "phone-00000", 0.0, 33.0)
    row = study.uses.iloc[0]
    assert row["system"] == "SUBLIM"
    assert row["certain_share"] < 0.8


def test_shares_of_one_have_an_interval():
    row = make_study([("MUD", 50, 50, 300)], seeds=1).uses.iloc[0]
    assert row["useful_share"] == row["useful_share_high"] == 1.0
    assert 0.9 < row["useful_share_low"] < 0.95


def test_measures_of_the_first_screen_have_stable_names():
    measures = {entry.name: entry for entry in make_study([("MUD", 250, 300, 600)]).first_screen().measures}
    assert list(measures) == [
        "in_time_share",
        "j_per_useful",
        "baseline_j_per_useful",
        "missed_as",
        "missed_share",
        "in_time_share_of_ended",
        "tasks",
        "systems",
        "seeds",
        "runs",
        "devices",
        "deliveries",
        "news_with_ranks.recommended",
        "news_with_ranks.ahead",
        "news_with_ranks.verdict",
        "news_with_ranks.same_choice_share",
        "news_with_ranks.deliveries",
        "news_with_ranks.readers",
        "news_with_ranks.in_time_share",
        "news_with_ranks.j_per_useful",
        "news_with_ranks.in_time_share_of_ended",
        "news_with_ranks.late_share",
        "news_with_ranks.stale_share",
        "news_with_ranks.unopened_share",
        "news_with_ranks.lost_share",
        "news_with_ranks.next",
        "news_with_ranks.saving_share",
        "news_with_ranks.crossing_devices",
        "news_with_ranks.baseline_j_per_useful",
        "news_with_ranks.looser",
        "news_with_ranks.looser_in_time_share",
        "news_with_ranks.looser_j_per_useful",
    ]
    assert measures["news_with_ranks.recommended"].value == "MUD"
    assert measures["news_with_ranks.deliveries"].value == 1500
    share = measures["news_with_ranks.in_time_share"]
    assert share.low < 250 / 300 < share.high
    assert share.value == pytest.approx(250 / 300)


def test_each_table_has_the_mean_that_its_caption_names(study):
    """Recompute from deliveries and bills, with pandas: sums divided by sums, and medians of all times."""
    deliveries, bills = study.board.deliveries, study.board.bills
    for task in study.board.tasks:
        mine = deliveries[deliveries["task"] == task]
        phones = bills[bills["task"] == task]
        of_wanted = mine[mine["fate"] != "unwanted"]
        useful = mine[mine["fate"] == "useful"]
        count = useful.groupby("system").size()
        arrived = mine[mine["fate"] != "lost"].groupby("system").size()
        kb = phones.groupby("system")[["up_kb", "down_kb"]].sum().sum(axis=1)
        runs = study.board.runs[study.board.runs["task"] == task]
        expected = pd.DataFrame(
            {
                "useful_share": count / of_wanted.groupby("system").size(),
                "latency_s": useful.groupby("system")["latency_s"].median(),
                "wasted_share": 1 - count / arrived,
                "kb_per_useful": kb / count,
                "j_per_useful": phones.groupby("system")["radio_j"].sum() / count,
                "server_kb_per_useful": runs.groupby("system")["server_kb"].sum() / count,
            }
        )
        shown = study.measures(task).set_index("system")[list(expected)]
        pd.testing.assert_frame_equal(shown, expected.loc[shown.index], check_names=False)
        use = study.uses.set_index("task").loc[task]
        assert use["cost"] == pytest.approx(expected.loc[use["system"], "j_per_useful"])
        assert use["useful_share"] == pytest.approx(expected.loc[use["system"], "useful_share"])
        assert use["deliveries"] == len(of_wanted[of_wanted["system"] == "SUBLIM"])
        differs = study.differences().query("task == @task").set_index(["system", "measure"])["difference"]
        for system in ("Contrail", "SUBLIM"):
            row = expected.loc[system] - expected.loc["to everyone"]
            assert differs[system].to_dict() == pytest.approx(row.to_dict(), nan_ok=True)


def test_deliveries_add_up_to_the_runs(study):
    counts = study.board.deliveries.groupby(["task", "system", "seed", "fate"]).size().unstack(fill_value=0)
    runs = study.board.runs.set_index(["task", "system", "seed"]).loc[counts.index]
    for name in FATES:
        assert (runs[name] == counts.get(name, 0)).all()
    bills = study.board.bills.groupby(["task", "system", "seed"])[["up_kb", "down_kb", "radio_j"]].sum()
    assert np.allclose(bills.loc[runs.index], runs[["up_kb", "down_kb", "radio_j"]])


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
    assert description.startswith("a simulation · 2 tasks · 3 systems · 2 seeds · 12 runs · 4 phones · ")
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
    table = list_known(study.board).set_index(["task", "system"])
    assert table.loc[(TRAFFIC.name, "SUBLIM"), "places_share"] == 1.0
    assert table.loc[(TRAFFIC.name, "Contrail"), "places_by_others_share"] == 1.0
    assert table.loc[(NEWS.name, "to everyone"), "items_not_for_it"] > 0
    totals = sum_known(study.board, study.given)
    known = totals.set_index("system")
    assert known.loc["Contrail", "items_read"] == 0.0
    assert known.loc["SUBLIM", "items_read"] == table["items_read"].xs("SUBLIM", level="system").sum()
    answer = known_answer(totals)
    assert answer.title == "Only Contrail keeps items from servers"
    assert known.loc["Contrail", "places_by_others_share"] == "1 of 2"
    assert (
        "With Contrail other devices know the places of phones in 1 of 2 tasks and the interests of users "
        "in 1 of 2 tasks." in answer.text
    )
    assert set(KNOWN_LABELS) == set(known.columns)


def test_clear_differences_exclude_zero(study):
    table = study.noticeable_differences()
    ends = table["difference"].str.extract(r"\((\S+) to (\S+)\)").replace({"−": "-", ",": ""}, regex=True)
    low, high = ends.astype(float).to_numpy().T
    assert ((low >= 0) | (high <= 0)).all(), "as they are rounded"
    assert set(table["measure"]) <= set(scoring.MEASURE_LABELS.values())
    assert set(study.differences()["task"]) == {NEWS.name, TRAFFIC.name}
    measures = study.all_measures()
    assert len(measures) == 2 * 3 * (len(MEASURES) + 2)
    assert set(measures["definition"]) == {"all deliveries together", "mean over runs"}


def test_differences_of_shares_are_in_points():
    table = make_study([("to everyone", 100, 100, 900), ("MUD", 80, 100, 300)]).noticeable_differences()
    row = table.set_index("measure").loc["in time, % of wanted"]
    assert row[["baseline", "value"]].tolist() == ["100", "80"]
    assert row["difference"].startswith("−20 (")


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
    kept = int((table["order"] == "changes which promises are kept").sum())
    assert f"promises are kept in {kept} of {len(table)} pairs" in order_answer(table, 2).title
    same = order_table(orders.assign(is_kept=True))
    assert same["order"].eq("makes no difference").all()
    assert same["put together"].iloc[0] == "MUD and Last hop: writer predicates and a daily limit"
    assert order_table(try_orders(0, 0)).empty


def test_orders_that_keep_the_same_and_show_something_else():
    """Both orders keep most: the page does not say that the order decides what is kept."""
    rows = [("A, then B", "p", True), ("B, then A", "p", True), ("B, then A", SAME_AS_FIRST, False)]
    tried = pd.DataFrame(rows, columns=["order", "promise", "is_kept"]).assign(composition="a and b")
    table = order_table(tried)
    assert table.iloc[0].to_dict() == {
        "put together": "A and B: a and b",
        "order": "changes what is shown",
        "keeps most promises": "A, then B; B, then A (1 of 1)",
        "no order keeps": "",
    }
    assert order_answer(table, 2).title == (
        "The order changes which promises are kept in 0 of 1 pair of systems, and only what is shown in 1 more"
    )


def test_long_lists_of_orders_are_shortened_with_a_count():
    assert shortened("MUD, then Last hop (3 of 3)") == "MUD, then Last hop (3 of 3)"
    many = "; ".join(["SUBLIM, then Contrail, at an access point", "Contrail, then SUBLIM"] * 2)
    assert shortened(f"{many} (2 of 2)") == ("SUBLIM, then Contrail, at an access point and 3 more (2 of 2)")
