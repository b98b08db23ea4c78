"""Conjunctions of bounds that a record satisfies, found in a k-d tree whose leaves NumPy scans.

A subscription ``lat BETWEEN :south AND :north AND price <= :most`` is a corner in the space of its bounds,
``b = (south, -north, -most)``, and a record is the point ``q = (lat, -lat, -price)`` in the same space: the
bounds hold exactly when ``b <= q`` in every coordinate.

Corners are stored in blocks of a fixed size, each with the minimum of every coordinate. A query compares the
minima of all blocks, then the corners of the few blocks that may match. The tree assigns corners to blocks
so that most queries exclude most blocks; it splits and merges leaves, and is never rebuilt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_SIZE: Final = 128
"""Corners in a block: enough to amortise NumPy's cost per call, few enough to exclude blocks."""
INITIAL_BLOCK_SIZE: Final = 16
MAX_REMAINING_SHARE: Final = 0.97
"""Maximum share of the visits that must remain for a cut to be made."""
_INF: Final = math.inf


class Side(NamedTuple):
    """Coordinate of the corners: a bound, negated if ``upper``, of an expression of the record."""

    expression: int
    upper: bool


class Cut(NamedTuple):
    """Division of a leaf by a coordinate, or by the middle or the width of a range."""

    kind: str
    first: int
    second: int
    at: float

    def value(self, corner: tuple[float, ...]) -> float:
        """Return the value of an entry that the cut compares with ``at``: a bound, a middle or a length."""
        if self.kind == "bound":
            return corner[self.first]
        low, high = corner[self.first], -corner[self.second]
        if low == -_INF or high == _INF:
            return -_INF if self.kind == "middle" else _INF
        return (low + high) * 0.5 if self.kind == "middle" else high - low


def ranges(sides: tuple[Side, ...]) -> list[tuple[int, int]]:
    """Pair the lower and the upper side of each expression; a single side is paired with itself."""
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for first, side in enumerate(sides):
        if first in taken:
            continue
        for second, other in enumerate(sides):
            if second not in taken and other.expression == side.expression and other.upper != side.upper:
                pairs.append((second, first) if side.upper else (first, second))
                taken |= {first, second}
                break
        else:
            pairs.append((first, first))
            taken.add(first)
    return pairs


