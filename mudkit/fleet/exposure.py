"""Exposure: the fields that each party received or stored, in clear or as ciphertext, and their bytes.

Packed data is in clear: it is opened (:mod:`mudkit.fleet.unpacking`), and its fields are listed, too.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from mudkit.errors import brief
from mudkit.events import Ciphertext
from mudkit.fleet.unpacking import MIN_PACKED, Budget, unpack
from mudkit.wire import is_too_deep, wire_fields

_WORD: Final = re.compile(r"[\w-]+")
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class ExposureRow(NamedTuple):
    """Row of :meth:`mudkit.lab.Lab.exposure`: a field that a party held; ``times`` and ``bytes`` are totals.

    ``how`` is ``received`` or ``stored``. ``field`` is the path of names, joined by dots; ``[]`` is an
    element of a list. ``form`` is ``clear``, ``ciphertext`` or ``packed``; the content of packed data is
    listed in clear.
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
    """A device that a message from ``sender`` named in clear, in ``field``, and the party that received it.

    The bytes are those of all values of the message; of packed data, those of its content.
    """

    party: str
    system: str
    sender: str
    device: str
    field: str
    t_us: int
    clear_bytes: int
    ciphertext_bytes: int


class Exposure:
    """Ledger of what parties have held; entries are never removed."""

    def __init__(self) -> None:
        self._fields: dict[tuple[str, str, str, str, str], list[int]] = {}
        self._bytes: dict[tuple[str, str], dict[bytes, int]] = {}
        self.mentions: list[Mention] = []
        """In order of time."""

    def record(self, party: str, system: str, how: str, value: Any, now_us: int) -> None:
        """Record that a party holds a value now; ``how`` is ``received`` or ``stored``."""
        self._record_leaves(party, system, how, leaves(value), now_us)

    def record_message(
        self, party: str, system: str, sender: str, message: Any, now_us: int, devices: Container[str]
    ) -> None:
        """Record that a party has received a message, and which devices its texts name."""
        parts = leaves(message)
        self._record_leaves(party, system, "received", parts, now_us)
        named, sizes = set(), dict.fromkeys(("clear", "ciphertext", "packed"), 0)
        for field, form, data in parts:
            sizes[form] += len(data)
            text = data.decode(errors="replace") if form == "clear" else ""
            names = {name for name in (text, *_WORD.findall(text)) if name in devices}
            named |= {(name, field) for name in names - {sender}}
        self.mentions += [
            Mention(party, system, sender, name, field, now_us, sizes["clear"], sizes["ciphertext"])
            for name, field in sorted(named)
        ]

    def _record_leaves(
        self, party: str, system: str, how: str, parts: Iterable[tuple[str, str, bytes]], now_us: int
    ) -> None:
        """Add the fields of a value to the ledger: how often and since when the party holds each."""
        for field, form, data in parts:
            count = self._fields.setdefault((party, system, how, field, form), [0, 0, now_us])
            count[0] += 1
            count[1] += len(data)
            self._bytes.setdefault((party, field), {}).setdefault(data, now_us)

    def values(self, party: str, field: str) -> list[bytes]:
        """Return the distinct values of a field that a party held, in order of time."""
        return list(self._bytes.get((party, field), ()))

    def rows(self) -> Iterator[ExposureRow]:
        """Yield a row for each field that a party held, sorted."""
        for key, (times, size, first_us) in sorted(self._fields.items()):
            yield ExposureRow(*key, times, size, first_us)

    def find(self, needle: bytes | str) -> list[tuple[str, str, int]]:
        """Search all values and field names; return party, field and the first time in µs, sorted."""
        sought = needle.encode() if isinstance(needle, str) else needle
        places = []
        for (party, field), values in self._bytes.items():
            times = [at for data, at in values.items() if sought in data or sought in field.encode()]
            if times:
                places.append((party, field, min(times)))
        return sorted(places)


def leaves(value: Any) -> list[tuple[str, str, bytes]]:
    """Return the fields of a value, their forms, and their bytes, as in :class:`ExposureRow`.

    What opens without a key is in clear, even if it is marked as a ciphertext.
    """
    fields: list[tuple[str, str, bytes]] = []
    _add_value(fields, value, "", Budget())
    return fields


def _add_value(fields: list[tuple[str, str, bytes]], value: Any, field: str, budget: Budget) -> None:
    """Add the fields of a value; one that is nested too deeply is a single field."""
    if is_too_deep(value):
        fields.append((field, "clear", _encode_whole(value)))
    else:
        _add_fields(fields, value, field, budget)


def _encode_whole(value: Any) -> bytes:
    """Encode a value that is nested too deeply as JSON; what JSON cannot encode, as a short text."""
    try:
        return _encode(value)
    except RecursionError:
        return brief(value).encode()


def _add_fields(fields: list[tuple[str, str, bytes]], value: Any, field: str, budget: Budget) -> None:
    """Add the fields of a value, at any depth; texts and bytes are opened if they are packed."""
    if isinstance(value, str):
        if len(value) < MIN_PACKED and not value.lstrip().startswith(("{", "[")):  # as most are
            fields.append((field, "clear", value.encode()))
        else:
            _add_unpacked(fields, value.encode(), "clear", field, budget)
    elif value is None or isinstance(value, (int, float)):
        fields.append((field, "clear", _encode(value)))
    elif isinstance(value, Ciphertext):
        _add_unpacked(fields, bytes(value), "ciphertext", field, budget)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _add_unpacked(fields, bytes(value), "clear", field, budget)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            _add_fields(fields, inner, f"{field}[]", budget)
    elif isinstance(value, (msgspec.Struct, Mapping)):
        for name, inner in wire_fields(value).items():
            _add_fields(fields, inner, f"{field}.{name}" if field else str(name), budget)
    else:
        fields.append((field, "clear", _encode(value)))


def _add_unpacked(
    fields: list[tuple[str, str, bytes]], data: bytes, form: str, field: str, budget: Budget
) -> None:
    """Add data as one field, and the fields of its content if it opens without a key."""
    inside = unpack(data, budget)
    if inside is None:
        fields.append((field, form, data))
        return
    fields.append((field, "packed" if inside.is_all else form, data))
    budget.layers -= 1
    _add_value(fields, inside.value, field, budget)
    budget.layers += 1
