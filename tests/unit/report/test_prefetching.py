"""Report prefetch_sizing: arrivals, reads, links, and the recommended prefetch limit."""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mudkit import show
from mudkit.report import choosing, prefetching
from mudkit.report.choosing import Setting
from mudkit.report.prefetch_events import read_events
from mudkit.report.prefetching import _NEAR, SizingStudy, study_sizing
from mudkit.report.tables import merge_equal
from mudkit.sources import Outages
from mudkit.systems.lasthop import Expiration, Prices, Scenario
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.logs import drawn_from

HOUR = 3_600_000_000
EVENTS = drawn_from(
    np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], expires_us=[FOREVER_US] * 24 + [100 * HOUR] * 25
)
GENERATED = "This is an example: messages and reads are generated, prices assumed."
EXAMPLE = {"arrivals_per_day": 32.0, "reads_per_day": 2.0, "expiration_h": 48.0, "days": 16, "seed": 0}


def study_runs(
    runs, *, scored_on=None, assumed=None, max_at_a_time=8, is_example=False, **prices
) -> SizingStudy:
    return study_sizing(
        "log.csv",
        runs,
        scored_on or runs,
        assumed,
        is_example=is_example,
        max_at_a_time=max_at_a_time,
        threshold=0.0,
        prices=Prices(**prices),
    )


@functools.cache
def generate(outage=0.5, *, draws=2, **changes):
    """Return the study of a generated example; tests of different facts share it, since it takes seconds."""
    assumed = Outages(outage)
    name, chosen_on, scored_on = read_events(
        "", "", "", tz="UTC", example=EXAMPLE | changes, assumed=assumed, draws=draws
    )
    assert name == "a generated example"
    return study_runs(chosen_on, scored_on=scored_on, assumed=assumed, is_example=True)


@pytest.fixture(scope="module")
def example():
    return generate()


def measures(study):
    return {measure.name: measure for measure in study.first_screen().measures}


def test_first_screen_describes_the_input():
    recorded = drawn_from(EVENTS.arrivals_us, EVENTS.reads_us, outages_us=[[10 * HOUR, 20 * HOUR]])
    study = study_runs([recorded])
    assert study.first_screen().source == (
        "log.csv · 2 days · 49 messages · 2 reads · no link for 21 % of the time"
    )
    expiring = study_runs([EVENTS]).first_screen().source
    assert "49 messages (51 % expire after 2 d 16 h on average)" in expiring
    warnings = " ".join(study.first_screen().warnings)
    assert (
        "With 8 messages per read (`max_at_a_time`), the 2 reads of the whole log can show at most 33 % of "
        "its messages." in warnings
    )
    assert "last 2 days, too few to choose on some" in warnings
    assert "out of order" not in warnings
    assert "of the whole log" not in " ".join(
        study_runs([recorded], max_at_a_time=25).first_screen().warnings
    )


def test_rows_that_were_sorted_are_counted():
    events = drawn_from([2 * HOUR, 0, 3 * HOUR, HOUR], [4 * HOUR])
    screen = study_runs([events]).first_screen()
    assert "2 rows of the logs were out of order; the logs were sorted by time." in screen.warnings
    assert measures(study_runs([events]))["sorted_rows"].value == 2


def test_down_share_is_clipped_to_the_events():
    assert study_runs([drawn_from([0, 100], [50], outages_us=[[10, 20], [70, 85]])]).played.down_share == 0.25
    assert study_runs(
        [drawn_from([0, 100], [50], outages_us=[[85, 300]])]
    ).played.down_share == pytest.approx(0.15)


def test_few_reads_give_no_firm_headline():
    recorded = drawn_from(EVENTS.arrivals_us, EVENTS.reads_us, outages_us=[[10 * HOUR - 1, 20 * HOUR]])
    study = study_runs([recorded])
    assert study.first_screen().headline == "Too little to recommend a limit: 2 reads, where 30 are needed."
    assert study.first_screen().reason.startswith("On these events it costs least to prefetch up to")
    assert measures(study)["is_firm"].value == 0.0
    short = drawn_from(EVENTS.arrivals_us, np.arange(40) * HOUR)
    assert "the events last 2 days" in study_runs([short]).first_screen().headline


