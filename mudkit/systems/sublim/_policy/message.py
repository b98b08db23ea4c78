"""Messages: what is published never changes; a policy makes another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from mudkit.arguments import check_arguments
from mudkit.errors import brief
from mudkit.sources.parameters import whole_number
from mudkit.systems.sublim._policy.text import PolicyError
from mudkit.wire import Fields, Value

__all__ = [
    "RATIO",
    "Method",
    "compress",
    "create_message",
    "expand",
    "frozen",
    "frozen_fields",
    "method",
    "method_of",
    "ratio_of",
    "resize",
    "thawed",
]

RATIO: Final = "_ratio"
"""A field that was compressed has a companion of this ending: by how much, all in all."""
_MAX_RATIO: Final = 1_000_000.0
_MAX_SAMPLES: Final = 1 << 30

Method: TypeAlias = Callable[[dict[str, Value], Fields], Fields | None]
_F = TypeVar("_F", bound=Method)
_methods: dict[str, Method] = {}


def frozen_fields(message: Fields) -> Fields:
    """Return a message whose fields nobody can change."""
    return MappingProxyType({name: frozen(each) for name, each in message.items()})


def frozen(value: Value) -> Value:
    """Give a value that nobody can change: mappings are read-only, lists are tuples."""
    if isinstance(value, Mapping):
        return frozen_fields(value)
    if isinstance(value, list | tuple):
        return tuple(frozen(each) for each in value)
    return value


@check_arguments
def create_message(message: Fields | None = None, **fields: Value) -> dict[str, Value]:
    """Return a new message, from another one or from fields (the paper's ``createMessage``).

    Parameters
    ----------
    message : mapping, optional
        Message to copy.
    **fields
        Fields to set.
    """
    return {**thawed_fields(message or {}), **fields}


def thawed_fields(message: Fields) -> dict[str, Value]:
    """Return a message whose fields can be changed."""
    return {name: thawed(value) for name, value in message.items()}


def thawed(value: Value) -> Value:
    """Undo :func:`frozen`: what JSON can hold."""
    if isinstance(value, Mapping):
        return thawed_fields(value)
    return [thawed(each) for each in value] if isinstance(value, list | tuple) else value


@check_arguments
def compress(message: dict[str, Value], field: str, ratio: Value) -> dict[str, Value]:
    """Compress a field, with loss.

    Bytes are the samples of a signal, one byte each: every ``ratio`` of them become their mean. What is lost
    is what changes faster than twice the new step: :func:`mudkit.sources.ecg_loss_percent` says how much of
    an electrocardiogram that is. Of a text the first part stays. Any other field stays as it is.

    Parameters
    ----------
    message : dict
        It is changed, and given back.
    field : str
    ratio : float
        How many times smaller; at most 1, or anything but a number, changes nothing.
    """
    value = message.get(field)
    if not isinstance(value, bytes | str) or not value or not _is_number(ratio) or not ratio > 1.0:
        return message
    wanted = max(round(len(value) / min(ratio, _MAX_RATIO)), 1)
    if wanted >= len(value):
        return message
    message[field] = _means(value, wanted) if isinstance(value, bytes) else value[:wanted]
    message[field + RATIO] = round(ratio_of(message, field) * len(value) / wanted, 6)
    return message


@check_arguments
def resize(message: dict[str, Value], field: str, pixels: Value) -> dict[str, Value]:
    """Shorten a field to the width of a display: one sample, or one character, per pixel.

    Parameters
    ----------
    message : dict
        It is changed, and returned.
    field : str
    pixels : float
        Width. Any other value changes nothing: None if the device does not report it.
    """
    value = message.get(field)
    if not isinstance(value, bytes | str) or not _is_number(pixels) or pixels < 1 or len(value) <= pixels:
        return message
    wanted = int(pixels)
    before = ratio_of(message, field)
    message[field] = _means(value, wanted) if isinstance(value, bytes) else value[:wanted]
    message[field + RATIO] = round(before * len(value) / wanted, 6)
    return message


@check_arguments
def expand(samples: bytes, length: int) -> bytes:
    """Draw a line through compressed samples again: as many as there were, between the means.

    Parameters
    ----------
    samples : bytes
        Compressed samples.
    length : int
        Number of samples before compression.
    """
    whole_number("length", length, -(1 << 62), _MAX_SAMPLES)
    if not samples or length <= 0:
        return b""
    places = (np.arange(len(samples)) + 0.5) * length / len(samples) - 0.5
    line = np.interp(np.arange(length), places, np.frombuffer(samples, dtype=np.uint8))
    return bytes(np.rint(line).astype(np.uint8))


def ratio_of(message: Fields, field: str) -> float:
    """Say by how much a field was compressed so far."""
    ratio = message.get(field + RATIO)
    return float(ratio) if _is_number(ratio) and ratio >= 1 else 1.0


@check_arguments
def method(name: str) -> Callable[[_F], _F]:
    """Register a method of one's own, which policies then call by its name.

    It is given the message to be sent, which it may change, and the state, which it may not; what it gives
    back is sent instead, and nothing (``None``) drops the message.

    Parameters
    ----------
    name : str
        Name of the method in policies.

    Raises
    ------
    PolicyError
        The name is none.
    """
    if not str(name).isidentifier():
        raise PolicyError("This cannot be the name of a method.", found=brief(name), expected="a name")

    def register(function: _F) -> _F:
        _methods[name] = function
        return function

    return register


def method_of(name: str) -> Method:
    """Find a method that was registered.

    Raises
    ------
    PolicyError
        There is none.
    """
    if name not in _methods:
        raise PolicyError(
            "There is no such method.",
            found=brief(name),
            expected=", ".join(sorted(_methods)) or "none yet",
            remedy="register it with @method before the policy is read",
        )
    return _methods[name]


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _means(samples: bytes, wanted: int) -> bytes:
    """Give so many means of the samples, each over an equal part, rounded."""
    begins, widths = _parts(len(samples), wanted)
    sums = np.add.reduceat(np.frombuffer(samples, dtype=np.uint8), begins, dtype=np.int64)
    return ((2 * sums + widths) // (2 * widths)).astype(np.uint8).tobytes()


@lru_cache(maxsize=256)
def _parts(length: int, wanted: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    edges = np.arange(wanted + 1, dtype=np.int64) * length // wanted
    return edges[:-1], np.diff(edges)
