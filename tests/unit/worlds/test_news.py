"""News reader: reads sent under each policy, and stale answers."""

import math

import pytest

from mudkit.systems.mud import AlwaysRemote, Freshness
from mudkit.worlds import NewsReader

READER = NewsReader(look_minutes=5.0, article_minutes=20.0, hours=4.0)


def test_always_remote_is_never_stale():
    measures = READER.run(AlwaysRemote(), seed=1)
    assert (measures["sent_share"], measures["stale_share"]) == (1.0, 0.0)
    assert measures["j_per_look"] == pytest.approx(measures["radio_j"] / measures["looks"])


def test_cached_answers_save_energy_and_may_be_stale():
    table = READER.compare({"cloud": AlwaysRemote(), "phone": Freshness(600)}, seed=1).set_index("policy")
    assert table.loc["phone", "looks"] == table.loc["cloud", "looks"]
    assert table.loc["phone", "radio_j"] < table.loc["cloud", "radio_j"] / 2
    assert 0 < table.loc["phone", "stale_share"] < 1


def test_reader_without_looks_costs_nothing():
    measures = NewsReader(look_minutes=1440.0, article_minutes=30.0, hours=0.1).run(AlwaysRemote(), seed=1)
    assert (measures["looks"], measures["radio_j"], measures["messages"]) == (0.0, 0.0, 0.0)
    assert math.isnan(measures["j_per_look"])
