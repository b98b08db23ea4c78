"""What a scoreboard keeps of its first seed."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.scoreboard import by_device, disclosed, play, scoreboard
from mudkit.experiment.tasks import PHOTOS

TASK = PHOTOS.over(devices=6, hours=6.0)
TWO = {name: ADAPTERS[name] for name in ("to everyone", "Contrail")}


@pytest.fixture(scope="module")
def result():
    return scoreboard([TASK], TWO, seeds=[4, 5])


def test_it_is_of_the_first_seed_and_of_each_system(result):
    for name, make in TWO.items():
        entry = play(TASK, make, 4, name=name)
        for kept, own in ((result.devices, by_device(entry)), (result.disclosed, disclosed(entry))):
            rows = kept.query("task == @TASK.name and system == @name").reset_index(drop=True)
            pd.testing.assert_frame_equal(rows.drop(columns=["task", "system"]), own)
        latencies = result.latencies.query("system == @name")["latency_s"]
        assert sorted(latencies) == sorted(entry.deliveries.query("status == 'read'")["latency_s"])
    assert result.devices["system"].unique().tolist() == list(TWO)


def test_nothing_is_kept_if_it_is_not_wanted():
    bare = scoreboard([TASK], {"to everyone": TWO["to everyone"]}, seeds=[4], privacy=False)
    assert bare.devices.empty
    assert bare.disclosed.empty
    assert bare.latencies.empty
