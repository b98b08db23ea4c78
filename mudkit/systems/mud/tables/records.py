"""Records and their keys: what may be one, and how others will see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from math import isfinite
from typing import Final, TypeGuard

import msgspec

from mudkit.errors import ParameterError
from mudkit.events import size_bytes
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import from_json, to_json
from mudkit.wire import Fields, Value

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_RECORD_BYTES",
    "SentPredicate",
    "check_key",
    "check_record",
    "is_line",
    "plain",
    "value_hash",
]

MAX_RECORD_BYTES: Final = 64 * 1024
"""Of a record as JSON."""
_LEAST: Final = -(1 << 63)
MAX_KEY_BYTES: Final = 512


class SentPredicate(msgspec.Struct, frozen=True):
    """A bound predicate as text and constants; a part of messages."""

    text: str
    constants: list[Value]

    @classmethod
    def of(cls, predicate: Predicate | None) -> SentPredicate | None:
        """Encode a predicate.

        Raises
        ------
        PredicateError
            The predicate is not bound.
        """
        sent = to_json(predicate)
        return None if sent is None else cls(sent["text"], sent["constants"])

    def predicate(self) -> Predicate:
        """Decode the predicate.

        Raises
        ------
        PredicateError
            The text or a constant is malformed.
        """
        predicate = from_json({"text": self.text, "constants": self.constants})
        assert predicate is not None
        return predicate


def is_line(text: Value) -> TypeGuard[str]:
    """Say whether something is a text of one line that UTF-8 can hold."""
    if not isinstance(text, str) or not text or "\n" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_flat(data: Value) -> TypeGuard[dict[str, Value]]:
    """Say whether something is plain already, as nearly all records are: names and single values."""
    if type(data) is not dict:
        return False
    for name, value in data.items():
        if type(name) is not str or not (
            type(value) is str
            or (type(value) is int and _LEAST <= value < -_LEAST)
            or (type(value) is float and isfinite(value))
            or value is None
            or type(value) is bool
        ):
            return False
    return True


def plain(value: Value) -> Value:
    """Give a value as others will see it: what JSON and a store hold, pairs as lists.

    Raises
    ------
    ValueError
        It is something else.
    """
    if isinstance(value, str):
        return _plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and _LEAST <= value < -_LEAST:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value):
        return _plain_fields(value)
    raise ValueError(f"{type(value).__name__}: {value!r}"[:120])


def _plain_text(text: str) -> str:
    text.encode()
    return str.__str__(text)  # of a kind of its own, such as numpy's, it could not be sent


def _plain_fields(data: Fields) -> dict[str, Value]:
    return {_plain_text(name): plain(each) for name, each in data.items()}


def check_key(key: Value) -> str:
    """Refuse what is no primary key.

    Raises
    ------
    ParameterError
    """
    if not is_line(key) or len(key.encode()) > MAX_KEY_BYTES:
        raise ParameterError(
            "This is no primary key.",
            where="key",
            found=f"{type(key).__name__}: {key!r}"[:120],
            expected=f"a text of one line, 1 to {MAX_KEY_BYTES} bytes",
        )
    return str.__str__(key)


def check_record(data: Value, names: Collection[str] = ("key",)) -> dict[str, Value]:
    """Refuse what is no record.

    Raises
    ------
    ParameterError
        It is no mapping of names to what JSON can hold, or too large.
    """
    problem = None
    is_flat = _is_flat(data)
    if not isinstance(data, (dict, Mapping)) or not (is_flat or all(isinstance(each, str) for each in data)):
        problem = f"{type(data).__name__}: {data!r}"[:120]
    elif any(map(data.__contains__, names)):
        problem = "a column 'key': the primary key is given apart"
    else:
        try:
            record = dict(data) if is_flat else _plain_fields(data)
            size = size_bytes(record)
        except RecursionError:
            problem = "it is nested too deep"
        except ValueError as error:
            problem = str(error)
        else:
            if size <= MAX_RECORD_BYTES:
                return record
            problem = f"{size:,} bytes"
    raise ParameterError(
        "This is no record.",
        where="data",
        found=problem,
        expected=f"a mapping of names to what JSON can hold, at most {MAX_RECORD_BYTES:,} bytes of it",
    )


_encode = msgspec.json.Encoder(order="sorted").encode


def value_hash(data: Fields | None) -> str | None:
    """Give 16 hexadecimal digits of a record's columns, by which a history tells values apart, or None."""
    if data is None:
        return None
    return blake2b(_encode(data), digest_size=8).hexdigest()
