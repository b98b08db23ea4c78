"""Reads that a trace of positions does not record, derived by a rule that stays on record.

A derived read asks for the points around the device at that moment; its ``origin`` names the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError
from mudkit.trace.schema import READS, epoch_us, with_read_ids
from mudkit.units import US_PER_S, distance_km

__all__ = ["RULES", "Rule", "derive_reads"]

STILL_KM = 0.05
"""A step shorter than this is standing still: a city block's half, well over the noise of a GPS fix."""


@dataclass(frozen=True)
class Rule:
    """A rule with its parameters, for instance ``trip_start(still_s=600)``.

    Parameters
    ----------
    name : {'trip_start', 'occupancy', 'none'}
        ``trip_start``: the first fix of a device, and its first movement after ``still_s`` seconds without
        one. ``occupancy``: a taxi that takes up a fare. ``none``: no reads.
    still_s : float
        Seconds without movement that end a trip (``trip_start``).
    """

    name: str
    still_s: float = 600.0

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule as it is written: ``occupancy``, ``trip_start``, ``trip_start(still_s=300)``.

        Raises
        ------
        ParameterError
        """
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(?:still_s\s*=\s*([0-9.]+))?\s*\))?\s*", text)
        if match and match[1] in RULES and (match[2] is None or match[1] == "trip_start"):
            try:
                return cls(match[1], float(match[2])) if match[2] else cls(match[1])
            except ValueError:
                pass
        raise ParameterError(
            "There is no such rule for reads.",
            where="rule",
            found=repr(text),
            expected="none, occupancy, trip_start or trip_start(still_s=SECONDS)",
            remedy="choose one of these, or load recorded reads from a log (reads=)",
        )

    def __str__(self) -> str:
        return f"trip_start(still_s={self.still_s:g})" if self.name == "trip_start" else self.name


def derive_reads(
    positions: pa.Table, rule: Rule, *, box_km: float, window_s: float, occupied: pa.Array | None = None
) -> pa.Table:
    """Derive reads from positions.

    Parameters
    ----------
    positions : pyarrow.Table
        Ordered by device and time.
    rule : Rule
    box_km, window_s : float
        What each read asks for: a square of this side, and points of the last so many seconds.
    occupied : pyarrow.Array of bool, optional
        For ``occupancy``: whether the taxi has a fare, a value for each position; null is unknown.

    Returns
    -------
    pyarrow.Table
        Reads with the schema of the trace.

    Raises
    ------
    TraceContentError
        The rule needs what the trace does not have.
    """
    if rule.name == "occupancy" and occupied is None:
        raise TraceContentError(
            "The rule 'occupancy' needs a trace that says when a taxi has a fare.",
            found="no occupancy column",
            expected="a Cabspotting file, or a column mapped to 'occupied'",
            remedy="use rule=trip_start",
        )
    device = positions["device"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    same_device = np.zeros(len(device), dtype=np.bool_)
    same_device[1:] = device[1:] == device[:-1]
    chosen = positions.filter(pa.array(RULES[rule.name](positions, same_device, rule, occupied)))
    constant = {
        "box_km": pa.array(np.full(len(chosen), box_km)),
        "window_s": pa.array(np.full(len(chosen), window_s)),
        "origin": pa.array([f"derived: {rule}"] * len(chosen), pa.string()),
    }
    columns = {name: chosen[name] for name in ("device", "ts", "lat", "lon")}
    if not len(chosen):
        return READS.empty_table()
    return with_read_ids(pa.table(columns | constant))


def _trip_start(
    positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: Any
) -> NDArray[np.bool_]:
    t_us = epoch_us(positions["ts"])
    lat, lon = positions["lat"].to_numpy(), positions["lon"].to_numpy()
    moved = ~same_device
    moved[1:] |= distance_km(lat[:-1], lon[:-1], lat[1:], lon[1:]) >= STILL_KM
    starts = np.zeros(len(t_us), dtype=np.bool_)
    moves = np.flatnonzero(moved)
    still = np.append(True, np.diff(t_us[moves]) >= rule.still_s * US_PER_S)[: len(moves)]
    starts[moves[still | ~same_device[moves]]] = True
    return starts


def _occupancy(
    positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: pa.Array
) -> NDArray[np.bool_]:
    full = np.asarray(pc.fill_null(occupied, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    empty = np.asarray(pc.invert(pc.fill_null(occupied, True)).to_numpy(zero_copy_only=False), dtype=np.bool_)
    starts = np.zeros(len(full), dtype=np.bool_)
    starts[1:] = full[1:] & empty[:-1] & same_device[1:]
    return starts


def _none(
    positions: pa.Table, same_device: NDArray[np.bool_], rule: Rule, occupied: Any
) -> NDArray[np.bool_]:
    return np.zeros(len(same_device), dtype=np.bool_)


RULES: dict[str, Callable[[pa.Table, NDArray[np.bool_], Rule, Any], NDArray[np.bool_]]] = {
    "trip_start": _trip_start,
    "occupancy": _occupancy,
    "none": _none,
}
"""Rules by name: positions to a mask of those at which a read happens."""
