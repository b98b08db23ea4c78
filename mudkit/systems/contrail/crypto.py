"""Encryption, signatures and authentication tags between devices (Contrail 3.3).

Each device has a key pair for key agreement (X25519) and one for signatures (Ed25519). Two devices agree once
on a secret. From it come one-time keys for filters and channel keys, and the key of the tags of destinations.

Each item is encrypted (ChaCha20-Poly1305) under its own key, which is derived from the key of its channel.
So a receiver that joined too late for the channel's key can be given the key of one item, and the ciphertext
stays the same (3.4.1). All receivers share the channel's key: each could impersonate the sender, which the
paper accepts (3.3). Here tags prevent it: they cover the ciphertext, under a key that only the sender and one
receiver have.

No nonce repeats under a key, whatever is killed and restarted, even if the entropy repeats: keys and nonces
are derived from numbers that were stored before anything encrypted under them leaves the device.
"""

from __future__ import annotations

import hashlib
import hmac
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mudkit.events import Ciphertext
from mudkit.systems.contrail.items import TamperedMessage

__all__ = [
    "KEY_BYTES",
    "Cipher",
    "Directory",
    "Header",
    "Plain",
    "PublicKeys",
    "Sealing",
    "Secret",
    "channel_key",
    "digest",
]

KEY_BYTES: Final = 32
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class Secret(bytes):
    """Bytes whose representation is hidden in messages, logs and traces."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "<secret>"


class PublicKeys(msgspec.Struct, frozen=True):
    """Public halves of a device's key pairs.

    Parameters
    ----------
    agreement, signing : bytes
    start : int
        Number of starts of a module of this name before; a wiped or new device has other keys as well.
    last_number : int
        Last number that the device knew to be used when it started: its store may be older than that.
    """

    agreement: bytes
    signing: bytes
    start: int = 0
    last_number: int = 0


class Directory(Mapping[str, PublicKeys]):
    """Public keys by device: the public key infrastructure that the paper assumes (3.3)."""

    @property
    @abstractmethod
    def changes(self) -> int:
        """Number of times that the entry of a device has changed, the first ones included."""


Header: TypeAlias = Sequence[str | int | None]
"""Values that travel in clear and cannot be changed."""


class Sealing:
    """Cipher of a device; ``seed`` (64 bytes) is its private keys."""

    def __init__(self, me: str, seed: Secret, directory: Mapping[str, PublicKeys]) -> None:
        self._me, self._seed = me, seed
        self._agreement = X25519PrivateKey.from_private_bytes(bytes(seed[:KEY_BYTES]))
        self._signing = Ed25519PrivateKey.from_private_bytes(bytes(seed[KEY_BYTES:]))
        self._directory = directory
        self._pairs: dict[tuple[str, bytes], Secret] = {}
        self._tags: dict[Secret, Secret] = {}
        """Keys of tags by pair."""

    def __reduce__(self) -> tuple[type[Sealing], tuple[str, Secret, Mapping[str, PublicKeys]]]:
        """Pickle the constructor's arguments; derived keys are derived again."""
        return Sealing, (self._me, self._seed, self._directory)

    @property
    def public(self) -> PublicKeys:
        """Public halves of this device's key pairs."""
        return PublicKeys(
            self._agreement.public_key().public_bytes_raw(),
            self._signing.public_key().public_bytes_raw(),
        )

    def seal(self, to: str, header: Header, plain: bytes) -> tuple[bytes, bytes]:
        """Encrypt for one device and sign; no header may repeat."""
        bound = _encoded([*header, self._me, to])
        sealed = ChaCha20Poly1305(_derived(self._pair(to), b"seal", bound)).encrypt(
            bytes(_NONCE_BYTES), plain, bound
        )
        return Ciphertext(sealed), Ciphertext(self._signing.sign(bound + sealed))

    def unseal(self, source: str, header: Header, sealed: bytes, signature: bytes) -> bytes:
        """Verify and decrypt; raise TamperedMessage if it is not as its sender made it."""
        bound = _encoded([*header, source, self._me])
        known = self._known(source)
        try:
            Ed25519PublicKey.from_public_bytes(known.signing).verify(bytes(signature), bound + sealed)
            key = _derived(self._pair(source), b"seal", bound)
            return ChaCha20Poly1305(key).decrypt(bytes(_NONCE_BYTES), bytes(sealed), bound)
        except (InvalidSignature, InvalidTag, ValueError) as error:
            raise _tampered(source, "a seal or signature that does not fit") from error

    def item_key(self, key: bytes, header: Header) -> Secret:
        """Derive the key of one item from the key of its channel; it opens nothing else."""
        return Secret(hmac.digest(bytes(key), b"contrail item " + _encoded(header), "sha256"))

    def encrypt(self, key: bytes, number: int, header: Header, plain: bytes) -> bytes:
        """Encrypt under the key of an item; a number has one content only."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        return Ciphertext(ChaCha20Poly1305(bytes(key)).encrypt(nonce, plain, _encoded(header)))

    def decrypt(self, key: bytes, number: int, header: Header, data: bytes) -> bytes:
        """Decrypt what :meth:`encrypt` returned, or raise TamperedMessage."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        try:
            return ChaCha20Poly1305(bytes(key)).decrypt(nonce, bytes(data), _encoded(header))
        except (InvalidTag, ValueError) as error:
            raise _tampered("an item", "a content that is not the encrypted one") from error

    def tag(self, to: str, header: Header) -> bytes:
        """Authenticate a header towards one device."""
        return Ciphertext(self._tag(to, [*header, self._me, to]))

    def check(self, source: str, header: Header, tag: bytes) -> None:
        """Verify a tag, or raise TamperedMessage."""
        if not hmac.compare_digest(self._tag(source, [*header, source, self._me]), bytes(tag)):
            raise _tampered(source, "a header that differs from the one sent")

    def _tag(self, other: str, bound: Header) -> bytes:
        pair = self._pair(other)
        if pair not in self._tags:
            self._tags[pair] = _derived(pair, b"tag")
        return hmac.digest(self._tags[pair], _encoded(bound), "sha256")[:_TAG_BYTES]

    def _pair(self, other: str) -> Secret:
        """Return the secret that this device and another one have agreed on."""
        public = self._known(other).agreement
        if (other, public) not in self._pairs:
            shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(public))
            self._pairs[other, public] = Secret(shared)
        return self._pairs[other, public]

    def _known(self, other: str) -> PublicKeys:
        keys = self._directory.get(other)
        if keys is None:
            raise _tampered(other, "a device without a public key")
        return keys


