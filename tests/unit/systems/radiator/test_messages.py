"""Encoding of messages: no bytes make :func:`unpack` raise or exhaust the memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from random import Random

import pytest

from mudkit.systems.radiator import pack, unpack
from mudkit.systems.radiator.messages import MAX_BYTES


@pytest.mark.parametrize("compress", [False, True])
def test_message_survives_a_round_trip(compress):
    for message in ({}, {"kind": "x", "é": [1, 2.5, None, True, "\u0000"]}, [], "text", 3):
        assert unpack(pack(message, compress)) == message


def test_unpack_raises_for_no_bytes(scaled):
    draw, count = Random(1), scaled(5_000, 500)
    packed = pack({"kind": "push", "chain": [["a", "b"]], "text": "x" * 50}, compress=True)
    inputs = [
        b"",
        b"\x1f\x8b",
        packed[:-1],
        packed + b"x",
        packed + packed,
        b"[" * 200_000,
        b'{"a":1e999}',
        b"\xff\xfe",
    ]
    inputs += [gzip.compress(b"[" * 200_000), gzip.compress(b"")]
    inputs += [draw.randbytes(draw.randrange(60)) for _ in range(count)]
    inputs += [b"\x1f\x8b" + draw.randbytes(draw.randrange(60)) for _ in range(count)]
    for data in inputs:
        assert unpack(data) is None or json.loads(data) == unpack(data)
    for _ in range(4 * count):
        index = draw.randrange(len(packed))
        unpack(packed[:index] + draw.randbytes(1) + packed[index + 1 :])


def test_decompression_bomb_is_refused_in_bounded_memory():
    bomb = gzip.compress(b" " * (8 * MAX_BYTES))
    assert len(bomb) < MAX_BYTES / 10
    tracemalloc.start()
    try:
        assert unpack(bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BYTES
    finally:
        tracemalloc.stop()
    assert unpack(b" " * (MAX_BYTES + 1)) is None
