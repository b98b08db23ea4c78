"""Reads of a map by taxis that ask the cloud, with containment of equal boxes and of smaller ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from taxi_reads import TRACE, count_asked

GUIDE = Path(__file__).parents[4] / "docs/guides/mud.md"


@pytest.mark.soak
@pytest.mark.parametrize("box_km", [1, 4, 16])
def test_taxis_ask_the_cloud_as_often_as_the_guide_says(box_km, monkeypatch):
    if not TRACE.is_file():
        pytest.skip(f"{TRACE.name} is not on this machine")
    equal, within = (count_asked(float(box_km), 5, monkeypatch, by_intervals=way) for way in (False, True))
    cells = [f"{100 * share:.0f} | {kb:.2f}" for share, kb in (equal, within)]
    assert f"| {box_km} | {' | '.join(cells)} |" in GUIDE.read_text(encoding="utf-8")
