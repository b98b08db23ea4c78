"""Placement of labels so that none overlap, at the least width at which figures are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from mudkit.display import INK
from mudkit.figures.style import TEXT_PX, escaped

MIN_WIDTH_PX: Final = 550
"""Width of a figure on 1024 pixels beside the file browser."""
WIDTHS_PX: Final = (MIN_WIDTH_PX, 700, 900)
"""Widths of a figure that its labels are placed for: beside the file browser, and in chapters and reports."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, px."""

_LETTER: Final = 0.6  # of the size of the font, rather too much than too little
_LINE: Final = 1.2
_MARKER_PX: Final = 8.0
_LINE_PX: Final = 3.0
_SPACE_PX: Final = 6.0
_STEPS_PX: Final = (11.0, 30.0, 52.0, 76.0, 100.0, 124.0, 148.0)
_WAYS: Final = (
    (1, 0), (-1, 0), (0, -1), (0, 1), (0.7, -0.8), (-0.7, -0.8), (0.7, 0.8), (-0.7, 0.8),
    (0.1, -1), (-0.1, -1), (0.1, 1), (-0.1, 1),
)  # fmt: skip
"""Directions from a point to its label, the best first; y grows downwards."""


def text_px(text: str) -> tuple[float, float]:
    """Return the approximate width and height of a text in one line."""
    return _LETTER * TEXT_PX * len(text), _LINE * TEXT_PX


class Sheet:
    """Area on which boxes are placed so that none overlap.

    Parameters
    ----------
    left, top, right, bottom : float
        Edges that labels stay within, px.
    """

    def __init__(self, left: float, top: float, right: float, bottom: float) -> None:
        self._edges = left, top, right, bottom
        self._taken: list[Box] = []

    def block(self, box: Box) -> None:
        """Keep labels off a box."""
        self._taken.append(box)

    def put(self, boxes: Iterable[Box], avoid: Callable[[Box], bool] = lambda box: False) -> int | None:
        """Reserve the first free box, if possible one not to avoid; return its number, None if none is free.

        Texts in one line stay a space apart.
        """
        left, top, right, bottom = self._edges
        free = [
            (avoid(box), number, box)
            for number, box in enumerate(boxes)
            if box[0] >= left and box[1] >= top and box[2] <= right and box[3] <= bottom
            and not any(_overlap(box, other) for other in self._taken)
        ]  # fmt: skip
        if not free:
            return None
        _, number, (left, top, right, bottom) = min(free, key=lambda entry: entry[:2])
        self._taken.append((left - _SPACE_PX, top, right + _SPACE_PX, bottom))
        return number


