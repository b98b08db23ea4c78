"""Contrail in an experiment: its deliveries are the scenario's, what relays hold of it is ciphertext."""

from __future__ import annotations

import pytest

from mudkit.experiment import Contrail, Scenario, StoreAndForward, run
from mudkit.sources.workloads import Poisson, WakingReads

SCENARIO = Scenario(
    devices=4, hours=3.0, link="umts_3g", outage=0.2, items=Poisson(per_day=100), receivers=2, size_bytes=77,
    reads=WakingReads(per_day=200), expires_s=7200.0, loss_share=0.05,
)  # fmt: skip


@pytest.fixture(scope="module")
def done():
    return run(SCENARIO, Contrail, seed=1)


def test_its_deliveries_are_those_of_the_scenario(done):
    other = run(SCENARIO, StoreAndForward, seed=1)
    what = ["item", "receiver", "created", "expired"]
    assert done.deliveries[what].equals(other.deliveries[what])
    status = done.deliveries["status"].value_counts()
    assert status["read"] > 0.8 * len(done.deliveries)
    assert set(status.index) <= {"read", "unread", "lost", "expired"}
    delivered = done.deliveries.dropna(subset=["read"])
    assert (delivered.read > delivered.delivered).mean() > 0.9  # when the user looks, not when it comes
    assert done.measures()["latency_s"] > other.measures()["latency_s"]  # it polls
    assert (done.bill["bytes"] > 0).all()
    assert set(done.bill["system"]) == {"contrail"}


@pytest.mark.soak
def test_the_same_seed_is_the_same_run(done):
    again = run(SCENARIO, Contrail, seed=1)
    assert again.bill.equals(done.bill)
    assert again.deliveries.equals(done.deliveries)


def test_what_relays_held_of_the_items_is_ciphertext(done):
    held = done.lab.exposure()
    assert held[held.party.str.startswith("contrail-") & (held.form == "ciphertext")].bytes.sum() > 100_000
    for private in ("x" * 77, "destination"):
        assert not [party for party, *_ in done.trace.exposure.find(private) if party.startswith("contrail-")]
