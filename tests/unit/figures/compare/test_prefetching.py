"""The six figures of Last hop."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import GREY
from mudkit.figures.compare import prefetching

DRAWN = {
    prefetching.waste_by_max: ("max", "user_frequency"),
    prefetching.loss_by_downtime: ("outage", "user_frequency"),
    prefetching.by_limit: ("prefetch_limit", "outage"),
    prefetching.waste_by_expiration: ("expiration", "user_frequency"),
    prefetching.loss_by_expiration: ("expiration", "user_frequency"),
    prefetching.by_threshold: ("expiration_threshold_s", "expiration"),
}
VALUES = {
    "max": [1, 4],
    "user_frequency": [1.0, 2.0],
    "outage": [0.0, 0.5],
    "prefetch_limit": [1, 16],
    "expiration": [60.0, 7200.0],
    "expiration_threshold_s": [1800.0, 3600.0],
}
PARAMETERS = {
    "event_frequency": 32.0, "user_frequency": 2.0, "max": 8, "threshold": 0.0, "expiration": None,
    "expiring_share": 1.0, "outage": 0.9, "outages_per_day": 12.0, "policy": "buffer", "prefetch_limit": 16,
    "expiration_threshold_s": None, "days": 365, "reads_cv": 0.1, "seeds": [1, 2, 3],
}  # fmt: skip


def table(x, by):
    rows = [
        {x: one, by: two, "seed": seed, "waste": 0.1 * seed, "loss": 0.0004 * seed, "best": 50}
        for one in VALUES[x]
        for two in VALUES[by]
        for seed in (1, 2, 3)
    ]
    made = pd.DataFrame(rows)
    made.attrs["parameters"] = PARAMETERS | {x: VALUES[x], by: VALUES[by]}
    return made


def named(figure):
    return [trace for trace in figure.data if trace.name is not None and trace.x[0] is not None]


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_lines_are_medians_with_the_lowest_and_the_highest_seed(draw):
    x, by = DRAWN[draw]
    figure = draw(table(x, by))
    lines = named(figure)
    factor = 100 if x == "outage" else 1
    for line in lines:
        assert list(line.x) == [factor * each for each in VALUES[x]]
        is_loss = line.line.dash == "dash" or "loss" in draw.__name__
        assert list(line.y) == pytest.approx(
            [0.1 if line.line.dash == "dash" else 0.08] * 2 if is_loss else [20] * 2
        )
        if not is_loss:
            assert list(line.error_y.array) == pytest.approx([10, 10])
            assert list(line.error_y.arrayminus) == pytest.approx([10, 10])
    assert len({line.name for line in lines}) == 2
    assert all("median" not in line.hovertemplate and "customdata" in line.hovertemplate for line in lines)


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_lines_are_told_apart_by_lightness_and_by_symbol(draw):
    lines = named(draw(table(*DRAWN[draw])))
    assert len({(line.line.color, line.line.dash) for line in lines}) == len(lines)
    assert len({line.marker.symbol for line in lines}) == len(lines)
    weights = {line.name: sum(int(line.line.color[at : at + 2], 16) for at in (1, 3, 5)) for line in lines}
    assert list(weights.values()) == sorted(weights.values(), reverse=True)


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_axes_have_units_and_the_caption_has_what_the_runs_were_with(draw):
    figure = draw(table(*DRAWN[draw]), title="A title")
    assert figure.layout.title.text == "A title"
    assert figure.layout.xaxis.title.text
    assert "%" in figure.layout.yaxis.title.text
    [answer] = [each.text.replace("<br>", " ") for each in figure.layout.annotations]
    assert answer.startswith("32 messages a day; ")
    assert "medians of 3 seeds" in answer
    assert "365 days" in answer


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_a_table_that_lacks_something(draw):
    x, by = DRAWN[draw]
    whole = table(x, by)
    with pytest.raises(ParameterError, match=by):
        draw(whole.drop(columns=by))
    with pytest.raises(ParameterError, match="0 rows"):
        draw(whole.head(0))


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_a_table_that_says_nothing_of_its_runs_is_drawn(draw):
    bare = table(*DRAWN[draw])
    bare.attrs = {}
    assert named(draw(bare))


def test_the_formula_stands_behind_figure_1():
    figure = prefetching.waste_by_max(table("max", "user_frequency"))
    grey = [trace for trace in figure.data if trace.line.color == GREY]
    assert [list(trace.y) for trace in grey] == [[96.875, 87.5], [93.75, 75]]


def test_of_few_reads_no_loss_is_drawn():
    few = table("expiration", "user_frequency")
    few.loc[(few["expiration"] == 60.0) & (few["user_frequency"] == 1.0), "best"] = 9
    once, twice = named(prefetching.loss_by_expiration(few))
    assert (list(once.x), list(twice.x)) == ([7200], [60, 7200])


def test_times_have_units():
    ticks = prefetching.by_threshold(table("expiration_threshold_s", "expiration")).layout.xaxis.ticktext
    assert list(ticks) == ["30 min", "1 h"]


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({}, "32 messages a day; 2 reads a day; reads of at most 8; outages 90% of the time, exponential, 12 a day"),
        ({"outage": 0.0}, "no outages; nothing expires; policy buffer, prefetch limit 16"),
        ({"outage": {"share": 0.5, "per_day": 4.0, "distribution": "fixed", "cv": 1.0}}, "outages 50% of the time, fixed, 4 a day"),
        ({"max": None}, "reads of all there is"),
        ({"expiration": 3600.0}, "expiration times exponential, mean 1 h"),
        ({"expiration": {"mean_s": 60.0, "law": "normal"}, "expiring_share": 0.5}, "normal, mean 1 min, for 50% of the messages"),
        ({"threshold": 0.25}, "ranks of 0.25 and more"),
        ({"policy": "on-line", "prefetch_limit": None}, "policy on-line; spread"),
        ({"policy": {"kind": "buffer", "prefetch_limit": "learnt"}}, "policy buffer, prefetch limit learnt"),
        ({"expiration_threshold_s": 7200.0}, "expiration threshold 2 h"),
    ],
)  # fmt: skip
def test_captions(settings, answer):
    assert answer in prefetching.caption(PARAMETERS | settings)


@pytest.mark.parametrize(
    "draw",
    [prefetching.waste_by_max, prefetching.loss_by_downtime, prefetching.by_limit, prefetching.by_threshold],
)
def test_what_is_no_table_is_refused(draw):
    with pytest.raises(ParameterError, match="a DataFrame that sweep gives, with") as caught:
        draw(3)
    assert (caught.value.where, caught.value.found) == ("table", "3")
