"""What parties know, from what they held."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.experiment.scoreboard import ENTRANTS, PHOTOS, knowledge, play

_FEW = PHOTOS.over(devices=5, hours=6.0, size_bytes=200, outage=0.0)


@pytest.fixture(scope="module")
def known():
    """What is known after the same task, by system."""
    entries = {name: play(_FEW, make, seed=6, name=name) for name, make in ENTRANTS.items()}
    return {name: (entry, knowledge(entry).set_index("party")) for name, entry in entries.items()}


@pytest.mark.parametrize("system", ["to everyone", "MUD", "Last hop", "Radiator", "SUBLIM"])
def test_servers_read_everything_that_is_sent_in_clear(known, system):
    entry, table = known[system]
    assert table.loc["servers", "items_read"] == len(entry.stage.items) > 0
    assert table.loc["servers", "ciphertext_kb"] == 0


def test_contrails_relay_reads_nothing(known):
    _, table = known["Contrail"]
    assert table.loc["servers", "items_read"] == 0
    assert table.loc["servers", "ciphertext_kb"] > 0


def test_phones_read_what_is_not_for_them_where_all_get_everything(known):
    for system in ("to everyone", "Radiator"):
        assert known[system][1].loc["a phone", "items_not_for_it"] > 0
    for system in ("MUD", "Last hop", "Contrail", "SUBLIM"):
        assert known[system][1].loc["a phone", "items_not_for_it"] == 0


def test_a_run_that_has_not_kept_it():
    with pytest.raises(ParameterError, match="does not keep"):
        knowledge(play(_FEW.over(hours=0.1), ENTRANTS["MUD"], seed=1, held=False))