def test_first_screen_matches_the_tables(example):
    screen, measured = example.first_screen(), measures(example)
    limit = example.setting.limit
    table = example.sized.table
    table = table[table["threshold_s"] == example.sized.threshold_s]
    assert example.sized.best["cost_per_day"] == table["cost_per_day"].min()
    assert measured["chosen_limit"].value == example.sized.limit
    scored = example.limits.set_index("limit").loc[limit]
    for name in ("waste", "loss", "empty_read_share", "delay_s", "cost_per_day"):
        assert measured[name].value == scored[name] == example.best[name]
        low = scored[f"{name}_low"]
        assert measured[name].low == (low if math.isfinite(low) else None)
    assert measured["prefetch_limit"].value == (limit if math.isfinite(limit) else None)
    assert measured["setting"].value == example.setting.name == example.policies["policy"].iloc[0]
    assert measured["recommendation"].value == screen.headline
    assert measured["verdict"].value == example.verdict
    assert measured["is_firm"].value == (example.verdict == "firm")
    assert len(measured) == len(screen.measures)
    assert all(measure.definition.endswith(".") for measure in screen.measures)
    assert "generated" in screen.warnings[0]
    assert "no link for 50 % of the time" in screen.assumption
    assert "a lost message 5 (`price_lost`)" in screen.assumption


def test_simplest_setting_that_is_as_good_is_recommended(example):
    """Choose a limit on some days that is not surely cheaper on the others than to send all at once."""
    assert 0 < example.sized.limit < math.inf
    assert example.row("all at once")["saved_per_day"] == example.best["saved_per_day"] == 0.0
    chosen = example.row(f"up to {example.sized.limit}")
    assert not chosen["saved_per_day_high"] < 0
    assert example.setting == Setting(math.inf)
    assert example.verdict == "default"
    screen = example.first_screen()
    assert screen.headline == (
        "Send all messages at once, by default: none of the limits tried is clearly cheaper on "
        f"{example.played.scored_reads} reads. {GENERATED}"
    )
    assert "up, and sending all at once, cannot be told apart" in screen.reason
    assert f"it cost least to prefetch up to {example.sized.limit} messages" in screen.reason
    assert screen.tiles[0][0] == "all"


def test_limits_that_all_cost_the_same_are_said_to(example):
    screen = replace(example, limits=example.limits.assign(cost_per_day=1.0)).first_screen()
    assert "Send all messages at once: on these reads every limit costs the same." in screen.headline
    assert "Any other limit does as well." in screen.reason


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", [1, 3, 4])
def test_few_reads_do_not_recommend_to_leave_readers_with_nothing(seed):
    """To send only when asked costs more on the days for choosing, though not surely on those for scoring."""
    study = generate(0.1, seed=seed)
    assert study.setting.limit > 0


