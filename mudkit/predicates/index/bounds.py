"""Which of many conjunctions of bounds does a record meet? A k-d tree whose leaves NumPy scans.

A subscription ``lat BETWEEN :south AND :north AND price <= :most`` is a corner in the space of its bounds,
``b = (south, -north, -most)``, and a record is the point ``q = (lat, -lat, -price)`` in the same space: the
bounds hold exactly when ``b <= q`` in every coordinate. So ranges, boxes and bounds on one side are one case.

Corners are kept in blocks of a fixed width, each with the least value of every coordinate; a block can hold a
match only when these are ``<= q``. A query is one comparison over all blocks' least values and one over the
corners of the few blocks that remain. The tree above decides in which block a corner goes, so that blocks
prune well; it grows where corners come and shrinks where they go, without ever being rebuilt.

The tests of the mutations (moves, splits, merges) are in ``tests/property/test_bounds.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.index.cuts import Cut, Side, best_cut, ranges

__all__ = ["Bounds", "Places"]

WIDTH: Final = 128
"""Corners in a block: enough to make NumPy's cost per call small, few enough to prune."""
FIRST: Final = 16

_INF: Final = math.inf


class Places:
    """Where each entry is: block and position, for all :class:`Bounds` of one group."""

    def __init__(self) -> None:
        self.block = np.zeros(16, dtype=np.int32)
        self.position = np.zeros(16, dtype=np.int16)

    def reserve(self, entries: int) -> None:
        """Make room for entries 0 to ``entries - 1``."""
        if entries > len(self.block):
            size = max(entries, 2 * len(self.block))
            self.block = np.resize(self.block, size)
            self.position = np.resize(self.position, size)