def _overlap(one: Box, other: Box) -> bool:
    """Return whether two boxes overlap; boxes that only touch do not."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


class _Plot:
    """A plot of one width, with the boxes of its markers and lines."""

    def __init__(
        self,
        size_px: tuple[float, float],
        shares: Sequence[tuple[float, float]],
        lines: Sequence[Sequence[tuple[float, float]]],
    ) -> None:
        self._size_px = width, height = size_px
        self._middles = [(x * width, (1.0 - y) * height) for x, y in shares]
        self._taken = [_square(x, y, _MARKER_PX) for x, y in self._middles]
        self._lines: list[Box] = []
        for (x1, y1), (x2, y2) in (pair for line in lines for pair in pairwise(line)):
            across, down = (x2 - x1) * width, (y1 - y2) * height
            parts = 1 + int(max(abs(across), abs(down)) / _LINE_PX)
            for part in range(parts + 1):
                x, y = x1 * width + across * part / parts, (1.0 - y1) * height + down * part / parts
                self._lines.append(_square(x, y, _LINE_PX))

    def _box(self, point: int, label: Box) -> Box:
        """Return the box of a label on the plot, from its place beside a point."""
        x, y = self._middles[point]
        return x + label[0], y + label[1], x + label[2], y + label[3]

    def faults(self, point: int, label: Box) -> tuple[bool, bool, bool]:
        """Return whether a label lacks room here, is nearer to another point, and is on a line."""
        box = self._box(point, label)
        width, height = self._size_px
        is_inside = box[0] >= 4.0 and box[1] >= -12.0 and box[2] <= width + 12.0 and box[3] <= height - 2.0
        has_room = is_inside and not any(_overlap(box, other) for other in self._taken)
        apart_px = [_distance_px(box, middle) for middle in self._middles]
        own_px = apart_px.pop(point)
        is_foreign = min(apart_px, default=math.inf) <= own_px
        return not has_room, is_foreign, any(_overlap(box, line) for line in self._lines)

    def take(self, point: int, label: Box) -> None:
        """Keep other labels a space apart from this one."""
        left, top, right, bottom = self._box(point, label)
        self._taken.append((left - _SPACE_PX, top, right + _SPACE_PX, bottom))


def _distance_px(box: Box, place: tuple[float, float]) -> float:
    """Return how far a place is from the nearest point of a box."""
    left, top, right, bottom = box
    x, y = place
    return math.hypot(max(left - x, x - right, 0.0), max(top - y, y - bottom, 0.0))


def _square(x: float, y: float, half_px: float) -> Box:
    """Return the box around a place."""
    return x - half_px, y - half_px, x + half_px, y + half_px


def point_labels(
    points: Sequence[tuple[Any, Any]],
    shares: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colours: Sequence[str],
    *,
    sides_px: float,
    height_px: float,
    lines: Iterable[Sequence[tuple[float, float]]] = (),
) -> list[dict[str, Any]]:
    """Return annotations that name points beside them, with a line to those that have to stand farther off.

    A label has the same distance from its point at every width. It is placed where it has room at all of
    ``WIDTHS_PX``, or at the least one if there is no such place; if possible nearer to its point than to
    any other, and on no line at the largest, or at as few as possible.

    Parameters
    ----------
    points : sequence of (object, object)
        Coordinates on the axes.
    shares : sequence of (float, float)
        The same, from 0 (left, bottom) to 1.
    texts, colours : sequence of str
        Names of the points, and the colours of these.
    sides_px, height_px : float
        Width of what is beside the plot, and height of the plot.
    lines : iterable of sequence of (float, float)
        Lines that labels keep off, by the shares of their points.
    """
    drawn = list(lines)
    plots = [_Plot((width_px - sides_px, height_px), shares, drawn) for width_px in WIDTHS_PX]
    labels = []
    for point, (at, text, colour) in enumerate(zip(points, texts, colours, strict=True)):
        wide, high = text_px(text)
        offsets = [(right * step, down * step) for step in _STEPS_PX for right, down in _WAYS]
        ranked = []
        for number, (right, down) in enumerate(offsets):
            left = right - (wide / 2 if right == 0 else wide if right < 0 else 0)
            top = down - (high / 2 if down == 0 else high if down < 0 else 0)
            box = left, top, left + wide, top + high
            faults = [plot.faults(point, box) for plot in plots]
            lacks_room, is_foreign, is_on = zip(*faults, strict=True)
            ranked.append(
                (lacks_room[0], sum(lacks_room), is_on[-1], sum(is_on) + sum(is_foreign), number, box)
            )
        *_, number, box = min(ranked)
        for plot in plots:
            plot.take(point, box)
        right, down = offsets[number]
        labels.append({
            "x": at[0], "y": at[1], "text": escaped(text), "ax": right, "ay": down,
            "showarrow": True, "arrowhead": 0, "arrowwidth": 1, "standoff": 7, "borderpad": 0,
            "arrowcolor": INK if number >= len(_WAYS) else "rgba(0,0,0,0)",
            "xanchor": "center" if right == 0 else "right" if right < 0 else "left",
            "yanchor": "middle" if down == 0 else "bottom" if down < 0 else "top",
            "font": {"size": TEXT_PX} | ({"color": colour} if colour != INK else {}),  # INK: of the page
        })  # fmt: skip
    return labels
