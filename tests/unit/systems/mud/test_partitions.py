"""Sets of partitions in messages."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.mud.messages.partitions import (
    Partitions,
    group_by_value,
    read_partitions,
    values_by_partition,
    write_partitions,
)

NUMBERS = st.integers(0, 99_999) | st.integers(0, 20)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0 1"),
        ([2, 0, 1], "0-2"),
        ([0, 2, 4, 6], "0-6/2"),
        ([1, 4, 7, 8, 9], "1-7/3 8 9"),
        ([0, 5, 6, 7], "0 5-7"),
        (range(1, 1000, 2), "1-999/2"),
    ],
)
def test_partitions_are_written_as_few_terms(numbers, text):
    assert write_partitions(numbers) == text
    assert read_partitions(text) == sorted(numbers)


@given(st.sets(NUMBERS, max_size=60))
def test_text_has_the_partitions_that_were_written(numbers):
    text = write_partitions(numbers)
    assert msgspec.convert(text, Partitions) == text
    assert read_partitions(text) == sorted(numbers)


@given(st.dictionaries(NUMBERS, st.integers(0, 3)))
def test_grouped_values_are_those_of_each_partition(values):
    grouped = group_by_value(values)
    assert values_by_partition(grouped) == values
    assert len(grouped) == len(set(values.values()))


@pytest.mark.parametrize("text", [" ", "a", "0 ", "0  1", "-1", "1-", "0-4/", "0\n", "1" * 19, "１"])
def test_text_of_another_form_is_refused(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Partitions)


@pytest.mark.parametrize("text", ["1 0", "0 0", "0-3 2", "0-4/0", "0-99999 5", "0-999999999999"])
def test_partitions_out_of_order_are_refused(text):
    assert msgspec.convert(text, Partitions) == text
    with pytest.raises(ValueError):  # noqa: PT011 - of the function or of range
        read_partitions(text)
