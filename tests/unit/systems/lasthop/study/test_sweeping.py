"""Sweeps, and policies compared on the same events."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mudkit.systems.lasthop import FIGURES, Forwarding, Push, simulate, sweep
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.systems.lasthop.study.sweeping import compare, interval

SHORT = {"days": 5, "outage": 0.5}


def test_a_row_a_run_in_order():
    table = sweep({"policy": ["buffer", "on-line"], "prefetch_limit": [1, 4]}, SHORT, seeds=[3, 9])
    assert list(table["policy"]) == ["buffer"] * 4 + ["on-line"] * 4
    assert list(table["prefetch_limit"]) == [1, 1, 4, 4] * 2
    assert list(table["seed"]) == [3, 9] * 4
    run = simulate(policy="buffer", prefetch_limit=4, seed=9, **SHORT)
    row = table.iloc[3]
    assert (row["waste"], row["loss"]) == (run.waste, run.loss)
    assert (row["forwarded"], row["read"], row["best"]) == (run.forwarded, run.read, len(run.online.read_ids))


def test_a_sweep_gives_the_same_again_and_over_any_map():
    over = {"max": [1, 8]}
    one = sweep(over, SHORT, seeds=range(3))
    with ThreadPoolExecutor(2) as pool:
        pd.testing.assert_frame_equal(one, sweep(over, SHORT, seeds=range(3), map=pool.map))


def test_the_table_says_what_its_runs_were_with():
    table = sweep({"max": [1, None]}, SHORT | {"policy": Forwarding("buffer", 16)}, seeds=[4])
    answer = table.attrs["parameters"]
    assert (answer["max"], answer["days"], answer["seeds"], answer["reads_cv"]) == ([1, None], 5, [4], 0.1)
    assert answer["policy"]["prefetch_limit"] == 16
    assert json.loads(json.dumps(answer)) == answer


def test_the_bar_is_told_of_each_run(monkeypatch):
    answer = []

    class Bar:
        def __init__(self, total, *words):
            answer.append(total)

        def __enter__(self):
            return answer.append

        def __exit__(self, *error):
            return None

    monkeypatch.setattr("mudkit.systems.lasthop.study.sweeping.bar", Bar)
    sweep({"max": [1, 2]}, SHORT, seeds=range(2))
    assert answer == [4, 1, 2, 3, 4]


@pytest.mark.parametrize("number", FIGURES)
def test_the_papers_figures_are_sweeps(number):
    figure = FIGURES[number]
    over = {name: values[:1] for name, values in figure["over"].items()}
    assert len(sweep(over, figure["fixed"] | {"days": 2}, seeds=[1])) == 1
    assert all(len(values) >= 5 for values in figure["over"].values())


def test_runs_that_share_their_events_come_one_after_the_other_and_rows_as_they_were_asked_for():
    called = []

    def noted(function, points):
        called.extend((point["outage"], point["seed"], point["prefetch_limit"]) for point in points)
        return map(function, points)

    over = {"prefetch_limit": [4, 1], "outage": [0.5, 0.0]}
    fixed = {"policy": "buffer", "days": 3}
    table = sweep(over, fixed, seeds=[2, 1], map=noted)
    assert [each[:2] for each in called[::2]] == [each[:2] for each in called[1::2]]
    asked = list(itertools.product(over["prefetch_limit"], over["outage"], [2, 1]))
    assert list(table[["prefetch_limit", "outage", "seed"]].itertuples(index=False, name=None)) == asked
    for row in table.itertuples():
        alone = simulate(prefetch_limit=row.prefetch_limit, outage=row.outage, seed=row.seed, **fixed)
        assert (row.waste, row.loss, row.forwarded) == (alone.waste, alone.loss, alone.forwarded)


def test_policies_are_compared_on_the_same_events():
    table = compare(
        {"few": Scenario(days=20), "none": replace(Scenario(days=20), user_frequency=0.0)},
        {"on-line": Forwarding("on-line"), "on-demand": Forwarding("on-demand"), "push": Push()},
        seeds=range(3),
    )
    assert table[["condition", "policy"]].agg(" ".join, axis=1).tolist() == [
        f"{condition} {policy}"
        for condition in ("few", "none")
        for policy in ("on-line", "on-demand", "push")
    ]
    assert (table["runs"] == 3).all()
    rows = table.set_index(["condition", "policy"])
    assert (rows.loc[(slice(None), "on-line"), "loss"] == 0.0).all()
    assert (rows.loc[(slice(None), "on-demand"), "waste"] == 0.0).all()
    assert rows.loc[("none", "on-line"), "waste"] == 1.0
    few = rows.loc[("few", "on-line")]
    assert 0.4 < few["waste_low"] < few["waste"] < few["waste_high"] < 0.6


def test_intervals_lie_within_what_was_seen():
    values = np.array([0.2, 0.3, 0.25, 0.4])
    assert interval("x", values) == pytest.approx({"x": 0.2875, "x_low": 0.2, "x_high": 0.4})
    of_many = interval("x", np.array([0.0, 0.1, 0.0, 0.2, 0.0, 0.1]))
    assert 0.0 <= of_many["x_low"] < of_many["x"] < of_many["x_high"] < 0.2
    one = interval("x", values[:1])
    assert one["x"] == 0.2
    assert one["x_low"] != one["x_low"]
