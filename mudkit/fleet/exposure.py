"""What each party held: the fields that it received or stored, in clear or as ciphertext, and their bytes.

What is only packed is in clear: it is opened (:mod:`mudkit.fleet.unpacking`), and stands with its own fields.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from mudkit.errors import brief
from mudkit.events import Ciphertext
from mudkit.fleet.unpacking import LEAST_PACKED, Room, opened
from mudkit.wire import is_too_deep, wire_fields

__all__ = ["Held", "HeldRow", "Mention", "leaves"]

_WORD: Final = re.compile(r"[\w-]+")
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class HeldRow(NamedTuple):
    """A field that a party held.

    Parameters
    ----------
    party : str
        A device or a server.
    system : str
    how : {'received', 'stored'}
    field : str
        Names of the fields that lead to it, joined by dots; ``[]`` is an element of a list.
    form : {'clear', 'ciphertext', 'packed'}
        What was in something packed stands beside it, in clear.
    times : int
        How often it was held.
    bytes : int
        The bytes in all, as it was held.
    first_us : int
        When it was held first.
    """

    party: str
    system: str
    how: str
    field: str
    form: str
    times: int
    bytes: int
    first_us: int


class Mention(NamedTuple):
    """A device that a message named in clear, and who got to hold that message.

    Parameters
    ----------
    party, system : str
    sender : str
        The device or server that sent the message.
    device : str
        Not the sender.
    field : str
        The field in which it was named.
    t_us : int
    clear_bytes, ciphertext_bytes : int
        The bytes of all values of the message; of what was packed, those that were in it.
    """

    party: str
    system: str
    sender: str
    device: str
    field: str
    t_us: int
    clear_bytes: int
    ciphertext_bytes: int


class Held:
    """A ledger of what parties got to hold; nothing is taken out of it: who has held something, knows it."""

    def __init__(self) -> None:
        self._fields: dict[tuple[str, str, str, str, str], list[int]] = {}
        self._bytes: dict[tuple[str, str], dict[bytes, int]] = {}
        self.mentions: list[Mention] = []
        """In the order of their times."""

    def note(self, party: str, system: str, how: str, value: Any, now_us: int) -> None:
        """Note that a party has come to hold a value."""
        self._note(party, system, how, leaves(value), now_us)

    def message(
        self, party: str, system: str, sender: str, message: Any, now_us: int, devices: Container[str]
    ) -> None:
        """Note that a party has received a message, and which devices that names, anywhere in a text."""
        parts = list(leaves(message))
        self._note(party, system, "received", parts, now_us)
        named, sizes = set(), dict.fromkeys(("clear", "ciphertext", "packed"), 0)
        for field, form, data in parts:
            sizes[form] += len(data)
            text = data.decode(errors="replace") if form == "clear" else ""
            names = {each for each in (text, *_WORD.findall(text)) if each in devices}
            named |= {(name, field) for name in names - {sender}}
        self.mentions += [
            Mention(party, system, sender, name, field, now_us, sizes["clear"], sizes["ciphertext"])
            for name, field in sorted(named)
        ]

    def _note(
        self, party: str, system: str, how: str, parts: Iterable[tuple[str, str, bytes]], now_us: int
    ) -> None:
        for field, form, data in parts:
            count = self._fields.setdefault((party, system, how, field, form), [0, 0, now_us])
            count[0] += 1
            count[1] += len(data)
            self._bytes.setdefault((party, field), {}).setdefault(data, now_us)

    def values(self, party: str, field: str) -> list[bytes]:
        """Give the different values of a field that a party held, the first ones first."""
        return list(self._bytes.get((party, field), ()))

    def rows(self) -> Iterator[HeldRow]:
        """Give the fields, sorted."""
        for key, (times, size, first_us) in sorted(self._fields.items()):
            yield HeldRow(*key, times, size, first_us)

    def find(self, needle: bytes | str) -> list[tuple[str, str, int]]:
        """Look for bytes in everything that was ever held, ciphertexts and names of fields included.

        Returns
        -------
        list of (str, str, int)
            Party, field, and when it was held first, in µs; sorted.
        """
        sought = needle.encode() if isinstance(needle, str) else needle
        places = []
        for (party, field), held in self._bytes.items():
            times = [at for data, at in held.items() if sought in data or sought in field.encode()]
            if times:
                places.append((party, field, min(times)))
        return sorted(places)


def leaves(value: Any) -> Iterator[tuple[str, str, bytes]]:
    """Give the fields of a value, their forms, and their bytes, as in :class:`HeldRow`.

    What opens without a key is in clear, also where it is marked as a ciphertext.
    """
    return _shallow(value, "", Room())


def _shallow(value: Any, field: str, room: Room) -> Iterator[tuple[str, str, bytes]]:
    """Return the fields of a value; one that is nested too deeply is a field as a whole."""
    if is_too_deep(value):
        return iter([(field, "clear", _whole(value))])
    return _leaves(value, field, room)


def _whole(value: Any) -> bytes:
    try:
        return _encode(value)
    except RecursionError:
        return brief(value).encode()


def _leaves(value: Any, field: str, room: Room) -> Iterator[tuple[str, str, bytes]]:
    if isinstance(value, Ciphertext):
        yield from _opened(bytes(value), "ciphertext", field, room)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{field}.{name}" if field else str(name), room)
    elif isinstance(value, msgspec.Struct):
        yield from _leaves(wire_fields(value), field, room)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _leaves(inner, f"{field}[]", room)
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from _opened(bytes(value), "clear", field, room)
    elif isinstance(value, str):
        if len(value) < LEAST_PACKED and not value.lstrip().startswith(("{", "[")):  # as most are
            yield field, "clear", value.encode()
        else:
            yield from _opened(value.encode(), "clear", field, room)
    else:
        yield field, "clear", _encode(value)


def _opened(data: bytes, form: str, field: str, room: Room) -> Iterator[tuple[str, str, bytes]]:
    inside = opened(data, room)
    if inside is None:
        yield field, form, data
        return
    yield field, "packed" if inside.is_all else form, data
    room.layers -= 1
    yield from _shallow(inside.value, field, room)
    room.layers += 1
