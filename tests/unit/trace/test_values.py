"""Conversion of texts and typed values to numbers."""

import numpy as np
import pyarrow as pa
import pytest

from mudkit.trace.values import numbers


@pytest.mark.parametrize(
    ("text", "number", "with_comma"),
    [
        ("47,002", np.nan, 47.002),
        (" -8,5 ", np.nan, -8.5),
        ("47.002", 47.002, 47.002),
        ("1,234,5", np.nan, np.nan),
        ("1.234,5", np.nan, np.nan),
        ("", np.nan, np.nan),
    ],
)
def test_decimal_comma_is_read_where_it_is_allowed(text, number, with_comma):
    column = pa.array([text, "1"])
    for value, is_allowed in ((number, False), (with_comma, True)):
        assert np.array_equal(numbers(column, decimal_comma=is_allowed), [value, 1], equal_nan=True)
