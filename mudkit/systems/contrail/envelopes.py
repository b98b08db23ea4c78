"""The messages that devices send each other through a cloud: their headers, and what vouches for them.

======  ============================  ================================================================
kind    in clear                      encrypted
======  ============================  ================================================================
data    source, item, sequence        the item, under a key of its own, which is made of that of the
        number, epoch of the key;     source port's channel; a tag for each destination, which covers
        of each destination device,   the header, that destination and the ciphertext
        port and expiry
filter  source, number, slot, group,  the filter, sealed for each destination and signed
        expiry, destinations
key     source, number, slot: the     the key of a channel, sealed for each destination and signed
        epoch, destinations
item    source, number, slot: the     the key of one item, sealed for each destination and signed, for
key     item's sequence number,       who may not have the key of the channel of then
        destinations
======  ============================  ================================================================

The header of Figure 3 gives a (DeviceID, ItemID) pair for each destination; a PortID must be meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.systems.contrail.crypto import Cipher, Secret, digest
from mudkit.systems.contrail.items import MOST_NAME
from mudkit.systems.contrail.problems import TamperedMessage

__all__ = ["Data", "Sealed", "data", "encrypted", "item_key", "read", "sealed"]

_LAST: Final = 1 << 62


class Data:
    """An item that came, as it says in its header.

    Parameters
    ----------
    message : mapping
    """

    __slots__ = ("body", "device", "epoch", "expires_us", "item", "port", "seq", "source", "tag", "to_port")

    def __init__(self, message: Mapping[str, Any]) -> None:
        entry = _entry(message)
        self.source, self.port = _text(message, "from"), _text(message, "port")
        self.item, self.seq = _text(message, "item"), _count(message, "seq")
        self.epoch = _count(message, "epoch")
        self.device, self.to_port = _text(entry, "device"), _text(entry, "port")
        self.expires_us = None if entry.get("expires_us") is None else _count(entry, "expires_us")
        self.tag, self.body = _bytes(entry, "tag"), _bytes(message, "body")

    def check(self, cipher: Cipher) -> None:
        """Verify its header and that its content is what its sender sent; TamperedMessage."""
        destination = _destination(self.to_port, self.expires_us, self.body)
        cipher.check(self.source, [*self.header, *destination], self.tag)

    def key(self, cipher: Cipher, channel: bytes) -> Secret:
        """Give its key from that of its channel."""
        return cipher.item_key(channel, self.header)

    def content(self, cipher: Cipher, key: bytes) -> bytes:
        """Decrypt it with its key."""
        return cipher.decrypt(key, self.seq, self.header, self.body)

    def copy(self) -> dict[str, Any]:
        """Give it as it came, without whatever else a cloud has added."""
        entry = {"device": self.device, "port": self.to_port, "expires_us": self.expires_us, "tag": self.tag}
        return {
            "kind": "data",
            "from": self.source,
            "port": self.port,
            "item": self.item,
            "seq": self.seq,
            "epoch": self.epoch,
            "to": [entry],
            "body": self.body,
        }

    @property
    def header(self) -> list[Any]:
        """What is bound to its content."""
        return _header(self.source, self.port, self.item, self.seq, self.epoch)


class Sealed:
    """A filter or a key that came.

    Parameters
    ----------
    message : mapping
    """

    __slots__ = ("entry", "group", "kind", "message", "number", "port", "slot", "source", "to_port")

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.message, self.entry = message, _entry(message)
        self.kind = message["kind"]
        self.source, self.port = _text(message, "from"), _text(message, "port")
        self.number, self.slot = _count(message, "number"), _count(message, "slot")
        self.group = None if message.get("group") is None else _text(message, "group")
        if message.get("expires_us") is not None:
            _count(message, "expires_us")
        self.to_port = _text(self.entry, "port")

    def copy(self) -> dict[str, Any]:
        """Give it as it came, without whatever else a cloud has added."""
        named = ("kind", "from", "port", "number", "slot", "group", "expires_us")
        entry = {name: _bytes(self.entry, name) for name in ("sealed", "signature")}
        to = {"device": self.entry["device"], "port": self.to_port, **entry}
        return {**{name: self.message.get(name) for name in named}, "to": [to]}

    def open(self, cipher: Cipher) -> bytes:
        """Verify and decrypt it."""
        header = _sealed_header(self.message, self.to_port)
        return cipher.unseal(
            self.source, header, _bytes(self.entry, "sealed"), _bytes(self.entry, "signature")
        )


def data(
    cipher: Cipher,
    source: tuple[str, str],
    item: str,
    seq: int,
    epoch: int,
    body: bytes,
    to: Mapping[tuple[str, str], int | None],
) -> dict[str, Any]:
    """Make the message of an item.

    Parameters
    ----------
    cipher : Cipher
    source : (str, str)
    item : str
    seq, epoch : int
    body : bytes
        As :func:`encrypted` gave it.
    to : mapping of (str, str) to int or None
        When it expires, by destination.
    """
    header = _header(*source, item, seq, epoch)
    entries = [
        {
            "device": device,
            "port": port,
            "expires_us": expires_us,
            "tag": cipher.tag(device, [*header, *_destination(port, expires_us, body)]),
        }
        for (device, port), expires_us in to.items()
    ]
    return {
        "kind": "data",
        "from": source[0],
        "port": source[1],
        "item": item,
        "seq": seq,
        "epoch": epoch,
        "to": entries,
        "body": body,
    }


def item_key(
    cipher: Cipher, channel: bytes, source: tuple[str, str], item: str, seq: int, epoch: int
) -> Secret:
    """Give the key of an item from that of its channel."""
    return cipher.item_key(channel, _header(*source, item, seq, epoch))


def encrypted(
    cipher: Cipher, key: bytes, source: tuple[str, str], item: str, seq: int, epoch: int, plain: bytes
) -> bytes:
    """Encrypt the content of an item under its key; a sequence number has one content only."""
    return cipher.encrypt(key, seq, _header(*source, item, seq, epoch), plain)


def sealed(
    cipher: Cipher, kind: str, source: tuple[str, str], number: int, slot: int,
    to: Mapping[str, str], plain: bytes, *, group: str | None = None, expires_us: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Make a message that is sealed for each of its destinations.

    Parameters
    ----------
    cipher : Cipher
    kind : {'filter', 'key', 'item key'}
    source : (str, str)
    number : int
        Which no other message of this device has.
    slot : int
        A later message of the same slot stands in place of this one.
    to : mapping of str to str
        Ports by device.
    plain : bytes
    group : str, optional
    expires_us : int, optional
    """
    message: dict[str, Any] = {
        "kind": kind,
        "from": source[0],
        "port": source[1],
        "number": number,
        "slot": slot,
        "group": group,
        "expires_us": expires_us,
        "to": [],
    }
    for device, port in to.items():
        text, signature = cipher.seal(device, _sealed_header(message, port), plain)
        message["to"].append({"device": device, "port": port, "sealed": text, "signature": signature})
    return message


