"""Measured throughput as a curve: how many bytes a link could have carried by each moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["INSTANT", "Curve", "Instant"]

_BYTES_PER_KBPS_US = 1.25e-4


class Curve:
    """Bytes by time, piecewise linear.

    Parameters
    ----------
    from_us : array_like of int
        Begins of the pieces, ascending.
    until_us : int
        End of the last piece.
    kbps : array_like of float
        Throughput of each; NaN: not measured.
    otherwise_kbps : float
        Throughput where nothing was measured, and after the end.
    """

    __slots__ = ("_bytes", "_kbps", "_us")

    def __init__(self, from_us: ArrayLike, until_us: int, kbps: ArrayLike, otherwise_kbps: float) -> None:
        edges = np.append(np.asarray(from_us, dtype=np.int64), until_us)
        rates = np.asarray(kbps, dtype=np.float64)
        rates = np.where(np.isnan(rates), otherwise_kbps, rates)
        carried = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rates * _BYTES_PER_KBPS_US)])
        self._us: list[int] = edges.tolist()
        self._bytes: list[float] = carried.tolist()
        self._kbps: list[float] = [*rates.tolist(), otherwise_kbps]

    @property
    def most_kbps(self) -> float:
        """The highest throughput of all."""
        return max(self._kbps)

    def end_us(self, start_us: int, size_bytes: int) -> int:
        """Say when so many bytes are carried that begin at a time."""
        aim = self._by(start_us) + size_bytes
        piece = bisect_left(self._bytes, aim) - 1 if aim > 0 else 0
        rate = self._kbps[piece] * _BYTES_PER_KBPS_US
        after_us = (aim - self._bytes[piece]) / rate if rate else 0.0
        return max(int(self._us[piece] + after_us), start_us) + 1

    def carried_bytes(self, start_us: int, end_us: int) -> int:
        """Say how many bytes can be carried between two times."""
        return int(self._by(end_us) - self._by(start_us))

    def _by(self, t_us: int) -> float:
        piece = max(bisect_right(self._us, t_us) - 1, 0)
        return self._bytes[piece] + (t_us - self._us[piece]) * self._kbps[piece] * _BYTES_PER_KBPS_US


class Instant:
    """The curve of a link that carries everything at once."""

    __slots__ = ()
    most_kbps: Final = 1e12

    def end_us(self, start_us: int, size_bytes: int) -> int:
        """Say when so many bytes are carried that begin at a time: then."""
        return start_us

    def carried_bytes(self, start_us: int, end_us: int) -> int:
        """Say how many bytes can be carried between two times: all that anybody has."""
        return 1 << 62


INSTANT: Final = Instant()