class Plain:
    """No encryption, as the control of a search for what clouds could read; see :class:`Sealing`."""

    def __init__(self, me: str, seed: bytes) -> None:
        self.public = PublicKeys(me.encode(), digest(seed))

    def item_key(self, key: bytes, header: Header) -> Secret:
        """Return the key of the channel."""
        return Secret(key)

    def seal(self, to: str, header: Header, plain: bytes) -> tuple[bytes, bytes]:
        """Return it in clear, without a signature."""
        return plain, b""

    def unseal(self, source: str, header: Header, sealed: bytes, signature: bytes) -> bytes:
        """Return it as it is."""
        return sealed

    def encrypt(self, key: bytes, number: int, header: Header, plain: bytes) -> bytes:
        """Return it in clear."""
        return plain

    def decrypt(self, key: bytes, number: int, header: Header, data: bytes) -> bytes:
        """Return it as it is."""
        return data

    def tag(self, to: str, header: Header) -> bytes:
        """Return an empty tag."""
        return b""

    def check(self, source: str, header: Header, tag: bytes) -> None:
        """Accept every tag."""


Cipher: TypeAlias = Sealing | Plain


def channel_key(entropy: Callable[[int], bytes], seed: Secret, port: str, epoch: int) -> Secret:
    """Derive the key of a channel: it differs in each epoch, even if the entropy repeats."""
    return _derived(Secret(entropy(KEY_BYTES) + seed), b"channel", _encoded([port, epoch]))


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of data."""
    return hashlib.sha256(data).digest()


def _derived(secret: Secret, *purpose: bytes) -> Secret:
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"contrail " + b"\n".join(purpose))
    return Secret(kdf.derive(bytes(secret)))


_encoded = msgspec.json.Encoder(enc_hook=bytes).encode


def _tampered(source: str, found: str) -> TamperedMessage:
    return TamperedMessage(
        "A message is not as its sender made it.",
        where=f"from {source}",
        found=found,
        remedy="it was dropped; its sender may send it again",
    )
