"""Sets of partitions in messages, written as short texts: ``0-3``, ``1-9/2`` for every second one, ``0 4 7``.

By default processors take the partitions of a table in turns, so that those of each are one term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta

_MAX_PARTITIONS: Final = 100_000

Partitions: TypeAlias = Annotated[
    str, Meta(max_length=1 << 20, pattern=r"\A([0-9]{1,18}(-[0-9]{1,18}(/[0-9]{1,18})?)?( (?!\Z)|\Z))*\Z")
]
"""Numbers of partitions in ascending order, as :func:`write_partitions` writes them; empty: none."""

_V = TypeVar("_V")


def write_partitions(partitions: Iterable[int]) -> str:
    """Return the text of a set of partitions; three or more at equal distances are one term."""
    numbers, terms = sorted({*partitions}), list[str]()
    begin = 0
    while begin < len(numbers):
        end = begin
        step = numbers[begin + 1] - numbers[begin] if begin + 1 < len(numbers) else 0
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
            end += 1
        if end - begin < 2:
            terms.append(str(numbers[begin]))
            begin += 1
            continue
        every = "" if step == 1 else f"/{step}"
        terms.append(f"{numbers[begin]}-{numbers[end]}{every}")
        begin = end + 1
    return " ".join(terms)


def read_partitions(text: str) -> list[int]:
    """Return the partitions of a text, in ascending order; raise ValueError for any other text."""
    numbers: list[int] = []
    for term in text.split(" ") if text else ():
        bounds, _, step = term.partition("/")
        first, _, last = bounds.partition("-")
        for number in range(int(first), int(last or first) + 1, int(step or 1)):
            if (numbers and number <= numbers[-1]) or len(numbers) == _MAX_PARTITIONS:
                expected = f"at most {_MAX_PARTITIONS:,} partitions in ascending order"
                raise ValueError(f"expected {expected}, found {text[:80]!r}")
            numbers.append(number)
    return numbers


def group_by_value(values: Mapping[int, _V]) -> dict[str, _V]:
    """Return a value of each partition with the partitions that have it together, as messages have them."""
    partitions_of: dict[_V, list[int]] = {}
    for partition, value in sorted(values.items()):
        partitions_of.setdefault(value, []).append(partition)
    return {write_partitions(partitions): value for value, partitions in partitions_of.items()}


def values_by_partition(grouped: Mapping[str, _V]) -> dict[int, _V]:
    """Return the value of each partition of :func:`group_by_value`; raise ValueError for unusable keys."""
    return {partition: value for text, value in grouped.items() for partition in read_partitions(text)}
