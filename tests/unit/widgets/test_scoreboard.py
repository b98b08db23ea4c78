"""Scoreboard: values for all devices and for one, choice of axes, and invalid choices."""

from __future__ import annotations

import pandas as pd
import pytest
from html_tables import table_rows

from mudkit import words
from mudkit.experiment import (
    ADAPTERS,
    DEVICE_MEASURES,
    GAINS,
    LABELS,
    MEASURES,
    PHOTOS,
    WARD,
    pareto_front,
    scoreboard,
)
from mudkit.experiment import Scoreboard as ScoreboardResult
from mudkit.widgets import Scoreboard

SYSTEMS = {name: ADAPTERS[name] for name in ("to everyone", "SUBLIM", "Last hop")}


@pytest.fixture(scope="module")
def result():
    return scoreboard(
        [PHOTOS.over(devices=6, hours=6.0), WARD.over(devices=2, hours=0.05)], SYSTEMS, seeds=[2, 3]
    )


@pytest.fixture
def board(result):
    return Scoreboard(result)


def read_points(board):
    """Return the points of the figure by system, and the systems on the front."""
    points = {
        name: (x, y)
        for trace in board.figure.data[1:]
        for x, y, names in zip(trace.x, trace.y, trace.text, strict=True)
        for name in names.split(", ")
    }
    best = {name for names in board.figure.data[1].text for name in names.split(", ")}
    return points, best


def read_table(board):
    """Return the texts of the table by measure."""
    return {label: cells for label, *cells in table_rows(board.table.value)[1:]}


def test_board_shows_the_means_over_seeds(board, result):
    points, best = read_points(board)
    table = result.table("photo sharing")
    for name, (x, y) in points.items():
        assert x == pytest.approx(table.loc[name, "j_per_useful"])
        assert y == pytest.approx(table.loc[name, "useful_share"])
    front_now = pareto_front(table.reset_index(), "j_per_useful", "useful_share")
    assert best == set(front_now.loc[front_now["is_best"], "system"])
    assert "mean of 2 seeds" in board.status.value
    assert all(name in board.status.value for name in best)
    cells = read_table(board)
    assert set(cells) == set(LABELS.values())
    for measure in MEASURES:
        values = table[measure]
        best_value = values.max() if measure in GAINS else values.min()
        places = words.decimals(values)
        for cell, value in zip(cells[LABELS[measure]], values, strict=True):
            assert cell.removeprefix("● ") == words.number(value, places)
            assert cell.startswith("●") == (value == best_value and values.nunique() > 1)


def test_each_control_has_a_label(board):
    controls = board.task, board.device, board.x, board.y
    assert [control.description for control in controls] == ["task", "device", "across", "up"]


def test_axes_can_be_selected(board, result):
    board.x.value, board.y.value = "down_kb", "battery_h"
    points, best = read_points(board)
    table = result.table("photo sharing")
    assert points["SUBLIM"] == pytest.approx(
        (table.loc["SUBLIM", "down_kb"], table.loc["SUBLIM", "battery_h"])
    )
    assert best == {table["down_kb"].idxmin()} | {table["battery_h"].idxmax()}
    assert board.figure.layout.xaxis.title.text == "down, kB"
    assert "battery, h" in board.status.value


def test_device_can_be_selected(board, result):
    phone = result.devices["device"].iloc[3]
    board.device.value = phone
    rows = result.devices.query("task == 'photo sharing' and device == @phone").set_index("system")
    points, _ = read_points(board)
    for name, (x, y) in points.items():
        assert (x, y) == pytest.approx((rows.loc[name, "j_per_useful"], rows.loc[name, "useful_share"]))
    assert board.figure.layout.title.text == f"photo sharing, {phone}"
    assert f"first seed, {rows['wanted_count'].iloc[0]} items wanted" in board.status.value
    assert set(read_table(board)) == {LABELS[name] for name in DEVICE_MEASURES}


def test_tasks_have_their_own_devices(board, result):
    board.device.value = "phone-00004"
    board.task.value = "ward telemetry"
    assert board.device.value == "all devices", "there is no such phone"
    names = list(board.device.options)
    assert names[:4] == ["all devices", "phone-00000", "phone-00001", "feed-00000"]
    points, _ = read_points(board)
    expected = result.table("ward telemetry").loc["SUBLIM", ["j_per_useful", "useful_share"]]
    assert points["SUBLIM"] == pytest.approx(tuple(expected))
    board.device.value = "phone-00001"
    board.task.value = "photo sharing"
    assert board.device.value == "phone-00001", "it stays where there is one of that name"
    board.task.value, board.device.value = "ward telemetry", "feed-00000"
    assert "On the Pareto front: none" in board.status.value
    assert "without a value" in board.figure.layout.title.subtitle.text


def test_invalid_choice_is_reported_and_keeps_the_figure(board):
    kept = read_points(board), board.status.value, board.table.value
    board.x.value = "useful_share"
    assert "role='alert'" in board.problem.value
    assert (read_points(board), board.status.value, board.table.value) == kept
    board.x.value = "server_events"
    assert board.problem.value == ""
    kept = read_points(board), board.status.value, board.table.value
    board.device.value = "phone-00001"
    assert "server_events" in board.problem.value, "no device has it"
    assert (read_points(board), board.status.value, board.table.value) == kept
    board.x.value = "radio_j"
    assert board.problem.value == ""
    assert "phone-00001" in board.figure.layout.title.text


def test_board_without_devices_offers_only_all_of_them(result):
    result_without_devices = scoreboard(
        [PHOTOS.over(devices=4, hours=3.0)], SYSTEMS, seeds=[2], privacy=False
    )
    board = Scoreboard(result_without_devices)
    assert list(board.device.options) == ["all devices"]
    assert "mean of 1 seed)" in board.status.value


def test_markup_is_escaped():
    runs = pd.DataFrame(
        [
            {"task": "<i>", "system": name, "seed": 0, "wanted_count": 4, **dict.fromkeys(MEASURES, value)}
            for name, value in (("<b>", 0.0), ("c", 1.0))
        ]
    )
    empty = pd.DataFrame()
    widget = Scoreboard(ScoreboardResult(runs, empty, "<b>", *[empty] * 5))
    assert table_rows(widget.table.value)[0] == ["measure", "<b>", "c"]
