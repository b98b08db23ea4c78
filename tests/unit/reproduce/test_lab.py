"""Rows F1, F5 and F6 at small sizes, untimed."""

import time

import pytest
from measured_rows import check_complete

from mudkit.consistency import check
from mudkit.predicates import Predicate
from mudkit.reproduce import lab
from mudkit.reproduce.lab import F1, F5, F6


def test_f5_measures_all_required_quantities():
    measured = lab.measure_predicates(texts=3, calls=5, runs=2)
    check_complete(F5, measured)
    assert all(quantity.low > 0 for quantity in measured.quantities.values())


@pytest.mark.soak
def test_f1_counts_positions_messages_and_memory():
    measured = lab.measure_kernel(devices=20, hours=1, repeats=1, fleet=30, fleet_hours=2, seeds=[3])
    check_complete(F1, measured)
    assert measured.quantities["positions"].median == 30 * 121
    # A report every ten minutes and its acknowledgement; only device 1 reports at both ends of the run.
    assert measured.quantities["messages"].median == (30 * 12 + 1) * 2 - 1
    assert (
        0
        < measured.quantities["MB before"].median
        <= measured.quantities["MB at the peak, large fleet"].median
    )


def test_f1_counts_its_runs_from_one(monkeypatch):
    monkeypatch.setattr(
        lab, "answer_of", lambda *_, **__: dict.fromkeys(("peak", "before", "positions", "messages", "s"), 1)
    )
    texts = []
    lab.measure_kernel(texts.append, devices=1, hours=1, repeats=2, fleet=1, fleet_hours=1, seeds=[3])
    assert [text.rpartition(", ")[2] for text in texts] == ["1 of 2", "2 of 2", "seed 3"]


def test_held_fleet_is_counted_and_timed():
    began_s = time.perf_counter()
    result = lab.hold_fleet(3, 1, 3)
    assert 0 < result["s"] <= time.perf_counter() - began_s
    assert result["positions"] == 3 * 61
    assert 0 < result["before"] <= result["peak"]


def test_f6_measures_all_required_quantities():
    measured = lab.measure_checker(
        operations=200, clients=5, few=3, sizes=(10, 20), within_s=5.0, seeds=[1, 2]
    )
    check_complete(F6, measured)
    assert measured.quantities["share of right verdicts"].median == 1
    for model in lab.VIEWS:
        assert measured.quantities[f"operations the search decides, {model.name}"].low == 20
    assert "Porcupine" in measured.parameters["peer"]


def test_f6_ignores_searches_that_time_out():
    model = lab.ONE_VIEW[0]
    assert lab._largest(model, (10, 20), 3, 1e-9, 1, lambda text: None) == 0


@pytest.mark.parametrize("is_latest", [True, False])
def test_f6_histories_satisfy_their_consistency_models(is_latest):
    history = lab.store_history(60, clients=4, is_latest=is_latest, seed=4)
    assert lab.store_history(60, clients=4, is_latest=is_latest, seed=4) == history
    statuses = {model.name: check(history, model.name).status for model in lab.ONE_VIEW}
    assert statuses["sequential"] == statuses["sequential-wio"] == "OK"
    assert (statuses["linearizable"] == "OK") == is_latest
    assert check(lab.with_mistake(history), "sequential").status == "ILLEGAL"
    assert all(operation.content.version is None for operation in lab.without_versions(history))


def test_renamed_texts_have_different_signatures():
    texts = lab._renamed(lab.PLAIN, 5)
    assert len({Predicate(text, low=1, high=2).signature for text in texts}) == 5
