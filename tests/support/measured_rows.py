"""Check of the measured rows of the reproduction."""

import math


def check_complete(row, measured):
    """Check that all required figures of a row exist and are numbers; return the measurement."""
    assert {required.figure for required in row.required} <= set(measured.figures)
    for name, figure in measured.figures.items():
        assert not math.isnan(figure.median), name
        assert figure.low <= figure.median <= figure.high, name
    return measured
