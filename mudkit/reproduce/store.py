"""The last result of each row, kept in the user's cache."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mudkit.files import staged_file
from mudkit.reproduce.row import Figure, Measured

__all__ = ["folder", "load", "save"]


def folder() -> Path:
    """Return the folder that results are kept in; it exists."""
    from mudkit.pipeline.launch.cache import cache_folder  # loads all of pipeline: seconds

    return cache_folder("results")


def save(name: str, measured: Measured, date: str, place: Path) -> None:
    """Keep a row's result, whole or not at all.

    Parameters
    ----------
    name : str
        The row.
    measured : Measured
    date : str
        When, ISO 8601.
    place : Path
        The folder.

    Raises
    ------
    OutputProblem
        The folder cannot be written.
    """
    with staged_file(place / f"{name}.json") as file:
        whole: dict[str, Any] = {"date": date} | asdict(measured)
        file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(name: str, place: Path) -> tuple[Measured, str] | None:
    """Return a row's last result and its date; None when there is none that can be read."""
    try:
        whole = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        figures = {
            key: Figure(float(figure["median"]), float(figure["low"]), float(figure["high"]))
            for key, figure in whole["figures"].items()
        }
        return Measured(figures, dict(whole["parameters"])), str(whole["date"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is only a cache
