"""Items as bytes: what a friend's device has packed is unpacked, or refused as no item."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.contrail import Item
from mudkit.systems.contrail.items import check_name, pack, unpack


@pytest.mark.parametrize("depth", [900, 5_000, 200_000])
def test_metadata_that_is_nested_too_deeply_is_no_item(depth):
    """A friend has the keys: such an item is dropped as tampered, and the receiver continues."""
    metadata = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    packed = pack(Item({}, b"payload"))
    head = len(metadata).to_bytes(4, "big") + packed[4:].removesuffix(b"{}payload")
    with pytest.raises(ValueError, match="nested too deeply"):
        unpack(head + metadata + b"payload")
    assert unpack(packed) == ({}, b"payload")


def test_names_have_1_to_200_characters():
    for count in (1, 200):
        assert check_name("an item", "x" * count) == "x" * count
    for count in (0, 201):
        with pytest.raises(ParameterError, match="1 to 200 printable characters"):
            check_name("an item", "x" * count)