class _Node:
    """An inner node with a cut and two nodes below, or a leaf with blocks."""

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
    """Corners, and which of them a query meets.

    Parameters
    ----------
    sides : tuple of Side
        The coordinates.
    places : Places
        Shared with other instances: an entry is in one of them only.
    """

    __slots__ = (
        "_counts", "_free", "_low", "_nodes", "_pairs", "_places", "_root", "_sides", "_used", "corners",
        "entries", "size",
    )  # fmt: skip

    def __init__(self, sides: tuple[Side, ...], places: Places) -> None:
        self._sides = sides
        self._places = places
        coordinates = len(sides)
        self.corners = np.full((1, coordinates, FIRST), _INF)
        self.entries = np.zeros((1, FIRST), dtype=np.int32)
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
        """Blocks in use or free."""
        return self._used

    def insert(self, entry: int, corner: tuple[float, ...]) -> None:
        """Put in a corner that is not in yet; no coordinate may be NaN or infinite, but for ``-inf``."""
        node = self._root
        while True:
            while node.cut is not None:
                below = node.left if node.cut.value(corner) < node.cut.at else node.right
                assert below is not None
                node = below
            if not node.open and not self._widen(node) and not self._split(node):
                self._lengthen(node)
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
        self.corners[block, :, position] = corner
        self.entries[block, position] = entry
        self._places.block[entry] = block
        self._places.position[entry] = position
        low = self._low[:, block]
        np.minimum(low, corner, out=low)

    def move(self, entry: int, corner: tuple[float, ...]) -> None:
        """Change the corner of an entry that is in."""
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
        """Take an entry out that is in."""
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
        if last <= WIDTH // 4:
            self._shrink(node, block)

    def _shrink(self, node: _Node, block: int) -> None:
        """Give back what has become empty, so that corners that wander leave no trail."""
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
            if self._counts[block] + self._counts[other] <= WIDTH // 2:
                entries = self.entries[block, : self._counts[block]].copy()
                corners = self.corners[block, :, : self._counts[block]].copy()
                start = self._counts[other]
                stop = start + len(entries)
                self._fill(other, start, entries, corners)
                self._counts[other] = stop
                self._replace(parent, sibling)
                self._release(block)

    def _replace(self, parent: _Node, child: _Node) -> None:
        """Put a node in the place of its parent."""
        above = parent.parent
        child.parent = above
        if above is None:
            self._root = child
        elif above.left is parent:
            above.left = child
        else:
            above.right = child

    def _release(self, block: int) -> None:
        self.corners[block] = _INF
        self._low[:, block] = _INF
        self._counts[block] = 0
        self._nodes[block] = None
        self._free.append(block)

    def _take(self, node: _Node) -> int:
        """Give an empty block."""
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
        more = max(1, len(self.corners) // 2)
        _, coordinates, width = self.corners.shape
        self.corners = np.concatenate([self.corners, np.full((more, coordinates, width), _INF)])
        self.entries = np.concatenate([self.entries, np.zeros((more, width), dtype=np.int32)])
        self._low = np.concatenate([self._low, np.full((coordinates, more), _INF)], axis=1)

    def _widen(self, node: _Node) -> bool:
        """Make the first block wider, up to the full width: few corners shall cost little memory."""
        width = self.corners.shape[2]
        if self._used > 1 or width >= WIDTH:
            return False
        more = min(width, WIDTH - width)
        self.corners = np.concatenate([self.corners, np.full((1, len(self._sides), more), _INF)], axis=2)
        self.entries = np.concatenate([self.entries, np.zeros((1, more), dtype=np.int32)], axis=1)
        node.open.append(0)
        return True

    def _lengthen(self, node: _Node) -> None:
        """Give a leaf another block: its corners cannot be told apart with any use."""
        block = self._take(node)
        node.blocks.append(block)
        node.open.append(block)

    def _split(self, node: _Node) -> bool:
        """Cut a full leaf in two, if some cut is of use."""
        size = len(node.blocks) * WIDTH
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
        for start in range(0, len(entries), WIDTH):
            block = self._take(node)
            part = entries[start : start + WIDTH]
            self._fill(block, 0, part, corners[:, start : start + WIDTH])
            self._counts[block] = len(part)
            node.blocks.append(block)
            if len(part) < WIDTH:
                node.open.append(block)

    def _fill(self, block: int, start: int, entries: NDArray[np.int32], corners: NDArray[np.float64]) -> None:
        stop = start + len(entries)
        self.entries[block, start:stop] = entries
        self.corners[block, :, start:stop] = corners
        self._places.block[entries] = block
        self._places.position[entries] = np.arange(start, stop)
        self._low[:, block] = self.corners[block].min(axis=1)

    def all(self) -> list[int]:
        """Give all entries."""
        blocks = [block for block, node in enumerate(self._nodes) if node is not None]
        return [int(entry) for block in blocks for entry in self.entries[block, : self._counts[block]]]

    def query(self, point: NDArray[np.float64]) -> tuple[NDArray[np.int32], int]:
        """Find the corners that are ``<=`` a point.

        Parameters
        ----------
        point : array of float64, shape (coordinates,)
            Without NaN.

        Returns
        -------
        entries : array of int32
        scanned : int
            Corners that were looked at.
        """
        if self._used == 1:
            count = self._counts[0]
            inside = (self.corners[0, :, :count] <= point[:, None]).all(axis=0)
            return self.entries[0, :count][inside], count
        hit = np.flatnonzero((self._low[:, : self._used] <= point[:, None]).all(axis=0))
        inside = (self.corners[hit] <= point[:, None]).all(axis=1)
        return self.entries[hit][inside], len(hit) * self.corners.shape[2]

    def query_many(self, points: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int32]]]:
        """Find the corners for many points at once.

        Parameters
        ----------
        points : array of float64, shape (coordinates, n)

        Yields
        ------
        number : array of int, shape (m,)
            Which point.
        entries : array of int32, shape (m,)
            An entry whose corner is ``<=`` that point.
        """
        low = self._low[:, : self._used]
        # As many points at a time as keep the comparisons within the cache.
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
        """Pair points with the blocks that they must visit; the longer side is innermost: faster."""
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
