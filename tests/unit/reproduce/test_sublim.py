"""Rows of SUBLIM at small sizes, untimed."""

from __future__ import annotations

import pytest
from measured_rows import check_complete

from mudkit.reproduce import sublim
from mudkit.reproduce.row import Measured, Quantity, judge, say_nothing

S1, S2, S3 = sublim.ROWS


def test_s1_compares_rules_function_and_one_timestamp():
    measured = check_complete(S1, sublim.measure_rules(say_nothing, count=500))
    assert measured.quantities["share of situations that are right"].median == 1
    assert measured.quantities["share of messages on which rules and function agree"].median == 1
    assert measured.quantities["patients starved by one Timestamp"].median == 3
    assert judge(S1, measured)[0] == "not reproducible"  # 500 messages are not 10,000


def test_s1_detects_a_wrong_rule(monkeypatch):
    def wrong_function(patients):
        return sublim.picu(patients, per=None)

    monkeypatch.setattr(sublim, "picu_function", wrong_function)
    measured = sublim.measure_rules(say_nothing, count=500)
    assert measured.quantities["share of messages on which rules and function agree"].median < 1


def test_s2_runs_until_enough_handovers_occurred(monkeypatch):
    class SingleProcess:
        def __enter__(self):
            return map

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(sublim, "spread_out", lambda part: SingleProcess())
    measured = check_complete(S2, sublim.measure_roaming(say_nothing, handovers=12))
    assert measured.quantities["handovers"].median >= 12
    assert measured.quantities["crashes"].median > 0
    assert [measured.quantities[name].median for name in ("lost", "repeated", "wrong states")] == [0, 0, 0]
    assert measured.parameters["seeds"].startswith("0–")


@pytest.mark.parametrize("error", ["lost", "repeated", "wrong states"])
def test_s2_is_not_reproduced_after_any_error(error):
    values = {"handovers": 1000, "crashes": 900, "lost": 0, "repeated": 0, "wrong states": 0}
    assert judge(S2, Measured({n: Quantity.of([v]) for n, v in values.items()}, {}))[0] == "reproduced"
    values[error] = 1
    assert judge(S2, Measured({n: Quantity.of([v]) for n, v in values.items()}, {}))[0] == "not reproducible"


def test_s3_counts_decisions():
    texts = []
    measured = check_complete(S3, sublim.measure_speed(texts.append, decisions=200, runs=2))
    assert texts == ["run 1 of 2", "run 2 of 2"]
    assert measured.quantities["decisions/s"].low > 0
    assert measured.quantities["decisions/s with 100 live keys"].low > 0
    assert S3.is_speed
