"""Encryption of items, and seals between two devices: what was changed is reported as tampered."""

from __future__ import annotations

import pytest

from mudkit.systems.contrail import TamperedMessage
from mudkit.systems.contrail.crypto import Sealing, Secret

HEADER = ("one", 7, None)


@pytest.fixture
def pair() -> tuple[Sealing, Sealing]:
    """Return the ciphers of ann and bob, who know each other's public keys."""
    directory = {}
    ciphers = [
        Sealing(name, Secret(bytes([number]) * 64), directory) for number, name in enumerate(("ann", "bob"))
    ]
    directory.update(ann=ciphers[0].public, bob=ciphers[1].public)
    return tuple(ciphers)


@pytest.mark.parametrize(
    ("number", "header", "change"),
    [
        (4, HEADER, lambda data: data),
        (3, ("two", 7, None), lambda data: data),
        (3, HEADER, lambda data: data[:-1]),
        (3, HEADER, lambda data: bytes([data[0] ^ 1]) + data[1:]),
        (3, HEADER, lambda data: b""),
    ],
)
def test_item_with_another_number_header_or_content_is_tampered(pair, number, header, change):
    ann, bob = pair
    key = ann.item_key(b"k" * 32, HEADER)
    data = ann.encrypt(key, 3, HEADER, b"text")
    assert bob.decrypt(key, 3, HEADER, data) == b"text"
    assert b"text" not in data
    with pytest.raises(TamperedMessage, match="a content that is not the encrypted one"):
        bob.decrypt(key, number, header, change(data))


def test_seal_is_for_one_device_and_header(pair):
    ann, bob = pair
    sealed, signature = ann.seal("bob", HEADER, b"key")
    assert bob.unseal("ann", HEADER, sealed, signature) == b"key"
    for source, header in (("ann", ("two", 7, None)), ("bob", HEADER)):
        with pytest.raises(TamperedMessage, match="a seal or signature that does not fit"):
            bob.unseal(source, header, sealed, signature)
    with pytest.raises(TamperedMessage, match="a device without a public key"):
        bob.unseal("eve", HEADER, sealed, signature)
