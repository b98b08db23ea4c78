"""End-to-end encryption, signatures and authentication tags of messages between devices (Contrail 3.3).

Each device has a key pair for key agreement (X25519) and one for signatures (Ed25519). Each pair of devices
shares a secret. One-time keys for filters and channel keys, and the key of destination tags, are derived from
it.

Each item is encrypted (ChaCha20-Poly1305) under its own key, which is derived from the channel key. A
receiver that joined too late for the channel key can be sent the key of one item, and the ciphertext stays
the same (3.4.1). All receivers share the channel key, so the paper accepts that a receiver can impersonate
the sender (3.3). Here tags prevent it: they cover the ciphertext, under a key shared by the sender and one
receiver only.

Nonces never repeat under a key, across crashes and restarts and even if the entropy repeats: keys and nonces
are derived from numbers that are stored before anything encrypted under them leaves the device.

========  ==========================  ================================================================
message   in clear                    protected
========  ==========================  ================================================================
data      source, item, sequence      the item, under its own key, which is derived from the key of
          number, epoch of the key;   the source port's channel; a tag for each destination covers the
          of each destination         header, that destination and the ciphertext
          device, port and expiry
filter    source, number, slot,       the filter, sealed for each destination and signed
          group, expiry,
          destinations
key       source, number, slot (the   the key of a channel, sealed for each destination and signed
          epoch), destinations
item key  source, number, slot (the   the key of one item, sealed for each destination and signed
          item's sequence number),
          destinations
========  ==========================  ================================================================

Figure 3 shows a (DeviceID, ItemID) pair per destination; ItemID is read as PortID.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mudkit.events import Ciphertext
from mudkit.systems.contrail.items import Endpoint, TamperedMessage
from mudkit.systems.contrail.messages import (
    DEVICE_FROM_DEVICE,
    Data,
    Destination,
    DeviceMessage,
    SealedFor,
    SealedMessage,
    Unread,
)

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
    """Public halves of a device's key pairs; a wiped or replaced device has new ones."""

    agreement: bytes
    signing: bytes
    generation: int = msgspec.field(name="start", default=0)
    """Number of earlier starts of the module."""
    last_number: int = 0
    """Last number in the store of the device at this start; the store may be a backup."""


class KeyRegistry(dict[str, PublicKeys]):
    """Public keys by device at one provider: the public key infrastructure of the paper (3.3)."""

    def __init__(self, entries: Mapping[str, PublicKeys] | None = None, changes: int = 0) -> None:
        super().__init__(entries or {})
        self.changes = changes
        """Number of changed or added entries."""
        self.watchers: list[Callable[[str], None]] = []
        """Called with the name of each restarted device."""

    def __reduce__(self) -> tuple[type[KeyRegistry], tuple[dict[str, PublicKeys], int]]:
        """Pickle the entries without the watchers."""
        return KeyRegistry, (dict(self), self.changes)

    def __setitem__(self, device: str, keys: PublicKeys) -> None:
        """Register the keys and the generation of a device; notify watchers of a restart."""
        if self.get(device) == keys:
            return
        self.changes += 1
        super().__setitem__(device, keys)
        if keys.generation:
            for watcher in self.watchers:
                watcher(device)


class KeyDirectory(ChainMap[str, PublicKeys]):
    """Public keys by device at all providers of a module; the first provider wins."""

    def __init__(self, registered: Sequence[KeyRegistry]) -> None:
        super().__init__(*registered)
        self._registered = registered

    @property
    def changes(self) -> int:
        """Number of changed or added entries at all providers."""
        return sum(registered.changes for registered in self._registered)


Header: TypeAlias = Sequence[str | int | None]
"""Authenticated values in clear."""


