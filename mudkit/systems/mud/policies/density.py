"""How densely places are written to at each hour: a table that is shipped with a policy (Mobius 6).

It is part of the artefact's document: ``{"cell_deg": 0.05, "cells": [[row, column, [24 numbers]], …]}``. The
row and the column of a cell are its latitude and longitude over its size, rounded down; the numbers are
points an hour, by the hour of mean solar time. A cell that is not listed is never written to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from mudkit.arguments import check_init
from mudkit.errors import ParameterError, brief
from mudkit.sources.parameters import number
from mudkit.wire import Value

__all__ = ["HOURS", "Density"]

HOURS: Final = 24
_MAX_CELLS: Final = 100_000


@check_init
@dataclass(frozen=True)
class Density:
    """A table of densities.

    Parameters
    ----------
    cell_deg : float
        Size of a cell, in degrees of latitude and of longitude.
    cells : mapping of (int, int) to tuple of float
        Points an hour, 24 numbers for each row and column.
    """

    cell_deg: float
    cells: Mapping[tuple[int, int], tuple[float, ...]]

    def __post_init__(self) -> None:
        number("cell_deg", self.cell_deg, 1e-9, 360.0)

    def at(self, lat: float, lon: float, hour: float) -> float:
        """Say how densely a place is written to.

        Parameters
        ----------
        lat, lon : float
            Degrees.
        hour : float
            The hour of mean solar time, from 0 to 24.

        Returns
        -------
        float
            Points an hour in its cell.
        """
        rates = self.cells.get((math.floor(lat / self.cell_deg), math.floor(lon / self.cell_deg)))
        return 0.0 if rates is None else rates[int(hour) % HOURS]

    def document(self) -> dict[str, Value]:
        """Give it as JSON can hold it."""
        cells: list[Value] = [[*place, list(rates)] for place, rates in sorted(self.cells.items())]
        return {"cell_deg": self.cell_deg, "cells": cells}

    @classmethod
    def read(cls, document: Value) -> Density:
        """Read one, and check all of it.

        Raises
        ------
        ParameterError
            It is no such table.
        """
        match document:
            case {"cell_deg": int() | float() as size, "cells": list() as cells, **rest} if (
                not rest and not isinstance(size, bool) and 0 < size < math.inf
            ):
                pass
            case _:
                raise _refused(
                    "density", brief(document, 200), "cell_deg, a number over 0, and cells, a list"
                )
        if len(cells) > _MAX_CELLS:
            raise _refused("density.cells", f"{len(cells):,} cells", f"at most {_MAX_CELLS:,}")
        read: dict[tuple[int, int], tuple[float, ...]] = {}
        for index, cell in enumerate(cells):
            match cell:
                case [int(row), int(column), list() as rates] if (
                    (row, column) not in read and len(rates) == HOURS and all(map(_is_rate, rates))
                ):
                    read[row, column] = tuple(float(rate) for rate in rates if _is_rate(rate))
                case _:
                    expected = f"[row, column, {HOURS} numbers, 0 or more], each cell once"
                    raise _refused(f"density.cells[{index}]", brief(cell, 200), expected)
        return cls(float(size), read)


def _is_rate(rate: Value) -> TypeGuard[float]:
    return isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < math.inf


def _refused(where: str, found: str, expected: str) -> ParameterError:
    return ParameterError("This policy cannot be used.", where=where, found=found, expected=expected)
