"""Exercises of the chapters: random scenarios, and the smallest one in which a solution fails."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.exercises.grading import grade
    from mudkit.exercises.judging import Exercise, Judgement, PlayedScenario
    from mudkit.exercises.parameters import check_parameters
    from mudkit.exercises.register import EXERCISES, judge
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "EXERCISES",
    "Exercise",
    "Judgement",
    "PlayedScenario",
    "check_parameters",
    "grade",
    "judge",
]