class Sealing:
    """Encryption, signatures and tags of a device; ``seed`` holds its two private keys (64 bytes)."""

    def __init__(self, me: str, seed: Secret, directory: Mapping[str, PublicKeys]) -> None:
        self._me, self._seed = me, seed
        self._agreement = X25519PrivateKey.from_private_bytes(bytes(seed[:KEY_BYTES]))
        self._signing = Ed25519PrivateKey.from_private_bytes(bytes(seed[KEY_BYTES:]))
        self._directory = directory
        self._pairs: dict[tuple[str, bytes], Secret] = {}
        self._tags: dict[Secret, Secret] = {}
        """Tag keys by shared secret."""

    def __reduce__(self) -> tuple[type[Sealing], tuple[str, Secret, Mapping[str, PublicKeys]]]:
        """Pickle the constructor's arguments; keys are derived again."""
        return Sealing, (self._me, self._seed, self._directory)

    @property
    def public(self) -> PublicKeys:
        """Public halves of the key pairs."""
        return PublicKeys(
            self._agreement.public_key().public_bytes_raw(),
            self._signing.public_key().public_bytes_raw(),
        )

    def seal(self, to: str, header: Header, plain: bytes) -> tuple[bytes, bytes]:
        """Encrypt for one device and sign; return ciphertext and signature. A header is used once."""
        bound = _encoded([*header, self._me, to])
        sealed = ChaCha20Poly1305(_derive_key(self._shared_secret(to), b"seal", bound)).encrypt(
            bytes(_NONCE_BYTES), plain, bound
        )
        return Ciphertext(sealed), Ciphertext(self._signing.sign(bound + sealed))

    def unseal(self, source: str, header: Header, sealed: bytes, signature: bytes) -> bytes:
        """Verify the signature and decrypt; raise TamperedMessage."""
        bound = _encoded([*header, source, self._me])
        known = self._find_keys(source)
        try:
            Ed25519PublicKey.from_public_bytes(known.signing).verify(bytes(signature), bound + sealed)
            key = _derive_key(self._shared_secret(source), b"seal", bound)
            return ChaCha20Poly1305(key).decrypt(bytes(_NONCE_BYTES), bytes(sealed), bound)
        except (InvalidSignature, InvalidTag, ValueError) as error:
            raise _tampered_message(source, "a seal or signature that does not fit") from error

    def item_key(self, key: bytes, header: Header) -> Secret:
        """Derive the key of one item from the key of its channel."""
        return Secret(hmac.digest(bytes(key), b"contrail item " + _encoded(header), "sha256"))

    def encrypt(self, key: bytes, number: int, header: Header, plain: bytes) -> bytes:
        """Encrypt an item under its key; a ``number`` is used for one content."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        return Ciphertext(ChaCha20Poly1305(bytes(key)).encrypt(nonce, plain, _encoded(header)))

    def decrypt(self, key: bytes, number: int, header: Header, data: bytes) -> bytes:
        """Decrypt an item with its key; raise TamperedMessage."""
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        try:
            return ChaCha20Poly1305(bytes(key)).decrypt(nonce, bytes(data), _encoded(header))
        except (InvalidTag, ValueError) as error:
            raise _tampered_message("an item", "a content that is not the encrypted one") from error

    def tag(self, to: str, header: Header) -> bytes:
        """Return the authentication tag of an item's header for one receiving device."""
        return Ciphertext(self._compute_tag(to, [*header, self._me, to]))

    def verify_tag(self, source: str, header: Header, tag: bytes) -> None:
        """Verify the tag of a received item's header; raise TamperedMessage."""
        if not hmac.compare_digest(self._compute_tag(source, [*header, source, self._me]), bytes(tag)):
            raise _tampered_message(source, "a header that differs from the one sent")

    def _compute_tag(self, other: str, bound: Header) -> bytes:
        """Return the tag under a key that only this device and ``other`` can derive."""
        pair = self._shared_secret(other)
        if pair not in self._tags:
            self._tags[pair] = _derive_key(pair, b"tag")
        return hmac.digest(self._tags[pair], _encoded(bound), "sha256")[:_TAG_BYTES]

    def _shared_secret(self, other: str) -> Secret:
        """Return the secret shared with another device by key agreement, computed once for its keys."""
        public = self._find_keys(other).agreement
        if (other, public) not in self._pairs:
            shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(public))
            self._pairs[other, public] = Secret(shared)
        return self._pairs[other, public]

    def _find_keys(self, other: str) -> PublicKeys:
        """Return the public keys of a device; raise TamperedMessage if none are registered."""
        keys = self._directory.get(other)
        if keys is None:
            raise _tampered_message(other, "a device without a public key")
        return keys


class Plain:
    """Cipher that does nothing, the control of a search for plaintext at clouds; see :class:`Sealing`."""

    def __init__(self, me: str, seed: bytes) -> None:
        self.public = PublicKeys(me.encode(), digest(seed))

    def item_key(self, key: bytes, header: Header) -> Secret:
        """Return the key of the channel."""
        return Secret(key)

    def seal(self, to: str, header: Header, plain: bytes) -> tuple[bytes, bytes]:
        """Return the plaintext and no signature."""
        return plain, b""

    def unseal(self, source: str, header: Header, sealed: bytes, signature: bytes) -> bytes:
        """Return the plaintext."""
        return sealed

    def encrypt(self, key: bytes, number: int, header: Header, plain: bytes) -> bytes:
        """Return the plaintext."""
        return plain

    def decrypt(self, key: bytes, number: int, header: Header, data: bytes) -> bytes:
        """Return the plaintext."""
        return data

    def tag(self, to: str, header: Header) -> bytes:
        """Return an empty tag."""
        return b""

    def verify_tag(self, source: str, header: Header, tag: bytes) -> None:
        """Accept every tag."""