def read(message: Any, me: str) -> Data | Sealed:
    """Take what came from a cloud, which may be anything.

    Raises
    ------
    TamperedMessage
        It is no message, or not for this device.
    """
    if not isinstance(message, Mapping):
        raise _wrong(f"a {type(message).__name__}", "a message")
    kind = message.get("kind")
    if kind not in ("data", "filter", "key", "item key"):
        raise _wrong(f"kind: {kind!r}"[:100], "data, filter, key or item key")
    if _text(_entry(message), "device") != me:
        raise _wrong(f"a message for {_entry(message)['device']}", f"one for {me}")
    return Data(message) if kind == "data" else Sealed(message)


def _header(source: str, port: str, item: str, seq: int, epoch: int) -> list[Any]:
    return ["data", source, port, item, seq, epoch]


def _destination(port: str, expires_us: int | None, body: bytes) -> list[Any]:
    return [port, expires_us, digest(body).hex()]


def _sealed_header(message: Mapping[str, Any], to_port: str) -> list[Any]:
    named = ("kind", "from", "port", "number", "slot", "group", "expires_us")
    return [*(message.get(name) for name in named), to_port]


def _entry(message: Mapping[str, Any]) -> Mapping[str, Any]:
    to = message.get("to")
    if not isinstance(to, Sequence) or len(to) != 1 or not isinstance(to[0], Mapping):
        raise _wrong("no destination, or several", "one")
    return to[0]


def _text(where: Mapping[str, Any], name: str) -> str:
    text = where.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= MOST_NAME or not text.isprintable():
        raise _wrong(f"{name}: {text!r}"[:100], "a text")
    return text


def _count(where: Mapping[str, Any], name: str) -> int:
    count = where.get(name)
    if type(count) is not int or not 0 <= count < _LAST:
        raise _wrong(f"{name}: {count!r}"[:100], "a whole number")
    return count


def _bytes(where: Mapping[str, Any], name: str) -> bytes:
    data = where.get(name)
    if not isinstance(data, bytes):
        raise _wrong(f"{name}: {type(data).__name__}", "bytes")
    return data


def _wrong(found: str, expected: str) -> TamperedMessage:
    return TamperedMessage(
        "A cloud has handed over something that no module has sent.",
        found=found,
        expected=expected,
        remedy="it was dropped; its sender may send it again",
    )
