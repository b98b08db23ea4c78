"""The last result of each row, kept in the user's cache."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mudkit.files import staged_file
from mudkit.reproduce.row import Figure, Measured

__all__ = ["Kept", "folder", "load", "save"]


@dataclass(frozen=True)
class Kept:
    """The last result of a row.

    Parameters
    ----------
    measured : Measured
    date : str
        When it was measured, in ISO 8601.
    minutes : float
        Duration of the measurement.
    busy_cores : float
        Cores that other programs kept busy meanwhile, on average.
    """

    measured: Measured
    date: str
    minutes: float
    busy_cores: float


def folder() -> Path:
    """Return the folder that results are kept in; it exists."""
    from mudkit.pipeline.launch.cache import cache_folder  # loads all of pipeline: seconds

    return cache_folder("results")


def save(name: str, kept: Kept, place: Path) -> None:
    """Keep a row's result, whole or not at all.

    Raises
    ------
    OutputProblem
        The folder cannot be written.
    """
    with staged_file(place / f"{name}.json") as file:
        whole: dict[str, Any] = asdict(kept.measured) | {
            "date": kept.date,
            "minutes": kept.minutes,
            "busy_cores": kept.busy_cores,
        }
        file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(name: str, place: Path) -> Kept | None:
    """Return a row's last result; None when there is none that can be read."""
    try:
        whole = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        figures = {
            key: Figure(float(figure["median"]), float(figure["low"]), float(figure["high"]))
            for key, figure in whole["figures"].items()
        }
        measured = Measured(figures, dict(whole["parameters"]))
        return Kept(measured, str(whole["date"]), float(whole["minutes"]), float(whole["busy_cores"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is only a cache
