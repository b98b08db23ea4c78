"""What keeps clouds from reading and from changing anything (Contrail 3.3).

Each device has a key pair for agreement (X25519) and one for signatures (Ed25519). Two devices agree once
on a secret; from it come one-time keys for what one tells the other (filters, channel keys), and the key of
the tags of destinations. Each item is encrypted (ChaCha20-Poly1305) under a key of its own, which is made of
the key of its channel; that the receivers share. So who came too late for the key of a channel can be given
the key of one item, and the ciphertext stays as it is (3.4.1). And so each receiver could impersonate the
sender, as the paper says and accepts (3.3), were it not for the tags: they also cover the ciphertext, under a
key that only the sender and one receiver have.

No nonce comes twice under a key, whatever is killed and restarted, and even if the random source began anew:
keys and nonces are made of numbers that were stored before anything encrypted under them leaves the device.
"""

from __future__ import annotations

import hashlib
import hmac
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mudkit.events import Ciphertext
from mudkit.systems.contrail.problems import TamperedMessage

__all__ = [
    "KEY_BYTES",
    "Cipher",
    "Directory",
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
    """Bytes that show in no message, log or trace of what holds them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "<secret>"


class PublicKeys(msgspec.Struct, frozen=True):
    """What others may know of a device's key pairs.

    Parameters
    ----------
    agreement, signing : bytes
    life : int
        How many devices had the name before: one that was wiped, or bought anew, has other keys.
    """

    agreement: bytes
    signing: bytes
    life: int = 0


class Directory(Mapping[str, PublicKeys]):
    """Public keys by device: what a public key infrastructure gives, which the paper assumes (3.3)."""

    @property
    @abstractmethod
    def changes(self) -> int:
        """How often a device has got other keys, the first ones included."""


class Cipher(Protocol):
    """What a module does to what it sends and gets.

    Headers are lists of what JSON can hold: they travel in clear, and cannot be changed.
    """

    @property
    def public(self) -> PublicKeys:
        """The public half of this device's key pairs."""
        ...

    def seal(self, to: str, header: list[Any], plain: bytes) -> tuple[bytes, bytes]:
        """Encrypt for one device, and sign; no header comes twice."""
        ...

    def unseal(self, source: str, header: list[Any], sealed: bytes, signature: bytes) -> bytes:
        """Verify and decrypt; TamperedMessage if it is not as its sender made it."""
        ...

    def item_key(self, key: bytes, header: list[Any]) -> Secret:
        """Give the key of one item from that of its channel: it opens nothing else."""
        ...

    def encrypt(self, key: bytes, number: int, header: list[Any], plain: bytes) -> bytes:
        """Encrypt under the key of an item; no number comes twice with other content."""
        ...

    def decrypt(self, key: bytes, number: int, header: list[Any], data: bytes) -> bytes:
        """Give it back, or TamperedMessage."""
        ...

    def tag(self, to: str, header: list[Any]) -> bytes:
        """Vouch for a header towards one device."""
        ...

    def check(self, source: str, header: list[Any], tag: bytes) -> None:
        """Verify such a tag, or TamperedMessage."""
        ...


class Sealing:
    """The cipher of a device.

    Parameters
    ----------
    me : str
    seed : Secret
        64 bytes: its private keys.
    directory : mapping of str to PublicKeys
    life : int
    """

    def __init__(self, me: str, seed: Secret, directory: Mapping[str, PublicKeys], life: int = 0) -> None:
        self._me, self._life, self._seed = me, life, seed
        self._agreement = X25519PrivateKey.from_private_bytes(bytes(seed[:KEY_BYTES]))
        self._signing = Ed25519PrivateKey.from_private_bytes(bytes(seed[KEY_BYTES:]))
        self._directory = directory
        self._pairs: dict[tuple[str, bytes], Secret] = {}
        self._tags: dict[Secret, Secret] = {}
        """The keys of tags, worked out once."""

    def __reduce__(self) -> tuple[type[Sealing], tuple[str, Secret, Mapping[str, PublicKeys], int]]:
        """Copy and store it as what it was made of: what is worked out of that can be worked out again."""
        return Sealing, (self._me, self._seed, self._directory, self._life)

    @property
    def public(self) -> PublicKeys:
        """The public half of this device's key pairs."""
        return PublicKeys(
            self._agreement.public_key().public_bytes_raw(),
            self._signing.public_key().public_bytes_raw(),
            self._life,
        )

    def seal(self, to: str, header: list[Any], plain: bytes) -> tuple[bytes, bytes]:
        """Encrypt for one device, and sign."""
        bound = _encoded([*header, self._me, to])
        sealed = ChaCha20Poly1305(_derived(self._pair(to), b"seal", bound)).encrypt(
            bytes(_NONCE_BYTES), plain, bound
        )
        return Ciphertext(sealed), Ciphertext(self._signing.sign(bound + sealed))

    def unseal(self, source: str, header: list[Any], sealed: bytes, signature: bytes) -> bytes:
        """Verify and decrypt."""
        bound = _encoded([*header, source, self._me])
        known = self._known(source)
        try:
            Ed25519PublicKey.from_public_bytes(known.signing).verify(bytes(signature), bound + sealed)
            key = _derived(self._pair(source), b"seal", bound)
            return ChaCha20Poly1305(key).decrypt(bytes(_NONCE_BYTES), bytes(sealed), bound)
        except (InvalidSignature, InvalidTag, ValueError) as error:
            raise _tampered(source, "what it sealed is not what came") from error

    def item_key(self, key: bytes, header: list[Any]) -> Secret:
        """Give the key of one item from that of its channel."""
        return Secret(hmac.digest(bytes(key), b"contrail item " + _encoded(header), "sha256"))

    def encrypt(self, key: bytes, number: int, header: list[Any], plain: bytes) -> bytes:
        """Encrypt under the key of an item."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        return Ciphertext(ChaCha20Poly1305(bytes(key)).encrypt(nonce, plain, _encoded(header)))

    def decrypt(self, key: bytes, number: int, header: list[Any], data: bytes) -> bytes:
        """Give it back."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        try:
            return ChaCha20Poly1305(bytes(key)).decrypt(nonce, bytes(data), _encoded(header))
        except (InvalidTag, ValueError) as error:
            raise _tampered("an item", "its content is not what was encrypted") from error

    def tag(self, to: str, header: list[Any]) -> bytes:
        """Vouch for a header towards one device."""
        return Ciphertext(self._tag(to, [*header, self._me, to]))

    def check(self, source: str, header: list[Any], tag: bytes) -> None:
        """Verify such a tag."""
        if not hmac.compare_digest(self._tag(source, [*header, source, self._me]), bytes(tag)):
            raise _tampered(source, "a header is not as it was sent")

    def _tag(self, other: str, bound: list[Any]) -> bytes:
        pair = self._pair(other)
        if pair not in self._tags:
            self._tags[pair] = _derived(pair, b"tag")
        return hmac.digest(self._tags[pair], _encoded(bound), "sha256")[:_TAG_BYTES]

    def _pair(self, other: str) -> Secret:
        """Give what this device and another one agree on; that is worked out once."""
        public = self._known(other).agreement
        if (other, public) not in self._pairs:
            shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(public))
            self._pairs[other, public] = Secret(shared)
        return self._pairs[other, public]

    def _known(self, other: str) -> PublicKeys:
        keys = self._directory.get(other)
        if keys is None:
            raise _tampered(other, "nobody knows a public key of this device")
        return keys


