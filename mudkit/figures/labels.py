"""Placement of labels so that none overlap, at the least width at which figures are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from mudkit.figures.style import INK, escaped

__all__ = ["MIN_WIDTH_PX", "Box", "Sheet", "point_labels", "text_px"]

MIN_WIDTH_PX: Final = 550
"""Width of a figure on 1024 pixels beside the file browser; in a wider one labels have more room."""

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
)  # fmt: skip
"""Directions from a point to its label, the best first; y grows downwards."""


def text_px(text: str, size_px: float) -> tuple[float, float]:
    """Return the approximate width and height of a text in one line."""
    return _LETTER * size_px * len(text), _LINE * size_px


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
        """Reserve the first free box, if possible one that need not be avoided; return its number.

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
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def point_labels(
    points: Sequence[tuple[Any, Any]],
    shares: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colours: Sequence[str],
    *,
    size_px: tuple[float, float],
    lines: Iterable[Sequence[tuple[float, float]]] = (),
    font_px: float = 12.0,
) -> list[dict[str, Any]]:
    """Return annotations that name points beside them, with a line to those that have to stand farther off.

    Parameters
    ----------
    points : sequence of (object, object)
        Coordinates on the axes.
    shares : sequence of (float, float)
        The same, from 0 (left, bottom) to 1.
    texts, colours : sequence of str
        Names of the points, and the colours of these.
    size_px : (float, float)
        Width and height of the plot.
    lines : iterable of sequence of (float, float)
        Lines that labels keep off, by the shares of their points.
    font_px : float
        Size of the font.
    """
    width, height = size_px
    edges = 4.0, -12.0, width + 12.0, height - 2.0
    sheet, crowded = (
        Sheet(*edges),
        Sheet(*edges),
    )  # off the lines, and over them where there is no other place
    middles = [(x * width, (1.0 - y) * height) for x, y in shares]
    for x, y in middles:
        for area in (sheet, crowded):
            area.block((x - _MARKER_PX, y - _MARKER_PX, x + _MARKER_PX, y + _MARKER_PX))
    for (x1, y1), (x2, y2) in (pair for line in lines for pair in pairwise(line)):
        across, up = (x2 - x1) * width, (y2 - y1) * height
        parts = 1 + int(max(abs(across), abs(up)) / _LINE_PX)
        for part in range(parts + 1):
            x, y = x1 * width + across * part / parts, (1.0 - y1) * height - up * part / parts
            sheet.block((x - _LINE_PX, y - _LINE_PX, x + _LINE_PX, y + _LINE_PX))
    labels = []
    for (x, y), at, text, colour in zip(middles, points, texts, colours, strict=True):
        wide, high = text_px(text, font_px)
        offsets = [(right * step, down * step) for step in _STEPS_PX for right, down in _WAYS]
        boxes = []
        for right, down in offsets:
            left = x + right - (wide / 2 if right == 0 else wide if right < 0 else 0)
            top = y + down - (high / 2 if down == 0 else high if down < 0 else 0)
            boxes.append((left, top, left + wide, top + high))
        number = sheet.put(boxes)
        if number is None and (number := crowded.put(boxes)) is not None:
            sheet.block(boxes[number])
        elif number is not None:
            crowded.block(boxes[number])
        right, down = offsets[number or 0]
        labels.append({
            "x": at[0], "y": at[1], "text": escaped(text), "ax": right, "ay": down,
            "showarrow": True, "arrowhead": 0, "arrowwidth": 1, "standoff": 7, "borderpad": 0,
            "arrowcolor": INK if (number or 0) >= len(_WAYS) else "rgba(0,0,0,0)",
            "xanchor": "center" if right == 0 else "right" if right < 0 else "left",
            "yanchor": "middle" if down == 0 else "bottom" if down < 0 else "top",
            "font": {"size": font_px, "color": colour},
        })  # fmt: skip
    return labels
