"""Unpacking: packed data is opened; encrypted data and plain text are not."""

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
_MESSAGE = {"to": "phone-00001", "text": [_SECRET]}
_JSON = json.dumps(_MESSAGE).encode()


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


_PACKINGS = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zlib, fast": lambda data: zlib.compress(data, 1),
    "deflate": _deflate,
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


def _is_exposed(value) -> bool:
    exposure = Exposure()
    exposure.record_message("relay", "s", "phone-00000", value, 1, {"phone-00000", "phone-00001"})
    devices = {mention.device for mention in exposure.mentions}
    return bool(exposure.find(_SECRET)) and devices == {"phone-00001"}


@pytest.mark.parametrize("packing", _PACKINGS)
def test_packed_content_and_mentions_are_found(packing):
    packed = _PACKINGS[packing](_JSON)
    assert _is_exposed(packed)
    assert _is_exposed({"body": packed, "n": 1})


@pytest.mark.parametrize("outer", ["base64", "base32", "hex", "gzip", "zlib", "bzip2", "xz", "MessagePack"])
@pytest.mark.parametrize("inner", ["gzip", "zlib", "deflate", "base64", "hex", "MessagePack"])
def test_nested_packings_are_opened(outer, inner):
    assert _is_exposed(_PACKINGS[outer](_PACKINGS[inner](_JSON)))


def test_packed_text_in_json_text_is_opened():
    inner = base64.b64encode(gzip.compress(_JSON)).decode()
    assert _is_exposed({"text": json.dumps({"data": f"data:application/gzip;base64,{inner}"})})
    assert _is_exposed({"text": json.dumps({"body": [msgspec.json.encode({"b": inner}).decode()]})})


def test_json_escapes_are_decoded():
    exposure = Exposure()
    exposure.record("relay", "s", "received", {"text": json.dumps({"Zoë": 'says "no"'})}, 1)
    assert exposure.find("Zoë") == exposure.find('says "no"') == [("relay", "text.Zoë", 1)]


def test_packed_json_has_the_rows_of_plain_json():
    plain, packed = Exposure(), Exposure()
    plain.record("relay", "s", "received", _MESSAGE, 1)
    packed.record("relay", "s", "received", pack(_MESSAGE, compress=True), 1)
    rows = [row for row in packed.rows() if row.form != "packed"]
    assert rows == list(plain.rows())
    (outer,) = (row for row in packed.rows() if row.form == "packed")
    assert outer.bytes == len(pack(_MESSAGE, compress=True))


def test_packed_data_marked_as_ciphertext_is_opened():
    exposure = Exposure()
    exposure.record("relay", "s", "received", {"box": Ciphertext(gzip.compress(_JSON))}, 1)
    assert exposure.find(_SECRET) == [("relay", "box.text[]", 1)]


@given(st.binary(min_size=0, max_size=300))
def test_random_bytes_are_kept_as_a_leaf(data):
    result = unpack(data, Budget())
    assert result is None or data  # nothing raises
    assert data in [leaf for _, _, leaf in leaves(data)]


def test_encrypted_data_is_not_opened():
    draw = Random(1)
    samples = [draw.randbytes(size) for size in (16, 24, 32, 57, 300, 5000) for _ in range(50)]
    assert [unpack(sample, Budget()) for sample in samples] == [None] * len(samples)
    texts = [base64.b64encode(sample) for sample in samples]
    assert [unpack(text, Budget()) for text in texts] == [None] * len(samples)


@pytest.mark.parametrize(
    "text",
    ["", "a", "phone-00001", "arts|sports|weather", "4a6f", "a plain sentence of some length", "[]", "{a}"],
)
def test_plain_text_is_not_unpacked(text):
    assert unpack(text.encode(), Budget()) is None


def test_decompression_bomb_is_opened_within_the_budget():
    bomb = gzip.compress(b"\0" * (MAX_BYTES * 4), 9)
    result = list(leaves({"a": bomb, "b": bomb}))
    assert sum(len(data) for _, _, data in result) < MAX_BYTES + 2 * len(bomb) + 100


def test_deeply_nested_packing_is_bounded():
    data = _JSON
    for _ in range(40):
        data = gzip.compress(data)
    assert len(list(leaves(data))) < 12
    deep = msgspec.json.encode("[" * 5000).decode()
    assert list(leaves({"text": deep}))


@pytest.mark.parametrize("packing", ["gzip", "zlib", "deflate", "bzip2", "xz"])
def test_content_is_cut_at_the_budget_and_incomplete_data_stay_packed(packing):
    text = b"the secret of the shed, " * 40
    budget = Budget()
    budget.bytes = 100
    assert unpack(_PACKINGS[packing](text), budget).value == text[:100]
    assert budget.bytes == 0
    assert unpack(_PACKINGS[packing](text)[:-9], Budget()) is None


@pytest.mark.parametrize("packing", ["deflate", "base64", "hex"])
@pytest.mark.parametrize("size", [15, 16, 17])
def test_packings_without_a_magic_number_are_opened_from_16_bytes_on(packing, size):
    """Shorter data decode by chance: see `_MIN_DECODED`."""
    text = b"secret of a shed!"[:size]
    packed = unpack(_PACKINGS[packing](text), Budget())
    assert (packed is None) if size < 16 else (packed.value == text)