Cipher: TypeAlias = Sealing | Plain


def channel_key(entropy: Callable[[int], bytes], seed: Secret, port: str, epoch: int) -> Secret:
    """Derive the key of a channel; it differs in each epoch, even if the entropy repeats."""
    return _derive_key(Secret(entropy(KEY_BYTES) + seed), b"channel", _encoded([port, epoch]))


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of data."""
    return hashlib.sha256(data).digest()


def _derive_key(secret: Secret, *purpose: bytes) -> Secret:
    """Derive a key from a secret; another purpose has another key."""
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"contrail " + b"\n".join(purpose))
    return Secret(kdf.derive(bytes(secret)))


_encoded = msgspec.json.Encoder(enc_hook=bytes).encode


def _tampered_message(source: str, reason: str) -> TamperedMessage:
    """Return the error of a message from ``source`` that failed authentication."""
    return TamperedMessage(
        "A message is not as its sender made it.",
        where=f"from {source}",
        found=reason,
        remedy="it was dropped; its sender may send it again",
    )


# -- messages between devices

_S = TypeVar("_S", bound=SealedMessage)


def decode_message(message: Unread, me: str) -> DeviceMessage:
    """Decode a message that a cloud delivered; raise TamperedMessage unless it is for ``me`` and complete."""
    decoded = DEVICE_FROM_DEVICE.decode(message)
    devices = None if decoded is None else [to.device for to in decoded.to]
    has_no_body = isinstance(decoded, Data) and decoded.body is None
    if decoded is None or devices != [me] or has_no_body:
        raise TamperedMessage(
            "A cloud has delivered something that no module has sent.",
            found=repr(message)[:100] if devices is None else f"a message for {devices}"[:100],
            expected=f"an item, a filter or a key for {me}",
            remedy="it was dropped; its sender may send it again",
        )
    return decoded


def item_header(source: Endpoint, item: str, seq: int, epoch: int) -> Header:
    """Return the values in clear to which the ciphertext of an item is bound."""
    return ["data", *source, item, seq, epoch]


def received_item_header(data: Data) -> Header:
    """Return the values in clear to which the ciphertext of a received item is bound."""
    return item_header((data.source, data.port), data.item, data.seq, data.epoch)


def build_data(
    cipher: Cipher,
    source: Endpoint,
    item: str,
    seq: int,
    epoch: int,
    body: bytes,
    to: Mapping[Endpoint, int | None],
) -> Data:
    """Build the message of an encrypted item; ``to`` maps destinations to expiry."""
    header = item_header(source, item, seq, epoch)
    return Data(source[0], source[1], item, seq, epoch, [
        Destination(device, port, expires_us, cipher.tag(device, _tag_header(header, port, expires_us, body)))
        for (device, port), expires_us in to.items()
    ], body)  # fmt: skip


def verify_item(cipher: Cipher, data: Data) -> None:
    """Verify the tag of a received item: header, destination, ciphertext; raise TamperedMessage."""
    (to,) = data.to
    cipher.verify_tag(
        data.source, _tag_header(received_item_header(data), to.port, to.expires_us, data.body or b""), to.tag
    )


def decrypt_item(cipher: Cipher, key: bytes, data: Data) -> bytes:
    """Decrypt a received item with its key."""
    return cipher.decrypt(key, data.seq, received_item_header(data), data.body or b"")


def seal(
    cipher: Cipher, kind: type[_S], source: Endpoint, number: int, slot: int, to: Mapping[str, str],
    plain: bytes, *, group: str | None = None, expires_us: int | None = None,
) -> _S:  # fmt: skip
    """Build a filter or key message, sealed and signed for each destination; ``to`` maps devices to ports."""
    message = kind(source[0], source[1], number, slot, group, expires_us, [])
    for device, port in to.items():
        sealed, signature = cipher.seal(device, _sealed_header(message, port), plain)
        message.to.append(SealedFor(device, port, sealed, signature))
    return message


def open_sealed(cipher: Cipher, message: SealedMessage) -> bytes:
    """Verify and decrypt a received filter or key; raise TamperedMessage."""
    (to,) = message.to
    return cipher.unseal(message.source, _sealed_header(message, to.port), to.sealed, to.signature)


def _tag_header(header: Header, port: str, expires_us: int | None, body: bytes) -> Header:
    """Return the values that an item's tag covers for a destination: header, port, expiry, ciphertext."""
    return [*header, port, expires_us, digest(body).hex()]


def _sealed_header(message: SealedMessage, port: str) -> Header:
    """Return the values in clear to which the sealed content for a destination is bound."""
    number, slot, group = message.number, message.slot, message.group
    return [message.kind, message.source, message.port, number, slot, group, message.expires_us, port]