def test_limit_that_surely_pays_is_recommended():
    """Send messages all day and read one a day, offline: what is sent at once is mostly waste."""
    arrivals = np.arange(40 * 24) * HOUR
    reads = (np.arange(1, 40) * 24 + 12) * HOUR + 1
    outages = [[int(time) - HOUR // 2, int(time) + HOUR // 2] for time in reads]
    events = drawn_from(arrivals, reads, outages_us=outages)
    study = study_runs([events], max_at_a_time=4)
    assert 0 < study.setting.limit < 24
    assert study.verdict == "firm"
    assert study.is_firm
    assert study.first_screen().headline.startswith(f"Prefetch up to {study.setting.limit:.0f} messages")
    assert study.row("all at once")["saved_per_day_low"] > 0
    assert study.best["cost_per_day"] == 0.0 < study.row("only when asked")["cost_per_day"]


def test_cards_have_intervals_and_the_number_of_reads(example):
    tiles = example.first_screen().tiles
    assert tiles[1][1].startswith("of reads find no link and miss a waiting message (interval 0 to ")
    assert tiles[1][1].endswith(f"; {example.played.scored_reads} reads × 2 draws of outages")
    assert "(interval " in tiles[2][1]


def test_figures_name_their_days(example):
    screen = example.first_screen()
    assert "on the 8 days for scoring" in screen.reason
    assert any("reads of the whole log" in warning for warning in screen.warnings)


def test_settings_that_do_the_same_are_one_row(example):
    for table in (example.limit_names(), example.threshold_table()):
        near = example.near(table)
        numbers = near.iloc[:, 1:].to_numpy(dtype=float)
        assert not any(np.allclose(one, other, equal_nan=True) for one, other in itertools.pairwise(numbers))
    assert " to " in example.near(example.limit_names())["limit"].iloc[-2]


def test_prices_that_change_nothing_are_named_unless_none_or_all_do():
    (first, *others) = (what for what, _ in choosing.PRICES.values())
    changed = [["other", "same"] for _ in others]
    for settings, expected in (
        ([["same", "same"], *changed], f" Halving or doubling the price of {first} changes nothing."),
        ([["same", "same"], ["same", "same"], *changed[1:]], f"{first} or of {others[0]} changes nothing."),
        ([["same", "other"], *changed], ""),
        ([["same", "same"]] * (1 + len(others)), ""),
    ):
        study = SimpleNamespace(_settings_by_price=lambda tried=settings: ["same", *itertools.chain(*tried)])
        sentence = prefetching.SizingStudy._idle_prices(study)
        assert sentence.endswith(expected)
        assert bool(sentence) == bool(expected)


def test_choice_and_score_share_neither_days_nor_outages(example):
    _, chosen_on, scored_on = read_events(
        "", "", "", tz="UTC", example=EXAMPLE, assumed=Outages(0.5), draws=2
    )
    links = {tuple(run.switches_us.tolist()) for run in (*chosen_on, *scored_on)}
    assert len(links) == 4
    other = study_runs(chosen_on, scored_on=chosen_on, assumed=Outages(0.5))
    assert other.sized.limit == example.sized.limit, "the choice does not depend on what it is scored on"
    chosen = f"up to {example.sized.limit}"
    assert other.row(chosen)["loss"] != example.row(chosen)["loss"]
    days = Scenario(days=EXAMPLE["days"], expiration=Expiration(48 * 3600.0)).draw(0)
    chosen = sum(example.sized.best[f"{what}_per_day"] for what in ("wasted", "lost"))
    assert chosen > 0
    assert days.arrivals_us.tolist() == example.played.first.arrivals_us.tolist()


def test_limits_near_the_best_are_tried(example):
    limits = example.limit_table()["limit"].tolist()
    best = limits.index(example.sized.limit)
    assert limits[best + 1] / limits[best] < 1.5
    assert limits[best] / limits[best - 1] < 1.5
    near = example.near(example.limit_names())
    assert near["limit"].iloc[-1] == "all"
    assert len(near) <= 10
    assert near["cost_per_day"].min() == example.limits["cost_per_day"].min(), "the cheapest is shown"


def test_intervals_stay_within_zero_and_one(example):
    for table in (example.limit_table(), example.threshold_table(), example.policy_table()):
        for name in ("waste", "loss", "empty_read_share"):
            ends = table[[f"{name}_low", f"{name}_high"]].to_numpy()
            assert np.nanmin(ends) >= 0
            assert np.nanmax(ends) <= 1


def test_optimal_limit_at_the_edge_extends_the_range():
    """Send 5,000 messages while the link is up; a single read long after the link went down takes all."""
    arrivals = np.arange(5000) * 1_000_000
    events = drawn_from(arrivals, [9000 * 1_000_000], outages_us=[[5000 * 1_000_000, 9500 * 1_000_000]])
    study = study_runs([events], max_at_a_time=5000, lost=10.0)
    assert study.extended == ["limits"]
    assert study.sized.limit > 4096
    assert study.sized.best["loss"] == 0.0
    assert any("edge of the limits" in warning for warning in study.first_screen().warnings)


def test_optimal_threshold_at_the_edge_extends_the_range():
    """Build messages of which half expire after 5 days, before the next read; the others last long."""
    days = np.arange(40)
    lasts = np.where(days // 2 % 2, 5 * 24 * HOUR, 200 * 24 * HOUR)
    events = drawn_from(
        days * 24 * HOUR,
        [day * 24 * HOUR + 1 for day in (20, 39)],
        expires_us=days * 24 * HOUR + lasts,
        outages_us=[[(day - 1) * 24 * HOUR + 2, day * 24 * HOUR + 10] for day in (20, 39)],
    )
    study = study_runs([events], max_at_a_time=100, lost=1.0)
    assert study.extended == ["thresholds"]
    table = study.sized.table
    cheapest = table[table["cost_per_day"] < table["cost_per_day"].min() + 1e-9]
    assert cheapest["threshold_s"].min() <= 8 * 86_400.0 == table["threshold_s"].max()
    assert study.sized.threshold_s == 0.0, "two reads do not make a threshold sure"


def test_nothing_is_prefetched_without_outages():
    study = study_runs([drawn_from(np.arange(600) * HOUR, np.arange(3, 50) * 12 * HOUR)])
    screen = study.first_screen()
    assert (
        screen.headline == "Prefetch nothing: there is always a link, and messages can wait until asked for."
    )
    assert "It costs nothing" in screen.reason
    assert screen.tiles[0][0] == "none"
    assert not study.has_threshold
    assert "no threshold" in study.threshold_answer().title
    assert study.limit_answer().title.startswith(
        "No limit is better"
    ) or " wasted messages a day less than a limit of 1" in (study.limit_answer().title)


def test_nothing_is_prefetched_if_waste_is_dear(example):
    dear = study_runs(
        list(example.played.runs), assumed=example.played.assumed, lost=0.0, empty_read=0.0, delay_hour=0.0
    )
    screen = dear.first_screen()
    assert screen.headline == "Prefetch nothing, at these prices: send messages when they are asked for."
    rival = dear.policies.iloc[1]
    assert rival["policy"] == "up to 1", "of limits above 0 the smallest wastes least"
    assert f"the best limit above 0 ({rival['policy']})" in screen.reason
    share = dear.row("only when asked")["empty_read_share"]
    assert share > 0.3, "every other read meets no link"
    assert screen.tiles[1][0] == f"{share:.0%}".replace("%", " %")
    assert f"With it, on the 8 days for scoring, {share:.0%}".replace("%", " %") in screen.reason


def test_readers_view_decides():
    """Lose nothing by waiting, since nothing expires; but half of the reads meet no link, and see nothing."""
    arrivals = np.arange(40) * 12 * HOUR
    reads = arrivals + 6 * HOUR
    outages = [[int(time) - HOUR, int(time) + HOUR] for time in reads[::2]]
    events = drawn_from(arrivals, reads, outages_us=outages)
    study = study_runs([events])
    assert study.row("only when asked")["empty_read_share"] == 0.5
    assert study.row("only when asked")["loss"] == 0.0
    assert study.first_screen().headline == "Send all messages at once."
    assert "By cost, limits from 1 up, and sending all at once, cannot be told apart." in (
        study.first_screen().reason
    )
    assert study.best["empty_read_share"] == 0.0
    assert study_runs([events], empty_read=0.0, delay_hour=0.0).sized.limit == 0


def test_total_outage_loses_everything():
    study = generate(1.0)
    screen = study.first_screen()
    assert (
        screen.headline == f"No setting helps: there is never a link, and every message is lost. {GENERATED}"
    )
    assert screen.tiles[2] == ("100 %", "of what could be read is lost")
    assert "no link for 100 % of the time" in screen.source
    assert (study.policies["loss"] == 1.0).all()
    assert study.policies_answer().title.startswith("All policies do equally well")
    assert measures(study)["loss"].value == 1.0


def test_threshold_is_absent_without_expirations():
    events = drawn_from(np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], outages_us=[[9 * HOUR, 21 * HOUR]])
    assert "Nothing expires" in study_runs([events]).threshold_answer().title


def test_headings_follow_from_the_tables(example):
    named = False
    for study in (example, generate(0.1), generate(0.9, days=12), generate(0.0)):
        title = study.policies_answer().title
        costs = study.policies.set_index("policy")["cost_per_day"]
        others = costs.drop(study.setting.name)
        assert f"“{others.idxmin()}”" in title
        if "less than “" in title:
            assert costs[study.setting.name] < others.min() or costs.index[0] == study.setting.name
        settings = set(study.price_table()["setting"])
        if study.prices_answer().title.endswith("the recommendation stays the same"):
            assert settings == {study.setting.name}
        assert study.limit_table()["limit"].is_monotonic_increasing
        table = study.limits.set_index("limit")
        costs = table["cost_per_day"]
        assert table["saved_per_day"].to_numpy() == pytest.approx(costs - costs[study.setting.limit])
        if "cannot be told apart" in study.limit_answer().title and study.best["cost_per_day"]:
            low, high = study._good_limits()
            assert not (table.loc[low:high, "saved_per_day_low"] > 0).any()
            below = table.index[table.index < low]
            assert not len(below) or table.loc[below[-1], "saved_per_day_low"] > 0
            worse = re.search(r"A limit of ([\d,]+) or less is clearly worse", study.limit_answer().text)
            assert worse is None or float(worse[1].replace(",", "")) == below[-1]
            named |= worse is not None
    assert named


def test_clearly_better_limit_gives_no_firm_headline(example):
    table = example.limits.copy()
    table.loc[table["limit"] == 1024, ["cost_per_day", "saved_per_day_high"]] = [0.0, -1.0]
    other = replace(example, limits=table)
    assert not other.is_firm
    for high, doubt in ((-1.0, "."), (1.0, "; the difference may be chance.")):
        judged = table.copy()
        judged.loc[judged["limit"] == 1024, "saved_per_day_high"] = high
        text = replace(example, limits=judged).limit_answer().text
        assert re.search(rf"a limit of 1,024 costs least, [^;]* less than [^;]*?{re.escape(doubt)}$", text)
    assert other.first_screen().headline == (
        f"No firm limit: a limit of {example.sized.limit:,} costs least on the days for choosing, a limit of "
        f"1,024 on those for scoring. {GENERATED}"
    )
    table.loc[table["limit"] == 64, "cost_per_day"] = -1.0  # cheaper, and that may be chance
    assert "a limit of 1,024 costs clearly less than sending all at once on those for scoring" in (
        replace(example, limits=table).first_screen().headline
    )


def test_threshold_is_chosen_only_if_it_surely_saves(example):
    assert example.sized.threshold_s == 0.0
    assert "within" not in example.first_screen().headline
    title = example.threshold_answer().title
    assert title == "No threshold costs less than none" or title.startswith(
        ("No threshold surely saves", "A threshold of ")
    )
    sure = generate(0.1, days=60)
    assert "none that expires within" in sure.first_screen().headline
    row = sure.thresholds.set_index("threshold_s").loc[0.0]
    assert row["saved_per_day"] > 0
    first = sure.first_screen().tiles[0]
    assert first[0] == "all"
    assert re.fullmatch(r"messages are sent as they come, but none that expires within .*", first[1])


def test_first_screen_compares_with_sending_all_at_once():
    """The obvious rival of a threshold sends all at once; to send only when asked costs most of all."""
    study = generate(0.5, days=30)
    assert study.setting.threshold_s
    row, reason = study.row("all at once"), study.first_screen().reason
    saved, low, high = (row[f"saved_per_day{end}"] for end in ("", "_low", "_high"))
    assert f"{saved:.1f} ({low:.1f} to {high:.1f}) less than sending all at once, and " in reason
    measured = measures(study)["saved_per_day_all_at_once"]
    assert (measured.value, measured.low, measured.high) == (saved, low, high)
    chosen = study.row(study._chosen.name)
    assert chosen["saved_per_day_low"] < 0 < chosen["saved_per_day"]
    low, high = (f"{chosen[f'saved_per_day{end}']:.1f}".replace("-", "−") for end in ("_low", "_high"))
    assert f" more wasted messages a day ({low} to {high}): there may be no difference." in reason
    assert f"saves {study.thresholds['saved_per_day'].iloc[0]:.1f} wasted messages a day" in (
        study.threshold_answer().title
    )
    assert study.setting.name == f"all but what expires within {study.threshold_name}"
    subject = f"sending all but what expires within {study.threshold_name} at once"
    assert study.limit_answer().text.endswith(f"is wasted by {subject}."), "the limits have that threshold"
    assert f"up, and {subject}, cannot be told apart" in reason
    assert "As it was drawn, the example has " in study.first_screen().assumption


def test_same_number_is_rounded_alike_in_all_tables():
    study = generate(0.5, days=30)
    tables = (study.policy_table(), study.near(study.limit_names()), study.price_table())
    for table in map(prefetching.round_alike, tables):
        numbers = (100 * table[["waste", "loss", "empty_read_share"]]).round(9)
        assert (numbers.round(1) == numbers).all(axis=None)
        assert (table["delay_min"] % 1 == 0).all()
        cells = re.findall(r">([^<>]*\d[^<>]*)<", show(table, "t")._repr_html_().split("<tbody>")[1])
        assert cells
        assert not re.search(r"\d\.\d\d", " ".join(cells).replace(", 0.01", "").replace(", 0.04", "")), (
            "but prices"
        )


def test_policies_name_a_threshold_that_is_not_the_recommended_one():
    """The table of limits has the recommended threshold: the same limit has other figures there."""
    study = generate(0.5, days=30)
    assert study.setting.threshold_s
    chosen = f"up to {study.sized.limit}"
    assert study.row(chosen)["threshold_s"] == 0.0
    names = study.policy_table()["policy"].tolist()
    assert f"{chosen}, no threshold" in names
    assert names[0] == study.setting.name


def test_ends_of_the_range_that_is_as_good_are_shown(example):
    low, high = example._good_limits()
    tried = example.limits["limit"].tolist()
    shown = " ".join(example.near(example.limit_names())["limit"]).replace(",", "").split()
    assert f"{low:.0f}" in shown
    assert f"{tried[tried.index(low) - 1]:.0f}" in shown
    assert high == math.inf
    assert shown[-1] == "all"


def test_range_that_begins_with_the_lowest_limit_has_none_below(example):
    study = replace(example, limits=example.limits.assign(saved_per_day=0.0))
    assert study._good_limits() == (study.limits["limit"].iloc[0], math.inf)
    every = merge_equal(study.limit_names())[0]
    places = {0, *range(len(every) - 2 * _NEAR - 1, len(every)), int(every["cost_per_day"].argmin())}
    assert 1 not in places
    assert study.near(study.limit_names())["limit"].tolist() == every["limit"].iloc[sorted(places)].tolist()


def test_waste_that_follows_from_short_reads_is_named(example):
    share = f"{example.played.readable_share:.0%}".replace("%", " %")
    text = (
        f"With 8 messages per read (`max_at_a_time`), at most {share} of the messages of the log can be read"
    )
    assert text in example.first_screen().reason
    enough = study_runs(list(example.played.runs), assumed=Outages(0.5), max_at_a_time=100)
    assert "can be read;" not in enough.first_screen().reason


def test_limits_that_cost_as_much_on_the_days_for_choosing_are_named():
    """Read all that has come once a day: what is kept beyond that is never asked for."""
    reads = np.arange(40) * 24 * HOUR + 12 * HOUR
    study = study_runs([drawn_from(np.sort(np.concatenate([reads - HOUR, reads - 2 * HOUR])), reads)] * 2)
    table = study.sized.table
    table = table[table["threshold_s"] == study.sized.threshold_s].set_index("limit")["cost_per_day"]
    equal = [limit for limit in table.index if abs(table[limit] - table.min()) < 1e-6]
    assert len(equal) > 1
    assert study.equally_cheap == [f"{limit:,}" for limit in sorted(equal) if limit != study.sized.limit]
    assert study._as_cheap().endswith(f"cost as much as {study._chosen.subject}.")
    assert study.equally_cheap[0] in study._as_cheap()
    assert measures(study)["equally_cheap_limits"].value.startswith(study.equally_cheap[0])


def test_differences_of_costs_have_a_unit(example):
    assert re.search(r"as much as [\d.]+( more)? wasted messages? a day", example._why_default())
    priced = study_runs(
        list(example.played.runs), assumed=Outages(0.5), wasted=2.0, lost=10.0, empty_read=10.0
    )
    assert priced._worth(3.0, " more") == "3.0 a day more at these prices"


def test_changes_by_price_are_counted():
    study = generate(0.1, days=60)
    settings = study._settings_by_price()
    changed = sum(setting != study.setting for setting in settings)
    assert changed
    assert (
        f"the recommendation changes in {changed} of 8 cases; it becomes: " in study.first_screen().assumption
    )


def test_prices_that_change_nothing_are_named():
    study = generate(0.1, days=60)
    table = study.price_table()
    settings = list(zip(table["setting"], table["threshold"], strict=True))
    text = study.prices_answer().text
    assert text
    for at, what in enumerate(("a wasted message", "a lost message", "a read in vain", "an hour of delay")):
        assert (set(settings[2 * at + 1 : 2 * at + 3]) == {settings[0]}) == (what in text)


def test_first_screen_counts_the_reads_in_vain(example):
    reads = 2 * example.played.scored_reads
    in_vain = round(reads * example.best["empty_read_share"])
    counted = f"({in_vain} of {reads}: {reads // 2} reads × 2 draws of outages)"
    assert counted in example.first_screen().reason
    assert "(`outage`, `outages_per_day`)" in example.first_screen().assumption


def test_other_prices_are_tried(example):
    table = example.price_table()
    assert table["price"].tolist()[:3] == [
        "as assumed", "a wasted message halved, 0.5", "a wasted message doubled, 2",
    ]  # fmt: skip
    assert len(table) == 9
    assert table["setting"].iloc[0] == example.setting.name
    assert table["waste"].iloc[1] >= table["waste"].iloc[2]


def test_answers_say_that_no_limit_matters():
    """Read each message an hour after its arrival, with the link always up."""
    hours = np.arange(400) * HOUR
    study = study_runs([drawn_from(hours[::2], hours[1::2] + 1)])
    assert study.limit_answer().title == "No limit is better than another: all cost the same"
    assert study.policies["cost_per_day"].iloc[:4].max() == 0.0
