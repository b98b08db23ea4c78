"""The one colour scale of mudkit's maps: ordered by lightness, and readable for colour-blind readers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError

__all__ = ["NO_VALUE", "STOPS", "Colouring", "ramp", "short_number"]

STOPS = ["#f4e61e", "#b4de2c", "#6dcd59", "#35b779", "#1f9e89", "#26828e", "#31688e", "#3e4989", "#482777"]
"""Viridis (S. van der Walt, N. Smith; CC0) from light to dark: on a white ground more is darker."""

NO_VALUE = "#c4c7ca"
"""The grey of what has no value."""

_SHADES = 64


def ramp(shades: int) -> list[str]:
    """Return so many colours along the scale, the lightest first, as ``#rrggbb``."""
    stops = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in STOPS], dtype=np.float64)
    places = np.linspace(0.0, len(STOPS) - 1, shades)
    parts = [np.interp(places, np.arange(len(STOPS)), part).round().astype(int).tolist() for part in stops.T]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*parts, strict=True)]


def short_number(value: float) -> str:
    """Write a number for a legend or a tooltip: four digits that count, thousands apart."""
    if not np.isfinite(value):
        return "no value"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{value:,.{max(0, 3 - int(np.floor(np.log10(abs(value) or 1))))}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3g}"


@dataclass(frozen=True)
class Colouring:
    """Which number has which colour.

    Parameters
    ----------
    low, high : float
        The ends of the scale; what lies beyond has the colour of the end.
    logarithmic : bool
        Equal ratios, not equal differences, are equally far apart; ``low`` is above 0.
    """

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def of(
        cls, values: NDArray[np.float64], limits: tuple[float, float] | None = None, logarithmic: bool = False
    ) -> Colouring:
        """Make the scale of some values, NaN apart, or of given limits.

        Raises
        ------
        ParameterError
            The limits are no interval, or a logarithmic scale would have to start at 0 or below.
        """
        finite = values[np.isfinite(values)]
        if logarithmic:
            finite = finite[finite > 0]
        if limits is None:
            limits = (float(finite.min()), float(finite.max())) if finite.size else (1.0, 1.0)
        low, high = (float(limit) for limit in limits)
        if not (np.isfinite([low, high]).all() and low <= high and (low > 0 or not logarithmic)):
            raise ParameterError(
                "The limits of a colour scale make no sense.",
                where="limits",
                found=f"({low:g}, {high:g})",
                expected="0 < low <= high" if logarithmic else "low <= high",
            )
        return cls(low, high, logarithmic)

    def shades(self, values: NDArray[np.float64]) -> list[int]:
        """Return for each value its place in :meth:`colours`; the last place is for what has no value."""
        low, high, finite = self.low, self.high, np.isfinite(values)
        placed = np.where(finite, values, low)
        if self.logarithmic:
            low, high, placed = np.log(low), np.log(high), np.log(np.maximum(placed, self.low))
        share = np.clip((placed - low) / (high - low), 0.0, 1.0) if high > low else np.full(len(values), 0.5)
        shade = np.round(share * (_SHADES - 1)).astype(int)
        return [int(place) for place in np.where(finite, shade, _SHADES)]

    def colours(self) -> list[str]:
        """Return all colours of the scale, and the one of what has no value."""
        return [*ramp(_SHADES), NO_VALUE]

    def ticks(self) -> list[tuple[float, str]]:
        """Tell where on a legend (0 to 1) which number stands."""
        if self.high == self.low:
            return [(0.5, short_number(self.low))]
        if self.logarithmic:
            middle = float(np.sqrt(self.low * self.high))
        else:
            middle = (self.low + self.high) / 2
        return [(0.0, short_number(self.low)), (0.5, short_number(middle)), (1.0, short_number(self.high))]
