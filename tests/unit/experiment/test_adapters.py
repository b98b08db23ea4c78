"""Contrail adapter: it delivers the items of the scenario, and its relays hold only ciphertext."""

from __future__ import annotations

import pytest

from mudkit.experiment import Contrail, Scenario, StoreAndForward, run
from mudkit.sources.workloads import Poisson, WakingReads

SCENARIO = Scenario(
    devices=4, hours=3.0, link="umts_3g", outage=0.2, items=Poisson(per_day=100), receivers=2, size_bytes=77,
    reads=WakingReads(per_day=200), expires_s=7200.0, loss_share=0.05,
)  # fmt: skip


@pytest.fixture(scope="module")
def entry():
    return run(SCENARIO, Contrail, seed=1)


def test_contrail_delivers_the_items_of_the_scenario(entry):
    other = run(SCENARIO, StoreAndForward, seed=1)
    columns = ["item", "receiver", "created", "expired"]
    assert entry.deliveries[columns].equals(other.deliveries[columns])
    status = entry.deliveries["status"].value_counts()
    assert status["read"] > 0.8 * len(entry.deliveries)
    assert set(status.index) <= {"read", "unread", "lost", "expired"}
    delivered = entry.deliveries.dropna(subset=["read"])
    assert (delivered.read > delivered.delivered).mean() > 0.9  # at the user's next look
    assert entry.measures()["latency_s"] > other.measures()["latency_s"]  # Contrail polls
    assert (entry.bill["bytes"] > 0).all()
    assert set(entry.bill["system"]) == {"contrail"}


@pytest.mark.soak
def test_runs_with_same_seed_are_identical(entry):
    again = run(SCENARIO, Contrail, seed=1)
    assert again.bill.equals(entry.bill)
    assert again.deliveries.equals(entry.deliveries)


def test_relays_hold_items_only_as_ciphertext(entry):
    exposure = entry.lab.exposure()
    assert (
        exposure[exposure.party.str.startswith("contrail-") & (exposure.form == "ciphertext")].bytes.sum()
        > 100_000
    )
    for private in ("x" * 77, "destination"):
        assert not [
            party for party, *_ in entry.trace.exposure.find(private) if party.startswith("contrail-")
        ]