class Plain:
    """No encryption at all: the control of a search for what clouds could read.

    Parameters
    ----------
    me : str
    life : int
    """

    def __init__(self, me: str, life: int = 0) -> None:
        self.public = PublicKeys(me.encode(), me.encode(), life)

    def item_key(self, key: bytes, header: list[Any]) -> Secret:
        """Give some key."""
        return Secret(key)

    def seal(self, to: str, header: list[Any], plain: bytes) -> tuple[bytes, bytes]:
        """Give it as it is."""
        return plain, b""

    def unseal(self, source: str, header: list[Any], sealed: bytes, signature: bytes) -> bytes:
        """Give it as it is."""
        return sealed

    def encrypt(self, key: bytes, number: int, header: list[Any], plain: bytes) -> bytes:
        """Give it as it is."""
        return plain

    def decrypt(self, key: bytes, number: int, header: list[Any], data: bytes) -> bytes:
        """Give it as it is."""
        return data

    def tag(self, to: str, header: list[Any]) -> bytes:
        """Give nothing."""
        return b""

    def check(self, source: str, header: list[Any], tag: bytes) -> None:
        """Believe it."""


def channel_key(entropy: Callable[[int], bytes], seed: Secret, port: str, epoch: int) -> Secret:
    """Make the key of a channel: another one for each epoch, even if the random source began anew."""
    return _derived(Secret(entropy(KEY_BYTES) + seed), b"channel", _encoded([port, epoch]))


def digest(data: bytes) -> bytes:
    """Give the SHA-256 of something."""
    return hashlib.sha256(data).digest()


def _derived(secret: Secret, *purpose: bytes) -> Secret:
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"contrail " + b"\n".join(purpose))
    return Secret(kdf.derive(bytes(secret)))


_encoded = msgspec.json.Encoder(enc_hook=bytes).encode


def _tampered(source: str, what: str) -> TamperedMessage:
    return TamperedMessage(
        "A message is not as its sender made it.",
        where=f"from {source}",
        found=what,
        remedy="it was dropped; its sender may send it again",
    )
