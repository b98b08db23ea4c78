"""The rows of SUBLIM, at small size and untimed."""

from __future__ import annotations

import pytest
from measured_rows import complete

from mudkit.reproduce import sublim
from mudkit.reproduce.row import Figure, Measured, judge, say_nothing

S1, S2, S3 = sublim.ROWS


def test_s1_is_about_rules_and_function_and_one_timestamp():
    measured = complete(S1, sublim.measure_rules(say_nothing, count=500))
    assert measured.figures["share of situations that are right"].median == 1
    assert measured.figures["share of messages on which rules and function agree"].median == 1
    assert measured.figures["patients starved by one Timestamp"].median == 3
    assert judge(S1, measured)[0] == "not reproducible"  # 500 messages are not 10,000


def test_s1_notices_a_rule_that_is_wrong(monkeypatch):
    def other(patients):
        return sublim.picu(patients, per=None)

    monkeypatch.setattr(sublim, "picu_function", other)
    measured = sublim.measure_rules(say_nothing, count=500)
    assert measured.figures["share of messages on which rules and function agree"].median < 1


def test_s2_walks_until_there_were_enough_handovers(monkeypatch):
    class Alone:
        def __enter__(self):
            return map

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(sublim, "spread_out", lambda part: Alone())
    measured = complete(S2, sublim.measure_roaming(say_nothing, handovers=12))
    assert measured.figures["handovers"].median >= 12
    assert measured.figures["crashes"].median > 0
    assert [measured.figures[name].median for name in ("lost", "repeated", "wrong states")] == [0, 0, 0]
    assert measured.parameters["seeds"].startswith("0–")


@pytest.mark.parametrize("spoilt", ["lost", "repeated", "wrong states"])
def test_s2_is_not_reproduced_when_something_is_wrong(spoilt):
    values = {"handovers": 1000, "crashes": 900, "lost": 0, "repeated": 0, "wrong states": 0}
    assert judge(S2, Measured({n: Figure.of([v]) for n, v in values.items()}, {}))[0] == "reproduced"
    values[spoilt] = 1
    assert judge(S2, Measured({n: Figure.of([v]) for n, v in values.items()}, {}))[0] == "not reproducible"


def test_s3_counts_decisions():
    measured = complete(S3, sublim.measure_speed(say_nothing, decisions=200, runs=2))
    assert measured.figures["decisions/s"].low > 0
    assert measured.figures["decisions/s with 100 live keys"].low > 0
    assert S3.is_speed
