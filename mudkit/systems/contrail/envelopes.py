"""Messages between devices: their headers, and what authenticates them.

========  ==========================  ================================================================
message   in clear                    encrypted
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

The header of Figure 3 has a (DeviceID, ItemID) pair for each destination; a PortID must be meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mudkit.systems.contrail.crypto import Cipher, Header, digest
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

__all__ = [
    "address",
    "check_item",
    "decrypt_item",
    "item_header",
    "key_header",
    "open_sealed",
    "read",
    "seal",
]

_S = TypeVar("_S", bound=SealedMessage)


def read(message: Unread, me: str) -> DeviceMessage:
    """Decode what a cloud has delivered, which may be anything; raise TamperedMessage.

    It has this device as its only destination, and an item has a body.
    """
    came = DEVICE_FROM_DEVICE.decode(message)
    devices = None if came is None else [to.device for to in came.to]
    if came is None or devices != [me] or _is_empty(came):
        raise TamperedMessage(
            "A cloud has delivered something that no module has sent.",
            found=repr(message)[:100] if devices is None else f"a message for {devices}"[:100],
            expected=f"an item, a filter or a key for {me}",
            remedy="it was dropped; its sender may send it again",
        )
    return came


def _is_empty(message: DeviceMessage) -> bool:
    return isinstance(message, Data) and message.body is None


def item_header(source: Endpoint, item: str, seq: int, epoch: int) -> Header:
    """Return the header that is bound to the content of an item."""
    return ["data", *source, item, seq, epoch]


def key_header(data: Data) -> Header:
    """Return the header that is bound to the content of a received item."""
    return item_header((data.source, data.port), data.item, data.seq, data.epoch)


def address(
    cipher: Cipher,
    source: Endpoint,
    item: str,
    seq: int,
    epoch: int,
    body: bytes,
    to: Mapping[Endpoint, int | None],
) -> Data:
    """Build the message of an encrypted item; ``to`` has the expiry by destination."""
    header = item_header(source, item, seq, epoch)
    return Data(source[0], source[1], item, seq, epoch, [
        Destination(device, port, expires_us, cipher.tag(device, _tagged(header, port, expires_us, body)))
        for (device, port), expires_us in to.items()
    ], body)  # fmt: skip


def check_item(cipher: Cipher, data: Data) -> None:
    """Verify header, destination and ciphertext of a received item; raise TamperedMessage."""
    (to,) = data.to
    cipher.check(data.source, _tagged(key_header(data), to.port, to.expires_us, data.body or b""), to.tag)


def decrypt_item(cipher: Cipher, key: bytes, data: Data) -> bytes:
    """Decrypt a received item with its key."""
    return cipher.decrypt(key, data.seq, key_header(data), data.body or b"")


def seal(
    cipher: Cipher, kind: type[_S], source: Endpoint, number: int, slot: int, to: Mapping[str, str],
    plain: bytes, *, group: str | None = None, expires_us: int | None = None,
) -> _S:  # fmt: skip
    """Build a message that is sealed for each of its destinations; ``to`` has ports by device."""
    message = kind(source[0], source[1], number, slot, group, expires_us, [])
    for device, port in to.items():
        sealed, signature = cipher.seal(device, _sealed(message, port), plain)
        message.to.append(SealedFor(device, port, sealed, signature))
    return message


def open_sealed(cipher: Cipher, message: SealedMessage) -> bytes:
    """Verify and decrypt a received filter or key; raise TamperedMessage."""
    (to,) = message.to
    return cipher.unseal(message.source, _sealed(message, to.port), to.sealed, to.signature)


def _tagged(header: Header, port: str, expires_us: int | None, body: bytes) -> Header:
    return [*header, port, expires_us, digest(body).hex()]


def _sealed(message: SealedMessage, port: str) -> Header:
    number, slot, group = message.number, message.slot, message.group
    return [message.kind, message.source, message.port, number, slot, group, message.expires_us, port]
