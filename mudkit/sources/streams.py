"""Named random streams whose draws are addressed, not taken in turn.

A draw is a function of (seed, name of the stream, device, step). So a fleet can be drawn as one array, and
a device added, left out or asked in another order changes nothing for the others.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3", SC'11): device and step are its counter, seed and name its key.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log1p, ndtr, ndtri

from mudkit.errors import ParameterError

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MAX_RANGE = 1 << 32


def philox4x32(
    counter: tuple[NDArray[np.uint64], ...], key: tuple[int, int]
) -> tuple[NDArray[np.uint64], ...]:
    """Apply Philox4x32-10 to arrays of counters under one key; all words are below 2**32."""
    c0, c1, c2, c3 = counter
    for i in range(_ROUNDS):
        k0, k1 = (np.uint64((k + i * step) & 0xFFFFFFFF) for k, step in zip(key, _KEY_STEPS, strict=True))
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (product1 >> _HALF) ^ c1 ^ k0, (product0 >> _HALF) ^ c3 ^ k1
        c1, c3 = product1 & _MASK, product0 & _MASK
    return c0, c1, c2, c3


def device_number(device: str) -> int:
    """Return the stable number of a device that is known by its name: 64 bits of a hash of it."""
    return int.from_bytes(hashlib.blake2b(device.encode(), digest_size=8).digest(), "little")


class Stream:
    """Random numbers of one kind, for instance the stay at the third stop of a day.

    Every method broadcasts the numbers of devices and steps (integers or arrays), and returns an array of
    that shape. The methods are views of the same bits: two quantities of one device and step need two
    streams. The bits and the uniforms are the same on every machine; what goes through a logarithm can differ
    in the last bit.

    Parameters
    ----------
    seed : int
        The one seed of the run; any integer.
    name : str
        What is drawn. Streams of different names are independent.
    """

    __slots__ = ("_key", "name", "seed")

    def __init__(self, seed: int, name: str) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise ParameterError(
                "The seed is not usable.", where="seed", found=repr(seed), expected="an integer"
            )
        self.seed = int(seed)
        self.name = name
        text = f"{self.seed}\0{name}".encode()
        digest = hashlib.blake2b(text, digest_size=8, person=b"mudkit.stream").digest()
        self._key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"))

    def __repr__(self) -> str:
        return f"Stream(seed={self.seed}, name={self.name!r})"

    def words(self, device: ArrayLike, step: ArrayLike) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Draw two independent words of 64 random bits for each device and step.

        Parameters
        ----------
        device, step : int or array_like of int
            Numbers from -2**63 to 2**64 - 1; negative ones stand for the upper half.

        Raises
        ------
        ParameterError
            A number is not an integer.
        """
        device, step = np.broadcast_arrays(_address("device", device), _address("step", step))
        counter = (device & _MASK, device >> _HALF, step & _MASK, step >> _HALF)
        w0, w1, w2, w3 = philox4x32(counter, self._key)
        return w0 | (w1 << _HALF), w2 | (w3 << _HALF)

    def uniform(
        self, device: ArrayLike, step: ArrayLike, low: ArrayLike = 0.0, high: ArrayLike = 1.0
    ) -> NDArray[np.float64]:
        """Draw from [low, high), with 53 random bits."""
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        value = low + (high - low) * _unit(self.words(device, step)[0])
        return np.asarray(np.minimum(value, np.nextafter(high, low)))  # the sum may round up to high

    def pair(self, device: ArrayLike, step: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw two uniforms in [0, 1) for each device and step; the first is that of :meth:`uniform`."""
        first, second = self.words(device, step)
        return _unit(first), _unit(second)

    def chance(self, device: ArrayLike, step: ArrayLike, share: ArrayLike) -> NDArray[np.bool_]:
        """Draw booleans, true with probability ``share``; what is true at one share is so at a larger one."""
        return np.asarray(self.uniform(device, step) < np.asarray(share))

    def integers(
        self, device: ArrayLike, step: ArrayLike, low: ArrayLike, high: ArrayLike
    ) -> NDArray[np.int64]:
        """Draw integers in [low, high), each equally likely to within 2**-32.

        Raises
        ------
        ParameterError
            A range is empty or holds more than 2**32 integers.
        """
        low, high = _whole("low", low).astype(np.int64), _whole("high", high).astype(np.int64)
        size = high - low
        if np.any(size < 1) or np.any(size > _MAX_RANGE):
            raise ParameterError(
                "The range to draw from is not usable.",
                where="low, high",
                found=f"from {low.min()} to {high.max()}",
                expected="low < high, and at most 2**32 apart",
            )
        word, _ = self.words(device, step)
        span = size.astype(np.uint64)
        # The upper 64 bits of word * span (Lemire, ACM TOMACS 29, 2019), without his rejection.
        offset = ((word >> _HALF) * span + (((word & _MASK) * span) >> _HALF)) >> _HALF
        return np.asarray(low + offset.astype(np.int64))

    def normal(
        self,
        device: ArrayLike,
        step: ArrayLike,
        mean: ArrayLike = 0.0,
        std: ArrayLike = 1.0,
        within: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Draw from a normal distribution, by inversion.

        Parameters
        ----------
        device, step : int or array_like of int
            Address of the draw.
        mean, std : array_like of float
            Mean and standard deviation before the distribution is cut off.
        within : array_like of float, optional
            Truncate at this many standard deviations on either side; nothing piles up at the ends.
        """
        # 52 bits and a half: never 0 nor 1, whose inverse is infinite.
        u = ((self.words(device, step)[0] >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        if within is not None:
            below = ndtr(-np.asarray(within, dtype=np.float64))
            u = below + u * (1.0 - 2.0 * below)
        z = ndtri(u)
        return np.asarray(np.asarray(mean) + np.asarray(std) * z, dtype=np.float64)

    def exponential(self, device: ArrayLike, step: ArrayLike, mean: ArrayLike = 1.0) -> NDArray[np.float64]:
        """Draw from an exponential distribution, by inversion; at most 37 times its ``mean``."""
        return np.asarray(-np.asarray(mean) * log1p(-self.uniform(device, step)), dtype=np.float64)


def _unit(word: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the upper 53 bits of words as numbers in [0, 1)."""
    return np.asarray((word >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _whole(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return integers as an array; ParameterError for other values."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise ParameterError(
            f"A {name} is not an integer.",
            where=name,
            found=f"{array.dtype} ({np.ravel(array)[0]!r})",
            expected="integers",
            remedy="device_number gives the number of a device that has a name" if name == "device" else None,
        )
    return array


def _address(name: str, value: ArrayLike) -> NDArray[np.uint64]:
    """Return integers as words of 64 bits, negative ones modulo 2**64; ParameterError for other values."""
    return _whole(name, value).astype(np.uint64)
