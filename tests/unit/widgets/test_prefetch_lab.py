"""Prefetch lab: controls, runs, cached results, and invalid input."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re

import pytest

from mudkit.systems.lasthop import Expiration, Forwarding, simulate
from mudkit.widgets import PrefetchLab, prefetch_lab

FEW = {"days": 40, "outage": 0.9, "seed": 3}


@pytest.fixture
def runs(monkeypatch):
    """Record the parameters of the runs."""
    played = []

    @functools.wraps(simulate)
    def record_run(**parameters):
        played.append(parameters)
        return simulate(**parameters)

    monkeypatch.setattr(prefetch_lab, "simulate", record_run)
    return played


def read_measures(widget):
    """Return waste and loss in %, forwarded, read and days, as the status states them."""
    match = re.search(
        r"Waste ([\d.]+) %, loss ([\d.]+) %</b>: ([\d,]+) forwarded, ([\d,]+) read, in ([\d,]+) day",
        widget.status.value,
    )
    return [float(group.replace(",", "")) for group in match.groups()]


def read_curves(widget):
    return {trace.name: (list(trace.x), list(trace.customdata)) for trace in widget.figure.data}


def compute_measures(run, days):
    return [round(100 * run.waste, 2), round(100 * run.loss, 2), run.forwarded, run.read, days]


def test_every_parameter_has_a_control():
    parameters = set(inspect.signature(simulate).parameters)
    widget = PrefetchLab(days=2)
    assert set(widget.controls) == parameters | {"law", "delay_s", "remembers_reads"}
    children = [control for column in widget.children[0].children for control in column.children]
    assert set(map(id, children)) == set(map(id, widget.controls.values()))
    assert all(control.description for control in children)


def test_status_and_curves_match_the_simulator():
    widget = PrefetchLab(policy="buffer", prefetch_limit=16, **FEW)
    widget.finish()
    assert read_measures(widget) == compute_measures(simulate(policy="buffer", prefetch_limit=16, **FEW), 40)
    curves = read_curves(widget)
    for limit in (1, 64, 16_384):
        run = simulate(policy="buffer", prefetch_limit=limit, **FEW)
        place = curves["waste"][0].index(limit)
        assert curves["waste"][1][place] == pytest.approx(100 * run.waste)
        assert curves["loss"][1][place] == pytest.approx(100 * run.loss)
    assert curves["waste now"][0] == [16]
    assert widget.figure.layout.title.text == "buffer with each limit, 40 days"


CHANGES = {
    "event_frequency": 64.0, "user_frequency": 4.0, "max": 2, "threshold": 0.5, "expiration": 86_400.0,
    "outage": 0.5, "outages_per_day": 1.0, "prefetch_limit": 64, "policy": "on-demand", "seed": 4, "days": 20,
    "reads_cv": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_control_changes_the_run(name):
    widget = PrefetchLab(**FEW)
    widget.controls[name].value = CHANGES[name]
    widget.finish()
    settings = {"policy": "buffer", "prefetch_limit": 16, **FEW, name: CHANGES[name]}
    assert read_measures(widget) == compute_measures(simulate(**settings), settings["days"])
    assert widget.problem.value == ""


def test_expirations_and_policy_settings():
    widget = PrefetchLab(expiration=Expiration(86_400.0, "uniform"), **FEW)
    widget.controls["expiring_share"].value = 0.5
    widget.controls["expiration_threshold_s"].value = 28_800.0
    widget.controls["delay_s"].value = 3600.0
    widget.finish()
    run = simulate(
        expiration=Expiration(86_400.0, "uniform"),
        expiring_share=0.5,
        policy=Forwarding("buffer", 16, 28_800.0, 3600.0),
        **FEW,
    )
    assert read_measures(widget) == compute_measures(run, 40)


def test_policy_that_remembers_reads_is_another_one_and_on_line_has_none():
    widget = PrefetchLab(policy="on-demand", **FEW)
    widget.controls["remembers_reads"].value = True
    widget.finish()
    run = simulate(policy=Forwarding("on-demand", remembers_reads=True), **FEW)
    assert read_measures(widget) == compute_measures(run, 40)
    widget.controls["policy"].value = "on-line"
    assert (widget.controls["remembers_reads"].disabled, widget.problem.value) == (True, "")


def test_none_and_learnt_values_are_shown_as_words():
    widget = PrefetchLab(max=None, expiration=86_400.0, **FEW)
    assert widget.controls["max"].value == "all"
    widget.controls["expiration"].value = "never"
    widget.finish()
    assert read_measures(widget) == compute_measures(
        simulate(max=None, policy="buffer", prefetch_limit=16, **FEW), 40
    )
    widget.controls["policy"].value = "unified"
    assert {
        widget.controls[name].value for name in ("prefetch_limit", "expiration_threshold_s", "delay_s")
    } == {"learnt"}
    widget.finish()
    assert read_measures(widget) == compute_measures(simulate(max=None, policy="unified", **FEW), 40)
    widget.controls["seed"].value = 4
    widget.finish()
    assert read_measures(widget) == compute_measures(
        simulate(max=None, policy="unified", **FEW | {"seed": 4}), 40
    )


def test_policy_without_a_limit_is_a_level_beside_the_buffer_curve():
    widget = PrefetchLab(policy="on-line", **FEW)
    widget.finish()
    assert widget.controls["prefetch_limit"].disabled
    curves = read_curves(widget)
    assert curves["loss now"] == ([1, 16_384], [0.0, 0.0])
    buffer = simulate(policy="buffer", prefetch_limit=16, **FEW)
    assert curves["loss"][1][curves["loss"][0].index(16)] == pytest.approx(100 * buffer.loss)
    assert "dashed: on-line" in widget.figure.layout.title.text


@pytest.mark.parametrize("outage", [0.0, 1.0])
def test_controls_without_effect_are_disabled(outage):
    widget = PrefetchLab(outage=outage, days=3)
    idle = {name for name, control in widget.controls.items() if control.disabled}
    assert idle == {"law", "expiring_share", "expiration_threshold_s", "outages_per_day"}
    widget.controls["outage"].value = 0.5
    widget.controls["expiration"].value = 3600.0
    assert not any(control.disabled for control in widget.controls.values())


def test_first_result_covers_few_days_and_states_them(runs):
    widget = PrefetchLab(days=150, event_frequency=256.0)
    assert read_measures(widget)[-1] < 100
    events = [(256 + 2 + 24) * run["days"] for run in runs]
    assert sum(events) < 15_000, "about 100 ms; who changes that measures the answering time again"
    widget.controls["seed"].value = 1
    assert all(run["days"] < 100 for run in runs)
    widget.finish()
    assert read_measures(widget)[-1] == 150
    assert "150 days" in widget.figure.layout.title.text


def test_results_of_earlier_runs_are_cached(runs):
    widget = PrefetchLab(**FEW)
    widget.finish()
    played = len(runs)
    widget.controls["prefetch_limit"].value = 64
    widget.finish()
    assert len(runs) <= played + 1, "the curve is the same; only where one stands may be new"
    played = len(runs)
    widget.controls["prefetch_limit"].value = 16
    widget.finish()
    assert len(runs) == played


def test_invalid_days_are_reported_and_keep_the_figure():
    widget = PrefetchLab(**FEW)
    kept = (widget.status.value, read_curves(widget))
    for wrong in (0, -3, 100_000):
        widget.controls["days"].value = wrong
        assert "role='alert'" in widget.problem.value
        assert "from 1 to 36,500" in widget.problem.value
        widget.finish()
        assert (widget.status.value, read_curves(widget)) == kept
    widget.controls["days"].value = 10
    assert widget.problem.value == ""
    assert read_measures(widget)[-1] == 10


def test_custom_values_are_inserted_in_order():
    widget = PrefetchLab(event_frequency=20.0, prefetch_limit=20, expiration=7000.0, days=3)
    assert [value for _, value in widget.controls["prefetch_limit"].options][5:9] == [8, 16, 20, 32]
    assert [label for label, _ in widget.controls["expiration"].options][2:5] == ["1 h", "1 h 57 min", "2 h"]
    assert widget.controls["event_frequency"].value == 20.0


def test_kernel_completes_all_days_and_changes_cancel_pending_runs(runs, monkeypatch):
    monkeypatch.setattr(prefetch_lab, "_PAUSE_S", 0.0)

    async def change_and_wait():
        widget = PrefetchLab(days=200)
        for seed in range(1, 4):
            widget.controls["seed"].value = seed
        while "each limit, 200 days" not in widget.figure.layout.title.text:
            await asyncio.sleep(0)
        return widget

    widget = asyncio.run(change_and_wait())
    assert read_measures(widget)[-1] == 200
    assert {run["seed"] for run in runs if run["days"] == 200} == {3}


@pytest.mark.parametrize(("days", "share"), [(10, 1.0), (3650, 3650 * (64 + 2 + 24) / 25_000)])
def test_kernel_waits_in_proportion_to_the_events_of_a_long_run(days, share, monkeypatch):
    """See ``_PAUSE_S``: a second for runs of up to 25,000 events."""
    pauses_s = []

    async def create():
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda pause_s, *call: pauses_s.append(pause_s))
        PrefetchLab(days=days, event_frequency=64.0)

    asyncio.run(create())
    assert pauses_s == [pytest.approx(share)]


@pytest.mark.parametrize("policy", ["buffer", "on-line"])
def test_marks_and_curves_cover_the_same_days_at_every_step(policy, runs, monkeypatch):
    drawn = []

    def record_curve(figure, points, now, *, title):
        drawn.append((points, now, title))

    widget = PrefetchLab(days=60, event_frequency=64.0, prefetch_limit=32)
    widget.finish()
    monkeypatch.setattr("mudkit.figures.prefetching.update_limit_curve", record_curve)
    runs.clear()
    widget.controls["policy"].value = policy
    widget.controls["seed"].value = 1
    assert read_measures(widget)[-1] < 60
    assert {run["days"] for run in runs} == {read_measures(widget)[-1]}
    for _ in widget._rest:
        assert drawn[-1][-1].endswith(f", {read_measures(widget)[-1]:g} days")
    assert read_measures(widget)[-1] == 60
    for points, (limit, waste, loss), title in drawn:
        assert title.count(" days") == 1
        if policy == "buffer":
            assert (limit, waste, loss) in points
