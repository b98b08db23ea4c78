"""Check of the measured rows of the reproduction."""

import math


def check_complete(row, measured):
    """Check that all required figures of a row exist and are numbers; return the measurement."""
    assert {required.quantity for required in row.required} <= set(measured.quantities)
    for name, quantity in measured.quantities.items():
        assert not math.isnan(quantity.median), name
        assert quantity.low <= quantity.median <= quantity.high, name
    return measured
