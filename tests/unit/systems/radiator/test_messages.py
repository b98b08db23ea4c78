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
def test_it_comes_back(compress):
    for message in ({}, {"kind": "x", "é": [1, 2.5, None, True, "\u0000"]}, [], "text", 3):
        assert unpack(pack(message, compress)) == message


def test_no_bytes_raise(scaled):
    draw, count = Random(1), scaled(5_000, 500)
    whole = pack({"kind": "push", "chain": [["a", "b"]], "text": "x" * 50}, compress=True)
    odd = [
        b"",
        b"\x1f\x8b",
        whole[:-1],
        whole + b"x",
        whole + whole,
        b"[" * 200_000,
        b'{"a":1e999}',
        b"\xff\xfe",
    ]
    odd += [gzip.compress(b"[" * 200_000), gzip.compress(b"")]
    odd += [draw.randbytes(draw.randrange(60)) for _ in range(count)]
    odd += [b"\x1f\x8b" + draw.randbytes(draw.randrange(60)) for _ in range(count)]
    for each in odd:
        assert unpack(each) is None or json.loads(each) == unpack(each)
    for _ in range(4 * count):
        place = draw.randrange(len(whole))
        unpack(whole[:place] + draw.randbytes(1) + whole[place + 1 :])


def test_a_bomb_does_not_go_off():
    bomb = gzip.compress(b" " * (8 * MAX_BYTES))
    assert len(bomb) < MAX_BYTES / 10
    tracemalloc.start()
    try:
        assert unpack(bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BYTES
    finally:
        tracemalloc.stop()
    assert unpack(b" " * (MAX_BYTES + 1)) is None
