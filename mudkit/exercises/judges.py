"""Exercises from a file of a lecturer's own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from mudkit.errors import ParameterError
from mudkit.exercises.judging import Exercise
from mudkit.files import existing_path

JUDGES: Final = "mudkit_judges"
"""Name under which the file is imported: its classes are pickled by this name."""


def load_judges(path: str | Path) -> ModuleType:
    """Import a Python file as module :data:`JUDGES`; raise ParameterError if it cannot be loaded."""
    file = existing_path(path, "file of exercises")
    spec = importlib.util.spec_from_file_location(JUDGES, file)
    if spec is None or spec.loader is None:
        raise ParameterError("Expected a Python file.", where="judges", found=str(file), expected="*.py")
    module = sys.modules[JUDGES] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ParameterError(
            "This file of exercises cannot be loaded.",
            where=str(file),
            found=f"{type(error).__name__}: {error}",
            remedy=f"run python {file} to see the line",
        ) from error
    return module


def exercises_of(path: str | Path) -> dict[str, Exercise]:
    """Load ``EXERCISES`` from a Python file; raise ParameterError if it has none."""
    exercises = getattr(load_judges(path), "EXERCISES", None)
    if not isinstance(exercises, Mapping) or not all(
        isinstance(exercise, Exercise) for exercise in exercises.values()
    ):
        raise ParameterError(
            "This file has no exercises.",
            where=str(path),
            found=f"EXERCISES is {exercises!r}"[:200],
            expected="EXERCISES, a dictionary of mudkit.exercises.Exercise by name",
        )
    return dict(exercises)