def best_cut(corners: NDArray[np.float64], pairs: list[tuple[int, int]]) -> tuple[Cut, Any] | None:
    """Return the cut in halves that saves the most visits, and a mask of the left half; None without one.

    The share of queries that visit a half is estimated as the product over expressions of its relative
    range.
    """
    best: tuple[float, Cut, Any] | None = None
    whole = _record_ranges(corners, pairs)
    for cut, values in _candidates(corners, pairs):
        middle = float(np.partition(values, len(values) // 2)[len(values) // 2])
        left = values < middle
        share = float(left.mean())
        if share < 0.05:
            # Many equal values: cut above them instead.
            above = values[values > middle]
            if not len(above):
                continue
            middle = float(above.min())
            left = values < middle
            share = float(left.mean())
            if not 0.0 < share < 1.0:
                continue
        visits = share * _ratio(_record_ranges(corners[:, left], pairs), whole, pairs)
        visits += (1 - share) * _ratio(_record_ranges(corners[:, ~left], pairs), whole, pairs)
        if visits < MAX_REMAINING_SHARE and (best is None or visits < best[0]):
            best = visits, cut._replace(at=middle), left
    return None if best is None else best[1:]


def _candidates(
    corners: NDArray[np.float64], pairs: list[tuple[int, int]]
) -> list[tuple[Cut, NDArray[np.float64]]]:
    """Return the possible cuts, still without their ``at``, each with the value of every corner."""
    cuts = []
    for first, second in pairs:
        if first == second:
            cuts.append((Cut("bound", first, first, 0.0), corners[first]))
            continue
        low, high = corners[first], -corners[second]
        unbounded = (low == -_INF) | (high == _INF)
        with np.errstate(invalid="ignore"):
            cuts.append((Cut("middle", first, second, 0.0), np.where(unbounded, -_INF, (low + high) * 0.5)))
            cuts.append((Cut("width", first, second, 0.0), np.where(unbounded, _INF, high - low)))
    return cuts


def _record_ranges(corners: NDArray[np.float64], pairs: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Return, for each pair of sides, the range of record values that these corners can match."""
    extents = []
    for first, second in pairs:
        low = float(corners[first].min())
        high = float(corners[first].max()) if first == second else float((-corners[second]).max())
        extents.append((low, high))
    return extents


def _ratio(
    part: list[tuple[float, float]], whole: list[tuple[float, float]], pairs: list[tuple[int, int]]
) -> float:
    """Estimate the share of the queries visiting the whole that also visit a part of it."""
    product = 1.0
    for (low, high), (lowest, highest), (first, second) in zip(part, whole, pairs, strict=True):
        length = highest - lowest
        # A one-sided bound also matches everything beyond the last corner.
        end = highest if first == second else high
        if length == _INF:
            product *= 0.5 if end - low < _INF else 1.0
        elif length > 0:
            product *= min(1.0, max(end - low, 0.0) / length)
    return product


class Places:
    """Block and position of each entry, for all :class:`Bounds` of one group."""

    def __init__(self) -> None:
        self.block = np.zeros(16, dtype=np.int32)
        self.position = np.zeros(16, dtype=np.int16)

    def reserve(self, entries: int) -> None:
        """Enlarge the arrays, if they are shorter, for entries 0 to ``entries - 1``."""
        if entries > len(self.block):
            size = max(entries, 2 * len(self.block))
            self.block = np.resize(self.block, size)
            self.position = np.resize(self.position, size)


class _Node:
    """Inner node with a cut and two children, or leaf with blocks."""

    __slots__ = ("blocks", "cut", "left", "open", "parent", "right", "tried")

    def __init__(self, parent: _Node | None, blocks: list[int]) -> None:
        self.parent = parent
        self.cut: Cut | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.blocks = blocks
        self.open = list(blocks)
        self.tried = 0


class Bounds:
    """Set of corners, and queries for those below a point; instances may share ``places``, not entries."""

    __slots__ = (
        "_counts", "_free", "_low", "_nodes", "_pairs", "_places", "_root", "_sides", "_used", "corners",
        "entries", "size",
    )  # fmt: skip

    def __init__(self, sides: tuple[Side, ...], places: Places) -> None:
        self._sides = sides
        self._places = places
        coordinates = len(sides)
        self.corners = np.full((1, coordinates, INITIAL_BLOCK_SIZE), _INF)
        self.entries = np.zeros((1, INITIAL_BLOCK_SIZE), dtype=np.int32)
        self._low = np.full((coordinates, 1), _INF)
        self._counts = [0]
        self._free: list[int] = []
        self._used = 1
        self._root = _Node(None, [0])
        self._nodes: list[_Node | None] = [self._root]
        self._pairs = ranges(sides)
        self.size = 0

    @property
    def blocks(self) -> int:
        """Number of blocks, in use or free."""
        return self._used

    def insert(self, entry: int, corner: tuple[float, ...]) -> None:
        """Insert a new entry; no coordinate may be NaN or infinite, except ``-inf``."""
        node = self._root
        while True:
            while node.cut is not None:
                below = node.left if node.cut.value(corner) < node.cut.at else node.right
                assert below is not None
                node = below
            if not node.open and not self._widen_block(node) and not self._split(node):
                self._add_block(node)
            if node.cut is None:
                break
        block = node.open[-1]
        position = self._counts[block]
        self._write(block, position, entry, corner)
        self._counts[block] = position + 1
        if position + 1 == self.corners.shape[2]:
            node.open.pop()
        self.size += 1

    def _write(self, block: int, position: int, entry: int, corner: tuple[float, ...]) -> None:
        """Store an entry at a free position of a block, and include its corner in the block's minimum."""
        self.corners[block, :, position] = corner
        self.entries[block, position] = entry
        self._places.block[entry] = block
        self._places.position[entry] = position
        low = self._low[:, block]
        np.minimum(low, corner, out=low)

    def move(self, entry: int, corner: tuple[float, ...]) -> None:
        """Change the corner of an entry; the entry may move to another leaf."""
        block, position = int(self._places.block[entry]), int(self._places.position[entry])
        node = self._root
        while node.cut is not None:
            below = node.left if node.cut.value(corner) < node.cut.at else node.right
            assert below is not None
            node = below
        if node is self._nodes[block]:
            self.corners[block, :, position] = corner
            self._low[:, block] = self.corners[block].min(axis=1)
        else:
            self.remove(entry)
            self.insert(entry, corner)

    def remove(self, entry: int) -> None:
        """Remove an entry; leaves that become small are merged."""
        block, position = int(self._places.block[entry]), int(self._places.position[entry])
        last = self._counts[block] - 1
        if position != last:
            other = int(self.entries[block, last])
            self.entries[block, position] = other
            self.corners[block, :, position] = self.corners[block, :, last]
            self._places.position[other] = position
        self.corners[block, :, last] = _INF
        self._counts[block] = last
        self._low[:, block] = self.corners[block].min(axis=1)
        self.size -= 1
        node = self._nodes[block]
        assert node is not None
        if last + 1 == self.corners.shape[2]:
            node.open.append(block)
        if last <= BLOCK_SIZE // 4:
            self._shrink(node, block)

    def _shrink(self, node: _Node, block: int) -> None:
        """Release an empty block, or merge two small leaves, so that no empty leaves accumulate."""
        if self._counts[block] == 0 and len(node.blocks) > 1:
            node.blocks.remove(block)
            node.open.remove(block)
            self._release(block)
            return
        parent = node.parent
        if parent is None or len(node.blocks) > 1:
            return
        sibling = parent.right if node is parent.left else parent.left
        assert sibling is not None
        if self._counts[block] == 0:
            self._replace(parent, sibling)
            self._release(block)
        elif sibling.cut is None and len(sibling.blocks) == 1:
            other = sibling.blocks[0]
            if self._counts[block] + self._counts[other] <= BLOCK_SIZE // 2:
                entries = self.entries[block, : self._counts[block]].copy()
                corners = self.corners[block, :, : self._counts[block]].copy()
                start = self._counts[other]
                stop = start + len(entries)
                self._fill(other, start, entries, corners)
                self._counts[other] = stop
                self._replace(parent, sibling)
                self._release(block)

    def _replace(self, parent: _Node, child: _Node) -> None:
        """Replace a parent by one of its children."""
        above = parent.parent
        child.parent = above
        if above is None:
            self._root = child
        elif above.left is parent:
            above.left = child
        else:
            above.right = child

    def _release(self, block: int) -> None:
        """Empty a block and add it to the free ones."""
        self.corners[block] = _INF
        self._low[:, block] = _INF
        self._counts[block] = 0
        self._nodes[block] = None
        self._free.append(block)

    def _allocate(self, node: _Node) -> int:
        """Add an empty block to a leaf and return its number; grow the arrays if none is free."""
        if self._free:
            block = self._free.pop()
        else:
            block = self._used
            if block == len(self.corners):
                self._grow()
            self._used += 1
            self._counts.append(0)
            self._nodes.append(None)
        self._nodes[block] = node
        return block

    def _grow(self) -> None:
        """Enlarge the arrays of blocks by half."""
        more = max(1, len(self.corners) // 2)
        _, coordinates, width = self.corners.shape
        self.corners = np.concatenate([self.corners, np.full((more, coordinates, width), _INF)])
        self.entries = np.concatenate([self.entries, np.zeros((more, width), dtype=np.int32)])
        self._low = np.concatenate([self._low, np.full((coordinates, more), _INF)], axis=1)

    def _widen_block(self, node: _Node) -> bool:
        """Double the first block up to the full size; return False if it has that, or is not the only one."""
        width = self.corners.shape[2]
        if self._used > 1 or width >= BLOCK_SIZE:
            return False
        more = min(width, BLOCK_SIZE - width)
        self.corners = np.concatenate([self.corners, np.full((1, len(self._sides), more), _INF)], axis=2)
        self.entries = np.concatenate([self.entries, np.zeros((1, more), dtype=np.int32)], axis=1)
        node.open.append(0)
        return True

    def _add_block(self, node: _Node) -> None:
        """Add a block to a leaf whose corners no cut separates."""
        block = self._allocate(node)
        node.blocks.append(block)
        node.open.append(block)

    def _split(self, node: _Node) -> bool:
        """Split a full leaf in two and return True; False if no cut saves visits, as at this size before."""
        size = len(node.blocks) * BLOCK_SIZE
        if size < 2 * node.tried:
            return False
        node.tried = size
        entries = self.entries[node.blocks].reshape(-1)
        corners = self.corners[node.blocks].transpose(1, 0, 2).reshape(len(self._sides), -1)
        best = best_cut(corners, self._pairs)
        if best is None:
            return False
        cut, left = best
        blocks, node.blocks, node.open = node.blocks, [], []
        for block in blocks:
            self._release(block)
        node.cut = cut
        node.left, node.right = _Node(node, []), _Node(node, [])
        for child, mask in ((node.left, left), (node.right, ~left)):
            self._load(child, entries[mask], corners[:, mask])
        return True

    def _load(self, node: _Node, entries: NDArray[np.int32], corners: NDArray[np.float64]) -> None:
        """Store entries in new blocks of a leaf."""
        for start in range(0, len(entries), BLOCK_SIZE):
            block = self._allocate(node)
            part = entries[start : start + BLOCK_SIZE]
            self._fill(block, 0, part, corners[:, start : start + BLOCK_SIZE])
            self._counts[block] = len(part)
            node.blocks.append(block)
            if len(part) < BLOCK_SIZE:
                node.open.append(block)

    def _fill(self, block: int, start: int, entries: NDArray[np.int32], corners: NDArray[np.float64]) -> None:
        """Store entries at consecutive positions of a block."""
        stop = start + len(entries)
        self.entries[block, start:stop] = entries
        self.corners[block, :, start:stop] = corners
        self._places.block[entries] = block
        self._places.position[entries] = np.arange(start, stop)
        self._low[:, block] = self.corners[block].min(axis=1)

    def all(self) -> list[int]:
        """Return all entries, in the order of their blocks."""
        blocks = [block for block, node in enumerate(self._nodes) if node is not None]
        return [int(entry) for block in blocks for entry in self.entries[block, : self._counts[block]]]

    def query(self, point: NDArray[np.float64]) -> tuple[NDArray[np.int32], int]:
        """Return the entries whose corners are ``<=`` a point, and the number of corners compared."""
        if self._used == 1:
            count = self._counts[0]
            inside = (self.corners[0, :, :count] <= point[:, None]).all(axis=0)
            return self.entries[0, :count][inside], count
        hit = np.flatnonzero((self._low[:, : self._used] <= point[:, None]).all(axis=0))
        inside = (self.corners[hit] <= point[:, None]).all(axis=1)
        return self.entries[hit][inside], len(hit) * self.corners.shape[2]

    def query_many(self, points: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        """Yield numbers of points, of shape (coordinates, n), and the entries with corners ``<=`` them."""
        low = self._low[:, : self._used]
        # The number of points at a time keeps the comparisons within the processor's cache.
        step = max(1, 100_000 // low.size)
        for start in range(0, points.shape[1], step):
            part = points[:, start : start + step]
            number, block = self._visits(low, part)
            for first in range(0, len(block), 512):
                here, who = block[first : first + 512], number[first : first + 512]
                inside = (self.corners[here] <= part.T[who][:, :, None]).all(axis=1)
                pair, position = inside.nonzero()
                yield who[pair] + start, self.entries[here[pair], position]

    @staticmethod
    def _visits(low: NDArray[np.float64], points: NDArray[np.float64]) -> tuple[Any, Any]:
        """Pair points with the blocks that they must visit; the longer axis is innermost, which is faster."""
        if low.shape[1] >= points.shape[1]:
            met = low[0] <= points[0][:, None]
            for coordinate, limits in zip(points[1:], low[1:], strict=True):
                met &= limits <= coordinate[:, None]
            return np.divmod(np.flatnonzero(met), low.shape[1])
        met = low[0][:, None] <= points[0]
        for coordinate, limits in zip(points[1:], low[1:], strict=True):
            met &= limits[:, None] <= coordinate
        block, number = np.divmod(np.flatnonzero(met), points.shape[1])
        return number, block
