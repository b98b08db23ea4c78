"""What every row of the reproduction has once it was measured."""

import math


def complete(row, measured):
    """Check that all figures that the row requires are there, and are numbers; return the measurement."""
    assert {required.figure for required in row.required} <= set(measured.figures)
    for name, figure in measured.figures.items():
        assert not math.isnan(figure.median), name
        assert figure.low <= figure.median <= figure.high, name
    return measured
