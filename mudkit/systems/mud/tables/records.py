"""Records and their keys: checks of what applications give, and the form in which it is stored and sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from numbers import Integral
from typing import Final, TypeGuard

import msgspec

from mudkit.errors import ParameterError
from mudkit.events import size_bytes
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import from_json, to_json
from mudkit.predicates.values import boolean, number
from mudkit.wire import Fields, Value

MAX_RECORD_BYTES: Final = 64 * 1024
"""Size of a record as JSON."""
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1
MAX_KEY_BYTES: Final = 512


class SentPredicate(msgspec.Struct, frozen=True):
    """Bound predicate as text and constants, as messages and stores have it."""

    text: str
    constants: list[Value]

    @classmethod
    def of(cls, predicate: Predicate | None) -> SentPredicate | None:
        """Encode a predicate; raise PredicateError if it is not bound."""
        sent = None if predicate is None else to_json(predicate)
        return None if sent is None else cls(sent["text"], sent["constants"])

    def predicate(self) -> Predicate:
        """Decode the predicate; raise PredicateError if the text or a constant is malformed."""
        predicate = from_json({"text": self.text, "constants": self.constants})
        assert predicate is not None
        return predicate


def is_line(text: Value) -> TypeGuard[str]:
    """Return whether a value is a non-empty text of one line that UTF-8 can encode."""
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
    """Return whether data are names with single values: nearly all records are, and need no conversion."""
    if type(data) is not dict:
        return False
    for name, value in data.items():
        if type(name) is not str:
            return False
        kind = type(value)
        if kind is str:
            continue
        if kind is float:
            if not isfinite(value):
                return False
        elif kind is int:
            if not _MIN_INT <= value <= _MAX_INT:
                return False
        elif kind is not bool and value is not None:
            return False
    return True


def plain(value: Value) -> Value:
    """Return a value as JSON and a store hold it; raise ValueError if they cannot.

    Tuples become lists, the numbers and truth values of NumPy those of Python, and a time the number of its
    seconds since 1970, which it is to predicates (without a zone it is in UTC).
    """
    if isinstance(value, str):
        return _plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and _MIN_INT <= value <= _MAX_INT:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(item, str) for item in value):
        return _plain_fields(value)
    if (scalar := _plain_scalar(value)) is not None:
        return scalar
    raise ValueError(f"{type(value).__name__}: {value!r}"[:120])


def _plain_scalar(value: object) -> Value:
    """Return a number, a truth value or a time of another library as one of Python, anything else as None."""
    if isinstance(value, Integral):
        whole = int(value)
        return whole if _MIN_INT <= whole <= _MAX_INT else None
    is_true = boolean(value)
    return number(value) if is_true is None else is_true


def _plain_text(text: str) -> str:
    """Return a text as an exact str; raise ValueError if UTF-8 cannot encode it."""
    text.encode()
    return str.__str__(text)  # subclasses of str, such as numpy's, cannot be encoded


def _plain_fields(data: Fields) -> dict[str, Value]:
    """Return a mapping with all names and values as JSON and a store hold them."""
    return {_plain_text(name): plain(item) for name, item in data.items()}


def check_key(key: Value) -> str:
    """Return a primary key; raise ParameterError if it is not usable."""
    if not is_line(key) or len(key.encode()) > MAX_KEY_BYTES:
        raise ParameterError(
            "The primary key is not usable.",
            where="key",
            found=f"{type(key).__name__}: {key!r}"[:120],
            expected=f"a text of one line, 1 to {MAX_KEY_BYTES} bytes",
        )
    return key if type(key) is str else str.__str__(key)


def check_record(data: Value, names: Collection[str] = ("key",)) -> dict[str, Value]:
    """Return the columns of a record; ``names`` are reserved.

    Raises
    ------
    ParameterError
        It is not a mapping of names to JSON values, or it is too large.
    """
    if type(data) is dict and not data:
        return {}
    problem = None
    is_flat = _is_flat(data)
    if not isinstance(data, (dict, Mapping)) or not (is_flat or all(isinstance(name, str) for name in data)):
        problem = f"{type(data).__name__}: {data!r}"[:120]
    elif not data.keys().isdisjoint(names):
        problem = "a column 'key': the primary key is a parameter of its own"
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
        "The record is not usable.",
        where="data",
        found=problem,
        expected=f"a mapping of names to JSON values or times, at most {MAX_RECORD_BYTES:,} bytes",
    )


_encode = msgspec.json.Encoder(order="sorted").encode


def keys_digest(keys: Sequence[str]) -> str:
    """Return 16 hexadecimal digits that identify a set of primary keys, which are sorted."""
    return blake2b("\n".join(keys).encode(), digest_size=8).hexdigest()


def value_hash(data: Fields | None) -> str | None:
    """Return 16 hexadecimal digits that identify the columns of a record in a history; None for None."""
    if data is None:
        return None
    return blake2b(_encode(data), digest_size=8).hexdigest()
