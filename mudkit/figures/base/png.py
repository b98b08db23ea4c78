"""A picture of at most 16 colours as PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["encode"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode(levels: NDArray[np.uint8], palette: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Write a picture with four bits a pixel.

    Parameters
    ----------
    levels : ndarray of uint8, shape (rows, columns)
        The place of each pixel's colour in the palette, below 16; the first row is the upper one.
    palette : sequence of (red, green, blue, alpha)
        The colours, at most 16, each part from 0 to 255.

    Returns
    -------
    bytes
        The PNG file.
    """
    rows, columns = levels.shape
    even = np.zeros((rows, columns + columns % 2), dtype=np.uint8)
    even[:, :columns] = levels
    packed = (even[:, 0::2] << 4) | even[:, 1::2]
    no_filter = np.zeros((rows, 1), dtype=np.uint8)
    lines = np.hstack([no_filter, packed]).tobytes()
    header = struct.pack(">IIBBBBB", columns, rows, 4, 3, 0, 0, 0)
    colours = bytes(part for colour in palette for part in colour[:3])
    alphas = bytes(colour[3] for colour in palette)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", colours),
        (b"tRNS", alphas),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
