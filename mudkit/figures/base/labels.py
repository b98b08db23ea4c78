"""Short texts on a figure with lanes, laid out so that none lies over another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Label", "Sheet", "natural"]

_CHARACTER_PX, _LINE_PX = 6.4, 16.0  # of plotly's font at 11 points, rather too much than too little


class Label(NamedTuple):
    """A text that has found room.

    Parameters
    ----------
    text : str
    place : float
        Its place across the lanes.
    t_us : int
        Its time.
    shift_px : float
        How far right of that place it begins, or left of it (below 0) it ends; 0: it is centred.
    colour : str
    """

    text: str
    place: float
    t_us: int
    shift_px: float
    colour: str


class Sheet:
    """Where labels lie already.

    Parameters
    ----------
    lane_px : float
        The distance from one lane to the next, in pixels.
    px_per_us : float
        Down the page.
    lanes : int
    """

    def __init__(self, lane_px: float, px_per_us: float, lanes: int) -> None:
        self._lane_px = lane_px
        self._px_per_us = px_per_us
        self._lanes = lanes
        self._taken: list[tuple[float, float, float, float]] = []

    def put(self, text: str, spots: Iterable[tuple[float, int, float]], colour: str) -> Label | None:
        """Put a text at the first of some spots that is free, rather beside the lanes than on one.

        Parameters
        ----------
        text : str
        spots : iterable of (place, t_us, shift_px)
        colour : str

        Returns
        -------
        Label or None
            None: there is no room, and the pointer has to show it.
        """
        free: list[tuple[bool, int, Label, tuple[float, float, float, float]]] = []
        for place, t_us, shift_px in spots:
            box = self._box(text, place, t_us, shift_px)
            if not any(_overlap(box, other) for other in self._taken) and self._inside(box):
                free.append((self._on_lane(box), len(free), Label(text, place, t_us, shift_px, colour), box))
        if not free:
            return None
        _, _, label, box = min(free, key=lambda entry: entry[:2])
        self._taken.append(box)
        return label

    def _box(self, text: str, place: float, t_us: int, shift_px: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, px."""
        width = _CHARACTER_PX * len(text) + 4
        x, y = place * self._lane_px + shift_px, t_us * self._px_per_us
        left = x - width / 2 if not shift_px else x if shift_px > 0 else x - width
        return left, y - _LINE_PX / 2, left + width, y + _LINE_PX / 2

    def _inside(self, box: tuple[float, float, float, float]) -> bool:
        return box[0] >= -0.6 * self._lane_px and box[2] <= (self._lanes - 0.4) * self._lane_px

    def _on_lane(self, box: tuple[float, float, float, float]) -> bool:
        return any(box[0] < lane * self._lane_px < box[2] for lane in range(self._lanes))


def natural(name: str) -> list[tuple[int, str]]:
    """Give the key that sorts car9 before car10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
