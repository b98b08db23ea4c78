"""Messages of policies: immutable as published, copied and changed by a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import brief
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

RATIO: Final = "_ratio"
"""Suffix of the field with the total compression ratio of another field."""
_MAX_RATIO: Final = 1_000_000.0
_MAX_SAMPLES: Final = 1 << 30

Method: TypeAlias = Callable[[dict[str, Value], Fields], Fields | None]
_F = TypeVar("_F", bound=Method)
_methods: dict[str, Method] = {}


def freeze_fields(message: Fields) -> Fields:
    """Return a read-only view of a message."""
    return MappingProxyType({name: freeze(value) for name, value in message.items()})


def freeze(value: Value) -> Value:
    """Return an immutable value: mappings become read-only, lists become tuples."""
    if isinstance(value, Mapping):
        return freeze_fields(value)
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


@check_arguments
def create_message(message: Fields | None = None, **fields: Value) -> dict[str, Value]:
    """Return a new message, from another one or from fields (the paper's ``createMessage``).

    Parameters
    ----------
    message : mapping, optional
    **fields
        Fields to set.
    """
    return {**thaw_fields(message or {}), **fields}


def thaw_fields(message: Fields) -> dict[str, Value]:
    """Return a mutable copy of a message."""
    return {name: thaw(value) for name, value in message.items()}


def thaw(value: Value) -> Value:
    """Return a mutable copy of a value, the inverse of :func:`freeze`."""
    if isinstance(value, Mapping):
        return thaw_fields(value)
    return [thaw(item) for item in value] if isinstance(value, list | tuple) else value


@check_arguments
def compress(message: dict[str, Value], field: str, ratio: Value) -> dict[str, Value]:
    """Compress a field, with loss.

    Bytes are samples of a signal, one byte each: groups of ``ratio`` samples are replaced by their mean,
    which removes changes faster than twice the new sampling interval (see
    :func:`mudkit.sources.ecg_loss_percent`). A text is truncated. Other fields are unchanged.

    Parameters
    ----------
    message : dict
        Changed in place, and returned.
    field : str
    ratio : float
        A value of at most 1, or that is not a number, changes nothing.
    """
    value = message.get(field)
    if not isinstance(value, bytes | str) or not value or not _is_number(ratio) or not ratio > 1.0:
        return message
    length = max(round(len(value) / min(ratio, _MAX_RATIO)), 1)
    if length >= len(value):
        return message
    message[field] = _means(value, length) if isinstance(value, bytes) else value[:length]
    message[field + RATIO] = round(ratio_of(message, field) * len(value) / length, 6)
    return message


@check_arguments
def resize(message: dict[str, Value], field: str, pixels: Value) -> dict[str, Value]:
    """Reduce a field to the width of a display: one sample, or one character, per pixel.

    Parameters
    ----------
    message : dict
        Changed in place, and returned.
    field : str
    pixels : float
        Width; None if the device does not report it. Anything but a number of at least 1 changes nothing.
    """
    value = message.get(field)
    if not isinstance(value, bytes | str) or not _is_number(pixels) or pixels < 1 or len(value) <= pixels:
        return message
    length = int(pixels)
    before = ratio_of(message, field)
    message[field] = _means(value, length) if isinstance(value, bytes) else value[:length]
    message[field + RATIO] = round(before * len(value) / length, 6)
    return message


@check_arguments
def expand(samples: bytes, length: Annotated[int, Range(-(1 << 62), _MAX_SAMPLES)]) -> bytes:
    """Interpolate compressed samples to their original number, linearly between the means.

    Parameters
    ----------
    samples : bytes
    length : int
        Number of samples before compression, and of those returned.
    """
    if not samples or length <= 0:
        return b""
    places = (np.arange(len(samples)) + 0.5) * length / len(samples) - 0.5
    line = np.interp(np.arange(length), places, np.frombuffer(samples, dtype=np.uint8))
    return bytes(np.rint(line).astype(np.uint8))


def ratio_of(message: Fields, field: str) -> float:
    """Return the total compression ratio of a field so far; 1 if it was never compressed."""
    ratio = message.get(field + RATIO)
    return float(ratio) if _is_number(ratio) and ratio >= 1 else 1.0


@check_arguments
def method(name: str) -> Callable[[_F], _F]:
    """Register a function as a method that policies call by name.

    It receives the message to be sent, which it may change, and the state, which it may not. Its result is
    sent instead; None drops the message.

    Parameters
    ----------
    name : str

    Raises
    ------
    PolicyError
        ``name`` is not an identifier.
    """
    if not str(name).isidentifier():
        raise PolicyError("Invalid name of a method.", found=brief(name), expected="a name")

    def register(function: _F) -> _F:
        """Register ``function`` under the name, in place of an earlier one; return it."""
        _methods[name] = function
        return function

    return register


def find_method(name: str) -> Method:
    """Return the method that is registered under a name; raise PolicyError if none is."""
    if name not in _methods:
        raise PolicyError(
            "Unknown method.",
            found=brief(name),
            expected=", ".join(sorted(_methods)) or "none yet",
            remedy="register it with @method before the policy is read",
        )
    return _methods[name]


def _is_number(value: Value) -> TypeGuard[float]:
    """Return whether a value is a number other than NaN; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _means(samples: bytes, count: int) -> bytes:
    """Return the rounded means of ``count`` equal parts of the samples."""
    begins, widths = _split_evenly(len(samples), count)
    sums = np.add.reduceat(np.frombuffer(samples, dtype=np.uint8), begins, dtype=np.int64)
    return ((2 * sums + widths) // (2 * widths)).astype(np.uint8).tobytes()


@lru_cache(maxsize=256)
def _split_evenly(length: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begins and widths of ``count`` parts of ``length`` samples."""
    edges = np.arange(count + 1, dtype=np.int64) * length // count
    return edges[:-1], np.diff(edges)
