"""What is only packed is opened; what is sealed, and what is no packing at all, stays as it is."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import pickle
import zlib
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.events import Ciphertext
from mudkit.fleet.exposure import Exposure, leaves
from mudkit.fleet.unpacking import MAX_BYTES, Budget, unpack
from mudkit.systems.radiator.messages import pack

_SECRET = "the SECRET of the shed"
_TOLD = {"to": "phone-00001", "text": [_SECRET]}
_JSON = json.dumps(_TOLD).encode()


def _deflated(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


_PACKINGS = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zlib, fast": lambda data: zlib.compress(data, 1),
    "deflate": _deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "base64": base64.b64encode,
    "base64 of addresses": base64.urlsafe_b64encode,
    "base64 without its end": lambda data: base64.b64encode(data).rstrip(b"="),
    "base32": base64.b32encode,
    "hex": lambda data: data.hex().encode(),
    "HEX": lambda data: data.hex().upper().encode(),
    "MessagePack": lambda data: msgspec.msgpack.encode({"inner": data}),
    "pickle": pickle.dumps,
    "JSON": lambda data: data,
}


def _parties(value) -> bool:
    held = Exposure()
    held.record_message("relay", "s", "phone-00000", value, 1, {"phone-00000", "phone-00001"})
    named = {each.device for each in held.mentions}
    return bool(held.find(_SECRET)) and named == {"phone-00001"}


@pytest.mark.parametrize("packing", _PACKINGS)
def test_what_is_packed_is_found_and_so_is_whom_it_names(packing):
    packed = _PACKINGS[packing](_JSON)
    assert _parties(packed)
    assert _parties({"body": packed, "n": 1})


@pytest.mark.parametrize("outer", ["base64", "base32", "hex", "gzip", "zlib", "bzip2", "xz", "MessagePack"])
@pytest.mark.parametrize("inner", ["gzip", "zlib", "deflate", "base64", "hex", "MessagePack"])
def test_one_in_another(outer, inner):
    assert _parties(_PACKINGS[outer](_PACKINGS[inner](_JSON)))


def test_a_packed_text_in_a_text_in_json():
    inner = base64.b64encode(gzip.compress(_JSON)).decode()
    assert _parties({"text": json.dumps({"data": f"data:application/gzip;base64,{inner}"})})
    assert _parties({"text": json.dumps({"body": [msgspec.json.encode({"b": inner}).decode()]})})


def test_what_json_escapes_is_read():
    held = Exposure()
    held.record("relay", "s", "received", {"text": json.dumps({"Zoë": 'says "no"'})}, 1)
    assert held.find("Zoë") == held.find('says "no"') == [("relay", "text.Zoë", 1)]


def test_packed_json_stands_as_it_would_if_it_were_not_packed():
    plain, packed = Exposure(), Exposure()
    plain.record("relay", "s", "received", _TOLD, 1)
    packed.record("relay", "s", "received", pack(_TOLD, compress=True), 1)
    rows = [row for row in packed.rows() if row.form != "packed"]
    assert rows == list(plain.rows())
    (outer,) = (row for row in packed.rows() if row.form == "packed")
    assert outer.bytes == len(pack(_TOLD, compress=True))


def test_a_mark_is_not_believed_of_what_opens():
    held = Exposure()
    held.record("relay", "s", "received", {"box": Ciphertext(gzip.compress(_JSON))}, 1)
    assert held.find(_SECRET) == [("relay", "box.text[]", 1)]


@given(st.binary(min_size=0, max_size=300))
def test_what_was_drawn_by_lot_is_no_text(data):
    result = unpack(data, Budget())
    assert result is None or data  # nothing raises
    assert data in [each for _, _, each in leaves(data)]


def test_what_is_sealed_stays_closed():
    draw = Random(1)
    drawn = [draw.randbytes(size) for size in (16, 24, 32, 57, 300, 5000) for _ in range(50)]
    assert [unpack(each, Budget()) for each in drawn] == [None] * len(drawn)
    letters = [base64.b64encode(each) for each in drawn]
    assert [unpack(each, Budget()) for each in letters] == [None] * len(drawn)


@pytest.mark.parametrize(
    "text",
    ["", "a", "phone-00001", "arts|sports|weather", "4a6f", "a plain sentence of some length", "[]", "{a}"],
)
def test_words_are_words(text):
    assert unpack(text.encode(), Budget()) is None


def test_a_bomb_is_opened_as_far_as_there_is_room():
    bomb = gzip.compress(b"\0" * (MAX_BYTES * 4), 9)
    result = list(leaves({"a": bomb, "b": bomb}))
    assert sum(len(data) for _, _, data in result) < MAX_BYTES + 2 * len(bomb) + 100


def test_what_is_packed_again_and_again_comes_to_an_end():
    data = _JSON
    for _ in range(40):
        data = gzip.compress(data)
    assert len(list(leaves(data))) < 12
    deep = msgspec.json.encode("[" * 5000).decode()
    assert list(leaves({"text": deep}))
